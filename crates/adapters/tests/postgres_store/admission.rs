//! Admission under concurrency: one destination, many schedulers.

use domain::ids::DestinationId;
use domain::share::Room;
use engine::ports::{Run, RunResult, Store};
use futures_util::future::join_all;
use sqlx::{Connection, Row};

use crate::database::{Database, per_second, run};

#[tokio::test(flavor = "multi_thread")]
async fn schedulers_that_meet_never_exceed_the_limit() {
    let database = Database::create().await;
    for round in 0..30 {
        let destination = database.destination(per_second(10)).await;
        if round % 2 == 0 {
            // It has run before, so nobody locks it to read.
            assert_eq!(database.permits(destination).await, []);
        }
        database.accept(destination, 40).await;
        let scheduler = async || {
            let mut admitted = 0;
            for _ in 0..4 {
                admitted += database.permits(destination).await.len();
            }
            admitted
        };
        // Retries that come to the front of the backlog meanwhile: schedulers
        // that do not see each other would not even pick the same attempts.
        let front = async {
            let mut user = database.user().await;
            for step in 1..=25 {
                run(&mut user, insert_retries(destination, step)).await;
            }
        };
        let schedulers = join_all((0..6).map(|_| scheduler()));
        let (all, ()) = tokio::join!(schedulers, front);
        // The deadlines of the first ten keep the window full for seconds.
        assert_eq!(all.iter().sum::<usize>(), 10, "round {round}: {all:?}");
        let rows = format!(
            "select count(*) from attempts where state = 'admitted' and destination_id = '{destination}'"
        );
        assert_eq!(database.number(&rows).await, 10);
    }
}

/// Two schedulers that admit in one statement, with the lock in a CTE, both
/// count what was there before the other; ours reads after its lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_count_in_the_statement_that_locks_is_stale_and_ours_is_not() {
    let database = Database::create().await;
    let destination = database.destination(per_second(10)).await;
    database.accept(destination, 40).await;
    let mut other = database.user().await;
    let mut other = other.begin().await.unwrap();
    let lock = format!("select from destinations where id = '{destination}' for no key update");
    run(&mut other, lock).await;
    run(
        &mut other,
        format!(
            "update attempts set state = 'admitted', permit = id, epoch = 0,
                not_before = clock_timestamp(), deadline = clock_timestamp() + interval '1 minute'
            where id in (select id from attempts where destination_id = '{destination}' limit 10)"
        ),
    )
    .await;
    assert!(matches!(
        database.run(destination).await,
        RunResult::Skipped
    ));

    let naive = format!(
        "with locked as (
            select id from destinations where id = '{destination}' for no key update
        )
        select (
            select count(*) from attempts a where a.destination_id = l.id and a.state = 'admitted'
        ) as outstanding
        from locked l"
    );
    let mut waiting = database.user().await;
    let naive = tokio::spawn(async move {
        let row = sqlx::query(sqlx::AssertSqlSafe(naive))
            .fetch_one(&mut waiting)
            .await
            .unwrap();
        row.get::<i64, _>(0)
    });
    // It has to wait for the lock, with its snapshot taken.
    database.until_somebody_waits().await;
    other.commit().await.unwrap();
    assert_eq!(
        naive.await.unwrap(),
        0,
        "the trap that our two statements avoid"
    );
    let RunResult::Decided { permits, .. } = database.run(destination).await else {
        panic!("nobody holds the row any more")
    };
    assert_eq!(permits, [], "the other's ten fill the window");
}

#[tokio::test]
async fn an_open_ingest_does_not_hide_its_destination() {
    let database = Database::create().await;
    let destination = database.destination(per_second(10)).await;
    database.accept(destination, 1).await;
    let mut ingest = database.user().await;
    let mut ingest = ingest.begin().await.unwrap();
    run(
        &mut ingest,
        insert_attempt(&database, &destination.to_string(), "0 s"),
    )
    .await;
    // Of a user's own table that refers to it. A plain `for update` is shut out.
    let key = format!("select from destinations where id = '{destination}' for key share");
    run(&mut ingest, key).await;
    let plain = format!(
        "select count(*) from (
            select id from destinations where id = '{destination}' for update skip locked
        ) x"
    );
    assert_eq!(database.number(&plain).await, 0);
    assert_eq!(database.permits(destination).await.len(), 1);
    ingest.commit().await.unwrap();
    assert_eq!(database.permits(destination).await.len(), 1);
}

/// The time that a run plans by is read after its lock: others may have started
/// since its transaction began.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_waited_has_the_time_after_its_wait() {
    let database = Database::create().await;
    let destination = database.destination(per_second(10)).await;
    let mut other = database.user().await;
    let mut other = other.begin().await.unwrap();
    run(
        &mut other,
        "lock table destinations in exclusive mode".to_owned(),
    )
    .await;
    let store = database.store.clone();
    let waiting = tokio::spawn(async move {
        let run = Run {
            destination,
            republish: false,
        };
        store
            .admit(&[run], &domain::share::Room::of(100))
            .await
            .unwrap()
            .now
    });
    database.until_somebody_waits().await;
    let held_until = database.number("select micros(clock_timestamp())").await;
    other.commit().await.unwrap();
    assert!(waiting.await.unwrap().as_micros() >= held_until);
}

/// What is read of a destination that has run before is read without a lock, so nothing is
/// written of it where its row, or its pacing's, has changed by then.
#[tokio::test(flavor = "multi_thread")]
async fn what_has_changed_since_it_was_read_is_skipped() {
    let database = Database::create().await;
    for change in [
        "update destinations set name = 'x' where id = ",
        "update pacing set last_permit = last_permit + 3 where destination_id = ",
    ] {
        let destination = database.destination(per_second(10)).await;
        database.permits(destination).await;
        database.accept(destination, 3).await;
        let mut other = database.user().await;
        let mut other = other.begin().await.unwrap();
        // What is used is read after the destination.
        let lock = "lock table deliveries in access exclusive mode";
        run(&mut other, lock.to_owned()).await;
        let store = database.store.clone();
        let waiting = tokio::spawn(async move {
            let run = Run {
                destination,
                republish: false,
            };
            store.admit(&[run], &Room::of(100)).await.unwrap().results
        });
        database.until_somebody_waits().await;
        run(&mut other, format!("{change}'{destination}'")).await;
        other.commit().await.unwrap();
        assert!(
            matches!(waiting.await.unwrap()[..], [RunResult::Skipped]),
            "{change}"
        );
        assert_eq!(database.permits(destination).await.len(), 3);
    }
}

#[tokio::test]
async fn a_held_destination_is_skipped_and_the_others_are_not() {
    let database = Database::create().await;
    let held = database.destination(per_second(10)).await;
    let free = database.destination(per_second(10)).await;
    database.accept(held, 3).await;
    database.accept(free, 3).await;
    let mut user = database.user().await;
    let mut user = user.begin().await.unwrap();
    run(
        &mut user,
        format!("update destinations set name = 'x' where id = '{held}'"),
    )
    .await;
    assert!(matches!(database.run(held).await, RunResult::Skipped));
    assert_eq!(database.permits(free).await.len(), 3);
    user.rollback().await.unwrap();
    assert_eq!(database.permits(held).await.len(), 3);
}

/// The same of one that has run before, which is read without a lock.
#[tokio::test]
async fn a_held_destination_is_skipped_by_a_later_run() {
    let database = Database::create().await;
    let destination = database.destination(per_second(10)).await;
    assert_eq!(database.permits(destination).await, []);
    database.accept(destination, 3).await;
    for hold in [
        format!("update destinations set name = 'x' where id = '{destination}'"),
        format!("update pacing set last_permit = 9 where destination_id = '{destination}'"),
    ] {
        let mut user = database.user().await;
        let mut user = user.begin().await.unwrap();
        run(&mut user, hold.clone()).await;
        let skipped = database.run(destination).await;
        assert!(matches!(skipped, RunResult::Skipped), "{hold}");
        user.rollback().await.unwrap();
    }
    // Of a user's own table that refers to it.
    let mut user = database.user().await;
    let mut user = user.begin().await.unwrap();
    let key = format!("select from destinations where id = '{destination}' for key share");
    run(&mut user, key).await;
    assert_eq!(database.permits(destination).await.len(), 3);
}

/// Ids are given before the commit: one that is smaller may come later.
#[tokio::test]
async fn the_cursor_loses_no_attempt_that_commits_late() {
    let database = Database::create().await;
    let destination = database.destination(per_second(100)).await;
    let mut slow = database.user().await;
    let mut slow = slow.begin().await.unwrap();
    run(
        &mut slow,
        insert_attempt(&database, &destination.to_string(), "25 s"),
    )
    .await;
    let mut fast = database.user().await;
    run(
        &mut fast,
        insert_attempt(&database, &destination.to_string(), "25 s"),
    )
    .await;
    assert_eq!(database.permits(destination).await.len(), 1);
    slow.commit().await.unwrap();
    assert_eq!(
        database.permits(destination).await.len(),
        1,
        "the smaller id"
    );

    // What is older than any transaction can be is passed, and not read again.
    run(
        &mut fast,
        insert_attempt(&database, &destination.to_string(), "40 s"),
    )
    .await;
    assert_eq!(database.permits(destination).await.len(), 1);
    let passed = database.number("select first_after from pacing").await;
    assert_eq!(
        passed,
        database.number("select max(id) from attempts").await
    );
}

/// Two are old enough to be passed. The first of them is held, as by an expiry that is under
/// way, so that the run marks the second alone: what is before it is read again.
#[tokio::test]
async fn the_cursor_waits_for_what_could_not_be_marked() {
    let database = Database::create().await;
    for has_run in [false, true] {
        let destination = database.destination(per_second(100)).await;
        if has_run {
            assert_eq!(database.permits(destination).await, []);
        }
        cursor_waits(&database, destination).await;
    }
}

async fn cursor_waits(database: &Database, destination: DestinationId) {
    let mut ingest = database.user().await;
    for _ in 0..2 {
        let insert = insert_attempt(database, &destination.to_string(), "40 s");
        run(&mut ingest, insert).await;
    }
    let first = format!("select min(id) from attempts where destination_id = '{destination}'");
    let first = database.number(&first).await;
    let mut holder = database.user().await;
    let mut holder = holder.begin().await.unwrap();
    let hold = format!("select from deliveries where id = {first} for update");
    run(&mut holder, hold).await;
    assert_eq!(database.permits(destination).await.len(), 1);
    let passed = format!("select first_after from pacing where destination_id = '{destination}'");
    assert!(database.number(&passed).await < first);
    holder.rollback().await.unwrap();
    let permits = database.permits(destination).await;
    assert_eq!(permits.len(), 1);
    assert_eq!(permits[0].attempt.0, first);
}

/// Some leader is out at every run of a destination that is busy, and what waits
/// for it is in front of all that the run admits.
#[tokio::test]
async fn the_cursor_of_batches_comes_up_to_what_waits() {
    let database = Database::create().await;
    let destination = database.destination(per_second(100)).await;
    database
        .sql("update destinations set batch_max_events = 2, batch_max_wait_ms = 0")
        .await;
    let mut ingest = database.user().await;
    for expected in [1, 1] {
        for _ in 0..3 {
            let insert = insert_attempt(&database, &destination.to_string(), "40 s");
            run(&mut ingest, insert).await;
        }
        // The second of them has ended meanwhile, as what was carried does.
        database
            .sql(
                "update attempts set state = 'cancelled' where id = (
                    select min(id) from attempts where state = 'waiting' and id > (
                        select min(id) from attempts where state = 'waiting'
                    )
                )",
            )
            .await;
        assert_eq!(database.permits(destination).await.len(), expected);
    }
    let passed = database.number("select first_after from pacing").await;
    let waiting = "select min(id) from attempts where state = 'waiting'";
    let waiting = database.number(waiting).await;
    assert_eq!(passed, waiting - 1, "past all that has ended");
}

/// Ten that have been due for so many minutes.
fn insert_retries(destination: DestinationId, minutes: u32) -> String {
    format!(
        "insert into attempts (event_id, destination_id, tenant_id, due_at)
        select event_id, destination_id, tenant_id,
            clock_timestamp() - {minutes} * interval '1 minute'
        from attempts where destination_id = '{destination}' limit 10"
    )
}

/// As an ingest inserts it, `age` ago.
fn insert_attempt(database: &Database, destination: &str, age: &str) -> String {
    let (event, tenant) = (database.id(), engine::ports::DEFAULT_TENANT);
    format!(
        "insert into events (id, tenant_id, content_type, payload, created_at, day)
            values ('{event}', '{tenant}', 'text/plain', 'x', clock_timestamp(),
                event_day('{event}'));
        insert into attempts (event_id, destination_id, tenant_id, created_at)
            values ('{event}', '{destination}', '{tenant}', clock_timestamp() - interval '{age}')"
    )
}

/// Two ingests at one time: the event that was timed first got the larger id.
/// Retries beside them fill the run up to between the two.
#[tokio::test(flavor = "multi_thread")]
async fn the_cursor_loses_no_attempt_whose_id_and_time_disagree() {
    let database = Database::create().await;
    let destination = database.destination(per_second(2)).await;
    database.accept(destination, 4).await;
    let times = format!(
        "update attempts a
        set created_at = clock_timestamp() - n.age, due_at = case when n.retry then
            clock_timestamp() - n.age end
        from (
            select id, row_number() over (order by id) as place from attempts
            where destination_id = '{destination}'
        ) p
        join (values
            (1, interval '61 s', false), (2, interval '63 s', false),
            (3, interval '64 s', true), (4, interval '62 s', true)
        ) as n (place, age, retry) on n.place = p.place
        where a.id = p.id"
    );
    database.sql(&times).await;
    assert_eq!(database.permits(destination).await.len(), 2);
    // The window is free again.
    let ended = format!(
        "update attempts set state = 'cancelled' where state = 'admitted'
            and destination_id = '{destination}'"
    );
    database.sql(&ended).await;
    assert_eq!(database.permits(destination).await.len(), 2);
}
