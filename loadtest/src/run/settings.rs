//! What a run is: its traffic, its destinations and their limits.

use std::fmt;
use std::str::FromStr;

use anyhow::ensure;
use clap::ValueEnum;
use domain::limit::Period;
use domain::policy::LimitSettings;
use serde::{Deserialize, Serialize};

/// The most events of a run: each is kept in memory, with its times.
pub(crate) const MAX_EVENTS: u64 = 20_000_000;

/// How the events are spread over time and destinations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Shape {
    /// An even rate, to each destination in turn.
    Constant,
    /// The same rate on average, each event by itself.
    Poisson,
    /// A constant rate and, each minute, so many events in 30 s.
    Burst,
    /// A constant rate and, at the beginning, so many events at once.
    Import,
    /// The events of five seconds at once, every five seconds.
    Waves,
    /// A rate that rises tenfold and falls again.
    FlashSale,
    /// One tenant that hands in nine of ten events, among quiet ones.
    NoisyTenant,
    /// A constant rate to receivers that fail now and then.
    Failing,
    /// A constant rate, and some receivers that take their time.
    Slow,
    /// A constant rate, and half-way another limit.
    LimitChange,
    /// A constant rate, and half-way one more scheduler and worker.
    ScaleOut,
}

/// Which Paceline is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Size {
    /// One process over a SQLite file.
    Embedded,
    /// Processes over Postgres, Redis and RabbitMQ.
    Distributed,
}

impl Size {
    /// As the command line and reports call it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Distributed => "distributed",
        }
    }
}

/// How events are handed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Ingest {
    /// One in each request; what comes at once in bulk.
    Auto,
    /// One in each request.
    Single,
    /// What is due, up to 1,000 in a request.
    Batch,
    /// What is due, up to 50,000 in a request.
    Bulk,
}

/// Everything that decides the traffic.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) shape: Shape,
    /// Events a second, all destinations together.
    pub(crate) rate: Rate,
    pub(crate) seconds: u32,
    pub(crate) destinations: u32,
    /// Destinations that a burst, an import, a flash sale or a noisy tenant is
    /// for, or that are slow: the first ones.
    pub(crate) hot: u32,
    /// Events of a burst or an import.
    pub(crate) events: u32,
    pub(crate) limit: Limit,
    /// The limit from half-way on.
    pub(crate) limit_then: Option<Limit>,
    /// Requests in flight to each destination; what Paceline gives one without it.
    #[serde(default)]
    pub(crate) max_in_flight: Option<u32>,
    /// By which part each period is planned longer; it is measured without it.
    #[serde(default)]
    pub(crate) safety_margin: Option<f64>,
    pub(crate) payload_bytes: u32,
    pub(crate) ingest: Ingest,
    pub(crate) seed: u64,
}

impl Settings {
    /// Refuses what makes no sense together.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        ensure!(
            (1..=self.destinations).contains(&self.hot),
            "--hot must be between 1 and --destinations"
        );
        let many = f64::from(self.seconds) * self.rate.0 * 10.0 + f64::from(self.events);
        ensure!(
            many <= MAX_EVENTS as f64 * 10.0,
            "more than {MAX_EVENTS} events"
        );
        let quiet = self.shape == Shape::NoisyTenant && self.hot == self.destinations;
        ensure!(!quiet, "a noisy tenant needs quiet ones: lower --hot");
        let change = self.shape == Shape::LimitChange;
        ensure!(
            !change || self.then().is_some(),
            "limit-change needs --limit, or --limit-then"
        );
        let rate = self.rate.0 > 0.0 || matches!(self.shape, Shape::Burst | Shape::Import);
        ensure!(rate, "--rate 0 leaves nothing to send");
        Ok(())
    }

    /// The limit from half-way on: half of the first, if none is given.
    pub(crate) fn then(&self) -> Option<Limit> {
        self.limit_then.or(match self.limit {
            Limit::Unlimited => None,
            Limit::Per(max, period) => Some(Limit::Per((max / 2).max(1), period)),
        })
    }

    /// How many tenants the destinations belong to: the noisy one has the hot
    /// ones, another one the rest.
    pub(crate) fn tenants(&self) -> u16 {
        if self.shape == Shape::NoisyTenant {
            2
        } else {
            1
        }
    }

    /// Whose a destination is.
    pub(crate) fn tenant_of(&self, destination: u32) -> u16 {
        u16::from(self.tenants() > 1 && destination >= self.hot)
    }
}

/// Events a second, as `200` or `200/s`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Rate(pub(crate) f64);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.strip_suffix("/s").unwrap_or(text);
        let rate: f64 = number.parse().or(Err(format!("{text}: expected 200/s")))?;
        if !(0.0..=1_000_000.0).contains(&rate) {
            return Err(format!("{text}: must be between 0 and 1,000,000 a second"));
        }
        Ok(Self(rate))
    }
}

/// A destination's limit, as `10/s`, `600/min`, `5/h`, `5/d` or `unlimited`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) enum Limit {
    Unlimited,
    Per(u32, Period),
}

/// What periods are called.
const PERIODS: [(&str, Period); 4] = [
    ("s", Period::Second),
    ("min", Period::Minute),
    ("h", Period::Hour),
    ("d", Period::Day),
];

impl Limit {
    /// The settings of a destination with it.
    pub(crate) fn settings(self) -> LimitSettings {
        let mut settings = LimitSettings::default();
        match self {
            Self::Unlimited => settings.unlimited = true,
            Self::Per(max, Period::Second) => settings.per_second = Some(max),
            Self::Per(max, Period::Minute) => settings.per_minute = Some(max),
            Self::Per(max, Period::Hour) => settings.per_hour = Some(max),
            Self::Per(max, Period::Day) => settings.per_day = Some(max),
        }
        settings
    }

    /// The fields of the API's JSON.
    pub(crate) fn fields(self) -> serde_json::Value {
        let Self::Per(max, period) = self else {
            return serde_json::json!({"unlimited": true});
        };
        let name = match period {
            Period::Second => "per_second",
            Period::Minute => "per_minute",
            Period::Hour => "per_hour",
            Period::Day => "per_day",
        };
        serde_json::json!({"limits": {name: max}})
    }
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "unlimited" {
            return Ok(Self::Unlimited);
        }
        let expected = || format!("{text}: expected 10/s, 600/min, 5/h, 5/d or unlimited");
        let (max, unit) = text.split_once('/').ok_or_else(expected)?;
        let max: u32 = max.parse().or(Err(expected()))?;
        let period = PERIODS.iter().find(|(name, _)| *name == unit);
        match (max, period) {
            (1.., Some((_, period))) => Ok(Self::Per(max, *period)),
            _ => Err(expected()),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Per(max, period) = self else {
            return f.write_str("unlimited");
        };
        let unit = PERIODS.iter().find(|(_, named)| named == period);
        write!(f, "{max}/{}", unit.map_or("s", |(unit, _)| unit))
    }
}

impl TryFrom<String> for Limit {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Limit> for String {
    fn from(limit: Limit) -> Self {
        limit.to_string()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Settings that tests begin with.
    pub(crate) fn settings(shape: Shape) -> Settings {
        Settings {
            shape,
            rate: Rate(100.0),
            seconds: 60,
            destinations: 20,
            hot: 1,
            events: 10_000,
            limit: Limit::Unlimited,
            limit_then: None,
            max_in_flight: None,
            safety_margin: None,
            payload_bytes: 1_024,
            ingest: Ingest::Auto,
            seed: 1,
        }
    }

    #[test]
    fn rates_and_limits_are_read_as_they_are_written() {
        assert_eq!("2.5/s".parse(), Ok(Rate(2.5)));
        assert_eq!("15000".parse(), Ok(Rate(15_000.0)));
        assert!("-1/s".parse::<Rate>().is_err());
        assert!("NaN".parse::<Rate>().is_err());
        for text in ["unlimited", "10/s", "600/min", "5/h", "7/d"] {
            assert_eq!(text.parse::<Limit>().unwrap().to_string(), text);
        }
        for text in ["", "10", "0/s", "10/ms", "-1/s", "x/s"] {
            assert!(text.parse::<Limit>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert!(settings(Shape::Constant).check().is_ok());
        let hot = |shape, hot| Settings {
            hot,
            ..settings(shape)
        };
        assert!(hot(Shape::Constant, 0).check().is_err());
        assert!(hot(Shape::Constant, 21).check().is_err());
        assert!(hot(Shape::NoisyTenant, 20).check().is_err());
        assert!(settings(Shape::LimitChange).check().is_err());
        let limited = Settings {
            limit: Limit::Per(9, Period::Second),
            ..settings(Shape::LimitChange)
        };
        assert_eq!(limited.then(), Some(Limit::Per(4, Period::Second)));
        assert!(limited.check().is_ok());
        let silent = Settings {
            rate: Rate(0.0),
            ..settings(Shape::Constant)
        };
        assert!(silent.check().is_err());
    }

    #[test]
    fn the_noisy_tenant_has_the_hot_destinations() {
        let noisy = settings(Shape::NoisyTenant);
        assert_eq!([0, 1, 19].map(|number| noisy.tenant_of(number)), [0, 1, 1]);
        assert_eq!(settings(Shape::Poisson).tenant_of(19), 0);
    }
}
