//! Where answers count: a receiver that must never see more, however long a request takes
//! to it.
//!
//! In [`crate::sends`] requests differ by a margin on their way. Here one may arrive at any
//! time between its first byte and the end of the longest time-out, also after its sender
//! has given it up; an answer comes only after it. With `count: response` no window of the
//! whole period may hold more arrivals than the limit all the same, and no margin is planned.
//!
//! | in the program | in the model |
//! |---|---|
//! | `domain::admission::admit`, `latest_start`, `Outcome::arrives_within` | the same functions, with times that are whole ticks |
//! | P, `GRACE`, `MAX_CLAIM_TO_SEND`, `MAX_REQUEST_TIMEOUT` | the shipped constants, in ticks of 500 ms: 2, 4, 1 and 60 |
//! | a claim, its answer and its send | [`Action::Ask`], [`Action::Claim`], [`Action::Heard`], [`Action::Send`], [`Action::NotSend`], as in [`crate::sends`] |
//! | the receiver reads a request | [`Action::Arrive`] |
//! | it answers, or the worker waits no longer | [`Action::Answer`], [`Action::GiveUp`] |
//! | `record_outcomes` | [`Action::Record`]; of a worker that dies it never comes |
//! | the reaper makes a start `unknown` | [`Action::Reap`], at any time between the claim and the answer |
//!
//! Between any two of them time may pass, and the scheduler may run.

use std::time::Duration;

use domain::admission::{
    Backlog, MAX_CLAIM_TO_SEND, MAX_REQUEST_TIMEOUT, Outstanding, Usage, admit, latest_start,
};
use domain::attempt::OutcomeKind;
use domain::attempt::outcome::{NextTry, Outcome, Speaks};
use domain::health::Signal;
use domain::ids::{AttemptId, DestinationId, PermitNumber};
use domain::limit::Count;
use domain::policy::LimitSettings;
use stateright::{Model, Property};
use uuid::Uuid;

use crate::ticks::{NOW, Ticks};

/// What a tick stands for: it divides the period, the grace and the bound.
pub const TICK: Duration = MAX_CLAIM_TO_SEND;

/// The most events.
const MAX_EVENTS: usize = 2;

const TICKS: Ticks = Ticks(TICK);

const PERIOD: i8 = TICKS.of(Duration::from_secs(1));
const GRACE: i8 = TICKS.of(domain::admission::GRACE);
const TIMEOUT: i8 = TICKS.of(MAX_REQUEST_TIMEOUT);

/// Longer ago than that nobody can tell times apart.
const LONG_AGO: i8 = -TIMEOUT - PERIOD - 2;

/// Since when a worker waits that does not send any more.
const TOO_LATE: i8 = -TICKS.of(MAX_CLAIM_TO_SEND) - 1;

/// The theorem, as a receiver counts.
pub const WINDOWS_KEPT: &str =
    "no window at the receiver holds more requests than its limit, however late they are";

/// It costs a round trip, and no more.
pub const USED_UP: &str = "a request arrives a period after the one before it was answered";

/// How much there is of everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Events, each with one attempt.
    pub events: usize,
    /// The limit a second.
    pub limit: u8,
}

/// One assumption dropped. Only tests switch one on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mutation {
    /// Starts count, as by default.
    StartsCount,
    /// What is not answered yet counts nowhere.
    UnansweredForgotten,
    /// What ended without an answer counts at its end: it cannot arrive any more.
    GivenUpCountsAtItsEnd,
    /// A start of which nobody knows how it ended counts as a start.
    UnknownCountsAtItsStart,
    /// A worker times its answer from the claim's answer, not from asking.
    TimedFromTheClaim,
}

impl Mutation {
    /// All of them. Each breaks [`WINDOWS_KEPT`].
    pub const ALL: [Self; 5] = [
        Self::StartsCount,
        Self::UnansweredForgotten,
        Self::GivenUpCountsAtItsEnd,
        Self::UnknownCountsAtItsStart,
        Self::TimedFromTheClaim,
    ];
}

/// Where a request is. All times are ticks from now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Way {
    /// Sent then, and not at the receiver yet.
    Under(i8),
    /// At the receiver since then.
    Arrived(i8),
    /// It never went out, or can never arrive.
    Nowhere,
}

/// An attempt. All times are ticks from now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// In the backlog.
    Waiting,
    /// It has a permit, and its worker may have asked for the claim.
    Admitted {
        /// The last instant at which it may start.
        deadline: i8,
        /// Since when its worker waits for the claim.
        asked: Option<i8>,
    },
    /// Claimed, and not sent yet.
    Claimed {
        /// When its worker asked.
        asked: i8,
        /// The store's clock at the claim.
        claimed: i8,
        /// When its worker had the answer.
        heard: Option<i8>,
        /// Where it starts at the latest, by the ledger.
        latest: i8,
    },
    /// Sent, and neither answered nor given up.
    Sent {
        /// The store's clock at the claim.
        claimed: i8,
        /// How long after that it was sent, as its worker measured it.
        sent_after: i8,
        /// When it was sent.
        sent: i8,
        /// Where it starts at the latest, by the ledger.
        latest: i8,
        /// Where it is.
        way: Way,
    },
    /// It ended, and the ledger does not know yet.
    Ended {
        /// Where it will count.
        end: i8,
        /// Where it is.
        way: Way,
    },
    /// The ledger counts it there.
    Over {
        /// Where.
        end: i8,
        /// Where it is.
        way: Way,
    },
}

/// All attempts, in the order of their admission.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// Of the events that there are.
    pub stages: [Stage; MAX_EVENTS],
}

/// One step of somebody, or of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A tick passes.
    Tick,
    /// A scheduler admits what the rule allows.
    Admit,
    /// A worker asks for a claim.
    Ask(usize),
    /// The store claims it.
    Claim(usize),
    /// The worker has the claim's answer.
    Heard(usize),
    /// The first byte leaves.
    Send(usize),
    /// The worker finds that it is too late.
    NotSend(usize),
    /// The receiver reads it.
    Arrive(usize),
    /// The receiver's answer is there.
    Answer(usize),
    /// The worker waits no longer.
    GiveUp(usize),
    /// Its outcome is recorded.
    Record(usize),
    /// The reaper gives it up.
    Reap(usize),
}

/// The model.
#[derive(Debug, Clone, Copy)]
pub struct Answers {
    /// How much there is of everything.
    pub bounds: Bounds,
    /// The assumption that is dropped, if any.
    pub mutation: Option<Mutation>,
}

impl Answers {
    /// The protocol as it is.
    #[must_use]
    pub const fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            mutation: None,
        }
    }

    fn mutated(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    fn usage(&self, stages: &[Stage]) -> Usage {
        let mut usage = Usage::default();
        let mut ends = Vec::new();
        for stage in stages {
            match *stage {
                Stage::Waiting => {}
                Stage::Admitted { deadline, .. } => usage.outstanding.push(Outstanding {
                    not_before: TICKS.at(deadline - GRACE),
                    deadline: TICKS.at(deadline),
                }),
                Stage::Claimed { latest: end, .. }
                | Stage::Sent { latest: end, .. }
                | Stage::Ended { end, .. } => {
                    usage.in_flight += u32::from(!self.mutated(Mutation::UnansweredForgotten));
                    if self.mutated(Mutation::StartsCount) {
                        ends.push(end);
                    }
                }
                Stage::Over { end, .. } => ends.push(end),
            }
        }
        ends.sort_unstable_by(|one, other| other.cmp(one));
        usage.starts = ends.into_iter().map(|end| TICKS.at(end)).collect();
        usage
    }

    /// The deadlines that the shipped function gives now.
    fn admitted(&self, state: &State) -> Vec<i8> {
        let stages = &state.stages[..self.bounds.events];
        let waiting = stages.iter().filter(|stage| **stage == Stage::Waiting);
        let backlog = Backlog {
            due: u32::try_from(waiting.count()).unwrap_or(u32::MAX),
            urgent: 0,
            next_due: None,
        };
        let policy = LimitSettings {
            per_second: Some(self.bounds.limit.into()),
            count: (!self.mutated(Mutation::StartsCount)).then_some(Count::Response),
            ..LimitSettings::EXACT
        };
        let decision = admit(&policy.policy(), &self.usage(stages), &backlog, 1_000, NOW);
        (decision.slots.iter())
            .map(|slot| TICKS.until(slot.deadline))
            .collect()
    }

    /// Where the store counts what ended so, so long after it was sent.
    fn end(&self, (claimed, sent_after): (i8, i8), elapsed: i8, answered: bool) -> i8 {
        let outcome = Outcome {
            attempt: AttemptId(0),
            number: PermitNumber(0),
            destination: DestinationId(Uuid::nil()),
            kind: match answered {
                true => OutcomeKind::Succeeded,
                false => OutcomeKind::Failed,
            },
            sent_after: TICK * u32::from(sent_after.unsigned_abs()),
            elapsed: TICK * u32::from(elapsed.unsigned_abs()),
            status: answered.then_some(200),
            error: None,
            response_body: Default::default(),
            response_headers: Default::default(),
            next: NextTry::None,
            signal: Signal::default(),
            speaks: Speaks::ForRequest,
            may_arrive: false,
        };
        match self.mutation {
            Some(Mutation::StartsCount) => claimed + sent_after,
            Some(Mutation::GivenUpCountsAtItsEnd) => claimed + sent_after + elapsed,
            _ => claimed + TICKS.of(outcome.arrives_within()),
        }
    }

    fn of_attempt(&self, stage: Stage, index: usize, actions: &mut Vec<Action>) {
        match stage {
            Stage::Waiting => {}
            Stage::Admitted { asked: None, .. } => actions.push(Action::Ask(index)),
            Stage::Admitted { deadline, .. } => {
                if (0..=GRACE).contains(&deadline) {
                    actions.push(Action::Claim(index));
                }
            }
            Stage::Claimed { heard: None, .. } => {
                actions.extend([Action::Heard(index), Action::Reap(index)]);
            }
            Stage::Claimed {
                asked,
                claimed,
                latest,
                ..
            } => actions.push(match asked == TOO_LATE || -asked > latest - claimed {
                true => Action::NotSend(index),
                false => Action::Send(index),
            }),
            Stage::Sent { sent, way, .. } => {
                if -sent <= TIMEOUT {
                    actions.push(match way {
                        Way::Arrived(_) => Action::Answer(index),
                        _ => Action::Arrive(index),
                    });
                    actions.push(Action::GiveUp(index));
                }
                actions.push(Action::Reap(index));
            }
            Stage::Ended { way, .. } => {
                actions.push(Action::Record(index));
                may_arrive(way, index, actions);
            }
            Stage::Over { way, .. } => may_arrive(way, index, actions),
        }
    }

    fn step(&self, stage: Stage, action: Action) -> Stage {
        match (stage, action) {
            (Stage::Admitted { deadline, .. }, Action::Ask(_)) => Stage::Admitted {
                deadline,
                asked: Some(0),
            },
            (Stage::Admitted { deadline, asked }, Action::Claim(_)) => Stage::Claimed {
                asked: asked.unwrap_or(0),
                claimed: 0,
                heard: None,
                latest: TICKS.until(latest_start(NOW, TICKS.at(deadline))),
            },
            (
                Stage::Claimed {
                    asked,
                    claimed,
                    latest,
                    ..
                },
                Action::Heard(_),
            ) => Stage::Claimed {
                asked,
                claimed,
                heard: Some(0),
                latest,
            },
            (stage @ Stage::Claimed { .. }, Action::Send(_)) => self.sent(stage),
            // Its outcome says how late it was, and nothing of it arrives.
            (Stage::Claimed { asked, claimed, .. }, Action::NotSend(_)) => Stage::Ended {
                end: claimed - asked,
                way: Way::Nowhere,
            },
            (stage @ Stage::Sent { .. }, Action::Answer(_)) => self.ended(stage, true),
            (stage @ Stage::Sent { .. }, Action::GiveUp(_)) => self.ended(stage, false),
            (Stage::Ended { end, way, .. }, Action::Record(_)) => Stage::Over { end, way },
            (stage, Action::Arrive(_)) => stage.on_its_way(|_| Way::Arrived(0)),
            (stage, Action::Reap(_)) => self.reaped(stage),
            (stage, _) => stage,
        }
    }

    fn sent(&self, stage: Stage) -> Stage {
        let Stage::Claimed {
            asked,
            claimed,
            heard,
            latest,
        } = stage
        else {
            return stage;
        };
        let since = match self.mutated(Mutation::TimedFromTheClaim) {
            true => heard.unwrap_or(0),
            false => asked,
        };
        Stage::Sent {
            claimed,
            sent_after: -since,
            sent: 0,
            latest,
            way: Way::Under(0),
        }
    }

    fn ended(&self, stage: Stage, answered: bool) -> Stage {
        match stage {
            Stage::Sent {
                claimed,
                sent_after,
                sent,
                way,
                ..
            } => Stage::Ended {
                end: self.end((claimed, sent_after), -sent, answered),
                way,
            },
            _ => stage,
        }
    }

    fn reaped(&self, stage: Stage) -> Stage {
        let (latest, way) = match stage {
            // Its worker never has the answer, or is dead.
            Stage::Claimed { latest, .. } => (latest, Way::Nowhere),
            Stage::Sent { latest, way, .. } => (latest, way),
            _ => return stage,
        };
        let end = match self.mutated(Mutation::UnknownCountsAtItsStart) {
            true => latest,
            false => latest + TIMEOUT,
        };
        Stage::Over { end, way }
    }
}

/// Whoever sent it waits no longer; the network does.
fn may_arrive(way: Way, index: usize, actions: &mut Vec<Action>) {
    if matches!(way, Way::Under(sent) if -sent <= TIMEOUT) {
        actions.push(Action::Arrive(index));
    }
}

impl Model for Answers {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            stages: [Stage::Waiting; MAX_EVENTS],
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.push(Action::Tick);
        if !self.admitted(state).is_empty() {
            actions.push(Action::Admit);
        }
        for (index, stage) in state.stages[..self.bounds.events].iter().enumerate() {
            self.of_attempt(*stage, index, actions);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Tick => next.stages = next.stages.map(Stage::after_a_tick),
            Action::Admit => {
                let waiting = next.stages.iter_mut().filter(|one| **one == Stage::Waiting);
                for (stage, deadline) in waiting.zip(self.admitted(state)) {
                    let asked = None;
                    *stage = Stage::Admitted { deadline, asked };
                }
            }
            Action::Ask(index)
            | Action::Claim(index)
            | Action::Heard(index)
            | Action::Send(index)
            | Action::NotSend(index)
            | Action::Arrive(index)
            | Action::Answer(index)
            | Action::GiveUp(index)
            | Action::Record(index)
            | Action::Reap(index) => next.stages[index] = self.step(next.stages[index], action),
        }
        // What changes nothing is no step.
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(WINDOWS_KEPT, |model: &Self, state: &State| {
                let in_window = state.arrivals().filter(|at| *at > -PERIOD);
                in_window.count() <= usize::from(model.bounds.limit)
            }),
            Property::sometimes(USED_UP, |_, state: &State| {
                let answered_then = |stage: &Stage| {
                    matches!(stage, Stage::Over { end, way: Way::Arrived(at) }
                        if *end == -PERIOD && at == end)
                };
                state.arrivals().any(|at| at == 0) && state.stages.iter().any(answered_then)
            }),
            Property::sometimes(
                "a request arrives after its sender gave it up",
                |_, state: &State| {
                    let after = |stage: &Stage| matches!(stage, Stage::Over { end, way: Way::Arrived(0) } if *end > 0);
                    state.stages.iter().any(after)
                },
            ),
            Property::sometimes("one is too late to be sent", |_, state: &State| {
                let way = Way::Nowhere;
                let not_sent =
                    |stage: &Stage| matches!(stage, Stage::Ended { way: one, .. } if *one == way);
                state.stages.iter().any(not_sent)
            }),
        ]
    }
}

impl State {
    /// When requests arrived.
    fn arrivals(&self) -> impl Iterator<Item = i8> + '_ {
        self.stages.iter().filter_map(|stage| match stage {
            Stage::Sent { way, .. } | Stage::Ended { way, .. } | Stage::Over { way, .. } => {
                match way {
                    Way::Arrived(at) => Some(*at),
                    Way::Under(_) | Way::Nowhere => None,
                }
            }
            Stage::Waiting | Stage::Admitted { .. } | Stage::Claimed { .. } => None,
        })
    }
}

/// A tick longer ago, as far as anybody can tell.
fn older(ticks: i8, at_most: i8) -> i8 {
    (ticks - 1).max(at_most)
}

impl Way {
    /// A tick later. What arrived outside of every window is forgotten.
    fn aged(self) -> Self {
        match self {
            Self::Under(sent) if -sent < TIMEOUT => Self::Under(sent - 1),
            Self::Arrived(at) if at >= -PERIOD => Self::Arrived(at - 1),
            Self::Under(_) | Self::Nowhere => Self::Nowhere,
            Self::Arrived(at) => Self::Arrived(at),
        }
    }
}

impl Stage {
    fn on_its_way(mut self, change: impl Fn(Way) -> Way) -> Self {
        if let Self::Sent { way, .. } | Self::Ended { way, .. } | Self::Over { way, .. } = &mut self
        {
            *way = change(*way);
        }
        self
    }

    fn after_a_tick(self) -> Self {
        let aged_once = match self {
            Self::Waiting => Self::Waiting,
            Self::Admitted { deadline, asked } => Self::Admitted {
                deadline: older(deadline, -1),
                asked: asked.map(|asked| older(asked, TOO_LATE)),
            },
            Self::Claimed {
                asked,
                claimed,
                heard,
                latest,
            } => Self::Claimed {
                asked: older(asked, TOO_LATE),
                claimed: older(claimed, TOO_LATE),
                heard: heard.map(|heard| older(heard, TOO_LATE)),
                latest: older(latest, LONG_AGO),
            },
            Self::Sent {
                claimed,
                sent_after,
                sent,
                latest,
                way,
            } => Self::Sent {
                claimed: older(claimed, LONG_AGO),
                sent_after,
                sent: older(sent, LONG_AGO),
                latest: older(latest, LONG_AGO),
                way,
            },
            Self::Ended { end, way } => Self::Ended {
                end: older(end, -PERIOD - 1),
                way,
            },
            Self::Over { end, way } => Self::Over {
                end: older(end, -PERIOD - 1),
                way,
            },
        };
        aged_once.on_its_way(Way::aged)
    }
}
