//! What a request was signed with: not kept, and put together again from what is, by the
//! function that signs.

use std::time::Duration;

use domain::ids::SecretId;
use domain::time::Timestamp;
use engine::ports::{CatalogError, Requested, SealedKind, Secret};
use engine::sealing;

use super::secrets::MAX_OVERLAP;
use super::{Service, ServiceError};

/// A destination's first secret is stored with it, in one transaction.
const TOGETHER: Duration = Duration::from_secs(1);

/// The value of a signature's header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SentSignature {
    /// As it stood there.
    Whole(String),
    /// As it stood there, but for that of a secret which may have signed beside these and
    /// has ended since.
    Part(String),
    /// Why it cannot be said any more.
    Unknown(&'static str),
}

/// Of the secrets that are kept, those that signed then; and whether there may have been
/// others.
#[derive(Debug, PartialEq, Eq)]
struct Then {
    ids: Vec<SecretId>,
    is_whole: bool,
}

impl Then {
    /// Of a destination that was created `born`, as of a request at `at`. One that has
    /// ended is forgotten; at a rotation the others sign on for [`MAX_OVERLAP`] at most.
    fn of(secrets: &[Secret], born: Timestamp, at: Timestamp) -> Self {
        let then: Vec<_> = (secrets.iter())
            .filter(|one| one.created_at <= at)
            .collect();
        let oldest = then.iter().map(|one| one.created_at).min();
        Self {
            ids: then.iter().map(|one| one.id).collect(),
            is_whole: oldest
                .is_some_and(|oldest| oldest <= born + TOGETHER || at >= oldest + MAX_OVERLAP),
        }
    }
}

impl Service {
    /// What a request was signed with. For whoever may read payloads: it is of one.
    pub async fn sent_signature(&self, of: &Requested) -> Result<SentSignature, ServiceError> {
        let unknown = |why| Ok(SentSignature::Unknown(why));
        let Some(at) = of.claimed_at else {
            return unknown("it has not been sent");
        };
        if of.in_batch {
            return unknown("not kept: it is of the whole batch");
        }
        let (id, event) = (of.attempt.destination, of.attempt.event);
        let payload = match self.reading.overview.payload(self.tenant, event).await {
            Err(CatalogError::NotFound(_)) => return unknown("not kept: its payload is gone"),
            payload => payload?,
        };
        if !payload.redact.is_empty() {
            // With it and a public key a short secret could be guessed, byte for byte.
            return unknown("hidden: its type hides a part of what was signed");
        }
        let destination = match self.reading.catalog.destination(self.tenant, id).await {
            Err(CatalogError::NotFound(_)) => return unknown("not kept: its destination is gone"),
            destination => destination?,
        };
        let secrets = self.signing.secrets.secrets(self.tenant, id).await?;
        let then = Then::of(&secrets, destination.created_at, at);
        let mut sealed = self.managers.sealed_secrets(self.tenant, id).await?;
        sealed.retain(|one| {
            matches!(one.place.kind, SealedKind::Signs(_)) && then.ids.contains(&one.place.secret)
        });
        let Ok(opened) = sealing::open(self.signing.vault.as_ref(), &sealed) else {
            return unknown("not shown: this process cannot open the secret");
        };
        let seconds = at.as_micros().div_euclid(1_000_000);
        let signer = opened.signer;
        let signed = signer.sign(at, &event.to_string(), seconds, &payload.bytes);
        Ok(match signed {
            None => SentSignature::Unknown("not kept: its secret has been rotated out since"),
            Some(value) if then.is_whole => SentSignature::Whole(value),
            Some(value) => SentSignature::Part(value),
        })
    }
}

#[cfg(test)]
mod tests {
    use domain::signature::SecretKind;
    use uuid::Uuid;

    use super::*;

    const BORN: Timestamp = Timestamp::from_millis(0);
    const DAY: Duration = Duration::from_secs(86_400);

    fn secret(number: u128, created_at: Timestamp) -> Secret {
        Secret {
            id: SecretId(Uuid::from_u128(number)),
            kind: SecretKind::Hmac,
            public_key: None,
            created_at,
            expires_at: None,
        }
    }

    #[test]
    fn those_sign_that_were_there() {
        let rotated = BORN + DAY;
        let (first, second) = (secret(1, BORN), secret(2, rotated));
        let then = |secrets: &[Secret], at: Timestamp| {
            let Then { ids, is_whole } = Then::of(secrets, BORN, at);
            (
                ids.iter().map(|id| id.0.as_u128()).collect::<Vec<_>>(),
                is_whole,
            )
        };
        let both = [second.clone(), first];
        assert_eq!(
            then(&both, rotated - Duration::from_millis(1)),
            (vec![1], true)
        );
        assert_eq!(then(&both, rotated), (vec![2, 1], true));
        // The first has ended: for a while it signed beside the second.
        let left = [second];
        assert_eq!(
            then(&left, rotated - Duration::from_millis(1)),
            (vec![], false)
        );
        assert_eq!(then(&left, rotated + DAY), (vec![2], false));
        assert_eq!(then(&left, rotated + MAX_OVERLAP), (vec![2], true));
    }
}
