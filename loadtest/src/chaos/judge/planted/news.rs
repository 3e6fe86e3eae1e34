//! What operators are told.

use domain::operations::{OperationalEvent, payload};

use super::*;
use crate::chaos::log::{Happened, News, Note, Telling};

/// Those that are told: of everything, and of dead letters.
const EVERYTHING: u32 = 4;
const DEAD_LETTERS: u32 = 5;

fn telling(installation: bool, event_types: &[&str]) -> Option<Telling> {
    Some(Telling {
        installation,
        event_types: event_types.iter().map(|&name| name.to_owned()).collect(),
    })
}

/// Destination 0 had three dead letters, was disabled twice, and had a long
/// backlog for a while; the one that is told of dead letters was disabled, too.
fn with_news(evidence: &mut Evidence) {
    for (number, told) in [
        (EVERYTHING, telling(true, &[])),
        (DEAD_LETTERS, telling(false, &["dead_letters"])),
    ] {
        let number = u64::from(number);
        evidence.changes.push(change(number));
        let one = Tried {
            told,
            ..destination(number)
        };
        evidence.run.destinations.push(one);
    }
    let about = [
        ("dead_letters", r#"{"count":2,"since":null}"#, 0),
        ("destination_disabled", r#"{"reason":"gone"}"#, 0),
        ("backlog_high", "{}", 0),
        ("destination_disabled", r#"{"reason":"gone"}"#, 0),
        ("backlog_normal", "{}", 0),
        ("destination_disabled", "{}", u64::from(DEAD_LETTERS)),
    ];
    for (number, (event_type, details, of)) in (1..).zip(about) {
        evidence.news.push(News {
            id: number,
            created_at: AHEAD + number,
            event_type: event_type.to_owned(),
            destination: Some(id(9_000 + of)),
            tenant: id(1),
            details: details.to_owned(),
            relayed: true,
        });
    }
    for number in 0..6 {
        note(evidence, number, EVERYTHING);
    }
    note(evidence, 0, DEAD_LETTERS);
    let happened = |number: u64, died, disabled| Happened {
        destination: id(9_000 + number),
        is_deleted: false,
        died,
        died_untold: u64::from(died > 0),
        disabled,
    };
    evidence.happened = vec![
        happened(0, 3, 2),
        happened(u64::from(EVERYTHING), 0, 0),
        happened(u64::from(DEAD_LETTERS), 0, 1),
    ];
}

/// News of this index reached this destination.
fn note(evidence: &mut Evidence, index: usize, to: u32) {
    let news = &evidence.news[index];
    let body = payload(&OperationalEvent {
        id: news.id,
        created_at: domain::time::Timestamp::from_micros(news.created_at),
        event_type: news.event_type.clone(),
        destination: news.destination.map(domain::ids::DestinationId),
        tenant: domain::ids::TenantId(news.tenant),
        details: news.details.clone(),
    });
    let body = fingerprint(body.as_bytes());
    let number = 5_000 + evidence.notes.len() as u64;
    let at = 10 * SECOND + i64::try_from(evidence.notes.len()).unwrap() * SECOND;
    request(evidence, number, to, 1, at);
    evidence.receipts.last_mut().unwrap().body.clone_from(&body);
    evidence.notes.push(Note {
        event: id(number),
        destination: id(9_000 + u64::from(to)),
        body,
    });
}

fn told(lie: impl FnOnce(&mut Evidence)) -> Vec<&'static str> {
    broken(|evidence| {
        with_news(evidence);
        lie(evidence);
    })
}

#[test]
fn news_that_are_told_once_pass() {
    let sound = told(|_| {});
    assert!(sound.is_empty(), "{sound:?}");
    let mut evidence = sound_with_news();
    request(&mut evidence, 5_000, EVERYTHING, 2, 40 * SECOND);
    let body = evidence.notes[0].body.clone();
    evidence.receipts.last_mut().unwrap().body = body;
    let unexplained: Vec<_> = judge(&evidence).broken.into_keys().collect();
    assert_eq!(unexplained, ["extra"], "as any other event");
    let figures = judge(&evidence).figures;
    assert_eq!((figures.news, figures.notes), (6, 7));
}

fn sound_with_news() -> Evidence {
    let mut evidence = sound();
    with_news(&mut evidence);
    evidence
}

#[test]
fn news_that_are_no_event_or_two_are_found() {
    let none = told(|evidence| {
        evidence.notes.remove(2);
        forget(evidence, 5_002);
    });
    assert_eq!(none, ["told"]);
    let two = told(|evidence| note(evidence, 2, EVERYTHING));
    assert_eq!(two, ["told"]);
    let unrelayed = told(|evidence| evidence.news[2].relayed = false);
    assert_eq!(unrelayed, ["told"]);
}

#[test]
fn news_that_do_not_arrive_as_they_are_are_found() {
    let lost = told(|evidence| {
        evidence.receipts.retain(|one| one.event != Some(id(5_002)));
    });
    assert_eq!(lost, ["ledger", "told"]);
    let unsigned = told(|evidence| {
        let mut receipts = evidence.receipts.iter_mut();
        let of_it = receipts.find(|one| one.event == Some(id(5_002)));
        of_it.unwrap().verified = false;
    });
    assert_eq!(unsigned, ["signature", "told"]);
    let altered = told(|evidence| {
        let mut receipts = evidence.receipts.iter_mut();
        let of_it = receipts.find(|one| one.event == Some(id(5_002)));
        of_it.unwrap().body = fingerprint(b"another");
    });
    assert_eq!(altered, ["altered"]);
    let dead = told(|evidence| {
        evidence.receipts.retain(|one| one.event != Some(id(5_002)));
        let mut rows = evidence.rows.iter_mut();
        let row = rows.find(|row| row.event == id(5_002)).unwrap();
        (row.state, row.dead_letter) = (AttemptState::Failed, true);
    });
    assert!(dead.is_empty(), "{dead:?}: it can be seen, and replayed");
}

#[test]
fn news_for_those_that_are_not_told_are_found() {
    let of_another_type = told(|evidence| note(evidence, 1, DEAD_LETTERS));
    assert_eq!(of_another_type, ["told"]);
    let of_itself = told(|evidence| {
        evidence.run.destinations[DEAD_LETTERS as usize].told = telling(false, &[]);
        for index in 1..5 {
            note(evidence, index, DEAD_LETTERS);
        }
    });
    assert!(of_itself.is_empty(), "{of_itself:?}");
    let of_itself = told(|evidence| {
        evidence.run.destinations[DEAD_LETTERS as usize].told = telling(false, &[]);
        for index in 1..6 {
            note(evidence, index, DEAD_LETTERS);
        }
    });
    assert_eq!(of_itself, ["told"]);
}

#[test]
fn what_happened_and_is_in_no_news_is_found() {
    let uncounted = told(|evidence| evidence.happened[0].died += 1);
    assert_eq!(uncounted, ["told"]);
    let counted_twice = told(|evidence| evidence.happened[0].died_untold += 1);
    assert_eq!(counted_twice, ["told"]);
    for disabled in [1, 3] {
        let otherwise = told(|evidence| evidence.happened[0].disabled = disabled);
        assert_eq!(otherwise, ["told"], "{disabled}");
    }
    let deleted = told(|evidence| {
        evidence.happened[0].died += 1;
        evidence.happened[0].is_deleted = true;
    });
    assert!(deleted.is_empty(), "{deleted:?}");
}

#[test]
fn an_alert_that_is_not_raised_and_ended_in_turn_is_found() {
    // As if only one of the two had come to be: with what it became.
    let without = |index: usize| {
        told(|evidence| {
            evidence.news.remove(index);
            let event = evidence.notes.remove(index).event;
            evidence.rows.retain(|row| row.event != event);
            evidence.sends.retain(|send| send.event != event);
            evidence.receipts.retain(|one| one.event != Some(event));
        })
    };
    assert_eq!(without(4), ["told"], "never ended");
    assert_eq!(without(2), ["told"], "never raised");
}
