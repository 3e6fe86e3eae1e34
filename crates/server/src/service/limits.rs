//! Changing limits: what was named, on top of what is.

use domain::limit::{Count, Shape};
use domain::policy::LimitSettings;

use super::ServiceError;

/// The outer `None` leaves a setting as it is; the inner clears it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LimitsChange {
    pub per_second: Option<Option<u32>>,
    pub per_minute: Option<Option<u32>>,
    pub per_hour: Option<Option<u32>>,
    pub per_day: Option<Option<u32>>,
    pub unlimited: Option<bool>,
    pub burst: Option<Option<u32>>,
    pub shape: Option<Option<Shape>>,
    pub max_in_flight: Option<Option<u32>>,
    pub safety_margin: Option<Option<f64>>,
    pub margin_cap: Option<Option<f64>>,
    pub count: Option<Option<Count>>,
}

impl LimitsChange {
    /// Clears all four limits, so that the tier's hold.
    pub const INHERIT: Self = Self {
        per_second: Some(None),
        per_minute: Some(None),
        per_hour: Some(None),
        per_day: Some(None),
        unlimited: None,
        burst: None,
        shape: None,
        max_in_flight: None,
        safety_margin: None,
        margin_cap: None,
        count: None,
    };

    /// Nothing is changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The settings after the change. `unlimited` and a limit exclude each
    /// other, so naming one takes the other back, unless both are named: then
    /// it is a contradiction, which `validate` refuses.
    #[must_use]
    pub fn applied_to(&self, now: LimitSettings) -> LimitSettings {
        let periods = [
            self.per_second,
            self.per_minute,
            self.per_hour,
            self.per_day,
        ];
        let limits_set = periods.iter().any(|limit| matches!(limit, Some(Some(_))));
        let unlimited = self.unlimited.unwrap_or(now.unlimited && !limits_set);
        let lifted = self.unlimited == Some(true);
        let limit = |change: Option<Option<u32>>, now: Option<u32>| match change {
            Some(limit) => limit,
            None if lifted => None,
            None => now,
        };
        LimitSettings {
            per_second: limit(self.per_second, now.per_second),
            per_minute: limit(self.per_minute, now.per_minute),
            per_hour: limit(self.per_hour, now.per_hour),
            per_day: limit(self.per_day, now.per_day),
            unlimited,
            burst: self.burst.unwrap_or(now.burst),
            shape: self.shape.unwrap_or(now.shape),
            max_in_flight: self.max_in_flight.unwrap_or(now.max_in_flight),
            safety_margin: self.safety_margin.unwrap_or(now.safety_margin),
            margin_cap: self.margin_cap.unwrap_or(now.margin_cap),
            count: self.count.unwrap_or(now.count),
            allowed_per_minute: now.allowed_per_minute,
        }
    }
}

/// Refuses nonsense by the name it has in JSON.
pub(super) fn validate(limits: &LimitSettings) -> Result<(), ServiceError> {
    limits
        .validate()
        .map_err(|invalid| ServiceError::invalid(json_field(invalid.field), invalid.problem))
}

/// `limit_per_second`, a column, is `limits.per_second` in JSON; the others are
/// named alike.
pub(super) fn json_field(column: &str) -> String {
    match column.strip_prefix("limit_") {
        Some(period) => format!("limits.{period}"),
        None => column.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEN: LimitSettings = LimitSettings {
        per_second: Some(10),
        per_minute: Some(200),
        per_hour: None,
        per_day: None,
        unlimited: false,
        burst: Some(3),
        shape: None,
        max_in_flight: None,
        safety_margin: None,
        margin_cap: None,
        count: None,
        allowed_per_minute: None,
    };

    #[test]
    fn what_is_absent_stays_and_null_clears() {
        let change = LimitsChange {
            per_second: Some(None),
            burst: Some(None),
            ..LimitsChange::default()
        };
        let after = change.applied_to(TEN);
        assert_eq!(
            (after.per_second, after.per_minute, after.burst),
            (None, Some(200), None)
        );
        assert_eq!(LimitsChange::default().applied_to(TEN), TEN);
        assert!(LimitsChange::INHERIT.applied_to(TEN).inherits());
    }

    #[test]
    fn unlimited_and_limits_take_each_other_back_unless_both_are_named() {
        let lift = LimitsChange {
            unlimited: Some(true),
            ..LimitsChange::default()
        };
        let lifted = lift.applied_to(TEN);
        assert_eq!(
            (lifted.unlimited, lifted.per_second, lifted.per_minute),
            (true, None, None)
        );

        let five = LimitsChange {
            per_second: Some(Some(5)),
            ..LimitsChange::default()
        };
        let limited = five.applied_to(lifted);
        assert_eq!((limited.unlimited, limited.per_second), (false, Some(5)));

        let both = LimitsChange {
            unlimited: Some(true),
            ..five
        };
        assert_eq!(
            validate(&both.applied_to(TEN)).unwrap_err().to_string(),
            "unlimited: cannot stand beside a limit: leave one of them out"
        );
    }

    #[test]
    fn columns_are_named_as_in_json() {
        let huge = LimitSettings {
            per_hour: Some(u32::MAX),
            ..TEN
        };
        let error = validate(&huge).unwrap_err();
        assert_eq!(
            error,
            ServiceError::invalid("limits.per_hour", "must be at most 1000000000")
        );
    }
}
