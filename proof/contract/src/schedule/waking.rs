//! What waking promises: earlier, never later; below the floor only when asked.

use std::time::Duration;

use super::{HOUR, World, after};
use engine::ports::{NextRun, Wake};

/// Under lease a wake is noted and nothing moves.
pub async fn a_wake_leaves_a_lease_alone(world: &World<impl AsyncFn(Duration)>) {
    world.wake_now().await;
    world.take().await;
    world.wake_now().await;
    world.assert_due_in(HOUR).await;
}

/// What was woken before a take is looked at by that take: the lease may end
/// with a removal.
pub async fn a_wake_before_the_take_is_answered_by_it(world: &World<impl AsyncFn(Duration)>) {
    world.wake_now().await;
    world.wake_now().await;
    let job = world.take().await;
    world.finish(&job, NextRun::Remove).await;
    world.assert_absent().await;

    // Also where the wake came under a lease that was lost.
    world.wake_now().await;
    world.take_for(super::TICK).await;
    world.wake_now().await;
    let job = world.wait_and_take().await;
    assert!(job.lapsed);
    world.finish(&job, NextRun::Remove).await;
    world.assert_absent().await;
}

/// Arrivals at a blocked destination cost no runs.
pub async fn a_wake_goes_no_lower_than_the_floor(world: &World<impl AsyncFn(Duration)>) {
    world.finished(6 * HOUR, Some(2 * HOUR)).await;
    world.wake(Wake::after(world.destination, 4 * HOUR)).await;
    world.assert_due_in(4 * HOUR).await;
    world.wake_now().await;
    world.assert_due_in(2 * HOUR).await;
}

/// What blocked it may be gone.
pub async fn clear_floor_goes_lower(world: &World<impl AsyncFn(Duration)>) {
    world.finished(6 * HOUR, Some(4 * HOUR)).await;
    let unblocked = Wake {
        after: 2 * HOUR,
        ..Wake::unblocked(world.destination)
    };
    world.wake(unblocked).await;
    world.assert_due_in(2 * HOUR).await;
    // The floor is forgotten, not only passed by once.
    world.wake_now().await;
    world.take().await;
}

/// A wake that clears the floor does not wait for the holder of the lease,
/// who is then overtaken.
pub async fn clear_floor_runs_under_lease(world: &World<impl AsyncFn(Duration)>) {
    world.wake_now().await;
    let overtaken = world.take().await;
    world.wake(Wake::unblocked(world.destination)).await;
    let holder = world.take().await;
    assert!(
        holder.lapsed,
        "whoever was overtaken may not have published"
    );
    world.finish(&overtaken, NextRun::Remove).await;
    world.finish(&holder, after(3 * HOUR)).await;
    world.assert_due_in(3 * HOUR).await;
}

/// The holder found the block before it was gone: its floor is not set, and
/// its job runs at once, once.
pub async fn clear_floor_under_lease_outlives_the_finish(world: &World<impl AsyncFn(Duration)>) {
    let blocked = NextRun::After {
        delay: 4 * HOUR,
        floor: Some(2 * HOUR),
    };
    world.wake_now().await;
    let job = world.take().await;
    world.wake(Wake::unblocked(world.destination)).await;
    // A later plain wake does not undo the clearing.
    world.wake_now().await;
    world.finish(&job, blocked).await;

    let job = world.take().await;
    assert!(!job.lapsed);
    world.finish(&job, blocked).await;
    world.wake_now().await;
    world.assert_due_in(2 * HOUR).await;
}

/// A wake moves a job earlier or not at all.
pub async fn a_wake_takes_the_earlier_time(world: &World<impl AsyncFn(Duration)>) {
    for (delay, due) in [(4, 4), (2, 2), (6, 2)] {
        world
            .wake(Wake::after(world.destination, delay * HOUR))
            .await;
        world.assert_due_in(due * HOUR).await;
    }
    let unblocked = Wake {
        after: 6 * HOUR,
        ..Wake::unblocked(world.destination)
    };
    world.wake(unblocked).await;
    world.assert_due_in(2 * HOUR).await;
}

/// Whoever is not scheduled is added, for the time that was asked for.
pub async fn a_wake_adds_an_absent_job(world: &World<impl AsyncFn(Duration)>) {
    world.assert_absent().await;
    world.wake(Wake::after(world.destination, 2 * HOUR)).await;
    world.assert_due_in(2 * HOUR).await;
    world.wake_now().await;
    let job = world.take().await;
    assert!(!job.lapsed);
    assert_eq!(job.destination, world.destination);
}
