//! Ingest on Postgres: what needs locks to be seen.

use std::time::Duration;

use adapters::postgres::PostgresStore;
use bytes::Bytes;
use domain::event::{Audience, Idempotency, NewEvent, Timing};
use domain::ids::EventId;
use domain::policy::LimitSettings;
use engine::ports::{Acceptance, DEFAULT_TENANT, ReapRules, Store, StoreError};
use sqlx::{Connection, PgConnection};

use crate::database::{Database, run};

fn keyed(database: &Database, to: domain::ids::DestinationId, digest: u8) -> NewEvent {
    NewEvent {
        id: EventId(database.id()),
        tenant: DEFAULT_TENANT,
        audience: Audience::Destination(to),
        event_type: None,
        content_type: "text/plain".to_owned(),
        payload: Bytes::from_static(b"hello"),
        idempotency: Some(Idempotency {
            key: "order-1".to_owned(),
            digest: [digest; 32],
            kept_for: Duration::from_secs(3_600),
        }),
        trace: None,
        timing: Timing::default(),
    }
}

/// It says nothing of what other requests would meet.
#[tokio::test]
async fn events_that_take_too_long_are_told_from_a_server_that_is_away() {
    let database = Database::create().await;
    let to = database.destination(LimitSettings::EXACT).await;
    let sleeps = "create function sleeps() returns trigger language plpgsql as
        $$ begin perform pg_sleep(60); return new; end $$";
    database.sql(sleeps).await;
    let trigger = "create trigger sleeps before insert on events
        for each row execute function sleeps()";
    database.sql(trigger).await;
    let event = keyed(&database, to, 1);
    let refused = database.store.accept_events(&[event]).await;
    assert!(
        matches!(refused, Err(StoreError::TooSlow(_))),
        "{refused:?}"
    );
    let said = refused.unwrap_err().to_string();
    assert!(said.starts_with("the store took too long"), "{said}");
}

/// Another process's request with the same key is open: ours waits for what
/// becomes of it, and is the event if the other is not.
#[tokio::test]
async fn a_request_waits_for_the_one_with_its_key() {
    let database = Database::create().await;
    let to = database.destination(LimitSettings::EXACT).await;
    let other = database.id();
    for (end, is_ours) in [("rollback", true), ("commit", false)] {
        database.sql("delete from idempotency_keys").await;
        let mut open = database.user().await;
        run(
            &mut open,
            format!(
                "begin; insert into idempotency_keys values ('{DEFAULT_TENANT}', 'order-1', \
                 decode(repeat('01', 32), 'hex'), '{other}', clock_timestamp() + interval '1 h')"
            ),
        )
        .await;
        let event = keyed(&database, to, 1);
        let (store, ours) = (database.store.clone(), event.clone());
        let accepting = tokio::spawn(async move { store.accept_events(&[ours]).await.unwrap() });
        database.until_somebody_waits().await;
        run(&mut open, end.to_owned()).await;
        let expected = match is_ours {
            true => Acceptance::Accepted(vec![to]),
            false => Acceptance::Repeated {
                event: EventId(other),
                destinations: Vec::new(),
            },
        };
        assert_eq!(accepting.await.unwrap(), [expected], "{end}");
        open.close().await.unwrap();
    }
    let events = "select count(*) from events";
    assert_eq!(database.number(events).await, 1);
}

#[tokio::test]
async fn expired_idempotency_keys_are_deleted_a_few_at_a_time() {
    let database = Database::create().await;
    database
        .sql(
            "insert into idempotency_keys
            select gen_random_uuid(), 'k', '', gen_random_uuid(),
                clock_timestamp() + (n - 3.5) * interval '1 hour'
            from generate_series(1, 5) n",
        )
        .await;
    let rules = ReapRules {
        heartbeat_timeout: Duration::from_secs(5),
        start_timeout: Duration::from_secs(5),
        permit_grace: Duration::ZERO,
        everything: true,
    };
    // The oldest is held: the others do not wait for it.
    let mut holding = PgConnection::connect(&database.url).await.unwrap();
    let hold = "begin; select from idempotency_keys order by expires_at limit 1 for update";
    run(&mut holding, hold.to_owned()).await;
    let left = "select count(*) from idempotency_keys";
    database.store.reap(&rules, 1).await.unwrap();
    assert_eq!(database.number(left).await, 4);
    database.store.reap(&rules, 5).await.unwrap();
    assert_eq!(database.number(left).await, 3);
    run(&mut holding, "rollback".to_owned()).await;
    database.store.reap(&rules, 5).await.unwrap();
    assert_eq!(database.number(left).await, 2);
}

/// Each is for another destination that is not there, and all have one key: they are
/// refused together, not by turns.
#[tokio::test]
async fn refused_events_with_one_key_take_no_turn_each() {
    let database = Database::create().await;
    let to = database.destination(LimitSettings::EXACT).await;
    let mut user = database.user().await;
    let count = "create table public.writes (at timestamptz);
        create function note_write() returns trigger language plpgsql as
            $$ begin insert into public.writes values (clock_timestamp()); return null; end $$;
        create trigger note_write before insert on idempotency_keys
            for each statement execute function note_write()";
    run(&mut user, count.to_owned()).await;
    let nowhere = || keyed(&database, domain::ids::DestinationId(database.id()), 1);
    let mut events: Vec<_> = (0..200).map(|_| nowhere()).collect();
    events.push(keyed(&database, to, 1));
    events.push(keyed(&database, to, 1));
    let answers = database.store.accept_events(&events).await.unwrap();
    assert!(
        answers[..200]
            .iter()
            .all(|answer| *answer == Acceptance::UnknownDestination)
    );
    assert_eq!(answers[200], Acceptance::Accepted(vec![to]));
    let event = events[200].id;
    let destinations = vec![to];
    assert_eq!(
        answers[201],
        Acceptance::Repeated {
            event,
            destinations
        }
    );
    assert_eq!(database.number("select count(*) from writes").await, 1);
}

/// However many destinations a tenant has, those that subscribe are found at once; and of
/// types that are many, or long, so many are looked for in one step.
#[tokio::test]
async fn who_does_not_subscribe_costs_nothing() {
    let database = Database::create().await;
    let to = database.destination(LimitSettings::EXACT).await;
    let insert = async |others: u32| {
        let insert = format!(
            "insert into destinations (id, tenant_id, url, event_types)
            select gen_random_uuid(), tenant_id, url, '{{order, order.paid.*}}'
            from destinations, generate_series(1, {others}) where id = '{to}'"
        );
        database.sql(&insert).await;
    };
    let subscribe =
        format!("update destinations set event_types = '{{*, order.*}}' where id = '{to}'");
    database.sql(&subscribe).await;
    let typed = |event_type: String| NewEvent {
        audience: Audience::Subscribers,
        event_type: Some(event_type),
        idempotency: None,
        ..keyed(&database, to, 1)
    };
    let pages = async || {
        let ten_times = async |store: PostgresStore| {
            for _ in 0..10 {
                let answers = store.accept_events(&[typed("order.paid".to_owned())]).await;
                assert_eq!(answers.unwrap(), [Acceptance::Accepted(vec![to])]);
            }
        };
        database.pages_of(ten_times).await
    };
    let beside = async |others: u32| {
        insert(others).await;
        // What the inserts themselves have touched is counted late.
        database.sql("select pg_stat_force_next_flush()").await;
        pages().await;
        pages().await
    };
    let few = beside(10).await;
    let many = beside(3_000).await;
    // An index of more entries is a level deeper.
    assert!(
        many <= few * 3 / 2,
        "{few} pages for ten destinations, {many} for 3,000"
    );

    let long = |n: u32| typed(format!("{n}{}", ".a".repeat(60)));
    let events: Vec<NewEvent> = (0..150).map(long).collect();
    let answers = database.store.accept_events(&events).await.unwrap();
    assert_eq!(answers.len(), 1_000 / 10);
}
