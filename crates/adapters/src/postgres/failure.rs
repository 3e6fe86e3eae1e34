//! What can go wrong, what is tried again, and what callers are told.

use std::borrow::Cow;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

use domain::policy::InvalidSettings;
use engine::ports::{CatalogError, GROUP_REFUSES, TOO_MANY_DESTINATIONS};
use engine::ports::{StoreError, wanted};

/// How often a conflict is tried again.
const RETRIES: u32 = 5;

/// Why a step of ours failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The database, or the way to it.
    Database(sqlx::Error),
    /// What the database says makes no sense.
    Corrupt(StoreError),
    /// Nobody waits for it any more.
    Unwanted(StoreError),
    /// What the caller wants makes no sense.
    Invalid(InvalidSettings),
    /// The caller's tenant has no such thing.
    NotFound(&'static str),
    /// Not as things are.
    Conflict(&'static str),
    /// In the caller's words already.
    Refused(CatalogError),
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

impl Failure {
    /// A lock was not to be had in time.
    pub(super) fn is_lock_timeout(&self) -> bool {
        self.code().as_deref() == Some("55P03")
    }

    /// The same for events, of which one that takes too long must not be taken for a
    /// server that is away.
    pub(super) fn of_events(self) -> StoreError {
        let is_too_slow = self.code().as_deref() == Some("57014");
        match self {
            Self::Database(error) if is_too_slow => StoreError::TooSlow(in_words(&error)),
            other => other.into(),
        }
    }

    fn code(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Database(sqlx::Error::Database(error)) => error.code(),
            _ => None,
        }
    }

    /// A row has no partition to go to.
    pub(super) fn is_without_a_day(&self) -> bool {
        matches!(self, Self::Database(error) if is_without_a_day(error))
    }

    /// A row has a key that is there already.
    pub(super) fn is_known_already(&self) -> bool {
        self.code().as_deref() == Some("23505")
    }

    /// The server is there and has answered: another statement may well succeed.
    /// It is not where it shuts down, or has no room for anybody.
    pub(super) fn is_of_its_own(&self) -> bool {
        match self {
            Self::Database(_) => {
                let away = |code: &str| {
                    ["08", "53", "57P", "58", "XX"]
                        .iter()
                        .any(|of| code.starts_with(of))
                };
                self.code().is_some_and(|code| !away(&code))
            }
            _ => true,
        }
    }

    /// A serialization failure, a deadlock or a lock timeout: the server has
    /// rolled back, and the same again may well succeed.
    fn is_conflict(&self) -> bool {
        matches!(self.code().as_deref(), Some("40001" | "40P01" | "55P03"))
    }
}

/// Does `step` until it meets no conflict, a few times at most, and not at all where
/// nobody waits for it any more.
pub(super) async fn retried<T, F, Fut>(step: F) -> Result<T, Failure>
where
    F: Fn() -> Fut + Send + Sync,
    Fut: Future<Output = Result<T, Failure>> + Send,
    T: Send,
{
    let mut tries = 0;
    loop {
        wanted::check().map_err(Failure::Unwanted)?;
        match step().await {
            Err(failure) if failure.is_conflict() && tries < RETRIES => tries += 1,
            done => return done,
        }
        tokio::time::sleep(backoff(tries)).await;
    }
}

/// 10 ms, doubling, of which at least a half. Two that met must not meet
/// again; which of them waits longer decides nothing, so this randomness need
/// not repeat from a seed.
fn backoff(tries: u32) -> Duration {
    let bound = 10_u64 << tries.min(6);
    let random = RandomState::new().build_hasher().finish();
    Duration::from_millis(bound / 2 + random % (bound / 2))
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Database(error) if is_refused(&error) => Self::Refused(in_words(&error)),
            Failure::Database(error) => Self::Unavailable(in_words(&error)),
            Failure::Corrupt(error) | Failure::Unwanted(error) => error,
            Failure::Invalid(invalid) => Self::Unavailable(invalid.to_string()),
            Failure::NotFound(what) => Self::Unavailable(format!("no such {what}")),
            Failure::Conflict(problem) => Self::Unavailable(problem.to_owned()),
            Failure::Refused(error) => Self::Unavailable(error.to_string()),
        }
    }
}

/// The code of a check, of no constraint: the day's partition is there as soon as a
/// scheduler has made it.
fn is_without_a_day(error: &sqlx::Error) -> bool {
    (error.as_database_error()).is_some_and(|error| {
        error.code().as_deref() == Some("23514") && error.constraint().is_none()
    })
}

/// Classes 22 (values that make no sense), 23 (constraints) and 54 (too large, too
/// many): the same again is refused again, unless only its day is missing.
fn is_refused(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| matches!(code.get(..2), Some("22" | "23" | "54")))
        && !is_without_a_day(error)
}

impl From<Failure> for CatalogError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Database(sqlx::Error::Database(error)) => refusal(&*error)
                .unwrap_or_else(|| Failure::Database(sqlx::Error::Database(error)).into_store()),
            Failure::Invalid(InvalidSettings { field, problem }) => Self::Invalid {
                field: field.to_owned(),
                problem,
            },
            Failure::NotFound(what) => Self::NotFound(what),
            Failure::Conflict(problem) => Self::Conflict(problem.to_owned()),
            Failure::Refused(error) => error,
            other => other.into_store(),
        }
    }
}

impl Failure {
    fn into_store(self) -> CatalogError {
        CatalogError::Store(self.into())
    }
}

/// A constraint's refusal, by the name of its column: our constraints are
/// called `<table>_check_<column>`.
fn refusal(error: &dyn sqlx::error::DatabaseError) -> Option<CatalogError> {
    let constraint = error.constraint()?;
    let (field, problem) = match error.code().as_deref()? {
        "23514" => {
            let (_, field) = constraint.split_once("_check_")?;
            match field {
                "limit_group" => (field, GROUP_REFUSES),
                "tenant_max_destinations" if constraint.starts_with("destinations_") => {
                    (field, TOO_MANY_DESTINATIONS)
                }
                _ => (field, "is outside what the store's constraints allow"),
            }
        }
        "23503" => {
            let (_, field) = constraint.split_once("_check_")?;
            (field, "is not there: create it first")
        }
        "23505" if constraint.ends_with("_by_external_id") => ("external_id", "is there already"),
        "23505" => ("id", "is there already"),
        _ => return None,
    };
    Some(CatalogError::Invalid {
        field: field.to_owned(),
        problem: problem.to_owned(),
    })
}

/// An error in words that hold no values of rows.
pub(super) fn in_words(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Database(database) => match database.code() {
            Some(code) => format!("{} ({code})", database.message()),
            None => database.message().to_owned(),
        },
        other => other.to_string(),
    }
}
