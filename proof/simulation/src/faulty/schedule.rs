//! The schedule, which fails before or after it has done something.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use engine::ports::{Finish, NextRun, Schedule, ScheduleError, ScheduleLife, Taken, Wake};

use tokio::sync::Notify;

use super::store::short;
use crate::gate::{Fate, Gate};
use crate::sabotage::Sabotage;
use crate::schedule::SimulatedSchedule;
use crate::site::Site;
use crate::witness::Witness;

/// One process's way to the schedule.
#[derive(Clone)]
pub(crate) struct FaultySchedule {
    pub(crate) inner: Arc<SimulatedSchedule>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) witness: Witness,
    /// This process has set a job's next run, which may be sooner than what
    /// its scheduler waits for. A shipped one looks every few milliseconds.
    pub(crate) finished: Arc<Notify>,
}

impl FaultySchedule {
    async fn call<T>(
        &self,
        site: Site,
        script: impl Future<Output = Result<T, ScheduleError>> + Send,
    ) -> Result<T, ScheduleError> {
        let (fate, _) = self.gate.enter(site).await;
        let answer = match fate {
            Fate::Done => script.await,
            Fate::FailsBefore => Err(ScheduleError("nothing was done".to_owned())),
            Fate::FailsAfter | Fate::DoneLate(_) => {
                let done = script.await;
                done.and(Err(ScheduleError("the answer was lost".to_owned())))
            }
        };
        if let Err(error) = &answer {
            self.line(site, format_args!("{error}"));
        }
        self.gate.leave(site).await;
        answer
    }

    fn line(&self, site: Site, what: fmt::Arguments<'_>) {
        let process = self.gate.process;
        (self.gate.around.trace).line(format_args!("{process} {site:?}: {what}"));
    }
}

#[async_trait]
impl Schedule for FaultySchedule {
    async fn take(&self, max: usize, lease: Duration) -> Result<Taken, ScheduleError> {
        self.call(Site::Take, async {
            let granted = match self.gate.has(Sabotage::ShortLeases) {
                true => lease / 100,
                false => lease,
            };
            let taken = self.inner.take(max, granted).await?;
            self.witness.taken(&taken, lease);
            for job in &taken.jobs {
                let lapsed = if job.lapsed { " lapsed" } else { "" };
                if job.lapsed {
                    self.gate.around.counts.note("lease lapsed");
                }
                self.line(
                    Site::Take,
                    format_args!("{}{lapsed}", short(job.destination)),
                );
            }
            Ok(taken)
        })
        .await
    }

    async fn finish(&self, finishes: &[Finish]) -> Result<(), ScheduleError> {
        self.call(Site::Finish, async {
            if self.gate.has(Sabotage::LooksLate) {
                self.inner.finish(&later(finishes)).await?;
            } else {
                self.inner.finish(finishes).await?;
            }
            self.witness.finished(finishes);
            self.finished.notify_one();
            for finish in finishes {
                let (destination, next) = (short(finish.destination), finish.next);
                self.line(Site::Finish, format_args!("{destination} {next:?}"));
            }
            Ok(())
        })
        .await
    }

    async fn wake(&self, wakes: &[Wake]) -> Result<(), ScheduleError> {
        if wakes.is_empty() {
            return Ok(());
        }
        self.call(Site::Wake, async {
            self.inner.wake(wakes).await?;
            self.witness.woken(wakes);
            for wake in wakes {
                let (destination, after) = (short(wake.destination), wake.after);
                let clear = if wake.clear_floor { " clear" } else { "" };
                self.line(Site::Wake, format_args!("{destination} {after:?}{clear}"));
            }
            Ok(())
        })
        .await
    }

    async fn life(&self) -> Result<ScheduleLife, ScheduleError> {
        self.call(Site::Life, self.inner.life()).await
    }

    async fn rebuilt(&self, life: &str) -> Result<(), ScheduleError> {
        self.call(Site::Rebuilt, async {
            self.inner.rebuilt(life).await?;
            self.gate.around.counts.note("jobs rebuilt");
            self.line(Site::Rebuilt, format_args!("{life}"));
            Ok(())
        })
        .await
    }

    async fn woken(&self) {
        tokio::select! {
            biased;
            () = self.finished.notified() => {}
            () = self.inner.woken() => {}
        }
    }
}

/// The same with every next run 300 ms later.
fn later(finishes: &[Finish]) -> Vec<Finish> {
    let mut later = finishes.to_vec();
    for finish in &mut later {
        if let NextRun::After { delay, .. } = &mut finish.next {
            *delay += Duration::from_millis(300);
        }
    }
    later
}
