//! The ledger, the workers' sends and the receivers' receipts are three
//! accounts of the same requests; and what arrived is what was accepted.

use std::collections::{HashMap, HashSet};

use domain::attempt::AttemptState;
use promises::every_request_is_signed;
use uuid::Uuid;

use super::{Case, Judgement};
use crate::chaos::log::{Receipt, Row, Said, Send};

/// Microseconds in a second.
const SECOND: i64 = 1_000_000;

pub(super) fn judge(case: &Case<'_>, judgement: &mut Judgement) {
    judge_sends(case, judgement);
    judge_rows(case, judgement);
    let bodies = Bodies::new(case);
    for receipt in &case.evidence.receipts {
        judge_receipt(case, &bodies, receipt, judgement);
    }
    judge_posts(case, judgement);
}

/// Every send is of an attempt that the ledger says was sent, once.
fn judge_sends(case: &Case<'_>, judgement: &mut Judgement) {
    let rows: HashMap<i64, &Row> = (case.evidence.rows.iter())
        .map(|row| (row.attempt, row))
        .collect();
    let mut seen = HashSet::new();
    for send in &case.evidence.sends {
        let row = match send.carried {
            true => carried(case, send),
            false => rows.get(&send.attempt),
        };
        let agrees = row.is_some_and(|row| {
            row.event == send.event
                && row.try_number == send.try_number
                && row.started_at.is_some()
                && row.state != AttemptState::NotSent
        });
        if !agrees {
            let state = row.map_or("absent", |row| row.state.as_str());
            judgement.find("ledger", || {
                format!(
                    "a worker sent attempt {}, which is {state} in the ledger",
                    send.attempt
                )
            });
        }
        if !seen.insert((send.attempt, send.event)) {
            judgement.find("ledger", || {
                format!("attempt {} was sent twice", send.attempt)
            });
        }
    }
}

/// The attempt that the one that was sent carried.
fn carried<'a>(case: &'a Case<'_>, send: &Send) -> Option<&'a &'a Row> {
    let rows = case.rows(send.event).iter();
    rows.into_iter()
        .find(|row| row.carried_by == Some(send.attempt))
}

/// Every success was sent and received.
fn judge_rows(case: &Case<'_>, judgement: &mut Judgement) {
    for row in &case.evidence.rows {
        if row.state != AttemptState::Succeeded {
            continue;
        }
        let sent = case.sends.contains_key(&(row.event, row.try_number));
        let arrived = (case.receipts(row.event).iter())
            .any(|receipt| receipt.try_number == Some(row.try_number));
        if !sent || !arrived {
            judgement.find("ledger", || {
                format!(
                    "attempt {} of event {} succeeded; sent: {sent}, received: {arrived}",
                    row.attempt, row.event
                )
            });
        }
    }
}

/// A payload became at most one event, however often it was posted: with the
/// same idempotency key each time.
fn judge_posts(case: &Case<'_>, judgement: &mut Judgement) {
    let mut posted: HashMap<&str, u32> = HashMap::new();
    for post in case
        .evidence
        .posts
        .iter()
        .filter(|post| post.said == Said::Posted)
    {
        posted.insert(&post.body, 1);
    }
    for (event, receipts) in &case.receipts {
        if case.notes.contains_key(event) {
            continue;
        }
        let Some(body) = receipts.first().map(|receipt| receipt.body.as_str()) else {
            continue;
        };
        let left = posted.entry(body).or_default();
        match left.checked_sub(1) {
            Some(fewer) => *left = fewer,
            None => judgement.find("ledger", || {
                format!("event {event} was posted by nobody, or is one again that was")
            }),
        }
    }
}

/// What bodies may be.
struct Bodies<'a> {
    /// All that were posted.
    posted: HashSet<&'a str>,
    /// Where each destination is, by its number.
    destinations: Vec<Uuid>,
}

impl<'a> Bodies<'a> {
    fn new(case: &Case<'a>) -> Self {
        let evidence = case.evidence;
        Self {
            posted: evidence
                .posts
                .iter()
                .map(|post| post.body.as_str())
                .collect(),
            destinations: evidence.run.destinations.iter().map(|one| one.id).collect(),
        }
    }
}

fn judge_receipt(
    case: &Case<'_>,
    bodies: &Bodies<'_>,
    receipt: &Receipt,
    judgement: &mut Judgement,
) {
    judgement.figures.signed += u64::from(receipt.signature.is_some());
    if receipt.verified {
        judgement.figures.verified += 1;
    }
    let (event, signature) = (receipt.event, &receipt.signature);
    let of = format!("of event {event:?} with signature {signature:?}");
    judgement.keep("signature", every_request_is_signed(of, receipt.verified));
    let (Some(event), Some(try_number)) = (receipt.event, receipt.try_number) else {
        judgement.find("altered", || {
            format!(
                "a request without its headers at destination {}",
                receipt.destination
            )
        });
        return;
    };
    let posted = match (case.accepted.get(&event), case.notes.get(&event)) {
        (Some(post), _) => post.body == receipt.body,
        (None, Some(note)) => note.body == receipt.body,
        // Accepted, and the answer was lost: then it is one of the others.
        (None, None) => bodies.posted.contains(receipt.body.as_str()),
    };
    let first = case.receipts(event).first().map(|first| &first.body);
    if !posted || first != Some(&receipt.body) {
        judgement.find("altered", || {
            format!("the body of event {event}, try {try_number}, is not what was posted")
        });
    }
    let place = bodies.destinations.get(receipt.destination as usize);
    let rows = case
        .rows(event)
        .iter()
        .filter(|row| row.try_number == try_number);
    let rows: Vec<_> = rows.filter(|row| Some(&row.destination) == place).collect();
    if rows.is_empty() || !case.sends.contains_key(&(event, try_number)) {
        judgement.find("ledger", || {
            format!(
                "event {event}, try {try_number}, arrived at destination {}: {} such attempts \
                 in the ledger, and the workers' logs {} it",
                receipt.destination,
                rows.len(),
                if case.sends.contains_key(&(event, try_number)) {
                    "have"
                } else {
                    "lack"
                }
            )
        });
        return;
    }
    let starts = rows.iter().filter_map(|row| row.claimed_at);
    let mut seconds = starts.map(|at| at.div_euclid(SECOND));
    if !seconds.any(|second| Some(second) == receipt.timestamp) {
        judgement.find("altered", || {
            format!("event {event}, try {try_number}: its timestamp is no claim of it")
        });
    }
}
