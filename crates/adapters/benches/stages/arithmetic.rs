//! What is computed, without any server: the decision of a run, the bytes of a
//! message, the signature of a request.

use adapters::rabbitmq::codec;
use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use domain::admission::{Backlog, Usage, admit, read_ahead};
use domain::ids::{AttemptId, DestinationId, Epoch, PermitNumber};
use domain::limit::Shape;
use domain::permit::{MAX_GROUP, Permit, PermitGroup};
use domain::policy::LimitSettings;
use domain::signature::{Key, Signer, SigningSecret};
use domain::time::Timestamp;
use uuid::Uuid;

/// The vectors of the specification.
const HMAC: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const ED25519: &str =
    "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg==";

const NOW: Timestamp = Timestamp::from_millis(1_795_000_000_000);

/// A destination that has used half of its limit, evenly, within the last
/// second, and has more waiting than a run can admit.
fn decide(bencher: Bencher<'_, '_>, limit: u32, shape: Shape) {
    let settings = LimitSettings {
        per_second: Some(limit),
        shape: Some(shape),
        ..LimitSettings::EXACT
    };
    let policy = settings.policy();
    let step = 2_000_000 / i64::from(limit);
    let started = |back: u32| Timestamp::from_micros(NOW.as_micros() - step * i64::from(back));
    let usage = Usage {
        starts: (0..limit / 2).map(started).collect(),
        ..Usage::default()
    };
    let backlog = Backlog {
        due: read_ahead(&policy),
        urgent: 0,
        next_due: None,
    };
    bencher.bench(|| {
        let decision = admit(&policy, &usage, &backlog, u32::MAX, black_box(NOW));
        assert!(!decision.slots.is_empty());
        decision
    });
}

#[divan::bench(args = [10, 100, 1_000, 5_000])]
fn admit_sliding_window(bencher: Bencher<'_, '_>, limit: u32) {
    decide(bencher, limit, Shape::SlidingWindow);
}

#[divan::bench(args = [10, 100, 1_000, 5_000])]
fn admit_token_bucket(bencher: Bencher<'_, '_>, limit: u32) {
    decide(bencher, limit, Shape::TokenBucket);
}

/// Permits of a destination each, which is the most to say: one message carries
/// [`MAX_GROUP`] at most.
fn group(size: usize) -> PermitGroup {
    let permit = |number: usize| Permit {
        destination: DestinationId(Uuid::from_u128(number as u128)),
        attempt: AttemptId(number as i64),
        number: PermitNumber(number as i64),
        epoch: Epoch(1),
        not_before: NOW,
        deadline: NOW,
    };
    PermitGroup::new((0..size).map(permit).collect()).unwrap()
}

#[divan::bench(args = [1, MAX_GROUP])]
fn encode_permits(bencher: Bencher<'_, '_>, size: usize) {
    let group = group(size);
    let bencher = bencher.counter(ItemsCount::new(size));
    bencher.bench(|| codec::encode(black_box(&group)));
}

#[divan::bench(args = [1, MAX_GROUP])]
fn decode_permits(bencher: Bencher<'_, '_>, size: usize) {
    let bytes = codec::encode(&group(size));
    let bencher = bencher.counter(ItemsCount::new(size));
    bencher.bench(|| codec::decode(black_box(&bytes)).unwrap());
}

fn sign(bencher: Bencher<'_, '_>, secret: &str, bytes: usize) {
    let key = Key {
        secret: SigningSecret::parse(secret).unwrap(),
        expires_at: None,
    };
    let signer = Signer::new(vec![key]);
    let body = vec![b'x'; bytes];
    let id = Uuid::from_u128(9).to_string();
    let bencher = bencher.counter(BytesCount::new(bytes));
    bencher.bench(|| {
        signer
            .sign(NOW, &id, 1_795_000_000, black_box(&body))
            .unwrap()
    });
}

#[divan::bench(args = [1_024, 65_536])]
fn sign_hmac(bencher: Bencher<'_, '_>, bytes: usize) {
    sign(bencher, HMAC, bytes);
}

#[divan::bench(args = [1_024, 65_536])]
fn sign_ed25519(bencher: Bencher<'_, '_>, bytes: usize) {
    sign(bencher, ED25519, bytes);
}
