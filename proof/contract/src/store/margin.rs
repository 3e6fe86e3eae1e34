//! The margin of windows: what
//! [`Store::report_spreads`](engine::ports::Store::report_spreads) makes of it.

use std::time::Duration;

use domain::attempt::OutcomeKind;
use domain::ids::DestinationId;
use domain::margin::{self, Margin, Spread};
use engine::ports::{DEFAULT_TENANT, NextTry, Outcome};

use super::World;

const SECOND: Duration = Duration::from_secs(1);

fn spread(least: u64, most: u64) -> Spread {
    Spread {
        least: Duration::from_micros(least),
        most: Duration::from_micros(most),
    }
}

/// One a second, and its margin is measured.
async fn measured(world: &World) -> DestinationId {
    world
        .destination()
        .per_second(1)
        .margin(None)
        .create()
        .await
}

async fn known(world: &World, destination: DestinationId) -> Option<Spread> {
    let found = world.catalog.destination(DEFAULT_TENANT, destination);
    found.await.unwrap().spread
}

async fn report(world: &World, spreads: &[(DestinationId, Spread)]) {
    world.store.report_spreads(spreads).await.unwrap();
}

/// Until somebody has measured it, it is the largest; and one that is set is as set.
pub async fn a_margin_is_measured_unless_one_is_set(world: &World) {
    let destination = measured(world).await;
    let set = world.destination().per_second(1).margin(Some(0.05));
    let set = set.create().await;
    let margin = async |id| {
        let found = world.catalog.destination(DEFAULT_TENANT, id).await.unwrap();
        found.policy().margin.of(SECOND)
    };
    assert_eq!(margin(destination).await, SECOND / 100);
    report(world, &[(destination, spread(1_200, 5_700))]).await;
    report(world, &[(set, spread(1_200, 5_700))]).await;
    assert_eq!(margin(destination).await, Duration::from_micros(4_500));
    assert_eq!(margin(set).await, SECOND / 20);
}

/// And to raise it makes windows longer, so it revokes.
pub async fn the_cap_of_a_margin_is_its_owners(world: &World) {
    let destination = measured(world).await;
    report(world, &[(destination, spread(1_000, 90_000))]).await;
    world.accept(destination, 1).await;
    let (worker, permits) = (world.worker().await, world.admit(destination).await);
    let set = async |cap: &str| {
        let set = format!("margin_cap = {cap} where id = '{destination}'");
        world.sql(&format!("update destinations set {set}")).await;
        let found = world.catalog.destination(DEFAULT_TENANT, destination).await;
        found.unwrap().policy().margin.of(SECOND)
    };
    assert_eq!(set("0.001").await, SECOND / 1_000);
    assert_eq!(set("0.05").await, SECOND / 20);
    assert_eq!(set("0.5").await, Duration::from_micros(89_000));
    let claims = world.claim(worker, &permits).await;
    assert!(matches!(
        claims.answers[0],
        engine::ports::ClaimAnswer::Refused
    ));
}

/// Several workers' requests meet at the receiver, so what they say holds together.
pub async fn what_workers_say_is_joined(world: &World) {
    let (one, other) = (measured(world).await, measured(world).await);
    report(world, &[]).await;
    report(world, &[(one, spread(2_000, 3_000))]).await;
    let both = [(one, spread(1_000, 2_500)), (other, spread(7, 9))];
    report(world, &both).await;
    assert_eq!(known(world, one).await, Some(spread(1_000, 3_000)));
    assert_eq!(known(world, other).await, Some(spread(7, 9)));
    report(world, &[(one, spread(40_000, 90_000))]).await;
    assert_eq!(known(world, one).await, Some(spread(1_000, 90_000)));
}

/// Another URL is another receiver, and what is deleted is not remembered.
pub async fn another_receiver_is_measured_anew(world: &World) {
    let destination = measured(world).await;
    report(world, &[(destination, spread(1, 2))]).await;
    let change = |set: &str| format!("update destinations set {set} where id = '{destination}'");
    world.sql(&change("limit_per_second = 7")).await;
    assert_eq!(known(world, destination).await, Some(spread(1, 2)));
    world.sql(&change("url = 'https://other.example/'")).await;
    assert_eq!(known(world, destination).await, None);
    report(world, &[(destination, spread(3, 4))]).await;
    let gone = world
        .catalog
        .delete_destination(DEFAULT_TENANT, destination);
    gone.await.unwrap();
    report(world, &[(destination, spread(5, 6))]).await;
    let left = "insert into response_times (destination_id, least_micros, least_at, most_micros, \
        most_at) select destination_id, 0, in_force_from, 0, in_force_from from limit_history";
    // Its row is not there to be in the way.
    world.sql(&format!("{left} where id = 1")).await;
}

/// Each joins what the other has said, though neither found anything when it came.
pub async fn two_that_are_first_are_joined(world: &World) {
    for _ in 0..20 {
        let destination = measured(world).await;
        let (near, far) = ([(destination, spread(1, 2))], [(destination, spread(8, 9))]);
        let store = &world.store;
        let (one, other) = tokio::join!(store.report_spreads(&near), store.report_spreads(&far));
        one.and(other).unwrap();
        assert_eq!(known(world, destination).await, Some(spread(1, 9)));
    }
}

/// The next slot of a full window opens a period and a margin after the start.
pub async fn a_window_is_longer_by_its_margin(world: &World) {
    let destination = measured(world).await;
    let wide = spread(1_000, 8_000);
    let margin = wide.width();
    report(world, &[(destination, wide)]).await;
    world.accept(destination, 3).await;
    let worker = world.worker().await;
    let permit = world.admit(destination).await[0];
    let start = world.start(worker, &[permit]).await.remove(0);
    let answered = Outcome {
        sent_after: Duration::ZERO,
        ..world.outcome(&permit, OutcomeKind::Succeeded, NextTry::None)
    };
    let recorded = world.store.record_outcomes(worker, &[answered]).await;
    recorded.unwrap();
    let opens = start.claimed_at + SECOND + margin;
    // Within a lead of its slot.
    world.pass_until(opens - Duration::from_millis(150)).await;
    let next = world.admit(destination).await;
    assert_eq!(next.len(), 1);
    let asked_at = world.now().await;
    assert!(next[0].not_before >= opens);
    assert!(next[0].not_before <= asked_at.max(opens));
}

/// To set one, or to have it measured, may make windows longer: permits go back. None at
/// all never does.
pub async fn a_change_of_the_margin_revokes_unless_it_is_none(world: &World) {
    for (before, after, revokes) in [
        (None, "0.02", true),
        (Some(0.02), "null", true),
        (Some(0.0), "null", true),
        (Some(0.0), "0.01", true),
        (None, "0", false),
        (Some(0.02), "0.01", false),
        (None, "null", false),
    ] {
        let destination = world.destination().per_second(5).margin(before);
        let destination = destination.create().await;
        world.accept(destination, 1).await;
        let worker = world.worker().await;
        let permits = world.admit(destination).await;
        let set = format!("safety_margin = {after} where id = '{destination}'");
        world.sql(&format!("update destinations set {set}")).await;
        let claims = world.claim(worker, &permits).await;
        let is_refused = matches!(claims.answers[0], engine::ports::ClaimAnswer::Refused);
        assert_eq!(is_refused, revokes, "{before:?} to {after}");
        let unmeasured = Margin::Measured {
            spread: None,
            cap: margin::MOST,
        };
        let margin = world.catalog.destination(DEFAULT_TENANT, destination);
        let margin = margin.await.unwrap().policy().margin;
        let expected = after.parse().map_or(unmeasured, Margin::Set);
        assert_eq!(margin, expected);
    }
}
