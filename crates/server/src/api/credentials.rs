//! What a destination shows to be let in: a client certificate, and tokens. Written, and
//! never read again but for what is no secret.

use std::fmt;
use std::marker::PhantomData;

use domain::credentials::{CertificateFacts, ClientAuth, OAuthFacts};
use engine::ports;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::text;
use crate::hidden::Hidden;
use crate::service::credentials::{CertificateDraft, ClientDraft};

/// A client certificate for its connections to show.
#[derive(Debug, Clone, PartialEq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetClientCertificate {
    /// In PEM, and behind it its chain: at most 10 certificates and 16 KiB.
    #[schema(value_type = String)]
    pub certificate: Hidden,
    /// Its key, in PEM and not encrypted: at most 8 KiB. It is never shown again.
    #[schema(value_type = String)]
    pub private_key: Hidden,
}

/// What may be shown of a client certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClientCertificate {
    /// Whose it says that it is.
    #[schema(example = "CN=paceline, O=Example")]
    pub subject: String,
    /// SHA-256 of the certificate, in hexadecimal digits.
    pub sha256: String,
    /// When it ends: no receiver has to take it any more then.
    #[schema(format = DateTime)]
    pub not_after: String,
    /// Whether it ends within 30 days, or has ended.
    pub ends_soon: bool,
}

/// How tokens are asked for, by OAuth2 client credentials. They are sent in the header
/// `authorization`.
#[derive(Debug, Clone, PartialEq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetOAuth2 {
    /// Where: absolute, https, by the rules of a destination's own URL.
    #[schema(example = "https://login.example.com/oauth2/token")]
    pub token_url: String,
    /// As whom.
    pub client_id: String,
    /// Never shown again.
    #[schema(value_type = String)]
    pub client_secret: Hidden,
    /// What for: at most 20.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// For whom, where the token server wants to know.
    #[serde(default)]
    pub audience: Option<String>,
    /// How the client says who it is: `basic`, by HTTP Basic, or `body`.
    #[serde(default)]
    #[schema(schema_with = text::client_auth)]
    pub client_auth: ClientAuth,
}

/// How tokens are asked for, without the secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OAuth2 {
    /// Where.
    pub token_url: String,
    /// As whom.
    pub client_id: String,
    /// What for.
    pub scopes: Vec<String>,
    /// For whom.
    pub audience: Option<String>,
    /// How the client says who it is.
    #[schema(schema_with = text::client_auth)]
    pub client_auth: ClientAuth,
    /// Why there was no token when one was asked for last; `null` where there was one.
    pub trouble: Option<TokenTrouble>,
}

/// A request for a token came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenTrouble {
    /// In words.
    #[schema(example = "the token server answered 401: invalid_client")]
    pub words: String,
    /// When a worker last said so.
    #[schema(format = DateTime)]
    pub at: String,
}

impl ClientCertificate {
    /// What is shown of it now.
    #[must_use]
    pub fn of(facts: CertificateFacts, ends_soon: bool) -> Self {
        Self {
            not_after: text::time(facts.not_after),
            subject: facts.subject,
            sha256: facts.sha256,
            ends_soon,
        }
    }
}

impl OAuth2 {
    /// What is shown of it now.
    #[must_use]
    pub fn of(facts: OAuthFacts, trouble: Option<ports::TokenTrouble>) -> Self {
        Self {
            token_url: facts.token_url,
            client_id: facts.client_id,
            scopes: facts.scopes,
            audience: facts.audience,
            client_auth: facts.client_auth,
            trouble: trouble.map(|trouble| TokenTrouble {
                words: trouble.words,
                at: text::time(trouble.at),
            }),
        }
    }
}

impl From<SetClientCertificate> for CertificateDraft {
    fn from(body: SetClientCertificate) -> Self {
        Self {
            certificate: body.certificate,
            private_key: body.private_key,
        }
    }
}

impl From<SetOAuth2> for ClientDraft {
    fn from(body: SetOAuth2) -> Self {
        Self {
            token_url: body.token_url,
            client_id: body.client_id,
            client_secret: body.client_secret,
            scopes: body.scopes,
            audience: body.audience,
            client_auth: body.client_auth,
        }
    }
}

/// An object or `null`; or a problem that does not repeat what it was: somebody may have
/// put the key or the secret itself there.
fn hidden<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    deserializer.deserialize_any(Object(PhantomData))
}

/// The same of a change: what is absent is none.
pub(super) fn present_hidden<'de, T, D>(deserializer: D) -> Result<Option<Option<T>>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    hidden(deserializer).map(Some)
}

struct Object<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object or null")
    }

    fn visit_unit<E: Error>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Option<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Some)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Option<T>, E> {
        Err(E::custom("expected a JSON object or null"))
    }
}
