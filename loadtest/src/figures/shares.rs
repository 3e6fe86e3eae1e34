//! How much of their limits destinations with backlog get.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use domain::compliance::MeanShare;
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

/// Destinations with the same limit, and the least share that they must get.
struct Group {
    name: &'static str,
    limits: LimitSettings,
    per_second: u32,
    destinations: u32,
    least_percent: f64,
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
        group("1/s", 1, 10, 98.5),
        group("10/s", 10, 5, 98.5),
        group("100/s", 100, 2, 98.5),
        group("1,000/s", 1_000, 1, 98.5),
        Group {
            limits: per_minute,
            ..group("100/min", 4, 4, 99.5)
        },
    ]
}

/// With nothing in the way.
pub(super) async fn undisturbed(context: &Context, seconds: u32) -> anyhow::Result<Vec<Figure>> {
    let groups = groups();
    let length = Duration::from_secs(seconds.into());
    context
        .staged(ROLES, plans(&groups, seconds), async |stage| {
            let began = flood(stage).await?;
            tokio::time::sleep_until(began + length).await;
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
            let began = flood(stage).await?;
            stall(&stage.children, began + length).await?;
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

/// Floods; returns when that began, for the time that it takes counts.
async fn flood(stage: &mut Distributed) -> anyhow::Result<Instant> {
    let began = Instant::now();
    stage.trial.flood(&stage.ingest).await.context("flood")?;
    Ok(began)
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
/// latency and without any allowance.
async fn share(stage: &Distributed, group: &Group, end: Timestamp) -> anyhow::Result<f64> {
    let prefix = format!("{} ", group.name);
    let trial = &stage.trial;
    let (mut started, mut allowed) = (0.0, 0.0);
    for placed in &trial.placed {
        if !placed.plan.name.starts_with(&prefix) {
            continue;
        }
        let ledger = trial.ledger(placed.id, end).await?;
        // Without backlog everybody is a perfect sender.
        let waits = ledger.rows.iter().any(|row| row.started_at.is_none());
        ensure!(
            waits,
            "{} ran dry: its share says nothing",
            placed.plan.name
        );
        let of_it = ledger.share((trial.began, end), Duration::ZERO);
        started += of_it.started;
        allowed += of_it.allowed;
    }
    let share = MeanShare { started, allowed };
    Ok(share.percent())
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
    figures.extend(windows_over(&stage.trial.judge(end).await?));
    Ok(figures)
}

/// A share is worth nothing if it was got by breaking the limit.
fn windows_over(verdict: &TrialVerdict) -> [Figure; 2] {
    let all = || verdict.destinations.iter();
    let arrivals: u64 = all().map(|one| one.at_receiver.early_arrivals).sum();
    let starts: u64 = all().map(|one| one.early_starts).sum();
    let beyond = |what, unit, early| {
        let name = format!("{what} beyond a limit meanwhile");
        Figure::at_most(name, early as f64, 0.0, unit)
    };
    [
        beyond("arrivals at receivers", "arrivals", arrivals),
        beyond("starts", "starts", starts),
    ]
}
