//! Whose keys are which shard's, and what those of one shard may do on another.
//!
//! A key of an installation (`admin`, `platform`) is a row of one shard's store, and good
//! for tenants of all. Its own shard is asked what it is good for, and believed for
//! [`REMEMBERED`]; while that shard is away, what was known of the key goes on for
//! [`OUTLASTS`], or nobody could act for the tenants of others.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::access::Scopes;
use domain::shard::ShardName;
use http::{Method, StatusCode};
use serde_json::json;
use subtle::ConstantTimeEq;
use tokio::time::Instant;

use super::shards::Shards;
use crate::access::REMEMBERED;
use crate::access::key::{KeyText, digest};
use crate::api::keys::KnownKey;
use crate::api::problem::Problem;

/// How long a key goes on that its shard cannot be asked about: longer than a database
/// takes to fail over, and not so long that a revoked one matters.
const OUTLASTS: Duration = Duration::from_secs(300);

/// Keys that are remembered; beyond it all are asked for again.
const MAX_REMEMBERED: usize = 10_000;

/// Knows keys.
pub(super) struct Keys {
    /// The digest of the one that all shards have.
    shared: [u8; 32],
    known: Mutex<HashMap<[u8; 32], Known>>,
}

/// Whose key it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Home {
    /// All shards'.
    Everywhere,
    /// This one's.
    Shard(ShardName),
}

impl Home {
    pub(super) const fn shard(&self) -> Option<&ShardName> {
        match self {
            Self::Everywhere => None,
            Self::Shard(name) => Some(name),
        }
    }
}

#[derive(Clone, Copy)]
struct Known {
    /// `None` of a key that is not there.
    scopes: Option<Scopes>,
    asked_at: Instant,
}

impl Keys {
    pub(super) fn new(shared: &str) -> Self {
        Self {
            shared: digest(shared),
            known: Mutex::default(),
        }
    }

    /// The shard that can know this key; `None` if none does.
    pub(super) fn home(&self, offered: &str, shards: &Shards) -> Option<Home> {
        if bool::from(self.shared[..].ct_eq(&digest(offered)[..])) {
            return Some(Home::Everywhere);
        }
        let named = KeyText::parse(offered)?.shard;
        let shard = match &named {
            Some(name) => shards.get(name)?,
            None => shards.first(),
        };
        Some(Home::Shard(shard.name().clone()))
    }

    /// What this shard's key may do.
    pub(super) async fn scopes(
        &self,
        shards: &Shards,
        home: &ShardName,
        key: &str,
    ) -> Result<Scopes, Problem> {
        let known = match self.fresh(key) {
            Some(known) => known,
            None => self.ask(shards, home, key).await?,
        };
        known.scopes.ok_or_else(Problem::unauthorized)
    }

    async fn ask(&self, shards: &Shards, home: &ShardName, key: &str) -> Result<Known, Problem> {
        let shard = shards.get(home).ok_or_else(Problem::unauthorized)?;
        let _turn = shard.turn().await;
        // Somebody may have asked for it while we waited.
        if let Some(known) = self.fresh(key) {
            return Ok(known);
        }
        let asked_at = Instant::now();
        let body = json!({"key": key}).to_string();
        let answer = shards.ask(shard, Method::POST, IDENTIFY, body).await;
        let answer = answer.and_then(|answer| match answer.status {
            StatusCode::OK => answer.json::<KnownKey>().map(Some),
            StatusCode::NOT_FOUND => Ok(None),
            _ => Err(answer.unusable()),
        });
        match answer {
            Ok(found) => {
                let scopes = found.map(|key| key.scopes.into_iter().collect());
                let known = Known { scopes, asked_at };
                self.learn(key, known);
                Ok(known)
            }
            Err(away) => {
                let known = self.memory().get(&digest(key)).copied();
                let lasts = known.filter(|known| known.asked_at.elapsed() < OUTLASTS);
                lasts.ok_or_else(|| shard.away(&away))
            }
        }
    }

    fn fresh(&self, key: &str) -> Option<Known> {
        let known = self.memory().get(&digest(key)).copied();
        known.filter(|known| known.asked_at.elapsed() < REMEMBERED)
    }

    fn learn(&self, key: &str, known: Known) {
        let mut memory = self.memory();
        if memory.len() >= MAX_REMEMBERED {
            // Guesses first: they must not make anybody's key be forgotten.
            memory.retain(|_, known| known.scopes.is_some());
        }
        if memory.len() >= MAX_REMEMBERED {
            memory.clear();
        }
        memory.insert(digest(key), known);
    }

    fn memory(&self) -> MutexGuard<'_, HashMap<[u8; 32], Known>> {
        // What a panic left behind is still a memory.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const IDENTIFY: &str = "/v1/keys/identify";
