//! What answers HTTP: the API and the dashboard over one service.

use std::sync::Arc;

use axum::Router;
use domain::ingest_limit::IngestLimit;
use engine::ports::Vault;
use engine::roles::Entrance;
use secrecy::SecretString;
use tokio_util::sync::CancellationToken;

use crate::access::Gate;
use crate::api::{self, App};
use crate::config::{IngestConfig, PublicUrl, TargetConfig};
use crate::edge::Mint;
use crate::pages::{self, Pages, PagesOptions};
use crate::parts::Parts;
use crate::portal::Portal;
use crate::service::rate::{IngestRates, ManageRates};
use crate::service::secrets::Signing;
use crate::service::{Books, Intake, Registers, Service, Tenancy};

/// What it is made of, beside the store.
pub struct FrontOptions<'a> {
    /// The key that is configured.
    pub key: &'a SecretString,
    /// What seals secrets.
    pub vault: Arc<dyn Vault>,
    /// Management calls that tenants make.
    pub manage: ManageRates,
    /// What links to pages begin with.
    pub public_url: Option<PublicUrl>,
    /// How pages by link look, and who may frame them.
    pub portal: Portal,
    /// How events come in.
    pub intake: Intake,
    /// Where requests may go, and how they look.
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
    /// Knows keys, and notes their uses.
    pub gate: Arc<Gate>,
}

impl Front {
    /// Over these parts.
    #[must_use]
    pub fn new(parts: &Parts, mint: Arc<Mint>, options: FrontOptions<'_>) -> Self {
        let stored = || Arc::clone(&parts.stored);
        let gate = Arc::new(Gate::new(stored(), options.key));
        let registers = Registers {
            tenants: stored(),
            keys: stored(),
            sessions: stored(),
            event_types: stored(),
        };
        let tenancy = Tenancy::new(registers, Arc::clone(&gate), Arc::clone(&mint))
            .found_at(options.public_url);
        let (vault, target) = (options.vault, options.target);
        let service = service(parts, options.intake, mint, target, vault);
        let app = App::new(service, tenancy, Arc::clone(&gate), options.manage);
        let looks = PagesOptions {
            portal: options.portal,
            shutdown: options.shutdown,
        };
        let pages = Pages::new(app.clone(), parts, looks);
        Self {
            router: api::router(app).merge(pages::router(pages.clone())),
            pages,
            gate,
        }
    }
}

/// How fast tenants hand events in.
fn rates(config: Option<IngestConfig>) -> IngestRates {
    let Some(config) = config else {
        return IngestRates::new(IngestLimit::default());
    };
    let all = config.ingest_per_second;
    let of_others = config.tenant_ingest_per_second.min(all);
    IngestRates::new(IngestLimit(all)).of_others(IngestLimit(of_others))
}

/// The way in of events, within the rates and bounds of this process.
#[must_use]
pub fn intake(parts: &Parts, config: Option<IngestConfig>, entrance: Entrance) -> Intake {
    let rates = rates(config);
    let Entrance { ingest, pressure } = entrance;
    let accepted = Arc::clone(&parts.stored) as _;
    Intake::new(ingest, pressure, accepted, rates)
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
    let stored = || Arc::clone(&parts.stored);
    let books = Books {
        catalog: stored(),
        backlog: stored(),
        operations: stored(),
        managers: stored(),
        tenants: stored(),
        requests: stored(),
        reading: parts.reading.clone(),
    };
    let signing = Signing {
        secrets: stored(),
        vault,
        prefix: target.signature.signature_prefix,
    };
    let schedule = Arc::clone(&parts.schedule);
    Service::new(books, schedule, intake, mint, target.policy(), signing)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use domain::ids::TenantId;
    use engine::ports::DEFAULT_TENANT;
    use uuid::Uuid;

    use super::*;
    use crate::config::ManageConfig;
    use crate::service::rate::Limited;

    #[derive(Parser)]
    struct Asked {
        #[command(flatten)]
        ingest: IngestConfig,
    }

    #[derive(Parser)]
    struct Managed {
        #[command(flatten)]
        manage: ManageConfig,
    }

    /// Of the default tenant, and of another.
    fn limits(arguments: &[&str]) -> [u32; 2] {
        let arguments = ["paceline"].iter().chain(arguments);
        let rates = rates(Some(Asked::parse_from(arguments).ingest));
        [DEFAULT_TENANT, TenantId(Uuid::from_u128(9))].map(|tenant| {
            let limit = None;
            rates.standing(Limited { tenant, limit }).limit
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_makes_a_part_of_the_calls_that_the_installation_may() {
        let other = TenantId(Uuid::from_u128(9));
        let at_once = |arguments: &[&str]| {
            let arguments = ["paceline"].iter().chain(arguments);
            let rates = Managed::parse_from(arguments).manage.rates();
            [DEFAULT_TENANT, other]
                .map(|tenant| (0..200).filter(|_| rates.take(tenant).is_ok()).count())
        };
        assert_eq!(at_once(&[]), [100, 20]);
        assert_eq!(at_once(&["--tenant-manage-per-second", "50"]), [100, 50]);
        assert_eq!(at_once(&["--manage-per-second", "5"]), [5, 5]);
    }

    #[test]
    fn a_tenant_has_a_share_of_what_the_installation_has() {
        assert_eq!(limits(&[]), [50_000, 1_000]);
        let raised = ["--tenant-ingest-per-second", "2000"];
        assert_eq!(limits(&raised), [50_000, 2_000]);
        let lowered = ["--ingest-per-second", "100"];
        assert_eq!(limits(&lowered), [100, 100]);
    }
}
