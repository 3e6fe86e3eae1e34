//! What destinations sign with here: secrets that follow from their ids, in a
//! vault that hides nothing; and receivers that look.

use bytes::Bytes;
use domain::ids::{DestinationId, SecretId};
use domain::signature::{Key, SecretKind, Signer, SigningSecret};
use domain::time::Timestamp;
use engine::ports::{
    DEFAULT_TENANT, NONCE_BYTES, NewSecret, Place, Request, Sealed, SealedKind, Vault, VaultError,
};
use engine::sealing::seal_secret;
use zeroize::Zeroizing;

/// What is sealed is the secret itself.
pub(crate) struct PlainVault;

impl Vault for PlainVault {
    fn sealing_key(&self) -> &'static str {
        "plain"
    }

    fn seal(&self, _place: &Place, _nonce: &[u8; NONCE_BYTES], secret: &[u8]) -> Sealed {
        Sealed {
            key: self.sealing_key().to_owned(),
            bytes: Bytes::copy_from_slice(secret),
        }
    }

    fn open(&self, _place: &Place, sealed: &Sealed) -> Result<Zeroizing<Vec<u8>>, VaultError> {
        Ok(Zeroizing::new(sealed.bytes.to_vec()))
    }
}

fn secret(of: DestinationId) -> SigningSecret {
    let half = of.0.into_bytes();
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&half);
    bytes[16..].copy_from_slice(&half);
    SigningSecret::new(SecretKind::Hmac, &Zeroizing::new(bytes))
}

/// The secret of a destination, as the store gets it.
pub(crate) fn sealed(of: DestinationId) -> NewSecret {
    let place = Place {
        tenant: DEFAULT_TENANT,
        destination: of,
        secret: SecretId(of.0),
        kind: SealedKind::Signs(SecretKind::Hmac),
    };
    seal_secret(&PlainVault, place, &[0; NONCE_BYTES], &secret(of))
}

/// Whether a request is signed by its destination's secret, over what it is.
pub(crate) fn is_signed(of: DestinationId, request: &Request) -> bool {
    let key = Key {
        secret: secret(of),
        expires_at: None,
    };
    let expected = Signer::new(vec![key]).sign(
        Timestamp::MIN,
        &(request.batch.clone()).unwrap_or_else(|| request.event.to_string()),
        request.sent_at_seconds,
        &request.payload,
    );
    expected.is_some() && request.signature == expected
}
