//! What days cost those who read and write: in pages.

use std::time::Duration;

use adapters::postgres::PostgresStore;
use domain::ids::DestinationId;
use domain::permit::Permit;
use domain::share::Room;
use engine::ports::{ClaimAnswer, Run, Store, Sweep};

use crate::coarse::success;
use crate::counting::Counted;
use crate::database::{Database, measured, per_second, run};
use crate::days::{SUCCEEDED, WAITING, old, running_for};
use crate::horizon::raise;
use crate::ratios::{UNLIMITED, event_of_today};

/// Pages touched by thirty claims, without what planning the statement touches:
/// it looks at every index of every day, once in a connection.
async fn pages_of_claims(database: &Database, to: DestinationId) -> i64 {
    let worker = database.worker().await;
    database.accept(to, 50).await;
    database.sql("vacuum analyze attempts, events").await;
    let permits = database.permits(to).await;
    database.let_nothing_lapse().await;
    let (ten, forty) = permits.split_at(10);
    assert_eq!(forty.len(), 40);
    let pages = async |permits: &[Permit]| {
        let claims = async |store: PostgresStore| {
            for permit in permits {
                let claims = store.claim_starts(worker, &[*permit]).await.unwrap();
                assert!(matches!(claims.answers[0], ClaimAnswer::Started(_)));
            }
        };
        database.pages_of(claims).await
    };
    let planned = pages(ten).await;
    pages(forty).await - planned
}

/// A week's days, full, beside the one that is claimed from.
#[tokio::test]
async fn a_claim_costs_the_same_whatever_the_days_before() {
    let empty = running_for(1).await;
    let full = running_for(38).await;
    // A quarter of that may be in flight: enough for all tries.
    let beside_none = empty.destination(per_second(2_000)).await;
    let beside_week = full.destination(per_second(2_000)).await;
    for days in 1..=7 {
        old(&full, beside_week, days, 20_000, SUCCEEDED).await;
    }
    let measure = async || {
        (
            pages_of_claims(&empty, beside_none).await,
            pages_of_claims(&full, beside_week).await,
        )
    };
    // The counters count, and count the same.
    let what = "pages without a week before, and with one";
    measured(what, measure, |(none, week)| {
        *none > 50 && *week <= none + none / 4
    })
    .await;
}

/// Pages touched by ten runs that find nothing new. Planning counts: it touches
/// every index of every day that is in the plan.
async fn pages_of_runs(database: &Database, to: DestinationId) -> i64 {
    database.sql("vacuum analyze attempts, events").await;
    let runs = async |store: PostgresStore| {
        for _ in 0..10 {
            let run = Run {
                destination: to,
                republish: false,
            };
            store.admit(&[run], &Room::of(u32::MAX)).await.unwrap();
        }
    };
    database.pages_of(runs).await
}

/// Pages touched by twenty sweeps of everything, and by planning them.
async fn pages_of_sweeps(database: &Database) -> i64 {
    let sweeps = async |store: PostgresStore| {
        for _ in 0..20 {
            store.sweep(&EVERYTHING).await.unwrap();
        }
    };
    database.pages_of(sweeps).await
}

const EVERYTHING: Sweep = Sweep {
    after: None,
    limit: 100,
    everything: true,
    only_marks: false,
    overdue: Duration::ZERO,
};

/// Neither a run nor a sweep knows of days that are below the horizon.
#[tokio::test]
async fn admission_costs_the_same_whatever_the_days_before() {
    // As many as count.
    let few = running_for(4).await;
    let full = running_for(38).await;
    let beside_few = few.destination(per_second(100)).await;
    let beside_full = full.destination(per_second(100)).await;
    for days in 4..=11 {
        old(&full, beside_full, days, 10_000, SUCCEEDED).await;
    }
    for (database, to) in [(&few, beside_few), (&full, beside_full)] {
        raise(database).await;
        database.accept(to, 50).await;
        database.permits(to).await;
    }
    let measure = async || {
        let runs = [
            pages_of_runs(&few, beside_few).await,
            pages_of_runs(&full, beside_full).await,
        ];
        (
            runs,
            [pages_of_sweeps(&few).await, pages_of_sweeps(&full).await],
        )
    };
    // The counters count.
    let what = "pages of runs and of sweeps, each with few days and with many";
    measured(what, measure, |(runs, sweeps)| {
        let counted = runs[0] > 50 && sweeps[0] > 20;
        let flat = |[few, full]: &[i64; 2]| *full <= few + few / 10;
        counted && flat(runs) && flat(sweeps)
    })
    .await;
}

/// Days of attempts and of events that a step has open when it writes to the first of them.
async fn days_open<T>(database: &Database, step: impl Future<Output = T>) -> (i64, T) {
    let held = "select pg_advisory_lock(41)";
    let mut holder = database.user().await;
    run(&mut holder, held.to_owned()).await;
    let looking = async {
        database.until_somebody_waits().await;
        let open = "select count(distinct l.relation) from pg_locks l
            join pg_inherits i on i.inhrelid = l.relation
            where i.inhparent in ('ledger'::regclass, 'events'::regclass)
                and l.database = (select oid from pg_database where datname = current_database())";
        let open = database.number(open).await;
        run(&mut holder, "select pg_advisory_unlock(41)".to_owned()).await;
        open
    };
    tokio::join!(looking, step)
}

/// Of 42 days; what a step writes waits for whoever looks.
async fn watched() -> Database {
    let database = running_for(38).await;
    raise(&database).await;
    database
        .sql(
            "create function waits() returns trigger language plpgsql as $$
            begin
                perform set_config('lock_timeout', '0', true), pg_advisory_xact_lock(41);
                return new;
            end;
            $$;
            create trigger waits before update on deliveries for each row
            execute function waits();
            create trigger waits before insert on ledger for each row
            execute function waits()",
        )
        .await;
    database
}

/// What no window counts is not looked for: an unlimited run knows of no day.
#[tokio::test]
async fn an_unlimited_run_opens_no_day() {
    let database = watched().await;
    let to = database.destination(UNLIMITED).await;
    // The first run asks for the last claim.
    assert_eq!(database.permits(to).await, []);
    database.accept(to, 1).await;
    let (opened, permits) = days_open(&database, database.permits(to)).await;
    assert_eq!((opened, permits.len()), (0, 1));
}

/// A plan opens and locks each day that is in it, whether it looks there or not.
#[tokio::test]
async fn a_step_of_an_attempt_opens_its_days_alone() {
    let database = watched().await;
    let to = database.destination(per_second(100)).await;
    let worker = database.worker().await;
    database.accept(to, 2).await;
    let store = &database.store;
    let (admitting, permits) = days_open(&database, database.permits(to)).await;
    database.let_nothing_lapse().await;
    let claim = store.claim_starts(worker, &permits[..1]);
    let (claiming, claims) = days_open(&database, claim).await;
    assert!(matches!(
        claims.unwrap().answers[0],
        ClaimAnswer::Started(_)
    ));
    let outcomes = [success(&permits[0])];
    let record = store.record_outcomes(worker, &outcomes);
    let (recording, recorded) = days_open(&database, record).await;
    assert_eq!(recorded.unwrap().skipped, []);
    let release = store.release_permits(&permits[1..]);
    let (releasing, released) = days_open(&database, release).await;
    assert_eq!(released.unwrap().len(), 1);
    // An admission counts what started on the days before; what is owed has no day. A claim
    // reads events of the attempts' day and the one before, and those without a day.
    assert_eq!(
        (admitting, claiming, recording, releasing),
        (4, 3, 1, 0),
        "of 42 days"
    );
}

/// An attempt of today whose event is five days old, as a retry's may be.
async fn made_today_for_an_old_event(database: &Database, to: DestinationId) {
    made_today_for_one_of(database, to, 5).await;
}

async fn made_today_for_one_of(database: &Database, to: DestinationId, days: u32) {
    old(database, to, days, 1, WAITING).await;
    database
        .sql(
            "update deliveries set id = next_attempt_id('attempts_id_seq')
            where id < first_attempt_id(utc_day(now()) - 1)",
        )
        .await;
}

/// The one permit that there is to give.
async fn permit(database: &Database, to: DestinationId) -> Permit {
    let permits = database.permits(to).await;
    database.let_nothing_lapse().await;
    assert_eq!(permits.len(), 1);
    permits[0]
}

async fn made_today(database: &Database, to: DestinationId, count: usize) {
    let mut events = Vec::new();
    for _ in 0..count {
        events.push(event_of_today(database, to).await);
    }
    database.store.accept_events(&events).await.unwrap();
}

/// The payload of the old event, and how many started attempts have it.
fn old_ones(answers: &[ClaimAnswer]) -> usize {
    let old = |answer: &&ClaimAnswer| match answer {
        ClaimAnswer::Started(start) => {
            (&start.payload[..], &*start.content_type) == (&b"x"[..], "text/plain")
        }
        _ => false,
    };
    answers.iter().filter(old).count()
}

/// What was accepted long before its attempt was made takes one more, and nothing else does.
/// Beside others that one is a transaction, which may not take long.
#[tokio::test]
async fn a_claim_is_one_statement_and_old_events_take_another() {
    let database = running_for(8).await;
    let to = database.destination(per_second(100)).await;
    let beside = database.destination(per_second(100)).await;
    let worker = database.worker().await;
    let counted = Counted::of(&database).await;
    // The connection's settings are no claim's.
    counted.store.accept_events(&[]).await.unwrap();
    let claimed = async |permits: &[Permit]| {
        let before = counted.statements();
        let claims = counted.store.claim_starts(worker, permits).await.unwrap();
        let started = |answer: &&ClaimAnswer| matches!(answer, ClaimAnswer::Started(_));
        let started = claims.answers.iter().filter(started).count();
        let statements = counted.statements() - before;
        (statements, started, old_ones(&claims.answers))
    };
    made_today(&database, to, 1).await;
    let new = permit(&database, to).await;
    assert_eq!(claimed(&[new]).await, (1, 1, 0));
    made_today_for_an_old_event(&database, to).await;
    let old = permit(&database, to).await;
    assert_eq!(claimed(&[old]).await, (2, 1, 1));
    let both = async || {
        made_today_for_an_old_event(&database, to).await;
        made_today(&database, beside, 1).await;
        let both = [permit(&database, to).await, permit(&database, beside).await];
        claimed(&both).await
    };
    // A machine that is busy may let that transaction fail.
    let what = "statements, starts, and those of old events";
    measured(what, both, |measured| *measured == (4, 2, 1)).await;
}

/// Holds the day of the old events, until it ends its transaction.
async fn holder_of_the_old_day(database: &Database) -> sqlx::PgConnection {
    let mut user = database.user().await;
    let hold = "begin; do $$ begin
        execute format('lock table events_%s', to_char(utc_day(now()) - 5, 'YYYY_MM_DD'));
    end; $$";
    run(&mut user, hold.to_owned()).await;
    user
}

/// What has its event elsewhere starts then, and the rest does not wait for it, nor for
/// anything that is asked after it.
#[tokio::test]
async fn what_cannot_be_read_has_not_started() {
    let database = running_for(8).await;
    let to = database.destination(per_second(100)).await;
    let beside = database.destination(per_second(100)).await;
    let worker = database.worker().await;
    made_today_for_an_old_event(&database, to).await;
    made_today(&database, beside, 1).await;
    let both = [permit(&database, to).await, permit(&database, beside).await];
    let counted = Counted::of(&database).await;
    // The connection's settings are no claim's.
    counted.store.accept_events(&[]).await.unwrap();
    let before = counted.statements();
    let mut user = holder_of_the_old_day(&database).await;
    let claims = counted.store.claim_starts(worker, &both).await.unwrap();
    let statements = counted.statements() - before;
    assert!(
        statements <= 4,
        "{statements} with both claims and a rollback"
    );
    assert_eq!(claims.answers[0], ClaimAnswer::Skipped);
    assert!(matches!(claims.answers[1], ClaimAnswer::Started(_)));
    run(&mut user, "rollback".to_owned()).await;
    let again = database.store.claim_starts(worker, &both[..1]).await;
    assert_eq!(old_ones(&again.unwrap().answers), 1);
    let spent = "select count(*) from ledger where state = 'not_sent'";
    assert_eq!(database.number(spent).await, 0);
}

/// A destination that takes three events in a request.
async fn batching(database: &Database) -> DestinationId {
    let to = database.destination(UNLIMITED).await;
    database
        .sql(&format!(
            "update destinations set batch_max_events = 3, batch_max_bytes = 1000000,
                batch_max_wait_ms = 60000
            where id = '{to}'"
        ))
        .await;
    to
}

async fn three_batching(database: &Database) -> [DestinationId; 3] {
    [
        batching(database).await,
        batching(database).await,
        batching(database).await,
    ]
}

/// The payloads of each batch; of what has not started, none.
fn batches(answers: &[ClaimAnswer]) -> Vec<Vec<&[u8]>> {
    (answers.iter())
        .map(|answer| match answer {
            ClaimAnswer::Started(start) => (start.members.iter())
                .map(|member| &member.payload[..])
                .collect(),
            _ => Vec::new(),
        })
        .collect()
}

/// Its leader may be old, or what it carries: neither starts without the other.
#[tokio::test]
async fn a_batch_starts_once_all_of_it_can_be_read() {
    let database = running_for(8).await;
    let worker = database.worker().await;
    let [led, carrying, new] = three_batching(&database).await;
    made_today_for_an_old_event(&database, led).await;
    made_today(&database, led, 2).await;
    made_today(&database, carrying, 2).await;
    made_today_for_an_old_event(&database, carrying).await;
    made_today(&database, new, 3).await;
    let all = [
        permit(&database, led).await,
        permit(&database, carrying).await,
        permit(&database, new).await,
    ];
    let (old, hello) = (&b"x"[..], &b"hello"[..]);
    let mut user = holder_of_the_old_day(&database).await;
    let claims = database.store.claim_batches(worker, &all).await.unwrap();
    let skipped = [ClaimAnswer::Skipped, ClaimAnswer::Skipped];
    assert_eq!(claims.answers[..2], skipped);
    assert_eq!(batches(&claims.answers[2..]), [[hello, hello, hello]]);
    let started = "select count(*) from deliveries where state = 'started'";
    assert_eq!(database.number(started).await, 3);
    run(&mut user, "rollback".to_owned()).await;
    let again = database.store.claim_batches(worker, &all[..2]).await;
    assert_eq!(
        batches(&again.unwrap().answers),
        [[old, hello, hello], [hello, hello, old]]
    );
    assert_eq!(database.number(started).await, 9);
}

/// What has started is not sent before the call is answered, so it does not wait for all that
/// others need.
#[tokio::test]
async fn a_batch_does_not_wait_for_all_the_days_of_another() {
    let database = running_for(8).await;
    let worker = database.worker().await;
    let [new, led, of_three_days] = three_batching(&database).await;
    made_today(&database, new, 3).await;
    made_today_for_an_old_event(&database, led).await;
    made_today(&database, led, 2).await;
    made_today_for_an_old_event(&database, of_three_days).await;
    made_today_for_one_of(&database, of_three_days, 6).await;
    made_today(&database, of_three_days, 1).await;
    let all = [
        permit(&database, new).await,
        permit(&database, led).await,
        permit(&database, of_three_days).await,
    ];
    database
        .sql(
            "create function is_slow() returns trigger language plpgsql as $$
            begin
                perform pg_sleep(0.12);
                return new;
            end;
            $$;
            create trigger is_slow before update on deliveries for each row
            when (old.state = 'admitted' and new.state = 'started')
            execute function is_slow()",
        )
        .await;
    let claims = database.store.claim_batches(worker, &all).await.unwrap();
    let claims = claims.answers;
    assert_eq!(batches(&claims[..1])[0].len(), 3);
    assert_eq!(claims[2], ClaimAnswer::Skipped);
    let again = database.store.claim_batches(worker, &all[2..]).await;
    assert_eq!(batches(&again.unwrap().answers)[0].len(), 3);
}

/// An old event's day is one more, of whatever starts.
#[tokio::test]
async fn batches_and_replays_open_their_days_alone() {
    let database = watched().await;
    let worker = database.worker().await;
    let store = &database.store;
    let new = batching(&database).await;
    made_today(&database, new, 3).await;
    let led = batching(&database).await;
    made_today_for_an_old_event(&database, led).await;
    made_today(&database, led, 2).await;
    let resent = database.destination(per_second(100)).await;
    made_today_for_an_old_event(&database, resent).await;
    let [new, led, resent] = [
        permit(&database, new).await,
        permit(&database, led).await,
        permit(&database, resent).await,
    ];
    let (usual, claims) = days_open(&database, store.claim_batches(worker, &[new])).await;
    assert_eq!(batches(&claims.unwrap().answers)[0].len(), 3);
    let (with_old, claims) = days_open(&database, store.claim_batches(worker, &[led])).await;
    assert_eq!(batches(&claims.unwrap().answers)[0].len(), 3);
    let (replay, claims) = days_open(&database, store.claim_starts(worker, &[resent])).await;
    assert_eq!(old_ones(&claims.unwrap().answers), 1);
    assert_eq!((usual, with_old, replay), (3, 4, 4), "of 42 days");
}

/// Where rows have a day, they are found in it, whatever the statistics say.
#[tokio::test]
async fn an_event_is_looked_up_in_its_day() {
    let database = running_for(8).await;
    let to = database.destination(per_second(100)).await;
    old(&database, to, 3, 2_000, SUCCEEDED).await;
    database.sql("vacuum analyze").await;
    let mut user = database.user().await;
    let plan: Vec<String> = sqlx::query_scalar(sqlx::AssertSqlSafe(
        "explain (analyze, costs off, timing off)
        select e.payload
        from (select a.event_id from attempts a order by a.id limit 5) l
        cross join lateral (
            select e.payload from events e
            where e.id = l.event_id and e.day = event_day(l.event_id)
            limit 1
        ) e"
        .to_owned(),
    ))
    .fetch_all(&mut user)
    .await
    .unwrap();
    let executed: Vec<&String> = (plan.iter())
        .filter(|line| line.contains(" events_") && !line.contains("never executed"))
        .collect();
    assert_eq!(executed.len(), 1, "{plan:#?}");
}
