//! Changes of limits by a user's SQL: what a change revokes, when it is in
//! force, and what limit history says.

use std::time::Duration;

use domain::attempt::AttemptState;
use domain::destination::DestinationState;
use domain::ids::DestinationId;
use domain::limit::Shape;
use domain::permit::Permit;
use domain::policy::LimitSettings;

use super::World;
use engine::ports::{ClaimAnswer, DEFAULT_TENANT, DestinationChange, LimitHistory};

/// Sets columns of one destination, as a user would.
async fn set(world: &World, destination: DestinationId, columns: &str) {
    world
        .sql(&format!(
            "update destinations set {columns} where id = '{destination}'"
        ))
        .await;
}

/// A window that begins with a cut holds no claim of before it, even if that
/// is dated ahead. Several times: on a real clock the slots soon come.
pub async fn a_cut_is_dated_after_starts_that_are_dated_ahead(world: &World) {
    for _ in 0..5 {
        let spaced = world.destination().per_second(200);
        let destination = spaced.shape(Shape::LeakyBucket).create().await;
        world.accept(destination, 20).await;
        let permits = world.admit(destination).await;
        let worker = world.worker().await;
        let claims = world.claim(worker, &permits).await;
        set(world, destination, "limit_per_second = 100").await;
        let claimed_at = |answer: &ClaimAnswer| match answer {
            ClaimAnswer::Started(start) => Some(start.claimed_at),
            _ => None,
        };
        let last = claims.answers.iter().filter_map(claimed_at).max().unwrap();
        let history = history(world, destination).await;
        assert!(history[1].in_force_from > last, "{last:?}: {history:?}");
    }
}

async fn history(world: &World, destination: DestinationId) -> Vec<LimitHistory> {
    world.catalog.limit_history(destination).await.unwrap()
}

/// A destination with permits outstanding.
async fn with_permits(world: &World, per_second: u32) -> (DestinationId, Vec<Permit>) {
    let destination = world.destination().per_second(per_second).create().await;
    world.accept(destination, 20).await;
    let permits = world.admit(destination).await;
    assert_eq!(permits.len(), per_second as usize);
    (destination, permits)
}

/// None of the permits starts any more, and new ones are of a later epoch.
async fn assert_revoked(world: &World, destination: DestinationId, permits: &[Permit]) {
    let states = world.states(destination).await;
    assert!(
        states.iter().all(|state| *state == AttemptState::Waiting),
        "got {states:?}"
    );
    let worker = world.worker().await;
    for answer in world.claim(worker, permits).await.answers {
        assert_eq!(answer, ClaimAnswer::Refused);
    }
    let target = world.store.targets(&[destination]).await.unwrap();
    assert!(target[0].epoch > permits[0].epoch);
}

/// Permits of the old limit are void with the commit, the new limit is in
/// force, and history says from when on.
pub async fn a_lowered_limit_revokes_at_once(world: &World) {
    let (destination, permits) = with_permits(world, 10).await;
    let worker = world.worker().await;
    world.start(worker, &permits[..2]).await;
    let last_start = world.now().await;
    world.pass(Duration::from_millis(5)).await;
    set(world, destination, "limit_per_second = 3").await;
    let claims = world.claim(worker, &permits[2..]).await;
    assert!(
        claims
            .answers
            .iter()
            .all(|answer| *answer == ClaimAnswer::Refused)
    );
    let new = world.admit(destination).await;
    // Two of three have started within the second.
    let at_once = |permit: &&Permit| permit.not_before <= last_start + Duration::from_millis(900);
    assert_eq!(new.iter().filter(at_once).count(), 1);
    assert!(new.iter().all(|permit| permit.epoch > permits[0].epoch));
    assert!(new[0].number > permits[9].number);
    let history = history(world, destination).await;
    assert_eq!(history.len(), 2);
    assert_eq!(history[0].effective.per_second, Some(10));
    assert_eq!(history[1].effective.per_second, Some(3));
    assert!(history[1].in_force_from > last_start);
    assert!(history[1].in_force_from <= world.now().await + Duration::from_millis(2));
}

/// A pure raise: permits stay good, and more are admitted.
pub async fn a_raised_limit_leaves_permits_alone(world: &World) {
    let (destination, permits) = with_permits(world, 3).await;
    set(world, destination, "limit_per_second = 10").await;
    assert_eq!(world.readmit(destination).await.len(), 10);
    let worker = world.worker().await;
    let starts = world.start(worker, &permits).await;
    assert_eq!(starts.len(), 3);
    let history = history(world, destination).await;
    assert_eq!(history.len(), 2);
    assert_eq!(history[1].effective.per_second, Some(10));
    // Lifted to none, of two.
    set(world, destination, "limit_per_minute = 5000").await;
    let (destination, permits) = with_permits(world, 4).await;
    set(
        world,
        destination,
        "limit_per_second = null, unlimited = true",
    )
    .await;
    assert_eq!(world.readmit(destination).await[..4], permits);
}

/// Another shape is another promise.
pub async fn a_change_of_shape_revokes(world: &World) {
    let (destination, permits) = with_permits(world, 5).await;
    set(world, destination, "shape = 'leaky_bucket'").await;
    assert_revoked(world, destination, &permits).await;
    let history = history(world, destination).await;
    assert_eq!(history[1].effective.shape, Some(Shape::LeakyBucket));
    // A larger margin is a lower limit; so is another limit beside it.
    for columns in ["safety_margin = 0.1", "limit_per_minute = 100", "burst = 2"] {
        let (destination, permits) = with_permits(world, 5).await;
        set(world, destination, columns).await;
        assert_revoked(world, destination, &permits).await;
    }
}

/// All NULL is not *no limit*: it is the tier's, which may be lower.
pub async fn no_limit_any_more_may_mean_the_tiers(world: &World) {
    let (destination, permits) = with_permits(world, 20).await;
    set(world, destination, "limit_per_second = null").await;
    assert_revoked(world, destination, &permits).await;
    let history = history(world, destination).await;
    assert_eq!(history[1].effective.per_second, Some(10));
    assert_eq!(history[1].effective.shape, Some(Shape::TokenBucket));
}

/// A tier's change reaches those that inherit, and no others.
pub async fn a_tiers_change_reaches_all_that_inherit(world: &World) {
    let (own, own_permits) = with_permits(world, 5).await;
    let mut inheriting = Vec::new();
    for _ in 0..2 {
        let destination = world.destination().create().await;
        world.accept(destination, 5).await;
        inheriting.push((destination, world.admit(destination).await));
    }
    world
        .sql("update tiers set limit_per_second = 1, burst = 1 where name = 'standard'")
        .await;
    for (destination, permits) in &inheriting {
        assert_revoked(world, *destination, permits).await;
        let history = history(world, *destination).await;
        assert_eq!(history.len(), 2);
        assert_eq!(history[1].effective.per_second, Some(1));
    }
    assert_eq!(world.readmit(own).await, own_permits);
    assert_eq!(history(world, own).await.len(), 1);
    let sweep = engine::ports::Sweep {
        after: None,
        limit: 100,
        overdue: Duration::from_secs(60),
        everything: false,
        only_marks: false,
    };
    let marks = world.store.sweep(&sweep).await.unwrap().marks;
    for (destination, _) in &inheriting {
        assert!(marks.iter().any(|mark| mark.destination == *destination));
    }
}

/// The same for a tenant that changes its tier.
pub async fn a_tenants_change_of_tier_reaches_its_destinations(world: &World) {
    let destination = world.destination().create().await;
    world.accept(destination, 5).await;
    let permits = world.admit(destination).await;
    world
        .sql(&format!(
            "update tenants set tier = 'free' where id = '{DEFAULT_TENANT}'"
        ))
        .await;
    assert_revoked(world, destination, &permits).await;
    let history_of_free = history(world, destination).await;
    assert_eq!(history_of_free[1].effective.per_second, Some(2));
    // Upwards is a raise.
    let permits = world.admit(destination).await;
    world
        .sql(&format!(
            "update tenants set tier = 'enterprise' where id = '{DEFAULT_TENANT}'"
        ))
        .await;
    assert_eq!(world.readmit(destination).await[..permits.len()], permits);
    assert_eq!(history(world, destination).await.len(), 3);
}

/// The API goes the same way as SQL.
pub async fn a_change_through_the_catalog_is_the_same(world: &World) {
    let (destination, permits) = with_permits(world, 5).await;
    let change = DestinationChange {
        limits: Some(LimitSettings {
            per_second: Some(2),
            ..LimitSettings::EXACT
        }),
        ..DestinationChange::default()
    };
    let before = world.now().await;
    let changed = world
        .catalog
        .change_destination(DEFAULT_TENANT, destination, &change);
    assert_eq!(changed.await.unwrap().limits.per_second, Some(2));
    let after = world.now().await;
    assert_revoked(world, destination, &permits).await;
    let entries = history(world, destination).await;
    assert_eq!(entries.len(), 2);
    assert!(before <= entries[1].in_force_from && entries[1].in_force_from <= after);
    let change = DestinationChange {
        state: Some(DestinationState::Paused),
        ..DestinationChange::default()
    };
    let changed = world
        .catalog
        .change_destination(DEFAULT_TENANT, destination, &change);
    assert_eq!(changed.await.unwrap().state, DestinationState::Paused);
    assert_eq!(
        history(world, destination).await[2].state,
        DestinationState::Paused
    );
}

/// Names and subscriptions are not limits; nor is writing the same again.
pub async fn a_change_of_the_name_is_no_change(world: &World) {
    let (destination, permits) = with_permits(world, 5).await;
    set(world, destination, "name = 'shop', limit_per_second = 5").await;
    assert_eq!(world.readmit(destination).await, permits);
    assert_eq!(history(world, destination).await.len(), 1);
}

/// What was in force from the beginning, resolved against the tier.
pub async fn history_begins_with_the_destination(world: &World) {
    let before = world.now().await;
    let destination = world.destination().max_in_flight(7).create().await;
    let history = history(world, destination).await;
    assert_eq!(history.len(), 1);
    assert!(history[0].in_force_from >= before);
    assert!(history[0].in_force_from <= world.now().await);
    let expected = LimitSettings {
        per_second: Some(10),
        burst: Some(50),
        shape: Some(Shape::TokenBucket),
        max_in_flight: Some(7),
        ..LimitSettings::EXACT
    };
    assert_eq!(history[0].effective, expected);
    assert_eq!(history[0].state, DestinationState::Active);
}

/// Whoever writes it; the constraint's name ends in the column's.
pub async fn nonsense_is_refused_by_the_constraints(world: &World) {
    let destination = world.destination().per_second(5).create().await;
    let nonsense = [
        ("limit_per_second = -1", "limit_per_second"),
        ("limit_per_day = 1000000001", "limit_per_day"),
        ("burst = 0", "burst"),
        ("max_in_flight = 0", "max_in_flight"),
        ("safety_margin = 1.5", "safety_margin"),
        ("margin_cap = -0.1", "margin_cap"),
        ("count = 'arrival'", "count"),
        ("shape = 'square'", "shape"),
        ("state = 'asleep'", "state"),
        ("unlimited = true", "unlimited"),
        ("shape = 'leaky_bucket', burst = 2", "burst"),
    ];
    for (columns, column) in nonsense {
        let update = format!("update destinations set {columns} where id = '{destination}'");
        let refused = world.refused_sql(&update).await;
        assert!(
            refused.contains(&format!("destinations_check_{column}")),
            "{refused}"
        );
    }
    assert_eq!(history(world, destination).await.len(), 1);
}
