//! How soon a limit that a user changes by SQL is in force.

use std::time::Duration;

use adapters::shell;
use anyhow::Context as _;
use domain::ids::DestinationId;
use server::trial::{Distributed, Plan, per_second};
use tokio::time::Instant;

use super::figure::Figure;
use super::stage::{Context, until};

/// Before and after a raise; a cut is the other way round.
const LIMITS: (u32, u32) = (1, 50);

/// A raise is in force when more arrived since the commit than the old limit
/// allows in a second. A cut is in force from its commit on: no start after
/// that may be too early by the new limit, in the ledger.
pub(super) async fn measure(context: &Context) -> anyhow::Result<Vec<Figure>> {
    let plan = |name: &str, limit| Plan::flooded(name, per_second(limit), LIMITS.1, 30);
    let plans = vec![plan("raised", LIMITS.0), plan("cut", LIMITS.1)];
    context
        .staged((2, 2), plans, async |stage| {
            stage.trial.flood(&stage.ingest).await.context("flood")?;
            // In mid-second, by whatever each has started.
            tokio::time::sleep(Duration::from_millis(5_400)).await;
            let raised = raise(stage).await?;
            let cut = stage.trial.placed[1].id;
            set_limit(stage, cut, LIMITS.0).await?;
            tokio::time::sleep(Duration::from_secs(4)).await;
            let verdict = stage.trial.judge(stage.trial.now().await?).await?;
            let early = verdict.destinations[1].early_starts;
            let in_force = Figure::at_most(
                "a raise by SQL in force after",
                raised.as_secs_f64(),
                1.0,
                "s",
            );
            let kept = Figure::at_most(
                "starts beyond a limit after its cut by SQL",
                early as f64,
                0.0,
                "starts",
            );
            Ok(vec![in_force, kept])
        })
        .await
}

async fn raise(stage: &Distributed) -> anyhow::Result<Duration> {
    let id = stage.trial.placed[0].id;
    let arrivals = || {
        let record = stage.trial.receiver.record();
        let ours = record.arrivals.iter().filter(|one| one.destination == 0);
        ours.count()
    };
    set_limit(stage, id, LIMITS.1).await?;
    let committed = Instant::now();
    let before = arrivals();
    // One may be the old limit's, and one its next: the third is not.
    let more = async || Ok(arrivals() >= before + 3);
    let at = until("the raise", Duration::from_secs(30), more).await?;
    Ok(at - committed)
}

async fn set_limit(stage: &Distributed, id: DestinationId, per_second: u32) -> anyhow::Result<()> {
    let sql = format!("update destinations set limit_per_second = {per_second} where id = '{id}'");
    Ok(shell::psql(&stage.shared.database_url, &sql).await?)
}
