//! A large backlog of others, by SQL: far more than could be sent in.

use std::time::Duration;

use adapters::shell;
use domain::policy::LimitSettings;
use engine::ports::DEFAULT_TENANT;
use server::trial::{Distributed, Plan, per_second};
use uuid::Uuid;

/// Destinations of each kind that the backlog is spread over.
const OF_EACH_KIND: u32 = 50;

/// Half of the destinations are paused by a limit of 0; the others may start
/// one an hour, so that they are looked at, and blocked.
pub(super) fn plans() -> Vec<Plan> {
    let one_an_hour = LimitSettings {
        per_hour: Some(1),
        ..LimitSettings::default()
    };
    (0..OF_EACH_KIND)
        .flat_map(|number| {
            let plan = |kind: &str, limits| Plan {
                events: 0,
                ..Plan::flooded(&format!("{kind} {number}"), limits, 0, 0)
            };
            [plan("paused", per_second(0)), plan("1/h", one_an_hour)]
        })
        .collect()
}

/// Inserts `rows` events with one waiting attempt each, spread over all
/// destinations but the first, and waits until the slow ones are blocked.
pub(super) async fn insert(stage: &Distributed, rows: u64) -> anyhow::Result<()> {
    let others: Vec<Uuid> = (stage.trial.placed[1..].iter())
        .map(|placed| placed.id.0)
        .collect();
    insert_at(&stage.shared.database_url, &others, rows).await?;
    // The sweep finds the slow ones, whose one start is over by then.
    tokio::time::sleep(Duration::from_secs(5)).await;
    Ok(())
}

/// Inserts as many, spread over these destinations of the first tenant.
pub(crate) async fn insert_at(url: &str, destinations: &[Uuid], rows: u64) -> anyhow::Result<()> {
    let each = rows.div_ceil(destinations.len() as u64);
    let tenant = DEFAULT_TENANT.0;
    for destination in destinations {
        let sql = format!(
            "with sent as (
                 insert into events (id, tenant_id, content_type, payload, created_at, day)
                 select n.id, '{tenant}', 'application/json', '{{}}', clock_timestamp(),
                     event_day(n.id)
                 from (select new_event_id() as id from generate_series(1, {each})) n
                 returning id
             )
             insert into attempts (event_id, destination_id, tenant_id)
             select id, '{destination}', '{tenant}' from sent"
        );
        shell::psql(url, &sql).await?;
    }
    // What autovacuum would have done by the time such a backlog has come in.
    shell::psql(url, "vacuum (analyze) attempts").await?;
    shell::psql(url, "vacuum (analyze) events").await?;
    Ok(())
}
