//! The reaper: patience first, then the rules.

use std::time::Duration;

use engine::ports::{HEARTBEAT_TIMEOUT, MAX_ROWS, PutOff, ReapRules, Reaped, Wake};
use engine::reaper::{Reaper, ReaperOptions};
use tokio::time::sleep;

use crate::support::{Event, World, destination, ms, store_away};

const YEAR: Duration = Duration::from_secs(365 * 86_400);

fn reaper(world: &World) -> Reaper {
    let (store, schedule) = (world.store.clone(), world.schedule.clone());
    Reaper::new(store, schedule, ReaperOptions::default())
}

fn rules(world: &World) -> Vec<ReapRules> {
    world.journal.pick(|event| match event {
        Event::Reap(rules) => Some(rules),
        _ => None,
    })
}

/// Whether the last run was one that takes no start for lost.
fn was_patient(world: &World) -> bool {
    let rules = rules(world);
    let last = rules.last().expect("it ran");
    assert_eq!(last.permit_grace, ms(100), "permits always expire");
    let patient = last.heartbeat_timeout > YEAR;
    assert_eq!(patient, last.start_timeout > YEAR);
    if !patient {
        assert_eq!(last.heartbeat_timeout, HEARTBEAT_TIMEOUT);
        assert_eq!(last.start_timeout, Duration::from_secs(40));
    }
    patient
}

/// Runs every 250 ms for so long.
async fn reap_for(reaper: &mut Reaper, time: Duration) {
    let end = tokio::time::Instant::now() + time;
    while tokio::time::Instant::now() < end {
        sleep(ms(250)).await;
        reaper.tick().await;
    }
}

#[tokio::test(start_paused = true)]
async fn workers_get_time_to_show_themselves_after_its_start() {
    let world = World::new();
    let mut reaper = reaper(&world);
    reap_for(&mut reaper, ms(5_750)).await;
    assert!(was_patient(&world));
    reap_for(&mut reaper, ms(250)).await;
    assert!(!was_patient(&world), "six seconds have passed");
}

#[tokio::test(start_paused = true)]
async fn workers_get_time_to_show_themselves_after_the_store_was_away() {
    let world = World::new();
    let mut reaper = reaper(&world);
    reap_for(&mut reaper, Duration::from_secs(7)).await;
    world.store.reap.answers(|_| Err(store_away()));
    reap_for(&mut reaper, ms(250)).await;
    world.store.reap.answers(|_| Ok(Reaped::default()));
    reap_for(&mut reaper, ms(5_750)).await;
    assert!(was_patient(&world));
    reap_for(&mut reaper, ms(250)).await;
    assert!(!was_patient(&world));
}

#[tokio::test(start_paused = true)]
async fn workers_get_time_to_show_themselves_after_a_stall() {
    let world = World::new();
    let mut reaper = reaper(&world);
    reap_for(&mut reaper, Duration::from_secs(7)).await;
    assert!(!was_patient(&world));
    sleep(ms(3_001)).await;
    reaper.tick().await;
    assert!(was_patient(&world), "everybody may have been frozen");
    reap_for(&mut reaper, Duration::from_secs(6)).await;
    assert!(!was_patient(&world));
}

#[tokio::test(start_paused = true)]
async fn full_batches_follow_each_other_at_once() {
    let world = World::new();
    let limit = u32::try_from(MAX_ROWS).unwrap();
    let mut left = vec![(0, 0, 0), (3, 0, limit), (1, limit, 0), (limit, 0, 0)];
    world.store.reap.answers(move |_| {
        let (expired_permits, unknown_starts, cancelled) = left.pop().unwrap_or_default();
        Ok(Reaped {
            expired_permits,
            unknown_starts,
            cancelled,
            ..Reaped::default()
        })
    });
    let running = tokio::spawn(reaper(&world).run(world.shutdown.clone()));
    sleep(ms(100)).await;
    world.shutdown.cancel();
    running.await.unwrap();
    assert_eq!(rules(&world).len(), 4);
}

#[tokio::test(start_paused = true)]
async fn full_batches_leave_half_of_the_time_to_others() {
    let world = World::new();
    world.store.reap.takes(ms(30));
    world.store.reap.answers(|_| {
        Ok(Reaped {
            cancelled: u32::try_from(MAX_ROWS).unwrap(),
            ..Reaped::default()
        })
    });
    let running = tokio::spawn(reaper(&world).run(world.shutdown.clone()));
    sleep(ms(299)).await;
    world.shutdown.cancel();
    running.await.unwrap();
    assert_eq!(rules(&world).len(), 5);
}

#[tokio::test(start_paused = true)]
async fn what_waits_again_is_woken_whatever_the_floor() {
    let world = World::new();
    let later = Wake::after(destination(2), Duration::from_secs(5));
    world.store.reap.answers(move |_| {
        Ok(Reaped {
            wakes: vec![Wake::now(destination(1)), later],
            ..Reaped::default()
        })
    });
    reaper(&world).tick().await;
    let woken = world.journal.woken();
    assert_eq!(woken, [Wake::unblocked(destination(1)), later]);
}

/// An idle system would pay for it four times as often.
#[tokio::test(start_paused = true)]
async fn what_no_limit_waits_for_is_gone_through_once_a_second() {
    let world = World::new();
    let everything = || -> Vec<bool> { rules(&world).iter().map(|one| one.everything).collect() };
    let mut reaper = reaper(&world);
    reap_for(&mut reaper, ms(1_500)).await;
    assert_eq!(everything(), [true, false, false, false, true, false]);
    // Until nothing of it is left.
    let limit = u32::try_from(MAX_ROWS).unwrap();
    world.store.reap.answers(move |_| {
        Ok(Reaped {
            expired: limit,
            ..Reaped::default()
        })
    });
    reap_for(&mut reaper, Duration::from_secs(1)).await;
    assert_eq!(everything()[6..], [false, false, true, true]);
    world.store.reap.answers(|_| Ok(Reaped::default()));
    reap_for(&mut reaper, ms(500)).await;
    assert_eq!(everything()[10..], [true, false]);
    // While there is any, little at a time.
    world.store.reap.answers(|_| {
        Ok(Reaped {
            cancelled: 1,
            ..Reaped::default()
        })
    });
    reap_for(&mut reaper, ms(1_250)).await;
    assert_eq!(everything()[12..], [false, false, true, true, true]);
}

/// Parts of the pass were committed before the store went away.
#[tokio::test(start_paused = true)]
async fn what_was_freed_before_the_store_went_away_is_woken() {
    let world = World::new();
    let mut reaper = reaper(&world);
    reap_for(&mut reaper, Duration::from_secs(7)).await;
    let limit = u32::try_from(MAX_ROWS).unwrap();
    world.store.reap.answers(move |_| {
        Ok(Reaped {
            expired_permits: limit,
            wakes: vec![Wake::now(destination(1))],
            cut_short: Some("away".to_owned()),
            ..Reaped::default()
        })
    });
    let is_more_left = reaper.tick().await;
    assert!(!is_more_left, "it is away");
    assert_eq!(world.journal.woken(), [Wake::unblocked(destination(1))]);
    world.store.reap.answers(|_| Ok(Reaped::default()));
    reap_for(&mut reaper, ms(250)).await;
    assert!(was_patient(&world), "heartbeats may not have got through");
}

/// The store was there: what a part waited for is no stall, and workers could say
/// that they live.
#[tokio::test(start_paused = true)]
async fn a_part_that_is_put_off_costs_no_patience() {
    let world = World::new();
    let mut reaper = reaper(&world);
    world.store.reap.answers(move |_| {
        let put_off = PutOff {
            part: "idempotency keys",
            problem: "canceling statement due to statement timeout".to_owned(),
        };
        Ok(Reaped {
            put_off: vec![put_off],
            ..Reaped::default()
        })
    });
    reap_for(&mut reaper, Duration::from_secs(7)).await;
    assert!(!was_patient(&world));
    sleep(ms(3_900)).await;
    reaper.tick().await;
    assert!(!was_patient(&world), "a second of it went into that part");
    sleep(ms(4_100)).await;
    reaper.tick().await;
    assert!(was_patient(&world));
}
