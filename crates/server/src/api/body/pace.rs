//! How fast a body has to come.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::super::problem::Problem;

/// The least rate, on average and after the grace: as slow as the slowest network
/// that a sender could be behind, and it fills a megabyte in 17 minutes.
const BYTES_PER_SECOND: u64 = 1_024;

/// Before which a body of one request may come as slowly as it likes.
const GRACE: Duration = Duration::from_secs(5);

/// The same of a bulk body, whose client may have pauses.
const BULK_GRACE: Duration = Duration::from_secs(60);

/// Counts the time that is spent waiting for a client, and what it has sent.
pub(in super::super) struct Pace {
    grace: Duration,
    waited: Duration,
    bytes: u64,
}

impl Pace {
    pub(in super::super) const fn of_a_request() -> Self {
        Self::with(GRACE)
    }

    pub(in super::super) const fn of_a_bulk_body() -> Self {
        Self::with(BULK_GRACE)
    }

    const fn with(grace: Duration) -> Self {
        Self {
            grace,
            waited: Duration::ZERO,
            bytes: 0,
        }
    }

    /// The next of the body, if it comes in time. What is dropped while it waits is
    /// not counted.
    pub(in super::super) async fn wait_for<T>(
        &mut self,
        next: impl Future<Output = T>,
    ) -> Result<T, Problem> {
        let began = Instant::now();
        let came = timeout(self.patience(), next).await;
        self.waited += began.elapsed();
        came.map_err(|_late| Problem::too_slow_body(self.waited))
    }

    pub(in super::super) const fn came(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }

    /// How long the client may take from now on.
    fn patience(&self) -> Duration {
        let earned = Duration::from_millis(self.bytes.saturating_mul(1_000) / BYTES_PER_SECOND);
        (self.grace + earned).saturating_sub(self.waited)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    /// How long somebody may go on who sends so much each second.
    async fn lasts(bytes: usize, mut pace: Pace) -> Duration {
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(1_000) {
            if pace.wait_for(sleep(Duration::from_secs(1))).await.is_err() {
                break;
            }
            pace.came(bytes);
        }
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_drip_ends_after_the_grace_and_a_slow_network_does_not() {
        for (pace, grace) in [
            (Pace::of_a_request(), GRACE),
            (Pace::of_a_bulk_body(), BULK_GRACE),
        ] {
            let over = lasts(1, pace).await - grace;
            assert!(over < Duration::from_millis(100), "{over:?}");
        }
        let half = lasts(512, Pace::of_a_request()).await;
        assert!(half > GRACE && half <= GRACE * 2, "{half:?}");
        let slow = lasts(2_048, Pace::of_a_request()).await;
        assert!(slow >= Duration::from_secs(1_000), "{slow:?}");
    }
}
