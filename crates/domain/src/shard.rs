//! Shards: whole installations, each with a store of its own, among which tenants are
//! divided. What is decided here is how one is called, and where a new tenant goes.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

/// The longest name, in bytes: it stands in every key.
pub const MAX_SHARD_NAME_BYTES: usize = 16;

/// What a shard is called: in keys, links and cookies of its tenants, in the names of
/// its Redis keys and queues, and in labels of metrics. It begins with a letter, so that
/// a queue's name followed by it is never that of one of several queues.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardName(Box<str>);

/// What was given is no such name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a shard's name: expected 1 to 16 lower-case letters and digits, a letter first")]
pub struct InvalidShardName;

impl ShardName {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Some text that names this shard first, such as the prefix of its Redis keys.
    #[must_use]
    pub fn of(&self, text: &str) -> String {
        format!("{text}.{self}")
    }
}

impl FromStr for ShardName {
    type Err = InvalidShardName;

    fn from_str(text: &str) -> Result<Self, InvalidShardName> {
        let letter = |byte: &u8| byte.is_ascii_lowercase();
        let is_sane = (1..=MAX_SHARD_NAME_BYTES).contains(&text.len())
            && text.as_bytes().first().is_some_and(letter)
            && (text.bytes()).all(|byte| letter(&byte) || byte.is_ascii_digit());
        match is_sane {
            true => Ok(Self(text.into())),
            false => Err(InvalidShardName),
        }
    }
}

impl fmt::Display for ShardName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a new tenant of this name goes, among the shards that take new ones: to the one
/// with the highest hash of both. Whoever asks gets the same answer, so two that make
/// one tenant at the same time make it in one store, which lets only one of them. When
/// a shard is added or closed, no other pair's hash changes.
#[must_use]
pub fn home<'a>(open: &[&'a ShardName], tenant: &str) -> Option<&'a ShardName> {
    let hash = |shard: &ShardName| {
        let digest = Sha256::new()
            .chain_update(shard.as_str())
            .chain_update([0])
            .chain_update(tenant);
        <[u8; 32]>::from(digest.finalize())
    };
    open.iter().copied().max_by_key(|shard| hash(shard))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<ShardName> {
        text.split(' ').map(|name| name.parse().unwrap()).collect()
    }

    fn homes(shards: &[ShardName]) -> Vec<&ShardName> {
        let open: Vec<_> = shards.iter().collect();
        let tenants = (0..3_000).map(|number| format!("customer-{number}"));
        tenants.map(|name| home(&open, &name).unwrap()).collect()
    }

    #[test]
    fn a_name_is_short_and_plain() {
        for good in ["a", "eu1", "abcdefghijklmno9"] {
            assert_eq!(good.parse::<ShardName>().unwrap().as_str(), good);
        }
        for bad in [
            "",
            "1",
            "1a",
            "A",
            "a-b",
            "a.b",
            "a_b",
            "é",
            "abcdefghijklmnop1",
        ] {
            assert_eq!(bad.parse::<ShardName>(), Err(InvalidShardName), "{bad}");
        }
    }

    #[test]
    fn new_tenants_are_spread_evenly() {
        let shards = names("a b c");
        let homes = homes(&shards);
        for shard in &shards {
            let has = homes.iter().filter(|home| **home == shard).count();
            assert!((900..1_100).contains(&has), "{shard}: {has}");
        }
    }

    /// Or a tenant that is made twice while a shard is added would be in two.
    #[test]
    fn the_order_of_shards_changes_nothing_and_another_one_takes_from_all_alike() {
        let (two, turned, three) = (names("a b"), names("b a"), names("a b c"));
        assert_eq!(homes(&two), homes(&turned));
        let (before, after) = (homes(&two), homes(&three));
        let moved = before
            .iter()
            .zip(&after)
            .filter(|(one, other)| one != other);
        let to: Vec<_> = moved.map(|(_, to)| to.as_str()).collect();
        assert!(to.iter().all(|to| *to == "c"));
        assert!((900..1_100).contains(&to.len()), "{}", to.len());
    }

    #[test]
    fn where_none_takes_any_there_is_no_home() {
        assert_eq!(home(&[], "customer-1"), None);
    }
}
