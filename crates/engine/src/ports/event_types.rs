//! The same store, as the catalogue of event types.

use async_trait::async_trait;
use domain::event_types::{EventType, ListedEventType};

use super::error::CatalogError;

/// What is asked of the catalogue of event types. It is the installation's, and every
/// tenant reads it. Every method is one transaction.
///
/// Nothing on the way of an event asks it. Who shows a payload reads the rules of its type
/// with it ([`super::Overview::payload`]).
#[async_trait]
pub trait EventTypes: Send + Sync {
    /// A page in the order of their names, byte by byte.
    async fn event_types(
        &self,
        wanted: &WantedEventTypes,
    ) -> Result<Vec<ListedEventType>, CatalogError>;

    /// The one with this name.
    async fn event_type(&self, name: &str) -> Result<EventType, CatalogError>;

    /// Adds one. One that is there already, archived or not, is refused by the name
    /// `name`. A `Conflict` where there are [`domain::event_types::MAX_TYPES`]; requests at
    /// the same moment may pass that by as many as they are.
    async fn create_event_type(&self, new: &EventType) -> Result<(), CatalogError>;

    /// Changes what `change` names and nothing else. Rules hold for what is shown from then
    /// on, whenever it was accepted.
    async fn change_event_type(
        &self,
        name: &str,
        change: &EventTypeChange,
    ) -> Result<EventType, CatalogError>;

    /// Deletes one. A `Conflict` where it has rules ([`has_rules`]): without them its
    /// payloads would be shown whole again.
    async fn delete_event_type(&self, name: &str) -> Result<(), CatalogError>;
}

/// Which page of event types.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WantedEventTypes {
    /// With those that are archived.
    pub archived: bool,
    /// After this name.
    pub after: Option<String>,
    /// On the page.
    pub limit: u32,
}

/// What to change of an event type; `None` leaves it as it is, the inner `None` takes it
/// away.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventTypeChange {
    /// Another description.
    pub description: Option<String>,
    /// Another schema.
    pub schema: Option<Option<String>>,
    /// Another example.
    pub example: Option<Option<String>>,
    /// All rules, as they shall be from now on.
    pub redact: Option<Vec<String>>,
    /// Whether it is archived.
    pub archived: Option<bool>,
}

/// Why a type cannot be deleted.
#[must_use]
pub fn has_rules() -> CatalogError {
    let problem = "its `redact` keeps parts of payloads from being shown, and would be gone \
        with it: archive the type, or set `redact` to [] first";
    CatalogError::Conflict(problem.to_owned())
}

/// Why no type can be added to the catalogue.
#[must_use]
pub fn catalogue_is_full() -> CatalogError {
    let most = domain::event_types::MAX_TYPES;
    CatalogError::Conflict(format!(
        "the catalogue has {most} event types, which is all that it takes: delete some"
    ))
}
