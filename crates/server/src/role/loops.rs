//! The loops of a process while they run, until all of them have ended.

use std::process::ExitCode;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The running loops, by name.
pub(crate) struct Loops(JoinSet<&'static str>);

impl Loops {
    pub(crate) fn new() -> Self {
        Self(JoinSet::new())
    }

    pub(crate) fn spawn(
        &mut self,
        name: &'static str,
        run: impl Future<Output = ()> + Send + 'static,
    ) {
        self.0.spawn(async move {
            run.await;
            name
        });
    }

    /// Waits until all have ended. A loop that ends by itself, or panics, takes
    /// the process down in order: half a role would look alive and do nothing.
    pub(crate) async fn join(
        mut self,
        shutdown: &CancellationToken,
        grace: Duration,
    ) -> anyhow::Result<ExitCode> {
        let mut broken = false;
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            ended = self.0.join_next() => {
                broken = true;
                match ended {
                    Some(Ok(name)) => tracing::error!(name, "a loop ended by itself; draining"),
                    Some(Err(error)) => tracing::error!(%error, "a loop broke; draining"),
                    None => {}
                }
                shutdown.cancel();
            }
        }
        let drain = async {
            while let Some(ended) = self.0.join_next().await {
                if let Err(error) = ended {
                    broken = true;
                    tracing::error!(%error, "a loop broke while draining");
                }
            }
        };
        let drained = tokio::time::timeout(grace, drain).await.is_ok();
        if !drained {
            tracing::warn!("not drained within PACELINE_SHUTDOWN_GRACE; the rest is reaped later");
        }
        if broken || !drained {
            return Ok(ExitCode::FAILURE);
        }
        tracing::info!("drained");
        Ok(ExitCode::SUCCESS)
    }
}
