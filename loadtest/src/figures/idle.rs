//! What a system costs that has nothing to do.

use std::time::Duration;

use anyhow::Context as _;
use server::trial::{Plan, per_second};
use tokio::time::Instant;

use super::figure::Figure;
use super::stage::{Context, free_address};
use crate::api::{Api, Client};
use crate::process::cpu_seconds;

/// After the start, before it is measured.
const SETTLING: Duration = Duration::from_secs(5);

/// How long it is measured.
const MEASURED: Duration = Duration::from_secs(30);

/// Of one scheduler, one worker and one API process, each.
pub(super) async fn measure(context: &Context) -> anyhow::Result<Vec<Figure>> {
    let plan = Plan {
        events: 0,
        ..Plan::flooded("idle", per_second(1), 0, 0)
    };
    context
        .staged((1, 1), vec![plan], async |stage| {
            let program = context.program.clone();
            let api = Api::start("api", program, &stage.shared, &free_address()?)?;
            drop(Client::dial(&api.address).await?);
            tokio::time::sleep(SETTLING).await;
            let mut processes = vec![("api", api.child.id().context("the API ended")?)];
            for child in &stage.children.all {
                processes.push((child.role, child.id().context("a process ended")?));
            }
            let began = Instant::now();
            let used = |(_, process): &(_, u32)| cpu_seconds(*process);
            let before: Vec<f64> = processes.iter().map(used).collect::<Result<_, _>>()?;
            tokio::time::sleep(MEASURED).await;
            let after: Vec<f64> = processes.iter().map(used).collect::<Result<_, _>>()?;
            let length = began.elapsed().as_secs_f64();
            let percent = |(before, after): (&f64, &f64)| (after - before) * 100.0 / length;
            let percents = before.iter().zip(&after).map(percent);
            let figure = |((role, _), percent): (&(&str, u32), f64)| {
                Figure::at_most(format!("idle {role}"), percent, 1.0, "% of a core")
            };
            Ok(processes.iter().zip(percents).map(figure).collect())
        })
        .await
}
