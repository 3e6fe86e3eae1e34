//! [`Store::claim_batches`](engine::ports::Store::claim_batches), and how batches
//! are admitted, recorded and given up.

use std::time::Duration;

use domain::admission::Look;
use domain::attempt::{AttemptState, OutcomeKind};
use domain::batch::BatchSettings;
use domain::event::NewEvent;
use domain::ids::{DestinationId, EventId, TenantId, WorkerId};
use domain::permit::Permit;
use domain::retry::RetrySettings;

use super::BacklogWorld;
use super::expire::tier_says;
use crate::store::tenants::new_tenant;
use engine::ports::{
    CatalogError, ClaimAnswer, DEFAULT_TENANT, DestinationChange, NextTry, Outcome, ReapRules,
    Speaks, Start,
};

/// No test waits for so long.
const LONG_MS: u32 = 60_000;

async fn set(world: &BacklogWorld, of: DestinationId, events: u32, bytes: u32, wait_ms: u32) {
    let settings = BatchSettings {
        max_events: Some(events),
        max_bytes: Some(bytes),
        max_wait_ms: Some(wait_ms),
    };
    let set = (world.backlog).set_batch_settings(DEFAULT_TENANT, of, &settings);
    set.await.unwrap();
}

/// One that takes so many events in a request, of any size.
async fn batching(world: &BacklogWorld, events: u32, wait_ms: u32) -> DestinationId {
    let of = world.destination().unlimited().create().await;
    set(world, of, events, 1_000_000, wait_ms).await;
    of
}

async fn claim(world: &BacklogWorld, worker: WorkerId, permits: &[Permit]) -> Vec<Start> {
    if let Some(last) = permits.last() {
        world.pass_until(last.not_before).await;
    }
    world.beat(worker).await;
    let claims = world.store.claim_batches(worker, permits).await.unwrap();
    assert_eq!(claims.answers.len(), permits.len(), "one answer per permit");
    let started = claims.answers.into_iter().map(|answer| match answer {
        ClaimAnswer::Started(start) => start,
        other => panic!("expected a start, got {other:?}"),
    });
    started.collect()
}

/// Admits and claims whatever is due.
async fn start(world: &BacklogWorld, worker: WorkerId, of: DestinationId) -> Vec<(Permit, Start)> {
    let permits = world.admit(of).await;
    let starts = claim(world, worker, &permits).await;
    permits.into_iter().zip(starts).collect()
}

fn events(start: &Start) -> Vec<EventId> {
    start.members.iter().map(|member| member.event).collect()
}

/// What each event of a batch comes to, all of it answered the same.
fn outcomes(
    world: &BacklogWorld,
    (permit, start): &(Permit, Start),
    next: NextTry,
) -> Vec<Outcome> {
    let outcome = |member: &engine::ports::Member| {
        let kind = match next {
            NextTry::None => OutcomeKind::Succeeded,
            _ => OutcomeKind::Failed,
        };
        Outcome {
            attempt: member.attempt,
            speaks: match member.attempt == permit.attempt {
                true => Speaks::ForRequest,
                false => Speaks::Carried,
            },
            ..world.outcome(permit, kind, next)
        }
    };
    start.members.iter().map(outcome).collect()
}

async fn record(world: &BacklogWorld, worker: WorkerId, batch: &(Permit, Start), next: NextTry) {
    let outcomes = outcomes(world, batch, next);
    let recorded = world.store.record_outcomes(worker, &outcomes).await;
    assert!(recorded.unwrap().skipped.is_empty());
}

/// Set, cleared, and another tenant's business never.
pub async fn settings_are_read_as_they_were_set(world: &BacklogWorld) {
    let of = world.destination().unlimited().create().await;
    let read = async || world.backlog.batch_settings(DEFAULT_TENANT, of).await;
    assert_eq!(read().await.unwrap(), BatchSettings::default());
    set(world, of, 7, 2_000, 0).await;
    let (max_events, max_bytes, max_wait_ms) = (Some(7), Some(2_000), Some(0));
    let all = BatchSettings {
        max_events,
        max_bytes,
        max_wait_ms,
    };
    assert_eq!(read().await.unwrap(), all);
    let none = BatchSettings::default();
    let set = (world.backlog).set_batch_settings(DEFAULT_TENANT, of, &none);
    set.await.unwrap();
    assert_eq!(read().await.unwrap(), none);
    let nobody = TenantId(world.id());
    for (tenant, id) in [(nobody, of), (DEFAULT_TENANT, DestinationId(world.id()))] {
        let set = world.backlog.set_batch_settings(tenant, id, &all).await;
        assert!(matches!(set, Err(CatalogError::NotFound("destination"))));
        let read = world.backlog.batch_settings(tenant, id).await;
        assert!(matches!(read, Err(CatalogError::NotFound("destination"))));
    }
}

/// Also where events would be too old before their batch is due, whichever of
/// the two is set last.
pub async fn nonsense_is_refused_by_its_field(world: &BacklogWorld) {
    let of = world.destination().unlimited().create().await;
    let refused = async |max_events, max_bytes, max_wait_ms| {
        let settings = BatchSettings {
            max_events,
            max_bytes,
            max_wait_ms,
        };
        let set = (world.backlog).set_batch_settings(DEFAULT_TENANT, of, &settings);
        match set.await {
            Err(CatalogError::Invalid { field, .. }) => field,
            other => panic!("expected a refusal, got {other:?}"),
        }
    };
    for events in [0, 501] {
        assert_eq!(refused(Some(events), None, None).await, "max_events");
    }
    for bytes in [0, 1_000_001] {
        assert_eq!(refused(Some(1), Some(bytes), None).await, "max_bytes");
    }
    assert_eq!(refused(Some(1), None, Some(60_001)).await, "max_wait_ms");
    world
        .rules(of, RetrySettings::default(), Some(Duration::from_secs(1)))
        .await;
    assert_eq!(refused(Some(1), None, None).await, "max_wait_ms");
    set(world, of, 5, 100, 999).await;
    let rules = engine::ports::RetryRules {
        policy: RetrySettings::default(),
        max_age: Some(Duration::from_millis(999)),
    };
    let set = world.backlog.set_retry_rules(DEFAULT_TENANT, of, &rules);
    match set.await {
        Err(CatalogError::Invalid { field, .. }) => assert_eq!(field, "max_age_ms"),
        other => panic!("expected a refusal, got {other:?}"),
    }
}

/// N of them. What is carried has started too, and is no start.
pub async fn a_full_batch_is_one_start(world: &BacklogWorld) {
    let of = batching(world, 3, LONG_MS).await;
    let worker = world.worker().await;
    let ids = world.accept(of, 7).await;
    let started = start(world, worker, of).await;
    let batches: Vec<_> = started.iter().map(|(_, start)| events(start)).collect();
    assert_eq!(batches, [ids[..3].to_vec(), ids[3..6].to_vec()]);
    assert_eq!(world.starts(of).await.len(), 2);
    let mut states = vec![AttemptState::Started; 6];
    states.push(AttemptState::Waiting);
    assert_eq!(world.states(of).await, states);
    let fleet = world.store.fleet().await.unwrap();
    assert_eq!(fleet.loads[0].in_flight, 2, "requests, not events");
    for batch in &started {
        record(world, worker, batch, NextTry::None).await;
    }
    let attempts = world.attempts(of).await;
    assert!(attempts[..6].iter().all(|one| one.status == Some(200)));
    assert_eq!(attempts[1].started_at, attempts[0].started_at);
    assert_eq!(world.starts(of).await.len(), 2);
}

/// What is sent of each.
pub async fn a_member_is_its_event(world: &BacklogWorld) {
    let of = batching(world, 2, 0).await;
    let worker = world.worker().await;
    let mut event = world.event(of);
    event.event_type = Some("order.paid".to_owned());
    let accepted = [event.clone(), world.event(of)];
    world.store.accept_events(&accepted).await.unwrap();
    let (_, start) = start(world, worker, of).await.remove(0);
    let member = &start.members[0];
    assert_eq!(member.event_type, event.event_type);
    assert_eq!(member.content_type, event.content_type);
    assert_eq!(member.payload, event.payload);
    assert_eq!((member.try_number, member.tries_before), (1, 0));
    let (summary, _) = (world.catalog.event(DEFAULT_TENANT, event.id).await).unwrap();
    assert_eq!(member.accepted_at, summary.created_at);
    assert_eq!(start.members[1].event_type, None);
    assert_eq!(start.event, event.id);
}

/// Whichever of them leads: what waits is carried, whatever day its event is of.
pub async fn events_of_any_day_are_one_batch(world: &BacklogWorld) {
    let worker = world.worker().await;
    for first in 0..3 {
        let of = batching(world, 3, LONG_MS).await;
        let mut ids = world.ids_of_three_days().await;
        ids.rotate_left(first);
        let event = |id| NewEvent {
            id,
            ..world.event(of)
        };
        let accepted = world.store.accept_events(&ids.map(event)).await;
        assert_eq!(accepted.unwrap().len(), 3);
        let starts = start(world, worker, of).await;
        let [(_, start)] = &starts[..] else {
            panic!("one batch: {starts:?}");
        };
        assert_eq!(events(start), ids);
        assert_eq!(start.event, ids[0]);
    }
}

/// B of them, of their payloads; one that is larger goes alone.
pub async fn a_batch_is_full_by_its_bytes(world: &BacklogWorld) {
    let of = world.destination().unlimited().create().await;
    set(world, of, 500, 30, 0).await;
    let worker = world.worker().await;
    let size = |bytes: usize| {
        let mut event = world.event(of);
        event.payload = vec![b'1'; bytes].into();
        event
    };
    let accepted = [10, 20, 31, 1, 29, 1].map(size);
    world.store.accept_events(&accepted).await.unwrap();
    let started = start(world, worker, of).await;
    let sizes = |start: &Start| -> Vec<usize> {
        let members = start.members.iter();
        members.map(|member| member.payload.len()).collect()
    };
    let batches: Vec<_> = started.iter().map(|(_, start)| sizes(start)).collect();
    assert_eq!(batches, [vec![10, 20], vec![31], vec![1, 29], vec![1]]);
}

/// T, from when it was accepted; the look is for then.
pub async fn nobody_waits_for_longer_than_the_wait(world: &BacklogWorld) {
    let of = batching(world, 100, 700).await;
    let worker = world.worker().await;
    let ids = world.accept(of, 2).await;
    let (permits, look, _) = world.decide(of).await;
    assert!(permits.is_empty(), "it is not full");
    let since = world.attempts(of).await[0].created_at;
    let due = since + Duration::from_millis(700);
    assert_eq!(
        look,
        Look::At {
            at: due,
            floor: None
        }
    );
    world.pass_until(due).await;
    let started = start(world, worker, of).await;
    assert_eq!(started.len(), 1);
    assert_eq!(events(&started[0].1), ids);
}

/// Where its tier comes to say less than the wait: by another age of the tier, by another tier
/// and by another tenant.
pub async fn nobody_waits_for_longer_than_half_of_an_age(world: &BacklogWorld) {
    world.sql(&tier_says("standard", "60")).await;
    let to_standard =
        |tenant: TenantId| format!("update tenants set tier = 'standard' where id = '{tenant}'");
    let other = new_tenant(world).await;
    world.sql(&to_standard(other)).await;
    for way in ["tier", "tenant", "destination"] {
        world.sql(&tier_says("free", "null")).await;
        let tenant = new_tenant(world).await;
        let of = world.destination().unlimited().create_for(tenant).await;
        let settings = BatchSettings {
            max_events: Some(100),
            max_bytes: None,
            max_wait_ms: Some(LONG_MS),
        };
        let set = (world.backlog).set_batch_settings(tenant, of, &settings);
        set.await.unwrap();
        let (change, owner) = match way {
            "tier" => (tier_says("free", "60"), tenant),
            "tenant" => (to_standard(tenant), tenant),
            _ => (
                format!("update destinations set tenant_id = '{other}' where id = '{of}'"),
                other,
            ),
        };
        world.sql(&change).await;
        world.accept_for(owner, of, 2).await;
        let (permits, look, _) = world.decide(of).await;
        assert!(permits.is_empty(), "{way}: it is not full");
        let attempts = world.catalog.attempts(owner, of, None, 10).await.unwrap();
        let since = attempts.last().unwrap().created_at;
        let due = Look::At {
            at: since + Duration::from_secs(30),
            floor: None,
        };
        assert_eq!(look, due, "{way}");
    }
}

/// It counts a request.
pub async fn a_limit_counts_batches(world: &BacklogWorld) {
    let of = world.destination().per_second(2).create().await;
    set(world, of, 5, 1_000_000, LONG_MS).await;
    let worker = world.worker().await;
    world.accept(of, 30).await;
    let started = start(world, worker, of).await;
    assert_eq!(started.len(), 2);
    assert!(started.iter().all(|(_, start)| start.members.len() == 5));
    let next = world.admit(of).await;
    let earliest = started[0].1.claimed_at + Duration::from_secs(1);
    assert!(next.iter().all(|permit| permit.not_before >= earliest));
}

/// What waits behind a permit is its, as long as it is out.
pub async fn what_is_promised_is_not_admitted_again(world: &BacklogWorld) {
    let of = batching(world, 3, 0).await;
    let worker = world.worker().await;
    let ids = world.accept(of, 4).await;
    let permits = world.admit(of).await;
    assert_eq!(permits.len(), 2, "three and one");
    assert!(world.admit(of).await.is_empty());
    world.accept(of, 1).await;
    assert!(world.admit(of).await.is_empty(), "it joins the second");
    let starts = claim(world, worker, &permits).await;
    assert_eq!(events(&starts[0]), ids[..3]);
    assert_eq!(starts[1].members.len(), 2);
}

/// Also what has been due for longer than its leader: a permit that was handed
/// back, and whom nobody else would carry.
pub async fn what_was_due_before_its_leader_is_carried(world: &BacklogWorld) {
    let of = batching(world, 1, 0).await;
    let worker = world.worker().await;
    let ids = world.accept(of, 2).await;
    let permits = world.admit(of).await;
    assert_eq!(permits.len(), 2, "one event each");
    let starts = claim(world, worker, &permits[1..]).await;
    let failed = (permits[1], starts[0].clone());
    record(world, worker, &failed, NextTry::RetryAfter(Duration::ZERO)).await;
    world.pass(Duration::from_millis(60)).await;
    let leader = world.admit(of).await;
    assert_eq!(leader.len(), 1, "the retry");
    let handed_back = world.store.release_permits(&permits[..1]).await;
    assert_eq!(handed_back.unwrap().len(), 1);
    set(world, of, 2, 1_000_000, 0).await;
    assert!(world.admit(of).await.is_empty(), "it is promised");
    let starts = claim(world, worker, &leader).await;
    assert_eq!(events(&starts[0]), [ids[1], ids[0]]);
}

/// What is too old never joins.
pub async fn what_is_too_old_is_not_carried(world: &BacklogWorld) {
    let of = batching(world, 10, 0).await;
    let age = Duration::from_millis(900);
    world.rules(of, RetrySettings::default(), Some(age)).await;
    let worker = world.worker().await;
    let ids = world.accept(of, 2).await;
    let permits = world.admit(of).await;
    assert_eq!(permits.len(), 1);
    let expires = world.attempts(of).await[1].created_at + age;
    world.pass_until(expires).await;
    let starts = claim(world, worker, &permits).await;
    assert_eq!(events(&starts[0]), ids[..1]);
    world.reap().await;
    assert_eq!(world.states(of).await[1], AttemptState::Expired);
}

/// Halves, and in the end each alone, all under the same try.
pub async fn a_split_batch_comes_back_in_halves(world: &BacklogWorld) {
    let of = batching(world, 4, LONG_MS).await;
    let worker = world.worker().await;
    let ids = world.accept(of, 4).await;
    let mut sizes = Vec::new();
    for limit in [2, 1] {
        for batch in start(world, worker, of).await {
            sizes.push(batch.1.members.len());
            let split = NextTry::Split {
                limit,
                delay: Duration::ZERO,
            };
            record(world, worker, &batch, split).await;
        }
        world.pass(Duration::from_millis(60)).await;
    }
    assert_eq!(sizes, [4, 2, 2]);
    // New ones do not join what was split.
    world.accept(of, 3).await;
    let alone = start(world, worker, of).await;
    let sent: Vec<_> = alone.iter().map(|(_, start)| events(start)).collect();
    let each: Vec<_> = ids.iter().map(|id| vec![*id]).collect();
    assert_eq!(sent, each);
    assert!(alone.iter().all(|(_, start)| start.try_number == 1));
    record(world, worker, &alone[2], NextTry::DeadLetter).await;
    let attempts = world.attempts(of).await;
    let dead: Vec<_> = attempts.iter().filter(|one| one.dead_letter).collect();
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].event, ids[2]);
}

/// Each has an outcome of its own, and what follows it.
pub async fn each_event_has_its_own_outcome(world: &BacklogWorld) {
    let of = batching(world, 3, LONG_MS).await;
    let worker = world.worker().await;
    world.accept(of, 3).await;
    let batch = start(world, worker, of).await.remove(0);
    let mut outcomes = outcomes(world, &batch, NextTry::None);
    outcomes[0].speaks = Speaks::ForParts { taken: true };
    let later = NextTry::RetryAfter(Duration::from_millis(50));
    outcomes[1] = Outcome {
        attempt: outcomes[1].attempt,
        speaks: Speaks::Apart,
        ..world.outcome(&batch.0, OutcomeKind::Failed, later)
    };
    world
        .store
        .record_outcomes(worker, &outcomes)
        .await
        .unwrap();
    let (done, failed) = (AttemptState::Succeeded, AttemptState::Failed);
    let states = world.states(of).await;
    assert_eq!(states, [done, failed, done, AttemptState::Waiting]);
    let attempts = world.attempts(of).await;
    assert_eq!(attempts[3].event, attempts[1].event);
    assert_eq!(attempts[3].try_number, 2);
    let health = world.health().health(DEFAULT_TENANT, &[of]).await.unwrap();
    assert_eq!(health[0].health.failures, 0, "the request was answered");
}

/// It has no permit: it waits as before.
pub async fn a_revocation_returns_the_leader_alone(world: &BacklogWorld) {
    let of = batching(world, 3, LONG_MS).await;
    let worker = world.worker().await;
    let ids = world.accept(of, 3).await;
    let permits = world.admit(of).await;
    let change = DestinationChange {
        url: Some("https://other.example/hooks".to_owned()),
        ..DestinationChange::default()
    };
    let changed = (world.catalog).change_destination(DEFAULT_TENANT, of, &change);
    changed.await.unwrap();
    world.pass_until(permits[0].not_before).await;
    let claims = world.store.claim_batches(worker, &permits).await.unwrap();
    assert_eq!(claims.answers, [ClaimAnswer::Refused]);
    assert_eq!(world.states(of).await, [AttemptState::Waiting; 3]);
    world.pass(Duration::from_millis(20)).await;
    let again = start(world, worker, of).await;
    assert_eq!(again.len(), 1);
    assert_eq!(events(&again[0].1), ids, "in the same order");
}

/// A permit that starts once carries once.
pub async fn a_batch_starts_once(world: &BacklogWorld) {
    let of = batching(world, 2, LONG_MS).await;
    let worker = world.worker().await;
    world.accept(of, 4).await;
    let permits = world.admit(of).await;
    let first = claim(world, worker, &permits[..1]).await;
    let again = world.store.claim_batches(worker, &permits[..1]).await;
    assert_eq!(again.unwrap().answers, [ClaimAnswer::Refused]);
    assert_eq!(first[0].members.len(), 2);
    let (waiting, admitted) = (AttemptState::Waiting, AttemptState::Admitted);
    let started = AttemptState::Started;
    let states = world.states(of).await;
    assert_eq!(states, [started, started, admitted, waiting]);
}

/// On or off is another kind of request; a number is not.
pub async fn turning_it_on_or_off_revokes(world: &BacklogWorld) {
    let of = world.destination().unlimited().create().await;
    let batches = async || {
        let targets = world.store.targets(&[of]).await.unwrap();
        (targets[0].epoch, targets[0].batches)
    };
    let (before, on) = batches().await;
    assert!(!on);
    set(world, of, 5, 100, 0).await;
    let (after, on) = batches().await;
    assert!(on && after > before);
    world.pass(Duration::from_millis(20)).await;
    world.accept(of, 1).await;
    let permits = world.admit(of).await;
    set(world, of, 6, 200, 1).await;
    assert_eq!(batches().await.0, after);
    assert_eq!(world.states(of).await, [AttemptState::Admitted]);
    let none = BatchSettings::default();
    let off = (world.backlog).set_batch_settings(DEFAULT_TENANT, of, &none);
    off.await.unwrap();
    assert!(batches().await.0 > after);
    assert_eq!(world.states(of).await, [AttemptState::Waiting]);
    let worker = world.worker().await;
    world.pass_until(permits[0].not_before).await;
    let claims = world.store.claim_batches(worker, &permits).await.unwrap();
    assert_eq!(claims.answers, [ClaimAnswer::Refused]);
}

/// Gives up a start at once, though its worker lives.
const AT_ONCE: ReapRules = ReapRules {
    heartbeat_timeout: Duration::from_secs(86_400),
    start_timeout: Duration::from_millis(1),
    permit_grace: Duration::from_millis(200),
    everything: true,
};

/// All of it, each with a retry; on the last try each gets another, alone.
pub async fn a_lapsed_workers_batch_becomes_unknown(world: &BacklogWorld) {
    let of = batching(world, 3, LONG_MS).await;
    let policy = RetrySettings {
        max_tries: Some(2),
        ..RetrySettings::default()
    };
    world.rules(of, policy, None).await;
    let worker = world.worker().await;
    world.accept(of, 3).await;
    let mut sizes = Vec::new();
    for _ in 0..3 {
        let started = start(world, worker, of).await;
        sizes.push(started.iter().map(|(_, start)| start.members.len()).sum());
        sizes.push(started.len());
        world.pass(Duration::from_millis(50)).await;
        let reaped = world.store.reap(&AT_ONCE, 100).await.unwrap();
        assert_eq!(reaped.unknown_starts, 3);
        world.pass(Duration::from_millis(5)).await;
    }
    assert_eq!(
        sizes,
        [3, 1, 3, 1, 3, 3],
        "two batches, and then each alone"
    );
    let attempts = world.attempts(of).await;
    let tries: Vec<_> = attempts.iter().map(|one| one.try_number).collect();
    assert_eq!(tries, [1, 1, 1, 2, 2, 2, 2, 2, 2]);
    let dead = attempts.iter().filter(|one| one.dead_letter).count();
    assert_eq!(dead, 3);
    assert!(attempts[6..].iter().all(|one| one.dead_letter));
    assert!(world.admit(of).await.is_empty());
}

/// A step may end between any two of its members: the leader goes, and the others are found.
pub async fn a_batch_is_given_up_in_steps(world: &BacklogWorld) {
    let of = batching(world, 3, LONG_MS).await;
    let worker = world.worker().await;
    world.accept(of, 3).await;
    assert_eq!(start(world, worker, of).await.len(), 1);
    world.pass(Duration::from_millis(50)).await;
    for step in 0..3 {
        let reaped = world.store.reap(&AT_ONCE, 1).await.unwrap();
        assert_eq!(reaped.unknown_starts, 1, "{step}");
    }
    let attempts = world.attempts(of).await;
    let tries: Vec<_> = attempts.iter().map(|one| one.try_number).collect();
    assert_eq!(tries, [1, 1, 1, 2, 2, 2]);
}

/// What was sent together is what counts, not what the destination wants now.
pub async fn a_lost_batch_is_split_when_batches_are_off(world: &BacklogWorld) {
    let of = batching(world, 2, 0).await;
    let policy = RetrySettings {
        max_tries: Some(1),
        ..RetrySettings::default()
    };
    world.rules(of, policy, None).await;
    let worker = world.worker().await;
    world.accept(of, 3).await;
    let started = start(world, worker, of).await;
    assert_eq!(started.len(), 2, "two and one");
    let off = BatchSettings::default();
    let off = world.backlog.set_batch_settings(DEFAULT_TENANT, of, &off);
    off.await.unwrap();
    world.pass(Duration::from_millis(50)).await;
    world.store.reap(&AT_ONCE, 100).await.unwrap();
    let attempts = world.attempts(of).await;
    let dead: Vec<_> = attempts.iter().map(|one| one.dead_letter).collect();
    assert_eq!(dead, [false, false, true, false, false], "who was alone");
    assert!(attempts[3..].iter().all(|one| one.try_number == 1));
}

/// In halves, apart from those that came after them.
pub async fn a_halved_retry_is_the_next_try(world: &BacklogWorld) {
    let of = batching(world, 4, LONG_MS).await;
    let worker = world.worker().await;
    world.accept(of, 4).await;
    let batch = start(world, worker, of).await.remove(0);
    let halved = NextTry::RetryHalved {
        limit: 2,
        delay: Duration::ZERO,
    };
    record(world, worker, &batch, halved).await;
    world.pass(Duration::from_millis(60)).await;
    let again = start(world, worker, of).await;
    let tries: Vec<Vec<u32>> = (again.iter())
        .map(|(_, start)| start.members.iter().map(|one| one.try_number).collect())
        .collect();
    assert_eq!(tries, [[2, 2], [2, 2]]);
}

/// As of any other start.
pub async fn a_late_success_of_a_batch_cancels_its_retries(world: &BacklogWorld) {
    let of = batching(world, 2, LONG_MS).await;
    let worker = world.worker().await;
    world.accept(of, 2).await;
    let batch = start(world, worker, of).await.remove(0);
    world.pass(Duration::from_millis(50)).await;
    world.store.reap(&AT_ONCE, 100).await.unwrap();
    record(world, worker, &batch, NextTry::None).await;
    let (done, cancelled) = (AttemptState::Succeeded, AttemptState::Cancelled);
    assert_eq!(world.states(of).await, [done, done, cancelled, cancelled]);
}

/// Health judges requests.
pub async fn a_failed_batch_is_one_failure(world: &BacklogWorld) {
    let of = batching(world, 10, LONG_MS).await;
    let worker = world.worker().await;
    world.accept(of, 10).await;
    let batch = start(world, worker, of).await.remove(0);
    let later = NextTry::RetryAfter(Duration::from_secs(1));
    let mut outcomes = outcomes(world, &batch, later);
    for outcome in &mut outcomes {
        // So each ends when the next one starts: as a crowd they would count as one
        // anyhow.
        outcome.elapsed = Duration::ZERO;
    }
    let recorded = world.store.record_outcomes(worker, &outcomes).await;
    assert!(recorded.unwrap().skipped.is_empty());
    let health = world.health().health(DEFAULT_TENANT, &[of]).await.unwrap();
    assert_eq!(health[0].health.failures, 1);
    // They come back together, as one batch.
    world.pass(Duration::from_millis(1_100)).await;
    let again = start(world, worker, of).await;
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].1.members.len(), 10);
    assert!((again[0].1.members.iter()).all(|member| member.try_number == 2));
}

/// While both wait, batches of first attempts and of retries go in turn.
pub async fn firsts_and_retries_open_batches_in_turn(world: &BacklogWorld) {
    let of = batching(world, 2, LONG_MS).await;
    let worker = world.worker().await;
    world.accept(of, 8).await;
    for batch in start(world, worker, of).await {
        record(world, worker, &batch, NextTry::RetryAfter(Duration::ZERO)).await;
    }
    world.accept(of, 8).await;
    world.pass(Duration::from_millis(60)).await;
    let started = start(world, worker, of).await;
    assert_eq!(started.len(), 8);
    let firsts = |(_, start): &(Permit, Start)| {
        let tries = start.members.iter().map(|member| member.try_number);
        tries.filter(|one| *one == 1).count()
    };
    let firsts: Vec<_> = started.iter().map(firsts).collect();
    let other = 2 - firsts[0];
    assert_eq!(firsts, [firsts[0], other].repeat(4), "each of one kind");
}
