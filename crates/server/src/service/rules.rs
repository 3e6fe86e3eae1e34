//! What a destination and a page may look like.

use std::ops::RangeInclusive;

use adapters::http::Policy;
use domain::event::{MAX_IDEMPOTENCY_KEY_BYTES, event_type_problem, subscription_problem};
use domain::filter::Filter;
use domain::time::Timestamp;
use serde_json::Value;
use url::{Host, Url};

use super::{MAX_BATCH, MAX_PAGE, ServiceError};

/// The longest name, in bytes.
pub const MAX_NAME_BYTES: usize = 200;

/// The longest URL, in bytes: what receivers and proxies commonly take.
pub const MAX_URL_BYTES: usize = 2_048;

/// The most types that one destination subscribes to.
pub const MAX_EVENT_TYPES: usize = 100;

/// How a text is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lines {
    /// Without line breaks.
    One,
    /// Of people who may press Enter.
    Many,
}

/// Any text that goes to the store as it is: Postgres takes no NUL, and would
/// have us answer that it is away; other control characters are no text.
pub fn text(field: &str, text: &str, max_bytes: usize, lines: Lines) -> Result<(), ServiceError> {
    if text.len() > max_bytes {
        let problem = format!("must be at most {max_bytes} bytes");
        return Err(ServiceError::invalid(field, problem));
    }
    let breaks = |letter| lines == Lines::Many && matches!(letter, '\n' | '\r' | '\t');
    if (text.chars()).any(|letter| letter.is_control() && !breaks(letter)) {
        let problem = "must not have control characters";
        return Err(ServiceError::invalid(field, problem));
    }
    Ok(())
}

pub(super) fn name(name: &str) -> Result<(), ServiceError> {
    text("name", name, MAX_NAME_BYTES, Lines::One)
}

/// The name of a plan tier, to be looked for.
pub(super) fn tier(field: &str, name: &str) -> Result<(), ServiceError> {
    text(field, name, MAX_NAME_BYTES, Lines::One)
}

/// The name of a plan tier to create, which stands in paths from then on.
pub(super) fn new_tier(name: &str) -> Result<(), ServiceError> {
    tier("name", name)?;
    match name.trim() {
        "" | "." | ".." => Err(ServiceError::invalid("name", "is no name for a path")),
        _ => Ok(()),
    }
}

/// The times that can be written by RFC 3339, in microseconds: the years 0 to
/// 9999. Postgres takes few beyond them.
const TIMES: RangeInclusive<i64> = -62_167_219_200_000_000..=253_402_300_799_999_999;

/// The time in a cursor, which a client may have made up.
#[must_use]
pub fn time(micros: &str) -> Option<Timestamp> {
    let micros = micros.parse().ok();
    micros
        .filter(|micros| TIMES.contains(micros))
        .map(Timestamp::from_micros)
}

/// A type that events are looked for by, if one is. What no event can have
/// finds nothing, and is a mistake that had better be seen.
pub fn wanted_type(wanted: Option<&str>) -> Result<(), ServiceError> {
    wanted.map_or(Ok(()), |wanted| event_type("type", wanted))
}

/// Times that things are looked for between; either may be left out.
pub fn span(since: Option<Timestamp>, until: Option<Timestamp>) -> Result<(), ServiceError> {
    match since.zip(until) {
        Some((since, until)) if since >= until => {
            Err(ServiceError::invalid("since", "must be before until"))
        }
        _ => Ok(()),
    }
}

/// A part of an event's id, or its idempotency key.
pub(super) fn sought(sought: Option<&str>) -> Result<(), ServiceError> {
    match sought {
        Some("") => Err(ServiceError::invalid("text", "must not be empty")),
        Some(sought) => text("text", sought, MAX_IDEMPOTENCY_KEY_BYTES, Lines::One),
        None => Ok(()),
    }
}

/// How the refusal of a URL begins that only whoever runs this can open.
pub const NOT_OPEN: &str = "leads to a place that is not open";

/// Absolute, of a scheme that is allowed, to a host, without credentials. What
/// the sender would never connect to is refused here too, so that its owner
/// hears of it at once; but names change, so what decides is the sender, at
/// every connect.
pub(super) fn url(text: &str, policy: &Policy) -> Result<(), ServiceError> {
    url_of("url", text, policy)
}

/// Where requests go, by the field that says so.
pub(super) fn url_of(field: &str, text: &str, policy: &Policy) -> Result<(), ServiceError> {
    let refuse = |problem: &str| Err(ServiceError::invalid(field, problem));
    if text.len() > MAX_URL_BYTES {
        return refuse("must be at most 2048 bytes");
    }
    // The parser drops these in silence; what is stored is what was sent.
    if text
        .chars()
        .any(|letter| letter.is_control() || letter.is_whitespace())
    {
        return refuse("must not have spaces or control characters");
    }
    let Ok(url) = Url::parse(text) else {
        return refuse("must be an absolute URL, such as https://example.com/hooks");
    };
    match url.scheme() {
        "https" => {}
        "http" if policy.allow_http => {}
        "http" => {
            tracing::info!(
                opened_by = "--allow-http",
                "an http destination was refused"
            );
            return refuse("must be https");
        }
        _ => return refuse("must be https"),
    }
    match url.host() {
        None => return refuse("must have a host"),
        Some(Host::Domain(name)) if !is_host_name(name) => {
            return refuse("must have a host name of letters, digits, - and _");
        }
        Some(_) => {}
    }
    if url.port() == Some(0) {
        return refuse("must not have port 0: nothing can be connected to there");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return refuse("must not have a user or password");
    }
    if url.fragment().is_some() {
        return refuse("must not have a fragment: it would never be sent");
    }
    policy.vet_url(&url).map_err(|refusal| {
        // The setting is nothing to those who write URLs, and all to those who run this.
        if let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) {
            let opened_by = policy.opened_by(host, port, refusal);
            tracing::info!(%refusal, opened_by, "a destination was refused");
        }
        let problem = format!("{NOT_OPEN}: {refusal}");
        ServiceError::invalid(field, problem)
    })
}

/// What name servers and certificates can have. The URL's parser takes more,
/// and an address that hides in a name it has made an address.
fn is_host_name(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(letter)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

pub(super) fn event_types(types: &[String]) -> Result<(), ServiceError> {
    if types.len() > MAX_EVENT_TYPES {
        let problem = format!("must be at most {MAX_EVENT_TYPES}");
        return Err(ServiceError::invalid("event_types", problem));
    }
    for (i, event_type) in types.iter().enumerate() {
        if let Some(problem) = subscription_problem(event_type) {
            return Err(ServiceError::invalid(format!("event_types[{i}]"), problem));
        }
        if types[..i].contains(event_type) {
            return Err(ServiceError::invalid(
                format!("event_types[{i}]"),
                "is there twice",
            ));
        }
    }
    Ok(())
}

/// Refused by its place in the filter.
pub(super) fn filter(json: Option<Value>) -> Result<Option<Filter>, ServiceError> {
    json.map(Filter::parse)
        .transpose()
        .map_err(|refused| ServiceError::invalid(format!("filter{}", refused.at), refused.problem))
}

pub(super) fn event_type(field: &str, event_type: &str) -> Result<(), ServiceError> {
    match event_type_problem(event_type) {
        Some(problem) => Err(ServiceError::invalid(field, problem)),
        None => Ok(()),
    }
}

pub(super) fn page(limit: u32) -> Result<(), ServiceError> {
    if (1..=MAX_PAGE).contains(&limit) {
        return Ok(());
    }
    let problem = format!("must be between 1 and {MAX_PAGE}");
    Err(ServiceError::invalid("limit", problem))
}

pub(super) fn batch(events: usize) -> Result<(), ServiceError> {
    if (1..=MAX_BATCH).contains(&events) {
        return Ok(());
    }
    let problem = format!("must have between 1 and {MAX_BATCH} events");
    Err(ServiceError::invalid("events", problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str, allow_http: bool) -> Result<(), ServiceError> {
        let policy = Policy {
            allow_http,
            ..Policy::default()
        };
        super::url(text, &policy)
    }

    #[test]
    fn places_that_are_not_open_are_refused_and_the_log_has_what_opens_them() {
        let refused = |text: &str| url(text, true).unwrap_err().to_string();
        let closed = Policy {
            allow_http: true,
            ..Policy::default()
        };
        for (text, words, opened_by) in [
            (
                "http://127.0.0.1:9000/",
                "loopback addresses are not allowed",
                "--allow-networks 127.0.0.1:9000",
            ),
            (
                "http://localhost:9000/",
                "loopback addresses are not allowed",
                "--allow-networks localhost:9000",
            ),
            (
                "https://10.1.2.3/",
                "private addresses are not allowed",
                "--allow-networks 10.1.2.3:443",
            ),
            (
                "http://[::1]:9000/",
                "loopback addresses are not allowed",
                "--allow-networks [::1]:9000",
            ),
            (
                "https://example.com:6379/",
                "port 6379 is not allowed",
                "--allow-ports 443,80,8443,8080,6379",
            ),
        ] {
            let expected = format!("url: leads to a place that is not open: {words}");
            assert_eq!(refused(text), expected);
            // What the log says is what opens it.
            let url = Url::parse(text).unwrap();
            let refusal = closed.vet_url(&url).unwrap_err();
            let (host, port) = (
                url.host_str().unwrap(),
                url.port_or_known_default().unwrap(),
            );
            let flag = closed.opened_by(host, port, refusal);
            assert_eq!(flag, opened_by);
            let (flag, value) = flag.split_once(' ').unwrap();
            let open = match flag {
                "--allow-networks" => Policy {
                    networks: vec![value.parse().unwrap()],
                    ..closed.clone()
                },
                _ => Policy {
                    ports: value.split(',').map(|port| port.parse().unwrap()).collect(),
                    ..closed.clone()
                },
            };
            assert_eq!(super::url(text, &open), Ok(()), "{text}");
        }
        let metadata = refused("https://[::ffff:169.254.169.254]/");
        assert!(metadata.contains("metadata"), "{metadata}");
    }

    #[test]
    fn what_is_open_is_taken() {
        let policy = Policy {
            networks: vec!["localhost:9000".parse().unwrap()],
            allow_http: true,
            ..Policy::default()
        };
        for open in [
            "http://127.0.0.1:9000/",
            "http://localhost:9000/",
            "http://[::1]:9000/",
        ] {
            assert_eq!(super::url(open, &policy), Ok(()), "{open}");
        }
        assert!(super::url("http://127.0.0.1:9001/", &policy).is_err());
    }

    #[test]
    fn urls_that_could_not_be_sent_to_are_refused() {
        for good in [
            "https://example.com/hook?x=1",
            "https://[2606:4700::1111]:8443/",
            "https://a_b-c.example./",
            "https://bücher.example",
        ] {
            assert_eq!(url(good, false), Ok(()), "{good}");
        }
        assert_eq!(url("http://example.com", true), Ok(()));
        let long = format!("https://example.com/{}", "x".repeat(2_048));
        for bad in [
            "",
            "example.com/hook",
            "/hook",
            "http://example.com",
            "ftp://example.com",
            "https://ann:secret@example.com",
            "https://ann@example.com",
            "https://example.com/#part",
            "https://exam ple.com",
            "https://example.com/\n",
            "https://",
            "file:///etc/passwd",
            "https://example.com:0/",
            "https://example..com/",
            "https://*.example.com/",
            "https://-a.example/",
            &long,
        ] {
            assert!(url(bad, false).is_err(), "{bad}");
        }
    }

    #[test]
    fn event_types_are_named_by_their_place() {
        let refused = |types: &[&str]| {
            let types: Vec<String> = types.iter().map(|text| (*text).to_owned()).collect();
            event_types(&types).err().map(|error| error.to_string())
        };
        assert_eq!(refused(&["*", "order.paid", "order.*"]), None);
        assert_eq!(
            refused(&["order.paid", "order paid"]).as_deref(),
            Some("event_types[1]: must be of letters, digits and . _ - : /")
        );
        assert_eq!(
            refused(&["a", "a"]).as_deref(),
            Some("event_types[1]: is there twice")
        );
        let deep = |dots| format!("{}*", "a.".repeat(dots));
        assert_eq!(refused(&[&deep(8)]), None);
        assert_eq!(
            refused(&["*", &deep(9)]).as_deref(),
            Some("event_types[1]: must have at most 8 dots where it ends in `.*`")
        );
        for bad in ["order*", "*.paid", "order.*.late", ".*", "order.**"] {
            let said = refused(&["a", bad]).unwrap_or_default();
            assert!(said.starts_with("event_types[1]: must be"), "{bad}: {said}");
        }
        assert!(refused(&[""]).is_some());
    }
}
