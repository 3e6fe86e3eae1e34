//! Every SQL statement that the documents show is one that both schemas take.

use engine::ports::DEFAULT_TENANT;

use crate::DOCUMENTED as AUDIT;
use crate::ledger::Ledger;
use crate::place::Place;

const LIMITS: &str = include_str!("../../../../docs/limits.md");

/// What the documents start from: no limits of its own.
const CLEARED: &str = "limit_per_second = null, limit_per_minute = null, limit_per_hour = null,
    limit_per_day = null, unlimited = false, burst = null, shape = null, max_in_flight = null,
    state = 'active'";

#[tokio::test]
async fn every_statement_shown_runs_on_postgres() {
    run(&Place::postgres().await, "On SQLite:").await;
}

#[tokio::test]
async fn every_statement_shown_runs_on_sqlite() {
    run(&Place::sqlite().await, "On Postgres:").await;
}

async fn run(place: &Place, of_the_other: &str) {
    let ledger = Ledger::random(0, 1_000_000_000);
    place.write(&ledger).await;
    let id = ledger.destination.to_string();
    let tenant = DEFAULT_TENANT.to_string();
    let statements: Vec<String> = (shown(LIMITS, of_the_other).into_iter())
        .chain(shown(AUDIT, of_the_other))
        .collect();
    let updates = statements
        .iter()
        .filter(|one| one.contains("update "))
        .count();
    assert_eq!((updates, statements.len() - updates), (14, 3));
    for statement in statements {
        let of_a_tenant = statement.contains("into limit_groups");
        let named = if of_a_tenant { &tenant } else { &id };
        let statement = statement.replace("0192f3c4-…", &id).replace('…', named);
        if !statement.contains("update destinations") || statement.contains("limit_group") {
            place.sql(&statement).await;
            continue;
        }
        let cleared = format!("update destinations set {CLEARED} where id = '{id}'");
        place.sql(&cleared).await;
        // So that each has something to change.
        let other = match statement.contains("'active'") || statement.contains("unlimited = false")
        {
            true => "unlimited = true, state = 'paused'",
            false => "max_in_flight = null",
        };
        let other = format!("update destinations set {other} where id = '{id}'");
        place.sql(&other).await;
        let before = place.changes(&id).await;
        place.sql(&statement).await;
        assert_eq!(place.changes(&id).await, before + 1, "{statement}");
    }
}

/// The statements in fences, and the updates in the prose; without those that
/// are introduced as the other store's.
fn shown(text: &str, of_the_other: &str) -> Vec<String> {
    let mut statements = Vec::new();
    let mut before = "";
    for (number, part) in text.split("```").enumerate() {
        match part.strip_prefix("sql\n") {
            Some(block) if number % 2 == 1 && !before.trim_end().ends_with(of_the_other) => {
                let all = block.split(";\n").map(str::trim);
                statements.extend(all.filter(|one| !one.is_empty()).map(str::to_owned));
            }
            _ if number % 2 == 0 => {
                let code = part.split('`').skip(1).step_by(2);
                let updates = code.filter(|code| code.starts_with("update "));
                // `where …` is whatever you like.
                statements.extend(updates.map(|code| code.replace("where …", "where true")));
            }
            _ => {}
        }
        before = part;
    }
    statements
}
