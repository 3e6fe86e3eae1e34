//! How it is gone about: in steps, with rests.

use std::time::Duration;

use domain::retention::Retention;

use super::{KEEP, NOW, RetentionWorld, at_once};
use engine::ports::{RetainRules, Walk};

const LEDGER: Retention = Retention {
    ledger: NOW,
    ..KEEP
};

/// The steps of one walk until it rests: examined and removed.
async fn walk(world: &RetentionWorld, walk: Walk, rules: &RetainRules) -> Vec<(u32, u32)> {
    let mut steps = Vec::new();
    loop {
        world.pass(rules.rest + Duration::from_millis(1)).await;
        let retained = world.step(rules).await;
        if retained.walk == Some(walk) {
            steps.push((retained.examined, retained.removed));
            if !retained.more {
                return steps;
            }
        }
    }
}

/// Each step looks at so many rows and no more; kept rows do not stop it.
pub async fn a_step_is_bounded_and_the_next_goes_on(world: &RetentionWorld) {
    let of = world.destination().unlimited().create().await;
    let failed = world.destination().unlimited().create().await;
    world.die(failed, 2).await;
    world.deliver(of, 5).await;
    world.pass(Duration::from_millis(60)).await;
    let steps = walk(world, Walk::Attempts, &at_once(LEDGER, 2)).await;
    assert_eq!(steps, [(2, 0), (2, 2), (2, 2), (1, 1)]);
    assert_eq!(world.rows(of).await, []);
    assert_eq!(world.rows(failed).await.len(), 2);
    let payloads = Retention {
        payloads: NOW,
        ..KEEP
    };
    let steps = walk(world, Walk::Events, &at_once(payloads, 3)).await;
    assert_eq!(steps, [(3, 1), (3, 3), (1, 1)]);
}

/// Nothing is due until then: a look costs nothing.
pub async fn a_walk_that_is_through_rests(world: &RetentionWorld) {
    let rules = RetainRules {
        rest: Duration::from_secs(3_600),
        ..at_once(LEDGER, 100)
    };
    let mut walks = Vec::new();
    for _ in Walk::ALL {
        let retained = world.step(&rules).await;
        assert!(!retained.more);
        walks.extend(retained.walk);
    }
    walks.sort_unstable();
    assert_eq!(walks, Walk::ALL);
    assert_eq!(world.step(&rules).await.walk, None);
    let of = world.destination().unlimited().create().await;
    world.deliver(of, 1).await;
    assert_eq!(world.step(&rules).await.walk, None);
}

/// A walk that is through begins anew when its round is old enough: what was under way
/// when it came by is over then.
pub async fn what_had_to_stay_is_looked_at_again(world: &RetentionWorld) {
    let of = world.destination().unlimited().create().await;
    world.accept(of, 1).await;
    let worker = world.worker().await;
    let permits = world.start_all(worker, of).await;
    let later_made = world.destination().unlimited().create().await;
    world.deliver(later_made, 1).await;
    world.pass(Duration::from_millis(60)).await;
    let later = RetainRules {
        again: Duration::from_secs(3_600),
        ..at_once(LEDGER, 100)
    };
    // Whether it looks at what is under way is the store's affair.
    let steps = walk(world, Walk::Attempts, &later).await;
    assert_eq!(steps.iter().map(|(_, removed)| removed).sum::<u32>(), 1);
    world.finish(worker, &permits).await;
    world.pass(Duration::from_millis(60)).await;
    let steps = walk(world, Walk::Attempts, &later).await;
    assert_eq!(steps, [(0, 0)], "it has gone by");
    let at_once = at_once(LEDGER, 100);
    assert_eq!(walk(world, Walk::Attempts, &at_once).await, [(0, 0)]);
    assert_eq!(walk(world, Walk::Attempts, &at_once).await, [(1, 1)]);
}

/// What stays behind is not read each time.
pub async fn what_is_new_is_found_without_beginning_anew(world: &RetentionWorld) {
    let of = world.destination().unlimited().create().await;
    let failed = world.destination().unlimited().create().await;
    world.die(failed, 3).await;
    world.pass(Duration::from_millis(5)).await;
    let later = RetainRules {
        again: Duration::from_secs(3_600),
        ..at_once(LEDGER, 100)
    };
    assert_eq!(walk(world, Walk::Attempts, &later).await, [(3, 0)]);
    world.deliver(of, 2).await;
    world.pass(Duration::from_millis(60)).await;
    assert_eq!(walk(world, Walk::Attempts, &later).await, [(2, 2)]);
}
