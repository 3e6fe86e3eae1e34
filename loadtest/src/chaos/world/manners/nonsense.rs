//! What a receiver answers that means to harm, or does not know what it says.

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use server::receiver::Told;
use uuid::Uuid;

/// As they stand in JSON: what tables, logs and pages choke on.
const ERRORS: [&str; 4] = [
    r"\u0000",
    r"busy\u0000\u001b[2J\u0007",
    r"full\r\n2026-01-01T00:00:00Z ERROR forged",
    r"\u202etxt.exe\u2066\ufeff'; drop table attempts; --",
];

/// No list of results.
const UNREADABLE: [&[u8]; 6] = [
    b"",
    b"\xff\xfe{}",
    b"<html>Bad Gateway</html>",
    br#"{"results":null}"#,
    br#"{"results":[{"id":"\u0000","status":-200}]}"#,
    br#"{"results":[{"id":""#,
];

/// They come to no wait. One that does comes to an hour at most, and a run is not
/// as long.
const WAITS: [&str; 5] = [
    "-1",
    "NaN",
    "1e9",
    "tomorrow",
    "Thu, 01 Jan 1970 00:00:00 GMT",
];

/// What its answers are, one after the other, before they begin anew.
const TURNS: u64 = 8;

/// The answer to the request of this number, which carries these events; `None`
/// takes them.
pub(super) fn answer(request: u64, events: &[Uuid]) -> Option<Told> {
    let turn = request / TURNS;
    let told = match request % TURNS {
        0 | 4 => return None,
        1 | 5 => hostile_errors(turn, events),
        2 => told(StatusCode::MULTI_STATUS, one_of(turn, &UNREADABLE)),
        3 => strange_ids(turn, events),
        6 => told(StatusCode::FOUND, b"\0"),
        _ => Told {
            retry_after: Some(HeaderValue::from_static(one_of(turn, &WAITS))),
            ..told(StatusCode::SERVICE_UNAVAILABLE, b"\0\xff")
        },
    };
    Some(told)
}

fn one_of<T: Copy>(number: u64, all: &[T]) -> T {
    all[(number % all.len() as u64) as usize]
}

fn told(status: StatusCode, body: &'static [u8]) -> Told {
    Told {
        body: Bytes::from_static(body),
        ..status.into()
    }
}

/// In turn each event is taken and is not.
fn hostile_errors(turn: u64, events: &[Uuid]) -> Told {
    let results = (turn..).zip(events).map(|(place, event)| {
        let status = if place % 2 == 0 { 503 } else { 200 };
        (event.to_string(), status, one_of(place, &ERRORS))
    });
    in_parts(results)
}

/// It says nothing of those that it was sent, which is that it took them.
fn strange_ids(turn: u64, events: &[Uuid]) -> Told {
    let results = (turn..).zip(events).map(|(place, _)| {
        let id = ["", r"\u0000", "no id"][(place % 3) as usize];
        (id.to_owned(), 503, one_of(place, &ERRORS))
    });
    in_parts(results)
}

fn in_parts(results: impl Iterator<Item = (String, u16, &'static str)>) -> Told {
    let results: Vec<_> = results
        .map(|(id, status, error)| {
            format!(r#"{{"id":"{id}","status":{status},"error":"{error}"}}"#)
        })
        .collect();
    Told {
        body: format!(r#"{{"results":[{}]}}"#, results.join(",")).into(),
        ..StatusCode::MULTI_STATUS.into()
    }
}

#[cfg(test)]
mod tests {
    use domain::batch::{Said, answers};
    use domain::ids::EventId;
    use domain::signals::RawSignals;

    use super::*;

    #[test]
    fn most_answers_are_nonsense_and_none_of_them_is_a_wait() {
        let events = [Uuid::from_u128(1), Uuid::from_u128(2)];
        let all: Vec<_> = (1..=80).map(|request| answer(request, &events)).collect();
        assert_eq!(all.iter().flatten().count(), 60);
        for told in all.into_iter().flatten() {
            let retry_after =
                (told.retry_after.as_ref()).map(|value| value.to_str().unwrap().to_owned());
            let signals = RawSignals {
                retry_after,
                ..RawSignals::default()
            };
            assert_eq!(signals.wait(told.status.as_u16(), 1_700_000_000), None);
        }
    }

    #[test]
    fn of_the_lists_some_can_be_read_and_refuse_one_of_two() {
        let ids = [1, 2].map(Uuid::from_u128);
        let events = ids.map(EventId);
        let said = |told: &Told| {
            let body = Said {
                body: &told.body,
                cut: false,
            };
            answers(body, &events)
        };
        let refused = said(&hostile_errors(0, &ids)).unwrap();
        let statuses = refused.iter().map(|one| one.as_ref().map(|one| one.status));
        assert_eq!(statuses.collect::<Vec<_>>(), [Some(503), Some(200)]);
        let strange = said(&strange_ids(0, &ids)).unwrap();
        assert_eq!(strange, [None, None]);
        for body in UNREADABLE {
            assert!(said(&told(StatusCode::MULTI_STATUS, body)).is_err());
        }
    }
}
