//! The scheduler when a part does not answer, and when the clock steps.

use std::time::Duration;

use domain::admission::Look;
use engine::ports::{Published, QueueError, SweepPage, Wake};
use engine::scheduler::SchedulerOptions;

use crate::support::{
    Event, T0, World, decided, destination, ms, permit, schedule_away, store_away,
};

fn admits_one(world: &World) {
    world.store.admit.answers(|_| {
        let at = T0 + Duration::from_secs(3_600);
        let floor = Some(at);
        Ok(vec![decided(&[permit(7)], Look::At { at, floor })])
    });
}

fn count(world: &World, wanted: impl Fn(&Event) -> bool) -> usize {
    world.journal.times(wanted).len()
}

const fn is_publish(event: &Event) -> bool {
    matches!(event, Event::Publish(_))
}

const fn is_sweep(event: &Event) -> bool {
    matches!(event, Event::Sweep(_))
}

#[tokio::test(start_paused = true)]
async fn without_the_store_the_lease_ends_by_itself() {
    let world = World::new();
    world.store.admit.answers(|_| Err(store_away()));
    let mut scheduler = world.scheduler();
    let mut pauses = Vec::new();
    for _ in 0..6 {
        world.schedule.due(&[1]);
        pauses.push(scheduler.tick().await.as_millis());
    }
    assert_eq!(pauses, [50, 100, 200, 400, 800, 1_000]);
    assert_eq!(world.journal.finished(), []);
    assert_eq!(count(&world, is_publish), 0);
}

#[tokio::test(start_paused = true)]
async fn permits_that_cannot_be_published_go_back_and_lift_the_floor() {
    let world = World::new();
    admits_one(&world);
    let away = |_| Err(QueueError::Unavailable("away".to_owned()));
    world.queue.publish.answers(away);
    world.schedule.due(&[1]);
    world.schedule.due(&[1]);
    let mut scheduler = world.scheduler();
    let pauses = [scheduler.tick().await, scheduler.tick().await];
    assert_eq!(
        pauses,
        [ms(50), ms(100)],
        "no hot loop of admit and release"
    );
    assert_eq!(world.journal.released(), [permit(7), permit(7)]);
    // The floor of an hour that follows counts a permit that is no more.
    assert_eq!(world.journal.woken()[0], Wake::unblocked(destination(1)));
    let woken = world.journal.position(|e| matches!(e, Event::Wake(_)));
    let finished = world.journal.position(|e| matches!(e, Event::Finish(_)));
    assert!(
        woken < finished,
        "under the lease, or it would be forgotten"
    );
}

#[tokio::test(start_paused = true)]
async fn an_unconfirmed_permit_is_left_to_its_deadline() {
    let world = World::new();
    admits_one(&world);
    let refuses = |groups| Ok(vec![Published::Unconfirmed; groups]);
    world.queue.publish.answers(refuses);
    world.schedule.due(&[1]);
    world.scheduler().tick().await;
    assert_eq!(count(&world, is_publish), 1);
    assert_eq!(world.journal.released(), []);
    assert_eq!(world.journal.finished().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_taken_while_the_queue_is_away_or_blocked() {
    for error in [QueueError::Unavailable, QueueError::Blocked] {
        let world = World::new();
        world
            .queue
            .health
            .answers(move |()| Err(error("no".to_owned())));
        world.schedule.due(&[1]);
        let mut scheduler = world.scheduler();
        assert!(scheduler.tick().await >= ms(50));
        assert_eq!(world.events(), []);
        world.queue.health.answers(|()| Ok(()));
        scheduler.tick().await;
        assert_eq!(world.journal.finished().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_schedule_work_is_found_in_the_store_at_a_bounded_rate() {
    let world = World::new();
    world.schedule.take.answers(|()| Err(schedule_away()));
    world.store.sweep.answers(|sweep| {
        // Two pages, with one destination each.
        let number = if sweep.after.is_none() { 1 } else { 2 };
        Ok(SweepPage {
            wakes: vec![Wake::now(destination(number))],
            next: sweep.after.is_none().then(|| destination(1)),
            ..SweepPage::default()
        })
    });
    world
        .store
        .admit
        .answers(|_| Ok(vec![decided(&[permit(7)], Look::Idle)]));
    let running = tokio::spawn(world.scheduler().run(world.shutdown.clone()));
    tokio::time::sleep(Duration::from_secs(10)).await;
    world.shutdown.cancel();
    running.await.unwrap();

    let rounds = count(
        &world,
        |e| matches!(e, Event::Sweep(sweep) if sweep.after.is_none()),
    );
    assert!((36..=40).contains(&rounds), "{rounds} rounds in 10 s");
    let pages = count(&world, is_sweep);
    assert!(pages.abs_diff(2 * rounds) <= 1, "{pages} pages");
    let runs = world.journal.pick(|event| match event {
        Event::Admit(runs, _) => Some(runs[0].destination),
        _ => None,
    });
    assert_eq!(runs[..3], [destination(1), destination(2), destination(1)]);
    assert_eq!(count(&world, is_publish), runs.len());
    assert_eq!(world.journal.finished(), [], "there is no lease to end");
}

#[tokio::test(start_paused = true)]
async fn without_schedule_and_store_the_scheduler_waits_longer_and_longer() {
    let world = World::new();
    world.schedule.take.answers(|()| Err(schedule_away()));
    world.store.sweep.answers(|_| Err(store_away()));
    let mut scheduler = world.scheduler();
    let pauses = [scheduler.tick().await, scheduler.tick().await];
    assert_eq!(pauses, [ms(50), ms(100)]);
}

#[tokio::test(start_paused = true)]
async fn after_the_stores_clock_stepped_forward_nothing_is_admitted_for_the_freeze() {
    let world = World::new();
    admits_one(&world);
    world.schedule.due(&[1]);
    world.schedule.due(&[1]);
    world.schedule.due(&[1]);
    let mut scheduler = world.scheduler();
    scheduler.tick().await;
    assert_eq!(count(&world, is_publish), 1);

    world.store.steps_by(ms(200));
    scheduler.tick().await;
    assert_eq!(count(&world, is_publish), 1, "planned by a clock that lies");
    assert_eq!(world.journal.released(), [permit(7)]);

    let frozen_at = tokio::time::Instant::now();
    let admits = |world: &World| count(world, |e| matches!(e, Event::Admit(..)));
    while admits(&world) == 2 {
        let pause = scheduler.tick().await;
        tokio::time::sleep(pause).await;
    }
    let frozen = frozen_at.elapsed();
    assert!(frozen >= Duration::from_secs(60), "{frozen:?}");
    assert!(frozen <= Duration::from_secs(62), "{frozen:?}");
    assert_eq!(count(&world, is_publish), 2);
}

#[tokio::test(start_paused = true)]
async fn a_small_step_or_one_back_does_not_freeze() {
    let world = World::new();
    admits_one(&world);
    let mut scheduler = world.scheduler();
    world.store.steps_by(Duration::from_secs(100));
    for step in [0, 30] {
        world.store.steps_by(ms(step));
        world.schedule.due(&[1]);
        scheduler.tick().await;
    }
    assert_eq!(count(&world, is_publish), 2);
}

#[tokio::test(start_paused = true)]
async fn jobs_that_cannot_be_finished_are_left_to_their_leases() {
    let world = World::new();
    admits_one(&world);
    world.schedule.finish.answers(|()| Err(schedule_away()));
    world.schedule.due(&[1]);
    let pause = world.scheduler().tick().await;
    assert_eq!(pause, SchedulerOptions::default().idle);
    assert_eq!(count(&world, is_publish), 1);
    assert_eq!(world.journal.released(), []);
}
