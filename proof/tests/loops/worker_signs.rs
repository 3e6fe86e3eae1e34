//! What the worker signs with, and that it sends nothing where it cannot.

use std::time::Duration;

use bytes::Bytes;
use domain::header::CustomHeaders;
use domain::ids::{DestinationId, SecretId};
use domain::signature::{Key, SecretKind, Signer, SigningSecret};
use domain::time::Timestamp;
use engine::ports::{
    DEFAULT_TENANT, NONCE_BYTES, NoVault, Place, Request, Sealed, SealedKind, SealedSecret, Vault,
    VaultError,
};
use engine::sealing::{open, seal_headers, seal_secret};
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::support::{Event, T0, World, ms, pass, permit, permit_of};

/// A vault that hides nothing.
pub(crate) struct Open;

impl Vault for Open {
    fn sealing_key(&self) -> &'static str {
        "open"
    }

    fn seal(&self, _: &Place, _: &[u8; NONCE_BYTES], secret: &[u8]) -> Sealed {
        Sealed {
            key: "open".to_owned(),
            bytes: Bytes::copy_from_slice(secret),
        }
    }

    fn open(&self, _: &Place, sealed: &Sealed) -> Result<Zeroizing<Vec<u8>>, VaultError> {
        Ok(Zeroizing::new(sealed.bytes.to_vec()))
    }
}

const PLACE: Place = Place {
    tenant: DEFAULT_TENANT,
    destination: DestinationId(Uuid::from_u128(2)),
    secret: SecretId(Uuid::from_u128(3)),
    kind: SealedKind::Signs(SecretKind::Hmac),
};

pub(crate) fn sealed(kind: SealedKind, text: &str) -> SealedSecret {
    let place = Place { kind, ..PLACE };
    SealedSecret {
        place,
        sealed: Open.seal(&place, &[0; NONCE_BYTES], text.as_bytes()),
        expires_at: None,
    }
}

pub(crate) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

#[test]
fn what_is_sealed_opens_as_it_was() {
    let secret = SigningSecret::parse(SECRET).unwrap();
    let one = ("x-env".to_owned(), "production".to_owned().into());
    let headers = CustomHeaders::new([one]).unwrap();
    let both = [
        seal_secret(&Open, PLACE, &[0; NONCE_BYTES], &secret),
        seal_headers(&Open, PLACE, &[0; NONCE_BYTES], &headers),
    ];
    assert_eq!(both[1].shown.as_deref(), Some("x-env"));
    let both = both.map(|new| SealedSecret {
        place: new.place,
        sealed: new.sealed,
        expires_at: None,
    });
    let opened = open(&Open, &both).unwrap();
    assert_eq!(opened.headers, headers);
    let signer = opened.signer;
    let at = Timestamp::from_millis(0);
    let expected = Signer::new(vec![Key {
        secret,
        expires_at: None,
    }]);
    assert_eq!(
        signer.sign(at, "a", 0, b"b"),
        expected.sign(at, "a", 0, b"b")
    );
}

/// A hand in the database that had the keys could still not set these.
#[test]
fn the_rules_hold_when_it_is_opened() {
    let headers = SealedKind::Headers;
    for (kind, text) in [
        (headers, "host:evil.example\n"),
        (headers, "webhook-signature:v1,abc\n"),
        (headers, "x-a:b\rhost: c\n"),
        (headers, "no colon"),
        (PLACE.kind, "not a secret"),
        (SealedKind::Signs(SecretKind::Ed25519), SECRET),
    ] {
        let all = [sealed(PLACE.kind, SECRET), sealed(kind, text)];
        let (_, error) = open(&Open, &all).unwrap_err();
        assert!(matches!(error, VaultError::Invalid(_)), "{kind:?}: {error}");
        let shown = format!("{error} {error:?} {all:?}");
        assert!(!shown.contains(text.trim()), "{shown}");
    }
    let (_, error) = open(&NoVault, &[sealed(PLACE.kind, SECRET)]).unwrap_err();
    assert_eq!(error, VaultError::UnknownKey("open".to_owned()));
}

pub(crate) fn requests(world: &World) -> Vec<Request> {
    world.journal.pick(|event| match event {
        Event::Send(request) => Some(request),
        _ => None,
    })
}

/// How many claims and how many requests there were.
fn claims_and_requests(world: &World) -> (usize, usize) {
    let calls = world.journal.pick(|event| match event {
        Event::Claim(..) => Some((1, 0)),
        Event::Send(_) => Some((0, 1)),
        _ => None,
    });
    calls
        .iter()
        .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

#[tokio::test(start_paused = true)]
async fn a_request_is_signed_over_what_is_sent_as_of_its_start() {
    let world = World::new();
    let all = [
        sealed(PLACE.kind, SECRET),
        sealed(SealedKind::Headers, "x-env:production\n"),
    ];
    world.store.secrets.lock().unwrap().extend(all);
    let _worker = world.worker_opening(Open).await;
    world.queue.delivers(&[permit(7)]);
    pass(ms(500)).await;
    let sent = requests(&world);
    let [request] = sent.as_slice() else {
        panic!("one request, got {sent:?}");
    };
    let key = Key {
        secret: SigningSecret::parse(SECRET).unwrap(),
        expires_at: None,
    };
    let expected = Signer::new(vec![key]).sign(
        T0,
        &request.event.to_string(),
        request.sent_at_seconds,
        &request.payload,
    );
    assert!(expected.is_some());
    assert_eq!(request.signature, expected);
    let headers: Vec<_> = request.headers.iter().collect();
    assert_eq!(headers, [("x-env", "production")]);
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_has_ended_does_not_sign() {
    let world = World::new();
    let ended = SealedSecret {
        expires_at: Some(T0),
        ..sealed(PLACE.kind, SECRET)
    };
    let still = SealedSecret {
        expires_at: Some(T0 + Duration::from_secs(60)),
        ..sealed(PLACE.kind, SECRET)
    };
    world.store.secrets.lock().unwrap().extend([ended, still]);
    let _worker = world.worker_opening(Open).await;
    world.queue.delivers(&[permit(7)]);
    pass(ms(500)).await;
    let signature = requests(&world).pop().unwrap().signature.unwrap();
    assert_eq!(signature.split(' ').count(), 1, "{signature}");
}

/// It is left to workers that have the key; what has no secrets is sent.
#[tokio::test(start_paused = true)]
async fn without_its_key_nothing_is_claimed() {
    let world = World::new();
    let _worker = world.worker().await;
    world.queue.delivers(&[permit_of(2, 8)]);
    pass(ms(500)).await;
    assert_eq!(claims_and_requests(&world), (1, 1));
    let secret = sealed(PLACE.kind, SECRET);
    world.store.secrets.lock().unwrap().push(secret);
    world.queue.delivers(&[permit(7)]);
    pass(Duration::from_secs(3)).await;
    assert_eq!(claims_and_requests(&world), (1, 1), "no more than before");
}
