//! The ceiling of what a tenant sets: what is above it is asked for, and granted or not.

use domain::ceiling::Ceiling;
use domain::ids::DestinationId;
use domain::policy::LimitSettings;
use engine::ports::{
    DEFAULT_TENANT, Destination, DestinationChange, HeadersChange, LimitRequest, LimitRequestState,
    NewLimitRequest,
};
use uuid::Uuid;

use super::limits::validate;
use super::rules::{self, Lines};
use super::{Described, LimitsChange, Service, ServiceError};

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

/// The same of a destination that is there. What it has already stays, if nothing else is
/// above: it may be of before the ceiling.
pub(super) fn check_change(
    current: &Destination,
    limits: &LimitSettings,
) -> Result<(), ServiceError> {
    match *limits == current.limits {
        true => Ok(()),
        false => check(&current.ceiling, limits),
    }
}

impl Service {
    /// What a new destination of the tenant may have.
    pub(super) async fn ceiling(&self) -> Result<Ceiling, ServiceError> {
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
    /// nobody has decided on, is forgotten.
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
            settings,
            note,
        };
        self.requests.request_limits(self.tenant, &new).await?;
        Ok(self.requests.limit_request(new.id).await?)
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
    ) -> Result<Described, ServiceError> {
        validate(&settings)?;
        let granted = Ceiling::of_own(&settings);
        if self
            .catalog
            .destination(self.tenant, id)
            .await?
            .ceiling
            .check(&settings)
            .is_err()
        {
            self.requests
                .grant_limits(self.tenant, id, &granted)
                .await?;
        }
        let change = DestinationChange {
            limits: Some(settings),
            ..DestinationChange::default()
        };
        self.changed(id, &change, &HeadersChange::Keep).await
    }

    /// Decides somebody's request, for an operator. The limits are set first: a crash in
    /// between leaves a request that is open and can be decided again.
    pub async fn decide_limit_request(
        &self,
        id: Uuid,
        decision: LimitRequestState,
        reason: &str,
    ) -> Result<LimitRequest, ServiceError> {
        rules::text("reason", reason, MAX_REASON_BYTES, Lines::Many)?;
        let request = self.requests.limit_request(id).await?;
        if (decision, request.state) == (LimitRequestState::Approved, LimitRequestState::Open) {
            let theirs = self.looking_at(request.tenant);
            theirs.grant(request.destination, request.settings).await?;
        }
        self.requests
            .decide_limit_request(id, decision, reason)
            .await?;
        Ok(self.requests.limit_request(id).await?)
    }
}
