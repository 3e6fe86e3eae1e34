//! A URL that may carry a password.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use secrecy::{ExposeSecret, SecretString};
use url::Url;

/// Stands for what cannot be shown without its secrets, for they are anywhere.
const UNREADABLE: &str = "(unreadable URL)";

/// A URL as it was given, shown without password, query and fragment.
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
        if text == "in-process" || text.starts_with("sqlite:") {
            return f.write_str(text); // a file: nothing to hide
        }
        let Ok(mut url) = Url::parse(text) else {
            return f.write_str(UNREADABLE);
        };
        // Without a host, or with an `@` where none belongs, somebody has
        // mistyped it, and the password is in what the parser takes for
        // something else.
        let behind = [Some(url.path()), url.query(), url.fragment()];
        if !url.has_host() || behind.iter().flatten().any(|part| part.contains('@')) {
            return f.write_str(UNREADABLE);
        }
        if url.password().is_some() {
            // Fails only for URLs that cannot have a password.
            let _ = url.set_password(Some("***"));
        }
        if url.query().is_some() {
            url.set_query(Some("***"));
        }
        url.set_fragment(None);
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
            "postgres:ann:hunter2@db",
            "postgres:///ann:hunter2@db",
            "postgres://ann:1/hunter2@db",
            "postgres://ann:/hunter2?@db",
            "postgres://db/paceline#hunter2",
            "redis://a:hunter2@b,redis://c:hunter2@d",
        ] {
            assert!(!shown(url).contains("hunter2"), "{}", shown(url));
        }
        assert_eq!(shown("in-process"), "in-process in-process");
        assert_eq!(shown("sqlite:a.db"), "sqlite:a.db sqlite:a.db");
    }
}
