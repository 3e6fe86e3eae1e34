//! What every [`Schedule`] must do: one function for each promise of the port.
//!
//! Each takes a [`World`] of its own: fresh, empty schedules that share nothing,
//! and a way to let time pass on their own clock: virtual time, or a real
//! sleep. Nothing asks how fast anything is. What must happen is waited for;
//! what must not is put hours ahead, so that a slow machine cannot reach it.

use std::sync::Arc;
use std::time::Duration;

use domain::ids::DestinationId;

use engine::ports::{Finish, NextRun, Schedule, TakenJob, Wake};

mod finishing;
mod taking;
mod telling;
mod waking;

pub use finishing::*;
pub use taking::*;
pub use telling::*;
pub use waking::*;

/// So far ahead that no test gets there.
const HOUR: Duration = Duration::from_secs(3600);

/// Less than any two times that the tests tell apart.
const TICK: Duration = Duration::from_millis(20);

/// How many ticks something that must happen may need: far more than any does.
const PATIENCE: usize = 500;

/// Runs `$check!(promise)` for the name of each promise that holds for any
/// schedule. For test modules that want one test for each.
#[macro_export]
macro_rules! for_each_schedule_promise {
    ($check:ident) => {
        $check!(take_pushes_forward);
        $check!(take_gives_the_longest_due_first);
        $check!(a_batch_reaches_every_job);
        $check!(a_lease_is_exclusive);
        $check!(a_lost_lease_shows_as_lapsed);
        $check!(a_finished_lease_is_not_lapsed);
        $check!(a_stale_token_finishes_nothing);
        $check!(a_token_of_another_life_finishes_nothing);
        $check!(a_second_finish_does_nothing);
        $check!(a_woken_job_is_not_removed);
        $check!(a_woken_job_is_not_postponed);
        $check!(a_woken_job_waits_for_its_floor);
        $check!(a_woken_job_runs_no_later_than_asked);
        $check!(a_wake_leaves_a_lease_alone);
        $check!(a_wake_before_the_take_is_answered_by_it);
        $check!(a_wake_goes_no_lower_than_the_floor);
        $check!(clear_floor_goes_lower);
        $check!(clear_floor_runs_under_lease);
        $check!(clear_floor_under_lease_outlives_the_finish);
        $check!(a_finish_replaces_the_floor);
        $check!(a_wake_takes_the_earlier_time);
        $check!(a_wake_adds_an_absent_job);
        $check!(removal_leaves_nothing);
        $check!(no_wake_is_lost_between_look_and_removal);
        $check!(next_due_tells_how_long);
        $check!(overdue_tells_how_late);
        $check!(empty_batches_are_harmless);
        $check!(a_life_is_new_until_it_is_rebuilt);
        $check!(a_wake_is_told_while_nothing_is_due);
        $check!(a_wake_before_the_first_job_is_told);
        $check!(a_finish_that_a_wake_brought_forward_is_told);
        $check!(a_job_brought_forward_under_lease_is_told);
    };
}

/// A fresh schedule, one destination, and the clock.
pub struct World<A> {
    schedule: Arc<dyn Schedule>,
    /// Another one, which shares nothing with the first.
    other: Arc<dyn Schedule>,
    advance: A,
    destination: DestinationId,
}

/// Every promise, one after the other, each in a fresh world.
pub async fn all(make: impl AsyncFn() -> Arc<dyn Schedule>, advance: impl AsyncFn(Duration)) {
    macro_rules! check {
        ($promise:ident) => {
            Box::pin($promise(&World::new(&make, &advance).await)).await;
        };
    }
    crate::for_each_schedule_promise!(check);
}

impl<A: AsyncFn(Duration)> World<A> {
    /// A world of two schedules from `make`, where `advance` lets time pass.
    pub async fn new(make: &impl AsyncFn() -> Arc<dyn Schedule>, advance: A) -> Self {
        Self {
            schedule: make().await,
            other: make().await,
            advance,
            destination: destination(1),
        }
    }

    async fn wake(&self, wake: Wake) {
        self.schedule.wake(&[wake]).await.unwrap();
    }

    async fn wake_now(&self) {
        self.wake(Wake::now(self.destination)).await;
    }

    async fn finish(&self, job: &TakenJob, next: NextRun) {
        let finish = Finish {
            destination: job.destination,
            token: job.token.clone(),
            next,
        };
        self.schedule.finish(&[finish]).await.unwrap();
    }

    /// The one job, which must be due by now, under a lease that lasts.
    async fn take(&self) -> TakenJob {
        self.take_for(HOUR).await
    }

    async fn take_for(&self, lease: Duration) -> TakenJob {
        let mut taken = self.schedule.take(10, lease).await.unwrap();
        assert_eq!(taken.jobs.len(), 1, "one job is due: {taken:?}");
        taken.jobs.remove(0)
    }

    /// The one job, as soon as it is due.
    async fn wait_and_take(&self) -> TakenJob {
        for _ in 0..PATIENCE {
            if let Some(job) = self.schedule.take(10, HOUR).await.unwrap().jobs.pop() {
                return job;
            }
            (self.advance)(TICK).await;
        }
        panic!("the job was never due");
    }

    /// A job that has run and whose next run and floor are these.
    async fn finished(&self, delay: Duration, floor: Option<Duration>) {
        self.wake_now().await;
        let job = self.take().await;
        self.finish(&job, NextRun::After { delay, floor }).await;
    }

    async fn assert_nothing_due(&self) {
        let taken = self.schedule.take(10, HOUR).await.unwrap();
        assert_eq!(taken.jobs, [], "nothing is due");
    }

    /// Nothing is due now, and the next job is due in about `expected`.
    async fn assert_due_in(&self, expected: Duration) {
        let taken = self.schedule.take(10, HOUR).await.unwrap();
        assert_eq!(taken.jobs, [], "nothing is due yet");
        let next_due = taken.next_due.unwrap();
        assert!(
            next_due <= expected && next_due > expected.saturating_sub(HOUR / 4),
            "due in {next_due:?}, expected {expected:?}"
        );
    }

    async fn assert_absent(&self) {
        let taken = self.schedule.take(10, HOUR).await.unwrap();
        assert_eq!(
            (taken.jobs, taken.next_due),
            (Vec::new(), None),
            "no job is left"
        );
    }
}

const fn after(delay: Duration) -> NextRun {
    NextRun::After { delay, floor: None }
}

fn destination(number: u128) -> DestinationId {
    format!("{number:032x}").parse().unwrap()
}
