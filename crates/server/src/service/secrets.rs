//! Secrets and headers: made, sealed and handed to the store. What is shown of
//! a secret is shown once, to whoever had it made.

use std::sync::Arc;
use std::time::Duration;

use domain::header::CustomHeaders;
use domain::ids::{DestinationId, SecretId};
use domain::signature::{SecretKind, SigningSecret};
use engine::ports::{HeadersChange, NewSecret, Place, SealedKind, Secret, SecretStore, Vault};
use engine::sealing::{self, seal_headers, seal_secret};
use zeroize::Zeroizing;

use super::{Service, ServiceError};
use crate::hidden::Hidden;

/// How long the secret before it signs beside a new one, if nothing is said.
pub const DEFAULT_OVERLAP: Duration = Duration::from_secs(24 * 3_600);

/// The longest that it may.
pub const MAX_OVERLAP: Duration = Duration::from_secs(7 * 24 * 3_600);

/// What signing needs: where secrets are, and what opens them.
#[derive(Clone)]
pub struct Signing {
    /// Where they are kept, sealed.
    pub secrets: Arc<dyn SecretStore>,
    /// What seals them.
    pub vault: Arc<dyn Vault>,
}

/// A secret that somebody wants.
#[derive(Debug, Clone, PartialEq)]
pub struct SecretDraft {
    /// Their own, or `None` for a new one.
    pub own: Option<Hidden>,
    /// How a new one signs; `None` as the one before it, and the first by HMAC.
    pub kind: Option<SecretKind>,
}

/// A secret that was just stored.
#[derive(Debug)]
pub struct MadeSecret {
    pub id: SecretId,
    pub kind: SecretKind,
    /// The secret itself, if it was made here and the receiver needs it. Never
    /// shown again.
    pub shown_once: Option<Hidden>,
    pub public_key: Option<String>,
}

impl Service {
    /// The destination's secrets that sign, the newest first.
    pub async fn secrets(&self, destination: DestinationId) -> Result<Vec<Secret>, ServiceError> {
        Ok((self.signing.secrets)
            .secrets(self.tenant, destination)
            .await?)
    }

    /// Adds a secret; all others, of whatever kind, sign for `overlap` longer.
    pub async fn rotate_secret(
        &self,
        destination: DestinationId,
        mut draft: SecretDraft,
        overlap: Duration,
    ) -> Result<(MadeSecret, Secret), ServiceError> {
        if overlap > MAX_OVERLAP {
            let problem = format!("must be at most {} (7 days)", MAX_OVERLAP.as_secs());
            return Err(ServiceError::invalid("overlap_seconds", problem));
        }
        if draft.own.is_none() && draft.kind.is_none() {
            // The old one ends: its receiver must not have to verify otherwise.
            let newest = self.secrets(destination).await?;
            draft.kind = newest.first().map(|newest| newest.kind);
        }
        let (new, made) = self.new_secret(destination, &draft)?;
        let secret = (self.signing.secrets)
            .rotate_secret(self.managed(destination), &new, overlap)
            .await?;
        self.look_now(destination).await;
        Ok((made, secret))
    }

    /// Deletes a secret, but not the last one.
    pub async fn delete_secret(
        &self,
        destination: DestinationId,
        secret: SecretId,
    ) -> Result<(), ServiceError> {
        (self.signing.secrets)
            .delete_secret(self.managed(destination), secret)
            .await?;
        self.look_now(destination).await;
        Ok(())
    }

    /// A secret, sealed, and what its owner is told of it.
    pub(super) fn new_secret(
        &self,
        destination: DestinationId,
        draft: &SecretDraft,
    ) -> Result<(NewSecret, MadeSecret), ServiceError> {
        let secret = match &draft.own {
            Some(own) => SigningSecret::parse(own.expose())
                .map_err(|problem| ServiceError::invalid("secret", problem.to_string()))?,
            None => {
                let kind = draft.kind.unwrap_or(SecretKind::Hmac);
                SigningSecret::new(kind, &Zeroizing::new(self.mint.bytes()))
            }
        };
        let place = self.place(destination);
        let nonce = self.mint.bytes();
        let new = seal_secret(self.signing.vault.as_ref(), place, &nonce, &secret);
        let is_for_the_receiver = draft.own.is_none() && secret.kind() == SecretKind::Hmac;
        let made = MadeSecret {
            id: new.place.secret,
            kind: secret.kind(),
            shown_once: is_for_the_receiver.then(|| Hidden::new(secret.expose())),
            public_key: secret.public_key(),
        };
        Ok((new, made))
    }

    /// Headers, checked and sealed; none are no secret.
    pub(super) fn new_headers(
        &self,
        destination: DestinationId,
        headers: Vec<(String, Hidden)>,
    ) -> Result<HeadersChange, ServiceError> {
        Ok(self.sealed_headers(destination, &checked_headers(headers)?))
    }

    /// The same, but for those that it adds already: a change takes back what is
    /// admitted, as all workers have to read its target again.
    pub(super) async fn headers_that_differ(
        &self,
        destination: DestinationId,
        headers: Vec<(String, Hidden)>,
    ) -> Result<HeadersChange, ServiceError> {
        let wanted = checked_headers(headers)?;
        let mut sealed = (self.managers)
            .sealed_secrets(self.tenant, destination)
            .await?;
        sealed.retain(|one| one.place.kind == SealedKind::Headers);
        let added = sealing::open(self.signing.vault.as_ref(), &sealed);
        Ok(match added.is_ok_and(|(_, added)| added == wanted) {
            true => HeadersChange::Keep,
            false => self.sealed_headers(destination, &wanted),
        })
    }

    fn sealed_headers(&self, destination: DestinationId, headers: &CustomHeaders) -> HeadersChange {
        if headers.is_empty() {
            return HeadersChange::Clear;
        }
        let place = self.place(destination);
        let nonce = self.mint.bytes();
        let sealed = seal_headers(self.signing.vault.as_ref(), place, &nonce, headers);
        HeadersChange::Set(sealed)
    }

    fn place(&self, destination: DestinationId) -> Place {
        Place {
            tenant: self.tenant,
            destination,
            secret: SecretId(self.mint.uuid()),
            kind: SealedKind::Headers, // sealing says what it really is
        }
    }
}

fn checked_headers(headers: Vec<(String, Hidden)>) -> Result<CustomHeaders, ServiceError> {
    let headers = headers.into_iter();
    let headers = headers.map(|(name, value)| (name, value.into_inner()));
    CustomHeaders::new(headers)
        .map_err(|problem| ServiceError::invalid("headers", problem.to_string()))
}
