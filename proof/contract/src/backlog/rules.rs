//! Retry rules.

use std::time::Duration;

use domain::attempt::AttemptState;
use domain::ids::{DestinationId, TenantId};
use domain::retry::RetrySettings;

use super::BacklogWorld;
use engine::ports::{CatalogError, ClaimAnswer, DEFAULT_TENANT, ReapRules, RetryRules};

fn policy() -> RetrySettings {
    RetrySettings {
        max_tries: Some(3),
        base_ms: Some(100),
        factor: Some(1.5),
        cap_ms: Some(60_000),
        final_statuses: Some(vec![400, 404]),
        timeout_ms: Some(2_500),
        ..RetrySettings::default()
    }
}

/// Set, cleared, and another tenant's business never.
pub async fn rules_are_read_as_they_were_set(world: &BacklogWorld) {
    let of = world.destination().unlimited().create().await;
    let read = async || world.backlog.retry_rules(DEFAULT_TENANT, of).await.unwrap();
    assert_eq!(read().await, RetryRules::default());
    let delays = RetrySettings {
        delays_ms: Some(vec![5, 10]),
        ..RetrySettings::default()
    };
    let age = Some(Duration::from_secs(3_600));
    for (policy, max_age) in [(policy(), age), (delays, None)] {
        world.rules(of, policy.clone(), max_age).await;
        assert_eq!(read().await, RetryRules { policy, max_age });
    }
    world.rules(of, RetrySettings::default(), None).await;
    assert_eq!(read().await, RetryRules::default());

    let nobody = TenantId(world.id());
    for (tenant, id) in [(nobody, of), (DEFAULT_TENANT, DestinationId(world.id()))] {
        let rules = RetryRules::default();
        let set = world.backlog.set_retry_rules(tenant, id, &rules).await;
        assert!(matches!(set, Err(CatalogError::NotFound("destination"))));
        let read = world.backlog.retry_rules(tenant, id).await;
        assert!(matches!(read, Err(CatalogError::NotFound("destination"))));
    }
}

/// By the port and by a user's SQL.
pub async fn nonsense_is_refused_by_its_field(world: &BacklogWorld) {
    let of = world.destination().unlimited().create().await;
    let refused = async |rules: RetryRules| {
        let set = world.backlog.set_retry_rules(DEFAULT_TENANT, of, &rules);
        match set.await {
            Err(CatalogError::Invalid { field, .. }) => field,
            other => panic!("expected a refusal, got {other:?}"),
        }
    };
    let never = RetryRules {
        policy: RetrySettings {
            max_tries: Some(0),
            ..RetrySettings::default()
        },
        max_age: None,
    };
    assert_eq!(refused(never).await, "max_tries");
    let no_age = RetryRules {
        policy: RetrySettings::default(),
        max_age: Some(Duration::ZERO),
    };
    assert_eq!(refused(no_age).await, "max_age_ms");
}

/// What the worker decides by is what was set when the start was claimed.
pub async fn the_policy_comes_with_the_start(world: &BacklogWorld) {
    let of = world.destination().unlimited().create().await;
    world.accept(of, 2).await;
    let worker = world.worker().await;
    let permits = world.admit(of).await;
    let starts = world.start(worker, &permits[..1]).await;
    assert_eq!(starts[0].retry, RetrySettings::default());
    assert_eq!((starts[0].try_number, starts[0].tries_before), (1, 0));
    world.rules(of, policy(), None).await;
    let starts = world.start(worker, &permits[1..]).await;
    assert_eq!(starts[0].retry, policy());
}

/// Permits that are out stay.
pub async fn a_change_of_the_rules_revokes_nothing(world: &BacklogWorld) {
    let of = world.destination().unlimited().create().await;
    world.accept(of, 1).await;
    let permits = world.admit(of).await;
    let age = Some(Duration::from_secs(1));
    world.rules(of, policy(), age).await;
    assert_eq!(world.states(of).await, [AttemptState::Admitted]);
    let worker = world.worker().await;
    world.pass_until(permits[0].not_before).await;
    let claims = world.claim(worker, &permits).await;
    assert!(matches!(claims.answers[0], ClaimAnswer::Started(_)));
}

/// The reaper counts tries as the worker does.
pub async fn an_unknown_try_is_the_last_by_the_policy(world: &BacklogWorld) {
    let rules = ReapRules {
        heartbeat_timeout: Duration::from_secs(60),
        start_timeout: Duration::from_millis(20),
        permit_grace: Duration::from_secs(1),
        everything: true,
    };
    for (max_tries, is_dead) in [(1, true), (2, false)] {
        let of = world.destination().unlimited().create().await;
        let policy = RetrySettings {
            max_tries: Some(max_tries),
            ..RetrySettings::default()
        };
        world.rules(of, policy, None).await;
        world.accept(of, 1).await;
        let worker = world.worker().await;
        world.start_all(worker, of).await;
        world.pass(Duration::from_millis(50)).await;
        assert_eq!(
            world.store.reap(&rules, 10).await.unwrap().unknown_starts,
            1
        );
        let attempts = world.attempts(of).await;
        assert_eq!(attempts[0].dead_letter, is_dead, "of {max_tries} tries");
        assert_eq!(attempts.len() == 1, is_dead, "of {max_tries} tries");
    }
}
