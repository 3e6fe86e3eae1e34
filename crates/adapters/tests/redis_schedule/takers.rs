//! Several takers and wakers over one schedule, against a truth of their own:
//! how much work each destination has.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use adapters::redis::RedisSchedule;
use domain::ids::DestinationId;
use engine::ports::{Finish, NextRun, Schedule, Wake};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::{HOUR, PATIENCE, POLL, destination};

/// Few, so that wakes, looks and removals of the same one meet.
const DESTINATIONS: u128 = 40;

#[derive(Default)]
struct Truth {
    /// Work that nobody has looked at, by destination.
    waiting: Mutex<HashMap<DestinationId, usize>>,
    /// Who is under whose lease now.
    held: Mutex<HashSet<DestinationId>>,
    woken: AtomicUsize,
    looked: AtomicUsize,
    /// How many will still wake.
    wakers: AtomicUsize,
}

/// Wakes destinations `wakes` times in all while every schedule takes, then
/// waits until all the work was looked at and every job is removed. Leases
/// last: whoever is given a job twice at once, or waits for ever, has found a
/// bug.
pub(super) async fn run(schedules: Vec<RedisSchedule>, wakes: usize) {
    let wakers = AtomicUsize::new(schedules.len());
    let truth = Arc::new(Truth {
        wakers,
        ..Truth::default()
    });
    let mut tasks = tokio::task::JoinSet::new();
    let mut last = None;
    for (seed, schedule) in schedules.into_iter().enumerate() {
        let schedule = Arc::new(schedule);
        last = Some(schedule.clone());
        let seed = seed as u64 * 2;
        tasks.spawn(wake(
            schedule.clone(),
            truth.clone(),
            wakes,
            StdRng::seed_from_u64(seed),
        ));
        tasks.spawn(take(
            schedule,
            truth.clone(),
            StdRng::seed_from_u64(seed + 1),
        ));
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    let counts = [&truth.woken, &truth.looked].map(|count| count.load(Ordering::SeqCst));
    assert_eq!(counts[0], counts[1], "woken, looked at");
    let left = last.unwrap().take(1, HOUR).await.unwrap();
    assert_eq!(
        (left.jobs.len(), left.next_due),
        (0, None),
        "every job was removed"
    );
}

async fn wake(schedule: Arc<RedisSchedule>, truth: Arc<Truth>, wakes: usize, mut rng: StdRng) {
    while truth.woken.load(Ordering::SeqCst) < wakes {
        let batch: Vec<Wake> = (0..rng.random_range(1..8))
            .map(|_| {
                let delay = Duration::from_millis(rng.random_range(0..4));
                Wake::after(destination(rng.random_range(0..DESTINATIONS)), delay)
            })
            .collect();
        for wake in &batch {
            *truth
                .waiting
                .lock()
                .unwrap()
                .entry(wake.destination)
                .or_default() += 1;
        }
        schedule.wake(&batch).await.unwrap();
        truth.woken.fetch_add(batch.len(), Ordering::SeqCst);
    }
    truth.wakers.fetch_sub(1, Ordering::SeqCst);
}

async fn take(schedule: Arc<RedisSchedule>, truth: Arc<Truth>, mut rng: StdRng) {
    let mut idle = 0;
    while idle < PATIENCE {
        let taken = schedule.take(rng.random_range(1..20), HOUR).await.unwrap();
        idle = if taken.jobs.is_empty() { idle + 1 } else { 0 };
        let mut finishes = Vec::new();
        for job in taken.jobs {
            assert!(!job.lapsed, "no lease was lost: {job:?}");
            assert!(
                truth.held.lock().unwrap().insert(job.destination),
                "shared: {job:?}"
            );
            let looked = truth
                .waiting
                .lock()
                .unwrap()
                .remove(&job.destination)
                .unwrap_or(0);
            truth.looked.fetch_add(looked, Ordering::SeqCst);
            let next = match rng.random_range(0..3) {
                // Nothing is left, as far as this look could see.
                0 | 1 => NextRun::Remove,
                _ => {
                    let delay = Duration::from_millis(rng.random_range(0..4));
                    NextRun::After {
                        delay,
                        floor: Some(delay / 2),
                    }
                }
            };
            finishes.push(Finish {
                destination: job.destination,
                token: job.token,
                next,
            });
        }
        // Wakes come in between the look and its finish.
        tokio::task::yield_now().await;
        for finish in &finishes {
            truth.held.lock().unwrap().remove(&finish.destination);
        }
        schedule.finish(&finishes).await.unwrap();

        let rests = truth.wakers.load(Ordering::SeqCst) == 0;
        if rests && taken.next_due.is_none() && truth.waiting.lock().unwrap().is_empty() {
            return;
        }
        if idle > 0 {
            tokio::time::sleep(POLL / 10).await;
        }
    }
    let waiting = truth.waiting.lock().unwrap();
    panic!("lost: nothing is due, but work waits: {waiting:?}");
}
