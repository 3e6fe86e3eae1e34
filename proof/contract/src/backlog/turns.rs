//! The share between first attempts and retries; see `domain::turns`.

use std::time::Duration;

use domain::attempt::OutcomeKind;
use domain::ids::DestinationId;
use domain::permit::Permit;

use super::BacklogWorld;
use engine::ports::NextTry;

/// `retries` retries that are due, and `firsts` first attempts after them.
async fn both(
    world: &BacklogWorld,
    in_flight: u32,
    retries: usize,
    firsts: usize,
) -> DestinationId {
    let of = world.destination().unlimited().max_in_flight(in_flight);
    let of = of.create().await;
    let worker = world.worker().await;
    world.accept(of, retries).await;
    let mut failed = 0;
    while failed < retries {
        for permit in world.start_all(worker, of).await {
            let later = NextTry::RetryAfter(Duration::from_millis(2_000));
            world
                .record(worker, &permit, OutcomeKind::Failed, later)
                .await;
            failed += 1;
        }
    }
    world.accept(of, firsts).await;
    world.pass(Duration::from_millis(2_100)).await;
    of
}

/// Whether each permit is of a first attempt.
async fn are_first(world: &BacklogWorld, of: DestinationId, permits: &[Permit]) -> Vec<bool> {
    let attempts = world.attempts(of).await;
    let try_of = |permit: &Permit| {
        let mut found = attempts.iter().filter(|one| one.id == permit.attempt);
        found.next().unwrap().try_number
    };
    permits.iter().map(|permit| try_of(permit) == 1).collect()
}

/// Every second permit goes to each, whatever has waited for longer.
pub async fn while_both_wait_permits_go_in_turn(world: &BacklogWorld) {
    let of = both(world, 10, 10, 30).await;
    let permits = world.admit(of).await;
    assert_eq!(permits.len(), 10);
    let first = are_first(world, of, &permits).await;
    let (a, b): (Vec<_>, Vec<_>) = first.chunks(2).map(|pair| (pair[0], pair[1])).unzip();
    assert!(a.iter().all(|one| *one == a[0]), "in turn: {first:?}");
    assert!(b.iter().all(|one| *one != a[0]), "in turn: {first:?}");
}

/// The turn is remembered from run to run.
pub async fn one_permit_a_run_goes_in_turn_as_well(world: &BacklogWorld) {
    let of = both(world, 1, 4, 8).await;
    let worker = world.worker().await;
    let mut first = Vec::new();
    for _ in 0..8 {
        let permits = world.start_all(worker, of).await;
        first.extend(are_first(world, of, &permits).await);
        world.finish(worker, &permits).await;
    }
    assert_eq!(first.len(), 8);
    assert!(first.windows(2).all(|two| two[0] != two[1]), "{first:?}");
}

/// Nobody waits for a turn that nobody takes.
pub async fn what_waits_alone_gets_all(world: &BacklogWorld) {
    let of = both(world, 10, 10, 0).await;
    assert_eq!(world.admit(of).await.len(), 10);
    let of = both(world, 10, 0, 12).await;
    assert_eq!(world.admit(of).await.len(), 10);
    let of = both(world, 10, 2, 12).await;
    let permits = world.admit(of).await;
    let first = are_first(world, of, &permits).await;
    assert_eq!(first.iter().filter(|one| **one).count(), 8, "{first:?}");
}
