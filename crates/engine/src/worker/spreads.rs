//! How much destinations' response times differ, as this worker sees it: what the margin
//! of their windows is, where none is set ([`domain::margin`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::ids::DestinationId;
use domain::margin::{ResponseTimes, SAID_EVERY, Spread};
use tokio::time::{Instant, sleep};

use crate::ports::{MAX_ROWS, Store, Target};

/// How often what is new is looked at.
const EVERY: Duration = Duration::from_secs(2);

/// Of how many destinations times are remembered, a kilobyte of each. Beyond it, those
/// that have not answered for longest make room.
const DESTINATIONS_MAX: usize = 4_096;

/// Remembers response times, and says what they come to.
pub(super) struct Spreads {
    store: Arc<dyn Store>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    of: BTreeMap<DestinationId, Times>,
    /// That have answered since the last look.
    fresh: BTreeSet<DestinationId>,
}

#[derive(Default)]
struct Times {
    /// Of which receiver: another URL is another one.
    url: String,
    times: ResponseTimes,
    /// When the last answer came.
    heard_at: Option<Instant>,
    /// What was said last, and when.
    said: Option<(Spread, Instant)>,
}

impl Times {
    /// What is to be said now, if anything.
    fn to_say(&self, now: Instant) -> Option<Spread> {
        let spread = self.times.spread()?;
        let is_news = self.said.is_none_or(|(said, at)| {
            spread.is_wider_than(said) || now.saturating_duration_since(at) >= SAID_EVERY
        });
        is_news.then_some(spread)
    }
}

impl Spreads {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            seen: Mutex::default(),
        }
    }

    /// One answer, so long after its request's first byte.
    pub(super) fn note(&self, target: &Target, took: Duration) {
        let destination = target.destination;
        let mut seen = self.seen();
        let is_known = seen.of.contains_key(&destination);
        if !is_known && seen.of.len() >= 2 * DESTINATIONS_MAX {
            return;
        }
        let times = seen.of.entry(destination).or_default();
        if times.url != target.url {
            *times = Times {
                url: target.url.clone(),
                ..Times::default()
            };
        }
        times.times.note(took);
        times.heard_at = Some(Instant::now());
        seen.fresh.insert(destination);
    }

    /// Looks again and again, until it is dropped.
    pub(super) async fn run(self: Arc<Self>) {
        loop {
            sleep(EVERY).await;
            self.tick().await;
        }
    }

    /// Says what is new, in one statement or few.
    async fn tick(&self) {
        let now = Instant::now();
        let to_say = self.to_say(now);
        for page in to_say.chunks(MAX_ROWS) {
            match self.store.report_spreads(page).await {
                Ok(()) => self.said(page, now),
                // Said again when they answer again.
                Err(error) => {
                    metrics::counter!("paceline_margin_reports_lost_total")
                        .increment(page.len() as u64);
                    tracing::debug!(%error, destinations = page.len(), "margins not reported");
                }
            }
        }
    }

    /// One destination at a time: deliveries that end meanwhile wait for no more.
    fn to_say(&self, now: Instant) -> Vec<(DestinationId, Spread)> {
        let fresh = {
            let mut seen = self.seen();
            seen.make_room();
            std::mem::take(&mut seen.fresh)
        };
        (fresh.into_iter())
            .filter_map(|id| Some((id, self.seen().of.get(&id)?.to_say(now)?)))
            .collect()
    }

    fn said(&self, said: &[(DestinationId, Spread)], now: Instant) {
        let mut seen = self.seen();
        for (destination, spread) in said {
            if let Some(times) = seen.of.get_mut(destination) {
                times.said = Some((*spread, now));
            }
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    fn make_room(&mut self) {
        let over = self.of.len().saturating_sub(DESTINATIONS_MAX);
        if over == 0 {
            return;
        }
        let mut oldest: Vec<(Option<Instant>, DestinationId)> = (self.of.iter())
            .map(|(id, times)| (times.heard_at, *id))
            .collect();
        oldest.sort_unstable();
        for (_, destination) in oldest.into_iter().take(over) {
            self.of.remove(&destination);
        }
    }
}
