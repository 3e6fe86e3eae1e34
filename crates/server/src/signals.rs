//! SIGINT and SIGTERM: the first asks to drain, the second ends at once. What only looks
//! ends with the first.

use std::process::ExitCode;

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// What a process that was told twice exits with: 128 + SIGINT.
const EXIT_INTERRUPTED: u8 = 130;

/// Runs `work` with a token that the first signal cancels. A second signal
/// drops `work` where it stands: whatever it had begun is found and put right
/// by the others, as after a crash.
pub async fn until_stopped<F>(work: impl FnOnce(CancellationToken) -> F) -> anyhow::Result<ExitCode>
where
    F: Future<Output = anyhow::Result<ExitCode>>,
{
    let mut signals = Signals::install()?;
    let shutdown = CancellationToken::new();
    let work = work(shutdown.clone());
    tokio::pin!(work);
    tokio::select! {
        biased;
        ended = &mut work => return ended,
        name = signals.next() => tracing::info!(signal = name, "draining; a second signal ends at once"),
    }
    shutdown.cancel();
    tokio::select! {
        biased;
        ended = &mut work => ended,
        name = signals.next() => {
            tracing::warn!(signal = name, "ended before all was drained");
            Ok(ExitCode::from(EXIT_INTERRUPTED))
        }
    }
}

/// Runs `look` until the first SIGINT, which drops it where it stands: for what only looks,
/// and so leaves nothing behind. One that comes between two waits of a loop, or while a server
/// is asked, counts as well.
pub async fn until_interrupted(
    look: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    tokio::select! {
        biased;
        heard = tokio::signal::ctrl_c() => heard.context("listen for SIGINT"),
        ended = look => ended,
    }
}

/// Runs `work` until the first signal, which drops it where it stands: for what starts
/// processes that end when they are dropped, and else outlive it.
pub async fn until_told(
    work: impl Future<Output = anyhow::Result<ExitCode>>,
) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::install()?;
    tokio::select! {
        biased;
        name = signals.next() => {
            tracing::warn!(signal = name, "ended before all was measured");
            Ok(ExitCode::from(EXIT_INTERRUPTED))
        }
        ended = work => ended,
    }
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn install() -> anyhow::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).context("listen for SIGINT")?,
            terminate: signal(SignalKind::terminate()).context("listen for SIGTERM")?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
