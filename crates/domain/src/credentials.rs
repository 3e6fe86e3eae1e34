//! What a destination shows to its receiver to be let in, beside its signature and its
//! headers: a client certificate in the TLS handshake, and an access token that it gets
//! by OAuth2 client credentials (RFC 6749, 4.4).
//!
//! Texts are checked here, and so is what a token server answers. Whether a certificate
//! is one, and whose key it is, is TLS's to say, outside.

mod account;
mod certificate;
mod oauth;
mod token;

pub use account::{Account, LONGEST_PAUSE, Look, TROUBLE_STANDS, What};
pub use certificate::{
    CertificateFacts, ClientCertificate, ENDS_SOON, MAX_CERTIFICATE_BYTES, MAX_CHAIN, MAX_KEY_BYTES,
};
pub use oauth::{ClientAuth, MAX_SCOPES_BYTES, OAuthClient, OAuthFacts, UnknownClientAuth};
pub use token::{Granted, MAX_TOKEN_BYTES, Token, read_answer};

/// What is wrong with a part of what was brought. Never repeats a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct CredentialProblem {
    /// Which part, as in JSON.
    pub field: &'static str,
    /// What is wrong with it.
    pub problem: String,
}

impl CredentialProblem {
    /// Of this part.
    pub fn new(field: &'static str, problem: impl Into<String>) -> Self {
        Self {
            field,
            problem: problem.into(),
        }
    }
}

/// A text of the vault, or of the database, is not what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no {0} as it is written here")]
pub struct Malformed(pub(crate) &'static str);
