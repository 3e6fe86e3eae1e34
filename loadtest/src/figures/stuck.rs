//! Whether faults leave a destination with work that nobody looks at.

use std::collections::HashSet;
use std::time::Duration;

use adapters::shell::{self, QueueCommand};
use anyhow::Context as _;
use domain::ids::DestinationId;
use domain::policy::LimitSettings;
use engine::ports::{Store, Sweep};
use server::trial::{Distributed, Plan};
use tokio::time::Instant;

use super::figure::Figure;
use super::stage::{Context, until};

/// Events for each destination: one that starts before the faults, one that is
/// due during them, and one that keeps it busy.
const EVENTS: u32 = 3;

/// When the first ones are due again.
const PERIOD: Duration = Duration::from_secs(60);

/// After the last fault.
const SETTLING: Duration = Duration::from_secs(5);

/// How long after its planned look a destination with due work counts as stuck.
const OVERDUE: Duration = Duration::from_secs(1);

/// Each may start one a minute. So each has its look planned, and all of them
/// become due in the same few seconds: then schedulers are killed, every job is
/// lost and the queue is emptied. Stuck is who has due work that nothing
/// limits, and whose planned look is overdue by more than a second, five
/// seconds after the last fault.
pub(super) async fn measure(context: &Context, destinations: u32) -> anyhow::Result<Figure> {
    let limits = LimitSettings {
        per_minute: Some(1),
        ..LimitSettings::default()
    };
    let plan = |number| Plan {
        events: EVENTS,
        ..Plan::flooded(&format!("1/min {number}"), limits, 0, 0)
    };
    let plans = (0..destinations).map(plan).collect();
    let stuck = (context)
        .staged((3, 3), plans, async |stage| {
            stage.trial.flood(&stage.ingest).await.context("flood")?;
            let first = stage.trial.receiver.started_at();
            let receiver = &stage.trial.receiver;
            let all = async || Ok(receiver.total() >= u64::from(destinations));
            until("all have started once", Duration::from_secs(300), all).await?;
            let record = stage.trial.receiver.record();
            let began = record.arrivals.first().context("nothing arrived")?;
            tokio::time::sleep_until(first + Duration::from_micros(began.at_us) + PERIOD).await;
            faults(stage).await?;
            tokio::time::sleep(SETTLING).await;
            stuck(stage).await
        })
        .await?;
    let name = format!("stuck destinations of {destinations}, 5 s after faults");
    Ok(Figure::at_most(name, stuck as f64, 0.0, "destinations"))
}

async fn faults(stage: &mut Distributed) -> anyhow::Result<()> {
    for round in 0..2_u32 {
        let began = Instant::now();
        stage.children.kill("scheduler").await?;
        stage.children.add("scheduler")?;
        tokio::time::sleep_until(began + Duration::from_millis(700)).await;
        stage.shared.lose_schedule().await?;
        tokio::time::sleep_until(began + Duration::from_millis(1_400)).await;
        let (url, name) = (&stage.shared.queue_url, &stage.shared.queue_name);
        shell::rabbitmq(url, name, QueueCommand::Purge).await?;
        if round == 0 {
            tokio::time::sleep_until(began + Duration::from_millis(2_100)).await;
        }
    }
    Ok(())
}

/// Those whose look is overdue although nothing limits them: their first start
/// has left the window, and the second has not arrived.
async fn stuck(stage: &Distributed) -> anyhow::Result<usize> {
    let parts = stage.shared.connect().await?;
    let overdue = overdue(parts.store.as_ref()).await?;
    let receiver = &stage.trial.receiver;
    let now = receiver.started_at().elapsed();
    let mut arrived = vec![(0_u32, Duration::MAX); stage.trial.placed.len()];
    for arrival in receiver.record().arrivals {
        let (count, first) = &mut arrived[arrival.destination as usize];
        *count += 1;
        *first = (*first).min(Duration::from_micros(arrival.at_us));
    }
    let is_limited =
        |(count, first): (u32, Duration)| count > 1 || first.saturating_add(PERIOD + OVERDUE) > now;
    let placed = stage.trial.placed.iter().zip(arrived);
    let stuck = placed.filter(|(one, arrived)| overdue.contains(&one.id) && !is_limited(*arrived));
    Ok(stuck.count())
}

/// Everybody with due work whose planned look is overdue.
async fn overdue(store: &dyn Store) -> anyhow::Result<HashSet<DestinationId>> {
    let mut sweep = Sweep {
        after: None,
        limit: 1_000,
        overdue: OVERDUE,
        everything: false,
        only_marks: false,
    };
    let mut overdue = HashSet::new();
    loop {
        let page = store.sweep(&sweep).await?;
        let due = page.wakes.iter().filter(|wake| wake.after.is_zero());
        overdue.extend(due.map(|wake| wake.destination));
        sweep.after = page.next;
        if sweep.after.is_none() {
            return Ok(overdue);
        }
    }
}
