//! No route shows, changes or reaches another tenant's things, and none can be
//! used without its scope: every route of the description is walked, on both
//! stores, with keys of another tenant and with keys that lack one scope.
//!
//! A route that is described and not in [`walk::ROWS`] fails the walk.
//!
//! Needs PACELINE_TEST_DATABASE_URL, as `scripts/test` sets it.

#![cfg(test)]

mod documented;
mod place;
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

macro_rules! on_both {
    ($($test:ident)+) => {
        mod sqlite {
            $(
                #[tokio::test]
                async fn $test() {
                    crate::walk::$test(&crate::on_sqlite().await).await;
                }
            )+
        }
        mod postgres {
            $(
                #[tokio::test]
                async fn $test() {
                    crate::walk::$test(&crate::on_postgres().await).await;
                }
            )+
        }
    };
}

on_both! {
    another_tenants_key_reaches_nothing
    an_idempotency_key_is_its_tenants
    a_key_without_the_routes_scope_is_refused
    without_a_good_key_nothing_is_answered
    the_owner_gets_through
}

#[test]
fn every_described_route_is_walked() {
    walk::every_described_route_is_walked();
}
