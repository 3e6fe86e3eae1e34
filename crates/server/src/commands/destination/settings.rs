//! A destination's settings as flags, as JSON and in words.

use std::str::FromStr;

use clap::{ArgAction, Args};
use domain::handshake::Handshake;
use domain::limit::{Count, Period, Shape};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};

use super::credentials::Credentials;
use crate::api::destinations::Destination;
use crate::api::limits::Limits;

/// The settings that `create` and `update` have in common.
#[derive(Debug, Clone, Args)]
pub struct Settings {
    /// A name, for people.
    #[arg(long, value_name = "TEXT")]
    pub name: Option<String>,

    /// What you call it in your own books.
    #[arg(long, value_name = "ID")]
    pub external_id: Option<String>,

    /// A type of events to subscribe to; `order.*` is all below one, `*` all. Repeatable:
    /// all of them, or `none`.
    #[arg(long = "type", alias = "event-type", value_name = "TYPE")]
    pub event_types: Vec<String>,

    /// Which events of these types to take, by their payloads: `{"/region": "eu"}`;
    /// `@FILE` reads it from a file, `none` for all.
    #[arg(long, value_name = "JSON")]
    pub filter: Option<Filter>,

    #[command(flatten)]
    pub limits: RateLimits,

    /// Attempts queued and in flight at once.
    #[arg(long, value_name = "N")]
    pub max_in_flight: Option<Setting>,

    /// By which part every period is stretched: 0.02 makes a second 1.02 s. `none` to
    /// measure it.
    #[arg(long, value_name = "PART")]
    pub safety_margin: Option<Setting<f64>>,

    /// The largest margin that is measured, as a part of the period. `none` for 0.01.
    #[arg(long, value_name = "PART")]
    pub margin_cap: Option<Setting<f64>>,

    /// Until when a request counts: `start`, or `response`, the end of its answer, for
    /// receivers that must never see more, however long requests are on their way.
    #[arg(long, value_name = "WHAT")]
    pub count: Option<Count>,

    /// Tell the receiver which trace a request belongs to, by the header
    /// traceparent.
    #[arg(long, value_name = "BOOL", action = ArgAction::Set)]
    #[arg(default_missing_value = "true", num_args = 0..=1, require_equals = true)]
    pub pass_traceparent: Option<bool>,

    /// Whether its receiver is asked before anything is sent to it: `none`, or
    /// `cloud_events`.
    #[arg(long, value_name = "WHICH")]
    pub handshake: Option<Handshake>,

    /// The limit group that its starts count for as well; `none` takes it out.
    #[arg(long, value_name = "NAME")]
    pub limit_group: Option<String>,

    /// A header to add, such as `x-env: production`. Repeatable: all of them,
    /// or `none`.
    #[arg(long = "header", value_name = "NAME: VALUE")]
    pub headers: Vec<Header>,

    #[command(flatten)]
    pub credentials: Credentials,
}

/// How many starts, and how they are spread: of a destination or a tier.
#[derive(Debug, Clone, Args)]
pub struct RateLimits {
    /// At most so many starts in any second; 0 pauses, `none` clears.
    #[arg(long, value_name = "N")]
    pub per_second: Option<Setting>,

    /// At most so many starts in any minute.
    #[arg(long, value_name = "N")]
    pub per_minute: Option<Setting>,

    /// At most so many starts in any hour.
    #[arg(long, value_name = "N")]
    pub per_hour: Option<Setting>,

    /// At most so many starts in any day.
    #[arg(long, value_name = "N")]
    pub per_day: Option<Setting>,

    /// No rate limit; --max-in-flight still holds.
    #[arg(long)]
    pub unlimited: bool,

    /// A bucket's capacity, or how many of a window may start at once.
    #[arg(long, value_name = "N")]
    pub burst: Option<Setting>,

    /// sliding_window, token_bucket or leaky_bucket.
    #[arg(long, value_name = "SHAPE")]
    pub shape: Option<Shape>,
}

impl RateLimits {
    /// Their fields in a body of the API, and what is set of them.
    pub(in crate::commands) fn fields(&self) -> [(&'static str, Option<Value>); 4] {
        let periods = [
            ("per_second", number(self.per_second)),
            ("per_minute", number(self.per_minute)),
            ("per_hour", number(self.per_hour)),
            ("per_day", number(self.per_day)),
        ];
        let periods = object(periods);
        [
            ("limits", (!periods.is_empty()).then(|| periods.into())),
            ("unlimited", self.unlimited.then_some(true.into())),
            ("burst", number(self.burst)),
            ("shape", self.shape.map(|shape| shape.as_str().into())),
        ]
    }
}

/// A number as JSON, `null` for `none`.
pub(in crate::commands) fn number<T>(setting: Option<Setting<T>>) -> Option<Value>
where
    Option<T>: Into<Value>,
{
    setting.map(|Setting(number)| number.into())
}

/// A body of the fields that are set.
pub(in crate::commands) fn object(
    fields: impl IntoIterator<Item = (&'static str, Option<Value>)>,
) -> Map<String, Value> {
    let set = fields.into_iter();
    set.filter_map(|(field, value)| Some((field.to_owned(), value?)))
        .collect()
}

/// The word that clears.
pub(super) const NONE: &str = "none";

/// A header to add, or `none`.
#[derive(Clone)]
pub struct Header(Option<(String, SecretString)>);

impl FromStr for Header {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text == NONE {
            return Ok(Self(None));
        }
        match text.split_once(':') {
            Some((name, value)) => Ok(Self(Some((name.to_owned(), value.trim().into())))),
            None => Err("expected NAME: VALUE, or none".to_owned()),
        }
    }
}

impl std::fmt::Debug for Header {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.0.as_ref().map(|(name, _)| name);
        f.debug_tuple("Header").field(&name).finish()
    }
}

/// A filter as JSON, from the argument or a file; `null` for `none`. The server says what
/// is wrong in it.
#[derive(Debug, Clone)]
pub struct Filter(pub(super) Value);

impl FromStr for Filter {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text == NONE {
            return Ok(Self(Value::Null));
        }
        let read = match text.strip_prefix('@') {
            None => Ok(text.to_owned()),
            Some(file) => std::fs::read_to_string(file)
                .map_err(|problem| format!("cannot read {file}: {problem}")),
        };
        match serde_json::from_str(&read?) {
            Ok(Value::Object(filter)) => Ok(Self(filter.into())),
            Ok(_) => Err("expected a JSON object, @FILE or none".to_owned()),
            Err(problem) => Err(format!("expected JSON, @FILE or none: {problem}")),
        }
    }
}

/// A number, or `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting<T = u32>(pub Option<T>);

impl<T: FromStr> FromStr for Setting<T> {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text == NONE {
            return Ok(Self(None));
        }
        match text.parse() {
            Ok(number) => Ok(Self(Some(number))),
            Err(_) => Err("expected a number or none".to_owned()),
        }
    }
}

impl Settings {
    /// `--type none`.
    pub(super) fn clears_types(&self) -> bool {
        self.event_types.iter().any(|name| name == NONE)
    }

    /// What is set, as the API takes it; what is not is left out.
    #[must_use]
    pub fn json(&self) -> Map<String, Value> {
        let set = self.headers.iter().filter_map(|header| header.0.as_ref());
        let headers: Map<String, Value> = set
            .map(|(name, value)| (name.clone(), value.expose_secret().into()))
            .collect();
        let types = self.event_types.iter().filter(|name| *name != NONE);
        let types: Value = types.cloned().collect();
        let event_types = (!self.event_types.is_empty()).then_some(types);
        let own = [
            ("name", self.name.clone().map(Value::from)),
            ("external_id", self.external_id.clone().map(Value::from)),
            ("event_types", event_types),
            ("filter", self.filter.clone().map(|filter| filter.0)),
            ("max_in_flight", number(self.max_in_flight)),
            ("safety_margin", number(self.safety_margin)),
            ("margin_cap", number(self.margin_cap)),
            ("count", self.count.map(|count| count.as_str().into())),
            ("pass_traceparent", self.pass_traceparent.map(Value::from)),
            (
                "handshake",
                self.handshake.map(|which| which.as_str().into()),
            ),
            (
                "limit_group",
                (self.limit_group.as_deref()).map(|name| match name {
                    NONE => Value::Null,
                    name => name.into(),
                }),
            ),
            (
                "headers",
                (!self.headers.is_empty()).then(|| headers.into()),
            ),
        ];
        let own = own.into_iter().chain(self.credentials.fields());
        object(own.chain(self.limits.fields()))
    }
}

/// `10/second 200/minute token_bucket burst 50`, with the tier's in brackets.
pub(super) fn words(destination: &Destination) -> String {
    let effective = &destination.effective;
    let limits = &effective.limits;
    let words = phrase(limits, effective.shape, effective.burst);
    let own = &destination.limits;
    if own == limits || destination.unlimited {
        words
    } else {
        format!("({words})")
    }
}

/// `10/second 200/minute token_bucket burst 50`.
pub(in crate::commands) fn phrase(limits: &Limits, shape: Shape, burst: Option<u32>) -> String {
    let periods = [
        limits.per_second,
        limits.per_minute,
        limits.per_hour,
        limits.per_day,
    ];
    let mut words: Vec<String> = (Period::ALL.iter().zip(periods))
        .filter_map(|(period, max)| Some(format!("{}/{period}", max?)))
        .collect();
    if words.is_empty() {
        words.push("unlimited".to_owned());
    }
    if shape != Shape::default() {
        words.push(shape.as_str().to_owned());
    }
    if let Some(burst) = burst {
        words.push(format!("burst {burst}"));
    }
    words.join(" ")
}
