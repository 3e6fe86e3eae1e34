//! A row of the outbox: an event, or why it cannot be one.
//!
//! Nothing of it was checked when it was inserted: a user's transaction is not
//! to fail for it. So a bad row is found here, and moved out of the way.

use bytes::Bytes;

use crate::event::{
    Audience, DEFAULT_CONTENT_TYPE, MAX_PAYLOAD_BYTES, NewEvent, Timing, content_type_problem,
    event_type_problem,
};
use crate::ids::{DestinationId, EventId, TenantId};
use crate::time::Timestamp;

/// A row as it was inserted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxRow {
    /// The event's id.
    pub id: EventId,
    /// Whose it is.
    pub tenant: TenantId,
    /// The one destination that it is for.
    pub destination: Option<DestinationId>,
    /// Its type; without a destination, who subscribes to it.
    pub event_type: Option<String>,
    /// The payload's media type.
    pub content_type: Option<String>,
    /// The payload; `None` if there is none, or if it was too large to read.
    pub payload: Option<Bytes>,
    /// The payload's length, in bytes.
    pub payload_bytes: u64,
    /// How many of the two columns for the payload are set.
    pub payloads: u32,
    /// When it may be sent.
    pub timing: Timing,
}

/// The event, or why the row is none at this time: beginning with the column's name.
pub fn accepted_or_why(row: OutboxRow, now: Timestamp) -> Result<NewEvent, String> {
    let audience = match (row.destination, &row.event_type) {
        (Some(destination), _) => Audience::Destination(destination),
        (None, Some(_)) => Audience::Subscribers,
        (None, None) => {
            return Err("destination_id: set it, or event_type for its subscribers".to_owned());
        }
    };
    if let Some(problem) = row.event_type.as_deref().and_then(event_type_problem) {
        return Err(format!("event_type: {problem}"));
    }
    let content_type = row.content_type.as_deref().unwrap_or(DEFAULT_CONTENT_TYPE);
    if let Some(problem) = content_type_problem(content_type) {
        return Err(format!("content_type: {problem}"));
    }
    if let Some((column, problem)) = row.timing.problem(now) {
        return Err(format!("{column}: {problem}"));
    }
    if row.payloads != 1 {
        return Err("payload: set it or payload_bytes, one of the two".to_owned());
    }
    let payload = match row.payload {
        Some(payload) if payload.len() <= MAX_PAYLOAD_BYTES => payload,
        _ => {
            let found = row.payload_bytes;
            return Err(format!(
                "payload: must have at most {MAX_PAYLOAD_BYTES} bytes, has {found}"
            ));
        }
    };
    Ok(NewEvent {
        id: row.id,
        tenant: row.tenant,
        audience,
        content_type: content_type.to_owned(),
        event_type: row.event_type,
        payload,
        idempotency: None,
        trace: None,
        timing: row.timing,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000);

    fn row() -> OutboxRow {
        OutboxRow {
            id: EventId(uuid::Uuid::from_u128(1)),
            tenant: TenantId(uuid::Uuid::from_u128(2)),
            destination: None,
            event_type: Some("order.paid".to_owned()),
            content_type: None,
            payload: Some(Bytes::from_static(b"{}")),
            payload_bytes: 2,
            payloads: 1,
            timing: Timing::default(),
        }
    }

    #[test]
    fn a_good_row_is_its_event() {
        let event = accepted_or_why(row(), NOW).unwrap();
        assert_eq!(event.audience, Audience::Subscribers);
        assert_eq!(event.content_type, DEFAULT_CONTENT_TYPE);
        assert_eq!((event.id, event.tenant), (row().id, row().tenant));
        let destination = Some(DestinationId(uuid::Uuid::from_u128(3)));
        let to_one = accepted_or_why(
            OutboxRow {
                destination,
                ..row()
            },
            NOW,
        );
        let audience = Audience::Destination(DestinationId(uuid::Uuid::from_u128(3)));
        assert_eq!(to_one.unwrap().audience, audience);
    }

    #[test]
    fn a_bad_row_is_refused_by_its_column() {
        let text = |text: &str| Some(text.to_owned());
        let large = Bytes::from(vec![0; MAX_PAYLOAD_BYTES + 1]);
        let bad = [
            (
                OutboxRow {
                    event_type: None,
                    ..row()
                },
                "destination_id",
            ),
            (
                OutboxRow {
                    event_type: text("a b"),
                    ..row()
                },
                "event_type",
            ),
            (
                OutboxRow {
                    event_type: text(""),
                    ..row()
                },
                "event_type",
            ),
            (
                OutboxRow {
                    content_type: text("x\r\ny: z"),
                    ..row()
                },
                "content_type",
            ),
            (
                OutboxRow {
                    payload: None,
                    payloads: 0,
                    ..row()
                },
                "payload",
            ),
            (
                OutboxRow {
                    payloads: 2,
                    ..row()
                },
                "payload",
            ),
            (
                OutboxRow {
                    payload: None,
                    ..row()
                },
                "payload",
            ),
            (
                OutboxRow {
                    payload: Some(large),
                    ..row()
                },
                "payload",
            ),
        ];
        for (row, column) in bad {
            let reason = accepted_or_why(row.clone(), NOW).unwrap_err();
            assert!(
                reason.starts_with(&format!("{column}: ")),
                "{row:?}: {reason}"
            );
        }
    }

    #[test]
    fn a_row_whose_time_is_over_is_refused() {
        let timing = Timing {
            deliver_at: None,
            expires_at: Some(NOW),
            ..Timing::default()
        };
        let reason = accepted_or_why(OutboxRow { timing, ..row() }, NOW).unwrap_err();
        assert!(reason.starts_with("expires_at: "), "{reason}");
    }
}
