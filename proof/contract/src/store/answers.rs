//! `count: response`: a request counts until its answer has come.

use std::time::Duration;

use domain::admission::{Blocked, Look, MAX_REQUEST_TIMEOUT};
use domain::attempt::{AttemptState, OutcomeKind};
use domain::ids::{DestinationId, WorkerId};
use domain::permit::Permit;
use domain::time::Timestamp;
use engine::ports::{ClaimAnswer, HEARTBEAT_TIMEOUT, NextTry, Outcome, ReapRules, Start};

use super::World;

const SECOND: Duration = Duration::from_secs(1);

/// So many a second, by their answers, and more waits than they are.
async fn limited(world: &World, per_second: u32) -> DestinationId {
    let destination = world.destination().per_second(per_second).by_response();
    let destination = destination.create().await;
    world.accept(destination, 2 * per_second as usize + 1).await;
    destination
}

/// The first of them is under way.
async fn started(world: &World, destination: DestinationId) -> (WorkerId, Permit, Start) {
    let worker = world.worker().await;
    let permit = world.admit(destination).await[0];
    let start = world.start(worker, &[permit]).await.remove(0);
    (worker, permit, start)
}

/// Nothing is admitted until a period after the time-out of this start.
async fn opens_after_its_time_out(world: &World, destination: DestinationId, start: &Start) {
    let (permits, look, blocked) = world.decide(destination).await;
    assert_eq!((permits.len(), blocked), (0, Some(Blocked::Limit)));
    let opens = start.claimed_at + MAX_REQUEST_TIMEOUT + SECOND;
    let is_soon = |at: Timestamp| at > opens - SECOND / 2 && at < opens + SECOND;
    assert!(
        matches!(look, Look::At { at, .. } if is_soon(at)),
        "{look:?} for {opens:?}"
    );
}

/// However long its answer takes; and the next slot opens a period after its end.
pub async fn a_request_counts_until_its_answer_and_a_period(world: &World) {
    let destination = limited(world, 1).await;
    let (worker, permit, start) = started(world, destination).await;
    world.pass(Duration::from_millis(1_300)).await;
    let (permits, look, blocked) = world.decide(destination).await;
    assert_eq!((permits.len(), blocked), (0, Some(Blocked::Limit)));
    // Its outcome wakes the destination; whatever comes meanwhile need not wait.
    let Look::At { at, floor } = look else {
        panic!("{look:?}")
    };
    let now = world.now().await;
    assert!(at <= now + SECOND && floor.is_some_and(|floor| floor < now + SECOND / 10));
    let elapsed = Duration::from_millis(1_250);
    let answered = Outcome {
        elapsed,
        ..world.outcome(&permit, OutcomeKind::Succeeded, NextTry::None)
    };
    let recorded = world.store.record_outcomes(worker, &[answered]).await;
    assert_eq!(recorded.unwrap().wakes.len(), 1);
    let opens = start.claimed_at + elapsed + SECOND;
    world.pass_until(opens - Duration::from_millis(150)).await;
    let next = world.admit(destination).await;
    assert_eq!(next.len(), 1);
    let asked_at = world.now().await;
    assert!(opens <= next[0].not_before && next[0].not_before <= asked_at.max(opens));
}

/// It may arrive until the end of its time-out.
pub async fn one_that_nobody_answers_counts_to_its_time_out(world: &World) {
    let destination = limited(world, 1).await;
    let (_, _, start) = started(world, destination).await;
    world.pass(Duration::from_millis(5)).await;
    let rules = ReapRules {
        heartbeat_timeout: HEARTBEAT_TIMEOUT,
        start_timeout: Duration::from_millis(1),
        permit_grace: SECOND,
        everything: true,
    };
    world.store.reap(&rules, 100).await.unwrap();
    assert_eq!(world.states(destination).await[0], AttemptState::Unknown);
    opens_after_its_time_out(world, destination, &start).await;
}

/// What was given up may lie in the network, or be read late.
pub async fn one_that_ended_without_an_answer_counts_to_its_time_out(world: &World) {
    let destination = limited(world, 1).await;
    let (worker, permit, start) = started(world, destination).await;
    let broken = Outcome {
        status: None,
        error: Some("the connection was closed".into()),
        ..world.outcome(&permit, OutcomeKind::Failed, NextTry::None)
    };
    let recorded = world.store.record_outcomes(worker, &[broken]).await;
    recorded.unwrap();
    opens_after_its_time_out(world, destination, &start).await;
}

/// Places that have no answer yet are taken; the others open as theirs end.
pub async fn answers_and_requests_under_way_share_the_limit(world: &World) {
    let destination = limited(world, 3).await;
    let worker = world.worker().await;
    let permits = world.admit(destination).await;
    assert_eq!(permits.len(), 3);
    world.start(worker, &permits).await;
    world.finish(worker, &permits[..1]).await;
    let (none, _, blocked) = world.decide(destination).await;
    assert_eq!((none.len(), blocked), (0, Some(Blocked::Limit)));
    world.pass(SECOND).await;
    let next = world.admit(destination).await;
    assert_eq!(next.len(), 1, "the one that was answered");
}

/// What had its permit before answers counted counts by its start.
pub async fn what_started_before_answers_counted_counts_by_its_start(world: &World) {
    let destination = world.destination().per_second(1).create().await;
    world.accept(destination, 3).await;
    let (worker, permit, start) = started(world, destination).await;
    world.finish(worker, &[permit]).await;
    let by = |what: &str| format!("count = {what} where id = '{destination}'");
    let change = |what: &str| format!("update destinations set {}", by(what));
    world.sql(&change("'response'")).await;
    assert!(world.admit(destination).await.is_empty());
    let opens = start.claimed_at + SECOND;
    world.pass_until(opens - Duration::from_millis(150)).await;
    let next = world.admit(destination).await;
    assert!(next.len() == 1 && next[0].not_before >= opens);
    // And back again, whether or not it was answered.
    world.pass_until(next[0].not_before).await;
    let second = world.start(worker, &next).await.remove(0);
    world.sql(&change("null")).await;
    let opens = second.claimed_at + SECOND;
    world.pass_until(opens + SECOND / 2).await;
    assert_eq!(world.admit(destination).await.len(), 1);
}

/// What was admitted by one is no promise by the other.
pub async fn a_change_of_what_counts_revokes(world: &World) {
    for (before, after, revokes) in [
        ("null", "'response'", true),
        ("'response'", "null", true),
        ("'response'", "'start'", true),
        ("null", "'start'", false),
    ] {
        let destination = world.destination().per_second(5).create().await;
        let set = async |what: &str| {
            let set = format!("count = {what} where id = '{destination}'");
            world.sql(&format!("update destinations set {set}")).await;
        };
        set(before).await;
        world.accept(destination, 1).await;
        let worker = world.worker().await;
        let permits = world.admit(destination).await;
        assert_eq!(permits.len(), 1);
        set(after).await;
        let claims = world.claim(worker, &permits).await;
        let is_refused = matches!(claims.answers[0], ClaimAnswer::Refused);
        assert_eq!(is_refused, revokes, "{before} to {after}");
    }
}
