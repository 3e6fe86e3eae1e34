//! Faults planted in front of a schedule, for the bridge to find.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use domain::ids::DestinationId;
use engine::ports::{Finish, Schedule, ScheduleError, ScheduleLife, Taken, Wake};

use super::Schedules;

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A finish ends whatever lease there is.
    FinishIgnoresToken,
    /// A wake of a job under lease does nothing.
    WakeUnderLeaseIsLost,
    /// What one connection took, another is given again.
    TakeIsSplit,
}

/// What all the connections of a case know.
#[derive(Debug, Default)]
struct Known {
    /// The latest token of each destination.
    tokens: BTreeMap<DestinationId, String>,
    leased: BTreeSet<DestinationId>,
    /// The last take that gave something.
    last: Option<Taken>,
}

/// A schedule with a fault.
pub(crate) struct Faulty {
    inner: Arc<dyn Schedule>,
    fault: Fault,
    known: Arc<Mutex<Known>>,
}

impl Faulty {
    /// All connections of a case, with one fault.
    pub(crate) fn wrap(schedules: Schedules, fault: Fault) -> Schedules {
        let known = Arc::new(Mutex::new(Known::default()));
        let wrap = |inner| {
            let known = known.clone();
            Arc::new(Self {
                inner,
                fault,
                known,
            }) as Arc<dyn Schedule>
        };
        schedules.into_iter().map(wrap).collect()
    }
}

#[async_trait]
impl Schedule for Faulty {
    async fn take(&self, max: usize, lease: Duration) -> Result<Taken, ScheduleError> {
        let taken = self.inner.take(max, lease).await?;
        let mut known = self.known.lock().unwrap();
        for job in &taken.jobs {
            known.tokens.insert(job.destination, job.token.clone());
            known.leased.insert(job.destination);
        }
        if !taken.jobs.is_empty() {
            known.last = Some(taken.clone());
        } else if let (Fault::TakeIsSplit, Some(last)) = (self.fault, known.last.take()) {
            return Ok(last);
        }
        Ok(taken)
    }

    async fn finish(&self, finishes: &[Finish]) -> Result<(), ScheduleError> {
        let mut finishes = finishes.to_vec();
        {
            let mut known = self.known.lock().unwrap();
            for finish in &mut finishes {
                known.leased.remove(&finish.destination);
                let latest = known.tokens.get(&finish.destination);
                if let (Fault::FinishIgnoresToken, Some(latest)) = (self.fault, latest) {
                    finish.token.clone_from(latest);
                }
            }
        }
        self.inner.finish(&finishes).await
    }

    async fn wake(&self, wakes: &[Wake]) -> Result<(), ScheduleError> {
        let mut wakes = wakes.to_vec();
        if self.fault == Fault::WakeUnderLeaseIsLost {
            let known = self.known.lock().unwrap();
            wakes.retain(|wake| !known.leased.contains(&wake.destination));
        }
        self.inner.wake(&wakes).await
    }

    async fn life(&self) -> Result<ScheduleLife, ScheduleError> {
        self.inner.life().await
    }

    async fn rebuilt(&self, life: &str) -> Result<(), ScheduleError> {
        self.inner.rebuilt(life).await
    }
}
