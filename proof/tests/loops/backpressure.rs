//! What one process takes and refuses between two counts, and how often it
//! asks.

use std::num::NonZeroU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use domain::backpressure::{
    BacklogBounds, Backlogged, CountPace, FIRST_RETRY_AFTER, MIN_RETRY_AFTER, Standing,
};
use domain::event::{Audience, NewEvent, Timing};
use domain::ids::{DestinationId, EventId, TenantId};
use domain::time::Timestamp;
use engine::backpressure::{BackpressureLoop, Pressure};
use engine::ports::{Acceptance, Backpressure, Counted, StoreError};
use tokio::time::{Instant, advance, sleep};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::support::{destination, store_away};

const TENANT: TenantId = TenantId(Uuid::from_u128(77));
const SECOND: Duration = Duration::from_secs(1);

/// Answers what a test says, as slowly as it says.
#[derive(Default)]
struct Counts {
    told: Mutex<Vec<Standing>>,
    /// How old the count is, beside what it takes to answer.
    age: Mutex<Duration>,
    takes: Mutex<Duration>,
    away: Mutex<bool>,
    asked: Mutex<Vec<(Instant, Vec<Backlogged>, bool)>>,
}

#[async_trait]
impl Backpressure for Counts {
    async fn standings(
        &self,
        _: &BacklogBounds,
        passed: &[Backlogged],
        pace: Option<&CountPace>,
    ) -> Result<Counted, StoreError> {
        let asked = (Instant::now(), passed.to_vec(), pace.is_some());
        self.asked.lock().unwrap().push(asked);
        let takes = *self.takes.lock().unwrap();
        sleep(takes).await;
        if *self.away.lock().unwrap() {
            return Err(store_away());
        }
        Ok(Counted {
            standings: self.told.lock().unwrap().clone(),
            age: *self.age.lock().unwrap() + takes,
            wait: SECOND,
        })
    }

    async fn repeated(&self, _: &[NewEvent]) -> Result<Vec<Option<Acceptance>>, StoreError> {
        Err(store_away())
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
    let pace = CountPace::default();
    Process {
        back: BackpressureLoop::new(counts.clone(), pressure.clone(), pace),
        counts,
        pressure,
    }
}

impl Process {
    fn tell(&self, standings: &[Standing]) {
        *self.counts.told.lock().unwrap() = standings.to_vec();
    }

    /// A second later, a count of that moment.
    async fn count(&self, standings: &[Standing]) {
        advance(SECOND).await;
        self.tell(standings);
        self.back.tick().await;
    }

    /// What it last said of itself.
    fn said(&self) -> Vec<Backlogged> {
        self.counts.asked.lock().unwrap().last().unwrap().1.clone()
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

fn of(number: u128) -> Backlogged {
    Backlogged::Destination(TENANT, destination(number))
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
        trace: None,
        timing: Timing::default(),
    }
}

fn standing(whose: Backlogged, pending: u64, refusing: bool) -> Standing {
    let since = Timestamp::from_millis(1_700_000_000_000);
    Standing {
        whose,
        pending,
        refused: refusing.then_some((since, pending)),
        retry_after: match refusing {
            true => Duration::from_secs(30),
            false => Duration::ZERO,
        },
    }
}

/// Before the first count, and after one that has told of nothing: a backlog
/// that is not told of may be as long as a fiftieth of its bound.
#[tokio::test(start_paused = true)]
async fn what_this_process_accepts_is_counted_here() {
    let process = process();
    assert_eq!(process.fill(destination(1)), 79);
    process.count(&[]).await;
    assert_eq!(process.fill(destination(2)), 79);
    let refusal = process.pressure.refusal(&event(destination(2))).unwrap();
    assert_eq!(
        (refusal.whose, refusal.retry_after),
        (of(2), FIRST_RETRY_AFTER)
    );
    assert_eq!(process.pressure.refusal(&to(Audience::Subscribers)), None);
    let theirs = NewEvent {
        tenant: TenantId(Uuid::from_u128(78)),
        ..event(destination(2))
    };
    assert_eq!(
        process.pressure.refusal(&theirs),
        None,
        "not theirs to know"
    );
}

/// Below the high mark but not below the low one it goes on refusing, in this
/// process by itself, until the store says so or counts less.
#[tokio::test(start_paused = true)]
async fn a_mark_that_was_passed_is_remembered_and_told() {
    let process = process();
    process.fill(destination(1));
    process.count(&[standing(of(1), 70, false)]).await;
    assert_eq!(process.said(), [of(1)]);
    assert!(process.pressure.refusal(&event(destination(1))).is_some());
    process.count(&[standing(of(1), 49, false)]).await;
    assert_eq!(process.pressure.refusal(&event(destination(1))), None);
    process.count(&[]).await;
    assert_eq!(process.said(), []);
}

/// Another process counted less, before this one accepted what it did: nothing
/// of it is forgotten, and no mark that was passed.
#[tokio::test(start_paused = true)]
async fn a_count_from_before_changes_nothing() {
    let process = process();
    process.count(&[standing(of(1), 20, false)]).await;
    assert_eq!(process.fill(destination(1)), 61);
    for age in 1..40_u32 {
        *process.counts.age.lock().unwrap() = SECOND * age + SECOND / 2;
        process.count(&[standing(of(1), 15, false)]).await;
        assert!(process.pressure.refusal(&event(destination(1))).is_some());
        assert_eq!(process.said(), [of(1)]);
    }
    *process.counts.age.lock().unwrap() = Duration::ZERO;
    process.count(&[standing(of(1), 30, false)]).await;
    assert_eq!(process.fill(destination(1)), 51);
}

/// With the store's own wait, and the longest of several.
#[tokio::test(start_paused = true)]
async fn what_the_store_refuses_is_refused() {
    let process = process();
    let tenant = Standing {
        retry_after: Duration::from_secs(99),
        ..standing(Backlogged::Tenant(TENANT), 900, true)
    };
    let soon = Standing {
        retry_after: Duration::ZERO,
        ..standing(of(3), 60, true)
    };
    process.count(&[standing(of(1), 60, true), soon]).await;
    let wait = |number| {
        let refusal = process.pressure.refusal(&event(destination(number)));
        refusal.map(|refusal| refusal.retry_after)
    };
    assert_eq!(wait(1), Some(Duration::from_secs(30)));
    assert_eq!(wait(2), None);
    assert_eq!(wait(3), Some(MIN_RETRY_AFTER));
    process.count(&[standing(of(1), 60, true), tenant]).await;
    for event in [event(destination(1)), to(Audience::Subscribers)] {
        let refusal = process.pressure.refusal(&event).unwrap();
        assert_eq!(
            (refusal.whose, refusal.retry_after),
            (tenant.whose, tenant.retry_after)
        );
    }
}

/// Those who fill it are refused first; the others near its end alone.
#[tokio::test(start_paused = true)]
async fn the_bound_of_all_is_first_for_those_who_fill_it() {
    let process = process();
    let filling = standing(Backlogged::Tenant(TENANT), 600, false);
    let others = NewEvent {
        tenant: TenantId(Uuid::from_u128(78)),
        ..event(destination(2))
    };
    let all = |pending| standing(Backlogged::All, pending, true);
    process.count(&[all(850), filling]).await;
    let refusal = process.pressure.refusal(&event(destination(1))).unwrap();
    assert_eq!(refusal.whose, Backlogged::All);
    assert_eq!(process.pressure.refusal(&others), None);
    process.count(&[all(951), filling]).await;
    for event in [&event(destination(1)), &others] {
        let refusal = process.pressure.refusal(event).unwrap();
        assert_eq!(refusal.whose, Backlogged::All);
    }
    process.count(&[all(600), filling]).await;
    assert!(process.pressure.refusal(&event(destination(1))).is_some());
    assert_eq!(process.pressure.refusal(&others), None);
}

/// What is accepted while a count is under way may not be in it: it is counted
/// once more until the next.
#[tokio::test(start_paused = true)]
async fn what_comes_during_a_count_is_not_forgotten() {
    let process = process();
    *process.counts.takes.lock().unwrap() = Duration::from_millis(10);
    advance(SECOND).await;
    process.tell(&[standing(of(1), 40, false)]);
    tokio::join!(process.back.tick(), async {
        sleep(Duration::from_millis(5)).await;
        for _ in 0..30 {
            process.pressure.accepted(TENANT, &[destination(1)]);
        }
    });
    assert_eq!(process.fill(destination(1)), 11, "40 and 30 are known");
    process.count(&[standing(of(1), 45, false)]).await;
    assert_eq!(process.fill(destination(1)), 36);
}

/// A store that does not answer changes nothing for half an hour; what was
/// accepted before then is forgotten, or it would refuse for ever.
#[tokio::test(start_paused = true)]
async fn an_absent_store_changes_nothing_for_a_while() {
    let process = process();
    process.count(&[standing(of(1), 60, true)]).await;
    assert_eq!(process.fill(destination(2)), 79);
    *process.counts.away.lock().unwrap() = true;
    for _ in 0..1_700 {
        process.count(&[]).await;
    }
    assert!(process.pressure.refusal(&event(destination(1))).is_some());
    assert!(process.pressure.refusal(&event(destination(2))).is_some());
    process.pressure.accepted(TENANT, &[destination(3)]);
    for _ in 0..200 {
        process.count(&[]).await;
    }
    assert_eq!(
        process.fill(destination(3)),
        78,
        "what came later is not forgotten"
    );
}

/// What is known already comes first; and a stop does not wait for a count.
#[tokio::test(start_paused = true)]
async fn the_loop_reads_then_counts_and_stops_at_once() {
    let Process { counts, back, .. } = process();
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(back.run(shutdown.clone()));
    sleep(Duration::from_millis(2_500)).await;
    let asked: Vec<_> = (counts.asked.lock().unwrap().iter())
        .map(|asked| asked.2)
        .collect();
    assert_eq!(asked, [false, true, true, true]);
    *counts.takes.lock().unwrap() = Duration::from_secs(60);
    sleep(SECOND).await;
    shutdown.cancel();
    let stopping = Instant::now();
    running.await.unwrap();
    assert_eq!(stopping.elapsed(), Duration::ZERO);
}
