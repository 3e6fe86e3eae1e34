//! What is over is read as far as the policies of a run need it: whichever statement that
//! is, a destination's answer is the same.

use domain::ids::DestinationId;
use domain::limit::Count;
use domain::policy::LimitSettings;
use domain::share::Room;
use engine::ports::{DEFAULT_TENANT, Run, RunResult, Store, Survey};

use crate::database::{Database, measured, per_second};
use crate::plans::pages_of_ten_runs;
use crate::ratios::UNLIMITED;

/// In coarse buckets: whatever is read beside it is read by the longest statement.
const COARSE: LimitSettings = LimitSettings {
    per_minute: Some(6_000),
    ..LimitSettings::EXACT
};

/// Starts in an hour that are counted in buckets.
const COARSE_HOUR: u32 = 3_000;

/// Windows so long that nothing leaves one between two looks, with the starts that are
/// read of [`fill`]'s.
const KINDS: [(LimitSettings, usize); 4] = [
    (
        LimitSettings {
            per_hour: Some(0),
            ..LimitSettings::EXACT
        },
        0,
    ),
    (
        LimitSettings {
            per_hour: Some(5),
            ..LimitSettings::EXACT
        },
        5,
    ),
    (
        LimitSettings {
            per_hour: Some(20),
            per_day: Some(500),
            ..LimitSettings::EXACT
        },
        12,
    ),
    // As it is set where nobody sets it: with a margin.
    (
        LimitSettings {
            per_day: Some(100),
            safety_margin: None,
            ..LimitSettings::EXACT
        },
        12,
    ),
];

/// What the rows of a destination's attempts begin with.
fn own(destination: DestinationId) -> String {
    format!("gen_random_uuid(), '{destination}', '{DEFAULT_TENANT}'")
}

/// Twelve that are over, two of them carried and six in buckets.
async fn over(database: &Database, destination: DestinationId) {
    let own = own(destination);
    database
        .sql(&format!(
            "insert into attempts (
                event_id, destination_id, tenant_id, state, claimed_at, started_at, finished_at,
                folded, carried_by
            )
            select {own}, 'succeeded', at, at, at, g % 2 = 0, case when g % 6 = 0 then 1 end
            from generate_series(1, 12) g,
                lateral (select clock_timestamp() - g * interval '1 second' as at) t"
        ))
        .await;
}

/// Of everything that a run reads: what is over, two under way, two with permits, and some
/// in each lane that waits.
async fn fill(database: &Database, destination: DestinationId) {
    database.accept(destination, 3).await;
    over(database, destination).await;
    let own = own(destination);
    database
        .sql(&format!(
            "insert into attempts (
                event_id, destination_id, tenant_id, state, permit, claimed_at, started_at
            )
            select {own}, 'started', g, clock_timestamp(), clock_timestamp()
            from generate_series(1, 2) g;
            insert into attempts (
                event_id, destination_id, tenant_id, state, permit, epoch, not_before, deadline
            )
            select {own}, 'admitted', g, 0, clock_timestamp(),
                clock_timestamp() + interval '1 hour'
            from generate_series(3, 4) g;
            insert into attempts (event_id, destination_id, tenant_id, due_at, urgent)
            select {own}, clock_timestamp() + (g - 4) * interval '1 hour', g in (2, 4)
            from generate_series(1, 7) g"
        ))
        .await;
}

#[tokio::test]
async fn a_destination_reads_the_same_whatever_is_read_beside_it() {
    let database = Database::create().await;
    let coarse = database.destination(COARSE).await;
    fill(&database, coarse).await;
    for (limits, starts) in KINDS {
        let destination = database.destination(limits).await;
        fill(&database, destination).await;
        let survey = async |asked: &[DestinationId]| {
            let standings = database.store.survey_standings(asked).await;
            standings.unwrap().remove(0)
        };
        let alone = survey(&[destination]).await;
        let usage = &alone.usage;
        let read = (usage.starts.len(), usage.in_flight, usage.outstanding.len());
        assert_eq!(read, (starts, 2, 2), "{limits:?}");
        assert!(alone.backlog.due > 0 && alone.backlog.urgent > 0);
        assert!(alone.backlog.next_due.is_some());
        assert_eq!(alone, survey(&[destination, coarse]).await, "{limits:?}");
    }
}

/// How many permits each of these gets in one run of all.
async fn admitted(database: &Database, destinations: &[DestinationId]) -> Vec<usize> {
    let run = |destination: &DestinationId| Run {
        destination: *destination,
        republish: false,
    };
    let runs: Vec<Run> = destinations.iter().map(run).collect();
    let admitted = database.store.admit(&runs, &Room::of(u32::MAX)).await;
    let permits = |result: &RunResult| match result {
        RunResult::Decided { permits, .. } => permits.len(),
        RunResult::Skipped | RunResult::Gone => 0,
    };
    admitted.unwrap().results.iter().map(permits).collect()
}

/// Where no window counts, nothing that is over is read; the first run after a change asks
/// for the last claim, and is passed by here.
#[tokio::test]
async fn a_run_admits_the_same_whatever_is_admitted_beside_it() {
    let database = Database::create().await;
    let coarse = database.destination(COARSE).await;
    for (limits, expected) in [(UNLIMITED, 7), (KINDS[2].0, 6)] {
        for beside in [Vec::new(), vec![coarse]] {
            let destination = database.destination(limits).await;
            assert_eq!(admitted(&database, &[destination]).await, [0]);
            fill(&database, destination).await;
            let all = [vec![destination], beside].concat();
            assert_eq!(admitted(&database, &all).await[0], expected, "{limits:?}");
        }
    }
}

/// Each has more room, by what it owes alone, than the nothing that its past leaves it.
#[tokio::test]
async fn a_limit_that_is_used_up_stays_so_beside_one_that_reads_nothing() {
    let database = Database::create().await;
    let windowed = KINDS[1].0;
    let answers = LimitSettings {
        per_hour: Some(8),
        count: Some(Count::Response),
        ..LimitSettings::EXACT
    };
    let coarse = LimitSettings {
        per_hour: Some(COARSE_HOUR),
        ..LimitSettings::EXACT
    };
    for limits in [windowed, answers, coarse] {
        let unlimited = database.destination(UNLIMITED).await;
        let limited = database.destination(limits).await;
        let both = [unlimited, limited];
        assert_eq!(admitted(&database, &both).await, [0, 0]);
        for destination in both {
            fill(&database, destination).await;
        }
        database
            .sql(&format!(
                "insert into start_buckets (destination_id, period, ends_at, shard, starts)
                values ('{limited}', 'hour', clock_timestamp(), 0, {COARSE_HOUR})"
            ))
            .await;
        assert_eq!(admitted(&database, &both).await, [7, 0], "{limits:?}");
    }
}

/// Each list of the ledger is a walk of each day that is open, and a lock of its indexes.
#[tokio::test]
async fn a_run_touches_the_less_the_less_of_what_is_over_it_needs() {
    let database = Database::create().await;
    let answers = LimitSettings {
        count: Some(Count::Response),
        ..per_second(100)
    };
    let mut destinations = Vec::new();
    for limits in [UNLIMITED, per_second(100), answers] {
        let destination = database.destination(limits).await;
        // The first run asks for more.
        database.permits(destination).await;
        over(&database, destination).await;
        destinations.push(destination);
    }
    let measure = async || {
        let mut pages = Vec::new();
        for destination in &destinations {
            pages.push(pages_of_ten_runs(&database, *destination).await);
        }
        pages
    };
    let what = "pages of runs without windows, with plain ones, and where answers count";
    measured(what, measure, |pages| {
        pages[0] > 50 && pages[0] < pages[1] && pages[1] < pages[2]
    })
    .await;
}
