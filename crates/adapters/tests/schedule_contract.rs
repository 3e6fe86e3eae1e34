//! The contract of the schedule, on every implementation: in process under
//! virtual time, on Redis in real time.
//!
//! Needs `PACELINE_TEST_REDIS_URL`; each test has key prefixes of its own.
#![expect(clippy::unwrap_used, reason = "helpers of a test fail by panicking")]

use std::env;
use std::sync::Arc;

use adapters::in_process::InProcessSchedule;
use adapters::redis::RedisSchedule;
use contract::schedule::{self, World};
use engine::ports::Schedule;
use rand::TryRng as _;
use rand::rngs::SysRng;

async fn in_process() -> Arc<dyn Schedule> {
    Arc::new(InProcessSchedule::new())
}

async fn redis(shards: u16) -> Arc<dyn Schedule> {
    let url = env::var("PACELINE_TEST_REDIS_URL")
        .expect("set PACELINE_TEST_REDIS_URL to a redis that tests may write to");
    let mut prefix = [0; 8];
    SysRng.try_fill_bytes(&mut prefix).unwrap();
    let prefix = format!("test-{:016x}", u64::from_be_bytes(prefix));
    Arc::new(RedisSchedule::connect(&url, &prefix, shards).await.unwrap())
}

macro_rules! in_process_test {
    ($promise:ident) => {
        #[tokio::test(start_paused = true)]
        async fn $promise() {
            schedule::$promise(&World::new(&in_process, tokio::time::advance).await).await;
        }
    };
}

macro_rules! redis_test {
    ($promise:ident) => {
        #[tokio::test]
        async fn $promise() {
            let make = async || redis(1).await;
            schedule::$promise(&World::new(&make, tokio::time::sleep).await).await;
        }
    };
}

mod in_process_schedule {
    use super::*;
    contract::for_each_schedule_promise!(in_process_test);
}

mod redis_schedule {
    use super::*;
    contract::for_each_schedule_promise!(redis_test);
}

mod redis_schedule_in_shards {
    use super::*;

    /// The shards serve their own longest due first, so that promise is not
    /// theirs; all others are.
    macro_rules! sharded_test {
        (take_gives_the_longest_due_first) => {};
        ($promise:ident) => {
            #[tokio::test]
            async fn $promise() {
                let make = async || redis(7).await;
                schedule::$promise(&World::new(&make, tokio::time::sleep).await).await;
            }
        };
    }
    contract::for_each_schedule_promise!(sharded_test);
}
