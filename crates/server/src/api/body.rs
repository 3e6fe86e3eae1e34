//! Reading a body: bounded by itself and together with all others, and refused
//! by the name of the field at fault.
//!
//! Room is taken as bytes come, not as they are announced, and no tenant has more
//! than a quarter of it: whoever sends slowly, or announces much, is in nobody
//! else's way.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use bytes::{Bytes, BytesMut};
use domain::event::MAX_PAYLOAD_BYTES;
use domain::ids::TenantId;
use http::{HeaderMap, header};
use http_body_util::BodyExt;
use serde::de::{DeserializeOwned, IgnoredAny};
use uuid::Uuid;

use super::App;
use super::problem::Problem;
use crate::access::Identity;

mod pace;
mod room;
pub(super) mod words;

pub(super) use pace::Pace;
pub use room::{Room, Share};

/// The largest body that has no payload in it.
pub const MAX_BODY_BYTES: usize = 256 * 1024;

/// The largest body with one event: a payload in base64, and room to spare.
pub const MAX_EVENT_BODY_BYTES: usize = 512 * 1024;

/// The largest body with a batch of events.
pub const MAX_BATCH_BODY_BYTES: usize = 8 * 1024 * 1024;

/// The bytes of a body that has a payload in it.
pub struct EventBody {
    /// The whole body.
    pub bytes: Bytes,
    /// Keep it until the request is answered.
    pub room: Share,
}

/// The same of a batch.
pub struct BatchBody(pub EventBody);

impl FromRequest<App> for EventBody {
    type Rejection = Problem;
    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        read(request, app, MAX_EVENT_BODY_BYTES, Some("payload")).await
    }
}

impl FromRequest<App> for BatchBody {
    type Rejection = Problem;
    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        read(
            request,
            app,
            MAX_BATCH_BODY_BYTES,
            Some("payload of each event"),
        )
        .await
        .map(Self)
    }
}

/// A JSON body without a payload.
pub struct JsonBody<T>(pub T);

impl<T: DeserializeOwned> FromRequest<App> for JsonBody<T> {
    type Rejection = Problem;
    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        let body = read(request, app, MAX_BODY_BYTES, None).await?;
        parse(&body.bytes).map(Self)
    }
}

async fn read(
    request: Request,
    app: &App,
    max_bytes: usize,
    payload: Option<&str>,
) -> Result<EventBody, Problem> {
    let (head, body) = request.into_parts();
    if !is_json(&head.headers) {
        return Err(Problem::not_json());
    }
    let announced = announced_bytes(&head.headers);
    if announced.is_some_and(|bytes| bytes > max_bytes) {
        return Err(too_large(max_bytes, payload));
    }
    let identity = head.extensions.get::<Identity>();
    let tenant = identity.ok_or_else(Problem::unauthorized)?.tenant;
    let sent = Sent {
        body,
        max_bytes,
        payload,
    };
    sent.read(&app.0.room, tenant).await
}

/// Whom those count as whom nobody knows yet.
const STRANGERS: TenantId = TenantId(Uuid::nil());

/// A page's form: of this tenant, or of somebody who has not signed in.
pub(crate) async fn form(
    app: &App,
    request: Request,
    of: Option<TenantId>,
    max_bytes: usize,
) -> Result<EventBody, Problem> {
    let sent = Sent {
        body: request.into_body(),
        max_bytes,
        payload: None,
    };
    match of {
        Some(tenant) => sent.read(&app.0.room, tenant).await,
        // So many that all connections there may be have room for one.
        None => {
            sent.read_in(app.0.room.take_for(STRANGERS, max_bytes)?)
                .await
        }
    }
}

/// A body on its way in.
struct Sent<'a> {
    body: Body,
    max_bytes: usize,
    /// What in it has a bound of its own.
    payload: Option<&'a str>,
}

impl Sent<'_> {
    async fn read(self, room: &Arc<Room>, tenant: TenantId) -> Result<EventBody, Problem> {
        let share = room.take(tenant)?;
        self.read_in(share).await
    }

    async fn read_in(mut self, mut share: Share) -> Result<EventBody, Problem> {
        let (mut pace, mut read) = (Pace::of_a_request(), BytesMut::new());
        while let Some(frame) = pace.wait_for(self.body.frame()).await? {
            let frame = frame.map_err(|error| Problem::malformed(error.to_string()))?;
            let Ok(bytes) = frame.into_data() else {
                continue;
            };
            if read.len() + bytes.len() > self.max_bytes {
                return Err(too_large(self.max_bytes, self.payload));
            }
            pace.came(bytes.len());
            share.hold(read.len() + bytes.len())?;
            read.extend_from_slice(&bytes);
        }
        Ok(EventBody {
            bytes: read.freeze(),
            room: share,
        })
    }
}

/// With the payload's own bound, so that whoever makes the body just small enough is
/// not refused again.
fn too_large(max_bytes: usize, payload: Option<&str>) -> Problem {
    let mut problem = Problem::too_large("body", max_bytes);
    if let Some(payload) = payload {
        let also = format!(", and the {payload} at most {MAX_PAYLOAD_BYTES}");
        problem.detail.push_str(&also);
    }
    problem
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
    // The end of a line in a bulk body is no place to name.
    let bytes = bytes.trim_ascii_end();
    // serde would take an array for the fields in their order.
    if bytes.trim_ascii_start().starts_with(b"[") {
        return Err(Problem::invalid(
            "body",
            "expected a JSON object, not an array",
        ));
    }
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let parsed = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        // A field may be wrong before it is seen that all of it is no JSON.
        if let Err(error) = serde_json::from_slice::<IgnoredAny>(bytes) {
            return broken(&error);
        }
        let path = error.path().to_string();
        refused(&path, error.inner())
    })?;
    json.end().map_err(|error| broken(&error))?;
    Ok(parsed)
}

/// With the place, which in one line is only a column.
fn broken(error: &serde_json::Error) -> Problem {
    let detail = error
        .to_string()
        .replace(" at line 1 column ", " at column ");
    Problem::malformed(format!("broken JSON: {detail}"))
}

fn refused(path: &str, error: &serde_json::Error) -> Problem {
    if !error.is_data() {
        return broken(error);
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
    Problem::invalid(&field, words::of(&field, without_position(&detail)))
}

/// "… at line 1 column 30" helps nobody whose JSON was made by a program.
fn without_position(detail: &str) -> &str {
    detail
        .rsplit_once(" at line ")
        .map_or(detail, |(problem, _)| problem)
}
