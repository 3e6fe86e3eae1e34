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
    /// How far it was when that was told last; 0 while it is right.
    told: AtomicI64,
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
            told: AtomicI64::new(0),
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
    /// something else: once, and again when it is off by as much more.
    pub fn follow(&self, store: Timestamp) {
        let ahead = store.micros_since((self.clock)());
        self.ahead.store(ahead, Ordering::Relaxed);
        let from = u64::try_from(TOLD_FROM.as_micros()).unwrap_or(u64::MAX);
        // Well below, or one that is about as far off would be told without end.
        if ahead.unsigned_abs() < from / 2 {
            self.told.store(0, Ordering::Relaxed);
        }
        // Against what was told, not the last look: a clock may drift a little at a time.
        let more = self.told.load(Ordering::Relaxed).abs_diff(ahead);
        if ahead.unsigned_abs() >= from && more >= from {
            self.told.store(ahead, Ordering::Relaxed);
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
    use std::io;

    use super::*;

    /// What is logged on this thread.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The lines that are logged meanwhile.
    fn logged(work: impl FnOnce()) -> Vec<String> {
        let log = Log::default();
        let into = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || into.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, work);
        let bytes = log.0.lock().unwrap();
        let text = String::from_utf8_lossy(&bytes);
        text.lines().map(str::to_owned).collect()
    }

    /// At which seconds that the store's clock is ahead, one look after the other, it is
    /// told.
    fn told(ahead_ms: &[i64]) -> Vec<i64> {
        let mint = Mint::new(
            || Timestamp::from_millis(1_700_000_000_000),
            StdRng::seed_from_u64(1),
        );
        let of = |ahead_ms: i64| Timestamp::from_millis(1_700_000_000_000 + ahead_ms);
        let mut told = Vec::new();
        for ahead_ms in ahead_ms {
            let lines = logged(|| mint.follow(of(*ahead_ms)));
            for line in lines {
                assert!(line.contains("ERROR"), "{line}");
                assert!(line.contains("set it right"), "{line}");
                let (_, seconds) = line.split_once("store_ahead_seconds=").unwrap();
                told.push(seconds.trim().parse().unwrap());
            }
        }
        told
    }

    #[test]
    fn a_clock_that_is_off_is_told_once_and_again_when_it_is_off_by_more() {
        assert!(
            told(&[0, 4_999, -4_999]).is_empty(),
            "so little is not told"
        );
        assert_eq!(told(&[5_000, 4_900, 5_000]), [5], "about as far off");
        assert_eq!(told(&[10_000, 10_000, 11_000]), [10]);
        assert_eq!(told(&[-10_000, -14_000, -15_000]), [-10, -15]);
        assert_eq!(
            told(&[864_000_000]),
            [864_000],
            "days, before events are refused"
        );
        assert_eq!(told(&[6_000, 0, 6_000]), [6, 6], "it was right meanwhile");
    }

    #[test]
    fn a_clock_that_drifts_a_little_at_a_time_is_told_too() {
        let drift: Vec<i64> = (0..=12).map(|second| second * 1_000).collect();
        assert_eq!(told(&drift), [5, 10]);
    }

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
