//! Waking destinations, as a hint that may be lost.

use crate::ports::{MAX_ROWS, Schedule, ScheduleError, Wake};

/// Wakes all of them, in bounded batches. A failure is logged and left to the
/// sweep: the store knows what is due.
pub(crate) async fn wake_all(schedule: &dyn Schedule, wakes: &[Wake]) {
    if let Err(error) = try_wake_all(schedule, wakes).await {
        tracing::debug!(%error, wakes = wakes.len(), "wakes left to the sweep");
    }
}

/// Wakes for rows that went back to waiting. Their permits are counted no
/// more, so the floor that the last run found is no longer true: without
/// lifting it, an hourly limit would miss such a slot for up to an hour.
pub(crate) async fn wake_freed(schedule: &dyn Schedule, wakes: &[Wake]) {
    wake_all(schedule, &lifting_floors(wakes)).await;
}

/// The same wakes; those for now forget the floor.
pub(crate) fn lifting_floors(wakes: &[Wake]) -> Vec<Wake> {
    (wakes.iter())
        .map(|wake| Wake {
            clear_floor: wake.clear_floor || wake.after.is_zero(),
            ..*wake
        })
        .collect()
}

/// Wakes all of them, in bounded batches, up to the first failure.
pub(crate) async fn try_wake_all(
    schedule: &dyn Schedule,
    wakes: &[Wake],
) -> Result<(), ScheduleError> {
    for batch in wakes.chunks(MAX_ROWS) {
        schedule.wake(batch).await?;
    }
    Ok(())
}
