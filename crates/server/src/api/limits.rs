//! Limits in JSON: `{"limits":{"per_second":10},"burst":…,"shape":…,…}`.

use std::fmt;
use std::marker::PhantomData;

use domain::limit::Shape;
use domain::policy::LimitSettings;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use super::text;
use crate::service::LimitsChange;

/// Starts per period. All absent: the tier's limits. 0 pauses. One set: those
/// absent do not limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// At most so many starts in any second.
    #[serde(default)]
    pub per_second: Option<u32>,
    /// At most so many starts in any 60 seconds.
    #[serde(default)]
    pub per_minute: Option<u32>,
    /// At most so many starts in any 3,600 seconds.
    #[serde(default)]
    pub per_hour: Option<u32>,
    /// At most so many starts in any 86,400 seconds.
    #[serde(default)]
    pub per_day: Option<u32>,
}

impl Limits {
    pub(super) fn of(settings: &LimitSettings) -> Self {
        Self {
            per_second: settings.per_second,
            per_minute: settings.per_minute,
            per_hour: settings.per_hour,
            per_day: settings.per_day,
        }
    }

    /// Settings of these limits, and nothing else.
    pub(super) fn settings(self) -> LimitSettings {
        LimitSettings {
            per_second: self.per_second,
            per_minute: self.per_minute,
            per_hour: self.per_hour,
            per_day: self.per_day,
            ..LimitSettings::default()
        }
    }
}

/// Limits to change: what is absent stays, `null` clears.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitsPatch {
    /// At most so many starts in any second.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u32>)]
    pub per_second: Option<Option<u32>>,
    /// At most so many starts in any 60 seconds.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u32>)]
    pub per_minute: Option<Option<u32>>,
    /// At most so many starts in any 3,600 seconds.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u32>)]
    pub per_hour: Option<Option<u32>>,
    /// At most so many starts in any 86,400 seconds.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u32>)]
    pub per_day: Option<Option<u32>>,
}

/// What a body changes of the periods. `null` clears all four.
pub(super) fn periods(limits: Option<Option<LimitsPatch>>) -> LimitsChange {
    match limits {
        None => LimitsChange::default(),
        Some(None) => LimitsChange::INHERIT,
        Some(Some(patch)) => LimitsChange {
            per_second: patch.per_second,
            per_minute: patch.per_minute,
            per_hour: patch.per_hour,
            per_day: patch.per_day,
            ..LimitsChange::default()
        },
    }
}

/// What holds for a destination: its own settings, or the tier's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Effective {
    /// Starts per period; `null` does not limit.
    pub limits: Limits,
    /// No rate limit.
    pub unlimited: bool,
    /// A bucket's capacity, or how many of a window may start at once.
    pub burst: Option<u32>,
    /// How the limit spreads its starts.
    #[schema(schema_with = text::shape)]
    pub shape: Shape,
    /// Attempts queued and in flight at once.
    pub max_in_flight: u32,
    /// Starts in any 60 seconds that its receiver allows, beside those limits, by its
    /// handshake; 0 until it has allowed any. `null`: as many as those.
    pub allowed_per_minute: Option<u32>,
}

impl Effective {
    pub(super) fn of(settings: &LimitSettings) -> Self {
        Self {
            limits: Limits::of(settings),
            unlimited: settings.unlimited,
            burst: settings.burst,
            shape: settings.shape.unwrap_or_default(),
            max_in_flight: settings.policy().max_in_flight,
            allowed_per_minute: settings.allowed_per_minute,
        }
    }
}

/// Tells `null` from absent: a field that is there is `Some`, whatever it says.
pub(super) fn present<'de, T, D>(deserializer: D) -> Result<Option<Option<T>>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    Option::deserialize(deserializer).map(Some)
}

/// `null` is refused: nothing of this field can be cleared, and taking it for
/// absent would look like success.
pub(super) fn not_null<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    let value = Option::deserialize(deserializer)?;
    value
        .map(Some)
        .ok_or_else(|| D::Error::custom("must not be null; leave it out to keep it"))
}

/// An object, by its names only: serde would take an array for the fields in
/// their order.
pub(super) fn object<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    deserializer.deserialize_map(Object(PhantomData))
}

/// [`present`], of an [`object`].
pub(super) fn present_object<'de, T, D>(deserializer: D) -> Result<Option<Option<T>>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    #[derive(Deserialize)]
    #[serde(bound = "T: Deserialize<'de>", transparent)]
    struct Inner<T>(#[serde(deserialize_with = "object")] T);
    let inner: Option<Inner<T>> = Option::deserialize(deserializer)?;
    Ok(Some(inner.map(|inner| inner.0)))
}

struct Object<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}
