//! What happened in each second.

use super::super::report::Second;
use super::{Deliveries, Evidence, between, ms};

/// The most seconds that a report lists.
const MAX_SECONDS: usize = 7_200;

/// Each second from the first event to the last delivery.
pub(super) fn seconds(evidence: &Evidence, deliveries: &Deliveries) -> Vec<Second> {
    let began_us = evidence.load_us.0;
    let mut seconds: Vec<Second> = Vec::new();
    let mut waits: Vec<Vec<u64>> = Vec::new();
    let mut note = |at_us: i64, count: fn(&mut Second), wait: Option<u64>| {
        let index = between(began_us, at_us) as usize / 1_000_000;
        if index >= MAX_SECONDS {
            return;
        }
        if index >= seconds.len() {
            seconds.resize(index + 1, Second::default());
            waits.resize(index + 1, Vec::new());
        }
        count(&mut seconds[index]);
        waits[index].extend(wait);
    };
    for (sent, first) in evidence.sent.iter().zip(&deliveries.first_us) {
        note(sent.due_us, |second| second.offered += 1, None);
        if sent.accepted_us > 0 {
            note(sent.accepted_us, |second| second.accepted += 1, None);
        }
        if let Some(first) = first {
            let wait = (sent.accepted_us > 0).then(|| between(sent.accepted_us, *first));
            note(*first, |second| second.delivered += 1, wait);
        }
    }
    let (mut accepted, mut delivered) = (0_u64, 0_u64);
    for (second, waits) in seconds.iter_mut().zip(&mut waits) {
        accepted += second.accepted;
        delivered += second.delivered;
        second.backlog = accepted.saturating_sub(delivered);
        waits.sort_unstable();
        second.p99_ms = ms(waits, 990);
    }
    seconds
}
