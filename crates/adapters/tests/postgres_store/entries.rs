//! How many entries of indexes a delivery writes, step by step: most of what it costs
//! Postgres, in time and in the log.

use domain::event::{NewEvent, Timing};
use engine::ports::{ClaimAnswer, Store};

use crate::coarse::success;
use crate::database::{Database, per_second};
use crate::ratios::event_of_today;

/// Entries that the rows of these tables have in all of their indexes.
async fn entries(database: &Database, of: &str) -> i64 {
    let counted = format!(
        "select coalesce(sum((xpath('/row/n/text()', query_to_xml(format(
                'select count(*) as n from %s where %s', i.indrelid::regclass,
                coalesce(pg_get_expr(i.indpred, i.indrelid), 'true')
            ), false, true, '')))[1]::text::bigint), 0)::bigint
        from pg_index i join pg_class c on c.oid = i.indrelid
        where c.relkind = 'r' and c.relname like '{of}'"
    );
    database.number(&counted).await
}

#[tokio::test]
async fn a_delivery_writes_nine_entries() {
    let database = Database::create().await;
    let worker = database.worker().await;
    let destination = database.destination(per_second(20)).await;
    let event = event_of_today(&database, destination).await;
    database.store.accept_events(&[event]).await.unwrap();
    assert_eq!(entries(&database, "events%").await, 2, "an event");
    assert_eq!(entries(&database, "deliveries").await, 2, "what waits");
    let permits = database.permits(destination).await;
    assert_eq!(entries(&database, "deliveries").await, 2, "a permit");
    // The claim is written in place: no index says anything that it sets.
    let named = "select count(*) from pg_index i join pg_attribute a on a.attrelid = i.indrelid
        where i.indrelid = 'deliveries'::regclass
            and a.attname in ('state', 'worker_id', 'claimed_at', 'started_at')
            and (a.attnum = any (i.indkey)
                or pg_get_indexdef(i.indexrelid) ~ ('\\m' || a.attname || '\\M'))";
    assert_eq!(database.number(named).await, 0);
    let claims = database.store.claim_starts(worker, &permits).await.unwrap();
    assert!(matches!(claims.answers[..], [ClaimAnswer::Started(_)]));
    let outcomes = [success(&permits[0])];
    let recorded = database.store.record_outcomes(worker, &outcomes).await;
    assert_eq!(recorded.unwrap().skipped, []);
    assert_eq!(entries(&database, "deliveries").await, 0);
    // One of them, of when it ended, is of a range of pages.
    assert_eq!(entries(&database, "ledger%").await, 3 + 1, "what is over");
}

/// What people look for is by a hash of the destination: by its id and its tenant's an entry
/// would be twice as large.
#[tokio::test]
async fn the_key_for_people_has_sixteen_bytes() {
    let database = Database::create().await;
    let bytes = "select sum(attlen)::bigint from pg_attribute
        where attrelid = 'ledger_of_destination'::regclass";
    assert_eq!(database.number(bytes).await, 16);
}

/// Of a row that changes in its page the log has all from the first byte that differs to
/// the last.
#[tokio::test]
async fn what_a_step_sets_lies_side_by_side() {
    let database = Database::create().await;
    let permit = ["permit", "epoch", "not_before", "deadline", "admitted_at"];
    let flags = ["coarse", "crowded", "by_response", "state"];
    let claim = ["state", "worker_id", "claimed_at", "started_at"];
    for set in [[&permit[..], &flags[..]].concat(), claim.to_vec()] {
        let between = format!(
            "select (max(a.attnum) - min(a.attnum))::bigint from pg_attribute a
            where a.attrelid = 'deliveries'::regclass and a.attname = any ('{{{}}}')",
            set.join(",")
        );
        let apart = database.number(&between).await;
        assert_eq!(usize::try_from(apart).unwrap() + 1, set.len(), "{set:?}");
    }
}

/// The lane is in the index of what is due: those who use none pay nothing for it.
#[tokio::test]
async fn an_urgent_delivery_is_in_the_indexes_of_what_is_due() {
    let database = Database::create().await;
    let destination = database.destination(per_second(20)).await;
    let timing = Timing {
        urgent: true,
        ..Timing::default()
    };
    let event = NewEvent {
        timing,
        ..database.event(destination)
    };
    database.store.accept_events(&[event]).await.unwrap();
    assert_eq!(entries(&database, "deliveries").await, 4, "what waits");
    database.permits(destination).await;
    assert_eq!(entries(&database, "deliveries").await, 3, "a permit");
}
