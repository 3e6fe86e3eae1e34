//! Who we are when we ask: a DNS name.

use std::fmt;
use std::str::FromStr;

/// The longest DNS name.
const MAX_BYTES: usize = 253;

/// The DNS name by which receivers know all processes of an installation, in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin(String);

/// The text is no DNS name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be a DNS name, such as hooks.example.com: labels of letters, digits and -, \
     {MAX_BYTES} bytes at most"
)]
pub struct NotAnOrigin;

impl Origin {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Origin {
    type Err = NotAnOrigin;
    fn from_str(text: &str) -> Result<Self, NotAnOrigin> {
        let label = |label: &str| {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            (1..=63).contains(&label.len()) && label.bytes().all(allowed)
        };
        let is_name = text.len() <= MAX_BYTES && text.split('.').all(label);
        (is_name.then(|| Self(text.to_ascii_lowercase()))).ok_or(NotAnOrigin)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
