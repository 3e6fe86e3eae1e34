//! `/v1/dead-letters`: events that were given up at a destination.

use axum::Json;
use domain::ids::{AttemptId, DestinationId};
use engine::ports;
use engine::ports::{DeadLetterFilter, DeadLetterPosition};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::attempts::Attempt;
use super::parameters::{Page, PathId};
use super::problem::Problem;
use super::{Caller, text};
use crate::service::rules;

/// An event that was given up at a destination.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DeadLetter {
    /// The attempt that was the last: why, and the last response. Its id is
    /// the dead letter's.
    #[serde(flatten)]
    pub attempt: Attempt,
    /// The event's type.
    #[serde(rename = "type")]
    pub event_type: Option<String>,
    /// When it was given up.
    #[schema(format = DateTime)]
    pub died_at: String,
    /// When it was replayed; such a one is on no list any more.
    #[schema(format = DateTime)]
    pub replayed_at: Option<String>,
}

/// A page of dead letters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DeadLetters {
    /// Those that died last first. Where hardly any match there may be few of
    /// them, and yet more on the next page.
    pub dead_letters: Vec<DeadLetter>,
    /// The `after` of the next page; `null` on the last.
    pub next: Option<String>,
}

impl From<ports::DeadLetter> for DeadLetter {
    fn from(one: ports::DeadLetter) -> Self {
        Self {
            attempt: one.attempt.into(),
            event_type: one.event_type,
            died_at: text::time(one.died_at),
            replayed_at: one.replayed_at.map(text::time),
        }
    }
}

/// Which dead letters, and which page of them.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DeadLettersPage {
    /// Of this destination.
    #[param(value_type = Option<uuid::Uuid>)]
    pub destination_id: Option<DestinationId>,
    /// Of events of this type.
    #[serde(rename = "type")]
    pub event_type: Option<String>,
    /// Whose last answer had this status.
    pub status: Option<u16>,
    /// That died at this time or later.
    #[param(format = DateTime)]
    pub died_from: Option<String>,
    /// That died before.
    #[param(format = DateTime)]
    pub died_before: Option<String>,
    /// The `next` of the page before.
    pub after: Option<String>,
    /// Rows on the page, 1 to 1,000.
    #[serde(default = "default_page")]
    #[param(default = 100, minimum = 1, maximum = 1_000)]
    pub limit: u32,
}

fn default_page() -> u32 {
    100
}

fn position(text: &str) -> Result<DeadLetterPosition, Problem> {
    let parsed = text.split_once(':').and_then(|(at, id)| {
        Some(DeadLetterPosition {
            died_at: rules::time(at)?,
            attempt: AttemptId(id.parse().ok()?),
        })
    });
    parsed.ok_or_else(|| Problem::invalid("after", "must be the next of the page before"))
}

/// List dead letters that were not replayed, those that died last first.
#[utoipa::path(get, path = "/v1/dead-letters", operation_id = "list_dead_letters",
    tag = "dead letters", security(("key" = ["read"])),
    params(DeadLettersPage), responses(
    (status = 200, body = DeadLetters),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list(
    caller: Caller,
    Page(page): Page<DeadLettersPage>,
) -> Result<Json<DeadLetters>, Problem> {
    let filter = DeadLetterFilter {
        destination: page.destination_id,
        event_type: page.event_type,
        status: page.status,
        died_from: text::parsed_time("died_from", page.died_from.as_deref())?,
        died_before: text::parsed_time("died_before", page.died_before.as_deref())?,
    };
    let after = page.after.as_deref().map(position).transpose()?;
    let limit = page.limit;
    let found = caller
        .run(move |service| async move { service.dead_letters(filter, after, limit).await })
        .await?;
    let next = |next: DeadLetterPosition| format!("{}:{}", next.died_at.as_micros(), next.attempt);
    Ok(Json(DeadLetters {
        next: found.next.map(next),
        dead_letters: found.dead_letters.into_iter().map(Into::into).collect(),
    }))
}

/// Look at a dead letter, by the id of its last attempt.
#[utoipa::path(get, path = "/v1/dead-letters/{id}", operation_id = "show_dead_letter",
    tag = "dead letters", security(("key" = ["read"])),
    params(("id" = i64, Path)), responses(
    (status = 200, body = DeadLetter),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn show(
    caller: Caller,
    PathId(id): PathId<i64>,
) -> Result<Json<DeadLetter>, Problem> {
    let found = caller
        .run(move |service| async move { service.dead_letter(AttemptId(id)).await })
        .await?;
    Ok(Json(found.into()))
}
