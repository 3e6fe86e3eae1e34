//! Each request is signed by the secrets that were in force at its start: by all of
//! them, and by none that had ended.
//!
//! Secrets are noted as they are committed; a start that was under way then may
//! have the ones before. See [`super::holds`].

use std::collections::HashMap;

use uuid::Uuid;

use super::holds::UNDER_WAY;
use super::timeline::Timeline;
use super::{Case, Judgement};
use crate::chaos::log::Receipt;

/// Microseconds in a second.
const SECOND: i64 = 1_000_000;

/// A secret.
#[derive(Debug, Clone, Copy)]
struct Life {
    /// When it was noted first, and when its end was.
    from: i64,
    end_noted_at: i64,
    end: Option<i64>,
}

pub(super) fn judge(case: &Case<'_>, timeline: &Timeline, judgement: &mut Judgement) {
    let mut lives: HashMap<Uuid, HashMap<Uuid, Life>> = HashMap::new();
    for note in &case.evidence.secrets {
        let of_destination = lives.entry(note.destination).or_default();
        let life = of_destination.entry(note.secret).or_insert(Life {
            from: note.noted_at,
            end_noted_at: note.noted_at,
            end: None,
        });
        if note.expires_at.is_some() && note.expires_at != life.end {
            (life.end, life.end_noted_at) = (note.expires_at, note.noted_at);
        }
    }
    let called: HashMap<Uuid, Uuid> = (case.evidence.known.iter())
        .map(|known| (known.secret, known.called))
        .collect();
    let rotations = lives.values().map(|of_one| of_one.len() - 1).sum::<usize>();
    judgement.figures.rotations = rotations as u64;
    for receipt in &case.evidence.receipts {
        let place = case
            .evidence
            .run
            .destinations
            .get(receipt.destination as usize);
        let Some(lives) = place.and_then(|tried| lives.get(&tried.id)) else {
            continue;
        };
        let Some(start) = start(case, receipt) else {
            continue;
        };
        // Of one that a request added whose answer was lost, after all looks at the
        // store, nobody knows which it is.
        let is_known = lives.keys().all(|secret| called.contains_key(secret));
        if timeline.was_twice(start) || !is_known {
            continue;
        }
        for (secret, life) in lives {
            let signs = (called.get(secret)).is_some_and(|name| receipt.signed_by.contains(name));
            if let Some(how) = life.problem(start, signs) {
                judgement.find("signature", || {
                    format!(
                        "event {:?}, started at {start} us, {how} {secret}: {life:?}",
                        receipt.event
                    )
                });
            }
        }
    }
}

impl Life {
    fn problem(self, start: i64, signs: bool) -> Option<&'static str> {
        let is_over = self.end.is_some_and(|end| start >= end);
        if signs && is_over && start > self.end_noted_at + UNDER_WAY {
            return Some("is signed by a secret that had ended,");
        }
        let had_begun = start > self.from + UNDER_WAY;
        (!signs && !is_over && had_begun).then_some("is not signed by a secret in force,")
    }
}

/// Of the request, by the ledger; `None` where there may be several.
fn start(case: &Case<'_>, receipt: &Receipt) -> Option<i64> {
    if receipt.carried {
        return None;
    }
    let rows = case.rows(receipt.event?).iter();
    let of_try = rows.filter(|row| Some(row.try_number) == receipt.try_number);
    let starts = of_try.filter_map(|row| row.claimed_at);
    let mut starts = starts.filter(|start| Some(start.div_euclid(SECOND)) == receipt.timestamp);
    let start = starts.next()?;
    starts.next().is_none().then_some(start)
}
