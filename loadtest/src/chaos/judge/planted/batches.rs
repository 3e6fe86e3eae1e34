//! Several events in one request.

use super::*;

/// Three more events of destination 3, all carried by the request of event 7:
/// six starts in its second would be over, of two.
fn batch(evidence: &mut Evidence) {
    let at = time_of(7);
    for number in 1_000..1_003 {
        deliver(evidence, number, 3, at);
        let leader = evidence.rows[7].attempt;
        evidence.rows.last_mut().unwrap().carried_by = Some(leader);
        let send = evidence.sends.last_mut().unwrap();
        (send.attempt, send.carried) = (leader, true);
        evidence.receipts.last_mut().unwrap().carried = true;
    }
}

#[test]
fn a_batch_is_one_start() {
    let sound = broken(batch);
    assert!(sound.is_empty(), "{sound:?}");
    let apart = broken(|evidence| {
        batch(evidence);
        for row in &mut evidence.rows {
            row.carried_by = None;
        }
    });
    assert_eq!(apart, ["ledger", "window"]);
}

#[test]
fn a_batch_that_lacks_an_event_is_found() {
    let lacks = broken(|evidence| {
        batch(evidence);
        evidence.receipts.pop();
    });
    assert_eq!(lacks, ["ledger", "lost"]);
}

#[test]
fn an_event_that_its_leader_did_not_carry_is_found() {
    let by_another = broken(|evidence| {
        batch(evidence);
        evidence.rows.last_mut().unwrap().carried_by = Some(1);
    });
    assert_eq!(by_another, ["ledger"]);
}
