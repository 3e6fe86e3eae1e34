//! The Redis that both sides use: how safe its writes are, and whether it is at rest.

use std::time::Duration;

use anyhow::{Context, ensure};
use clap::ValueEnum;
use redis::aio::MultiplexedConnection;
use redis::{Client, FromRedisValue};
use serde::Serialize;
use tokio::time::{Instant, sleep};

use crate::run::places::server_at;
use crate::run::processes::Watched;

/// How long a log may take to be written anew.
const PATIENCE: Duration = Duration::from_secs(120);

const TICK: Duration = Duration::from_millis(50);

/// When Redis has its log (`appendonly yes`) on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Fsync {
    /// Before it answers.
    Always,
    /// Once a second, as BullMQ's documentation advises.
    Everysec,
    /// When the system likes to.
    No,
}

/// A Redis of ours.
#[derive(Debug, Clone)]
pub(super) struct Redis {
    pub(super) url: String,
}

impl Redis {
    /// Has it write a log.
    pub(super) async fn keep(&self, fsync: Fsync) -> anyhow::Result<()> {
        let fsync = fsync.to_possible_value().context("fsync has no name")?;
        for (name, value) in [("appendfsync", fsync.get_name()), ("appendonly", "yes")] {
            let set: String = self.ask(&["CONFIG", "SET", name, value]).await?;
            ensure!(set == "OK", "Redis said {set} to {name}");
        }
        self.wait_for_rewrite().await
    }

    /// What it says of its log.
    pub(super) async fn kept(&self) -> anyhow::Result<String> {
        let mut kept = Vec::new();
        for name in ["appendonly", "appendfsync"] {
            let (name, value): (String, String) = self
                .ask::<Vec<(String, String)>>(&["CONFIG", "GET", name])
                .await?
                .pop()
                .with_context(|| format!("Redis has no {name}"))?;
            kept.push(format!("{name} {value}"));
        }
        Ok(kept.join(", "))
    }

    /// Its version.
    pub(super) async fn version(&self) -> anyhow::Result<String> {
        let info: String = self.ask(&["INFO", "server"]).await?;
        let version = value(&info, "redis_version").context("Redis has no version")?;
        Ok(version.to_owned())
    }

    /// Waits while it writes its log anew.
    pub(super) async fn wait_for_rewrite(&self) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let info: String = self.ask(&["INFO", "persistence"]).await?;
            let of = |name| value(&info, name).unwrap_or("0");
            if of("aof_rewrite_in_progress") == "0" && of("aof_rewrite_scheduled") == "0" {
                return Ok(());
            }
            ensure!(
                began.elapsed() < PATIENCE,
                "Redis does not come to rest: it has been writing its log anew for {PATIENCE:?}"
            );
            sleep(TICK).await;
        }
    }

    /// Its process.
    pub(super) fn watched(&self) -> Option<Watched> {
        server_at("redis", &self.url)
    }

    async fn ask<T: FromRedisValue>(&self, command: &[&str]) -> anyhow::Result<T> {
        let client = Client::open(self.url.as_str())?;
        let connected = client.get_multiplexed_async_connection().await;
        let mut connection: MultiplexedConnection = connected.context("connect to Redis")?;
        let (name, arguments) = command.split_first().context("no command")?;
        let mut command = redis::cmd(name);
        command.arg(arguments);
        Ok(command.query_async(&mut connection).await?)
    }
}

/// The value of a line such as `name:value`.
fn value<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = info.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(key, _)| *key == name).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_by_its_whole_name() {
        let info = "# Server\r\nredis_version_x:1\r\nredis_version:7.0.15\r\n";
        assert_eq!(value(info, "redis_version"), Some("7.0.15"));
        assert_eq!(value(info, "redis"), None);
    }
}
