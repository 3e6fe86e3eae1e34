//! No route shows, changes or reaches another tenant's things, and none can be
//! used without its scope: every route of the description is walked, on both
//! stores, with keys of another tenant and with keys that lack one scope.
//!
//! A route that is described and not in [`walk::ROWS`] fails the walk.
//!
//! Needs PACELINE_TEST_DATABASE_URL, as `scripts/test` sets it.

#![cfg(test)]

mod acting;
mod ceilings;
mod documented;
mod event_types;
mod fleet;
mod limit_groups;
mod neighbours;
mod place;
mod reports;
#[path = "../../../adapters/tests/support/scratch.rs"]
mod scratch;
mod sharded;
mod strangers;
mod texts;
mod walk;
mod world;

use place::Place;
use world::World;

async fn on_sqlite() -> World {
    World::over(Place::sqlite()).await
}

async fn on_postgres() -> World {
    World::over(Place::postgres().await).await
}

/// Through a router before two shards, `ours` being on the first and `theirs` on the other.
async fn on_shards() -> World {
    World::of_two(Place::sqlite(), Place::sqlite()).await
}

macro_rules! on_shards {
    ($($group:ident::$test:ident)+) => {
        mod shards {
            $(
                #[tokio::test]
                async fn $test() {
                    crate::$group::$test(&crate::on_shards().await).await;
                }
            )+
        }
    };
}

on_shards! {
    walk::another_tenants_key_reaches_nothing
    walk::an_idempotency_key_is_its_tenants
    walk::a_key_without_the_routes_scope_is_refused
    walk::without_a_good_key_nothing_is_answered
    walk::the_owner_gets_through
    walk::an_operator_reaches_what_a_path_names
    walk::an_operators_tenant_reaches_nothing_without_the_scope
    acting::a_platforms_key_acts_for_the_tenant_that_it_names
    acting::an_operator_lists_the_things_of_the_tenant_that_it_names
    acting::who_acts_may_do_what_a_customer_may_and_no_more
    acting::what_is_put_twice_is_one_thing
    acting::a_name_is_taken_until_what_has_it_is_gone
    acting::a_tenant_that_is_put_twice_is_one
    reports::the_overview_counts_all_that_need_somebody
    sharded::a_shard_that_a_key_or_a_cookie_lies_about_knows_nothing_of_it
    sharded::tenants_are_on_both_shards_and_in_one_list
    sharded::a_platforms_key_of_one_shard_acts_on_the_other_and_does_no_more
    sharded::a_shard_that_is_away_is_its_own_tenants_trouble
    sharded::what_is_passed_on_is_what_was_sent
    strangers::who_has_a_good_key_or_session_is_known_and_nobody_else
}

/// Over a table that is locked: nothing of an SQLite file can be held so.
macro_rules! on_locks {
    ($($group:ident::$test:ident)+) => {
        mod locks {
            $(
                #[tokio::test]
                async fn $test() {
                    crate::$group::$test(&crate::on_postgres().await).await;
                }
            )+
        }
    };
}

on_locks! {
    neighbours::reads_that_hang_hold_up_no_events_and_no_sign_in
    neighbours::reports_are_bounded_and_end_with_their_client
}

macro_rules! on_both {
    ($($group:ident::$test:ident)+) => {
        mod sqlite {
            $(
                #[tokio::test]
                async fn $test() {
                    crate::$group::$test(&crate::on_sqlite().await).await;
                }
            )+
        }
        mod postgres {
            $(
                #[tokio::test]
                async fn $test() {
                    crate::$group::$test(&crate::on_postgres().await).await;
                }
            )+
        }
    };
}

on_both! {
    walk::another_tenants_key_reaches_nothing
    walk::an_idempotency_key_is_its_tenants
    walk::a_key_without_the_routes_scope_is_refused
    walk::without_a_good_key_nothing_is_answered
    walk::the_owner_gets_through
    walk::an_operator_reaches_what_a_path_names
    walk::an_operators_tenant_reaches_nothing_without_the_scope
    walk::a_tenant_is_named_for_lists_alone
    strangers::who_has_a_good_key_or_session_is_known_and_nobody_else
    acting::a_platforms_key_acts_for_the_tenant_that_it_names
    acting::an_operator_lists_the_things_of_the_tenant_that_it_names
    acting::a_tenant_that_is_named_is_the_one_that_is_looked_at
    acting::who_acts_may_do_what_a_customer_may_and_no_more
    acting::a_resend_to_all_is_of_the_tenant_that_is_named
    acting::what_is_put_twice_is_one_thing
    acting::a_name_is_taken_until_what_has_it_is_gone
    acting::what_an_event_carries_is_for_those_who_may_see_it
    acting::events_are_listed_by_type_and_state
    acting::a_tenant_that_is_put_twice_is_one
    acting::a_trial_is_charged_to_whose_destination_it_is
    event_types::what_a_type_hides_is_shown_to_nobody
    event_types::what_is_archived_still_hides
    event_types::customers_read_the_catalogue_on_pages
    event_types::what_is_wrong_with_a_type_is_named
    ceilings::batches_are_held_to_the_tiers_ceiling
    ceilings::an_age_is_held_to_the_tiers_ceiling
    ceilings::a_tenant_sets_limits_up_to_what_its_tier_gives
    ceilings::a_destination_shows_the_ceiling_of_whoever_asks
    ceilings::a_tenant_has_as_many_destinations_as_its_tier_allows
    ceilings::what_is_asked_for_beyond_a_tier_may_be_set_once_it_is_granted
    ceilings::requests_are_listed_in_pages
    limit_groups::a_group_is_joined_by_its_tenants_destinations_alone
    limit_groups::what_is_wrong_with_a_group_is_named
    reports::standings_are_the_own_and_say_what_binds
    reports::the_overview_counts_all_that_need_somebody
    fleet::ten_thousand_destinations_are_pages
    reports::a_replay_of_all_is_shown_before_it_begins
    reports::a_running_replay_is_ended_when_one_is_sure
    reports::what_is_told_names_destination_and_tenant
    reports::a_plan_replays_what_waits
    reports::a_report_is_of_the_own_destinations
    neighbours::bodies_that_drip_are_in_nobodys_way
    neighbours::changes_are_bounded_and_keep_nobody_else_from_any
    neighbours::a_fan_out_ends_where_its_backlog_is_full
    neighbours::answers_that_nobody_reads_leave_others_theirs
    texts::what_no_store_takes_is_the_clients_mistake
    texts::pages_say_the_same
}

#[test]
fn every_described_route_is_walked() {
    walk::every_described_route_is_walked();
}
