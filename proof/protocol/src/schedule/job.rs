//! The schedule of one destination: what its scripts do, and what is asked of
//! each of them whatever it does inside.
//!
//! The scripts are those of `crates/adapters/src/redis/*.lua`, line for line,
//! and of `in_process/schedule.rs`. Times are ticks from now; a time that has
//! come is 0.

use super::{LEASE, Mutation};

/// The job, while there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Job {
    /// When it runs next.
    pub due: u8,
    /// No plain wake before that.
    pub floor: Option<u8>,
    /// Taken, and not finished.
    pub lease: Option<Lease>,
}

/// A lease, with what was asked for under it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease {
    /// Whose token it carries.
    pub holder: Holder,
    /// What a wake since the take asked for: that is the generation.
    pub woken: Option<Woken>,
}

/// Who knows the token. Tokens never repeat, so all that can matter of one is
/// who still has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Holder {
    /// This scheduler, in its present run.
    Scheduler(usize),
    /// Nobody any more.
    Gone,
}

/// What a wake under lease asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Woken {
    /// To look again.
    Look,
    /// To forget the floor, too.
    Clear,
}

/// A wake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Wake {
    /// From when on to look.
    pub after: u8,
    /// Forget the floor, and run under lease too.
    pub clear_floor: bool,
}

/// When a finished job runs next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Next {
    /// After so long, and no plain wake brings it below the floor.
    After {
        /// From now.
        delay: u8,
        /// From now.
        floor: Option<u8>,
    },
    /// Never, unless woken.
    Remove,
}

/// What is asked of one call of the schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rule {
    /// Taking pushes forward to the end of the lease, and removes nothing.
    TakePushesForward,
    /// A finish without our token changes nothing.
    StaleFinish,
    /// A finish with our token ends the lease, and sets the next run: no later
    /// than asked for, and at once or at the floor if there was a wake.
    FinishSetsNext,
    /// A plain wake under lease moves nothing.
    WakeUnderLease,
    /// No plain wake moves a job below its floor.
    WakeKeepsFloor,
    /// No wake moves a job later, or leaves none.
    WakeHurries,
    /// A wake that clears leaves no floor, and a job that is due when asked.
    ClearWakeRuns,
}

/// `take.lua`.
pub(super) fn take(job: Job, scheduler: usize, mutation: Option<Mutation>) -> Option<Job> {
    let lease = Lease {
        holder: Holder::Scheduler(scheduler),
        woken: None,
    };
    match mutation {
        Some(Mutation::TakeRemoves) => None,
        _ => Some(Job {
            due: LEASE,
            lease: Some(lease),
            ..job
        }),
    }
}

/// `finish.lua`.
pub(super) fn finish(
    job: Option<Job>,
    scheduler: usize,
    next: Next,
    mutation: Option<Mutation>,
) -> Option<Job> {
    let job = job?;
    if !job.is_held_by(scheduler) && mutation != Some(Mutation::FinishWithoutToken) {
        return Some(job);
    }
    let woken = (job.lease.and_then(|lease| lease.woken))
        .filter(|_| mutation != Some(Mutation::FinishIgnoresWakes));
    let (asked, mut floor) = match next {
        Next::After { delay, floor } => (Some(delay), floor),
        Next::Remove => (None, None),
    };
    if woken == Some(Woken::Clear) && mutation != Some(Mutation::FinishKeepsFloor) {
        floor = None;
    }
    let soonest = woken.map(|_| floor.unwrap_or(0));
    let due = asked.into_iter().chain(soonest).min()?;
    Some(Job {
        due,
        floor,
        lease: None,
    })
}

/// `wake.lua`.
pub(super) fn wake(job: Option<Job>, wake: Wake, mutation: Option<Mutation>) -> Job {
    let Some(mut job) = job else {
        return Job {
            due: wake.after,
            floor: None,
            lease: None,
        };
    };
    if let Some(lease) = &mut job.lease {
        let asks = match wake.clear_floor {
            true => Woken::Clear,
            false => Woken::Look,
        };
        lease.woken = lease.woken.max(Some(asks));
    }
    if wake.clear_floor && mutation != Some(Mutation::ClearKeepsFloor) {
        job.floor = None;
    }
    let ignores_lease = mutation == Some(Mutation::WakeIgnoresLease);
    if wake.clear_floor || job.lease.is_none() || ignores_lease {
        let floor = (job.floor)
            .filter(|_| mutation != Some(Mutation::WakeIgnoresFloor))
            .unwrap_or(0);
        let asked = wake.after.max(floor);
        job.due = match mutation {
            Some(Mutation::WakeMovesLater) => asked,
            _ => job.due.min(asked),
        };
    }
    job
}

/// Which rule this take broke, if any.
pub(super) fn judge_take(before: Job, after: Option<Job>) -> Option<Rule> {
    let pushed = after.is_some_and(|after| {
        after.due == LEASE && after.floor == before.floor && after.lease.is_some()
    });
    (!pushed).then_some(Rule::TakePushesForward)
}

/// Which rule this finish broke, if any.
pub(super) fn judge_finish(
    before: Option<Job>,
    after: Option<Job>,
    scheduler: usize,
    next: Next,
) -> Option<Rule> {
    let ours = before.filter(|job| job.is_held_by(scheduler));
    let Some(lease) = ours.and_then(|job| job.lease) else {
        return (before != after).then_some(Rule::StaleFinish);
    };
    let kept = match (after, next, lease.woken) {
        (None, Next::Remove, None) => true,
        (Some(job), Next::After { delay, floor }, None) => job.due == delay && job.floor == floor,
        (Some(job), Next::After { delay, floor }, Some(Woken::Look)) => {
            job.floor == floor && job.due == delay.min(floor.unwrap_or(0))
        }
        (Some(job), _, Some(_)) => job.floor.is_none() && job.due == 0,
        _ => false,
    };
    let ended = after.is_none_or(|job| job.lease.is_none());
    (!(kept && ended)).then_some(Rule::FinishSetsNext)
}

/// Which rule this wake broke, if any.
pub(super) fn judge_wake(before: Option<Job>, after: Job, wake: Wake) -> Option<Rule> {
    let Some(before) = before else {
        return (after.due != wake.after).then_some(Rule::WakeHurries);
    };
    if after.due > before.due {
        return Some(Rule::WakeHurries);
    }
    if wake.clear_floor {
        let runs = after.floor.is_none() && after.due <= wake.after;
        return (!runs).then_some(Rule::ClearWakeRuns);
    }
    if before.lease.is_some() && after.due != before.due {
        return Some(Rule::WakeUnderLease);
    }
    let below = after.due < before.due && Some(after.due) < before.floor;
    if below || after.floor != before.floor {
        return Some(Rule::WakeKeepsFloor);
    }
    let woken = before.lease.is_some() || after.due <= wake.after.max(before.floor.unwrap_or(0));
    (!woken).then_some(Rule::WakeHurries)
}

impl Job {
    pub(super) fn is_held_by(&self, scheduler: usize) -> bool {
        (self.lease).is_some_and(|lease| lease.holder == Holder::Scheduler(scheduler))
    }

    /// A scheduler ends its run: if the lease is still its own, it now ends by
    /// itself.
    pub(super) fn forget(&mut self, scheduler: usize) {
        if self.is_held_by(scheduler)
            && let Some(lease) = &mut self.lease
        {
            lease.holder = Holder::Gone;
        }
    }

    pub(super) fn tick(&mut self) {
        self.due = self.due.saturating_sub(1);
        self.floor = self.floor.map(|floor| floor - 1).filter(|floor| *floor > 0);
    }
}
