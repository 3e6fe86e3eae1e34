//! What two stores show, so that it can be compared although each gives the
//! attempts ids of its own: an attempt is known by its event, its destination
//! and its place in the chain of tries there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::Bound;
use std::time::Duration;

use domain::attempt::AttemptState;
use domain::ids::{AttemptId, DestinationId, EventId};
use domain::permit::Permit;
use domain::time::Timestamp;
use engine::ports::{AttemptView, DEFAULT_TENANT, Outcome, RunResult, Wake};

use super::calls::{Answer, Call, Driver};

/// Which attempt: the event, the destination, and how many were there before.
pub(crate) type Place = (EventId, DestinationId, usize);

/// The attempts that a store shows.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    places: BTreeMap<AttemptId, Place>,
    rows: BTreeMap<Place, AttemptView>,
    /// When each could have started at the earliest, as the ledger says.
    due: BTreeMap<AttemptId, Timestamp>,
}

/// The whole ledger.
const EVER: (Timestamp, Timestamp) = (
    Timestamp::from_millis(0),
    Timestamp::from_millis(9_000_000_000_000),
);

impl Shown {
    /// All attempts at these destinations.
    pub(crate) async fn read(
        driver: &(impl Driver + ?Sized),
        destinations: &[DestinationId],
    ) -> Self {
        let mut shown = Self::default();
        for id in destinations {
            let ledger = driver
                .catalog()
                .ledger(*id, EVER.0, EVER.1, None, 10_000)
                .await;
            let due = ledger.unwrap().into_iter();
            shown.due.extend(due.map(|row| (row.attempt, row.due_at)));
            let attempts = driver
                .catalog()
                .attempts(DEFAULT_TENANT, *id, None, 10_000)
                .await;
            let mut before: BTreeMap<EventId, usize> = BTreeMap::new();
            for row in attempts.unwrap().into_iter().rev() {
                let before = before.entry(row.event).or_default();
                let place = (row.event, *id, *before);
                *before += 1;
                shown.places.insert(row.id, place);
                shown.rows.insert(place, row);
            }
        }
        shown
    }

    /// Each destination's attempts, in the order of their ids.
    pub(crate) fn orders(&self) -> BTreeMap<DestinationId, Vec<Place>> {
        let mut orders: BTreeMap<_, Vec<Place>> = BTreeMap::new();
        for place in self.places.values() {
            orders.entry(place.1).or_default().push(*place);
        }
        orders
    }

    /// Which attempt an id of this store is.
    pub(crate) fn place(&self, id: AttemptId) -> Option<Place> {
        self.places.get(&id).copied()
    }

    /// The id here of an attempt.
    pub(crate) fn id_of(&self, place: &Place) -> Option<AttemptId> {
        self.rows.get(place).map(|row| row.id)
    }

    /// The attempts whose state is this one.
    pub(crate) fn in_state(&self, state: AttemptState) -> impl Iterator<Item = Place> {
        let rows = self.rows.iter().filter(move |(_, row)| row.state == state);
        rows.map(|(place, _)| *place)
    }

    /// What follows an attempt in its chain of tries.
    pub(crate) fn followers(&self, of: &Place) -> impl Iterator<Item = Place> {
        let last = (of.0, of.1, usize::MAX);
        let after = (Bound::Excluded(*of), Bound::Included(last));
        self.rows.range(after).map(|(place, _)| *place)
    }

    /// When some of the attempts were created or are due, as far as that is
    /// within this time.
    pub(crate) fn times(
        &self,
        (from, to): (Timestamp, Timestamp),
        is_one: impl Fn(&Place) -> bool,
    ) -> BTreeSet<Timestamp> {
        let rows = self.rows.iter().filter(|(place, _)| is_one(place));
        let times = rows.flat_map(|(_, row)| {
            let due = self.due.get(&row.id).copied();
            [Some(row.created_at), due].into_iter().flatten()
        });
        times.filter(|at| (from..=to).contains(at)).collect()
    }

    /// All that there is of the rows, but for their ids.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for (place, row) in &self.rows {
            let due = self.due.get(&row.id);
            let row = AttemptView {
                id: AttemptId(0),
                ..row.clone()
            };
            writeln!(text, "{place:?} due {due:?} {row:?}").unwrap();
        }
        text
    }

    fn id(&self, place: Option<&Place>) -> AttemptId {
        // One that is not there: every call refuses it.
        const NOBODY: AttemptId = AttemptId(-1);
        place
            .and_then(|place| self.rows.get(place))
            .map_or(NOBODY, |row| row.id)
    }

    /// A call on another store, as it is to be made on this one.
    pub(crate) fn translated(&self, call: &Call, other: &Self) -> Call {
        let attempt = |id: &AttemptId| self.id(other.places.get(id));
        let permit = |permit: &Permit| Permit {
            attempt: attempt(&permit.attempt),
            ..*permit
        };
        let outcome = |outcome: &Outcome| Outcome {
            attempt: attempt(&outcome.attempt),
            ..outcome.clone()
        };
        match call {
            Call::Claim(by, permits) => Call::Claim(*by, permits.iter().map(permit).collect()),
            Call::Release(permits) => Call::Release(permits.iter().map(permit).collect()),
            Call::Record(by, outcomes) => Call::Record(*by, outcomes.iter().map(outcome).collect()),
            _ => call.clone(),
        }
    }

    /// An answer but for its wakes, with places for ids.
    pub(crate) fn answer(&self, answer: &Answer) -> String {
        match answer {
            Answer::Admitted(admitted) => {
                let results = admitted.results.iter().map(|result| self.result(result));
                format!("{:?} {:?}", admitted.now, results.collect::<Vec<_>>())
            }
            Answer::Claims(claims) => format!("{:?} {:?}", claims.now, claims.answers),
            Answer::Woken(_) => String::new(),
            Answer::Recorded(recorded) => {
                let skipped: BTreeSet<_> = self.all(&recorded.skipped);
                format!("skipped {skipped:?}")
            }
            answer => format!("{answer:?}"),
        }
    }

    fn all(&self, ids: &[AttemptId]) -> BTreeSet<Option<&Place>> {
        ids.iter().map(|id| self.places.get(id)).collect()
    }

    fn result(&self, result: &RunResult) -> String {
        let RunResult::Decided {
            permits,
            look,
            blocked,
            failing,
        } = result
        else {
            return format!("{result:?}");
        };
        let permit = |permit: &Permit| {
            let place = self.places.get(&permit.attempt);
            let Permit {
                number,
                epoch,
                not_before,
                deadline,
                ..
            } = permit;
            format!("{place:?} {number:?} {epoch:?} {not_before:?} {deadline:?}")
        };
        let permits: Vec<_> = permits.iter().map(permit).collect();
        format!("{permits:?} {look:?} {blocked:?} {failing}")
    }
}

/// Whom an answer says to wake.
pub(crate) fn wakes_of(answer: &Answer) -> &[Wake] {
    match answer {
        Answer::Claims(claims) => &claims.wakes,
        Answer::Woken(wakes) => wakes,
        Answer::Recorded(recorded) => &recorded.wakes,
        Answer::Reaped(reaped) => &reaped.wakes,
        _ => &[],
    }
}

/// Whether these are the same wakes, when one store's clock may have been so
/// much ahead of the other's.
pub(crate) fn are_same(some: &[Wake], others: &[Wake], apart: Duration) -> bool {
    let sorted = |wakes: &[Wake]| -> BTreeMap<DestinationId, Wake> {
        wakes.iter().map(|wake| (wake.destination, *wake)).collect()
    };
    let is_same = |(one, other): (&Wake, &Wake)| {
        one.destination == other.destination
            && one.clear_floor == other.clear_floor
            && one.after.abs_diff(other.after) <= apart
    };
    let (sorted_some, sorted_others) = (sorted(some), sorted(others));
    some.len() == others.len()
        && sorted_some.len() == some.len()
        && sorted_others.len() == others.len()
        && sorted_some
            .values()
            .zip(sorted_others.values())
            .all(is_same)
}
