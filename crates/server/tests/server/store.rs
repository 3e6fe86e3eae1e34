//! A store in memory with the little that the API needs: it keeps what it is
//! given and starts nothing.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use async_trait::async_trait;
use domain::attempt::AttemptState;
use domain::ceiling::Ceiling;
use domain::compliance::Start;
use domain::destination::DestinationState;
use domain::event::{Audience, MAX_DESTINATIONS, NewEvent, is_subscribed};
use domain::external_id::ExternalId;
use domain::filter::Content;
use domain::handshake::{Handshake, Standing};
use domain::health::{BreakerSettings, FAILING_PERCENT, Health};
use domain::ids::{AttemptId, DestinationId, EventId, SecretId, TenantId};
use domain::limit_group::{GroupLimits, GroupName};
use domain::policy::LimitSettings;
use domain::response_headers::ResponseHeaders;
use domain::smart::{Reason, SmartDelivery};
use domain::time::Timestamp;
use engine::ports::{
    Acceptance, AttemptView, BreakerChange, Catalog, CatalogError, Destination, DestinationChange,
    EventSummary, GroupPast, HandshakeBook, HandshakeView, HealthBook, HealthView, LedgerPosition,
    LedgerRow, LimitGroup, LimitGroups, LimitHistory, Managed, NewDestination, NewSecret,
    OperationalEvent, Resealed, SealedKind, SealedSecret, Secret, SecretStore, Shown, SingleChange,
    SmartBook, SmartChange, SmartView, StoreError, StoreLayer,
};

use crate::world::NOON;

#[derive(Default)]
pub(crate) struct FakeStore(Mutex<State>);

#[derive(Default)]
pub(crate) struct State {
    pub(crate) destinations: Vec<Destination>,
    pub(crate) events: Vec<NewEvent>,
    pub(crate) attempts: Vec<AttemptView>,
    pub(crate) health: HashMap<DestinationId, Health>,
    pub(crate) breakers: HashMap<DestinationId, BreakerSettings>,
    /// Those with smart delivery; their history has the newest last.
    pub(crate) smart: HashMap<DestinationId, Vec<SmartChange>>,
    pub(crate) secrets: Vec<(NewSecret, Secret)>,
    /// Every call fails.
    pub(crate) away: bool,
}

const TIER: LimitSettings = LimitSettings {
    per_second: Some(5),
    ..LimitSettings::EXACT
};

impl FakeStore {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn up(&self) -> Result<MutexGuard<'_, State>, StoreError> {
        let state = self.state();
        if state.away {
            return Err(StoreError::Unavailable("away".to_owned()));
        }
        Ok(state)
    }
}

impl State {
    fn accept(&mut self, event: &NewEvent) -> Acceptance {
        let wanted = |destination: &&Destination| match event.audience {
            Audience::Destination(id) => destination.id == id,
            Audience::Subscribers | Audience::SomeSubscriber => {
                let event_type = event.event_type.as_deref().unwrap_or_default();
                let content = Content::of(&event.content_type, &event.payload);
                let mut types = destination.event_types.iter();
                types.any(|types| is_subscribed(types, event_type))
                    && (destination.filter.iter()).all(|filter| filter.takes(&content))
            }
        };
        let found: Vec<&Destination> = self.destinations.iter().filter(wanted).collect();
        if let Audience::Destination(_) = event.audience {
            match found.first().map(|destination| destination.state) {
                None => return Acceptance::UnknownDestination,
                Some(DestinationState::Disabled) => return Acceptance::DisabledDestination,
                Some(_) => {}
            }
        }
        let ids: Vec<DestinationId> = found.iter().map(|destination| destination.id).collect();
        if ids.is_empty() && event.audience == Audience::SomeSubscriber {
            return Acceptance::NoSubscriber;
        }
        if ids.len() > MAX_DESTINATIONS {
            return Acceptance::TooManyDestinations;
        }
        if let Some(asked) = &event.idempotency {
            let same = |known: &&NewEvent| {
                (known.idempotency.as_ref()).is_some_and(|known| known.key == asked.key)
            };
            if let Some(known) = self.events.iter().find(same) {
                return match known.idempotency.as_ref() == Some(asked) {
                    false => Acceptance::KeyReused,
                    true => Acceptance::Repeated {
                        event: known.id,
                        destinations: ids,
                    },
                };
            }
        }
        self.events.push(event.clone());
        for destination in &ids {
            self.attempts.push(AttemptView {
                id: AttemptId(self.attempts.len() as i64 + 1),
                event: event.id,
                destination: *destination,
                try_number: 1,
                state: AttemptState::Waiting,
                dead_letter: false,
                created_at: NOON,
                due_at: None,
                expires_at: None,
                admitted_at: None,
                started_at: None,
                finished_at: None,
                status: None,
                error: None,
                response_body: None,
                response_headers: ResponseHeaders::default(),
                replay: None,
            });
        }
        Acceptance::Accepted(ids)
    }
}

#[async_trait]
impl Catalog for FakeStore {
    async fn create_destination(
        &self,
        tenant: TenantId,
        new: &NewDestination,
    ) -> Result<Destination, CatalogError> {
        let destination = Destination {
            external_id: new.external_id.clone(),
            id: new.id,
            tenant,
            name: new.name.clone(),
            url: new.url.clone(),
            event_types: new.event_types.clone(),
            filter: new.filter.clone(),
            state: DestinationState::Active,
            limits: new.limits,
            effective: new.limits.or_tier(&TIER),
            ceiling: Ceiling::default(),
            own_ceiling: Ceiling::of(&TIER),
            lasting_ceiling: Ceiling::of(&TIER),
            created_at: NOON,
            spread: None,
            pass_traceparent: false,
            handshake: new.handshake,
            limit_group: new.limit_group.clone(),
        };
        self.up()?.destinations.push(destination.clone());
        Ok(destination)
    }

    async fn destination(
        &self,
        _tenant: TenantId,
        id: DestinationId,
    ) -> Result<Destination, CatalogError> {
        let state = self.up()?;
        let found = state
            .destinations
            .iter()
            .find(|destination| destination.id == id);
        found.cloned().ok_or(CatalogError::NotFound("destination"))
    }

    async fn destination_called(
        &self,
        _tenant: TenantId,
        id: &ExternalId,
    ) -> Result<DestinationId, CatalogError> {
        let state = self.up()?;
        let called = |one: &&Destination| one.external_id.as_ref() == Some(id);
        let found = state.destinations.iter().find(called);
        let found = found.ok_or(CatalogError::NotFound("destination"));
        found.map(|destination| destination.id)
    }

    async fn destinations(
        &self,
        _tenant: TenantId,
        after: Option<DestinationId>,
        limit: u32,
    ) -> Result<Vec<Destination>, CatalogError> {
        let mut all = self.up()?.destinations.clone();
        all.sort_by_key(|destination| destination.id);
        all.retain(|destination| after.is_none_or(|after| destination.id > after));
        all.truncate(limit as usize);
        Ok(all)
    }

    async fn destinations_of(
        &self,
        _tenant: TenantId,
        ids: &[DestinationId],
    ) -> Result<Vec<Destination>, CatalogError> {
        let mut all = self.up()?.destinations.clone();
        all.sort_by_key(|destination| destination.id);
        all.retain(|destination| ids.contains(&destination.id));
        Ok(all)
    }

    async fn change_destination(
        &self,
        _tenant: TenantId,
        id: DestinationId,
        change: &DestinationChange,
    ) -> Result<Destination, CatalogError> {
        let mut state = self.up()?;
        let found = state
            .destinations
            .iter_mut()
            .find(|destination| destination.id == id);
        let destination = found.ok_or(CatalogError::NotFound("destination"))?;
        let change = change.clone();
        destination.name = change.name.unwrap_or_else(|| destination.name.clone());
        destination.url = change.url.unwrap_or_else(|| destination.url.clone());
        destination.state = change.state.unwrap_or(destination.state);
        destination.limits = change.limits.unwrap_or(destination.limits);
        destination.effective = destination.limits.or_tier(&TIER);
        destination.handshake = change.handshake.unwrap_or(destination.handshake);
        if let Some(event_types) = change.event_types {
            destination.event_types = event_types;
        }
        if let Some(limit_group) = change.limit_group {
            destination.limit_group = limit_group;
        }
        if let Some(filter) = change.filter {
            destination.filter = filter;
        }
        Ok(destination.clone())
    }

    async fn delete_destination(
        &self,
        _tenant: TenantId,
        id: DestinationId,
    ) -> Result<(), CatalogError> {
        let mut state = self.up()?;
        let before = state.destinations.len();
        state
            .destinations
            .retain(|destination| destination.id != id);
        if state.destinations.len() == before {
            return Err(CatalogError::NotFound("destination"));
        }
        Ok(())
    }

    async fn event(
        &self,
        _tenant: TenantId,
        id: EventId,
    ) -> Result<(EventSummary, Vec<AttemptView>), CatalogError> {
        let state = self.up()?;
        let found = state.events.iter().find(|event| event.id == id);
        let event = found.ok_or(CatalogError::NotFound("event"))?;
        let summary = EventSummary {
            id,
            event_type: event.event_type.clone(),
            content_type: event.content_type.clone(),
            payload_bytes: event.payload.len() as u32,
            urgent: event.timing.urgent,
            created_at: NOON,
        };
        let attempts = state.attempts.iter().filter(|attempt| attempt.event == id);
        Ok((summary, attempts.cloned().collect()))
    }

    async fn attempts(
        &self,
        _tenant: TenantId,
        id: DestinationId,
        before: Option<AttemptId>,
        limit: u32,
    ) -> Result<Vec<AttemptView>, CatalogError> {
        let state = self.up()?;
        let attempts = state.attempts.iter().rev().filter(|attempt| {
            attempt.destination == id && before.is_none_or(|before| attempt.id < before)
        });
        Ok(attempts.take(limit as usize).cloned().collect())
    }

    async fn ledger(
        &self,
        _destination: DestinationId,
        _since: Timestamp,
        _until: Timestamp,
        _after: Option<LedgerPosition>,
        _limit: u32,
    ) -> Result<Vec<LedgerRow>, CatalogError> {
        Ok(Vec::new())
    }

    async fn starts_before(
        &self,
        _: DestinationId,
        _: Timestamp,
        _: Start,
        _: u32,
    ) -> Result<Vec<Start>, CatalogError> {
        Ok(Vec::new())
    }

    async fn limits_within(
        &self,
        _: DestinationId,
        _: (Timestamp, Option<Timestamp>),
        _: u32,
    ) -> Result<Vec<LimitHistory>, CatalogError> {
        Ok(Vec::new())
    }

    async fn backlogs(&self, _: &[DestinationId], _: u32) -> Result<Vec<u32>, CatalogError> {
        Ok(Vec::new())
    }

    async fn ready(&self) -> Result<(), CatalogError> {
        Ok(self.up().map(drop)?)
    }
}

/// Of the loops' store, the API uses `accept_events`.
#[async_trait]
impl StoreLayer for FakeStore {
    async fn accept_events(&self, events: &[NewEvent]) -> Result<Vec<Acceptance>, StoreError> {
        let mut state = self.up()?;
        Ok(events.iter().map(|event| state.accept(event)).collect())
    }
}

#[async_trait]
impl HealthBook for FakeStore {
    async fn health(
        &self,
        _tenant: TenantId,
        destinations: &[DestinationId],
    ) -> Result<Vec<HealthView>, CatalogError> {
        let state = self.up()?;
        let view = |id: &DestinationId| HealthView {
            destination: *id,
            now: NOON,
            health: state.health.get(id).copied().unwrap_or_default(),
            settings: state.breakers.get(id).copied().unwrap_or_default(),
            failing_percent: FAILING_PERCENT,
        };
        Ok(destinations.iter().map(view).collect())
    }

    async fn resume(
        &self,
        _tenant: TenantId,
        destination: DestinationId,
    ) -> Result<(), CatalogError> {
        let mut state = self.up()?;
        state.health.remove(&destination);
        let found = (state.destinations.iter_mut()).find(|one| one.id == destination);
        let found = found.ok_or(CatalogError::NotFound("destination"))?;
        found.state = DestinationState::Active;
        Ok(())
    }

    async fn change_breaker(
        &self,
        _tenant: TenantId,
        destination: DestinationId,
        change: &BreakerChange,
    ) -> Result<(), CatalogError> {
        let mut state = self.up()?;
        if !(state.destinations.iter()).any(|one| one.id == destination) {
            return Err(CatalogError::NotFound("destination"));
        }
        let settings = state.breakers.entry(destination).or_default();
        let default = BreakerSettings::default();
        if let Some(failures) = change.failures {
            settings.failures = failures.unwrap_or(default.failures);
        }
        let set = |seconds: u32| std::time::Duration::from_secs(seconds.into());
        if let Some(seconds) = change.failing_for_seconds {
            settings.failing_for = seconds.map_or(default.failing_for, set);
        }
        if let Some(seconds) = change.disable_after_seconds {
            settings.disable_after = seconds.map_or(default.disable_after, set);
        }
        Ok(())
    }

    async fn operational_events(
        &self,
        _after: i64,
        _limit: u32,
    ) -> Result<Vec<OperationalEvent>, CatalogError> {
        Ok(Vec::new())
    }
}

/// There are none.
#[async_trait]
impl LimitGroups for FakeStore {
    async fn limit_groups(
        &self,
        _: TenantId,
        _: Option<&GroupName>,
        _: u32,
    ) -> Result<Vec<LimitGroup>, CatalogError> {
        drop(self.up()?);
        Ok(Vec::new())
    }

    async fn limit_group(&self, _: TenantId, _: &GroupName) -> Result<LimitGroup, CatalogError> {
        Err(CatalogError::NotFound("limit group"))
    }

    async fn put_limit_group(
        &self,
        _: TenantId,
        name: &GroupName,
        limits: &GroupLimits,
    ) -> Result<LimitGroup, CatalogError> {
        Ok(LimitGroup {
            name: name.clone(),
            limits: *limits,
            members: Vec::new(),
            created_at: NOON,
        })
    }

    async fn delete_limit_group(&self, _: TenantId, _: &GroupName) -> Result<(), CatalogError> {
        Err(CatalogError::NotFound("limit group"))
    }

    async fn limit_group_past(
        &self,
        _: TenantId,
        _: &GroupName,
        _: (Timestamp, Timestamp),
    ) -> Result<GroupPast, CatalogError> {
        Ok(GroupPast::default())
    }

    async fn limit_group_starts(
        &self,
        _: TenantId,
        _: &GroupName,
        _: (Timestamp, Timestamp),
        _: Option<Start>,
        _: u32,
    ) -> Result<Vec<Start>, CatalogError> {
        Ok(Vec::new())
    }
}

#[async_trait]
impl HandshakeBook for FakeStore {
    async fn handshake(
        &self,
        tenant: TenantId,
        destination: DestinationId,
    ) -> Result<HandshakeView, CatalogError> {
        let handshake = self.destination(tenant, destination).await?.handshake;
        let is_on = handshake != Handshake::None;
        Ok(HandshakeView {
            handshake,
            standing: is_on.then(Standing::new),
        })
    }

    async fn ask_now(
        &self,
        tenant: TenantId,
        destination: DestinationId,
    ) -> Result<(), CatalogError> {
        self.destination(tenant, destination).await.map(drop)
    }
}

#[async_trait]
impl SmartBook for FakeStore {
    async fn smart_delivery(
        &self,
        _tenant: TenantId,
        destination: DestinationId,
    ) -> Result<SmartView, CatalogError> {
        let state = self.up()?;
        if !(state.destinations.iter()).any(|one| one.id == destination) {
            return Err(CatalogError::NotFound("destination"));
        }
        let history = state.smart.get(&destination);
        let last = history.and_then(|history| history.last());
        Ok(SmartView {
            delivery: match history {
                Some(_) => SmartDelivery::On,
                None => SmartDelivery::Off,
            },
            effective: last.map_or_else(Default::default, |last| last.effective),
            reason: last.map_or(Reason::Configured, |last| last.reason),
        })
    }

    async fn set_smart_delivery(
        &self,
        tenant: TenantId,
        destination: DestinationId,
        to: SmartDelivery,
    ) -> Result<(), CatalogError> {
        self.smart_delivery(tenant, destination).await?;
        let mut state = self.up()?;
        match to {
            SmartDelivery::On => {
                state.smart.entry(destination).or_default();
            }
            SmartDelivery::Off => {
                state.smart.remove(&destination);
            }
        }
        Ok(())
    }

    async fn smart_history(
        &self,
        destination: DestinationId,
        until: Timestamp,
        limit: u32,
    ) -> Result<Vec<SmartChange>, CatalogError> {
        let state = self.up()?;
        let history = state.smart.get(&destination).into_iter().flatten().rev();
        let before = history.filter(|change| change.in_force_from < until);
        Ok(before.take(limit as usize).copied().collect())
    }
}

/// Secrets never end here, and the newest is the first.
#[async_trait]
impl SecretStore for FakeStore {
    async fn create_destination_with(
        &self,
        tenant: TenantId,
        new: &NewDestination,
        secrets: &[NewSecret],
    ) -> Result<Destination, CatalogError> {
        let created = self.create_destination(tenant, new).await?;
        self.state().secrets.extend(secrets.iter().map(shown));
        Ok(created)
    }

    async fn change_destination_with(
        &self,
        of: Managed<'_>,
        change: &DestinationChange,
        singles: &[SingleChange],
    ) -> Result<Destination, CatalogError> {
        let (tenant, id) = (of.tenant, of.destination);
        let changed = self.change_destination(tenant, id, change).await?;
        let mut state = self.up()?;
        for single in singles {
            let is_it = |(new, _): &(NewSecret, Secret)| {
                new.place.destination == id && new.place.kind == single.kind()
            };
            state.secrets.retain(|one| !is_it(one));
            state.secrets.extend(single.set().map(shown));
        }
        Ok(changed)
    }

    async fn shown(&self, destinations: &[DestinationId]) -> Result<Vec<Shown>, CatalogError> {
        let state = self.up()?;
        let of = |id: &DestinationId| {
            let mut all = Shown::default();
            let mut news = state.secrets.iter().map(|(new, _)| new);
            for new in news.by_ref().filter(|new| new.place.destination == *id) {
                let text = new.shown.as_deref().unwrap_or_default();
                all.add(new.place.kind, text).unwrap();
            }
            all
        };
        Ok(destinations.iter().map(of).collect())
    }

    async fn secrets(
        &self,
        tenant: TenantId,
        destination: DestinationId,
    ) -> Result<Vec<Secret>, CatalogError> {
        self.destination(tenant, destination).await?;
        let state = self.up()?;
        let of = |(new, _): &&(NewSecret, Secret)| {
            new.place.destination == destination && matches!(new.place.kind, SealedKind::Signs(_))
        };
        let found = state.secrets.iter().filter(of);
        Ok(found.map(|(_, secret)| secret.clone()).rev().collect())
    }

    async fn rotate_secret(
        &self,
        of: Managed<'_>,
        new: &NewSecret,
        _overlap: std::time::Duration,
    ) -> Result<Secret, CatalogError> {
        if self.secrets(of.tenant, of.destination).await?.len() >= 3 {
            return Err(CatalogError::Conflict(engine::sealing::TOO_MANY.to_owned()));
        }
        let (new, secret) = shown(new);
        self.state().secrets.push((new, secret.clone()));
        Ok(secret)
    }

    async fn delete_secret(&self, of: Managed<'_>, secret: SecretId) -> Result<(), CatalogError> {
        let all = self.secrets(of.tenant, of.destination).await?;
        if !all.iter().any(|one| one.id == secret) {
            return Err(CatalogError::NotFound("secret"));
        }
        if all.len() == 1 {
            return Err(CatalogError::Conflict(engine::sealing::LAST_ONE.to_owned()));
        }
        self.state().secrets.retain(|(_, one)| one.id != secret);
        Ok(())
    }

    async fn sealed_under_others(
        &self,
        _key: &str,
        _after: Option<SecretId>,
        _limit: u32,
    ) -> Result<Vec<SealedSecret>, StoreError> {
        Ok(Vec::new())
    }

    async fn reseal(&self, _resealed: &[Resealed]) -> Result<u32, StoreError> {
        Ok(0)
    }

    async fn forget_expired(&self, _limit: u32) -> Result<u32, StoreError> {
        Ok(0)
    }

    async fn keys_in_use(&self) -> Result<Vec<(String, u64)>, StoreError> {
        Ok(Vec::new())
    }
}

fn shown(new: &NewSecret) -> (NewSecret, Secret) {
    let kind = match new.place.kind {
        SealedKind::Signs(kind) => kind,
        _ => domain::signature::SecretKind::Hmac,
    };
    let secret = Secret {
        id: new.place.secret,
        kind,
        public_key: new.shown.clone(),
        created_at: NOON,
        expires_at: None,
    };
    (new.clone(), secret)
}
