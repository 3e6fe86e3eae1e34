//! The most that a tenant may set for its destinations by itself.

use std::collections::BTreeMap;
use std::time::Duration;

use uuid::Uuid;

use crate::batch::{BatchSettings, MAX_BYTES};
use crate::limit::{MAX_LIMIT, Shape};
use crate::policy::LimitSettings;

/// What a tier lets its tenants set. A limit that a destination inherits is the tier's own
/// and is not compared; `None` bounds nothing.
///
/// It bounds settings, by whatever way they are made, and not what is in force: limits that
/// were set before it was lowered stay until they are changed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Ceiling {
    /// Starts per second in the long run.
    pub per_second: Option<f64>,
    /// How many may start at one instant: 864,000 a day are ten a second, and could all be
    /// sent in one.
    pub at_once: Option<u32>,
    /// Attempts queued and in flight at once.
    pub max_in_flight: Option<u32>,
    /// Events in one request, where several go together.
    pub batch_events: Option<u32>,
    /// Bytes of their payloads.
    pub batch_bytes: Option<u32>,
    /// How old an event may become before it starts, in seconds. Unlike the others it is in
    /// force where nothing is set; see [`Self::age_in_force`].
    pub age_seconds: Option<u32>,
}

/// The largest [`Ceiling::age_seconds`]: as old as an event may be allowed to become at all.
pub const MAX_AGE_SECONDS: u32 = 30 * 86_400;

/// Who sets limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setter {
    /// Whoever operates the installation: only what a tier says bounds them.
    Operator,
    /// A tenant, for itself: what its tier gives bounds it where the tier says nothing.
    Tenant,
}

/// What is above a ceiling.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum Excess {
    /// More in the long run.
    #[error("{} is above the ceiling of {most} a second", rate(*wanted))]
    PerSecond {
        /// What was to be set.
        wanted: f64,
        /// What the ceiling allows.
        most: f64,
    },
    /// More at one instant.
    #[error("{} is above the ceiling of {most} at once", at_once(*wanted))]
    AtOnce {
        /// What was to be set.
        wanted: u32,
        /// What the ceiling allows.
        most: u32,
    },
    /// More in flight.
    #[error("{wanted} in flight is above the ceiling of {most}")]
    InFlight {
        /// What was to be set.
        wanted: u32,
        /// What the ceiling allows.
        most: u32,
    },
    /// More events in one request.
    #[error("{wanted} events in one request are above the ceiling of {most}")]
    BatchEvents {
        /// What was to be set.
        wanted: u32,
        /// What the ceiling allows.
        most: u32,
    },
    /// More bytes in one request.
    #[error("{wanted} bytes in one request are above the ceiling of {most}")]
    BatchBytes {
        /// What was to be set, or holds where nothing is.
        wanted: u32,
        /// What the ceiling allows.
        most: u32,
    },
    /// Older events.
    #[error("{} ms are above the ceiling of {} ms", wanted.as_millis(), most.as_millis())]
    Age {
        /// What was to be set.
        wanted: Duration,
        /// What the ceiling allows.
        most: Duration,
    },
}

/// What counts as no limit at all: the largest that one can be.
const ANY: &str = "no rate limit";

fn rate(wanted: f64) -> String {
    match wanted >= f64::from(MAX_LIMIT) {
        true => ANY.to_owned(),
        false => format!("{wanted} a second"),
    }
}

fn at_once(wanted: u32) -> String {
    match wanted {
        MAX_LIMIT.. => ANY.to_owned(),
        _ => format!("{wanted} at once"),
    }
}

impl Ceiling {
    /// What these settings allow, as a ceiling for others.
    #[must_use]
    pub fn of(settings: &LimitSettings) -> Self {
        Self {
            per_second: Some(per_second(settings)),
            at_once: Some(starts_at_once(settings)),
            max_in_flight: Some(settings.policy().max_in_flight),
            ..Self::default()
        }
    }

    /// What a destination needs to be granted for these settings of its own.
    #[must_use]
    pub fn of_own(settings: &LimitSettings) -> Self {
        let rate = match settings.inherits() {
            true => Self::default(),
            false => Self::of(settings),
        };
        Self {
            max_in_flight: settings.max_in_flight,
            ..rate
        }
    }

    /// The same, and batches so large.
    #[must_use]
    pub const fn with_batches(self, batches: LargerBatches) -> Self {
        Self {
            batch_events: batches.events,
            batch_bytes: batches.bytes,
            ..self
        }
    }

    /// Whether it bounds limits at all, and not batches alone.
    const fn is_of_limits(&self) -> bool {
        self.per_second.is_some() || self.at_once.is_some() || self.max_in_flight.is_some()
    }

    /// The same for what a tenant sets itself: where this bounds no limits, what its tier
    /// gives does, and what goes beyond that.
    #[must_use]
    pub fn or_of_tier(self, tier: &LimitSettings, beyond: &[Self]) -> Self {
        if self.is_of_limits() {
            return self;
        }
        let beyond = beyond.iter().copied();
        Self {
            batch_events: self.batch_events,
            batch_bytes: self.batch_bytes,
            age_seconds: self.age_seconds,
            ..beyond.fold(Self::of(tier), Self::raised_to)
        }
    }

    /// This one, and beyond it what was granted.
    #[must_use]
    pub fn raised_to(self, granted: Self) -> Self {
        Self {
            per_second: higher(self.per_second, granted.per_second),
            at_once: higher(self.at_once, granted.at_once),
            max_in_flight: higher(self.max_in_flight, granted.max_in_flight),
            batch_events: higher(self.batch_events, granted.batch_events),
            batch_bytes: higher(self.batch_bytes, granted.batch_bytes),
            age_seconds: higher(self.age_seconds, granted.age_seconds),
        }
    }

    /// Refuses a destination's own settings that allow more. The stores' triggers say the
    /// same.
    pub fn check(&self, own: &LimitSettings) -> Result<(), Excess> {
        if !own.inherits() {
            let wanted = per_second(own);
            if let Some(most) = self.per_second.filter(|most| wanted > *most) {
                return Err(Excess::PerSecond { wanted, most });
            }
            let wanted = starts_at_once(own);
            if let Some(most) = self.at_once.filter(|most| wanted > *most) {
                return Err(Excess::AtOnce { wanted, most });
            }
        }
        match (own.max_in_flight, self.max_in_flight) {
            (Some(wanted), Some(most)) if wanted > most => Err(Excess::InFlight { wanted, most }),
            _ => Ok(()),
        }
    }

    /// The same of batches. Where no number of bytes is set the largest holds, so a ceiling
    /// of bytes wants one said.
    pub fn check_batches(&self, batches: &BatchSettings) -> Result<(), Excess> {
        let Some(wanted) = batches.max_events else {
            return Ok(());
        };
        if let Some(most) = self.batch_events.filter(|most| wanted > *most) {
            return Err(Excess::BatchEvents { wanted, most });
        }
        let wanted = batches.max_bytes.unwrap_or(MAX_BYTES);
        match self.batch_bytes.filter(|most| wanted > *most) {
            Some(most) => Err(Excess::BatchBytes { wanted, most }),
            None => Ok(()),
        }
    }

    /// The same of how old a destination's events may become. None of its own is below: the
    /// ceiling is in force then.
    pub fn check_age(&self, max_age: Option<Duration>) -> Result<(), Excess> {
        match (max_age, self.age()) {
            (Some(wanted), Some(most)) if wanted > most => Err(Excess::Age { wanted, most }),
            _ => Ok(()),
        }
    }

    /// How old events may become before they start, where their destination says this. What
    /// it has may be above, of before the ceiling.
    #[must_use]
    pub fn age_in_force(&self, max_age: Option<Duration>) -> Option<Duration> {
        max_age.or(self.age())
    }

    fn age(&self) -> Option<Duration> {
        (self.age_seconds).map(|most| Duration::from_secs(u64::from(most)))
    }
}

/// Where nothing bounds, nothing has to be granted.
fn higher<T: PartialOrd>(most: Option<T>, granted: Option<T>) -> Option<T> {
    match granted {
        Some(granted) if most.as_ref().is_some_and(|most| granted > *most) => Some(granted),
        _ => most,
    }
}

/// Starts per second in the long run.
fn per_second(settings: &LimitSettings) -> f64 {
    let limits = settings.limits().into_iter();
    limits
        .filter_map(|(period, max)| Some(f64::from(max?) / period.duration().as_secs_f64()))
        .fold(f64::from(MAX_LIMIT), f64::min)
}

/// How many may start at one instant.
fn starts_at_once(settings: &LimitSettings) -> u32 {
    let mut limits = settings.limits().into_iter().filter_map(|(_, max)| max);
    let Some(shortest) = limits.next() else {
        return MAX_LIMIT;
    };
    let first = match (settings.shape.unwrap_or_default(), settings.burst) {
        _ if shortest == 0 => 0,
        (Shape::LeakyBucket, _) => 1,
        (Shape::TokenBucket, burst) => burst.unwrap_or(shortest),
        (Shape::SlidingWindow, burst) => shortest.min(burst.unwrap_or(shortest)),
    };
    limits.fold(first, u32::min)
}

/// How large somebody wants the batches of a destination; `None` asks for no more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LargerBatches {
    /// Events in one request.
    pub events: Option<u32>,
    /// Bytes of their payloads.
    pub bytes: Option<u32>,
}

impl LargerBatches {
    /// Whether nothing is asked for.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.events.is_none() && self.bytes.is_none()
    }
}

/// What operators are told of a request for limits, as JSON: without settings, of batches
/// alone.
#[must_use]
pub fn request_details(
    id: Uuid,
    settings: Option<&LimitSettings>,
    batches: LargerBatches,
    note: &str,
) -> String {
    let rates = settings.map(|settings| {
        (settings.limits().into_iter())
            .filter_map(|(period, max)| Some((format!("per_{}", period.as_str()), max?)))
            .collect::<BTreeMap<_, _>>()
    });
    serde_json::json!({
        "request_id": id,
        "limits": rates,
        "unlimited": settings.map(|settings| settings.unlimited),
        "burst": settings.and_then(|settings| settings.burst),
        "max_in_flight": settings.and_then(|settings| settings.max_in_flight),
        "batch_events": batches.events,
        "batch_bytes": batches.bytes,
        "note": note,
    })
    .to_string()
}

/// The same of a request for a number of destinations.
#[must_use]
pub fn destinations_details(id: Uuid, destinations: u32, note: &str) -> String {
    serde_json::json!({"request_id": id, "destinations": destinations, "note": note}).to_string()
}

/// What owners are told of the decision, as JSON.
#[must_use]
pub fn decision_details(id: Uuid, state: &str, reason: &str) -> String {
    serde_json::json!({"request_id": id, "state": state, "reason": reason}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEN: LimitSettings = LimitSettings {
        per_second: Some(10),
        burst: Some(20),
        shape: Some(Shape::TokenBucket),
        ..LimitSettings::EXACT
    };

    fn per_day(max: u32) -> LimitSettings {
        LimitSettings {
            per_day: Some(max),
            ..LimitSettings::EXACT
        }
    }

    #[test]
    fn what_allows_no_more_is_below() {
        let ceiling = Ceiling::of(&TEN);
        assert_eq!(
            ceiling,
            Ceiling {
                per_second: Some(10.0),
                at_once: Some(20),
                max_in_flight: Some(50),
                ..Ceiling::default()
            }
        );
        let inherits = LimitSettings::EXACT;
        let paused = LimitSettings {
            per_second: Some(0),
            burst: Some(1_000),
            shape: Some(Shape::TokenBucket),
            ..LimitSettings::EXACT
        };
        let leaky = LimitSettings {
            per_second: Some(10),
            shape: Some(Shape::LeakyBucket),
            ..LimitSettings::EXACT
        };
        let smooth = LimitSettings {
            per_hour: Some(36_000),
            burst: Some(20),
            ..LimitSettings::EXACT
        };
        for below in [TEN, inherits, paused, leaky, smooth, per_day(20)] {
            assert_eq!(ceiling.check(&below), Ok(()), "{below:?}");
        }
    }

    #[test]
    fn what_allows_more_is_named() {
        let ceiling = Ceiling::of(&TEN);
        let said = |own: LimitSettings| ceiling.check(&own).unwrap_err().to_string();
        let faster = LimitSettings {
            per_second: Some(11),
            ..LimitSettings::EXACT
        };
        assert_eq!(
            said(faster),
            "11 a second is above the ceiling of 10 a second"
        );
        let unlimited = LimitSettings {
            unlimited: true,
            ..LimitSettings::EXACT
        };
        assert_eq!(
            said(unlimited),
            "no rate limit is above the ceiling of 10 a second"
        );
        // As fast in the long run.
        assert_eq!(
            said(per_day(864_000)),
            "864000 at once is above the ceiling of 20 at once"
        );
        let bucket = LimitSettings {
            burst: Some(21),
            ..TEN
        };
        assert_eq!(
            said(bucket),
            "21 at once is above the ceiling of 20 at once"
        );
        let crowded = LimitSettings {
            max_in_flight: Some(51),
            ..LimitSettings::EXACT
        };
        assert_eq!(said(crowded), "51 in flight is above the ceiling of 50");
    }

    #[test]
    fn a_grant_raises_it_and_never_lowers_it() {
        let ceiling = Ceiling {
            per_second: Some(10.0),
            at_once: None,
            max_in_flight: Some(50),
            batch_events: Some(10),
            batch_bytes: Some(1_000),
            age_seconds: Some(60),
        };
        let granted = Ceiling {
            per_second: Some(100.0),
            at_once: Some(5),
            max_in_flight: Some(5),
            batch_events: Some(20),
            batch_bytes: Some(999),
            age_seconds: None,
        };
        let raised = Ceiling {
            per_second: Some(100.0),
            batch_events: Some(20),
            ..ceiling
        };
        assert_eq!(ceiling.raised_to(granted), raised);
        assert_eq!(ceiling.raised_to(Ceiling::default()), ceiling);
    }

    #[test]
    fn batches_are_held_to_events_and_to_bytes() {
        let ceiling = Ceiling {
            batch_events: Some(20),
            batch_bytes: Some(1_000),
            ..Ceiling::default()
        };
        let batches = |max_events, max_bytes| BatchSettings {
            max_events,
            max_bytes,
            max_wait_ms: None,
        };
        let said = |of: BatchSettings| {
            ceiling
                .check_batches(&of)
                .map_err(|excess| excess.to_string())
        };
        for below in [batches(Some(20), Some(1_000)), batches(None, Some(5_000))] {
            assert_eq!(said(below), Ok(()), "{below:?}");
        }
        let more = "21 events in one request are above the ceiling of 20";
        assert_eq!(said(batches(Some(21), Some(1))), Err(more.to_owned()));
        // What holds where nothing is set.
        let unsaid = "1000000 bytes in one request are above the ceiling of 1000";
        assert_eq!(said(batches(Some(1), None)), Err(unsaid.to_owned()));
        let any = Ceiling::default().check_batches(&batches(Some(500), None));
        assert_eq!(any, Ok(()));
    }

    #[test]
    fn an_age_is_held_to_the_ceiling_which_is_in_force_where_there_is_none() {
        let ceiling = Ceiling {
            age_seconds: Some(60),
            ..Ceiling::default()
        };
        let most = Duration::from_secs(60);
        let more = Some(most + Duration::from_millis(1));
        for below in [None, Some(Duration::from_millis(1)), Some(most)] {
            assert_eq!(ceiling.check_age(below), Ok(()), "{below:?}");
        }
        let said = ceiling.check_age(more).unwrap_err().to_string();
        assert_eq!(said, "60001 ms are above the ceiling of 60000 ms");
        assert_eq!(ceiling.age_in_force(None), Some(most));
        assert_eq!(ceiling.age_in_force(more), more, "of before the ceiling");
        let any = Ceiling::default();
        assert_eq!(
            (any.check_age(more), any.age_in_force(None)),
            (Ok(()), None)
        );
        let of_tier = ceiling.or_of_tier(&TEN, &[any]);
        assert_eq!(of_tier.age_seconds, Some(60));
    }

    #[test]
    fn a_tenant_is_bounded_by_its_tiers_limits_where_there_is_no_ceiling() {
        let batches = Ceiling {
            batch_events: Some(20),
            ..Ceiling::default()
        };
        let alone = batches.or_of_tier(&TEN, &[]);
        let gives = Ceiling {
            batch_events: Some(20),
            ..Ceiling::of(&TEN)
        };
        assert_eq!(alone, gives);
        let has = Ceiling {
            per_second: Some(100.0),
            at_once: Some(5),
            ..Ceiling::default()
        };
        let more = Ceiling {
            per_second: Some(100.0),
            ..gives
        };
        assert_eq!(batches.or_of_tier(&TEN, &[Ceiling::default(), has]), more);
        // What an operator says of any of them stands as it is.
        let said = Ceiling {
            max_in_flight: Some(500),
            ..Ceiling::default()
        };
        assert_eq!(said.or_of_tier(&TEN, &[has]), said);
        let any = LimitSettings {
            unlimited: true,
            ..LimitSettings::EXACT
        };
        let anything = Ceiling::default().or_of_tier(&any, &[]);
        assert_eq!(anything.check(&any), Ok(()));
    }

    #[test]
    fn nothing_bounds_what_says_nothing() {
        let unlimited = LimitSettings {
            unlimited: true,
            max_in_flight: Some(1_000),
            ..LimitSettings::EXACT
        };
        assert_eq!(Ceiling::default().check(&unlimited), Ok(()));
    }
}
