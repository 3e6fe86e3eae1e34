//! Crash points: a process ends, without a word, exactly between two steps.
//!
//! The steps of the scheduler and of the worker are calls of their ports, so a
//! crash point is a wrapper of a port that aborts the process before, after or
//! in the middle of a call. The wrappers are compiled into the load test,
//! which starts roles from itself, and into nothing that ships: `paceline` has
//! no crash point, not even one that is switched off.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Context;

/// Where a process may end. S0 to S3 and W0 to W4 are the steps of
/// `docs/failures.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum CrashPoint {
    /// API: before events are written.
    BeforeAccept,
    /// API: events are durable, nobody is woken and nobody was answered.
    AfterAccept,
    /// Scheduler, between S0 and S1: jobs are taken.
    AfterTake,
    /// Scheduler, between S1 and S2: permits are admitted and not published.
    AfterAdmit,
    /// Scheduler, in S2: half of the permits are published.
    MidPublish,
    /// Scheduler, between S2 and S3: all are published, the jobs not finished.
    AfterPublish,
    /// Scheduler: the watch has told of something, and nothing is relayed.
    AfterWatch,
    /// Scheduler: news are events, and nobody is woken.
    AfterRelay,
    /// Worker, in W0: permits are in hand.
    AfterReceive,
    /// Worker, between W1 and W2: starts are recorded, nothing is acknowledged
    /// or sent.
    AfterClaim,
    /// Worker, between W1 and W2: the messages are acknowledged too.
    AfterSettle,
    /// Worker, between W2 and W4: a receiver has answered.
    AfterSend,
    /// Worker, between W3 and W4: outcomes are about to be recorded.
    BeforeRecord,
    /// Worker, after W4: outcomes are recorded, nobody was woken.
    AfterRecord,
}

impl CrashPoint {
    pub(crate) const ALL: [Self; 14] = [
        Self::BeforeAccept,
        Self::AfterAccept,
        Self::AfterTake,
        Self::AfterAdmit,
        Self::MidPublish,
        Self::AfterPublish,
        Self::AfterWatch,
        Self::AfterRelay,
        Self::AfterReceive,
        Self::AfterClaim,
        Self::AfterSettle,
        Self::AfterSend,
        Self::BeforeRecord,
        Self::AfterRecord,
    ];

    /// Those of one role.
    pub(crate) fn of(role: &str) -> impl Iterator<Item = Self> {
        Self::ALL
            .into_iter()
            .filter(move |point| point.role() == role)
    }

    const fn role(self) -> &'static str {
        match self {
            Self::BeforeAccept | Self::AfterAccept => "api",
            Self::AfterTake
            | Self::AfterAdmit
            | Self::MidPublish
            | Self::AfterPublish
            | Self::AfterWatch
            | Self::AfterRelay => "scheduler",
            Self::AfterReceive
            | Self::AfterClaim
            | Self::AfterSettle
            | Self::AfterSend
            | Self::BeforeRecord
            | Self::AfterRecord => "worker",
        }
    }

    /// The word, as in the environment and in documents.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::BeforeAccept => "before-accept",
            Self::AfterAccept => "after-accept",
            Self::AfterTake => "after-take",
            Self::AfterAdmit => "after-admit",
            Self::MidPublish => "mid-publish",
            Self::AfterPublish => "after-publish",
            Self::AfterWatch => "after-watch",
            Self::AfterRelay => "after-relay",
            Self::AfterReceive => "after-receive",
            Self::AfterClaim => "after-claim",
            Self::AfterSettle => "after-settle",
            Self::AfterSend => "after-send",
            Self::BeforeRecord => "before-record",
            Self::AfterRecord => "after-record",
        }
    }
}

/// The variable that arms a process: `POINT:TIMES`.
pub(crate) const VARIABLE: &str = "CHAOS_CRASH_POINT";

/// One point, and how often a process may still be at it.
#[derive(Debug, Clone)]
pub(crate) struct Trap {
    point: CrashPoint,
    left: Arc<AtomicU32>,
}

impl Trap {
    /// As it is written in the environment.
    pub(crate) fn written(point: CrashPoint, times: u32) -> String {
        format!("{}:{times}", point.as_str())
    }

    /// The process is at this point: the trap's own ends it, the last of so
    /// many times.
    pub(crate) fn at(&self, point: CrashPoint) {
        if self.springs(point) {
            // No destructor runs and nothing is flushed, as with SIGKILL.
            std::process::abort();
        }
    }

    /// Whether the process ends at this point, this time.
    pub(crate) fn springs(&self, point: CrashPoint) -> bool {
        self.point == point && self.left.fetch_sub(1, Ordering::Relaxed) == 1
    }
}

impl FromStr for Trap {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (name, times) = text.split_once(':').context("expected POINT:TIMES")?;
        let point = (CrashPoint::ALL.into_iter())
            .find(|point| point.as_str() == name)
            .with_context(|| format!("no crash point is called {name}"))?;
        let times = times.parse().context("expected a number of times")?;
        Ok(Self {
            point,
            left: Arc::new(AtomicU32::new(times)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trap_springs_once_at_its_point() {
        let trap: Trap = Trap::written(CrashPoint::AfterClaim, 2).parse().unwrap();
        assert!(!trap.springs(CrashPoint::AfterAdmit));
        let sprung = [(); 4].map(|()| trap.springs(CrashPoint::AfterClaim));
        assert_eq!(sprung, [false, true, false, false]);
    }

    #[test]
    fn every_point_has_its_word_and_a_role() {
        for point in CrashPoint::ALL {
            let trap: Trap = Trap::written(point, 1).parse().unwrap();
            assert_eq!(trap.point, point);
            assert!(CrashPoint::of(point.role()).any(|one| one == point));
        }
        assert!("nowhere:1".parse::<Trap>().is_err());
    }
}
