//! `/v1/destinations/{id}/handshake`.

use axum::Json;
use axum::http::StatusCode;
use domain::handshake::{AskOutcome, Handshake};
use engine::ports::HandshakeView;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::schema::Object;

use super::parameters::{DestinationPath, PathId};
use super::problem::Problem;
use super::{Caller, text};

/// Whether a receiver allows that anything is sent to it, and how much.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HandshakeStatus {
    /// Whether it is asked.
    #[schema(schema_with = text::handshake)]
    pub handshake: Handshake,
    /// What it was last: `allowed`, `refused` (it does not want any, or knows no
    /// handshake) or `unreachable`. `null`: it has yet to be asked.
    #[schema(schema_with = outcome)]
    pub outcome: Option<AskOutcome>,
    /// Why it is not allowed, in words.
    pub problem: Option<String>,
    /// Starts in any 60 seconds that it allows; 0 for none. `null`: as many as are
    /// configured.
    pub allowed_per_minute: Option<u32>,
    /// What it has allowed stands until then, while it cannot be reached.
    #[schema(format = DateTime)]
    pub allowed_until: Option<String>,
    /// When it was asked last.
    #[schema(format = DateTime)]
    pub asked_at: Option<String>,
    /// When it is asked next, at the latest. `null`: never.
    #[schema(format = DateTime)]
    pub next_ask_at: Option<String>,
    /// Asked in vain, in a row.
    pub failures: u32,
}

fn outcome() -> Object {
    text::or_null(text::words(AskOutcome::ALL.map(AskOutcome::as_str)))
}

impl From<HandshakeView> for HandshakeStatus {
    fn from(view: HandshakeView) -> Self {
        let standing = view.standing.unwrap_or_default();
        let is_on = view.handshake != Handshake::None;
        Self {
            handshake: view.handshake,
            outcome: standing.outcome,
            problem: standing.problem,
            allowed_per_minute: standing.allowed_per_minute.filter(|_| is_on),
            allowed_until: standing.allowed_until.map(text::time),
            asked_at: standing.asked_at.map(text::time),
            next_ask_at: is_on.then(|| text::time(standing.next_ask_at)),
            failures: standing.failures,
        }
    }
}

/// Look at a destination's handshake: whether its receiver allows that anything is sent
/// to it, how much, and when it is asked again.
#[utoipa::path(get, path = "/v1/destinations/{id}/handshake", operation_id = "show_handshake",
    tag = "destinations",
    security(("key" = ["read"])), params(("id" = Uuid, Path)), responses(
    (status = 200, body = HandshakeStatus),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn show(
    caller: Caller,
    PathId(id): DestinationPath,
) -> Result<Json<HandshakeStatus>, Problem> {
    let view = caller
        .run(|service| async move { service.handshake(id).await })
        .await?;
    Ok(Json(view.into()))
}

/// Have a destination's receiver asked now, and not when its time comes. The answer does
/// not wait for the receiver's: look again. That of a disabled destination is not asked (409).
#[utoipa::path(post, path = "/v1/destinations/{id}/handshake", operation_id = "ask_for_handshake",
    tag = "destinations",
    security(("key" = ["manage"])), params(("id" = Uuid, Path)), responses(
    (status = 202, body = HandshakeStatus),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn ask(
    caller: Caller,
    PathId(id): DestinationPath,
) -> Result<(StatusCode, Json<HandshakeStatus>), Problem> {
    let view = caller
        .run(|service| async move { service.ask_now(id).await })
        .await?;
    Ok((StatusCode::ACCEPTED, Json(view.into())))
}
