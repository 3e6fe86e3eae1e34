//! From what was seen to the report: a pure function.

mod seconds;

use std::collections::BTreeMap;

use super::arrivals::Arrival;
use super::client::Sent;
use super::database::Done;
use super::judging::Verdict;
use super::metrics::per_mille;
use super::processes::{SQLITE_WRITER, Used};
use super::report::{Ended, FORMAT, Process, Report};
use super::settings::{Limit, Settings, Shape};
use super::side_by_side;

/// Everything that was seen.
pub(crate) struct Evidence {
    pub(crate) system: String,
    pub(crate) machine: String,
    pub(crate) began_at_unix_ms: i64,
    pub(crate) settings: Settings,
    pub(crate) ended: Ended,
    /// The first event was due, and the last was sent, since the machine
    /// started.
    pub(crate) load_us: (i64, i64),
    /// When what was held was let go.
    pub(crate) released_us: Option<i64>,
    /// Every event that was due.
    pub(crate) sent: Vec<Sent>,
    pub(crate) refused: u64,
    /// In the order of their times.
    pub(crate) arrivals: Vec<Arrival>,
    pub(crate) verdict: Verdict,
    /// Attempts that still wait; `None` without the database.
    pub(crate) pending: Option<u64>,
    /// What each process used meanwhile, and its peak; and of that, what the SQLite
    /// writer's thread did.
    pub(crate) used: BTreeMap<String, Used>,
    /// The most memory of each process in the last tenth of the load, to that in the first.
    pub(crate) grown: BTreeMap<String, f64>,
    /// From the first event until it was looked at.
    pub(crate) watched_seconds: f64,
    pub(crate) database: Option<Done>,
    pub(crate) notes: Vec<String>,
}

/// When each event arrived first, if it did; and how often any arrived again.
struct Deliveries {
    first_us: Vec<Option<i64>>,
    count: u64,
    duplicates: u64,
}

/// The report.
pub(crate) fn report(evidence: Evidence) -> Report {
    let deliveries = deliveries(&evidence);
    let mut metrics = BTreeMap::new();
    counts(&evidence, &deliveries, &mut metrics);
    rates(&evidence, &deliveries, &mut metrics);
    latencies(&evidence, &deliveries, &mut metrics);
    stalls(&evidence, &deliveries, &mut metrics);
    costs(&evidence, deliveries.count, &mut metrics);
    let processes = processes(&evidence, deliveries.count);
    for process in &processes {
        let name = &process.name;
        metrics.insert(
            format!("cpu_us_per_delivery.{name}"),
            process.cpu_us_per_delivery,
        );
        metrics.insert(format!("peak_rss_mib.{name}"), process.peak_rss_mib);
        if let Some(grown) = evidence.grown.get(name) {
            metrics.insert(format!("rss_growth.{name}"), *grown);
        }
    }
    Report {
        format: FORMAT,
        system: evidence.system.clone(),
        machine: evidence.machine.clone(),
        began_at_unix_ms: evidence.began_at_unix_ms,
        settings: evidence.settings.clone(),
        ended: evidence.ended,
        load_seconds: load_seconds(&evidence),
        seconds: seconds::seconds(&evidence, &deliveries),
        metrics,
        processes,
        judged: evidence.verdict.judged,
        destinations: evidence.verdict.worst,
        statements: evidence
            .database
            .map(|done| done.longest)
            .unwrap_or_default(),
        side_by_side: side_by_side::ways(&evidence.settings),
        notes: evidence.notes,
    }
}

fn deliveries(evidence: &Evidence) -> Deliveries {
    let mut first_us = vec![None; evidence.sent.len()];
    let (mut count, mut duplicates) = (0, 0);
    for arrival in evidence
        .arrivals
        .iter()
        .filter(|arrival| arrival.is_taken())
    {
        // An event that is not ours is somebody else's.
        let Some(first) = first_us.get_mut(arrival.event as usize) else {
            continue;
        };
        match first {
            Some(_) => duplicates += 1,
            None => {
                *first = Some(arrival.at_us);
                count += 1;
            }
        }
    }
    Deliveries {
        first_us,
        count,
        duplicates,
    }
}

type Metrics = BTreeMap<String, f64>;

fn set(metrics: &mut Metrics, name: &str, value: f64) {
    metrics.insert(name.to_owned(), value);
}

fn load_seconds(evidence: &Evidence) -> f64 {
    ((evidence.load_us.1 - evidence.load_us.0) as f64 / 1_000_000.0).max(0.001)
}

fn counts(evidence: &Evidence, deliveries: &Deliveries, metrics: &mut Metrics) {
    let offered = evidence.sent.len() as u64;
    let accepted = evidence
        .sent
        .iter()
        .filter(|sent| sent.accepted_us > 0)
        .count() as u64;
    let both = evidence.sent.iter().zip(&deliveries.first_us);
    let undelivered = both
        .filter(|(sent, first)| sent.accepted_us > 0 && first.is_none())
        .count() as u64;
    let mut count = |name, value: u64| set(metrics, name, value as f64);
    count("offered", offered);
    count("accepted", accepted);
    count("refused", evidence.refused);
    count(
        "unanswered",
        offered.saturating_sub(accepted + evidence.refused),
    );
    count("delivered", deliveries.count);
    count("duplicates", deliveries.duplicates);
    count("undelivered", undelivered);
    count("requests", evidence.arrivals.len() as u64);
    if let Some(pending) = evidence.pending.or((undelivered == 0).then_some(0)) {
        count("lost", undelivered.saturating_sub(pending));
    }
    count("early_arrivals", evidence.verdict.early_arrivals);
    count("explained_arrivals", evidence.verdict.explained_arrivals);
    if let Some(fullest) = evidence.verdict.fullest_whole_window {
        count("fullest_whole_window", fullest);
    }
    if let Some(early) = evidence.verdict.early_starts {
        count("early_starts", early);
    }
    if let Some(unfounded) = evidence.verdict.unfounded_failures {
        count("unfounded_failures", unfounded);
    }
    if let Some(share) = evidence.verdict.least_share_percent {
        set(metrics, "least_share_percent", share);
    }
}

fn rates(evidence: &Evidence, deliveries: &Deliveries, metrics: &mut Metrics) {
    let (began_us, ended_us) = evidence.load_us;
    let length = load_seconds(evidence);
    let within = |at_us: i64| at_us > 0 && at_us <= ended_us;
    let accepted = evidence.sent.iter().filter(|sent| within(sent.accepted_us));
    let firsts = || deliveries.first_us.iter().flatten().copied();
    set(
        metrics,
        "offered_per_second",
        evidence.sent.len() as f64 / length,
    );
    set(
        metrics,
        "accepted_per_second",
        accepted.count() as f64 / length,
    );
    let delivered = firsts().filter(|at_us| within(*at_us)).count();
    set(metrics, "delivered_per_second", delivered as f64 / length);
    if let Some(last_us) = firsts().max() {
        let overall = ((last_us - began_us) as f64 / 1_000_000.0).max(0.001);
        set(
            metrics,
            "overall_per_second",
            deliveries.count as f64 / overall,
        );
        let drained = (last_us - ended_us).max(0) as f64 / 1_000_000.0;
        set(metrics, "drain_seconds", drained);
        if let Some(released_us) = evidence.released_us {
            let length = ((last_us - released_us) as f64 / 1_000_000.0).max(0.001);
            let drained = deliveries.count as f64 / length;
            set(metrics, "drained_per_second", drained);
        }
    }
}

/// Where nothing but Paceline and a limit that stays decides when something is delivered:
/// how long it did nothing although something waited that the limit did not hold; and of
/// an unlimited load, how long the last few waited for their turn.
fn stalls(evidence: &Evidence, deliveries: &Deliveries, metrics: &mut Metrics) {
    let settings = &evidence.settings;
    let changes = settings.limit_then.is_some() || settings.shape == Shape::LimitChange;
    if changes || matches!(settings.shape, Shape::Failing | Shape::Slow) {
        return;
    }
    let both = evidence.sent.iter().zip(&deliveries.first_us);
    let mut waits: Vec<Wait> = both
        .filter(|(sent, _)| sent.accepted_us > 0)
        .filter_map(|(sent, first)| {
            Some(Wait {
                destination: sent.destination,
                accepted_us: sent.accepted_us,
                first_us: (*first)?,
            })
        })
        .collect();
    waits.sort_unstable_by_key(|one| one.first_us);
    let held = Held::of(evidence);
    let mut stalled_us = 0;
    for (at, pair) in waits.windows(2).enumerate() {
        let (from, to) = (pair[0].first_us, pair[1].first_us);
        if to - from < SECOND_US {
            continue;
        }
        // What comes after the gap could have gone since it was there and was not held.
        let since = |one: &Wait| one.accepted_us.max(held.until(one.destination, from));
        let since = waits[at + 1..].iter().map(since).min();
        let idle = to - since.unwrap_or(to).max(from);
        if idle >= SECOND_US {
            stalled_us += idle;
        }
    }
    let seconds = stalled_us as f64 / SECOND_US as f64;
    set(metrics, "stalled_seconds", seconds);
    if settings.limit == Limit::Unlimited {
        stragglers(evidence, &waits, metrics);
    }
}

/// How much longer the last of what waited when the load ended took than so many do: at
/// the pace of the load, or where more than a second's worth waited, as 99 % of them took.
fn stragglers(evidence: &Evidence, waits: &[Wait], metrics: &mut Metrics) {
    let (began_us, ended_us) = evidence.load_us;
    let in_time = waits.partition_point(|one| one.first_us <= ended_us);
    let rest = &waits[in_time..];
    let (Some(last), Some(most)) = (rest.last(), rest.get(rest.len() * 99 / 100)) else {
        return;
    };
    let at_its_pace_us = (rest.len() as i64 * (ended_us - began_us))
        .checked_div(in_time as i64)
        .filter(|took| *took <= SECOND_US);
    let explained_us = at_its_pace_us.unwrap_or(most.first_us - ended_us);
    let late_us = (last.first_us - ended_us - explained_us).max(0);
    let seconds = late_us as f64 / SECOND_US as f64;
    set(metrics, "stragglers_seconds", seconds);
}

/// An event that was accepted, and when it arrived first.
struct Wait {
    destination: u32,
    accepted_us: i64,
    first_us: i64,
}

/// How long the limit holds each destination.
struct Held {
    /// How many requests it lets through in how long; `None` if there is no limit.
    limit: Option<(usize, i64)>,
    /// Of each destination, in order.
    arrivals_us: BTreeMap<u32, Vec<i64>>,
}

/// Of a limit's period, in percent: what its margin and its coarse buckets may cost.
const MARGIN_PERCENT: i64 = 2;

impl Held {
    fn of(evidence: &Evidence) -> Self {
        let Limit::Per(max, period) = evidence.settings.limit else {
            return Self {
                limit: None,
                arrivals_us: BTreeMap::new(),
            };
        };
        let mut arrivals_us: BTreeMap<u32, Vec<i64>> = BTreeMap::new();
        for one in &evidence.arrivals {
            let of_destination = arrivals_us.entry(one.destination()).or_default();
            of_destination.push(one.at_us);
        }
        let period_us = period.duration().as_secs() as i64 * SECOND_US;
        let window_us = period_us + period_us * MARGIN_PERCENT / 100;
        Self {
            limit: Some((max as usize, window_us)),
            arrivals_us,
        }
    }

    /// Until when it may have to wait by what has arrived there up to `at_us`, if nothing
    /// else does.
    fn until(&self, destination: u32, at_us: i64) -> i64 {
        let Some((max, window_us)) = self.limit else {
            return at_us;
        };
        let arrivals = self.arrivals_us.get(&destination);
        let arrivals = arrivals.map_or(&[][..], Vec::as_slice);
        let before = arrivals.partition_point(|one| *one <= at_us);
        match before
            .checked_sub(max)
            .and_then(|first| arrivals.get(first))
        {
            Some(first) => first + window_us,
            None => at_us,
        }
    }
}

const SECOND_US: i64 = 1_000_000;

fn between(from_us: i64, to_us: i64) -> u64 {
    u64::try_from(to_us - from_us).unwrap_or(0)
}

/// The percentile of these, in milliseconds.
fn ms(sorted: &[u64], of: u64) -> f64 {
    per_mille(sorted, of) as f64 / 1_000.0
}

fn sorted(values: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut values: Vec<_> = values.collect();
    values.sort_unstable();
    values
}

fn latencies(evidence: &Evidence, deliveries: &Deliveries, metrics: &mut Metrics) {
    let of_tenant = |wanted: Option<u16>| {
        let both = evidence.sent.iter().zip(&deliveries.first_us);
        let wait = |(sent, first): (&Sent, &Option<i64>)| {
            let tenant = evidence.settings.tenant_of(sent.destination);
            let asked = sent.accepted_us > 0 && wanted.is_none_or(|wanted| wanted == tenant);
            // An answer may be read after the delivery has begun.
            asked.then_some(between(sent.accepted_us, (*first)?))
        };
        sorted(both.filter_map(wait))
    };
    let waits = of_tenant(None);
    if !waits.is_empty() {
        for (name, of) in [
            ("p50_ms", 500),
            ("p90_ms", 900),
            ("p99_ms", 990),
            ("p999_ms", 999),
            ("max_ms", 1_000),
        ] {
            set(metrics, name, ms(&waits, of));
        }
    }
    if evidence.settings.tenants() > 1 {
        set(metrics, "noisy_p99_ms", ms(&of_tenant(Some(0)), 990));
        set(metrics, "quiet_p99_ms", ms(&of_tenant(Some(1)), 990));
    }
    let accepted = evidence.sent.iter().filter(|sent| sent.accepted_us > 0);
    let ingest = sorted(accepted.map(|sent| between(sent.sent_us, sent.accepted_us)));
    let were_sent = evidence.sent.iter().filter(|sent| sent.sent_us > 0);
    let late = sorted(were_sent.map(|sent| between(sent.due_us, sent.sent_us)));
    if !ingest.is_empty() {
        set(metrics, "ingest_p50_ms", ms(&ingest, 500));
        set(metrics, "ingest_p99_ms", ms(&ingest, 990));
    }
    if !late.is_empty() {
        set(metrics, "client_late_p99_ms", ms(&late, 990));
    }
    let starts = sorted(evidence.verdict.waits_us.iter().copied());
    if !starts.is_empty() {
        set(metrics, "start_p50_ms", ms(&starts, 500));
        set(metrics, "start_p99_ms", ms(&starts, 990));
    }
    let lates = sorted(evidence.verdict.lates_us.iter().copied());
    if !lates.is_empty() {
        set(metrics, "late_p50_ms", ms(&lates, 500));
        set(metrics, "late_p99_ms", ms(&lates, 990));
    }
}

/// Processes, without what is a part of one.
fn whole(evidence: &Evidence) -> impl Iterator<Item = (&String, &Used)> {
    (evidence.used.iter()).filter(|(name, _)| name.as_str() != SQLITE_WRITER)
}

fn costs(evidence: &Evidence, delivered: u64, metrics: &mut Metrics) {
    let cpu: f64 = whole(evidence).map(|(_, used)| used.cpu_seconds()).sum();
    set(
        metrics,
        "cpu_cores",
        cpu / evidence.watched_seconds.max(0.001),
    );
    if delivered == 0 {
        return;
    }
    let each = |value: f64| value / delivered as f64;
    set(metrics, "cpu_us_per_delivery", each(cpu * 1_000_000.0));
    if let Some(writer) = evidence.used.get(SQLITE_WRITER) {
        let us = writer.cpu_seconds() * 1_000_000.0;
        set(metrics, "writer_us_per_delivery", each(us));
    }
    let Some(done) = &evidence.database else {
        return;
    };
    set(
        metrics,
        "wal_bytes_per_delivery",
        each(done.wal_bytes as f64),
    );
    set(
        metrics,
        "transactions_per_delivery",
        each(done.transactions as f64),
    );
    if let Some(calls) = done.calls {
        set(metrics, "statements_per_delivery", each(calls as f64));
    }
}

fn processes(evidence: &Evidence, delivered: u64) -> Vec<Process> {
    let process = |(name, used): (&String, &Used)| Process {
        name: name.clone(),
        cpu_seconds: used.cpu_seconds(),
        in_kernel_percent: used.system_seconds * 100.0 / used.cpu_seconds().max(0.01),
        cpu_us_per_delivery: used.cpu_seconds() * 1_000_000.0 / delivered.max(1) as f64,
        peak_rss_mib: used.resident_mib,
    };
    let mut processes: Vec<_> = whole(evidence).map(process).collect();
    processes.sort_by(|one, other| other.cpu_seconds.total_cmp(&one.cpu_seconds));
    processes
}

#[cfg(test)]
pub(super) mod tests;
