//! Tokens: who is asked for them, and where it is written down that there are none.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use domain::credentials::OAuthClient;
use domain::ids::{DestinationId, SecretId};

use super::error::StoreError;
use super::sender::SendError;

/// Asks token servers. Never to a redirect, and never twice.
#[async_trait]
pub trait Granter: Send + Sync {
    /// Sends one request for a token by OAuth2 client credentials, by the rules of
    /// [`Sender`](super::Sender): the same addresses, proxy and caps. All within
    /// `timeout`, the dial too.
    async fn ask_for_token(
        &self,
        destination: DestinationId,
        client: &OAuthClient,
        timeout: Duration,
    ) -> Result<TokenAnswer, SendError>;
}

/// What a token server answered. No `Debug`: it holds the token.
pub struct TokenAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The first [`STORED_BODY_BYTES`](super::STORED_BODY_BYTES) of the body.
    pub body: Bytes,
}

/// Where it is written down that a destination gets no token, for people to read.
#[async_trait]
pub trait TokenBook: Send + Sync {
    /// Writes these down, at most [`MAX_ROWS`](super::MAX_ROWS), in one statement. Of a
    /// secret that is gone nothing is written. Repeating it changes nothing but the time
    /// of a trouble.
    async fn note_tokens(&self, notes: &[TokenNote]) -> Result<(), StoreError>;
}

/// What the last request for a token came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenNote {
    /// By which client it was.
    pub secret: SecretId,
    /// Why there is none; `None` where there is one.
    pub trouble: Option<String>,
}

/// Of a process without tokens: nobody is asked, and nothing is written.
#[derive(Debug, Clone, Copy)]
pub struct NoTokens;

#[async_trait]
impl Granter for NoTokens {
    async fn ask_for_token(
        &self,
        _: DestinationId,
        _: &OAuthClient,
        _: Duration,
    ) -> Result<TokenAnswer, SendError> {
        let problem = "this process asks for no tokens";
        Err(SendError::Refused(problem.to_owned()))
    }
}

#[async_trait]
impl TokenBook for NoTokens {
    async fn note_tokens(&self, _: &[TokenNote]) -> Result<(), StoreError> {
        Ok(())
    }
}
