//! Why a request was not done, by what its caller can do about it.

use std::time::Duration;

use domain::backpressure::Backlogged;
use engine::backpressure::Refusal;
use engine::ingest::IngestError;
use engine::ports::{CatalogError, StoreError};

/// Why a request was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServiceError {
    /// A field is wrong: change it.
    #[error("{field}: {problem}")]
    Invalid {
        /// As in JSON, such as `limits.per_second`.
        field: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A field is too large: send less.
    #[error("{field}: must be at most {max_bytes} bytes")]
    TooLarge {
        /// As in JSON.
        field: String,
        /// What would have been taken.
        max_bytes: usize,
    },
    /// The idempotency key stands for another request.
    #[error("the idempotency key was used for another request")]
    KeyReused,
    /// Too much is pending already: wait, then repeat. Nothing was written.
    #[error("too much is pending {whose}")]
    Backlogged {
        /// Whose backlog it is.
        whose: Backlogged,
        /// When there may be room again.
        retry_after: Duration,
    },
    /// The tenant hands events in too fast: wait, then repeat. Nothing was
    /// written.
    #[error("more events a second than this tenant may hand in")]
    TooFast {
        /// When there may be room for them.
        retry_after: Duration,
    },
    /// The tenant changes things too fast: wait, then repeat. Nothing was changed.
    #[error("more management calls a second than this tenant may make")]
    TooManyChanges {
        /// When there may be room for one.
        retry_after: Duration,
    },
    /// There is no such thing.
    #[error("no such {0}")]
    NotFound(&'static str),
    /// It would be allowed, but not as things are.
    #[error("{0}")]
    Conflict(String),
    /// Too much of this tenant at once: wait, then repeat. Others are not kept
    /// from anything.
    #[error("{0}")]
    Busy(String),
    /// Too much at once: wait, then repeat. Nothing was written.
    #[error("{0}")]
    Overloaded(String),
    /// A part is away: repeat later. Whether it was written is not known.
    #[error("{0}")]
    Unavailable(String),
    /// The store is gone: repeat once somebody has brought it back.
    #[error("{0}")]
    Lost(String),
    /// Our fault.
    #[error("{0}")]
    Internal(String),
}

impl ServiceError {
    /// Whether it is about this field.
    #[must_use]
    pub fn is_of(&self, name: &str) -> bool {
        matches!(self, Self::Invalid { field, .. } if field == name)
    }

    /// A wrong field.
    #[must_use]
    pub fn invalid(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Invalid {
            field: field.into(),
            problem: problem.into(),
        }
    }
}

impl From<CatalogError> for ServiceError {
    fn from(error: CatalogError) -> Self {
        match error {
            CatalogError::NotFound(what) => Self::NotFound(what),
            CatalogError::Invalid { field, problem } => Self::Invalid {
                field: super::limits::json_field(&field),
                problem,
            },
            CatalogError::Conflict(problem) => Self::Conflict(problem),
            CatalogError::Schema { .. } => Self::Unavailable(error.to_string()),
            CatalogError::Store(StoreError::Unavailable(_) | StoreError::TooSlow(_)) => {
                Self::Unavailable(error.to_string())
            }
            CatalogError::Store(StoreError::Lost(_)) => Self::Lost(error.to_string()),
            CatalogError::Store(StoreError::Refused(_)) => Self::invalid(
                "request",
                "holds a value that cannot be stored, such as a NUL character in a text",
            ),
            CatalogError::Store(StoreError::Corrupt { .. }) => Self::Internal(error.to_string()),
        }
    }
}

impl From<Refusal> for ServiceError {
    fn from(refusal: Refusal) -> Self {
        let Refusal { whose, retry_after } = refusal;
        Self::Backlogged { whose, retry_after }
    }
}

impl From<StoreError> for ServiceError {
    fn from(error: StoreError) -> Self {
        CatalogError::from(error).into()
    }
}

impl From<IngestError> for ServiceError {
    fn from(error: IngestError) -> Self {
        match error {
            IngestError::Full | IngestError::Stopped => Self::Overloaded(error.to_string()),
            IngestError::Unavailable(problem) => Self::Unavailable(problem),
            IngestError::Lost(problem) => Self::Lost(problem),
        }
    }
}
