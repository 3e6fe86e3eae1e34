//! Idempotency keys, and an index by when they expire.

use std::collections::{BTreeMap, BTreeSet};

use domain::ids::{EventId, TenantId};
use domain::time::Timestamp;

/// One key of one tenant.
pub(super) type Key = (TenantId, String);

/// What an idempotency key stands for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct KeyRow {
    pub(super) digest: [u8; 32],
    pub(super) event: EventId,
    pub(super) expires_at: Timestamp,
}

/// All keys.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Keys {
    rows: BTreeMap<Key, KeyRow>,
    by_expiry: BTreeSet<(Timestamp, Key)>,
    /// Inserted by a transaction that is open.
    held: BTreeSet<Key>,
}

impl Keys {
    pub(super) fn get(&self, key: &Key) -> Option<&KeyRow> {
        self.rows.get(key)
    }

    pub(super) fn insert(&mut self, key: Key, row: KeyRow) {
        self.by_expiry.insert((row.expires_at, key.clone()));
        if let Some(before) = self.rows.insert(key.clone(), row)
            && before.expires_at != row.expires_at
        {
            self.by_expiry.remove(&(before.expires_at, key));
        }
    }

    /// Nobody else can insert it.
    pub(super) fn hold(&mut self, key: Option<Key>) {
        self.held.extend(key);
    }

    /// That transaction has ended.
    pub(super) fn let_go(&mut self, key: Option<Key>) {
        self.held.retain(|held| Some(held) != key.as_ref());
    }

    pub(super) fn is_held(&self, key: &Key) -> bool {
        self.held.contains(key)
    }

    /// Whether as many as that have expired.
    pub(super) fn are_expired(&self, now: Timestamp, most: usize) -> bool {
        let expired = self.by_expiry.iter().take(most);
        expired.take_while(|(at, _)| *at <= now).count() >= most
    }

    /// Forgets `most` of those that have expired.
    pub(super) fn delete_expired(&mut self, now: Timestamp, most: usize) {
        for _ in 0..most {
            if (self.by_expiry.first()).is_none_or(|(expires_at, _)| *expires_at > now) {
                return;
            }
            if let Some((_, key)) = self.by_expiry.pop_first() {
                self.rows.remove(&key);
            }
        }
    }
}
