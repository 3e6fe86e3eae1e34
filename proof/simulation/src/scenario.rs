//! A scenario: destinations, processes, and a list of operations with their
//! virtual times.
//!
//! It is all that a run depends on. [`Scenario::from_seed`] draws one;
//! shrinking takes operations out of it; what is left is written down as Rust
//! ([`Scenario::as_rust`]) and kept as a named test.

mod draw;
mod written;

use std::num::NonZeroU64;
use std::time::Duration;

use domain::backpressure::BacklogBounds;
use domain::destination::DestinationState;
use domain::limit::Shape;
use domain::limit_group::GroupLimits;
use domain::policy::LimitSettings;
use domain::retention::{Kept, Retention};
use domain::smart::SmartDelivery;

use crate::model::Condition;
use crate::site::Site;

/// All that a run depends on.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Decides what chance decides within the operations.
    pub seed: u64,
    /// What is judged at its end.
    pub mood: Mood,
    /// The limits that the destinations are created with.
    pub destinations: Vec<LimitSettings>,
    /// How many scheduler processes; each also reaps and sweeps.
    pub schedulers: u32,
    /// How many worker processes.
    pub workers: u32,
    /// What happens, in order of time.
    pub operations: Vec<Operation>,
    /// When the faults end, in milliseconds; then all has to drain.
    pub lasts_ms: u64,
}

/// What kind of scenario it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    /// Nothing fails but receivers; the limits have to be used.
    Calm,
    /// Anything may happen at any time.
    Stormy,
    /// Limits of hours, for hours, with a fault now and then.
    Long,
}

/// Something that happens at a time.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    /// Its number in the scenario as it was drawn: stays when others go.
    pub number: u32,
    /// When, in milliseconds from the beginning.
    pub at_ms: u64,
    /// What.
    pub what: What,
}

/// What happens. Destinations are named by their index.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// A client hands in `events` events, one every so often; at most 100 in
    /// one request where they come at once. It repeats what was not answered.
    Arrivals {
        /// For whom.
        destination: usize,
        /// How many.
        events: u32,
        /// Between two of them; 0 is all at once.
        every_ms: u64,
    },
    /// The owner changes all limits.
    Limits {
        /// Whose.
        destination: usize,
        /// As they shall be.
        limits: LimitSettings,
    },
    /// The limits of the tier change, which those inherit that have none.
    Tier {
        /// As they shall be.
        limits: LimitSettings,
    },
    /// The owner sets what those in the limit group may start together; the first time
    /// there is one.
    GroupLimits {
        /// As they shall be.
        limits: GroupLimits,
    },
    /// The owner puts a destination into the limit group.
    Joins {
        /// Which.
        destination: usize,
    },
    /// The owner takes it out.
    Leaves {
        /// Which.
        destination: usize,
    },
    /// The owner has the receiver asked first: nothing goes out until it allows a rate.
    Handshake {
        /// Whose.
        destination: usize,
    },
    /// The receiver answers, if it was asked.
    Allows {
        /// Whose.
        destination: usize,
        /// So many requests a minute; 0 is as many as are configured.
        per_minute: u32,
    },
    /// The owner pauses, disables or resumes.
    State {
        /// Whom.
        destination: usize,
        /// To what.
        state: DestinationState,
    },
    /// The owner turns smart delivery on or off.
    Smart {
        /// Whose.
        destination: usize,
        /// To what.
        to: SmartDelivery,
    },
    /// The owner sets how many events share a request.
    Batches {
        /// Whose.
        destination: usize,
        /// At most so many; 0 for one event a request.
        max_events: u32,
        /// Bytes of their payloads.
        max_bytes: u32,
        /// How long an event waits for others.
        max_wait_ms: u32,
    },
    /// The owner deletes.
    Delete {
        /// Whom.
        destination: usize,
    },
    /// The owner cancels whatever has not started.
    Cancel {
        /// Whose.
        destination: usize,
    },
    /// The owner says how old events may become that come from now on.
    Age {
        /// Whose.
        destination: usize,
        /// How old; 0 is any age.
        max_age_ms: u64,
    },
    /// From now on clients hand in events that are for later, or for no longer.
    Later {
        /// For whom.
        destination: usize,
        /// How much later; 0 is at once.
        by_ms: u64,
        /// How long after that they may still be admitted; 0 is for ever.
        lives_ms: u64,
    },
    /// The owner replays all dead letters.
    Replay {
        /// Whose.
        destination: usize,
        /// Which part of the limit it may use.
        share_percent: u32,
    },
    /// The operator has set how long things are kept, from the beginning to the
    /// end; 0 is for ever. Without it, nothing is deleted.
    Keep {
        /// Events with their payloads.
        payloads_ms: u64,
        /// Attempts.
        ledger_ms: u64,
        /// Dead letters.
        dead_letters_ms: u64,
    },
    /// The owner registers a destination for what operators must know of all.
    /// Notifiers run where somebody is told, from the beginning to the end.
    Told {
        /// Who is told.
        destination: usize,
    },
    /// The operator has bounded backlogs, from the beginning to the end.
    Bound {
        /// Of each destination.
        destination_most: u32,
        /// Of all of the tenant.
        tenant_most: u32,
    },
    /// How much of the limits is used is judged from now on, and not before; without it,
    /// from the beginning.
    UseCounts,
    /// Somebody's open transaction holds the destination's rows.
    Lock {
        /// Whose.
        destination: usize,
        /// For how long.
        lasts_ms: u64,
    },
    /// The receiver behaves badly, for a while.
    Receiver {
        /// Whose.
        destination: usize,
        /// How.
        behaviour: Behaviour,
        /// For how long.
        lasts_ms: u64,
    },
    /// A fault strikes some calls, for a while.
    Fault {
        /// Which.
        fault: Fault,
        /// How many calls of a thousand.
        permille: u32,
        /// For how long.
        lasts_ms: u64,
    },
    /// A process is killed and started again as another.
    Kill {
        /// Which.
        process: Process,
        /// Where it is then.
        point: Point,
        /// How long it stays away.
        down_ms: u64,
    },
    /// A process stands still (SIGSTOP).
    Pause {
        /// Which.
        process: Process,
        /// For how long.
        lasts_ms: u64,
    },
    /// A process is asked to end (SIGTERM), and is started again.
    Stop {
        /// Which.
        process: Process,
        /// How long it stays away, its draining included.
        down_ms: u64,
    },
    /// What a process thinks of the store's clock is off, for a while.
    PodClock {
        /// Whose.
        process: Process,
        /// By how much; negative is back.
        step_ms: i64,
        /// For how long.
        lasts_ms: u64,
    },
    /// The store's clock is set.
    StoreClock {
        /// By how much; negative is back.
        step_ms: i64,
    },
    /// The schedule's clock is set.
    ScheduleClock {
        /// By how much; negative is back.
        step_ms: i64,
    },
    /// The schedule loses all its jobs.
    WipeSchedule,
    /// The queue is deleted, with all its messages.
    WipeQueue,
    /// The queue loses the messages that nobody has received yet.
    PurgeQueue,
    /// All connections to the broker break.
    BreakConnections,
    /// The broker cannot be reached, or takes no publishes.
    Broker {
        /// Which of the two.
        condition: Condition,
        /// For how long.
        lasts_ms: u64,
    },
}

/// A process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Process {
    /// Takes events in.
    Api,
    /// Takes, admits, publishes, finishes; reaps and sweeps.
    Scheduler(u32),
    /// Delivers.
    Worker(u32),
}

/// Where in its course a process is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// Wherever it is.
    Now,
    /// At its next call of this kind, before anything of it is done.
    Before(Site),
    /// At its next call of this kind, done but not answered.
    After(Site),
}

/// How a receiver behaves. Without one it takes everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// Refuses connections.
    Refuses,
    /// Answers 500.
    Fails,
    /// Answers 429.
    Busy,
    /// Answers 422, and will not change its mind.
    Rejects,
    /// Answers nothing.
    Hangs,
    /// Takes the event, and its answer is lost.
    LosesResponses,
    /// Takes the event after this long.
    Slow {
        /// Until its answer.
        millis: u64,
    },
    /// Answers 429 to what is more than it takes, by a bucket of a second's
    /// worth.
    Takes {
        /// So much.
        per_second: u32,
    },
    /// Answers 207 to a batch: some of its events are taken, and some are not.
    AnswersInParts,
    /// Answers what nobody can mean: statuses that are seldom seen, bodies that are
    /// no list of results, errors that no table holds, times that are none.
    AnswersNonsense,
    /// Takes the events one after the other, however many wait.
    Queues {
        /// So many.
        per_second: u32,
    },
}

/// What may go wrong in a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The store fails, and has done nothing.
    StoreFailsBefore,
    /// The store has committed, and says that it failed.
    StoreFailsAfter,
    /// The store says that it failed, and commits later.
    StoreCommitsLate,
    /// The store takes up to three seconds.
    StoreSlow,
    /// Somebody else holds the row of one destination of the batch.
    RowLocked,
    /// The schedule fails, and has done nothing.
    ScheduleFailsBefore,
    /// The schedule has done it, and says that it failed.
    ScheduleFailsAfter,
    /// The schedule takes up to two seconds.
    ScheduleSlow,
    /// A confirmed message never arrives.
    MessageLost,
    /// A message arrives twice.
    MessageDuplicated,
    /// A message arrives up to four seconds late.
    MessageDelayed,
    /// The messages of one publish change places.
    MessagesReordered,
    /// A message that arrives is not confirmed.
    PublishUnconfirmed,
    /// The store crashes soon after an admission, which did not wait for the
    /// disk, and has forgotten it unless something else was flushed since.
    AdmissionForgotten,
    /// The store says that it failed, and commits events 5 to 90 seconds later:
    /// their ids are older than some that have been admitted.
    CommitHeldUp,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::StoreFailsBefore,
        Self::StoreFailsAfter,
        Self::StoreCommitsLate,
        Self::StoreSlow,
        Self::RowLocked,
        Self::ScheduleFailsBefore,
        Self::ScheduleFailsAfter,
        Self::ScheduleSlow,
        Self::MessageLost,
        Self::MessageDuplicated,
        Self::MessageDelayed,
        Self::MessagesReordered,
        Self::PublishUnconfirmed,
        Self::AdmissionForgotten,
        Self::CommitHeldUp,
    ];
}

impl Scenario {
    /// The scenario that this seed stands for.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        draw::scenario(seed)
    }

    /// How long things are kept, if anything is ever deleted.
    #[must_use]
    pub fn keep(&self) -> Option<Retention> {
        let kept = |millis| match millis {
            0 => Kept::Forever,
            millis => Kept::For(Duration::from_millis(millis)),
        };
        (self.operations.iter()).find_map(|operation| match operation.what {
            What::Keep {
                payloads_ms,
                ledger_ms,
                dead_letters_ms,
            } => Some(Retention {
                payloads: kept(payloads_ms),
                ledger: kept(ledger_ms),
                dead_letters: kept(dead_letters_ms),
            }),
            _ => None,
        })
    }

    /// How long backlogs may become, if they are bounded.
    #[must_use]
    pub fn bounds(&self) -> Option<BacklogBounds> {
        let bound = |most: u32| NonZeroU64::new(most.into()).unwrap_or(NonZeroU64::MIN);
        (self.operations.iter()).find_map(|operation| match operation.what {
            What::Bound {
                destination_most,
                tenant_most,
            } => Some(BacklogBounds {
                destination: bound(destination_most),
                tenant: bound(tenant_most),
                ..BacklogBounds::default()
            }),
            _ => None,
        })
    }

    /// From when on it is judged how much of the limits is used.
    #[must_use]
    pub fn use_counts_from(&self) -> Duration {
        let mut operations = self.operations.iter();
        let from = operations.find(|operation| operation.what == What::UseCounts);
        Duration::from_millis(from.map_or(0, |operation| operation.at_ms))
    }

    /// Whether somebody is told of what operators must know.
    #[must_use]
    pub fn tells(&self) -> bool {
        let mut operations = self.operations.iter();
        operations.any(|operation| matches!(operation.what, What::Told { .. }))
    }

    /// The same with these operations only.
    #[must_use]
    pub fn with(&self, operations: Vec<Operation>) -> Self {
        Self {
            operations,
            ..self.clone()
        }
    }
}

/// Whether two settings differ in how they spread their starts.
pub(crate) fn spreads_otherwise(a: &LimitSettings, b: &LimitSettings) -> bool {
    let shape =
        |limits: &LimitSettings| (limits.shape.unwrap_or(Shape::SlidingWindow), limits.burst);
    shape(a) != shape(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_depends_on_its_seed_alone() {
        assert_eq!(Scenario::from_seed(11), Scenario::from_seed(11));
        assert_ne!(Scenario::from_seed(11), Scenario::from_seed(12));
    }

    #[test]
    fn operations_are_in_order_of_time_and_end_before_the_faults_do() {
        for seed in 0..300 {
            let scenario = Scenario::from_seed(seed);
            assert!(scenario.operations.is_sorted_by_key(|one| one.at_ms));
            let last = scenario.operations.last().map_or(0, |one| one.at_ms);
            assert!(last <= scenario.lasts_ms, "seed {seed}");
        }
    }
}
