//! Keeps one slot filled: a process that ends is followed by another one.

use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use server::trial::Child;
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::crash::{CrashPoint, Trap, VARIABLE};
use super::diary::Diary;
use super::fault::Slot;
use super::log::boottime_us;
use super::role::LOGS;

/// How long a process may take to drain before it is killed: its grace period
/// and a little more.
const DRAIN: Duration = Duration::from_secs(12);

/// Before an ended process is followed by another.
const PAUSE: Duration = Duration::from_millis(300);

/// What a slot is told.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Order {
    Kill,
    Freeze(Duration),
    Terminate,
    Crash(CrashPoint, u32),
}

/// Keeps one slot filled.
pub(super) struct Keeper {
    pub(super) slot: Slot,
    pub(super) program: PathBuf,
    pub(super) logs: PathBuf,
    pub(super) environment: Vec<(String, String)>,
    pub(super) diary: Arc<Diary>,
}

/// A trap for the next process: where, and after how many times there.
type Armed = Option<(CrashPoint, u32)>;

/// What comes after a process.
enum Next {
    Stop,
    Another(Armed),
}

impl Keeper {
    /// Until it is told to stop.
    pub(super) async fn run(
        self,
        mut orders: mpsc::Receiver<Order>,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        let mut trap = None;
        loop {
            let mut child = self.spawn(trap)?;
            match self.attend(&mut child, trap, &mut orders, &stop).await? {
                Next::Stop => return Ok(()),
                Next::Another(next) => trap = next,
            }
        }
    }

    fn spawn(&self, trap: Armed) -> anyhow::Result<Child> {
        let said = self.logs.join(format!("{}.log", self.slot));
        let said = OpenOptions::new().create(true).append(true).open(said)?;
        let mut command = Command::new(&self.program);
        command
            .args(["role", self.slot.role])
            .envs(self.environment.iter().cloned())
            .env(LOGS, &self.logs)
            .stderr(Stdio::from(said));
        if let Some((point, times)) = trap {
            command.env(VARIABLE, Trap::written(point, times));
        }
        Child::spawn(self.slot.role, command)
    }

    /// One process, until it has ended.
    async fn attend(
        &self,
        child: &mut Child,
        trap: Armed,
        orders: &mut mpsc::Receiver<Order>,
        stop: &CancellationToken,
    ) -> anyhow::Result<Next> {
        loop {
            let order = tokio::select! {
                biased;
                () = stop.cancelled() => {
                    self.drain(child).await?;
                    return Ok(Next::Stop);
                }
                ended = child.end() => {
                    let trap = self.note_end(ended?, trap)?;
                    tokio::select! {
                        biased;
                        () = stop.cancelled() => return Ok(Next::Stop),
                        () = sleep(PAUSE) => return Ok(Next::Another(trap)),
                    }
                }
                Some(order) = orders.recv() => order,
            };
            match order {
                Order::Kill => {
                    child.kill().await?;
                    return Ok(Next::Another(None));
                }
                // A trap is set as the process starts.
                Order::Crash(point, times) => {
                    child.kill().await?;
                    return Ok(Next::Another(Some((point, times))));
                }
                Order::Terminate => {
                    self.drain(child).await?;
                    return Ok(Next::Another(None));
                }
                Order::Freeze(length) => {
                    child.signal(Signal::STOP)?;
                    let stopped_us = boottime_us();
                    tokio::select! {
                        biased;
                        () = stop.cancelled() => {}
                        () = sleep(length) => {}
                    }
                    let by_us = boottime_us() - stopped_us;
                    self.diary.note_stop(self.slot.role, by_us)?;
                    child.signal(Signal::CONT)?;
                }
            }
        }
    }

    async fn drain(&self, child: &mut Child) -> anyhow::Result<()> {
        child.signal(Signal::TERM)?;
        match timeout(DRAIN, child.end()).await {
            Ok(ended) if ended.as_ref().is_ok_and(ExitStatus::success) => Ok(()),
            Ok(ended) => self.note("drained_badly", "", &format!("{}", ended?)),
            Err(_late) => {
                child.kill().await?;
                self.note("drained_badly", "", "not within its grace period")
            }
        }
    }

    /// Returns the trap if it is still to spring.
    fn note_end(&self, ended: ExitStatus, trap: Armed) -> anyhow::Result<Armed> {
        if let Some((point, _)) = trap
            && ended.signal() == Some(Signal::ABORT.as_raw())
        {
            self.note("crashed", &format!("crash-{}", point.as_str()), "")?;
            return Ok(None);
        }
        // Such as one that could reach no server as it started.
        self.note("ended", "", &format!("{ended}"))?;
        Ok(trap)
    }

    fn note(&self, what: &str, kind: &str, detail: &str) -> anyhow::Result<()> {
        self.diary
            .note(what, kind, &format!("{} {detail}", self.slot))
    }
}
