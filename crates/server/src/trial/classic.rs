//! The classic limiter, beside which the demo shows ours. Nothing else uses it.
//!
//! Once a period a job puts `allow = rate_limit − attempts_still_in_queue` deliveries into
//! a queue, from which workers send as fast as they can. What has left the queue is
//! forgotten, so the formula bounds what a job hands out and no window: two jobs that
//! run a little less than a period apart put twice the limit into one. They do, because
//! a scheduler looks for due jobs every so often, so one job runs later after its due time
//! than the next.
//!
//! It is built as it is used: jobs due at a fixed rate, a scheduler that looks twenty times
//! a period, workers with a connection each. Its receivers are those of the demo, and are
//! judged by the same function.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use domain::compliance::{InForce, Stalls, USUAL_MARGIN};
use domain::destination::DestinationState;
use domain::limit::Period;
use domain::time::Timestamp;
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::{AtReceiver, Plan, WHOLE_WINDOWS, judge_received, per_second};
use crate::receiver::{Behaviour, Receiver};

/// Between two looks for jobs that are due.
const LOOK: Duration = Duration::from_millis(50);

/// The job's period: that of the limits that are compared.
const PERIOD: Duration = Period::Second.duration();

/// Requests in flight at once to one destination.
const WORKERS: usize = 32;

/// The largest head of an answer of ours.
const HEAD: usize = 1_024;

/// What the classic limiter gave one receiver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Classic {
    /// What any window was allowed.
    pub limit: u32,
    /// Requests that arrived.
    pub arrivals: u64,
    /// Those in the fullest window, less what the receiver's own stalls explain.
    pub largest_at_receiver: u64,
    /// How the limit was kept.
    pub at_receiver: AtReceiver,
}

/// Floods receivers like those of `plans` through the classic formula for so long, and
/// says what each got, by its name: those with a plain limit per second that answer.
pub async fn classic(
    plans: &[Plan],
    length: Duration,
) -> anyhow::Result<BTreeMap<String, Classic>> {
    let plain = plans.iter().filter_map(|plan| Some((plan, limit(plan)?)));
    let plain: Vec<(u32, (&Plan, u32))> = (0..).zip(plain).collect();
    let each_second: usize = plain.iter().map(|(_, (_, limit))| *limit as usize).sum();
    // Twice in each second, at the very most.
    let capacity = each_second * 2 * (length.as_secs() as usize + 1);
    let receiver = Receiver::start(Behaviour::ACCEPT, capacity).await;
    let receiver = receiver.context("start the receivers of the classic limiter")?;
    let mut jobs = Vec::new();
    let mut workers = JoinSet::new();
    for (number, (plan, limit)) in &plain {
        receiver.set_behaviour(*number, plan.behaviour);
        let (queue, deliveries) = mpsc::channel(*limit as usize);
        let limit = *limit;
        jobs.push(Job { limit, queue });
        let deliveries = Arc::new(Mutex::new(deliveries));
        for _ in 0..WORKERS.min(limit as usize * 4) {
            let to = (receiver.address(), *number);
            workers.spawn(work(to, Arc::clone(&deliveries)));
        }
    }
    schedule(&jobs, length).await;
    drop(jobs);
    workers.shutdown().await;
    let record = receiver.record();
    let stalls = Stalls::longer_than(USUAL_MARGIN, record.stalls.iter().copied());
    let judged = plain.into_iter().map(|(number, (plan, limit))| {
        let arrivals = record.arrivals.iter();
        let of_it = arrivals.filter(|arrival| arrival.destination == number);
        let read_at: Vec<_> = of_it.map(|arrival| arrival.read_at()).collect();
        (plan.name.clone(), Classic::judge(limit, &read_at, &stalls))
    });
    Ok(judged.collect())
}

/// Of a plain limit per second whose receiver answers.
fn limit(plan: &Plan) -> Option<u32> {
    let limit = plan.limits.per_second?;
    let is_plain = plan.limits == per_second(limit);
    (is_plain && plan.behaviour != Behaviour::NeverAnswer).then_some(limit)
}

impl Classic {
    fn judge(limit: u32, read_at: &[Timestamp], stalls: &Stalls) -> Self {
        let active = DestinationState::Active;
        let history = [InForce::new(Timestamp::MIN, &per_second(limit), active)];
        let verdict = judge_received(&history, read_at, (stalls, WHOLE_WINDOWS));
        Self {
            limit,
            arrivals: read_at.len() as u64,
            largest_at_receiver: verdict.fullest(Period::Second).0,
            at_receiver: AtReceiver::new(&verdict, read_at, WHOLE_WINDOWS),
        }
    }
}

/// The rate limiter's job of one destination, whose backlog never ends.
struct Job {
    limit: u32,
    queue: mpsc::Sender<()>,
}

impl Job {
    fn run(&self) {
        let still_in_queue = self.queue.max_capacity() - self.queue.capacity();
        for _ in 0..allowed(self.limit, still_in_queue) {
            // Full it is never: no more are allowed than there is room for.
            let _ = self.queue.try_send(());
        }
    }
}

/// The formula.
fn allowed(rate_limit: u32, attempts_still_in_queue: usize) -> u32 {
    let in_queue = u32::try_from(attempts_still_in_queue).unwrap_or(u32::MAX);
    rate_limit.saturating_sub(in_queue)
}

/// Runs the jobs, each due once a period, whenever it looks.
async fn schedule(jobs: &[Job], length: Duration) {
    let began = Instant::now();
    let mut due = began;
    while began.elapsed() < length {
        if Instant::now() >= due {
            due += PERIOD;
            jobs.iter().for_each(Job::run);
        }
        sleep(LOOK).await;
    }
}

/// Sends what it finds in the queue, one after the other.
async fn work(
    (address, number): (SocketAddr, u32),
    deliveries: Arc<Mutex<mpsc::Receiver<()>>>,
) -> io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let request = format!(
        "POST /r/{number} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         content-length: 2\r\n\r\n{{}}"
    );
    loop {
        let delivery = deliveries.lock().await.recv().await;
        if delivery.is_none() {
            return Ok(());
        }
        stream.write_all(request.as_bytes()).await?;
        answered(&mut stream).await?;
    }
}

/// Reads the head of an answer, which has no body.
async fn answered(stream: &mut TcpStream) -> io::Result<()> {
    let mut head = Vec::with_capacity(HEAD);
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut head).await? == 0 || head.len() >= HEAD {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::plans_for_demo;

    #[test]
    fn the_formula_counts_what_is_in_the_queue_and_nothing_else() {
        assert_eq!(
            [0, 3, 10, 11].map(|queued| allowed(10, queued)),
            [10, 7, 0, 0]
        );
        let (queue, mut deliveries) = mpsc::channel(10);
        let job = Job { limit: 10, queue };
        job.run();
        job.run();
        assert_eq!(deliveries.len(), 10);
        // Taken by a worker it is forgotten, though its window has just begun.
        while deliveries.try_recv().is_ok() {}
        job.run();
        assert_eq!(deliveries.len(), 10);
    }

    #[tokio::test]
    async fn it_sends_to_receivers_with_plain_limits_and_to_no_others() {
        let gave = classic(&plans_for_demo(5), PERIOD / 4).await.unwrap();
        let names: Vec<_> = gave.keys().map(String::as_str).collect();
        let plain = ["10/s", "10/s, slow", "100/s", "2/s", "20/s, then 50/s"];
        assert_eq!(names, plain);
        for one in gave.values() {
            assert!(
                one.arrivals <= u64::from(one.limit),
                "one job alone: {one:?}"
            );
        }
        assert!(gave.values().any(|one| one.arrivals > 0), "{gave:?}");
    }

    #[test]
    fn two_jobs_a_little_less_than_a_period_apart_are_over() {
        let bursts = [[0_i64; 10], [980; 10]];
        let read_at: Vec<_> = bursts
            .iter()
            .flatten()
            .map(|at| Timestamp::from_millis(*at))
            .collect();
        let judged = Classic::judge(10, &read_at, &Stalls::default());
        assert_eq!((judged.largest_at_receiver, judged.arrivals), (20, 20));
        assert_eq!(judged.at_receiver.early_arrivals, 10);
    }
}
