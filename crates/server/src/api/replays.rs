//! `/v1/replays`: dead letters, and events that are sent again, on their way back into
//! the backlog.

use axum::Json;
use domain::ids::{AttemptId, DestinationId, ReplayId};
use domain::replay::{ReplaySource, ReplayState};
use engine::ports;
use engine::ports::DeadLetterFilter;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::body::JsonBody;
use super::parameters::{Page, PathId, ReplaysPage};
use super::problem::Problem;
use super::{Caller, text};
use crate::service::{self, Everywhere, ReplayDraft};

/// A replay to begin: of one dead letter (`attempt_id`), or of all that match
/// now, of one destination (`destination_id`) or of all (`all_destinations`).
#[derive(Debug, Clone, PartialEq, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CreateReplay {
    /// One dead letter: the id of its last attempt.
    pub attempt_id: Option<i64>,
    /// The dead letters of this destination.
    pub destination_id: Option<Uuid>,
    /// Those of all destinations: a replay for each that has some.
    pub all_destinations: bool,
    /// With `all_destinations`, the `next` of the answer before, to go on.
    pub after: Option<Uuid>,
    /// Of those, events of this type.
    #[serde(rename = "type")]
    pub event_type: Option<String>,
    /// Of those, whose last answer had this status.
    pub status: Option<u16>,
    /// Of those, that died at this time or later.
    #[schema(format = DateTime)]
    pub died_from: Option<String>,
    /// Of those, that died before.
    #[schema(format = DateTime)]
    pub died_before: Option<String>,
    /// Which part of the destination's limit it may use: 0.5 if absent.
    pub share: Option<f64>,
}

/// What has begun.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BegunReplays {
    /// One for each destination that has what matches; of all destinations few, or none, of
    /// those that one request looks at: 100 for dead letters, 10 for events.
    pub replays: Vec<Replay>,
    /// More destinations are left: repeat the request with this as `after`.
    /// `null` when all is done.
    pub next: Option<Uuid>,
}

/// Which dead letters a replay would be of; without a destination, those of all.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ReplayPreviewQuery {
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
    /// Which part of each destination's limit it may use: 0.5 if absent.
    pub share: Option<f64>,
}

/// What a replay would be of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReplayPreview {
    /// How many dead letters match, counted up to about 10,000.
    pub dead_letters: u64,
    /// Whether all were counted. Otherwise there are more, and it takes longer.
    pub is_all: bool,
    /// About how long it takes until the last of them are sent; `null` while a limit
    /// is 0.
    pub takes_seconds: Option<f64>,
    /// The destinations with the most of them first, at most 50.
    pub destinations: Vec<PreviewedReplay>,
    /// How many more destinations there are.
    pub further_destinations: u64,
}

/// What would be replayed of one destination.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PreviewedReplay {
    /// Its id.
    pub destination_id: Uuid,
    /// For people.
    pub name: String,
    /// Where its requests go.
    pub url: String,
    /// How many of them are its.
    pub dead_letters: u64,
    /// About how long they take; `null` while its limit is 0.
    pub takes_seconds: Option<f64>,
}

/// How far a replay is, without what became of its attempts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReplayProgress {
    /// Its id.
    pub id: Uuid,
    /// To whom.
    pub destination_id: Uuid,
    /// What it is of: dead letters, or events whatever became of them.
    #[schema(schema_with = text::replay_source)]
    pub source: ReplaySource,
    /// The one event that it is of.
    pub event_id: Option<Uuid>,
    /// Its part of the limit.
    pub share: f64,
    /// Whether it goes on.
    #[schema(schema_with = text::replay_state)]
    pub state: ReplayState,
    /// How many matched when it began, among the earliest 20,000 dead letters or the first
    /// 10,000 events of the time: at least so many, and more once more were moved.
    pub total: u64,
    /// How many of them are back in the backlog, or further.
    pub done: u64,
    /// Of events: how many more there were whose payloads are no longer kept.
    pub skipped: u64,
    /// When it began.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// When it ended.
    #[schema(format = DateTime)]
    pub finished_at: Option<String>,
}

/// A page of replays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Replays {
    /// The newest first.
    pub replays: Vec<ReplayProgress>,
    /// The `after` of the next page; `null` on the last.
    pub next: Option<Uuid>,
}

/// How far a replay is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Replay {
    /// What its row alone says.
    #[serde(flatten)]
    pub progress: ReplayProgress,
    /// How many of those have no outcome yet.
    pub pending: u64,
    /// How many were delivered at their first try.
    pub succeeded: u64,
    /// How many failed at their first try: they are tried again, or are dead
    /// letters again.
    pub failed: u64,
}

impl From<ports::ReplayProgress> for ReplayProgress {
    fn from(replay: ports::ReplayProgress) -> Self {
        Self {
            id: replay.id.0,
            destination_id: replay.destination.0,
            source: replay.source,
            event_id: replay.event.map(|event| event.0),
            share: replay.share,
            state: replay.state,
            total: replay.total,
            done: replay.done,
            skipped: replay.skipped,
            created_at: text::time(replay.created_at),
            finished_at: replay.finished_at.map(text::time),
        }
    }
}

impl From<ports::Replay> for Replay {
    fn from(replay: ports::Replay) -> Self {
        Self {
            pending: replay.pending,
            succeeded: replay.succeeded,
            failed: replay.failed,
            progress: replay.progress.into(),
        }
    }
}

impl From<service::ReplayPreview> for ReplayPreview {
    fn from(preview: service::ReplayPreview) -> Self {
        let each = preview.each.into_iter().map(|one| PreviewedReplay {
            destination_id: one.destination.id.0,
            name: one.destination.name,
            url: one.destination.url,
            dead_letters: one.count,
            takes_seconds: one.takes.map(|takes| takes.as_secs_f64()),
        });
        Self {
            dead_letters: preview.count,
            is_all: preview.is_all,
            takes_seconds: preview.takes.map(|takes| takes.as_secs_f64()),
            destinations: each.collect(),
            further_destinations: preview.further as u64,
        }
    }
}

impl From<service::BegunReplays> for BegunReplays {
    fn from(begun: service::BegunReplays) -> Self {
        Self {
            replays: begun.replays.into_iter().map(Into::into).collect(),
            next: begun.next.map(|next| next.0),
        }
    }
}

/// Begin a replay, or one for each destination. Its attempts are of the same
/// events, with the next try numbers, and go out within the destination's limit. Of a
/// tenant 1,000 replays run at once, at most.
#[utoipa::path(post, path = "/v1/replays", operation_id = "create_replay",
    tag = "dead letters", security(("key" = ["manage"])),
    request_body = CreateReplay, responses(
    (status = 201, description = "They have begun.", body = BegunReplays),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn create(
    caller: Caller,
    JsonBody(body): JsonBody<CreateReplay>,
) -> Result<(StatusCode, Json<BegunReplays>), Problem> {
    if body.after.is_some() && !body.all_destinations {
        return Err(Problem::invalid("after", "goes with all_destinations"));
    }
    let after = body.after.map(DestinationId);
    let draft = ReplayDraft {
        attempt: body.attempt_id.map(AttemptId),
        filter: DeadLetterFilter {
            destination: body.destination_id.map(DestinationId),
            event_type: body.event_type,
            status: body.status,
            died_from: text::parsed_time("died_from", body.died_from.as_deref())?,
            died_before: text::parsed_time("died_before", body.died_before.as_deref())?,
        },
        everywhere: body.all_destinations.then_some(Everywhere { after }),
        share: body.share,
    };
    let caller = (caller.replaying(draft.attempt, draft.filter.destination)).await?;
    let begun = caller
        .run(move |service| async move { service.create_replays(draft).await })
        .await?;
    Ok((StatusCode::CREATED, Json(begun.into())))
}

/// Say what a replay would be of, how many dead letters and about how long; begins
/// none.
#[utoipa::path(get, path = "/v1/replays/preview", operation_id = "preview_replay",
    tag = "dead letters", security(("key" = ["read"])),
    params(ReplayPreviewQuery), responses(
    (status = 200, body = ReplayPreview),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn preview(
    caller: Caller,
    Page(query): Page<ReplayPreviewQuery>,
) -> Result<Json<ReplayPreview>, Problem> {
    let filter = DeadLetterFilter {
        destination: query.destination_id,
        event_type: query.event_type,
        status: query.status,
        died_from: text::parsed_time("died_from", query.died_from.as_deref())?,
        died_before: text::parsed_time("died_before", query.died_before.as_deref())?,
    };
    let share = query.share;
    let found = caller
        .run(move |service| async move { service.replay_preview(&filter, share).await })
        .await?;
    Ok(Json(found.into()))
}

/// List replays, the newest first.
#[utoipa::path(get, path = "/v1/replays", operation_id = "list_replays",
    tag = "dead letters", security(("key" = ["read"])),
    params(ReplaysPage), responses(
    (status = 200, body = Replays),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list(
    caller: Caller,
    Page(page): Page<ReplaysPage>,
) -> Result<Json<Replays>, Problem> {
    let found = caller
        .run(move |service| async move { service.replays(page.after, page.limit).await })
        .await?;
    let full = found.len() >= page.limit as usize;
    let next = found.last().filter(|_| full).map(|last| last.id.0);
    let replays = found.into_iter().map(ReplayProgress::from).collect();
    Ok(Json(Replays { replays, next }))
}

/// Look at a replay.
#[utoipa::path(get, path = "/v1/replays/{id}", operation_id = "show_replay",
    tag = "dead letters", security(("key" = ["read"])),
    params(("id" = Uuid, Path)), responses(
    (status = 200, body = Replay),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn show(
    caller: Caller,
    PathId(id): PathId<ReplayId>,
) -> Result<Json<Replay>, Problem> {
    let found = caller
        .run(move |service| async move { service.replay(id).await })
        .await?;
    Ok(Json(found.into()))
}

/// End a replay. What it has put back into the backlog stays there.
#[utoipa::path(post, path = "/v1/replays/{id}/cancel", operation_id = "cancel_replay",
    tag = "dead letters",
    security(("key" = ["manage"])), params(("id" = Uuid, Path)), responses(
    (status = 200, body = Replay),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn cancel(
    caller: Caller,
    PathId(id): PathId<ReplayId>,
) -> Result<Json<Replay>, Problem> {
    let ended = caller
        .run(move |service| async move { service.cancel_replay(id).await })
        .await?;
    Ok(Json(ended.into()))
}
