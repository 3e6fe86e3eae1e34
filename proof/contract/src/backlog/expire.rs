//! Attempts that are older than their destination's `max_age`.

use std::time::Duration;

use domain::attempt::{AttemptState, OutcomeKind};
use domain::event::{NewEvent, Timing};
use domain::ids::{DestinationId, ReplayId, TenantId};
use domain::retry::RetrySettings;

use super::BacklogWorld;
use crate::store::tenants::new_tenant;
use engine::ports::{AttemptView, DeadLetterFilter, NewReplay, NextTry, TOO_OLD, Which};

const AGE: Duration = Duration::from_millis(1_000);

async fn aging(world: &BacklogWorld) -> DestinationId {
    let of = world.destination().unlimited().create().await;
    world.rules(of, RetrySettings::default(), Some(AGE)).await;
    of
}

/// Not a moment before.
pub async fn what_is_too_old_expires_and_is_a_dead_letter(world: &BacklogWorld) {
    let of = aging(world).await;
    let ageless = world.destination().unlimited().create().await;
    world.accept(ageless, 1).await;
    world.accept(of, 3).await;
    let accepted_at = world.attempts(of).await[0].created_at;
    assert_eq!(world.reap().await.expired, 0);
    world.pass_until(accepted_at + AGE).await;
    assert_eq!(world.reap().await.expired, 3);
    assert_eq!(world.states(of).await, [AttemptState::Expired; 3]);
    assert_eq!(world.states(ageless).await, [AttemptState::Waiting]);
    let dead = world.dead_letters(&DeadLetterFilter::default()).await;
    assert_eq!(dead.len(), 3);
    for one in dead {
        assert_eq!(one.attempt.destination, of);
        assert_eq!(one.attempt.started_at, None);
        assert!(one.died_at >= accepted_at + AGE);
        assert_eq!(one.attempt.error.as_deref(), Some(TOO_OLD));
    }
    assert_eq!(world.reap().await.expired, 0);
}

/// Even before it is reaped; what waits behind it is.
pub async fn what_is_too_old_is_not_admitted(world: &BacklogWorld) {
    let of = aging(world).await;
    world.accept(of, 2).await;
    let accepted_at = world.attempts(of).await[0].created_at;
    world.rules(of, RetrySettings::default(), None).await;
    world.accept(of, 1).await;
    world.pass_until(accepted_at + AGE).await;
    let (permits, look, _) = world.decide(of).await;
    let attempts = world.attempts(of).await;
    let admitted: Vec<_> = permits.iter().map(|permit| permit.attempt).collect();
    assert_eq!(admitted, [attempts[2].id]);
    assert!(
        matches!(look, domain::admission::Look::At { .. }),
        "it is looked at again: {look:?}"
    );
    let states = [
        AttemptState::Waiting,
        AttemptState::Waiting,
        AttemptState::Admitted,
    ];
    assert_eq!(world.states(of).await, states);
}

/// Nor does what has a permit, until that ends.
pub async fn what_has_started_does_not_expire(world: &BacklogWorld) {
    let of = aging(world).await;
    world.accept(of, 1).await;
    let worker = world.worker().await;
    world.start_all(worker, of).await;
    world.accept(of, 1).await;
    let permits = world.admit(of).await;
    world.pass(AGE).await;
    assert_eq!(world.reap().await.expired, 0);
    let states = [AttemptState::Started, AttemptState::Admitted];
    assert_eq!(world.states(of).await, states);
    world.store.release_permits(&permits).await.unwrap();
    assert_eq!(world.reap().await.expired, 1);
    let states = [AttemptState::Started, AttemptState::Expired];
    assert_eq!(world.states(of).await, states);
}

/// However late the retry is due.
pub async fn a_retry_is_as_old_as_its_event(world: &BacklogWorld) {
    let of = aging(world).await;
    world.accept(of, 1).await;
    let worker = world.worker().await;
    let permits = world.start_all(worker, of).await;
    let later = NextTry::RetryAfter(Duration::from_secs(3_600));
    world
        .record(worker, &permits[0], OutcomeKind::Failed, later)
        .await;
    world.pass(AGE).await;
    assert_eq!(world.reap().await.expired, 1);
    let states = [AttemptState::Failed, AttemptState::Expired];
    assert_eq!(world.states(of).await, states);
}

/// Neither a new age nor none touches what was accepted before.
pub async fn an_age_holds_for_events_accepted_after_it(world: &BacklogWorld) {
    let of = world.destination().unlimited().create().await;
    world.accept(of, 1).await;
    world.rules(of, RetrySettings::default(), Some(AGE)).await;
    world.accept(of, 1).await;
    world.rules(of, RetrySettings::default(), None).await;
    world.accept(of, 1).await;
    world.pass(AGE).await;
    assert_eq!(world.reap().await.expired, 1);
    let states = [
        AttemptState::Waiting,
        AttemptState::Expired,
        AttemptState::Waiting,
    ];
    assert_eq!(world.states(of).await, states);
}

/// It grows old from when it is due, and its own end counts where that is earlier.
pub async fn an_event_says_when_it_is_due_and_too_old(world: &BacklogWorld) {
    let (aging, ageless) = (
        aging(world).await,
        world.destination().unlimited().create().await,
    );
    let now = world.now().await;
    let hour = Duration::from_secs(3_600);
    let timed = |to, deliver_at, expires_at| NewEvent {
        timing: Timing {
            deliver_at,
            expires_at,
            ..Timing::default()
        },
        ..world.event(to)
    };
    let events = [
        timed(aging, Some(now + hour), None),
        timed(aging, None, Some(now + hour)),
        timed(ageless, None, Some(now + AGE / 2)),
        timed(ageless, Some(now + hour), Some(now + hour * 2)),
        // What is past is due at once.
        timed(ageless, Some(now - hour), None),
    ];
    world.store.accept_events(&events).await.unwrap();
    let permits = world.admit(ageless).await;
    let attempts = world.attempts(ageless).await;
    let admitted: Vec<_> = permits.iter().map(|permit| permit.attempt).collect();
    assert_eq!(admitted, [attempts[0].id, attempts[2].id]);
    // And each attempt says it.
    let told = |one: &AttemptView| (one.due_at, one.expires_at);
    assert_eq!(told(&attempts[0]), (None, Some(now + AGE / 2)));
    let later = (Some(now + hour), Some(now + hour * 2));
    assert_eq!(told(&attempts[1]), later);
    assert_eq!(told(&attempts[2]), (None, None));
    let aged = world.attempts(aging).await;
    assert_eq!(told(&aged[0]), (Some(now + hour), Some(now + hour + AGE)));
    world.store.release_permits(&permits).await.unwrap();
    world.pass_until(now + AGE * 3 / 2).await;
    assert_eq!(world.reap().await.expired, 2);
    let states = [AttemptState::Waiting, AttemptState::Expired];
    assert_eq!(world.states(aging).await, states);
    let states = [
        AttemptState::Expired,
        AttemptState::Waiting,
        AttemptState::Waiting,
    ];
    assert_eq!(world.states(ageless).await, states);
}

/// And not a moment before; what came after it is not kept waiting.
pub async fn what_is_meant_for_later_starts_then(world: &BacklogWorld) {
    let of = world.destination().unlimited().create().await;
    let later = world.now().await + AGE;
    let timing = Timing {
        deliver_at: Some(later),
        ..Timing::default()
    };
    let events = [
        NewEvent {
            timing,
            ..world.event(of)
        },
        world.event(of),
    ];
    world.store.accept_events(&events).await.unwrap();
    let (permits, look, _) = world.decide(of).await;
    let attempts = world.attempts(of).await;
    let of_permits = |permits: &[domain::permit::Permit]| -> Vec<_> {
        permits.iter().map(|permit| permit.attempt).collect()
    };
    assert_eq!(of_permits(&permits), [attempts[1].id]);
    assert!(
        matches!(look, domain::admission::Look::At { .. }),
        "it is looked at again: {look:?}"
    );
    world.pass_until(later).await;
    let permits = world.admit(of).await;
    assert_eq!(of_permits(&permits), [attempts[0].id]);
    assert!(permits[0].not_before >= later);
}

/// To say of a tier how old events may become.
pub(super) fn tier_says(tier: &str, seconds: &str) -> String {
    format!("update tiers set ceiling_age_seconds = {seconds} where name = '{tier}'")
}

/// The newest attempt first.
async fn attempts_of(
    world: &BacklogWorld,
    tenant: TenantId,
    of: DestinationId,
) -> Vec<AttemptView> {
    let attempts = world.catalog.attempts(tenant, of, None, 100).await;
    attempts.unwrap()
}

/// By whichever audience, and although it is paused, so that nothing of it is tried; the
/// default tenant has no ceiling.
pub async fn an_event_is_as_old_as_the_tier_says_where_its_destination_says_nothing(
    world: &BacklogWorld,
) {
    for tier in ["free", "standard"] {
        world.sql(&tier_says(tier, "1")).await;
    }
    let tenant = new_tenant(world).await;
    let all = world.destination().unlimited().event_types(&["*"]);
    let of = all.create_for(tenant).await;
    let ours = world.destination().unlimited().create().await;
    for id in [of, ours] {
        let pause = format!("update destinations set state = 'paused' where id = '{id}'");
        world.sql(&pause).await;
    }
    world.accept_for(tenant, of, 1).await;
    let subscribed = NewEvent {
        tenant,
        ..world.typed("paid", None).await
    };
    world.accept_one(&subscribed).await;
    world.accept(ours, 1).await;
    let waiting = attempts_of(world, tenant, of).await;
    assert_eq!(waiting.len(), 2);
    for one in &waiting {
        assert_eq!(one.expires_at, Some(one.created_at + AGE));
    }
    assert_eq!(world.attempts(ours).await[0].expires_at, None);
    world.pass_until(waiting[0].created_at + AGE).await;
    assert_eq!(world.reap().await.expired, 2);
    let states: Vec<_> = (attempts_of(world, tenant, of).await.iter())
        .map(|one| (one.state, one.dead_letter))
        .collect();
    assert_eq!(states, [(AttemptState::Expired, true); 2]);
    assert_eq!(world.states(ours).await, [AttemptState::Waiting]);
}

/// By whichever row: the tier's, the tenant's or the destination's, where nobody sets what is
/// noted of the tier.
pub async fn another_age_of_the_tier_holds_for_events_accepted_after_it(world: &BacklogWorld) {
    let tenant = new_tenant(world).await;
    let of = world.destination().unlimited().create_for(tenant).await;
    let moved = world.destination().unlimited().create().await;
    let has = |seconds| format!("update destinations set max_age_ms = {seconds} where id = '{of}'");
    let noted = |ms| format!("update destinations set tier_age_ms = {ms} where id = '{of}'");
    let to_enterprise = format!("update tenants set tier = 'enterprise' where id = '{tenant}'");
    for (sql, seconds) in [
        (tier_says("free", "3600"), Some(3_600)),
        (has("60000"), Some(60)),
        // What it says itself stays.
        (tier_says("free", "30"), Some(60)),
        (has("null"), Some(30)),
        (tier_says("standard", "7"), Some(30)),
        (to_enterprise, None),
        (tier_says("enterprise", "20"), Some(20)),
        (noted("null"), Some(20)),
        (noted("1"), Some(20)),
        (tier_says("enterprise", "null"), None),
    ] {
        world.sql(&sql).await;
        world.accept_for(tenant, of, 1).await;
        let newest = attempts_of(world, tenant, of).await.swap_remove(0);
        let expected = seconds.map(|age| newest.created_at + Duration::from_secs(age));
        assert_eq!(newest.expires_at, expected, "{sql}");
    }
    world.sql(&tier_says("enterprise", "10")).await;
    let theirs = format!("update destinations set tenant_id = '{tenant}' where id = '{moved}'");
    world.sql(&theirs).await;
    world.accept_for(tenant, moved, 1).await;
    let newest = attempts_of(world, tenant, moved).await.swap_remove(0);
    let end = newest.created_at + Duration::from_secs(10);
    assert_eq!(newest.expires_at, Some(end));
}

/// As a dead letter, and as an event whatever became of it: from when it is sent again.
pub async fn what_is_sent_again_is_as_old_as_the_tier_says(world: &BacklogWorld) {
    world.sql(&tier_says("free", "3600")).await;
    let tenant = new_tenant(world).await;
    let of = world.destination().unlimited().create_for(tenant).await;
    let event = NewEvent {
        tenant,
        ..world.typed("paid", Some(of)).await
    };
    world.accept_one(&event).await;
    let worker = world.worker().await;
    let permits = world.start_all(worker, of).await;
    let (failed, dead) = (OutcomeKind::Failed, NextTry::DeadLetter);
    world.record(worker, &permits[0], failed, dead).await;
    let dead = attempts_of(world, tenant, of).await[0].id;
    for which in [Which::One(dead), Which::Event(of, event.id)] {
        // A replay is of what was over before it.
        world.pass(Duration::from_millis(50)).await;
        let new = NewReplay {
            id: ReplayId(world.id()),
            which,
            share: 1.0,
        };
        world.backlog.create_replay(tenant, &new).await.unwrap();
        let advanced = world.replays.advance_replays(10).await.unwrap();
        assert_eq!(advanced.replayed + advanced.resent, 1, "{new:?}");
        let newest = attempts_of(world, tenant, of).await.swap_remove(0);
        assert_eq!(newest.state, AttemptState::Waiting);
        let end = newest.created_at + Duration::from_secs(3_600);
        assert_eq!(newest.expires_at, Some(end), "{new:?}");
        let permits = world.start_all(worker, of).await;
        world.finish(worker, &permits).await;
    }
}
