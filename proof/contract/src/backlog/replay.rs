//! Replays.

use std::time::Duration;

use domain::admission::MAX_CLAIM_TO_SEND;
use domain::attempt::{AttemptState, OutcomeKind};
use domain::event::{Audience, NewEvent};
use domain::ids::{DestinationId, ReplayId, TenantId};
use domain::replay::{MAX_RUNNING, ReplayState};
use domain::retry::RetrySettings;

use super::BacklogWorld;
use crate::store::tenants::new_tenant;
use engine::ports::{
    CatalogError, DEFAULT_TENANT, DeadLetterFilter, DestinationPage, MAX_EXAMINED_EACH, NewReplay,
    NextTry, ReapRules, Which,
};

fn all_of(destination: DestinationId) -> Which {
    Which::Matching(destination, DeadLetterFilter::default())
}

/// It is marked, its next try waits, and there is no second time.
pub async fn one_is_replayed_once(world: &BacklogWorld) {
    let of = world.destination().unlimited().create().await;
    let died = world.die(of, 2).await;
    let id = world.replay_of(Which::One(died[0]), 0.5).await;
    assert_eq!(world.replay(id).await.total, 1);
    assert_eq!(world.advance().await, 1);
    for _ in 0..3 {
        assert_eq!(world.advance().await, 0);
    }
    let attempts = world.attempts(of).await;
    assert_eq!(attempts.len(), 3);
    let (dead, next) = (&attempts[0], &attempts[2]);
    assert_eq!((next.event, next.try_number), (dead.event, 2));
    assert_eq!(next.state, AttemptState::Waiting);
    let shown = world.backlog.dead_letter(DEFAULT_TENANT, dead.id).await;
    assert!(shown.unwrap().replayed_at.is_some());
    let open = world.dead_letters(&DeadLetterFilter::default()).await;
    assert_eq!(open.len(), 1);
    assert_eq!(open[0].attempt.id, died[1]);
    let replay = world.replay(id).await;
    assert_eq!(replay.state, ReplayState::Completed);
    assert_eq!((replay.done, replay.pending), (1, 1));

    let again = NewReplay {
        id: ReplayId(world.id()),
        which: Which::One(died[0]),
        share: 0.5,
    };
    let again = world.backlog.create_replay(DEFAULT_TENANT, &again).await;
    assert!(matches!(again, Err(CatalogError::NotFound("dead letter"))));
    let again = world.replay_of(all_of(of), 0.5).await;
    assert_eq!(world.replay(again).await.total, 1, "the other one");

    // It goes out like any other, with the tries before it told.
    let worker = world.worker().await;
    let permits = world.admit(of).await;
    let starts = world.start(worker, &permits[..1]).await;
    assert_eq!((starts[0].try_number, starts[0].tries_before), (2, 1));
    world.finish(worker, &permits[..1]).await;
    let replay = world.replay(id).await;
    assert_eq!((replay.pending, replay.succeeded), (0, 1));
}

/// A worker that was too late has sent nothing: what goes out in its place is counted.
pub async fn what_was_not_sent_is_still_the_replays(world: &BacklogWorld) {
    let of = world.destination().unlimited().create().await;
    let died = world.die(of, 1).await;
    let id = world.replay_of(Which::One(died[0]), 0.5).await;
    assert_eq!(world.advance().await, 1);
    let worker = world.worker().await;
    let permits = world.admit(of).await;
    world.start(worker, &permits).await;
    let (not_sent, again) = (OutcomeKind::NotSent, NextTry::Again);
    world.record(worker, &permits[0], not_sent, again).await;
    let counts = async || {
        let replay = world.replay(id).await;
        (replay.pending, replay.succeeded, replay.failed)
    };
    assert_eq!(counts().await, (1, 0, 0));
    let permits = world.admit(of).await;
    world.start(worker, &permits).await;
    world.finish(worker, &permits).await;
    assert_eq!(counts().await, (0, 1, 0));
}

/// A second's worth at the share waits, and no more is moved until it starts.
pub async fn a_replay_keeps_to_its_share(world: &BacklogWorld) {
    let of = world.destination().per_second(40).max_in_flight(100);
    let of = of.create().await;
    let died = world.die(of, 30).await;
    assert_eq!(died.len(), 30);
    world.pass(Duration::from_millis(1_100)).await;
    let id = world.replay_of(all_of(of), 0.25).await;
    assert_eq!(world.advance().await, 10);
    assert_eq!(world.advance().await, 0, "not faster than its share");
    world.pass(Duration::from_millis(1_100)).await;
    assert_eq!(
        world.advance().await,
        0,
        "no more than a second's worth waits"
    );
    let worker = world.worker().await;
    let permits = world.admit(of).await;
    assert_eq!(permits.len(), 10);
    world.start(worker, &permits).await;
    world.finish(worker, &permits).await;
    let moved = world.advance().await;
    assert!((1..=10).contains(&moved), "{moved}");
    let replay = world.replay(id).await;
    assert_eq!(replay.state, ReplayState::Running);
    assert_eq!((replay.total, replay.done), (30, u64::from(10 + moved)));
    assert_eq!((replay.succeeded, replay.failed), (10, 0));
}

/// By type and status; and not what dies again.
pub async fn only_what_matches_and_died_before_is_replayed(world: &BacklogWorld) {
    let of = world.destination().unlimited().create().await;
    let typed = |event_type: &str| NewEvent {
        event_type: Some(event_type.to_owned()),
        audience: Audience::Destination(of),
        ..world.event(of)
    };
    let events = [typed("a"), typed("b"), typed("a")];
    world.store.accept_events(&events).await.unwrap();
    let worker = world.worker().await;
    let permits = world.start_all(worker, of).await;
    for permit in &permits {
        world
            .record(worker, permit, OutcomeKind::Failed, NextTry::DeadLetter)
            .await;
    }
    world.pass(Duration::from_millis(50)).await;
    let filter = |event_type: &str, status| DeadLetterFilter {
        event_type: Some(event_type.to_owned()),
        status: Some(status),
        ..DeadLetterFilter::default()
    };
    let none = world
        .replay_of(Which::Matching(of, filter("a", 500)), 1.0)
        .await;
    let some = world
        .replay_of(Which::Matching(of, filter("a", 503)), 1.0)
        .await;
    world.pass(Duration::from_millis(5)).await;
    let later = world.die(of, 1).await;
    while world.advance().await > 0 {}
    world.advance().await;
    let (none, some) = (world.replay(none).await, world.replay(some).await);
    assert_eq!((none.total, none.done), (0, 0));
    assert_eq!((some.total, some.done), (2, 2));
    assert_eq!(none.state, ReplayState::Completed);
    assert_eq!(some.state, ReplayState::Completed);
    let mut left: Vec<_> = (world.dead_letters(&DeadLetterFilter::default()).await)
        .iter()
        .map(|one| one.attempt.id)
        .collect();
    left.sort_unstable();
    assert_eq!(left, [permits[1].attempt, later[0]]);
}

/// Two replays of the same dead letters, and many who carry them out.
pub async fn several_at_once_move_each_once(world: &BacklogWorld) {
    let of = world.destination().unlimited().create().await;
    world.die(of, 12).await;
    let replays = [
        world.replay_of(all_of(of), 0.5).await,
        world.replay_of(all_of(of), 0.5).await,
    ];
    for _ in 0..4 {
        let advance = || world.replays.advance_replays(1);
        let steps = tokio::join!(advance(), advance(), advance(), advance());
        for step in [steps.0, steps.1, steps.2, steps.3] {
            step.unwrap();
        }
    }
    let done = [
        world.replay(replays[0]).await.done,
        world.replay(replays[1]).await.done,
    ];
    assert_eq!(done[0] + done[1], 12, "{done:?}");
    let attempts = world.attempts(of).await;
    assert_eq!(attempts.len(), 24);
    let mut events: Vec<_> = attempts[12..].iter().map(|one| one.event).collect();
    events.sort_unstable();
    events.dedup();
    assert_eq!(events.len(), 12, "each once");
}

/// What it has moved stays, what it has not moved too.
pub async fn a_replay_is_cancelled(world: &BacklogWorld) {
    let of = world.destination().per_second(10).max_in_flight(100);
    let of = of.create().await;
    world.die(of, 8).await;
    let id = world.replay_of(all_of(of), 0.5).await;
    assert_eq!(world.advance().await, 5);
    let nobody = TenantId(world.id());
    let refused = world.backlog.cancel_replay(nobody, id).await;
    assert!(matches!(refused, Err(CatalogError::NotFound("replay"))));
    for _ in 0..2 {
        let cancelled = world.backlog.cancel_replay(DEFAULT_TENANT, id).await;
        assert_eq!(cancelled.unwrap().state, ReplayState::Cancelled);
    }
    world.pass(Duration::from_millis(1_100)).await;
    assert_eq!(world.advance().await, 0);
    assert_eq!(world.backlog(of).await, 5);
    let left = world.dead_letters(&DeadLetterFilter::default()).await;
    assert_eq!(left.len(), 3);
    assert!(world.replay(id).await.finished_at.is_some());
}

/// Until it is resumed.
pub async fn a_paused_destination_replays_nothing(world: &BacklogWorld) {
    let of = world.destination().unlimited().create().await;
    world.die(of, 1).await;
    let id = world.replay_of(all_of(of), 0.5).await;
    let set = |state| format!("update destinations set state = '{state}' where id = '{of}'");
    world.sql(&set("paused")).await;
    assert_eq!(world.advance().await, 0);
    assert_eq!(world.replay(id).await.state, ReplayState::Running);
    world.sql(&set("active")).await;
    world.pass(Duration::from_millis(50)).await;
    assert_eq!(world.advance().await, 1);
}

/// A second's worth of the group's limit at the share, where that is the lower one.
pub async fn a_member_replays_no_faster_than_its_group_allows(world: &BacklogWorld) {
    let of = world.destination().per_second(40).max_in_flight(100);
    let of = of.create().await;
    assert_eq!(world.die(of, 20).await.len(), 20);
    let group = format!(
        "insert into limit_groups (tenant_id, name, limit_per_second)
        values ('{DEFAULT_TENANT}', 'slow', 8)"
    );
    world.sql(&group).await;
    let joins = format!("update destinations set limit_group = 'slow' where id = '{of}'");
    world.sql(&joins).await;
    world.pass(Duration::from_millis(1_100)).await;
    let id = world.replay_of(all_of(of), 0.5).await;
    assert_eq!(world.advance().await, 4);
    let leaves = format!("update destinations set limit_group = null where id = '{of}'");
    world.sql(&leaves).await;
    world.pass(Duration::from_millis(1_100)).await;
    assert_eq!(world.advance().await, 16, "its own limit alone");
    assert_eq!(world.replay(id).await.done, 20);
}

/// Cancelled: there is nobody to send to.
pub async fn a_replay_of_a_destination_that_is_gone_ends(world: &BacklogWorld) {
    let of = world.destination().unlimited().create().await;
    let died = world.die(of, 1).await;
    let id = world.replay_of(all_of(of), 0.5).await;
    let deleted = world.catalog.delete_destination(DEFAULT_TENANT, of).await;
    deleted.unwrap();
    assert_eq!(world.advance().await, 0);
    assert_eq!(world.replay(id).await.state, ReplayState::Cancelled);
    let late = NewReplay {
        id: ReplayId(world.id()),
        which: Which::One(died[0]),
        share: 0.5,
    };
    let late = world.backlog.create_replay(DEFAULT_TENANT, &late).await;
    assert!(matches!(late, Err(CatalogError::NotFound("dead letter"))));
}

/// Whoever counts them: the worker by what its start says, the reaper by the
/// row.
pub async fn tries_count_from_the_replay(world: &BacklogWorld) {
    let of = world.destination().unlimited().create().await;
    let policy = RetrySettings {
        max_tries: Some(2),
        ..RetrySettings::default()
    };
    world.rules(of, policy, None).await;
    world.die(of, 1).await;
    world.replay_of(all_of(of), 0.5).await;
    assert_eq!(world.advance().await, 1);
    let worker = world.worker().await;
    let rules = ReapRules {
        heartbeat_timeout: Duration::from_secs(60),
        start_timeout: Duration::from_millis(20),
        permit_grace: Duration::from_secs(1),
        everything: true,
    };
    for (try_number, is_dead) in [(2, false), (3, true)] {
        let permits = world.admit(of).await;
        let starts = world.start(worker, &permits).await;
        assert_eq!(
            (starts[0].try_number, starts[0].tries_before),
            (try_number, 1)
        );
        world.pass(Duration::from_millis(50)).await;
        world.beat(worker).await;
        assert_eq!(
            world.store.reap(&rules, 10).await.unwrap().unknown_starts,
            1
        );
        let attempts = world.attempts(of).await;
        let mut this = attempts.iter().filter(|one| one.try_number == try_number);
        assert_eq!(this.next().unwrap().dead_letter, is_dead, "{try_number}");
    }
}

/// It was delivered after all, so that nobody gets it twice.
pub async fn a_late_success_cancels_what_was_replayed(world: &BacklogWorld) {
    let of = world.destination().unlimited().create().await;
    let policy = RetrySettings {
        max_tries: Some(1),
        ..RetrySettings::default()
    };
    world.rules(of, policy, None).await;
    world.accept(of, 1).await;
    let worker = world.worker().await;
    let permits = world.start_all(worker, of).await;
    // It has died when it may have been sent at the latest.
    world.pass(MAX_CLAIM_TO_SEND).await;
    world.beat(worker).await;
    let rules = ReapRules {
        heartbeat_timeout: Duration::from_secs(60),
        start_timeout: Duration::from_millis(20),
        permit_grace: Duration::from_secs(1),
        everything: true,
    };
    let reaped = world.store.reap(&rules, 10).await.unwrap();
    assert_eq!(reaped.unknown_starts, 1);
    world.replay_of(all_of(of), 0.5).await;
    assert_eq!(world.advance().await, 1);
    world.finish(worker, &permits).await;
    let states = [AttemptState::Succeeded, AttemptState::Cancelled];
    assert_eq!(world.states(of).await, states);
    assert_eq!(world.dead_letters(&DeadLetterFilter::default()).await, []);
}

/// The newest first, each tenant its own.
pub async fn replays_are_listed(world: &BacklogWorld) {
    let of = world.destination().unlimited().create().await;
    world.die(of, 2).await;
    let mut begun = Vec::new();
    for _ in 0..3 {
        begun.push(world.replay_of(all_of(of), 0.5).await);
    }
    world.advance().await;
    let page = async |after, limit| {
        let page = world.backlog.replays(DEFAULT_TENANT, after, limit).await;
        page.unwrap()
    };
    let first = page(None, 2).await;
    assert_eq!(first.len(), 2);
    let rest = page(Some(first[1].id), 2).await;
    let listed: Vec<_> = first.into_iter().chain(rest).collect();
    let ids: Vec<_> = listed.iter().map(|replay| replay.id).collect();
    begun.reverse();
    assert_eq!(ids, begun);
    for replay in listed {
        assert_eq!(world.replay(replay.id).await.progress, replay);
    }
    let other = TenantId(world.id());
    let none = world.backlog.replays(other, None, 10).await;
    assert_eq!(none.unwrap(), []);
}

/// Those that have dead letters which match, and nobody else's.
pub async fn destinations_with_dead_letters_are_found(world: &BacklogWorld) {
    let (mut all, mut with_some) = (Vec::new(), Vec::new());
    for count in [1, 2, 0, 1] {
        let of = world.destination().unlimited().create().await;
        all.push(of);
        if !world.die(of, count).await.is_empty() {
            with_some.push(of);
        }
    }
    all.sort_unstable();
    with_some.sort_unstable();
    let any = DeadLetterFilter::default();
    assert_eq!(world.with_dead_letters(&any, 100).await, with_some);
    // Pages are of those that are looked at, and the last one may be empty.
    for limit in 1..=4 {
        assert_eq!(world.with_dead_letters(&any, limit).await, with_some);
    }
    let page = (world.backlog).destinations_with_dead_letters(DEFAULT_TENANT, &any, None, 3);
    assert_eq!(page.await.unwrap().next, Some(all[2]));

    they_are_found_by_filter(world, &with_some).await;

    // What is replayed is none any more, and who is deleted is not asked.
    world.replay_of(all_of(with_some[0]), 1.0).await;
    assert!(world.advance().await > 0);
    let deleted = (world.catalog).delete_destination(DEFAULT_TENANT, with_some[1]);
    deleted.await.unwrap();
    assert_eq!(world.with_dead_letters(&any, 100).await, with_some[2..]);
    let other = TenantId(world.id());
    let none = (world.backlog).destinations_with_dead_letters(other, &any, None, 10);
    assert_eq!(none.await.unwrap(), DestinationPage::default());
}

async fn they_are_found_by_filter(world: &BacklogWorld, with_some: &[DestinationId]) {
    let dead = world.dead_letters(&DeadLetterFilter::default()).await;
    let answered = dead[0].attempt.status.unwrap();
    let oldest = dead.iter().map(|one| one.died_at).min();
    let none = DeadLetterFilter::default;
    for (filter, expected) in [
        (
            DeadLetterFilter {
                status: Some(answered),
                ..none()
            },
            with_some,
        ),
        (
            DeadLetterFilter {
                status: Some(answered + 1),
                ..none()
            },
            &[],
        ),
        (
            DeadLetterFilter {
                event_type: Some("nobody's".to_owned()),
                ..none()
            },
            &[],
        ),
        (
            DeadLetterFilter {
                died_before: oldest,
                ..none()
            },
            &[],
        ),
        (
            DeadLetterFilter {
                died_from: oldest,
                ..none()
            },
            with_some,
        ),
    ] {
        let found = world.with_dead_letters(&filter, 100).await;
        assert_eq!(found, expected, "{filter:?}");
    }
}

/// One that has more dead letters than are looked at may have some that match.
pub async fn a_destination_with_too_many_dead_letters_is_named(world: &BacklogWorld) {
    let nobodys = DeadLetterFilter {
        event_type: Some("nobody's".to_owned()),
        ..DeadLetterFilter::default()
    };
    let of = world.destination().unlimited().create().await;
    // As many as may be in flight; if that takes long, the crowds that fail one
    // after the other open its breaker.
    let die = async |count: u32| {
        let died = world.die(of, count as usize).await;
        let resumed = world.health().resume(DEFAULT_TENANT, of).await;
        resumed.unwrap();
        died.len()
    };
    for _ in 0..MAX_EXAMINED_EACH / 50 {
        assert_eq!(die(50).await, 50);
    }
    assert_eq!(world.with_dead_letters(&nobodys, 10).await, []);
    assert_eq!(die(1).await, 1);
    assert_eq!(world.with_dead_letters(&nobodys, 10).await, [of]);
}

/// However many one of them has, and however early those began.
pub async fn tenants_take_turns(world: &BacklogWorld) {
    let many = world.destination().unlimited().create().await;
    world.die(many, 3).await;
    for _ in 0..3 {
        world.replay_of(all_of(many), 0.5).await;
    }
    let tenant = new_tenant(world).await;
    let of = world.destination().unlimited().create_for(tenant).await;
    let new = NewReplay {
        id: ReplayId(world.id()),
        which: all_of(of),
        share: 0.5,
    };
    let created = world.backlog.create_replay(tenant, &new).await;
    assert_eq!(created.unwrap().state, ReplayState::Running);
    let step = world.replays.advance_replays(2).await.unwrap();
    assert_eq!(step.replayed, 3, "the first of the many has had its turn");
    let ended = world.backlog.replay(tenant, new.id).await.unwrap();
    assert_eq!(ended.state, ReplayState::Completed, "and so has the other");
}

/// It is paced by what it has moved, long ago, and has its turn by when it was looked at.
pub async fn a_slow_replay_holds_up_no_other(world: &BacklogWorld) {
    let slow = world.destination().unlimited().create().await;
    world.die(slow, 2).await;
    let limit = format!(
        "update destinations set unlimited = false, limit_per_hour = 1 where id = '{slow}'"
    );
    world.sql(&limit).await;
    let of = world.destination().unlimited().create().await;
    world.die(of, 12).await;
    world.replay_of(all_of(slow), 1.0).await;
    // Ten a second.
    let quick = world.replay_of(all_of(of), 0.01).await;
    let one = async || world.replays.advance_replays(1).await.unwrap().replayed;
    assert_eq!(one().await + one().await, 11, "each has its first");
    let worker = world.worker().await;
    let permits = world.start_all(worker, of).await;
    assert_eq!(permits.len(), 10);
    world.finish(worker, &permits).await;
    world.pass(Duration::from_millis(1_100)).await;
    assert_eq!(one().await + one().await, 2, "the slow one has no more yet");
    assert_eq!(world.replay(quick).await.done, 12);
}

/// One more is refused, until one has ended; another tenant's do not count.
pub async fn so_many_of_a_tenant_run_at_once(world: &BacklogWorld) {
    let of = world.destination().unlimited().create().await;
    let first = world.replay_of(all_of(of), 0.5).await;
    let more = MAX_RUNNING - 1;
    let columns = "tenant_id, destination_id, died_before, share, total, created_at";
    let copied = |id: &str, numbers: &str| {
        format!(
            "insert into replays (id, {columns}) select {id}, {columns}
            from replays cross join {numbers} where id = '{first}'"
        )
    };
    let on_postgres = copied(
        "gen_random_uuid()",
        &format!("generate_series(1, {more}) as n (i)"),
    );
    let on_sqlite = copied(
        "printf('00000000-0000-4000-8000-%012d', n.i)",
        &format!(
            "(with recursive n (i) as (select 1 union all select i + 1 from n where i < {more})
            select i from n) n"
        ),
    );
    world.either_sql([&on_postgres, &on_sqlite]).await;
    let begin = async |tenant, of| {
        let new = NewReplay {
            id: ReplayId(world.id()),
            which: all_of(of),
            share: 0.5,
        };
        world.backlog.create_replay(tenant, &new).await
    };
    match begin(DEFAULT_TENANT, of).await {
        Err(CatalogError::Invalid { field, problem }) => {
            assert_eq!(field, "replays");
            assert!(problem.starts_with(&MAX_RUNNING.to_string()), "{problem}");
        }
        other => panic!("expected a refusal, got {other:?}"),
    }
    let tenant = new_tenant(world).await;
    let theirs = world.destination().unlimited().create_for(tenant).await;
    begin(tenant, theirs).await.unwrap();
    let ended = world.backlog.cancel_replay(DEFAULT_TENANT, first).await;
    assert_eq!(ended.unwrap().state, ReplayState::Cancelled);
    begin(DEFAULT_TENANT, of).await.unwrap();
}
