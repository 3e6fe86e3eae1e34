//! The operator's way to the service: its words on one side, ours on the other.

use std::sync::Arc;

use anyhow::anyhow;
use async_trait::async_trait;
use domain::destination::DestinationState;
use domain::handshake::Handshake;
use domain::health::Breaker;
use domain::ids::DestinationId;
use engine::ports::{Hold, Manager};
use operator::destinations::{
    Credentials, Destinations, Glance, Observed, Owner, Refusal, Row, Secrets, Stored, Wanted,
};
use operator::{Cluster, OperatorOptions};
use secrecy::{ExposeSecret, SecretString};
use zeroize::Zeroizing;

use crate::config::OperatorConfig;
use crate::edge::{self, Mint};
use crate::hidden::Hidden;
use crate::service::credentials::{CertificateDraft, ClientDraft};
use crate::service::secrets::{DEFAULT_OVERLAP, SecretDraft};
use crate::service::{DestinationDraft, DestinationEdit, LimitsChange, Service, ServiceError};

/// The cluster that we are in, or that the kubeconfig names.
pub async fn connect() -> anyhow::Result<Cluster> {
    let cluster = operator::connect().await;
    cluster.map_err(|error| anyhow!(error).context("find the Kubernetes cluster"))
}

/// How the operator runs.
#[must_use]
pub fn options(config: &OperatorConfig, cluster: &Cluster, mint: &Arc<Mint>) -> OperatorOptions {
    let identity = config.operator_identity.clone();
    let namespace = config.operator_namespace.clone();
    OperatorOptions {
        namespace: namespace.unwrap_or_else(|| cluster.namespace.clone()),
        lease: config.operator_lease.clone(),
        identity: identity.unwrap_or_else(|| format!("operator-{}", mint.uuid())),
        clock: edge::now,
        seed: u64::from_le_bytes(mint.bytes()),
    }
}

/// The service, as the operator asks it.
pub struct ManagedDestinations {
    service: Service,
}

impl ManagedDestinations {
    /// Over the same functions as the API.
    #[must_use]
    pub const fn new(service: Service) -> Self {
        Self { service }
    }

    fn of(&self, owner: &Owner) -> Service {
        let manager = Manager {
            resource: owner.resource.clone(),
            uid: owner.uid.clone(),
        };
        self.service.for_manager(owner.tenant, manager)
    }
}

#[async_trait]
impl Destinations for ManagedDestinations {
    async fn look(
        &self,
        owner: &Owner,
        wanted: Option<(&Wanted, &Secrets)>,
    ) -> Result<Stored, Refusal> {
        let service = self.of(owner);
        let Some(found) = service.find_managed(&owner.name).await.map_err(refusal)? else {
            return Ok(Stored::Absent);
        };
        let id = found.id;
        let is_released = match found.hold {
            Hold::Held(uid) if uid == owner.uid => false,
            Hold::Held(uid) => return Ok(Stored::Held { id, uid }),
            Hold::Released => true,
            Hold::Unmanaged => return Ok(Stored::Unmanaged { id }),
        };
        let destination = service.destination(id).await.map_err(refusal)?.destination;
        let (mut signs, mut shows) = (false, false);
        if let Some((wanted, secrets)) = wanted {
            let signing = secrets.signing.expose_secret();
            signs = service.signs_with(id, signing).await.map_err(refusal)?;
            let shown = shown(&secrets.credentials);
            let is_it = service.shows(id, &wanted.url, shown).await;
            shows = is_it.map_err(refusal)?;
        }
        let row = Row {
            id,
            name: destination.name,
            url: destination.url,
            event_types: destination.event_types,
            filter: destination.filter,
            limit_group: destination.limit_group,
            limits: destination.limits,
            state: destination.state,
            signs,
            shows,
        };
        Ok(match is_released {
            true => Stored::Released(row),
            false => Stored::Ours(row),
        })
    }

    async fn create(
        &self,
        owner: &Owner,
        wanted: &Wanted,
        secrets: &Secrets,
    ) -> Result<DestinationId, Refusal> {
        let service = self.of(owner);
        let (client_certificate, oauth2) = shown(&secrets.credentials);
        let draft = DestinationDraft {
            external_id: None,
            name: wanted.name.clone(),
            url: wanted.url.clone(),
            event_types: wanted.event_types.clone(),
            filter: wanted.filter.clone(),
            limits: wanted.limits,
            secret: draft(&secrets.signing),
            headers: None,
            client_certificate: Some(client_certificate),
            oauth2: Some(oauth2),
            pass_traceparent: false,
            handshake: Handshake::None,
            limit_group: wanted.limit_group.clone(),
        };
        let (created, _) = service.create_destination(draft).await.map_err(refusal)?;
        let id = created.destination.id;
        if wanted.state != created.destination.state {
            self.change(owner, id, wanted).await?;
        }
        Ok(id)
    }

    async fn take_over(&self, owner: &Owner, id: DestinationId) -> Result<(), Refusal> {
        self.of(owner).take_over(id).await.map_err(refusal)
    }

    async fn change(
        &self,
        owner: &Owner,
        id: DestinationId,
        wanted: &Wanted,
    ) -> Result<(), Refusal> {
        let service = self.of(owner);
        let now = service.destination(id).await.map_err(refusal)?.destination;
        let limits = wanted.limits;
        let edit = DestinationEdit {
            external_id: None,
            name: Some(wanted.name.clone()).filter(|name| *name != now.name),
            url: Some(wanted.url.clone()).filter(|url| *url != now.url),
            event_types: Some(wanted.event_types.clone()),
            filter: Some(wanted.filter.clone()),
            state: Some(wanted.state_after(now.state)).filter(|state| *state != now.state),
            pass_traceparent: None,
            handshake: None,
            limit_group: Some(wanted.limit_group.clone()).filter(|group| *group != now.limit_group),
            limits: LimitsChange {
                per_second: Some(limits.per_second),
                per_minute: Some(limits.per_minute),
                per_hour: Some(limits.per_hour),
                per_day: Some(limits.per_day),
                unlimited: Some(limits.unlimited),
                burst: Some(limits.burst),
                shape: Some(limits.shape),
                max_in_flight: Some(limits.max_in_flight),
                safety_margin: Some(limits.safety_margin),
                margin_cap: Some(limits.margin_cap),
                count: Some(limits.count),
            },
            headers: None,
            client_certificate: None,
            oauth2: None,
        };
        let changed = service.change_destination(id, edit).await;
        changed.map(drop).map_err(refusal)
    }

    async fn rotate(
        &self,
        owner: &Owner,
        id: DestinationId,
        secret: &SecretString,
    ) -> Result<(), Refusal> {
        let service = self.of(owner);
        let rotated = service
            .rotate_secret(id, draft(secret), DEFAULT_OVERLAP)
            .await;
        rotated.map(drop).map_err(refusal)
    }

    async fn show(
        &self,
        owner: &Owner,
        id: DestinationId,
        credentials: &Credentials,
    ) -> Result<(), Refusal> {
        let (client_certificate, oauth2) = shown(credentials);
        let edit = DestinationEdit {
            client_certificate: Some(client_certificate),
            oauth2: Some(oauth2),
            ..DestinationEdit::default()
        };
        let changed = self.of(owner).change_destination(id, edit).await;
        changed.map(drop).map_err(refusal)
    }

    async fn release(&self, owner: &Owner, id: DestinationId) -> Result<(), Refusal> {
        self.of(owner).release(id).await.map_err(refusal)
    }

    async fn discard(&self, owner: &Owner, id: DestinationId) -> Result<(), Refusal> {
        let discarded = self.of(owner).delete_destination(id).await;
        discarded.map_err(refusal)
    }

    async fn glance(&self) -> Result<Vec<Glance>, Refusal> {
        let held = self.service.held().await.map_err(refusal)?;
        let brief = held.into_iter().map(|one| Glance {
            resource: one.resource,
            state: one.state,
            breaker_is_open: one.breaker_is_open,
            has_work: one.has_work,
        });
        Ok(brief.collect())
    }

    async fn observe(&self, owner: &Owner, id: DestinationId) -> Result<Observed, Refusal> {
        let fares = self.of(owner).fares(id).await.map_err(refusal)?;
        let (health, now) = (fares.health.health, fares.health.now);
        let breaker = health.breaker(now);
        let is_open = breaker != Breaker::Closed || fares.state != DestinationState::Active;
        Ok(Observed {
            state: fares.state,
            backlog: fares.backlog,
            starts_per_second: fares.starts_per_second,
            allowed_per_second: fares.allowed_per_second,
            breaker,
            held: !is_open && health.held_until().is_some_and(|until| until > now),
            limit_group: fares.limit_group,
        })
    }
}

fn hidden(secret: &SecretString) -> Hidden {
    Hidden::new(Zeroizing::new(secret.expose_secret().to_owned()))
}

/// What is to be shown, for the API's functions.
fn shown(credentials: &Credentials) -> (Option<CertificateDraft>, Option<ClientDraft>) {
    let certificate = credentials.client_certificate.as_ref();
    let client = credentials.oauth2.as_ref();
    (
        certificate.map(|one| CertificateDraft {
            certificate: hidden(&one.certificate),
            private_key: hidden(&one.private_key),
        }),
        client.map(|one| ClientDraft::of(one.facts.clone(), hidden(&one.secret))),
    )
}

fn draft(secret: &SecretString) -> SecretDraft {
    SecretDraft {
        own: Some(hidden(secret)),
        kind: None, // the text says which it is
    }
}

/// In the resource's words: a secret that is refused is the one that it names.
fn refusal(error: ServiceError) -> Refusal {
    let message = error.to_string();
    match error {
        ServiceError::Invalid { field, .. } if field == "secret" => {
            Refusal::Invalid(format!("signingSecretRef: {message}"))
        }
        ServiceError::Invalid { field, .. } if field.starts_with("client_certificate") => {
            Refusal::Invalid(format!("clientCertificateRef: {message}"))
        }
        ServiceError::Invalid { field, problem } if field == "limit_group" => {
            Refusal::Invalid(format!("limitGroup: {problem}"))
        }
        ServiceError::Invalid { .. } | ServiceError::TooLarge { .. } => Refusal::Invalid(message),
        ServiceError::Conflict(_) | ServiceError::KeyReused => Refusal::Conflict(message),
        ServiceError::NotFound(_) => Refusal::NotFound(message),
        ServiceError::Backlogged { .. }
        | ServiceError::TooFast { .. }
        | ServiceError::TooManyChanges { .. }
        | ServiceError::Busy(_)
        | ServiceError::Overloaded(_)
        | ServiceError::Unavailable(_)
        | ServiceError::Lost(_)
        | ServiceError::Internal(_) => Refusal::Unavailable(message),
    }
}
