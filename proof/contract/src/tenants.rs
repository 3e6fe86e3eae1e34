//! What every [`Keys`], [`Tenants`], [`Sessions`], [`EventTypes`] and [`Backpressure`] must do: one test per sentence of the
//! ports' documentation. [`tenant_contract!`](crate::tenant_contract) turns the
//! whole suite into tests.

use std::ops::Deref;
use std::sync::Arc;

use domain::ids::{DestinationId, TenantId};

use super::store::World;
use engine::ports::{
    Backlog, Backpressure, CatalogError, EventTypes, Keys, LimitRequests, NewDestination,
    NewTenant, OperationsBook, Overview, Sessions, Tenant, Tenants,
};

pub mod ages;
pub mod backpressure;
pub mod ceilings;
pub mod deletion;
pub mod event_types;
pub mod grants;
pub mod keys;
pub mod sessions;
pub mod tiers;

/// A fresh store, with what counts its backlogs beside the others.
pub struct BackpressureWorld {
    world: World,
    /// The same store.
    pub backpressure: Arc<dyn Backpressure>,
}

impl Deref for BackpressureWorld {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl BackpressureWorld {
    /// A world around a fresh, migrated store.
    pub fn new(world: World, backpressure: Arc<dyn Backpressure>) -> Self {
        Self {
            world,
            backpressure,
        }
    }

    /// A new tenant, by SQL.
    async fn another_tenant(&self) -> TenantId {
        let id = TenantId(self.id());
        let insert = format!("insert into tenants (id, name, tier) values ('{id}', 'new', 'free')");
        self.sql(&insert).await;
        id
    }
}

/// A fresh store, with the ports of this suite beside the others.
pub struct TenantWorld {
    world: BackpressureWorld,
    /// The same store.
    pub keys: Arc<dyn Keys>,
    /// The same store.
    pub backlog: Arc<dyn Backlog>,
    /// The same store.
    pub tenants: Arc<dyn Tenants>,
    /// The same store.
    pub sessions: Arc<dyn Sessions>,
    /// The same store.
    pub requests: Arc<dyn LimitRequests>,
    /// The same store.
    pub operations: Arc<dyn OperationsBook>,
    /// The same store.
    pub event_types: Arc<dyn EventTypes>,
    /// The same store.
    pub overview: Arc<dyn Overview>,
}

impl Deref for TenantWorld {
    type Target = BackpressureWorld;

    fn deref(&self) -> &BackpressureWorld {
        &self.world
    }
}

impl TenantWorld {
    /// A world around a fresh, migrated store.
    pub fn new<S>(world: World, store: Arc<S>) -> Self
    where
        S: Keys + Tenants + Sessions + LimitRequests + OperationsBook + Backpressure,
        S: EventTypes + Overview + Backlog + 'static,
    {
        Self {
            world: BackpressureWorld::new(world, store.clone()),
            keys: store.clone(),
            backlog: store.clone(),
            tenants: store.clone(),
            sessions: store.clone(),
            requests: store.clone(),
            operations: store.clone(),
            event_types: store.clone(),
            overview: store,
        }
    }

    /// A new tenant of this tier.
    pub async fn tenant(&self, tier: &str) -> Tenant {
        let new = NewTenant {
            external_id: None,
            id: TenantId(self.id()),
            name: format!("of tier {tier}"),
            tier: tier.to_owned(),
            max_in_flight: None,
            ingest_per_second: None,
        };
        self.tenants.create_tenant(&new).await.unwrap()
    }

    /// A destination of this tenant.
    pub async fn destination_of(&self, tenant: TenantId, new: &NewDestination) -> DestinationId {
        let created = self.catalog.create_destination(tenant, new).await;
        created.unwrap().id
    }
}

/// It refuses this field.
#[track_caller]
fn refuses<T: std::fmt::Debug>(answer: Result<T, CatalogError>, field: &str) {
    match answer {
        Err(CatalogError::Invalid { field: named, .. }) if named == field => {}
        other => panic!("expected a refusal of {field}, got {other:?}"),
    }
}

/// There is no such thing.
#[track_caller]
fn not_found<T: std::fmt::Debug>(answer: Result<T, CatalogError>) {
    assert!(
        matches!(answer, Err(CatalogError::NotFound(_))),
        "got {answer:?}"
    );
}

/// Declares one `#[tokio::test]` for each test of this suite. `$world` is an
/// async function that returns what dereferences to a [`TenantWorld`].
#[macro_export]
macro_rules! tenant_contract {
    ($world:path) => {
        $crate::tenant_contract!(@module $world, keys:
            a_key_is_found_by_its_id
            keys_are_looked_up_together
            a_revoked_key_is_gone_for_good
            another_tenants_key_cannot_be_revoked
            a_key_expires_by_the_stores_clock
            keys_are_listed_by_tenant_the_newest_first
            a_last_use_is_noted_once_a_minute
            admin_is_for_the_default_tenant_alone
            an_id_is_given_once
            a_tenant_has_so_many_keys_and_no_more
        );
        $crate::tenant_contract!(@module $world, tiers:
            the_tiers_are_the_plans
            a_tenant_is_read_as_it_was_created
            a_tenant_is_found_by_what_its_platform_calls_it
            a_change_of_a_tenant_leaves_the_rest_alone
            tenants_are_paged_by_id
            an_unknown_tier_is_refused_by_its_name
            a_tier_comes_and_goes
            destinations_inherit_the_tier_and_override_it
            another_tier_is_in_force_for_all_that_inherit
            a_lowered_tier_revokes_and_a_raised_one_does_not
            the_tiers_bound_in_flight_is_the_tenants_unless_it_has_its_own
            a_tenants_ingest_is_bounded_by_its_own_or_its_tiers
            a_tenant_has_no_more_destinations_than_its_tier_allows
            destinations_by_sql_are_held_to_the_tiers_number
        );
        $crate::tenant_contract!(@module $world, deletion:
            a_deleted_tenant_has_no_doors
            its_destinations_go_step_by_step
            it_is_forgotten_with_the_last_of_it
            deleted_tenants_do_not_wait_for_each_other
            one_that_resources_manage_stays
        );
        $crate::tenant_contract!(@module $world, ceilings:
            an_open_request_is_replaced_and_decided_once
            requests_are_for_ones_own_destinations
            requests_are_listed_in_pages
            who_has_to_know_of_a_request_is_told
            what_is_above_a_ceiling_is_refused_by_whatever_way_it_is_set
            batches_are_held_to_the_ceiling_as_well
            the_store_refuses_what_the_domain_refuses
            what_was_granted_may_be_set
            what_a_tenant_sets_itself_is_what_its_tier_gives_where_that_has_no_ceiling
            what_is_approved_is_in_force
        );
        $crate::tenant_contract!(@module $world, ages:
            an_age_is_refused_where_the_domain_refuses_it
            an_age_is_held_to_the_ceiling_by_whatever_way_it_is_set
            a_batch_waits_less_than_the_age_of_the_tier
        );
        $crate::tenant_contract!(@module $world, grants:
            larger_batches_may_be_set_once_they_are_granted
            who_asks_for_batches_is_granted_no_limits
            a_request_keeps_the_part_that_it_does_not_ask_for
            a_tenant_may_have_the_destinations_that_it_is_granted
            a_request_for_destinations_is_the_tenants
        );
        $crate::tenant_contract!(@module $world, event_types:
            a_type_is_read_as_it_was_said
            a_change_of_a_type_leaves_the_rest_alone
            types_are_paged_by_name
            the_catalogue_has_its_bound
            rules_come_with_a_payload_that_receivers_get_whole
            rules_that_make_no_sense_show_nothing
        );
        $crate::tenant_contract!(@module $world, sessions:
            a_session_is_what_it_was_begun_as
            a_session_is_over_by_the_stores_clock
            a_session_ends_with_its_key
            a_session_ends_once_and_moves
            what_signs_in_once_does_so_once
            a_link_is_listed_while_it_is_good
            a_link_ends_with_all_that_it_opened
            another_tenants_link_cannot_be_ended
            what_a_link_opens_while_it_ends_is_over
        );
        $crate::backpressure_contract!($world);
    };
    (@module $world:path, $module:ident: $($test:ident)+) => {
        mod $module {
            $(
                #[tokio::test]
                async fn $test() {
                    let world = $world().await;
                    $crate::tenants::$module::$test(&world).await;
                }
            )+
        }
    };
}

/// The part of it that is about backlogs. `$world` returns what dereferences to
/// a [`BackpressureWorld`].
#[macro_export]
macro_rules! backpressure_contract {
    ($world:path) => {
        $crate::tenant_contract!(@module $world, backpressure:
            what_is_pending_is_counted
            a_backlog_above_its_mark_refuses_until_below_the_low_one
            refused_clients_are_told_when_it_has_drained
            tenants_and_the_whole_are_bounded_too
            what_is_short_is_not_told_of
            what_was_seen_above_its_mark_refuses
            a_count_is_not_repeated_before_its_time
            a_destination_that_takes_nothing_is_not_told_of
            a_repeated_request_is_known
        );
    };
}
