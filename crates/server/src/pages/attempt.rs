//! One attempt: its request beside its response.
//!
//! Requests are not kept. What is ours in them follows from what is: so it is
//! put together by the function that sends it, and signed by the one that signs. What the destination adds may be
//! a password, and is named only. What the event carries is read where it is kept, by
//! those who may.

use adapters::http::{OwnHeaders, SignatureNames};
use axum::extract::{Path, State};
use axum::response::Html;
use domain::access::Scope;
use domain::ids::AttemptId;
use domain::signature::HeaderPrefix;
use engine::ports::Requested;
use http::header;

use super::Asked;
use super::destination::Line;
use super::events::payload;
use super::frame::{Frame, rendered};
use super::refused::Refused;
use super::visitor::Visitor;
use super::words::{self, NONE};
use crate::service::sent::SentSignature;
use crate::service::{Described, ServiceError};

#[derive(askama::Template)]
#[template(path = "attempt.html")]
struct Page {
    frame: Frame,
    one: Line,
    name: String,
    url: String,
    started: String,
    bytes: String,
    in_batch: bool,
    headers: Vec<(String, String)>,
    response_headers: Vec<(String, String)>,
    /// A secret that has ended since may have signed as well.
    is_part: bool,
    /// What its event carries, for who may see it.
    payload: Option<String>,
    /// What is said of it.
    about_payload: &'static str,
    /// It is over, and its destination is there, so its event can be sent there again.
    is_over: bool,
}

pub(super) async fn show(
    State(pages): Asked,
    visitor: Visitor,
    Path(id): Path<String>,
) -> Result<Html<String>, Refused> {
    let tenant = visitor.tenant();
    let id = id.parse().map(AttemptId);
    let id = id.map_err(|_bad| Refused::not_found("attempt"))?;
    let found = pages.0.overview.requested(tenant, id).await?;
    let service = pages.service(tenant);
    let described = match service.destination(found.attempt.destination).await {
        Ok(described) => Some(described),
        // It is deleted; the ledger stays.
        Err(ServiceError::NotFound(_)) => None,
        Err(error) => return Err(error.into()),
    };
    let started = found.attempt.started_at;
    let (payload, about_payload) = match started {
        Some(_) => payload(&service, &visitor, found.attempt.event).await?,
        None => (None, ""),
    };
    let signature = match visitor.may(Scope::ReadPayloads) && started.is_some() {
        true => service.sent_signature(&found).await?,
        false => SentSignature::Unknown("hidden"),
    };
    rendered(&Page {
        frame: Frame::of(&pages, &visitor, ("Attempt", "/dashboard")).await?,
        headers: headers(
            &found,
            described.as_ref(),
            (pages.0.signature.signature_prefix, &signature),
        ),
        is_part: matches!(signature, SentSignature::Part(_)),
        started: started.map_or(NONE.to_owned(), words::time),
        payload,
        about_payload,
        is_over: found.attempt.state.is_final() && described.is_some(),
        bytes: words::large(u64::from(found.payload_bytes)),
        in_batch: found.in_batch,
        name: name(&found, described.as_ref()),
        url: described.map_or(NONE.to_owned(), |one| one.destination.url),
        response_headers: (found.attempt.response_headers.iter())
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        one: Line::from(found.attempt),
    })
}

fn name(found: &Requested, described: Option<&Described>) -> String {
    let name = described.map(|one| one.destination.name.clone());
    name.filter(|name| !name.is_empty())
        .unwrap_or_else(|| found.attempt.destination.to_string())
}

/// None before it started.
fn headers(
    found: &Requested,
    described: Option<&Described>,
    (prefix, signature): (HeaderPrefix, &SentSignature),
) -> Vec<(String, String)> {
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
    let mut shown: Vec<(String, String)> = ours
        .values()
        .into_iter()
        .flatten()
        .map(|(name, value)| {
            let text = value.to_str().unwrap_or_default();
            let of_batch = [&header::CONTENT_TYPE, &header::CONTENT_LENGTH, &names.id];
            // Those are of all the events in its request.
            let is_unknown = found.in_batch && of_batch.contains(&&name);
            let kept = Some(text).filter(|text| !is_unknown && !text.is_empty());
            let words = kept.unwrap_or("not kept").to_owned();
            (name.to_string(), words)
        })
        .collect();
    let signature = match signature {
        SentSignature::Whole(value) | SentSignature::Part(value) => value.clone(),
        SentSignature::Unknown(why) => (*why).to_owned(),
    };
    shown.push((names.signature.to_string(), signature));
    let added = described.map(|one| &one.shown);
    let names = added.into_iter().flat_map(|one| &one.header_names);
    shown.extend(names.map(|name| (name.clone(), "hidden".to_owned())));
    if added.is_some_and(|one| one.oauth2.is_some()) {
        shown.push((header::AUTHORIZATION.to_string(), "not kept".to_owned()));
    }
    shown
}

#[cfg(test)]
mod tests {
    use domain::attempt::AttemptState;
    use domain::ids::{DestinationId, EventId};
    use domain::response_headers::ResponseHeaders;
    use domain::time::Timestamp;
    use engine::ports::AttemptView;
    use uuid::Uuid;

    use super::*;

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
                let found = shown.iter().find(|(known, _)| known == name);
                found.map(|(_, value)| value.as_str())
            };
            let signed = |name: &str| value(&format!("{prefix}{name}"));
            assert_eq!(signed("id"), Some("00000000-0000-0000-0000-000000000001"));
            assert_eq!(signed("timestamp"), Some("1"));
            assert_eq!(signed("signature"), Some("v1,abc"));
            assert_eq!(value("paceline-try"), Some("3"));
            assert_eq!(value("content-length"), Some("12"));
            let begins = shown
                .iter()
                .filter(|(name, _)| name.starts_with(prefix.as_str()));
            assert_eq!((begins.count(), shown.len()), (3, 7));
            assert!(headers(&requested(None, false), None, of).is_empty());
        }
    }

    #[test]
    fn what_belongs_to_a_batch_is_not_made_up() {
        for prefix in HeaderPrefix::ALL {
            let of = (prefix, &SentSignature::Unknown("of the batch"));
            let shown = headers(&requested(Some(1_000), true), None, of);
            let unknown = shown.iter().filter(|(_, value)| value == "not kept");
            assert_eq!(unknown.count(), 3, "{shown:?}");
            assert!(shown.iter().any(|(_, value)| value == "of the batch"));
        }
    }
}
