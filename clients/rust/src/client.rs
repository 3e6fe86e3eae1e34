//! Who is asked, by which key, and what may come back instead of an answer.

use std::time::Duration;

use reqwest::header::{HeaderValue, InvalidHeaderValue};
use reqwest::{Url, redirect};

use crate::api::Problem;

/// A request with its answer, whatever it asks for. The API's slowest answers, such as
/// an audit of many destinations, take some seconds.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Paceline's API: a method for each operation, in [`api`](crate::api). Cheap to clone;
/// clones share their connections.
///
/// It sends each request once. What may be asked again, and when, an [`Error`] says.
#[derive(Debug, Clone)]
pub struct Client {
    pub(crate) http: reqwest::Client,
    pub(crate) url: Url,
    // Marked as sensitive, so that `Debug` does not show it.
    pub(crate) authorization: HeaderValue,
    pub(crate) tenant: Option<HeaderValue>,
}

impl Client {
    /// Asks the Paceline at `url`, such as `https://hooks.example.com`, with an API key.
    ///
    /// # Errors
    ///
    /// [`Error::Url`] and [`Error::Header`], when one of the two cannot be one;
    /// [`Error::Http`], when TLS cannot be set up.
    pub fn new(url: &str, key: &str) -> Result<Self, Error> {
        let http = reqwest::Client::builder()
            .timeout(REQUEST_TIMEOUT)
            // The API redirects nobody, and a key is not for others.
            .redirect(redirect::Policy::none())
            .build()?;
        Self::with_http(http, url, key)
    }

    /// The same through an HTTP client of your own: with another time-out, a proxy, or
    /// certificates of your own.
    ///
    /// # Errors
    ///
    /// [`Error::Url`] and [`Error::Header`].
    pub fn with_http(http: reqwest::Client, url: &str, key: &str) -> Result<Self, Error> {
        let refused = || Error::Url(url.to_owned());
        let parsed = Url::parse(url)
            .ok()
            .filter(Url::has_host)
            .ok_or_else(refused)?;
        if !matches!(parsed.scheme(), "http" | "https") {
            return Err(refused());
        }
        let mut authorization = header("the API key", &format!("Bearer {key}"))?;
        authorization.set_sensitive(true);
        Ok(Self {
            http,
            url: parsed,
            authorization,
            tenant: None,
        })
    }

    /// The same client, acting for one tenant: for a key of the scope `platform`. By
    /// the tenant's id, or by the one that you have given it.
    ///
    /// # Errors
    ///
    /// [`Error::Header`], when it cannot be an id.
    pub fn for_tenant(&self, tenant: &str) -> Result<Self, Error> {
        let tenant = Some(header("the tenant", tenant)?);
        Ok(Self {
            tenant,
            ..self.clone()
        })
    }
}

pub(crate) fn header(what: &'static str, value: &str) -> Result<HeaderValue, Error> {
    HeaderValue::from_str(value).map_err(|source| Error::Header { what, source })
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The API said no: which field is at fault, or when to ask again.
    #[error("{}: {}", .0.title, .0.detail)]
    Problem(Box<Problem>),
    /// No answer: no connection, or not in time. Whether the request was carried out is
    /// not known; an idempotency key makes it safe to send an event again.
    #[error("the request failed")]
    Http(#[from] reqwest::Error),
    /// An answer that is neither what was asked for nor a problem: of a proxy in
    /// between, or of a `/readyz` that is not ready.
    #[error("unexpected answer {status}: {body}")]
    Unexpected {
        /// The HTTP status.
        status: u16,
        /// The beginning of the body.
        body: String,
    },
    /// An answer that this version of the client cannot read.
    #[error("cannot read the answer")]
    Answer(#[source] serde_json::Error),
    /// A request that cannot be written as JSON.
    #[error("cannot write the request")]
    Request(#[source] serde_json::Error),
    /// Not the URL of an API.
    #[error("`{0}` is no URL of an API: it must be http or https, with a host")]
    Url(String),
    /// Not an id: it cannot stand in a path.
    #[error("`{0}` is no id")]
    Id(String),
    /// What cannot be in a header, such as a line feed.
    #[error("{what} may contain only visible ASCII")]
    Header {
        /// Which value.
        what: &'static str,
        /// What is wrong with it.
        source: InvalidHeaderValue,
    },
}

impl Error {
    /// What the API said, if it said no.
    #[must_use]
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Problem(problem) => Some(problem),
            _ => None,
        }
    }

    /// When it may go better, if the API says so: after a 429 and most 503.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let seconds = self.problem()?.retry_after_seconds?;
        Some(Duration::from_secs(seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_not_shown() {
        let client = Client::new("http://localhost:8080", "very-secret").expect("both are fine");
        let acting = client.for_tenant("shop").expect("an id");
        assert!(!format!("{acting:?}").contains("very-secret"));
    }

    #[test]
    fn what_cannot_be_asked_is_refused_at_once() {
        for url in ["hooks.example.com", "ftp://hooks.example.com", "http://"] {
            let refused = Client::new(url, "key").expect_err(url);
            assert!(matches!(refused, Error::Url(named) if named == url));
        }
        let refused = Client::new("http://localhost", "a\nb").expect_err("a line feed");
        assert!(refused.to_string().contains("the API key"));
    }

    #[test]
    fn a_problem_says_when_to_ask_again() {
        let problem = r#"{"type": "urn:paceline:problem:too-many", "title": "Too many",
            "status": 429, "detail": "wait", "retry_after_seconds": 3}"#;
        let problem = serde_json::from_str(problem).expect("a problem");
        let error = Error::Problem(Box::new(problem));
        assert_eq!(error.retry_after(), Some(Duration::from_secs(3)));
        assert_eq!(error.to_string(), "Too many: wait");
    }
}
