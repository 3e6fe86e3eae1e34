//! Why a store could not do it.

/// Why the store could not do it, by what the caller does next.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// Not reachable, overloaded, or a conflict that retries did not solve:
    /// try again later. Whether it was committed is not known.
    #[error("store unavailable: {0}")]
    Unavailable(String),
    /// Nothing that is written would be found again: where it belongs is gone, and
    /// only whoever runs the process can bring it back. Nothing was committed that
    /// will be there.
    #[error("the store is lost: {0}")]
    Lost(String),
    /// The store never takes these values, however often they are sent: one of them
    /// is no text, out of range, against a constraint or too large. Nothing was
    /// committed. Without the culprit the rest of the batch is taken.
    #[error("refused by the store: {0}")]
    Refused(String),
    /// The store is there, and has ended a statement that took longer than it may, as
    /// it says of events alone. Nothing was committed.
    #[error("the store took too long: {0}")]
    TooSlow(String),
    /// A row says what it must not: a bug, or a hand in the database.
    #[error("store corrupt: {table}.{column} of {row}: {problem}")]
    Corrupt {
        /// The table.
        table: &'static str,
        /// The column.
        column: &'static str,
        /// Which row.
        row: String,
        /// What it says.
        problem: String,
    },
}

/// Why the catalog could not do it.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// The tenant has no such thing.
    #[error("no such {0}")]
    NotFound(&'static str),
    /// The store's constraints refuse the value.
    #[error("{field}: {problem}")]
    Invalid {
        /// The column.
        field: String,
        /// What is wrong.
        problem: String,
    },
    /// It would be allowed, but not as things are.
    #[error("{0}")]
    Conflict(String),
    /// The schema is older than this binary needs, or one that it cannot work with.
    #[error("schema is at version {found}, this binary needs {needed}: run `paceline migrate`")]
    Schema {
        /// What the store has.
        found: i64,
        /// What we need.
        needed: i64,
    },
    /// The store could not be asked, or answered nonsense.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl CatalogError {
    /// What is looked for at so many destinations has to be looked for at one.
    #[must_use]
    pub fn too_many_places() -> Self {
        Self::Invalid {
            field: "destination_id".to_owned(),
            problem: format!(
                "name one: attempts of more than {} destinations are not listed together",
                super::MAX_PLACES
            ),
        }
    }
}
