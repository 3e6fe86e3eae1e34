//! What a run and a claim cost, in steps of SQLite's virtual machine: the same with a
//! thousand waiting attempts and with hundreds of thousands.

use std::sync::Arc;
use std::time::Duration;

use domain::attempt::{AttemptState, OutcomeKind};
use domain::ids::{AttemptId, DestinationId, PermitNumber, TenantId, WorkerId};
use domain::time::Timestamp;
use engine::ports::{
    AttemptFilter, ClaimAnswer, Heartbeat, LedgerPosition, LimitRequest, Outcome, ReapRules, Run,
    RunResult, SurveyRules, Sweep, WatchRules,
};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, StatementStatus};
use uuid::Uuid;

use super::lines::Lines;
use super::{
    admit, claim, fleet, found_attempts, ingest, ledger, limit_group, limit_requests, migrate,
    over, prepare, reap, record, rows, survey, sweep, usage, watch,
};
use crate::lost::no_event;

const ID: Uuid = Uuid::from_u128(0xd);
const TENANT: Uuid = engine::ports::DEFAULT_TENANT.0;

const EVENT: Uuid = Uuid::from_u128(0xe);

const NOW: Timestamp = Timestamp::from_millis(1_795_000_000_000);

/// A destination with a ledger of `size` starts that are over, `size` first
/// attempts, retries that are due, and retries that are not.
fn with_rows(size: u32) -> Connection {
    let mut connection = Connection::open_in_memory().unwrap();
    prepare(&connection).unwrap();
    migrate::migrate(&mut connection).unwrap();
    Lines::follow(&connection).unwrap();
    let now = NOW.as_micros();
    let insert = format!(
        "insert into limit_groups (tenant_id, name, limit_per_second) values ('{TENANT}', 'x', 2000);
        insert into destinations
            (id, tenant_id, url, limit_per_second, limit_per_hour, alert_backlog, limit_group)
        values ('{ID}', '{TENANT}', 'https://x.example/', 100, 5000, 300, 'x');
        insert into events (id, tenant_id, content_type, payload, created_at)
        values ('{EVENT}', '{TENANT}', 'text/plain', x'00', 0);
        create temp table n (n integer primary key);
        insert into n
        with recursive n (n) as (values (1) union all select n + 1 from n where n < {size})
        select n from n;
        insert into ledger
            (event_id, destination_id, tenant_id, state, created_at, claimed_at, started_at, folded)
        select '{EVENT}', '{ID}', '{TENANT}', 'succeeded', 0, {now} - 10000000 * n,
            {now} - 10000000 * n, 1 from n;
        insert into sqlite_sequence (name, seq) values ('deliveries', {size});
        insert into deliveries (event_id, destination_id, tenant_id, due_at, created_at, urgent)
        select '{EVENT}', '{ID}', '{TENANT}', null, {now} - n, 0 from n
        union all select '{EVENT}', '{ID}', '{TENANT}', {now} - n, 0, 0 from n
        union all select '{EVENT}', '{ID}', '{TENANT}', {now} + n, 0, 0 from n
        union all select '{EVENT}', '{ID}', '{TENANT}', {now} - n, {now} - n, 1 from n;"
    );
    connection.execute_batch(&insert).unwrap();
    connection
}

fn steps(connection: &Connection, statements: &[&str]) -> i32 {
    let steps = |sql: &&str| {
        let statement = connection.prepare_cached(sql).unwrap();
        statement.get_status(StatementStatus::VmStep)
    };
    statements.iter().map(steps).sum()
}

const CUT: &str = "update destinations set limit_per_second = 1";

/// The steps of one run, of a claim of its permits, of one page of a sweep, of a
/// change of limits that revokes, of a look of the watch, and of a page of a
/// survey.
fn cost(size: u32) -> [i32; 6] {
    let mut connection = with_rows(size);
    let tx = connection.transaction().unwrap();
    let run = Run {
        destination: DestinationId(ID),
        republish: false,
    };
    let admitted = admit::admit_runs(&tx, NOW, &[run], &domain::share::Room::of(1_000)).unwrap();
    let RunResult::Decided { permits, .. } = &admitted.results[0] else {
        panic!("expected a decision, got {:?}", admitted.results)
    };
    // max_in_flight: 50.
    assert_eq!(permits.len(), 50);
    let worker = WorkerId(ID);
    let heartbeat = Heartbeat { worker, places: 50 };
    fleet::heartbeat(&tx, NOW, &heartbeat).unwrap();
    let by = claim::Claimer {
        now: NOW,
        waited_for: Duration::ZERO,
        head_start: Duration::ZERO,
        worker,
    };
    // Half of them: the cut has something to revoke.
    let claims = claim::claim_starts(&tx, &by, &permits[..25]).unwrap();
    let started = |answer: &ClaimAnswer| matches!(answer, ClaimAnswer::Started(_));
    assert!(claims.answers.iter().all(started), "{:?}", claims.answers);
    fleet::fleet(&tx, NOW).unwrap();
    let page = Sweep {
        after: None,
        limit: 100,
        overdue: std::time::Duration::ZERO,
        everything: false,
        only_marks: false,
    };
    assert_eq!(sweep::sweep(&tx, NOW, &page).unwrap().marks, []);
    let rules = WatchRules {
        patience: std::time::Duration::ZERO,
        ..WatchRules::default()
    };
    let watched = watch::step(&tx, NOW, &rules).unwrap();
    assert_eq!((watched.looked, watched.news.len()), (1, 1));
    let far = SurveyRules { page: 10, far: 300 };
    let page = survey::backlogs(&tx, NOW, None, &far).unwrap();
    assert_eq!(page.backlogs[0].waiting(), 600);
    let admission = [
        &admit::MEASURED[..],
        &usage::MEASURED[..],
        &limit_group::MEASURED[..],
    ]
    .concat();
    rows::execute(&tx, CUT, []).unwrap();
    [
        &admission[..],
        &claim::MEASURED,
        &sweep::MEASURED,
        &[CUT],
        &watch::MEASURED,
        &survey::MEASURED,
    ]
    .map(|statements| steps(&tx, statements))
}

/// How often a run's statements were prepared anew, in three runs.
fn prepared_anew(connection: &mut Connection) -> i32 {
    let run = Run {
        destination: DestinationId(ID),
        republish: false,
    };
    for _ in 0..3 {
        let tx = connection.transaction().unwrap();
        admit::admit_runs(&tx, NOW, &[run], &domain::share::Room::of(1)).unwrap();
        tx.commit().unwrap();
    }
    let times = |sql: &&str| {
        let statement = connection.prepare_cached(sql).unwrap();
        statement.get_status(StatementStatus::RePrepare)
    };
    admit::MEASURED.iter().map(times).sum()
}

/// How often a run asks for each kind of what is no first attempt, after a change of the rows.
fn asks_for_others(change: &str) -> [i32; 3] {
    let mut connection = with_rows(10);
    connection.execute_batch(change).unwrap();
    let tx = connection.transaction().unwrap();
    let run = Run {
        destination: DestinationId(ID),
        republish: false,
    };
    admit::admit_runs(&tx, NOW, &[run], &domain::share::Room::of(1)).unwrap();
    admit::OF_OTHERS.map(|sql| {
        let statement = tx.prepare_cached(sql).unwrap();
        statement.get_status(StatementStatus::Run)
    })
}

#[test]
fn where_only_first_attempts_wait_one_look_says_so() {
    assert_eq!(asks_for_others(""), [1; 3]);
    let none = "delete from deliveries where due_at is not null";
    assert_eq!(asks_for_others(none), [0; 3]);
}

/// SQLite plans by the value that is bound to a `limit`, and so plans each time.
#[test]
fn a_statement_is_planned_once_whatever_is_bound() {
    let mut connection = with_rows(1_000);
    assert_eq!(prepared_anew(&mut connection), 0);
    let by_value = DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG;
    connection.set_db_config(by_value, false).unwrap();
    let anew = prepared_anew(&mut connection);
    assert!(
        anew > 0,
        "SQLite no longer does: `prepare` need not prevent it"
    );
}

#[test]
fn a_run_costs_the_same_whatever_waits() {
    let small = cost(1_000);
    let large = cost(70_000);
    assert!(
        small.iter().all(|steps| *steps > 20),
        "nothing was measured: {small:?}"
    );
    assert_eq!(
        small, large,
        "steps of a run, of a claim, of a sweep, of a cut, of a look, of a survey"
    );
}

/// What SQLite makes for a statement and drops again: with a list of three or more in a
/// check, or rows that come of a query where there are triggers, that is a table of its
/// own for each row, and half of what the row costs. To sort is as dear.
#[test]
fn nothing_that_a_delivery_takes_makes_a_table() {
    let (connection, insert_one) = (with_rows(10), ingest::insert_one());
    let statements = [
        &ingest::MEASURED[..],
        &admit::MEASURED,
        &[admit::REMEMBER],
        &claim::MEASURED,
        &record::MEASURED,
        &[insert_one.as_str(), over::GONE],
        &over::ended(),
    ]
    .concat();
    let tables = |sql: &str| {
        let mut statement = connection.prepare(&format!("explain {sql}")).unwrap();
        let mut rows = statement.raw_query();
        let mut tables = 0;
        while let Some(row) = rows.next().unwrap() {
            let opcode: String = row.get("opcode").unwrap();
            tables += u32::from(matches!(&opcode[..], "OpenEphemeral" | "SorterOpen"));
        }
        tables
    };
    for sql in statements {
        assert_eq!(tables(sql), 0, "{sql}");
    }
    let list = "insert into replays (id) select id from events where id in ('a', 'b', 'c')";
    assert!(tables(list) > 0, "such a one is seen");
}

/// How often what has started is read before its end is written, where one request has
/// succeeded; `standing` says how its destination and its row are.
fn reads_of_a_success(standing: &str) -> i32 {
    let mut connection = with_rows(10);
    let started = format!(
        "insert into deliveries (id, event_id, destination_id, tenant_id, created_at, state,
            permit, epoch, not_before, deadline, worker_id, claimed_at, started_at)
        values (1000, '{EVENT}', '{ID}', '{TENANT}', 0, 'started', 7, 0, 0, 0, '{ID}', 0, 0);
        {standing}"
    );
    connection.execute_batch(&started).unwrap();
    let tx = connection.transaction().unwrap();
    let succeeded = Outcome {
        kind: OutcomeKind::Succeeded,
        ..no_event(AttemptId(1_000), PermitNumber(7), DestinationId(ID))
    };
    record::record_outcomes(&tx, NOW, WorkerId(ID), &[succeeded]).unwrap();
    let ended = "select state from ledger where id = 1000";
    let state = rows::first(&tx, ended, [], |row| Ok(row.get::<_, String>(0)?)).unwrap();
    assert_eq!(state.as_deref(), Some("succeeded"), "{standing}");
    let read = tx.prepare_cached(record::MEASURED[0]).unwrap();
    read.get_status(StatementStatus::Run)
}

#[test]
fn a_success_is_read_first_only_where_something_may_follow() {
    assert_eq!(reads_of_a_success(""), 0);
    let remembered = format!("insert into health (destination_id) values ('{ID}')");
    let smart = format!("insert into smart_limits (destination_id, begun_at) values ('{ID}', 0)");
    for standing in [
        "update deliveries set coarse = 1 where id = 1000",
        "update deliveries set crowded = 1 where id = 1000",
        remembered.as_str(),
        smart.as_str(),
    ] {
        assert_eq!(reads_of_a_success(standing), 1, "{standing}");
    }
}

/// The steps that a reap takes for the deleted, when it has been through with so
/// many of them.
fn cost_of_the_deleted(count: u32) -> i32 {
    let mut connection = Connection::open_in_memory().unwrap();
    migrate::migrate(&mut connection).unwrap();
    Lines::follow(&connection).unwrap();
    connection.set_prepared_statement_cache_capacity(128);
    let insert = format!(
        "insert into destinations (id, tenant_id, url, deleted_at)
        with recursive n (n) as (values (1) union all select n + 1 from n where n < {count})
        select printf('%08x-0000-7000-8000-000000000000', n), '{TENANT}', 'https://x.example/', n
        from n"
    );
    connection.execute_batch(&insert).unwrap();
    let tx = connection.transaction().unwrap();
    let rules = ReapRules {
        heartbeat_timeout: std::time::Duration::from_secs(5),
        start_timeout: std::time::Duration::from_secs(40),
        permit_grace: std::time::Duration::ZERO,
        everything: true,
    };
    let more = || {
        let bound = reap::Bound::new(1_000, NOW, Arc::new(|| NOW));
        let step = |part| reap::step(&tx, NOW, part, &rules, &bound).unwrap();
        reap::Part::ALL.map(step).iter().any(|done| done.more)
    };
    while more() {}
    let before = steps(&tx, &reap::OF_THE_DELETED);
    assert!(before > 20, "nothing was measured: {before}");
    assert!(!more());
    steps(&tx, &reap::OF_THE_DELETED) - before
}

#[test]
fn a_reap_costs_the_same_whatever_was_deleted() {
    assert_eq!(cost_of_the_deleted(10), cost_of_the_deleted(2_000));
}

/// The steps of a page of ten, some way into what waits.
fn cost_of_a_page(size: u32) -> i32 {
    let mut connection = with_rows(size);
    let tx = connection.transaction().unwrap();
    let span = ledger::Span {
        destination: DestinationId(ID),
        since: Timestamp::from_micros(0),
        until: Timestamp::MAX,
        after: Some(LedgerPosition {
            started_at: None,
            attempt: AttemptId(i64::from(size) + 10),
        }),
        limit: 10,
    };
    assert_eq!(ledger::ledger(&tx, &span).unwrap().len(), 10);
    steps(&tx, &ledger::OF_WHAT_WAITS)
}

#[test]
fn a_page_of_what_waits_costs_the_same_whatever_waits() {
    assert_eq!(cost_of_a_page(1_000), cost_of_a_page(20_000));
}

/// The steps of a look for a tenant's attempts of a kind, and of a destination's newest.
fn cost_of_a_search(size: u32) -> i32 {
    let mut connection = with_rows(size);
    let tx = connection.transaction().unwrap();
    let filter = AttemptFilter {
        state: Some(AttemptState::Succeeded),
        ..AttemptFilter::default()
    };
    let tenant = engine::ports::DEFAULT_TENANT;
    found_attempts::page(&tx, NOW, tenant, (&filter, None), 10).unwrap();
    let of = DestinationId(ID);
    let newest = ledger::attempts(&tx, tenant, of, None, 10).unwrap();
    assert_eq!(newest.len(), 10);
    let statements = [found_attempts::examined(), ledger::newest_of_destination()];
    steps(&tx, &statements.each_ref().map(String::as_str))
}

#[test]
fn a_search_costs_the_same_whatever_is_kept() {
    let small = cost_of_a_search(12_000);
    assert!(small > 20, "nothing was measured: {small}");
    assert_eq!(small, cost_of_a_search(30_000));
}

/// The steps of a look at where one destination's attempts are, and another tenant's, beside so
/// many destinations; and of pages of ten of so many requests, of the tenant and of all.
fn cost_of_lists(count: u32) -> i32 {
    let mut connection = with_rows(10);
    let numbers = format!(
        "with recursive n (n) as (values (1) union all select n + 1 from n where n < {count})"
    );
    let insert = format!(
        "insert into destinations (id, tenant_id, url)
        {numbers}
        select printf('%08x-0000-7000-8000-000000000000', n), '{TENANT}', 'https://x.example/'
        from n;
        insert into limit_requests
            (id, tenant_id, destination_id, batch_events, note, state, created_at, decided_at)
        {numbers}
        select printf('%08x-0000-7000-8000-000000000001', n), '{TENANT}', '{ID}', 2, '',
            'declined', n, n
        from n"
    );
    connection.execute_batch(&insert).unwrap();
    let tx = connection.transaction().unwrap();
    let tenant = engine::ports::DEFAULT_TENANT;
    let filter = AttemptFilter {
        destination: Some(DestinationId(ID)),
        ..AttemptFilter::default()
    };
    let found = found_attempts::page(&tx, NOW, tenant, (&filter, None), 10).unwrap();
    assert_eq!(found.attempts.len(), 10);
    let nobody = TenantId(Uuid::from_u128(2));
    let all = AttemptFilter::default();
    found_attempts::page(&tx, NOW, nobody, (&all, None), 10).unwrap();
    for of in [None, Some(tenant)] {
        let listed = limit_requests::list(&tx, of, None, 10).unwrap();
        assert_eq!(listed.len(), 10);
        let on = listed.last().map(LimitRequest::position);
        assert_eq!(limit_requests::list(&tx, of, on, 10).unwrap().len(), 10);
    }
    assert_eq!(
        limit_requests::list(&tx, Some(nobody), None, 10).unwrap(),
        []
    );
    let statements = [
        found_attempts::PLACE,
        found_attempts::PLACES,
        limit_requests::REQUESTS,
        limit_requests::REQUESTS_OF_TENANT,
    ];
    steps(&tx, &statements)
}

#[test]
fn a_list_costs_the_same_whatever_is_beside_it() {
    let few = cost_of_lists(20);
    assert!(few > 20, "nothing was measured: {few}");
    assert_eq!(few, cost_of_lists(2_000));
}
