//! Secrets that sign: made, sealed and handed to the store. What is shown of
//! a secret is shown once, to whoever had it made.

use std::sync::Arc;
use std::time::Duration;

use domain::ids::{DestinationId, SecretId};
use domain::signature::{HeaderPrefix, SecretKind, SigningSecret};
use engine::ports::{NewSecret, Secret, SecretStore, Vault};
use engine::sealing::seal_secret;
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
    /// What the headers of a signature begin with.
    pub prefix: HeaderPrefix,
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
        Ok((self.reading.secrets)
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
        self.look_at_changed(&[destination]).await;
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
        self.look_at_changed(&[destination]).await;
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
}
