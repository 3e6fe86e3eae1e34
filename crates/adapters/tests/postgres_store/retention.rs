//! Retention where several processes share a store of many days.

use std::time::Duration;

use domain::attempt::AttemptState;
use domain::ids::DestinationId;
use domain::retention::{Kept, Retention};
use engine::ports::{Catalog, ClaimAnswer, DEFAULT_TENANT, Retain, RetainRules, Retained, Store};
use engine::ports::{StoreError, Walk};

use crate::database::{Database, per_second};
use crate::days::{SUCCEEDED, WAITING, has, old, running_for};
use crate::ratios::event_of_today;

const NOW: Kept = Kept::For(Duration::ZERO);

/// Every walk is due, and nobody pauses.
const AT_ONCE: RetainRules = RetainRules {
    keep: Retention::FOREVER,
    limit: 1_000,
    rest: Duration::from_millis(1),
    again: Duration::ZERO,
    pause_factor: 0,
    day_goes_first: Duration::ZERO,
    deleted_for: Duration::ZERO,
};

/// The next step of this walk.
async fn step(database: &Database, walk: Walk, rules: &RetainRules) -> Retained {
    loop {
        tokio::time::sleep(Duration::from_millis(2)).await;
        let retained = database.store.retain(rules).await.unwrap();
        if retained.walk == Some(walk) {
            return retained;
        }
    }
}

/// The attempts of so many days ago.
async fn of_day(database: &Database, days: u32) -> i64 {
    let sql = format!(
        "select count(*) from attempts where id > first_attempt_id(utc_day(now()) - {days})
        and id < first_attempt_id(utc_day(now()) - {days} + 1)"
    );
    database.number(&sql).await
}

#[tokio::test]
async fn a_day_goes_whole_before_its_rows_go_one_by_one() {
    let database = running_for(36).await;
    let to = database.destination(per_second(100)).await;
    for days in [34, 31, 8] {
        old(&database, to, days, 10, SUCCEEDED).await;
    }
    old(&database, to, 34, 1, WAITING).await;
    let rules = RetainRules {
        keep: Retention::default(),
        day_goes_first: RetainRules::default().day_goes_first,
        ..AT_ONCE
    };
    // Rows have their turn, and leave to its day what is not two days older.
    assert_eq!(step(&database, Walk::Attempts, &rules).await.removed, 10);
    assert_eq!(of_day(&database, 34).await, 1);
    assert_eq!(of_day(&database, 31).await, 10);
    while step(&database, Walk::Days, &rules).await.more {}
    assert!(!has(&database, "ledger", 31).await && !has(&database, "events", 8).await);
    assert!(has(&database, "ledger", 34).await && has(&database, "events", 34).await);
    database
        .sql("update attempts set state = 'cancelled' where state = 'waiting'")
        .await;
    for _ in 0..2 {
        while step(&database, Walk::Days, &rules).await.more {}
    }
    assert!(!has(&database, "ledger", 34).await && !has(&database, "events", 34).await);
}

/// Old days that have to stay, as many as a step looks at, and one behind them.
#[tokio::test]
async fn days_that_stay_are_in_no_other_days_way() {
    let database = running_for(40).await;
    let to = database.destination(per_second(100)).await;
    for days in 33..=40 {
        old(&database, to, days, 1, WAITING).await;
    }
    let rules = RetainRules {
        keep: Retention::default(),
        ..AT_ONCE
    };
    let mut steps = 1;
    while step(&database, Walk::Days, &rules).await.more {
        steps += 1;
    }
    assert!(steps > 2, "{steps}");
    assert!(!has(&database, "ledger", 32).await);
    assert!(!has(&database, "events", 9).await);
    assert!(has(&database, "ledger", 33).await && has(&database, "events", 33).await);
}

/// Index entries of rows that are gone are not read again each round.
#[tokio::test]
async fn a_round_begins_at_the_first_row_that_had_to_stay() {
    let database = Database::create().await;
    let to = database.destination(per_second(100)).await;
    database.accept(to, 20).await;
    let end = "update attempts set state = 'cancelled'
        where id not in (select id from attempts order by id offset 10 limit 1)";
    database.sql(end).await;
    let rules = RetainRules {
        keep: Retention {
            ledger: NOW,
            payloads: NOW,
            ..Retention::FOREVER
        },
        ..AT_ONCE
    };
    assert_eq!(step(&database, Walk::Attempts, &rules).await.removed, 19);
    let at = "select w.after_id - min(a.id) from retention_walks w, attempts a
        where w.name = 'attempts' group by w.after_id";
    assert_eq!(database.number(at).await, -1);
    assert_eq!(step(&database, Walk::Events, &rules).await.removed, 19);
    let at = "select count(*) from retention_walks w, events e
        where w.name = 'events' and w.after_at = e.created_at and w.left_at is null";
    assert_eq!(database.number(at).await, 1);
    database
        .sql("update attempts set state = 'cancelled'")
        .await;
    assert_eq!(step(&database, Walk::Attempts, &rules).await.removed, 1);
    assert_eq!(step(&database, Walk::Events, &rules).await.removed, 1);
}

/// Ids say any time that their givers like.
#[tokio::test]
async fn an_event_that_is_younger_than_its_id_says_is_passed_and_stays() {
    let database = Database::create().await;
    let to = database.destination(per_second(100)).await;
    for _ in 0..3 {
        let event = event_of_today(&database, to).await;
        database.store.accept_events(&[event]).await.unwrap();
    }
    database
        .sql(
            "update attempts set state = 'cancelled';
            update events set created_at = created_at + interval '1 hour'
                where id = (select id from events order by id offset 1 limit 1);",
        )
        .await;
    let rules = RetainRules {
        keep: Retention {
            payloads: NOW,
            ..Retention::FOREVER
        },
        ..AT_ONCE
    };
    assert_eq!(step(&database, Walk::Events, &rules).await.removed, 2);
    let left = "select count(*) from events where created_at > clock_timestamp()";
    assert_eq!(database.number(left).await, 1);
}

#[tokio::test]
async fn a_walk_that_fails_waits_and_the_others_go_on() {
    let database = Database::create().await;
    let to = database.destination(per_second(100)).await;
    database.accept(to, 3).await;
    database
        .sql("update attempts set state = 'cancelled'")
        .await;
    database
        .sql(
            "create function refuse() returns trigger language plpgsql
                as $$ begin raise 'not today'; end $$;
            create trigger refuse before delete on attempts
                for each row execute function refuse();",
        )
        .await;
    let rules = RetainRules {
        keep: Retention {
            payloads: NOW,
            ledger: NOW,
            dead_letters: NOW,
        },
        ..AT_ONCE
    };
    let mut failed = 0;
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_millis(2)).await;
        match database.store.retain(&rules).await {
            Ok(retained) => assert_ne!(retained.walk, Some(Walk::Attempts)),
            Err(StoreError::Unavailable(_)) => failed += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(failed, 1, "it is put off");
    assert_eq!(database.number("select count(*) from events").await, 0);
    let later = "select count(*) from retention_walks
        where due_at > clock_timestamp() + interval '50 seconds' and name = 'attempts'";
    assert_eq!(database.number(later).await, 1);
}

#[tokio::test]
async fn a_step_of_events_is_bounded_in_bytes() {
    let database = Database::create().await;
    let to = database.destination(per_second(100)).await;
    database.accept(to, 20).await;
    database
        .sql(
            "update attempts set state = 'cancelled';
            update events set payload = convert_to(repeat('x', 1 << 20), 'utf8');",
        )
        .await;
    let rules = RetainRules {
        keep: Retention {
            payloads: NOW,
            ..Retention::FOREVER
        },
        ..AT_ONCE
    };
    let first = step(&database, Walk::Events, &rules).await;
    assert_eq!((first.examined, first.removed, first.more), (16, 16, true));
    let last = step(&database, Walk::Events, &rules).await;
    assert_eq!((last.examined, last.removed, last.more), (4, 4, false));
}

/// Whoever takes a step, nobody takes the next before the pause is over.
#[tokio::test]
async fn there_is_one_turn_and_a_pause_after_it() {
    let database = Database::create().await;
    let hours = RetainRules {
        pause_factor: 1_000_000_000,
        ..AT_ONCE
    };
    let first = database.store.retain(&hours).await.unwrap();
    assert!(first.walk.is_some());
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(2)).await;
        let none = database.store.retain(&AT_ONCE).await.unwrap();
        assert_eq!(none, Retained::default());
    }
    database
        .sql("update retention_turn set due_at = clock_timestamp()")
        .await;
    let mut held = database.user().await;
    let mut held = sqlx::Connection::begin(&mut held).await.unwrap();
    let hold = "select t.id from retention_turn t for update";
    sqlx::query(hold).execute(&mut *held).await.unwrap();
    let none = database.store.retain(&AT_ONCE).await.unwrap();
    assert_eq!(none, Retained::default(), "it is somebody's turn");
    held.rollback().await.unwrap();
    assert!(
        database
            .store
            .retain(&AT_ONCE)
            .await
            .unwrap()
            .walk
            .is_some()
    );
}

/// The states, in the order of the ids.
async fn states(database: &Database, of: DestinationId) -> Vec<AttemptState> {
    let rows = database.store.attempts(DEFAULT_TENANT, of, None, 10).await;
    rows.unwrap().iter().map(|row| row.state).collect()
}

/// Somebody has deleted an event that was still to be sent.
#[tokio::test]
async fn what_has_lost_its_event_is_not_sent_and_others_are() {
    let database = Database::create().await;
    let to = database.destination(per_second(100)).await;
    database.accept(to, 3).await;
    let permits = database.permits(to).await;
    let lose = format!(
        "delete from events where id = (
            select event_id from attempts where id = {})",
        permits[1].attempt
    );
    database.sql(&lose).await;
    let worker = database.worker().await;
    let claims = database.store.claim_starts(worker, &permits).await.unwrap();
    assert!(matches!(claims.answers[0], ClaimAnswer::Started(_)));
    assert!(matches!(claims.answers[1], ClaimAnswer::Refused));
    assert!(matches!(claims.answers[2], ClaimAnswer::Started(_)));
    let (started, not_sent) = (AttemptState::Started, AttemptState::NotSent);
    assert_eq!(states(&database, to).await, [started, not_sent, started]);
    let why = "select count(*) from attempts where error = 'its event is gone' and not dead_letter";
    assert_eq!(database.number(why).await, 1);
}
