//! The contract of what waits and what died, on Postgres; and what its
//! statements cost.

use std::time::Duration;

use adapters::postgres::PostgresStore;
use domain::ids::{AttemptId, DestinationId, ReplayId};
use engine::ports::{
    Backlog, CancelFrom, CancelStep, DEFAULT_TENANT, DeadLetterFilter, NewReplay, ReapRules,
    Replays, Store, Which,
};

use crate::database::{Database, per_second};

contract::backlog_contract!(crate::contract::world);

/// Pages of tables and indexes touched by some steps of everything here.
async fn pages_of_some_steps(database: &Database, of: DestinationId) -> i64 {
    let steps = async |store: PostgresStore| some_steps(&store, of).await;
    database.pages_of(steps).await
}

async fn some_steps(store: &PostgresStore, of: DestinationId) {
    let rules = ReapRules {
        heartbeat_timeout: Duration::from_secs(60),
        start_timeout: Duration::from_secs(60),
        permit_grace: Duration::from_secs(1),
        everything: true,
    };
    for destination in [Some(of), None] {
        let filter = DeadLetterFilter {
            destination,
            ..DeadLetterFilter::default()
        };
        let page = store.dead_letters(DEFAULT_TENANT, &filter, None, 3);
        page.await.unwrap();
    }
    let nobodys = DeadLetterFilter {
        event_type: Some("nobody's".to_owned()),
        ..DeadLetterFilter::default()
    };
    for filter in [DeadLetterFilter::default(), nobodys] {
        let page = store.destinations_with_dead_letters(DEFAULT_TENANT, &filter, None, 3);
        assert_eq!(page.await.unwrap().destinations, [of]);
    }
    store.replays(DEFAULT_TENANT, None, 3).await.unwrap();
    store.reap(&rules, 3).await.unwrap();
    for from in [
        CancelFrom::BEGIN,
        CancelFrom::Admitted(AttemptId(0)),
        CancelFrom::Due(domain::time::Timestamp::MIN, AttemptId(0)),
    ] {
        let step = CancelStep {
            destination: of,
            event_type: None,
            accepted_before: None,
            from,
            limit: 3,
        };
        store.cancel_step(DEFAULT_TENANT, &step).await.unwrap();
    }
    assert_eq!(store.advance_replays(1).await.unwrap().replayed, 1);
}

/// As many attempts, of every kind in turn.
async fn attempts(database: &Database, of: DestinationId, count: u32) {
    database
        .sql(&format!(
            "insert into attempts (
                event_id, destination_id, tenant_id, state, due_at, expires_at, dead_letter,
                claimed_at, started_at, finished_at, created_at
            )
            select e.id, '{of}', '{DEFAULT_TENANT}',
                case when g % 5 = 0 then 'failed' when g % 5 = 1 then 'succeeded'
                    else 'waiting' end,
                case when g % 5 = 2 then now() - interval '1 hour' end,
                case when g % 5 = 3 then now() - g * interval '1 millisecond' end,
                g % 5 = 0,
                case when g % 5 < 2 then now() - interval '1 day' end,
                case when g % 5 < 2 then now() - interval '1 day' end,
                case when g % 5 < 2 then now() - g * interval '1 second' end,
                now() - interval '2 days'
            from (select id from events limit 1) e, generate_series(1, {count}) g"
        ))
        .await;
}

/// As if what was replayed had been sent long ago: it would hold up the next.
async fn go_on(database: &Database) {
    database.sql("update replays set paced_at = null").await;
    database
        .sql("update attempts set state = 'cancelled' where replay_id is not null")
        .await;
}

/// With the statistics of an empty table, and with true ones. The rows that a
/// step looks at beside those that it answers are bounded (`MAX_EXAMINED`), so
/// both ledgers have more of them than that.
#[tokio::test]
async fn a_step_costs_the_same_whatever_the_ledger() {
    let database = Database::create().await;
    let of = database.destination(per_second(100)).await;
    database.accept(of, 1).await;
    attempts(&database, of, 26_000).await;
    let new = NewReplay {
        id: ReplayId(database.id()),
        which: Which::Matching(of, DeadLetterFilter::default()),
        share: 0.01,
    };
    let created = database.store.create_replay(DEFAULT_TENANT, &new).await;
    assert_eq!(created.unwrap().total, 5_200);
    let small = pages_of_some_steps(&database, of).await;
    attempts(&database, of, 200_000).await;
    go_on(&database).await;
    let large = pages_of_some_steps(&database, of).await;
    database.sql("analyze").await;
    go_on(&database).await;
    let analyzed = pages_of_some_steps(&database, of).await;
    let most = small + small / 2;
    assert!(
        large <= most && analyzed <= most,
        "{small}, then {large}, analyzed {analyzed}"
    );
}
