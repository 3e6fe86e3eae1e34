//! The scheduler on a good day: what it asks, in which order, and when it
//! looks again.

use std::sync::Arc;
use std::time::Duration;

use domain::admission::{LOOK_WHEN_NONE_WAKES, Look};
use engine::ports::{Fleet, NextRun, Run, RunResult, Taken};

use crate::support::{
    Event, T0, World, decided, decided_failing, decided_short_of_places, destination, in_slot, ms,
    permit, permit_of, scheduler_options,
};

/// When the finished job of destination 1 runs next.
fn next(world: &World) -> NextRun {
    let finished = world.journal.finished();
    finished.last().expect("it was finished").next
}

const fn after(delay: Duration, floor: Option<Duration>) -> NextRun {
    NextRun::After { delay, floor }
}

#[tokio::test(start_paused = true)]
async fn a_run_takes_admits_publishes_and_finishes() {
    let world = World::new();
    world.schedule.due(&[1]);
    world
        .store
        .admit
        .answers(|_| Ok(vec![decided(&[permit(7)], Look::Idle)]));
    world.scheduler().tick().await;
    let steps = world.journal.pick(|event| match event {
        Event::Take => Some("take"),
        Event::Admit(..) => Some("admit"),
        Event::Publish(_) => Some("publish"),
        Event::Finish(_) => Some("finish"),
        _ => None,
    });
    assert_eq!(steps, ["take", "admit", "publish", "finish"]);
    let finished = world.journal.finished();
    assert_eq!(finished[0].token, "token of 1");
}

#[tokio::test(start_paused = true)]
async fn a_lapsed_lease_asks_for_the_permits_again() {
    let world = World::new();
    world.schedule.lapsed(&[1]);
    world.schedule.due(&[2]);
    let mut scheduler = world.scheduler();
    scheduler.tick().await;
    scheduler.tick().await;
    let runs = world.journal.pick(|event| match event {
        Event::Admit(runs, _) => Some(runs[0]),
        _ => None,
    });
    let run = |number, republish| Run {
        destination: destination(number),
        republish,
    };
    assert_eq!(runs, [run(1, true), run(2, false)]);
}

#[tokio::test(start_paused = true)]
async fn a_skipped_destination_is_looked_at_again_soon_and_never_removed() {
    let world = World::new();
    let mut scheduler = world.scheduler();
    world.store.admit.answers(|_| Ok(vec![RunResult::Skipped]));
    let mut delays = Vec::new();
    for _ in 0..8 {
        world.schedule.due(&[1]);
        scheduler.tick().await;
        let NextRun::After { delay, floor: None } = next(&world) else {
            panic!("{:?}", next(&world));
        };
        delays.push(delay.as_millis());
    }
    assert_eq!(delays, [20, 40, 80, 160, 320, 640, 1_000, 1_000]);

    // A decision ends the row of failures.
    world
        .store
        .admit
        .answers(|_| Ok(vec![decided(&[], Look::Idle)]));
    world.schedule.due(&[1]);
    scheduler.tick().await;
    world.store.admit.answers(|_| Ok(vec![RunResult::Skipped]));
    world.schedule.due(&[1]);
    scheduler.tick().await;
    assert_eq!(next(&world), after(ms(20), None));
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_is_gone_or_idle_loses_its_job() {
    let world = World::new();
    world.schedule.due(&[1, 2]);
    world
        .store
        .admit
        .answers(|_| Ok(vec![RunResult::Gone, decided(&[], Look::Idle)]));
    world.scheduler().tick().await;
    let finished = world.journal.finished();
    let next: Vec<_> = finished.iter().map(|finish| finish.next).collect();
    assert_eq!(next, [NextRun::Remove, NextRun::Remove]);
}

#[tokio::test(start_paused = true)]
async fn the_next_look_is_a_delay_against_the_stores_clock() {
    let world = World::new();
    world.store.steps_by(Duration::from_secs(5_000));
    let now = T0 + Duration::from_secs(5_000);
    world.store.admit.answers(move |_| {
        let at = now + ms(300);
        let floor = Some(now + ms(200));
        let past = Look::At {
            at: T0,
            floor: None,
        };
        Ok(vec![
            decided(&[], Look::At { at, floor }),
            decided(&[], past),
        ])
    });
    world.schedule.due(&[1, 2]);
    world.scheduler().tick().await;
    let finished = world.journal.finished();
    assert_eq!(finished[0].next, after(ms(300), Some(ms(200))));
    assert_eq!(finished[1].next, after(Duration::ZERO, None));
}

#[tokio::test(start_paused = true)]
async fn the_next_look_does_not_wait_for_the_time_that_publishing_took() {
    let world = World::new();
    world.store.admit.answers(|_| {
        let at = T0 + ms(100);
        Ok(vec![decided(&[permit(1)], Look::At { at, floor: None })])
    });
    world.queue.publish.takes(ms(40));
    world.schedule.due(&[1]);
    world.scheduler().tick().await;
    assert_eq!(next(&world), after(ms(60), None));
}

#[tokio::test(start_paused = true)]
async fn a_message_carries_permits_of_any_destinations_by_their_slots_and_at_most_sixteen() {
    let world = World::new();
    world.schedule.due(&[1, 2]);
    world.store.admit.answers(|_| {
        let in_turn = |n: u8| in_slot(permit(n.into()), ms(u64::from(n) * 10));
        let of_one: Vec<_> = (0..20).map(in_turn).collect();
        let of_two = [20, 21, 22].map(|n| in_slot(permit_of(2, n), ms(15)));
        Ok(vec![
            decided(&of_one, Look::Idle),
            decided(&of_two, Look::Idle),
        ])
    });
    world.scheduler().tick().await;
    let groups = world.journal.pick(|event| match event {
        Event::Publish(groups) => Some(groups),
        _ => None,
    });
    assert_eq!(groups.len(), 1, "one batch");
    let attempts: Vec<Vec<_>> = (groups[0].iter())
        .map(|group| group.permits().iter().map(|one| one.attempt.0).collect())
        .collect();
    let by_slots: [Vec<i64>; 2] = [vec![0, 1, 20, 21, 22, 2, 3], (4..20).collect()];
    assert_eq!(attempts, by_slots);
}

fn rooms(world: &World) -> Vec<u32> {
    world.journal.pick(|event| match event {
        Event::Admit(_, room) => Some(room),
        _ => None,
    })
}

fn fleet_of(places: u32, outstanding: u32) -> Fleet {
    Fleet {
        now: T0,
        workers: 1,
        places,
        outstanding,
        loads: Vec::new(),
    }
}

#[tokio::test(start_paused = true)]
async fn admission_is_told_the_room_that_the_fleet_has() {
    let world = World::new();
    world.store.fleet.answers(|()| Ok(fleet_of(100, 50)));
    world.store.admit.answers(|_| {
        let permits = [permit(1), permit(2)];
        Ok(vec![decided(&permits, Look::Idle)])
    });
    let mut scheduler = world.scheduler();
    for _ in 0..3 {
        world.schedule.due(&[1]);
        scheduler.tick().await;
    }
    // Two permits for each of a hundred places, without the fifty outstanding
    // ones, and without those of this scheduler since.
    assert_eq!(rooms(&world), [150, 148, 146]);
}

#[tokio::test(start_paused = true)]
async fn the_fleet_is_counted_now_and_then() {
    let world = World::new();
    let mut scheduler = world.scheduler();
    for _ in 0..100 {
        world.schedule.due(&[1]);
        scheduler.tick().await;
        tokio::time::sleep(ms(10)).await;
    }
    let counts = world.journal.times(|event| *event == Event::Fleet).len();
    assert!((9..=10).contains(&counts), "{counts} in a second");
}

/// And of a small one more often, whose permits are over sooner. Runs go on meanwhile.
#[tokio::test(start_paused = true)]
async fn without_room_the_fleet_is_counted_each_twenty_milliseconds() {
    for (places, counts) in [(1_000, 40..=51), (10, 200..=200)] {
        let world = World::new();
        let fleet = fleet_of(places, 2 * places);
        world.store.fleet.answers(move |()| Ok(fleet.clone()));
        let mut scheduler = world.scheduler();
        for _ in 0..200 {
            world.schedule.due(&[1]);
            scheduler.tick().await;
            tokio::time::sleep(ms(5)).await;
        }
        let counted = world.journal.times(|event| *event == Event::Fleet).len();
        assert!(counts.contains(&counted), "{counted} of {places} places");
        assert_eq!(rooms(&world), [0; 200]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_place_that_has_come_free_is_given_by_the_next_count() {
    let world = World::new();
    world.store.fleet.answers(|()| Ok(fleet_of(0, 0)));
    let mut scheduler = world.scheduler();
    world.schedule.due(&[1]);
    scheduler.tick().await;
    world.store.fleet.answers(|()| Ok(fleet_of(1, 0)));
    tokio::time::sleep(ms(5)).await;
    world.schedule.due(&[1]);
    scheduler.tick().await;
    assert_eq!(rooms(&world), [0, 2]);
}

/// Places stop all that run, and they are to look again so long after.
fn stopped_by_places(world: &World, look_after: Duration) {
    let store = Arc::clone(&world.store);
    world.store.admit.answers(move |(runs, _)| {
        let look = Look::At {
            at: store.now() + look_after,
            floor: None,
        };
        Ok(vec![decided_short_of_places(look); runs.len()])
    });
}

const SECOND: Duration = Duration::from_secs(1);

/// Whom places have stopped waits for it, whatever wakes it: it could be given nothing. Who was
/// stopped by a count of before its take looks with it by itself: the place that it was woken
/// for may have come free since, and nobody tells again.
#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_place_runs_with_the_next_count_of_the_fleet() {
    let world = World::new();
    world.store.fleet.answers(|()| Ok(fleet_of(1_000, 2_000)));
    stopped_by_places(&world, SECOND);
    let mut scheduler = world.scheduler();
    let knew_all = after(SECOND, Some(ms(20)));
    world.schedule.due(&[1]);
    scheduler.tick().await;
    assert_eq!(next(&world), knew_all);

    tokio::time::sleep(ms(5)).await;
    world.schedule.due(&[2]);
    scheduler.tick().await;
    assert_eq!(next(&world), after(ms(15), Some(ms(15))));
    // Its permits may have to be published again.
    world.schedule.lapsed(&[1]);
    scheduler.tick().await;
    assert_eq!(next(&world), after(ms(15), Some(ms(15))));

    tokio::time::sleep(ms(15)).await;
    world.schedule.due(&[1, 2]);
    scheduler.tick().await;
    assert_eq!(next(&world), knew_all, "it has been counted again");
    let counts = world.journal.times(|event| *event == Event::Fleet).len();
    assert_eq!(counts, 2);
}

/// Its job was due already when it was woken, so nothing else says that it was.
#[tokio::test(start_paused = true)]
async fn a_wake_between_the_count_and_the_take_is_not_lost() {
    let world = World::new();
    let mut scheduler = world.scheduler();
    world.schedule.due(&[1]);
    scheduler.tick().await;

    tokio::time::sleep(ms(101)).await;
    world.store.fleet.answers(|()| Ok(fleet_of(1_000, 2_000)));
    stopped_by_places(&world, SECOND);
    // There was room, so they are asked side by side, and the take answers 3 ms later.
    world.schedule.take.takes(ms(3));
    world.schedule.due(&[1]);
    scheduler.tick().await;
    assert_eq!(next(&world), after(ms(17), Some(ms(17))));

    // There is none, so the fleet is counted after a take, however long that took.
    tokio::time::sleep(ms(17)).await;
    world.schedule.due(&[1]);
    scheduler.tick().await;
    assert_eq!(next(&world), after(SECOND, Some(ms(20))));
    let order = world.journal.pick(|event| match event {
        Event::Fleet => Some("count"),
        Event::Take => Some("take"),
        _ => None,
    });
    assert_eq!(order[order.len() - 2..], ["take", "count"]);
}

/// So a run that knew all looks with the next count too where no outcome will wake it.
#[tokio::test(start_paused = true)]
async fn whom_no_outcome_wakes_looks_with_the_next_count() {
    let world = World::new();
    world.store.fleet.answers(|()| Ok(fleet_of(1_000, 2_000)));
    stopped_by_places(&world, LOOK_WHEN_NONE_WAKES);
    world.schedule.due(&[1]);
    world.scheduler().tick().await;
    assert_eq!(next(&world), after(ms(20), Some(ms(20))));
    // But there are no places at all.
    world.store.fleet.answers(|()| Ok(fleet_of(0, 0)));
    world.schedule.due(&[1]);
    world.scheduler().tick().await;
    assert_eq!(next(&world), after(SECOND, Some(ms(5))));
}

/// Those that may look in vain cost so many runs, however many they are: the turns of those
/// before them come first, whichever count has stopped them.
#[tokio::test(start_paused = true)]
async fn eight_look_again_with_each_count() {
    let world = World::new();
    world.store.fleet.answers(|()| Ok(fleet_of(1_000, 2_000)));
    stopped_by_places(&world, SECOND);
    let mut scheduler = world.scheduler();
    world.schedule.due(&[1]);
    scheduler.tick().await;
    tokio::time::sleep(ms(5)).await;
    let stopped: Vec<u128> = (1..=48).collect();
    for (count, expected) in [
        (1, [15, 35, 115]),
        (1, [135, 155, 235]),
        (2, [235, 255, 335]),
        (3, [335, 355, 435]),
    ] {
        let counts = || world.journal.times(|event| *event == Event::Fleet).len();
        if counts() < count {
            tokio::time::sleep(ms(15)).await;
            world.schedule.due(&[1]);
            scheduler.tick().await;
            tokio::time::sleep(ms(5)).await;
        }
        world.schedule.due(&stopped);
        scheduler.tick().await;
        assert_eq!(counts(), count);
        let finished = world.journal.finished();
        let of_these = &finished[finished.len() - stopped.len()..];
        for (number, delay) in [0, 8, 47].into_iter().zip(expected) {
            let next = of_these[number].next;
            assert_eq!(next, after(ms(delay), Some(ms(15))), "{count} {number}");
        }
    }
}

/// While others have room: its places come free as soon.
#[tokio::test(start_paused = true)]
async fn the_fleet_is_counted_as_often_for_whom_its_tenants_bound_stops() {
    let world = World::new();
    world.store.fleet.answers(|()| Ok(fleet_of(1_000, 100)));
    stopped_by_places(&world, SECOND);
    let mut scheduler = world.scheduler();
    for _ in 0..200 {
        world.schedule.due(&[1]);
        scheduler.tick().await;
        tokio::time::sleep(ms(5)).await;
    }
    let counts = world.journal.times(|event| *event == Event::Fleet).len();
    assert!((40..=51).contains(&counts), "{counts} in a second");
}

#[tokio::test(start_paused = true)]
async fn the_loops_of_a_process_count_the_fleet_together() {
    let world = World::new();
    world.store.fleet.answers(|()| Ok(fleet_of(100, 50)));
    world.store.fleet.takes(ms(3));
    let mut one = world.scheduler();
    let mut other = world.scheduler().beside(&one);
    for _ in 0..100 {
        world.schedule.due(&[1]);
        world.schedule.due(&[2]);
        tokio::join!(one.tick(), other.tick());
        tokio::time::sleep(ms(10)).await;
    }
    // Also the first of both knew.
    assert_eq!(rooms(&world), [150; 200]);
    let counts = world.journal.times(|event| *event == Event::Fleet).len();
    assert!((9..=11).contains(&counts), "{counts} in a second and a bit");
}

/// The count may have come before them, and does not know them.
#[tokio::test(start_paused = true)]
async fn permits_that_another_loop_gives_during_a_count_are_added_to_it() {
    let world = World::new();
    world.store.fleet.answers(|()| Ok(fleet_of(100, 50)));
    world.store.admit.answers(|_| {
        let permits = [permit(1), permit(2)];
        Ok(vec![decided(&permits, Look::Idle)])
    });
    let mut one = world.scheduler();
    let mut other = world.scheduler().beside(&one);
    world.schedule.due(&[1]);
    one.tick().await;

    tokio::time::sleep(ms(101)).await;
    world.store.fleet.takes(ms(10));
    world.schedule.due(&[1]);
    world.schedule.due(&[2]);
    tokio::join!(one.tick(), other.tick());
    // The other did not wait for the count, and its two permits are in it.
    assert_eq!(rooms(&world), [150, 148, 148]);
}

/// Its job is finished without a run, and beside the job of one that is well.
#[tokio::test(start_paused = true)]
async fn a_failing_destination_waits_for_a_round() {
    let world = World::new();
    world.store.admit.answers(|(runs, _)| {
        let failing = |run: &Run| match run.destination == destination(1) {
            true => decided_failing(&[], Look::Idle),
            false => decided(&[], Look::Idle),
        };
        Ok(runs.iter().map(failing).collect())
    });
    let mut scheduler = world.scheduler();
    world.schedule.due(&[1]);
    scheduler.tick().await;
    assert_eq!(next(&world), NextRun::Remove, "nobody has known it");
    tokio::time::sleep(ms(100)).await;
    world.schedule.due(&[1]);
    world.schedule.due(&[1, 2]);
    scheduler.tick().await;
    let wait = ms(250 - 100);
    assert_eq!(next(&world), after(wait, Some(wait)));
    tokio::time::sleep(wait).await;
    scheduler.tick().await;
    let runs = world.journal.pick(|event| match event {
        Event::Admit(runs, _) => Some(runs.len()),
        _ => None,
    });
    assert_eq!(runs, [1, 2], "in company, once");
}

/// Others are due, and arrivals at those that ran wait for them; what is planned does not,
/// and what a limit says is later.
#[tokio::test(start_paused = true)]
async fn after_a_full_batch_arrivals_do_not_cost_a_run_each() {
    let world = World::new();
    let look = |after, floor| Look::At {
        at: T0 + ms(after),
        floor,
    };
    world.store.admit.answers(move |(runs, _)| {
        let of = |run: &Run| match run.destination == destination(1) {
            true => decided(&[], look(90, Some(T0 + ms(60)))),
            false => decided(&[], look(3, None)),
        };
        Ok(runs.iter().map(of).collect())
    });
    let mut scheduler = world.scheduler();
    for (count, floor) in [(128, Some(ms(10))), (127, None)] {
        let numbers: Vec<u128> = (1..=count).collect();
        world.schedule.due(&numbers);
        scheduler.tick().await;
        let finished = world.journal.finished();
        let of_this = finished[finished.len() - numbers.len()..].iter();
        let of_this: Vec<NextRun> = of_this.map(|finish| finish.next).collect();
        assert_eq!(of_this[0], after(ms(90), Some(ms(60))));
        let others = vec![after(ms(3), floor); numbers.len() - 1];
        assert_eq!(of_this[1..], others);
    }
}

/// Neither what was taken last nor what was finished since waits for the poll.
#[tokio::test(start_paused = true)]
async fn a_job_that_is_known_is_looked_at_when_it_is_due() {
    let world = World::new();
    let known = |next_due| Taken {
        jobs: Vec::new(),
        next_due,
    };
    let mut scheduler = world.scheduler();
    let idle = scheduler_options().idle;
    for (next_due, pause) in [
        (None, idle),
        (Some(ms(7)), ms(7)),
        (Some(Duration::ZERO), ms(0)),
        (Some(idle * 3), idle),
        (Some(Duration::MAX), idle),
    ] {
        world.schedule.take.answers(move |()| Ok(known(next_due)));
        assert_eq!(scheduler.tick().await, pause, "due in {next_due:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_finished_is_looked_at_when_it_is_due() {
    let world = World::new();
    world.store.admit.answers(|_| {
        let look = |after| Look::At {
            at: T0 + ms(after),
            floor: None,
        };
        Ok(vec![
            decided(&[permit(1)], look(90)),
            decided(&[], look(60)),
        ])
    });
    // What is told of the lease does not count: it ends with the finish.
    world.queue.publish.takes(ms(20));
    world.schedule.due(&[1, 2]);
    assert_eq!(world.scheduler().tick().await, ms(40));
}

#[tokio::test(start_paused = true)]
async fn a_scheduler_makes_its_statements_ready_before_it_takes() {
    let world = World::new();
    let _running = tokio::spawn(world.scheduler().run(world.shutdown.clone()));
    tokio::time::sleep(ms(10)).await;
    let ready = (world.journal).position(|event| *event == Event::Nothing("admit"));
    assert!(ready < world.journal.position(|event| *event == Event::Take));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_lets_the_current_run_end() {
    let world = World::new();
    world.schedule.due(&[1]);
    world.store.admit.takes(ms(50));
    let running = tokio::spawn(world.scheduler().run(world.shutdown.clone()));
    tokio::time::sleep(ms(20)).await;
    world.shutdown.cancel();
    running.await.unwrap();
    assert_eq!(world.journal.finished().len(), 1);
    let takes = world.journal.times(|event| *event == Event::Take);
    assert_eq!(takes.len(), 1, "nothing more is taken");
}
