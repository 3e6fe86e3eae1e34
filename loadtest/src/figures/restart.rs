//! How soon deliveries go on after a server was killed and is back.

use std::time::Duration;

use adapters::shell;
use anyhow::Context as _;
use server::trial::{Distributed, Plan, per_second};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::figure::Figure;
use super::stage::{Context, until};
use crate::servers::PrivateServers;

/// How long a server stays away: longer than what is in hand lasts.
const AWAY: Duration = Duration::from_secs(4);

/// How long its return, and the first delivery after that, may take.
const PATIENCE: Duration = Duration::from_secs(180);

/// Each server in turn: `kill -9`, a few seconds, start. Timed from the first
/// connection that it accepts to the first request at a receiver.
pub(super) async fn measure(context: &Context) -> anyhow::Result<Vec<Figure>> {
    let private = PrivateServers::start().await?;
    let measured = with_servers(context, &private).await;
    private.remove().await?;
    measured
}

async fn with_servers(context: &Context, private: &PrivateServers) -> anyhow::Result<Vec<Figure>> {
    let own = Context {
        servers: private.servers()?,
        program: context.program.clone(),
    };
    let plan = Plan::flooded("20/s", per_second(20), 20, 300);
    own.staged((2, 2), vec![plan], async |stage| {
        stage.trial.flood(&stage.ingest).await.context("flood")?;
        let mut figures = Vec::new();
        for name in ["postgres", "redis", "rabbitmq"] {
            tokio::time::sleep(Duration::from_secs(3)).await;
            let took = restart(stage, private, name).await?;
            let name = format!("first delivery after kill -9 and restart of {name}");
            figures.push(Figure::at_most(name, took.as_secs_f64(), 5.0, "s"));
        }
        Ok(figures)
    })
    .await
}

async fn restart(
    stage: &Distributed,
    private: &PrivateServers,
    name: &str,
) -> anyhow::Result<Duration> {
    private.kill(name).await?;
    tokio::time::sleep(AWAY).await;
    let back = async {
        let accepts = async || Ok(accepts(private, name).await?);
        until("the server accepts connections", PATIENCE, accepts).await
    };
    let (started, back) = tokio::join!(private.start_again(name), back);
    started?;
    let back = back?;
    let next = async || Ok(arrived_after(stage, back).is_some());
    until("a delivery", PATIENCE, next).await?;
    let at = arrived_after(stage, back).context("it did not arrive")?;
    Ok(at - back)
}

/// Postgres accepts when it lets somebody in; the others when they listen.
async fn accepts(private: &PrivateServers, name: &str) -> anyhow::Result<bool> {
    if name == "postgres" {
        return Ok(shell::psql(&private.url(name)?, "select 1").await.is_ok());
    }
    Ok(TcpStream::connect(private.address(name)?).await.is_ok())
}

/// The first arrival since.
fn arrived_after(stage: &Distributed, since: Instant) -> Option<Instant> {
    let receiver = &stage.trial.receiver;
    let at = |at_us| receiver.started_at() + Duration::from_micros(at_us);
    let record = receiver.record();
    let mut times = record.arrivals.iter().map(|one| at(one.at_us));
    times.find(|at| *at > since)
}
