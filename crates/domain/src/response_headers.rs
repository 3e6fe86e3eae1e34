//! The headers of a response that are kept for people to look at.
//!
//! Kept where an answer says more than that all is well: beside its body, and of
//! every answer that is no success. So a success without a body costs a store nothing.
//! What belongs to the connection is left out. Values are shown of headers that are known
//! to let nobody in, and all others are only named: whoever reads attempts need not be able
//! to act as the receiver's users. Count and size are bounded, since the receiver chooses
//! both.

use std::collections::BTreeMap;

use crate::remark::printable;

/// The most headers that are kept of one response.
pub const MAX_HEADERS: usize = 40;

/// A header with a longer name is left out.
pub const MAX_NAME_BYTES: usize = 64;

/// A longer value is cut.
pub const MAX_VALUE_BYTES: usize = 512;

/// All names and values together; what does not fit is left out.
pub const MAX_TOTAL_BYTES: usize = 4_096;

/// What stands for a value that may let somebody in.
pub const HIDDEN: &str = "hidden";

/// These are of the connection and not of the answer; in lower case.
const OF_THE_CONNECTION: [&str; 7] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Values of these are shown; in lower case.
const SHOWN: [&str; 27] = [
    "accept",
    "age",
    "allow",
    "cache-control",
    "cf-ray",
    "content-encoding",
    "content-language",
    "content-length",
    "content-type",
    "date",
    "etag",
    "expires",
    "last-modified",
    "retry-after",
    "server",
    "server-timing",
    "strict-transport-security",
    "traceparent",
    "vary",
    "via",
    "webhook-allowed-origin",
    "webhook-allowed-rate",
    "webhook-delivery",
    "x-amzn-requestid",
    "x-correlation-id",
    "x-powered-by",
    "x-request-id",
];

/// Values of names that begin so are shown: what the receiver says of its limits.
const SHOWN_PREFIXES: [&str; 3] = ["ratelimit", "x-ratelimit-", "x-rate-limit-"];

/// Where these lead is shown, without what is asked for there.
const PLACES: [&str; 2] = ["content-location", "location"];

/// Challenges: these say why somebody was not let in.
const CHALLENGES: [&str; 2] = ["proxy-authenticate", "www-authenticate"];

/// Schemes whose challenges hold nothing that was made for one client.
const PLAIN_SCHEMES: [&str; 2] = ["basic", "bearer"];

/// Headers of one response, in the order in which they came, names in lower case. As text
/// a line each, `name: value`; that is how they are stored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResponseHeaders(String);

impl ResponseHeaders {
    /// Those that are kept of an answer with this status and body. `all` are names in
    /// lower case, with their values as they came.
    #[must_use]
    pub fn kept<'a>(
        (status, body): (u16, &[u8]),
        all: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    ) -> Self {
        let mut kept = Self::default();
        if (200..300).contains(&status) && body.is_empty() {
            return kept;
        }
        let wanted = all
            .into_iter()
            .filter(|(name, _)| name.len() <= MAX_NAME_BYTES && !OF_THE_CONNECTION.contains(name));
        let mut total = 0;
        for (name, value) in wanted.take(MAX_HEADERS) {
            let value = String::from_utf8_lossy(value);
            let value = printable(shown(name, &value), MAX_VALUE_BYTES);
            if total + name.len() + value.len() > MAX_TOTAL_BYTES {
                continue;
            }
            total += name.len() + value.len();
            for part in [name, ": ", &value, "\n"] {
                kept.0.push_str(part);
            }
        }
        kept
    }

    /// From the text of a store.
    #[must_use]
    pub fn stored(text: Option<String>) -> Self {
        Self(text.unwrap_or_default())
    }

    /// As a store has them; `None` if there are none.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        (!self.0.is_empty()).then_some(&self.0)
    }

    /// Names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.lines().filter_map(|line| line.split_once(": "))
    }

    /// By name; several of one name are one list, as HTTP reads them. `None` if there are
    /// none.
    #[must_use]
    pub fn by_name(&self) -> Option<BTreeMap<String, String>> {
        let mut all: BTreeMap<String, String> = BTreeMap::new();
        for (name, value) in self.iter() {
            all.entry(name.to_owned())
                .and_modify(|list| {
                    list.push_str(", ");
                    list.push_str(value);
                })
                .or_insert_with(|| value.to_owned());
        }
        (!all.is_empty()).then_some(all)
    }
}

/// What people may read of a value.
fn shown<'a>(name: &str, value: &'a str) -> &'a str {
    let is_shown =
        SHOWN.contains(&name) || (SHOWN_PREFIXES.iter()).any(|prefix| name.starts_with(prefix));
    if is_shown {
        return value;
    }
    if PLACES.contains(&name) {
        return value.split(['?', '#']).next().unwrap_or_default();
    }
    if CHALLENGES.contains(&name) {
        let scheme = value.split_whitespace().next().unwrap_or_default();
        let is_plain = PLAIN_SCHEMES
            .iter()
            .any(|plain| scheme.eq_ignore_ascii_case(plain));
        return if is_plain { value } else { scheme };
    }
    HIDDEN
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Of a failure.
    fn kept(all: &[(&str, &str)]) -> ResponseHeaders {
        let bytes = all.iter().map(|(name, value)| (*name, value.as_bytes()));
        ResponseHeaders::kept((500, b""), bytes)
    }

    #[test]
    fn a_success_without_a_body_keeps_none() {
        let of = |status, body: &[u8]| {
            let kept = ResponseHeaders::kept((status, body), [("server", b"x".as_slice())]);
            kept.as_text().map(str::to_owned)
        };
        assert_eq!(of(204, b""), None);
        let one = Some("server: x\n".to_owned());
        assert_eq!(of(200, b"ok"), one);
        assert_eq!(of(199, b""), one);
        assert_eq!(of(300, b""), one);
    }

    #[test]
    fn what_is_of_the_connection_is_left_out_and_secrets_are_only_named() {
        let shown = kept(&[
            ("content-type", "text/plain"),
            ("connection", "close"),
            ("transfer-encoding", "chunked"),
            ("set-cookie", "canary"),
            ("x-auth-token", "canary"),
            ("authorization", "canary"),
            ("x-api-key", "canary"),
            ("x-session-id", "canary"),
            ("www-authenticate", "Bearer error=\"invalid_token\""),
            ("retry-after", "3"),
            ("location", "https://a.example/b?token=canary"),
            ("www-authenticate", "Negotiate canary"),
            ("x-of-their-own", "canary"),
            ("x-ratelimit-remaining-tokens", "7"),
        ]);
        let text = shown.as_text().unwrap();
        assert!(
            !text.contains("canary") && !text.contains("chunked"),
            "{text}"
        );
        let shown: Vec<_> = shown.iter().collect();
        assert_eq!(shown.len(), 12);
        assert_eq!(shown[0], ("content-type", "text/plain"));
        assert_eq!(shown[1], ("set-cookie", HIDDEN));
        assert_eq!(
            shown[6],
            ("www-authenticate", "Bearer error=\"invalid_token\"")
        );
        assert_eq!(shown[7], ("retry-after", "3"));
        assert_eq!(shown[8], ("location", "https://a.example/b"));
        assert_eq!(shown[9], ("www-authenticate", "Negotiate"));
        assert_eq!(shown[11], ("x-ratelimit-remaining-tokens", "7"));
    }

    #[test]
    fn several_of_one_name_are_a_list() {
        let shown = kept(&[("vary", "origin"), ("server", "a: b"), ("vary", "accept")]);
        let by_name = shown.by_name().unwrap();
        assert_eq!(by_name["vary"], "origin, accept");
        assert_eq!(by_name["server"], "a: b");
        assert_eq!(ResponseHeaders::default().by_name(), None);
    }

    #[test]
    fn they_are_bounded() {
        let long = "v".repeat(MAX_VALUE_BYTES + 1);
        let one = kept(&[("via", &long)]);
        assert_eq!(one.iter().next(), Some(("via", &long[1..])));
        let name = "n".repeat(MAX_NAME_BYTES + 1);
        assert_eq!(kept(&[(&name, "x")]), ResponseHeaders::default());
        assert_eq!(kept(&[(&name[1..], "x")]).iter().count(), 1);
        assert_eq!(
            kept(&[("a", "x"); MAX_HEADERS + 1]).iter().count(),
            MAX_HEADERS
        );
        let large = kept(&[("via", long.as_str()); MAX_HEADERS]);
        assert_eq!(
            large.iter().count(),
            MAX_TOTAL_BYTES / (MAX_VALUE_BYTES + "via".len())
        );
    }

    proptest! {
        /// Whatever a receiver sends comes back from a store as it was kept, on a line each.
        #[test]
        fn any_values_are_lines(values: Vec<Vec<u8>>) {
            let all = values.iter().map(|value| ("via", value.as_slice()));
            let kept = ResponseHeaders::kept((400, b""), all);
            let bytes: usize = kept.iter().map(|(name, value)| name.len() + value.len()).sum();
            prop_assert!(kept.iter().count() <= values.len().min(MAX_HEADERS));
            prop_assert!(bytes <= MAX_TOTAL_BYTES);
            prop_assert_eq!(kept.as_text().is_none(), values.is_empty());
            prop_assert!(kept.iter().all(|(_, value)| !value.chars().any(char::is_control)));
            let text = kept.as_text().map(str::to_owned);
            prop_assert_eq!(ResponseHeaders::stored(text), kept);
        }
    }
}
