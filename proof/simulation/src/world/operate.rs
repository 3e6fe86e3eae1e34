//! What each operation does.

use std::time::Duration;

use domain::ids::AttemptId;

use super::{Action, World, destination};
use crate::model::{ClockStep, Condition};
use crate::scenario::{Operation, Point, Process, What};

impl<'a> World<'a> {
    pub(super) async fn begin(&mut self, operation: &'a Operation) {
        let number = operation.number;
        (self.parts.around.trace).line(format_args!("operation {number}: {:?}", operation.what));
        if self.would_confuse_history(&operation.what) {
            (self.parts.around.trace).line(format_args!("operation {number} is left out"));
            return;
        }
        match &operation.what {
            What::Arrivals {
                destination: to,
                events,
                every_ms,
            } => self.begin_client(number, destination(*to), *events, *every_ms),
            What::Limits {
                destination: of,
                limits,
            } => self.change_limits(destination(*of), limits).await,
            What::Tier { limits } => self.change_tier(*limits).await,
            What::State {
                destination: of,
                state,
            } => self.change_state(destination(*of), *state).await,
            What::Smart {
                destination: of,
                to,
            } => self.turn_smart(destination(*of), *to).await,
            what @ (What::GroupLimits { .. } | What::Joins { .. } | What::Leaves { .. }) => {
                self.begin_in_group(what).await;
            }
            What::Handshake { destination: of } => self.begin_handshake(destination(*of)).await,
            What::Allows {
                destination: of,
                per_minute,
            } => self.allow(destination(*of), *per_minute).await,
            what @ What::Batches { .. } => self.set_batches(what).await,
            What::Delete { destination: of } => self.delete(destination(*of)).await,
            What::Cancel { destination: of } => self.cancel(destination(*of)).await,
            What::Age {
                destination: of,
                max_age_ms,
            } => self.set_age(destination(*of), *max_age_ms).await,
            what @ What::Later { .. } => self.hand_in_for_later(what),
            What::Replay {
                destination: of,
                share_percent,
            } => {
                self.replay(destination(*of), number, *share_percent).await;
            }
            What::Told { destination: of } => self.tell(destination(*of)).await,
            // It holds from the beginning, or is the judge's.
            What::Keep { .. } | What::Bound { .. } | What::UseCounts => {}
            What::WipeSchedule => self.wipe_schedule(),
            What::ScheduleClock { step_ms } => self.step_schedule_clock(*step_ms),
            what @ (What::WipeQueue | What::PurgeQueue | What::BreakConnections) => {
                self.harm_queue(what);
            }
            What::StoreClock { step_ms } => self.step_store_clock(*step_ms),
            What::Kill {
                process,
                point,
                down_ms,
            } => self.kill_at(*process, *point, *down_ms),
            What::Stop { process, down_ms } => self.stop(*process, *down_ms),
            lasting => {
                let lasts_ms = self.begin_lasting(number, lasting);
                self.plan_in(lasts_ms, Action::End(operation));
            }
        }
    }

    /// Limit history is kept by the store's clock. While that clock goes over a
    /// stretch of time again, nobody could say from the ledger what was in
    /// force in it: the first time or the second. So owners change nothing
    /// while the clock is behind where it has been, and it is not set back to
    /// before a change.
    fn would_confuse_history(&self, what: &What) -> bool {
        let now = self.parts.store.now();
        match what {
            What::Limits { .. }
            | What::Tier { .. }
            | What::GroupLimits { .. }
            | What::Joins { .. }
            | What::Leaves { .. }
            | What::Handshake { .. }
            | What::Allows { .. }
            | What::State { .. }
            | What::Delete { .. } => now <= self.clock_has_been,
            What::StoreClock {
                step_ms: back @ ..0,
            } => {
                let set_to = now - Duration::from_millis(back.unsigned_abs());
                now <= self.clock_has_been
                    || self.parts.witness.group_changed() >= Some(set_to)
                    || (0..self.scenario.destinations.len()).any(|of| {
                        let (history, _) = self.parts.witness.ledger(destination(of));
                        history.last().is_some_and(|last| last.from >= set_to)
                    })
            }
            _ => false,
        }
    }

    /// Begins what ends by itself; after how long.
    fn begin_lasting(&mut self, number: u32, what: &What) -> u64 {
        let counts = self.parts.around.counts.clone();
        match what {
            What::Lock {
                destination: of,
                lasts_ms,
            } => {
                self.parts.store.lock_destination(destination(*of));
                *lasts_ms
            }
            What::Receiver {
                destination: of,
                behaviour,
                lasts_ms,
            } => {
                (self.parts.behaviours).begin(destination(*of), number, *behaviour);
                *lasts_ms
            }
            What::Fault {
                fault,
                permille,
                lasts_ms,
            } => {
                self.parts.around.weather.worse(*fault, *permille);
                *lasts_ms
            }
            What::Broker {
                condition,
                lasts_ms,
            } => {
                counts.note(match condition {
                    Condition::Blocked => "broker blocked",
                    Condition::Down | Condition::Up => "broker down",
                });
                self.parts.queue.set_condition(*condition);
                *lasts_ms
            }
            What::Pause { process, lasts_ms } => {
                if let Some(running) = self.running(*process) {
                    running.gate.pause();
                    counts.note("process paused");
                }
                *lasts_ms
            }
            What::PodClock {
                process,
                step_ms,
                lasts_ms,
            } => {
                if let Some(running) = self.running(*process) {
                    running.gate.set_clock_off(*step_ms);
                    counts.note("pod clock stepped");
                }
                *lasts_ms
            }
            _ => 0,
        }
    }

    /// Ends what an operation began.
    pub(super) fn end(&mut self, operation: &Operation) {
        let number = operation.number;
        (self.parts.around.trace).line(format_args!("operation {number} ends"));
        match &operation.what {
            What::Lock {
                destination: of, ..
            } => self.parts.store.unlock_destination(destination(*of)),
            What::Receiver {
                destination: of, ..
            } => self.parts.behaviours.end(destination(*of), number),
            What::Fault {
                fault, permille, ..
            } => self.parts.around.weather.better(*fault, *permille),
            // Of two that overlap the first to end ends both.
            What::Broker { .. } => self.parts.queue.set_condition(Condition::Up),
            What::Pause { process, .. } => {
                if let Some(running) = self.running(*process) {
                    running.gate.resume();
                }
            }
            What::PodClock { process, .. } => {
                if let Some(running) = self.running(*process) {
                    running.gate.set_clock_off(0);
                }
            }
            _ => {}
        }
    }

    pub(super) fn running(&self, process: Process) -> Option<&crate::process::Running> {
        self.processes.get(&process)?.running.as_ref()
    }

    fn kill_at(&mut self, process: Process, point: Point, down_ms: u64) {
        if point == Point::Now {
            self.kill(process, down_ms);
            return;
        }
        if let Some(lives) = self.processes.get_mut(&process)
            && let Some(running) = &lives.running
        {
            lives.down_ms = down_ms;
            running.gate.kill_at(point);
        }
    }

    fn stop(&mut self, process: Process, down_ms: u64) {
        let Some(lives) = self.processes.get(&process) else {
            return;
        };
        let life = lives.life;
        if let Some(running) = &lives.running {
            self.parts.around.counts.note("process stopped in order");
            running.stop();
            self.plan_in(down_ms, Action::Start(process, life));
        }
    }

    fn harm_queue(&self, what: &What) {
        let (counts, queue) = (&self.parts.around.counts, &self.parts.queue);
        match what {
            What::WipeQueue => {
                counts.note("queue deleted");
                queue.delete();
            }
            What::PurgeQueue => {
                counts.note("queue purged");
                queue.purge();
            }
            _ => {
                counts.note("connections broken");
                queue.break_connections();
            }
        }
    }

    fn wipe_schedule(&self) {
        self.parts.around.counts.note("schedule wiped");
        self.parts.schedule.wipe();
        self.parts.witness.leases_forgotten();
    }

    /// Its leases end earlier or later than their holders think.
    fn step_schedule_clock(&self, step_ms: i64) {
        self.parts.around.counts.note("schedule clock stepped");
        self.parts.schedule.step_clock(clock_step(step_ms));
        self.parts.witness.leases_forgotten();
    }

    fn step_store_clock(&mut self, step_ms: i64) {
        self.clock_has_been = self.clock_has_been.max(self.parts.store.now());
        let counted = match step_ms {
            ..0 => "store clock stepped back",
            0.. => "store clock stepped forward",
        };
        self.parts.around.counts.note(counted);
        self.parts.store.step_clock(clock_step(step_ms));
        if step_ms < 0 {
            let newest = self.parts.store.newest();
            let next = newest.map_or(0, |newest| newest.0) + 1;
            self.parts.witness.clock_set_back(AttemptId(next));
        }
    }
}

fn clock_step(step_ms: i64) -> ClockStep {
    let by = Duration::from_millis(step_ms.unsigned_abs());
    match step_ms {
        ..0 => ClockStep::Backward(by),
        0.. => ClockStep::Forward(by),
    }
}
