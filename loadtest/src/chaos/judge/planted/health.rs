//! Holds, breakers, those that are given up, and effective limits.

use super::*;
use crate::chaos::log::{Hold, SmartLimit};

fn hold(noted_at: i64, until: Option<i64>, opened_at: Option<i64>) -> Hold {
    Hold {
        destination: id(9_000),
        noted_at: noted_at + AHEAD,
        until: until.map(|until| until + AHEAD),
        reason: until.map(|_| "asked".to_owned()),
        opened_at: opened_at.map(|at| at + AHEAD),
    }
}

/// Destination 0 starts nothing from `from` until `until`: what it would have
/// started comes later than all else.
fn stand_still(evidence: &mut Evidence, from: i64, until: i64) {
    let mut later = 100 * SECOND;
    for index in 0..240 {
        let at = evidence.sends[index].at_us;
        if evidence.receipts[index].destination != 0 || at < from || at >= until {
            continue;
        }
        later += SECOND;
        let by = later - at;
        evidence.sends[index].at_us += by;
        evidence.receipts[index].at_us += by;
        let row = &mut evidence.rows[index];
        row.claimed_at = row.claimed_at.map(|at| at + by);
        row.started_at = row.started_at.map(|at| at + by);
        row.finished_at = row.finished_at.map(|at| at + by);
        let start = row.started_at.unwrap();
        evidence.receipts[index].timestamp = Some(start / SECOND);
    }
}

#[test]
fn a_start_in_a_hold_is_found() {
    let held = |evidence: &mut Evidence| {
        evidence
            .holds
            .push(hold(5 * SECOND, Some(12 * SECOND), None));
    };
    assert_eq!(broken(held), ["held"]);
    // What was claimed as the hold was committed may start.
    let kept = broken(|evidence| {
        held(evidence);
        stand_still(evidence, 7 * SECOND, 12 * SECOND);
    });
    assert!(kept.is_empty(), "{kept:?}");
    let one_too_early = broken(|evidence| {
        held(evidence);
        stand_still(evidence, 7 * SECOND, 11 * SECOND);
    });
    assert_eq!(one_too_early, ["held"]);
}

#[test]
fn a_hold_that_is_forgotten_or_made_longer_counts_as_such() {
    let forgotten = broken(|evidence| {
        let holds = [
            hold(5 * SECOND, Some(12 * SECOND), None),
            hold(6 * SECOND, None, None),
        ];
        evidence.holds.extend(holds);
    });
    assert!(forgotten.is_empty(), "its owner resumed it: {forgotten:?}");
    let longer = broken(|evidence| {
        let holds = [
            hold(5 * SECOND, Some(12 * SECOND), None),
            hold(6 * SECOND, Some(20 * SECOND), None),
        ];
        evidence.holds.extend(holds);
        stand_still(evidence, 7 * SECOND, 19 * SECOND);
    });
    assert_eq!(longer, ["held"]);
}

#[test]
fn what_the_stores_clock_said_twice_is_not_judged() {
    let stepped = |at: i64| {
        broken(|evidence| {
            evidence
                .holds
                .push(hold(5 * SECOND, Some(8 * SECOND), None));
            stand_still(evidence, 8 * SECOND, 12 * SECOND);
            evidence.happenings.push(step(at, -3 * SECOND));
            for sample in &mut evidence.clock {
                if sample.before_us > at {
                    sample.store_us -= 3 * SECOND;
                }
            }
        })
    };
    // The wire, which takes no step back, has its own opinion of these.
    assert!(!stepped(9 * SECOND).contains(&"held"));
    assert!(stepped(20 * SECOND).contains(&"held"));
}

/// The breaker of destination 0 is open from 5 s on, and from 8 s on lets a probe
/// through now and then.
fn open(evidence: &mut Evidence) {
    let opened = Some(5 * SECOND);
    evidence
        .holds
        .push(hold(5 * SECOND, Some(8 * SECOND), opened));
    evidence.holds.push(hold(15 * SECOND, None, None));
    stand_still(evidence, 7 * SECOND, 8 * SECOND);
    // One second has two starts: the first is over before the second.
    for row in &mut evidence.rows {
        row.finished_at = row.started_at;
    }
}

#[test]
fn two_probes_at_a_time_are_found() {
    let in_turn = broken(open);
    assert!(in_turn.is_empty(), "{in_turn:?}");
    let beside = |evidence: &mut Evidence| {
        open(evidence);
        // The first of the two in the tenth second is not over when the next starts.
        let row = &mut evidence.rows[80];
        row.finished_at = row.started_at.map(|at| at + 500_000);
    };
    assert_eq!(broken(beside), ["held"]);
    let nobody_knew = broken(|evidence| {
        beside(evidence);
        evidence.rows[80].was_unknown = true;
    });
    assert!(nobody_knew.is_empty(), "{nobody_knew:?}");
    let judgement = {
        let mut evidence = sound();
        open(&mut evidence);
        judge(&evidence)
    };
    let figures = judgement.figures;
    let breakers = (figures.breakers_opened, figures.breakers_closed);
    assert_eq!((breakers, figures.holds), ((1, 1), 1));
    assert_eq!(figures.probes, 14);
}

/// Destination 0 never came back: something waits there.
fn given_up(evidence: &mut Evidence) {
    evidence.run.destinations[0].doomed = true;
    let opened = Some(31 * SECOND);
    evidence.holds.push(hold(31 * SECOND, None, opened));
    evidence.changes.push(Change {
        from: AHEAD + 60 * SECOND,
        state: DestinationState::Disabled,
        ..change(0)
    });
    another_waits(evidence, 0);
}

#[test]
fn one_that_is_given_up_keeps_what_waits_and_starts_nothing() {
    let sound = broken(given_up);
    assert!(sound.is_empty(), "{sound:?}");
    let not_disabled = broken(|evidence| {
        given_up(evidence);
        evidence.changes.pop();
    });
    assert_eq!(not_disabled, ["held", "left"]);
    let another = broken(|evidence| {
        given_up(evidence);
        evidence.run.destinations[0].doomed = false;
    });
    assert_eq!(another, ["left"]);
    let under_way = broken(|evidence| {
        given_up(evidence);
        evidence.rows.last_mut().unwrap().state = AttemptState::Admitted;
    });
    assert_eq!(under_way, ["left"]);
    let started = broken(|evidence| {
        given_up(evidence);
        deliver(evidence, 5_000, 0, 70 * SECOND);
    });
    assert_eq!(started, ["window", "wire"]);
}

#[test]
fn an_effective_limit_above_the_configured_one_is_found() {
    let effective = |per_second: f64| {
        broken(|evidence| {
            evidence.smart.push(SmartLimit {
                destination: id(9_000),
                from: AHEAD + SECOND,
                per_second: Some(per_second),
            });
        })
    };
    assert!(effective(2.0).is_empty() && effective(0.1).is_empty());
    assert_eq!(effective(2.01), ["smart"]);
    assert_eq!(effective(0.05), ["smart"]);
}

#[test]
fn a_hold_is_no_starving() {
    let waits = |holds: Vec<Hold>| {
        let mut evidence = sound();
        evidence.holds = holds;
        for number in 240..1_200_u64 {
            let destination = u32::try_from(number % 4).unwrap();
            if destination != 0 {
                deliver(&mut evidence, number, destination, time_of(number));
            }
        }
        deliver(&mut evidence, 5_000, 0, 140 * SECOND);
        judge(&evidence).broken.into_keys().collect::<Vec<_>>()
    };
    assert_eq!(waits(Vec::new()), ["starved"]);
    assert!(waits(vec![hold(35 * SECOND, Some(139 * SECOND), None)]).is_empty());
}
