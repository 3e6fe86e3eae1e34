//! `paceline plan`: another limit, tried on what was recorded, over the API.

use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use domain::limit::{Period, Shape};
use http::Method;
use serde_json::{Map, Value};

use super::destination::settings::{Setting, number, object, phrase};
use super::destination::{Connection, PATH};
use super::named::Named;
use crate::api::limits::Effective;
use crate::api::plan::{Course, WhatIf};
use crate::client::Client;
use crate::output::{self, Format};
use crate::progress::{Measure, Progress};

#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Whose arrivals: an id or a name.
    #[arg(long, value_name = "ID")]
    pub destination: Named,

    /// The limit to try, such as 20/s, 1000/m, 5000/h, 100000/d; repeatable. All
    /// others are lifted.
    #[arg(long = "limit", value_name = "STARTS/PERIOD")]
    pub limits: Vec<ProposedLimit>,

    /// Try it without a rate limit.
    #[arg(long, conflicts_with = "limits")]
    pub unlimited: bool,

    /// A bucket's capacity, or how many of a window may start at once.
    #[arg(long, value_name = "N")]
    pub burst: Option<Setting>,

    /// sliding_window, token_bucket or leaky_bucket.
    #[arg(long, value_name = "SHAPE")]
    pub shape: Option<Shape>,

    /// Attempts queued and in flight at once.
    #[arg(long, value_name = "N")]
    pub max_in_flight: Option<Setting>,

    /// How much of the past to replay, such as 6h.
    #[arg(long, value_name = "DURATION", value_parser = crate::config::duration, default_value = "6h")]
    pub last: Duration,

    #[command(flatten)]
    pub connection: Connection,
}

/// `20/s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProposedLimit {
    pub max: u32,
    pub period: Period,
}

impl FromStr for ProposedLimit {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || "expected starts per period, such as 20/s, 1000/m, 5000/h".to_owned();
        let (max, period) = text.split_once('/').ok_or_else(expected)?;
        let period = match period {
            "s" | "second" => Period::Second,
            "m" | "min" | "minute" => Period::Minute,
            "h" | "hour" => Period::Hour,
            "d" | "day" => Period::Day,
            _ => return Err(expected()),
        };
        match max.parse() {
            Ok(max) => Ok(Self { max, period }),
            Err(_) => Err(expected()),
        }
    }
}

impl Args {
    /// What is asked of the API. A limit that is named is the only one: nobody
    /// wants to hear of another that still binds.
    #[must_use]
    pub fn json(&self) -> Map<String, Value> {
        let named = |period| {
            let found = self.limits.iter().rfind(|limit| limit.period == period);
            (period, found.map(|limit| limit.max))
        };
        let limits = Period::ALL.map(named).map(|(period, max)| {
            let field = format!("per_{period}");
            (field, max.map_or(Value::Null, Value::from))
        });
        let limits = (!self.limits.is_empty()).then(|| Map::from_iter(limits).into());
        let seconds = self.last.as_secs().max(1);
        object([
            ("limits", limits),
            ("unlimited", self.unlimited.then_some(true.into())),
            ("burst", number(self.burst)),
            ("shape", self.shape.map(|shape| shape.as_str().into())),
            ("max_in_flight", number(self.max_in_flight)),
            ("last_seconds", Some(seconds.into())),
        ])
    }
}

/// Asks for it and prints it.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let body = args.json();
    anyhow::ensure!(
        body.len() > 1,
        "nothing to try: name a limit, such as --limit 20/s, or --max-in-flight 50"
    );
    let client = Client::new(&args.connection.client)?;
    let id = args.destination.destination(&client).await?;
    let path = format!("{PATH}/{id}/plan");
    let progress = Progress::begin(
        "replaying what was recorded",
        Measure::Unknown,
        args.connection.output,
    );
    let found: WhatIf = client.send(Method::POST, &path, &body).await?;
    drop(progress);
    match args.connection.output {
        Format::Json => output::json(&found)?,
        Format::Table => output::line(&words(&found))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn words(found: &WhatIf) -> String {
    let limit = |limit: &Effective| phrase(&limit.limits, limit.shape, limit.burst);
    let row = |name: &str, of: &dyn Fn(&Course) -> String| {
        vec![name.to_owned(), of(&found.actual), of(&found.replayed)]
    };
    let seconds = |value: Option<f64>| output::or_dash(value.map(duration));
    let mut rows = vec![
        vec![
            "limit".to_owned(),
            limit(&found.current),
            limit(&found.proposed),
        ],
        vec![
            "max in flight".to_owned(),
            found.current.max_in_flight.to_string(),
            found.proposed.max_in_flight.to_string(),
        ],
        row("starts", &|course| course.starts.to_string()),
        row("still waiting", &|course| course.waiting.to_string()),
        row("wait p50", &|course| seconds(course.wait_p50_seconds)),
        row("wait p99", &|course| seconds(course.wait_p99_seconds)),
        row("peak backlog", &|course| course.peak_backlog.to_string()),
        row("peak at", &|course| {
            output::or_dash(course.peak_at.as_ref())
        }),
        row("busiest second", &|course| {
            course.busiest_second.to_string()
        }),
    ];
    rows.push(vec![
        "answered 429".to_owned(),
        found.refused.to_string(),
        match found.expected_refused {
            Some(refused) => format!("{refused} expected"),
            None => "not known".to_owned(),
        },
    ]);
    rows.push(vec![
        "drained".to_owned(),
        String::new(),
        match found.drains_in_seconds {
            Some(0.0) => "by then".to_owned(),
            Some(drain) => format!("{} later", duration(drain)),
            None => "never".to_owned(),
        },
    ]);
    let header = ["", "WAS", "WOULD BE"];
    let table = output::table(&header, rows);
    let (since, until) = (&found.since, &found.until);
    let mut text = format!("{table}\n{since} to {until}");
    if found.backlog > 0 {
        let drains = match found.backlog_drains_in_seconds {
            Some(drain) => format!("would drain in {}", duration(drain)),
            None => match &found.backlog_drain_unknown {
                Some(why) => format!("would take nobody knows how long: {why}"),
                None => "would take nobody knows how long".to_owned(),
            },
        };
        text.push_str(&format!("\n{} that wait now {drains}", found.backlog));
    }
    if found.expected_refused.is_none() {
        text.push_str("\n429s are not known: the receiver was never sent so many in a second");
    }
    text
}

/// `1h 2m 5s`, or `0.25s`.
pub(super) fn duration(seconds: f64) -> String {
    if seconds < 10.0 {
        return format!("{}s", (seconds * 100.0).round() / 100.0);
    }
    humantime::format_duration(Duration::from_secs(seconds.round() as u64)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_starts_and_a_period() {
        let limit = |text: &str| text.parse::<ProposedLimit>();
        let parsed = |max, period| Ok(ProposedLimit { max, period });
        assert_eq!(limit("20/s"), parsed(20, Period::Second));
        assert_eq!(limit("7/day"), parsed(7, Period::Day));
        for wrong in ["20", "x/s", "20/w", "-1/s", "20/"] {
            assert!(limit(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations_are_short() {
        assert_eq!(duration(0.254), "0.25s");
        assert_eq!(duration(3_725.4), "1h 2m 5s");
    }
}
