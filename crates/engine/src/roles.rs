//! Which loops run in which role: the one place where loops are put together, for
//! `paceline` and its demo, for the simulation and, since it starts the program, for
//! chaos.
//!
//! | loop | serve | api | scheduler | worker | operator |
//! |---|---|---|---|---|---|
//! | ingest | ✓ | ✓ | | | |
//! | backpressure | ✓ | ✓ | | | |
//! | resealing | ✓ | ✓ | | | |
//! | relay | ✓ | ✓ | ✓ | | |
//! | retention | ✓ | | ✓ | | |
//! | notifier | ✓ | | ✓ | | |
//! | survey | ✓ | | ✓ | | |
//! | tally | ✓ | | ✓ | | |
//! | scheduler | ✓ | | ✓ | | |
//! | reaper | ✓ | | ✓ | | |
//! | sweep | ✓ | | ✓ | | |
//! | replay | ✓ | | ✓ | | |
//! | handshake | ✓ | | | ✓ | |
//! | notices | ✓ | | | ✓ | |
//! | worker | ✓ | | | ✓ | |
//!
//! Every process of a role runs all of the role's loops, and none of them needs a
//! leader. [`assemble`] hands the loops out and starts nothing: who drives them, in
//! which time and until when, is up to the caller.

mod table;

pub use table::{LoopKind, Role};

use std::sync::Arc;

use domain::backpressure::{BacklogBounds, CountPace};
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio_util::sync::CancellationToken;

use crate::backpressure::{BackpressureLoop, Pressure};
use crate::handshake::{HandshakeLoop, HandshakeOptions};
use crate::ingest::{Ingest, IngestLoop, IngestOptions};
use crate::notices::{NoticesLoop, NoticesOptions};
use crate::notifier::{Notifier, NotifierOptions};
use crate::ports::{
    Asker, Backpressure, Catalog, DeliveryQueue, Granter, Handshakes, Notices, Operations, Outbox,
    Post, Replays, Retain, Schedule, SecretStore, Sender, Store, Survey, Tallies, TokenBook, Vault,
};
use crate::reaper::{Reaper, ReaperOptions};
use crate::relay::{Relay, RelayOptions};
use crate::replay::{ReplayLoop, ReplayOptions};
use crate::resealing::Resealing;
use crate::retention::{RetentionLoop, RetentionOptions};
use crate::scheduler::{Scheduler, SchedulerOptions};
use crate::store_clock::{Suspended, never_suspended};
use crate::survey::{SurveyLoop, SurveyOptions};
use crate::sweep::{SweepLoop, SweepOptions};
use crate::tally::{TallyLoop, TallyOptions};
use crate::worker::{Worker, WorkerOptions};

/// What the loops need from outside. A loop whose port is `None` is not assembled, in
/// no role.
#[derive(Clone)]
pub struct Ports {
    /// The truth.
    pub store: Arc<dyn Store>,
    /// The jobs.
    pub schedule: Arc<dyn Schedule>,
    /// Carries permits; without it nothing is scheduled or delivered.
    pub queue: Option<Arc<dyn DeliveryQueue>>,
    /// Sends requests.
    pub sender: Arc<dyn Sender>,
    /// Opens secrets, and seals them. A worker without it sends to destinations
    /// without secrets only.
    pub vault: Option<Arc<dyn Vault>>,
    /// Counts backlogs.
    pub backpressure: Option<Arc<dyn Backpressure>>,
    /// Where secrets are kept.
    pub secrets: Option<Arc<dyn SecretStore>>,
    /// Rows that users wrote; `None` where they cannot write into the store.
    pub outbox: Option<Arc<dyn Outbox>>,
    /// Deletes what is old.
    pub retain: Option<Arc<dyn Retain>>,
    /// What operators must know.
    pub operations: Option<Arc<dyn Operations>>,
    /// What metrics are made of.
    pub surveyed: Option<Surveyed>,
    /// Counts what came of requests.
    pub tallies: Option<Arc<dyn Tallies>>,
    /// Replays that are under way.
    pub replays: Option<Arc<dyn Replays>>,
    /// Receivers that are asked before anything is sent to them.
    pub asking: Option<Asking>,
    /// Tokens, by which some receivers let requests in. A worker without it sends nothing
    /// to those.
    pub tokens: Option<TokenPorts>,
    /// What people are told, and how.
    pub noticing: Option<Noticing>,
}

/// What the worker needs for tokens.
#[derive(Clone)]
pub struct TokenPorts {
    /// Asks for them.
    pub granter: Arc<dyn Granter>,
    /// Where it is written down that there are none.
    pub book: Arc<dyn TokenBook>,
}

/// What the handshake loop needs.
#[derive(Clone)]
pub struct Asking {
    /// Where handshakes stand.
    pub handshakes: Arc<dyn Handshakes>,
    /// Asks receivers.
    pub asker: Arc<dyn Asker>,
}

/// What notices need.
#[derive(Clone)]
pub struct Noticing {
    /// Where they wait.
    pub notices: Arc<dyn Notices>,
    /// What carries them.
    pub post: Arc<dyn Post>,
}

/// What the survey looks at, beside the store and the tallies.
#[derive(Clone)]
pub struct Surveyed {
    /// Backlogs, a page at a time.
    pub survey: Arc<dyn Survey>,
    /// Ledgers and limits.
    pub catalog: Arc<dyn Catalog>,
}

/// How the loops of a process run.
#[derive(Debug)]
pub struct Settings {
    /// How long backlogs may become.
    pub bounds: BacklogBounds,
    /// One each for the schedulers of this process.
    pub schedulers: Vec<SchedulerOptions>,
    /// How long things are kept.
    pub retention: RetentionOptions,
    /// What metrics show.
    pub survey: SurveyOptions,
    /// How a worker runs. Its `request_timeout` is every role's: the reaper takes a
    /// start for lost by it.
    pub worker: WorkerOptions,
    /// How people are told.
    pub notices: NoticesOptions,
    /// What secrets are sealed anew with.
    pub sealing: StdRng,
    /// How long the machine has been suspended.
    pub suspended: Suspended,
}

impl Settings {
    /// Those of a role, by default; `seed` is the worker's. Secrets are sealed with
    /// numbers that follow from it, which is good enough for tests alone.
    #[must_use]
    pub fn of(role: Role, seed: u64) -> Self {
        Self {
            bounds: BacklogBounds::default(),
            schedulers: role.schedulers(),
            retention: RetentionOptions::default(),
            survey: SurveyOptions::default(),
            worker: WorkerOptions {
                seed,
                ..WorkerOptions::default()
            },
            notices: NoticesOptions::default(),
            sealing: StdRng::seed_from_u64(seed),
            suspended: never_suspended,
        }
    }
}

/// The way in of events: clone it into every request handler.
#[derive(Clone)]
pub struct Entrance {
    /// Hands events to the loop behind it.
    pub ingest: Ingest,
    /// Says which backlogs are too long.
    pub pressure: Arc<Pressure>,
}

impl Entrance {
    /// Of a role that takes no events in: whoever hands one in is told that ingest has
    /// stopped.
    #[must_use]
    pub fn closed(ports: &Ports) -> Self {
        Self::new(ports, BacklogBounds::default()).0
    }

    fn new(ports: &Ports, bounds: BacklogBounds) -> (Self, IngestLoop) {
        let (store, schedule) = (Arc::clone(&ports.store), Arc::clone(&ports.schedule));
        let (ingest, back) = Ingest::new(store, schedule, IngestOptions::default());
        let pressure = Arc::new(Pressure::new(bounds));
        (Self { ingest, pressure }, back)
    }
}

/// A role's loops, none of them started.
pub struct Assembly {
    /// Where events come in, in a role with ingest.
    pub entrance: Option<Entrance>,
    /// In the order of [`LoopKind::ALL`].
    pub loops: Vec<Loop>,
}

/// Puts a role's loops together, over these ports.
#[must_use]
pub fn assemble(role: Role, ports: &Ports, settings: Settings) -> Assembly {
    let (entrance, ingest) = match role.has(LoopKind::Ingest) {
        true => {
            let (entrance, ingest) = Entrance::new(ports, settings.bounds);
            (Some(entrance), Some(ingest))
        }
        false => (None, None),
    };
    let mut builder = Builder {
        ports: ports.clone(),
        settings,
        entrance,
        ingest,
    };
    let kinds = LoopKind::ALL.into_iter().filter(|kind| role.has(*kind));
    let loops = kinds.flat_map(|kind| builder.build(kind)).collect();
    Assembly {
        loops,
        entrance: builder.entrance,
    }
}

/// A loop that is put together.
pub enum Loop {
    /// [`LoopKind::Ingest`].
    Ingest(Box<IngestLoop>),
    /// [`LoopKind::Backpressure`].
    Backpressure(BackpressureLoop),
    /// [`LoopKind::Resealing`].
    Resealing(Box<Resealing>),
    /// [`LoopKind::Relay`].
    Relay(Relay),
    /// [`LoopKind::Retention`].
    Retention(RetentionLoop),
    /// [`LoopKind::Notifier`].
    Notifier(Notifier),
    /// [`LoopKind::Survey`].
    Survey(Box<SurveyLoop>),
    /// [`LoopKind::Tally`].
    Tally(TallyLoop),
    /// [`LoopKind::Scheduler`].
    Scheduler(Box<Scheduler>),
    /// [`LoopKind::Reaper`].
    Reaper(Reaper),
    /// [`LoopKind::Sweep`].
    Sweep(SweepLoop),
    /// [`LoopKind::Replay`].
    Replay(ReplayLoop),
    /// [`LoopKind::Handshake`].
    Handshake(HandshakeLoop),
    /// [`LoopKind::Notices`].
    Notices(Box<NoticesLoop>),
    /// [`LoopKind::Worker`].
    Worker(Box<Worker>),
}

impl Loop {
    /// Which one it is.
    #[must_use]
    pub const fn kind(&self) -> LoopKind {
        match self {
            Self::Ingest(_) => LoopKind::Ingest,
            Self::Backpressure(_) => LoopKind::Backpressure,
            Self::Resealing(_) => LoopKind::Resealing,
            Self::Relay(_) => LoopKind::Relay,
            Self::Retention(_) => LoopKind::Retention,
            Self::Notifier(_) => LoopKind::Notifier,
            Self::Survey(_) => LoopKind::Survey,
            Self::Tally(_) => LoopKind::Tally,
            Self::Scheduler(_) => LoopKind::Scheduler,
            Self::Reaper(_) => LoopKind::Reaper,
            Self::Sweep(_) => LoopKind::Sweep,
            Self::Replay(_) => LoopKind::Replay,
            Self::Handshake(_) => LoopKind::Handshake,
            Self::Notices(_) => LoopKind::Notices,
            Self::Worker(_) => LoopKind::Worker,
        }
    }

    /// Goes on until `shutdown`, and then ends what it has begun. Ingest is to be told
    /// last, when nobody is left who may hand something in.
    pub async fn run(self, shutdown: CancellationToken) {
        match self {
            Self::Ingest(one) => one.run(shutdown).await,
            Self::Backpressure(one) => one.run(shutdown).await,
            Self::Resealing(one) => one.run(shutdown).await,
            Self::Relay(one) => one.run(shutdown).await,
            Self::Retention(one) => one.run(shutdown).await,
            Self::Notifier(one) => one.run(shutdown).await,
            Self::Survey(one) => one.run(shutdown).await,
            Self::Tally(one) => one.run(shutdown).await,
            Self::Scheduler(one) => one.run(shutdown).await,
            Self::Reaper(one) => one.run(shutdown).await,
            Self::Sweep(one) => one.run(shutdown).await,
            Self::Replay(one) => one.run(shutdown).await,
            Self::Handshake(one) => one.run(shutdown).await,
            Self::Notices(one) => one.run(shutdown).await,
            Self::Worker(one) => one.run(shutdown).await,
        }
    }
}

/// Puts loops together, one kind after the other.
struct Builder {
    ports: Ports,
    settings: Settings,
    entrance: Option<Entrance>,
    /// Behind the entrance; taken once.
    ingest: Option<IngestLoop>,
}

impl Builder {
    /// The loops of a kind: none without the port that they need, and several
    /// schedulers where the settings say so.
    fn build(&mut self, kind: LoopKind) -> Vec<Loop> {
        let one = match kind {
            LoopKind::Scheduler => return self.schedulers(),
            LoopKind::Ingest => self.ingest.take().map(|back| Loop::Ingest(Box::new(back))),
            LoopKind::Backpressure => self.backpressure().map(Loop::Backpressure),
            LoopKind::Resealing => self.resealing().map(|one| Loop::Resealing(Box::new(one))),
            LoopKind::Relay => self.relay().map(Loop::Relay),
            LoopKind::Retention => self.retention().map(Loop::Retention),
            LoopKind::Notifier => self.notifier().map(Loop::Notifier),
            LoopKind::Survey => self.survey().map(|one| Loop::Survey(Box::new(one))),
            LoopKind::Tally => self.tally().map(Loop::Tally),
            LoopKind::Reaper => Some(Loop::Reaper(self.reaper())),
            LoopKind::Sweep => Some(Loop::Sweep(self.sweep())),
            LoopKind::Replay => self.replay().map(Loop::Replay),
            LoopKind::Handshake => self.handshake().map(Loop::Handshake),
            LoopKind::Notices => self.notices().map(|one| Loop::Notices(Box::new(one))),
            LoopKind::Worker => self.worker().map(|one| Loop::Worker(Box::new(one))),
        };
        Vec::from_iter(one)
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.ports.store)
    }

    fn schedule(&self) -> Arc<dyn Schedule> {
        Arc::clone(&self.ports.schedule)
    }

    fn backpressure(&self) -> Option<BackpressureLoop> {
        let counts = self.ports.backpressure.clone()?;
        let pressure = Arc::clone(&self.entrance.as_ref()?.pressure);
        Some(BackpressureLoop::new(
            counts,
            pressure,
            CountPace::default(),
        ))
    }

    fn resealing(&mut self) -> Option<Resealing> {
        let (secrets, vault) = (self.ports.secrets.clone()?, self.ports.vault.clone()?);
        let random = StdRng::from_rng(&mut self.settings.sealing);
        Some(Resealing::new(secrets, vault, random))
    }

    fn relay(&self) -> Option<Relay> {
        let outbox = self.ports.outbox.clone()?;
        Some(Relay::new(outbox, self.schedule(), RelayOptions::default()))
    }

    fn retention(&self) -> Option<RetentionLoop> {
        let retain = self.ports.retain.clone()?;
        Some(RetentionLoop::new(retain, self.settings.retention))
    }

    fn notifier(&self) -> Option<Notifier> {
        let operations = self.ports.operations.clone()?;
        let options = NotifierOptions::default();
        Some(Notifier::new(operations, self.schedule(), options))
    }

    fn survey(&self) -> Option<SurveyLoop> {
        let Surveyed { survey, catalog } = self.ports.surveyed.clone()?;
        let options = self.settings.survey.clone();
        let survey = SurveyLoop::new(survey, self.store(), catalog, options);
        Some(match self.ports.tallies.clone() {
            Some(tallies) => survey.with_outcomes(tallies),
            None => survey,
        })
    }

    fn tally(&self) -> Option<TallyLoop> {
        let tallies = self.ports.tallies.clone()?;
        Some(TallyLoop::new(tallies, TallyOptions::default()))
    }

    /// Together they count the fleet once.
    fn schedulers(&self) -> Vec<Loop> {
        let Some(queue) = &self.ports.queue else {
            return Vec::new();
        };
        let mut all: Vec<Scheduler> = Vec::new();
        for options in &self.settings.schedulers {
            let queue = Arc::clone(queue);
            let one = Scheduler::new(self.store(), self.schedule(), queue, *options)
                .counting_suspends(self.settings.suspended);
            all.push(match all.first() {
                Some(first) => one.beside(first),
                None => one,
            });
        }
        (all.into_iter())
            .map(|one| Loop::Scheduler(Box::new(one)))
            .collect()
    }

    fn reaper(&self) -> Reaper {
        let options = ReaperOptions::for_requests(self.settings.worker.request_timeout);
        Reaper::new(self.store(), self.schedule(), options)
    }

    fn sweep(&self) -> SweepLoop {
        SweepLoop::new(self.store(), self.schedule(), SweepOptions::default())
    }

    fn replay(&self) -> Option<ReplayLoop> {
        let replays = self.ports.replays.clone()?;
        let options = ReplayOptions::default();
        Some(ReplayLoop::new(replays, self.schedule(), options))
    }

    fn handshake(&self) -> Option<HandshakeLoop> {
        let Asking { handshakes, asker } = self.ports.asking.clone()?;
        let options = HandshakeOptions::default();
        let asking = HandshakeLoop::new(handshakes, asker, self.schedule(), options);
        Some(match self.ports.vault.clone() {
            Some(vault) => asking.showing_certificates(self.store(), vault),
            None => asking,
        })
    }

    fn notices(&self) -> Option<NoticesLoop> {
        let Noticing { notices, post } = self.ports.noticing.clone()?;
        let (vault, options) = (self.ports.vault.clone(), self.settings.notices.clone());
        Some(NoticesLoop::new(notices, post, vault, options))
    }

    fn worker(&self) -> Option<Worker> {
        let (queue, sender) = (self.ports.queue.clone()?, Arc::clone(&self.ports.sender));
        let options = self.settings.worker;
        let worker = Worker::new(self.store(), self.schedule(), queue, sender, options)
            .counting_suspends(self.settings.suspended);
        let worker = match self.ports.vault.clone() {
            Some(vault) => worker.opening_with(vault),
            None => worker,
        };
        Some(match self.ports.tokens.clone() {
            Some(TokenPorts { granter, book }) => worker.asking_for_tokens(granter, book),
            None => worker,
        })
    }
}
