//! A client of a token server: where it asks, and as whom.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{CredentialProblem, Malformed};

/// The longest client id, audience and scope.
const MAX_TEXT_BYTES: usize = 512;

/// The longest client secret.
const MAX_SECRET_BYTES: usize = 2_048;

/// The most scopes.
const MAX_SCOPES: usize = 20;

/// The longest scopes together, in bytes, with a space after each.
pub const MAX_SCOPES_BYTES: usize = MAX_SCOPES * (MAX_TEXT_BYTES + 1);

/// How a client says who it is (RFC 6749, 2.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientAuth {
    /// By HTTP Basic: what every token server has to know.
    #[default]
    Basic,
    /// By `client_id` and `client_secret` in the body.
    Body,
}

impl ClientAuth {
    /// All there are.
    pub const ALL: [Self; 2] = [Self::Basic, Self::Body];

    /// The word, as in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Basic => "basic",
            Self::Body => "body",
        }
    }
}

/// The word is of no way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected basic or body")]
pub struct UnknownClientAuth;

impl FromStr for ClientAuth {
    type Err = UnknownClientAuth;
    fn from_str(word: &str) -> Result<Self, UnknownClientAuth> {
        let mut all = Self::ALL.into_iter();
        all.find(|one| one.as_str() == word)
            .ok_or(UnknownClientAuth)
    }
}

/// What may be shown of a client: all but its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OAuthFacts {
    /// Where tokens are asked for.
    pub token_url: String,
    /// As whom.
    pub client_id: String,
    /// What for; none are the server's to choose.
    pub scopes: Vec<String>,
    /// For whom, where the token server wants to know.
    pub audience: Option<String>,
    /// How it says who it is.
    pub client_auth: ClientAuth,
}

impl OAuthFacts {
    /// As text, beside what is sealed.
    #[must_use]
    pub fn text(&self) -> String {
        serde_json::to_string(self).expect("texts can be written as JSON")
    }
}

impl FromStr for OAuthFacts {
    type Err = Malformed;
    fn from_str(text: &str) -> Result<Self, Malformed> {
        serde_json::from_str(text).map_err(|_invalid| Malformed("facts of an OAuth2 client"))
    }
}

/// A client that has passed the rules. `Debug` shows no secret, and it is wiped when
/// dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct OAuthClient {
    facts: OAuthFacts,
    secret: Zeroizing<String>,
}

#[derive(Serialize, Deserialize)]
struct Written {
    facts: OAuthFacts,
    secret: String,
}

impl OAuthClient {
    /// Checks it, but for the URL: where requests may go is a policy's to say.
    pub fn new(facts: OAuthFacts, secret: Zeroizing<String>) -> Result<Self, CredentialProblem> {
        text("client_id", &facts.client_id, MAX_TEXT_BYTES)?;
        text("client_secret", &secret, MAX_SECRET_BYTES)?;
        if let Some(audience) = &facts.audience {
            text("audience", audience, MAX_TEXT_BYTES)?;
        }
        if facts.scopes.len() > MAX_SCOPES {
            let problem = format!("must be at most {MAX_SCOPES}");
            return Err(CredentialProblem::new("scopes", problem));
        }
        // RFC 6749, 3.3: printable, and no space, quote or backslash.
        let fits = |byte: u8| matches!(byte, b'!'..=b'~') && byte != b'"' && byte != b'\\';
        let is_scope = |scope: &String| {
            !scope.is_empty() && scope.len() <= MAX_TEXT_BYTES && scope.bytes().all(fits)
        };
        if !facts.scopes.iter().all(is_scope) {
            let problem = format!(
                "each must be 1 to {MAX_TEXT_BYTES} printable ASCII characters, without spaces, \
                 quotes and backslashes"
            );
            return Err(CredentialProblem::new("scopes", problem));
        }
        Ok(Self { facts, secret })
    }

    /// What may be shown.
    #[must_use]
    pub const fn facts(&self) -> &OAuthFacts {
        &self.facts
    }

    /// The secret.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// As text, to be sealed.
    #[must_use]
    pub fn expose(&self) -> Zeroizing<String> {
        let mut written = Written {
            facts: self.facts.clone(),
            secret: self.secret.to_string(),
        };
        let text = serde_json::to_string(&written).expect("texts can be written as JSON");
        drop(Zeroizing::new(std::mem::take(&mut written.secret)));
        Zeroizing::new(text)
    }

    /// From that text; checks it again.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let malformed = Malformed("OAuth2 client");
        let written: Written = serde_json::from_str(text).map_err(|_invalid| malformed)?;
        let secret = Zeroizing::new(written.secret);
        Self::new(written.facts, secret).map_err(|_problem| malformed)
    }
}

/// RFC 6749, appendix A: printable ASCII.
fn text(field: &'static str, text: &str, max_bytes: usize) -> Result<(), CredentialProblem> {
    let printable = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if printable && !text.is_empty() && text.len() <= max_bytes {
        return Ok(());
    }
    let problem = format!("must be 1 to {max_bytes} printable ASCII characters");
    Err(CredentialProblem::new(field, problem))
}

impl fmt::Debug for OAuthClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuthClient")
            .field("facts", &self.facts)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> OAuthFacts {
        OAuthFacts {
            token_url: "https://login.example/token".to_owned(),
            client_id: "paceline".to_owned(),
            scopes: vec!["hooks:write".to_owned()],
            audience: None,
            client_auth: ClientAuth::Body,
        }
    }

    fn client(facts: OAuthFacts, secret: &str) -> Result<OAuthClient, CredentialProblem> {
        OAuthClient::new(facts, Zeroizing::new(secret.to_owned()))
    }

    #[test]
    fn it_comes_back_as_it_was_sealed_and_shows_no_secret() {
        let one = client(facts(), "can\"ary").unwrap();
        assert_eq!(OAuthClient::parse(&one.expose()), Ok(one.clone()));
        assert!(!format!("{one:?}").contains("can\"ary"));
        assert!(!facts().text().contains("can"));
        assert_eq!(facts().text().parse(), Ok(facts()));
        assert!(OAuthClient::parse("{}").is_err());
    }

    #[test]
    fn what_no_request_could_carry_is_refused_by_its_field() {
        let of = |change: fn(&mut OAuthFacts)| {
            let mut facts = facts();
            change(&mut facts);
            client(facts, "secret").unwrap_err().field
        };
        assert_eq!(of(|facts| facts.client_id.clear()), "client_id");
        assert_eq!(of(|facts| facts.client_id.push('\n')), "client_id");
        assert_eq!(of(|facts| facts.client_id = "x".repeat(513)), "client_id");
        assert_eq!(
            of(|facts| facts.audience = Some("ä".to_owned())),
            "audience"
        );
        assert_eq!(of(|facts| facts.scopes[0].push(' ')), "scopes");
        assert_eq!(of(|facts| facts.scopes[0].clear()), "scopes");
        let many = |facts: &mut OAuthFacts| facts.scopes = vec!["a".to_owned(); 21];
        assert_eq!(of(many), "scopes");
        for secret in ["", "tab\there", &"x".repeat(2_049)] {
            assert_eq!(client(facts(), secret).unwrap_err().field, "client_secret");
        }
    }

    #[test]
    fn every_way_has_its_word() {
        for way in ClientAuth::ALL {
            assert_eq!(way.as_str().parse(), Ok(way));
            let json = serde_json::to_value(way).unwrap();
            assert_eq!(json, way.as_str());
        }
        assert_eq!("post".parse::<ClientAuth>(), Err(UnknownClientAuth));
    }
}
