//! What the operator needs of Paceline: the functions of the API, over the same
//! store, for what one resource has.

use async_trait::async_trait;
use domain::credentials::OAuthFacts;
use domain::destination::DestinationState;
use domain::filter::Filter;
use domain::health::Breaker;
use domain::ids::{DestinationId, TenantId};
use domain::limit_group::GroupName;
use domain::policy::LimitSettings;
use secrecy::SecretString;
use serde_json::Value;

/// Paceline, as a resource sees it. Every method can be repeated.
#[async_trait]
pub trait Destinations: Send + Sync {
    /// What there is for this resource. `secrets` are what it should sign with and show.
    async fn look(
        &self,
        owner: &Owner,
        wanted: Option<(&Wanted, &Secrets)>,
    ) -> Result<Stored, Refusal>;

    /// Makes its destination, held from the start.
    async fn create(
        &self,
        owner: &Owner,
        wanted: &Wanted,
        secrets: &Secrets,
    ) -> Result<DestinationId, Refusal>;

    /// Holds what a resource of its name let go.
    async fn take_over(&self, owner: &Owner, id: DestinationId) -> Result<(), Refusal>;

    /// Makes it as it is wanted. In force when this answers.
    async fn change(
        &self,
        owner: &Owner,
        id: DestinationId,
        wanted: &Wanted,
    ) -> Result<(), Refusal>;

    /// Signs with another secret, and for a while with the old one.
    async fn rotate(
        &self,
        owner: &Owner,
        id: DestinationId,
        secret: &SecretString,
    ) -> Result<(), Refusal>;

    /// Shows these to be let in, and nothing else.
    async fn show(
        &self,
        owner: &Owner,
        id: DestinationId,
        credentials: &Credentials,
    ) -> Result<(), Refusal>;

    /// Lets it go: it stays as it is, and the API may change it.
    async fn release(&self, owner: &Owner, id: DestinationId) -> Result<(), Refusal>;

    /// Deletes it.
    async fn discard(&self, owner: &Owner, id: DestinationId) -> Result<(), Refusal>;

    /// How all that resources hold stand, in brief: a statement or a few, however
    /// many they are.
    async fn glance(&self) -> Result<Vec<Glance>, Refusal>;

    /// How it fares.
    async fn observe(&self, owner: &Owner, id: DestinationId) -> Result<Observed, Refusal>;
}

/// A resource, as a manager of destinations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Whose destination it is about.
    pub tenant: TenantId,
    /// Its namespace and name, such as `paceline/shop`.
    pub resource: String,
    /// Its name: the destination's, too.
    pub name: String,
    /// Which of all that ever had this name.
    pub uid: String,
}

/// What a resource wants of its destination.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    pub name: String,
    pub url: String,
    pub event_types: Vec<String>,
    /// Not looked at yet: whoever keeps it refuses what is none.
    pub filter: Option<Value>,
    pub limits: LimitSettings,
    /// The limit group to be in; `None` for none.
    pub limit_group: Option<GroupName>,
    /// `Active` or `Paused`.
    pub state: DestinationState,
}

/// What a resource's Secrets hold.
#[derive(Debug, Clone)]
pub struct Secrets {
    /// What its requests are signed with.
    pub signing: SecretString,
    pub credentials: Credentials,
}

/// What a destination shows to be let in; `None` for nothing of the kind.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    pub client_certificate: Option<ClientCertificate>,
    pub oauth2: Option<Client>,
}

/// A client certificate, in PEM.
#[derive(Debug, Clone)]
pub struct ClientCertificate {
    pub certificate: SecretString,
    pub private_key: SecretString,
}

/// As whom tokens are asked for.
#[derive(Debug, Clone)]
pub struct Client {
    pub facts: OAuthFacts,
    pub secret: SecretString,
}

/// What there is for a resource.
#[derive(Debug, Clone, PartialEq)]
pub enum Stored {
    /// Nothing.
    Absent,
    /// Its own destination.
    Ours(Row),
    /// One that a resource of this name let go.
    Released(Row),
    /// One that a resource of this name holds, which is not this one: of another
    /// cluster, or its predecessor, whose finalizer somebody took away.
    Held { id: DestinationId, uid: String },
    /// One of this name that nobody manages: the API's.
    Unmanaged { id: DestinationId },
}

/// A destination, as far as a resource has a say.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub id: DestinationId,
    pub name: String,
    pub url: String,
    pub event_types: Vec<String>,
    pub filter: Option<Filter>,
    pub limit_group: Option<GroupName>,
    pub limits: LimitSettings,
    pub state: DestinationState,
    /// The resource's secret is what it signs with, and will go on to.
    pub signs: bool,
    /// What it shows to be let in is what the resource's Secrets hold.
    pub shows: bool,
}

/// How a destination stands, in brief.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glance {
    /// The resource that holds it: its namespace and name, such as `paceline/shop`.
    pub resource: String,
    pub state: DestinationState,
    /// Open, or half open.
    pub breaker_is_open: bool,
    /// Something waits, or is under way.
    pub has_work: bool,
}

/// How a destination fares.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    pub state: DestinationState,
    /// Attempts that wait, as far as they were counted.
    pub backlog: u32,
    /// Starts per second, of late.
    pub starts_per_second: f64,
    /// Starts per second that are possible, by its own limits and those of its group;
    /// `None` for any number.
    pub allowed_per_second: Option<f64>,
    /// The limit group that it is in.
    pub limit_group: Option<GroupName>,
    pub breaker: Breaker,
    /// Its receiver asked to be left alone for now.
    pub held: bool,
}

impl Observed {
    /// A limit of 0 stops it.
    #[must_use]
    pub fn is_limited_to_nothing(&self) -> bool {
        self.allowed_per_second.is_some_and(|rate| rate <= 0.0)
    }
}

/// Why Paceline did not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The resource says something that cannot be: it has to be changed.
    #[error("{0}")]
    Invalid(String),
    /// Somebody else has what it wants.
    #[error("{0}")]
    Conflict(String),
    /// There is no such thing: a tenant, or a destination that has just gone.
    #[error("{0}")]
    NotFound(String),
    /// The store is away, or too much at once: try again.
    #[error("{0}")]
    Unavailable(String),
}
