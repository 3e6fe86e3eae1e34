//! Reading a body: bounded by itself and together with all others, and refused
//! by the name of the field at fault.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use http::{HeaderMap, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::App;
use super::problem::Problem;

/// The largest body that has no payload in it.
pub const MAX_BODY_BYTES: usize = 256 * 1024;

/// The largest body with one event: a payload in base64, and room to spare.
pub const MAX_EVENT_BODY_BYTES: usize = 512 * 1024;

/// The largest body with a batch of events.
pub const MAX_BATCH_BODY_BYTES: usize = 8 * 1024 * 1024;

/// The largest sum of all bodies that are read or worked on at one time.
const MAX_BYTES_AT_ONCE: usize = 256 * 1024 * 1024;

/// What one body takes of the room at least, so that many small ones are
/// bounded as well: 16,384 at once.
const MIN_SHARE_BYTES: usize = 16 * 1024;

const KIB: usize = 1024;

/// Memory for bodies, in KiB. What does not fit is refused at once.
pub struct Room(Arc<Semaphore>);

impl Room {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(MAX_BYTES_AT_ONCE / KIB)))
    }

    fn take(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Problem> {
        let kib = u32::try_from(bytes.max(MIN_SHARE_BYTES).div_ceil(KIB)).unwrap_or(u32::MAX);
        let taken = Arc::clone(&self.0).try_acquire_many_owned(kib).ok();
        let problem = "too many bytes are on their way in; nothing was written";
        taken.ok_or_else(|| Problem::overloaded(problem))
    }
}

/// The bytes of a body that has a payload in it.
pub struct EventBody {
    /// The whole body.
    pub bytes: Bytes,
    /// Keep it until the request is answered.
    pub room: OwnedSemaphorePermit,
}

/// The same of a batch.
pub struct BatchBody(pub EventBody);

impl FromRequest<App> for EventBody {
    type Rejection = Problem;
    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        read(request, app, MAX_EVENT_BODY_BYTES, "payload").await
    }
}

impl FromRequest<App> for BatchBody {
    type Rejection = Problem;
    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        read(request, app, MAX_BATCH_BODY_BYTES, "events")
            .await
            .map(Self)
    }
}

/// A JSON body without a payload.
pub struct JsonBody<T>(pub T);

impl<T: DeserializeOwned> FromRequest<App> for JsonBody<T> {
    type Rejection = Problem;
    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        let body = read(request, app, MAX_BODY_BYTES, "body").await?;
        parse(&body.bytes).map(Self)
    }
}

async fn read(
    request: Request,
    app: &App,
    max_bytes: usize,
    field: &str,
) -> Result<EventBody, Problem> {
    let (head, body) = request.into_parts();
    if !is_json(&head.headers) {
        return Err(Problem::not_json());
    }
    let announced = announced_bytes(&head.headers);
    if announced.is_some_and(|bytes| bytes > max_bytes) {
        return Err(Problem::too_large(field, max_bytes));
    }
    let room = app.0.room.take(announced.unwrap_or(max_bytes))?;
    let bytes = collect(body, max_bytes, field).await?;
    Ok(EventBody { bytes, room })
}

async fn collect(body: Body, max_bytes: usize, field: &str) -> Result<Bytes, Problem> {
    match Limited::new(body, max_bytes).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Problem::too_large(field, max_bytes)),
        Err(error) => Err(Problem::malformed(error.to_string())),
    }
}

fn announced_bytes(headers: &HeaderMap) -> Option<usize> {
    headers
        .get(header::CONTENT_LENGTH)?
        .to_str()
        .ok()?
        .parse()
        .ok()
}

/// As JSON, or as nothing in particular (what curl says without `-H` is a
/// form, and is refused: a mistake had better be seen).
fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::CONTENT_TYPE) else {
        return true;
    };
    let essence = value
        .to_str()
        .unwrap_or_default()
        .split(';')
        .next()
        .unwrap_or_default();
    let essence = essence.trim().to_ascii_lowercase();
    essence == "application/json"
        || (essence.starts_with("application/") && essence.ends_with("+json"))
}

/// JSON into a body, refused by the field at fault.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    // serde would take an array for the fields in their order.
    if bytes.trim_ascii_start().starts_with(b"[") {
        return Err(Problem::invalid(
            "body",
            "expected a JSON object, not an array",
        ));
    }
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let parsed = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        refused(&path, error.inner())
    })?;
    json.end()
        .map_err(|error| Problem::malformed(error.to_string()))?;
    Ok(parsed)
}

fn refused(path: &str, error: &serde_json::Error) -> Problem {
    if !error.is_data() {
        return Problem::malformed(error.to_string());
    }
    let detail = error.to_string();
    // A missing field is reported at its parent; its name is in the message.
    let missing = detail
        .strip_prefix("missing field `")
        .and_then(|rest| rest.split('`').next());
    let path = path.trim_start_matches('.');
    let field = match (missing, path) {
        (Some(name), "") => name.to_owned(),
        (Some(name), parent) => format!("{parent}.{name}"),
        (None, "") => "body".to_owned(),
        (None, path) => path.to_owned(),
    };
    Problem::invalid(field, without_position(&detail))
}

/// "… at line 1 column 30" helps nobody whose JSON was made by a program.
fn without_position(detail: &str) -> &str {
    detail
        .rsplit_once(" at line ")
        .map_or(detail, |(problem, _)| problem)
}
