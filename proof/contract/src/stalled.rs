//! Tests that go by a real clock, on a machine that may stand still.
//!
//! A permit lives for two seconds after its slot. A test whose machine stood still
//! for longer, between admission and claim, says nothing about the store: it is
//! made again, from the beginning and with a store of its own.

use std::panic::{AssertUnwindSafe, panic_any, resume_unwind};

use futures_util::FutureExt;

/// So often a test is made before it fails for that reason alone.
const TRIES: u32 = 5;

/// What a test panics with that came too late.
struct Stalled;

/// Ends a test that is to be made again.
pub fn stalled() -> ! {
    panic_any(Stalled)
}

/// Makes a test, and again if its machine stood still.
pub async fn made_again_if_stalled(test: impl AsyncFn()) {
    for _ in 0..TRIES {
        match AssertUnwindSafe(test()).catch_unwind().await {
            Ok(()) => return,
            Err(why) if why.is::<Stalled>() => {}
            Err(why) => resume_unwind(why),
        }
    }
    panic!("{TRIES} times the machine stood still for longer than a permit lives");
}

/// Turns functions of a suite into tests, each with a world of its own. A suite is a
/// path in one piece, so that its functions' names can follow it.
#[doc(hidden)]
#[macro_export]
macro_rules! tests_of {
    ($world:path, $first:tt $(:: $suite:ident)+: $($test:ident)+) => {
        $crate::tests_of!(@each $world, [$first $(:: $suite)+]: $($test)+);
    };
    (@each $world:path, $suite:tt: $($test:ident)+) => {
        $( $crate::tests_of!(@one $world, $suite: $test); )+
    };
    (@one $world:path, [$($suite:tt)+]: $test:ident) => {
        #[tokio::test]
        async fn $test() {
            $crate::stalled::made_again_if_stalled(async || {
                let world = $world().await;
                $($suite)+::$test(&world).await;
            })
            .await;
        }
    };
}
