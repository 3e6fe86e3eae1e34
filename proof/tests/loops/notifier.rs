//! The notifier: the watch, the relay to its end, and what is old.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use domain::notices::KEPT;
use engine::notifier::{Notifier, NotifierOptions};
use engine::ports::{Operations, RelayedOperations, StoreError, Wake, WatchRules, Watched};

use crate::support::{Event, World, destination, ms, settle, store_away};

/// Answers the relay by a script, then says that there is nothing.
#[derive(Default)]
struct FakeOperations {
    answers: Mutex<Vec<Result<RelayedOperations, StoreError>>>,
    asked: Mutex<Vec<&'static str>>,
    /// What comes of the next steps of the watch, the last one first.
    watched: Mutex<Vec<Watched>>,
}

impl FakeOperations {
    fn note(&self, what: &'static str) {
        self.asked.lock().unwrap().push(what);
    }

    fn asked(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

#[async_trait]
impl Operations for FakeOperations {
    async fn relay_operational_events(&self, limit: u32) -> Result<RelayedOperations, StoreError> {
        assert_eq!(limit, 2);
        self.note("relay");
        let mut answers = self.answers.lock().unwrap();
        match answers.is_empty() {
            true => Ok(RelayedOperations::default()),
            false => answers.remove(0),
        }
    }

    async fn watch(&self, _rules: &WatchRules) -> Result<Watched, StoreError> {
        self.note("watch");
        self.watched.lock().unwrap().pop().ok_or_else(store_away)
    }

    async fn trim_operational_events(&self, kept: Duration, limit: u32) -> Result<u32, StoreError> {
        assert_eq!((kept, limit), (ms(5), 7));
        self.note("trim");
        Ok(0)
    }

    async fn drop_notices(&self, kept: Duration, limit: u32) -> Result<u32, StoreError> {
        assert_eq!((kept, limit), (KEPT, 1_000));
        self.note("drop");
        Ok(0)
    }
}

fn relayed(relayed: u32, of: &[u128]) -> Result<RelayedOperations, StoreError> {
    Ok(RelayedOperations {
        relayed,
        more: relayed == 2,
        accepted: relayed,
        destinations: of.iter().map(|number| destination(*number)).collect(),
    })
}

#[tokio::test(start_paused = true)]
async fn a_tick_relays_all_there_is_and_wakes_whom_it_is_for() {
    let world = World::new();
    let operations = Arc::new(FakeOperations::default());
    *operations.answers.lock().unwrap() = vec![
        relayed(2, &[4, 5]),
        relayed(1, &[4]),
        Err(store_away()),
        relayed(1, &[]),
    ];
    let options = NotifierOptions {
        every: ms(1_000),
        batch: 2,
        batches: 10,
        watch: WatchRules::default(),
        kept: ms(5),
        trimmed: 7,
        ..NotifierOptions::default()
    };
    let notifier = Notifier::new(operations.clone(), world.schedule.clone(), options);
    let running = tokio::spawn(notifier.run(world.shutdown.clone()));
    settle().await;
    // A watch that fails holds up nothing, and a full batch is followed at once.
    assert_eq!(operations.asked(), ["watch", "relay", "relay", "trim"]);
    settle().await;
    assert!(
        operations.asked().is_empty(),
        "the next tick is a second later"
    );
    for _ in 0..2 {
        tokio::time::sleep(ms(1_001)).await;
        settle().await;
        assert_eq!(operations.asked(), ["watch", "relay", "trim"]);
    }
    world.shutdown.cancel();
    running.await.unwrap();
    let wakes = world.journal.pick(|event| match event {
        Event::Wake(wakes) => Some(wakes),
        _ => None,
    });
    let wake = |number| Wake::now(destination(number));
    assert_eq!(wakes, [vec![wake(4), wake(5)], vec![wake(4)]]);
}

/// In one process, and not each second.
#[tokio::test]
async fn old_notices_go_once_in_a_round_of_the_watch() {
    let world = World::new();
    let operations = Arc::new(FakeOperations::default());
    let step = |stepped, more| Watched {
        stepped,
        more,
        ..Watched::default()
    };
    *operations.watched.lock().unwrap() =
        vec![step(true, false), step(false, false), step(true, true)];
    let options = NotifierOptions::default();
    let notifier = Notifier::new(operations.clone(), world.schedule.clone(), options);
    for asked in [&["watch"][..], &["watch"], &["watch", "drop"]] {
        notifier.watch().await.unwrap();
        assert_eq!(operations.asked(), asked);
    }
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_news_does_not_keep_the_rest_of_the_round() {
    let world = World::new();
    let operations = Arc::new(FakeOperations::default());
    *operations.answers.lock().unwrap() = (0..5).map(|_| relayed(2, &[])).collect();
    let options = NotifierOptions {
        batch: 2,
        batches: 3,
        kept: ms(5),
        trimmed: 7,
        ..NotifierOptions::default()
    };
    let notifier = Notifier::new(operations.clone(), world.schedule.clone(), options);
    notifier.tick().await;
    let first = ["watch", "relay", "relay", "relay", "trim"];
    assert_eq!(operations.asked(), first);
    notifier.tick().await;
    assert_eq!(
        operations.asked(),
        first,
        "two of them, and one that finds nothing"
    );
}
