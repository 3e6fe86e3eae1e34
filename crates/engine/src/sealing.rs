//! Between a secret and what a store has of it.

use domain::header::CustomHeaders;
use domain::ids::SecretId;
use domain::signature::{Key, Signer, SigningSecret};

use crate::ports::{NONCE_BYTES, NewSecret, Place, SealedKind, SealedSecret, Vault, VaultError};

/// Why a secret is not added.
pub const TOO_MANY: &str = "three secrets sign already: delete one, or wait until one has ended";

/// Why a secret is not deleted.
pub const LAST_ONE: &str = "it is the last secret that signs: add another one first";

/// Seals a secret that signs.
#[must_use]
pub fn seal_secret(
    vault: &dyn Vault,
    place: Place,
    nonce: &[u8; NONCE_BYTES],
    secret: &SigningSecret,
) -> NewSecret {
    let place = Place {
        kind: SealedKind::Signs(secret.kind()),
        ..place
    };
    NewSecret {
        place,
        sealed: vault.seal(&place, nonce, secret.expose().as_bytes()),
        shown: secret.public_key(),
    }
}

/// Seals headers; their names stay readable.
#[must_use]
pub fn seal_headers(
    vault: &dyn Vault,
    place: Place,
    nonce: &[u8; NONCE_BYTES],
    headers: &CustomHeaders,
) -> NewSecret {
    let place = Place {
        kind: SealedKind::Headers,
        ..place
    };
    NewSecret {
        place,
        sealed: vault.seal(&place, nonce, headers.expose().as_bytes()),
        shown: Some(headers.names().join(" ")),
    }
}

/// Opens all that a destination has: what signs its requests, and what it adds
/// to them. All or nothing: which one did not open, and why.
pub fn open(
    vault: &dyn Vault,
    sealed: &[SealedSecret],
) -> Result<(Signer, CustomHeaders), (SecretId, VaultError)> {
    let mut keys = Vec::new();
    let mut headers = CustomHeaders::default();
    for one in sealed {
        let failed = |error| (one.place.secret, error);
        let opened = vault.open(&one.place, &one.sealed).map_err(failed)?;
        let text = std::str::from_utf8(&opened);
        let text = text.map_err(|_invalid| failed(VaultError::Invalid("text")))?;
        match one.place.kind {
            SealedKind::Signs(kind) => {
                let secret = SigningSecret::parse(text).ok();
                let secret = secret.filter(|secret| secret.kind() == kind);
                keys.push(Key {
                    secret: secret.ok_or_else(|| failed(VaultError::Invalid("secret")))?,
                    expires_at: one.expires_at,
                });
            }
            SealedKind::Headers => {
                let parsed = CustomHeaders::parse(text);
                headers = parsed.map_err(|_invalid| failed(VaultError::Invalid("headers")))?;
            }
            SealedKind::Notice => return Err(failed(VaultError::Invalid("secret"))),
        }
    }
    Ok((Signer::new(keys), headers))
}
