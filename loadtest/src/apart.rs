//! A `loadtest run` as a process of its own, under way.

use std::process::{ExitStatus, Stdio};

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

/// It is asked to end when this is dropped: if it were killed, what it has started would
/// stay.
pub(crate) struct Running(Child);

impl Running {
    /// Starts it. It hears of a Ctrl-C by us alone, for it takes a second one as the wish not
    /// to wait until all is taken away.
    pub(crate) fn start(command: &mut Command) -> anyhow::Result<Self> {
        let started = command.stdout(Stdio::null()).process_group(0).spawn();
        started.map(Self).context("start a run")
    }

    /// Waits until it has ended.
    pub(crate) async fn end(mut self) -> anyhow::Result<ExitStatus> {
        self.0.wait().await.context("wait for a run")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let id = self.0.id().and_then(|id| i32::try_from(id).ok());
        if let Some(pid) = id.and_then(Pid::from_raw) {
            // It may have ended at this moment.
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}
