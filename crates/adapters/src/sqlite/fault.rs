//! What can go wrong in a step, and what callers are told.

use engine::ports::{CatalogError, GROUP_REFUSES, StoreError, TOO_MANY_DESTINATIONS};
use rusqlite::ErrorCode;

/// An error of a step, before it is known whether a `Store` or a `Catalog`
/// method reports it.
#[derive(Debug)]
pub(super) enum Fault {
    Sql(rusqlite::Error),
    Store(StoreError),
    Catalog(CatalogError),
}

impl Fault {
    /// A row says what it must not, or may not say what it should: the file is
    /// sound, and another statement may well succeed.
    pub(super) fn is_of_a_row(&self) -> bool {
        match self {
            Self::Sql(rusqlite::Error::SqliteFailure(failure, _)) => {
                failure.code == ErrorCode::ConstraintViolation
            }
            Self::Sql(error) => matches!(store_error(error), StoreError::Corrupt { .. }),
            Self::Store(
                StoreError::Unavailable(_) | StoreError::TooSlow(_) | StoreError::Lost(_),
            ) => false,
            Self::Store(StoreError::Corrupt { .. } | StoreError::Refused(_)) | Self::Catalog(_) => {
                true
            }
        }
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<CatalogError> for Fault {
    fn from(error: CatalogError) -> Self {
        Self::Catalog(error)
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Sql(error) => store_error(&error),
            Fault::Store(error) | Fault::Catalog(CatalogError::Store(error)) => error,
            Fault::Catalog(error) => Self::Unavailable(error.to_string()),
        }
    }
}

impl From<Fault> for CatalogError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Sql(error) => refused(&error).unwrap_or_else(|| store_error(&error).into()),
            Fault::Store(error) => error.into(),
            Fault::Catalog(error) => error,
        }
    }
}

fn store_error(error: &rusqlite::Error) -> StoreError {
    use rusqlite::Error::{FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType};
    match error {
        FromSqlConversionFailure(..) | IntegralValueOutOfRange(..) | InvalidColumnType(..) => {
            StoreError::Corrupt {
                table: "(query)",
                column: "(result)",
                row: "?".to_owned(),
                problem: error.to_string(),
            }
        }
        _ if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
            StoreError::Unavailable("sqlite: the read took too long".to_owned())
        }
        _ if is_refused(error) => StoreError::Refused(format!("sqlite: {error}")),
        _ => StoreError::Unavailable(format!("sqlite: {error}")),
    }
}

/// The same again is refused again: a constraint, a type, a size.
fn is_refused(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch | ErrorCode::TooBig)
    )
}

/// The column that a constraint refused. Ours are named so that they end in
/// it: `destinations_check_burst`.
fn refused(error: &rusqlite::Error) -> Option<CatalogError> {
    let rusqlite::Error::SqliteFailure(failure, Some(message)) = error else {
        return None;
    };
    if failure.code != ErrorCode::ConstraintViolation {
        return None;
    }
    let (kind, name) = message.split_once(" constraint failed: ")?;
    let field = match name.split_once("_check_") {
        Some((_, column)) => column,
        // Of several columns the last: the others say whose it is.
        None => name.rsplit_once('.').map_or(name, |(_, column)| column),
    };
    let problem = match kind {
        "NOT NULL" => "must be set",
        "UNIQUE" => "is there already",
        "FOREIGN KEY" => "names what does not exist",
        _ if field == "limit_group" => GROUP_REFUSES,
        _ if name == "destinations_check_tenant_max_destinations" => TOO_MANY_DESTINATIONS,
        _ => "is refused by the store's constraints",
    };
    Some(CatalogError::Invalid {
        field: field.to_owned(),
        problem: problem.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constraints_name_their_column() {
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        let table = "create table t (
            burst integer constraint t_check_burst check (burst > 0),
            margin real not null default 0
        ) strict";
        connection.execute(table, []).unwrap();
        let field = |sql: &str| match refused(&connection.execute(sql, []).unwrap_err()) {
            Some(CatalogError::Invalid { field, .. }) => field,
            other => panic!("expected a refusal, got {other:?}"),
        };
        assert_eq!(field("insert into t (burst) values (0)"), "burst");
        assert_eq!(field("insert into t (margin) values (null)"), "margin");
    }
}
