//! An id for each request: in its answer, in the problem that it may be, and on every
//! line that is logged for it, so that one can be found by the other.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue};
use tracing::Instrument;
use utoipa::openapi::header::Header;
use utoipa::openapi::{Object, OpenApi, Ref, RefOr, Type};
use uuid::Uuid;

use crate::api::App;
use crate::api::answers::operations;

pub(crate) const NAME: HeaderName = HeaderName::from_static("x-request-id");

/// The longest that is taken from a request, in bytes.
const MAX_BYTES: usize = 128;

tokio::task_local! {
    /// Of the request that this task answers.
    static CURRENT: HeaderValue;
}

/// That of the request that is being answered; `None` outside of one.
pub(crate) fn current_header() -> Option<HeaderValue> {
    CURRENT.try_with(Clone::clone).ok()
}

/// The same as text.
pub(crate) fn current() -> Option<Box<str>> {
    let id = CURRENT.try_with(|id| id.to_str().map(Box::from).ok());
    id.ok().flatten()
}

/// Takes the caller's, or makes one, and says so in the answer.
pub(crate) async fn assign(State(app): State<App>, request: Request, next: Next) -> Response {
    assign_from(|| app.new_id(), request, next).await
}

/// The same, where it is made so.
pub(crate) async fn assign_from(
    new_id: impl FnOnce() -> Uuid,
    request: Request,
    next: Next,
) -> Response {
    let id = sent(request.headers()).or_else(|| new_id().to_string().try_into().ok());
    let Some(id) = id else {
        return next.run(request).await;
    };
    // At the level of errors, so that no filter for lines leaves it out.
    let span = tracing::error_span!("request", request_id = id.to_str().unwrap_or_default());
    let answer = async {
        let response = next.run(request).await;
        tracing::debug!(status = response.status().as_u16(), "answered");
        response
    };
    let mut response = CURRENT.scope(id.clone(), answer.instrument(span)).await;
    response.headers_mut().insert(NAME, id);
    response
}

/// What a caller or a proxy has sent, if nothing in it could be taken for anything
/// else in a log.
fn sent(headers: &HeaderMap) -> Option<HeaderValue> {
    let id = headers.get(NAME)?;
    let letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"._:-".contains(byte);
    let is_sane = (1..=MAX_BYTES).contains(&id.len()) && id.as_bytes().iter().all(letter);
    is_sane.then(|| id.clone())
}

/// Adds the header to the description of every answer.
pub(crate) fn describe(document: &mut OpenApi) {
    const HEADER: &str = "X-Request-Id";
    let mut described = Header::new(Object::with_type(Type::String));
    let words = "The request's id, as it was sent in this header (1 to 128 letters, digits and \
        `. _ : -`) or else made. The server's log has it.";
    described.description = Some(words.to_owned());
    let components = document.components.get_or_insert_default();
    (components.headers).insert(HEADER.to_owned(), described.into());
    for operation in operations(document) {
        for response in operation.responses.responses.values_mut() {
            if let RefOr::T(response) = response {
                let header = Ref::new(format!("#/components/headers/{HEADER}"));
                (response.headers).insert(HEADER.to_owned(), RefOr::Ref(header));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_id_is_not_taken() {
        let taken = |text: &str| {
            let headers = HeaderMap::from_iter([(NAME, HeaderValue::from_str(text).unwrap())]);
            sent(&headers).is_some()
        };
        let long = "x".repeat(MAX_BYTES);
        for good in ["0192f0c1-7a3e", "a.b_c:d", &long] {
            assert!(taken(good), "{good}");
        }
        for bad in ["", "a b", "a\"b", "{}", &format!("{long}x")] {
            assert!(!taken(bad), "{bad}");
        }
    }
}
