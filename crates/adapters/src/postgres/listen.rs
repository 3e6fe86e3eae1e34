//! Notifications of changed limits: a hint, faster than the sweep, that may be
//! lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::PgListener;
use tokio::sync::Notify;

/// Between two tries to listen.
const PAUSE: Duration = Duration::from_secs(1);

/// Listens in a task of its own from the first time somebody asks, on one
/// connection of the pool, until the pool is closed.
#[derive(Debug, Default)]
pub(super) struct Changes {
    listening: AtomicBool,
    changed: Arc<Notify>,
}

impl Changes {
    /// Waits for the next change.
    pub(super) async fn changed(&self, pool: &PgPool) {
        if !self.listening.swap(true, Ordering::Relaxed) {
            tokio::spawn(listen(pool.clone(), Arc::clone(&self.changed)));
        }
        self.changed.notified().await;
    }
}

async fn listen(pool: PgPool, changed: Arc<Notify>) {
    while !pool.is_closed() {
        if let Err(error) = listen_once(&pool, &changed).await {
            tracing::debug!(%error, "not listening for changes: left to the sweep");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn listen_once(pool: &PgPool, changed: &Notify) -> Result<(), sqlx::Error> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen("paceline_changed").await?;
    loop {
        // What came before we listened, or while the connection was lost, is
        // not known: so say that something may have.
        changed.notify_one();
        listener.try_recv().await?;
    }
}
