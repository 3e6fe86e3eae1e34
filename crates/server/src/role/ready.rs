//! A process of a role that has all it needs and has not begun: configured, connected,
//! checked.

use std::sync::Arc;

use engine::ports::Vault;
use engine::roles::Role;
use metrics_exporter_prometheus::PrometheusHandle;
use operator::Cluster;
use secrecy::SecretString;

use super::config::RoleConfig;
use crate::config::require_shared;
use crate::edge::Mint;
use crate::listening::Tls;
use crate::parts::Parts;
use crate::portal::Portal;
use crate::traces::Tracing;
use crate::{api_key, exported, health, managed, secret_keys};

/// A process that can be started.
pub struct Ready {
    pub(super) role: Role,
    pub(super) config: RoleConfig,
    /// What it is connected to.
    pub parts: Parts,
    /// What opens and seals secrets; `None` for a role that does neither.
    pub vault: Option<Arc<dyn Vault>>,
    /// The key of the API, in a role that serves it.
    pub(super) key: Option<SecretString>,
    /// The API's certificate.
    pub(super) tls: Option<Tls>,
    /// How pages by link look.
    pub(super) portal: Portal,
    pub(super) cluster: Option<Cluster>,
    /// Where traces are recorded.
    pub(super) tracing: Option<Tracing>,
    pub(super) metrics: PrometheusHandle,
    pub(super) mint: Mint,
}

impl Ready {
    /// Connects, and has the parts wrapped: by tests that watch the ports, or break at
    /// them.
    pub async fn prepare(
        role: Role,
        config: RoleConfig,
        wrap: impl FnOnce(Parts) -> Parts,
    ) -> anyhow::Result<Self> {
        let config = config.in_its_shard();
        if role != Role::Serve {
            let queue = config.queue.as_ref();
            require_shared(role.as_str(), &config.store, &config.schedule, queue)?;
        }
        // Before anything is dialled: what is refused is refused at once.
        let mint = Mint::from_system()?.of_shard(config.shard.shard_name.clone());
        let key = match &config.api {
            Some(api) => Some(api_key::resolve(
                role,
                api,
                &config.listen,
                &config.store,
                &mint,
            )?),
            None => None,
        };
        let tls = match &config.tls {
            Some(tls) => Tls::load(tls)?,
            None => None,
        };
        let portal = match &config.portal {
            Some(portal) => Portal::load(portal)?,
            None => Portal::default(),
        };
        let ring = match &config.secret_keys {
            Some(keys) => Some(secret_keys::resolve(
                role == Role::Serve,
                keys,
                &config.store,
                &mint,
            )?),
            None => None,
        };
        let mail = match &config.mail {
            Some(mail) => mail.mail()?,
            None => None,
        };
        let cluster = match &config.operator {
            Some(_) => Some(managed::connect().await?),
            None => None,
        };
        let metrics = health::install_metrics()?;
        exported::describe(role);
        let mut parts = wrap(connect(&config).await?.with_mail(mail));
        let tracing = Tracing::wrap(config.traces.as_ref(), role.as_str(), &mut parts)?;
        if let Err(error) = parts.stored.ready().await {
            // Not fatal: it may be migrated, or come back, while we are not ready.
            tracing::error!(%error, "the store is not ready for this binary");
        }
        if let Some(ring) = &ring {
            secret_keys::check(ring, parts.stored.as_ref()).await?;
        }
        Ok(Self {
            role,
            config,
            parts,
            vault: ring.map(|ring| Arc::new(ring) as Arc<dyn Vault>),
            key,
            tls,
            portal,
            cluster,
            tracing,
            metrics,
            mint,
        })
    }
}

/// Dials everything; where people read, with connections of their own for it.
async fn connect(config: &RoleConfig) -> anyhow::Result<Parts> {
    let (schedule, queue) = (&config.schedule, config.queue.as_ref());
    let target = &config.target;
    if config.api.is_none() {
        return Parts::connect(&config.store, schedule, queue, target).await;
    }
    let [store, reading] = config.store.divided();
    let parts = Parts::connect(&store, schedule, queue, target).await?;
    parts.read_apart(&reading).await
}
