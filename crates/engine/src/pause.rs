//! What loops do between two steps.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// Waits for so long, or until the loop is to end: whether it is.
pub(crate) async fn ends_within(pause: Duration, shutdown: &CancellationToken) -> bool {
    tokio::select! {
        biased;
        () = shutdown.cancelled() => true,
        () = tokio::time::sleep(pause) => false,
    }
}
