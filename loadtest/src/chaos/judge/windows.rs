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

use std::collections::HashMap;
use std::time::Duration;

use domain::admission::MAX_CLAIM_TO_SEND;
use domain::compliance::{self, Arrival, AtReceiver, InForce, Stall, Stalls, Start, USUAL_MARGIN};
use domain::ids::AttemptId;
use domain::limit::Period;
use domain::time::Timestamp;
use promises::{no_window_is_over, no_window_of_arrivals_is_over, no_window_of_sends_is_over};
use uuid::Uuid;

use super::timeline::Timeline;
use super::{Case, Judgement};
use crate::chaos::log::{Change, Receipt, Row, Send};

/// What a request on the loopback may take, in microseconds.
const LOOPBACK: i64 = 50_000;

/// Windows of so much of a period are judged at receivers, in per cent: of a second, all
/// but what a request on the loopback may take.
const AT_RECEIVERS: u32 = 95;

/// Windows of the whole period.
const WHOLE: u32 = 100;

/// One destination's evidence.
struct Destination<'a> {
    id: Uuid,
    name: &'a str,
    changes: Vec<&'a Change>,
}

pub(super) fn judge(case: &Case<'_>, timeline: &Timeline, judgement: &mut Judgement) {
    let evidence = case.evidence;
    let delays = Delays::new(case);
    let (mut timely, mut all) = (0, 0);
    let of_attempt: HashMap<i64, &Row> = (evidence.rows.iter())
        .map(|row| (row.attempt, row))
        .collect();
    for (number, tried) in (0_u32..).zip(&evidence.run.destinations) {
        let mut changes: Vec<_> = (evidence.changes.iter())
            .filter(|change| change.destination == tried.id)
            .collect();
        changes.sort_by_key(|change| change.from);
        let destination = Destination {
            id: tried.id,
            name: &tried.name,
            changes,
        };
        destination.judge_ledger(case, judgement);
        let row = |send: &Send| of_attempt.get(&send.attempt).copied();
        let sends = (evidence.sends.iter())
            .filter(|send| !send.carried)
            .filter_map(|send| Some((send, row(send)?)))
            .filter(|(send, row)| row.destination == tried.id && !delays.held(timeline, send, row))
            .map(|(send, _)| timeline.seen(Arrival::at(Timestamp::from_micros(send.at_us))))
            .collect();
        destination.judge_wire(("sent", Duration::ZERO, WHOLE), sends, timeline, judgement);
        if !tried.proxied {
            let receipts: Vec<_> = (evidence.receipts.iter())
                .filter(|receipt| receipt.destination == number && !receipt.carried)
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
            destination.judge_wire(seen, receipts, timeline, judgement);
        }
    }
    judgement.figures.timely_receipts_percent = (timely * 100).checked_div(all).unwrap_or(100);
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

impl Destination<'_> {
    fn judge_ledger(&self, case: &Case<'_>, judgement: &mut Judgement) {
        let ledger = |at: fn(&Row) -> Option<i64>| {
            let mut starts: Vec<Start> = (case.evidence.rows.iter())
                .filter(|row| row.destination == self.id && row.carried_by.is_none())
                .filter_map(|row| Some((Timestamp::from_micros(at(row)?), AttemptId(row.attempt))))
                .collect();
            starts.sort_unstable();
            starts
        };
        let history: Vec<_> = (self.changes.iter())
            .map(|change| {
                let from = Timestamp::from_micros(change.from);
                InForce::new(from, &change.effective, change.state)
            })
            .collect();
        let claims = compliance::judge(&history, &ledger(|row| row.claimed_at));
        let judged = no_window_is_over(&claims).map_err(|broken| broken.of(self.name));
        judgement.keep("window", judged);
        let verdict = compliance::judge_sends(&history, &ledger(|row| row.started_at));
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
