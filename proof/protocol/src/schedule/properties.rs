//! What must always hold, and what must be reachable.

use stateright::Property;

use super::job::{Holder, Next, Rule, Woken};
use super::state::{Life, Loss, Mark, Scheduler, State, Sweep};
use super::{GRACE, LEASE, PLACES, WakeProtocol};

/// No lost wake-up.
pub(super) const NEVER_FORGOTTEN: &str =
    "when no wake is owed and nothing was lost, work has a job";
/// And the job is due in time.
pub(super) const IN_TIME: &str = "and its job is due no later than what blocks the work allows";
/// What the sweep goes by.
pub(super) const SWEEP_IN_TIME: &str =
    "work that may start is soon overdue for the sweep, or about to be woken";
/// What a rebuild says.
pub(super) const REBUILT: &str = "jobs count as rebuilt only when all were woken in this life";
/// Tokens fence.
pub(super) const STALE_FINISH: &str = "a finish without our token changes nothing";
/// Leases hold.
pub(super) const WAKE_UNDER_LEASE: &str = "a plain wake moves no job under lease";
/// Floors hold.
pub(super) const WAKE_KEEPS_FLOOR: &str = "a plain wake moves no job below its floor";

type P = Property<WakeProtocol>;

pub(super) fn all() -> Vec<P> {
    let mut all = always();
    all.extend(sometimes_of_leases());
    all.extend(sometimes_of_work());
    all.extend(sometimes_of_sweeps());
    all
}

fn always() -> Vec<P> {
    vec![
        P::always(NEVER_FORGOTTEN, |_, state: &State| {
            !state.is_quiet() || !state.store.has_work() || state.job.is_some()
        }),
        P::always(IN_TIME, in_time),
        P::always(SWEEP_IN_TIME, sweep_in_time),
        P::always(REBUILT, |_, state| !(state.built && state.unbuilt)),
        P::always("a take pushes the job forward", |_, state| {
            state.broken != Some(Rule::TakePushesForward)
        }),
        P::always(STALE_FINISH, |_, state| {
            state.broken != Some(Rule::StaleFinish)
        }),
        P::always("a finish with our token sets the next run", |_, state| {
            state.broken != Some(Rule::FinishSetsNext)
        }),
        P::always(WAKE_UNDER_LEASE, |_, state| {
            state.broken != Some(Rule::WakeUnderLease)
        }),
        P::always(WAKE_KEEPS_FLOOR, |_, state| {
            state.broken != Some(Rule::WakeKeepsFloor)
        }),
        P::always("no wake moves a job later", |_, state| {
            state.broken != Some(Rule::WakeHurries)
        }),
        P::always(
            "a wake that clears the floor runs the job when asked",
            |_, state| state.broken != Some(Rule::ClearWakeRuns),
        ),
    ]
}

fn in_time(_: &WakeProtocol, state: &State) -> bool {
    let needed = state.store.needed_in().filter(|_| state.is_quiet());
    let (Some(job), Some(needed)) = (state.job, needed) else {
        return true;
    };
    let in_time = if job.lease.is_some() { LEASE } else { needed };
    job.due <= in_time
}

/// Whatever was lost: the job is about to run, or a change or a rebuild is
/// about to wake it, or the sweep's clock runs.
fn sweep_in_time(_: &WakeProtocol, state: &State) -> bool {
    let runs = (state.job).is_some_and(|job| job.due <= LEASE);
    let to_be_woken = state.store.mark != Mark::None || !state.built;
    let clock_runs = (state.store.look_helps).is_some_and(|at| i16::from(at) <= i16::from(GRACE));
    !state.store.could_start() || runs || to_be_woken || clock_runs
}

fn sometimes_of_leases() -> Vec<P> {
    vec![
        P::sometimes(
            "a lease has lapsed, and the job is due again",
            |_, state: &State| {
                state
                    .job
                    .is_some_and(|job| job.due == 0 && job.lease.is_some())
            },
        ),
        P::sometimes(
            "a stale finish while another holds the lease",
            |_, state| {
                any_finishing(state, |state, index, _| {
                    let other = Holder::Scheduler(1 - index.min(1));
                    (state.job.and_then(|job| job.lease)).is_some_and(|lease| lease.holder == other)
                })
            },
        ),
        P::sometimes("a finish that comes again", |_, state| {
            any_finishing(state, |state, index, _| {
                state
                    .job
                    .is_some_and(|job| !job.is_held_by(index) && job.lease.is_none())
            })
        }),
        P::sometimes("a wake averts a removal", |_, state| {
            any_finishing(state, |state, index, next| {
                let woken = |job: super::Job| job.lease.is_some_and(|lease| lease.woken.is_some());
                let ours = state.job.filter(|job| job.is_held_by(index));
                next == Next::Remove && ours.is_some_and(woken)
            })
        }),
        P::sometimes(
            "the floor of a finish was cleared under its lease",
            |_, state| {
                any_finishing(state, |state, index, next| {
                    let lease = state.job.filter(|job| job.is_held_by(index));
                    let lease = lease.and_then(|job| job.lease);
                    lease.is_some_and(|lease| lease.woken == Some(Woken::Clear))
                        && matches!(next, Next::After { floor: Some(_), .. })
                })
            },
        ),
        P::sometimes("two schedulers run at once", |_, state| {
            (state.schedulers.iter())
                .filter(|one| **one != Scheduler::Idle)
                .count()
                > 1
        }),
    ]
}

fn sometimes_of_work() -> Vec<P> {
    vec![
        P::sometimes("a floor holds a wake back", |_, state: &State| {
            state.owed.plain
                && (state.job).is_some_and(|job| job.lease.is_none() && job.floor.is_some())
        }),
        P::sometimes("work waits for a place", |_, state| {
            state.store.waiting > 0 && state.store.used() == PLACES
        }),
        P::sometimes("a retry waits for its time", |_, state| {
            state.is_quiet() && state.store.retry.is_some() && state.job.is_some()
        }),
        P::sometimes("all work is done, and no job is left", |_, state| {
            state.left.arrivals == 0
                && state.job.is_none()
                && state.store.used() == 0
                && state.is_quiet()
                && state.store.waiting == 0
                && state.store.retry.is_none()
        }),
        P::sometimes("work waits under a pause, without a job", |_, state| {
            state.store.paused && state.store.waiting > 0 && state.job.is_none()
        }),
    ]
}

fn sometimes_of_sweeps() -> Vec<P> {
    vec![
        P::sometimes(
            "the sweep finds work that nobody looked at",
            |_, state: &State| {
                matches!(
                    state.sweep,
                    Sweep::Page {
                        life: Life::Built,
                        wake: Some(_),
                        ..
                    }
                )
            },
        ),
        P::sometimes("the sweep rebuilds a lost job", |_, state| {
            state.job.is_none()
                && matches!(
                    state.sweep,
                    Sweep::Page {
                        life: Life::New,
                        wake: Some(_),
                        ..
                    }
                )
        }),
        P::sometimes(
            "an old copy's floor is in the way of the sweep",
            |_, state| {
                state.job.is_some_and(|job| job.floor.is_some())
                    && matches!(state.sweep, Sweep::Page { wake: Some(0), .. })
            },
        ),
        P::sometimes("the schedule is lost while it is rebuilt", |_, state| {
            matches!(
                state.sweep,
                Sweep::Woken {
                    life: Life::Over { new: true },
                    ..
                }
            )
        }),
        P::sometimes(
            "a mark is made again while the sweep wakes for it",
            |_, state| {
                matches!(state.sweep, Sweep::Woken { mark: true, .. })
                    && state.store.mark == Mark::New
            },
        ),
        P::sometimes("a loss is repaired", |model, state| {
            let none_left = state.left.losses < model.bounds.left.losses;
            none_left && state.loss == Loss::None && state.built && state.store.has_work()
        }),
    ]
}

/// Whether this is so of a scheduler that is about to finish.
fn any_finishing(state: &State, holds: impl Fn(&State, usize, Next) -> bool) -> bool {
    (state.schedulers.iter().enumerate()).any(|(index, scheduler)| match scheduler {
        Scheduler::Finishing(next) => holds(state, index, *next),
        Scheduler::Idle | Scheduler::Took => false,
    })
}
