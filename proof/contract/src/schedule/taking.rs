//! What taking promises, and the lives of the schedule.

use std::collections::HashSet;
use std::time::Duration;

use super::{HOUR, TICK, World, after, destination};
use engine::ports::{Finish, NextRun, ScheduleLife, Wake};

/// Taking pushes a job forward to now + lease.
pub async fn take_pushes_forward(world: &World<impl AsyncFn(Duration)>) {
    world.wake_now().await;
    let taken = world.schedule.take(10, 2 * HOUR).await.unwrap();
    assert_eq!(taken.jobs[0].destination, world.destination);
    world.assert_due_in(2 * HOUR).await;
}

/// Of more due jobs than asked for, the longest due are taken, in that order,
/// and `next_due` says that there are more.
pub async fn take_gives_the_longest_due_first(world: &World<impl AsyncFn(Duration)>) {
    let order = [destination(3), destination(1), destination(2)];
    for destination in order {
        world.wake(Wake::now(destination)).await;
        (world.advance)(TICK).await;
    }
    let taken = world.schedule.take(2, HOUR).await.unwrap();
    let destinations: Vec<_> = taken.jobs.iter().map(|job| job.destination).collect();
    assert_eq!(destinations, order[..2]);
    assert!(taken.jobs[0].overdue > taken.jobs[1].overdue, "{taken:?}");
    assert_eq!(taken.next_due, Some(Duration::ZERO));

    let taken = world.schedule.take(2, HOUR).await.unwrap();
    let destinations: Vec<_> = taken.jobs.iter().map(|job| job.destination).collect();
    assert_eq!(destinations, order[2..]);
    assert!(taken.next_due > Some(Duration::ZERO), "{taken:?}");
}

/// Batches larger than any one step of an implementation do what single calls
/// would, and no take gives more than `max`.
pub async fn a_batch_reaches_every_job(world: &World<impl AsyncFn(Duration)>) {
    const JOBS: u128 = 1_700;
    let wakes: Vec<_> = (0..JOBS)
        .map(|number| Wake::now(destination(number)))
        .collect();
    world.schedule.wake(&wakes).await.unwrap();

    let mut seen = HashSet::new();
    let mut finishes = Vec::new();
    for max in [7, 1_100, 10_000] {
        let taken = world.schedule.take(max, HOUR).await.unwrap();
        assert_eq!(taken.jobs.len(), max.min(JOBS as usize - seen.len()));
        for job in taken.jobs {
            assert!(seen.insert(job.destination), "taken twice: {job:?}");
            let next = NextRun::Remove;
            finishes.push(Finish {
                destination: job.destination,
                token: job.token,
                next,
            });
        }
    }
    world.schedule.finish(&finishes).await.unwrap();
    world.assert_absent().await;
}

/// Nobody else is given a job that is under lease.
pub async fn a_lease_is_exclusive(world: &World<impl AsyncFn(Duration)>) {
    world.wake_now().await;
    world.take().await;
    (world.advance)(TICK).await;
    world.assert_nothing_due().await;
}

/// A lease that ended without a finish shows to whoever takes the job next,
/// under another token.
pub async fn a_lost_lease_shows_as_lapsed(world: &World<impl AsyncFn(Duration)>) {
    world.wake_now().await;
    let lost = world.take_for(TICK).await;
    assert!(!lost.lapsed);
    let next = world.wait_and_take().await;
    assert!(next.lapsed);
    assert_ne!(lost.token, next.token);
}

/// A lease that was finished does not show.
pub async fn a_finished_lease_is_not_lapsed(world: &World<impl AsyncFn(Duration)>) {
    world.wake_now().await;
    let lost = world.take_for(TICK).await;
    let next = world.wait_and_take().await;
    world.finish(&next, after(Duration::ZERO)).await;
    let last = world.take().await;
    assert!(!last.lapsed, "{lost:?} was lost, but {next:?} was finished");
}

/// `next_due` is the time to the next job, whether it waits or is under
/// lease, and nothing where there is no job.
pub async fn next_due_tells_how_long(world: &World<impl AsyncFn(Duration)>) {
    world.assert_absent().await;
    world.wake(Wake::after(destination(1), 3 * HOUR)).await;
    world.assert_due_in(3 * HOUR).await;
    world.wake(Wake::after(destination(2), 2 * HOUR)).await;
    world.assert_due_in(2 * HOUR).await;
    world.wake(Wake::now(destination(3))).await;
    let taken = world.schedule.take(0, HOUR).await.unwrap();
    assert_eq!(
        (taken.jobs.len(), taken.next_due),
        (0, Some(Duration::ZERO))
    );
    world.take_for(HOUR).await;
    world.assert_due_in(HOUR).await;
}

/// `overdue` is how long a job had been due.
pub async fn overdue_tells_how_late(world: &World<impl AsyncFn(Duration)>) {
    world.wake_now().await;
    (world.advance)(2 * TICK).await;
    let job = world.take().await;
    // A server's time of day and our clock may drift apart a little.
    assert!(job.overdue >= TICK, "{job:?}");
}

/// A batch of nothing does nothing.
pub async fn empty_batches_are_harmless(world: &World<impl AsyncFn(Duration)>) {
    world.schedule.wake(&[]).await.unwrap();
    world.schedule.finish(&[]).await.unwrap();
    world.schedule.take(0, HOUR).await.unwrap();
    world.assert_absent().await;
}

/// A fresh schedule is in a new life, the same for all who ask, until just
/// this life was rebuilt.
pub async fn a_life_is_new_until_it_is_rebuilt(world: &World<impl AsyncFn(Duration)>) {
    let ScheduleLife::New(life) = world.schedule.life().await.unwrap() else {
        panic!("nobody has rebuilt a fresh schedule");
    };
    let new = ScheduleLife::New(life.clone());
    assert_eq!(world.schedule.life().await.unwrap(), new);
    world.schedule.rebuilt("another life").await.unwrap();
    assert_eq!(world.schedule.life().await.unwrap(), new);
    assert_ne!(
        world.other.life().await.unwrap(),
        new,
        "another schedule lives another life"
    );

    world.schedule.rebuilt(&life).await.unwrap();
    assert_eq!(world.schedule.life().await.unwrap(), ScheduleLife::Same);
    world.schedule.rebuilt(&life).await.unwrap();
    assert_eq!(world.schedule.life().await.unwrap(), ScheduleLife::Same);
    assert!(matches!(
        world.other.life().await.unwrap(),
        ScheduleLife::New(_)
    ));
}
