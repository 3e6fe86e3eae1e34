//! Sealed secrets and headers: what signs, from when on and until when.

use std::time::Duration;

use bytes::Bytes;
use domain::credentials::{CertificateFacts, ClientAuth, OAuthFacts};
use domain::ids::{DestinationId, Epoch, SecretId, TenantId};
use domain::policy::LimitSettings;
use domain::signature::{MAX_LIVE_SECRETS, SecretKind};
use domain::time::Timestamp;
use rand::SeedableRng;
use rand::rngs::StdRng;
use zeroize::Zeroizing;

use super::World;
use engine::ports::{
    CatalogError, ClaimAnswer, DEFAULT_TENANT, DestinationChange, Managed, NONCE_BYTES, NewSecret,
    Place, Resealed, Sealed, SealedKind, SealedSecret, Shown, SingleChange, TokenNote, Vault,
    VaultError,
};
use engine::resealing::{Page, Resealing};

const DAY: Duration = Duration::from_secs(86_400);

/// A new secret of this kind, under the key `old`.
pub(super) fn secret(world: &World, destination: DestinationId, kind: SealedKind) -> NewSecret {
    let place = Place {
        tenant: DEFAULT_TENANT,
        destination,
        secret: SecretId(world.id()),
        kind,
    };
    NewSecret {
        place,
        sealed: Keys("old").seal(&place, &[0; NONCE_BYTES], b"secret"),
        shown: shown_of(kind),
    }
}

/// What people may see of it.
fn shown_of(kind: SealedKind) -> Option<String> {
    Some(match kind {
        SealedKind::ClientCertificate => certificate().text(),
        SealedKind::OAuth2 => client().text(),
        HMAC => return None,
        _ => "x-one x-two".to_owned(),
    })
}

fn certificate() -> CertificateFacts {
    CertificateFacts {
        subject: "CN=paceline".to_owned(),
        sha256: "00ff".to_owned(),
        not_after: Timestamp::from_millis(1_800_000_000_000),
    }
}

fn client() -> OAuthFacts {
    OAuthFacts {
        token_url: "https://login.example/token".to_owned(),
        client_id: "paceline".to_owned(),
        scopes: vec!["hooks".to_owned()],
        audience: None,
        client_auth: ClientAuth::Basic,
    }
}

pub(super) const HMAC: SealedKind = SealedKind::Signs(SecretKind::Hmac);
const ED25519: SealedKind = SealedKind::Signs(SecretKind::Ed25519);

/// A vault that hides nothing: what is sealed is the name of the key and the
/// secret.
struct Keys(&'static str);

impl Vault for Keys {
    fn sealing_key(&self) -> &str {
        self.0
    }

    fn seal(&self, _: &Place, _: &[u8; NONCE_BYTES], secret: &[u8]) -> Sealed {
        Sealed {
            key: self.0.to_owned(),
            bytes: Bytes::from([self.0.as_bytes(), secret].concat()),
        }
    }

    fn open(&self, _: &Place, sealed: &Sealed) -> Result<Zeroizing<Vec<u8>>, VaultError> {
        match sealed.key.as_str() {
            "lost" => Err(VaultError::UnknownKey("lost".to_owned())),
            key => Ok(Zeroizing::new(sealed.bytes.slice(key.len()..).to_vec())),
        }
    }
}

/// A destination with one HMAC secret.
async fn signing(world: &World) -> (DestinationId, SecretId) {
    let new = world.destination().unlimited().build();
    let first = secret(world, new.id, HMAC);
    let created =
        world
            .secrets
            .create_destination_with(DEFAULT_TENANT, &new, std::slice::from_ref(&first));
    (created.await.unwrap().id, first.place.secret)
}

async fn rotate(
    world: &World,
    destination: DestinationId,
    kind: SealedKind,
    overlap: Duration,
) -> Result<SecretId, CatalogError> {
    let new = secret(world, destination, kind);
    let of = Managed::by_nobody(DEFAULT_TENANT, destination);
    let rotated = world.secrets.rotate_secret(of, &new, overlap);
    rotated.await.map(|secret| secret.id)
}

/// What a worker gets: the epoch and the secrets that sign.
async fn target(world: &World, destination: DestinationId) -> (Epoch, Vec<SealedSecret>) {
    let mut targets = world.store.targets(&[destination]).await.unwrap();
    let target = targets.pop().expect("there is a target");
    (target.epoch, target.secrets)
}

async fn signs_by(world: &World, destination: DestinationId) -> Vec<SecretId> {
    let (_, secrets) = target(world, destination).await;
    let ids: Vec<_> = secrets.iter().map(|one| one.place.secret).collect();
    let listed = world.secrets.secrets(DEFAULT_TENANT, destination).await;
    let listed: Vec<_> = listed.unwrap().iter().map(|one| one.id).collect();
    assert_eq!(ids, listed, "people see what workers get");
    ids
}

fn assert_not_found<T: std::fmt::Debug>(answer: Result<T, CatalogError>) {
    assert!(
        matches!(answer, Err(CatalogError::NotFound(_))),
        "{answer:?}"
    );
}

fn assert_conflict<T: std::fmt::Debug>(answer: Result<T, CatalogError>) {
    assert!(
        matches!(answer, Err(CatalogError::Conflict(_))),
        "{answer:?}"
    );
}

/// From the first moment; and what people see holds no secret.
pub async fn a_destination_is_created_with_its_secrets(world: &World) {
    let new = world.destination().unlimited().build();
    let hmac = secret(world, new.id, HMAC);
    let headers = secret(world, new.id, SealedKind::Headers);
    let both = [hmac.clone(), headers.clone()];
    let created = world
        .secrets
        .create_destination_with(DEFAULT_TENANT, &new, &both);
    assert_eq!(created.await.unwrap().id, new.id);
    let (_, mut secrets) = target(world, new.id).await;
    secrets.sort_by_key(|one| one.place.kind);
    let expected = both.map(|one| SealedSecret {
        place: one.place,
        sealed: one.sealed,
        expires_at: None,
    });
    assert_eq!(secrets, expected);
    let listed = world.secrets.secrets(DEFAULT_TENANT, new.id).await.unwrap();
    let [only] = listed.as_slice() else {
        panic!("headers are no secret that signs: {listed:?}");
    };
    assert_eq!(only.id, hmac.place.secret);
    assert_eq!((only.kind, only.expires_at), (SecretKind::Hmac, None));
    assert!(only.created_at <= world.now().await);
    assert_eq!(header_names(world, new.id).await, ["x-one", "x-two"]);
}

/// Both or none.
pub async fn a_refused_destination_leaves_no_secret(world: &World) {
    let mut new = world.destination().build();
    new.limits = LimitSettings {
        safety_margin: Some(7.0),
        ..LimitSettings::EXACT
    };
    let secrets = [secret(world, new.id, HMAC)];
    let created = world
        .secrets
        .create_destination_with(DEFAULT_TENANT, &new, &secrets);
    assert!(matches!(created.await, Err(CatalogError::Invalid { .. })));
    assert_eq!(world.secrets.keys_in_use().await.unwrap(), []);
}

/// Old and new, the newest first; then the new one alone.
pub async fn a_rotation_overlaps_and_ends(world: &World) {
    let (destination, first) = signing(world).await;
    let before = world.now().await;
    let overlap = Duration::from_millis(700);
    let second = rotate(world, destination, HMAC, overlap).await.unwrap();
    assert_eq!(signs_by(world, destination).await, [second, first]);
    let (_, secrets) = target(world, destination).await;
    assert_eq!(secrets[0].expires_at, None);
    let ends = secrets[1].expires_at.expect("the old one ends");
    assert!(ends >= before + overlap && ends <= world.now().await + overlap);
    world.pass_until(ends).await;
    assert_eq!(signs_by(world, destination).await, [second]);
}

/// For a secret that has leaked.
pub async fn a_rotation_without_overlap_ends_the_old_one_at_once(world: &World) {
    let (destination, _) = signing(world).await;
    let second = rotate(world, destination, HMAC, Duration::ZERO);
    let second = second.await.unwrap();
    assert_eq!(signs_by(world, destination).await, [second]);
}

/// A later rotation prolongs nothing.
pub async fn a_secret_that_ends_earlier_still_does(world: &World) {
    let (destination, first) = signing(world).await;
    let soon = Duration::from_secs(60);
    rotate(world, destination, HMAC, soon).await.unwrap();
    let (_, before) = target(world, destination).await;
    rotate(world, destination, HMAC, DAY).await.unwrap();
    let (_, after) = target(world, destination).await;
    assert_eq!(after[2].place.secret, first);
    assert_eq!(after[2].expires_at, before[1].expires_at);
}

/// Whoever rotates to another kind wants the old one gone, and not signing for
/// good. Headers sign nothing, and stay.
pub async fn another_kind_ends_the_old_one_as_well(world: &World) {
    for (from, to) in [(HMAC, ED25519), (ED25519, HMAC)] {
        let (destination, _) = signing(world).await;
        let first = rotate(world, destination, from, Duration::ZERO);
        let first = first.await.unwrap();
        assert_eq!(signs_by(world, destination).await, [first], "at once");
        let before = world.now().await;
        let overlap = Duration::from_millis(700);
        let second = rotate(world, destination, to, overlap).await.unwrap();
        assert_eq!(signs_by(world, destination).await, [second, first]);
        let (_, secrets) = target(world, destination).await;
        let kinds = [secrets[0].place.kind, secrets[1].place.kind];
        assert_eq!(kinds, [to, from]);
        assert_eq!(secrets[0].expires_at, None);
        let ends = secrets[1].expires_at.expect("the old one ends");
        assert!(ends >= before + overlap && ends <= world.now().await + overlap);
        world.pass_until(ends).await;
        assert_eq!(signs_by(world, destination).await, [second]);
        set_headers(world, destination, None).await;
        rotate(world, destination, to, Duration::ZERO)
            .await
            .unwrap();
        assert_eq!(header_names(world, destination).await, ["x-one", "x-two"]);
    }
}

/// A refused rotation changes nothing, not even the end of the others.
pub async fn no_more_than_three_secrets_sign(world: &World) {
    let (destination, _) = signing(world).await;
    for _ in 1..MAX_LIVE_SECRETS {
        rotate(world, destination, HMAC, DAY).await.unwrap();
    }
    let before = target(world, destination).await;
    assert_conflict(rotate(world, destination, HMAC, DAY / 2).await);
    assert_eq!(target(world, destination).await, before);
    // Without an overlap the others end, and there is room.
    let only = rotate(world, destination, HMAC, Duration::ZERO);
    let only = only.await.unwrap();
    assert_eq!(signs_by(world, destination).await, [only]);
}

/// Nothing goes out unsigned by mistake.
pub async fn the_last_secret_is_not_deleted(world: &World) {
    let (destination, first) = signing(world).await;
    let delete = |secret| {
        let of = Managed::by_nobody(DEFAULT_TENANT, destination);
        world.secrets.delete_secret(of, secret)
    };
    let before = target(world, destination).await;
    assert_conflict(delete(first).await);
    assert_eq!(target(world, destination).await, before);
    let second = rotate(world, destination, HMAC, DAY).await.unwrap();
    delete(first).await.unwrap();
    assert_eq!(signs_by(world, destination).await, [second]);
    assert_not_found(delete(first).await);
}

/// A start after the change is by the new secrets: permits of the old epoch are
/// refused, and whoever gets a new one reads the target again.
pub async fn a_change_of_secrets_revokes(world: &World) {
    let (destination, first) = signing(world).await;
    let worker = world.worker().await;
    world.accept(destination, 3).await;
    let mut changes = 0..3;
    loop {
        let permits = world.admit(destination).await;
        assert_eq!(permits.len(), 3);
        let (epoch, _) = target(world, destination).await;
        assert_eq!(permits[0].epoch, epoch);
        match changes.next() {
            Some(0) => drop(rotate(world, destination, HMAC, DAY).await.unwrap()),
            Some(1) => {
                let of = Managed::by_nobody(DEFAULT_TENANT, destination);
                let deleted = world.secrets.delete_secret(of, first);
                deleted.await.unwrap();
            }
            Some(_) => set_headers(world, destination, None).await,
            None => {
                world.start(worker, &permits).await;
                return;
            }
        }
        let (after, _) = target(world, destination).await;
        assert!(after > epoch, "the caches have to follow");
        world.pass_until(permits[0].not_before).await;
        world.beat(worker).await;
        for answer in world.claim(worker, &permits).await.answers {
            assert_eq!(answer, ClaimAnswer::Refused);
        }
    }
}

async fn set_headers(world: &World, destination: DestinationId, url: Option<&str>) {
    let headers = secret(world, destination, SealedKind::Headers);
    let change = DestinationChange {
        url: url.map(str::to_owned),
        ..DestinationChange::default()
    };
    let headers = [SingleChange::Set(headers)];
    let of = Managed::by_nobody(DEFAULT_TENANT, destination);
    let changed = world.secrets.change_destination_with(of, &change, &headers);
    changed.await.unwrap();
}

async fn change(world: &World, destination: DestinationId, singles: &[SingleChange]) {
    let change = DestinationChange::default();
    let of = Managed::by_nobody(DEFAULT_TENANT, destination);
    let changed = world.secrets.change_destination_with(of, &change, singles);
    changed.await.unwrap();
}

async fn shown(world: &World, destination: DestinationId) -> Shown {
    let shown = world.secrets.shown(&[destination]).await;
    shown.unwrap().pop().expect("an answer for each")
}

async fn header_names(world: &World, destination: DestinationId) -> Vec<String> {
    shown(world, destination).await.header_names
}

/// Once set, set again; and taken away. Other secrets stay.
pub async fn headers_are_set_and_cleared(world: &World) {
    let (destination, first) = signing(world).await;
    assert_eq!(header_names(world, destination).await, [""; 0]);
    set_headers(world, destination, None).await;
    set_headers(world, destination, None).await;
    assert_eq!(header_names(world, destination).await, ["x-one", "x-two"]);
    assert_eq!(target(world, destination).await.1.len(), 2);
    let clear = [SingleChange::Clear(SealedKind::Headers)];
    for (singles, left) in [([].as_slice(), 2), (clear.as_slice(), 1)] {
        change(world, destination, singles).await;
        assert_eq!(header_names(world, destination).await.len(), 2 * (left - 1));
        assert_eq!(target(world, destination).await.1.len(), left);
    }
    assert_eq!(signs_by(world, destination).await, [first]);
}

/// One of each: set again it is another one, and what signs does not know of it.
pub async fn credentials_are_set_shown_and_cleared(world: &World) {
    let (destination, first) = signing(world).await;
    let (neighbour, _) = signing(world).await;
    set_headers(world, destination, None).await;
    let kinds = [SealedKind::ClientCertificate, SealedKind::OAuth2];
    let mut epoch = target(world, destination).await.0;
    for _ in 0..2 {
        let both = kinds.map(|kind| secret(world, destination, kind));
        let set = both.clone().map(SingleChange::Set);
        change(world, destination, &set).await;
        let (after, sealed) = target(world, destination).await;
        assert!(after > epoch, "the caches have to follow");
        epoch = after;
        assert_eq!(sealed.len(), 4);
        for one in both {
            let stored = (sealed.iter()).find(|stored| stored.place == one.place);
            assert_eq!(stored.map(|stored| &stored.sealed), Some(&one.sealed));
        }
    }
    let listed = world.secrets.secrets(DEFAULT_TENANT, destination).await;
    let listed: Vec<_> = listed.unwrap().iter().map(|one| one.id).collect();
    assert_eq!(listed, [first], "they do not sign");
    rotate(world, destination, HMAC, Duration::ZERO)
        .await
        .unwrap();
    let expected = Shown {
        header_names: vec!["x-one".to_owned(), "x-two".to_owned()],
        certificate: Some(certificate()),
        oauth2: Some(client()),
        token_trouble: None,
    };
    let both = world.secrets.shown(&[neighbour, destination]).await;
    assert_eq!(both.unwrap(), [Shown::default(), expected.clone()]);
    change(world, destination, &[SingleChange::Clear(kinds[0])]).await;
    let rest = Shown {
        certificate: None,
        ..expected
    };
    assert_eq!(shown(world, destination).await, rest);
}

/// A client for tokens, whose secret it is stored in.
async fn asking(world: &World, destination: DestinationId) -> SecretId {
    let client = secret(world, destination, SealedKind::OAuth2);
    let id = client.place.secret;
    change(world, destination, &[SingleChange::Set(client)]).await;
    id
}

/// By whoever asks for tokens; and no cache has to follow.
pub async fn why_there_is_no_token_is_written_down(world: &World) {
    let ((one, signs), (other, _)) = (signing(world).await, signing(world).await);
    let clients = [asking(world, one).await, asking(world, other).await];
    let epoch = target(world, one).await.0;
    let trouble = async |destination| shown(world, destination).await.token_trouble;
    let note = |secret, trouble: Option<&str>| TokenNote {
        secret,
        trouble: trouble.map(str::to_owned),
    };
    let before = world.now().await;
    let gone = SecretId(world.id());
    let notes = [
        note(clients[0], Some("it hangs")),
        note(clients[1], None),
        note(gone, Some("nobody's")),
        note(signs, Some("it signs")),
    ];
    world.tokens.note_tokens(&notes).await.unwrap();
    let told = trouble(one).await.expect("it is told");
    assert_eq!(told.words, "it hangs");
    assert!(told.at >= before && told.at <= world.now().await);
    assert_eq!(trouble(other).await, None);
    world.pass(Duration::from_millis(5)).await;
    let notes = [note(clients[0], Some("it refuses"))];
    world.tokens.note_tokens(&notes).await.unwrap();
    let again = trouble(one).await.expect("it is told");
    assert_eq!(again.words, "it refuses");
    assert!(again.at > told.at);
    let notes = [note(clients[0], None)];
    world.tokens.note_tokens(&notes).await.unwrap();
    assert_eq!(trouble(one).await, None);
    world.tokens.note_tokens(&[]).await.unwrap();
    assert_eq!(target(world, one).await.0, epoch);
}

/// One commit: the old URL's passwords do not go to the new one.
pub async fn a_new_url_and_its_headers_come_together(world: &World) {
    let (destination, _) = signing(world).await;
    let (before, _) = target(world, destination).await;
    let url = "https://elsewhere.example/";
    set_headers(world, destination, Some(url)).await;
    let targets = world.store.targets(&[destination]).await.unwrap();
    assert_eq!(targets[0].url, url);
    assert!(targets[0].epoch > before);
    assert_eq!(targets[0].secrets.len(), 2);
}

/// Each query asks for the tenant.
pub async fn another_tenant_has_no_say(world: &World) {
    let (destination, first) = signing(world).await;
    let other = TenantId(world.id());
    let before = target(world, destination).await;
    let secrets = &world.secrets;
    assert_not_found(secrets.secrets(other, destination).await);
    let new = secret(world, destination, HMAC);
    let theirs = Managed::by_nobody(other, destination);
    assert_not_found(secrets.rotate_secret(theirs, &new, DAY).await);
    assert_not_found(secrets.delete_secret(theirs, first).await);
    let change = DestinationChange {
        name: Some("theirs".to_owned()),
        ..DestinationChange::default()
    };
    let clear = [SingleChange::Clear(SealedKind::Headers)];
    let set = [SingleChange::Set(secret(
        world,
        destination,
        SealedKind::OAuth2,
    ))];
    for singles in [[].as_slice(), &clear, &set] {
        let changed = secrets.change_destination_with(theirs, &change, singles);
        assert_not_found(changed.await);
    }
    assert_eq!(target(world, destination).await, before);
    let nobody = DestinationId(world.id());
    assert_not_found(secrets.secrets(DEFAULT_TENANT, nobody).await);
    // Another destination's secret is not this one's.
    let (neighbour, _) = signing(world).await;
    rotate(world, neighbour, HMAC, DAY).await.unwrap();
    let of = Managed::by_nobody(DEFAULT_TENANT, neighbour);
    let deleted = secrets.delete_secret(of, first);
    assert_not_found(deleted.await);
}

/// Those of all kinds go with it, at once: header values and credentials as well.
pub async fn a_deleted_destination_forgets_its_secrets(world: &World) {
    let (destination, _) = signing(world).await;
    let (other, _) = signing(world).await;
    set_headers(world, destination, None).await;
    let kinds = [SealedKind::ClientCertificate, SealedKind::OAuth2];
    let set = kinds.map(|kind| SingleChange::Set(secret(world, destination, kind)));
    change(world, destination, &set).await;
    let secrets = &world.secrets;
    assert_eq!(secrets.keys_in_use().await.unwrap(), [("old".into(), 5)]);
    let deleted = world
        .catalog
        .delete_destination(DEFAULT_TENANT, destination);
    deleted.await.unwrap();
    assert_eq!(secrets.keys_in_use().await.unwrap(), [("old".into(), 1)]);
    assert_not_found(secrets.secrets(DEFAULT_TENANT, destination).await);
    assert_eq!(signs_by(world, other).await.len(), 1);
}

/// In id order; and none where all are under the key.
pub async fn secrets_under_other_keys_are_paged(world: &World) {
    let mut all = Vec::new();
    for _ in 0..5 {
        all.push(signing(world).await.1);
    }
    let secrets = &world.secrets;
    let mut paged = Vec::new();
    let mut after = None;
    loop {
        let page = secrets.sealed_under_others("new", after, 2).await.unwrap();
        assert!(page.len() <= 2);
        let Some(last) = page.last() else { break };
        after = Some(last.place.secret);
        paged.extend(page.iter().map(|one| one.place.secret));
    }
    assert_eq!(paged, all);
    assert_eq!(
        secrets.sealed_under_others("old", None, 9).await.unwrap(),
        []
    );
}

/// Two that do it at the same time do it once.
pub async fn a_secret_is_sealed_anew_only_as_it_was_opened(world: &World) {
    let (destination, first) = signing(world).await;
    let (_, secrets) = target(world, destination).await;
    let mut resealed = Resealed {
        secret: first,
        from: secrets[0].sealed.clone(),
        to: Keys("new").seal(&secrets[0].place, &[0; NONCE_BYTES], b"secret"),
    };
    let reseal = |one: &Resealed| {
        let one = one.clone();
        async move { world.secrets.reseal(&[one]).await.unwrap() }
    };
    assert_eq!(reseal(&resealed).await, 1);
    assert_eq!(reseal(&resealed).await, 0, "it is another one now");
    resealed.to = resealed.from.clone();
    assert_eq!(reseal(&resealed).await, 0);
    let (_, secrets) = target(world, destination).await;
    assert_eq!(secrets[0].sealed.key, "new");
    assert_eq!(world.secrets.reseal(&[]).await.unwrap(), 0);
}

fn resealing(world: &World, key: &'static str) -> Resealing {
    let secrets = std::sync::Arc::clone(&world.secrets);
    let rng = StdRng::seed_from_u64(7);
    Resealing::new(secrets, std::sync::Arc::new(Keys(key)), rng)
}

/// Permits stand, caches stand, secrets are the same.
pub async fn all_is_sealed_anew_without_a_new_epoch(world: &World) {
    let (destination, _) = signing(world).await;
    set_headers(world, destination, None).await;
    rotate(world, destination, HMAC, DAY).await.unwrap();
    let both = [SealedKind::ClientCertificate, SealedKind::OAuth2];
    let both = both.map(|kind| SingleChange::Set(secret(world, destination, kind)));
    change(world, destination, &both).await;
    for _ in 0..100 {
        signing(world).await;
    }
    let before = target(world, destination).await;
    let mut resealing = resealing(world, "new");
    let mut pages = 0;
    loop {
        let page = resealing.tick().await.unwrap();
        pages += 1;
        assert_eq!(page.closed, 0);
        if !page.more {
            break;
        }
    }
    assert!(pages > 1, "in pages");
    let after = target(world, destination).await;
    assert_eq!(before.0, after.0, "the same epoch");
    assert!(after.1.iter().all(|one| one.sealed.key == "new"));
    let opened = |secrets: &[SealedSecret]| -> Vec<_> {
        let open = |one: &SealedSecret| Keys("new").open(&one.place, &one.sealed).unwrap();
        secrets.iter().map(open).collect()
    };
    assert_eq!(opened(&before.1), opened(&after.1));
    let keys = world.secrets.keys_in_use().await.unwrap();
    assert_eq!(keys, [("new".to_owned(), 105)]);
    assert_eq!(resealing.tick().await.unwrap(), Page::default());
}

/// The rest is done all the same.
pub async fn what_does_not_open_is_left(world: &World) {
    let (destination, first) = signing(world).await;
    let (_, secrets) = target(world, destination).await;
    let lost = Resealed {
        secret: first,
        from: secrets[0].sealed.clone(),
        to: Keys("lost").seal(&secrets[0].place, &[0; NONCE_BYTES], b"secret"),
    };
    assert_eq!(world.secrets.reseal(&[lost]).await.unwrap(), 1);
    let second = rotate(world, destination, HMAC, DAY).await.unwrap();
    let mut resealing = resealing(world, "new");
    let page = resealing.tick().await.unwrap();
    assert_eq!((page.resealed, page.closed), (1, 1));
    let (_, secrets) = target(world, destination).await;
    assert_eq!(secrets[0].place.secret, second);
    let keys: Vec<_> = secrets.iter().map(|one| one.sealed.key.as_str()).collect();
    assert_eq!(keys, ["new", "lost"]);
}

/// Their rows, too, and no other row.
pub async fn ended_secrets_are_forgotten(world: &World) {
    let (destination, _) = signing(world).await;
    for _ in 0..3 {
        rotate(world, destination, HMAC, Duration::ZERO)
            .await
            .unwrap();
    }
    let second = rotate(world, destination, ED25519, DAY).await.unwrap();
    let third = rotate(world, destination, ED25519, DAY).await.unwrap();
    let secrets = &world.secrets;
    world.pass(Duration::from_millis(5)).await;
    assert_eq!(secrets.forget_expired(2).await.unwrap(), 2);
    assert_eq!(secrets.forget_expired(2).await.unwrap(), 1);
    assert_eq!(secrets.forget_expired(2).await.unwrap(), 0);
    let left = signs_by(world, destination).await;
    assert_eq!(left[..2], [third, second]);
    assert_eq!(secrets.keys_in_use().await.unwrap(), [("old".into(), 3)]);
}
