//! The destinations' secrets: what the store gets of each, what the receivers
//! verify by, and rotating one while requests are under way.

use std::net::SocketAddr;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use adapters::key_ring::KeyRing;
use anyhow::{Context, ensure};
use domain::ids::{DestinationId, TenantId};
use domain::signature::SigningSecret;
use engine::ports::{CatalogError, NewSecret, SecretStore};
use http::{HeaderMap, StatusCode};
use serde_json::json;
use server::edge::Mint;
use server::trial::new_secret;
use standardwebhooks::Webhook;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};
use uuid::Uuid;
use zeroize::Zeroizing;

use super::log::{Appender, KnownSecret};
use crate::api::Client;

/// The one refusal that is not for good.
const TOO_MANY: StatusCode = StatusCode::TOO_MANY_REQUESTS;

/// Before what is away is asked again.
const AWAY: Duration = Duration::from_millis(200);

/// How long the API's answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How many times the store is asked whether a request whose answer was lost was
/// done, before it is repeated.
const LOOKS: u32 = 10;

/// What the receivers call a secret, and the official library.
type Known = Vec<(Uuid, Webhook)>;

/// All of them, of all destinations by their numbers. Receivers know a secret
/// before the store does.
pub(crate) struct Secrets {
    vault: KeyRing,
    mint: Mint,
    known: Vec<RwLock<Known>>,
    log: Appender,
    /// One is rotated at a time: what is new in the store is that one.
    turn: Mutex<()>,
}

/// A secret to be rotated: whose, and for how long the one before signs beside it.
#[derive(Debug, Clone)]
pub(crate) struct Rotation {
    pub(crate) number: u32,
    pub(crate) tenant: TenantId,
    pub(crate) destination: DestinationId,
    pub(crate) overlap: Duration,
    /// The tenant's.
    pub(crate) key: String,
}

/// By what a request was signed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Signatures {
    /// The secrets of those that verify.
    pub(crate) by: Vec<Uuid>,
    /// Those that do not.
    pub(crate) wrong: usize,
}

impl Secrets {
    /// For so many destinations; and the key that the processes seal and open
    /// with.
    pub(crate) fn new(
        destinations: usize,
        log: Appender,
    ) -> anyhow::Result<(Self, Zeroizing<String>)> {
        let mint = Mint::from_system()?;
        let key = server::secret_keys::new_key(&mint);
        let secrets = Self {
            vault: KeyRing::parse(&key)?,
            mint,
            known: (0..destinations).map(|_| RwLock::default()).collect(),
            log,
            turn: Mutex::new(()),
        };
        Ok((secrets, key))
    }

    /// A new destination's id.
    pub(crate) fn id(&self) -> DestinationId {
        DestinationId(self.mint.uuid())
    }

    /// The first secret of the destination of this number.
    pub(crate) fn first(
        &self,
        number: u32,
        place: (TenantId, DestinationId),
    ) -> anyhow::Result<NewSecret> {
        let (_, new) = self.add(number, place)?;
        let id = new.place.secret.0;
        self.note(id, id)?;
        Ok(new)
    }

    /// A new secret, which the receiver knows from now on.
    fn add(
        &self,
        number: u32,
        place: (TenantId, DestinationId),
    ) -> anyhow::Result<(SigningSecret, NewSecret)> {
        let (secret, new) = new_secret(&self.vault, &self.mint, place);
        let webhook = Webhook::new(&secret.expose()).context("the official library")?;
        let known = self.known.get(number as usize).context("no such number")?;
        let mut known = known.write().unwrap_or_else(PoisonError::into_inner);
        known.push((new.place.secret.0, webhook));
        Ok((secret, new))
    }

    fn note(&self, called: Uuid, secret: Uuid) -> anyhow::Result<()> {
        self.log.append(&KnownSecret { called, secret })
    }

    /// Adds a secret over the API, whose processes are asked in turn until one has
    /// answered, or the store has it; an error if they refuse.
    pub(crate) async fn rotate(
        &self,
        apis: &[SocketAddr],
        store: &dyn SecretStore,
        rotation: &Rotation,
    ) -> anyhow::Result<()> {
        let _turn = self.turn.lock().await;
        let place = (rotation.tenant, rotation.destination);
        let before = ids(store, place).await?;
        let (secret, new) = self.add(rotation.number, place)?;
        let body = json!({
            "secret": *secret.expose(),
            "overlap_seconds": rotation.overlap.as_secs(),
        });
        let body = body.to_string();
        ensure!(!apis.is_empty(), "there is no API");
        for turn in 0_usize.. {
            let asking = ask(apis[turn % apis.len()], rotation, &body);
            if let Ok(Ok(status)) = timeout(PATIENCE, asking).await {
                let is_final = status.is_client_error() && status != TOO_MANY;
                ensure!(!is_final, "the API answered {status}");
            }
            for _ in 0..LOOKS {
                let mut added = ids(store, place).await?;
                added.retain(|id| !before.contains(id));
                if !added.is_empty() {
                    let called = new.place.secret.0;
                    return added.into_iter().try_for_each(|id| self.note(called, id));
                }
                sleep(AWAY).await;
            }
        }
        Ok(())
    }

    /// By what this request, of the destination of this number, was signed.
    pub(crate) fn signatures(&self, number: u32, headers: &HeaderMap, body: &[u8]) -> Signatures {
        let text = |name: &str| headers.get(name)?.to_str().ok();
        let mut signatures = Signatures::default();
        let Some(known) = self.known.get(number as usize) else {
            return signatures;
        };
        let known = known.read().unwrap_or_else(PoisonError::into_inner);
        // Signed by the library, and compared: its `verify` refuses timestamps of
        // another time, and these are the store's, whose clock this run steps.
        let expected = |webhook: &Webhook| {
            let id = text("webhook-id")?;
            let timestamp = text("webhook-timestamp")?.parse().ok()?;
            webhook.sign(id, timestamp, body).ok()
        };
        let expected: Vec<(Uuid, String)> = (known.iter())
            .filter_map(|(id, webhook)| Some((*id, expected(webhook)?)))
            .collect();
        for signature in text("webhook-signature").unwrap_or_default().split(' ') {
            match expected.iter().find(|(_, right)| right == signature) {
                Some((id, _)) => signatures.by.push(*id),
                None => signatures.wrong += 1,
            }
        }
        signatures
    }
}

/// The answer's status.
async fn ask(api: SocketAddr, rotation: &Rotation, body: &str) -> anyhow::Result<StatusCode> {
    let path = format!("/v1/destinations/{}/secrets", rotation.destination.0);
    let client = Client::dial(&api.to_string()).await?;
    let answer = client
        .with_key(&rotation.key)
        .answer("POST", &path, body)
        .await?;
    Ok(answer.0)
}

/// Those that sign, by the store, which is asked until it answers.
async fn ids(
    store: &dyn SecretStore,
    (tenant, destination): (TenantId, DestinationId),
) -> anyhow::Result<Vec<Uuid>> {
    loop {
        match store.secrets(tenant, destination).await {
            Ok(secrets) => return Ok(secrets.iter().map(|secret| secret.id.0).collect()),
            Err(CatalogError::Store(_)) => sleep(AWAY).await,
            Err(refused) => return Err(refused).context("look at the secrets"),
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::signature::{Key, Signer};
    use domain::time::Timestamp;
    use engine::ports::DEFAULT_TENANT;

    use super::super::log::Folder;
    use super::*;

    #[test]
    fn a_request_verifies_by_each_secret_that_signed_it_and_by_no_other() {
        let folder = Folder(tempfile::tempdir().unwrap().keep());
        let log = folder.appender(Folder::KNOWN).unwrap();
        let (secrets, _key) = Secrets::new(1, log).unwrap();
        let place = (DEFAULT_TENANT, secrets.id());
        let mut ids = Vec::new();
        let mut signing = Vec::new();
        for _ in 0..2 {
            let (secret, new) = secrets.add(0, place).unwrap();
            ids.push(new.place.secret.0);
            signing.push(secret);
        }
        secrets.first(0, place).unwrap();
        let keys = signing.into_iter().map(|secret| Key {
            secret,
            expires_at: None,
        });
        let signer = Signer::new(keys.collect());
        let signature = signer.sign(Timestamp::MIN, "id", 1, b"body").unwrap();
        let mut headers = HeaderMap::new();
        headers.insert("webhook-id", "id".parse().unwrap());
        headers.insert("webhook-timestamp", "1".parse().unwrap());
        headers.insert("webhook-signature", signature.parse().unwrap());
        let signed = secrets.signatures(0, &headers, b"body");
        assert_eq!((signed.by, signed.wrong), (ids, 0));
        let altered = secrets.signatures(0, &headers, b"another");
        assert_eq!((altered.by.len(), altered.wrong), (0, 2));
        headers.remove("webhook-signature");
        assert!(secrets.signatures(0, &headers, b"body").by.is_empty());
        let known: Vec<KnownSecret> = folder.read(Folder::KNOWN).unwrap();
        assert_eq!(known.len(), 1);
        assert_eq!(known[0].called, known[0].secret);
        std::fs::remove_dir_all(folder.0).unwrap();
    }
}
