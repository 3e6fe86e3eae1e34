//! The headers that a destination adds to its requests, and the rules that
//! keep them from being anything else.
//!
//! Checked when they are set and again when they are sent, by the same
//! functions. What frames a request, names its receiver, says what its body is
//! or carries our signature cannot be set; a name or value that could end its
//! line cannot be written.

use std::fmt;

use zeroize::Zeroizing;

/// The most headers of one destination.
pub const MAX_HEADERS: usize = 20;

/// The longest name.
pub const MAX_NAME_BYTES: usize = 64;

/// The longest value.
pub const MAX_VALUE_BYTES: usize = 1_024;

/// All names and values together.
pub const MAX_TOTAL_BYTES: usize = 4_096;

/// Ours, or the connection's; in lower case. Sorted by what they would break.
const RESERVED: [&str; 29] = [
    // The request's frame and its way.
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "max-forwards",
    // What the body is, and what may come back.
    "accept-encoding",
    "content-encoding",
    "content-range",
    "content-type",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "range",
    // What says who we are and what we do.
    "cookie",
    "date",
    "user-agent",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "forwarded",
];

/// Beginnings of names that are ours, a proxy's or a browser's.
const RESERVED_PREFIXES: [&str; 5] = ["webhook-", "paceline-", "proxy-", "sec-", "x-forwarded-"];

/// Why a header cannot be set. Never repeats a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderProblem {
    /// The name is no token.
    #[error("a name must be 1 to {MAX_NAME_BYTES} letters, digits or !#$%&'*+-.^_`|~")]
    Name,
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
    let reserved = RESERVED.contains(&name.as_str())
        || (RESERVED_PREFIXES.iter()).any(|prefix| name.starts_with(prefix));
    match reserved {
        true => Err(HeaderProblem::Reserved(name)),
        false => Ok(name),
    }
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
    fn what_is_ours_or_the_connections_cannot_be_set() {
        for name in RESERVED {
            let refused = headers(&[(&name.to_uppercase(), "x")]);
            assert_eq!(refused, Err(HeaderProblem::Reserved(name.to_owned())));
        }
        for name in [
            "Webhook-Signature",
            "webhook-id",
            "webhook-",
            "Paceline-Try",
            "Proxy-Authorization",
            "X-Forwarded-For",
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
        for name in ["", "a b", "a:b", "a\r\nhost", "a\n", "ä", "a\0", ":path"] {
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
        assert!(headers(&[("a", &long)]).is_ok());
        assert!(headers(&[("a", &format!("{long}x"))]).is_err());
        assert!(headers(&[(&"a".repeat(MAX_NAME_BYTES), "")]).is_ok());
        assert!(headers(&[(&"a".repeat(MAX_NAME_BYTES + 1), "")]).is_err());
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
        let refused = headers(&[("x", "canary\n")]).unwrap_err();
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
        fn any_headers_pass_or_not(all in prop::collection::vec((".{0,12}", ".{0,12}"), 0..4)) {
            let owned = all.into_iter().map(|(name, value)| (name, value.into()));
            if let Ok(set) = CustomHeaders::new(owned) {
                for (name, value) in set.iter() {
                    prop_assert!(!name.is_empty() && !RESERVED.contains(&name));
                    prop_assert!(!name.contains([':', '\r', '\n', ' ']));
                    prop_assert!(!value.contains(['\r', '\n', '\0']));
                }
                prop_assert_eq!(CustomHeaders::parse(&set.expose()), Ok(set));
            }
        }
    }
}
