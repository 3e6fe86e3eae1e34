//! The body of a batch, and the id under which it is sent.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::IgnoredAny;
use sha2::{Digest, Sha256};

use crate::event::is_json as is_json_type;
use crate::ids::EventId;
use crate::operations::rfc3339;
use crate::time::Timestamp;

/// The media type of every batch.
pub const CONTENT_TYPE: &str = "application/json";

/// What a name and the punctuation of an item take, for the first allocation.
const ITEM_BYTES: usize = 200;

/// One event of a batch.
#[derive(Debug, Clone, Copy)]
pub struct Item<'a> {
    /// Which.
    pub event: EventId,
    /// Which try this is of it: 1 is the first.
    pub try_number: u32,
    /// Its type.
    pub event_type: Option<&'a str>,
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// The media type of its payload.
    pub content_type: &'a str,
    /// Its payload.
    pub payload: &'a [u8],
}

/// The body: an array with an object for each event, also if there is only one.
///
/// `data` is the payload byte for byte where that is JSON by its media type and
/// in truth; every other payload is in `data_base64`. So an event cannot reach
/// out of its place: what is verbatim has been parsed.
#[must_use]
pub fn body<'a>(items: impl IntoIterator<Item = Item<'a>>) -> Vec<u8> {
    let items = items.into_iter();
    let mut body = Vec::with_capacity(items.size_hint().0.saturating_mul(ITEM_BYTES));
    body.push(b'[');
    for item in items {
        if body.len() > 1 {
            body.push(b',');
        }
        push(&mut body, &item);
    }
    body.push(b']');
    body
}

fn push(body: &mut Vec<u8>, item: &Item<'_>) {
    let (event, accepted_at) = (item.event, rfc3339(item.accepted_at));
    let try_number = item.try_number;
    let (event_type, content_type) = (text(item.event_type), text(Some(item.content_type)));
    let head = format!(
        r#"{{"id":"{event}","try":{try_number},"type":{event_type},"timestamp":"{accepted_at}","content_type":{content_type},"#
    );
    body.extend_from_slice(head.as_bytes());
    if is_json(item) {
        body.extend_from_slice(br#""data":"#);
        body.extend_from_slice(item.payload);
        body.push(b'}');
    } else {
        body.extend_from_slice(br#""data_base64":""#);
        body.extend_from_slice(STANDARD.encode(item.payload).as_bytes());
        body.extend_from_slice(br#""}"#);
    }
}

/// As a JSON string, or `null`.
fn text(text: Option<&str>) -> String {
    serde_json::to_string(&text).unwrap_or_else(|_impossible| "null".to_owned())
}

fn is_json(item: &Item<'_>) -> bool {
    let says_so = is_json_type(item.content_type);
    // As text first: what is skipped over is not looked at.
    let text = std::str::from_utf8(item.payload);
    says_so && text.is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok())
}

/// The id of a batch, for `webhook-id`: the same for the same events in the
/// same order, and another for any others.
///
/// ```
/// use domain::batch::id;
/// use domain::ids::EventId;
/// let events = ["018f0000-0000-7000-8000-000000000001", "018f0000-0000-7000-8000-000000000002"];
/// let events: Vec<EventId> = events.iter().map(|id| id.parse().unwrap()).collect();
/// assert!(id(events.clone()).starts_with("batch_"));
/// assert_ne!(id(events.clone()), id(events[..1].to_vec()));
/// ```
#[must_use]
pub fn id(events: impl IntoIterator<Item = EventId>) -> String {
    let mut hash = Sha256::new();
    for event in events {
        hash.update(event.0.as_bytes());
    }
    let mut id = String::from("batch_");
    for byte in &hash.finalize()[..16] {
        // Writing to a string cannot fail.
        let _ = write!(id, "{byte:02x}");
    }
    id
}
