//! What operators must know, on its way.

use std::time::Duration;

use async_trait::async_trait;
use domain::event::{Audience, DEFAULT_CONTENT_TYPE, NewEvent, Timing};
use domain::ids::{DestinationId, EventId};
use domain::operations::{OperationalEvent, payload};
use engine::ports::{
    DEFAULT_TENANT, Operations, RelayedOperations, Store as _, StoreError, WatchRules, Watched,
};
use uuid::Uuid;

use super::{FaultyStore, short};
use crate::sabotage::Sabotage;
use crate::site::Site;

/// Who is to be told of this as things stand: all that take events, but news
/// about one of them only those that were registered before it.
fn expected(told: &[(DestinationId, bool)], news: &OperationalEvent) -> Vec<DestinationId> {
    let about = told
        .iter()
        .position(|(one, _)| Some(*one) == news.destination);
    let before = &told[..about.unwrap_or(told.len())];
    let takes = before.iter().filter(|(_, takes)| *takes);
    takes.map(|(one, _)| *one).collect()
}

/// The event that a relay makes, under an id that none makes.
fn again(news: &OperationalEvent, to: DestinationId) -> NewEvent {
    let number = u128::from(news.id.unsigned_abs());
    NewEvent {
        id: EventId(Uuid::from_u128(0xF << 124 | number << 64 | short(to) << 32)),
        tenant: DEFAULT_TENANT,
        audience: Audience::Destination(to),
        event_type: None,
        content_type: DEFAULT_CONTENT_TYPE.to_owned(),
        payload: payload(news).into(),
        idempotency: None,
        trace: None,
        timing: Timing::default(),
    }
}

impl FaultyStore {
    async fn relay(&self, limit: u32) -> Result<RelayedOperations, StoreError> {
        let told = self.inner.told();
        let before: Vec<_> = (self.inner.news_to_relay().into_iter())
            .map(|one| {
                let to = expected(&told, &one);
                (one, to)
            })
            .collect();
        let relaying = self.inner.shipped().relay_operational_events(limit);
        let relayed = self.noting_what_comes(relaying).await?;
        let counts = &self.gate.around.counts;
        for (news, to) in before.into_iter().take(relayed.relayed as usize) {
            counts.note("news relayed");
            counts.add("operational event told", to.len() as u64);
            if self.gate.has(Sabotage::TellsTwice) {
                let events: Vec<_> = to.iter().map(|to| again(&news, *to)).collect();
                self.inner.accept_events(&events).await?;
            }
            let (about, told) = (about(news.destination), to.len());
            let line = format_args!("{} of {about} to {told}", news.event_type);
            self.line(Site::RelayNews, line);
            self.witness.told(news.id, to);
        }
        Ok(relayed)
    }

    async fn look(&self, rules: &WatchRules) -> Result<Watched, StoreError> {
        if self.gate.has(Sabotage::NeverEndsAlerts) && self.inner.alerts() > 0 {
            return Ok(Watched::default());
        }
        let watched = self.inner.shipped().watch(rules).await?;
        for told in &watched.news {
            let what = match told.news.event_type.is_good() {
                true => "alert ended",
                false => "alert raised",
            };
            self.gate.around.counts.note(what);
            let about = about(told.destination);
            let line = format_args!("{about} {}", told.news.event_type.as_str());
            self.line(Site::Watch, line);
        }
        Ok(watched)
    }
}

fn about(destination: Option<DestinationId>) -> String {
    destination.map_or("a tenant".to_owned(), |id| short(id).to_string())
}

#[async_trait]
impl Operations for FaultyStore {
    async fn relay_operational_events(&self, limit: u32) -> Result<RelayedOperations, StoreError> {
        self.call(Site::RelayNews, |store, _| async move {
            store.relay(limit).await
        })
        .await
    }

    async fn watch(&self, rules: &WatchRules) -> Result<Watched, StoreError> {
        let rules = *rules;
        self.call(
            Site::Watch,
            |store, _| async move { store.look(&rules).await },
        )
        .await
    }

    async fn trim_operational_events(&self, kept: Duration, limit: u32) -> Result<u32, StoreError> {
        self.call(Site::TrimNews, |store, _| async move {
            store
                .inner
                .shipped()
                .trim_operational_events(kept, limit)
                .await
        })
        .await
    }

    async fn drop_notices(&self, kept: Duration, limit: u32) -> Result<u32, StoreError> {
        self.call(Site::DropNotices, |store, _| async move {
            store.inner.shipped().drop_notices(kept, limit).await
        })
        .await
    }
}
