//! A limit that two destinations have together: whoever admits a member locks the group's
//! row as well, and counts what both have out and have started.
//!
//! | in the program | in the model |
//! |---|---|
//! | `domain::admission::round`, with `Usage::group` | the same function, with times that are whole ticks |
//! | P, `GRACE` | the shipped constants, in ticks of 200 ms: 5 and 10 |
//! | two schedulers, each with one of the members in its batch | [`Action::Lock`], [`Action::Decide`], [`Action::Commit`] of either; anything may come between |
//! | the group's row, taken after the member's and skipped where somebody has it | [`Action::Lock`] is not possible while the other scheduler has it |
//! | a claim, its send and its record | [`Action::Start`]: what lies between them is [`crate::sends`]' |
//! | a permit ends unused | [`Action::Expire`] |
//! | `update destinations set limit_group` | [`Action::Join`], [`Action::Leave`]: the member's row is locked, its permits are taken back |
//!
//! What started counts for the group if it was claimed by a member. An observer beside the
//! store judges that at every instant, for the window that ends then.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use domain::admission::{Candidate, Group, Member, Outstanding, Usage, round};
use domain::ids::{AttemptId, DestinationId, Epoch, PermitNumber, TenantId};
use domain::limit_group::{GroupLimits, GroupName};
use domain::policy::LimitSettings;
use domain::share::Room;
use domain::time::Timestamp;
use stateright::{Model, Property};
use uuid::Uuid;

use crate::ticks::{NOW, Ticks};

/// What a tick stands for: it divides the period and the grace.
pub const TICK: Duration = Duration::from_millis(200);

/// Members.
const MEMBERS: usize = 2;

/// The most attempts of one of them.
const MAX_ATTEMPTS: usize = 2;

const TICKS: Ticks = Ticks(TICK);

const PERIOD: i8 = TICKS.of(Duration::from_secs(1));
const GRACE: i8 = TICKS.of(domain::admission::GRACE);

/// The theorem, of the group.
pub const GROUP_KEPT: &str = "no window holds more starts of members than the group's limit";

/// The theorem, of each.
pub const OWN_KEPT: &str = "no window holds more starts of a destination than its own limit";

/// A situation that the model is there for.
pub const SHARED: &str = "both members have started within one window";

/// It is used as early as the rule allows.
pub const USED_UP: &str = "a member starts a period after the other";

/// How much there is of everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Attempts of each destination.
    pub attempts: [usize; MEMBERS],
    /// Starts a second of the group.
    pub group: u8,
    /// Starts a second of each.
    pub own: u8,
    /// How often somebody may join or leave.
    pub changes: u8,
}

/// One assumption dropped. Only tests switch one on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mutation {
    /// A scheduler locks the member's row and not the group's.
    GroupNotLocked,
    /// What other members started does not count.
    OthersStartsIgnored,
    /// What other members have out does not count.
    OthersPermitsIgnored,
    /// It counts at its slot and not at its deadline.
    OthersCountedAtSlot,
    /// What one that left had started is forgotten.
    LeaverForgotten,
    /// One that joins keeps the permits that it has out.
    JoinerKeepsItsPermits,
}

impl Mutation {
    /// All of them. Each breaks [`GROUP_KEPT`].
    pub const ALL: [Self; 6] = [
        Self::GroupNotLocked,
        Self::OthersStartsIgnored,
        Self::OthersPermitsIgnored,
        Self::OthersCountedAtSlot,
        Self::LeaverForgotten,
        Self::JoinerKeepsItsPermits,
    ];
}

/// An attempt. All times are ticks from now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// In the backlog.
    Waiting,
    /// It has a permit.
    Admitted {
        /// The last instant at which it may start.
        deadline: i8,
    },
    /// Started so long ago, a period at most.
    Started {
        /// In ticks.
        ago: i8,
        /// Its destination was in the group.
        as_member: bool,
    },
}

/// A scheduler with one destination in its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Run {
    /// None.
    Idle,
    /// It has the rows.
    Locked,
    /// It has read and decided: the deadlines that it gives.
    Decided([Option<i8>; MAX_ATTEMPTS]),
}

/// Everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// Of each destination.
    pub stages: [[Stage; MAX_ATTEMPTS]; MEMBERS],
    /// Who is in the group.
    pub is_member: [bool; MEMBERS],
    /// The scheduler of each.
    pub runs: [Run; MEMBERS],
    /// How often somebody may still join or leave.
    pub changes: u8,
}

/// One step of somebody, or of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A tick passes.
    Tick,
    /// A scheduler locks this destination's row, and then its group's.
    Lock(usize),
    /// It reads and decides.
    Decide(usize),
    /// It marks what it picked, and commits.
    Commit(usize),
    /// An attempt of a destination starts.
    Start(usize, usize),
    /// Its permit has ended, and the reaper moves it back.
    Expire(usize, usize),
    /// A destination comes into the group.
    Join(usize),
    /// It leaves it.
    Leave(usize),
}

/// The model.
#[derive(Debug, Clone, Copy)]
pub struct Groups {
    /// How much there is of everything.
    pub bounds: Bounds,
    /// The assumption that is dropped, if any.
    pub mutation: Option<Mutation>,
}

const fn id(destination: usize) -> DestinationId {
    DestinationId(Uuid::from_u128(destination as u128))
}

const TENANT: TenantId = TenantId(Uuid::nil());

impl Groups {
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

    fn stages<'a>(&self, state: &'a State, destination: usize) -> &'a [Stage] {
        &state.stages[destination][..self.bounds.attempts[destination]]
    }

    fn outstanding(&self, state: &State, destination: usize) -> Vec<Outstanding> {
        let stages = self.stages(state, destination).iter();
        stages
            .filter_map(|stage| match stage {
                Stage::Admitted { deadline } => Some(Outstanding {
                    not_before: TICKS.at(deadline - GRACE),
                    deadline: TICKS.at(*deadline),
                }),
                _ => None,
            })
            .collect()
    }

    /// As a store reads one of the group's for a run of `reader`.
    fn member(&self, state: &State, reader: usize, destination: usize) -> Member {
        let other = reader != destination;
        let is_member = state.is_member[destination];
        let counts = |as_member: bool| match is_member {
            true => !(other && self.mutated(Mutation::OthersStartsIgnored)),
            false => as_member && !self.mutated(Mutation::LeaverForgotten),
        };
        let starts = self.stages(state, destination).iter();
        let starts = starts.filter_map(|stage| match stage {
            Stage::Started { ago, as_member } if counts(*as_member) => Some(TICKS.at(-ago)),
            _ => None,
        });
        let permits = is_member && !(other && self.mutated(Mutation::OthersPermitsIgnored));
        let mut outstanding = match permits {
            true => self.outstanding(state, destination),
            false => Vec::new(),
        };
        if other && self.mutated(Mutation::OthersCountedAtSlot) {
            for one in &mut outstanding {
                one.deadline = one.not_before;
            }
        }
        Member {
            margin: None,
            outstanding,
            starts: starts.collect(),
        }
    }

    fn group(&self, state: &State, reader: usize) -> Group {
        let members = (0..MEMBERS).map(|one| (id(one), self.member(state, reader, one)));
        Group {
            tenant: TENANT,
            name: GroupName::kept("group".to_owned()),
            limits: GroupLimits {
                per_second: Some(self.bounds.group.into()),
                ..GroupLimits::default()
            },
            members: members.collect::<BTreeMap<_, _>>(),
        }
    }

    /// What the shipped function gives, attempt by attempt.
    fn picks(&self, state: &State, destination: usize) -> [Option<i8>; MAX_ATTEMPTS] {
        let stages = self.stages(state, destination);
        let waiting: Vec<usize> = (stages.iter().enumerate())
            .filter(|(_, stage)| **stage == Stage::Waiting)
            .map(|(attempt, _)| attempt)
            .collect();
        let mut starts: Vec<Timestamp> = (stages.iter())
            .filter_map(|stage| match stage {
                Stage::Started { ago, .. } => Some(TICKS.at(-ago)),
                _ => None,
            })
            .collect();
        starts.sort_unstable_by(|one, other| other.cmp(one));
        let is_member = state.is_member[destination];
        let own = LimitSettings {
            per_second: Some(self.bounds.own.into()),
            ..LimitSettings::EXACT
        };
        let number = |attempt: &usize| AttemptId(i64::try_from(*attempt).unwrap_or(0));
        let candidate = Candidate {
            destination: id(destination),
            tenant: TENANT,
            tenant_max_in_flight: None,
            policy: own.policy(),
            epoch: Epoch(0),
            last_permit: PermitNumber(0),
            usage: Usage {
                outstanding: self.outstanding(state, destination),
                starts,
                group: is_member.then(|| Arc::new(self.group(state, destination))),
                ..Usage::default()
            },
            due: waiting.iter().map(number).collect(),
            urgent: 0,
            next_due: None,
        };
        let decided = round(&Room::of(1_000), [&candidate], NOW).decided;
        let mut picks = [None; MAX_ATTEMPTS];
        for permit in decided.iter().flat_map(|one| &one.permits) {
            let attempt = usize::try_from(permit.attempt.0).unwrap_or(0);
            // A slot ahead of the next tick is left to a later run.
            if permit.not_before <= NOW {
                picks[attempt] = Some(TICKS.until(permit.deadline));
            }
        }
        picks
    }

    fn can_lock(&self, state: &State, destination: usize) -> bool {
        let has_group =
            |other: usize| state.is_member[other] && !matches!(state.runs[other], Run::Idle);
        let group_is_free = self.mutated(Mutation::GroupNotLocked)
            || !state.is_member[destination]
            || !(0..MEMBERS).any(has_group);
        let waits = self.stages(state, destination).contains(&Stage::Waiting);
        state.runs[destination] == Run::Idle && group_is_free && waits
    }

    fn change(&self, state: &mut State, destination: usize, joins: bool) {
        state.is_member[destination] = joins;
        state.changes -= 1;
        if joins && self.mutated(Mutation::JoinerKeepsItsPermits) {
            return;
        }
        for stage in &mut state.stages[destination] {
            if matches!(stage, Stage::Admitted { .. }) {
                *stage = Stage::Waiting;
            }
        }
    }
}

fn tick(state: &mut State) {
    let older = |deadline: i8| (deadline - 1).max(-PERIOD - 1);
    for stage in state.stages.iter_mut().flatten() {
        *stage = match *stage {
            Stage::Waiting => Stage::Waiting,
            Stage::Admitted { deadline } => Stage::Admitted {
                deadline: older(deadline),
            },
            Stage::Started { ago, as_member } => Stage::Started {
                ago: (ago + 1).min(PERIOD),
                as_member,
            },
        };
    }
    for run in &mut state.runs {
        if let Run::Decided(picks) = run {
            for pick in picks.iter_mut().flatten() {
                *pick = older(*pick);
            }
        }
    }
}

/// Starts in the window that ends now.
fn in_window<'a>(stages: impl Iterator<Item = &'a Stage>, of_members: bool) -> usize {
    let counts = |stage: &&Stage| match stage {
        Stage::Started { ago, as_member } => *ago < PERIOD && (*as_member || !of_members),
        _ => false,
    };
    stages.filter(counts).count()
}

fn started(stages: &[Stage; MAX_ATTEMPTS], ago: i8) -> bool {
    let at_that = |stage: &Stage| matches!(stage, Stage::Started { ago: one, .. } if *one == ago);
    stages.iter().any(at_that)
}

impl Model for Groups {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let state = |first| State {
            stages: [[Stage::Waiting; MAX_ATTEMPTS]; MEMBERS],
            is_member: [first, true],
            runs: [Run::Idle; MEMBERS],
            changes: self.bounds.changes,
        };
        match self.bounds.changes {
            0 => vec![state(true)],
            _ => vec![state(true), state(false)],
        }
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.push(Action::Tick);
        for destination in 0..MEMBERS {
            match state.runs[destination] {
                Run::Idle if self.can_lock(state, destination) => {
                    actions.push(Action::Lock(destination));
                }
                Run::Idle => {}
                Run::Locked => actions.push(Action::Decide(destination)),
                Run::Decided(_) => actions.push(Action::Commit(destination)),
            }
            if state.changes > 0 && state.runs[destination] == Run::Idle {
                actions.push(match state.is_member[destination] {
                    true => Action::Leave(destination),
                    false => Action::Join(destination),
                });
            }
            for (attempt, stage) in self.stages(state, destination).iter().enumerate() {
                match stage {
                    Stage::Admitted { deadline } if *deadline >= 0 => {
                        actions.push(Action::Start(destination, attempt));
                    }
                    Stage::Admitted { .. } => actions.push(Action::Expire(destination, attempt)),
                    _ => {}
                }
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Tick => tick(&mut next),
            Action::Lock(destination) => next.runs[destination] = Run::Locked,
            Action::Decide(destination) => {
                next.runs[destination] = Run::Decided(self.picks(state, destination));
            }
            Action::Commit(destination) => {
                if let Run::Decided(picks) = state.runs[destination] {
                    for (stage, pick) in next.stages[destination].iter_mut().zip(picks) {
                        if let (Stage::Waiting, Some(deadline)) = (*stage, pick) {
                            *stage = Stage::Admitted { deadline };
                        }
                    }
                }
                next.runs[destination] = Run::Idle;
            }
            Action::Start(destination, attempt) => {
                next.stages[destination][attempt] = Stage::Started {
                    ago: 0,
                    as_member: state.is_member[destination],
                };
            }
            Action::Expire(destination, attempt) => {
                next.stages[destination][attempt] = Stage::Waiting;
            }
            Action::Join(destination) => self.change(&mut next, destination, true),
            Action::Leave(destination) => self.change(&mut next, destination, false),
        }
        // What changes nothing is no step.
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(GROUP_KEPT, |model: &Self, state: &State| {
                in_window(state.stages.iter().flatten(), true) <= usize::from(model.bounds.group)
            }),
            Property::always(OWN_KEPT, |model: &Self, state: &State| {
                let kept = |stages: &[Stage; MAX_ATTEMPTS]| {
                    in_window(stages.iter(), false) <= usize::from(model.bounds.own)
                };
                state.stages.iter().all(kept)
            }),
            Property::sometimes(SHARED, |model: &Self, state: &State| {
                let one = |stages: &[Stage; MAX_ATTEMPTS]| in_window(stages.iter(), true) > 0;
                model.bounds.group < 2 || state.stages.iter().all(one)
            }),
            Property::sometimes(USED_UP, |_: &Self, state: &State| {
                started(&state.stages[0], 0) && started(&state.stages[1], PERIOD)
            }),
        ]
    }
}
