//! `loadtest windows --faults`: the same limits, each through one fault in the middle of a
//! run of its own, with real servers and processes.
//!
//! Receivers judge windows of the whole period, and every event has to arrive. They are
//! threads of this program, and not a process of their own as in the other runs.
//!
//! A worker that goes on after SIGSTOP looks at the clock before each first byte: what it
//! may not send any more it records as `not_sent`. Only what had been claimed so lately that
//! the look may have been before the stop, and what was on its way, nobody could have held
//! back. That arrives as the worker goes on, and is counted as held, by the ledger: of that
//! worker, claimed within its bound before the stop, and there within what a request on the
//! loopback takes. The windows are judged without it; how many arrivals are early with it is
//! shown beside.

use std::collections::HashMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use domain::admission::MAX_CLAIM_TO_SEND;
use domain::compliance::{ArrivalVerdict, Stalls, USUAL_MARGIN};
use domain::policy::LimitSettings;
use domain::time::Timestamp;
use serde::Serialize;
use server::output;
use server::receiver::Arrival;
use server::trial::{self, Ahead, Distributed, Plan, Receivers, Servers, WHOLE_WINDOWS};
use sqlx::{Connection, PgConnection};
use tokio::time::Instant;
use uuid::Uuid;

use super::measured::{Verdict, exit_code, line, or_dash};
use super::{Args, Cell, say};
use crate::faults::{self, EACH, Fault, LOOPBACK, Stopped};
use crate::run::judging::margins;
use crate::run::settings::{Limit, Size};

/// How much longer than what is left takes draining may take.
const DRAIN: Duration = Duration::from_secs(60);

/// One limit through one fault.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Suffered {
    /// Of how many rounds it is, from 1 on.
    run: u32,
    fault: &'static str,
    #[serde(flatten)]
    cell: Cell,
    /// Nothing where the run itself failed.
    #[serde(flatten)]
    seen: Seen,
    /// Why it did.
    failed: Option<String>,
}

impl Suffered {
    const fn verdict(&self) -> Verdict {
        match self.failed {
            Some(_) => Verdict::NotJudged,
            None => self.seen.verdict(),
        }
    }
}

/// What it came to.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
struct Seen {
    /// What a window may hold, in the end.
    allowed: Option<u64>,
    /// The fullest one at a receiver, less what its own stalls explain and what was held.
    at_receiver: u64,
    /// The fullest one of the ledger.
    in_ledger: Option<u64>,
    /// Arrivals beyond a limit, without those that were held.
    early_arrivals: u64,
    /// Starts beyond it, by the ledger.
    early_starts: u64,
    /// Arrivals that the receivers' own stalls explain.
    explained_arrivals: u64,
    /// Arrivals that a stopped worker had claimed and sent as it went on.
    held: u64,
    /// Arrivals beyond a limit, with those.
    early_with_held: u64,
    /// Events that have not arrived.
    lost: u64,
}

impl Seen {
    const fn verdict(&self) -> Verdict {
        if self.lost > 0 {
            Verdict::Lost
        } else if self.early_arrivals > 0 || self.early_starts > 0 {
            Verdict::Over
        } else if self.explained_arrivals > 0 {
            Verdict::Explained
        } else {
            Verdict::Kept
        }
    }

    /// What one receiver got: all of it, and without what was held, by the same judge.
    fn receive(
        &mut self,
        judge: impl Fn(&[Timestamp]) -> ArrivalVerdict,
        (all, unheld): (&[Timestamp], &[Timestamp]),
    ) {
        let received = judge(unheld);
        self.held += (all.len() - unheld.len()) as u64;
        self.early_with_held += judge(all).unexplained.early_starts();
        self.early_arrivals += received.unexplained.early_starts();
        self.explained_arrivals += received.explained();
        let windows = received.unexplained.limits.iter();
        let fullest = windows.map(|window| window.sliding.starts).max();
        self.at_receiver = self.at_receiver.max(fullest.unwrap_or(0));
    }
}

/// Runs them one after the other, and prints one table. Each says its row as it ends, and
/// one that fails leaves the others.
pub(super) async fn run(args: &Args, program: &Path) -> anyhow::Result<ExitCode> {
    let servers = Servers::from_environment()?;
    let trials = trials(args);
    ensure!(
        !trials.is_empty(),
        "nothing is left to measure: faults are of the distributed size"
    );
    let mut suffered = Vec::new();
    for run in 1..=args.runs {
        for (cell, fault) in trials.iter().copied() {
            let (of, fault_name) = (args.runs, fault.name());
            let (limit, answer_ms) = (cell.limit, cell.answer_ms);
            say(&format!(
                "{run} of {of}: {fault_name}, {limit}, answers after {answer_ms} ms"
            ))?;
            let (seen, failed) = match measure(args, (cell, fault), (program, &servers)).await {
                Ok(seen) => (seen, None),
                Err(error) => (Seen::default(), Some(format!("{error:#}"))),
            };
            let one = Suffered {
                run,
                fault: fault_name,
                cell,
                seen,
                failed,
            };
            say(&line(&HEADER, &row(&one)))?;
            suffered.push(one);
        }
    }
    if args.json {
        output::json(&suffered)?;
    } else {
        output::line(&table(&suffered))?;
    }
    Ok(exit_code(suffered.iter().map(Suffered::verdict)))
}

/// Each of the distributed size with each fault.
fn trials(args: &Args) -> Vec<(Cell, Fault)> {
    let cells = args.cells().into_iter();
    let cells = cells.filter(|cell| cell.size == Size::Distributed);
    let suffers = |cell: &Cell, fault: &Fault| {
        // Half of 1 is none.
        *fault != Fault::CutLimits || !matches!(cell.limit, Limit::Per(1, _))
    };
    cells
        .flat_map(|cell| EACH.map(|fault| (cell, fault)))
        .filter(|(cell, fault)| suffers(cell, fault))
        .collect()
}

async fn measure(
    args: &Args,
    (cell, fault): (Cell, Fault),
    (program, servers): (&Path, &Servers),
) -> anyhow::Result<Seen> {
    let roles = cell.roles.context("the embedded size has no faults")?;
    let roles = trial::Roles {
        schedulers: roles.schedulers as usize,
        workers: roles.workers as usize,
    };
    let length = args.length(cell.limit);
    let plans = plans(cell, length);
    let program = program.to_path_buf();
    let mut stage = Distributed::set_up(program, servers.clone(), roles, plans).await?;
    let seen = suffer(
        &mut stage,
        (cell, fault),
        Duration::from_secs(length.into()),
    )
    .await;
    stage.strike().await?;
    seen
}

/// A backlog for the whole time.
fn plans(cell: Cell, seconds: u32) -> Vec<Plan> {
    let limits = LimitSettings {
        max_in_flight: Some(cell.at_once() as u32),
        ..cell.limit.settings()
    };
    let per_second = cell.per_second().ceil() as u32;
    let answer = Duration::from_millis(cell.answer_ms);
    let plan = |number: u32| {
        let name = format!("{} {number}", cell.limit);
        Plan::flooded(&name, limits, per_second, seconds).answering_after(answer)
    };
    (0..cell.destinations).map(plan).collect()
}

async fn suffer(
    stage: &mut Distributed,
    (cell, fault): (Cell, Fault),
    length: Duration,
) -> anyhow::Result<Seen> {
    let flooded = stage.trial.flood(&stage.ingest).await;
    flooded.context("flood the destinations")?;
    let began = Instant::now();
    tokio::time::sleep_until(began + length / 2).await;
    let stopped = faults::commit(fault, stage).await?;
    tokio::time::sleep_until(began + length).await;
    let events = stage.trial.placed.first().map_or(0, |one| one.plan.events);
    // At half of the limit, if it was cut.
    let left = f64::from(events) * 2.0 / cell.per_second();
    let patience = Duration::from_secs_f64(left) + DRAIN;
    stage.trial.drain(patience).await?;
    judge(stage, stopped).await
}

async fn judge(stage: &Distributed, stopped: Option<Stopped>) -> anyhow::Result<Seen> {
    let trial = &stage.trial;
    let verdict = trial.judge(trial.now().await?).await?;
    let mut seen = Seen::default();
    for one in &verdict.destinations {
        seen.early_starts += one.early_starts;
        seen.lost += one.events.saturating_sub(one.events_arrived);
        for window in &one.windows {
            seen.allowed = seen.allowed.max(window.bound);
            seen.in_ledger = seen.in_ledger.max(Some(window.largest_sliding));
        }
    }
    let parts = stage.shared.connect().await?;
    let ahead = Ahead::measure(parts.store.as_ref(), || trial.receiver.clock()).await?;
    let record = trial.receiver.record();
    let ids: Vec<_> = trial.placed.iter().map(|placed| placed.id).collect();
    let margins = margins(parts.stored.as_ref(), &ids).await?;
    let mut held = match stopped {
        Some(stopped) => Some(Held::by(stopped, &stage.shared.database_url).await?),
        None => None,
    };
    for (number, placed) in (0_u32..).zip(&trial.placed) {
        let (mut all, mut unheld) = (Vec::new(), Vec::new());
        let arrivals = record.arrivals.iter();
        for arrival in arrivals.filter(|arrival| arrival.destination == number) {
            all.push(arrival.read_at());
            let held = held.as_mut();
            if !held.is_some_and(|held| held.has(placed.id.0, arrival)) {
                unheld.push(arrival.read_at());
            }
        }
        let margin = margins.get(&placed.id).copied().unwrap_or(USUAL_MARGIN);
        let stalls = Stalls::longer_than(margin, record.stalls.iter().copied());
        let receivers = Receivers {
            stalls: &stalls,
            ahead,
            window_percent: WHOLE_WINDOWS,
        };
        let history = trial.history(placed.id).await?;
        let judge = |read_at: &[Timestamp]| receivers.judge(&history, read_at);
        seen.receive(judge, (&all, &unheld));
    }
    Ok(seen)
}

/// What had been claimed when a worker was stopped.
struct Held {
    stopped: Stopped,
    /// By destination and event.
    claimed: HashMap<(Uuid, Uuid), Claimed>,
}

/// An event's claims before the stop.
#[derive(Debug, Clone, Copy, Default)]
struct Claimed {
    /// How many of them have not been seen yet.
    left: u32,
    /// One may have passed its last look at the clock before the stop.
    may_be_held: bool,
}

/// Attempts that had been claimed by then and were sent, and whether the stopped worker did
/// so within its bound. By the claim: a start is dated when its first byte has gone, which
/// of these is after the stop.
const CLAIMED: &str = "
    -- claimed_before_a_stop
    select destination_id, event_id,
        coalesce(worker_id = $2 and micros(claimed_at) >= $3, false) as may_be_held
    from attempts
    where micros(claimed_at) <= $1 and state <> 'not_sent' and carried_by is null
";

impl Held {
    async fn by(stopped: Stopped, database_url: &str) -> anyhow::Result<Self> {
        let connection = PgConnection::connect(database_url).await;
        let mut connection = connection.context("look at the ledger")?;
        // The stop is known to have been before then, by hardly more than a statement.
        let lately = stopped.stopped_at - MAX_CLAIM_TO_SEND;
        let rows: Vec<(Uuid, Uuid, bool)> = sqlx::query_as(CLAIMED)
            .bind(stopped.stopped_at.as_micros())
            .bind(stopped.worker)
            .bind(lately.as_micros() - LOOPBACK)
            .fetch_all(&mut connection)
            .await
            .context("look at the ledger")?;
        connection.close().await.context("leave Postgres")?;
        Ok(Self::of(stopped, rows))
    }

    fn of(stopped: Stopped, rows: impl IntoIterator<Item = (Uuid, Uuid, bool)>) -> Self {
        let mut claimed: HashMap<(Uuid, Uuid), Claimed> = HashMap::new();
        for (destination, event, may_be_held) in rows {
            let one = claimed.entry((destination, event)).or_default();
            one.left += 1;
            one.may_be_held |= may_be_held;
        }
        Self { stopped, claimed }
    }

    /// Whether the next arrival, in the order of their times, is of an attempt that nobody
    /// could have held back, and came as the worker went on.
    fn has(&mut self, destination: Uuid, arrival: &Arrival) -> bool {
        let one = (arrival.event).and_then(|event| self.claimed.get_mut(&(destination, event)));
        let Some(one) = one.filter(|one| one.left > 0) else {
            return false;
        };
        one.left -= 1;
        let went_on = self.stopped.went_on_at.as_micros();
        let as_it_went_on = went_on..=went_on + LOOPBACK;
        one.may_be_held && as_it_went_on.contains(&arrival.read_at().as_micros())
    }
}

/// What [`row`] has.
const HEADER: [&str; 15] = [
    "run",
    "fault",
    "schedulers + workers",
    "limit",
    "destinations",
    "answers after ms",
    "allowed",
    "at receiver",
    "in ledger",
    "early",
    "explained",
    "held",
    "early with held",
    "lost",
    "verdict",
];

fn table(suffered: &[Suffered]) -> String {
    let mut text = output::table(&HEADER, suffered.iter().map(row)).to_string();
    for one in suffered {
        if let Some(why) = &one.failed {
            text.push_str(&format!(
                "\nNOT JUDGED: {}, {} at {} ms: {why}",
                one.fault, one.cell.limit, one.cell.answer_ms
            ));
        }
    }
    text
}

fn row(one: &Suffered) -> Vec<String> {
    let (cell, seen) = (&one.cell, &one.seen);
    vec![
        one.run.to_string(),
        one.fault.to_owned(),
        cell.processes(),
        cell.limit.to_string(),
        cell.destinations.to_string(),
        cell.answer_ms.to_string(),
        or_dash(seen.allowed),
        seen.at_receiver.to_string(),
        or_dash(seen.in_ledger),
        (seen.early_arrivals + seen.early_starts).to_string(),
        seen.explained_arrivals.to_string(),
        seen.held.to_string(),
        seen.early_with_held.to_string(),
        seen.lost.to_string(),
        one.verdict().as_str().to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use domain::compliance::{InForce, Stall};
    use domain::destination::DestinationState;
    use server::trial::{judge_received, per_second};

    use super::super::tests::args;
    use super::*;

    #[test]
    fn every_limit_goes_through_every_fault_but_a_cut_of_one() {
        let names = |limits: &str, sizes: &str| -> Vec<&'static str> {
            let some = ["--faults", "--answer-ms", "0", "--limits", limits];
            let args = args(&[some.as_slice(), &["--sizes", sizes]].concat());
            let trials = trials(&args).into_iter();
            trials.map(|(_, fault)| fault.name()).collect()
        };
        let all = names("10/s", "distributed");
        assert_eq!(all, EACH.map(Fault::name));
        let one = names("1/s", "distributed");
        assert_eq!((one.len(), one.contains(&"cut-limits")), (5, false));
        assert!(names("10/s", "embedded").is_empty());
    }

    #[test]
    fn there_is_a_backlog_for_the_whole_time() {
        let args = args(&["--faults", "--limits", "100/min,5/s", "--answer-ms", "0"]);
        let planned: Vec<_> = (trials(&args).iter())
            .filter(|(_, fault)| *fault == Fault::KillWorker)
            .map(|(cell, _)| {
                let plans = plans(*cell, args.length(cell.limit));
                (plans.len(), plans[0].events, plans[0].limits.max_in_flight)
            })
            .collect();
        // 2 a second for two minutes, 5 for one, and a quarter more.
        assert_eq!(planned, [(1, 320, Some(50)), (200, 395, Some(50))]);
    }

    #[test]
    fn only_what_nobody_could_hold_back_and_came_as_the_worker_went_on_was_held() {
        let at = Timestamp::from_millis;
        let stopped = Stopped {
            worker: Uuid::from_u128(9),
            stopped_at: at(1_000),
            went_on_at: at(4_000),
        };
        let (here, elsewhere) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let event = Uuid::from_u128;
        let claimed = [
            (here, event(1), true),
            (here, event(2), true),
            (elsewhere, event(3), true),
            (here, event(5), false),
            (here, event(6), true),
            (here, event(7), false),
            (here, event(7), true),
        ];
        let mut held = Held::of(stopped, claimed);
        let mut has = |number, ms: u64| {
            let arrival = Arrival {
                destination: 0,
                event: Some(event(number)),
                at_us: ms * 1_000,
                body_bytes: 0,
            };
            held.has(here, &arrival)
        };
        assert!(!has(1, 900), "it had arrived before");
        assert!(!has(1, 4_001), "its retry");
        assert!(has(2, 4_001));
        assert!(!has(2, 4_002), "once");
        assert!(!has(3, 4_001), "of another destination");
        assert!(!has(4, 4_001), "it was claimed later");
        assert!(!has(5, 4_001), "of another worker, or claimed long before");
        assert!(!has(6, 4_051), "the worker went on long before");
        assert!(!has(7, 900), "another worker's attempt");
        assert!(has(7, 4_050), "and the one that was held");
    }

    #[test]
    fn what_is_early_with_the_held_ones_is_judged_by_the_same_receivers() {
        let at = Timestamp::from_millis;
        let history = [InForce::new(
            at(0),
            &per_second(2),
            DestinationState::Active,
        )];
        let stalls = [Stall {
            from: at(0),
            until: at(40),
        }];
        let seen = |margin_ms, unheld: &[i64]| {
            let margin = Duration::from_millis(margin_ms);
            let stalls = Stalls::longer_than(margin, stalls);
            let mut seen = Seen::default();
            let all = [40, 40, 1_000, 1_000].map(at);
            let unheld: Vec<_> = unheld.iter().map(|ms| at(*ms)).collect();
            seen.receive(
                |read_at| judge_received(&history, read_at, (&stalls, WHOLE_WINDOWS)),
                (&all, &unheld),
            );
            (seen.early_arrivals, seen.early_with_held, seen.held)
        };
        let all = [40, 40, 1_000, 1_000];
        assert_eq!(seen(2, &all), (0, 0, 0), "the stall explains both");
        assert_eq!(seen(50, &all), (2, 2, 0), "or neither");
        assert_eq!(seen(50, &all[..2]), (0, 2, 2));
    }

    #[test]
    fn a_run_that_failed_is_a_row_and_says_why() {
        let args = args(&["--faults", "--limits", "10/s", "--answer-ms", "0"]);
        let (cell, fault) = trials(&args)[0];
        let failed = Suffered {
            run: 1,
            fault: fault.name(),
            cell,
            seen: Seen::default(),
            failed: Some("2 workers stand still, not one".to_owned()),
        };
        assert_eq!(failed.verdict(), Verdict::NotJudged);
        assert!(line(&HEADER, &row(&failed)).ends_with("verdict NOT JUDGED"));
        let text = table(&[failed]);
        let said = "NOT JUDGED: kill-worker, 10/s at 0 ms: 2 workers stand still, not one";
        assert!(text.contains(said), "{text}");
    }

    #[test]
    fn one_that_is_over_or_lost_fails() {
        let seen = Seen {
            held: 3,
            early_with_held: 2,
            ..Seen::default()
        };
        assert_eq!(seen.verdict(), Verdict::Kept, "held ones are apart");
        let verdict = |early_arrivals, early_starts, lost| {
            let seen = Seen {
                early_arrivals,
                early_starts,
                explained_arrivals: 1,
                lost,
                ..Seen::default()
            };
            seen.verdict()
        };
        assert_eq!(verdict(0, 0, 0), Verdict::Explained);
        assert_eq!(verdict(1, 0, 0), Verdict::Over);
        assert_eq!(verdict(0, 1, 0), Verdict::Over, "in the ledger");
        assert_eq!(verdict(0, 0, 1), Verdict::Lost);
        assert!(!Verdict::Lost.holds());
    }
}
