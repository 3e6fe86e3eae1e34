//! The receiver's process, as this program sees it.

use std::path::Path;
use std::process::Stdio;

use anyhow::Context;
use domain::compliance::Stall;
use domain::time::Timestamp;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::arrivals::{self, Arrival};
use super::receiver::{Args, Count, Listening, Written};

/// What it saw.
pub(crate) struct Seen {
    /// All that it kept, in the order of their times.
    pub(crate) arrivals: Vec<Arrival>,
    /// How many it did not keep.
    pub(crate) dropped: u64,
    /// When it stood still.
    pub(crate) stalls: Vec<Stall>,
}

/// A running receiver; it ends when this is dropped.
pub(crate) struct Receiving {
    child: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    ports: Vec<u16>,
}

impl Receiving {
    /// Starts it, from this very program.
    pub(crate) async fn start(args: &Args) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("find this program")?;
        let mut child = Command::new(program)
            .arg("receive")
            .args(["--ports", &args.ports.to_string()])
            .args(["--capacity", &args.capacity.to_string()])
            .args(["--failing-percent", &args.failing_percent.to_string()])
            .args(["--slow-destinations", &args.slow_destinations.to_string()])
            .args(["--slow-ms", &args.slow_ms.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            // A Ctrl-C is for us: there is a report to be written first.
            .process_group(0)
            .spawn()
            .context("start the receiver")?;
        let orders = child.stdin.take().context("the receiver has no input")?;
        let output = child.stdout.take().context("the receiver has no output")?;
        let mut receiving = Self {
            child,
            orders,
            answers: BufReader::new(output).lines(),
            ports: Vec::new(),
        };
        let listening: Listening = receiving.answer().await?;
        receiving.ports = listening.ports;
        Ok(receiving)
    }

    /// Its process.
    pub(crate) fn process(&self) -> Option<u32> {
        self.child.id()
    }

    /// Where a destination sends to.
    pub(crate) fn url(&self, destination: u32) -> String {
        let port = self.ports[destination as usize % self.ports.len()];
        format!("http://127.0.0.1:{port}/r/{destination}")
    }

    /// How many have arrived.
    pub(crate) async fn count(&mut self) -> anyhow::Result<Count> {
        self.ask("count").await
    }

    /// The same, with what arrivals had to wait since the last tick.
    pub(crate) async fn tick(&mut self) -> anyhow::Result<Count> {
        self.ask("tick").await
    }

    /// Makes it begin anew.
    pub(crate) async fn forget(&mut self) -> anyhow::Result<()> {
        self.ask::<Count>("forget").await.map(drop)
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
        })
    }

    async fn write(&mut self, path: &Path) -> anyhow::Result<Written> {
        self.ask(&format!("write {}", path.display())).await
    }

    async fn ask<T: DeserializeOwned>(&mut self, order: &str) -> anyhow::Result<T> {
        let line = format!("{order}\n");
        let ordered = self.orders.write_all(line.as_bytes()).await;
        ordered.context("the receiver takes no orders")?;
        self.answer().await
    }

    async fn answer<T: DeserializeOwned>(&mut self) -> anyhow::Result<T> {
        let line = self.answers.next_line().await?;
        let line = line.context("the receiver has ended")?;
        serde_json::from_str(&line).context("read the receiver's answer")
    }
}
