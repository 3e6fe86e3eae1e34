//! How long an event takes from the API's 2xx to the receiver.

use std::time::Duration;

use server::trial::{Distributed, Plan, per_second};
use tokio::time::Instant;

use super::figure::Figure;
use super::pending;
use super::stage::{Context, free_address, until};
use crate::api::{Api, Client};
use crate::process::percentile;

/// Requests before the measured ones: of a system that has run for a while.
const WARM_UP: u32 = 50;

/// How long one delivery may take before the measurement is given up.
const PATIENCE: Duration = Duration::from_secs(30);

/// Nothing else happens.
pub(super) async fn idle(context: &Context, requests: u32) -> anyhow::Result<Vec<Figure>> {
    let took = (context)
        .staged((1, 1), plans(requests), async |stage| {
            latencies(context, stage, requests).await
        })
        .await?;
    let name = |percent| format!("2xx to first byte, idle, p{percent}");
    Ok(vec![
        Figure::at_most(name(50), percentile(&took, 50), 2.5, "ms"),
        Figure::at_most(name(99), percentile(&took, 99), 10.0, "ms"),
    ])
}

/// So many attempts wait at other destinations.
pub(super) async fn pending(context: &Context, requests: u32, rows: u64) -> anyhow::Result<Figure> {
    let plans = plans(requests).into_iter().chain(pending::plans());
    let took = (context)
        .staged((1, 1), plans.collect(), async |stage| {
            pending::insert(stage, rows).await?;
            latencies(context, stage, requests).await
        })
        .await?;
    let name = format!("2xx to first byte, beside {rows} pending, p99");
    Ok(Figure::at_most(name, percentile(&took, 99), 50.0, "ms"))
}

fn plans(requests: u32) -> Vec<Plan> {
    // As many as the receiver should have room for; they come by the API.
    vec![Plan {
        events: requests + WARM_UP,
        ..Plan::flooded("1,000/s", per_second(1_000), 0, 0)
    }]
}

/// Sends events to the first destination, one at a time; milliseconds from the
/// answer to the request at the receiver, sorted.
async fn latencies(
    context: &Context,
    stage: &mut Distributed,
    requests: u32,
) -> anyhow::Result<Vec<f64>> {
    let program = context.program.clone();
    let api = Api::start("api", program, &stage.shared, &free_address()?)?;
    let mut client = Client::dial(&api.address).await?;
    let id = stage.trial.placed[0].id;
    let body = format!(r#"{{"destination_id":"{id}","payload":{{"order":1}}}}"#);
    let mut took = Vec::new();
    for number in 0..WARM_UP + requests {
        // About 20 a second, and never in step with anything that ticks.
        let pause = 37 + u64::from(number * 7 % 23);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        let before = arrivals(stage);
        client.send("POST", "/v1/events", &body).await?;
        let answered = Instant::now();
        let arrived = async || Ok(arrivals(stage) > before);
        until("it arrives", PATIENCE, arrived).await?;
        let first = arrived_at(stage, before)?;
        if number >= WARM_UP {
            // It may be there before the answer is.
            took.push(first.saturating_duration_since(answered).as_secs_f64() * 1_000.0);
        }
    }
    took.sort_unstable_by(f64::total_cmp);
    Ok(took)
}

/// How many have arrived at the first destination.
fn arrivals(stage: &Distributed) -> usize {
    let record = stage.trial.receiver.record();
    let ours = record.arrivals.iter().filter(|one| one.destination == 0);
    ours.count()
}

/// When the one after so many arrived there.
fn arrived_at(stage: &Distributed, before: usize) -> anyhow::Result<Instant> {
    let receiver = &stage.trial.receiver;
    let record = receiver.record();
    let mut ours = record.arrivals.iter().filter(|one| one.destination == 0);
    let arrival = ours
        .nth(before)
        .ok_or_else(|| anyhow::anyhow!("it did not arrive"))?;
    Ok(receiver.started_at() + Duration::from_micros(arrival.at_us))
}
