//! The headers that a destination adds to its requests, and the rules that
//! keep them from being anything else.
//!
//! Checked when they are set and again when they are sent, by the same
//! functions. Names are allowed by a list: what receivers ask of a sender to let
//! it in. From that is taken what frames a request, names its receiver, says what
//! its body is or carries our signature. A name or value that could end its line
//! cannot be written.

use std::fmt;

use zeroize::Zeroizing;

use crate::signature::HeaderPrefix;

/// The most headers of one destination.
pub const MAX_HEADERS: usize = 20;

/// The longest name.
pub const MAX_NAME_BYTES: usize = 64;

/// The longest value.
pub const MAX_VALUE_BYTES: usize = 1_024;

/// All names and values together.
pub const MAX_TOTAL_BYTES: usize = 4_096;

/// Names that can be set; in lower case.
const ALLOWED: [&str; 10] = [
    "accept",
    "accept-language",
    "api-key",
    "apikey",
    "authorization",
    "baggage",
    "from",
    "origin",
    "referer",
    "traceparent",
];

/// Beginnings of names that can be set.
const ALLOWED_PREFIXES: [&str; 1] = ["x-"];

/// Ends of names that can be set: what gateways and products call their own.
const ALLOWED_SUFFIXES: [&str; 6] = ["-id", "-key", "-secret", "-tenant", "-token", "-version"];

/// Of those the ones that are ours or mean something on the way, nevertheless.
const RESERVED: [&str; 7] = [
    "idempotency-key",
    "x-forwarded",
    "x-host",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-real-ip",
];

/// Beginnings of names that are ours, a proxy's or a browser's.
const RESERVED_PREFIXES: [&str; 10] = [
    "content-",
    "mime-",
    "paceline-",
    "proxy-",
    "sec-",
    HeaderPrefix::Svix.as_str(),
    HeaderPrefix::Webhook.as_str(),
    "x-forwarded-",
    "x-original-",
    "x-rewrite-",
];

/// Why a header cannot be set. Never repeats a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderProblem {
    /// The name is no token.
    #[error("a name must be 1 to {MAX_NAME_BYTES} letters, digits or !#$%&'*+-.^_`|~")]
    Name,
    /// The name is not on the list.
    #[error(
        "{name} cannot be set; names that can are {names}, those that begin with {beginnings}, \
         and those that end in {ends}",
        name = .0,
        names = ALLOWED.join(", "),
        beginnings = ALLOWED_PREFIXES.join(", "),
        ends = ALLOWED_SUFFIXES.join(", "),
    )]
    NotAllowed(String),
    /// The name is ours or the connection's.
    #[error("{0} cannot be set")]
    Reserved(String),
    /// The value holds what could end its line, or is padded.
    #[error(
        "the value of {0} must be printable ASCII, at most {MAX_VALUE_BYTES} bytes, without spaces around it"
    )]
    Value(String),
    /// The name is there twice.
    #[error("{0} is set twice")]
    Twice(String),
    /// Too many, or too much.
    #[error("at most {MAX_HEADERS} headers, and {MAX_TOTAL_BYTES} bytes of them")]
    TooMany,
}

/// Headers that have passed the rules, in lower case, by name. Their values
/// may be passwords: `Debug` shows none, and they are wiped when dropped.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CustomHeaders(Vec<(String, Zeroizing<String>)>);

impl CustomHeaders {
    /// Checks them.
    pub fn new(
        headers: impl IntoIterator<Item = (String, Zeroizing<String>)>,
    ) -> Result<Self, HeaderProblem> {
        let mut checked: Vec<(String, Zeroizing<String>)> = Vec::new();
        let mut total = 0;
        for (name, value) in headers {
            if checked.len() == MAX_HEADERS {
                return Err(HeaderProblem::TooMany);
            }
            let name = checked_name(&name)?;
            check_value(&name, &value)?;
            total += name.len() + value.len();
            if total > MAX_TOTAL_BYTES {
                return Err(HeaderProblem::TooMany);
            }
            checked.push((name, value));
        }
        checked.sort_by(|one, other| one.0.cmp(&other.0));
        if let Some(pair) = checked.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(HeaderProblem::Twice(pair[0].0.clone()));
        }
        Ok(Self(checked))
    }

    /// Names and values, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        (self.0.iter()).map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The names, in order: what may be shown.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.0.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As text, to be sealed: a line each, `name:value`. No name holds a colon
    /// and no value a line's end.
    #[must_use]
    pub fn expose(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(MAX_TOTAL_BYTES + 2 * MAX_HEADERS));
        for (name, value) in &self.0 {
            text.push_str(name);
            text.push(':');
            text.push_str(value);
            text.push('\n');
        }
        text
    }

    /// From that text; checks them again.
    pub fn parse(text: &str) -> Result<Self, HeaderProblem> {
        let headers = text.lines().map(|line| {
            let (name, value) = line.split_once(':').unwrap_or_default();
            (name.to_owned(), Zeroizing::new(value.to_owned()))
        });
        Self::new(headers)
    }
}

fn checked_name(name: &str) -> Result<String, HeaderProblem> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(is_token) {
        return Err(HeaderProblem::Name);
    }
    let name = name.to_ascii_lowercase();
    if is_reserved(&name) {
        return Err(HeaderProblem::Reserved(name));
    }
    match is_allowed(&name) {
        true => Ok(name),
        false => Err(HeaderProblem::NotAllowed(name)),
    }
}

fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
        || RESERVED_PREFIXES
            .iter()
            .any(|begin| name.starts_with(begin))
}

fn is_allowed(name: &str) -> bool {
    ALLOWED.contains(&name)
        || ALLOWED_PREFIXES.iter().any(|begin| name.starts_with(begin))
        || ALLOWED_SUFFIXES.iter().any(|end| name.ends_with(end))
}

fn check_value(name: &str, value: &str) -> Result<(), HeaderProblem> {
    let printable = value.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if printable && value.len() <= MAX_VALUE_BYTES && value.trim() == value {
        Ok(())
    } else {
        Err(HeaderProblem::Value(name.to_owned()))
    }
}

impl fmt::Debug for CustomHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.iter().map(|(name, _)| (name, "***"));
        f.debug_map().entries(shown).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn headers(all: &[(&str, &str)]) -> Result<CustomHeaders, HeaderProblem> {
        let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned().into());
        CustomHeaders::new(all.iter().map(owned))
    }

    #[test]
    fn what_receivers_ask_for_can_be_set() {
        for name in [
            "Authorization",
            "X-Api-Key",
            "X-Anything",
            "Private-Token",
            "CF-Access-Client-Id",
            "Ocp-Apim-Subscription-Key",
            "traceparent",
        ] {
            assert!(headers(&[(name, "x")]).is_ok(), "{name}");
        }
    }

    #[test]
    fn what_is_not_on_the_list_cannot_be_set() {
        for name in [
            // The request's frame and its way.
            "Connection",
            "Expect",
            "Host",
            "HTTP2-Settings",
            "Keep-Alive",
            "TE",
            "Trailer",
            "Transfer-Encoding",
            "Upgrade",
            "Via",
            "Max-Forwards",
            "Forwarded",
            // What may come back.
            "Accept-Encoding",
            "If-Match",
            "If-Modified-Since",
            "If-None-Match",
            "If-Range",
            "Range",
            // What says who we are.
            "Cookie",
            "Date",
            "User-Agent",
            "Anything",
        ] {
            let refused = headers(&[(name, "x")]);
            let problem = HeaderProblem::NotAllowed(name.to_ascii_lowercase());
            assert_eq!(refused, Err(problem));
        }
        let said = HeaderProblem::NotAllowed("host".to_owned()).to_string();
        assert!(
            said.contains("authorization") && said.contains("x-"),
            "{said}"
        );
    }

    #[test]
    fn what_is_ours_or_a_proxys_cannot_be_set() {
        for name in RESERVED {
            let refused = headers(&[(&name.to_uppercase(), "x")]);
            assert_eq!(refused, Err(HeaderProblem::Reserved(name.to_owned())));
        }
        for name in [
            "Webhook-Signature",
            "webhook-id",
            "webhook-",
            "Svix-Id",
            "svix-signature",
            "svix-anything",
            "Paceline-Try",
            "Proxy-Authorization",
            "X-Forwarded-For",
            "X-Original-URL",
            "X-Rewrite-URL",
            "Content-Id",
            "Content-Length",
            "Content-Type",
            "Content-Encoding",
            "Content-Disposition",
            "MIME-Version",
        ] {
            let refused = headers(&[(name, "x")]);
            assert_eq!(
                refused,
                Err(HeaderProblem::Reserved(name.to_ascii_lowercase()))
            );
        }
    }

    #[test]
    fn what_could_end_its_line_cannot_be_written() {
        for name in [
            "",
            "x-a b",
            "x-a:b",
            "x-a\r\nhost",
            "x-a\n",
            "x-ä",
            "x-a\0",
            ":path",
        ] {
            assert_eq!(
                headers(&[(name, "x")]),
                Err(HeaderProblem::Name),
                "{name:?}"
            );
        }
        for value in [
            "a\r\nb: c",
            "a\n",
            "\r",
            "a\0",
            "ü",
            " a",
            "a ",
            "a\tb",
            "\u{7f}",
        ] {
            let refused = headers(&[("x-a", value)]);
            let problem = HeaderProblem::Value("x-a".to_owned());
            assert_eq!(refused, Err(problem), "{value:?}");
        }
    }

    #[test]
    fn they_are_bounded() {
        let long = "x".repeat(MAX_VALUE_BYTES);
        assert!(headers(&[("x-a", &long)]).is_ok());
        assert!(headers(&[("x-a", &format!("{long}x"))]).is_err());
        let name = |bytes: usize| format!("x-{}", "a".repeat(bytes - 2));
        assert!(headers(&[(&name(MAX_NAME_BYTES), "")]).is_ok());
        assert!(headers(&[(&name(MAX_NAME_BYTES + 1), "")]).is_err());
        let names: Vec<_> = (0..=MAX_HEADERS).map(|n| format!("x-{n}")).collect();
        let many: Vec<_> = names.iter().map(|name| (name.as_str(), "1")).collect();
        assert!(headers(&many[1..]).is_ok());
        assert_eq!(headers(&many), Err(HeaderProblem::TooMany));
        let large: Vec<_> = many[..4].iter().map(|one| (one.0, long.as_str())).collect();
        assert_eq!(headers(&large), Err(HeaderProblem::TooMany));
        let twice = headers(&[("X-A", "1"), ("x-a", "2")]);
        assert_eq!(twice, Err(HeaderProblem::Twice("x-a".to_owned())));
    }

    #[test]
    fn debug_and_errors_show_no_value() {
        let set = headers(&[("authorization", "Bearer canary")]).unwrap();
        let refused = headers(&[("x-a", "canary\n")]).unwrap_err();
        let shown = format!("{set:?} {refused} {refused:?}");
        assert!(
            shown.contains("authorization") && !shown.contains("canary"),
            "{shown}"
        );
    }

    proptest! {
        /// Whatever they are, what passes can neither end its line nor be one of
        /// ours, and comes back from its text as it was.
        #[test]
        fn any_headers_pass_or_not(
            all in prop::collection::vec(("(x-|webhook-|svix-|sec-|.?)[ -~]{0,12}(-key|-id|.?)", ".{0,12}"), 0..4),
        ) {
            let owned = all.into_iter().map(|(name, value)| (name, value.into()));
            if let Ok(set) = CustomHeaders::new(owned) {
                for (name, value) in set.iter() {
                    prop_assert!(is_allowed(name) && !is_reserved(name));
                    prop_assert!(!name.contains([':', '\r', '\n', ' ']));
                    prop_assert!(!value.contains(['\r', '\n', '\0']));
                }
                prop_assert_eq!(CustomHeaders::parse(&set.expose()), Ok(set));
            }
        }
    }
}
