//! The scripts on Redis, each with a batch of jobs, while so many others wait
//! in the same sorted set.

use std::time::Duration;

use adapters::redis::RedisSchedule;
use divan::Bencher;
use divan::counter::ItemsCount;
use domain::ids::DestinationId;
use engine::ports::{Finish, NextRun, Schedule, TakenJob, Wake};
use rand::TryRng as _;
use rand::rngs::SysRng;
use tokio::runtime::Runtime;
use uuid::Uuid;

use crate::size::{BATCH, sizes};

/// Longer than a benchmark: what is due then is in the way and is not taken.
const FAR: Duration = Duration::from_secs(24 * 3_600);

/// The wakes of one call while the set is filled.
const FILL: u128 = 10_000;

/// A schedule of its own, with so many jobs that are not due.
struct Jobs {
    runtime: Runtime,
    schedule: RedisSchedule,
    waiting: u128,
    url: String,
    prefix: String,
}

impl Jobs {
    fn among(waiting: u32) -> Self {
        let url = std::env::var("PACELINE_TEST_REDIS_URL")
            .expect("PACELINE_TEST_REDIS_URL names a redis that may be written to");
        let mut random = [0; 8];
        SysRng.try_fill_bytes(&mut random).unwrap();
        let prefix = format!("bench-{:016x}", u64::from_be_bytes(random));
        let runtime = Runtime::new().unwrap();
        let schedule = runtime
            .block_on(RedisSchedule::connect(&url, &prefix, 1))
            .unwrap();
        let jobs = Self {
            runtime,
            schedule,
            waiting: u128::from(waiting),
            url,
            prefix,
        };
        let numbers: Vec<u128> = (0..jobs.waiting).collect();
        for chunk in numbers.chunks(FILL as usize) {
            let far = |number: &u128| Wake::after(destination(*number), FAR);
            jobs.wake(&chunk.iter().map(far).collect::<Vec<_>>());
        }
        jobs
    }

    /// Wakes of those who have no job.
    fn wakes(&self) -> Vec<Wake> {
        let fresh = self.waiting..self.waiting + BATCH as u128;
        fresh.map(|number| Wake::now(destination(number))).collect()
    }

    fn wake(&self, wakes: &[Wake]) {
        self.runtime.block_on(self.schedule.wake(wakes)).unwrap();
    }

    fn take(&self) -> Vec<TakenJob> {
        let taken = self.schedule.take(BATCH, FAR);
        self.runtime.block_on(taken).unwrap().jobs
    }

    fn finish(&self, finishes: &[Finish]) {
        self.runtime
            .block_on(self.schedule.finish(finishes))
            .unwrap();
    }

    /// A batch under lease.
    fn taken(&self) -> Vec<TakenJob> {
        self.wake(&self.wakes());
        self.take()
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        let client = redis::Client::open(self.url.as_str()).unwrap();
        let mut connection = client.get_connection().unwrap();
        let keys = ["jobs", "lease", "woken", "floor"];
        let keys = keys.map(|key| format!("{}:{{0}}:{key}", self.prefix));
        let unlink = redis::cmd("UNLINK").arg(&keys).exec(&mut connection);
        unlink.unwrap();
    }
}

fn destination(number: u128) -> DestinationId {
    DestinationId(Uuid::from_u128(number))
}

fn finishes(jobs: &[TakenJob], next: NextRun) -> Vec<Finish> {
    let finish = |job: &TakenJob| Finish {
        destination: job.destination,
        token: job.token.clone(),
        next,
    };
    jobs.iter().map(finish).collect()
}

#[divan::bench(args = sizes(), sample_size = 1, counters = [ItemsCount::new(BATCH)])]
fn redis_wake(bencher: Bencher<'_, '_>, waiting: u32) {
    let jobs = Jobs::among(waiting);
    let clear = || jobs.finish(&finishes(&jobs.take(), NextRun::Remove));
    let bencher = bencher.with_inputs(|| {
        clear();
        jobs.wakes()
    });
    bencher.bench_local_values(|wakes| jobs.wake(&wakes));
}

#[divan::bench(args = sizes(), sample_size = 1, counters = [ItemsCount::new(BATCH)])]
fn redis_take(bencher: Bencher<'_, '_>, waiting: u32) {
    let jobs = Jobs::among(waiting);
    let bencher = bencher.with_inputs(|| jobs.wake(&jobs.wakes()));
    bencher.bench_local_values(|()| {
        let taken = jobs.take();
        assert_eq!(taken.len(), BATCH);
        Untimed(&jobs, taken)
    });
}

/// Jobs that are finished when they are dropped, after the time was taken.
struct Untimed<'a>(&'a Jobs, Vec<TakenJob>);

impl Drop for Untimed<'_> {
    fn drop(&mut self) {
        self.0.finish(&finishes(&self.1, NextRun::Remove));
    }
}

#[divan::bench(args = sizes(), sample_size = 1, counters = [ItemsCount::new(BATCH)])]
fn redis_finish(bencher: Bencher<'_, '_>, waiting: u32) {
    let jobs = Jobs::among(waiting);
    let finished = || finishes(&jobs.taken(), NextRun::Remove);
    let bencher = bencher.with_inputs(finished);
    bencher.bench_local_values(|finished| jobs.finish(&finished));
}
