//! Holds, the breaker, and giving up.

use std::time::Duration;

use domain::admission::{Blocked, Look};
use domain::attempt::{AttemptState, OutcomeKind};
use domain::destination::DestinationState;
use domain::health::{
    Breaker, BreakerSettings, DEFAULT_FAILING_FOR, DisableReason, FIRST_PROBE, Health, HoldReason,
    Signal,
};
use domain::ids::{DestinationId, WorkerId};
use domain::permit::Permit;
use domain::share::Room;

use super::World;
use engine::ports::{
    Acceptance, BreakerChange, ClaimAnswer, DEFAULT_TENANT, DestinationChange, HealthChange,
    HealthEvent, HealthView, NextTry, Outcome, Recorded, Run, RunResult, Wake,
};

const RETRY: NextTry = NextTry::RetryAfter(Duration::from_secs(3_600));

async fn view(world: &World, destination: DestinationId) -> HealthView {
    let views = world.health().health(DEFAULT_TENANT, &[destination]).await;
    views.unwrap()[0]
}

async fn remembered(world: &World, destination: DestinationId) -> Health {
    view(world, destination).await.health
}

/// As if the hold were over.
async fn end_hold(world: &World, destination: DestinationId) {
    world
        .sql(&format!(
            "update health set held_until = held_since where destination_id = '{destination}'"
        ))
        .await;
}

fn failure(world: &World, permit: &Permit, status: u16) -> Outcome {
    Outcome {
        status: Some(status),
        ..world.outcome(permit, OutcomeKind::Failed, RETRY)
    }
}

fn asking(outcome: Outcome, wait: Duration) -> Outcome {
    let signal = Signal {
        wait: Some(wait),
        ..Signal::default()
    };
    Outcome { signal, ..outcome }
}

/// Starts `count` attempts together, which all fail with `status`.
async fn fail(
    world: &World,
    destination: DestinationId,
    (count, status): (usize, u16),
) -> Recorded {
    let (worker, permits) = started(world, destination, count).await;
    let outcomes: Vec<_> = (permits.iter())
        .map(|permit| failure(world, permit, status))
        .collect();
    let recorded = world.store.record_outcomes(worker, &outcomes).await;
    recorded.unwrap()
}

/// Starts one attempt after the other, `count` in all: each fails with `status`, by
/// the store's clock before the next one starts. What the last came to.
async fn fail_in_a_row(
    world: &World,
    destination: DestinationId,
    (count, status): (usize, u16),
) -> Recorded {
    let mut recorded = Recorded::default();
    for _ in 0..count {
        recorded = fail_after(world, destination, status, Duration::ZERO).await;
    }
    recorded
}

/// Starts one attempt, which fails with `status` after so long.
async fn fail_after(
    world: &World,
    destination: DestinationId,
    status: u16,
    elapsed: Duration,
) -> Recorded {
    let (worker, permits) = started(world, destination, 1).await;
    let failed = Outcome {
        elapsed,
        ..failure(world, &permits[0], status)
    };
    let recorded = world.store.record_outcomes(worker, &[failed]).await;
    recorded.unwrap()
}

/// As many failures in a row as open a breaker unless it is set, and for as long:
/// the last one hung. What it came to.
pub(super) async fn fail_for_long(world: &World, destination: DestinationId) -> Recorded {
    fail_in_a_row(world, destination, (19, 503)).await;
    fail_after(world, destination, 503, DEFAULT_FAILING_FOR).await
}

async fn set_breaker(world: &World, destination: DestinationId, change: BreakerChange) {
    let changed = (world.health()).change_breaker(DEFAULT_TENANT, destination, &change);
    changed.await.unwrap();
}

/// Of a breaker that so many failures in a row open, however quick.
fn opens_at(failures: u32) -> BreakerChange {
    BreakerChange {
        failures: Some(Some(failures)),
        failing_for_seconds: Some(Some(0)),
        disable_after_seconds: None,
    }
}

/// Accepts and starts so many.
async fn started(
    world: &World,
    destination: DestinationId,
    count: usize,
) -> (WorkerId, Vec<Permit>) {
    let worker = world.worker().await;
    world.accept(destination, count).await;
    let permits = world.admit(destination).await;
    assert_eq!(permits.len(), count);
    world.start(worker, &permits).await;
    (worker, permits)
}

/// A destination whose breaker is half open, with a backlog.
async fn half_open(world: &World) -> DestinationId {
    let destination = world.destination().unlimited().create().await;
    fail_for_long(world, destination).await;
    world.accept(destination, 5).await;
    end_hold(world, destination).await;
    assert_eq!(
        view(world, destination)
            .await
            .health
            .breaker(world.now().await),
        Breaker::HalfOpen
    );
    destination
}

/// What the receiver asks for is in force at once, and for as long as it said.
pub async fn a_receiver_that_asks_is_left_alone(world: &World) {
    let destination = world.destination().unlimited().create().await;
    let worker = world.worker().await;
    world.accept(destination, 3).await;
    let permits = world.admit(destination).await;
    world.start(worker, &permits[..1]).await;
    let wait = Duration::from_millis(900);
    let succeeded = world.outcome(&permits[0], OutcomeKind::Succeeded, NextTry::None);
    let outcome = [asking(succeeded, wait)];
    let recorded = world.store.record_outcomes(worker, &outcome).await.unwrap();

    // Nothing is burnt meanwhile: the permits that were out wait again.
    assert_eq!(recorded.wakes, [Wake::unblocked(destination)]);
    assert_eq!(
        world.states(destination).await[1..],
        [AttemptState::Waiting; 2]
    );
    let claims = world.claim(worker, &permits[1..]).await;
    assert_eq!(claims.answers, [ClaimAnswer::Refused, ClaimAnswer::Refused]);
    let hold = remembered(world, destination).await.hold.unwrap();
    assert_eq!(hold.reason, HoldReason::Asked);
    assert_eq!(hold.until.since(hold.since), wait);
    let (none, look, blocked) = world.decide(destination).await;
    assert_eq!((none.len(), blocked), (0, Some(Blocked::Hold)));
    let (at, floor) = (hold.until, Some(hold.until));
    assert_eq!(look, Look::At { at, floor });

    world.pass_until(hold.until).await;
    assert_eq!(world.admit(destination).await.len(), 2);
}

/// Slots may be planned before the hold ends, none of them within it.
pub async fn no_slot_lies_within_a_hold(world: &World) {
    let destination = world.destination().unlimited().create().await;
    let (worker, permits) = started(world, destination, 2).await;
    world.accept(destination, 2).await;
    let wait = Duration::from_millis(150);
    let refused = asking(failure(world, &permits[0], 429), wait);
    world
        .store
        .record_outcomes(worker, &[refused])
        .await
        .unwrap();
    let until = remembered(world, destination).await.held_until().unwrap();
    let planned = world.admit(destination).await;
    assert!(planned.iter().all(|permit| permit.not_before >= until));
    let claims = world.claim(worker, &planned).await;
    for answer in claims.answers {
        assert!(matches!(
            answer,
            ClaimAnswer::Early(_) | ClaimAnswer::Started(_)
        ));
    }
}

/// A 429 without a time holds for a moment, and costs nobody a try.
pub async fn a_429_holds_and_costs_no_try(world: &World) {
    let destination = world.destination().unlimited().create().await;
    let recorded = fail(world, destination, (3, 429)).await;
    assert_eq!(recorded.health, []);
    let health = remembered(world, destination).await;
    let hold = health.hold.unwrap();
    assert_eq!((health.refusals, health.failures), (1, 0));
    assert_eq!(hold.reason, HoldReason::Refused);
    let attempts = world.attempts(destination).await;
    assert_eq!(attempts.len(), 6);
    assert!(attempts.iter().all(|attempt| attempt.try_number == 1));
    // They are due when the hold ends, and not when a retry would be.
    end_hold(world, destination).await;
    world.pass_until(hold.until).await;
    assert_eq!(world.admit(destination).await.len(), 3);
}

/// What is remembered makes a success matter, also where nobody waits for its place, as for
/// a probe's.
pub async fn a_success_forgets_the_refusals_before_it(world: &World) {
    let destination = world.destination().unlimited().create().await;
    fail(world, destination, (1, 429)).await;
    let refused = remembered(world, destination).await;
    assert_eq!(refused.refusals, 1);
    world.pass_until(refused.held_until().unwrap()).await;
    let worker = world.worker().await;
    let again = world.admit(destination).await;
    assert_eq!(again.len(), 1);
    world.start(worker, &again).await;
    let recorded = world.finish(worker, &again).await;
    assert_eq!(recorded.wakes, [], "nobody waits for its place");
    assert_eq!(remembered(world, destination).await, Health::default());
}

/// Another failure is a try.
pub async fn any_other_failure_costs_a_try(world: &World) {
    let destination = world.destination().unlimited().create().await;
    fail(world, destination, (1, 503)).await;
    let attempts = world.attempts(destination).await;
    assert_eq!(attempts[1].try_number, 2);
    assert_eq!(remembered(world, destination).await.failures, 1);
}

/// However many, where a single failure would: the receiver works.
pub async fn refusals_do_not_open_the_breaker(world: &World) {
    let destination = world.destination().unlimited().create().await;
    set_breaker(world, destination, opens_at(1)).await;
    let recorded = fail(world, destination, (30, 429)).await;
    assert_eq!(recorded.health, []);
    assert_eq!(remembered(world, destination).await.opened_at, None);
}

/// In a row: one success in between begins anew.
pub async fn failures_in_a_row_open_the_breaker(world: &World) {
    let destination = world.destination().unlimited().create().await;
    fail_in_a_row(world, destination, (19, 503)).await;
    assert_eq!(remembered(world, destination).await.failures, 19);
    let (worker, permits) = started(world, destination, 1).await;
    world.finish(worker, &permits).await;
    assert_eq!(remembered(world, destination).await, Health::default());
    let recorded = fail_in_a_row(world, destination, (19, 500)).await;
    assert_eq!(recorded.health, []);

    let recorded = fail_after(world, destination, 500, DEFAULT_FAILING_FOR).await;
    let what = HealthEvent::BreakerOpened;
    assert_eq!(recorded.health, [HealthChange { destination, what }]);
    let view = view(world, destination).await;
    assert_eq!(view.health.breaker(view.now), Breaker::Open);
    let hold = view.health.hold.unwrap();
    assert_eq!(hold.reason, HoldReason::Breaker);
    assert!(hold.until.since(hold.since) >= FIRST_PROBE);
    world.accept(destination, 1).await;
    let (_, _, blocked) = world.decide(destination).await;
    assert_eq!(blocked, Some(Blocked::Hold));
    // Operators can read it.
    let events = world.health().operational_events(0, 10).await.unwrap();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].event_type, "breaker_opened");
    assert_eq!(events[0].destination, Some(destination));
    assert_eq!(events[0].details, "{\"failures\":20}");
    let later = world.health().operational_events(events[0].id, 10).await;
    assert_eq!(later.unwrap(), []);
}

/// Answers of one destination are judged in the order of their ends, whether they are told
/// of at once or one by one: a success that is recorded by itself, before the failure that
/// it followed, would leave that failure standing.
pub async fn a_success_and_a_failure_count_the_same_together_or_apart(world: &World) {
    for (kinds, failures) in [
        ([OutcomeKind::Failed, OutcomeKind::Succeeded], 0),
        ([OutcomeKind::Succeeded, OutcomeKind::Failed], 1),
    ] {
        for at_once in [2, 1] {
            let destination = world.destination().unlimited().create().await;
            let (worker, permits) = started(world, destination, 2).await;
            let answered = permits.iter().zip(kinds).zip(1..);
            let outcomes = answered.map(|((permit, kind), seconds)| Outcome {
                elapsed: Duration::from_secs(seconds),
                ..world.outcome(permit, kind, next(kind))
            });
            for told in outcomes.collect::<Vec<_>>().chunks(at_once) {
                let recorded = world.store.record_outcomes(worker, told).await;
                assert_eq!(recorded.unwrap().skipped, []);
            }
            let health = remembered(world, destination).await;
            let times = [health.failing_since, health.last_failed_at];
            assert_eq!(
                times.map(|at| at.is_some()),
                [failures > 0; 2],
                "{kinds:?}, {at_once} at once"
            );
            let without_times = Health {
                failing_since: None,
                last_failed_at: None,
                ..health
            };
            let expected = Health {
                failures,
                ..Health::default()
            };
            assert_eq!(without_times, expected, "{kinds:?}, {at_once} at once");
        }
    }
}

fn next(kind: OutcomeKind) -> NextTry {
    match kind {
        OutcomeKind::Succeeded => NextTry::None,
        _ => RETRY,
    }
}

/// Requests that were under way together and fail together are one accident, to
/// admission too; in however many batches they are told of.
pub async fn a_crowd_that_fails_together_is_one_failure(world: &World) {
    let destination = world.destination().unlimited().create().await;
    set_breaker(world, destination, opens_at(2)).await;
    let (worker, permits) = started(world, destination, 25).await;
    let mut outcomes: Vec<_> = (permits.iter())
        .map(|permit| failure(world, permit, 503))
        .collect();
    // Some hang for longer than any of them took to start.
    for (outcome, more) in outcomes.iter_mut().zip(0..) {
        outcome.elapsed = Duration::from_secs(60 + more % 7);
    }
    let mut health = Health::default();
    for batch in outcomes.chunks(20) {
        let recorded = world.store.record_outcomes(worker, batch).await.unwrap();
        assert_eq!(recorded.health, []);
        health = remembered(world, destination).await;
        assert_eq!((health.failures, health.opened_at), (1, None));
    }
    assert!(health.failing_since.is_some() && health.hold.is_none());
    assert_eq!(health.failing_since, health.last_failed_at);
    assert!(!is_failing(world, destination).await);
    // A success leaves nothing of it.
    let (worker, permits) = started(world, destination, 1).await;
    world.finish(worker, &permits).await;
    assert_eq!(remembered(world, destination).await, Health::default());
    assert_eq!(fail_in_a_row(world, destination, (1, 503)).await.health, []);
    let recorded = fail_in_a_row(world, destination, (1, 503)).await;
    let what = HealthEvent::BreakerOpened;
    assert_eq!(recorded.health, [HealthChange { destination, what }]);
}

/// Enough failures, which have not gone on for long enough, open nothing yet.
pub async fn failures_open_the_breaker_when_they_go_on(world: &World) {
    const HOUR: u32 = 3_600;
    let destination = world.destination().unlimited().create().await;
    let change = BreakerChange {
        failing_for_seconds: Some(Some(HOUR)),
        ..opens_at(3)
    };
    set_breaker(world, destination, change).await;
    let recorded = fail_in_a_row(world, destination, (4, 503)).await;
    assert_eq!(recorded.health, []);
    let before = remembered(world, destination).await;
    assert_eq!((before.failures, before.opened_at), (4, None));
    assert!(before.failing_since < before.last_failed_at);

    let hung = Duration::from_secs(HOUR.into());
    let recorded = fail_after(world, destination, 503, hung).await;
    let what = HealthEvent::BreakerOpened;
    assert_eq!(recorded.health, [HealthChange { destination, what }]);
    let after = remembered(world, destination).await;
    assert_eq!(after.failing_since, before.failing_since);
    let (since, last) = (after.failing_since.unwrap(), after.last_failed_at.unwrap());
    assert!(last.since(since) >= hung);
    let events = world.health().operational_events(0, 10).await.unwrap();
    assert_eq!(events[0].details, "{\"failures\":5}");
}

/// Two in a row, until a success.
pub async fn a_run_says_who_is_failing(world: &World) {
    let destination = world.destination().unlimited().create().await;
    assert!(!is_failing(world, destination).await);
    fail_in_a_row(world, destination, (1, 503)).await;
    assert!(!is_failing(world, destination).await, "one is an accident");
    fail_in_a_row(world, destination, (1, 503)).await;
    assert!(is_failing(world, destination).await);
    let (worker, permits) = started(world, destination, 1).await;
    world.finish(worker, &permits).await;
    assert!(!is_failing(world, destination).await);
}

async fn is_failing(world: &World, destination: DestinationId) -> bool {
    let run = Run {
        destination,
        republish: false,
    };
    let admitted = world.store.admit(&[run], &Room::of(100)).await.unwrap();
    match admitted.results[..] {
        [RunResult::Decided { failing, .. }] => failing,
        ref other => panic!("expected a decision, got {other:?}"),
    }
}

/// What was given up by nobody counts for nothing.
pub async fn what_was_not_sent_is_no_failure(world: &World) {
    let destination = world.destination().unlimited().create().await;
    let (worker, permits) = started(world, destination, 25).await;
    let not_sent = |permit| world.outcome(permit, OutcomeKind::NotSent, NextTry::Again);
    let outcomes: Vec<_> = permits.iter().map(not_sent).collect();
    world
        .store
        .record_outcomes(worker, &outcomes)
        .await
        .unwrap();
    assert_eq!(remembered(world, destination).await, Health::default());
}

/// Exactly one attempt at a time, whatever waits.
pub async fn a_half_open_breaker_admits_one_probe(world: &World) {
    let destination = half_open(world).await;
    let worker = world.worker().await;
    let probe = world.admit(destination).await;
    assert_eq!(probe.len(), 1);
    // Queued or in flight, it is the only one.
    assert_eq!(world.admit(destination).await, []);
    world.start(worker, &probe).await;
    let (none, _, blocked) = world.decide(destination).await;
    assert_eq!((none.len(), blocked), (0, Some(Blocked::Concurrency)));
}

/// It fails: the next pause is longer.
pub async fn a_failed_probe_waits_for_longer(world: &World) {
    let destination = half_open(world).await;
    let worker = world.worker().await;
    let probe = world.admit(destination).await;
    world.start(worker, &probe).await;
    let failed = failure(world, &probe[0], 503);
    world
        .store
        .record_outcomes(worker, &[failed])
        .await
        .unwrap();
    let health = remembered(world, destination).await;
    let hold = health.hold.unwrap();
    assert_eq!(health.probes, 1);
    assert!(hold.until.since(hold.since) >= FIRST_PROBE * 2);
    assert_eq!(world.decide(destination).await.2, Some(Blocked::Hold));
}

/// It succeeds: the backlog drains, and nothing is remembered.
pub async fn a_probe_that_succeeds_closes_the_breaker(world: &World) {
    let destination = half_open(world).await;
    let worker = world.worker().await;
    let probe = world.admit(destination).await;
    world.start(worker, &probe).await;
    let recorded = world.finish(worker, &probe).await;
    let what = HealthEvent::BreakerClosed;
    assert_eq!(recorded.health, [HealthChange { destination, what }]);
    assert_eq!(recorded.wakes, [Wake::now(destination)]);
    assert_eq!(remembered(world, destination).await, Health::default());
    assert_eq!(world.admit(destination).await.len(), 4);
}

/// The owner says when it opens, and how long it may stay so.
pub async fn a_breaker_is_set_by_its_owner(world: &World) {
    let destination = world.destination().unlimited().create().await;
    let default = view(world, destination).await.settings;
    assert_eq!(default, BreakerSettings::default());
    let at_once = BreakerChange {
        disable_after_seconds: Some(Some(0)),
        ..opens_at(2)
    };
    set_breaker(world, destination, at_once).await;
    let set = BreakerSettings {
        failures: 2,
        failing_for: Duration::ZERO,
        disable_after: Duration::ZERO,
    };
    assert_eq!(view(world, destination).await.settings, set);
    // What is not named stays, and the inner `None` is the default.
    let failures = BreakerChange {
        failures: Some(None),
        ..BreakerChange::default()
    };
    set_breaker(world, destination, failures).await;
    let changed = BreakerSettings {
        failures: default.failures,
        ..set
    };
    assert_eq!(view(world, destination).await.settings, changed);
    let failing_for = BreakerChange {
        failing_for_seconds: Some(None),
        ..BreakerChange::default()
    };
    set_breaker(world, destination, failing_for).await;
    let changed = BreakerSettings {
        failing_for: default.failing_for,
        ..changed
    };
    assert_eq!(view(world, destination).await.settings, changed);
    set_breaker(world, destination, at_once).await;

    let recorded = fail_in_a_row(world, destination, (2, 503)).await;
    let disabled = HealthEvent::Disabled(DisableReason::Failing);
    let what: Vec<_> = recorded.health.iter().map(|change| change.what).collect();
    assert_eq!(what, [HealthEvent::BreakerOpened, disabled]);
    let found = world.catalog.destination(DEFAULT_TENANT, destination).await;
    assert_eq!(found.unwrap().state, DestinationState::Disabled);
}

/// 410 is the last word of a receiver.
pub async fn a_receiver_that_is_gone_is_disabled(world: &World) {
    let destination = world.destination().unlimited().create().await;
    let (worker, permits) = started(world, destination, 3).await;
    let before = world.now().await;
    let gone = failure(world, &permits[0], 410);
    let recorded = world.store.record_outcomes(worker, &[gone]).await.unwrap();
    let what = HealthEvent::Disabled(DisableReason::Gone);
    assert_eq!(recorded.health, [HealthChange { destination, what }]);
    let found = world.catalog.destination(DEFAULT_TENANT, destination).await;
    assert_eq!(found.unwrap().state, DestinationState::Disabled);
    let health = remembered(world, destination).await;
    assert_eq!(health.disabled, Some(DisableReason::Gone));
    // The audit knows from when on.
    let history = world.catalog.limit_history(destination).await.unwrap();
    let last = history.last().unwrap();
    assert_eq!(last.state, DestinationState::Disabled);
    assert!(last.in_force_from >= before);
    // It is refused from now on, and what is on its way may end.
    let answer = world.store.accept_events(&[world.event(destination)]).await;
    assert_eq!(answer.unwrap(), [Acceptance::DisabledDestination]);
    world.finish(worker, &permits[1..]).await;
    assert_eq!(world.decide(destination).await.2, Some(Blocked::Paused));
}

/// And so is `webhook-delivery: disable`, though the event was taken.
pub async fn a_receiver_that_says_disable_is_disabled(world: &World) {
    let destination = world.destination().unlimited().create().await;
    let (worker, permits) = started(world, destination, 2).await;
    let signal = Signal {
        disable: true,
        ..Signal::default()
    };
    let last = Outcome {
        signal,
        ..world.outcome(&permits[0], OutcomeKind::Succeeded, NextTry::None)
    };
    let recorded = world.store.record_outcomes(worker, &[last]).await.unwrap();
    let what = HealthEvent::Disabled(DisableReason::Gone);
    assert_eq!(recorded.health, [HealthChange { destination, what }]);
    let found = world.catalog.destination(DEFAULT_TENANT, destination).await;
    assert_eq!(found.unwrap().state, DestinationState::Disabled);
    let health = remembered(world, destination).await;
    assert_eq!(health.disabled, Some(DisableReason::Gone));
    world.finish(worker, &permits[1..]).await;
    assert_eq!(world.decide(destination).await.2, Some(Blocked::Paused));
}

/// The owner knows better than the past.
pub async fn resuming_forgets_and_drains(world: &World) {
    let destination = world.destination().unlimited().create().await;
    fail_for_long(world, destination).await;
    world.accept(destination, 4).await;
    let book = world.health();
    book.resume(DEFAULT_TENANT, destination).await.unwrap();
    assert_eq!(remembered(world, destination).await, Health::default());
    assert_eq!(world.admit(destination).await.len(), 4);

    let destination = world.destination().unlimited().create().await;
    fail(world, destination, (1, 410)).await;
    book.resume(DEFAULT_TENANT, destination).await.unwrap();
    let found = world.catalog.destination(DEFAULT_TENANT, destination).await;
    assert_eq!(found.unwrap().state, DestinationState::Active);
    assert_eq!(remembered(world, destination).await, Health::default());
    book.resume(DEFAULT_TENANT, destination).await.unwrap();
}

/// A pause holds the backlog, and its end is no licence to hurry.
pub async fn a_resumed_backlog_keeps_the_limit(world: &World) {
    let destination = world.destination().per_second(3).create().await;
    let worker = world.worker().await;
    world.accept(destination, 8).await;
    let permits = world.admit(destination).await;
    world.start(worker, &permits).await;
    world.finish(worker, &permits).await;
    let state = |state| DestinationChange {
        state: Some(state),
        ..DestinationChange::default()
    };
    let paused = state(DestinationState::Paused);
    let paused = (world.catalog).change_destination(DEFAULT_TENANT, destination, &paused);
    paused.await.unwrap();
    assert_eq!(world.decide(destination).await.2, Some(Blocked::Paused));
    assert_eq!(world.backlog(destination).await, 5);
    world
        .health()
        .resume(DEFAULT_TENANT, destination)
        .await
        .unwrap();
    let until = world.now().await + Duration::from_secs(2);
    world.drive(destination, until).await;
    let starts = world.starts(destination).await;
    assert_eq!(starts.len(), 8);
    assert!(super::world::most_in_any(Duration::from_secs(1), &starts) <= 3);
}

/// Another URL is another receiver.
pub async fn another_url_forgets(world: &World) {
    let destination = world.destination().unlimited().create().await;
    fail_for_long(world, destination).await;
    let moved = DestinationChange {
        url: Some("https://elsewhere.example/hooks".to_owned()),
        ..DestinationChange::default()
    };
    let moved = (world.catalog).change_destination(DEFAULT_TENANT, destination, &moved);
    moved.await.unwrap();
    assert_eq!(remembered(world, destination).await, Health::default());
}

/// No stranger sees or changes anything.
pub async fn health_is_the_tenants(world: &World) {
    let destination = world.destination().unlimited().create().await;
    let stranger = domain::ids::TenantId(world.id());
    let book = world.health();
    assert_eq!(book.health(stranger, &[destination]).await.unwrap(), []);
    assert!(book.resume(stranger, destination).await.is_err());
    let change = BreakerChange::default();
    let changed = book.change_breaker(stranger, destination, &change).await;
    assert!(changed.is_err());
}
