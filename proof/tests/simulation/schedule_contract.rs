//! The schedule's contract on that of a world, in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use contract::schedule::{self, World};
use domain::time::Timestamp;
use engine::ports::{Schedule, ScheduleLife, Wake};
use simulation::SimulatedSchedule;

/// Numbers the schedules, which are told apart by their names.
static MADE: AtomicU32 = AtomicU32::new(0);

fn schedule() -> SimulatedSchedule {
    let name = format!("schedule-{}", MADE.fetch_add(1, Ordering::Relaxed));
    SimulatedSchedule::new(name, Timestamp::from_millis(1_795_000_000_000))
}

async fn make() -> Arc<dyn Schedule> {
    Arc::new(schedule())
}

macro_rules! promise {
    ($promise:ident) => {
        #[tokio::test(start_paused = true)]
        async fn $promise() {
            schedule::$promise(&World::new(&make, tokio::time::advance).await).await;
        }
    };
}
contract::for_each_schedule_promise!(promise);

#[tokio::test(start_paused = true)]
async fn a_wiped_schedule_is_empty_and_in_another_life() {
    let schedule = schedule();
    let destination = "0000000000000000000000000000000d".parse();
    let wake = Wake::now(destination.expect("it is an id"));
    schedule.wake(&[wake]).await.expect("it never fails");
    let Ok(ScheduleLife::New(first)) = schedule.life().await else {
        panic!("it is not built yet")
    };
    schedule.rebuilt(&first).await.expect("it never fails");
    assert_eq!(schedule.len(), 1);
    schedule.wipe();
    assert!(schedule.is_empty());
    // Whoever rebuilt the first life has not rebuilt this one.
    schedule.rebuilt(&first).await.expect("it never fails");
    let life = schedule.life().await.expect("it never fails");
    assert!(matches!(life, ScheduleLife::New(second) if second != first));
}
