//! Backlogs that are counted, and those that refuse.

use std::num::NonZeroU64;
use std::time::Duration;

use bytes::Bytes;
use domain::backpressure::{BacklogBounds, Backlogged, CountPace, MAX_RETRY_AFTER, Standing};
use domain::event::{Audience, Idempotency, NewEvent, Timing};
use domain::ids::{DestinationId, EventId, TenantId};

use super::BackpressureWorld;
use engine::ports::{Acceptance, Counted, DEFAULT_TENANT};

fn bounds(destination: u64, tenant: u64, all: u64) -> BacklogBounds {
    let bound = |bound| NonZeroU64::new(bound).unwrap();
    BacklogBounds {
        destination: bound(destination),
        tenant: bound(tenant),
        all: bound(all),
    }
}

/// Nobody is near his bound.
fn wide() -> BacklogBounds {
    bounds(1_000, 1_000, 1_000)
}

/// Always due.
const NOW: CountPace = CountPace {
    every: Duration::ZERO,
    one_part_in: 0,
    at_most: Duration::ZERO,
};

async fn counted(world: &BackpressureWorld, bounds: &BacklogBounds) -> Vec<Standing> {
    let counted = world.backpressure.standings(bounds, &[], Some(&NOW));
    counted.await.unwrap().standings
}

async fn pending(world: &BackpressureWorld) -> u64 {
    let standings = counted(world, &wide()).await;
    assert_eq!(standings[0].whose, Backlogged::All);
    standings[0].pending
}

/// The whole comes first, whatever it is.
fn of(standings: &[Standing], whose: Backlogged) -> Option<Standing> {
    standings.iter().copied().find(|one| one.whose == whose)
}

fn refusing(standings: &[Standing]) -> Vec<Backlogged> {
    let refusing = standings.iter().filter(|one| one.is_refusing());
    refusing.map(|one| one.whose).collect()
}

fn backlog(destination: DestinationId) -> Backlogged {
    Backlogged::Destination(DEFAULT_TENANT, destination)
}

/// As if so many of its attempts had been delivered.
async fn drain(world: &BackpressureWorld, destination: DestinationId, attempts: u32) {
    let delete = format!(
        "delete from deliveries where id in (
            select id from deliveries where destination_id = '{destination}' order by id
            limit {attempts}
        )"
    );
    world.sql(&delete).await;
}

/// What waits, has a permit or has started; not what is done.
pub async fn what_is_pending_is_counted(world: &BackpressureWorld) {
    assert_eq!(pending(world).await, 0);
    let destination = world.destination().per_second(3).create().await;
    let other = world.destination().per_second(3).create().await;
    world.accept(destination, 6).await;
    world.accept(other, 2).await;
    assert_eq!(pending(world).await, 8);
    let permits = world.admit(destination).await;
    assert_eq!(permits.len(), 3);
    let worker = world.worker().await;
    world.start(worker, &permits[..2]).await;
    assert_eq!(pending(world).await, 8);
    world.finish(worker, &permits[..1]).await;
    assert_eq!(pending(world).await, 7);
    world.store.release_permits(&permits[2..]).await.unwrap();
    assert_eq!(pending(world).await, 7, "it waits again");
}

/// Above 80 per cent of the bound, until below 50.
pub async fn a_backlog_above_its_mark_refuses_until_below_the_low_one(world: &BackpressureWorld) {
    let destination = world.destination().per_second(2).create().await;
    let bounds = bounds(10, 1_000, 1_000);
    world.accept(destination, 8).await;
    assert_eq!(refusing(&counted(world, &bounds).await), []);
    world.accept(destination, 1).await;
    let refused = [backlog(destination)];
    assert_eq!(refusing(&counted(world, &bounds).await), refused);
    drain(world, destination, 4).await;
    assert_eq!(refusing(&counted(world, &bounds).await), refused);
    drain(world, destination, 1).await;
    assert_eq!(refusing(&counted(world, &bounds).await), []);
    world.accept(destination, 4).await;
    let again = counted(world, &bounds).await;
    assert_eq!(refusing(&again), [], "eight are taken again");
    assert_eq!(of(&again, backlog(destination)).unwrap().pending, 8);
}

/// By the limit in force; a paused one does not drain.
pub async fn refused_clients_are_told_when_it_has_drained(world: &BackpressureWorld) {
    let destination = world.destination().per_second(2).create().await;
    world.accept(destination, 11).await;
    let bounds = bounds(10, 1_000, 1_000);
    let standing = async || {
        let standings = counted(world, &bounds).await;
        of(&standings, backlog(destination)).unwrap()
    };
    let first = standing().await;
    assert_eq!(
        first.retry_after,
        Duration::from_secs(3),
        "six above the mark"
    );
    let (since, pending) = first.refused.unwrap();
    assert_eq!(pending, 11);
    let pause = format!("update destinations set state = 'paused' where id = '{destination}'");
    world.sql(&pause).await;
    drain(world, destination, 1).await;
    let second = standing().await;
    assert_eq!(second.retry_after, MAX_RETRY_AFTER);
    assert_eq!((second.pending, second.refused), (10, Some((since, 11))));
}

/// Each by its own bound.
pub async fn tenants_and_the_whole_are_bounded_too(world: &BackpressureWorld) {
    let other = world.another_tenant().await;
    let two = [
        world.destination().per_second(2).create().await,
        world.destination().per_second(2).create().await,
    ];
    let theirs = world.destination().per_second(2).create_for(other).await;
    for destination in two {
        world.accept(destination, 5).await;
    }
    world.accept_for(other, theirs, 3).await;
    let standings = counted(world, &bounds(10, 10, 100)).await;
    assert_eq!(refusing(&standings), [Backlogged::Tenant(DEFAULT_TENANT)]);
    let ours = of(&standings, Backlogged::Tenant(DEFAULT_TENANT)).unwrap();
    assert_eq!(ours.pending, 10);
    let theirs = of(&standings, Backlogged::Tenant(other)).unwrap();
    assert_eq!((theirs.pending, theirs.retry_after), (3, Duration::ZERO));
    let whole = counted(world, &bounds(10, 1_000, 17)).await;
    assert_eq!(refusing(&whole), []);
    let whole = counted(world, &bounds(10, 1_000, 16)).await;
    assert_eq!(refusing(&whole), [Backlogged::All]);
}

/// Below a fiftieth of its bound.
pub async fn what_is_short_is_not_told_of(world: &BackpressureWorld) {
    let long = world.destination().per_second(2).create().await;
    let short = world.destination().per_second(2).create().await;
    world.accept(long, 4).await;
    world.accept(short, 1).await;
    let bounds = bounds(100, 1_000, 1_000);
    let standings = counted(world, &bounds).await;
    let told: Vec<_> = standings.iter().map(|one| one.whose).collect();
    assert_eq!(told, [Backlogged::All, backlog(long)]);
    drain(world, long, 3).await;
    let standings = counted(world, &bounds).await;
    assert_eq!(standings.len(), 1, "{standings:?}");
}

/// Though by the time of the count it is between the marks.
pub async fn what_was_seen_above_its_mark_refuses(world: &BackpressureWorld) {
    let destination = world.destination().per_second(2).create().await;
    world.accept(destination, 6).await;
    let bounds = bounds(10, 1_000, 1_000);
    assert_eq!(refusing(&counted(world, &bounds).await), []);
    let passed = [backlog(destination)];
    let told = (world.backpressure).standings(&bounds, &passed, Some(&NOW));
    assert_eq!(refusing(&told.await.unwrap().standings), passed);
    assert_eq!(refusing(&counted(world, &bounds).await), passed);
}

/// Every process asks; one of them counts. The others are told how old it is.
pub async fn a_count_is_not_repeated_before_its_time(world: &BackpressureWorld) {
    let destination = world.destination().per_second(2).create().await;
    world.accept(destination, 2).await;
    let first = counted(world, &wide()).await;
    world.accept(destination, 3).await;
    let hour = CountPace {
        every: Duration::from_secs(3_600),
        at_most: Duration::from_secs(3_600),
        ..NOW
    };
    world.pass(Duration::from_millis(60)).await;
    for pace in [None, Some(&hour)] {
        let told = world.backpressure.standings(&wide(), &[], pace).await;
        let Counted {
            standings,
            age,
            wait,
        } = told.unwrap();
        assert_eq!(standings, first);
        assert!(age >= Duration::from_millis(50), "{age:?}");
        assert!(pace.is_none() || wait == hour.every);
    }
    assert_eq!(pending(world).await, 5);
    let told = world.backpressure.standings(&wide(), &[], None).await;
    let told = told.unwrap();
    assert_eq!(told.standings[0].pending, 5);
}

/// Which it would not take anyhow, and says why.
pub async fn a_destination_that_takes_nothing_is_not_told_of(world: &BackpressureWorld) {
    let other = world.another_tenant().await;
    let disabled = world.destination().per_second(2).create_for(other).await;
    world.accept_for(other, disabled, 9).await;
    let bounds = bounds(10, 1_000, 1_000);
    let theirs = Backlogged::Destination(other, disabled);
    assert_eq!(refusing(&counted(world, &bounds).await), [theirs]);
    let disable = format!("update destinations set state = 'disabled' where id = '{disabled}'");
    world.sql(&disable).await;
    let standings = counted(world, &bounds).await;
    assert_eq!((of(&standings, theirs), standings[0].pending), (None, 9));
}

/// And accepts nothing: a client that repeats a request is answered although
/// its destination takes no more.
pub async fn a_repeated_request_is_known(world: &BackpressureWorld) {
    let destination = world.destination().per_second(2).create().await;
    let event = |key: Option<&str>, tenant: TenantId, digest| NewEvent {
        id: EventId(world.id()),
        tenant,
        audience: Audience::Destination(destination),
        event_type: None,
        content_type: "application/json".to_owned(),
        payload: Bytes::from_static(b"1"),
        idempotency: key.map(|key| Idempotency {
            key: key.to_owned(),
            digest,
            kept_for: Duration::from_secs(60),
        }),
        trace: None,
        timing: Timing::default(),
    };
    let first = event(Some("order-1"), DEFAULT_TENANT, [1; 32]);
    let accepted = world
        .store
        .accept_events(std::slice::from_ref(&first))
        .await;
    assert_eq!(accepted.unwrap(), [Acceptance::Accepted(vec![destination])]);
    let other = world.another_tenant().await;
    let asked = [
        event(Some("order-1"), DEFAULT_TENANT, [1; 32]),
        event(Some("order-1"), DEFAULT_TENANT, [2; 32]),
        event(Some("order-2"), DEFAULT_TENANT, [1; 32]),
        event(Some("order-1"), other, [1; 32]),
        event(None, DEFAULT_TENANT, [0; 32]),
    ];
    let answers = world.backpressure.repeated(&asked).await.unwrap();
    let repeated = Acceptance::Repeated {
        event: first.id,
        destinations: vec![destination],
    };
    let expected = [
        Some(repeated),
        Some(Acceptance::KeyReused),
        None,
        None,
        None,
    ];
    assert_eq!(answers, expected);
    assert_eq!(pending(world).await, 1);
}
