//! Columns to values of the domain, and back.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use domain::batch::BatchSettings;
use domain::ids::{AttemptId, PermitNumber};
use domain::policy::LimitSettings;
use domain::time::Timestamp;
use engine::ports::StoreError;

use super::failure::Failure;

/// A word of a closed set, or an error that names its place.
pub(super) fn word<T: FromStr>(
    table: &'static str,
    column: &'static str,
    row: impl Display,
    text: &str,
) -> Result<T, Failure>
where
    T::Err: Display,
{
    text.parse().map_err(|error: T::Err| {
        Failure::Corrupt(StoreError::Corrupt {
            table,
            column,
            row: row.to_string(),
            problem: error.to_string(),
        })
    })
}

/// A count, saturating; negative is none.
pub(super) fn count(number: i64) -> u32 {
    u32::try_from(number.max(0)).unwrap_or(u32::MAX)
}

/// A number for a column of type integer, saturating.
pub(super) fn integer(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// How old events may become; `None` for any age.
pub(super) fn age(ms: Option<i64>) -> Option<Duration> {
    ms.map(|ms| Duration::from_millis(ms.unsigned_abs()))
}

/// A time that may be absent.
pub(super) fn time(micros: Option<i64>) -> Option<Timestamp> {
    micros.map(Timestamp::from_micros)
}

/// The columns of limits: `array[per second, minute, hour, day, burst, max_in_flight,
/// allowed_per_minute]`, the last of destinations alone, and those that are no integers.
pub(super) struct LimitColumns<'a> {
    pub(super) table: &'static str,
    pub(super) row: &'a dyn Display,
    pub(super) numbers: &'a [Option<i32>],
    pub(super) unlimited: bool,
    pub(super) shape: Option<&'a str>,
    pub(super) safety_margin: Option<f64>,
    pub(super) margin_cap: Option<f64>,
    pub(super) count: Option<&'a str>,
}

impl LimitColumns<'_> {
    pub(super) fn settings(&self) -> Result<LimitSettings, Failure> {
        let number = |index: usize| {
            let number = self.numbers.get(index).copied().flatten();
            number.map(|number| count(i64::from(number)))
        };
        let shape = (self.shape)
            .map(|shape| word(self.table, "shape", self.row, shape))
            .transpose()?;
        let count = (self.count)
            .map(|count| word(self.table, "count", self.row, count))
            .transpose()?;
        Ok(LimitSettings {
            per_second: number(0),
            per_minute: number(1),
            per_hour: number(2),
            per_day: number(3),
            unlimited: self.unlimited,
            burst: number(4),
            shape,
            max_in_flight: number(5),
            safety_margin: self.safety_margin,
            margin_cap: self.margin_cap,
            count,
            allowed_per_minute: number(6),
        })
    }
}

/// The columns of batches: `array[events, bytes, wait in ms]`.
pub(super) fn batch_settings(columns: &[Option<i32>]) -> BatchSettings {
    let number = |index: usize| {
        let number = columns.get(index).copied().flatten();
        number.map(|number| count(i64::from(number)))
    };
    BatchSettings {
        max_events: number(0),
        max_bytes: number(1),
        max_wait_ms: number(2),
    }
}

/// Attempts and the numbers of their permits, as two parallel arrays.
pub(super) fn keys(keys: impl Iterator<Item = (AttemptId, PermitNumber)>) -> (Vec<i64>, Vec<i64>) {
    keys.map(|(attempt, number)| (attempt.0, number.0)).unzip()
}
