//! What must always hold, and what must be reachable: a model in which
//! nothing happens breaks nothing.

use stateright::Property;

use super::state::{Lock, Row, Stage, State};
use super::store::Answer;
use super::{Admission, GRACE, NOTHING_LOST, PERIOD, RULE_OBEYED, RULE_USED_UP, WINDOWS_KEPT};

pub(super) fn all() -> Vec<Property<Admission>> {
    let mut all = vec![
        Property::always(WINDOWS_KEPT, |_, state: &State| {
            state.in_window() <= state.bound()
        }),
        Property::always("a permit starts once", |_, state: &State| {
            !state.started_twice
        }),
        Property::always(NOTHING_LOST, nothing_lost),
        Property::always(RULE_OBEYED, |model, state: &State| {
            state.lock != Lock::Locked || rule(model, state).is_none_or(|rule| rule.obeyed)
        }),
        Property::always(RULE_USED_UP, |model, state: &State| {
            state.lock != Lock::Locked || rule(model, state).is_none_or(|rule| rule.used_up)
        }),
    ];
    all.extend(sometimes_in_limits());
    all.extend(sometimes_in_messages());
    all.extend(sometimes_in_outcomes());
    all
}

fn sometimes_in_limits() -> Vec<Property<Admission>> {
    vec![
        Property::sometimes("a window is full", |_, state: &State| {
            state.limit > 1 && state.in_window() == state.limit
        }),
        Property::sometimes(
            "a full window, and a slot planned for when it opens",
            |_, state: &State| {
                state.limit > 1
                    && state.in_window() == state.limit
                    && state.rows.iter().any(|row| row.deadline() > Some(GRACE))
            },
        ),
        Property::sometimes(
            "a window across a lowered limit holds more than it",
            |_, state: &State| state.limit > 0 && state.in_window() > state.limit,
        ),
        Property::sometimes(
            "starts before a pause are in the window",
            |_, state: &State| state.limit == 0 && state.in_window() > 0,
        ),
        Property::sometimes(
            "a raised limit with permits from before",
            |_, state: &State| {
                state.bound() > state.bounds[usize::from(PERIOD.unsigned_abs()) - 1]
                    && state.rows.iter().any(|row| row.deadline().is_some())
            },
        ),
        Property::sometimes(
            "a change holds rows that workers want to claim",
            |model, state: &State| {
                any_held(state, |index, number| {
                    state.rows_are_held() && model.answer(state, index, number) == Answer::Skipped
                })
            },
        ),
        Property::sometimes("a change waits for an open claim", |_, state: &State| {
            matches!(
                state.lock,
                Lock::Changing {
                    in_force: false,
                    ..
                }
            ) && state.rows.iter().any(Row::is_claiming)
        }),
    ]
}

fn sometimes_in_messages() -> Vec<Property<Admission>> {
    vec![
        Property::sometimes("a claim comes early", |model, state: &State| {
            any_answer(model, state, Answer::Early)
        }),
        Property::sometimes("a claim comes late", |model, state: &State| {
            any_answer(model, state, Answer::Late)
        }),
        Property::sometimes(
            "a redelivered permit is refused: its row has started",
            |_, state: &State| {
                any_held(state, |index, number| {
                    let row = &state.rows[index];
                    row.carries(number) && matches!(row.stage, Stage::Started { .. })
                })
            },
        ),
        Property::sometimes(
            "a permit taken back is refused: its row waits",
            |_, state: &State| {
                any_held(state, |index, number| {
                    let row = &state.rows[index];
                    row.carries(number) && row.stage == Stage::Waiting
                })
            },
        ),
        Property::sometimes(
            "an old permit is refused: its row carries a newer one",
            |_, state: &State| {
                any_held(state, |index, number| {
                    let row = &state.rows[index];
                    !row.carries(number) && matches!(row.stage, Stage::Admitted { .. })
                })
            },
        ),
        Property::sometimes("two workers have the same permit", |_, state: &State| {
            (state.rows.iter()).any(|row| row.messages.iter().any(|copies| copies.held > 1))
        }),
        Property::sometimes("a permit was never published", |_, state: &State| {
            (state.rows.iter()).any(|row| {
                let unseen = |number: u8| {
                    let copies = row.messages[usize::from(number) - 1];
                    !copies.unpublished && copies.count() == 0
                };
                row.is_past_deadline() && unseen(row.issued)
            })
        }),
        Property::sometimes(
            "one scheduler decides while another has yet to publish",
            |_, state: &State| {
                matches!(state.lock, Lock::Decided(_))
                    && (state.rows.iter()).any(|row| row.messages.iter().any(|one| one.unpublished))
            },
        ),
        Property::sometimes(
            "another run commits between what a scheduler reads and its lock",
            |_, state: &State| state.ahead.is_some_and(|ahead| ahead.changed),
        ),
        Property::sometimes(
            "a run that has read without a lock has it, and another reads",
            |_, state: &State| matches!(state.lock, Lock::Decided(_)) && state.ahead.is_some(),
        ),
        Property::sometimes("a claim commits after its deadline", |_, state: &State| {
            (state.rows.iter()).any(|row| row.is_claiming() && row.is_past_deadline())
        }),
    ]
}

fn sometimes_in_outcomes() -> Vec<Property<Admission>> {
    vec![
        Property::sometimes(
            "an unknown outcome, and its retry has started",
            |model, state: &State| {
                pairs(model, state).any(|(first, second)| {
                    first.is_unknown() && matches!(second.stage, Stage::Started { .. })
                })
            },
        ),
        Property::sometimes("a late success cancels a retry", |model, state: &State| {
            pairs(model, state).any(|(first, second)| {
                first.stage == Stage::Succeeded && second.stage == Stage::Cancelled
            })
        }),
        Property::sometimes(
            "a late success after the retry has started",
            |model, state: &State| {
                pairs(model, state).any(|(first, second)| {
                    first.stage == Stage::Succeeded && matches!(second.stage, Stage::Started { .. })
                })
            },
        ),
        Property::sometimes(
            "a failure, and its retry succeeded",
            |model, state: &State| {
                pairs(model, state).any(|(first, second)| {
                    first.stage == Stage::Failed && second.stage == Stage::Succeeded
                })
            },
        ),
        Property::sometimes("a dead letter", |model, state: &State| {
            events(model, state).any(|tries| tries.iter().all(|row| row.stage == Stage::Failed))
        }),
        Property::sometimes("every event is delivered", |model, state: &State| {
            let delivered = |tries: &[Row]| tries.iter().any(|row| row.stage == Stage::Succeeded);
            events(model, state).all(delivered)
        }),
    ]
}

/// Every event waits, is admitted, has started, is delivered, or has used up
/// its tries; and only one of its rows can still start.
fn nothing_lost(model: &Admission, state: &State) -> bool {
    events(model, state).all(|tries| {
        let to_start = tries.iter().filter(|row| row.may_start()).count();
        let under_way = |row: &Row| matches!(row.stage, Stage::Started { .. });
        let delivered = |row: &Row| row.stage == Stage::Succeeded;
        let used_up = (tries.last())
            .is_some_and(|row| matches!(row.stage, Stage::Failed | Stage::Unknown { .. }));
        to_start <= 1
            && (to_start == 1
                || used_up
                || tries.iter().any(|row| under_way(row) || delivered(row)))
    })
}

/// Whether a decision obeys the rule, and leaves nothing of it unused.
struct Judged {
    obeyed: bool,
    used_up: bool,
}

/// The rule, counted out: p with `not_before` may be admitted only if fewer
/// than L permits have `end(q) > not_before − P`. `None` where the run cannot
/// admit whatever the rule says.
fn rule(model: &Admission, state: &State) -> Option<Judged> {
    let limit = usize::from(state.limit);
    if limit == 0 {
        return None;
    }
    let ago = |row: &Row| {
        row.recorded_start()
            .map(|ago| -i8::try_from(ago).unwrap_or(PERIOD))
    };
    let mut ends: Vec<i8> = (state.rows.iter())
        .filter_map(|row| ago(row).or(row.deadline()))
        .collect();
    let allows = |ends: &[i8], not_before: i8| {
        let counted = ends.iter().filter(|end| **end > not_before - PERIOD);
        counted.count() < limit
    };
    let decision = model.decision(state);
    let mut judged = Judged {
        obeyed: true,
        used_up: true,
    };
    let mut earliest = 0;
    for (not_before, deadline) in Admission::slots(&decision) {
        judged.obeyed &= not_before >= earliest && allows(&ends, not_before);
        judged.used_up &= !(earliest..not_before).any(|at| allows(&ends, at));
        ends.push(deadline);
        earliest = not_before;
    }
    let left = model.eligible(state).count() > decision.slots.len();
    if left {
        judged.used_up &= !(earliest..=super::LEAD).any(|at| allows(&ends, at));
    }
    Some(judged)
}

impl Row {
    fn may_start(&self) -> bool {
        self.stage == Stage::Waiting || self.deadline().is_some()
    }

    fn is_unknown(&self) -> bool {
        matches!(self.stage, Stage::Unknown { .. })
    }
}

/// The tries of each event.
fn events<'a>(model: &Admission, state: &'a State) -> impl Iterator<Item = &'a [Row]> {
    state.rows[..model.bounds.rows()].chunks(model.bounds.tries)
}

/// Each try with the one after it.
fn pairs<'a>(model: &Admission, state: &'a State) -> impl Iterator<Item = (&'a Row, &'a Row)> {
    events(model, state).flat_map(|tries| tries.windows(2).map(|pair| (&pair[0], &pair[1])))
}

fn any_answer(model: &Admission, state: &State, answer: Answer) -> bool {
    any_held(state, |index, number| {
        !state.rows[index].is_claiming() && model.answer(state, index, number) == answer
    })
}

/// Whether this is so of a permit that a worker has.
fn any_held(state: &State, mut holds: impl FnMut(usize, u8) -> bool) -> bool {
    state.rows.iter().enumerate().any(|(index, row)| {
        (1..=row.issued)
            .any(|number| row.messages[usize::from(number) - 1].held > 0 && holds(index, number))
    })
}
