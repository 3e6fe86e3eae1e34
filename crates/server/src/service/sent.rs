//! A request as it was sent.
//!
//! Requests are not kept. What is ours in them follows from what is: so it is put together
//! by the function that sends it, and signed by the one that signs. What the destination
//! adds may be a password, and is named only. What the event carries is read where it is
//! kept, for those who may.

use std::time::Duration;

use adapters::http::{OwnHeaders, SignatureNames};
use domain::ids::{AttemptId, SecretId};
use domain::signature::HeaderPrefix;
use domain::time::Timestamp;
use engine::ports::{CatalogError, Requested, SealedKind, Secret};
use engine::sealing;
use http::header;

use super::secrets::MAX_OVERLAP;
use super::{Described, Service, ServiceError, ShownPayload};

/// A destination's first secret is stored with it, in one transaction.
const TOGETHER: Duration = Duration::from_secs(1);

/// How much of a request somebody may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sees {
    /// All but what it carried and what that was signed with.
    NoPayload,
    /// That too, without what the catalogue hides.
    Payload,
}

/// An attempt, and its request as it was sent, or was to be where its receiver was not
/// reached.
#[derive(Debug)]
pub struct Sent {
    /// The attempt, and what is kept of its request.
    pub found: Requested,
    /// Its destination as it is now; `None` once that is deleted.
    pub destination: Option<Described>,
    /// Its headers; none where it cannot have been sent, or not yet.
    pub headers: Vec<SentHeader>,
    /// A secret that has ended since may have signed as well.
    pub is_part: bool,
    /// What its event carries, for as long as that is kept and for who may see it.
    pub payload: Option<ShownPayload>,
}

/// A header of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentHeader {
    /// Its name.
    pub name: String,
    /// What it said, or why that is not said here.
    pub value: Result<String, &'static str>,
}

/// The value of a signature's header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SentSignature {
    /// As it stood there.
    Whole(String),
    /// As it stood there, but for that of a secret which may have signed beside these and
    /// has ended since.
    Part(String),
    /// Why it cannot be said any more.
    Unknown(&'static str),
}

/// Of the secrets that are kept, those that signed then; and whether there may have been
/// others.
#[derive(Debug, PartialEq, Eq)]
struct Then {
    ids: Vec<SecretId>,
    is_whole: bool,
}

impl Then {
    /// Of a destination that was created `born`, as of a request at `at`. One that has
    /// ended is forgotten; at a rotation the others sign on for [`MAX_OVERLAP`] at most.
    fn of(secrets: &[Secret], born: Timestamp, at: Timestamp) -> Self {
        let then: Vec<_> = (secrets.iter())
            .filter(|one| one.created_at <= at)
            .collect();
        let oldest = then.iter().map(|one| one.created_at).min();
        Self {
            ids: then.iter().map(|one| one.id).collect(),
            is_whole: oldest
                .is_some_and(|oldest| oldest <= born + TOGETHER || at >= oldest + MAX_OVERLAP),
        }
    }
}

impl Service {
    /// One attempt of the tenant's, and its request as it was sent.
    pub async fn sent(&self, id: AttemptId, sees: Sees) -> Result<Sent, ServiceError> {
        let found = self.reading.overview.requested(self.tenant, id).await?;
        let destination = match self.destination(found.attempt.destination).await {
            Ok(described) => Some(described),
            // It is deleted; the ledger stays.
            Err(ServiceError::NotFound(_)) => None,
            Err(error) => return Err(error),
        };
        let now = self.reading.overview.now().await?;
        let attempt = &found.attempt;
        let may_be_sent = attempt.state.may_have_left(attempt.started_at, now);
        let (mut payload, mut signature) = (None, SentSignature::Unknown("hidden"));
        if sees == Sees::Payload && may_be_sent {
            payload = match self.payload(found.attempt.event).await {
                Ok(payload) => Some(payload),
                // Its time has come.
                Err(ServiceError::NotFound(_)) => None,
                Err(error) => return Err(error),
            };
            signature = self.sent_signature(&found).await?;
        }
        let headers = match may_be_sent {
            true => headers(
                &found,
                destination.as_ref(),
                (self.signing.prefix, &signature),
            ),
            false => Vec::new(),
        };
        Ok(Sent {
            headers,
            is_part: matches!(signature, SentSignature::Part(_)),
            found,
            destination,
            payload,
        })
    }

    /// What a request was signed with. For whoever may read payloads: it is of one.
    async fn sent_signature(&self, of: &Requested) -> Result<SentSignature, ServiceError> {
        let unknown = |why| Ok(SentSignature::Unknown(why));
        let Some(at) = of.claimed_at else {
            return unknown("it has not been sent");
        };
        if of.in_batch {
            return unknown("not kept: it is of the whole batch");
        }
        let (id, event) = (of.attempt.destination, of.attempt.event);
        let payload = match self.reading.overview.payload(self.tenant, event).await {
            Err(CatalogError::NotFound(_)) => return unknown("not kept: its payload is gone"),
            payload => payload?,
        };
        if !payload.redact.is_empty() {
            // With it and a public key a short secret could be guessed, byte for byte.
            return unknown("hidden: its type hides a part of what was signed");
        }
        let destination = match self.reading.catalog.destination(self.tenant, id).await {
            Err(CatalogError::NotFound(_)) => return unknown("not kept: its destination is gone"),
            destination => destination?,
        };
        let secrets = self.reading.secrets.secrets(self.tenant, id).await?;
        let then = Then::of(&secrets, destination.created_at, at);
        let mut sealed = self
            .reading
            .managers
            .sealed_secrets(self.tenant, id)
            .await?;
        sealed.retain(|one| {
            matches!(one.place.kind, SealedKind::Signs(_)) && then.ids.contains(&one.place.secret)
        });
        let Ok(opened) = sealing::open(self.signing.vault.as_ref(), &sealed) else {
            return unknown("not shown: this process cannot open the secret");
        };
        let seconds = at.as_micros().div_euclid(1_000_000);
        let signer = opened.signer;
        let signed = signer.sign(at, &event.to_string(), seconds, &payload.bytes);
        Ok(match signed {
            None => SentSignature::Unknown("not kept: its secret has been rotated out since"),
            Some(value) if then.is_whole => SentSignature::Whole(value),
            Some(value) => SentSignature::Part(value),
        })
    }
}

/// None before it started.
fn headers(
    found: &Requested,
    described: Option<&Described>,
    (prefix, signature): (HeaderPrefix, &SentSignature),
) -> Vec<SentHeader> {
    let Some(claimed_at) = found.claimed_at else {
        return Vec::new();
    };
    let event = found.attempt.event.to_string();
    let names = SignatureNames::of(prefix);
    let ours = OwnHeaders {
        prefix,
        id: &event,
        content_type: found.content_type.as_deref().unwrap_or_default(),
        content_length: found.payload_bytes as usize,
        sent_at_seconds: claimed_at.as_micros().div_euclid(1_000_000),
        try_number: found.attempt.try_number,
    };
    let mut shown: Vec<SentHeader> = ours
        .values()
        .into_iter()
        .flatten()
        .map(|(name, value)| {
            let text = value.to_str().unwrap_or_default();
            let of_batch = [&header::CONTENT_TYPE, &header::CONTENT_LENGTH, &names.id];
            // Those are of all the events in its request.
            let is_unknown = found.in_batch && of_batch.contains(&&name);
            let kept = Some(text).filter(|text| !is_unknown && !text.is_empty());
            SentHeader {
                name: name.to_string(),
                value: kept.map(str::to_owned).ok_or("not kept"),
            }
        })
        .collect();
    shown.push(SentHeader {
        name: names.signature.to_string(),
        value: match signature {
            SentSignature::Whole(value) | SentSignature::Part(value) => Ok(value.clone()),
            SentSignature::Unknown(why) => Err(why),
        },
    });
    let added = described.map(|one| &one.shown);
    let names = added.into_iter().flat_map(|one| &one.header_names);
    shown.extend(names.map(|name| SentHeader {
        name: name.clone(),
        value: Err("hidden"),
    }));
    if added.is_some_and(|one| one.oauth2.is_some()) {
        shown.push(SentHeader {
            name: header::AUTHORIZATION.to_string(),
            value: Err("not kept"),
        });
    }
    shown
}

#[cfg(test)]
mod tests {
    use domain::attempt::AttemptState;
    use domain::ids::{DestinationId, EventId};
    use domain::response_headers::ResponseHeaders;
    use domain::signature::SecretKind;
    use engine::ports::AttemptView;
    use uuid::Uuid;

    use super::*;

    const BORN: Timestamp = Timestamp::from_millis(0);
    const DAY: Duration = Duration::from_secs(86_400);

    fn secret(number: u128, created_at: Timestamp) -> Secret {
        Secret {
            id: SecretId(Uuid::from_u128(number)),
            kind: SecretKind::Hmac,
            public_key: None,
            created_at,
            expires_at: None,
        }
    }

    #[test]
    fn those_sign_that_were_there() {
        let rotated = BORN + DAY;
        let (first, second) = (secret(1, BORN), secret(2, rotated));
        let then = |secrets: &[Secret], at: Timestamp| {
            let Then { ids, is_whole } = Then::of(secrets, BORN, at);
            (
                ids.iter().map(|id| id.0.as_u128()).collect::<Vec<_>>(),
                is_whole,
            )
        };
        let both = [second.clone(), first];
        assert_eq!(
            then(&both, rotated - Duration::from_millis(1)),
            (vec![1], true)
        );
        assert_eq!(then(&both, rotated), (vec![2, 1], true));
        // The first has ended: for a while it signed beside the second.
        let left = [second];
        assert_eq!(
            then(&left, rotated - Duration::from_millis(1)),
            (vec![], false)
        );
        assert_eq!(then(&left, rotated + DAY), (vec![2], false));
        assert_eq!(then(&left, rotated + MAX_OVERLAP), (vec![2], true));
    }

    fn requested(started_at: Option<i64>, in_batch: bool) -> Requested {
        Requested {
            attempt: AttemptView {
                id: AttemptId(7),
                event: EventId(Uuid::from_u128(1)),
                destination: DestinationId(Uuid::from_u128(2)),
                try_number: 3,
                state: AttemptState::Succeeded,
                dead_letter: false,
                created_at: Timestamp::from_millis(0),
                due_at: None,
                expires_at: None,
                admitted_at: None,
                started_at: started_at.map(Timestamp::from_millis),
                finished_at: None,
                status: Some(200),
                error: None,
                response_body: None,
                response_headers: ResponseHeaders::default(),
                replay: None,
            },
            claimed_at: started_at.map(Timestamp::from_millis),
            url: started_at.map(|_| "https://receiver.example/".to_owned()),
            content_type: Some("application/json".to_owned()),
            payload_bytes: 12,
            in_batch,
        }
    }

    #[test]
    fn a_request_is_shown_as_it_was_sent_and_its_secrets_are_not() {
        let signature = SentSignature::Whole("v1,abc".to_owned());
        for prefix in HeaderPrefix::ALL {
            let of = (prefix, &signature);
            let shown = headers(&requested(Some(1_999), false), None, of);
            let value = |name: &str| {
                let found = shown.iter().find(|one| one.name == name);
                found.and_then(|one| one.value.as_deref().ok())
            };
            let signed = |name: &str| value(&format!("{prefix}{name}"));
            assert_eq!(signed("id"), Some("00000000-0000-0000-0000-000000000001"));
            assert_eq!(signed("timestamp"), Some("1"));
            assert_eq!(signed("signature"), Some("v1,abc"));
            assert_eq!(value("paceline-try"), Some("3"));
            assert_eq!(value("content-length"), Some("12"));
            let begins = shown
                .iter()
                .filter(|one| one.name.starts_with(prefix.as_str()));
            assert_eq!((begins.count(), shown.len()), (3, 7));
            assert!(headers(&requested(None, false), None, of).is_empty());
        }
    }

    #[test]
    fn what_belongs_to_a_batch_is_not_made_up() {
        for prefix in HeaderPrefix::ALL {
            let of = (prefix, &SentSignature::Unknown("of the batch"));
            let shown = headers(&requested(Some(1_000), true), None, of);
            let says = |why| shown.iter().filter(move |one| one.value == Err(why));
            assert_eq!(says("not kept").count(), 3, "{shown:?}");
            assert_eq!(says("of the batch").count(), 1);
        }
    }
}
