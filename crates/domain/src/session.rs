//! Sessions of the dashboard: what each kind is good for.

use std::str::FromStr;

/// What a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionKind {
    /// Signed in with a key.
    Key,
    /// A link: good for opening sessions, and for nothing else.
    Link,
    /// Opened by a link.
    Opened,
    /// Good for signing in once, as with the key behind it, and for nothing else.
    Once,
}

impl SessionKind {
    /// Whether pages are shown by it; the others only begin such a one.
    #[must_use]
    pub const fn shows_pages(self) -> bool {
        matches!(self, Self::Key | Self::Opened)
    }

    /// The word, as in SQL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Link => "link",
            Self::Opened => "opened",
            Self::Once => "once",
        }
    }
}

/// The text is no kind of session, or no state of a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown word {0:?}")]
pub struct UnknownSessionWord(pub String);

impl FromStr for SessionKind {
    type Err = UnknownSessionWord;
    fn from_str(text: &str) -> Result<Self, UnknownSessionWord> {
        [Self::Key, Self::Link, Self::Opened, Self::Once]
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or_else(|| UnknownSessionWord(text.to_owned()))
    }
}
