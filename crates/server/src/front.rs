//! What answers HTTP: the API and the dashboard over one service, and the loops
//! that they need.

use std::num::NonZeroU32;
use std::sync::Arc;

use axum::Router;
use domain::backpressure::CountPace;
use domain::ingest_limit::IngestLimit;
use engine::backpressure::{BackpressureLoop, Pressure};
use engine::ingest::{Ingest, IngestLoop, IngestOptions};
use engine::ports::Vault;
use secrecy::SecretString;
use tokio_util::sync::CancellationToken;

use crate::access::Gate;
use crate::api::{self, App};
use crate::config::{IngestConfig, PublicUrl, TargetConfig};
use crate::edge::Mint;
use crate::pages::{self, Pages};
use crate::parts::Parts;
use crate::service::rate::IngestRates;
use crate::service::secrets::Signing;
use crate::service::{Books, Intake, Registers, Service, Tenancy};

/// What it is made of, beside the store.
pub struct FrontOptions<'a> {
    /// The key that is configured.
    pub key: &'a SecretString,
    /// What seals secrets.
    pub vault: Arc<dyn Vault>,
    /// Management calls that each tenant makes a second.
    pub manage_per_second: NonZeroU32,
    /// What links to pages begin with.
    pub public_url: Option<PublicUrl>,
    /// How events come in; `None` for the defaults.
    pub ingest: Option<IngestConfig>,
    /// Where requests may go.
    pub target: &'a TargetConfig,
    /// Event streams end with it.
    pub shutdown: CancellationToken,
}

/// The routes, and what has to run beside them.
pub struct Front {
    /// The API and the dashboard.
    pub router: Router,
    /// The dashboard alone, for whoever makes links to it.
    pub pages: Pages,
    /// Ingest, behind the API.
    pub back: IngestLoop,
    /// Counts what waits.
    pub counting: BackpressureLoop,
    /// Knows keys, and notes their uses.
    pub gate: Arc<Gate>,
}

impl Front {
    /// Over these parts.
    #[must_use]
    pub fn new(parts: &Parts, mint: Arc<Mint>, options: FrontOptions<'_>) -> Self {
        let gate = Arc::new(Gate::new(Arc::clone(&parts.keys), options.key));
        let registers = Registers {
            tenants: Arc::clone(&parts.tenants),
            keys: Arc::clone(&parts.keys),
            sessions: Arc::clone(&parts.sessions),
        };
        let tenancy = Tenancy::new(registers, Arc::clone(&gate), Arc::clone(&mint))
            .found_at(options.public_url);
        let intake = options.ingest;
        let bounds = intake.map(|intake| intake.bounds()).unwrap_or_default();
        let pressure = Arc::new(Pressure::new(bounds));
        let counting = BackpressureLoop::new(
            Arc::clone(&parts.backpressure),
            Arc::clone(&pressure),
            CountPace::default(),
        );
        let (intake, back) = self::intake(parts, intake, pressure);
        let (vault, target) = (options.vault, options.target);
        let service = service(parts, intake, Arc::clone(&mint), target, vault);
        let app = App::new(
            service,
            tenancy,
            Arc::clone(&gate),
            options.manage_per_second,
        );
        let pages = Pages::new(app.clone(), parts, mint, options.shutdown);
        Self {
            router: api::router(app).merge(pages::router(pages.clone())),
            pages,
            back,
            counting,
            gate,
        }
    }
}

/// The way in of events, and the loop behind it.
#[must_use]
pub fn intake(
    parts: &Parts,
    config: Option<IngestConfig>,
    pressure: Arc<Pressure>,
) -> (Intake, IngestLoop) {
    let usual = config.map(|config| IngestLimit(config.ingest_per_second));
    let rates = IngestRates::new(usual.unwrap_or_default());
    let (ingest, back) = Ingest::new(
        Arc::clone(&parts.store),
        Arc::clone(&parts.schedule),
        IngestOptions::default(),
    );
    let backpressure = Arc::clone(&parts.backpressure);
    let intake = Intake::new(ingest, pressure, backpressure, rates);
    (intake, back)
}

/// What the API, the dashboard and the operator do.
#[must_use]
pub fn service(
    parts: &Parts,
    intake: Intake,
    mint: Arc<Mint>,
    target: &TargetConfig,
    vault: Arc<dyn Vault>,
) -> Service {
    let books = Books {
        catalog: Arc::clone(&parts.catalog),
        backlog: Arc::clone(&parts.backlog),
        operations: Arc::clone(&parts.operations_book),
        managers: Arc::clone(&parts.managers),
        tenants: Arc::clone(&parts.tenants),
        reading: parts.reading.clone(),
    };
    let signing = Signing {
        secrets: Arc::clone(&parts.secrets),
        vault,
    };
    let schedule = Arc::clone(&parts.schedule);
    Service::new(books, schedule, intake, mint, target.policy(), signing)
}
