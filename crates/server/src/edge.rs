//! The edge: the one place of this crate that reads the wall clock and the
//! system's randomness. Everything else takes them as arguments.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use domain::time::Timestamp;
use rand::rngs::{StdRng, SysRng};
use rand::{Rng, SeedableRng};
use uuid::Uuid;

use crate::access::MintedKey;

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
    random: Mutex<StdRng>,
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
            random: Mutex::new(random),
        }
    }

    /// A new id, of version 7: ids sort roughly by their time, which keeps the
    /// store's indexes dense.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        let millis = u64::try_from((self.clock)().as_micros() / 1_000).unwrap_or(0);
        uuid::Builder::from_unix_timestamp_millis(millis, &self.bytes()).into_uuid()
    }

    /// A new API key.
    #[must_use]
    pub fn key(&self) -> MintedKey {
        MintedKey::new(self.bytes(), self.bytes())
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
}
