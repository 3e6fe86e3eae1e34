use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use domain::access::Scope;
use engine::ports::{ApiKey, CatalogError, NewKey};
use secrecy::ExposeSecret;

use super::*;
use crate::access::MintedKey;

/// One key, and how often it was asked for.
#[derive(Default)]
struct OneKey {
    id: Option<KeyId>,
    credential: Mutex<Option<Credential>>,
    asked: AtomicUsize,
    /// How many at a time.
    rounds: Mutex<Vec<usize>>,
    /// For how long it thinks.
    takes: Option<Duration>,
    noted: Mutex<Vec<Vec<KeyUse>>>,
    away: Mutex<bool>,
}

impl OneKey {
    fn up(&self) -> Result<(), CatalogError> {
        match *self.away.lock().unwrap() {
            true => Err(StoreError::Unavailable("away".to_owned()).into()),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Keys for OneKey {
    async fn create_key(&self, _: TenantId, _: &NewKey) -> Result<ApiKey, CatalogError> {
        Err(CatalogError::NotFound("tenant"))
    }

    async fn keys(&self, _: TenantId, _: u32) -> Result<Vec<ApiKey>, CatalogError> {
        Ok(Vec::new())
    }

    async fn revoke_key(&self, _: TenantId, _: KeyId) -> Result<(), CatalogError> {
        Ok(())
    }

    async fn credentials(&self, ids: &[KeyId]) -> Result<Vec<(KeyId, Credential)>, CatalogError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.rounds.lock().unwrap().push(ids.len());
        if let Some(slow) = self.takes {
            tokio::time::sleep(slow).await;
        }
        self.up()?;
        let credential = self.credential.lock().unwrap().clone();
        let asked = ids.iter().filter(|id| self.id == Some(**id)).copied();
        Ok(asked.zip(credential).collect())
    }

    async fn note_keys_used(&self, uses: &[KeyUse]) -> Result<(), CatalogError> {
        self.up()?;
        self.noted.lock().unwrap().push(uses.to_vec());
        Ok(())
    }
}

struct World {
    keys: Arc<OneKey>,
    gate: Arc<Gate>,
    key: MintedKey,
}

const TENANT: TenantId = TenantId(uuid::Uuid::from_u128(9));

fn world(expires_in: Option<Duration>) -> World {
    world_of(expires_in, None)
}

fn world_of(expires_in: Option<Duration>, takes: Option<Duration>) -> World {
    let key = MintedKey::new(None, [1; 8], [2; 32]);
    let credential = Credential {
        tenant: TENANT,
        digest: key.digest,
        scopes: [Scope::Read].into_iter().collect(),
        expires_in,
        ingest_per_second: Some(70),
    };
    let keys = Arc::new(OneKey {
        id: Some(key.id),
        takes,
        credential: Mutex::new(Some(credential)),
        ..OneKey::default()
    });
    let gate = Gate::new(keys.clone(), &SecretString::from("the configured one"));
    World {
        gate: Arc::new(gate),
        keys,
        key,
    }
}

impl World {
    async fn identify(&self, text: &str) -> Option<Identity> {
        self.gate.identify(text).await.unwrap()
    }

    async fn knows(&self) -> bool {
        self.identify(self.key.text.expose_secret()).await.is_some()
    }

    fn asked(&self) -> usize {
        self.keys.asked.load(Ordering::Relaxed)
    }
}

#[tokio::test]
async fn a_key_stands_for_its_tenant_and_its_scopes() {
    let world = world(None);
    let identity = world.identify(world.key.text.expose_secret()).await;
    let identity = identity.unwrap();
    assert_eq!(
        (identity.tenant, identity.key),
        (TENANT, Some(world.key.id))
    );
    assert!(identity.scopes.contains(Scope::Read));
    let limit = identity.ingest_limit.map(|limit| limit.0.get());
    assert_eq!(limit, Some(70));
    assert!(!identity.scopes.contains(Scope::Manage));
}

#[tokio::test]
async fn the_configured_key_has_all_scopes_of_the_default_tenant_and_no_other_text_has() {
    let world = world(None);
    let identity = world.identify("the configured one").await.unwrap();
    assert_eq!((identity.tenant, identity.key), (DEFAULT_TENANT, None));
    assert_eq!(
        (identity.scopes, identity.ingest_limit),
        (Scopes::ALL, None)
    );
    for other in [
        "",
        "the configured on",
        "the configured one ",
        "The configured one",
    ] {
        assert_eq!(world.identify(other).await, None, "{other:?}");
    }
    assert_eq!(world.asked(), 0, "no store was needed for that");
}

#[tokio::test]
async fn another_secret_under_a_known_id_is_refused() {
    let world = world(None);
    let forged = MintedKey::new(None, [1; 8], [3; 32]);
    assert_eq!(forged.id, world.key.id);
    assert_eq!(world.identify(forged.text.expose_secret()).await, None);
    assert!(world.knows().await);
}

#[tokio::test(start_paused = true)]
async fn the_store_is_asked_once_in_a_while_and_a_revoked_key_is_refused_in_time() {
    let world = world(None);
    for _ in 0..100 {
        assert!(world.knows().await);
    }
    assert_eq!(world.asked(), 1);
    world.keys.credential.lock().unwrap().take();
    tokio::time::advance(REMEMBERED - Duration::from_millis(1)).await;
    assert!(world.knows().await, "still remembered");
    tokio::time::advance(Duration::from_millis(1)).await;
    assert!(!world.knows().await, "refused from the stated time on");
    assert_eq!(world.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_key_is_refused_when_it_expires_though_it_is_remembered() {
    let world = world(Some(Duration::from_secs(2)));
    assert!(world.knows().await);
    world.keys.credential.lock().unwrap().take();
    tokio::time::advance(Duration::from_secs(2)).await;
    assert!(!world.knows().await);
}

#[tokio::test]
async fn a_key_that_this_process_revokes_is_refused_at_once() {
    let world = world(None);
    assert!(world.knows().await);
    world.keys.credential.lock().unwrap().take();
    world.gate.forget(world.key.id);
    assert!(!world.knows().await);
}

#[tokio::test(start_paused = true)]
async fn unknown_keys_are_asked_for_once_and_typing_errors_never() {
    let world = world(None);
    let unknown = MintedKey::new(None, [7; 8], [2; 32]);
    for _ in 0..10 {
        assert_eq!(world.identify(unknown.text.expose_secret()).await, None);
    }
    assert_eq!(world.asked(), 1);
    let mut typo = world.key.text.expose_secret().to_owned();
    typo.pop();
    typo.push('!');
    assert_eq!(world.identify(&typo).await, None);
    assert_eq!(world.asked(), 1);
}

#[tokio::test]
async fn a_guesser_does_not_push_out_a_key_that_is_known() {
    let world = world(None);
    assert!(world.knows().await);
    for guess in 0..MAX_REMEMBERED as u64 + 10 {
        let guessed = MintedKey::new(None, guess.to_be_bytes(), [0; 32]);
        if guessed.id != world.key.id {
            world.identify(guessed.text.expose_secret()).await;
        }
    }
    let asked = world.asked();
    assert!(world.knows().await);
    assert_eq!(world.asked(), asked, "it was remembered through all of it");
    assert!(world.gate.memory().unknown.len() <= MAX_REMEMBERED);
}

/// However many guess before it: what is asked for meanwhile is asked for together,
/// and nobody waits for more than the statement of the moment and a few of a
/// thousand each.
#[tokio::test(start_paused = true)]
async fn a_good_keys_first_use_does_not_stand_behind_a_crowd_of_guesses() {
    const GUESSES: usize = 2_500;
    const STATEMENT: Duration = Duration::from_millis(100);
    let world = world_of(None, Some(STATEMENT));
    let mut guessing = tokio::task::JoinSet::new();
    for guess in 0..GUESSES as u64 {
        let guessed = MintedKey::new(None, (guess + 1_000_000).to_be_bytes(), [0; 32]);
        let gate = Arc::clone(&world.gate);
        guessing.spawn(async move { gate.identify(guessed.text.expose_secret()).await });
    }
    tokio::task::yield_now().await;
    let began = Instant::now();
    assert!(world.knows().await);
    assert!(began.elapsed() <= STATEMENT * 4, "{:?}", began.elapsed());
    for answer in guessing.join_all().await {
        assert_eq!(answer.unwrap(), None);
    }
    let rounds = world.keys.rounds.lock().unwrap().clone();
    assert_eq!(rounds.iter().sum::<usize>(), GUESSES + 1, "{rounds:?}");
    assert!(rounds.len() <= 4, "{rounds:?}");
    assert!(rounds.iter().all(|ids| *ids <= MAX_ROWS), "{rounds:?}");
}

/// Those who had joined it get their answer all the same.
#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_takes_nobodys_answer_with_it() {
    let world = world_of(None, Some(Duration::from_millis(100)));
    let text = world.key.text.expose_secret().to_owned();
    let gate = Arc::clone(&world.gate);
    let first = tokio::spawn(async move { gate.identify(&text).await });
    tokio::task::yield_now().await;
    first.abort();
    assert!(world.knows().await);
}

#[tokio::test]
async fn an_absent_store_is_an_error_and_no_refusal() {
    let world = world(None);
    *world.keys.away.lock().unwrap() = true;
    let answer = world.gate.identify(world.key.text.expose_secret()).await;
    assert!(answer.is_err());
    *world.keys.away.lock().unwrap() = false;
    assert!(world.knows().await, "and it is asked again");
}

#[tokio::test(start_paused = true)]
async fn uses_are_noted_together_and_again_if_they_could_not_be() {
    let world = world(None);
    for _ in 0..5 {
        assert!(world.knows().await);
    }
    *world.keys.away.lock().unwrap() = true;
    world.gate.note_uses_once().await;
    *world.keys.away.lock().unwrap() = false;
    tokio::time::advance(Duration::from_secs(3)).await;
    world.gate.note_uses_once().await;
    world.gate.note_uses_once().await;
    let noted = world.keys.noted.lock().unwrap();
    let expected = KeyUse {
        key: world.key.id,
        ago: Duration::from_secs(3),
    };
    assert_eq!(*noted, [vec![expected]], "once, and with its age");
}

#[tokio::test]
async fn who_was_refused_has_used_nothing() {
    let world = world(None);
    let forged = MintedKey::new(None, [1; 8], [3; 32]);
    world.identify(forged.text.expose_secret()).await;
    world.gate.note_uses_once().await;
    assert!(world.keys.noted.lock().unwrap().is_empty());
}
