//! A ledger in memory that knows of each destination only what a bucket does,
//! and a queue that leads nowhere.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use domain::admission::{Backlog, Meter, Usage, admit, read_ahead};
use domain::ids::{AttemptId, DestinationId, Epoch, PermitNumber};
use domain::limit::Shape;
use domain::permit::{Permit, PermitGroup};
use domain::policy::{LimitSettings, Policy};
use domain::share::Room;
use domain::time::Timestamp;
use engine::ports::{
    Admitted, DEFAULT_TENANT, DeliveryQueue, Fleet, Given, Published, QueueError, Run, RunResult,
    StoreError, StoreLayer, Subscription,
};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

/// Any time will do that is not the beginning of all.
const EPOCH: Timestamp = Timestamp::from_millis(1_000_000_000_000);

/// The destination of this number.
pub(super) fn destination(number: u32) -> DestinationId {
    DestinationId(Uuid::from_u128(u128::from(number)))
}

/// Destinations that always have work, each with a leaky bucket.
pub(super) struct Ledger {
    policy: Policy,
    spacing: Duration,
    began: Instant,
    rows: Mutex<Rows>,
}

struct Rows {
    meters: Vec<Meter>,
    permits: i64,
    /// `None` until it is measured.
    seen: Option<Seen>,
}

/// What happened while it was measured.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    pub(super) ticks: u64,
    pub(super) runs: u64,
    pub(super) starts: u64,
    /// By how much each start was later than its limit allowed.
    pub(super) late_us: Vec<u64>,
}

impl Ledger {
    pub(super) fn new(destinations: u32, limits: LimitSettings, spacing: Duration) -> Self {
        let limits = LimitSettings {
            shape: Some(Shape::LeakyBucket),
            ..limits
        };
        Self {
            policy: limits.policy(),
            spacing,
            began: Instant::now(),
            rows: Mutex::new(Rows {
                meters: vec![Meter::default(); destinations as usize],
                permits: 0,
                seen: None,
            }),
        }
    }

    /// Notes what happens for so long, and answers how long it was.
    pub(super) async fn measure(&self, lasts: Duration) -> f64 {
        let began = Instant::now();
        self.rows().seen = Some(Seen::default());
        sleep(lasts).await;
        began.elapsed().as_secs_f64()
    }

    /// What was seen, the latenesses sorted.
    pub(super) fn seen(&self) -> Seen {
        let mut seen = self.rows().seen.take().unwrap_or_default();
        seen.late_us.sort_unstable();
        seen
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Timestamp {
        EPOCH + self.began.elapsed()
    }

    fn decide(&self, rows: &mut Rows, run: &Run, now: Timestamp) -> RunResult {
        let number = run.destination.0.as_u128() as usize;
        let Some(meter) = rows.meters.get(number).copied() else {
            return RunResult::Gone;
        };
        let usage = Usage {
            meter,
            ..Usage::default()
        };
        let backlog = Backlog {
            due: read_ahead(&self.policy),
            urgent: 0,
            next_due: None,
        };
        let decision = admit(&self.policy, &usage, &backlog, u32::MAX, now);
        rows.meters[number] = decision.meter;
        let mut before = meter.as_of;
        let mut permits = Vec::with_capacity(decision.slots.len());
        for slot in &decision.slots {
            rows.permits += 1;
            if let Some(seen) = &mut rows.seen {
                seen.starts += 1;
                if before > EPOCH {
                    let late = slot.not_before.since(before + self.spacing);
                    seen.late_us.push(late.as_micros() as u64);
                }
            }
            before = slot.not_before;
            permits.push(Permit {
                destination: run.destination,
                attempt: AttemptId(rows.permits),
                number: PermitNumber(rows.permits),
                epoch: Epoch(1),
                not_before: slot.not_before,
                deadline: slot.deadline,
            });
        }
        RunResult::Decided {
            permits,
            look: decision.look,
            blocked: decision.blocked,
            failing: false,
        }
    }
}

#[async_trait]
impl StoreLayer for Ledger {
    async fn admit(&self, runs: &[Run], _room: &Room) -> Result<Admitted, StoreError> {
        let now = self.now();
        let mut rows = self.rows();
        if let Some(seen) = &mut rows.seen {
            seen.ticks += u64::from(!runs.is_empty());
            seen.runs += runs.len() as u64;
        }
        let before = rows.permits;
        let results = (runs.iter())
            .map(|run| self.decide(&mut rows, run, now))
            .collect();
        let permits = u32::try_from(rows.permits - before).unwrap_or(u32::MAX);
        Ok(Admitted {
            now,
            results,
            given: Given::by_tenant(std::iter::once((DEFAULT_TENANT, permits))),
        })
    }

    async fn fleet(&self) -> Result<Fleet, StoreError> {
        Ok(Fleet {
            now: self.now(),
            workers: 1,
            // More than any run can use up before the next count.
            places: u32::MAX / 4,
            ..Fleet::default()
        })
    }
}

/// Confirms every group, and forgets it.
pub(super) struct Nowhere;

#[async_trait]
impl DeliveryQueue for Nowhere {
    async fn publish(&self, groups: &[PermitGroup]) -> Result<Vec<Published>, QueueError> {
        Ok(vec![Published::Confirmed; groups.len()])
    }

    async fn subscribe(&self, _: u16) -> Result<Box<dyn Subscription>, QueueError> {
        Err(QueueError::Unavailable("it leads nowhere".to_owned()))
    }

    fn health(&self) -> Result<(), QueueError> {
        Ok(())
    }
}
