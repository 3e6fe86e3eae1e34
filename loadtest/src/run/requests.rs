//! The bodies of requests to the API, and what their answers say.

use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;
use uuid::Uuid;

use super::client::Answer;
use super::payload;

/// The most events of a batch; the API takes no more.
pub(crate) const MAX_BATCH: u32 = 1_000;

/// The most events of a bulk request; the API takes no more.
pub(crate) const MAX_BULK: u32 = 50_000;

/// How a request hands its events in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Single,
    Batch,
    Bulk,
}

impl Way {
    /// The most events of one request.
    pub(crate) fn most(self) -> u32 {
        match self {
            Self::Single => 1,
            Self::Batch => MAX_BATCH,
            Self::Bulk => MAX_BULK,
        }
    }

    /// The API's route.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Single => "/v1/events",
            Self::Batch => "/v1/events/batch",
            Self::Bulk => "/v1/events/bulk",
        }
    }

    /// The body's media type.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Single | Self::Batch => "application/json",
            Self::Bulk => "application/x-ndjson",
        }
    }
}

/// One event, as a body has it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Draft {
    pub(crate) event: u32,
    pub(crate) to: Uuid,
    pub(crate) sent_us: i64,
    pub(crate) size: u32,
}

impl Draft {
    fn write(&self, into: &mut Vec<u8>) {
        let mut id = Uuid::encode_buffer();
        into.extend_from_slice(br#"{"destination_id":""#);
        into.extend_from_slice(self.to.hyphenated().encode_lower(&mut id).as_bytes());
        into.extend_from_slice(br#"","payload":"#);
        payload::write(into, self.event, self.sent_us, self.size);
        into.push(b'}');
    }
}

/// What an event takes in a body beside its payload, and a little more.
const AROUND: usize = 128;

/// A body of one event, or of a batch.
pub(crate) fn json(way: Way, drafts: &[Draft]) -> Bytes {
    let size: usize = drafts
        .iter()
        .map(|draft| draft.size as usize + AROUND)
        .sum();
    let mut body = Vec::with_capacity(size);
    if way == Way::Batch {
        body.extend_from_slice(br#"{"events":["#);
    }
    for (place, draft) in drafts.iter().enumerate() {
        if place > 0 {
            body.push(b',');
        }
        draft.write(&mut body);
    }
    if way == Way::Batch {
        body.extend_from_slice(b"]}");
    }
    body.into()
}

/// Lines of a bulk body.
pub(crate) fn lines(drafts: &[Draft]) -> Bytes {
    let mut body = Vec::new();
    for draft in drafts {
        draft.write(&mut body);
        body.push(b'\n');
    }
    body.into()
}

#[derive(Deserialize)]
struct BatchAnswer {
    results: Vec<Verdict>,
}

#[derive(Deserialize)]
struct Verdict {
    id: Option<IgnoredAny>,
    problem: Option<Problem>,
}

#[derive(Deserialize)]
struct Problem {
    status: u16,
}

impl Verdict {
    fn answer(&self) -> Answer {
        match (&self.id, &self.problem) {
            (Some(_), _) => Answer::Accepted,
            (None, problem) => Answer::Refused(problem.as_ref().map_or(0, |one| one.status)),
        }
    }
}

/// What was said of each event of a batch.
pub(super) fn answers_of_batch(answer: &[u8]) -> Option<Vec<Answer>> {
    let answer: BatchAnswer = serde_json::from_slice(answer).ok()?;
    Some(answer.results.iter().map(Verdict::answer).collect())
}

#[derive(Deserialize)]
struct Line {
    line: Option<u32>,
    #[serde(flatten)]
    verdict: Verdict,
}

/// Which line of a bulk body a line of the answer is of, and what it says;
/// `None` for the one that sums up.
pub(super) fn answer_of_line(answer: &[u8]) -> Option<(u32, Answer)> {
    let answer: Line = serde_json::from_slice(answer).ok()?;
    Some((answer.line?.checked_sub(1)?, answer.verdict.answer()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(event: u32) -> Draft {
        Draft {
            event,
            to: Uuid::from_u128(7),
            sent_us: 5,
            size: 64,
        }
    }

    #[test]
    fn bodies_are_what_the_api_reads() {
        let id = "00000000-0000-0000-0000-000000000007";
        let one: serde_json::Value =
            serde_json::from_slice(&json(Way::Single, &[draft(3)])).unwrap();
        assert_eq!(
            (&one["destination_id"], &one["payload"]["event"]),
            (&id.into(), &3.into())
        );
        let batch = json(Way::Batch, &[draft(3), draft(4)]);
        let batch: serde_json::Value = serde_json::from_slice(&batch).unwrap();
        assert_eq!(batch["events"][1]["payload"]["event"], 4);
        let bulk = lines(&[draft(3), draft(4)]);
        let bulk: Vec<_> = bulk.split(|byte| *byte == b'\n').collect();
        assert_eq!(bulk.len(), 3, "the last line has an end");
        let line: serde_json::Value = serde_json::from_slice(bulk[1]).unwrap();
        assert_eq!(line["payload"]["event"], 4);
    }

    #[test]
    fn answers_say_what_was_accepted() {
        let batch = br#"{"results":[{"id":"a","destinations":[]},{"problem":{"status":429}}]}"#;
        let expected = vec![Answer::Accepted, Answer::Refused(429)];
        assert_eq!(answers_of_batch(batch), Some(expected));
        assert_eq!(answers_of_batch(b"{}"), None);
        let accepted = br#"{"line":2,"id":"a","destinations":[]}"#;
        assert_eq!(answer_of_line(accepted), Some((1, Answer::Accepted)));
        let refused = br#"{"line":3,"problem":{"status":503,"title":"no"}}"#;
        assert_eq!(answer_of_line(refused), Some((2, Answer::Refused(503))));
        let sum = br#"{"accepted":1,"refused":0,"complete":true}"#;
        assert_eq!(answer_of_line(sum), None);
    }
}
