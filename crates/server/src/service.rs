//! What the API does, without HTTP: validate, then ask the catalog or ingest.
//!
//! The operator calls the same functions, so a rule stands here once. Nothing
//! is written before all of it is valid. Callers that may be dropped half-way
//! (a request whose client hangs up) run these in a task of their own: a store
//! must not be abandoned in mid-transaction.

use std::sync::Arc;

use adapters::http::Policy;
use domain::ceiling::{Ceiling, Setter};
use domain::destination::DestinationState;
use domain::event::{MAX_DESTINATIONS, NewEvent};
use domain::external_id::ExternalId;
use domain::handshake::Handshake;
use domain::ids::{AttemptId, DestinationId, EventId, TenantId};
use domain::ingest_limit::IngestLimit;
use domain::limit_group::GroupName;
use domain::policy::LimitSettings;
use domain::redaction;
use engine::ports::{
    Acceptance, AttemptFilter, AttemptPage, AttemptView, Backlog, Catalog, CatalogError,
    Destination, DestinationChange, EventFilter, EventPage, EventSummary, LimitRequests, Manager,
    Managers, NewDestination, OperationsBook, Schedule, Shown, SingleChange, Tenants, Wake,
};
use serde_json::Value;
use tokio_util::sync::DropGuard;

use crate::edge::Mint;
use crate::hidden::Hidden;
use crate::parts::Reading;

pub mod backlog;
pub mod bulkhead;
pub mod ceilings;
pub mod compliance;
pub mod credentials;
pub mod delivery;
pub mod error;
pub mod event;
pub mod event_types;
pub mod everywhere;
pub mod handshake;
pub mod health;
pub mod intake;
pub mod limit_groups;
pub mod limits;
pub mod links;
mod looked_at;
pub mod managed;
pub mod notices;
pub mod operations;
pub mod plan;
pub mod rate;
pub mod readings;
pub mod replays;
pub mod resend;
pub mod rules;
pub mod secrets;
pub mod sent;
pub mod smart;
pub mod standing;
pub mod statistics;
pub mod tenancy;
pub mod trial;
pub mod whose;

pub use backlog::{CancelCursor, CancelDraft, CancelledPart};
use credentials::{CertificateDraft, ClientDraft, Wanted};
pub use delivery::DeliveryDraft;
pub use error::ServiceError;
pub use event::EventDraft;
pub use everywhere::{Everywhere, OfAll};
pub use health::StateAndHealth;
pub use intake::Intake;
pub use limits::LimitsChange;
pub use links::{LinkDraft, Links, MadeLink};
use looked_at::LookedAt;
pub use plan::{Plan, PlanDraft};
pub use readings::Readings;
pub use replays::{BegunReplays, PreviewedReplay, ReplayDraft, ReplayPreview};
use secrets::{MadeSecret, SecretDraft, Signing};
pub use smart::SmartAndHistory;
pub use standing::{Standing, StandingOfTenant, Standings, StandingsOfAll};
pub use tenancy::{Registers, Tenancy};

/// The most rows on one page.
pub const MAX_PAGE: u32 = 1_000;

/// The most events in one list: all attempts of each are counted.
pub const MAX_EVENTS_LISTED: u32 = 100;

/// The most events in one batch.
pub const MAX_BATCH: usize = 1_000;

/// The rules of the API over one tenant; cheap to clone.
#[derive(Clone)]
pub struct Service {
    catalog: Arc<dyn Catalog>,
    backlog: Arc<dyn Backlog>,
    operations: Arc<dyn OperationsBook>,
    managers: Arc<dyn Managers>,
    tenants: Arc<dyn Tenants>,
    requests: Arc<dyn LimitRequests>,
    schedule: Arc<dyn Schedule>,
    looked_at: Arc<LookedAt>,
    intake: Intake,
    mint: Arc<Mint>,
    policy: Policy,
    signing: Signing,
    tenant: TenantId,
    /// Whose places it takes while it reads: the caller's, whoever's things those are.
    asking: TenantId,
    ingest_limit: Option<IngestLimit>,
    /// Who sets limits by it.
    setter: Setter,
    /// What people read.
    reading: Reading,
    readings: Readings,
    /// For whom it acts; `None` for whoever calls the API.
    manager: Option<Manager>,
}

/// The store, as the API asks it.
#[derive(Clone)]
pub struct Books {
    pub catalog: Arc<dyn Catalog>,
    pub backlog: Arc<dyn Backlog>,
    pub operations: Arc<dyn OperationsBook>,
    pub managers: Arc<dyn Managers>,
    pub tenants: Arc<dyn Tenants>,
    pub requests: Arc<dyn LimitRequests>,
    pub reading: Reading,
}

/// A destination that somebody wants.
#[derive(Debug, Clone, PartialEq)]
pub struct DestinationDraft {
    pub external_id: Option<ExternalId>,
    pub name: String,
    pub url: String,
    pub event_types: Vec<String>,
    pub filter: Option<Value>,
    pub limits: LimitSettings,
    pub pass_traceparent: bool,
    pub handshake: Handshake,
    pub limit_group: Option<GroupName>,
    pub secret: SecretDraft,
    /// `None` leaves those that it has; a new one has none.
    pub headers: Option<Vec<(String, Hidden)>>,
    /// What its connections show; `None` as above.
    pub client_certificate: Option<Option<CertificateDraft>>,
    /// What its tokens are asked for with; `None` as above.
    pub oauth2: Option<Option<ClientDraft>>,
}

/// A destination, and what may be shown of what it adds and shows.
#[derive(Debug, Clone, PartialEq)]
pub struct Described {
    pub destination: Destination,
    pub shown: Shown,
    /// Its client certificate ends within [`ENDS_SOON`](domain::credentials::ENDS_SOON).
    pub certificate_ends_soon: bool,
    /// The most that whoever asks sets for it.
    pub most: Ceiling,
}

/// What somebody wants changed; `None` leaves it as it is.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DestinationEdit {
    pub external_id: Option<ExternalId>,
    pub name: Option<String>,
    pub url: Option<String>,
    pub event_types: Option<Vec<String>>,
    /// `Some(None)` removes it.
    pub filter: Option<Option<Value>>,
    pub state: Option<DestinationState>,
    pub limits: LimitsChange,
    pub pass_traceparent: Option<bool>,
    pub handshake: Option<Handshake>,
    /// `Some(None)` takes it out of its group.
    pub limit_group: Option<Option<GroupName>>,
    /// All headers, as they shall be from now on.
    pub headers: Option<Vec<(String, Hidden)>>,
    /// `Some(None)` removes it.
    pub client_certificate: Option<Option<CertificateDraft>>,
    /// `Some(None)` removes it.
    pub oauth2: Option<Option<ClientDraft>>,
}

/// An event that is durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptedEvent {
    pub id: EventId,
    pub destinations: Vec<DestinationId>,
}

/// What an event carries, as people are shown it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownPayload {
    /// Its media type.
    pub content_type: String,
    pub shown: redaction::Shown,
}

impl Service {
    /// Over these parts, for the default tenant.
    #[must_use]
    pub fn new(
        books: Books,
        schedule: Arc<dyn Schedule>,
        intake: Intake,
        mint: Arc<Mint>,
        policy: Policy,
        signing: Signing,
    ) -> Self {
        Self {
            catalog: books.catalog,
            backlog: books.backlog,
            operations: books.operations,
            managers: books.managers,
            tenants: books.tenants,
            requests: books.requests,
            schedule,
            looked_at: Arc::default(),
            intake,
            mint,
            policy,
            signing,
            tenant: engine::ports::DEFAULT_TENANT,
            asking: engine::ports::DEFAULT_TENANT,
            ingest_limit: None,
            setter: ceilings::setter_of(engine::ports::DEFAULT_TENANT),
            readings: Readings::new(books.reading.at_once),
            reading: books.reading,
            manager: None,
        }
    }

    /// The same for another tenant: everything that it does or shows is that
    /// tenant's, it takes events in no faster than this limit (`None` is the usual one),
    /// and limits are set by the tenant itself.
    #[must_use]
    pub fn of(&self, tenant: TenantId, ingest_limit: Option<IngestLimit>) -> Self {
        Self {
            tenant,
            asking: tenant,
            ingest_limit,
            setter: ceilings::setter_of(tenant),
            ..self.clone()
        }
    }

    /// The same over another tenant's things, for an operator: they are that
    /// tenant's, and the places that reading takes stay the operator's.
    #[must_use]
    pub fn looking_at(&self, tenant: TenantId) -> Self {
        Self {
            tenant,
            ..self.clone()
        }
    }

    /// A new id.
    pub(crate) fn new_id(&self) -> uuid::Uuid {
        self.mint.uuid()
    }

    /// A place for what this tenant reads; may be dropped while it waits.
    pub async fn read(&self) -> Result<bulkhead::Place, ServiceError> {
        self.readings.read(self.asking).await
    }

    /// A place for what this tenant changes; may be dropped while it waits.
    pub async fn change(&self) -> Result<bulkhead::Place, ServiceError> {
        self.readings.change(self.asking).await
    }

    /// A place for a large body of this tenant's, while it is parsed; may be dropped while
    /// it waits.
    pub async fn body(&self) -> Result<bulkhead::Place, ServiceError> {
        self.readings.body(self.asking).await
    }

    /// A place for a report of this tenant's, which goes on for as long as the
    /// guard is kept; may be dropped while it waits.
    pub async fn report(&self) -> Result<(readings::Report, DropGuard), ServiceError> {
        self.readings.report(self.asking).await
    }

    /// How fast tenants hand events in.
    #[must_use]
    pub const fn rates(&self) -> &Arc<rate::IngestRates> {
        self.intake.rates()
    }

    pub async fn create_destination(
        &self,
        draft: DestinationDraft,
    ) -> Result<(Described, MadeSecret), ServiceError> {
        self.check(&draft)?;
        ceilings::check(&self.ceiling().await?, &draft.limits)?;
        self.check_group(draft.limit_group.as_ref(), None).await?;
        let wanted = Wanted {
            headers: draft.headers,
            certificate: draft.client_certificate,
            client: draft.oauth2,
        };
        let new = NewDestination {
            id: DestinationId(self.mint.uuid()),
            external_id: draft.external_id,
            name: draft.name,
            url: draft.url,
            event_types: draft.event_types,
            filter: rules::filter(draft.filter)?,
            limits: draft.limits,
            pass_traceparent: draft.pass_traceparent,
            handshake: draft.handshake,
            limit_group: draft.limit_group,
        };
        let (secret, made) = self.new_secret(new.id, &draft.secret)?;
        let mut sealed = vec![secret];
        let singles = self.new_singles(new.id, (&new.url, wanted))?;
        sealed.extend(singles.iter().filter_map(SingleChange::set).cloned());
        let tenant = self.tenant;
        let created = match &self.manager {
            None => {
                let secrets = &self.signing.secrets;
                secrets.create_destination_with(tenant, &new, &sealed).await
            }
            Some(manager) => {
                let managers = &self.managers;
                managers
                    .create_managed(tenant, &new, &sealed, manager)
                    .await
            }
        }?;
        Ok((self.described_anew(created).await?, made))
    }

    /// Makes the destination that its platform calls so into this one, and says what it
    /// signs with if it had to be created. One that is there keeps what a draft does not
    /// say, such as its state, its secrets and its retries, and what is never shown again
    /// and not named: whoever reads one and puts it back cannot name it.
    pub async fn put_destination(
        &self,
        id: ExternalId,
        draft: DestinationDraft,
    ) -> Result<(Described, Option<MadeSecret>), ServiceError> {
        let draft = DestinationDraft {
            external_id: Some(id.clone()),
            ..draft
        };
        let called = async || self.catalog.destination_called(self.tenant, &id).await;
        let found = match called().await {
            Err(CatalogError::NotFound(_)) => match self.create_destination(draft.clone()).await {
                // Another request has just created it.
                Err(error) if error.is_of("external_id") => called().await?,
                created => return created.map(|(created, made)| (created, Some(made))),
            },
            found => found?,
        };
        self.check(&draft)?;
        let current = self.catalog.destination(self.tenant, found).await?;
        self.check_limits(&current, &draft.limits)?;
        self.check_group(draft.limit_group.as_ref(), Some(found))
            .await?;
        let wanted = Wanted {
            headers: draft.headers,
            certificate: draft.client_certificate,
            client: draft.oauth2,
        };
        let singles = self
            .singles_that_differ(found, (&draft.url, wanted))
            .await?;
        let change = DestinationChange {
            external_id: None,
            name: Some(draft.name),
            url: Some(draft.url),
            event_types: Some(draft.event_types),
            filter: Some(rules::filter(draft.filter)?),
            state: None,
            limits: Some(draft.limits),
            pass_traceparent: Some(draft.pass_traceparent),
            handshake: Some(draft.handshake),
            limit_group: Some(draft.limit_group),
        };
        Ok((self.changed(found, &change, &singles).await?, None))
    }

    fn check(&self, draft: &DestinationDraft) -> Result<(), ServiceError> {
        rules::name(&draft.name)?;
        rules::url(&draft.url, &self.policy)?;
        rules::event_types(&draft.event_types)?;
        limits::validate(&draft.limits)
    }

    /// Which one its platform calls so.
    pub async fn destination_called(&self, id: &ExternalId) -> Result<DestinationId, ServiceError> {
        let catalog = &self.reading.catalog;
        Ok(catalog.destination_called(self.tenant, id).await?)
    }

    async fn changed(
        &self,
        id: DestinationId,
        change: &DestinationChange,
        singles: &[SingleChange],
    ) -> Result<Described, ServiceError> {
        let changed = (self.signing.secrets)
            .change_destination_with(self.managed(id), change, singles)
            .await?;
        self.look_at_changed(&[id]).await;
        self.described_anew(changed).await
    }

    pub async fn destination(&self, id: DestinationId) -> Result<Described, ServiceError> {
        let found = self.reading.catalog.destination(self.tenant, id).await?;
        self.described(found).await
    }

    /// One that has been read already, and is the tenant's.
    pub(crate) async fn described(
        &self,
        destination: Destination,
    ) -> Result<Described, ServiceError> {
        let mut shown = self.reading.secrets.shown(&[destination.id]).await?;
        Ok(self.describing(destination, shown.pop().unwrap_or_default()))
    }

    /// One that has just been written, and has to be answered whoever reads.
    async fn described_anew(&self, destination: Destination) -> Result<Described, ServiceError> {
        let mut shown = self.signing.secrets.shown(&[destination.id]).await?;
        Ok(self.describing(destination, shown.pop().unwrap_or_default()))
    }

    fn describing(&self, destination: Destination, shown: Shown) -> Described {
        let now = self.mint.now();
        let certificate = shown.certificate.as_ref();
        Described {
            most: self.most(&destination),
            destination,
            certificate_ends_soon: certificate.is_some_and(|facts| facts.ends_soon(now)),
            shown,
        }
    }

    /// A page in id order, which is about the order of creation.
    pub async fn destinations(
        &self,
        after: Option<DestinationId>,
        limit: u32,
    ) -> Result<Vec<Described>, ServiceError> {
        rules::page(limit)?;
        let found = (self.reading.catalog.destinations(self.tenant, after, limit)).await?;
        let ids: Vec<_> = found.iter().map(|destination| destination.id).collect();
        let shown = self.reading.secrets.shown(&ids).await?;
        let described = found.into_iter().zip(shown);
        let described = described.map(|(destination, shown)| self.describing(destination, shown));
        Ok(described.collect())
    }

    /// Changes a destination. Limits are merged with those of the moment, so of
    /// two simultaneous changes of limits the later wins whole.
    pub async fn change_destination(
        &self,
        id: DestinationId,
        edit: DestinationEdit,
    ) -> Result<Described, ServiceError> {
        if let Some(name) = &edit.name {
            rules::name(name)?;
        }
        if let Some(url) = &edit.url {
            rules::url(url, &self.policy)?;
        }
        if let Some(event_types) = &edit.event_types {
            rules::event_types(event_types)?;
        }
        let filter = edit.filter.map(rules::filter).transpose()?;
        let group = edit.limit_group.iter().flatten().next();
        self.check_group(group, Some(id)).await?;
        let wanted = Wanted {
            headers: edit.headers,
            certificate: edit.client_certificate,
            client: edit.oauth2,
        };
        let singles = self
            .changed_singles(id, (edit.url.as_deref(), wanted))
            .await?;
        let limits = if edit.limits.is_empty() {
            None
        } else {
            let current = self.catalog.destination(self.tenant, id).await?;
            let limits = edit.limits.applied_to(current.limits);
            limits::validate(&limits)?;
            self.check_limits(&current, &limits)?;
            Some(limits)
        };
        let change = DestinationChange {
            external_id: edit.external_id,
            name: edit.name,
            url: edit.url,
            event_types: edit.event_types,
            filter,
            state: edit.state,
            limits,
            pass_traceparent: edit.pass_traceparent,
            handshake: edit.handshake,
            limit_group: edit.limit_group,
        };
        self.changed(id, &change, &singles).await
    }

    pub async fn delete_destination(&self, id: DestinationId) -> Result<(), ServiceError> {
        let tenant = self.tenant;
        match &self.manager {
            None => self.catalog.delete_destination(tenant, id).await?,
            Some(manager) => self.managers.discard(tenant, id, manager).await?,
        }
        Ok(())
    }

    /// Refuses a request of so many events that would be refused whatever they are, before
    /// they are looked at.
    pub fn refuse_unread(&self, events: usize) -> Result<(), ServiceError> {
        rules::batch(events)?;
        self.intake.may_hand_in(self.limited(), events)
    }

    /// Accepts events; each is answered by itself, in order. An `Err` is of all
    /// of them: whether they were written is not known.
    pub async fn accept_events(
        &self,
        drafts: Vec<Result<EventDraft, ServiceError>>,
    ) -> Result<Vec<Result<AcceptedEvent, ServiceError>>, ServiceError> {
        rules::batch(drafts.len())?;
        let checked: Vec<Result<NewEvent, ServiceError>> = drafts
            .into_iter()
            .map(|draft| draft?.checked(self.tenant, EventId(self.mint.uuid()), self.mint.now()))
            .collect();
        let events: Vec<NewEvent> = checked.iter().flatten().cloned().collect();
        let accepted = self.intake.accept(self.limited(), events).await?;
        let mut acceptances = accepted.into_iter();
        let answers = checked.into_iter().map(|event| {
            let event = event?;
            let missing = || ServiceError::Internal("an event was left unanswered".to_owned());
            match acceptances.next().ok_or_else(missing)?? {
                Acceptance::Accepted(destinations) => Ok(AcceptedEvent {
                    id: event.id,
                    destinations,
                }),
                // The key's first request was answered so, or would have been.
                Acceptance::Repeated {
                    event,
                    destinations,
                } => Ok(AcceptedEvent {
                    id: event,
                    destinations,
                }),
                Acceptance::KeyReused => Err(ServiceError::KeyReused),
                Acceptance::TooManyDestinations => Err(ServiceError::invalid(
                    "type",
                    format!(
                        "more than {MAX_DESTINATIONS} destinations subscribe to it, an event may \
                        go to that many: use several types, or name one destination_id"
                    ),
                )),
                Acceptance::NoSubscriber => {
                    let event_type = event.event_type.unwrap_or_default();
                    Err(ServiceError::invalid(
                        "type",
                        format!(
                            "no destination subscribes to {event_type}, or its filter does not \
                            take this; nothing was written"
                        ),
                    ))
                }
                Acceptance::UnknownDestination => Err(ServiceError::invalid(
                    "destination_id",
                    "there is no such destination",
                )),
                Acceptance::DisabledDestination => Err(ServiceError::invalid(
                    "destination_id",
                    "the destination is disabled",
                )),
            }
        });
        Ok(answers.collect())
    }

    /// By what its events are limited.
    const fn limited(&self) -> rate::Limited {
        rate::Limited {
            tenant: self.tenant,
            limit: self.ingest_limit,
        }
    }

    /// Accepts one event.
    pub async fn accept_event(&self, draft: EventDraft) -> Result<AcceptedEvent, ServiceError> {
        let answers = self.accept_events(vec![Ok(draft)]).await?;
        let missing = || ServiceError::Internal("the store left an event unanswered".to_owned());
        answers.into_iter().next().unwrap_or_else(|| Err(missing()))
    }

    pub async fn event(
        &self,
        id: EventId,
    ) -> Result<(EventSummary, Vec<AttemptView>), ServiceError> {
        Ok(self.reading.catalog.event(self.tenant, id).await?)
    }

    /// What people are shown of what an event carries: whoever they are, without what the
    /// catalogue names of its type.
    pub async fn payload(&self, id: EventId) -> Result<ShownPayload, ServiceError> {
        let payload = self.reading.overview.payload(self.tenant, id).await?;
        Ok(ShownPayload {
            content_type: payload.content_type.clone(),
            shown: payload.shown(),
        })
    }

    /// A page of events, the newest first.
    pub async fn find_events(
        &self,
        filter: &EventFilter,
        before: Option<EventId>,
        limit: u32,
    ) -> Result<EventPage, ServiceError> {
        if !(1..=MAX_EVENTS_LISTED).contains(&limit) {
            let problem = format!("must be at least 1 and at most {MAX_EVENTS_LISTED}");
            return Err(ServiceError::invalid("limit", problem));
        }
        rules::wanted_type(filter.event_type.as_deref())?;
        rules::span(filter.since, filter.until)?;
        rules::sought(filter.text.as_deref())?;
        let (overview, tenant) = (&self.reading.overview, self.tenant);
        Ok(overview.find_events(tenant, filter, before, limit).await?)
    }

    /// A page of attempts, the newest first, of all destinations or of one.
    pub async fn find_attempts(
        &self,
        filter: &AttemptFilter,
        before: Option<AttemptId>,
        limit: u32,
    ) -> Result<AttemptPage, ServiceError> {
        rules::page(limit)?;
        rules::wanted_type(filter.event_type.as_deref())?;
        rules::span(filter.since, filter.until)?;
        rules::sought(filter.text.as_deref())?;
        let (overview, tenant) = (&self.reading.overview, self.tenant);
        Ok(overview
            .find_attempts(tenant, filter, before, limit)
            .await?)
    }

    /// A page of a destination's attempts, the newest first.
    pub async fn attempts(
        &self,
        id: DestinationId,
        before: Option<AttemptId>,
        limit: u32,
    ) -> Result<Vec<AttemptView>, ServiceError> {
        rules::page(limit)?;
        Ok(self
            .reading
            .catalog
            .attempts(self.tenant, id, before, limit)
            .await?)
    }

    /// Something may have unblocked the destination: whatever does not wake it by itself,
    /// the sweep finds.
    async fn look_now(&self, id: DestinationId) {
        self.look_at(&[Wake::unblocked(id)]).await;
    }

    async fn look_at(&self, unblocked: &[Wake]) {
        if let Err(error) = self.schedule.wake(unblocked).await {
            tracing::debug!(%error, "wake after a change failed; the sweep will");
        }
    }

    /// The same after a change that the store has marked, so that the sweep wakes them within
    /// a moment. Of those that change all the time this is left to it.
    async fn look_at_changed(&self, ids: &[DestinationId]) {
        let new = ids.iter().filter(|id| self.looked_at.is_new(**id));
        let unblocked: Vec<Wake> = new.map(|id| Wake::unblocked(*id)).collect();
        if !unblocked.is_empty() {
            self.look_at(&unblocked).await;
        }
    }
}
