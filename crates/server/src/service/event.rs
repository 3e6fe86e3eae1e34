//! An event that somebody hands in, until it is a valid one.

use bytes::Bytes;
use domain::event::{
    Audience, DEFAULT_CONTENT_TYPE, IDEMPOTENCY_KEY_KEPT, Idempotency, MAX_IDEMPOTENCY_KEY_BYTES,
    MAX_PAYLOAD_BYTES, NewEvent, Timing, content_type_problem,
};
use domain::ids::{DestinationId, EventId, TenantId};
use domain::time::Timestamp;
use domain::trace::Incoming;
use sha2::{Digest, Sha256};

use super::{ServiceError, rules};

/// An event that somebody hands in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventDraft {
    /// To one destination.
    pub destination: Option<DestinationId>,
    /// Its type; without a destination, who subscribes to it.
    pub event_type: Option<String>,
    /// Whether it is refused where nobody subscribes to its type.
    pub strict: bool,
    /// The payload's media type.
    pub content_type: Option<String>,
    /// The bytes, kept and sent as they are.
    pub payload: Bytes,
    /// The payload's name in the request, for errors.
    pub payload_field: &'static str,
    /// The client's own name for it, by which a repeated request is known.
    pub idempotency_key: Option<String>,
    /// What the client says of a trace.
    pub trace: Incoming,
    /// When it may be sent.
    pub timing: Timing,
}

impl EventDraft {
    pub(super) fn checked(
        self,
        tenant: TenantId,
        id: EventId,
        now: Timestamp,
    ) -> Result<NewEvent, ServiceError> {
        if let Some(event_type) = &self.event_type {
            rules::event_type("type", event_type)?;
        }
        let audience = match (self.destination, &self.event_type) {
            (Some(destination), _) => Audience::Destination(destination),
            (None, Some(_)) if self.strict => Audience::SomeSubscriber,
            (None, Some(_)) => Audience::Subscribers,
            (None, None) => {
                let problem = "give destination_id, or a type for its subscribers";
                return Err(ServiceError::invalid("destination_id", problem));
            }
        };
        let content_type = match self.content_type {
            Some(content_type) => match content_type_problem(&content_type) {
                Some(problem) => return Err(ServiceError::invalid("content_type", problem)),
                None => content_type,
            },
            None => DEFAULT_CONTENT_TYPE.to_owned(),
        };
        if let Some((field, problem)) = self.timing.problem(now) {
            return Err(ServiceError::invalid(field, problem));
        }
        if self.payload.len() > MAX_PAYLOAD_BYTES {
            return Err(ServiceError::TooLarge {
                field: self.payload_field.to_owned(),
                max_bytes: MAX_PAYLOAD_BYTES,
            });
        }
        if let Some(key) = &self.idempotency_key {
            idempotency_key(key)?;
        }
        let mut event = NewEvent {
            id,
            tenant,
            audience,
            event_type: self.event_type,
            content_type,
            payload: self.payload,
            idempotency: None,
            trace: self.trace.context(id),
            timing: self.timing,
        };
        event.idempotency = self.idempotency_key.map(|key| Idempotency {
            key,
            digest: digest(&event),
            kept_for: IDEMPOTENCY_KEY_KEPT,
        });
        Ok(event)
    }
}

/// Visible ASCII, as a header can carry it.
fn idempotency_key(key: &str) -> Result<(), ServiceError> {
    let refuse = |problem: String| Err(ServiceError::invalid("idempotency_key", problem));
    if !(1..=MAX_IDEMPOTENCY_KEY_BYTES).contains(&key.len()) {
        return refuse(format!("must have 1 to {MAX_IDEMPOTENCY_KEY_BYTES} bytes"));
    }
    if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return refuse("must be of visible ASCII, without spaces".to_owned());
    }
    Ok(())
}

/// What is asked for, so that another request under the same key is told from
/// the same one again: each part after its length, or none.
fn digest(event: &NewEvent) -> [u8; 32] {
    let mut digest = Sha256::new();
    let mut part = |bytes: Option<&[u8]>| {
        let length = bytes.map_or(u64::MAX, |bytes| bytes.len() as u64);
        digest.update(length.to_le_bytes());
        digest.update(bytes.unwrap_or_default());
    };
    // Strict or not, it is the same event.
    let named = event.audience.named();
    part(named.as_ref().map(|id| &id.0.as_bytes()[..]));
    part(event.event_type.as_deref().map(str::as_bytes));
    part(Some(event.content_type.as_bytes()));
    part(Some(&event.payload));
    let Timing {
        deliver_at,
        expires_at,
        urgent,
    } = event.timing;
    for at in [deliver_at, expires_at] {
        let micros = at.map(|at| at.as_micros().to_le_bytes());
        part(micros.as_ref().map(|bytes| &bytes[..]));
    }
    part(urgent.then_some(&[]));
    digest.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft() -> EventDraft {
        EventDraft {
            destination: None,
            event_type: Some("order.paid".to_owned()),
            strict: false,
            content_type: None,
            payload: Bytes::from_static(b"{}"),
            payload_field: "payload",
            idempotency_key: None,
            trace: Incoming::Absent,
            timing: Timing::default(),
        }
    }

    fn checked(draft: EventDraft) -> Result<NewEvent, ServiceError> {
        let id = EventId(uuid::Uuid::nil());
        draft.checked(
            engine::ports::DEFAULT_TENANT,
            id,
            Timestamp::from_millis(1_000),
        )
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
        let late = EventDraft {
            timing: Timing {
                expires_at: Some(Timestamp::from_millis(999)),
                ..Timing::default()
            },
            ..draft()
        };
        let problem = checked(late).unwrap_err().to_string();
        assert!(problem.starts_with("expires_at: "), "{problem}");
    }

    #[test]
    fn another_request_has_another_digest() {
        let keyed = |draft: EventDraft| {
            let idempotency_key = Some("k".to_owned());
            let event = checked(EventDraft {
                idempotency_key,
                ..draft
            });
            event.unwrap().idempotency.unwrap().digest
        };
        let to = |id| Some(DestinationId(uuid::Uuid::from_u128(id)));
        let others = [
            EventDraft {
                destination: to(7),
                ..draft()
            },
            EventDraft {
                destination: to(8),
                ..draft()
            },
            EventDraft {
                event_type: Some("order.sent".to_owned()),
                ..draft()
            },
            EventDraft {
                content_type: Some("text/plain".to_owned()),
                ..draft()
            },
            EventDraft {
                payload: Bytes::from_static(b"{} "),
                ..draft()
            },
            EventDraft {
                timing: Timing {
                    deliver_at: Some(Timestamp::from_millis(2_000)),
                    ..Timing::default()
                },
                ..draft()
            },
            EventDraft {
                timing: Timing {
                    expires_at: Some(Timestamp::from_millis(2_000)),
                    ..Timing::default()
                },
                ..draft()
            },
            EventDraft {
                timing: Timing {
                    urgent: true,
                    ..Timing::default()
                },
                ..draft()
            },
        ];
        let mut digests: Vec<_> = others.into_iter().map(keyed).collect();
        digests.push(keyed(draft()));
        assert_eq!(keyed(draft()), keyed(draft()), "the same is the same");
        let strict = EventDraft {
            strict: true,
            ..draft()
        };
        assert_eq!(keyed(draft()), keyed(strict));
        digests.sort_unstable();
        digests.dedup();
        assert_eq!(digests.len(), 9, "each of them is another request");
    }

    #[test]
    fn a_key_is_of_visible_ascii() {
        let long = "k".repeat(MAX_IDEMPOTENCY_KEY_BYTES + 1);
        for (key, good) in [("k", true), ("a-b:c/1", true), ("", false), ("a b", false)]
            .into_iter()
            .chain([("é", false), ("a\n", false), (long.as_str(), false)])
        {
            let draft = EventDraft {
                idempotency_key: Some(key.to_owned()),
                ..draft()
            };
            assert_eq!(checked(draft).is_ok(), good, "{key:?}");
        }
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
