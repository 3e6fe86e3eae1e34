//! Every request of a trial is signed, and its receivers look.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use domain::ids::{DestinationId, SecretId, TenantId};
use domain::signature::{Key, SecretKind, Signer, SigningSecret};
use domain::time::Timestamp;
use engine::ports::{NewSecret, Place, SealedKind, Vault};
use engine::sealing::seal_secret;
use http::HeaderMap;
use zeroize::Zeroizing;

use crate::edge::Mint;
use crate::receiver::{Observed, Observer};

/// A new secret of a destination, and what the store gets of it.
#[must_use]
pub fn new_secret(
    vault: &dyn Vault,
    mint: &Mint,
    (tenant, destination): (TenantId, DestinationId),
) -> (SigningSecret, NewSecret) {
    let secret = SigningSecret::new(SecretKind::Hmac, &Zeroizing::new(mint.bytes()));
    let place = Place {
        tenant,
        destination,
        secret: SecretId(mint.uuid()),
        kind: SealedKind::Signs(SecretKind::Hmac),
    };
    let sealed = seal_secret(vault, place, &mint.bytes(), &secret);
    (secret, sealed)
}

/// What the receivers know: each destination's secret, by its number there.
#[derive(Clone, Default)]
pub(super) struct Signatures(Arc<Known>);

#[derive(Default)]
struct Known {
    signers: OnceLock<Vec<Signer>>,
    bad: AtomicU64,
}

impl Signatures {
    /// Tells the receivers the secrets, before the first request.
    pub(super) fn tell(&self, keys: Vec<Key>) {
        let signers = keys.into_iter().map(|key| Signer::new(vec![key]));
        let _ = self.0.signers.set(signers.collect());
    }

    /// How many requests were not signed by their destination's secret.
    pub(super) fn bad(&self) -> u64 {
        self.0.bad.load(Ordering::Relaxed)
    }

    /// Looks at every request; leaves its answer alone.
    pub(super) fn observer(&self) -> Box<Observer> {
        let known = Arc::clone(&self.0);
        Box::new(move |seen| {
            let signers = known.signers.get();
            let signer = signers.and_then(|all| all.get(seen.destination as usize));
            if !signer.is_some_and(|signer| is_signed(signer, &seen)) {
                known.bad.fetch_add(1, Ordering::Relaxed);
            }
            None
        })
    }
}

fn is_signed(signer: &Signer, seen: &Observed<'_>) -> bool {
    let text = |name| text(seen.headers, name);
    let signed = || {
        let id = text("webhook-id")?;
        let timestamp = text("webhook-timestamp")?.parse().ok()?;
        signer.sign(Timestamp::MIN, id, timestamp, seen.body)
    };
    signed().is_some_and(|signature| text("webhook-signature") == Some(&signature))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use tokio::time::Instant;

    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    #[test]
    fn a_request_that_is_not_signed_by_its_secret_is_counted() {
        let signatures = Signatures::default();
        signatures.tell(vec![Key {
            secret: SigningSecret::parse(SECRET).unwrap(),
            expires_at: None,
        }]);
        let look = signatures.observer();
        let mut headers = HeaderMap::new();
        let mut set = |name: &'static str, value: &'static str| {
            headers.insert(name, HeaderValue::from_static(value));
        };
        set("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek");
        set("webhook-timestamp", "1614265330");
        let right = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        let body = br#"{"test": 2432232314}"#;
        let seen = |headers: &HeaderMap, destination, body: &[u8]| {
            let at = Instant::now();
            look(Observed {
                destination,
                at,
                headers,
                body,
            });
            signatures.bad()
        };
        assert_eq!(seen(&headers, 0, body), 1, "no signature");
        headers.insert("webhook-signature", HeaderValue::from_static(right));
        assert_eq!(seen(&headers, 0, body), 1, "signed");
        assert_eq!(seen(&headers, 0, b"{}"), 2, "another body");
        assert_eq!(seen(&headers, 1, body), 3, "another destination");
    }
}
