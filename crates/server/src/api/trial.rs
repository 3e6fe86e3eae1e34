//! `/v1/destinations/{id}/test`: an event that tries a destination, and its answer.

use std::time::Duration;

use axum::Json;
use domain::access::Scope;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::Caller;
use super::attempts::Attempt;
use super::body::JsonBody;
use super::caller::to_its_end;
use super::parameters::{DestinationPath, PathId};
use super::problem::Problem;
use crate::service::ServiceError;
use crate::service::trial::{LONGEST_TRIAL, Trial};

/// What a destination is tried with.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TryDestination {
    /// With the catalogue's example of this type; with a small event of the type
    /// `paceline.test` if absent.
    #[serde(rename = "type")]
    pub event_type: Option<String>,
    /// So long its answer is waited for, 0 to 5; 5 if absent.
    #[schema(maximum = 5)]
    pub wait_seconds: Option<u32>,
}

impl TryDestination {
    fn patience(&self) -> Result<Duration, ServiceError> {
        let most = LONGEST_TRIAL.as_secs();
        match self.wait_seconds.map(u64::from) {
            None => Ok(LONGEST_TRIAL),
            Some(seconds) if seconds <= most => Ok(Duration::from_secs(seconds)),
            Some(_) => {
                let problem = format!("must be at most {most}");
                Err(ServiceError::invalid("wait_seconds", problem))
            }
        }
    }
}

/// An event that tries a destination.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TriedDestination {
    /// The event.
    pub event_id: Uuid,
    /// Its first attempt, with what came of it; `null` where that was not there in time, or
    /// the key lacks the scope `read`.
    pub attempt: Option<Attempt>,
}

impl From<Trial> for TriedDestination {
    fn from(trial: Trial) -> Self {
        Self {
            event_id: trial.event.0,
            attempt: trial.attempt.map(Attempt::from),
        }
    }
}

/// Send an event to try a destination, as any other and within its limits, and wait for
/// what comes of it. 202 where it is on its way still: look at the event.
#[utoipa::path(post, path = "/v1/destinations/{id}/test", operation_id = "test_destination",
    tag = "destinations", security(("key" = ["manage"])),
    params(("id" = Uuid, Path)), request_body = TryDestination, responses(
    (status = 200, description = "It has an outcome.", body = TriedDestination),
    (status = 202, description = "It is on its way.", body = TriedDestination),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn destination(
    caller: Caller,
    PathId(id): DestinationPath,
    JsonBody(body): JsonBody<TryDestination>,
) -> Result<(StatusCode, Json<TriedDestination>), Problem> {
    let patience = body.patience()?;
    let event = caller
        .run(move |service| async move {
            let of_type = body.event_type.as_deref();
            service.try_destination(id, of_type).await
        })
        .await?;
    // Who may not read is told of no answer, and need not wait for one.
    let waits = !patience.is_zero() && caller.needs(Scope::Read).is_ok();
    let tried = match waits {
        true => {
            let service = caller.service();
            to_its_end(async move { service.tried(event, patience).await }).await?
        }
        false => Trial {
            event,
            attempt: None,
        },
    };
    let status = match tried.attempt {
        Some(_) => StatusCode::OK,
        None => StatusCode::ACCEPTED,
    };
    Ok((status, Json(tried.into())))
}
