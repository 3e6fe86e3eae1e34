//! From the text of a key to who calls.
//!
//! What the store says of a key is remembered for [`REMEMBERED`], so that it
//! is asked a few times a minute and not with every request. Unknown keys cost
//! the same work as known ones, are remembered apart from them, and are asked
//! for in a line of their own, a thousand to a statement: guessing neither finds
//! anything out nor puts others out of their turn.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::access::{KeyId, Scopes};
use domain::ids::TenantId;
use domain::ingest_limit::IngestLimit;
use engine::ports::{Credential, DEFAULT_TENANT, KeyUse, Keys, MAX_ROWS};
use engine::ports::{StoreError, USE_NOTED_EVERY};
use secrecy::SecretString;
use subtle::ConstantTimeEq;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::line::Line;
use super::REMEMBERED;
use super::key::{KeyText, digest};

/// Keys that are remembered; beyond it all are asked for again.
const MAX_REMEMBERED: usize = 10_000;

/// Who calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// For which tenant.
    pub tenant: TenantId,
    /// Whose key it is, where it acts for another.
    pub home: TenantId,
    /// What for.
    pub scopes: Scopes,
    /// With which key; `None` for the one that is configured.
    pub key: Option<KeyId>,
    /// How fast its tenant may hand events in; `None` for what the process is
    /// configured with, which is what the configured key always gets.
    pub ingest_limit: Option<IngestLimit>,
}

/// Knows keys.
pub struct Gate {
    keys: Arc<dyn Keys>,
    /// The digest of the key that is configured.
    configured: [u8; 32],
    memory: Mutex<Memory>,
    /// Keys that are known, and those that are not.
    known: Line,
    unknown: Line,
}

#[derive(Default)]
struct Memory {
    known: HashMap<KeyId, Known>,
    /// Ids that no key in force has, and since when we know.
    unknown: HashMap<KeyId, Instant>,
    used: HashMap<KeyId, Instant>,
}

#[derive(Clone)]
struct Known {
    credential: Credential,
    /// When the store was asked.
    asked_at: Instant,
}

impl Known {
    fn is_fresh(&self) -> bool {
        let age = self.asked_at.elapsed();
        let left = self.credential.expires_in;
        age < REMEMBERED && left.is_none_or(|left| age < left)
    }
}

impl Gate {
    /// Over a store's keys, beside the one that is configured, which has all
    /// scopes of the default tenant.
    #[must_use]
    pub fn new(keys: Arc<dyn Keys>, configured: &SecretString) -> Self {
        use secrecy::ExposeSecret;
        Self {
            known: Line::new(Arc::clone(&keys)),
            unknown: Line::new(Arc::clone(&keys)),
            keys,
            configured: digest(configured.expose_secret()),
            memory: Mutex::default(),
        }
    }

    /// Who calls with this text; `None` for nobody that we know.
    pub async fn identify(&self, offered: &str) -> Result<Option<Identity>, StoreError> {
        let offered_digest = digest(offered);
        if bool::from(self.configured[..].ct_eq(&offered_digest[..])) {
            return Ok(Some(Identity {
                tenant: DEFAULT_TENANT,
                home: DEFAULT_TENANT,
                scopes: Scopes::ALL,
                key: None,
                ingest_limit: None,
            }));
        }
        let Some(KeyText { id, .. }) = KeyText::parse(offered) else {
            return Ok(None);
        };
        let credential = self.credential(id).await?;
        // A key that is not there is compared all the same.
        let kept = (credential.as_ref()).map_or([0; 32], |credential| credential.digest);
        let same = bool::from(kept[..].ct_eq(&offered_digest[..]));
        let Some(credential) = credential.filter(|_| same) else {
            return Ok(None);
        };
        self.memory().used.insert(id, Instant::now());
        Ok(Some(Identity {
            tenant: credential.tenant,
            home: credential.tenant,
            scopes: credential.scopes,
            key: Some(id),
            ingest_limit: credential.ingest_per_second.and_then(IngestLimit::of),
        }))
    }

    /// The digest of the key that is configured: what stands on it ends when
    /// another one is.
    #[must_use]
    pub const fn configured(&self) -> [u8; 32] {
        self.configured
    }

    /// Forgets what it knows of a key that this process has added or revoked:
    /// it is good, or refused, at once.
    pub fn forget(&self, id: KeyId) {
        let mut memory = self.memory();
        memory.known.remove(&id);
        memory.unknown.remove(&id);
    }

    /// The same of all keys of a tenant.
    pub fn forget_tenant(&self, tenant: TenantId) {
        let mut memory = self.memory();
        (memory.known).retain(|_, known| known.credential.tenant != tenant);
    }

    async fn credential(&self, id: KeyId) -> Result<Option<Credential>, StoreError> {
        if let Some(remembered) = self.memory().remembered(id) {
            return Ok(remembered);
        }
        let line = match self.memory().known.contains_key(&id) {
            true => &self.known,
            false => &self.unknown,
        };
        let found = line.ask(id).await?;
        let credential = found.credentials.get(&id).cloned();
        self.memory().learn(id, credential.clone(), found.asked_at);
        Ok(credential)
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        // What a panic left behind is still a memory.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes down which keys were used, once a minute, until `shutdown`; and
    /// once more then.
    pub async fn note_uses(self: Arc<Self>, shutdown: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                () = tokio::time::sleep(USE_NOTED_EVERY) => {}
            }
            self.note_uses_once().await;
        }
        self.note_uses_once().await;
    }

    /// Writes down the uses of this moment. What cannot be written is noted
    /// with the next.
    pub async fn note_uses_once(&self) {
        let used = std::mem::take(&mut self.memory().used);
        let uses: Vec<KeyUse> = (used.iter())
            .map(|(key, at)| KeyUse {
                key: *key,
                ago: at.elapsed(),
            })
            .collect();
        for batch in uses.chunks(MAX_ROWS) {
            if let Err(error) = self.keys.note_keys_used(batch).await {
                tracing::warn!(%error, "uses of keys not noted; again in a minute");
                self.memory().used_again(&used);
                return;
            }
        }
    }
}

impl Memory {
    /// `None` if the store has to be asked.
    fn remembered(&self, id: KeyId) -> Option<Option<Credential>> {
        if let Some(known) = self.known.get(&id).filter(|known| known.is_fresh()) {
            return Some(Some(known.credential.clone()));
        }
        let asked_at = self.unknown.get(&id)?;
        (asked_at.elapsed() < REMEMBERED).then_some(None)
    }

    fn learn(&mut self, id: KeyId, found: Option<Credential>, asked_at: Instant) {
        self.known.remove(&id);
        self.unknown.remove(&id);
        match found {
            Some(credential) => {
                if self.known.len() >= MAX_REMEMBERED {
                    self.known.clear();
                }
                let known = Known {
                    credential,
                    asked_at,
                };
                self.known.insert(id, known);
            }
            None => {
                if self.unknown.len() >= MAX_REMEMBERED {
                    self.unknown.clear();
                }
                self.unknown.insert(id, asked_at);
            }
        }
    }

    fn used_again(&mut self, used: &HashMap<KeyId, Instant>) {
        for (key, at) in used.iter().take(MAX_REMEMBERED) {
            let latest = self.used.entry(*key).or_insert(*at);
            *latest = (*latest).max(*at);
        }
    }
}

mod line;
#[cfg(test)]
mod tests;
