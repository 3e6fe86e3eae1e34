//! Values as the rows hold them: times as microseconds, ids and words as text.

use std::fmt::{Display, Write as _};
use std::str::FromStr;
use std::time::Duration;

use domain::batch::BatchSettings;
use domain::limit::{Count, Shape};
use domain::policy::LimitSettings;
use domain::time::Timestamp;
use engine::ports::StoreError;
use rusqlite::{CachedStatement, Connection, Params, Row, ToSql, params_from_iter};

use super::fault::Fault;

/// A table and one of its columns, to name what is corrupt.
pub(super) type Place = (&'static str, &'static str);

/// A value that is kept as text: an id, a state, a shape.
pub(super) fn word<T>(row: &Row<'_>, index: usize, place: Place) -> Result<T, Fault>
where
    T: FromStr,
    T::Err: Display,
{
    let text: String = row.get(index)?;
    parse(&text, place)
}

/// A column of such a type that may be null.
pub(super) fn maybe_word<T>(row: &Row<'_>, index: usize, place: Place) -> Result<Option<T>, Fault>
where
    T: FromStr,
    T::Err: Display,
{
    let text: Option<String> = row.get(index)?;
    text.map(|text| parse(&text, place)).transpose()
}

/// Parses such a text.
pub(super) fn parse<T>(text: &str, (table, column): Place) -> Result<T, Fault>
where
    T: FromStr,
    T::Err: Display,
{
    text.parse().map_err(|error: T::Err| {
        Fault::from(StoreError::Corrupt {
            table,
            column,
            row: text.to_owned(),
            problem: error.to_string(),
        })
    })
}

/// A time.
pub(super) fn time(row: &Row<'_>, index: usize) -> Result<Timestamp, Fault> {
    Ok(Timestamp::from_micros(row.get(index)?))
}

/// How old events may become; `None` for any age.
pub(super) fn age(row: &Row<'_>, index: usize) -> Result<Option<Duration>, Fault> {
    let ms: Option<i64> = row.get(index)?;
    Ok(ms.map(|ms| Duration::from_millis(ms.unsigned_abs())))
}

/// A time that may be missing.
pub(super) fn maybe_time(row: &Row<'_>, index: usize) -> Result<Option<Timestamp>, Fault> {
    let micros: Option<i64> = row.get(index)?;
    Ok(micros.map(Timestamp::from_micros))
}

/// The eleven columns of [`LimitSettings`] that people set, in the order of the schema, the
/// first of them at `first`; and what the receiver allows, at `allowed`.
pub(super) fn settings(
    row: &Row<'_>,
    (first, allowed): (usize, usize),
) -> Result<LimitSettings, Fault> {
    let count: Option<String> = row.get(first + 10)?;
    let count = count.map(|count| parse::<Count>(&count, ("destinations", "count")));
    Ok(LimitSettings {
        safety_margin: row.get(first + 8)?,
        margin_cap: row.get(first + 9)?,
        count: count.transpose()?,
        allowed_per_minute: row.get(allowed)?,
        ..tier_settings(row, first)?
    })
}

/// The eight of them that tiers have.
pub(super) fn tier_settings(row: &Row<'_>, first: usize) -> Result<LimitSettings, Fault> {
    let shape: Option<String> = row.get(first + 6)?;
    let shape = shape.map(|shape| parse::<Shape>(&shape, ("destinations", "shape")));
    Ok(LimitSettings {
        per_second: row.get(first)?,
        per_minute: row.get(first + 1)?,
        per_hour: row.get(first + 2)?,
        per_day: row.get(first + 3)?,
        unlimited: row.get(first + 4)?,
        burst: row.get(first + 5)?,
        shape: shape.transpose()?,
        max_in_flight: row.get(first + 7)?,
        ..LimitSettings::default()
    })
}

/// The three columns of batches, the first of them at `first`.
pub(super) fn batch_settings(row: &Row<'_>, first: usize) -> Result<BatchSettings, Fault> {
    Ok(BatchSettings {
        max_events: row.get(first)?,
        max_bytes: row.get(first + 1)?,
        max_wait_ms: row.get(first + 2)?,
    })
}

/// `{"name":value,…}` in this order, of names and values that are JSON as they are shown.
pub(super) fn object(members: impl IntoIterator<Item = (impl Display, impl Display)>) -> String {
    let mut json = String::from("{");
    for (name, value) in members {
        let comma = if json.len() > 1 { "," } else { "" };
        let _ = write!(json, "{comma}\"{name}\":{value}");
    }
    json + "}"
}

/// A statement that a step keeps for all its rows. Taken from the cache for each of them, its
/// text is hashed and the list of what was used last is changed twice, and eleven statements
/// for each delivery would pay for that.
pub(super) struct Held<'tx>(CachedStatement<'tx>);

impl<'tx> Held<'tx> {
    /// Takes it from the cache, to which it goes back when it is dropped.
    pub(super) fn of(connection: &'tx Connection, sql: &str) -> Result<Self, Fault> {
        Ok(Self(connection.prepare_cached(sql)?))
    }

    /// Reads all rows.
    pub(super) fn all<T>(
        &mut self,
        params: impl Params,
        mut read: impl FnMut(&Row<'_>) -> Result<T, Fault>,
    ) -> Result<Vec<T>, Fault> {
        let mut rows = self.0.query(params)?;
        let mut read_rows = Vec::new();
        while let Some(row) = rows.next()? {
            read_rows.push(read(row)?);
        }
        Ok(read_rows)
    }

    /// Reads the first row, if there is one.
    pub(super) fn first<T>(
        &mut self,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> Result<T, Fault>,
    ) -> Result<Option<T>, Fault> {
        let mut rows = self.0.query(params)?;
        rows.next()?.map(read).transpose()
    }

    /// Runs it; how many rows it changed.
    pub(super) fn execute(&mut self, params: impl Params) -> Result<usize, Fault> {
        Ok(self.0.execute(params)?)
    }
}

/// Reads all rows of a cached statement.
pub(super) fn all<T>(
    connection: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnMut(&Row<'_>) -> Result<T, Fault>,
) -> Result<Vec<T>, Fault> {
    Held::of(connection, sql)?.all(params, read)
}

/// Reads the first row of a cached statement, if there is one.
pub(super) fn first<T>(
    connection: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnOnce(&Row<'_>) -> Result<T, Fault>,
) -> Result<Option<T>, Fault> {
    Held::of(connection, sql)?.first(params, read)
}

/// Many rows are written in parts of these lengths, by a statement for each length. Among
/// sixteen a row is inserted for less than half of what it costs alone, and deleted for two
/// thirds: a table and its indexes are opened once. That SQLite puts several rows aside first,
/// for the triggers' sake, costs less.
pub(super) const PARTS: [usize; 4] = [64, 16, 4, 1];

/// A statement for each of [`PARTS`].
pub(super) type InParts = [String; PARTS.len()];

/// Makes them by one that says what it is for so many rows.
pub(super) fn in_parts(statement: impl Fn(usize) -> String) -> InParts {
    PARTS.map(statement)
}

/// Runs what it takes of them for all rows, each with its values.
pub(super) fn execute_in_parts<'a, T, const N: usize>(
    connection: &Connection,
    statements: &InParts,
    rows: &'a [T],
    values: impl Fn(&'a T) -> [&'a dyn ToSql; N],
) -> Result<(), Fault> {
    let mut left = rows;
    for (length, sql) in PARTS.into_iter().zip(statements) {
        let parts = left.chunks_exact(length);
        left = parts.remainder();
        for part in parts {
            let values = part.iter().flat_map(&values);
            execute(connection, sql, params_from_iter(values))?;
        }
    }
    Ok(())
}

/// Runs a cached statement; how many rows it changed.
pub(super) fn execute(
    connection: &Connection,
    sql: &str,
    params: impl Params,
) -> Result<usize, Fault> {
    Held::of(connection, sql)?.execute(params)
}
