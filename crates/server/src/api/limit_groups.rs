//! `/v1/limit-groups`.

use axum::Json;
use axum::extract::Path;
use domain::limit_group::{GroupLimits, GroupName, InvalidGroupName};
use engine::ports::LimitGroup as Found;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::Caller;
use super::body::JsonBody;
use super::limits::Limits;
use super::parameters::{LimitGroupsPage, Page};
use super::problem::Problem;
use super::text;

/// A limit that several destinations have together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LimitGroup {
    /// What you call it.
    #[schema(value_type = String)]
    pub name: GroupName,
    /// What its members may start together; `null` does not limit, 0 pauses all of them.
    pub limits: Limits,
    /// Who they are: destinations that say `limit_group`.
    pub members: Vec<Uuid>,
    /// When it was created.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: String,
}

/// A page of limit groups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LimitGroupList {
    /// By name.
    pub limit_groups: Vec<LimitGroup>,
    /// The `after` of the next page; `null` on the last.
    pub next: Option<String>,
}

/// What a group allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutLimitGroup {
    /// At least one of them, each at most 2,000: a group's starts are counted one by one. 0
    /// pauses all members.
    pub limits: Limits,
}

impl From<Found> for LimitGroup {
    fn from(found: Found) -> Self {
        let limits = found.limits;
        Self {
            name: found.name,
            limits: Limits {
                per_second: limits.per_second,
                per_minute: limits.per_minute,
                per_hour: limits.per_hour,
                per_day: limits.per_day,
            },
            members: found.members.into_iter().map(|id| id.0).collect(),
            created_at: text::time(found.created_at),
        }
    }
}

fn named(field: &str, text: &str) -> Result<GroupName, Problem> {
    text.parse()
        .map_err(|problem: InvalidGroupName| Problem::invalid(field, problem.to_string()))
}

/// List limit groups.
#[utoipa::path(get, path = "/v1/limit-groups", operation_id = "list_limit_groups",
    tag = "limit groups", security(("key" = ["read"])),
    params(LimitGroupsPage), responses(
    (status = 200, body = LimitGroupList),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn list(
    caller: Caller,
    Page(page): Page<LimitGroupsPage>,
) -> Result<Json<LimitGroupList>, Problem> {
    let after = (page.after.as_deref())
        .map(|after| named("after", after))
        .transpose()?;
    let found = caller
        .run(|service| async move { service.limit_groups(after, page.limit).await })
        .await?;
    let full = found.len() >= page.limit as usize;
    let next = found.last().filter(|_| full);
    let next = next.map(|last| last.name.to_string());
    let limit_groups = found.into_iter().map(LimitGroup::from).collect();
    Ok(Json(LimitGroupList { limit_groups, next }))
}

/// Look at a limit group.
#[utoipa::path(get, path = "/v1/limit-groups/{name}", operation_id = "show_limit_group",
    tag = "limit groups", security(("key" = ["read"])),
    params(("name" = String, Path)), responses(
    (status = 200, body = LimitGroup),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn show(
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<LimitGroup>, Problem> {
    let name = named("name", &name)?;
    let found = caller
        .run(|service| async move { service.limit_group(&name).await })
        .await?;
    Ok(Json(found.into()))
}

/// Create a limit group, or set all of its limits. A lower one is in force at once, for all
/// members.
#[utoipa::path(put, path = "/v1/limit-groups/{name}", operation_id = "put_limit_group",
    tag = "limit groups", security(("key" = ["manage"])),
    params(("name" = String, Path,
        description = "What you call it: 1 to 100 letters, digits and `- . _ ~ : @ +`.")),
    request_body = PutLimitGroup, responses(
    (status = 200, body = LimitGroup),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn put(
    caller: Caller,
    Path(name): Path<String>,
    JsonBody(body): JsonBody<PutLimitGroup>,
) -> Result<Json<LimitGroup>, Problem> {
    let name = named("name", &name)?;
    let limits = GroupLimits {
        per_second: body.limits.per_second,
        per_minute: body.limits.per_minute,
        per_hour: body.limits.per_hour,
        per_day: body.limits.per_day,
    };
    let put = caller
        .run(|service| async move { service.put_limit_group(&name, &limits).await })
        .await?;
    Ok(Json(put.into()))
}

/// Delete a limit group that has no members.
#[utoipa::path(delete, path = "/v1/limit-groups/{name}", operation_id = "delete_limit_group",
    tag = "limit groups", security(("key" = ["manage"])),
    params(("name" = String, Path)), responses(
    (status = 204, description = "Deleted."),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn delete(
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    let name = named("name", &name)?;
    caller
        .run(|service| async move { service.delete_limit_group(&name).await })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}
