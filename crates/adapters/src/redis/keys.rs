//! How jobs are spread over shards, and what the keys of a shard are called.
//!
//! All keys of a shard share one hash tag, so that they live in one slot of a
//! Redis Cluster and a script may touch them together. Nothing here talks to
//! Redis.

use domain::ids::DestinationId;

/// The keys of one shard, such as `paceline:{0}:jobs`.
#[derive(Debug)]
pub(super) struct ShardKeys {
    /// When each job is due.
    pub(super) jobs: String,
    /// The token of each job under lease.
    pub(super) lease: String,
    /// What a wake under lease asked for.
    pub(super) woken: String,
    /// Until when a plain wake cannot bring a job forward.
    pub(super) floor: String,
    /// The boot id: which life of the server this is. The only key that stays
    /// when no job is left.
    pub(super) life: String,
    /// The channel, not a key, on which takers are told that a job is due
    /// sooner than they know.
    pub(super) sooner: String,
}

impl ShardKeys {
    pub(super) fn new(prefix: &str, shard: u16) -> Self {
        let key = |name: &str| format!("{prefix}:{{{shard}}}:{name}");
        Self {
            jobs: key("jobs"),
            lease: key("lease"),
            woken: key("woken"),
            floor: key("floor"),
            life: key("life"),
            sooner: key("sooner"),
        }
    }
}

/// Which of `shards` shards a destination's job is in: FNV-1a over its id.
/// Every instance should agree, so this may not change, and the number of shards
/// not for long.
pub(super) fn shard_of(destination: DestinationId, shards: usize) -> usize {
    let hash = destination
        .0
        .as_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
    // Truncation is fine: it is a hash, and shards fit in 16 bits.
    (hash % shards.max(1) as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn keys_of_a_shard_share_a_hash_tag() {
        let keys = ShardKeys::new("paceline", 3);
        assert_eq!(keys.jobs, "paceline:{3}:jobs");
        assert_eq!(keys.life, "paceline:{3}:life");
        assert_eq!(keys.sooner, "paceline:{3}:sooner");
    }

    #[test]
    fn a_destination_stays_in_its_shard_across_versions() {
        let id = |number| DestinationId(Uuid::from_u128(number));
        assert_eq!(
            [1, 2, 3, 1 << 64, u128::MAX].map(|number| shard_of(id(number), 16)),
            [2, 15, 12, 2, 5]
        );
    }

    #[test]
    fn neighbours_spread_evenly() {
        let mut counts = [0_usize; 8];
        for number in 0..8_000 {
            counts[shard_of(DestinationId(Uuid::from_u128(number)), 8)] += 1;
        }
        assert!(
            counts.iter().all(|count| (800..1_200).contains(count)),
            "{counts:?}"
        );
    }
}
