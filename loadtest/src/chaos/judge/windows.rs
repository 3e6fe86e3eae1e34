//! No window over: in the ledger, at the workers' first byte, at the
//! receivers.
//!
//! The **ledger** is judged exactly, by the times that the store recorded, of claims and
//! of starts, whatever its clock did meanwhile: the rule compares recorded times, so it
//! holds on a clock that is set, too. A change is in force for claims at once; starts that
//! had been claimed before it come after it.
//!
//! The **wire** is judged by the workers' own log of what they are about to send, on the
//! wire's clock (see `timeline`), in windows of the whole period: what has been claimed
//! is sent no earlier than its slot, and counts from its first byte on, if not from later.
//! A change of limits reaches the wire by as much later as a claim may take to be sent.
//! Only what the plan's faults explain is allowed for. What a worker had claimed before it
//! was stopped, and sent when it went on, is left out. A step of the store's clock is noted
//! before it is made, so a request of the moments after it may be one of before.
//!
//! **Receivers** are judged by when they read a request, in nearly whole windows: their
//! machine is full of processes that are killed and stopped, and a request may wait for it
//! on its way. What their own stalls explain is no finding, by the rule of
//! [`domain::compliance::AtReceiver`]. What a worker was sending when it was stopped is left
//! out: it arrives when that worker goes on, even after its own retry. Destinations behind
//! a proxy are judged at the worker only.
//!
//! A batch is one start, that of its first event; the others are carried.
//!
//! A **limit group** is judged as a destination is, by what all of its members claimed,
//! started and got; at receivers where no proxy is before any of them.

use std::collections::HashMap;
use std::time::Duration;

use domain::admission::MAX_CLAIM_TO_SEND;
use domain::compliance::{self, Arrival, AtReceiver, InForce, Stall, Stalls, Start, USUAL_MARGIN};
use domain::destination::DestinationState;
use domain::ids::AttemptId;
use domain::limit::Period;
use domain::time::Timestamp;
use promises::{no_window_is_over, no_window_of_arrivals_is_over, no_window_of_sends_is_over};
use uuid::Uuid;

use super::timeline::Timeline;
use super::{Case, Evidence, Judgement};
use crate::chaos::log::{Change, Grouped, Receipt, Row, Send};
use crate::faults::LOOPBACK;

/// Windows of so much of a period are judged at receivers, in per cent: of a second, all
/// but what a request on the loopback may take.
const AT_RECEIVERS: u32 = 95;

/// Windows of the whole period.
const WHOLE: u32 = 100;

/// What a limit is of: a destination, or all in a limit group.
struct Limited<'a> {
    name: &'a str,
    /// Their numbers and ids.
    of: Vec<(u32, Uuid)>,
    changes: Vec<&'a Change>,
    /// Before one of them there is a proxy.
    proxied: bool,
}

/// All that is looked at for each.
struct Look<'a> {
    case: &'a Case<'a>,
    timeline: &'a Timeline,
    delays: Delays,
    of_attempt: HashMap<i64, &'a Row>,
}

pub(super) fn judge(case: &Case<'_>, timeline: &Timeline, judgement: &mut Judgement) {
    let evidence = case.evidence;
    let look = Look {
        case,
        timeline,
        delays: Delays::new(case),
        of_attempt: (evidence.rows.iter())
            .map(|row| (row.attempt, row))
            .collect(),
    };
    let (mut timely, mut all) = (0, 0);
    for (number, tried) in (0_u32..).zip(&evidence.run.destinations) {
        let mut changes: Vec<_> = (evidence.changes.iter())
            .filter(|change| change.destination == tried.id)
            .collect();
        changes.sort_by_key(|change| change.from);
        let destination = Limited {
            name: &tried.name,
            of: vec![(number, tried.id)],
            changes,
            proxied: tried.proxied,
        };
        destination.judge_claims(case, judgement);
        destination.judge_starts(case, judgement);
        let (its_timely, its) = look.judge_wire(&destination, judgement);
        (timely, all) = (timely + its_timely, all + its);
    }
    for group in &evidence.run.groups {
        let allowed = of_group(group, evidence);
        let group = Limited {
            name: &group.name,
            of: (0_u32..)
                .zip(&evidence.run.destinations)
                .filter(|(_, tried)| group.members.contains(&tried.id))
                .map(|(number, tried)| (number, tried.id))
                .collect(),
            changes: vec![&allowed],
            proxied: (evidence.run.destinations.iter())
                .any(|tried| tried.proxied && group.members.contains(&tried.id)),
        };
        // Each is within the group's limit when it is admitted, and claims no later than it
        // starts: the proof is the destinations', over all members.
        group.judge_claims(case, judgement);
        group.judge_starts(case, judgement);
        look.judge_wire(&group, judgement);
    }
    judgement.figures.timely_receipts_percent = (timely * 100).checked_div(all).unwrap_or(100);
}

/// What a group allows, from before the first of its members was there.
fn of_group(group: &Grouped, evidence: &Evidence) -> Change {
    let of_members = (evidence.changes.iter())
        .filter(|change| group.members.contains(&change.destination))
        .map(|change| change.from);
    Change {
        destination: Uuid::nil(),
        from: of_members.min().unwrap_or_default(),
        effective: group.limits.as_settings(),
        state: DestinationState::Active,
    }
}

/// What makes a request arrive late that was sent in time, and a send late that was
/// claimed in time.
struct Delays {
    /// The receivers stood still.
    stalls: Stalls,
    /// A worker was stopped, from when until when.
    stops: Vec<(i64, i64)>,
}

impl Delays {
    fn new(case: &Case<'_>) -> Self {
        let of = |what: &'static str, who: &'static str| {
            let happenings = case.evidence.happenings.iter();
            happenings
                .filter(move |one| one.what == what && one.kind == who)
                .map(|one| (one.at_us - one.by_us, one.at_us))
        };
        let stall = |(from, until)| Stall {
            from: Timestamp::from_micros(from),
            until: Timestamp::from_micros(until),
        };
        Self {
            stalls: Stalls::longer_than(USUAL_MARGIN, of("lag", "").map(stall)),
            stops: of("stopped", "worker").collect(),
        }
    }

    /// Claimed before a worker was stopped, and sent as it went on.
    fn held(&self, timeline: &Timeline, send: &Send, row: &Row) -> bool {
        let claimed = row.claimed_at.map(|at| timeline.shared(at));
        let spans = |(from, until): &(i64, i64)| {
            let went_on = *until..=*until + LOOPBACK;
            went_on.contains(&send.at_us) && claimed.is_some_and(|at| at <= *from + LOOPBACK)
        };
        self.stops.iter().any(spans)
    }

    /// Sent as a worker was stopped, and there after it went on.
    fn was_stopped(&self, case: &Case<'_>, receipt: &Receipt) -> bool {
        let key = receipt.event.zip(receipt.try_number);
        let Some(sends) = key.and_then(|key| case.sends.get(&key)) else {
            return false;
        };
        let spans = |sent: i64, (from, until): (i64, i64)| {
            sent.abs_diff(from) <= LOOPBACK.unsigned_abs() && receipt.at_us >= until
        };
        (self.stops.iter()).any(|stop| sends.iter().any(|sent| spans(*sent, *stop)))
    }
}

impl Look<'_> {
    /// By first bytes, and at receivers; how many were read there while the receivers did
    /// not stand still, and how many in all.
    fn judge_wire(&self, limited: &Limited<'_>, judgement: &mut Judgement) -> (usize, usize) {
        let (case, timeline, delays) = (self.case, self.timeline, &self.delays);
        let row = |send: &Send| self.of_attempt.get(&send.attempt).copied();
        let sends = (case.evidence.sends.iter())
            .filter(|send| !send.carried)
            .filter_map(|send| Some((send, row(send)?)))
            .filter(|(send, row)| limited.has(row) && !delays.held(timeline, send, row))
            .map(|(send, _)| timeline.seen(Arrival::at(Timestamp::from_micros(send.at_us))))
            .collect();
        limited.judge_wire(("sent", Duration::ZERO, WHOLE), sends, timeline, judgement);
        if limited.proxied {
            return (0, 0);
        }
        let (mut timely, mut all) = (0, 0);
        let numbers: Vec<u32> = limited.of.iter().map(|(number, _)| *number).collect();
        let receipts: Vec<_> = (case.evidence.receipts.iter())
            .filter(|receipt| numbers.contains(&receipt.destination) && !receipt.carried)
            .inspect(|_| all += 1)
            .filter(|receipt| !delays.was_stopped(case, receipt))
            .map(|receipt| {
                let read_at = Timestamp::from_micros(receipt.at_us);
                delays.stalls.arrival(read_at)
            })
            .inspect(|arrival| timely += usize::from(arrival.earliest == arrival.read_at))
            .map(|arrival| timeline.seen(arrival))
            .collect();
        let on_the_way = Duration::from_micros(LOOPBACK.unsigned_abs());
        let seen = ("received", on_the_way, AT_RECEIVERS);
        limited.judge_wire(seen, receipts, timeline, judgement);
        (timely, all)
    }
}

impl Limited<'_> {
    fn has(&self, row: &Row) -> bool {
        self.of.iter().any(|(_, id)| *id == row.destination)
    }

    /// What its attempts were at these times in the ledger.
    fn ledger(&self, case: &Case<'_>, at: fn(&Row) -> Option<i64>) -> Vec<Start> {
        let mut starts: Vec<Start> = (case.evidence.rows.iter())
            .filter(|row| self.has(row) && row.carried_by.is_none())
            .filter_map(|row| Some((Timestamp::from_micros(at(row)?), AttemptId(row.attempt))))
            .collect();
        starts.sort_unstable();
        starts
    }

    fn history(&self) -> Vec<InForce> {
        let in_force = |change: &&Change| {
            let from = Timestamp::from_micros(change.from);
            InForce::new(from, &change.effective, change.state)
        };
        self.changes.iter().map(in_force).collect()
    }

    fn judge_claims(&self, case: &Case<'_>, judgement: &mut Judgement) {
        let claims = self.ledger(case, |row| row.claimed_at);
        let claims = compliance::judge(&self.history(), &claims);
        let judged = no_window_is_over(&claims).map_err(|broken| broken.of(self.name));
        judgement.keep("window", judged);
    }

    fn judge_starts(&self, case: &Case<'_>, judgement: &mut Judgement) {
        let starts = self.ledger(case, |row| row.started_at);
        let verdict = compliance::judge_sends(&self.history(), &starts);
        for limit in verdict
            .limits
            .iter()
            .filter(|limit| limit.period == Period::Second)
        {
            let bound = limit.bound.unwrap_or(u64::MAX).max(1);
            let percent = limit.sliding.starts.saturating_mul(100) / bound;
            let fullest = &mut judgement.figures.fullest_window_percent;
            *fullest = percent.max(*fullest);
        }
        let judged = no_window_of_sends_is_over(&verdict).map_err(|broken| broken.of(self.name));
        judgement.keep("window", judged);
    }

    /// Windows of so much of each period, by what was in force on the wire's clock.
    fn judge_wire(
        &self,
        (seen, on_the_way, window_percent): (&str, Duration, u32),
        mut arrivals: Vec<Arrival>,
        timeline: &Timeline,
        judgement: &mut Judgement,
    ) {
        arrivals.sort_unstable_by_key(|arrival| (arrival.read_at, arrival.earliest));
        let of = AtReceiver {
            history: &self.on_the_wire(timeline),
            later: MAX_CLAIM_TO_SEND + on_the_way,
            window_percent,
        };
        let verdict = of.judge(&arrivals);
        judgement.figures.explained_by_stalls += verdict.explained();
        let judged = no_window_of_arrivals_is_over(&verdict);
        let whose = format!("{}, {seen}, {window_percent} % of the period", self.name);
        judgement.keep("wire", judged.map_err(|broken| broken.of(whose)));
    }

    /// What was in force when, by the wire's clock.
    fn on_the_wire(&self, timeline: &Timeline) -> Vec<InForce> {
        let mut latest = i64::MIN;
        let entry = |change: &&Change| {
            latest = latest.max(timeline.wire(timeline.shared(change.from)));
            let from = Timestamp::from_micros(latest);
            InForce::new(from, &change.effective, change.state)
        };
        self.changes.iter().map(entry).collect()
    }
}
