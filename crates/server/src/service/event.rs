//! An event that somebody hands in, until it is a valid one.

use bytes::Bytes;
use domain::event::{Audience, MAX_PAYLOAD_BYTES, NewEvent};
use domain::ids::{DestinationId, EventId, TenantId};

use super::{ServiceError, rules};

/// What is sent if nothing else is said.
pub const DEFAULT_CONTENT_TYPE: &str = "application/json";

/// The longest media type, in bytes.
const MAX_CONTENT_TYPE_BYTES: usize = 200;

/// An event that somebody hands in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventDraft {
    /// To one destination.
    pub destination: Option<DestinationId>,
    /// Its type; without a destination, who subscribes to it.
    pub event_type: Option<String>,
    /// The payload's media type.
    pub content_type: Option<String>,
    /// The bytes, kept and sent as they are.
    pub payload: Bytes,
    /// The payload's name in the request, for errors.
    pub payload_field: &'static str,
}

impl EventDraft {
    pub(super) fn checked(self, tenant: TenantId, id: EventId) -> Result<NewEvent, ServiceError> {
        if let Some(event_type) = &self.event_type {
            rules::event_type("type", event_type)?;
        }
        let audience = match (self.destination, &self.event_type) {
            (Some(destination), _) => Audience::Destination(destination),
            (None, Some(_)) => Audience::Subscribers,
            (None, None) => {
                let problem = "give destination_id, or a type for its subscribers";
                return Err(ServiceError::invalid("destination_id", problem));
            }
        };
        let content_type = match self.content_type {
            Some(content_type) => checked_content_type(content_type)?,
            None => DEFAULT_CONTENT_TYPE.to_owned(),
        };
        if self.payload.len() > MAX_PAYLOAD_BYTES {
            return Err(ServiceError::TooLarge {
                field: self.payload_field.to_owned(),
                max_bytes: MAX_PAYLOAD_BYTES,
            });
        }
        Ok(NewEvent {
            id,
            tenant,
            audience,
            event_type: self.event_type,
            content_type,
            payload: self.payload,
        })
    }
}

/// It becomes a header of every request: what could not, or could smuggle
/// another one, is refused.
fn checked_content_type(text: String) -> Result<String, ServiceError> {
    let refuse = |problem: &str| Err(ServiceError::invalid("content_type", problem));
    if text.len() > MAX_CONTENT_TYPE_BYTES {
        return refuse("must be at most 200 bytes");
    }
    if !text
        .bytes()
        .all(|byte| byte == b' ' || byte.is_ascii_graphic())
    {
        return refuse("must be of printable ASCII");
    }
    let essence = text.split(';').next().unwrap_or_default().trim();
    match essence.split_once('/') {
        Some((kind, subtype)) if !kind.is_empty() && !subtype.is_empty() => Ok(text),
        _ => refuse("must be a media type, such as application/json"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft() -> EventDraft {
        EventDraft {
            destination: None,
            event_type: Some("order.paid".to_owned()),
            content_type: None,
            payload: Bytes::from_static(b"{}"),
            payload_field: "payload",
        }
    }

    fn checked(draft: EventDraft) -> Result<NewEvent, ServiceError> {
        draft.checked(engine::ports::DEFAULT_TENANT, EventId(uuid::Uuid::nil()))
    }

    #[test]
    fn a_type_alone_is_for_its_subscribers_and_with_a_destination_for_that() {
        assert_eq!(checked(draft()).unwrap().audience, Audience::Subscribers);
        let destination = DestinationId(uuid::Uuid::from_u128(7));
        let to_one = EventDraft {
            destination: Some(destination),
            ..draft()
        };
        let event = checked(to_one).unwrap();
        assert_eq!(event.audience, Audience::Destination(destination));
        assert_eq!(event.event_type.as_deref(), Some("order.paid"));
    }

    #[test]
    fn what_is_missing_or_too_much_is_named() {
        let nobody = EventDraft {
            event_type: None,
            ..draft()
        };
        assert!(
            checked(nobody)
                .unwrap_err()
                .to_string()
                .starts_with("destination_id: ")
        );
        let large = EventDraft {
            payload: Bytes::from(vec![b'x'; MAX_PAYLOAD_BYTES + 1]),
            ..draft()
        };
        assert!(matches!(checked(large), Err(ServiceError::TooLarge { .. })));
    }

    #[test]
    fn a_media_type_cannot_smuggle_a_header() {
        for bad in ["", "json", "text/", "text/plain\r\nx: y", "täxt/plain"] {
            let draft = EventDraft {
                content_type: Some(bad.to_owned()),
                ..draft()
            };
            assert!(checked(draft).is_err(), "{bad:?}");
        }
    }
}
