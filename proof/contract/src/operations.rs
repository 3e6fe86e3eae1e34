//! What every store must do with what operators must know
//! ([`Operations`], [`OperationsBook`]).
//!
//! [`operations_contract!`](crate::operations_contract) turns the suite into
//! tests.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use domain::attempt::OutcomeKind;
use domain::ids::{DestinationId, TenantId};
use domain::operations::{OperationalScope, OperationalType};
use uuid::Uuid;

use super::store::World;
use engine::ports::{
    AlertsChange, Backpressure, DEFAULT_TENANT, NextTry, Notices, Operations, OperationsBook,
    Outcome, Registration, RelayedOperations, WatchRules, Watched,
};

pub mod books;
pub mod notices;
pub mod relaying;
pub mod stopped;
pub mod tenants;
pub mod watching;

/// A [`World`], and the ports of this suite on the same store.
pub struct OperationsWorld {
    world: World,
    /// As the notifier sees it.
    pub operations: Arc<dyn Operations>,
    /// As people see it.
    pub book: Arc<dyn OperationsBook>,
    /// As whoever tells people sees it.
    pub notices: Arc<dyn Notices>,
    /// As whoever takes events in sees it.
    pub backpressure: Arc<dyn Backpressure>,
    dialect: Dialect,
}

/// What the store's triggers are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// PL/pgSQL.
    Postgres,
    /// SQLite's own.
    Sqlite,
}

impl Deref for OperationsWorld {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl OperationsWorld {
    /// Whether its statements are Postgres's.
    pub fn is_postgres(&self) -> bool {
        self.dialect == Dialect::Postgres
    }

    /// The world of a store, with these ports of the same store.
    pub fn new(
        world: World,
        store: Arc<impl Operations + OperationsBook + Notices + Backpressure + 'static>,
        dialect: Dialect,
    ) -> Self {
        Self {
            world,
            operations: Arc::clone(&store) as _,
            book: Arc::clone(&store) as _,
            notices: Arc::clone(&store) as _,
            backpressure: store,
            dialect,
        }
    }

    /// From now on the store refuses this (`insert`, `update`, `delete`) in
    /// this table: whoever comes so far stops there.
    pub async fn refuse(&self, what: &str, table: &str) {
        let statement = match self.dialect {
            Dialect::Postgres => format!(
                "create function stopped() returns trigger language plpgsql
                as $$ begin raise exception 'stopped'; end $$;
                create trigger stopped before {what} on {table}
                for each row execute function stopped()"
            ),
            Dialect::Sqlite => format!(
                "create trigger stopped before {what} on {table}
                begin select raise(abort, 'stopped'); end"
            ),
        };
        self.sql(&statement).await;
    }

    /// It refuses nothing more.
    pub async fn allow(&self, table: &str) {
        let statement = match self.dialect {
            Dialect::Postgres => {
                format!("drop trigger stopped on {table}; drop function stopped()")
            }
            Dialect::Sqlite => "drop trigger stopped".to_owned(),
        };
        self.sql(&statement).await;
    }
}

/// Declares one `#[tokio::test]` for each test of the contract.
///
/// `$world` is an async function without arguments that returns something that
/// dereferences to a fresh [`OperationsWorld`] and lives as long as the test.
/// `in whole steps` leaves out what a store without triggers cannot be asked.
#[macro_export]
macro_rules! operations_contract {
    ($world:path) => {
        $crate::operations_contract!($world, in whole steps);
        $crate::operations_contract!(@module $world, stopped:
            a_relay_that_stops_between_its_steps_has_done_nothing
            a_watch_that_stops_between_its_steps_has_told_nothing
        );
    };
    ($world:path, in whole steps) => {
        $crate::operations_contract!(@module $world, relaying:
            news_become_one_event_for_each_that_is_told
            of_many_relays_each_takes_its_own
            so_many_at_a_time_as_one_batch_of_ingest
            what_is_told_of_is_the_tenants_or_everybodys
            a_disabled_destination_is_not_told
            news_of_one_that_is_told_do_not_come_back
            old_news_are_deleted_in_steps
        );
        $crate::operations_contract!(@module $world, watching:
            a_high_backlog_is_told_of_once_and_ends_at_half
            who_keeps_up_is_not_looked_at
            one_that_gets_less_than_its_limit_is_told_of_with_the_reason
            what_has_not_waited_is_not_short
            one_that_is_unlimited_and_drains_is_not_short
            a_tenant_that_is_full_is_the_reason
            dead_letters_are_told_of_in_numbers
            a_round_goes_on_where_it_stopped
            a_step_counts_so_far_and_no_further
            a_step_that_is_not_due_does_nothing
        );
        $crate::operations_contract!(@module $world, books:
            recent_news_are_paged
            registrations_are_the_tenants
            a_tenant_has_so_many_and_a_deleted_one_makes_room
            alerts_are_set_by_name
        );
        $crate::operations_contract!(@module $world, tenants:
            too_few_successes_are_told_of_once
            nearly_as_many_destinations_as_it_may_have
            a_backlog_that_is_nearly_refused_and_one_that_is
            rejected_rows_are_told_of_in_numbers
            a_round_of_tenants_goes_on_where_it_stopped
            a_tenants_alerts_are_set_by_name
        );
        $crate::operations_contract!(@module $world, notices:
            the_first_comes_at_once_and_the_rest_in_one
            a_digest_is_one_senders_until_its_lease_ends
            what_could_not_be_told_is_tried_again_later
            only_the_named_forms_are_claimed
            what_is_too_old_is_dropped
            an_address_is_told_what_it_is_registered_for
            a_flood_is_cut_and_the_rest_waits
            addresses_are_the_tenants
            a_webhook_is_sealed_anew
        );
    };
    (@module $world:path, $module:ident: $($test:ident)+) => {
        mod $module {
            $crate::tests_of!($world, $crate::operations::$module: $($test)+);
        }
    };
}

/// Every look is due, and everybody is looked at.
const RULES: WatchRules = WatchRules {
    every: Duration::ZERO,
    pace: Duration::ZERO,
    patience: Duration::ZERO,
    dead_letters_every: Duration::from_secs(3_600),
    page: 1_000,
    looks: 100,
    counted: 100_000,
    tenants_every: Duration::ZERO,
    tenants: 100,
};

fn book(world: &OperationsWorld) -> &dyn OperationsBook {
    world.book.as_ref()
}

async fn relay(world: &OperationsWorld) -> RelayedOperations {
    let relayed = world.operations.relay_operational_events(100).await;
    relayed.unwrap()
}

async fn watch(world: &OperationsWorld, rules: &WatchRules) -> Watched {
    world.operations.watch(rules).await.unwrap()
}

/// The types of the news of one step.
async fn news(world: &OperationsWorld) -> Vec<OperationalType> {
    let watched = watch(world, &RULES).await;
    assert!(watched.stepped, "the turn was ours");
    let news = watched.news.iter();
    news.map(|told| told.news.event_type).collect()
}

async fn set(world: &OperationsWorld, destination: DestinationId, backlog: u32, seconds: u32) {
    let change = AlertsChange {
        backlog: Some(Some(backlog)),
        under_delivery_seconds: Some(Some(seconds)),
        failing_percent: None,
    };
    let changed = book(world).change_alerts(DEFAULT_TENANT, destination, &change);
    changed.await.unwrap();
}

/// A destination that is told of everything in its tenant.
async fn told(world: &OperationsWorld) -> DestinationId {
    let destination = world.destination().unlimited().create().await;
    register(world, destination, OperationalScope::Tenant).await;
    destination
}

async fn register(world: &OperationsWorld, destination: DestinationId, scope: OperationalScope) {
    let registration = Registration {
        scope,
        event_types: Vec::new(),
    };
    let registered = book(world).register_operational(DEFAULT_TENANT, destination, &registration);
    let registered = registered.await.unwrap();
    assert_eq!(
        (registered.destination, registered.scope),
        (destination, scope)
    );
}

/// News about a destination of a tenant, as whoever raises them writes them.
async fn raise(world: &OperationsWorld, about: DestinationId, tenant: TenantId) {
    world
        .sql(&format!(
            "insert into operational_events
                (event_type, destination_id, tenant_id, details, created_at)
            select 'breaker_opened', '{about}', '{tenant}', '{{\"failures\":20}}', created_at
            from tenants where id = '{DEFAULT_TENANT}'"
        ))
        .await;
}

fn stranger(number: u128) -> (DestinationId, TenantId) {
    let id = |part: u128| Uuid::from_u128((0xdead << 64) + 2 * number + part);
    (DestinationId(id(0)), TenantId(id(1)))
}

/// Starts what is admitted of a destination, and ends it so.
async fn end(world: &OperationsWorld, destination: DestinationId, status: u16, next: NextTry) {
    let worker = world.worker().await;
    let permits = world.admit(destination).await;
    assert!(!permits.is_empty());
    world.start(worker, &permits).await;
    let outcomes: Vec<_> = (permits.iter())
        .map(|permit| Outcome {
            status: Some(status),
            ..world.outcome(permit, OutcomeKind::Failed, next)
        })
        .collect();
    let recorded = world.store.record_outcomes(worker, &outcomes).await;
    recorded.unwrap();
}
