//! The dashboard from outside: whose pages whom they open to, on both stores,
//! and in a real browser.
//!
//! Needs PACELINE_TEST_DATABASE_URL, PACELINE_TEST_CHROMIUM and
//! PACELINE_TEST_AXE, as `scripts/test` sets them. With PACELINE_SCREENSHOTS
//! naming a folder, the browser leaves a picture of each page there
//! (`scripts/screenshots`).

#![cfg(test)]

/// Tests over a world on each store.
macro_rules! on_both {
    ($($test:ident)+) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $test() {
                super::$test(&super::World::over(super::Place::sqlite()).await).await;
            })+
        }
        mod postgres {
            $(#[tokio::test]
            async fn $test() {
                super::$test(&super::World::over(super::Place::postgres().await).await).await;
            })+
        }
    };
}

#[path = "../support/ask.rs"]
mod ask;
mod browser;
mod catalogue;
mod delivery;
mod driver;
mod groups;
mod guests;
mod owner;
#[path = "../isolation/place.rs"]
mod place;
mod portal;
mod routes;
#[path = "../../../adapters/tests/support/scratch.rs"]
mod scratch;
mod site;
mod stale;
mod tenancy;
mod visit;
mod walk;
mod watched;
