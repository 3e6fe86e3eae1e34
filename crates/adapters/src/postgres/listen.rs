//! Notifications of changed limits and of rows in the outbox: a hint, faster
//! than the next look, that may be lost.

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
#[derive(Debug)]
pub(super) struct Changes {
    channel: &'static str,
    listening: AtomicBool,
    changed: Arc<Notify>,
}

impl Changes {
    /// Of this channel; not listening yet.
    pub(super) fn of(channel: &'static str) -> Self {
        Self {
            channel,
            listening: AtomicBool::default(),
            changed: Arc::default(),
        }
    }

    /// Waits for the next change.
    pub(super) async fn changed(&self, pool: &PgPool) {
        if !self.listening.swap(true, Ordering::Relaxed) {
            let changed = Arc::clone(&self.changed);
            tokio::spawn(listen(pool.clone(), self.channel, changed));
        }
        self.changed.notified().await;
    }
}

async fn listen(pool: PgPool, channel: &'static str, changed: Arc<Notify>) {
    while !pool.is_closed() {
        if let Err(error) = listen_once(&pool, channel, &changed).await {
            tracing::debug!(%error, "not listening: left to the next look");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn listen_once(pool: &PgPool, channel: &str, changed: &Notify) -> Result<(), sqlx::Error> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen(channel).await?;
    loop {
        // What came before we listened, or while the connection was lost, is
        // not known: so say that something may have.
        changed.notify_one();
        listener.try_recv().await?;
    }
}
