//! The worker: receive, wait, claim, acknowledge, send, record.
//!
//! A permit in hand is a promise of nothing: the connection is made ready and
//! the slot waited for first, then the start is **claimed** in the store, and
//! only then, at once, the request is sent. A message is acknowledged when the
//! store knows of each of its permits, from when on a redelivery could only be
//! refused; but for those that have no connection after a moment, for which it does
//! not wait.
//!
//! Claims and outcomes of many permits travel in one statement each
//! (`claims`, `records`); what is in hand is bounded by the prefetch and
//! by the places. Destinations that hang share half of the places, so that
//! they cannot have all (`places`, `standing`).

mod apart;
mod away;
mod batch;
mod bench;
mod claims;
mod deliver;
mod hand;
mod heard;
mod identity;
mod meters;
mod not_done;
mod patient;
mod places;
mod promptness;
mod receiving;
mod records;
mod room;
mod sends;
mod spreads;
mod standing;
mod targets;
mod tokens;
mod tries;
mod turned_away;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::ports::{
    DeliveryQueue, Granter, NoTokens, NoVault, Schedule, Sender, Store, TokenBook, Vault,
};
use crate::store_clock::{SharedClock, Suspended, never_suspended};
use crate::warm::warm_worker;
pub use domain::slow::places_of_the_slow;

use claims::{Claims, Kind};
use deliver::Deliverer;
use hand::Hand;
use identity::Identity;
use meters::Meters;
use places::Places;
use promptness::Promptness;
use receiving::Receiving;
use records::Records;
use room::BatchRoom;
use sends::Sends;
use spreads::Spreads;
use targets::Targets;
use tokens::Tokens;
use turned_away::TurnedAway;

/// How a worker runs.
#[derive(Debug, Clone, Copy)]
pub struct WorkerOptions {
    /// How many attempts it sends at once, at least [`MIN_PLACES`].
    pub places: u32,
    /// For a dial, and then for one exchange, from the request's first byte to the
    /// answer's last, at most.
    pub request_timeout: Duration,
    /// How long started attempts may take to finish after a shutdown began.
    pub grace: Duration,
    /// Seeds the worker's ids and the jitter of retries.
    pub seed: u64,
}

/// The fewest places a worker can have: one full message's worth.
pub const MIN_PLACES: u32 = 16;

/// How long the last outcomes may take to be recorded after the grace period.
const RECORDING: Duration = Duration::from_millis(1_500);

/// How long the last heartbeat may take.
const RETIRING: Duration = Duration::from_millis(500);

impl Default for WorkerOptions {
    fn default() -> Self {
        Self {
            places: 2_048,
            request_timeout: Duration::from_secs(15),
            grace: Duration::from_secs(20),
            seed: 0,
        }
    }
}

/// The loop.
pub struct Worker {
    store: Arc<dyn Store>,
    schedule: Arc<dyn Schedule>,
    queue: Arc<dyn DeliveryQueue>,
    sender: Arc<dyn Sender>,
    vault: Arc<dyn Vault>,
    granter: Arc<dyn Granter>,
    book: Arc<dyn TokenBook>,
    options: WorkerOptions,
    suspended: Suspended,
}

impl Worker {
    /// A worker over these parts.
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        schedule: Arc<dyn Schedule>,
        queue: Arc<dyn DeliveryQueue>,
        sender: Arc<dyn Sender>,
        options: WorkerOptions,
    ) -> Self {
        Self {
            store,
            schedule,
            queue,
            sender,
            vault: Arc::new(NoVault),
            granter: Arc::new(NoTokens),
            book: Arc::new(NoTokens),
            options,
            suspended: never_suspended,
        }
    }

    /// The same, with the keys that open the destinations' secrets. Without
    /// them it sends to destinations without secrets only.
    #[must_use]
    pub fn opening_with(mut self, vault: Arc<dyn Vault>) -> Self {
        self.vault = vault;
        self
    }

    /// The same, with what asks for tokens, and where it is written down that there are
    /// none. Without them it sends nothing to destinations that are let in by a token.
    #[must_use]
    pub fn asking_for_tokens(
        mut self,
        granter: Arc<dyn Granter>,
        book: Arc<dyn TokenBook>,
    ) -> Self {
        self.granter = granter;
        self.book = book;
        self
    }

    /// The same, where the machine may be suspended: without counting that, it
    /// waits too long for its slots until the next heartbeat.
    #[must_use]
    pub fn counting_suspends(mut self, suspended: Suspended) -> Self {
        self.suspended = suspended;
        self
    }

    /// Delivers until `shutdown`. Then it takes nothing more, hands back what
    /// has not started, lets what has started finish within the grace period,
    /// records it, and retires: at most two seconds after the grace period.
    /// Dropping the future is a crash: all that it began ends with it.
    pub async fn run(self, shutdown: CancellationToken) {
        let places = self.options.places.max(MIN_PLACES);
        let rng = Arc::new(Mutex::new(StdRng::seed_from_u64(self.options.seed)));
        let clock = Arc::new(SharedClock::counting(self.suspended));
        let identity = Arc::new(Identity::new(
            Arc::clone(&self.store),
            Arc::clone(&clock),
            places,
            Arc::clone(&rng),
        ));
        if !identity.introduce(&shutdown).await {
            return;
        }
        // All of these end when this future does, also if it is dropped.
        let (mut heart, mut statements) = (JoinSet::new(), JoinSet::new());
        let given_up = CancellationToken::new();
        let _given_up = given_up.clone().drop_guard();
        let ended = CancellationToken::new();
        heart.spawn(Arc::clone(&identity).beat(ended.clone()));
        let spreads = Arc::new(Spreads::new(Arc::clone(&self.store)));
        let mut measuring = JoinSet::new();
        measuring.spawn(Arc::clone(&spreads).run());
        let (granter, book) = (Arc::clone(&self.granter), Arc::clone(&self.book));
        let tokens = Arc::new(Tokens::new(granter, book, Arc::clone(&rng)));
        measuring.spawn(Arc::clone(&tokens).run());
        // Not before it is introduced: a run that finds no worker looks again
        // after a second.
        warm_worker(self.store.as_ref(), identity.current()).await;
        let deliverer = self.deliverer(
            &mut statements,
            (clock, &identity),
            (spreads, tokens),
            (places, rng),
            &shutdown,
        );
        let receiving = self.receiving(deliverer, given_up);
        let end = tokio::select! {
            biased;
            end = receiving.run(&shutdown, self.options.grace) => end,
            // They outlive every delivery, unless they panic.
            _panicked = statements.join_next() => {
                tracing::error!("claims or records ended: the worker goes down");
                Instant::now()
            }
        };
        // Nobody holds the channels any more: claims and records end when they
        // are empty. A store that is away must not hold up the exit for ever.
        let recorded = async { while statements.join_next().await.is_some() {} };
        let _ = timeout_at(end + RECORDING, recorded).await;
        statements.shutdown().await;
        // The heartbeat went on until here; the last word is that it retires.
        ended.cancel();
        let retired = async {
            heart.join_next().await;
            identity.retire().await;
        };
        let _ = timeout(RETIRING, retired).await;
    }

    /// What deliveries share; its statements end when it is dropped and all is
    /// recorded.
    fn deliverer(
        &self,
        statements: &mut JoinSet<()>,
        (clock, identity): (Arc<SharedClock>, &Arc<Identity>),
        (spreads, tokens): (Arc<Spreads>, Arc<Tokens>),
        (places, rng): (u32, Arc<Mutex<StdRng>>),
        shutdown: &CancellationToken,
    ) -> Deliverer {
        // Large batches do not hold up the starts of others.
        let [claims, batch_claims] = [Kind::Starts, Kind::Batches].map(|kind| {
            Claims::spawn(
                statements,
                (Arc::clone(&self.store), Arc::clone(&self.schedule)),
                Arc::clone(&clock),
                Arc::clone(identity),
                kind,
            )
        });
        let (store, schedule) = (Arc::clone(&self.store), Arc::clone(&self.schedule));
        let records = Records::spawn(statements, store, schedule, places);
        let sends = Sends::spawn(statements, Arc::clone(&self.store), places);
        let places = Arc::new(Places::new(places, receiving::prefetch(places)));
        let turned_away = TurnedAway::spawn(
            statements,
            (Arc::clone(&self.store), Arc::clone(&self.schedule)),
            Arc::clone(&places),
        );
        Deliverer {
            store: Arc::clone(&self.store),
            schedule: Arc::clone(&self.schedule),
            sender: Arc::clone(&self.sender),
            clock,
            claims,
            batch_claims,
            records,
            sends,
            spreads,
            turned_away,
            tokens,
            places,
            batch_room: BatchRoom::new(),
            rng,
            promptness: Promptness::new(),
            batch_promptness: Promptness::new(),
            meters: Meters::new(),
            request_timeout: self.options.request_timeout,
            shutdown: shutdown.clone(),
        }
    }

    fn receiving(&self, deliverer: Deliverer, given_up: CancellationToken) -> Receiving {
        Receiving {
            queue: Arc::clone(&self.queue),
            prefetch: receiving::prefetch(self.options.places.max(MIN_PLACES)),
            deliverer: Arc::new(deliverer),
            targets: Targets::new(Arc::clone(&self.store), Arc::clone(&self.vault)),
            tasks: TaskTracker::new(),
            hand: Hand::default(),
            given_up,
        }
    }
}
