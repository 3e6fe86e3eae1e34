//! May this claim start?
//!
//! A claim is a compare-and-set on the attempt's row: a message of the queue may
//! be late, doubled, stale or forged, so nothing that it says is believed, and
//! all that counts is what the row and its destination say at the claim.
//!
//! ```text
//!   the row is not this permit's ─────────────────────► refused, and left alone
//!   late, revoked, held, paused, or nobody to send it ─► returned: the row waits again
//!   before its slot ──────────────────────────────────► early: ask again
//!   else ─────────────────────────────────────────────► it starts
//! ```
//!
//! The clock is the store's, read after the row was locked.

use std::time::Duration;

use super::AttemptState;
use crate::destination::DestinationState;
use crate::ids::Epoch;
use crate::permit::Permit;
use crate::time::Timestamp;

/// The attempt's row and its destination's, as they were locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The attempt's state.
    pub state: AttemptState,
    /// The last permit that it was admitted under, if any: `number`, `epoch` and
    /// times as the row has them.
    pub permit: Option<Permit>,
    /// The destination's epoch now.
    pub epoch: Epoch,
    /// The destination's state now.
    pub destination: DestinationState,
    /// It has been deleted.
    pub is_deleted: bool,
    /// Nothing of it starts before that.
    pub held_until: Option<Timestamp>,
}

/// When it is asked for, and by whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// The store's clock.
    pub now: Timestamp,
    /// The worker's heartbeat is fresh: if not, its starts may be given up at any
    /// moment.
    pub worker_lives: bool,
    /// A start may be asked for so long before its slot, and is dated to it.
    pub head_start: Duration,
}

/// What becomes of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// It starts, and the claim is dated to this: the clock, or the slot if that is
    /// ahead.
    Starts(Timestamp),
    /// The slot is so far away.
    Early(Duration),
    /// Nobody would start it under this number any more: the row waits again, so
    /// that it does not block its place up to its deadline.
    Returned,
    /// The row is not admitted under this permit: it is left as it is.
    Refused,
}

/// Whether the attempt of `permit`, as a message has it, may start.
pub fn verdict(permit: &Permit, row: &Row, asked: Asked) -> Verdict {
    let Some(own) = row.admitted_under(permit) else {
        return Verdict::Refused;
    };
    if !asked.worker_lives || row.is_over(&own, asked.now) || permit.epoch != own.epoch {
        return Verdict::Returned;
    }
    if asked.now + asked.head_start < own.not_before {
        return Verdict::Early(own.not_before.since(asked.now));
    }
    Verdict::Starts(own.not_before.max(asked.now))
}

impl Row {
    /// The row's own permit, if it is admitted under this very one. The number
    /// alone would not do: numbers are a destination's own, and the payload would
    /// go to another one's URL, under its signature.
    fn admitted_under(&self, permit: &Permit) -> Option<Permit> {
        let own = self.permit?;
        let is_it = self.state == AttemptState::Admitted
            && own.number == permit.number
            && own.attempt == permit.attempt
            && own.destination == permit.destination;
        is_it.then_some(own)
    }

    /// Late, revoked or held. A hold that is over by the slot holds nothing.
    fn is_over(&self, own: &Permit, now: Timestamp) -> bool {
        let holds = |until: Timestamp| until > now.max(own.not_before);
        now > own.deadline
            || own.epoch != self.epoch
            || self.destination != DestinationState::Active
            || self.is_deleted
            || self.held_until.is_some_and(holds)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::ids::{AttemptId, DestinationId, PermitNumber};

    const HEAD_START: Duration = Duration::from_millis(10);

    const fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    const PERMIT: Permit = Permit {
        destination: DestinationId(Uuid::from_u128(1)),
        attempt: AttemptId(7),
        number: PermitNumber(3),
        epoch: Epoch(2),
        not_before: at(1_000),
        deadline: at(3_000),
    };

    const ROW: Row = Row {
        state: AttemptState::Admitted,
        permit: Some(PERMIT),
        epoch: Epoch(2),
        destination: DestinationState::Active,
        is_deleted: false,
        held_until: None,
    };

    fn asked(millis: i64) -> Asked {
        Asked {
            now: at(millis),
            worker_lives: true,
            head_start: HEAD_START,
        }
    }

    #[test]
    fn it_starts_from_its_slot_to_its_deadline() {
        let early = |millis| Verdict::Early(Duration::from_millis(millis));
        for (now, expected) in [
            (900, early(100)),
            (989, early(11)),
            (990, Verdict::Starts(at(1_000))),
            (999, Verdict::Starts(at(1_000))),
            (1_000, Verdict::Starts(at(1_000))),
            (1_500, Verdict::Starts(at(1_500))),
            (3_000, Verdict::Starts(at(3_000))),
            (3_001, Verdict::Returned),
        ] {
            assert_eq!(verdict(&PERMIT, &ROW, asked(now)), expected, "at {now}");
        }
    }

    #[test]
    fn a_row_that_is_not_this_permits_is_left_alone() {
        let others = [
            AttemptState::Waiting,
            AttemptState::Started,
            AttemptState::Unknown,
            AttemptState::Cancelled,
        ];
        for state in others {
            let row = Row { state, ..ROW };
            assert_eq!(verdict(&PERMIT, &row, asked(1_000)), Verdict::Refused);
        }
        let none = Row {
            permit: None,
            ..ROW
        };
        assert_eq!(verdict(&PERMIT, &none, asked(1_000)), Verdict::Refused);
        let stale = Permit {
            number: PermitNumber(2),
            ..PERMIT
        };
        let forged = Permit {
            destination: DestinationId(Uuid::from_u128(2)),
            ..PERMIT
        };
        for permit in [stale, forged] {
            // Not even if it would be over: it is another's.
            assert_eq!(verdict(&permit, &ROW, asked(9_000)), Verdict::Refused);
        }
    }

    #[test]
    fn what_was_revoked_since_waits_again() {
        let revoked = [
            Row {
                epoch: Epoch(3),
                ..ROW
            },
            Row {
                destination: DestinationState::Paused,
                ..ROW
            },
            Row {
                destination: DestinationState::Disabled,
                ..ROW
            },
            Row {
                is_deleted: true,
                ..ROW
            },
        ];
        for row in revoked {
            // Before its slot as well.
            for now in [900, 1_000] {
                assert_eq!(verdict(&PERMIT, &row, asked(now)), Verdict::Returned);
            }
        }
        let of_another_epoch = Permit {
            epoch: Epoch(1),
            ..PERMIT
        };
        let answer = verdict(&of_another_epoch, &ROW, asked(1_000));
        assert_eq!(answer, Verdict::Returned);
    }

    #[test]
    fn the_rows_times_count_and_not_the_messages() {
        let generous = Permit {
            not_before: at(0),
            deadline: at(9_000),
            ..PERMIT
        };
        assert_eq!(verdict(&generous, &ROW, asked(3_001)), Verdict::Returned);
        let early = Verdict::Early(Duration::from_millis(500));
        assert_eq!(verdict(&generous, &ROW, asked(500)), early);
    }

    #[test]
    fn a_hold_that_outlasts_the_slot_revokes() {
        let held = |until| Row {
            held_until: Some(at(until)),
            ..ROW
        };
        assert_eq!(
            verdict(&PERMIT, &held(1_001), asked(995)),
            Verdict::Returned
        );
        let starts = Verdict::Starts(at(1_000));
        assert_eq!(verdict(&PERMIT, &held(1_000), asked(995)), starts);
        let later = verdict(&PERMIT, &held(1_400), asked(1_300));
        assert_eq!(later, Verdict::Returned);
        let over = verdict(&PERMIT, &held(1_400), asked(1_400));
        assert_eq!(over, Verdict::Starts(at(1_400)));
    }

    #[test]
    fn a_worker_whose_heartbeat_has_lapsed_starts_nothing() {
        let lapsed = Asked {
            worker_lives: false,
            ..asked(1_000)
        };
        assert_eq!(verdict(&PERMIT, &ROW, lapsed), Verdict::Returned);
        let early = Asked {
            now: at(0),
            ..lapsed
        };
        assert_eq!(verdict(&PERMIT, &ROW, early), Verdict::Returned);
    }
}
