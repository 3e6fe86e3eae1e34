//! The dashboard from outside: whose pages whom they open to, on both stores,
//! and in a real browser.
//!
//! Needs PACELINE_TEST_DATABASE_URL, PACELINE_TEST_CHROMIUM and
//! PACELINE_TEST_AXE, as `scripts/test` sets them. With PACELINE_SCREENSHOTS
//! naming a folder, the browser leaves a picture of each page there
//! (`scripts/screenshots`).

#![cfg(test)]

#[path = "../support/ask.rs"]
mod ask;
mod browser;
mod driver;
mod guests;
#[path = "../isolation/place.rs"]
mod place;
mod portal;
mod site;
mod visit;
mod walk;
