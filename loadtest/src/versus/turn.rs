//! One turn of one side: it is warmed up, filled, let go and watched.

use std::time::Duration;

use anyhow::ensure;
use tokio::time::{Instant, sleep};

use super::judging::{Drained, Limited, RECEIVER, between};
use super::side::Side;
use crate::chaos::boottime_us;
use crate::run::processes::{Watched, look};
use crate::run::receiving::Receiving;
use crate::run::settings::{Limit, Settings};

/// Between two looks.
const TICK: Duration = Duration::from_millis(20);

/// How long the last outcomes may take to be recorded.
const LAST_OUTCOMES: Duration = Duration::from_secs(30);

/// The last batch of outcomes is on its way.
const AFTER_THE_LAST: Duration = Duration::from_millis(200);

/// How long after the time that is judged the receiver is asked.
const SPARE: Duration = Duration::from_millis(100);

/// What a turn is made of.
pub(super) struct Turn<'a> {
    pub(super) side: &'a mut dyn Side,
    pub(super) receiving: &'a mut Receiving,
    pub(super) settings: &'a Settings,
    /// Events of the warming up.
    pub(super) warm_up: u32,
    /// How long the events of one filling may take to arrive.
    pub(super) patience: Duration,
}

impl Turn<'_> {
    /// How fast everything arrives that waited, and what that costs.
    pub(super) async fn drain(&mut self) -> anyhow::Result<Drained> {
        self.warm_up().await?;
        self.side.fill(self.settings).await?;
        let watched = self.watched();
        let before = look(&watched);
        let began_us = boottime_us();
        self.side.go().await?;
        self.wait_for(self.settings.events).await?;
        self.wait_for_outcomes().await?;
        let used = between(&before, &look(&watched))?;
        let seen = self.receiving.seen().await?;
        Drained::new((self.settings.events, began_us), &seen, &used)
    }

    /// How well a limit is kept and used, while a backlog waits behind it.
    pub(super) async fn limit(&mut self, seconds: u32) -> anyhow::Result<Limited> {
        self.warm_up().await?;
        if let Limit::Per(_, period) = self.settings.limit {
            // What was for warming up counts no more.
            sleep(period.duration()).await;
        }
        self.side.fill(self.settings).await?;
        self.side.go().await?;
        self.wait_for(1).await?;
        sleep(Duration::from_secs(seconds.into()) + SPARE).await;
        let seen = self.receiving.seen().await?;
        Limited::new(self.settings, seconds, seen)
    }

    /// Ends with nothing waiting, and holding.
    async fn warm_up(&mut self) -> anyhow::Result<()> {
        let warming = Settings {
            events: self.warm_up,
            ..self.settings.clone()
        };
        self.side.hold().await?;
        self.side.fill(&warming).await?;
        self.side.go().await?;
        self.wait_for(warming.events).await?;
        self.wait_for_outcomes().await?;
        self.side.hold().await?;
        self.receiving.forget().await
    }

    fn watched(&self) -> Vec<Watched> {
        let receiver = self.receiving.process();
        let receiver = receiver.map(|process| Watched::tree(RECEIVER, process));
        self.side.watched().into_iter().chain(receiver).collect()
    }

    async fn wait_for(&mut self, events: u32) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let taken = self.receiving.count().await?.taken;
            if taken >= u64::from(events) {
                return Ok(());
            }
            ensure!(
                began.elapsed() < self.patience,
                "{taken} of {events} events arrived within {:?}",
                self.patience
            );
            sleep(TICK).await;
        }
    }

    /// So that what recording costs is counted.
    async fn wait_for_outcomes(&mut self) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let left = self.side.left().await?;
            if left == 0 {
                sleep(AFTER_THE_LAST).await;
                return Ok(());
            }
            ensure!(
                began.elapsed() < LAST_OUTCOMES,
                "{left} deliveries that have arrived are not recorded after {LAST_OUTCOMES:?}"
            );
            sleep(TICK).await;
        }
    }
}
