//! Numbers and times, for people.

use std::time::Duration;

use chrono::{DateTime, SecondsFormat};
use domain::ceiling::Ceiling;
use domain::limit::{MAX_LIMIT, Shape};
use domain::policy::LimitSettings;
use domain::time::Timestamp;

/// Absent.
pub(super) const NONE: &str = "–";

/// The end of an id, where the whole one is a link's address or a title: ids of one
/// time begin alike.
pub(super) fn short(id: &str) -> String {
    let from = id.char_indices().rev().nth(4).map_or(0, |(at, _)| at);
    format!("\u{2026}{}", &id[from..])
}

/// A time of day within a day, in UTC; the day is in the machine's form of it.
pub(super) fn clock(at: Timestamp) -> String {
    date(at).format("%H:%M:%S%.3f").to_string()
}

/// A day and a time, in UTC.
pub(super) fn time(at: Timestamp) -> String {
    date(at).format("%Y-%m-%d %H:%M:%S").to_string()
}

/// `14:05`, in UTC.
pub(super) fn minute(at: Timestamp) -> String {
    date(at).format("%H:%M").to_string()
}

/// `Nov 25`, in UTC.
pub(super) fn day(at: Timestamp) -> String {
    date(at).format("%b %-d").to_string()
}

/// What an event carries, as text; or that it is none.
pub(super) fn payload(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_binary) => format!("{} bytes that are no text", bytes.len()),
    }
}

/// As machines read it.
pub(super) fn iso(at: Timestamp) -> String {
    date(at).to_rfc3339_opts(SecondsFormat::Micros, true)
}

fn date(at: Timestamp) -> DateTime<chrono::Utc> {
    DateTime::from_timestamp_micros(at.as_micros()).unwrap_or_default()
}

/// `850 ms`, `12 s`, `4 min 10 s`, `2 h 5 min`, `3 d 4 h`.
pub(super) fn span(time: Duration) -> String {
    let (seconds, millis) = (time.as_secs(), time.as_millis());
    let two = |large: u64, one: &str, small: u64, other: &str| match small {
        0 => format!("{large} {one}"),
        _ => format!("{large} {one} {small} {other}"),
    };
    match seconds {
        0 => format!("{millis} ms"),
        1..60 => format!("{seconds} s"),
        60..3_600 => two(seconds / 60, "min", seconds % 60, "s"),
        3_600..86_400 => two(seconds / 3_600, "h", seconds % 3_600 / 60, "min"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    }
}

/// Milliseconds with as many digits as matter.
pub(super) fn latency(time: Duration) -> String {
    let millis = time.as_secs_f64() * 1_000.0;
    match millis {
        ..10.0 => format!("{millis:.1} ms"),
        ..1_000.0 => format!("{millis:.0} ms"),
        _ => format!("{:.2} s", millis / 1_000.0),
    }
}

/// `12,345`, and `10,000+` where it was counted no further.
pub(super) fn count(number: u32, cap: u32) -> String {
    let mut text = large(u64::from(number));
    if number >= cap {
        text.push('+');
    }
    text
}

/// `48 %`; `<1 %` of what is not nothing.
pub(super) fn percent(percent: f64) -> String {
    match percent {
        0.0 => "0 %".to_owned(),
        ..1.0 => "<1 %".to_owned(),
        // What has one success is not all.
        99.0..100.0 => ">99 %".to_owned(),
        _ => format!("{percent:.0} %"),
    }
}

/// `99.53 %`, rounded down: what failed once has not succeeded always.
pub(super) fn success(percent: f64) -> String {
    let hundredths = (percent * 100.0).floor() / 100.0;
    format!("{hundredths} %")
}

/// `12,345`.
pub(super) fn large(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// What is in force: `20/s, 300/min · bucket of 50 · the receiver allows 120 a minute`.
pub(super) fn limits(settings: &LimitSettings) -> String {
    let set = set_limits(settings);
    match settings.allowed_per_minute {
        None => set,
        Some(0) => format!("{set} · the receiver has not allowed it"),
        Some(most) => format!("{set} · the receiver allows {most} a minute"),
    }
}

fn set_limits(settings: &LimitSettings) -> String {
    if settings.unlimited {
        return "unlimited".to_owned();
    }
    let units = ["s", "min", "h", "d"];
    let set = settings.limits().into_iter().zip(units);
    let set = set.filter_map(|((_, max), unit)| Some(format!("{}/{unit}", max?)));
    let mut text = set.collect::<Vec<_>>().join(", ");
    if text.is_empty() {
        text.push_str("no limit");
    }
    match (settings.shape.unwrap_or_default(), settings.burst) {
        (Shape::TokenBucket, Some(burst)) => text.push_str(&format!(" · bucket of {burst}")),
        (Shape::TokenBucket, None) => text.push_str(" · bucket"),
        (Shape::LeakyBucket, _) => text.push_str(" · evenly spaced"),
        (Shape::SlidingWindow, Some(burst)) => text.push_str(&format!(" · {burst} at once")),
        (Shape::SlidingWindow, None) => {}
    }
    if let Some(most) = settings.max_in_flight {
        text.push_str(&format!(" · {most} in flight"));
    }
    text
}

/// What somebody sets himself: `20/s, 50 at once, 10 in flight`; empty for anything.
pub(super) fn ceiling(ceiling: &Ceiling) -> String {
    let most = f64::from(MAX_LIMIT);
    let rate = ceiling.per_second.filter(|rate| *rate < most);
    let at_once = ceiling.at_once.filter(|at_once| *at_once < MAX_LIMIT);
    let parts = [
        rate.map(|rate| format!("{rate}/s")),
        at_once.map(|at_once| format!("{at_once} at once")),
        ceiling
            .max_in_flight
            .map(|most| format!("{most} in flight")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// The same of batches: `20 events and 65,536 bytes a request`.
pub(super) fn batch_ceiling(ceiling: &Ceiling) -> String {
    let parts = [
        (ceiling.batch_events).map(|most| format!("{} events", large(most.into()))),
        (ceiling.batch_bytes).map(|most| format!("{} bytes", large(most.into()))),
    ];
    let said: Vec<_> = parts.into_iter().flatten().collect();
    match said.is_empty() {
        true => String::new(),
        false => format!("{} a request", said.join(" and ")),
    }
}

/// The same of how old events may become: `events of up to 3 d 4 h`.
pub(super) fn age_ceiling(ceiling: &Ceiling) -> String {
    let most = ceiling.age_in_force(None);
    most.map_or_else(String::new, |most| {
        format!("events of up to {}", span(most))
    })
}

/// A name, as it stands in a path.
pub(super) fn in_path(name: &str) -> String {
    let encoded: String = url::form_urlencoded::byte_serialize(name.as_bytes()).collect();
    encoded.replace('+', "%20")
}

/// Attempts' states and replays', with a space for `_`.
pub(super) fn state(word: &str) -> String {
    word.replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_for_people() {
        assert_eq!(count(1_234_567, u32::MAX), "1,234,567");
        assert_eq!(count(10_000, 10_000), "10,000+");
        assert_eq!(count(999, 10_000), "999");
        assert_eq!(span(Duration::from_millis(850)), "850 ms");
        assert_eq!(span(Duration::from_secs(250)), "4 min 10 s");
        assert_eq!(span(Duration::from_secs(7_200)), "2 h");
        assert_eq!(latency(Duration::from_micros(1_240)), "1.2 ms");
        assert_eq!(latency(Duration::from_millis(1_240)), "1.24 s");
        let both = LimitSettings {
            per_second: Some(20),
            per_minute: Some(300),
            ..LimitSettings::default()
        };
        assert_eq!(limits(&both), "20/s, 300/min");
        assert_eq!(limits(&LimitSettings::default()), "no limit");
        let crowded = LimitSettings {
            max_in_flight: Some(7),
            ..both
        };
        assert_eq!(limits(&crowded), "20/s, 300/min · 7 in flight");
        let allowed = |most| LimitSettings {
            allowed_per_minute: Some(most),
            ..both
        };
        let some = "20/s, 300/min · the receiver allows 120 a minute";
        assert_eq!(limits(&allowed(120)), some);
        let none = "20/s, 300/min · the receiver has not allowed it";
        assert_eq!(limits(&allowed(0)), none);
    }
}
