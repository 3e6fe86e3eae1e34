//! A process that is spoken to by lines on its input, and answers each with a line of
//! JSON on its output. It ends when its input does, so none outlives this program.

use std::process::Stdio;

use anyhow::Context;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// A running one; it is killed when this is dropped.
pub(crate) struct Ordered {
    name: &'static str,
    child: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Ordered {
    /// Starts it; `name` is what errors call it, such as `the receiver`.
    pub(crate) fn start(name: &'static str, mut command: Command) -> anyhow::Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            // A Ctrl-C is for us: there is a report to be written first.
            .process_group(0)
            .spawn()
            .with_context(|| format!("start {name}"))?;
        let orders = child.stdin.take();
        let output = child.stdout.take();
        Ok(Self {
            name,
            child,
            orders: orders.with_context(|| format!("{name} has no input"))?,
            answers: BufReader::new(output.with_context(|| format!("{name} has no output"))?)
                .lines(),
        })
    }

    /// Its process, while it runs.
    pub(crate) fn process(&self) -> Option<u32> {
        self.child.id()
    }

    /// Gives an order, and waits for the answer.
    pub(crate) async fn ask<T: DeserializeOwned>(&mut self, order: &str) -> anyhow::Result<T> {
        let line = format!("{order}\n");
        let ordered = self.orders.write_all(line.as_bytes()).await;
        ordered.with_context(|| format!("{} takes no orders", self.name))?;
        self.answer().await
    }

    /// What it says next.
    pub(crate) async fn answer<T: DeserializeOwned>(&mut self) -> anyhow::Result<T> {
        let line = self.answers.next_line().await?;
        let line = line.with_context(|| format!("{} has ended", self.name))?;
        serde_json::from_str(&line).with_context(|| format!("read what {} said", self.name))
    }

    /// Kills it, and waits for its end.
    pub(crate) async fn kill(mut self) -> anyhow::Result<()> {
        let killed = self.child.kill().await;
        killed.with_context(|| format!("end {}", self.name))
    }
}
