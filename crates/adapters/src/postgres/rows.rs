//! Columns to values of the domain, and back.

use std::collections::HashMap;
use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use domain::ids::{AttemptId, DestinationId, PermitNumber};
use domain::policy::LimitSettings;
use domain::time::Timestamp;
use engine::ports::StoreError;
use engine::ports::Wake;

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

/// A time that may be absent.
pub(super) fn time(micros: Option<i64>) -> Option<Timestamp> {
    micros.map(Timestamp::from_micros)
}

/// The columns of limits: `array[per second, minute, hour, day, burst,
/// max_in_flight]`, and the three that are no integers.
pub(super) struct LimitColumns<'a> {
    pub(super) table: &'static str,
    pub(super) row: &'a dyn Display,
    pub(super) numbers: &'a [Option<i32>],
    pub(super) unlimited: bool,
    pub(super) shape: Option<&'a str>,
    pub(super) safety_margin: f64,
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
        })
    }
}

/// Attempts and the numbers of their permits, as two parallel arrays.
pub(super) fn keys(keys: impl Iterator<Item = (AttemptId, PermitNumber)>) -> (Vec<i64>, Vec<i64>) {
    keys.map(|(attempt, number)| (attempt.0, number.0)).unzip()
}

/// Wakes, one for each destination: the earliest that was asked for.
#[derive(Default)]
pub(super) struct Wakes(HashMap<DestinationId, Duration>);

impl Wakes {
    pub(super) fn add(&mut self, destination: DestinationId, after: Duration) {
        self.0
            .entry(destination)
            .and_modify(|earliest| *earliest = after.min(*earliest))
            .or_insert(after);
    }

    pub(super) fn into_vec(self) -> Vec<Wake> {
        let mut wakes: Vec<Wake> = (self.0.into_iter())
            .map(|(destination, after)| Wake::after(destination, after))
            .collect();
        wakes.sort_unstable_by_key(|wake| wake.destination);
        wakes
    }
}
