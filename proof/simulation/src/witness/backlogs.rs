//! What a witness knows of backlogs: what came, what was counted, and what the
//! API can know of both.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use domain::backpressure::{BacklogBounds, Backlogged, high_mark, low_mark};
use domain::event::NewEvent;
use domain::ids::{DestinationId, EventId};
use domain::time::Timestamp;
use engine::ports::DEFAULT_TENANT;

use super::Witness;
use promises::{LetIn, Promise};

/// Counts that are remembered: one that is told of is hardly older.
const REMEMBERED: usize = 8;

/// How many attempts are pending, and whether events are taken.
pub(crate) type Pending = BTreeMap<Backlogged, (u64, bool)>;

/// All of it.
#[derive(Default)]
pub(super) struct Backlogs {
    bounds: Option<BacklogBounds>,
    /// Attempts that came by any way that is not a retry: ever.
    came: BTreeMap<Backlogged, u64>,
    /// Of these, what the API that runs knows of, since it runs.
    noted: BTreeMap<Backlogged, u64>,
    life: u64,
    /// The last counts that the store wrote down: the newest last.
    counted: VecDeque<Counted>,
    /// What the API that runs has been told: the newest last.
    learned: Vec<Counted>,
    /// As it was when it began.
    began: Counted,
    refused: BTreeSet<EventId>,
}

/// How everything stood at a count.
#[derive(Clone, Default)]
struct Counted {
    at: Timestamp,
    pending: Pending,
    came: BTreeMap<Backlogged, u64>,
    noted: BTreeMap<Backlogged, u64>,
}

/// All that an event for this destination adds to.
fn all_of(destination: DestinationId) -> [Backlogged; 3] {
    let own = Backlogged::Destination(DEFAULT_TENANT, destination);
    [own, Backlogged::Tenant(DEFAULT_TENANT), Backlogged::All]
}

fn of(counts: &BTreeMap<Backlogged, u64>, whose: Backlogged) -> u64 {
    counts.get(&whose).copied().unwrap_or(0)
}

impl Backlogs {
    fn stand(&self, at: Timestamp, pending: Pending) -> Counted {
        Counted {
            at,
            pending,
            came: self.came.clone(),
            noted: self.noted.clone(),
        }
    }

    /// Came since then, and of these what the API knows of.
    fn since(&self, then: &Counted, whose: Backlogged) -> (u64, u64) {
        let came = of(&self.came, whose) - of(&then.came, whose);
        (came, of(&self.noted, whose) - of(&then.noted, whose))
    }

    fn judge_let_in(&self, whose: Backlogged, pending: u64) -> Promise {
        let Some(bounds) = &self.bounds else {
            return Ok(());
        };
        let high = high_mark(bounds.of(whose));
        let known = self.learned.last();
        let then = known.unwrap_or(&self.began);
        let (counted, took) = then.pending.get(&whose).copied().unwrap_or((0, true));
        // Nothing was known of it, or it was not told of.
        let mark = match known.is_some() && took {
            true => high,
            false => high.saturating_add(counted),
        };
        let (came, noted) = self.since(then, whose);
        let unknown = came.cast_signed().saturating_sub(noted.cast_signed());
        let let_in = LetIn {
            pending,
            mark,
            unknown,
        };
        promises::a_backlog_is_bounded(whose, let_in)
    }

    fn judge_refusal(&self, whose: Backlogged) -> Promise {
        let (Some(bounds), [first, second, last]) = (&self.bounds, &self.learned[..]) else {
            return Ok(());
        };
        let counted = [first, second, last].map(|one| one.pending.get(&whose).copied());
        let counted = counted.map(|one| one.unwrap_or((0, true)));
        if counted.iter().any(|(_, took)| !took) {
            return Ok(());
        }
        let (came, _) = self.since(first, whose);
        let bound = bounds.of(whose);
        let marks = (low_mark(bound), high_mark(bound));
        let counted = counted.map(|(pending, _)| pending);
        promises::what_is_short_again_is_taken(whose, (counted, came), marks)
    }
}

impl Witness {
    /// An API begins with its `life`th life, and knows nothing.
    pub(crate) fn api_began(&self, life: u64, bounds: Option<BacklogBounds>, pending: Pending) {
        let mut seen = self.seen();
        let backlogs = &mut seen.backlogs;
        backlogs.bounds = bounds;
        backlogs.life = life;
        backlogs.noted.clear();
        backlogs.learned.clear();
        backlogs.began = backlogs.stand(Timestamp::MIN, pending);
        for counted in &mut backlogs.counted {
            counted.noted.clear();
        }
    }

    /// Whether any are bounded, so that it matters what adds to them.
    pub(crate) fn judges_backlogs(&self) -> bool {
        self.seen().backlogs.bounds.is_some()
    }

    /// So many more are pending at this destination.
    pub(crate) fn came(&self, destination: DestinationId, more: u64) {
        let mut seen = self.seen();
        for whose in all_of(destination) {
            *seen.backlogs.came.entry(whose).or_default() += more;
        }
    }

    /// An API has noted what it accepted.
    pub(crate) fn noted(&self, life: u64, destinations: &[DestinationId]) {
        let mut seen = self.seen();
        let backlogs = &mut seen.backlogs;
        if backlogs.life == life {
            for whose in destinations.iter().flat_map(|one| all_of(*one)) {
                *backlogs.noted.entry(whose).or_default() += 1;
            }
        }
    }

    /// The store has counted.
    pub(crate) fn counted(&self, at: Timestamp, pending: Pending) {
        let mut seen = self.seen();
        let counted = seen.backlogs.stand(at, pending);
        seen.backlogs.counted.push_back(counted);
        if seen.backlogs.counted.len() > REMEMBERED {
            seen.backlogs.counted.pop_front();
        }
    }

    /// The API was told of the last count.
    pub(crate) fn learned(&self, life: u64, at: Timestamp) {
        let mut seen = self.seen();
        let backlogs = &mut seen.backlogs;
        let is_news = (backlogs.learned.last()).is_none_or(|last| last.at != at);
        if backlogs.life != life || !is_news {
            return;
        }
        let counted = backlogs.counted.iter().rfind(|one| one.at == at).cloned();
        // None has come yet: all is as the migrations left it.
        backlogs.learned.extend(counted);
        if backlogs.learned.len() > 3 {
            backlogs.learned.remove(0);
        }
    }

    /// The API lets these in.
    pub(crate) fn let_in(&self, life: u64, events: &[NewEvent], pending: &Pending) {
        let mut seen = self.seen();
        if seen.backlogs.life != life {
            return;
        }
        let to: BTreeSet<_> = (events.iter())
            .filter_map(|event| event.audience.named())
            .flat_map(all_of)
            .collect();
        for whose in to {
            let now = pending.get(&whose).map_or(0, |(pending, _)| *pending);
            let judged = seen.backlogs.judge_let_in(whose, now);
            self.judge(&mut seen, judged);
        }
    }

    /// The API refuses this.
    pub(crate) fn refused(&self, life: u64, event: EventId, whose: Backlogged) {
        let mut seen = self.seen();
        seen.backlogs.refused.insert(event);
        if seen.backlogs.life == life {
            let judged = seen.backlogs.judge_refusal(whose);
            self.judge(&mut seen, judged);
        }
    }

    /// Everything that was ever refused, by the ids that it had.
    pub(crate) fn all_refused(&self) -> Vec<EventId> {
        self.seen().backlogs.refused.iter().copied().collect()
    }
}
