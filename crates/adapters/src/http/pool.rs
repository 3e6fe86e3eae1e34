//! The idle connections, bounded per key, in all, by idleness and by age.
//!
//! A plain data structure: it waits for nothing, spawns nothing and is told
//! the time. Whatever it lets go of is handed out, to be closed after the
//! lock is released.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use domain::ids::{DestinationId, SecretId};
use tokio::time::Instant;

use super::endpoint::Origin;

/// Who may share a connection: the same destination at the same origin, with the same
/// client certificate.
/// Destinations do not share, so that none sees another's traffic or pays for
/// another's closed connections; an epoch is not part of it, for a change of
/// limits does not change the connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) destination: DestinationId,
    pub(super) origin: Arc<Origin>,
    /// Where the certificate is kept that it shows.
    pub(super) identity: Option<SecretId>,
}

/// See the fields of the same meaning in `HttpOptions`.
#[derive(Debug, Clone, Copy)]
pub(super) struct PoolLimits {
    pub(super) per_key: usize,
    pub(super) total: usize,
    pub(super) idle_age: Duration,
    pub(super) age: Duration,
    pub(super) http2: bool,
}

/// A connection on its way into the pool.
pub(super) struct Returned<C> {
    pub(super) connection: C,
    pub(super) opened_at: Instant,
    /// How long the receiver says that it keeps it.
    pub(super) keep_alive: Option<Duration>,
}

struct Idle<C> {
    key: Key,
    connection: C,
    since: Instant,
    /// By age or by the receiver's own word.
    useless_at: Instant,
}

/// Turn numbers grow with every connection that becomes idle, so the first one
/// in `idle` is the one that has been idle longest, and so is the first of
/// each key's.
pub(super) struct Pool<C> {
    limits: PoolLimits,
    next_turn: u64,
    idle: BTreeMap<u64, Idle<C>>,
    turns: HashMap<Key, VecDeque<u64>>,
}

impl<C> Pool<C> {
    pub(super) fn new(limits: PoolLimits) -> Self {
        Self {
            limits,
            next_turn: 0,
            idle: BTreeMap::new(),
            turns: HashMap::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.idle.len()
    }

    /// The connection that became idle last, so that the others of a key that
    /// needs fewer now can expire; and those to be closed.
    pub(super) fn take(&mut self, key: &Key, now: Instant) -> (Option<C>, Vec<C>) {
        let mut closing = self.sweep(now);
        while let Some(&turn) = self.turns.get(key).and_then(VecDeque::back) {
            let Some(idle) = self.remove(turn) else { break };
            if now < idle.useless_at {
                return (Some(idle.connection), closing);
            }
            closing.push(idle.connection);
        }
        (None, closing)
    }

    /// Keeps the connection; returns those to be closed, which may include it.
    pub(super) fn put(&mut self, key: Key, returned: Returned<C>, now: Instant) -> Vec<C> {
        let mut closing = self.sweep(now);
        let kept = returned.keep_alive.unwrap_or(self.limits.idle_age);
        let useless_at = (now + kept).min(returned.opened_at + self.limits.age);
        if useless_at <= now || self.limits.per_key == 0 || self.limits.total == 0 {
            closing.push(returned.connection);
            return closing;
        }
        let of_key = self.turns.entry(key.clone()).or_default();
        if of_key.len() >= self.limits.per_key {
            let oldest = of_key.front().copied();
            closing.extend(
                oldest
                    .and_then(|turn| self.remove(turn))
                    .map(|idle| idle.connection),
            );
        }
        if self.idle.len() >= self.limits.total {
            closing.extend(self.remove_oldest());
        }
        let turn = self.next_turn;
        self.next_turn += 1;
        self.turns.entry(key.clone()).or_default().push_back(turn);
        let idle = Idle {
            key,
            connection: returned.connection,
            since: now,
            useless_at,
        };
        self.idle.insert(turn, idle);
        closing
    }

    /// Takes out what has been idle for too long.
    pub(super) fn sweep(&mut self, now: Instant) -> Vec<C> {
        let mut expired = Vec::new();
        while let Some((_, oldest)) = self.idle.first_key_value()
            && now.duration_since(oldest.since) >= self.limits.idle_age
        {
            expired.extend(self.remove_oldest());
        }
        expired
    }

    fn remove_oldest(&mut self) -> Option<C> {
        let turn = *self.idle.first_key_value()?.0;
        self.remove(turn).map(|idle| idle.connection)
    }

    /// A turn is only ever taken from one end of its key's.
    fn remove(&mut self, turn: u64) -> Option<Idle<C>> {
        let idle = self.idle.remove(&turn)?;
        if let Some(of_key) = self.turns.get_mut(&idle.key) {
            if of_key.front() == Some(&turn) {
                of_key.pop_front();
            } else {
                of_key.pop_back();
            }
            if of_key.is_empty() {
                self.turns.remove(&idle.key);
            }
        }
        Some(idle)
    }
}

#[cfg(test)]
mod tests {
    use url::Host;
    use uuid::Uuid;

    use super::super::endpoint::Scheme;
    use super::*;

    const LIMITS: PoolLimits = PoolLimits {
        per_key: 2,
        total: 3,
        idle_age: Duration::from_secs(30),
        age: Duration::from_secs(300),
        http2: true,
    };

    fn key(destination: u128) -> Key {
        Key {
            destination: DestinationId(Uuid::from_u128(destination)),
            origin: Arc::new(Origin {
                scheme: Scheme::Http,
                host: Host::Domain("example.com".to_owned()),
                port: 80,
            }),
            identity: None,
        }
    }

    fn fresh(connection: u32, now: Instant) -> Returned<u32> {
        Returned {
            connection,
            opened_at: now,
            keep_alive: None,
        }
    }

    #[test]
    fn the_last_one_in_is_the_first_one_out() {
        let (mut pool, now) = (Pool::new(LIMITS), Instant::now());
        pool.put(key(1), fresh(10, now), now);
        pool.put(key(1), fresh(11, now), now);
        assert_eq!(pool.take(&key(2), now), (None, vec![]));
        assert_eq!(pool.take(&key(1), now), (Some(11), vec![]));
        assert_eq!(pool.take(&key(1), now), (Some(10), vec![]));
        assert_eq!(pool.take(&key(1), now), (None, vec![]));
        assert!(pool.turns.is_empty());
    }

    #[test]
    fn a_connection_is_for_one_certificate() {
        let (mut pool, now) = (Pool::new(LIMITS), Instant::now());
        let shown = |secret: u128| Key {
            identity: Some(SecretId(Uuid::from_u128(secret))),
            ..key(1)
        };
        pool.put(shown(7), fresh(10, now), now);
        assert_eq!(pool.take(&key(1), now), (None, vec![]), "none");
        assert_eq!(pool.take(&shown(8), now), (None, vec![]), "another");
        assert_eq!(pool.take(&shown(7), now), (Some(10), vec![]));
    }

    #[test]
    fn the_oldest_makes_room() {
        let (mut pool, now) = (Pool::new(LIMITS), Instant::now());
        assert_eq!(pool.put(key(1), fresh(10, now), now), Vec::<u32>::new());
        assert_eq!(pool.put(key(2), fresh(20, now), now), Vec::<u32>::new());
        assert_eq!(pool.put(key(1), fresh(11, now), now), Vec::<u32>::new());
        assert_eq!(
            pool.put(key(1), fresh(12, now), now),
            vec![10],
            "of its key"
        );
        assert_eq!(pool.put(key(3), fresh(30, now), now), vec![20], "of all");
        assert_eq!(pool.len(), 3);
    }

    #[test]
    fn time_closes_connections() {
        let (mut pool, now) = (Pool::new(LIMITS), Instant::now());
        let later = |seconds| now + Duration::from_secs(seconds);
        pool.put(key(1), fresh(10, now), now);
        assert_eq!(pool.sweep(later(29)), Vec::<u32>::new());
        assert_eq!(pool.sweep(later(30)), vec![10], "idle");

        pool.put(key(1), fresh(11, now), later(280));
        assert_eq!(pool.take(&key(1), later(300)), (None, vec![11]), "old");
        assert_eq!(
            pool.put(key(1), fresh(12, now), later(300)),
            vec![12],
            "too old to keep"
        );

        let announced = Returned {
            keep_alive: Some(Duration::from_secs(4)),
            ..fresh(13, later(300))
        };
        pool.put(key(1), announced, later(300));
        assert_eq!(
            pool.take(&key(1), later(304)),
            (None, vec![13]),
            "as the receiver said"
        );
        assert!(pool.turns.is_empty() && pool.idle.is_empty());
    }

    #[test]
    fn no_limit_of_zero_keeps_anything() {
        let now = Instant::now();
        for limits in [
            PoolLimits {
                per_key: 0,
                ..LIMITS
            },
            PoolLimits { total: 0, ..LIMITS },
        ] {
            assert_eq!(Pool::new(limits).put(key(1), fresh(10, now), now), vec![10]);
        }
    }
}
