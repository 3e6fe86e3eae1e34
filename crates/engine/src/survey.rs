//! The survey: what metrics say of the store, sampled.
//!
//! A round goes through the destinations that have a backlog, page by page, and
//! ends with a closer look at a few: those with the longest backlogs, and those
//! that were asked for. So the cost of a round is bounded by how many
//! destinations have work, and the number of series by the settings. Every
//! scheduler makes rounds of its own and none leads; all export the same
//! gauges, of which a query takes the `max`.

mod export;
mod look;
mod round;

use std::sync::Arc;
use std::time::Duration;

use domain::health::Lately;
use domain::ids::{DestinationId, TenantId};
use domain::time::Timestamp;
use domain::watch::Shortfall;
use tokio_util::sync::CancellationToken;

pub use export::export;
use round::Round;

use crate::pause::ends_within;
use crate::ports::{
    Catalog, CatalogError, Fleet, MAX_GLANCED, Outcomes, Store, StoreError, Survey, SurveyRules,
    Tallies, Troubles,
};

/// How a survey runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SurveyOptions {
    /// Between the end of one round and the beginning of the next.
    pub every: Duration,
    /// Between two pages of a round.
    pub pace: Duration,
    /// How it goes through the backlogs.
    pub rules: SurveyRules,
    /// How many destinations are shown one by one: those with the longest
    /// backlogs.
    pub top: usize,
    /// These are shown as well.
    pub asked: Vec<DestinationId>,
    /// How far the backlogs of those that are shown are counted.
    pub counted: u32,
}

impl Default for SurveyOptions {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(10),
            pace: Duration::from_millis(200),
            rules: SurveyRules::default(),
            top: 20,
            asked: Vec::new(),
            counted: 100_000,
        }
    }
}

/// What one round found.
#[derive(Debug, Clone, PartialEq)]
pub struct Picture {
    /// The store's clock, at the end of the round.
    pub now: Timestamp,
    /// The workers, and what is under way.
    pub fleet: Fleet,
    /// Destinations and tenants in trouble.
    pub troubles: Troubles,
    /// Destinations with a backlog.
    pub destinations: u64,
    /// All that waits, each destination's counted as far as the rules say.
    pub backlog: u64,
    /// Of that, what has a time at which it is due.
    pub others: u64,
    /// How long the first of all that is due has waited.
    pub oldest: Duration,
    /// One by one, in id order.
    pub shown: Vec<Shown>,
}

/// One destination that is shown.
#[derive(Debug, Clone, PartialEq)]
pub struct Shown {
    /// Which.
    pub destination: DestinationId,
    /// Its tenant.
    pub tenant: TenantId,
    /// How many attempts wait, as far as they were counted.
    pub backlog: u32,
    /// How long the first of what is due has waited.
    pub oldest: Duration,
    /// Attempts that have started and have no outcome.
    pub in_flight: u32,
    /// Starts per second that its shortest limit allows, as it is set; `None` for any
    /// number.
    pub configured: Option<f64>,
    /// And what all that is in force allows in the long run: 0 while paused, less under
    /// smart delivery.
    pub effective: Option<f64>,
    /// By how much the window of its shortest limit is planned longer than its period;
    /// `None` where it has no window.
    pub margin: Option<Duration>,
    /// How many more its limits would let start now.
    pub tokens: Option<f64>,
    /// How long its backlog takes to drain, if nothing else comes; `None` where nobody
    /// can say ([`domain::explain::drains_in`]).
    pub drains_in: Option<Duration>,
    /// Its breaker is open, or half open.
    pub breaker_open: bool,
    /// Why it gets less than its limit allows just now, if it does.
    pub shortfall: Option<Shortfall>,
    /// What came of its requests, in the part of the last minutes that was read.
    pub lately: Lately,
    /// What came of those of the last hour and day.
    pub outcomes: Option<Outcomes>,
    /// Starts that came too early, in the part of its ledger that was judged.
    pub early_starts: u64,
    /// How long what started since the last round had been due.
    pub lags: Vec<Duration>,
}

/// Why a round came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum NotSurveyed {
    /// The store could not be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The same, of ledgers and limits.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
}

/// The loop.
pub struct SurveyLoop {
    survey: Arc<dyn Survey>,
    store: Arc<dyn Store>,
    catalog: Arc<dyn Catalog>,
    tallies: Option<Arc<dyn Tallies>>,
    options: SurveyOptions,
    round: Round,
    /// The end of the last round.
    last: Option<Timestamp>,
}

impl SurveyLoop {
    /// A survey of this store, through its ports.
    #[must_use]
    pub fn new(
        survey: Arc<dyn Survey>,
        store: Arc<dyn Store>,
        catalog: Arc<dyn Catalog>,
        options: SurveyOptions,
    ) -> Self {
        Self {
            survey,
            store,
            catalog,
            tallies: None,
            options,
            round: Round::default(),
            last: None,
        }
    }

    /// Says what came of requests over an hour and a day, too.
    #[must_use]
    pub fn with_outcomes(mut self, tallies: Arc<dyn Tallies>) -> Self {
        self.tallies = Some(tallies);
        self
    }

    /// Goes on until `shutdown`.
    pub async fn run(mut self, shutdown: CancellationToken) {
        loop {
            let pause = match self.tick().await {
                Ok(Some(picture)) => {
                    export(&picture);
                    self.options.every
                }
                Ok(None) => self.options.pace,
                Err(error) => {
                    tracing::warn!(%error, "survey failed: its gauges are old, will begin anew");
                    self.round = Round::default();
                    self.options.every
                }
            };
            if ends_within(pause, &shutdown).await {
                return;
            }
        }
    }

    /// One page; what the round found, if that was its last.
    pub async fn tick(&mut self) -> Result<Option<Picture>, NotSurveyed> {
        let rules = &self.options.rules;
        let page = self
            .survey
            .survey_backlogs(self.round.after(), rules)
            .await?;
        if !self.round.add(&page, self.options.top, &self.options.asked) {
            return Ok(None);
        }
        let round = std::mem::take(&mut self.round);
        let picture = self.look(&round).await?;
        self.last = Some(picture.now);
        Ok(Some(picture))
    }
}
