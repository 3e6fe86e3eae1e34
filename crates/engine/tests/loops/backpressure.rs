//! What one process takes and refuses between two counts, and how often it
//! asks for one.

use std::num::NonZeroU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use domain::backpressure::{
    BacklogBounds, Backlogged, FIRST_RETRY_AFTER, MIN_RETRY_AFTER, Standing,
};
use domain::event::{Audience, NewEvent};
use domain::ids::{DestinationId, EventId, TenantId};
use domain::time::Timestamp;
use engine::backpressure::{BackpressureLoop, BackpressureOptions, Pressure};
use engine::ports::{Backpressure, StoreError};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::support::{destination, store_away};

const TENANT: TenantId = TenantId(Uuid::from_u128(77));

/// Answers what a test says, as slowly as it says.
#[derive(Default)]
struct Counts {
    told: Mutex<Vec<Standing>>,
    takes: Mutex<Duration>,
    away: Mutex<bool>,
    asked: Mutex<Vec<(Instant, Vec<Backlogged>)>>,
}

#[async_trait]
impl Backpressure for Counts {
    async fn standings(
        &self,
        _: &BacklogBounds,
        passed: &[Backlogged],
        _: Duration,
    ) -> Result<Vec<Standing>, StoreError> {
        let asked = (Instant::now(), passed.to_vec());
        self.asked.lock().unwrap().push(asked);
        let takes = *self.takes.lock().unwrap();
        sleep(takes).await;
        match *self.away.lock().unwrap() {
            true => Err(store_away()),
            false => Ok(self.told.lock().unwrap().clone()),
        }
    }
}

struct Process {
    counts: Arc<Counts>,
    pressure: Arc<Pressure>,
    back: BackpressureLoop,
}

/// 100 of a destination, 1,000 of a tenant or of all.
fn process() -> Process {
    let bound = |bound| NonZeroU64::new(bound).unwrap();
    let pressure = Arc::new(Pressure::new(BacklogBounds {
        destination: bound(100),
        tenant: bound(1_000),
        all: bound(1_000),
    }));
    let counts = Arc::new(Counts::default());
    let options = BackpressureOptions::default();
    Process {
        back: BackpressureLoop::new(counts.clone(), pressure.clone(), options),
        counts,
        pressure,
    }
}

impl Process {
    fn tell(&self, standings: &[Standing]) {
        *self.counts.told.lock().unwrap() = standings.to_vec();
    }

    /// Hands events in until one is refused; how many were taken.
    fn fill(&self, destination: DestinationId) -> u32 {
        let mut taken = 0;
        while self.pressure.refusal(&event(destination)).is_none() {
            self.pressure.accepted(TENANT, &[destination]);
            taken += 1;
            assert!(taken < 10_000, "nothing refuses");
        }
        taken
    }
}

fn event(destination: DestinationId) -> NewEvent {
    to(Audience::Destination(destination))
}

fn to(audience: Audience) -> NewEvent {
    NewEvent {
        id: EventId(Uuid::from_u128(1)),
        tenant: TENANT,
        event_type: Some("order.paid".to_owned()),
        content_type: "application/json".to_owned(),
        payload: Bytes::new(),
        audience,
        idempotency: None,
    }
}

fn standing(whose: Backlogged, pending: u64, refusing: bool) -> Standing {
    Standing {
        whose,
        pending,
        counted_at: Timestamp::from_millis(1_700_000_000_000),
        refusing,
        drained_per_second: None,
        retry_after: match refusing {
            true => FIRST_RETRY_AFTER,
            false => Duration::ZERO,
        },
    }
}

/// Before the first count, and after one that has told of nothing: a backlog
/// that is not told of may be as long as a tenth of its bound.
#[tokio::test(start_paused = true)]
async fn what_this_process_accepts_is_counted_here() {
    let mut process = process();
    assert_eq!(process.fill(destination(1)), 71);
    process.back.tick().await;
    assert_eq!(process.fill(destination(2)), 71);
    let refusal = process.pressure.refusal(&event(destination(2))).unwrap();
    assert_eq!(refusal.whose, Backlogged::Destination(destination(2).0));
    assert_eq!(refusal.retry_after, MIN_RETRY_AFTER);
    assert_eq!(process.pressure.refusal(&to(Audience::Subscribers)), None);
}

/// Below the high mark but not below the low one it goes on refusing, in this
/// process by itself, until the store says so or counts less.
#[tokio::test(start_paused = true)]
async fn a_mark_that_was_passed_is_remembered_and_told() {
    let mut process = process();
    let whose = Backlogged::Destination(destination(1).0);
    process.fill(destination(1));
    process.tell(&[standing(whose, 70, false)]);
    process.back.tick().await;
    let asked = process.counts.asked.lock().unwrap().last().cloned();
    assert_eq!(asked.unwrap().1, [whose]);
    assert!(process.pressure.refusal(&event(destination(1))).is_some());
    process.tell(&[standing(whose, 49, false)]);
    process.back.tick().await;
    assert_eq!(process.pressure.refusal(&event(destination(1))), None);
    process.back.tick().await;
    let asked = process.counts.asked.lock().unwrap().last().cloned();
    assert_eq!(asked.unwrap().1, []);
}

/// With the store's own wait, and the longest of several.
#[tokio::test(start_paused = true)]
async fn what_the_store_refuses_is_refused() {
    let mut process = process();
    let whose = Backlogged::Destination(destination(1).0);
    let tenant = Standing {
        retry_after: Duration::from_secs(99),
        ..standing(Backlogged::Tenant(TENANT.0), 900, true)
    };
    process.tell(&[standing(whose, 60, true)]);
    process.back.tick().await;
    let refusal = process.pressure.refusal(&event(destination(1))).unwrap();
    assert_eq!(
        (refusal.whose, refusal.retry_after),
        (whose, FIRST_RETRY_AFTER)
    );
    assert_eq!(process.pressure.refusal(&event(destination(2))), None);
    process.tell(&[standing(whose, 60, true), tenant]);
    process.back.tick().await;
    for event in [event(destination(1)), to(Audience::Subscribers)] {
        let refusal = process.pressure.refusal(&event).unwrap();
        assert_eq!(
            (refusal.whose, refusal.retry_after),
            (tenant.whose, tenant.retry_after)
        );
    }
}

/// What is accepted while a count is under way may not be in it: it is counted
/// once more until the next.
#[tokio::test(start_paused = true)]
async fn what_comes_during_a_count_is_not_forgotten() {
    let mut process = process();
    *process.counts.takes.lock().unwrap() = Duration::from_millis(10);
    let whose = Backlogged::Destination(destination(1).0);
    process.tell(&[standing(whose, 40, false)]);
    let pressure = process.pressure.clone();
    let count = tokio::spawn(async move {
        process.back.tick().await;
        process
    });
    sleep(Duration::from_millis(5)).await;
    for _ in 0..30 {
        pressure.accepted(TENANT, &[destination(1)]);
    }
    let mut process = count.await.unwrap();
    assert_eq!(process.fill(destination(1)), 11, "40 and 30 are known");
    process.tell(&[standing(whose, 45, false)]);
    process.back.tick().await;
    process.tell(&[standing(whose, 45, false)]);
    process.back.tick().await;
    assert_eq!(process.fill(destination(1)), 36);
}

/// A count takes one part in twenty of the time at most, and what was known
/// stays known while the store is away.
#[tokio::test(start_paused = true)]
async fn slow_counts_are_far_apart_and_an_absent_store_changes_nothing() {
    let Process {
        counts,
        pressure,
        back,
    } = process();
    *counts.takes.lock().unwrap() = Duration::from_millis(500);
    let whose = Backlogged::Destination(destination(1).0);
    *counts.told.lock().unwrap() = vec![standing(whose, 60, true)];
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(back.run(shutdown.clone()));
    sleep(Duration::from_secs(1)).await;
    *counts.away.lock().unwrap() = true;
    sleep(Duration::from_secs(30)).await;
    assert!(pressure.refusal(&event(destination(1))).is_some());
    shutdown.cancel();
    running.await.unwrap();
    let asked: Vec<_> = counts
        .asked
        .lock()
        .unwrap()
        .iter()
        .map(|asked| asked.0)
        .collect();
    let apart: Vec<_> = asked.windows(2).map(|two| two[1] - two[0]).collect();
    // Half a second of counting, and twenty times as long of rest.
    assert_eq!(apart, vec![Duration::from_millis(10_500); 2]);
}
