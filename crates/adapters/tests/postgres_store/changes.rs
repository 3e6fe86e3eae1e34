//! Changes by users' own SQL: of destinations, of tiers, of tenants.

use adapters::postgres::PostgresStore;
use domain::batch::BatchSettings;
use domain::ceiling::Ceiling;
use domain::destination::DestinationState;
use domain::handshake::Answer;
use domain::ids::DestinationId;
use domain::policy::LimitSettings;
use engine::ports::{
    Backlog, Catalog, DEFAULT_TENANT, DestinationChange, Handshakes, HealthBook, Outcome, Store,
    Tenants, TierChange,
};

use crate::database::{Database, per_second, run};
use crate::smart::refused;

async fn epoch(database: &Database, id: DestinationId) -> i64 {
    database
        .number(&format!("select epoch from destinations where id = '{id}'"))
        .await
}

async fn admitted(database: &Database, id: DestinationId) -> i64 {
    let count = "select count(*) from attempts where state = 'admitted' and destination_id =";
    database.number(&format!("{count} '{id}'")).await
}

#[tokio::test]
async fn a_stricter_isolation_is_refused_in_words() {
    let database = Database::create().await;
    let id = database.destination(per_second(20)).await;
    for isolation in ["serializable", "repeatable read"] {
        for change in [
            format!("update destinations set limit_per_second = 5 where id = '{id}'"),
            "update tiers set limit_per_second = 5".to_owned(),
            "update tenants set tier = 'free'".to_owned(),
        ] {
            let sql = format!("begin isolation level {isolation}; {change}; commit");
            let error = database.refused(&sql).await.to_string();
            assert!(error.contains("read committed"), "{change}: {error}");
        }
        // What is not about limits may be done in any.
        let name = format!("update destinations set name = 'x' where id = '{id}'");
        database
            .sql(&format!(
                "begin isolation level {isolation}; {name}; commit"
            ))
            .await;
    }
}

/// Attempts have no foreign keys, so a trigger keeps what they are of.
#[tokio::test]
async fn a_destination_that_has_attempts_is_not_deleted() {
    let database = Database::create().await;
    let (with, without) = (
        database.destination(per_second(20)).await,
        database.destination(per_second(20)).await,
    );
    database.accept(with, 1).await;
    let delete = |id| format!("delete from destinations where id = '{id}'");
    let refused = database.refused(&delete(with)).await.to_string();
    assert!(refused.contains("has attempts"), "{refused}");
    database.sql(&delete(without)).await;
    let left = "select count(*) from destinations";
    assert_eq!(database.number(left).await, 1);
}

#[tokio::test]
async fn a_tiers_change_reaches_all_that_inherit_and_nobody_else() {
    for (change, revokes) in [
        (
            "update tiers set limit_per_second = 5 where name = 'standard'",
            true,
        ),
        (
            "update tiers set limit_per_second = 50 where name = 'standard'",
            false,
        ),
        ("update tenants set tier = 'free'", true),
        ("update tenants set tier = 'enterprise'", false),
    ] {
        let database = Database::create().await;
        let mut inheriting = Vec::new();
        for _ in 0..3 {
            inheriting.push(database.destination(LimitSettings::EXACT).await);
        }
        let own = database.destination(per_second(20)).await;
        for id in inheriting.iter().chain([&own]) {
            database.accept(*id, 5).await;
            assert_eq!(database.permits(*id).await.len(), 5);
        }
        database.sql(change).await;
        for id in inheriting {
            let (epoch, admitted) = (epoch(&database, id).await, admitted(&database, id).await);
            assert_eq!(
                (epoch, admitted),
                if revokes { (1, 0) } else { (0, 5) },
                "{change}"
            );
            let history = database.store.limit_history(id).await.unwrap();
            assert_eq!(history.len(), 2, "{change}");
            let now = database
                .store
                .destination(engine::ports::DEFAULT_TENANT, id)
                .await
                .unwrap();
            assert_eq!(history[1].effective, now.effective);
        }
        assert_eq!(
            (epoch(&database, own).await, admitted(&database, own).await),
            (0, 5)
        );
        assert_eq!(database.store.limit_history(own).await.unwrap().len(), 1);
        assert_eq!(
            database
                .number("select count(*) from destination_marks")
                .await,
            3
        );
    }
}

/// Several changes in one transaction: each is noted, the last is in force,
/// and a cut among them has revoked.
#[tokio::test]
async fn a_transaction_of_many_changes_stays_right() {
    let database = Database::create().await;
    let id = database.destination(per_second(20)).await;
    database.accept(id, 5).await;
    assert_eq!(database.permits(id).await.len(), 5);
    let set =
        |limit| format!("update destinations set limit_per_second = {limit} where id = '{id}'");
    let (cut, raise) = (set(5), set(100));
    database
        .sql(&format!("begin; {cut}; savepoint s; {raise}; commit"))
        .await;
    assert_eq!(
        (epoch(&database, id).await, admitted(&database, id).await),
        (1, 0)
    );
    let history = database.store.limit_history(id).await.unwrap();
    let limits: Vec<_> = history
        .iter()
        .map(|entry| entry.effective.per_second)
        .collect();
    assert_eq!(limits, [Some(20), Some(5), Some(100)]);

    database.sql(&format!("begin; {cut}; rollback")).await;
    assert_eq!(database.store.limit_history(id).await.unwrap().len(), 3);
}

#[tokio::test]
async fn a_change_is_notified() {
    let database = Database::create().await;
    let id = database.destination(per_second(20)).await;
    // The first answer is for what came before anybody listened.
    database.store.changed().await;
    database
        .sql(&format!(
            "update destinations set limit_per_second = 5 where id = '{id}'"
        ))
        .await;
    let patience = std::time::Duration::from_secs(5);
    tokio::time::timeout(patience, database.store.changed())
        .await
        .unwrap();
}

/// A change of the tier holds it and waits for its first destination; ours of another
/// one waits for the tier, and holds nothing that the other comes to: nobody is a
/// deadlock's victim, a user's own statement least of all.
async fn waits_in_one_order<Ours>(
    (database, ids): (Database, [DestinationId; 2]),
    ours: impl FnOnce(PostgresStore, DestinationId) -> Ours,
) where
    Ours: Future<Output = ()> + Send + 'static,
{
    let mut holding = database.user().await;
    let hold = format!(
        "begin; select from destinations where id = '{}' for update",
        ids[0]
    );
    run(&mut holding, hold).await;
    let mut tier = database.user().await;
    let tier = tokio::spawn(async move {
        let cut = "update tiers set limit_per_second = 1 where name = 'standard'";
        run(&mut tier, cut.to_owned()).await;
    });
    database.until_somebody_waits().await;
    let ours = tokio::spawn(ours(database.store.clone(), ids[1]));
    let waiting = "select count(*) from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock'";
    while database.number(waiting).await < 2 {
        tokio::task::yield_now().await;
    }
    // Which is what makes a circle, if they come to it at the same time.
    let free = format!(
        "select from destinations where id = '{}' for update nowait",
        ids[1]
    );
    database.sql(&free).await;
    run(&mut holding, "rollback".to_owned()).await;
    tier.await.unwrap();
    ours.await.unwrap();
}

/// In the order of their ids.
async fn two_that_inherit() -> (Database, [DestinationId; 2]) {
    let database = Database::create().await;
    let mut ids = [
        database.destination(LimitSettings::EXACT).await,
        database.destination(LimitSettings::EXACT).await,
    ];
    ids.sort_unstable();
    (database, ids)
}

#[tokio::test]
async fn a_change_of_a_tier_and_of_a_destination_wait_in_one_order() {
    let paused = DestinationChange {
        state: Some(DestinationState::Paused),
        ..DestinationChange::default()
    };
    let ours = move |store: PostgresStore, id| async move {
        let changed = store.change_destination(DEFAULT_TENANT, id, &paused);
        assert_eq!(changed.await.unwrap().state, DestinationState::Paused);
    };
    waits_in_one_order(two_that_inherit().await, ours).await;
}

#[tokio::test]
async fn a_change_of_a_tier_and_of_batches_wait_in_one_order() {
    let on = BatchSettings {
        max_events: Some(10),
        ..BatchSettings::default()
    };
    let ours = move |store: PostgresStore, id| async move {
        let set = store.set_batch_settings(DEFAULT_TENANT, id, &on);
        set.await.unwrap();
    };
    waits_in_one_order(two_that_inherit().await, ours).await;
}

#[tokio::test]
async fn a_change_of_a_tier_and_an_answer_that_disables_wait_in_one_order() {
    let (database, ids) = two_that_inherit().await;
    let worker = database.worker().await;
    database.accept(ids[1], 1).await;
    let permits = database.permits(ids[1]).await;
    let claims = database.store.claim_starts(worker, &permits).await;
    assert_eq!(claims.unwrap().answers.len(), 1);
    let gone = Outcome {
        status: Some(410),
        ..refused(&permits[0])
    };
    let ours = move |store: PostgresStore, _| async move {
        let recorded = store.record_outcomes(worker, &[gone]).await.unwrap();
        assert!(!recorded.health.is_empty(), "it is disabled");
    };
    waits_in_one_order((database, ids), ours).await;
}

#[tokio::test]
async fn a_change_of_a_tier_and_a_resumption_wait_in_one_order() {
    let (database, ids) = two_that_inherit().await;
    let disabled = format!(
        "update destinations set state = 'disabled' where id = '{}'",
        ids[1]
    );
    database.sql(&disabled).await;
    let ours = move |store: PostgresStore, id| async move {
        store.resume(DEFAULT_TENANT, id).await.unwrap();
    };
    waits_in_one_order((database, ids), ours).await;
}

#[tokio::test]
async fn a_change_of_a_tier_and_a_handshake_wait_in_one_order() {
    let (database, ids) = two_that_inherit().await;
    let asks = format!(
        "update destinations set handshake = 'cloud_events' where id = '{}'",
        ids[1]
    );
    database.sql(&asks).await;
    let questions = database.store.take_handshakes(None, 1).await.unwrap().taken;
    assert_eq!(questions[0].destination, ids[1]);
    let ours = move |store: PostgresStore, _| async move {
        let recorded = store.record_handshake(&questions[0], &Answer::Allowed(None));
        assert!(recorded.await.unwrap().changed);
    };
    waits_in_one_order((database, ids), ours).await;
}

/// Within the time that a session has for a statement, though it keeps its plan from when
/// there was one: a loop in a loop takes four times as long. It waits for no destination of
/// the default tenant, which has no ceiling.
#[tokio::test]
async fn a_tier_of_five_thousand_destinations_gets_another_age() {
    let database = Database::create().await;
    let ours = database.destination(LimitSettings::EXACT).await;
    let mut holding = database.user().await;
    let hold = format!("begin; select from destinations where id = '{ours}' for update");
    run(&mut holding, hold).await;
    let tenant = database.id();
    let large =
        format!("insert into tenants (id, name, tier) values ('{tenant}', 'large', 'standard')");
    database.sql(&large).await;
    let mut total = 0;
    for (more, age_seconds) in [(1, 60), (4_999, 30)] {
        total += more;
        let insert = format!(
            "insert into destinations (id, tenant_id, url)
            select gen_random_uuid(), '{tenant}', 'https://x.example/'
            from generate_series(1, {more})"
        );
        database.sql(&insert).await;
        let change = TierChange {
            ceiling: Some(Ceiling {
                age_seconds: Some(age_seconds),
                ..Ceiling::default()
            }),
            ..TierChange::default()
        };
        let changed = database.store.change_tier("standard", &change).await;
        changed.unwrap();
        let aged =
            format!("select count(*) from destinations where tier_age_ms = {age_seconds} * 1000");
        assert_eq!(database.number(&aged).await, total);
    }
}

/// It waits for a change of its tier, and for another tier of its tenant.
#[tokio::test]
async fn a_destination_that_comes_meanwhile_has_the_age_of_the_tier_then() {
    let database = Database::create().await;
    let tenant = database.id();
    let aging = format!(
        "update tiers set ceiling_age_seconds = 30 where name = 'free';
        insert into tenants (id, name, tier) values ('{tenant}', 'aging', 'enterprise')"
    );
    database.sql(&aging).await;
    let twenty = "update tiers set ceiling_age_seconds = 20 where name = 'enterprise'".to_owned();
    let to_free = format!("update tenants set tier = 'free' where id = '{tenant}'");
    for (change, age_ms) in [(twenty, 20_000), (to_free, 30_000)] {
        let mut changing = database.user().await;
        run(&mut changing, format!("begin; {change}")).await;
        let mut user = database.user().await;
        let insert = format!(
            "insert into destinations (id, tenant_id, url)
            values ('{}', '{tenant}', 'https://x.example/')",
            database.id()
        );
        let inserting = tokio::spawn(async move { run(&mut user, insert).await });
        database.until_somebody_waits().await;
        run(&mut changing, "commit".to_owned()).await;
        inserting.await.unwrap();
        for of_all in ["min", "max"] {
            let age = format!(
                "select {of_all}(coalesce(tier_age_ms, 0)) from destinations
                where tenant_id = '{tenant}'"
            );
            assert_eq!(database.number(&age).await, age_ms, "{of_all}: {change}");
        }
    }
}
