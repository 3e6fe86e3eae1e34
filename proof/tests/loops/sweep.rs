//! The sweep: wakes before marks, a rebuild to the very end or not at all.

use std::time::Duration;

use engine::ports::{Mark, ScheduleLife, SweepPage, Wake};
use engine::sweep::{SweepLoop, SweepOptions};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::support::{Counted, Event, Warned, World, destination, schedule_away, store_away};

fn sweep(world: &World) -> SweepLoop {
    let (store, schedule) = (world.store.clone(), world.schedule.clone());
    SweepLoop::new(store, schedule, SweepOptions::default())
}

fn mark(number: u128) -> Mark {
    Mark {
        destination: destination(number),
        version: 3,
    }
}

/// Three pages with a destination each, and no marks.
fn has_three_pages(world: &World) {
    world.store.sweep.answers(|sweep| {
        if sweep.only_marks {
            return Ok(SweepPage::default());
        }
        let number = sweep.after.map_or(0, |after| after.0.as_u128()) + 1;
        Ok(SweepPage {
            wakes: vec![Wake::now(destination(number))],
            next: (number < 3).then(|| destination(number)),
            ..SweepPage::default()
        })
    });
}

fn is_new(world: &World) {
    world
        .schedule
        .life
        .answers(|()| Ok(ScheduleLife::New("second".to_owned())));
}

fn rebuilt(world: &World) -> Vec<String> {
    world.journal.pick(|event| match event {
        Event::Rebuilt(life) => Some(life),
        _ => None,
    })
}

fn cleared(world: &World) -> Vec<Mark> {
    let cleared = world.journal.pick(|event| match event {
        Event::ClearMarks(marks) => Some(marks),
        _ => None,
    });
    cleared.into_iter().flatten().collect()
}

/// For each page, whether everything was asked for.
fn pages(world: &World) -> Vec<bool> {
    world.journal.pick(|event| match event {
        Event::Sweep(sweep) => Some(sweep.everything),
        _ => None,
    })
}

#[tokio::test(start_paused = true)]
async fn marks_are_forgotten_after_their_wake() {
    let world = World::new();
    world.store.sweep.answers(|_| {
        Ok(SweepPage {
            marks: vec![mark(1)],
            ..SweepPage::default()
        })
    });
    sweep(&world).tick().await.unwrap();
    assert_eq!(world.journal.woken(), [Wake::unblocked(destination(1))]);
    assert_eq!(cleared(&world), [mark(1)]);
    let woken = world.journal.position(|e| matches!(e, Event::Wake(_)));
    let forgotten = world
        .journal
        .position(|e| matches!(e, Event::ClearMarks(_)));
    assert!(woken < forgotten);
}

#[tokio::test(start_paused = true)]
async fn marks_stay_if_their_wake_failed() {
    let world = World::new();
    world.store.sweep.answers(|_| {
        Ok(SweepPage {
            marks: vec![mark(1)],
            ..SweepPage::default()
        })
    });
    world.schedule.wake.answers(|_| Err(schedule_away()));
    sweep(&world).tick().await.unwrap();
    assert_eq!(cleared(&world), []);
}

/// What is overdue is past the look that was planned, so its floor is no longer
/// true: it counted a permit that ended unused and whose wake was lost, or it
/// comes from before a failover or a step of the schedule's clock. A retry's
/// time is to come.
#[tokio::test(start_paused = true)]
async fn what_is_due_is_woken_below_its_floor() {
    let world = World::new();
    let retry = Wake::after(destination(2), Duration::from_secs(9));
    world.store.sweep.answers(move |_| {
        Ok(SweepPage {
            wakes: vec![Wake::now(destination(1)), retry],
            ..SweepPage::default()
        })
    });
    sweep(&world).tick().await.unwrap();
    assert_eq!(
        world.journal.woken(),
        [Wake::unblocked(destination(1)), retry]
    );
}

/// An event whose commit came so late that admission had passed it: its destination is
/// woken, and operators can see that it happened.
#[tokio::test(start_paused = true)]
async fn what_was_committed_late_is_woken_counted_and_said() {
    let (counted, warned, world) = (Counted::default(), Warned::default(), World::new());
    let (_counting, _listening) = (counted.begin(), warned.begin());
    sweep(&world).tick().await.unwrap();
    assert_eq!(counted.of("paceline_late_commits_total"), []);
    assert_eq!(warned.said(), Vec::<String>::new());
    world.store.sweep.answers(|_| {
        Ok(SweepPage {
            wakes: vec![Wake::now(destination(1)), Wake::now(destination(2))],
            late: 2,
            ..SweepPage::default()
        })
    });
    sweep(&world).tick().await.unwrap();
    let woken = [1, 2].map(|number| Wake::unblocked(destination(number)));
    assert_eq!(world.journal.woken(), woken);
    let late = counted.of("paceline_late_commits_total");
    assert_eq!(late, [(String::new(), 2)]);
    let said = warned.said();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("destinations=2 "), "{said:?}");
    assert!(said[0].contains("committed so late"), "{said:?}");
}

#[tokio::test(start_paused = true)]
async fn an_ordinary_sweep_asks_for_what_is_overdue_and_notes_no_rebuild() {
    let world = World::new();
    has_three_pages(&world);
    sweep(&world).tick().await.unwrap();
    assert_eq!(pages(&world), [false; 3]);
    assert_eq!(world.journal.woken().len(), 3);
    assert_eq!(rebuilt(&world), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_look_is_for_the_marks_and_in_another_life_for_all() {
    let world = World::new();
    has_three_pages(&world);
    sweep(&world).look().await.unwrap();
    assert_eq!(world.journal.woken(), []);
    assert_eq!(pages(&world), [false]);
    is_new(&world);
    sweep(&world).look().await.unwrap();
    assert_eq!(pages(&world), [false, true, true, true]);
    assert_eq!(rebuilt(&world), ["second"]);
}

/// Three pages that take a second each: in five minutes there are five whole
/// sweeps, and the marks are looked at all the time.
#[tokio::test(start_paused = true)]
async fn whole_sweeps_leave_the_store_time_for_others() {
    let world = World::new();
    has_three_pages(&world);
    world.store.sweep.takes(Duration::from_secs(1));
    let running = sweep(&world).run(CancellationToken::new());
    let _ = timeout(Duration::from_secs(290), running).await;
    let last = world.journal.pick(|event| match event {
        Event::Sweep(sweep) => Some(sweep.after == Some(destination(2))),
        _ => None,
    });
    assert_eq!(last.iter().filter(|last| **last).count(), 5);
    assert!(last.len() > 5 * 3 + 5 * 30, "{last:?}");
}

#[tokio::test(start_paused = true)]
async fn another_life_is_rebuilt_from_everything_and_noted_at_the_end() {
    let world = World::new();
    has_three_pages(&world);
    is_new(&world);
    sweep(&world).tick().await.unwrap();
    assert_eq!(pages(&world), [true; 3]);
    assert_eq!(world.journal.woken().len(), 3);
    assert_eq!(rebuilt(&world), ["second"]);
    assert!(matches!(world.events().last(), Some(Event::Rebuilt(_))));
}

#[tokio::test(start_paused = true)]
async fn a_rebuild_that_the_store_interrupts_is_not_noted() {
    let world = World::new();
    is_new(&world);
    world.store.sweep.answers(|sweep| match sweep.after {
        Some(_) => Err(store_away()),
        None => Ok(SweepPage {
            next: Some(destination(1)),
            ..SweepPage::default()
        }),
    });
    sweep(&world).tick().await.unwrap_err();
    assert_eq!(rebuilt(&world), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_rebuild_of_which_a_wake_was_lost_is_not_noted() {
    let world = World::new();
    has_three_pages(&world);
    is_new(&world);
    let mut wakes = 0;
    world.schedule.wake.answers(move |_| {
        wakes += 1;
        if wakes == 2 {
            return Err(schedule_away());
        }
        Ok(())
    });
    let sweep = sweep(&world);
    sweep.tick().await.unwrap();
    assert_eq!(rebuilt(&world), Vec::<String>::new());
    sweep.tick().await.unwrap();
    assert_eq!(rebuilt(&world), ["second"]);
}

#[tokio::test(start_paused = true)]
async fn without_the_schedule_the_store_is_left_in_peace() {
    let world = World::new();
    world.schedule.life.answers(|()| Err(schedule_away()));
    sweep(&world).tick().await.unwrap();
    assert_eq!(world.events(), []);
}
