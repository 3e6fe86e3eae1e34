//! What is in a batch, as its receiver reads it: `docs/batching.md`.

use serde::Deserialize;
use serde_json::value::RawValue;
use uuid::Uuid;

/// What `webhook-id` begins with where the body is a batch.
const ID: &str = "batch_";

/// One event of a batch.
#[derive(Debug, Deserialize)]
pub(crate) struct Item<'a> {
    pub(crate) id: Uuid,
    #[serde(rename = "try")]
    pub(crate) try_number: u32,
    /// Its payload, byte for byte.
    #[serde(borrow)]
    pub(crate) data: &'a RawValue,
}

/// The events of a batch; `None` for a request of one event, or for a body that
/// is none.
pub(crate) fn items<'a>(webhook_id: &str, body: &'a [u8]) -> Option<Vec<Item<'a>>> {
    (webhook_id.starts_with(ID)).then(|| serde_json::from_slice(body).ok())?
}

#[cfg(test)]
mod tests {
    use domain::batch::{self, Item as Sent};
    use domain::ids::EventId;
    use domain::time::Timestamp;

    use super::*;

    #[test]
    fn what_is_sent_is_read_byte_for_byte() {
        let event = EventId(Uuid::from_u128(7));
        let payload = br#"{ "z" : 1.50e+1 }"#;
        let body = batch::body([Sent {
            event,
            event_type: None,
            accepted_at: Timestamp::from_micros(0),
            try_number: 3,
            content_type: "application/json",
            payload,
        }]);
        let items = items(&batch::id([event]), &body).unwrap();
        assert_eq!(
            (items.len(), items[0].id, items[0].try_number),
            (1, event.0, 3)
        );
        assert_eq!(items[0].data.get().as_bytes(), payload);
    }

    #[test]
    fn a_request_of_one_event_is_no_batch() {
        assert!(items(&Uuid::from_u128(7).to_string(), b"[]").is_none());
    }
}
