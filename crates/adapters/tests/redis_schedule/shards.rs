//! The number of shards is changed: no destination is lost, and none is left
//! with two jobs.

use std::collections::BTreeMap;
use std::time::Duration;

use adapters::redis::RedisSchedule;
use domain::ids::DestinationId;
use engine::ports::{Finish, NextRun, Schedule, ScheduleLife, Wake};

use crate::{HOUR, connection, destination, fresh_prefix, rebuild, shared_url};

const JOBS: u128 = 60;

async fn of(prefix: &str, shards: u16) -> RedisSchedule {
    let schedule = RedisSchedule::connect(&shared_url(), prefix, shards).await;
    schedule.unwrap()
}

async fn wake_all(schedule: &RedisSchedule) {
    let wakes: Vec<Wake> = (0..JOBS).map(destination).map(Wake::now).collect();
    schedule.wake(&wakes).await.unwrap();
}

/// Takes and removes until nothing is due; how often each came.
async fn take_all(schedule: &RedisSchedule) -> BTreeMap<DestinationId, u32> {
    let mut taken = BTreeMap::new();
    loop {
        let answer = schedule.take(50, HOUR).await.unwrap();
        for job in &answer.jobs {
            *taken.entry(job.destination).or_default() += 1;
        }
        let remove = answer.jobs.iter().map(|job| Finish {
            destination: job.destination,
            token: job.token.clone(),
            next: NextRun::Remove,
        });
        let remove: Vec<Finish> = remove.collect();
        schedule.finish(&remove).await.unwrap();
        // Strays that have come home may be due although this take had none.
        if remove.is_empty() && answer.next_due != Some(Duration::ZERO) {
            let again = schedule.take(0, HOUR).await.unwrap();
            if again.next_due != Some(Duration::ZERO) {
                return taken;
            }
        }
    }
}

fn each_once() -> BTreeMap<DestinationId, u32> {
    (0..JOBS).map(|number| (destination(number), 1)).collect()
}

/// How many jobs there are, in all shards that there ever were.
async fn jobs_left(prefix: &str) -> u64 {
    let mut connection = connection(&shared_url()).await;
    let mut left = 0;
    for shard in 0..7 {
        let mut count = redis::cmd("ZCARD");
        count.arg(format!("{prefix}:{{{shard}}}:jobs"));
        let count: u64 = count.query_async(&mut connection).await.unwrap();
        left += count;
    }
    left
}

/// Jobs that are where they were before come to their new shards, each once, and
/// nothing stays behind to be run for ever.
#[tokio::test]
async fn with_more_shards_every_job_comes_home() {
    let prefix = fresh_prefix();
    let before = of(&prefix, 1).await;
    rebuild(&before).await;
    wake_all(&before).await;

    let after = of(&prefix, 7).await;
    let life = after.life().await.unwrap();
    assert!(matches!(life, ScheduleLife::New(_)), "it is to be rebuilt");
    assert_eq!(take_all(&after).await, each_once());
    assert_eq!(jobs_left(&prefix).await, 0);
    // Whoever still has the old number, such as an API, wakes in the old place.
    wake_all(&before).await;
    assert_eq!(take_all(&after).await, each_once());
    assert_eq!(jobs_left(&prefix).await, 0);
}

/// What lies in shards that are asked no more is not found by a take: the life is
/// new, so the sweep wakes it.
#[tokio::test]
async fn with_fewer_shards_every_job_is_rebuilt() {
    let prefix = fresh_prefix();
    let before = of(&prefix, 7).await;
    rebuild(&before).await;
    wake_all(&before).await;

    let after = of(&prefix, 2).await;
    let ScheduleLife::New(life) = after.life().await.unwrap() else {
        panic!("nobody would look at what is in the other five");
    };
    wake_all(&after).await;
    after.rebuilt(&life).await.unwrap();
    assert_eq!(after.life().await.unwrap(), ScheduleLife::Same);
    // Some twice: those that were in the first two shards and belonged to the
    // other one of them now. That is a look too many.
    let taken = take_all(&after).await;
    assert!(taken.keys().eq(each_once().keys()), "{taken:?}");
    assert!(taken.values().all(|times| *times <= 2), "{taken:?}");

    // Back again: what was left there runs once more, finds nothing, and is gone.
    let again = of(&prefix, 7).await;
    rebuild(&again).await;
    take_all(&again).await;
    assert_eq!(jobs_left(&prefix).await, 0);
}

/// A stray under another's lease is left to him, and comes when the lease ends.
#[tokio::test]
async fn a_stray_that_somebody_holds_is_no_ones_else() {
    let prefix = fresh_prefix();
    let before = of(&prefix, 1).await;
    wake_all(&before).await;
    let held = before.take(JOBS as usize, HOUR).await.unwrap().jobs;
    let after = of(&prefix, 7).await;
    assert!(take_all(&after).await.is_empty());
    let next = NextRun::After {
        delay: Duration::ZERO,
        floor: None,
    };
    let finishes = held.iter().map(|job| Finish {
        destination: job.destination,
        token: job.token.clone(),
        next,
    });
    before.finish(&finishes.collect::<Vec<_>>()).await.unwrap();
    assert_eq!(take_all(&after).await, each_once());
    assert_eq!(jobs_left(&prefix).await, 0);
}
