//! Whether anybody still waits for what a store is asked.
//!
//! A page that is too late is answered without it. What it was reading must not be
//! dropped in the middle of a statement, and must not go on to the next: so it runs
//! within [`until`], and a store asks [`check`] before each step that reads. What
//! changes something is not for here: it is done whole.

use tokio_util::sync::CancellationToken;

use super::error::StoreError;

tokio::task_local! {
    static LATE: CancellationToken;
}

/// Does `work`, which nobody wants any more once `late` is cancelled. What it spawns
/// is no part of it.
pub async fn until<F: Future>(late: CancellationToken, work: F) -> F::Output {
    LATE.scope(late, work).await
}

/// An error where nobody waits any more for what this task does; outside [`until`]
/// somebody always does.
pub fn check() -> Result<(), StoreError> {
    match LATE.try_with(CancellationToken::is_cancelled) {
        Ok(true) => Err(StoreError::Unavailable(
            "nobody waits for it any more".to_owned(),
        )),
        Ok(false) | Err(_) => Ok(()),
    }
}
