//! What an event's way costs, as ratios that no clock enters: statements for
//! each event, permits for each start, and pages as the backlog grows.

use std::time::Duration;

use adapters::postgres::PostgresStore;
use bytes::Bytes;
use domain::attempt::OutcomeKind;
use domain::event::{Audience, NewEvent, Timing};
use domain::ids::{DestinationId, EventId, WorkerId};
use domain::permit::Permit;
use domain::policy::LimitSettings;
use domain::share::Room;
use engine::ports::{
    Acceptance, ClaimAnswer, DEFAULT_TENANT, HEARTBEAT_TIMEOUT, Heartbeat, NextTry, Outcome,
    ReapRules, Reaped, Run, RunResult, Store,
};
use uuid::Uuid;

use crate::coarse::success;
use crate::counting::Counted;
use crate::database::{Database, measured, per_second, run};

pub(crate) const UNLIMITED: LimitSettings = LimitSettings {
    count: None,
    allowed_per_minute: None,
    margin_cap: None,
    unlimited: true,
    per_second: None,
    per_minute: None,
    per_hour: None,
    per_day: None,
    burst: None,
    shape: None,
    max_in_flight: None,
    safety_margin: Some(0.0),
};

fn event(database: &Database, destination: DestinationId) -> NewEvent {
    NewEvent {
        id: EventId(database.id()),
        tenant: DEFAULT_TENANT,
        audience: Audience::Destination(destination),
        event_type: None,
        content_type: "text/plain".to_owned(),
        payload: Bytes::from_static(b"hello"),
        idempotency: None,
        trace: None,
        timing: Timing::default(),
    }
}

/// One with an id of version 7, as the API gives them.
pub(crate) async fn event_of_today(database: &Database, destination: DestinationId) -> NewEvent {
    let given = sqlx::query_scalar("select new_event_id()");
    let id: Uuid = given.fetch_one(&mut database.user().await).await.unwrap();
    NewEvent {
        id: EventId(id),
        ..event(database, destination)
    }
}

pub(crate) async fn admit(store: &PostgresStore, to: &[DestinationId]) -> Vec<Permit> {
    admit_within(store, to, &Room::of(u32::MAX)).await
}

async fn admit_within(store: &PostgresStore, to: &[DestinationId], room: &Room) -> Vec<Permit> {
    let run = |destination: &DestinationId| Run {
        destination: *destination,
        republish: false,
    };
    let runs: Vec<Run> = to.iter().map(run).collect();
    let admitted = store.admit(&runs, room).await.unwrap();
    let permits = |result: RunResult| match result {
        RunResult::Decided { permits, .. } => permits,
        RunResult::Skipped | RunResult::Gone => Vec::new(),
    };
    admitted.results.into_iter().flat_map(permits).collect()
}

/// What has started, as successes.
pub(crate) async fn claim(
    store: &PostgresStore,
    worker: WorkerId,
    permits: &[Permit],
) -> Vec<Outcome> {
    let claims = store.claim_starts(worker, permits).await.unwrap();
    let started = |(_, answer): &(&Permit, ClaimAnswer)| matches!(answer, ClaimAnswer::Started(_));
    let outcomes = permits.iter().zip(claims.answers).filter(started);
    outcomes.map(|(permit, _)| success(permit)).collect()
}

/// The statements that one event for each of these costs: to be accepted, to be
/// admitted, to start, and to be recorded.
async fn statements(database: &Database, to: &[DestinationId]) -> u64 {
    let worker = database.worker().await;
    let counted = Counted::of(database).await;
    // The connection's settings are no event's; and nothing is remembered of those that have
    // never run, so their first run is another.
    assert_eq!(admit(&counted.store, to).await, []);
    // One that was frozen for so long that its permits lapsed is asked again.
    loop {
        let events: Vec<NewEvent> = to.iter().map(|to| event(database, *to)).collect();
        let before = counted.statements();
        counted.store.accept_events(&events).await.unwrap();
        let permits = admit(&counted.store, to).await;
        let outcomes = claim(&counted.store, worker, &permits).await;
        let done = counted.store.record_outcomes(worker, &outcomes).await;
        assert!(done.unwrap().skipped.is_empty());
        if outcomes.len() == to.len() {
            return counted.statements() - before;
        }
        database.let_nothing_lapse().await;
    }
}

pub(crate) async fn destinations(database: &Database, count: usize) -> Vec<DestinationId> {
    let mut destinations = Vec::new();
    for _ in 0..count {
        destinations.push(database.destination(UNLIMITED).await);
    }
    destinations
}

/// Each worker writes one a second: it counts nobody.
#[tokio::test]
async fn a_heartbeat_is_one_statement() {
    let database = Database::create().await;
    let counted = Counted::of(&database).await;
    let heartbeat = Heartbeat {
        worker: WorkerId(database.id()),
        places: 64,
    };
    // The connection's settings are no heartbeat's.
    counted.store.heartbeat(&heartbeat).await.unwrap();
    let before = counted.statements();
    counted.store.heartbeat(&heartbeat).await.unwrap();
    assert_eq!(counted.statements() - before, 1);
}

/// An idle scheduler asks four times a second, and once of them for everything: that is to
/// look for the days that come, and a transaction of one statement.
#[tokio::test]
async fn that_there_is_nothing_to_reap_is_said_by_one_statement_or_two() {
    let database = Database::create().await;
    let counted = Counted::of(&database).await;
    // The connection's settings are no look's.
    counted.store.accept_events(&[]).await.unwrap();
    for (everything, statements) in [(false, 1), (true, 5)] {
        let rules = ReapRules {
            heartbeat_timeout: HEARTBEAT_TIMEOUT,
            start_timeout: Duration::from_secs(60),
            permit_grace: Duration::from_millis(100),
            everything,
        };
        let before = counted.statements();
        let reaped = counted.store.reap(&rules, 100).await.unwrap();
        assert_eq!(reaped, Reaped::default());
        assert_eq!(counted.statements() - before, statements, "{everything}");
    }
}

/// As many statements for a hundred events as for one, or nearly: that is at most
/// 0.2 for each, the target at load.
#[tokio::test]
async fn a_batch_costs_hardly_more_statements_than_one_event() {
    let database = Database::create().await;
    let to = destinations(&database, 100).await;
    let alone = statements(&database, &to[..1]).await;
    let together = statements(&database, &to).await;
    // Accepted, started and recorded: each is one. Admitted: to read what is configured and
    // what is used, and to mark.
    assert_eq!(alone, 6, "statements for one event");
    assert!(together <= 6, "{together} statements for a hundred events");
}

/// Ids are new, and nobody asks first: where one is there, as after a commit whose answer
/// was lost, the batch is written by a second statement, and a third says where that went.
#[tokio::test]
async fn only_a_batch_with_an_event_that_is_there_asks_for_what_is_there() {
    let database = Database::create().await;
    let to = database.destination(UNLIMITED).await;
    let counted = Counted::of(&database).await;
    counted.store.accept_events(&[]).await.unwrap();
    let (there, new) = (event(&database, to), event(&database, to));
    for (batch, statements) in [(vec![there.clone()], 1), (vec![new, there], 3)] {
        let before = counted.statements();
        let answers = counted.store.accept_events(&batch).await.unwrap();
        assert_eq!(answers, vec![Acceptance::Accepted(vec![to]); batch.len()]);
        assert_eq!(counted.statements() - before, statements);
    }
    let rows = "select count(distinct e.id) * 10 + count(*) from events e
        join deliveries d on d.id = any (array_prepend(e.delivery, e.deliveries))";
    assert_eq!(database.number(rows).await, 22, "two of each");
}

/// What a batch of outcomes takes, without one that failed and with it: so workers
/// hand in apart what succeeded. And with one whose destination has failed before, which
/// is left over.
#[tokio::test]
async fn what_succeeded_is_recorded_by_one_statement() {
    let database = Database::create().await;
    let to = destinations(&database, 40).await;
    let worker = database.worker().await;
    let counted = Counted::of(&database).await;
    assert!(counted.store.plain_outcomes_apart());
    counted.store.accept_events(&[]).await.unwrap();
    for (fails, expected) in [(false, 1..=1), (true, 6..=14), (false, 7..=15)] {
        let events: Vec<NewEvent> = to.iter().map(|to| event(&database, *to)).collect();
        counted.store.accept_events(&events).await.unwrap();
        let permits = admit(&counted.store, &to).await;
        database.let_nothing_lapse().await;
        let mut outcomes = claim(&counted.store, worker, &permits).await;
        // And what was not sent comes again.
        assert!(outcomes.len() >= to.len());
        if fails {
            outcomes[0].kind = OutcomeKind::Failed;
            outcomes[0].status = Some(500);
            outcomes[0].next = NextTry::Again;
        }
        let before = counted.statements();
        let recorded = counted.store.record_outcomes(worker, &outcomes).await;
        assert!(recorded.unwrap().skipped.is_empty());
        let statements = counted.statements() - before;
        assert!(expected.contains(&statements), "{fails}: {statements}");
    }
}

/// One whose destination has failed before costs the others nothing: somebody holds what
/// is remembered of it, and they are recorded. It comes again by itself.
#[tokio::test]
async fn a_destination_that_is_remembered_does_not_hold_up_the_others() {
    let database = Database::create().await;
    let to = destinations(&database, 10).await;
    let worker = database.worker().await;
    let store = &database.store;
    let claimed = async || {
        let events: Vec<NewEvent> = to.iter().map(|to| event(&database, *to)).collect();
        store.accept_events(&events).await.unwrap();
        let permits = admit(store, &to).await;
        database.let_nothing_lapse().await;
        claim(store, worker, &permits).await
    };
    let mut outcomes = claimed().await;
    outcomes[0].kind = OutcomeKind::Failed;
    outcomes[0].status = Some(500);
    outcomes[0].next = NextTry::DeadLetter;
    let fails = outcomes[0].destination;
    store.record_outcomes(worker, &outcomes).await.unwrap();

    let outcomes = claimed().await;
    let left: Vec<_> = (outcomes.iter())
        .filter(|outcome| outcome.destination == fails)
        .map(|outcome| outcome.attempt)
        .collect();
    assert!(!left.is_empty() && left.len() < outcomes.len());
    let mut holder = database.user().await;
    let hold = format!("begin; select from health where destination_id = '{fails}' for update");
    run(&mut holder, hold).await;
    let open = "select count(*) from attempts where state = 'started'";
    let recorded = store.record_outcomes(worker, &outcomes).await.unwrap();
    assert_eq!(recorded.skipped, left);
    assert_eq!(database.number(open).await, left.len() as i64);
    // Alone, it says why.
    let alone: Vec<_> = (outcomes.iter())
        .filter(|outcome| outcome.destination == fails)
        .cloned()
        .collect();
    assert!(store.record_outcomes(worker, &alone).await.is_err());
    run(&mut holder, "rollback".to_owned()).await;
    // What ended with an error may hold the row for a moment yet.
    let mut skipped = left;
    while !skipped.is_empty() {
        let recorded = store.record_outcomes(worker, &alone).await.unwrap();
        skipped = recorded.skipped;
    }
    assert_eq!(database.number(open).await, 0);
}

/// A permit that ends unused costs a message, two versions of a row and its place
/// in the window.
#[tokio::test]
async fn there_is_one_permit_for_each_start() {
    const STARTS: usize = 300;
    let database = Database::create().await;
    let worker = database.worker().await;
    database
        .sql("update workers set seen_at = clock_timestamp() + interval '1 hour'")
        .await;
    let to = database.destination(per_second(100)).await;
    database.accept(to, STARTS as u32).await;
    let (mut permits, mut started) = (0, 0);
    let mut waiting: Vec<Permit> = Vec::new();
    while started < STARTS {
        let new = admit(&database.store, &[to]).await;
        permits += new.len();
        waiting.extend(new);
        let claims = database.store.claim_starts(worker, &waiting).await.unwrap();
        let mut early = Vec::new();
        let mut outcomes = Vec::new();
        for (permit, answer) in waiting.iter().zip(claims.answers) {
            match answer {
                ClaimAnswer::Started(_) => outcomes.push(success(permit)),
                ClaimAnswer::Early(_) | ClaimAnswer::Skipped => early.push(*permit),
                ClaimAnswer::Refused => {}
            }
        }
        started += outcomes.len();
        database
            .store
            .record_outcomes(worker, &outcomes)
            .await
            .unwrap();
        waiting = early;
    }
    // Those of one freeze may lapse: a fifth of a second's.
    assert!(permits >= STARTS, "{permits} permits for {STARTS} starts");
    assert!(
        permits * 10 <= STARTS * 11,
        "{permits} permits for {STARTS} starts"
    );
}

/// A run costs about the same for one permit as for fifty, so this is what a delivery's
/// admission costs. What waits for places runs when an outcome wakes it, and where none does
/// when all are looked at; outcomes come four at a time, from anywhere.
#[tokio::test]
async fn a_drain_takes_few_runs_for_each_start() {
    const STARTS: usize = 800;
    const PLACES: usize = 64;
    // A run for each outcome, for one permit, would be about 0.45.
    const MOST: f64 = 0.35;
    let database = Database::create().await;
    let worker = database.worker().await;
    let to = destinations(&database, 8).await;
    for one in &to {
        database.accept(*one, (STARTS / to.len()) as u32).await;
    }
    let (mut runs, mut over) = (0, 0);
    let mut woken = to.clone();
    let mut queued: Vec<Permit> = Vec::new();
    let mut under_way: Vec<Outcome> = Vec::new();
    while over < STARTS {
        runs += woken.len();
        let room = Room {
            outstanding: queued.len() as u32,
            ..Room::of(2 * PLACES as u32)
        };
        queued.extend(admit_within(&database.store, &woken, &room).await);
        database.let_nothing_lapse().await;
        let free = PLACES - under_way.len();
        let begin: Vec<Permit> = queued.drain(..free.min(queued.len())).collect();
        let started = claim(&database.store, worker, &begin).await;
        assert_eq!(started.len(), begin.len());
        under_way.extend(started);

        let mut ended = Vec::new();
        for number in 0..under_way.len().min(4) {
            ended.push(under_way.swap_remove(number * 31 % under_way.len()));
        }
        let recorded = database
            .store
            .record_outcomes(worker, &ended)
            .await
            .unwrap();
        assert_eq!(recorded.skipped, []);
        over += ended.len();
        woken = recorded.wakes.iter().map(|wake| wake.destination).collect();
        if under_way.is_empty() && queued.is_empty() {
            woken.clone_from(&to);
        }
    }
    let each = runs as f64 / STARTS as f64;
    println!("{each:.3} runs for each start of a drain");
    assert!(each <= MOST, "{each} runs for each start");
}

/// Pages touched by so many claims, and by recording their outcomes, each by
/// itself.
async fn pages(database: &Database, permits: &[Permit]) -> (i64, i64) {
    let worker = database.worker().await;
    database.let_nothing_lapse().await;
    let claims = async |store: PostgresStore| {
        for permit in permits {
            assert_eq!(claim(&store, worker, &[*permit]).await.len(), 1);
        }
    };
    let claimed = database.pages_of(claims).await;
    let records = async |store: PostgresStore| {
        for permit in permits {
            let recorded = store.record_outcomes(worker, &[success(permit)]).await;
            assert!(recorded.unwrap().skipped.is_empty());
        }
    };
    (claimed, database.pages_of(records).await)
}

/// The same without what planning touches: once in a connection, it looks at
/// every index of every day.
async fn pages_of_thirty(database: &Database, to: DestinationId) -> (i64, i64) {
    database.sql("vacuum analyze attempts, events").await;
    let permits = database.permits(to).await;
    let (ten, forty) = permits.split_at(10);
    assert_eq!(forty.len(), 40);
    let planned = pages(database, ten).await;
    let all = pages(database, forty).await;
    (all.0 - planned.0, all.1 - planned.1)
}

async fn backlog(database: &Database, to: DestinationId, rows: u32) {
    let insert = format!(
        "insert into attempts (event_id, destination_id, tenant_id)
        select e.id, '{to}', '{DEFAULT_TENANT}'
        from (select id from events limit 1) e, generate_series(1, {rows})"
    );
    database.sql(&insert).await;
}

/// From 10^2 rows to 10^5.
#[tokio::test]
async fn claims_and_outcomes_cost_the_same_whatever_the_backlog() {
    let few = Database::create().await;
    let many = Database::create().await;
    let beside_few = few.destination(UNLIMITED).await;
    let beside_many = many.destination(UNLIMITED).await;
    few.accept(beside_few, 1).await;
    many.accept(beside_many, 1).await;
    // Enough for all tries.
    backlog(&few, beside_few, 650).await;
    backlog(&many, beside_many, 100_000).await;
    let measure = async || {
        (
            pages_of_thirty(&few, beside_few).await,
            pages_of_thirty(&many, beside_many).await,
        )
    };
    // One level more in each index, and no more.
    let same = |small: i64, large: i64| small > 50 && large <= small + small / 2;
    let what = "pages of claims and outcomes with few waiting, and with many";
    measured(what, measure, |(small, large)| {
        same(small.0, large.0) && same(small.1, large.1)
    })
    .await;
}
