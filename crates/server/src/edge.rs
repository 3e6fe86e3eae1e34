//! The edge: the one place of this crate that reads the wall clock and the
//! system's randomness. Everything else takes them as arguments.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use domain::shard::ShardName;
use domain::time::Timestamp;
use engine::ports::Store;
use rand::rngs::{StdRng, SysRng};
use rand::{Rng, SeedableRng};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::access::MintedKey;
use crate::access::key::hex;

/// The wall clock. Never for limits, which are judged by the store's clock:
/// for ids and for what people type (`--since 1h`).
#[must_use]
#[expect(
    clippy::disallowed_methods,
    reason = "the edge: this is where the clock is read"
)]
pub fn now() -> Timestamp {
    let since_epoch = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp::from_micros(i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX))
}

/// How long this machine has been suspended since it was booted, to within the
/// time between two readings of a clock; never less than that. Zero where the
/// system does not say.
#[must_use]
pub fn suspended() -> Duration {
    #[cfg(target_os = "linux")]
    {
        use rustix::time::{ClockId, clock_gettime};

        let since_boot = |clock| Duration::try_from(clock_gettime(clock)).unwrap_or_default();
        // In this order: whoever is interrupted in between reads too much.
        let awake = since_boot(ClockId::Monotonic);
        since_boot(ClockId::Boottime).saturating_sub(awake)
    }
    #[cfg(not(target_os = "linux"))]
    Duration::ZERO
}

/// Makes ids and keys, from one generator that is seeded once.
pub struct Mint {
    clock: fn() -> Timestamp,
    /// How far the store's clock is ahead of that one, in microseconds.
    ahead: AtomicI64,
    random: Mutex<StdRng>,
    /// What keys, links and cookies name first, in one of several shards.
    shard: Option<ShardName>,
}

/// Between two looks at the store's clock.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// So far a machine's clock may be off before that is told: more than NTP ever
/// leaves, and less than anybody would see in ids.
const TOLD_FROM: Duration = Duration::from_secs(5);

/// Keeps ids dated by the store's clock until `shutdown`. An event is kept under the
/// day of its id, and the store has a few days only: by a clock that is three days
/// off nothing could be accepted.
pub async fn follow_store(mint: Arc<Mint>, store: Arc<dyn Store>, shutdown: CancellationToken) {
    loop {
        // While the store is away nothing is accepted either.
        if let Ok(fleet) = store.fleet().await {
            mint.follow(fleet.now);
        }
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

impl Mint {
    /// Seeded by the system.
    pub fn from_system() -> anyhow::Result<Self> {
        let random = StdRng::try_from_rng(&mut SysRng).context("read the system's randomness")?;
        Ok(Self::new(now, random))
    }

    /// From a given clock and generator: the same seed makes the same ids.
    #[must_use]
    pub fn new(clock: fn() -> Timestamp, random: StdRng) -> Self {
        Self {
            clock,
            ahead: AtomicI64::new(0),
            random: Mutex::new(random),
            shard: None,
        }
    }

    /// The same for a shard: what it makes for others to hold names it.
    #[must_use]
    pub fn of_shard(self, shard: Option<ShardName>) -> Self {
        Self { shard, ..self }
    }

    /// A new id, of version 7: ids sort roughly by their time, which keeps the
    /// store's indexes dense. By the store's clock, as far as it is known.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        let millis = u64::try_from(self.now().as_micros() / 1_000).unwrap_or(0);
        uuid::Builder::from_unix_timestamp_millis(millis, &self.bytes()).into_uuid()
    }

    /// What the store's clock says, as far as it is known.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let ahead = self.ahead.load(Ordering::Relaxed);
        Timestamp::from_micros((self.clock)().as_micros().saturating_add(ahead))
    }

    /// Learns what the store's clock says just now, and tells when this machine's says
    /// something else.
    pub fn follow(&self, store: Timestamp) {
        let ahead = store.micros_since((self.clock)());
        let before = self.ahead.swap(ahead, Ordering::Relaxed);
        let told = i64::try_from(TOLD_FROM.as_micros()).unwrap_or(i64::MAX);
        if ahead.abs() >= told && before.abs_diff(ahead) >= told.unsigned_abs() {
            tracing::error!(
                store_ahead_seconds = ahead / 1_000_000,
                "this machine's clock is not the store's: ids are dated by the store's; set it right"
            );
        }
    }

    /// A new API key.
    #[must_use]
    pub fn key(&self) -> MintedKey {
        MintedKey::new(self.shard.as_ref(), self.bytes(), self.bytes())
    }

    /// What a browser shall hold, or a link: 256 random bits, after the name of the shard
    /// that knows it ([`shard_of_held`]).
    #[must_use]
    pub fn held(&self) -> String {
        let digits = hex(&self.bytes::<32>());
        match &self.shard {
            Some(shard) => format!("{shard}-{digits}"),
            None => digits,
        }
    }

    /// Random bytes, such as a seed.
    #[must_use]
    pub fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.fill(&mut bytes);
        bytes
    }

    fn fill(&self, bytes: &mut [u8]) {
        // A poisoned generator is still a generator.
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        random.fill_bytes(bytes);
    }
}

/// The shard that is named in what a browser holds, or a link.
#[must_use]
pub fn shard_of_held(held: &str) -> Option<ShardName> {
    held.split_once('-')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_of_version_7_and_carry_their_time() {
        let mint = Mint::new(
            || Timestamp::from_millis(1_700_000_000_123),
            StdRng::seed_from_u64(1),
        );
        let (first, second) = (mint.uuid(), mint.uuid());
        assert_ne!(first, second);
        assert_eq!(first.get_version_num(), 7);
        let time = first.get_timestamp().unwrap().to_unix();
        assert_eq!(time, (1_700_000_000, 123_000_000));
    }

    /// A machine that is ten days behind, then right again.
    #[test]
    fn ids_are_dated_by_the_stores_clock() {
        let mint = Mint::new(
            || Timestamp::from_millis(1_700_000_000_000),
            StdRng::seed_from_u64(1),
        );
        let dated = |mint: &Mint| mint.uuid().get_timestamp().unwrap().to_unix().0;
        mint.follow(Timestamp::from_millis(1_700_864_000_000));
        assert_eq!(dated(&mint), 1_700_864_000);
        mint.follow(Timestamp::from_millis(1_700_000_000_000));
        assert_eq!(dated(&mint), 1_700_000_000);
    }
}
