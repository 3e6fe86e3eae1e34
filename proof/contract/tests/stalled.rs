//! Tests of what makes tests again.

#![cfg(test)]

use std::sync::atomic::{AtomicU32, Ordering};

use contract::stalled::{made_again_if_stalled, stalled};

#[tokio::test]
async fn a_test_that_came_too_late_is_made_again() {
    let made = AtomicU32::new(0);
    made_again_if_stalled(async || {
        if made.fetch_add(1, Ordering::Relaxed) < 2 {
            stalled();
        }
    })
    .await;
    assert_eq!(made.into_inner(), 3);
}

#[tokio::test]
#[should_panic(expected = "as it is")]
async fn one_that_fails_fails() {
    made_again_if_stalled(async || std::panic::panic_any("as it is")).await;
}
