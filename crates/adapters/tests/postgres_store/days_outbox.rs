//! Rows of the outbox whose ids say of which day they are.

use engine::ports::{Lane, Outbox};

use crate::database::{per_second, run};
use crate::days::{has, keep, running_for};

#[tokio::test]
async fn the_outbox_refuses_ids_of_days_that_are_gone_or_far_ahead() {
    let database = running_for(5).await;
    let to = database.destination(per_second(100)).await;
    let gap = "select format('drop table events_%s', to_char(utc_day(now()) - 2, 'YYYY_MM_DD'))";
    let mut user = database.user().await;
    let gap: String = sqlx::query_scalar(gap).fetch_one(&mut user).await.unwrap();
    run(&mut user, gap).await;
    let insert = |days: i32| {
        format!(
            "insert into paceline.outbox (event_id, destination_id, payload)
            select (
                lpad(to_hex((extract(epoch from now()) * 1000)::bigint + {days} * 86400000::bigint), 12, '0')
                || substr(translate(new_event_id()::text, '-', ''), 13)
            )::uuid, '{to}', '{days}'"
        )
    };
    // Nobody was there two days ago and made that day.
    for days in [-6, -5, -2, 0, 3, 5] {
        database.sql(&insert(days)).await;
    }
    database
        .sql(&format!(
            "insert into paceline.outbox (destination_id, payload) values ('{to}', '1')"
        ))
        .await;
    while database
        .store
        .relay(Lane(0), 100)
        .await
        .unwrap()
        .lane
        .is_some()
    {}
    let mut rejected: Vec<(String, String)> = sqlx::query_as(
        "select payload, split_part(reason, ':', 1) from paceline.outbox_rejected order by position",
    )
    .fetch_all(&mut user)
    .await
    .unwrap();
    rejected.sort_unstable();
    let of = |payload: &str| (payload.to_owned(), "event_id".to_owned());
    assert_eq!(rejected, [of("-6"), of("5")]);
    assert_eq!(database.number("select count(*) from attempts").await, 5);
    assert!(has(&database, "events", 2).await);
    let own = "select count(*) from events where day = utc_day(now())";
    assert_eq!(
        database.number(own).await,
        2,
        "ids that are not given are of today"
    );
}

/// While relays are behind, the days that their rows may be of stay.
#[tokio::test]
async fn no_event_goes_while_the_outbox_is_behind() {
    let database = running_for(10).await;
    let to = database.destination(per_second(100)).await;
    let row = format!(
        "insert into paceline.outbox (destination_id, payload, created_at)
        values ('{to}', '1', now() - interval '2 hours')"
    );
    database.sql(&row).await;
    assert_eq!(keep(&database.store).await, Vec::<String>::new());
    assert!(has(&database, "events", 9).await);
    while database
        .store
        .relay(Lane(0), 100)
        .await
        .unwrap()
        .lane
        .is_some()
    {}
    assert_eq!(keep(&database.store).await.len(), 3);
}
