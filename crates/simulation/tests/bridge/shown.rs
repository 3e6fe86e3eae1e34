//! What two stores show, so that it can be compared although each gives the
//! attempts ids of its own: an attempt is known by its event, its destination
//! and its place in the chain of tries there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use domain::attempt::AttemptState;
use domain::ids::{AttemptId, DestinationId, EventId};
use domain::permit::Permit;
use domain::time::Timestamp;
use engine::ports::{
    AttemptView, ClaimAnswer, Claims, DEFAULT_TENANT, Outcome, RunResult, SweepPage, Wake,
};

use super::calls::{Answer, Call, Driver};

/// Which attempt: the event, the destination, and how many were there before.
pub(crate) type Place = (EventId, DestinationId, usize);

/// The attempts that a store shows.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    places: BTreeMap<AttemptId, Place>,
    rows: BTreeMap<Place, AttemptView>,
}

impl Shown {
    /// All attempts at these destinations.
    pub(crate) async fn read(
        driver: &(impl Driver + ?Sized),
        destinations: &[DestinationId],
    ) -> Self {
        let mut shown = Self::default();
        for id in destinations {
            let attempts = driver.attempts(DEFAULT_TENANT, *id, None, 10_000).await;
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

    /// The attempts whose state is this one.
    pub(crate) fn in_state(&self, state: AttemptState) -> BTreeSet<Place> {
        let rows = self.rows.iter().filter(|(_, row)| row.state == state);
        rows.map(|(place, _)| *place).collect()
    }

    /// When the first of these was created within this time, if one was.
    pub(crate) fn created_within(
        &self,
        (from, to): (Timestamp, Timestamp),
        is_one: impl Fn(&AttemptView) -> bool,
    ) -> Option<Timestamp> {
        let rows = self.rows.values().filter(|row| is_one(row));
        let times = rows.map(|row| row.created_at);
        times.filter(|at| (from..=to).contains(at)).min()
    }

    /// All that there is to compare of the rows. When something was created
    /// is known of Postgres only after the call.
    ///
    /// Not compared: why a start became unknown, in words; and whether a late
    /// outcome makes a dead letter of a row that was unknown (`known`), where
    /// Postgres goes by the outcome and the others by the row.
    pub(crate) fn text(&self, known: &BTreeSet<Place>) -> String {
        let mut text = String::new();
        for (place, row) in &self.rows {
            let late = known.contains(place).then_some("late");
            let dead = late.is_none().then_some(row.dead_letter);
            let error = row.error.as_ref().filter(|_| late.is_none());
            writeln!(
                text,
                "{place:?} try {} {:?} dead letter {dead:?} {:?} {:?} {:?} {:?} {error:?} {:?}",
                row.try_number,
                row.state,
                row.admitted_at,
                row.started_at,
                row.finished_at,
                row.status,
                row.response_body,
            )
            .unwrap();
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

    /// An answer, with places for ids. Times are exact where the store
    /// answers them; to a retry it is so many minutes.
    pub(crate) fn answer(&self, call: &Call, answer: &Answer) -> String {
        match (call, answer) {
            (_, Answer::Admitted(admitted)) => {
                let results = admitted.results.iter().map(|result| self.result(result));
                format!("{:?} {:?}", admitted.now, results.collect::<Vec<_>>())
            }
            (Call::Claim(_, permits), Answer::Claims(claims)) => self.claims(permits, claims),
            (_, Answer::Woken(woken)) => format!("{:?}", wakes(woken)),
            (_, Answer::Recorded(recorded)) => {
                let skipped: BTreeSet<_> = self.all(&recorded.skipped);
                format!("skipped {skipped:?} {:?}", wakes(&recorded.wakes))
            }
            (_, Answer::Reaped(reaped)) => {
                let counts = (
                    reaped.expired_permits,
                    reaped.unknown_starts,
                    reaped.cancelled,
                );
                format!("{counts:?} {:?}", wakes(&reaped.wakes))
            }
            (_, answer) => format!("{answer:?}"),
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
        format!("{permits:?} {look:?} {blocked:?}")
    }

    /// Of a permit that is named twice, the first answer, and whether it
    /// starts again: what the second says is each store's own.
    fn claims(&self, permits: &[Permit], claims: &Claims) -> String {
        let mut once = BTreeSet::new();
        let mut answer = |(permit, answer): (&Permit, &ClaimAnswer)| {
            let place = self.places.get(&permit.attempt);
            match once.insert((place, permit.number)) {
                true => format!("{answer:?}"),
                false => format!("again {}", matches!(answer, ClaimAnswer::Started(_))),
            }
        };
        let answers = permits.iter().zip(&claims.answers).map(&mut answer);
        let answers: Vec<_> = answers.collect();
        format!("{:?} {answers:?} {:?}", claims.now, wakes(&claims.wakes))
    }
}

/// Whom to wake, each once: in how many minutes at the earliest.
fn wakes(wakes: &[Wake]) -> BTreeMap<DestinationId, u64> {
    let mut earliest = BTreeMap::new();
    for wake in wakes {
        let minutes = (wake.after + Duration::from_secs(30)).as_secs() / 60;
        let earliest = earliest.entry(wake.destination).or_insert(minutes);
        *earliest = minutes.min(*earliest);
    }
    earliest
}

/// Whether a page is what the model shows from one time to another: the later,
/// the more is due and overdue. `is_active` says of whom a mark wakes.
///
/// When something is woken that has permits and a retry for later is each
/// store's own: it is not compared.
pub(crate) fn page_is_between(
    page: &SweepPage,
    (earlier, later): (&SweepPage, &SweepPage),
    is_active: impl Fn(DestinationId) -> bool,
) -> bool {
    let woken = |page: &SweepPage| -> BTreeSet<(DestinationId, bool)> {
        let wakes = page.wakes.iter().filter(|wake| {
            // Postgres leaves these out, the others do not.
            !wake.clear_floor || is_active(wake.destination)
        });
        wakes
            .map(|wake| (wake.destination, wake.clear_floor))
            .collect()
    };
    let marked = |page: &SweepPage| -> Vec<DestinationId> {
        page.marks.iter().map(|mark| mark.destination).collect()
    };
    let answered = woken(page);
    page.next == later.next
        && marked(page) == marked(later)
        && woken(earlier).is_subset(&answered)
        && answered.is_subset(&woken(later))
}
