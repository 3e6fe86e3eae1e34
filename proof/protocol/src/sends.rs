//! From a claim to its request's first byte, and back to the ledger: what a start is.
//!
//! [`crate::admission`] takes a claim for the start. Here a request leaves later than that,
//! by what its worker and the way to the store take, and the store learns when with the
//! answer, from a report before it, or never. Whatever the interleaving, no window of the
//! whole period may hold more than the limit *at a receiver* to which requests take up to
//! the margin longer than the quickest one.
//!
//! | in the program | in the model |
//! |---|---|
//! | `domain::admission::admit`, `latest_start`, `start_of` | the same functions, with times that are whole ticks |
//! | P, `GRACE`, the lead, `MAX_CLAIM_TO_SEND` | the shipped constants, in ticks of 100 ms: 10, 20, 2 and 5 |
//! | the margin | one tick |
//! | a request arrives | in the tick in which it left, or in the next |
//! | a worker asks for a claim | [`Action::Ask`]: its own clock begins to run |
//! | the store reads its clock and commits | [`Action::Claim`] |
//! | the worker has the answer | [`Action::Answer`] |
//! | the request's first byte leaves, or it is too late for it | [`Action::Send`], [`Action::NotSend`] |
//! | `report_sends` | [`Action::Report`], which may be lost: it then never comes |
//! | `record_outcomes` | [`Action::Record`]; of a worker that dies it never comes |
//!
//! Between any two of them time may pass, and the scheduler may run. Admissions are
//! serialised here, permits are never lost, and nothing is revoked: that is the other
//! model's.

use std::time::Duration;

use domain::admission::{
    Backlog, MAX_CLAIM_TO_SEND, Outstanding, Usage, admit, latest_start, start_of,
};
use domain::policy::LimitSettings;
use stateright::{Model, Property};

use crate::ticks::{NOW, Ticks};

/// What a tick stands for: it divides the period, the lead and the bound.
pub const TICK: Duration = Duration::from_millis(100);

/// The most events.
const MAX_EVENTS: usize = 3;

const TICKS: Ticks = Ticks(TICK);

const PERIOD: i8 = TICKS.of(Duration::from_secs(1));
const BOUND: i8 = TICKS.of(MAX_CLAIM_TO_SEND);

/// By how much a window is planned longer, and by how much requests differ on their way.
const MARGIN: i8 = 1;

/// The same as a part of the period.
const SAFETY_MARGIN: f64 = MARGIN as f64 / PERIOD as f64;

/// The theorem, as a receiver would count.
pub const WINDOWS_KEPT: &str = "no window at the receiver holds more requests than its limit";

/// What a report is for.
pub const SLOW_COSTS_NOTHING: &str =
    "the next request leaves a period and a margin after one that has no answer yet";

/// A slot opens as early as the rule allows.
pub const USED_UP: &str = "the next request leaves a period and a margin after the one before it";

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
    /// A start is dated to its claim, not to its request.
    DatedAtTheClaim,
    /// A worker times its request from the answer, not from asking.
    TimedFromTheAnswer,
    /// Until a start is known it counts as of its claim, not at its latest.
    UnknownCountsAtItsClaim,
    /// A worker sends however late it is.
    SentHoweverLate,
    /// One that was claimed just before its deadline is sent after it.
    DeadlineForgotten,
    /// Windows are planned without the margin.
    MarginDropped,
    /// Requests without an answer are not reported.
    ReportsForgotten,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::DatedAtTheClaim,
        Self::TimedFromTheAnswer,
        Self::UnknownCountsAtItsClaim,
        Self::SentHoweverLate,
        Self::DeadlineForgotten,
        Self::MarginDropped,
        Self::ReportsForgotten,
    ];

    /// The property that it breaks.
    #[must_use]
    pub const fn breaks(self) -> &'static str {
        match self {
            Self::ReportsForgotten => SLOW_COSTS_NOTHING,
            _ => WINDOWS_KEPT,
        }
    }
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
        answered: Option<i8>,
        /// How long after the claim it may be sent at most, as its worker knows.
        most: i8,
        /// Where the ledger counts it.
        end: i8,
    },
    /// Sent.
    Sent {
        /// When its first byte left.
        sent: i8,
        /// That was as it was claimed, and its deadline far away.
        prompt: bool,
        /// When that was, as its worker measured it.
        measured: i8,
        /// Where the ledger counts it.
        end: i8,
        /// Its outcome is recorded.
        over: bool,
    },
    /// Too late: nothing was sent, and it counts where it counted.
    NotSent {
        /// Where the ledger counts it.
        end: i8,
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
    /// The worker has the answer.
    Answer(usize),
    /// The first byte leaves.
    Send(usize),
    /// The worker finds that it is too late.
    NotSend(usize),
    /// The store is told when it was sent.
    Report(usize),
    /// Its outcome is recorded, which says the same.
    Record(usize),
}

/// The model.
#[derive(Debug, Clone, Copy)]
pub struct Sends {
    /// How much there is of everything.
    pub bounds: Bounds,
    /// The assumption that is dropped, if any.
    pub mutation: Option<Mutation>,
}

impl Sends {
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

    fn usage(&self, state: &State) -> Usage {
        let stages = &state.stages[..self.bounds.events];
        let mut starts: Vec<i8> = stages.iter().filter_map(Stage::end).collect();
        starts.sort_unstable_by(|one, other| other.cmp(one));
        let grace = TICKS.of(domain::admission::GRACE);
        let outstanding = stages.iter().filter_map(|stage| match stage {
            Stage::Admitted { deadline, .. } => Some(Outstanding {
                not_before: TICKS.at(deadline - grace),
                deadline: TICKS.at(*deadline),
            }),
            _ => None,
        });
        Usage {
            outstanding: outstanding.collect(),
            starts: starts.into_iter().map(|start| TICKS.at(start)).collect(),
            ..Usage::default()
        }
    }

    /// The deadlines that the shipped function gives now.
    fn admitted(&self, state: &State) -> Vec<i8> {
        let waiting = |stage: &&Stage| **stage == Stage::Waiting;
        let due = state.stages[..self.bounds.events]
            .iter()
            .filter(waiting)
            .count();
        let backlog = Backlog {
            due: u32::try_from(due).unwrap_or(u32::MAX),
            urgent: 0,
            next_due: None,
        };
        let policy = LimitSettings {
            per_second: Some(self.bounds.limit.into()),
            safety_margin: match self.mutated(Mutation::MarginDropped) {
                true => Some(0.0),
                false => Some(SAFETY_MARGIN),
            },
            ..LimitSettings::EXACT
        };
        let decision = admit(&policy.policy(), &self.usage(state), &backlog, 1_000, NOW);
        (decision.slots.iter())
            .map(|slot| TICKS.until(slot.deadline))
            .collect()
    }

    fn of_attempt(&self, stage: Stage, index: usize, actions: &mut Vec<Action>) {
        match stage {
            Stage::Waiting | Stage::NotSent { .. } => {}
            Stage::Admitted { asked: None, .. } => actions.push(Action::Ask(index)),
            Stage::Admitted { deadline, .. } => {
                let slot = deadline - TICKS.of(domain::admission::GRACE);
                if slot <= 0 && deadline >= 0 {
                    actions.push(Action::Claim(index));
                }
            }
            Stage::Claimed { answered: None, .. } => actions.push(Action::Answer(index)),
            Stage::Claimed { asked, most, .. } => {
                let late = -asked > most && !self.mutated(Mutation::SentHoweverLate);
                actions.push(match late {
                    true => Action::NotSend(index),
                    false => Action::Send(index),
                });
            }
            Stage::Sent { over: true, .. } => {}
            Stage::Sent { .. } => {
                actions.push(Action::Record(index));
                if !self.mutated(Mutation::ReportsForgotten) {
                    actions.push(Action::Report(index));
                }
            }
        }
    }

    fn step(&self, stage: Stage, action: Action) -> Stage {
        match (stage, action) {
            (Stage::Admitted { deadline, .. }, Action::Ask(_)) => Stage::Admitted {
                deadline,
                asked: Some(0),
            },
            (Stage::Admitted { deadline, asked }, Action::Claim(_)) => {
                self.claimed(deadline, asked.unwrap_or(0))
            }
            (
                Stage::Claimed {
                    asked,
                    claimed,
                    most,
                    end,
                    ..
                },
                Action::Answer(_),
            ) => Stage::Claimed {
                asked,
                claimed,
                answered: Some(0),
                most,
                end,
            },
            (Stage::Claimed { .. }, Action::Send(_)) => self.sent(stage),
            (Stage::Claimed { end, .. }, Action::NotSend(_)) => Stage::NotSent { end },
            (Stage::Sent { .. }, Action::Report(_)) => known(stage, false),
            (Stage::Sent { .. }, Action::Record(_)) => known(stage, true),
            (stage, _) => stage,
        }
    }

    fn claimed(&self, deadline: i8, asked: i8) -> Stage {
        let latest = TICKS.until(latest_start(NOW, TICKS.at(deadline)));
        Stage::Claimed {
            asked,
            claimed: 0,
            answered: None,
            most: match self.mutated(Mutation::DeadlineForgotten) {
                true => BOUND,
                false => latest,
            },
            end: match self.mutated(Mutation::UnknownCountsAtItsClaim) {
                true => 0,
                false => latest,
            },
        }
    }

    fn sent(&self, stage: Stage) -> Stage {
        let Stage::Claimed {
            asked,
            claimed,
            answered,
            most,
            end,
        } = stage
        else {
            return stage;
        };
        let sent_after = match self.mutation {
            Some(Mutation::DatedAtTheClaim) => 0,
            Some(Mutation::TimedFromTheAnswer) => -answered.unwrap_or(0),
            _ => -asked,
        };
        Stage::Sent {
            sent: 0,
            prompt: claimed == 0 && most == BOUND,
            measured: claimed + sent_after,
            end,
            over: false,
        }
    }
}

/// The store learns when it was sent.
fn known(stage: Stage, over: bool) -> Stage {
    let Stage::Sent {
        sent,
        prompt,
        measured,
        end,
        ..
    } = stage
    else {
        return stage;
    };
    let after = TICK * u32::from((measured - LONG_AGO).unsigned_abs());
    Stage::Sent {
        sent,
        prompt,
        measured,
        end: TICKS.until(start_of(TICKS.at(LONG_AGO), after, TICKS.at(end))),
        over,
    }
}

impl Model for Sends {
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
                let deadlines = self.admitted(state);
                let waiting = next.stages.iter_mut().filter(|one| **one == Stage::Waiting);
                for (stage, deadline) in waiting.zip(deadlines) {
                    let asked = None;
                    *stage = Stage::Admitted { deadline, asked };
                }
            }
            Action::Ask(index)
            | Action::Claim(index)
            | Action::Answer(index)
            | Action::Send(index)
            | Action::NotSend(index)
            | Action::Report(index)
            | Action::Record(index) => {
                next.stages[index] = self.step(next.stages[index], action);
            }
        }
        // What changes nothing is no step.
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(WINDOWS_KEPT, |model: &Self, state: &State| {
                // What left within a period and a margin may all arrive within a period:
                // the first of it late, and the last at once.
                let in_window = state.sends().filter(|sent| *sent > -PERIOD - MARGIN);
                in_window.count() <= usize::from(model.bounds.limit)
            }),
            Property::sometimes(USED_UP, |_, state: &State| a_period_apart(state, true)),
            Property::sometimes(SLOW_COSTS_NOTHING, |_, state: &State| {
                a_period_apart(state, false)
            }),
            Property::sometimes(
                "a request leaves long after its claim",
                |_, state: &State| {
                    let late = |stage: &Stage| matches!(stage, Stage::Claimed { claimed, answered: Some(0), .. } if -claimed == BOUND);
                    state.stages.iter().any(late)
                },
            ),
            Property::sometimes("one is too late to be sent", |_, state: &State| {
                let not_sent = |stage: &Stage| matches!(stage, Stage::NotSent { .. });
                state.stages.iter().any(not_sent)
            }),
        ]
    }
}

/// Whether a request leaves now, and a period and a margin ago one left as it was claimed, whose
/// outcome is recorded or not.
fn a_period_apart(state: &State, recorded: bool) -> bool {
    let before = |stage: &Stage| {
        matches!(stage, Stage::Sent { sent, prompt: true, over, .. }
            if *sent == -PERIOD - MARGIN && *over == recorded)
    };
    state.sends().any(|sent| sent == 0) && state.stages.iter().any(before)
}

impl State {
    /// When requests left.
    fn sends(&self) -> impl Iterator<Item = i8> + '_ {
        self.stages.iter().filter_map(|stage| match stage {
            Stage::Sent { sent, .. } => Some(*sent),
            _ => None,
        })
    }
}

/// Longer ago than that nobody can tell times apart.
const LONG_AGO: i8 = -PERIOD - MARGIN - 1;

impl Stage {
    /// Where the ledger counts its start.
    const fn end(&self) -> Option<i8> {
        match self {
            Self::Claimed { end, .. } | Self::Sent { end, .. } | Self::NotSent { end } => {
                Some(*end)
            }
            Self::Waiting | Self::Admitted { .. } => None,
        }
    }

    fn after_a_tick(self) -> Self {
        let aged = |ticks: i8| (ticks - 1).max(LONG_AGO);
        match self {
            Self::Waiting => Self::Waiting,
            Self::Admitted { deadline, asked } => Self::Admitted {
                deadline: aged(deadline),
                asked: asked.map(aged),
            },
            Self::Claimed {
                asked,
                claimed,
                answered,
                most,
                end,
            } => Self::Claimed {
                asked: aged(asked),
                claimed: aged(claimed),
                answered: answered.map(aged),
                most,
                end: aged(end),
            },
            Self::Sent {
                sent,
                prompt,
                measured,
                end,
                over,
            } => Self::Sent {
                sent: aged(sent),
                prompt,
                measured: aged(measured),
                end: aged(end),
                over,
            },
            Self::NotSent { end } => Self::NotSent { end: aged(end) },
        }
    }
}
