//! The ceiling of what a tenant sets: what is above it is asked for, and granted or not.

use domain::batch::BatchSettings;
use domain::ceiling::{Ceiling, Excess};
use domain::ids::DestinationId;
use domain::policy::LimitSettings;
use engine::ports::{
    DEFAULT_TENANT, Destination, LimitRequest, LimitRequestState, NewLimitRequest,
};
use uuid::Uuid;

use super::limits::validate;
use super::rules::{self, Lines};
use super::{LimitsChange, Service, ServiceError};

/// The longest reason that a request or a decision gives, in bytes.
const MAX_REASON_BYTES: usize = 1_000;

/// The most requests on one page.
pub const MAX_LIMIT_REQUESTS: u32 = 200;

/// Refuses what is above, in words that say what to do about it.
pub(super) fn check(ceiling: &Ceiling, limits: &LimitSettings) -> Result<(), ServiceError> {
    ceiling.check(limits).map_err(|excess| {
        let problem = format!("{excess} of the tenant's tier: ask for it with a limit request");
        ServiceError::invalid("limits", problem)
    })
}

/// The same of a destination that is there. What it has may be above, of before the ceiling,
/// and stays as long as nothing of it is changed that a ceiling is of.
pub(super) fn check_change(
    current: &Destination,
    limits: &LimitSettings,
) -> Result<(), ServiceError> {
    let margins_and_count = LimitSettings {
        safety_margin: current.limits.safety_margin,
        margin_cap: current.limits.margin_cap,
        count: current.limits.count,
        ..*limits
    };
    match margins_and_count == current.limits {
        true => Ok(()),
        false => check(&current.ceiling, limits),
    }
}

/// The same of batches, of which nobody asks for more.
fn check_batches(ceiling: &Ceiling, batches: &BatchSettings) -> Result<(), ServiceError> {
    ceiling.check_batches(batches).map_err(|excess| {
        let field = match excess {
            Excess::BatchBytes { .. } => "max_bytes",
            _ => "max_events",
        };
        let problem = format!("{excess} of the tenant's tier: its operator can raise it");
        ServiceError::invalid(field, problem)
    })
}

impl Service {
    /// Refuses batches above the destination's ceiling. Those that it has stay.
    pub async fn check_batch_ceiling(
        &self,
        id: DestinationId,
        batches: &BatchSettings,
    ) -> Result<(), ServiceError> {
        let ceiling = self.catalog.destination(self.tenant, id).await?.ceiling;
        let Err(refused) = check_batches(&ceiling, batches) else {
            return Ok(());
        };
        let now = self.batches(id).await?;
        match (now.max_events, now.max_bytes) == (batches.max_events, batches.max_bytes) {
            true => Ok(()),
            false => Err(refused),
        }
    }

    /// Refuses batches that no new destination of the tenant may have.
    pub async fn check_new_batches(&self, batches: &BatchSettings) -> Result<(), ServiceError> {
        check_batches(&self.ceiling().await?, batches)
    }

    /// What a new destination of the tenant may have.
    pub async fn ceiling(&self) -> Result<Ceiling, ServiceError> {
        if self.tenant == DEFAULT_TENANT {
            return Ok(Ceiling::default());
        }
        Ok(self
            .tier()
            .await?
            .map(|tier| tier.ceiling)
            .unwrap_or_default())
    }

    /// Asks for other limits of a destination. One that was asked for before, and that
    /// nobody has decided on, is forgotten; if it says the same, it stays.
    pub async fn request_limits(
        &self,
        id: DestinationId,
        change: LimitsChange,
        note: String,
    ) -> Result<LimitRequest, ServiceError> {
        rules::text("note", &note, MAX_REASON_BYTES, Lines::Many)?;
        if change.is_empty() {
            return Err(ServiceError::invalid("limits", "say which are wanted"));
        }
        let current = self.catalog.destination(self.tenant, id).await?;
        let settings = change.applied_to(current.limits);
        validate(&settings)?;
        let new = NewLimitRequest {
            id: self.mint.uuid(),
            destination: id,
            before: current.limits,
            settings,
            note,
        };
        let open = self.requests.request_limits(self.tenant, &new).await?;
        tracing::info!(destination = %id, event = "limits_requested", "limits are asked for");
        Ok(self.requests.limit_request(open).await?)
    }

    /// The tenant's requests, those first that wait for a decision.
    pub async fn limit_requests(&self) -> Result<Vec<LimitRequest>, ServiceError> {
        let whose = Some(self.tenant);
        Ok(self
            .requests
            .limit_requests(whose, MAX_LIMIT_REQUESTS)
            .await?)
    }

    /// Everybody's, for operators.
    pub async fn all_limit_requests(&self) -> Result<Vec<LimitRequest>, ServiceError> {
        Ok(self
            .requests
            .limit_requests(None, MAX_LIMIT_REQUESTS)
            .await?)
    }

    /// Sets a destination's limits whatever its ceiling says, for an operator: the
    /// destination is granted what they need.
    pub async fn grant(
        &self,
        id: DestinationId,
        settings: LimitSettings,
    ) -> Result<(), ServiceError> {
        validate(&settings)?;
        self.requests
            .grant_limits(self.tenant, id, &settings)
            .await?;
        self.look_now(id).await;
        Ok(())
    }

    /// Decides somebody's request, for an operator. Approved, its limits are in force.
    pub async fn decide_limit_request(
        &self,
        id: Uuid,
        decision: LimitRequestState,
        reason: &str,
    ) -> Result<LimitRequest, ServiceError> {
        rules::text("reason", reason, MAX_REASON_BYTES, Lines::Many)?;
        self.requests
            .decide_limit_request(id, decision, reason)
            .await?;
        let decided = self.requests.limit_request(id).await?;
        let (destination, state) = (decided.destination, decision.as_str());
        tracing::info!(%destination, event = "limits_decided", state, "limits decided on");
        self.look_now(destination).await;
        Ok(decided)
    }
}
