//! The Kubernetes operator: a `Destination` resource has a destination, which is
//! as the resource says.
//!
//! It decides ([`plan`], [`status`]: pure), then does ([`reconcile`]), by the
//! functions that the API is made of ([`Destinations`]): a rule stands once, and
//! a limit that is changed in git holds as soon as one changed by the API.
//! Nothing else of Paceline needs it or its API server: deliveries go on while
//! both are away.
//!
//! A destination is never taken from anybody. What the API made, or another
//! resource has, is a conflict, said in the resource's status.

pub mod crd;
pub mod destinations;
pub mod election;
pub mod permissions;
pub mod plan;
pub mod reconcile;
#[expect(
    unreachable_pub,
    clippy::duplicated_attributes,
    reason = "what kube derives has a copy of the spec; columns have types, some the same"
)]
pub mod resource;
pub mod run;
pub mod status;
pub mod stir;
pub mod verdict;

pub use destinations::Destinations;
pub use resource::Destination;
pub use run::{Cluster, OperatorOptions, connect, run};

/// Who we are to the API server: the owner of the fields that we apply, and the
/// reporter of events.
pub const MANAGER: &str = "paceline-operator";

/// What keeps a resource until its destination was let go or deleted.
pub const FINALIZER: &str = "paceline.dev/destination";
