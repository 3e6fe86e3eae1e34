//! What owners do to their destinations in the middle of it all.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context;
use domain::ids::{DestinationId, ReplayId, TenantId};
use engine::ports::{CancelFrom, CancelStep, CatalogError, DeadLetterFilter, NewReplay, Which};
use tokio::time::sleep;
use uuid::Uuid;

use super::{Scene, Target};
use crate::chaos::fault::Fault;
use crate::chaos::secrets::Rotation;

/// Rows that one step of cancelling looks at: few, so that there are many steps.
const CANCEL_STEP: u32 = 20;

/// Destinations that one step of replaying looks at.
const REPLAYS_AT_ONCE: u32 = 20;

/// Before a store that is away is asked again.
const AWAY: Duration = Duration::from_millis(200);

/// How old events may become while they may not become old: less than many wait.
const SHORT_AGE_MS: &str = "1500";

impl Scene {
    pub(super) async fn change_limit(
        &self,
        fault: Fault,
        number: u32,
        percent: u32,
    ) -> anyhow::Result<()> {
        let Target { id, limit, .. } = self.destination(number)?;
        let limit = limit.context("no limit per second")? * percent / 100;
        self.begun(fault)?;
        self.set_limit(id, limit.max(1)).await
    }

    pub(super) async fn rotate(
        &self,
        fault: Fault,
        number: u32,
        overlap: Duration,
    ) -> anyhow::Result<()> {
        let Target { tenant, id, .. } = self.destination(number)?;
        let owner = self.tenants.iter().find(|one| one.id == tenant);
        let rotation = Rotation {
            number,
            tenant,
            destination: id,
            overlap,
            key: owner.context("no such tenant")?.key.clone(),
        };
        let apis = self.processes.apis();
        let store = &*self.secret_store;
        self.secrets.rotate(&apis, store, &rotation).await?;
        self.begun(fault)
    }

    pub(super) async fn set_limit(&self, id: DestinationId, limit: u32) -> anyhow::Result<()> {
        let sql = format!("update destinations set limit_per_second = {limit} where id = '{id}'");
        self.servers.sql(&sql).await
    }

    pub(super) async fn pause(
        &self,
        fault: Fault,
        number: u32,
        length: Duration,
    ) -> anyhow::Result<()> {
        let id = self.destination(number)?.id;
        let state = |state| format!("update destinations set state = '{state}' where id = '{id}'");
        self.begun(fault)?;
        self.servers.sql(&state("paused")).await?;
        sleep(length).await;
        self.servers.sql(&state("active")).await
    }

    pub(super) async fn delete(&self, fault: Fault, number: u32) -> anyhow::Result<()> {
        let Target { tenant, id, .. } = self.destination(number)?;
        self.begun(fault)?;
        loop {
            match self.catalog.delete_destination(tenant, id).await {
                Ok(()) | Err(CatalogError::NotFound(_)) => return Ok(()),
                Err(_away) => sleep(AWAY).await,
            }
        }
    }

    pub(super) async fn cancel(&self, fault: Fault, number: u32) -> anyhow::Result<()> {
        let Target { tenant, id, .. } = self.destination(number)?;
        let mut step = CancelStep {
            destination: id,
            event_type: None,
            accepted_before: None,
            from: CancelFrom::BEGIN,
            limit: CANCEL_STEP,
        };
        self.begun(fault)?;
        loop {
            match self.backlog.cancel_step(tenant, &step).await {
                Ok(done) => {
                    step.accepted_before = Some(done.accepted_before);
                    let Some(next) = done.next else {
                        return Ok(());
                    };
                    step.from = next;
                }
                Err(CatalogError::NotFound(_)) => return Ok(()),
                Err(_away) => sleep(AWAY).await,
            }
        }
    }

    pub(super) async fn shorten_age(
        &self,
        fault: Fault,
        number: u32,
        length: Duration,
    ) -> anyhow::Result<()> {
        let id = self.destination(number)?.id;
        let age =
            |age: &str| format!("update destinations set max_age_ms = {age} where id = '{id}'");
        self.begun(fault)?;
        self.servers.sql(&age(SHORT_AGE_MS)).await?;
        sleep(length).await;
        self.servers.sql(&age("null")).await
    }

    pub(super) async fn replay(&self, fault: Fault) -> anyhow::Result<()> {
        self.begun(fault)?;
        for tenant in &self.tenants {
            self.replay_all_of(tenant.id).await;
        }
        Ok(())
    }

    async fn replay_all_of(&self, tenant: TenantId) {
        let (any, mut after) = (DeadLetterFilter::default(), None);
        loop {
            let page =
                self.backlog
                    .destinations_with_dead_letters(tenant, &any, after, REPLAYS_AT_ONCE);
            let Ok(page) = page.await else {
                sleep(AWAY).await;
                continue;
            };
            for destination in page.destinations {
                self.replay_one(tenant, destination).await;
            }
            after = page.next;
            if after.is_none() {
                return;
            }
        }
    }

    async fn replay_one(&self, tenant: TenantId, destination: DestinationId) {
        let number = self.replays.fetch_add(1, Ordering::Relaxed) + 1;
        let new = NewReplay {
            id: ReplayId(Uuid::from_u128(u128::from(number))),
            which: Which::Matching(destination, DeadLetterFilter::default()),
            share: 1.0,
        };
        // That it is there already says that the answer was lost.
        while let Err(CatalogError::Store(_)) = self.backlog.create_replay(tenant, &new).await {
            sleep(AWAY).await;
        }
    }
}
