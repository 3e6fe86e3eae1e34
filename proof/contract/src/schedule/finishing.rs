//! What finishing promises: by token, once, and never past a wake.

use std::time::Duration;

use super::{HOUR, TICK, World, after};
use engine::ports::{NextRun, Wake};

/// Somebody else took the job since: our finish neither removes, postpones
/// nor brings forward, and their finish still works.
pub async fn a_stale_token_finishes_nothing(world: &World<impl AsyncFn(Duration)>) {
    world.wake_now().await;
    let stale = world.take_for(TICK).await;
    let held = world.wait_and_take().await;
    for next in [NextRun::Remove, after(Duration::ZERO), after(5 * HOUR)] {
        world.finish(&stale, next).await;
        world.assert_due_in(HOUR).await;
    }
    world.finish(&held, after(3 * HOUR)).await;
    world.assert_due_in(3 * HOUR).await;
}

/// Tokens are unique across lives: what another life gave out opens nothing.
pub async fn a_token_of_another_life_finishes_nothing(world: &World<impl AsyncFn(Duration)>) {
    for schedule in [&world.other, &world.schedule] {
        schedule
            .wake(&[Wake::now(world.destination)])
            .await
            .unwrap();
    }
    let foreign = world.other.take(1, HOUR).await.unwrap().jobs.remove(0);
    let ours = world.take().await;
    assert_ne!(foreign.token, ours.token);
    world.finish(&foreign, NextRun::Remove).await;
    world.assert_due_in(HOUR).await;
    world.finish(&ours, NextRun::Remove).await;
    world.assert_absent().await;
}

/// Ending a lease forgets its token.
pub async fn a_second_finish_does_nothing(world: &World<impl AsyncFn(Duration)>) {
    world.wake_now().await;
    let job = world.take().await;
    world.finish(&job, after(3 * HOUR)).await;
    for next in [NextRun::Remove, after(Duration::ZERO), after(5 * HOUR)] {
        world.finish(&job, next).await;
        world.assert_due_in(3 * HOUR).await;
    }
}

/// A wake under lease keeps the job, which runs at once.
pub async fn a_woken_job_is_not_removed(world: &World<impl AsyncFn(Duration)>) {
    world.wake_now().await;
    let job = world.take().await;
    world.wake_now().await;
    world.finish(&job, NextRun::Remove).await;
    let again = world.take().await;
    assert!(!again.lapsed);
    world.finish(&again, NextRun::Remove).await;
    world.assert_absent().await;
}

/// A wake under lease for any time makes the job run at once: only a look
/// tells what the wake was about.
pub async fn a_woken_job_is_not_postponed(world: &World<impl AsyncFn(Duration)>) {
    world.wake_now().await;
    let job = world.take().await;
    world.wake(Wake::after(world.destination, HOUR)).await;
    world.finish(&job, after(2 * HOUR)).await;
    world.take().await;
}

/// A wake under lease cannot bring the job below the floor that this run found.
pub async fn a_woken_job_waits_for_its_floor(world: &World<impl AsyncFn(Duration)>) {
    world.wake_now().await;
    let job = world.take().await;
    world.wake_now().await;
    let next = NextRun::After {
        delay: 4 * HOUR,
        floor: Some(2 * HOUR),
    };
    world.finish(&job, next).await;
    world.assert_due_in(2 * HOUR).await;
}

/// A wake under lease never makes a job later than its finish asked for.
pub async fn a_woken_job_runs_no_later_than_asked(world: &World<impl AsyncFn(Duration)>) {
    world.wake_now().await;
    let job = world.take().await;
    world.wake_now().await;
    let next = NextRun::After {
        delay: 2 * HOUR,
        floor: Some(4 * HOUR),
    };
    world.finish(&job, next).await;
    world.assert_due_in(2 * HOUR).await;
}

/// The floor is the one that the last run found, or none.
pub async fn a_finish_replaces_the_floor(world: &World<impl AsyncFn(Duration)>) {
    world.finished(Duration::ZERO, Some(HOUR)).await;
    let job = world.take().await;
    world.finish(&job, after(2 * HOUR)).await;
    world.wake_now().await;
    world.take().await;
}

/// Removal forgets the job, its token and its floor: what is added later is a
/// new job.
pub async fn removal_leaves_nothing(world: &World<impl AsyncFn(Duration)>) {
    world.finished(Duration::ZERO, Some(HOUR)).await;
    let job = world.take().await;
    world.finish(&job, NextRun::Remove).await;
    world.assert_absent().await;
    world.finish(&job, after(Duration::ZERO)).await;
    world.assert_absent().await;

    world.wake(Wake::after(world.destination, 3 * HOUR)).await;
    world.wake_now().await;
    let job = world.take().await;
    assert!(!job.lapsed);
}

/// The interleaving that "add if absent, delete when idle" loses: new work
/// arrives after the look that found none and before the removal. Also when
/// the removal comes from a holder that was overtaken meanwhile.
pub async fn no_wake_is_lost_between_look_and_removal(world: &World<impl AsyncFn(Duration)>) {
    world.wake_now().await;
    let overtaken = world.take_for(TICK).await;
    let holder = world.wait_and_take().await;
    // Both have looked and found nothing; now work arrives.
    world.wake_now().await;
    world.finish(&overtaken, NextRun::Remove).await;
    world.finish(&holder, NextRun::Remove).await;
    let look = world.take().await;
    // And again, later under the same lease than any number of wakes.
    world.wake_now().await;
    world.wake_now().await;
    world.finish(&look, NextRun::Remove).await;
    world.take().await;
}
