//! How words and times look in JSON.

use chrono::{DateTime, SecondsFormat};
use domain::access::Scope;
use domain::attempt::AttemptState;
use domain::credentials::ClientAuth;
use domain::destination::DestinationState;
use domain::handshake::Handshake;
use domain::limit::{Count, Shape};
use domain::replay::{ReplaySource, ReplayState};
use domain::search::{InvalidStatus, SoughtStatus};
use domain::signature::SecretKind;
use domain::time::Timestamp;
use serde_json::Value;
use utoipa::openapi::schema::{Array, ArrayBuilder, Object, ObjectBuilder, SchemaType, Type};

use crate::service::ServiceError;

/// RFC 3339 in UTC with microseconds: `2026-01-31T12:00:00.000001Z`.
#[must_use]
pub fn time(time: Timestamp) -> String {
    DateTime::from_timestamp_micros(time.as_micros())
        .unwrap_or_default()
        .to_rfc3339_opts(SecondsFormat::Micros, true)
}

/// A time that was sent, if one was.
pub(super) fn parsed_time(
    field: &str,
    text: Option<&str>,
) -> Result<Option<Timestamp>, ServiceError> {
    let Some(text) = text else {
        return Ok(None);
    };
    match DateTime::parse_from_rfc3339(text) {
        Ok(time) => Ok(Some(Timestamp::from_micros(time.timestamp_micros()))),
        Err(_) => {
            let problem = "must be a time such as 2026-01-31T12:00:00Z";
            Err(ServiceError::invalid(field, problem))
        }
    }
}

/// A status, or a class of them, that was sent, if one was.
pub(super) fn parsed_status(
    field: &str,
    text: Option<&str>,
) -> Result<Option<SoughtStatus>, ServiceError> {
    let parsed = text.map(str::parse).transpose();
    parsed.map_err(|problem: InvalidStatus| ServiceError::invalid(field, problem.to_string()))
}

/// A replay's state.
pub fn replay_state() -> Object {
    words(ReplayState::ALL.map(ReplayState::as_str))
}

/// What a replay is of.
pub fn replay_source() -> Object {
    words(ReplaySource::ALL.map(ReplaySource::as_str))
}

/// A limit's shape.
pub fn shape() -> Object {
    words([Shape::SlidingWindow, Shape::TokenBucket, Shape::LeakyBucket].map(Shape::as_str))
}

/// A limit's shape, or none.
pub fn shape_or_null() -> Object {
    or_null(shape())
}

/// Until when a request counts.
pub fn count_or_null() -> Object {
    or_null(words([Count::Start, Count::Response].map(Count::as_str)))
}

/// Whether a receiver is asked before anything is sent to it.
pub fn handshake() -> Object {
    words(Handshake::ALL.map(Handshake::as_str))
}

/// How a client says who it is to a token server.
pub fn client_auth() -> Object {
    words(ClientAuth::ALL.map(ClientAuth::as_str))
}

/// A destination's state.
pub fn destination_state() -> Object {
    let states = [
        DestinationState::Active,
        DestinationState::Paused,
        DestinationState::Disabled,
    ];
    words(states.map(DestinationState::as_str))
}

/// A secret's kind.
pub fn secret_kind() -> Object {
    words([SecretKind::Hmac, SecretKind::Ed25519].map(SecretKind::as_str))
}

/// An attempt's state.
pub fn attempt_state() -> Object {
    words(AttemptState::ALL.map(AttemptState::as_str))
}

/// An attempt's state, if there is an attempt.
pub fn attempt_state_or_null() -> Object {
    or_null(attempt_state())
}

/// The state of an attempt that is over, or none.
pub fn final_state_or_null() -> Object {
    let over = [
        AttemptState::Succeeded,
        AttemptState::Failed,
        AttemptState::Unknown,
        AttemptState::NotSent,
        AttemptState::Cancelled,
        AttemptState::Expired,
    ];
    or_null(words(over.map(AttemptState::as_str)))
}

/// A key's scopes.
pub fn scopes() -> Array {
    let words = words(Scope::ALL.map(Scope::as_str));
    ArrayBuilder::new().items(words).min_items(Some(1)).build()
}

pub(super) fn words<const N: usize>(words: [&'static str; N]) -> Object {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .enum_values(Some(words))
        .build()
}

/// One of these words, or `null`.
pub(super) fn or_null(mut words: Object) -> Object {
    words.schema_type = SchemaType::from_iter([Type::String, Type::Null]);
    words.enum_values.get_or_insert_default().push(Value::Null);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_microseconds_and_an_offset() {
        assert_eq!(
            time(Timestamp::from_micros(1)),
            "1970-01-01T00:00:00.000001Z"
        );
        assert_eq!(
            time(Timestamp::from_millis(1_700_000_000_000)),
            "2023-11-14T22:13:20.000000Z"
        );
    }
}
