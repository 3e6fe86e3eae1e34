//! How soon work is started when the schedule has lost every job.

use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use domain::event::{Audience, NewEvent, Timing};
use domain::ids::EventId;
use engine::ports::DEFAULT_TENANT;
use server::edge::Mint;
use server::trial::{Plan, per_second};
use tokio::time::Instant;

use super::figure::Figure;
use super::stage::{Context, until};

/// Destinations with work.
const DESTINATIONS: u32 = 20;

/// How often the schedule is lost.
const ROUNDS: u32 = 5;

/// The slowest of all destinations in all rounds. Each round's work is written
/// to the store alone, as by an API process that was killed before it could
/// wake anybody; then every job is lost. So nothing but the store knows of it,
/// and no permit from before is counted.
pub(super) async fn measure(context: &Context) -> anyhow::Result<Figure> {
    let plan = |number| Plan {
        events: ROUNDS,
        ..Plan::flooded(&format!("10/s {number}"), per_second(10), 0, 0)
    };
    let plans = (0..DESTINATIONS).map(plan).collect();
    let slowest = (context)
        .staged((2, 2), plans, async |stage| {
            let parts = stage.shared.connect().await?;
            let mint = Mint::from_system()?;
            let mut slowest = Duration::ZERO;
            for round in 1..=ROUNDS {
                tokio::time::sleep(Duration::from_secs(2)).await;
                let events: Vec<NewEvent> = (stage.trial.placed.iter())
                    .map(|placed| NewEvent {
                        id: EventId(mint.uuid()),
                        tenant: DEFAULT_TENANT,
                        audience: Audience::Destination(placed.id),
                        event_type: None,
                        content_type: "application/json".to_owned(),
                        payload: Bytes::from_static(b"{}"),
                        idempotency: None,
                        trace: None,
                        timing: Timing::default(),
                    })
                    .collect();
                parts.store.accept_events(&events).await?;
                stage.shared.lose_schedule().await?;
                let lost_at = Instant::now();
                let all = u64::from(round * DESTINATIONS);
                let receiver = &stage.trial.receiver;
                let there = async || Ok(receiver.total() >= all);
                let at = until("a start", Duration::from_secs(60), there).await;
                slowest = slowest.max(at.context("after FLUSHALL")? - lost_at);
            }
            Ok(slowest)
        })
        .await?;
    let name = "first start of each of 20 after FLUSHALL, slowest of 5 rounds";
    Ok(Figure::at_most(name, slowest.as_secs_f64(), 2.0, "s"))
}
