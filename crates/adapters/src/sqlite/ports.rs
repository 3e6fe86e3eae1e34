//! The two ports: each method is one step on one of the two threads.

use std::time::Duration;

use async_trait::async_trait;
use domain::compliance::Start;
use domain::event::NewEvent;
use domain::external_id::ExternalId;
use domain::ids::{AttemptId, DestinationId, EventId, TenantId, WorkerId};
use domain::margin::Spread;
use domain::permit::Permit;
use domain::share::Room;
use domain::time::Timestamp;
use engine::ports::{
    Acceptance, Admitted, AttemptView, Catalog, CatalogError, Claims, Deferral, Destination,
    DestinationChange, EventSummary, Fleet, Heartbeat, LedgerPosition, LedgerRow, LimitHistory,
    Managed, Mark, NewDestination, Outcome, ReapRules, Reaped, Recorded, Run, SendReport, Store,
    StoreError, Sweep, SweepPage, Target, Wake,
};
use rusqlite::Transaction;

use super::{
    SqliteStore, admit, batches, claim, destinations, fleet, ingest, ledger, managers, migrate,
    reap, record, response_times, sweep,
};

#[async_trait]
impl Store for SqliteStore {
    async fn accept_events(&self, events: &[NewEvent]) -> Result<Vec<Acceptance>, StoreError> {
        // A step takes no more.
        let events = events.get(..ingest::STEP_ROWS).unwrap_or(events).to_vec();
        Ok(self
            .write_soon(move |tx, now| ingest::accept_events(tx, now, &events))
            .await?)
    }

    async fn admit(&self, runs: &[Run], room: &Room) -> Result<Admitted, StoreError> {
        let (runs, room) = (runs.to_vec(), room.clone());
        Ok(self
            .write_together(move |tx, now| admit::admit_runs(tx, now, &runs, &room))
            .await?)
    }

    async fn targets(&self, destinations: &[DestinationId]) -> Result<Vec<Target>, StoreError> {
        let destinations = destinations.to_vec();
        Ok(self
            .look(move |tx, now| claim::targets(tx, now, &destinations))
            .await?)
    }

    async fn claim_starts(
        &self,
        worker: WorkerId,
        permits: &[Permit],
    ) -> Result<Claims, StoreError> {
        let permits = permits.to_vec();
        let claimer = self.claimer(worker);
        let step = move |tx: &Transaction<'_>, _| claim::claim_starts(tx, &claimer(), &permits);
        Ok(self.write_promptly(step).await?)
    }

    fn head_start(&self) -> Duration {
        self.head_start
    }

    async fn release_permits(&self, permits: &[Permit]) -> Result<Vec<Wake>, StoreError> {
        let permits = permits.to_vec();
        Ok(self
            .write_together(move |tx, _| claim::release_permits(tx, &permits))
            .await?)
    }

    async fn defer(&self, deferrals: &[Deferral]) -> Result<(), StoreError> {
        let deferrals = deferrals.to_vec();
        Ok(self
            .write_together(move |tx, now| claim::defer(tx, now, &deferrals))
            .await?)
    }

    async fn claim_batches(
        &self,
        worker: WorkerId,
        permits: &[Permit],
    ) -> Result<Claims, StoreError> {
        let permits = permits.to_vec();
        let claimer = self.claimer(worker);
        let step = move |tx: &Transaction<'_>, _| batches::claim_batches(tx, &claimer(), &permits);
        Ok(self.write_promptly(step).await?)
    }

    async fn report_sends(&self, worker: WorkerId, sends: &[SendReport]) -> Result<(), StoreError> {
        let sends = sends.to_vec();
        let step = move |tx: &Transaction<'_>, _| claim::report_sends(tx, worker, &sends);
        Ok(self.write_together(step).await?)
    }

    async fn report_spreads(&self, spreads: &[(DestinationId, Spread)]) -> Result<(), StoreError> {
        let spreads = spreads.to_vec();
        let step = move |tx: &Transaction<'_>, now| response_times::report(tx, now, &spreads);
        Ok(self.write(step).await?)
    }

    async fn record_outcomes(
        &self,
        worker: WorkerId,
        outcomes: &[Outcome],
    ) -> Result<Recorded, StoreError> {
        let outcomes = outcomes.to_vec();
        let step =
            move |tx: &Transaction<'_>, now| record::record_outcomes(tx, now, worker, &outcomes);
        Ok(self.write_together(step).await?)
    }

    async fn reap(&self, rules: &ReapRules, limit: u32) -> Result<Reaped, StoreError> {
        let mut pass = reap::Pass::default();
        for part in reap::Part::of(rules) {
            let (part, rules, clock) = (*part, *rules, self.clock.clone());
            let step = move |tx: &Transaction<'_>, now| {
                let bound = reap::Bound::new(limit, now, clock);
                reap::step(tx, now, part, &rules, &bound)
            };
            if let Err(fault) = pass.note(part, self.write(step).await) {
                return pass.end().cut_short_by(fault.into());
            }
        }
        Ok(pass.end())
    }

    async fn sweep(&self, sweep: &Sweep) -> Result<SweepPage, StoreError> {
        let sweep = *sweep;
        Ok(self
            .look(move |tx, now| sweep::sweep(tx, now, &sweep))
            .await?)
    }

    async fn clear_marks(&self, marks: &[Mark]) -> Result<(), StoreError> {
        let marks = marks.to_vec();
        Ok(self
            .write(move |tx, _| sweep::clear_marks(tx, &marks))
            .await?)
    }

    async fn heartbeat(&self, heartbeat: &Heartbeat) -> Result<Timestamp, StoreError> {
        let heartbeat = *heartbeat;
        Ok(self
            .write(move |tx, now| fleet::heartbeat(tx, now, &heartbeat))
            .await?)
    }

    async fn fleet(&self) -> Result<Fleet, StoreError> {
        Ok(self.look(fleet::fleet).await?)
    }
}

#[async_trait]
impl Catalog for SqliteStore {
    async fn create_destination(
        &self,
        tenant: TenantId,
        new: &NewDestination,
    ) -> Result<Destination, CatalogError> {
        let new = new.clone();
        let step = move |tx: &Transaction<'_>, now| destinations::create(tx, now, tenant, &new);
        Ok(self.write(step).await?)
    }

    async fn destination(
        &self,
        tenant: TenantId,
        id: DestinationId,
    ) -> Result<Destination, CatalogError> {
        Ok(self
            .read(move |tx| destinations::read(tx, tenant, id))
            .await?)
    }

    async fn destination_called(
        &self,
        tenant: TenantId,
        id: &ExternalId,
    ) -> Result<DestinationId, CatalogError> {
        let id = id.clone();
        Ok(self
            .read(move |tx| destinations::called(tx, tenant, &id))
            .await?)
    }

    async fn destinations(
        &self,
        tenant: TenantId,
        after: Option<DestinationId>,
        limit: u32,
    ) -> Result<Vec<Destination>, CatalogError> {
        Ok(self
            .read(move |tx| destinations::page(tx, tenant, after, limit))
            .await?)
    }

    async fn destinations_of(
        &self,
        tenant: TenantId,
        ids: &[DestinationId],
    ) -> Result<Vec<Destination>, CatalogError> {
        let ids = ids.to_vec();
        Ok(self
            .read(move |tx| destinations::of(tx, tenant, &ids))
            .await?)
    }

    async fn change_destination(
        &self,
        tenant: TenantId,
        id: DestinationId,
        change: &DestinationChange,
    ) -> Result<Destination, CatalogError> {
        let change = change.clone();
        let step = move |tx: &Transaction<'_>, now| {
            managers::check(tx, Managed::by_nobody(tenant, id))?;
            destinations::change(tx, now, tenant, id, &change)
        };
        Ok(self.write(step).await?)
    }

    async fn delete_destination(
        &self,
        tenant: TenantId,
        id: DestinationId,
    ) -> Result<(), CatalogError> {
        let step = move |tx: &Transaction<'_>, now| {
            managers::check(tx, Managed::by_nobody(tenant, id))?;
            destinations::delete(tx, now, tenant, id)
        };
        Ok(self.write(step).await?)
    }

    async fn event(
        &self,
        tenant: TenantId,
        id: EventId,
    ) -> Result<(EventSummary, Vec<AttemptView>), CatalogError> {
        Ok(self.read(move |tx| ledger::event(tx, tenant, id)).await?)
    }

    async fn attempts(
        &self,
        tenant: TenantId,
        id: DestinationId,
        before: Option<AttemptId>,
        limit: u32,
    ) -> Result<Vec<AttemptView>, CatalogError> {
        Ok(self
            .read(move |tx| ledger::attempts(tx, tenant, id, before, limit))
            .await?)
    }

    async fn ledger(
        &self,
        destination: DestinationId,
        since: Timestamp,
        until: Timestamp,
        after: Option<LedgerPosition>,
        limit: u32,
    ) -> Result<Vec<LedgerRow>, CatalogError> {
        let span = ledger::Span {
            destination,
            since,
            until,
            after,
            limit,
        };
        Ok(self.read(move |tx| ledger::ledger(tx, &span)).await?)
    }

    async fn starts_before(
        &self,
        destination: DestinationId,
        since: Timestamp,
        before: Start,
        limit: u32,
    ) -> Result<Vec<Start>, CatalogError> {
        let page = (since, before, limit);
        let step = move |tx: &Transaction<'_>| ledger::starts_before(tx, destination, page);
        Ok(self.read(step).await?)
    }

    async fn limits_within(
        &self,
        destination: DestinationId,
        within: (Timestamp, Option<Timestamp>),
        limit: u32,
    ) -> Result<Vec<LimitHistory>, CatalogError> {
        Ok(self
            .read(move |tx| destinations::limits_within(tx, destination, within, limit))
            .await?)
    }

    async fn backlogs(
        &self,
        destinations: &[DestinationId],
        cap: u32,
    ) -> Result<Vec<u32>, CatalogError> {
        let destinations = destinations.to_vec();
        Ok(self
            .read(move |tx| ledger::backlogs(tx, &destinations, cap))
            .await?)
    }

    async fn ready(&self) -> Result<(), CatalogError> {
        let place = self.place.clone();
        let look = move |tx: &Transaction<'_>| {
            if let Some(place) = place {
                place.check()?;
            }
            migrate::ready(tx)
        };
        Ok(self.read(look).await?)
    }
}
