//! Answers that mean nothing, or harm: what a receiver's bytes must never decide.

use bytes::Bytes;
use domain::ids::{AttemptId, EventId};
use domain::signals::RawSignals;
use engine::ports::BATCH_BODY_BYTES;

use crate::dice::Dice;

/// One answer, and what it says of each event that the request carries.
pub(super) struct Nonsense {
    pub(super) status: u16,
    pub(super) signals: RawSignals,
    pub(super) body: Bytes,
    /// In the order in which they are carried.
    pub(super) parts: Vec<Part>,
}

/// What an answer says of one event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// As the status of the whole answer has it.
    WithTheRest,
    /// By itself; `None` is that nothing is said of it, which is that it was taken.
    Said(Option<u16>),
    /// Nobody can tell: what says it cannot be read.
    Lost,
}

/// Statuses that are seldom seen. 410 is left out: it disables.
const TAKEN: [u16; 4] = [202, 207, 226, 299];
const NOT_TAKEN: [u16; 9] = [300, 302, 304, 402, 418, 429, 451, 503, 599];

/// What a result says of its event; most of them that it was not taken.
const OF_ONE: [u16; 6] = [200, 226, 418, 429, 503, 599];

/// As they stand in JSON: what tables, logs and pages choke on.
const ERRORS: [&str; 6] = [
    r"\u0000",
    r"busy\u0000\u0000busy",
    r"\u001b[2J\u001b]0;owned\u0007",
    r"full\r\n2026-01-01T00:00:00Z ERROR forged",
    r"\u202etxt.exe\u202c \u2066\u200b\ufeff",
    r"\ud83d\ude00'; drop table attempts; --",
];

/// Ids of no event, and of one that is somebody else's.
const IDS: [&str; 5] = [
    "",
    r"\u0000",
    "no id",
    "-1",
    "00000000-0000-0000-ffff-ffffffffffff",
];

/// Bodies that are no list of results, or one with what is no status.
const UNREADABLE: [&[u8]; 14] = [
    b"",
    b"\0",
    b"\xff\xfe{}",
    b"<html>Bad Gateway</html>",
    b"null",
    b"{}",
    b"[]",
    br#"{"results":null}"#,
    br#"{"results":[{"id":1,"status":"200"}]}"#,
    br#"{"results":[{"id":"x","status":0}]}"#,
    br#"{"results":[{"id":"x","status":-200}]}"#,
    br#"{"results":[{"id":"x","status":1e999}]}"#,
    br#"{"results":[{"id":"x","status":200,"error":"\ud800"}]}"#,
    br#"{"results":[]} and more"#,
];

/// Waits that nobody can mean. They come to none, or to less than a second.
const WAITS: [&str; 8] = [
    "-1",
    "0",
    "\0",
    "1e9",
    "NaN",
    "Thu, 01 Jan 1970 00:00:00 GMT",
    "tomorrow",
    "0.25",
];

/// As long as a receiver can ask for, and no longer.
const ENDLESS_WAITS: [&str; 2] = [
    "99999999999999999999999999999999999999999999",
    "Fri, 31 Dec 9999 23:59:59 GMT",
];

/// Times at which nothing begins.
const NEVER: [&str; 4] = ["-1", "0", "NaN", "\0"];

/// `RateLimit` that comes to no wait.
const LIMITS: [&str; 7] = [
    "limit=9, remaining=0, reset=-1",
    "limit=(), remaining=0, reset=\"5\"",
    "\"a\";r=0;t=-1",
    "\"a\";r=-9223372036854775808;t=0",
    "r=0;;;",
    "\0",
    ";t=99999999999999999999",
];

impl Nonsense {
    /// The answer to a request that carries these. Times that hold a destination
    /// for an hour are among it only where they are `endless`.
    pub(super) fn answer(
        dice: Dice,
        carried: &[(EventId, AttemptId)],
        (is_batch, endless): (bool, bool),
    ) -> Self {
        let all = |part| vec![part; carried.len()];
        let unreadable = one_of(dice.of(1), &UNREADABLE);
        let (status, body, parts) = match dice.of(2).below(12) {
            kind if !is_batch || kind >= 10 => {
                let status = match odd_status(dice.of(3)) {
                    // It has a meaning there, and a body that says nothing of it.
                    207 if is_batch => 226,
                    status => status,
                };
                (status, unreadable.into(), all(Part::WithTheRest))
            }
            0..4 => hostile_errors(dice, carried),
            4 => strange_ids(dice, carried),
            5 => two_results(dice, carried),
            6 => (207, cut_short(dice, carried), all(Part::Lost)),
            7 => too_long(dice, carried),
            _ => (207, unreadable.into(), all(Part::Lost)),
        };
        Self {
            status,
            signals: signals(dice.of(4), endless),
            body: body.into(),
            parts,
        }
    }
}

/// A status, a body, and what they say of each event.
type Answer = (u16, Vec<u8>, Vec<Part>);

fn one_of<T: Copy>(dice: Dice, all: &[T]) -> T {
    all[dice.below(all.len() as u64) as usize]
}

fn odd_status(dice: Dice) -> u16 {
    match dice.permille(300) {
        true => one_of(dice, &TAKEN),
        false => one_of(dice, &NOT_TAKEN),
    }
}

fn signals(dice: Dice, endless: bool) -> RawSignals {
    let text = |of: u64, all: &[&str]| {
        let dice = dice.of(of);
        dice.permille(500).then(|| one_of(dice, all).to_owned())
    };
    let waits: &[&str] = match endless && dice.permille(250) {
        true => &ENDLESS_WAITS,
        false => &WAITS,
    };
    RawSignals {
        retry_after: text(1, waits),
        date: text(2, &WAITS),
        rate_limit: text(3, &LIMITS),
        rate_limit_policy: text(4, &LIMITS),
        rate_limit_limit: text(7, &LIMITS),
        rate_limit_remaining: text(8, &WAITS),
        rate_limit_reset: text(9, &NEVER),
        remaining: text(5, &WAITS),
        reset: text(6, &NEVER),
        delivery: text(10, &["", "enable", "disabled", "disable-not", "\0"]),
    }
}

/// One result of a list; `error` as it stands in JSON.
fn result(id: &str, status: u16, error: &str) -> String {
    format!(r#"{{"id":"{id}","status":{status},"error":"{error}"}}"#)
}

fn list(results: &[String]) -> String {
    format!(r#"{{"results":[{}]}}"#, results.join(","))
}

/// What is said of an event by itself.
fn status_of(dice: Dice, attempt: AttemptId) -> u16 {
    one_of(dice.of(attempt.0.unsigned_abs()), &OF_ONE)
}

fn hostile_errors(dice: Dice, carried: &[(EventId, AttemptId)]) -> Answer {
    let said = |(event, attempt): &(EventId, AttemptId)| {
        let status = status_of(dice, *attempt);
        let dice = dice.of(attempt.0.unsigned_abs()).of(1);
        let error = match dice.below(5) {
            0 => one_of(dice.of(1), &ERRORS).repeat(2_000),
            _ => one_of(dice.of(1), &ERRORS).to_owned(),
        };
        let result = result(&event.0.to_string(), status, &error);
        (result, Part::Said(Some(status)))
    };
    let (results, parts): (Vec<_>, _) = carried.iter().map(said).unzip();
    let body = list(&results).into_bytes();
    match body.len() < BATCH_BODY_BYTES {
        true => (207, body, parts),
        // Of so many that long ones are no longer read whole.
        false => too_long(dice, carried),
    }
}

/// Of no event that was sent: it is as if nothing had been said.
fn strange_ids(dice: Dice, carried: &[(EventId, AttemptId)]) -> Answer {
    let results: Vec<_> = (0..carried.len() as u64 + 1)
        .map(|number| {
            let dice = dice.of(number);
            result(one_of(dice.of(1), &IDS), one_of(dice, &OF_ONE), "")
        })
        .collect();
    let parts = vec![Part::Said(None); carried.len()];
    (207, list(&results).into_bytes(), parts)
}

/// The first that is no success counts.
fn two_results(dice: Dice, carried: &[(EventId, AttemptId)]) -> Answer {
    let mut results = Vec::new();
    let said = |(event, attempt): &(EventId, AttemptId)| {
        let (first, second) = (status_of(dice, *attempt), status_of(dice.of(1), *attempt));
        let id = event.0.to_string();
        results.extend([first, second].map(|status| result(&id, status, "")));
        Part::Said(Some(match first {
            200..300 => second,
            _ => first,
        }))
    };
    let parts = carried.iter().map(said).collect();
    (207, list(&results).into_bytes(), parts)
}

/// A connection that ended in the middle of the list.
fn cut_short(dice: Dice, carried: &[(EventId, AttemptId)]) -> Vec<u8> {
    let (_, mut body, _) = two_results(dice, carried);
    body.truncate(dice.of(1).below(body.len() as u64) as usize);
    body
}

/// Longer than what is read of it: the results before that count.
fn too_long(dice: Dice, carried: &[(EventId, AttemptId)]) -> Answer {
    let (read, unread) = carried.split_at(carried.len() / 2);
    let mut results = Vec::new();
    let said = |(event, attempt): &(EventId, AttemptId)| {
        let status = status_of(dice, *attempt);
        results.push(result(&event.0.to_string(), status, ""));
        Part::Said(Some(status))
    };
    let mut parts: Vec<_> = read.iter().map(said).collect();
    parts.extend(unread.iter().map(|_| Part::Lost));
    let endless = "x".repeat(BATCH_BODY_BYTES);
    results.extend((unread.iter()).map(|(event, _)| result(&event.0.to_string(), 503, &endless)));
    let mut body = list(&results).into_bytes();
    // As a sender reads it.
    body.truncate(BATCH_BODY_BYTES);
    (207, body, parts)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use domain::batch::{Said, answers};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn what_is_read_of_an_answer_is_what_its_parts_say() {
        let mut kinds = BTreeSet::new();
        for seed in 0..2_000 {
            let carried: Vec<_> = (1..=1 + seed % 30)
                .map(|number| (EventId(Uuid::from_u128(number)), AttemptId(number as i64)))
                .collect();
            let nonsense = Nonsense::answer(Dice::new(seed as u64), &carried, (true, false));
            if nonsense.status != 207 {
                continue;
            }
            let said = Said {
                body: &nonsense.body,
                cut: nonsense.body.len() >= BATCH_BODY_BYTES,
            };
            let ids: Vec<_> = carried.iter().map(|(event, _)| *event).collect();
            let read = answers(said, &ids);
            let body = String::from_utf8_lossy(&nonsense.body);
            for (number, part) in nonsense.parts.iter().enumerate() {
                let of_it = read.as_ref().map(|read| read[number].as_ref());
                let agrees = match (part, of_it) {
                    (Part::WithTheRest, _) => false,
                    (Part::Said(status), Ok(answer)) => *status == answer.map(|one| one.status),
                    (Part::Lost, Ok(answer)) => answer.is_none() && said.cut,
                    (Part::Lost, Err(_)) => true,
                    (Part::Said(_), Err(_)) => false,
                };
                assert!(agrees, "seed {seed}: {part:?} but {of_it:?} of {body:.300}");
                kinds.insert((*part != Part::Lost, of_it.is_ok(), said.cut));
            }
        }
        assert_eq!(kinds.len(), 4, "{kinds:?}");
    }
}
