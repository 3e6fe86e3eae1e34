//! Our side: a Paceline of its own for each turn, which is led over its API.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Context, ensure};
use async_trait::async_trait;
use server::parts::Stored;

use super::side::Side;
use crate::run::client::Target;
use crate::run::judging;
use crate::run::loading::Loading;
use crate::run::processes::Watched;
use crate::run::setting_up::{self, Made};
use crate::run::settings::Settings;
use crate::run::shapes;
use crate::run::system::{Start, System};

/// Connections that events are handed in by.
const CONNECTIONS: u32 = 64;

/// A Paceline with its destinations.
pub(super) struct Paceline {
    system: System,
    made: Made,
    stored: Arc<dyn Stored>,
}

impl Paceline {
    pub(super) async fn start(
        start: Start,
        settings: &Settings,
        urls: &[String],
    ) -> anyhow::Result<Self> {
        let system = System::start(start).await?;
        match set_up(&system, settings, urls).await {
            Ok((made, stored)) => Ok(Self {
                system,
                made,
                stored,
            }),
            Err(error) => {
                system.remove().await?;
                Err(error)
            }
        }
    }
}

async fn set_up(
    system: &System,
    settings: &Settings,
    urls: &[String],
) -> anyhow::Result<(Made, Arc<dyn Stored>)> {
    let url = |number: u32| urls[number as usize].clone();
    let made = setting_up::make(system, settings, url).await?;
    let store = system.store.as_ref().context("its database is not known")?;
    Ok((made, server::parts::open_to_read(store).await?))
}

#[async_trait]
impl Side for Paceline {
    async fn hold(&mut self) -> anyhow::Result<()> {
        setting_up::hold(&self.system, &self.made).await
    }

    async fn fill(&mut self, settings: &Settings) -> anyhow::Result<()> {
        let bearer = |key: &String| format!("Bearer {key}");
        let target = Target {
            addresses: self.system.addresses.clone(),
            destinations: self.made.destinations.clone(),
            keys: self.made.keys.iter().map(bearer).collect(),
            payload_bytes: settings.payload_bytes,
            ingest: settings.ingest,
            connections: CONNECTIONS,
        };
        let loading = Loading::start(target, shapes::steps(settings)).await?;
        loading.done.cancelled().await;
        let accepted = loading.tally.accepted.load(Ordering::Relaxed);
        let loaded = loading.finish().await?;
        let (events, refusals) = (settings.events, loaded.refusals);
        ensure!(
            accepted == u64::from(events),
            "Paceline took {accepted} of {events} events; refused: {refusals:?}"
        );
        Ok(())
    }

    async fn go(&mut self) -> anyhow::Result<()> {
        setting_up::release(&self.system, &self.made).await
    }

    async fn left(&mut self) -> anyhow::Result<u64> {
        self.system.check()?;
        judging::pending(self.stored.as_ref(), &self.made.destinations).await
    }

    fn watched(&self) -> Vec<Watched> {
        self.system.watched.clone()
    }

    async fn remove(self: Box<Self>) -> anyhow::Result<()> {
        drop(self.stored);
        self.system.remove().await
    }
}
