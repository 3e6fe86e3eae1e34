//! Arrivals against limits at the receiver, and starts at the sender.
//!
//! The receiver's side is what arrived, judged as the demo's receivers are: that is the
//! promise. The sender's side is its ledger; without the database there is none.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use anyhow::Context;
use domain::attempt::AttemptState;
use domain::compliance::{InForce, Stall, Stalls, USUAL_MARGIN, largest_sliding};
use domain::destination::DestinationState;
use domain::ids::{AttemptId, DestinationId};
use domain::limit::Period;
use domain::time::Timestamp;
use engine::ports::{LedgerRow, MAX_SURVEYED};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};
use server::parts::Stored;
use server::receiver::{self, Behaviour};
use server::trial::{
    Ahead, AtReceiver, DestinationVerdict, LATENCY_ALLOWANCE, Ledger, Plan, Receivers,
    WHOLE_WINDOWS, judge_received,
};
use uuid::Uuid;

use super::arrivals::Arrival;
use super::lateness;
use super::settings::{Limit, Settings, Shape};

/// The most destinations that are judged.
pub(crate) const MAX_JUDGED: usize = 2_000;

/// Of more, so many are drawn by the seed, and the others are those with the most arrivals.
/// How long starts waited is said of those that are drawn: they stand for all, where those
/// with the most arrivals waited least.
const DRAWN: usize = MAX_JUDGED / 2;

/// The most destinations that a report lists, the worst ones.
const MAX_LISTED: usize = 20;

/// One destination's worst window, beside what it may hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Judged {
    pub(crate) destination: u32,
    /// The window's length: the limit's period; a second where there is none.
    pub(crate) period_seconds: u64,
    /// What a window may hold; `None` is any number.
    pub(crate) bound: Option<u64>,
    /// Starts in the fullest window of the ledger, where that is known.
    pub(crate) worst_at_sender: Option<u64>,
    /// Arrivals in the fullest window at the receiver, less what its own stalls explain.
    pub(crate) worst_at_receiver: u64,
    /// The same in windows of the whole period, where shorter ones are judged.
    #[serde(default)]
    pub(crate) worst_in_whole_period: Option<u64>,
    /// How its limits were kept there. Reports of before have none.
    #[serde(default)]
    pub(crate) at_receiver: AtReceiver,
    pub(crate) early_starts: u64,
    /// Starts in per cent of what a perfect sender could have made.
    pub(crate) share_percent: Option<f64>,
    pub(crate) arrivals: u64,
}

/// All of them together.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Verdict {
    /// Destinations that were judged.
    pub(crate) judged: u64,
    /// Arrivals beyond a limit that no stall of the receiver explains.
    pub(crate) early_arrivals: u64,
    /// Those that one explains.
    pub(crate) explained_arrivals: u64,
    /// Arrivals in the fullest window of a whole period, less what stalls explain; only
    /// where shorter windows are judged.
    pub(crate) fullest_whole_window: Option<u64>,
    /// Starts that came too early; `None` without a ledger.
    pub(crate) early_starts: Option<u64>,
    /// Failed attempts that no receiver has answered; `None` without a ledger, or
    /// where receivers may take longer than a request may.
    pub(crate) unfounded_failures: Option<u64>,
    pub(crate) least_share_percent: Option<f64>,
    /// The worst, at most [`MAX_LISTED`].
    pub(crate) worst: Vec<Judged>,
    /// From due to start, in microseconds, unsorted.
    pub(crate) waits_us: Vec<u64>,
    /// From when a start was due and its limit allowed it, the same.
    pub(crate) lates_us: Vec<u64>,
}

/// Where the ledger is, and since when it is ours.
pub(crate) struct Sender<'a> {
    pub(crate) stored: &'a dyn Stored,
    pub(crate) began: Timestamp,
    pub(crate) until: Timestamp,
    /// How its clock is to be compared with the receiver's.
    pub(crate) ahead: Ahead,
}

/// What the receiver saw.
#[derive(Clone, Copy)]
pub(crate) struct Received<'a> {
    pub(crate) arrivals: &'a [Arrival],
    /// When it stood still.
    pub(crate) stalls: &'a [Stall],
    /// Which part of each period is judged, in per cent.
    pub(crate) window_percent: u32,
}

/// What it saw of one destination.
#[derive(Clone, Copy)]
struct OfOne<'a> {
    arrived: &'a [receiver::Arrival],
    /// Those that are longer than the destination's margin.
    stalls: &'a Stalls,
    window_percent: u32,
    /// It stands for all destinations.
    is_drawn: bool,
}

/// Which destinations stand for all: all, where so many are judged.
fn drawn(settings: &Settings) -> BTreeSet<u32> {
    let mut numbers: Vec<u32> = (0..settings.destinations).collect();
    if numbers.len() > MAX_JUDGED {
        numbers.shuffle(&mut StdRng::seed_from_u64(settings.seed));
        numbers.truncate(DRAWN);
    }
    numbers.into_iter().collect()
}

/// Judges all destinations, or of many those that are drawn and those with the most
/// arrivals.
pub(crate) async fn judge(
    settings: &Settings,
    destinations: &[(Uuid, u16)],
    received: Received<'_>,
    sender: Option<Sender<'_>>,
) -> anyhow::Result<Verdict> {
    let mut by_destination: HashMap<u32, Vec<receiver::Arrival>> = HashMap::new();
    for arrival in received.arrivals {
        let of = by_destination.entry(arrival.destination()).or_default();
        of.push(as_received(*arrival));
    }
    let drawn = drawn(settings);
    let mut numbers: Vec<u32> = (0..settings.destinations).collect();
    let most = |number: &u32| Reverse(by_destination.get(number).map_or(0, Vec::len));
    numbers.sort_by_key(|number| (!drawn.contains(number), most(number)));
    numbers.truncate(MAX_JUDGED);
    let id_of = |number: u32| DestinationId(destinations[number as usize].0);
    let ids: Vec<_> = numbers.iter().map(|number| id_of(*number)).collect();
    let margins = match &sender {
        Some(sender) => margins(sender.stored, &ids).await?,
        None => HashMap::new(),
    };
    let mut verdict = Verdict::default();
    for number in numbers {
        let id = id_of(number);
        let arrived = by_destination.remove(&number).unwrap_or_default();
        let margin = margins.get(&id).copied().unwrap_or(USUAL_MARGIN);
        let stalls = Stalls::longer_than(margin, received.stalls.iter().copied());
        let of_it = OfOne {
            arrived: &arrived,
            stalls: &stalls,
            window_percent: received.window_percent,
            is_drawn: drawn.contains(&number),
        };
        let judged = match &sender {
            Some(sender) => {
                with_ledger(settings, (number, id), of_it, sender, &mut verdict).await?
            }
            None => without_ledger(settings, number, of_it),
        };
        verdict.judged += 1;
        verdict.early_arrivals += judged.at_receiver.early_arrivals;
        verdict.explained_arrivals += judged.at_receiver.explained;
        verdict.fullest_whole_window =
            (verdict.fullest_whole_window).max(judged.worst_in_whole_period);
        verdict.worst.push(judged);
    }
    verdict
        .worst
        .sort_by_key(|judged| Reverse(judged.badness()));
    verdict.worst.truncate(MAX_LISTED);
    Ok(verdict)
}

/// How long a stall of a receiver has to be to explain anything, by destination: longer
/// than the margin that its windows are planned with now, which answers for jitter up to
/// there. Never less than a ticker can tell.
pub(crate) async fn margins(
    stored: &dyn Stored,
    ids: &[DestinationId],
) -> anyhow::Result<HashMap<DestinationId, Duration>> {
    let mut margins = HashMap::new();
    for ids in ids.chunks(MAX_SURVEYED) {
        let standings = stored.survey_standings(ids).await;
        for one in standings.context("ask for the margins")? {
            let margin = one.policy.margin_in_force().unwrap_or_default();
            margins.insert(one.destination, margin.max(USUAL_MARGIN));
        }
    }
    Ok(margins)
}

impl Judged {
    /// How far beyond its limit it was, in per cent; without one, how much
    /// came at once.
    fn badness(&self) -> (u64, u64, u64, u64) {
        let percent = |starts: u64| match self.bound {
            Some(bound) => starts * 100 / bound.max(1),
            None => 0,
        };
        let sender = self.worst_at_sender.unwrap_or(0);
        (
            self.at_receiver.early_arrivals,
            self.early_starts,
            percent(self.worst_at_receiver.max(sender)),
            self.worst_at_receiver,
        )
    }
}

async fn with_ledger(
    settings: &Settings,
    (number, id): (u32, DestinationId),
    of_it: OfOne<'_>,
    sender: &Sender<'_>,
    verdict: &mut Verdict,
) -> anyhow::Result<Judged> {
    let between = (sender.began, sender.until);
    let ledger = ledger(settings, (id, of_it.is_drawn), sender, verdict).await?;
    let plan = Plan {
        name: number.to_string(),
        limits: settings.limit.settings(),
        behaviour: Behaviour::ACCEPT,
        events: u32::try_from(of_it.arrived.len()).unwrap_or(u32::MAX),
    };
    let arrived_refs: Vec<_> = of_it.arrived.iter().collect();
    let receivers = Receivers {
        stalls: of_it.stalls,
        ahead: sender.ahead,
        window_percent: of_it.window_percent,
    };
    let at_receiver = (receivers, arrived_refs.as_slice());
    let one = DestinationVerdict::new((&plan, id), &ledger, at_receiver, between);
    verdict.early_starts = Some(verdict.early_starts.unwrap_or(0) + one.early_starts);
    let mut judged = without_ledger(settings, number, of_it);
    judged.early_starts = one.early_starts;
    judged.at_receiver = one.at_receiver;
    let fullest = one.windows.iter().max_by_key(|window| {
        let bound = window.bound.unwrap_or(u64::MAX).max(1);
        window.largest_sliding * 1_000 / bound
    });
    match fullest {
        Some(window) => {
            judged.period_seconds = window.period.duration().as_secs();
            judged.bound = window.bound;
            judged.worst_at_sender = Some(window.largest_sliding);
            judged.worst_at_receiver = window.largest_at_receiver;
            let settled = (sender.began, sender.until - LATENCY_ALLOWANCE);
            let share = ledger.share(settled, Duration::ZERO).percent();
            judged.share_percent = Some(share);
            let least = verdict.least_share_percent.unwrap_or(100.0);
            verdict.least_share_percent = Some(least.min(share));
        }
        None => {
            let starts = ledger.rows.iter();
            let mut starts: Vec<_> = starts
                .filter_map(|row| Some((row.started_at?, row.attempt)))
                .collect();
            starts.sort_unstable_by_key(|(at, _)| *at);
            judged.worst_at_sender = Some(largest_sliding(&starts, Period::Second).starts);
        }
    }
    Ok(judged)
}

/// What one destination has had since it is ours, how well that was, and of one that is
/// drawn how late.
async fn ledger(
    settings: &Settings,
    (id, is_drawn): (DestinationId, bool),
    sender: &Sender<'_>,
    verdict: &mut Verdict,
) -> anyhow::Result<Ledger> {
    // What started in the window before may hold what comes first.
    let began = sender.began - lateness::reach(settings);
    let between = (began, sender.until);
    let ledger = Ledger::read(sender.stored, id, between).await;
    let mut ledger = ledger.context("read a ledger")?;
    let rows = Some(&ledger.rows).filter(|_| is_drawn);
    let late = rows.map(|rows| lateness::of_starts(settings, rows, sender.began));
    verdict.lates_us.extend(late.into_iter().flatten());
    let is_ours = |row: &LedgerRow| row.started_at.is_none_or(|started| started >= sender.began);
    ledger.rows.retain(is_ours);
    for row in ledger.rows.iter().filter(|_| is_drawn) {
        let waited = row.started_at.map(|started| started.since(row.due_at));
        verdict
            .waits_us
            .extend(waited.map(|waited| waited.as_micros() as u64));
    }
    if settings.shape != Shape::Slow {
        let unfounded = ledger.rows.iter().filter(|row| is_unfounded(row)).count() as u64;
        verdict.unfounded_failures = Some(verdict.unfounded_failures.unwrap_or(0) + unfounded);
    }
    Ok(ledger)
}

/// Our receivers accept every connection and answer every request, if with a 500.
fn is_unfounded(row: &LedgerRow) -> bool {
    row.state == AttemptState::Failed && row.status.is_none()
}

/// One destination, by what its receiver saw alone: its margin is not known.
pub(crate) fn at_receiver(settings: &Settings, number: u32, received: Received<'_>) -> Judged {
    let of_it = received.arrivals.iter().copied();
    let of_it = of_it.filter(|arrival| arrival.destination() == number);
    let arrived: Vec<_> = of_it.map(as_received).collect();
    let stalls = Stalls::longer_than(USUAL_MARGIN, received.stalls.iter().copied());
    let of_it = OfOne {
        arrived: &arrived,
        stalls: &stalls,
        window_percent: received.window_percent,
        is_drawn: false,
    };
    without_ledger(settings, number, of_it)
}

fn without_ledger(settings: &Settings, number: u32, of_it: OfOne<'_>) -> Judged {
    let (bound, period) = match loosest(settings) {
        Limit::Per(max, period) => (Some(u64::from(max)), period),
        Limit::Unlimited => (None, Period::Second),
    };
    let read_at: Vec<_> = (of_it.arrived.iter())
        .map(receiver::Arrival::read_at)
        .collect();
    let in_force = loosest(settings).settings();
    let history = [InForce::new(
        Timestamp::MIN,
        &in_force,
        DestinationState::Active,
    )];
    let by = (of_it.stalls, of_it.window_percent);
    let verdict = judge_received(&history, &read_at, by);
    let fullest = match bound {
        Some(_) => verdict.fullest(period).0,
        None => {
            let arrived: Vec<_> = read_at.iter().map(|at| (*at, AttemptId(0))).collect();
            largest_sliding(&arrived, period).starts
        }
    };
    let shorter = bound.is_some() && of_it.window_percent < WHOLE_WINDOWS;
    let in_whole_period = || {
        let whole = judge_received(&history, &read_at, (of_it.stalls, WHOLE_WINDOWS));
        whole.fullest(period).0
    };
    Judged {
        destination: number,
        period_seconds: period.duration().as_secs(),
        bound,
        worst_at_sender: None,
        worst_at_receiver: fullest,
        worst_in_whole_period: shorter.then(in_whole_period),
        at_receiver: AtReceiver::new(&verdict, &read_at, of_it.window_percent),
        early_starts: 0,
        share_percent: None,
        arrivals: of_it.arrived.len() as u64,
    }
}

/// The limit that no window may exceed, whenever it was changed.
fn loosest(settings: &Settings) -> Limit {
    match (settings.limit, settings.limit_then) {
        (limit, None) => limit,
        (Limit::Per(one, period), Some(Limit::Per(then, of))) if of == period => {
            Limit::Per(one.max(then), period)
        }
        (_, Some(_)) => Limit::Unlimited,
    }
}

fn as_received(arrival: Arrival) -> receiver::Arrival {
    receiver::Arrival {
        destination: arrival.destination(),
        event: Some(Uuid::from_u128(arrival.event.into())),
        at_us: arrival.at_us.unsigned_abs(),
        body_bytes: 0,
    }
}

/// Attempts that still wait or are on their way, of all destinations.
pub(crate) async fn pending(
    stored: &dyn Stored,
    destinations: &[(Uuid, u16)],
) -> anyhow::Result<u64> {
    let ids: Vec<_> = destinations
        .iter()
        .map(|(id, _)| DestinationId(*id))
        .collect();
    let mut waiting = 0;
    for ids in ids.chunks(MAX_JUDGED) {
        let backlogs = stored.backlogs(ids, u32::MAX >> 1).await?;
        waiting += backlogs.into_iter().map(u64::from).sum::<u64>();
    }
    Ok(waiting + u64::from(stored.fleet().await?.outstanding))
}

#[cfg(test)]
mod tests {
    use domain::policy::LimitSettings;
    use server::trial::{Embedded, per_second};

    use super::super::arrivals::Answer;
    use super::super::places::store;
    use super::super::settings::tests::settings;
    use super::*;

    const NEVER: &[(i64, i64)] = &[];

    /// A destination's worst windows, and what was over or explained.
    async fn judged(settings: Settings, stalls: &[(i64, i64)], arrivals: &[(i64, u32)]) -> Verdict {
        judged_in(WHOLE_WINDOWS, settings, stalls, arrivals).await
    }

    async fn judged_in(
        window_percent: u32,
        settings: Settings,
        stalls: &[(i64, i64)],
        arrivals: &[(i64, u32)],
    ) -> Verdict {
        let at = |(ms, destination): &(i64, u32)| {
            Arrival::new(ms * 1_000, 0, *destination, Answer::Taken)
        };
        let arrivals: Vec<_> = arrivals.iter().map(at).collect();
        let stall = |(from, until): &(i64, i64)| Stall {
            from: Timestamp::from_millis(*from),
            until: Timestamp::from_millis(*until),
        };
        let stalls: Vec<_> = stalls.iter().map(stall).collect();
        let received = Received {
            arrivals: &arrivals,
            stalls: &stalls,
            window_percent,
        };
        let ids = [(Uuid::nil(), 0); 3];
        judge(&settings, &ids, received, None).await.unwrap()
    }

    fn two_a_second() -> Settings {
        Settings {
            destinations: 3,
            limit: Limit::Per(2, Period::Second),
            ..settings(Shape::Constant)
        }
    }

    #[tokio::test]
    async fn without_a_ledger_the_receivers_windows_are_judged() {
        let arrivals = [(0, 1), (100, 0), (200, 1), (900, 1), (1_100, 0)];
        let verdict = judged(two_a_second(), NEVER, &arrivals).await;
        assert_eq!((verdict.judged, verdict.early_starts), (3, None));
        assert_eq!((verdict.early_arrivals, verdict.explained_arrivals), (1, 0));
        let worst = &verdict.worst[0];
        assert_eq!(
            (worst.destination, worst.worst_at_receiver, worst.bound),
            (1, 3, Some(2))
        );
        assert_eq!(
            worst.at_receiver.over[0].to_string(),
            "3 arrivals within 1 s, 2 allowed, until 0.9 s"
        );
        let second = &verdict.worst[1];
        assert_eq!((second.destination, second.worst_at_receiver), (0, 1));
    }

    #[tokio::test]
    async fn what_the_receiver_held_up_itself_is_explained() {
        let arrivals = [(50, 1), (50, 1), (1_000, 1), (1_000, 1)];
        let verdict = judged(two_a_second(), &[(0, 50)], &arrivals).await;
        assert_eq!((verdict.early_arrivals, verdict.explained_arrivals), (0, 2));
        let elsewhere = judged(two_a_second(), &[(500, 550)], &arrivals).await;
        assert_eq!(elsewhere.early_arrivals, 2);
    }

    #[tokio::test]
    async fn a_stall_has_to_be_longer_than_the_destinations_margin() {
        let limits = LimitSettings {
            safety_margin: Some(0.25),
            ..per_second(2)
        };
        let plans = vec![
            Plan::flooded("set", limits, 0, 0),
            Plan::flooded("measured", per_second(2), 0, 0),
        ];
        let embedded = Embedded::set_up(plans).await.unwrap();
        let url = format!("sqlite:{}", embedded.file.display());
        let config = store(url.parse().unwrap());
        let stored = server::parts::open_to_read(&config).await.unwrap();
        let [set, measured] = [0, 1].map(|number: usize| embedded.trial.placed[number].id);
        let margins = margins(stored.as_ref(), &[set, measured]).await.unwrap();
        embedded.strike().await.unwrap();
        assert_eq!(margins[&set], Duration::from_millis(250));
        assert!(
            (USUAL_MARGIN..Duration::from_millis(250)).contains(&margins[&measured]),
            "{margins:?}"
        );
        let arrivals =
            [50, 50, 1_000, 1_000].map(|ms| Arrival::new(ms * 1_000, 0, 0, Answer::Taken));
        let noted = [Stall {
            from: Timestamp::from_millis(0),
            until: Timestamp::from_millis(50),
        }];
        let arrived = arrivals.map(as_received);
        let early = |margin: Duration| {
            let of_it = OfOne {
                arrived: &arrived,
                stalls: &Stalls::longer_than(margin, noted),
                window_percent: WHOLE_WINDOWS,
                is_drawn: false,
            };
            let judged = without_ledger(&two_a_second(), 0, of_it);
            judged.at_receiver.early_arrivals
        };
        assert_eq!(early(margins[&measured]), 0);
        assert_eq!(early(margins[&set]), 2);
    }

    #[tokio::test]
    async fn beside_shorter_windows_the_whole_period_is_looked_at_too() {
        let arrivals = [(0, 1), (500, 1), (980, 1), (0, 2), (1_990, 2)];
        let whole = judged(two_a_second(), NEVER, &arrivals).await;
        assert_eq!(
            (whole.early_arrivals, whole.fullest_whole_window),
            (1, None)
        );
        let shorter = judged_in(97, two_a_second(), NEVER, &arrivals).await;
        assert_eq!(shorter.early_arrivals, 0);
        assert_eq!(shorter.fullest_whole_window, Some(3));
    }

    #[test]
    fn all_stand_for_all_and_of_many_those_that_the_seed_draws() {
        let of = |destinations, seed| {
            drawn(&Settings {
                destinations,
                seed,
                ..two_a_second()
            })
        };
        assert_eq!(of(2_000, 1), (0..2_000).collect::<BTreeSet<u32>>());
        let some = of(10_000, 1);
        assert_eq!((some.len(), &some), (DRAWN, &of(10_000, 1)));
        assert_ne!(some, of(10_000, 2));
        let late_ones = some.iter().filter(|number| **number >= 5_000).count();
        assert!((400..600).contains(&late_ones), "{late_ones}");
    }

    #[tokio::test]
    async fn of_many_the_busiest_are_judged_beside_those_that_are_drawn() {
        let many = Settings {
            destinations: 10_000,
            ..two_a_second()
        };
        let busiest = (0..10_000).find(|number| !drawn(&many).contains(number));
        let busiest = busiest.unwrap();
        let arrivals = [0, 1, 2].map(|ms| Arrival::new(ms, 0, busiest, Answer::Taken));
        let received = Received {
            arrivals: &arrivals,
            stalls: &[],
            window_percent: WHOLE_WINDOWS,
        };
        let ids = vec![(Uuid::nil(), 0); 10_000];
        let verdict = judge(&many, &ids, received, None).await.unwrap();
        assert_eq!(verdict.judged, MAX_JUDGED as u64);
        assert_eq!(verdict.worst[0].destination, busiest);
    }

    #[tokio::test]
    async fn where_a_change_cannot_be_placed_the_looser_limit_holds() {
        let then = |limit| Settings {
            limit_then: Some(limit),
            ..two_a_second()
        };
        let arrivals = [(0, 1), (200, 1), (900, 1)];
        let early = async |settings| judged(settings, NEVER, &arrivals).await.early_arrivals;
        assert_eq!(early(then(Limit::Per(1, Period::Second))).await, 1);
        assert_eq!(early(then(Limit::Per(3, Period::Second))).await, 0);
        assert_eq!(early(then(Limit::Per(1, Period::Minute))).await, 0);
    }
}
