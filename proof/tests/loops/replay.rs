//! Replays: step after step while one runs, and patience while none does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use engine::ports::{Advanced, Replays, StoreError, Wake};
use engine::replay::{ReplayLoop, ReplayOptions};
use tokio_util::sync::CancellationToken;

use crate::support::{Event, World, destination, ms, store_away};

/// A replay of so many dead letters, one in a step; away after them.
struct Few {
    left: AtomicU32,
    steps: AtomicU32,
    then_away: bool,
}

impl Few {
    fn new(left: u32, then_away: bool) -> Arc<Self> {
        Arc::new(Self {
            left: AtomicU32::new(left),
            steps: AtomicU32::new(0),
            then_away,
        })
    }
}

#[async_trait]
impl Replays for Few {
    async fn advance_replays(&self, limit: u32) -> Result<Advanced, StoreError> {
        assert_eq!(limit, ReplayOptions::default().batch);
        self.steps.fetch_add(1, Ordering::Relaxed);
        let left = self.left.load(Ordering::Relaxed);
        if left == 0 {
            return match self.then_away {
                true => Err(store_away()),
                false => Ok(Advanced::default()),
            };
        }
        self.left.store(left - 1, Ordering::Relaxed);
        Ok(Advanced {
            replayed: 1,
            resent: 0,
            running: u32::from(left > 1),
            wakes: vec![Wake::now(destination(1))],
        })
    }
}

fn replay(world: &World, few: &Arc<Few>) -> ReplayLoop {
    let options = ReplayOptions::default();
    ReplayLoop::new(few.clone(), world.schedule.clone(), options)
}

#[tokio::test(start_paused = true)]
async fn it_goes_on_while_one_runs_and_wakes_whom_it_gave_work() {
    let world = World::new();
    let few = Few::new(2, false);
    let mut replay = replay(&world, &few);
    let options = ReplayOptions::default();
    assert_eq!(replay.tick().await, options.every);
    assert_eq!(replay.tick().await, options.idle);
    assert_eq!(replay.tick().await, options.idle);
    let woken = world.journal.pick(|event| match event {
        Event::Wake(wakes) => Some(wakes),
        _ => None,
    });
    let wakes: Vec<Wake> = woken.into_iter().flatten().collect();
    assert_eq!(wakes, [Wake::now(destination(1)); 2]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_is_asked_again_ever_less_often() {
    let world = World::new();
    let few = Few::new(0, true);
    let mut replay = replay(&world, &few);
    let pauses = [
        replay.tick().await,
        replay.tick().await,
        replay.tick().await,
    ];
    assert_eq!(pauses, [ms(100), ms(200), ms(400)]);
}

#[tokio::test(start_paused = true)]
async fn it_ends_when_it_is_told_to() {
    let world = World::new();
    let few = Few::new(0, false);
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(replay(&world, &few).run(shutdown.clone()));
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    shutdown.cancel();
    running.await.unwrap();
    assert_eq!(few.steps.load(Ordering::Relaxed), 3, "once a second");
}
