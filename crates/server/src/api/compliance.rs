//! `/v1/compliance`.

use axum::Json;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::Caller;
use super::parameters::{CompliancePage, Page};
use super::problem::Problem;
use super::text::parsed_time;
use crate::audit::{DestinationReport, GroupReport};
use crate::service::compliance::{Compliance, ComplianceDraft};

/// Whether limits were kept and used, destination by destination.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ComplianceReport {
    /// Starts from then on were judged.
    #[schema(format = DateTime)]
    pub since: String,
    /// Until then, exclusive.
    #[schema(format = DateTime)]
    pub until: String,
    /// No rule was broken on this page.
    pub compliant: bool,
    /// In the order of their ids.
    pub destinations: Vec<DestinationReport>,
    /// Limits that several destinations have together: of a page those whose first member is
    /// on it, and on the first one those that all members have left; each judged by what all
    /// of its members started. Of one destination that which it is in.
    pub limit_groups: Vec<GroupReport>,
    /// The `after` of the next page; `null` on the last.
    pub next: Option<Uuid>,
}

impl From<Compliance> for ComplianceReport {
    fn from(found: Compliance) -> Self {
        let report = found.report;
        Self {
            since: report.since,
            until: report.until,
            compliant: report.compliant,
            destinations: report.destinations,
            limit_groups: report.limit_groups,
            next: found.next.map(|next| next.0),
        }
    }
}

/// Report compliance: limits in force, the fullest windows, violations with
/// their attempts, the share of the limit that was used, and under-delivery.
///
/// The same as `paceline audit`, for one tenant. A page reads a million rows of
/// the ledger at most, and ends early before it would read more; and as many
/// starts of limit groups.
#[utoipa::path(get, path = "/v1/compliance", operation_id = "show_compliance",
    tag = "operations", security(("key" = ["read"])),
    params(CompliancePage), responses(
    (status = 200, body = ComplianceReport),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(super) async fn report(
    caller: Caller,
    Page(page): Page<CompliancePage>,
) -> Result<Json<ComplianceReport>, Problem> {
    let draft = ComplianceDraft {
        since: parsed_time("since", page.since.as_deref())?,
        until: parsed_time("until", page.until.as_deref())?,
        destination: page.destination_id,
        after: page.after,
        limit: page.limit,
        points: page.points,
    };
    let found = caller
        .report(async move |service, turn| service.compliance(draft, &turn).await)
        .await?;
    Ok(Json(found.into()))
}
