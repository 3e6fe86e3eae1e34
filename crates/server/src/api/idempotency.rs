//! The header `Idempotency-Key`: the field `idempotency_key` of a request with
//! one event, for clients whose HTTP library sets it.

use axum::extract::FromRequestParts;
use http::request::Parts;

use super::problem::Problem;

/// As errors name it.
const NAME: &str = "Idempotency-Key";

/// The header's value, if there is one.
pub(super) struct KeyHeader(pub(super) Option<String>);

impl<S: Sync> FromRequestParts<S> for KeyHeader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let mut values = parts.headers.get_all(NAME).iter();
        let Some(value) = values.next() else {
            return Ok(Self(None));
        };
        if values.next().is_some() {
            return Err(Problem::invalid(NAME, "is there twice"));
        }
        let problem = "must be of visible ASCII, without spaces";
        let text = value.to_str().ok();
        let text = text.ok_or_else(|| Problem::invalid(NAME, problem))?;
        Ok(Self(Some(text.to_owned())))
    }
}

/// The field's key or the header's.
pub(super) fn one_key(
    field: Option<String>,
    header: Option<String>,
) -> Result<Option<String>, Problem> {
    match (field, header) {
        (Some(field), Some(header)) if field != header => {
            let problem = "the field and the header Idempotency-Key differ";
            Err(Problem::invalid("idempotency_key", problem))
        }
        (field, header) => Ok(field.or(header)),
    }
}

/// One key cannot stand for many events.
pub(super) fn refuse_key_of_many(header: Option<String>) -> Result<(), Problem> {
    match header {
        None => Ok(()),
        Some(_) => {
            let problem = "is for one event; here give each event an idempotency_key of its own";
            Err(Problem::invalid(NAME, problem))
        }
    }
}
