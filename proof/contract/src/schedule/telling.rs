//! What [`Schedule::woken`] promises: whoever sleeps until the first job that
//! it knows of is told of one that is due sooner.
//!
//! It may return for nothing, and does where listening begins late. So each
//! promise waits until it is quiet, and is asked several times: no stray return
//! can stand for all of the real ones.

use std::time::Duration;

use super::{HOUR, PATIENCE, TICK, World, after, destination};
use engine::ports::Wake;

/// More than the returns for nothing that a schedule may have in store.
const ROUNDS: u128 = 4;

/// An idle scheduler looks at once.
pub async fn a_wake_is_told_while_nothing_is_due(world: &World<impl AsyncFn(Duration)>) {
    for round in 0..ROUNDS {
        quiet(world).await;
        world.assert_absent().await;
        world.wake(Wake::now(destination(round))).await;
        told(world).await;
        let job = world.take().await;
        world.finish(&job, super::NextRun::Remove).await;
    }
}

/// Also one that is due later, but sooner than what takers sleep for.
pub async fn a_wake_before_the_first_job_is_told(world: &World<impl AsyncFn(Duration)>) {
    world.finished(HOUR * 20, None).await;
    for round in 0..ROUNDS {
        quiet(world).await;
        let sooner = HOUR * (10 - u32::try_from(round).unwrap());
        world.wake(Wake::after(destination(round), sooner)).await;
        told(world).await;
        world.assert_due_in(sooner).await;
    }
}

/// The next run that was asked for is not the one that is due.
pub async fn a_finish_that_a_wake_brought_forward_is_told(world: &World<impl AsyncFn(Duration)>) {
    world.wake_now().await;
    for _ in 0..ROUNDS {
        let job = world.take().await;
        world.wake_now().await;
        quiet(world).await;
        world.finish(&job, after(HOUR)).await;
        told(world).await;
    }
}

/// Whoever holds the lease is not waited for.
pub async fn a_job_brought_forward_under_lease_is_told(world: &World<impl AsyncFn(Duration)>) {
    world.wake_now().await;
    for _ in 0..ROUNDS {
        world.take().await;
        quiet(world).await;
        world.wake(Wake::unblocked(world.destination)).await;
        told(world).await;
    }
}

/// Waits until nothing is told for a while.
async fn quiet(world: &World<impl AsyncFn(Duration)>) {
    for _ in 0..PATIENCE {
        tokio::select! {
            biased;
            () = world.schedule.woken() => {}
            () = (world.advance)(TICK) => return,
        }
    }
    panic!("told without end, though nothing happens");
}

/// Waits until something is told.
async fn told(world: &World<impl AsyncFn(Duration)>) {
    for _ in 0..PATIENCE {
        tokio::select! {
            biased;
            () = world.schedule.woken() => return,
            () = (world.advance)(TICK) => {}
        }
    }
    panic!("never told");
}
