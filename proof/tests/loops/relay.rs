//! The relay: lane after lane, and a wake for what became an event.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use engine::ports::{Lane, Outbox, Relayed, StoreError, Wake};
use engine::relay::{Relay, RelayOptions};
use tokio::sync::Notify;

use crate::support::{Event, World, destination, ms, settle, store_away};

/// An outbox that answers by a script, then says that it is empty.
#[derive(Default)]
struct FakeOutbox {
    answers: Mutex<Vec<Result<Relayed, StoreError>>>,
    asked: Mutex<Vec<(Lane, u32)>>,
    inserted: Notify,
}

#[async_trait]
impl Outbox for FakeOutbox {
    async fn relay(&self, after: Lane, limit: u32) -> Result<Relayed, StoreError> {
        self.asked.lock().unwrap().push((after, limit));
        let mut answers = self.answers.lock().unwrap();
        match answers.is_empty() {
            true => Ok(Relayed::default()),
            false => answers.remove(0),
        }
    }

    async fn inserted(&self) {
        self.inserted.notified().await;
    }
}

fn relayed(lane: u16, accepted: u32, rejected: u32) -> Result<Relayed, StoreError> {
    Ok(Relayed {
        lane: Some(Lane(lane)),
        accepted,
        rejected,
        destinations: (0..accepted).map(|n| destination(n.into())).collect(),
    })
}

#[tokio::test(start_paused = true)]
async fn lanes_follow_each_other_until_all_are_empty() {
    let world = World::new();
    let outbox = Arc::new(FakeOutbox::default());
    *outbox.answers.lock().unwrap() = vec![
        relayed(3, 2, 1),
        Err(store_away()),
        relayed(5, 0, 1),
        relayed(9, 0, 0),
        relayed(9, 1, 0),
    ];
    let options = RelayOptions {
        every: ms(1_000),
        batch: 7,
    };
    let relay = Relay::new(outbox.clone(), world.schedule.clone(), options);
    let running = tokio::spawn(relay.run(world.shutdown.clone()));
    let asked = |outbox: &FakeOutbox| -> Vec<u16> {
        let asked = outbox.asked.lock().unwrap();
        assert!(asked.iter().all(|(_, limit)| *limit == 7));
        asked.iter().map(|(lane, _)| lane.0).collect()
    };
    settle().await;
    assert_eq!(asked(&outbox), [0, 3], "a store that is away is left alone");
    outbox.inserted.notify_one();
    settle().await;
    assert_eq!(
        asked(&outbox),
        [0, 3, 3, 5],
        "rows that are all held: later"
    );
    tokio::time::sleep(ms(1_001)).await;
    settle().await;
    assert_eq!(asked(&outbox), [0, 3, 3, 5, 9, 9]);
    world.shutdown.cancel();
    running.await.unwrap();
    let wakes = world.journal.pick(|event| match event {
        Event::Wake(wakes) => Some(wakes),
        _ => None,
    });
    let wake = |n| Wake::now(destination(n));
    assert_eq!(wakes, [vec![wake(0), wake(1)], vec![wake(0)]]);
}
