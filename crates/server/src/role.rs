//! A process of a role: made ready, started, and drained when it is told to stop.
//!
//! Which loops of the engine a role has, [`engine::roles`] says. Beside them a process
//! answers HTTP and does what only this program does:
//!
//! | | serve | api | scheduler | worker | operator |
//! |---|---|---|---|---|---|
//! | API and dashboard | ✓ | ✓ | | | |
//! | resources of Kubernetes | | | | | ✓ |
//! | `/livez`, `/readyz`, `/metrics` | ✓ | ✓ | ✓ | ✓ | ✓ |
//! | `/work` | | | ✓ | | |
//!
//! Of several operators one acts; nothing else needs a leader. A router has no parts and is
//! none of these processes: it is started by [`crate::commands::router`].

mod config;
mod listeners;
mod loops;
mod ready;
mod running;

pub use config::RoleConfig;
pub use listeners::Listeners;
pub(crate) use loops::Loops;
pub use ready::Ready;
pub use running::Running;

use std::process::ExitCode;

use engine::roles::Role;

use crate::parts::Parts;
use crate::signals;

/// Runs a role until it is told to stop.
pub async fn run(role: Role, config: RoleConfig) -> anyhow::Result<ExitCode> {
    run_with(role, config, |parts| parts).await
}

/// Runs a role whose parts are wrapped first.
pub async fn run_with(
    role: Role,
    config: RoleConfig,
    wrap: impl FnOnce(Parts) -> Parts,
) -> anyhow::Result<ExitCode> {
    let listen = config.listen.clone();
    let ready = Ready::prepare(role, config, wrap).await?;
    let listeners = Listeners::bind(&listen).await?;
    signals::until_stopped(|shutdown| async move {
        let running = ready.start(listeners, shutdown)?;
        running.welcome().await?;
        running.ended().await
    })
    .await
}
