//! A URL that may carry a password.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use secrecy::{ExposeSecret, SecretString};
use url::Url;

/// A URL as it was given, shown without password and query.
#[derive(Clone)]
pub struct SecretUrl(SecretString);

impl SecretUrl {
    /// The whole text, secrets included: for whoever dials it.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// What comes before the first `:`; the whole text where there is none.
    #[must_use]
    pub fn scheme(&self) -> &str {
        let text = self.expose();
        text.split_once(':').map_or(text, |(scheme, _)| scheme)
    }
}

/// Any text is taken: what refuses it later must not repeat it.
impl FromStr for SecretUrl {
    type Err = Infallible;
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(SecretString::from(text)))
    }
}

impl fmt::Display for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.expose();
        if !text.contains("://") {
            // `in-process`, `sqlite:FILE`: nothing to hide.
            return f.write_str(text);
        }
        let Ok(mut url) = Url::parse(text) else {
            return f.write_str("(unreadable URL)");
        };
        if url.password().is_some() {
            // Fails only for URLs that cannot have a password.
            let _ = url.set_password(Some("***"));
        }
        if url.query().is_some() {
            url.set_query(Some("***"));
        }
        url.fmt(f)
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let Ok(url) = text.parse::<SecretUrl>();
        format!("{url:?} {url}")
    }

    #[test]
    fn passwords_are_not_shown() {
        for url in [
            "postgres://ann:hunter2@db/paceline?sslmode=require",
            "postgres://db/paceline?password=hunter2",
            "redis://:hunter2@cache:6379/0",
            "amqp://ann:hunter2@queue:not-a-port/",
        ] {
            assert!(!shown(url).contains("hunter2"), "{}", shown(url));
        }
        assert_eq!(shown("in-process"), "in-process in-process");
        assert_eq!(shown("sqlite:a.db"), "sqlite:a.db sqlite:a.db");
    }
}
