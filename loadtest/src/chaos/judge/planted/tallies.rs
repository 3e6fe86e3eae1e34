//! Lies about what the tally has counted.

use std::collections::BTreeSet;

use super::*;
use crate::chaos::log::Tallied;

/// What the tally would have counted of these rows.
fn counted(evidence: &mut Evidence) {
    let destinations: BTreeSet<Uuid> = evidence.rows.iter().map(|row| row.destination).collect();
    for destination in destinations {
        let of_it = (evidence.rows.iter()).filter(|row| row.destination == destination);
        let started = of_it.filter(|row| row.started_at.is_some() && row.carried_by.is_none());
        let states: Vec<_> = started.map(|row| row.state).collect();
        let all = |wanted: &[AttemptState]| {
            let found = states.iter().filter(|state| wanted.contains(state));
            u64::try_from(found.count()).unwrap()
        };
        for slot in ["minutes", "hour"] {
            evidence.tallied.push(Tallied {
                destination,
                slot: slot.to_owned(),
                deleted: false,
                succeeded: all(&[AttemptState::Succeeded]),
                failed: all(&[AttemptState::Failed]),
                unknown: all(&[AttemptState::Unknown, AttemptState::NotSent]),
            });
        }
    }
}

/// The rules that a run breaks of which this was done to the tally.
fn told(lie: impl FnOnce(&mut Evidence)) -> Vec<&'static str> {
    broken(|evidence| {
        counted(evidence);
        lie(evidence);
    })
}

#[test]
fn what_is_counted_once_by_its_outcome_passes() {
    assert!(told(|_| ()).is_empty());
    let mut evidence = sound();
    counted(&mut evidence);
    assert_eq!(judge(&evidence).figures.tallied, 2 * 240);
}

#[test]
fn what_is_counted_twice_or_never_is_found() {
    assert_eq!(
        told(|evidence| evidence.tallied[0].succeeded += 1),
        ["tallied"]
    );
    assert_eq!(
        told(|evidence| evidence.tallied[1].succeeded -= 1),
        ["tallied"]
    );
    // Where nothing was, and where nothing was counted at all.
    let of_nothing = told(|evidence| evidence.tallied[0].destination = id(1));
    assert_eq!(of_nothing, ["tallied"]);
    let nothing = told(|evidence| {
        evidence.tallied[0].succeeded = 0;
    });
    assert_eq!(nothing, ["tallied"]);
}

#[test]
fn what_is_counted_as_something_else_is_found() {
    let as_failed = told(|evidence| {
        evidence.tallied[0].succeeded -= 1;
        evidence.tallied[0].failed += 1;
    });
    assert_eq!(as_failed, ["tallied"]);
    let unknown = |evidence: &mut Evidence| {
        evidence.tallied[0].succeeded -= 1;
        evidence.tallied[0].unknown += 1;
    };
    assert_eq!(told(unknown), ["tallied"]);
    // It was given up, and its outcome came later.
    let late = told(|evidence| {
        let first = evidence.tallied[0].destination;
        let row = evidence
            .rows
            .iter_mut()
            .find(|row| row.destination == first);
        row.unwrap().was_unknown = true;
        unknown(evidence);
    });
    assert!(late.is_empty(), "{late:?}");
    // One that nobody knows of was not delivered.
    let as_delivered = broken(|evidence| {
        let row = &mut evidence.rows[7];
        (row.state, row.was_unknown) = (AttemptState::Unknown, true);
        counted(evidence);
        let of_it = evidence.rows[7].destination;
        let told = evidence
            .tallied
            .iter_mut()
            .filter(|one| one.destination == of_it);
        told.for_each(|one| (one.succeeded, one.unknown) = (one.succeeded + 1, 0));
    });
    assert_eq!(as_delivered, ["tallied"]);
}

#[test]
fn one_that_was_deleted_is_counted_no_further() {
    let fewer = |evidence: &mut Evidence| {
        evidence.tallied[0].deleted = true;
        evidence.tallied[0].succeeded -= 5;
    };
    assert!(told(fewer).is_empty());
    let more = told(|evidence| {
        fewer(evidence);
        evidence.tallied[0].succeeded += 6;
    });
    assert_eq!(more, ["tallied"]);
}
