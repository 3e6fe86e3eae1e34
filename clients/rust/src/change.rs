//! The three things that a `PATCH` can do to a field.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What becomes of a field that can be cleared. An `Option` could not tell a field
/// that stays from one that is cleared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Change<T> {
    /// It stays as it is, and is not in the request.
    #[default]
    Keep,
    /// It is cleared: `null`.
    Clear,
    /// It is set.
    Set(T),
}

impl<T> Change<T> {
    /// Whether it stays as it is.
    pub fn is_keep(&self) -> bool {
        matches!(self, Self::Keep)
    }
}

impl<T> From<T> for Change<T> {
    fn from(value: T) -> Self {
        Self::Set(value)
    }
}

impl<T: Serialize> Serialize for Change<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Set(value) => serializer.serialize_some(value),
            // A field that stays is left out before anybody asks what it looks like.
            Self::Keep | Self::Clear => serializer.serialize_none(),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Change<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Option::deserialize(deserializer)?;
        Ok(value.map_or(Self::Clear, Self::Set))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{ChangeDestination, LimitsPatch};

    #[test]
    fn what_stays_is_left_out_and_what_is_cleared_is_null() {
        let mut limits = LimitsPatch::default();
        limits.per_second = 50.into();
        limits.per_day = Change::Clear;
        let mut change = ChangeDestination::default();
        change.limits = limits.into();
        change.burst = Change::Clear;
        change.name = Some("shop".to_owned());
        let said = serde_json::to_value(&change).expect("it is plain data");
        let expected = serde_json::json!({
            "name": "shop",
            "burst": null,
            "limits": {"per_second": 50, "per_day": null},
        });
        assert_eq!(said, expected);
        let read: ChangeDestination = serde_json::from_value(said).expect("it is the same type");
        assert_eq!(read, change);
    }
}
