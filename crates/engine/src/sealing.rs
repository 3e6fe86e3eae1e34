//! Between a secret and what a store has of it.

use std::sync::Arc;

use domain::credentials::{CertificateFacts, ClientCertificate, OAuthClient};
use domain::header::CustomHeaders;
use domain::ids::SecretId;
use domain::signature::{Key, Signer, SigningSecret};

use crate::ports::{
    ClientIdentity, NONCE_BYTES, NewSecret, Place, SealedKind, SealedSecret, Vault, VaultError,
};

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

/// Seals a client certificate with its key; these facts stay readable.
#[must_use]
pub fn seal_certificate(
    vault: &dyn Vault,
    place: Place,
    nonce: &[u8; NONCE_BYTES],
    (certificate, facts): (&ClientCertificate, &CertificateFacts),
) -> NewSecret {
    let place = Place {
        kind: SealedKind::ClientCertificate,
        ..place
    };
    NewSecret {
        place,
        sealed: vault.seal(&place, nonce, certificate.expose().as_bytes()),
        shown: Some(facts.text()),
    }
}

/// Seals what tokens are asked for with; all but the client's secret stays readable.
#[must_use]
pub fn seal_client(
    vault: &dyn Vault,
    place: Place,
    nonce: &[u8; NONCE_BYTES],
    client: &OAuthClient,
) -> NewSecret {
    let place = Place {
        kind: SealedKind::OAuth2,
        ..place
    };
    NewSecret {
        place,
        sealed: vault.seal(&place, nonce, client.expose().as_bytes()),
        shown: Some(client.facts().text()),
    }
}

/// All that a destination has, open.
#[derive(Debug, Default)]
pub struct Opened {
    /// What signs its requests.
    pub signer: Signer,
    /// What it adds to them.
    pub headers: CustomHeaders,
    /// What its connections show.
    pub identity: Option<ClientIdentity>,
    /// What its tokens are asked for with.
    pub client: Option<TokenClient>,
}

/// What tokens are asked for with.
#[derive(Debug, Clone)]
pub struct TokenClient {
    /// Where it is kept: another client is another secret.
    pub secret: SecretId,
    /// The client.
    pub client: Arc<OAuthClient>,
}

/// Opens all that a destination has: what signs its requests, and what it adds
/// to them and shows. All or nothing: which one did not open, and why.
pub fn open(vault: &dyn Vault, sealed: &[SealedSecret]) -> Result<Opened, (SecretId, VaultError)> {
    let mut keys = Vec::new();
    let mut all = Opened::default();
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
                all.headers = parsed.map_err(|_invalid| failed(VaultError::Invalid("headers")))?;
            }
            SealedKind::ClientCertificate => {
                let parsed = ClientCertificate::parse(text);
                let invalid = |_| failed(VaultError::Invalid("client certificate"));
                all.identity = Some(ClientIdentity {
                    secret: one.place.secret,
                    certificate: Arc::new(parsed.map_err(invalid)?),
                });
            }
            SealedKind::OAuth2 => {
                let parsed = OAuthClient::parse(text);
                let invalid = |_| failed(VaultError::Invalid("OAuth2 client"));
                all.client = Some(TokenClient {
                    secret: one.place.secret,
                    client: Arc::new(parsed.map_err(invalid)?),
                });
            }
            SealedKind::Notice => return Err(failed(VaultError::Invalid("secret"))),
        }
    }
    all.signer = Signer::new(keys);
    Ok(all)
}
