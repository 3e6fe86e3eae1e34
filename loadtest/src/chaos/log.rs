//! The logs of a run: JSON lines, only ever appended to, one file per writer.
//!
//! They are all that the judge sees, so a run can be judged again, later and
//! elsewhere. A line is written before what it says counts: a post before its
//! answer is believed, a send before its first byte. The times are
//! microseconds of `CLOCK_BOOTTIME`, which all processes of a machine share
//! and nobody sets.

mod store;

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::Context;
use domain::limit_group::GroupLimits;
use engine::ports::DEFAULT_TENANT;
use rustix::time::{ClockId, clock_gettime};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

pub(crate) use store::{
    Change, Happened, Hold, KnownSecret, News, Note, Row, SecretNote, SmartLimit, Tallied,
};

/// Microseconds since the machine started.
pub(crate) fn boottime_us() -> i64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1_000
}

/// The first 16 bytes of a body's SHA-256, in hexadecimal digits.
pub(crate) fn fingerprint(body: &[u8]) -> String {
    let digest = Sha256::digest(body);
    digest[..16]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// What was tried, once per run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) seed: u64,
    pub(crate) destinations: Vec<Tried>,
    /// Their limit groups.
    #[serde(default)]
    pub(crate) groups: Vec<Grouped>,
    /// Faults in the plan.
    #[serde(default)]
    pub(crate) planned: usize,
    /// When the storm began and when all was healed.
    pub(crate) storm_us: (i64, i64),
}

/// A limit group, and who is in it from the beginning to the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Grouped {
    pub(crate) name: String,
    pub(crate) limits: GroupLimits,
    pub(crate) members: Vec<Uuid>,
}

/// One destination.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Tried {
    pub(crate) id: Uuid,
    pub(crate) name: String,
    /// Its requests go through a proxy that delays them: when they arrive says
    /// nothing about when they were sent.
    pub(crate) proxied: bool,
    /// What it is told of, if it is an operational destination.
    #[serde(default)]
    pub(crate) told: Option<Telling>,
    /// Whose it is.
    #[serde(default = "default_tenant")]
    pub(crate) tenant: Uuid,
    /// Its receiver does not come back: it ends disabled, with its backlog.
    #[serde(default)]
    pub(crate) doomed: bool,
}

/// Of earlier runs, which had no other.
const fn default_tenant() -> Uuid {
    DEFAULT_TENANT.0
}

/// What an operational destination is told of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Telling {
    /// Of everybody's destinations, not only its tenant's.
    pub(crate) installation: bool,
    /// Of these types; none is all.
    pub(crate) event_types: Vec<String>,
}

/// The client: one event that it posted, or what it was answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Post {
    /// The client's own number for it, which its payload carries.
    pub(crate) number: u64,
    pub(crate) destination: u32,
    pub(crate) body: String,
    pub(crate) said: Said,
    /// With the key of a tenant that the destination is not of.
    #[serde(default)]
    pub(crate) intruding: bool,
}

/// What the client knows of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Said {
    /// On its way: without a later line, whether it was accepted is unknown.
    Posted,
    /// The API answered 202 with this id.
    Accepted(Uuid),
    /// The API answered that it did not take it.
    Refused,
    /// Inserted into the outbox with this id, by a transaction that was rolled
    /// back.
    RolledBack(Uuid),
}

/// A worker: an event that it is about to send. Those of a batch are one
/// request, that of the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Send {
    /// Of a batch, its leader.
    pub(crate) attempt: i64,
    pub(crate) event: Uuid,
    pub(crate) try_number: u32,
    pub(crate) at_us: i64,
    /// Another event's line is that of the request.
    #[serde(default)]
    pub(crate) carried: bool,
}

/// A receiver: an event that arrived whole, in a request of its own or in a
/// batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Receipt {
    pub(crate) destination: u32,
    pub(crate) event: Option<Uuid>,
    pub(crate) try_number: Option<u32>,
    /// `webhook-timestamp`, seconds of the store's clock.
    pub(crate) timestamp: Option<i64>,
    /// `webhook-signature`, as it stands.
    pub(crate) signature: Option<String>,
    /// Whether every signature of it verified, by the official library and a
    /// secret that the destination had or was about to have.
    pub(crate) verified: bool,
    /// Those secrets, as the receivers call them: see [`KnownSecret`].
    #[serde(default)]
    pub(crate) signed_by: Vec<Uuid>,
    pub(crate) body: String,
    pub(crate) at_us: i64,
    /// Another event's line is that of the request.
    #[serde(default)]
    pub(crate) carried: bool,
    /// The request is answered with what nobody can mean.
    #[serde(default)]
    pub(crate) nonsense: bool,
}

/// The store's clock, asked between two instants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClockSample {
    pub(crate) before_us: i64,
    pub(crate) after_us: i64,
    pub(crate) store_us: i64,
}

/// What was done, and when: faults, ends and stops of processes, and the
/// client's and the receivers' own delays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Happening {
    pub(crate) at_us: i64,
    /// Such as `fault`, `healed`, `ended`, `stopped`, `clock_step`, `lag`.
    pub(crate) what: String,
    /// The kind of a fault; who was stopped.
    #[serde(default)]
    pub(crate) kind: String,
    pub(crate) detail: String,
    /// Of a clock step, a stop or a delay, in microseconds.
    #[serde(default)]
    pub(crate) by_us: i64,
}

/// Where a run's logs lie.
#[derive(Debug, Clone)]
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) const CLIENT: &str = "client.jsonl";
    pub(crate) const RECEIPTS: &str = "receipts.jsonl";
    pub(crate) const LEDGER: &str = "ledger.jsonl";
    pub(crate) const CHANGES: &str = "changes.jsonl";
    pub(crate) const NEWS: &str = "news.jsonl";
    pub(crate) const NOTES: &str = "notes.jsonl";
    pub(crate) const HAPPENED: &str = "happened.jsonl";
    pub(crate) const HOLDS: &str = "holds.jsonl";
    pub(crate) const SMART: &str = "smart.jsonl";
    pub(crate) const SECRETS: &str = "secrets.jsonl";
    pub(crate) const KNOWN: &str = "known.jsonl";
    pub(crate) const TALLIED: &str = "tallied.jsonl";
    pub(crate) const CLOCK: &str = "clock.jsonl";
    pub(crate) const HAPPENINGS: &str = "happenings.jsonl";
    pub(crate) const RUN: &str = "run.json";
    /// A worker's own begins with this.
    pub(crate) const SENDS: &str = "sends-";

    pub(crate) fn appender(&self, name: &str) -> anyhow::Result<Appender> {
        Appender::open(&self.0.join(name))
    }

    /// Every line of one file; none of a file that is not there.
    pub(crate) fn read<T: DeserializeOwned>(&self, name: &str) -> anyhow::Result<Vec<T>> {
        read_lines(&self.0.join(name))
    }

    /// Every line of every worker.
    pub(crate) fn sends(&self) -> anyhow::Result<Vec<Send>> {
        let mut names: Vec<String> = Vec::new();
        for entry in std::fs::read_dir(&self.0).context("list the logs")? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.retain(|name| name.starts_with(Self::SENDS));
        names.sort_unstable();
        let mut all = Vec::new();
        for name in names {
            all.extend(self.read::<Send>(&name)?);
        }
        Ok(all)
    }
}

/// The end of a log.
pub(crate) struct Appender(Mutex<File>);

impl Appender {
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let file = (OpenOptions::new().create(true).append(true).open(path))
            .with_context(|| format!("open {}", path.display()))?;
        Ok(Self(Mutex::new(file)))
    }

    /// One line, in one write: what has returned survives any kill of the
    /// process.
    pub(crate) fn append(&self, line: &impl Serialize) -> anyhow::Result<()> {
        self.append_all(std::slice::from_ref(line))
    }

    /// Several lines in one write.
    pub(crate) fn append_all(&self, lines: &[impl Serialize]) -> anyhow::Result<()> {
        let mut bytes = Vec::new();
        for line in lines {
            serde_json::to_writer(&mut bytes, line).context("write a line of a log")?;
            bytes.push(b'\n');
        }
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(&bytes).context("append to a log")
    }
}

fn read_lines<T: DeserializeOwned>(path: &Path) -> anyhow::Result<Vec<T>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("read {}", path.display())),
    };
    let mut lines = Vec::new();
    for (number, line) in (1_u64..).zip(BufReader::new(file).lines()) {
        let line = line.with_context(|| format!("read {}", path.display()))?;
        let parsed = serde_json::from_str(&line)
            .with_context(|| format!("line {number} of {}", path.display()))?;
        lines.push(parsed);
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_appended_is_read_in_order() {
        let folder = Folder(tempfile::tempdir().unwrap().keep());
        let post = |number, said| Post {
            number,
            destination: 3,
            body: fingerprint(b"hello"),
            said,
            intruding: false,
        };
        let lines = [
            post(1, Said::Posted),
            post(1, Said::Accepted(Uuid::nil())),
            post(2, Said::Refused),
        ];
        let appender = folder.appender(Folder::CLIENT).unwrap();
        appender.append(&lines[0]).unwrap();
        appender.append_all(&lines[1..]).unwrap();
        assert_eq!(folder.read::<Post>(Folder::CLIENT).unwrap(), lines);
        assert!(folder.read::<Receipt>(Folder::RECEIPTS).unwrap().is_empty());
        std::fs::remove_dir_all(folder.0).unwrap();
    }
}
