//! The receiver's process, as this program sees it.

use std::path::Path;

use anyhow::Context;
use domain::compliance::Stall;
use domain::time::Timestamp;
use tokio::process::Command;

use super::arrivals::{self, Arrival};
use super::receiver::{Args, Count, Listening, Written};
use crate::ordered::Ordered;

/// What it saw.
pub(crate) struct Seen {
    /// All that it kept, in the order of their times.
    pub(crate) arrivals: Vec<Arrival>,
    /// How many it did not keep.
    pub(crate) dropped: u64,
    /// When it stood still.
    pub(crate) stalls: Vec<Stall>,
    /// The most connections that were open to it at once.
    pub(crate) connections: u64,
}

/// A running receiver; it ends when this is dropped.
pub(crate) struct Receiving {
    process: Ordered,
    ports: Vec<u16>,
}

impl Receiving {
    /// Starts it, from this very program.
    pub(crate) async fn start(args: &Args) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("find this program")?;
        let mut command = Command::new(program);
        command
            .arg("receive")
            .args(["--ports", &args.ports.to_string()])
            .args(["--capacity", &args.capacity.to_string()])
            .args(["--failing-percent", &args.failing_percent.to_string()])
            .args(["--slow-destinations", &args.slow_destinations.to_string()])
            .args(["--slow-ms", &args.slow_ms.to_string()]);
        let mut process = Ordered::start("the receiver", command)?;
        let listening: Listening = process.answer().await?;
        Ok(Self {
            process,
            ports: listening.ports,
        })
    }

    /// Its process.
    pub(crate) fn process(&self) -> Option<u32> {
        self.process.process()
    }

    /// Where a destination sends to.
    pub(crate) fn url(&self, destination: u32) -> String {
        let port = self.ports[destination as usize % self.ports.len()];
        format!("http://127.0.0.1:{port}/r/{destination}")
    }

    /// How many have arrived.
    pub(crate) async fn count(&mut self) -> anyhow::Result<Count> {
        self.process.ask("count").await
    }

    /// The same, with what arrivals had to wait since the last tick.
    pub(crate) async fn tick(&mut self) -> anyhow::Result<Count> {
        self.process.ask("tick").await
    }

    /// Makes it begin anew.
    pub(crate) async fn forget(&mut self) -> anyhow::Result<()> {
        self.process.ask::<Count>("forget").await.map(drop)
    }

    /// What it saw since it began, or began anew.
    pub(crate) async fn seen(&mut self) -> anyhow::Result<Seen> {
        let folder = tempfile::tempdir().context("make a folder for the arrivals")?;
        let path = folder.path().join("arrivals");
        let written = self.write(&path).await?;
        let stall = |(from, until): (i64, i64)| Stall {
            from: Timestamp::from_micros(from),
            until: Timestamp::from_micros(until),
        };
        Ok(Seen {
            arrivals: arrivals::read(&path)?,
            dropped: written.arrived - written.kept,
            stalls: written.stalls_us.into_iter().map(stall).collect(),
            connections: written.connections,
        })
    }

    async fn write(&mut self, path: &Path) -> anyhow::Result<Written> {
        let order = format!("write {}", path.display());
        self.process.ask(&order).await
    }
}
