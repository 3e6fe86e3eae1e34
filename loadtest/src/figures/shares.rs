//! How much of their limits destinations with backlog get.

use std::time::Duration;

use anyhow::Context as _;
use domain::compliance::ideal_starts;
use domain::policy::LimitSettings;
use domain::time::Timestamp;
use rustix::process::Signal;
use server::trial::{Children, Distributed, Plan, TrialVerdict, per_second};
use tokio::time::Instant;

use super::figure::Figure;
use super::stage::Context;

/// Schedulers and workers.
const ROLES: (usize, usize) = (2, 5);

/// One of the five workers is stopped so long, so often: each is for one part
/// in a hundred of the time.
const STALL: Duration = Duration::from_millis(500);
const STALL_EVERY: Duration = Duration::from_secs(10);

/// Instants of the last period at which a share is taken.
const INSTANTS: u32 = 32;

/// Destinations with the same limit, and the least share that they must get.
struct Group {
    name: &'static str,
    limits: LimitSettings,
    per_second: u32,
    destinations: u32,
    least_percent: f64,
}

impl Group {
    const fn period(&self) -> Duration {
        match self.limits.per_minute {
            Some(_) => Duration::from_secs(60),
            None => Duration::from_secs(1),
        }
    }
}

fn groups() -> [Group; 5] {
    let group = |name, limit, destinations, least_percent| Group {
        name,
        limits: per_second(limit),
        per_second: limit,
        destinations,
        least_percent,
    };
    let per_minute = LimitSettings {
        per_minute: Some(100),
        ..LimitSettings::default()
    };
    [
        group("1/s", 1, 10, 99.0),
        group("10/s", 10, 5, 99.5),
        group("100/s", 100, 2, 99.5),
        group("1,000/s", 1_000, 1, 99.5),
        Group {
            limits: per_minute,
            ..group("100/min", 4, 4, 99.9)
        },
    ]
}

/// With nothing in the way.
pub(super) async fn undisturbed(context: &Context, seconds: u32) -> anyhow::Result<Vec<Figure>> {
    let groups = groups();
    let length = Duration::from_secs(seconds.into());
    context
        .staged(ROLES, plans(&groups, seconds), async |stage| {
            let flooded = flood(stage).await?;
            tokio::time::sleep_until(flooded + length).await;
            figures(stage, &groups, |group, share| {
                let name = format!("share of {} over {seconds} s", group.name);
                Figure::at_least(name, share, group.least_percent, "%")
            })
            .await
        })
        .await
}

/// While one worker in five is frozen one part in twenty of the time.
pub(super) async fn stalled(context: &Context, seconds: u32) -> anyhow::Result<Vec<Figure>> {
    let groups = groups();
    let length = Duration::from_secs(seconds.into());
    context
        .staged(ROLES, plans(&groups, seconds), async |stage| {
            let flooded = flood(stage).await?;
            stall(&stage.children, flooded + length).await?;
            figures(stage, &groups, |group, share| {
                let name = format!("share of {} with 1 % stalled workers", group.name);
                Figure::at_least(name, share, 97.0, "%")
            })
            .await
        })
        .await
}

fn plans(groups: &[Group], seconds: u32) -> Vec<Plan> {
    let mut plans = Vec::new();
    for group in groups {
        for number in 0..group.destinations {
            let name = format!("{} {number}", group.name);
            let plan = Plan::flooded(&name, group.limits, group.per_second, seconds);
            plans.push(plan.and_a_burst_of(group.limits.per_minute.unwrap_or(0)));
        }
    }
    plans
}

async fn flood(stage: &mut Distributed) -> anyhow::Result<Instant> {
    stage.trial.flood(&stage.ingest).await.context("flood")?;
    Ok(Instant::now())
}

/// Stops one worker after the other, until `end`.
async fn stall(children: &Children, end: Instant) -> anyhow::Result<()> {
    let workers = children.all.iter().filter(|child| child.role == "worker");
    let mut next = Instant::now() + STALL_EVERY / 2;
    for worker in workers.cycle() {
        if next + STALL >= end {
            break;
        }
        tokio::time::sleep_until(next).await;
        worker.signal(Signal::STOP)?;
        tokio::time::sleep(STALL).await;
        worker.signal(Signal::CONT)?;
        next += STALL_EVERY;
    }
    tokio::time::sleep_until(end).await;
    Ok(())
}

/// All starts of a group in per cent of those of a perfect sender, without
/// latency and without any allowance: on average over the instants of the last
/// period. At one instant alone, a burst that is late would count whole or not
/// at all.
async fn share(stage: &Distributed, group: &Group, end: Timestamp) -> anyhow::Result<f64> {
    let prefix = format!("{} ", group.name);
    let trial = &stage.trial;
    let (mut started, mut allowed) = (0_u64, 0_u64);
    for placed in &trial.placed {
        if !placed.plan.name.starts_with(&prefix) {
            continue;
        }
        let ledger = trial.ledger(placed.id, end).await?;
        let mut due: Vec<_> = ledger.rows.iter().map(|row| row.due_at).collect();
        due.sort_unstable();
        let starts = || ledger.rows.iter().filter_map(|row| row.started_at);
        for instant in 0..INSTANTS {
            let until = end - group.period() * instant / INSTANTS;
            started += starts().filter(|at| *at < until).count() as u64;
            allowed += ideal_starts(&ledger.history, &due, trial.began, until);
        }
    }
    Ok(started as f64 * 100.0 / allowed as f64)
}

async fn figures(
    stage: &Distributed,
    groups: &[Group],
    figure: impl Fn(&Group, f64) -> Figure,
) -> anyhow::Result<Vec<Figure>> {
    let end = stage.trial.now().await?;
    let mut figures = Vec::new();
    for group in groups {
        figures.push(figure(group, share(stage, group, end).await?));
    }
    figures.push(windows_over(&stage.trial.judge(end).await?));
    Ok(figures)
}

/// A share is worth nothing if it was got by breaking the limit.
fn windows_over(verdict: &TrialVerdict) -> Figure {
    let early: u64 = (verdict.destinations.iter())
        .map(|one| one.early_starts)
        .sum();
    let name = "starts beyond a limit meanwhile";
    Figure::at_most(name, early as f64, 0.0, "starts")
}
