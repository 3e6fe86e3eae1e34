//! Verifies what Paceline sends: the signatures of Standard Webhooks (`v1`).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use http::HeaderMap;
use sha2::Sha256;

/// What a secret begins with.
const PREFIX: &str = "whsec_";
/// What the headers begin with: by the standard, and where Paceline is set to those of Svix.
const HEADERS: [&str; 2] = ["webhook-", "svix-"];
const DEFAULT_TOLERANCE: Duration = Duration::from_secs(5 * 60);

/// Verifies requests by one secret of a destination.
///
/// While secrets overlap in a rotation Paceline signs by each of them, so a receiver
/// that knows one of them, whichever, is enough.
#[derive(Clone)]
pub struct Webhook {
    mac: Hmac<Sha256>,
    tolerance: Duration,
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = formatter.debug_struct("Webhook");
        shown
            .field("tolerance", &self.tolerance)
            .finish_non_exhaustive()
    }
}

/// Not a secret that a receiver can verify by.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a secret is `whsec_` and base64")]
pub struct SecretError;

/// Why a request is not genuine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// A header is not there, or is no text.
    #[error("there is no header webhook-{0}")]
    Missing(&'static str),
    /// The timestamp is not a number of seconds.
    #[error("webhook-timestamp is not a number of seconds")]
    Timestamp,
    /// It was signed too long ago: perhaps somebody sends again what he has recorded.
    #[error("it was signed too long ago")]
    TooOld,
    /// It is from the future, by this machine's clock.
    #[error("its timestamp is in the future")]
    TooNew,
    /// None of its signatures is by this secret.
    #[error("none of its signatures is by this secret")]
    Signature,
}

impl Webhook {
    /// Verifies by this secret, `whsec_…`, as Paceline has shown it.
    ///
    /// # Errors
    ///
    /// When it is none. An ed25519 key (`whsk_`, `whpk_`) is none either.
    pub fn new(secret: &str) -> Result<Self, SecretError> {
        let encoded = secret.strip_prefix(PREFIX).ok_or(SecretError)?;
        let key = STANDARD.decode(encoded).ok().ok_or(SecretError)?;
        // An empty one would let everybody sign.
        if key.is_empty() {
            return Err(SecretError);
        }
        let mac = Hmac::new_from_slice(&key).ok().ok_or(SecretError)?;
        Ok(Self {
            mac,
            tolerance: DEFAULT_TOLERANCE,
        })
    }

    /// How far the timestamp may be from this machine's clock: 5 minutes, if nothing
    /// else is said.
    #[must_use]
    pub fn tolerance(self, tolerance: Duration) -> Self {
        Self { tolerance, ..self }
    }

    /// Whether this request is genuine. `body` is what has arrived, byte for byte.
    ///
    /// A genuine request may come again: remember the `webhook-id` of what you have done.
    ///
    /// # Errors
    ///
    /// Why not. Answer it with a 401 and nothing else.
    pub fn verify(&self, headers: &HeaderMap, body: &[u8]) -> Result<(), Refused> {
        self.verify_at(headers, body, SystemTime::now())
    }

    /// The same at another time, for tests.
    ///
    /// # Errors
    ///
    /// Why not.
    pub fn verify_at(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        now: SystemTime,
    ) -> Result<(), Refused> {
        let [id, timestamp, signatures] = signed(headers)?;
        self.in_time(timestamp.parse().ok().ok_or(Refused::Timestamp)?, now)?;
        let mut mac = self.mac.clone();
        // The text of the header is what was signed, not the number that it says.
        for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
            mac.update(part);
        }
        let of_ours = |signature: &str| {
            let decoded = signature.strip_prefix("v1,");
            let decoded = decoded.and_then(|encoded| STANDARD.decode(encoded).ok());
            // In constant time: how long it takes does not tell how much was right.
            decoded.is_some_and(|decoded| mac.clone().verify_slice(&decoded).is_ok())
        };
        let genuine = signatures.split(' ').any(of_ours);
        genuine.then_some(()).ok_or(Refused::Signature)
    }

    fn in_time(&self, signed_at: u64, now: SystemTime) -> Result<(), Refused> {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let tolerance = self.tolerance.as_secs();
        match now.checked_sub(signed_at) {
            Some(age) if age > tolerance => Err(Refused::TooOld),
            None if signed_at - now > tolerance => Err(Refused::TooNew),
            _ => Ok(()),
        }
    }
}

/// The three headers: all of one prefix, or what is signed could be mixed.
fn signed(headers: &HeaderMap) -> Result<[&str; 3], Refused> {
    let with = |prefix: &&str| headers.contains_key(format!("{prefix}signature"));
    let prefix = HEADERS.into_iter().find(with).unwrap_or(HEADERS[0]);
    let header = |name: &'static str| {
        let value = headers.get(format!("{prefix}{name}"));
        let text = value.and_then(|value| value.to_str().ok());
        text.ok_or(Refused::Missing(name))
    };
    Ok([header("id")?, header("timestamp")?, header("signature")?])
}

#[cfg(test)]
mod tests {
    use super::*;

    // The vector of the Standard Webhooks libraries.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const AT: u64 = 1_614_265_330;
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    fn headers(prefix: &str, signature: &str) -> HeaderMap {
        let values = [
            ("id", ID),
            ("timestamp", "1614265330"),
            ("signature", signature),
        ];
        let header = |(name, value): (&str, &str)| {
            let name: http::HeaderName = format!("{prefix}{name}").parse().expect("a name");
            (name, value.parse().expect("a value"))
        };
        values.into_iter().map(header).collect()
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn verified(headers: &HeaderMap, body: &[u8], now: u64) -> Result<(), Refused> {
        let webhook = Webhook::new(SECRET).expect("a secret");
        webhook.verify_at(headers, body, at(now))
    }

    #[test]
    fn the_vector_of_the_standard_is_verified_under_both_prefixes() {
        for prefix in HEADERS {
            assert_eq!(verified(&headers(prefix, SIGNATURE), BODY, AT), Ok(()));
        }
    }

    #[test]
    fn one_of_several_signatures_is_enough() {
        let others = "v1,AAAA v1a,c29tZXRoaW5n v1,!! v2,";
        let several = format!("{others} {SIGNATURE}");
        assert_eq!(verified(&headers("webhook-", &several), BODY, AT), Ok(()));
        let none = verified(&headers("webhook-", others), BODY, AT);
        assert_eq!(none, Err(Refused::Signature));
    }

    #[test]
    fn whatever_is_changed_is_refused() {
        let genuine = headers("webhook-", SIGNATURE);
        let longer = [BODY, b" "].concat();
        assert_eq!(verified(&genuine, &longer, AT), Err(Refused::Signature));
        for (name, value) in [
            ("webhook-id", "msg_other"),
            ("webhook-timestamp", "1614265331"),
        ] {
            let mut changed = genuine.clone();
            changed.insert(name, value.parse().expect("a value"));
            assert_eq!(
                verified(&changed, BODY, AT),
                Err(Refused::Signature),
                "{name}"
            );
        }
        let of_other_kind = SIGNATURE.replacen("v1,", "v1a,", 1);
        let refused = verified(&headers("webhook-", &of_other_kind), BODY, AT);
        assert_eq!(refused, Err(Refused::Signature));
        let shorter = &SIGNATURE[.."v1,".len() + 8];
        let refused = verified(&headers("webhook-", shorter), BODY, AT);
        assert_eq!(refused, Err(Refused::Signature));
    }

    /// A payload need not be text.
    #[test]
    fn a_body_of_any_bytes_is_verified() {
        let webhook = Webhook::new(SECRET).expect("a secret");
        let body = [0xff, 0x00, 0xfe];
        let mut mac = webhook.mac.clone();
        mac.update(&[ID.as_bytes(), b".1614265330.", &body].concat());
        let signature = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
        let signed = headers("webhook-", &signature);
        assert_eq!(webhook.verify_at(&signed, &body, at(AT)), Ok(()));
    }

    #[test]
    fn what_is_too_old_or_too_new_is_refused() {
        let genuine = headers("webhook-", SIGNATURE);
        assert_eq!(verified(&genuine, BODY, AT + 300), Ok(()));
        assert_eq!(verified(&genuine, BODY, AT + 301), Err(Refused::TooOld));
        assert_eq!(verified(&genuine, BODY, AT - 300), Ok(()));
        assert_eq!(verified(&genuine, BODY, AT - 301), Err(Refused::TooNew));
        let patient = Webhook::new(SECRET).expect("a secret");
        let patient = patient.tolerance(Duration::from_secs(3_600));
        assert_eq!(patient.verify_at(&genuine, BODY, at(AT + 3_600)), Ok(()));
    }

    #[test]
    fn what_is_missing_is_named() {
        for name in ["id", "timestamp", "signature"] {
            let mut lacking = headers("webhook-", SIGNATURE);
            lacking.remove(format!("webhook-{name}"));
            assert_eq!(verified(&lacking, BODY, AT), Err(Refused::Missing(name)));
        }
        let mut wrong = headers("webhook-", SIGNATURE);
        wrong.insert("webhook-timestamp", "soon".parse().expect("a value"));
        assert_eq!(verified(&wrong, BODY, AT), Err(Refused::Timestamp));
    }

    #[test]
    fn what_is_no_secret_is_refused_and_a_secret_is_not_shown() {
        for secret in [
            "",
            "whsec_",
            "whsec_!",
            "whpk_AAAA",
            "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        ] {
            assert_eq!(Webhook::new(secret).err(), Some(SecretError), "{secret}");
        }
        let shown = format!("{:?}", Webhook::new(SECRET));
        assert_eq!(shown, "Ok(Webhook { tolerance: 300s, .. })");
    }
}
