//! The course of a run: warm up, load, change something half-way, drain.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::judging;
use super::loading::Loading;
use super::measuring::Run;
use super::processes::{Used, look};
use super::progress::Progress;
use super::receiver::Count;
use super::report::{Ended, number};
use super::setting_up;
use super::settings::{Settings, Shape};
use super::shapes;
use super::system::{ANY_ADDRESS, System};
use crate::chaos::boottime_us;

/// Between two looks.
const TICK: Duration = Duration::from_secs(1);

/// While draining, between two looks: how exactly the end is known.
const DRAIN_TICK: Duration = Duration::from_millis(50);

/// How long the last outcomes may take to be recorded.
const LAST_OUTCOMES: Duration = Duration::from_secs(5);

/// What there was to see.
struct Looked {
    count: Count,
    /// What each process has used so far.
    used: BTreeMap<String, Used>,
}

impl Run<'_> {
    /// Sends an even rate for a while, waits for its deliveries, and forgets.
    pub(super) async fn warm_up(
        &mut self,
        system: &mut System,
        shutdown: &CancellationToken,
    ) -> anyhow::Result<()> {
        if self.wishes.warm_up_seconds == 0 {
            return Ok(());
        }
        let warming = Settings {
            shape: Shape::Constant,
            seconds: self.wishes.warm_up_seconds,
            ..self.settings.clone()
        };
        let loading = Loading::start(self.target(system), shapes::steps(&warming)).await?;
        let loaded = self.load(system, &loading, shutdown).await;
        let drained = match loaded {
            Ok(()) => self.drain(system, &loading, shutdown).await.map(drop),
            Err(error) => Err(error),
        };
        loading.finish().await?;
        self.peaks.clear();
        self.progress = Progress::default();
        self.receiving.forget().await?;
        drained
    }

    /// Watches until the last answer is there.
    pub(super) async fn load(
        &mut self,
        system: &mut System,
        loading: &Loading,
        shutdown: &CancellationToken,
    ) -> anyhow::Result<()> {
        let began = Instant::now();
        let half = Duration::from_secs(self.settings.seconds.into()) / 2;
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => {
                    loading.stop();
                    loading.done.cancelled().await;
                    return Ok(());
                }
                () = loading.done.cancelled() => return Ok(()),
                _ = ticks.tick() => {}
            }
            let looked = self.look_around(system, loading).await?;
            if self.measured {
                let over = began.elapsed().as_secs_f64() / f64::from(self.settings.seconds);
                self.growth.note(over, &looked.used);
            }
            if self.measured && !self.changed && began.elapsed() >= half {
                self.changed = true;
                self.change(system, began).await?;
            }
        }
    }

    /// What a shape does half-way.
    async fn change(&mut self, system: &mut System, began: Instant) -> anyhow::Result<()> {
        let what = match (self.settings.shape, self.settings.then()) {
            (Shape::LimitChange, Some(limit)) => {
                let by = self.wishes.change_by;
                setting_up::change_limit(system, &self.made, limit, by).await?;
                format!("every limit was changed to {limit}")
            }
            (Shape::ScaleOut, _) => {
                system.add("scheduler", ANY_ADDRESS)?;
                system.add("worker", ANY_ADDRESS)?;
                "one more scheduler and worker were started".to_owned()
            }
            _ => return Ok(()),
        };
        let at = number(began.elapsed().as_secs_f64());
        self.note(format!("{what}, by {at} s"));
        Ok(())
    }

    async fn look_around(
        &mut self,
        system: &mut System,
        loading: &Loading,
    ) -> anyhow::Result<Looked> {
        system.check()?;
        let used = look(&self.watched(system, Some(loading)));
        for (name, used) in &used {
            let peak = self.peaks.entry(name.clone()).or_default();
            *peak = peak.max(used.resident_mib);
        }
        let count = self.receiving.tick().await?;
        let accepted = loading.tally.accepted.load(Ordering::Relaxed);
        let elapsed_us = boottime_us() - loading.began_us;
        let line = self.progress.line(elapsed_us, accepted, count);
        writeln!(std::io::stderr().lock(), "{line}").context("show the progress")?;
        Ok(Looked { count, used })
    }

    /// Waits until what was accepted has arrived and its outcome is recorded.
    pub(super) async fn drain(
        &mut self,
        system: &mut System,
        loading: &Loading,
        shutdown: &CancellationToken,
    ) -> anyhow::Result<Ended> {
        let began = Instant::now();
        let mut shown = began;
        let accepted = loading.tally.accepted.load(Ordering::Relaxed);
        loop {
            if shutdown.is_cancelled() {
                return Ok(Ended::Interrupted);
            }
            let taken = if shown.elapsed() >= TICK {
                shown = Instant::now();
                self.look_around(system, loading).await?.count.taken
            } else {
                self.receiving.count().await?.taken
            };
            if taken >= accepted {
                self.wait_for_outcomes(began).await?;
                self.look_around(system, loading).await?;
                return Ok(Ended::Drained);
            }
            if began.elapsed() > self.wishes.patience {
                return Ok(Ended::Undrained);
            }
            tokio::time::sleep(DRAIN_TICK).await;
        }
    }

    /// So that what recording costs is counted.
    async fn wait_for_outcomes(&self, began: Instant) -> anyhow::Result<()> {
        let Some(stored) = &self.stored else {
            return Ok(());
        };
        let patience = began.elapsed() + LAST_OUTCOMES;
        while judging::pending(stored.as_ref(), &self.made.destinations).await? > 0 {
            if began.elapsed() > patience {
                break;
            }
            tokio::time::sleep(DRAIN_TICK).await;
        }
        // The last batch of outcomes is on its way.
        tokio::time::sleep(DRAIN_TICK * 4).await;
        Ok(())
    }
}
