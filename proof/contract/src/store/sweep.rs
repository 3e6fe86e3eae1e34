//! [`Store::sweep`](engine::ports::Store::sweep) and
//! [`Store::clear_marks`](engine::ports::Store::clear_marks).

use std::time::Duration;

use domain::attempt::OutcomeKind;
use domain::ids::DestinationId;

use super::World;
use engine::ports::{
    DEFAULT_TENANT, HEARTBEAT_TIMEOUT, Mark, NextTry, ReapRules, Sweep, SweepPage, Wake,
};

const OVERDUE: Duration = Duration::from_millis(300);

const SWEEP: Sweep = Sweep {
    after: None,
    limit: 100,
    overdue: OVERDUE,
    everything: false,
    only_marks: false,
};

const EVERYTHING: Sweep = Sweep {
    everything: true,
    ..SWEEP
};

async fn sweep(world: &World, sweep: &Sweep) -> SweepPage {
    world.store.sweep(sweep).await.unwrap()
}

fn woken(page: &SweepPage) -> Vec<DestinationId> {
    let mut woken: Vec<_> = page.wakes.iter().map(|wake| wake.destination).collect();
    woken.sort();
    woken.dedup();
    woken
}

/// Clears what creating the destinations may have marked.
async fn clear(world: &World) {
    let page = sweep(world, &SWEEP).await;
    world.store.clear_marks(&page.marks).await.unwrap();
}

/// Work that came in and whose wake was lost; and work whose planned look
/// never came.
pub async fn due_work_that_nobody_looked_at_is_found(world: &World) {
    let never = world.destination().per_second(1).create().await;
    let planned = world.destination().per_second(1).create().await;
    world.accept(never, 1).await;
    world.accept(planned, 3).await;
    world.admit(planned).await;
    clear(world).await;
    world.pass(Duration::from_secs(2) + OVERDUE).await;
    assert_eq!(woken(&sweep(world, &SWEEP).await), [never, planned]);
}

/// Work that came in, and whose wake was lost, while the next look was far off:
/// it was planned for a retry, and says nothing about what comes before it.
pub async fn new_work_does_not_wait_for_the_look_at_a_retry(world: &World) {
    let destination = world.destination().per_second(5).create().await;
    world.accept(destination, 1).await;
    let worker = world.worker().await;
    let permits = world.admit(destination).await;
    world.start(worker, &permits).await;
    let delay = NextTry::RetryAfter(Duration::from_secs(100));
    world
        .record(worker, &permits[0], OutcomeKind::Failed, delay)
        .await;
    assert_eq!(world.admit(destination).await, []);
    clear(world).await;
    assert_eq!(woken(&sweep(world, &SWEEP).await), []);
    world.accept(destination, 1).await;
    world.pass(Duration::from_secs(1) + OVERDUE).await;
    assert_eq!(woken(&sweep(world, &SWEEP).await), [destination]);
}

/// A permit that ended unused makes room long before the limit's next slot; the
/// wake of whoever moved it back may be lost.
pub async fn a_slot_that_nobody_used_does_not_wait_for_the_next(world: &World) {
    let destination = world.destination().per_minute(1).create().await;
    world.accept(destination, 2).await;
    let permits = world.admit(destination).await;
    clear(world).await;
    world.pass_until(permits[0].deadline).await;
    let rules = ReapRules {
        heartbeat_timeout: HEARTBEAT_TIMEOUT,
        start_timeout: Duration::from_secs(60),
        permit_grace: Duration::ZERO,
        everything: true,
    };
    world.pass(OVERDUE + Duration::from_millis(1)).await;
    world.store.reap(&rules, 100).await.unwrap();
    assert_eq!(woken(&sweep(world, &SWEEP).await), [destination]);
}

/// Its next look is still to come.
pub async fn what_is_looked_at_in_time_is_left_out(world: &World) {
    let destination = world.destination().per_minute(1).create().await;
    world.accept(destination, 3).await;
    world.admit(destination).await;
    clear(world).await;
    assert_eq!(woken(&sweep(world, &SWEEP).await), []);
    assert_eq!(woken(&sweep(world, &EVERYTHING).await), [destination]);
}

/// Who has changed is named, and whoever has work is not visited.
pub async fn a_sweep_of_marks_visits_nobody(world: &World) {
    let changed = world.destination().per_second(1).create().await;
    let working = world.destination().per_second(1).create().await;
    world.accept(working, 1).await;
    clear(world).await;
    world
        .sql(&format!(
            "update destinations set limit_per_second = 2 where id = '{changed}'"
        ))
        .await;
    let only_marks = Sweep {
        only_marks: true,
        ..SWEEP
    };
    let page = sweep(world, &only_marks).await;
    assert_eq!(woken(&page), [changed]);
    assert_eq!((page.marks.len(), page.next), (1, None));
    world.store.clear_marks(&page.marks).await.unwrap();
    assert_eq!(woken(&sweep(world, &only_marks).await), []);
    assert_eq!(woken(&sweep(world, &SWEEP).await), [working]);
}

/// Nothing to do, or nothing that may be done.
pub async fn idle_and_paused_destinations_are_left_out(world: &World) {
    world.destination().per_second(1).create().await;
    let paused = world.destination().per_second(1).create().await;
    let deleted = world.destination().per_second(1).create().await;
    world.accept(paused, 1).await;
    world.accept(deleted, 1).await;
    world
        .sql(&format!(
            "update destinations set state = 'paused' where id = '{paused}'"
        ))
        .await;
    let tenant = engine::ports::DEFAULT_TENANT;
    world
        .catalog
        .delete_destination(tenant, deleted)
        .await
        .unwrap();
    clear(world).await;
    assert_eq!(sweep(world, &SWEEP).await, SweepPage::default());
    assert_eq!(sweep(world, &EVERYTHING).await, SweepPage::default());
}

/// Also one whose mark has been cleared, its wake lost after that: what the run
/// in the pause planned is not waited for.
pub async fn a_resumed_destination_is_found(world: &World) {
    let destination = world.destination().per_second(1).create().await;
    world.accept(destination, 1).await;
    for state in ["paused", "active"] {
        let set = format!("update destinations set state = '{state}' where id = '{destination}'");
        world.sql(&set).await;
        if state == "paused" {
            assert_eq!(world.admit(destination).await, []);
        }
        clear(world).await;
    }
    world.pass(SWEEP.overdue + Duration::from_millis(10)).await;
    assert_eq!(woken(&sweep(world, &SWEEP).await), [destination]);
}

/// To rebuild a lost schedule: waiting, admitted, and due later (for then).
pub async fn everything_finds_retries_of_the_future(world: &World) {
    let admitted = world.destination().unlimited().create().await;
    world.accept(admitted, 1).await;
    assert_eq!(world.admit(admitted).await.len(), 1);
    let retry = world.destination().unlimited().create().await;
    world.accept(retry, 1).await;
    let worker = world.worker().await;
    let permits = world.admit(retry).await;
    world.start(worker, &permits).await;
    let delay = NextTry::RetryAfter(Duration::from_secs(100));
    world
        .record(worker, &permits[0], OutcomeKind::Failed, delay)
        .await;
    clear(world).await;

    assert_eq!(woken(&sweep(world, &SWEEP).await), []);
    let page = sweep(world, &EVERYTHING).await;
    assert_eq!(woken(&page), [admitted, retry]);
    let of_retry = page.wakes.iter().find(|wake| wake.destination == retry);
    let after = of_retry.unwrap().after;
    assert!(after > Duration::from_secs(80), "wakes after {after:?}");
}

/// Permits may have to be published again: that does not wait for the retry.
pub async fn everything_wakes_for_permits_before_a_retry_of_the_future(world: &World) {
    let destination = world.destination().unlimited().create().await;
    world.accept(destination, 1).await;
    let worker = world.worker().await;
    let permits = world.admit(destination).await;
    world.start(worker, &permits).await;
    let delay = NextTry::RetryAfter(Duration::from_secs(100));
    world
        .record(worker, &permits[0], OutcomeKind::Failed, delay)
        .await;
    world.accept(destination, 1).await;
    assert_eq!(world.admit(destination).await.len(), 1);
    clear(world).await;
    let page = sweep(world, &EVERYTHING).await;
    assert_eq!(page.wakes, [Wake::now(destination)]);
}

/// In id order, each destination once.
pub async fn pages_follow_each_other(world: &World) {
    let mut destinations = Vec::new();
    for _ in 0..7 {
        let destination = world.destination().per_second(1).create().await;
        world.accept(destination, 2).await;
        destinations.push(destination);
        // Idle ones between them cost nothing, and no page is short for them.
        world.destination().create().await;
    }
    clear(world).await;
    for first in [SWEEP, EVERYTHING] {
        assert_eq!(
            walked(world, &Sweep { limit: 3, ..first }).await,
            destinations
        );
    }
}

/// Deep backlogs beside single retries, due or not, and permits: each destination
/// once, whatever is before and after it, and however small the pages are.
pub async fn a_sweep_finds_each_however_much_waits(world: &World) {
    let worker = world.worker().await;
    let (mut due, mut all) = (Vec::new(), Vec::new());
    for number in 0..42 {
        let destination = world.destination().unlimited().create().await;
        let retries_after = async |delay: u64| {
            world.accept(destination, 1).await;
            let permits = world.admit(destination).await;
            world.start(worker, &permits).await;
            let next = NextTry::RetryAfter(Duration::from_millis(delay));
            world
                .record(worker, &permits[0], OutcomeKind::Failed, next)
                .await;
        };
        // Runs of each kind, and each beside each.
        let kind = (number / 6 + number % 6) % 6;
        match kind {
            0 => _ = world.accept(destination, 20).await,
            1 => retries_after(100).await,
            2 => retries_after(100_000).await,
            3 => {
                world.accept(destination, 1).await;
                assert_eq!(world.admit(destination).await.len(), 1);
            }
            4 => {
                retries_after(100_000).await;
                world.accept(destination, 1).await;
            }
            _ => continue,
        }
        all.push(destination);
        if !matches!(kind, 2 | 3) {
            due.push(destination);
        }
    }
    clear(world).await;
    world.pass(OVERDUE + Duration::from_millis(200)).await;
    for limit in [1, 2, 5, 13, 100] {
        for (first, found) in [(SWEEP, &due), (EVERYTHING, &all)] {
            assert_eq!(walked(world, &Sweep { limit, ..first }).await, *found);
        }
    }
}

/// Page after page.
async fn walked(world: &World, first: &Sweep) -> Vec<DestinationId> {
    let (mut seen, mut after) = (Vec::new(), None);
    for _ in 0..100 {
        let page = sweep(world, &Sweep { after, ..*first }).await;
        seen.extend(page.wakes.iter().map(|wake| wake.destination));
        after = page.next;
        if after.is_none() {
            return seen;
        }
    }
    assert!(after.is_none(), "the sweep does not end");
    seen
}

/// A change leaves a mark until it has been looked at.
pub async fn a_mark_is_woken_and_cleared(world: &World) {
    let destination = world.destination().per_second(1).create().await;
    world.accept(destination, 3).await;
    world.admit(destination).await;
    clear(world).await;
    world
        .sql(&format!(
            "update destinations set limit_per_second = 9 where id = '{destination}'"
        ))
        .await;
    let page = sweep(world, &SWEEP).await;
    let marked: Vec<_> = page.marks.iter().map(|mark| mark.destination).collect();
    assert_eq!(marked, [destination]);
    // The wake forgets the floor that the old limit left.
    let clears_floor = |wake: &engine::ports::Wake| wake.clear_floor;
    assert!(page.wakes.iter().any(clears_floor), "got {:?}", page.wakes);
    world.store.clear_marks(&page.marks).await.unwrap();
    assert_eq!(sweep(world, &SWEEP).await.marks, []);
}

/// A job that is still there for it has to see that it is over; and that a mark
/// is woken does not depend on what the destination became since.
pub async fn a_mark_of_what_is_not_active_is_woken_too(world: &World) {
    let paused = world.destination().per_second(1).create().await;
    let deleted = world.destination().per_second(1).create().await;
    clear(world).await;
    world
        .sql(&format!(
            "update destinations set state = 'paused' where id = '{paused}'"
        ))
        .await;
    let deletion = world.catalog.delete_destination(DEFAULT_TENANT, deleted);
    deletion.await.unwrap();
    let page = sweep(world, &SWEEP).await;
    assert_eq!(page.wakes, [paused, deleted].map(Wake::unblocked));
}

/// A change that came after the page was read is another mark.
pub async fn a_mark_made_again_survives(world: &World) {
    let destination = world.destination().per_second(1).create().await;
    clear(world).await;
    let raise = |limit: u32| {
        format!("update destinations set limit_per_second = {limit} where id = '{destination}'")
    };
    world.sql(&raise(2)).await;
    let first: Vec<Mark> = sweep(world, &SWEEP).await.marks;
    world.sql(&raise(3)).await;
    world.store.clear_marks(&first).await.unwrap();
    let second = sweep(world, &SWEEP).await.marks;
    assert_eq!(second.len(), 1);
    assert!(second[0].version != first[0].version);
    world.store.clear_marks(&second).await.unwrap();
    // Nor does a new mark look like one that was cleared before.
    world.sql(&raise(4)).await;
    world.store.clear_marks(&second).await.unwrap();
    assert_eq!(sweep(world, &SWEEP).await.marks.len(), 1);
}
