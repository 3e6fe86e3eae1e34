//! A receiver that takes less than its limit says.

use std::time::Duration;

use anyhow::Context as _;
use server::trial::{Plan, per_second};
use tokio::time::{Instant, sleep_until};

use super::figure::Figure;
use super::stage::{Context, until};

/// What the receiver takes in a second; it answers 429 to the rest, without
/// saying for how long.
const TAKES: u32 = 100;

/// What it is said to take.
const LIMIT: u32 = 1_000;

/// What is handed in: half a minute's worth.
const EVENTS: u32 = 3_000;

/// When it is looked at first.
const FIRST_LOOK: Duration = Duration::from_secs(30);

/// How long until all of it is given up.
const PATIENCE: Duration = Duration::from_secs(240);

/// All at once. What was delivered after as long as a perfect sender takes, and
/// how long it took until all was; counted by the receiver.
pub(super) async fn measure(context: &Context) -> anyhow::Result<Vec<Figure>> {
    let plan = Plan {
        events: EVENTS,
        ..Plan::flooded("busy", per_second(LIMIT), 0, 0).taking_at_most(TAKES)
    };
    let (share, took, requests) = (context)
        .staged((1, 1), vec![plan], async |stage| {
            stage.trial.flood(&stage.ingest).await.context("flood")?;
            let receiver = &stage.trial.receiver;
            let first = async || Ok(receiver.total() > 0);
            let began: Instant = until("the first arrives", PATIENCE, first).await?;
            sleep_until(began + FIRST_LOOK).await;
            let share = receiver.taken() as f64 / f64::from(EVENTS) * 100.0;
            let all = async || Ok(receiver.taken() >= u64::from(EVENTS));
            let ended = until("all are delivered", PATIENCE, all).await?;
            let took = ended.duration_since(began).as_secs_f64();
            Ok((share, took, receiver.total()))
        })
        .await?;
    let name = format!("{EVENTS} events, limit {LIMIT}/s, receiver takes {TAKES}/s");
    let per_event = requests as f64 / f64::from(EVENTS);
    Ok(vec![
        Figure::at_least(format!("{name}: delivered after 30 s"), share, 75.0, "%"),
        Figure::at_most(format!("{name}: all delivered"), took, 60.0, "s"),
        Figure::at_most(format!("{name}: requests per event"), per_event, 4.0, ""),
    ])
}
