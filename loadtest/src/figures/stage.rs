//! A trial for one figure, set up and taken away again.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use server::trial::{Distributed, Plan, Roles, Servers};
use tokio::time::Instant;

/// What every figure is measured with.
pub(super) struct Context {
    pub(super) servers: Servers,
    /// The `paceline` program.
    pub(super) program: PathBuf,
}

impl Context {
    /// Runs `measure` on a trial of its own, which is struck whatever comes of
    /// it.
    pub(super) async fn staged<T>(
        &self,
        (schedulers, workers): (usize, usize),
        plans: Vec<Plan>,
        measure: impl AsyncFnOnce(&mut Distributed) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let roles = Roles {
            schedulers,
            workers,
        };
        let servers = self.servers.clone();
        let mut stage = Distributed::set_up(self.program.clone(), servers, roles, plans).await?;
        let measured = measure(&mut stage).await;
        stage.strike().await?;
        measured
    }
}

/// A free address of the loopback. Somebody may take it before it is used: then
/// the figure fails to be measured.
pub(crate) fn free_address() -> anyhow::Result<String> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").context("find a free port")?;
    Ok(listener.local_addr()?.to_string())
}

/// Asks again and again, each few milliseconds, until `done`; returns when.
pub(super) async fn until(
    what: &str,
    patience: Duration,
    mut done: impl AsyncFnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<Instant> {
    let began = Instant::now();
    while !done().await? {
        anyhow::ensure!(began.elapsed() < patience, "gave up waiting: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(Instant::now())
}
