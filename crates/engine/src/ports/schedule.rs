//! When to look at a destination: the rate-limiter jobs by due time.

use std::time::Duration;

use async_trait::async_trait;
use domain::ids::DestinationId;

/// One job per destination that has work, ordered by when it runs next.
///
/// The schedule is a hint, never a truth: a lost job is woken by the sweep, an
/// extra one finds nothing to admit. All times cross this port as durations
/// from now, and are turned into scores by the schedule's own clock.
///
/// States of a job: absent; due at a time; under lease (taken, and due again
/// when the lease ends). Beside its due time a job has a *generation*, bumped
/// by every wake; a *token*, new with every take; and a *floor*: the
/// blocked-until that the last run found.
#[async_trait]
pub trait Schedule: Send + Sync {
    /// Takes up to `max` due jobs, the longest due first. Taking pushes each
    /// forward to now + `lease`, so the next run is scheduled before this one
    /// has done anything.
    ///
    /// A retry takes other jobs. A crash after it delays the taken jobs by
    /// `lease`; whoever takes them then sees [`TakenJob::lapsed`].
    async fn take(&self, max: usize, lease: Duration) -> Result<Taken, ScheduleError>;

    /// Ends leases: sets each job's next run and floor, or removes the job.
    ///
    /// Does nothing for a job whose token is not the one given (somebody else
    /// took it since). With our token it always sets the next run. If the
    /// generation has changed since the take (somebody woke the destination
    /// while we looked), the next run is `max(now, floor)`, at once if there
    /// is no floor, but no later than asked for; and the job is never
    /// removed. If a wake under this lease asked to clear the floor, the
    /// floor given here is not set and the job runs at once.
    ///
    /// Idempotent: a second call with the same token does nothing, because
    /// ending a lease forgets its token.
    async fn finish(&self, finishes: &[Finish]) -> Result<(), ScheduleError>;

    /// Makes sure that each destination is looked at.
    ///
    /// Bumps the generation. A job under lease is otherwise left alone. A job
    /// that is not gets the earlier of its score and
    /// `max(now + after, floor)`; an absent job is added at `now + after`.
    /// With [`Wake::clear_floor`] the floor is forgotten and the job runs at
    /// `now + after` even under lease. Repeating a wake is harmless.
    async fn wake(&self, wakes: &[Wake]) -> Result<(), ScheduleError>;

    /// Which life of the schedule this is. It changes when the schedule may
    /// have lost jobs: it restarted, failed over or was wiped. The sweep
    /// rebuilds the jobs from the store and then calls
    /// [`Schedule::rebuilt`].
    async fn life(&self) -> Result<ScheduleLife, ScheduleError>;

    /// Notes that the jobs of this life have been rebuilt from the store. If
    /// the schedule was lost again meanwhile, the next [`Schedule::life`]
    /// says so all the same.
    async fn rebuilt(&self, life: &str) -> Result<(), ScheduleError>;

    /// Returns when something may have become due sooner than the last
    /// [`Schedule::take`] said, so that a scheduler need not wait out its
    /// pause: a wake put a job before all others, or a finish did because of a
    /// wake under its lease. What a finish itself asked for is known to its
    /// caller and is not told.
    ///
    /// What happened since the last return is told by the next. A hint: it may
    /// return for nothing, and may miss something while the way to the schedule
    /// is broken, so a scheduler also polls. By default it never returns.
    async fn woken(&self) {
        std::future::pending::<()>().await;
    }
}

/// What one [`Schedule::take`] found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taken {
    /// The jobs, now under lease.
    pub jobs: Vec<TakenJob>,
    /// How long until the next job is due, if any is left and none is due
    /// now; zero when more jobs were due than `max`.
    pub next_due: Option<Duration>,
}

/// A job under our lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenJob {
    /// Whose job it is.
    pub destination: DestinationId,
    /// The fencing token to finish it with; opaque, and unique across the
    /// lives of the schedule.
    pub token: String,
    /// The previous lease ended without a finish: whoever held it may have
    /// admitted attempts and not published them.
    pub lapsed: bool,
    /// How long the job had been due when it was taken.
    pub overdue: Duration,
}

/// How one lease ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finish {
    /// Whose job it is.
    pub destination: DestinationId,
    /// The token that [`Schedule::take`] gave.
    pub token: String,
    /// When it runs next.
    pub next: NextRun,
}

/// When a finished job runs next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextRun {
    /// After this long.
    After {
        /// From now.
        delay: Duration,
        /// Until when, from now, a plain wake cannot bring it forward: no
        /// slot opens before that, or others come by then and are one run with
        /// it. `None` where a wake may help.
        floor: Option<Duration>,
    },
    /// Never, unless woken: the destination has nothing waiting and nothing
    /// admitted, or is paused.
    Remove,
}

/// A reason to look at a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wake {
    /// Whom to look at.
    pub destination: DestinationId,
    /// From when on: zero for now, else the time to a retry.
    pub after: Duration,
    /// What blocked the destination may be gone (a raised limit, a resume, a
    /// freed place): forget the floor and run even under lease.
    pub clear_floor: bool,
}

impl Wake {
    /// New work: look now, unless the destination is known to be blocked.
    #[must_use]
    pub const fn now(destination: DestinationId) -> Self {
        Self {
            destination,
            after: Duration::ZERO,
            clear_floor: false,
        }
    }

    /// Work that is due in a while, such as a retry.
    #[must_use]
    pub const fn after(destination: DestinationId, after: Duration) -> Self {
        Self {
            destination,
            after,
            clear_floor: false,
        }
    }

    /// What blocked the destination may be gone: look now, whatever the floor.
    #[must_use]
    pub const fn unblocked(destination: DestinationId) -> Self {
        Self {
            destination,
            after: Duration::ZERO,
            clear_floor: true,
        }
    }
}

/// The answer of [`Schedule::life`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScheduleLife {
    /// The jobs are those that we, or another instance, built in this life.
    Same,
    /// Another life, named so: jobs may be missing until they are rebuilt.
    New(String),
}

/// The schedule could not be asked. Every call may be repeated.
#[derive(Debug, thiserror::Error)]
#[error("schedule unavailable: {0}")]
pub struct ScheduleError(pub String);
