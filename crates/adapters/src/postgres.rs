//! The store on Postgres.
//!
//! Owns: every statement, their plans, and what is retried. Promises what
//! `engine::ports` says of [`Store`] and [`Catalog`]; isolation is read
//! committed throughout, and every decision is made on rows that a later
//! statement read after they were locked. Refuses to wait: on the hot path
//! rows that somebody holds are skipped and reported.
//!
//! Limits are changed by anyone's SQL; what makes that safe is in the
//! migration's triggers and not here.

use std::sync::Arc;
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
use engine::ports::Managed;
use engine::ports::Target;
use engine::ports::Wake;
use engine::ports::{
    Acceptance, Admitted, Claims, Deferral, Fleet, Heartbeat, MAX_HEAD_START, Mark, Outcome,
    ReapRules, Reaped, Recorded, Run, SendReport, Store, StoreError, Sweep, SweepPage,
};
use engine::ports::{
    AttemptView, Catalog, CatalogError, Destination, DestinationChange, EventSummary,
    LedgerPosition, LedgerRow, LimitHistory, NewDestination,
};
use engine::ports::{Lane, Outbox, Relayed};
use sqlx::PgPool;

mod accepted;
mod admit;
mod all_destinations;
mod api_keys;
mod backlog;
mod backpressure;
mod batches;
mod cancel;
mod catalog;
mod claim;
mod connect;
mod days;
mod dead_letters;
mod destinations;
mod event_days;
mod event_types;
mod events;
mod expire;
mod failure;
mod fleet;
mod fold;
mod found_attempts;
mod found_events;
mod grants;
mod handshakes;
mod harm;
mod health;
mod health_book;
mod holder;
mod horizon;
mod id_range;
mod ingest;
mod keys;
mod ledger;
mod limit_group;
mod limit_groups;
mod limit_requests;
mod listen;
mod managers;
mod mark;
mod migrate;
mod notices;
mod operations;
mod operations_book;
mod outbox;
mod over;
mod overview;
mod plan;
mod reap;
mod record;
mod replays;
mod response_times;
mod retain;
mod rows;
mod rules;
mod secret_store;
mod secrets;
mod sessions;
mod smart;
mod survey;
mod sweep;
mod tallies;
mod tenants;
mod traces;
mod usage;
mod watch;

pub use connect::PostgresOptions;
pub use days::{DayAges, DaysKept};

use failure::{Failure, retried};
use listen::Changes;

/// The store on a pool of connections; cheap to clone.
#[derive(Debug, Clone)]
pub struct PostgresStore {
    pool: PgPool,
    changes: Arc<Changes>,
    insertions: Arc<Changes>,
    coarse: Arc<record::Coarse>,
}

impl PostgresStore {
    /// Connects, so that a wrong URL is noticed at once. Does not migrate.
    pub async fn connect(options: PostgresOptions) -> Result<Self, StoreError> {
        let pool = connect::connect(&options).await?;
        Ok(Self {
            pool,
            changes: Arc::new(Changes::of("paceline_changed")),
            insertions: Arc::new(Changes::of("paceline_outbox")),
            coarse: Arc::default(),
        })
    }

    /// Brings the schema to the version that this binary needs. Several
    /// processes may do so at once: they take turns.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        migrate::migrate(&self.pool).await
    }

    /// Gives the rights that workers need to this role, which is there, and takes back
    /// what it had before. All or nothing; may be done at once by several.
    pub async fn grant_to_workers(&self, role: &str) -> Result<(), StoreError> {
        grants::to_workers(&self.pool, role).await
    }

    /// A round of keeping the partitions, one a day: makes those of the days that
    /// come, and drops those that are old and of which nothing is needed. Nobody
    /// who reads or writes waits for it. Retention takes such a round in steps.
    pub async fn keep_days(&self, ages: &DayAges) -> Result<DaysKept, StoreError> {
        Ok(days::keep_days(&self.pool, ages).await?)
    }

    /// Ends all connections, waiting for statements that are under way.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn accept_events(&self, events: &[NewEvent]) -> Result<Vec<Acceptance>, StoreError> {
        let accepted = retried(|| ingest::accept_events(&self.pool, events)).await;
        accepted.map_err(Failure::of_events)
    }

    async fn admit(&self, runs: &[Run], room: &Room) -> Result<Admitted, StoreError> {
        Ok(retried(|| admit::admit(&self.pool, runs, room)).await?)
    }

    async fn targets(&self, destinations: &[DestinationId]) -> Result<Vec<Target>, StoreError> {
        Ok(retried(|| claim::targets(&self.pool, destinations)).await?)
    }

    async fn claim_starts(
        &self,
        worker: WorkerId,
        permits: &[Permit],
    ) -> Result<Claims, StoreError> {
        Ok(retried(|| claim::claim_starts(&self.pool, worker, permits)).await?)
    }

    async fn claim_batches(
        &self,
        worker: WorkerId,
        permits: &[Permit],
    ) -> Result<Claims, StoreError> {
        Ok(retried(|| batches::claim_batches(&self.pool, worker, permits)).await?)
    }

    fn plain_outcomes_apart(&self) -> bool {
        true
    }

    fn accepts_side_by_side(&self) -> bool {
        true
    }

    fn head_start(&self) -> Duration {
        MAX_HEAD_START
    }

    async fn release_permits(&self, permits: &[Permit]) -> Result<Vec<Wake>, StoreError> {
        Ok(retried(|| claim::release_permits(&self.pool, permits)).await?)
    }

    async fn defer(&self, deferrals: &[Deferral]) -> Result<(), StoreError> {
        Ok(retried(|| claim::defer(&self.pool, deferrals)).await?)
    }

    async fn report_sends(&self, worker: WorkerId, sends: &[SendReport]) -> Result<(), StoreError> {
        // Not again after an error: by then the outcomes are there.
        Ok(claim::report_sends(&self.pool, worker, sends).await?)
    }

    async fn report_spreads(&self, spreads: &[(DestinationId, Spread)]) -> Result<(), StoreError> {
        // Not again after an error: what is lost is said again.
        Ok(response_times::report(&self.pool, spreads).await?)
    }

    async fn record_outcomes(
        &self,
        worker: WorkerId,
        outcomes: &[Outcome],
    ) -> Result<Recorded, StoreError> {
        let once = || record::record_outcomes(&self.pool, &self.coarse, worker, outcomes);
        Ok(retried(once).await?)
    }

    async fn reap(&self, rules: &ReapRules, limit: u32) -> Result<Reaped, StoreError> {
        // Who cleans up sees to the days that come, too.
        if rules.everything {
            days::make_if_missing(&self.pool).await;
        }
        reap::reap(&self.pool, rules, limit).await
    }

    async fn sweep(&self, sweep: &Sweep) -> Result<SweepPage, StoreError> {
        Ok(retried(|| sweep::sweep(&self.pool, sweep)).await?)
    }

    async fn changed(&self) {
        self.changes.changed(&self.pool).await;
    }

    async fn clear_marks(&self, marks: &[Mark]) -> Result<(), StoreError> {
        Ok(retried(|| sweep::clear_marks(&self.pool, marks)).await?)
    }

    async fn heartbeat(&self, heartbeat: &Heartbeat) -> Result<Timestamp, StoreError> {
        Ok(retried(|| fleet::heartbeat(&self.pool, heartbeat)).await?)
    }

    async fn fleet(&self) -> Result<Fleet, StoreError> {
        Ok(retried(|| fleet::fleet(&self.pool)).await?)
    }
}

#[async_trait]
impl Outbox for PostgresStore {
    async fn relay(&self, after: Lane, limit: u32) -> Result<Relayed, StoreError> {
        Ok(retried(|| outbox::relay(&self.pool, after, limit)).await?)
    }

    async fn inserted(&self) {
        self.insertions.changed(&self.pool).await;
    }
}

#[async_trait]
impl Catalog for PostgresStore {
    async fn create_destination(
        &self,
        tenant: TenantId,
        new: &NewDestination,
    ) -> Result<Destination, CatalogError> {
        retried(|| catalog::create(&self.pool, tenant, new)).await?;
        self.destination(tenant, new.id).await
    }

    async fn destination(
        &self,
        tenant: TenantId,
        id: DestinationId,
    ) -> Result<Destination, CatalogError> {
        let found = retried(|| catalog::destination(&self.pool, tenant, id)).await?;
        found.ok_or(CatalogError::NotFound("destination"))
    }

    async fn destination_called(
        &self,
        tenant: TenantId,
        id: &ExternalId,
    ) -> Result<DestinationId, CatalogError> {
        let found = retried(|| catalog::called(&self.pool, tenant, id)).await?;
        found.ok_or(CatalogError::NotFound("destination"))
    }

    async fn destinations(
        &self,
        tenant: TenantId,
        after: Option<DestinationId>,
        limit: u32,
    ) -> Result<Vec<Destination>, CatalogError> {
        Ok(retried(|| catalog::destinations(&self.pool, tenant, after, limit)).await?)
    }

    async fn destinations_of(
        &self,
        tenant: TenantId,
        ids: &[DestinationId],
    ) -> Result<Vec<Destination>, CatalogError> {
        Ok(retried(|| catalog::destinations_of(&self.pool, tenant, ids)).await?)
    }

    async fn change_destination(
        &self,
        tenant: TenantId,
        id: DestinationId,
        change: &DestinationChange,
    ) -> Result<Destination, CatalogError> {
        let of = Managed::by_nobody(tenant, id);
        let found = retried(|| catalog::change_destination(&self.pool, of, change)).await?;
        found.ok_or(CatalogError::NotFound("destination"))
    }

    async fn delete_destination(
        &self,
        tenant: TenantId,
        id: DestinationId,
    ) -> Result<(), CatalogError> {
        let of = Managed::by_nobody(tenant, id);
        Ok(retried(|| catalog::delete_destination(&self.pool, of)).await?)
    }

    async fn event(
        &self,
        tenant: TenantId,
        id: EventId,
    ) -> Result<(EventSummary, Vec<AttemptView>), CatalogError> {
        let found = retried(|| events::event(&self.pool, tenant, id)).await?;
        found.ok_or(CatalogError::NotFound("event"))
    }

    async fn attempts(
        &self,
        tenant: TenantId,
        id: DestinationId,
        before: Option<AttemptId>,
        limit: u32,
    ) -> Result<Vec<AttemptView>, CatalogError> {
        let found = retried(|| events::attempts(&self.pool, tenant, id, before, limit)).await?;
        found.ok_or(CatalogError::NotFound("destination"))
    }

    async fn ledger(
        &self,
        destination: DestinationId,
        since: Timestamp,
        until: Timestamp,
        after: Option<LedgerPosition>,
        limit: u32,
    ) -> Result<Vec<LedgerRow>, CatalogError> {
        let page = ledger::Page {
            destination,
            since,
            until,
            after,
            limit,
        };
        Ok(retried(|| ledger::ledger(&self.pool, page)).await?)
    }

    async fn starts_before(
        &self,
        destination: DestinationId,
        since: Timestamp,
        before: Start,
        limit: u32,
    ) -> Result<Vec<Start>, CatalogError> {
        let page = (since, before, limit);
        Ok(retried(|| ledger::starts_before(&self.pool, destination, page)).await?)
    }

    async fn limits_within(
        &self,
        destination: DestinationId,
        within: (Timestamp, Option<Timestamp>),
        limit: u32,
    ) -> Result<Vec<LimitHistory>, CatalogError> {
        let limits = || ledger::limits_within(&self.pool, destination, within, limit);
        Ok(retried(limits).await?)
    }

    async fn backlogs(
        &self,
        destinations: &[DestinationId],
        cap: u32,
    ) -> Result<Vec<u32>, CatalogError> {
        Ok(retried(|| ledger::backlogs(&self.pool, destinations, cap)).await?)
    }

    async fn ready(&self) -> Result<(), CatalogError> {
        migrate::ready(&self.pool).await
    }
}
