//! Notifications of changed limits.

use engine::ports::StoreError;
use sqlx::PgPool;
use sqlx::postgres::PgListener;

use super::failure::Failure;

/// Fires when somebody has changed a limit, a tier or a state.
#[derive(Debug)]
pub struct Changes {
    listener: PgListener,
}

/// Starts listening.
pub(super) async fn listen(pool: &PgPool) -> Result<Changes, StoreError> {
    let mut listener = (PgListener::connect_with(pool).await).map_err(Failure::from)?;
    (listener.listen("paceline_changed").await).map_err(Failure::from)?;
    Ok(Changes { listener })
}

impl Changes {
    /// Waits for the next change. Also returns when the connection was lost
    /// and made again, because changes may have been missed meanwhile.
    pub async fn changed(&mut self) -> Result<(), StoreError> {
        let _lost_or_notified = (self.listener.try_recv().await).map_err(Failure::from)?;
        Ok(())
    }
}
