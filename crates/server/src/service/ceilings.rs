//! The ceiling of what a tenant sets: what is above it is asked for, and granted or not.

use std::time::Duration;

use domain::batch::{self, BatchSettings};
use domain::ceiling::{Ceiling, Excess, LargerBatches, Setter};
use domain::ids::{DestinationId, TenantId};
use domain::policy::LimitSettings;
use engine::ports::{
    DEFAULT_TENANT, Destination, LimitRequest, LimitRequestPosition, LimitRequestState,
    NewDestinationsRequest, NewLimitRequest, OtherLimits, RetryRules,
};
use uuid::Uuid;

use super::compliance::bounded;
use super::limits::validate;
use super::rules::{self, Lines};
use super::tenancy::{bound, within};
use super::{LimitsChange, Service, ServiceError};

/// The longest reason that a request or a decision gives, in bytes.
const MAX_REASON_BYTES: usize = 1_000;

/// The most requests on one page.
pub const MAX_LIMIT_REQUESTS: u32 = 200;

/// What to do about what is above a ceiling.
const ASK: &str = "of the tenant's tier: ask for it with a limit request";

/// Whose ceiling it is, where nobody is granted more.
const OF_TIER: &str = "of the tenant's tier";

/// Who sets what a tenant's keys and resources do. The first tenant is the installation's
/// own, and so are they.
pub(crate) fn setter_of(tenant: TenantId) -> Setter {
    match tenant == DEFAULT_TENANT {
        true => Setter::Operator,
        false => Setter::Tenant,
    }
}

/// Refuses what is above, in words that say what to do about it.
pub(super) fn check(ceiling: &Ceiling, limits: &LimitSettings) -> Result<(), ServiceError> {
    (ceiling.check(limits))
        .map_err(|excess| ServiceError::invalid("limits", format!("{excess} {ASK}")))
}

/// The same of batches.
fn check_batches(ceiling: &Ceiling, batches: &BatchSettings) -> Result<(), ServiceError> {
    ceiling.check_batches(batches).map_err(|excess| {
        let field = match excess {
            Excess::BatchBytes { .. } => "max_bytes",
            _ => "max_events",
        };
        ServiceError::invalid(field, format!("{excess} {ASK}"))
    })
}

/// The same of how old events may become, which nobody is granted more of.
fn check_age(ceiling: &Ceiling, max_age: Option<Duration>) -> Result<(), ServiceError> {
    (ceiling.check_age(max_age))
        .map_err(|excess| ServiceError::invalid("max_age_ms", format!("{excess} {OF_TIER}")))
}

/// What a ceiling is of, in these limits. Where no shape is set it is the usual one, as a
/// form says it.
fn of_a_ceiling(limits: &LimitSettings) -> LimitSettings {
    LimitSettings {
        shape: Some(limits.shape.unwrap_or_default()),
        safety_margin: None,
        margin_cap: None,
        count: None,
        ..*limits
    }
}

/// A page of requests.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LimitRequestPage {
    /// Those first that wait for a decision, and then the newest.
    pub requests: Vec<LimitRequest>,
    /// Where to go on, as a word; `None` on the last.
    pub next: Option<String>,
}

/// How a section of the list is called where a page goes on in it.
const SECTIONS: [(&str, bool); 2] = [("open", true), ("decided", false)];

fn position_text(position: LimitRequestPosition) -> String {
    let section = SECTIONS.iter().find(|(_, is)| *is == position.is_open);
    let section = section.map_or("", |(word, _)| word);
    let at = position.created_at.as_micros();
    format!("{section}:{at}:{}", position.id)
}

fn position(text: &str) -> Result<LimitRequestPosition, ServiceError> {
    let parsed = || {
        let (section, rest) = text.split_once(':')?;
        let (at, id) = rest.split_once(':')?;
        let (_, is_open) = SECTIONS.into_iter().find(|(word, _)| *word == section)?;
        Some(LimitRequestPosition {
            is_open,
            created_at: rules::time(at)?,
            id: id.parse().ok()?,
        })
    };
    let problem = "must be the next of the page before";
    parsed().ok_or_else(|| ServiceError::invalid("before", problem))
}

impl Service {
    /// The same, and whoever this is sets limits by it.
    #[must_use]
    pub fn set_by(self, setter: Setter) -> Self {
        Self { setter, ..self }
    }

    /// The most that is set through this for a destination that is there.
    #[must_use]
    pub const fn most(&self, destination: &Destination) -> Ceiling {
        match self.setter {
            Setter::Operator => destination.ceiling,
            Setter::Tenant => destination.own_ceiling,
        }
    }

    /// Whether that is less once less is set: it counts what the destination has.
    #[must_use]
    pub fn is_lowered_by_less(&self, destination: &Destination) -> bool {
        self.setter == Setter::Tenant && destination.own_ceiling != destination.lasting_ceiling
    }

    /// Refuses limits of a destination that is there which are above that. What it has may
    /// be above, of before the ceiling, and stays as long as nothing of it is changed that a
    /// ceiling is of.
    pub fn check_limits(
        &self,
        current: &Destination,
        limits: &LimitSettings,
    ) -> Result<(), ServiceError> {
        match of_a_ceiling(limits) == of_a_ceiling(&current.limits) {
            true => Ok(()),
            false => check(&self.most(current), limits),
        }
    }

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

    /// Refuses events that may become older than the destination's ceiling. The age that it
    /// has stays.
    pub async fn check_age_ceiling(
        &self,
        id: DestinationId,
        max_age: Option<Duration>,
    ) -> Result<(), ServiceError> {
        let ceiling = self.catalog.destination(self.tenant, id).await?.ceiling;
        let Err(refused) = check_age(&ceiling, max_age) else {
            return Ok(());
        };
        match self.retry_rules(id).await?.max_age == max_age {
            true => Ok(()),
            false => Err(refused),
        }
    }

    /// Refuses batches and an age that no new destination of the tenant may have.
    pub async fn check_new_delivery(
        &self,
        (rules, batches): &(RetryRules, BatchSettings),
    ) -> Result<(), ServiceError> {
        let ceiling = self.ceiling().await?;
        check_age(&ceiling, rules.max_age)?;
        check_batches(&ceiling, batches)
    }

    /// Refuses those that the destination may not have.
    pub async fn check_delivery(
        &self,
        id: DestinationId,
        (rules, batches): &(RetryRules, BatchSettings),
    ) -> Result<(), ServiceError> {
        self.check_age_ceiling(id, rules.max_age).await?;
        self.check_batch_ceiling(id, batches).await
    }

    /// What a new destination of the tenant may have.
    pub async fn ceiling(&self) -> Result<Ceiling, ServiceError> {
        let is_bound = self.tenant != DEFAULT_TENANT;
        if !is_bound && self.setter == Setter::Operator {
            return Ok(Ceiling::default());
        }
        let Some(tier) = self.tier().await? else {
            return Ok(Ceiling::default());
        };
        let ceiling = match is_bound {
            true => tier.ceiling,
            false => Ceiling::default(),
        };
        Ok(match self.setter {
            Setter::Operator => ceiling,
            Setter::Tenant => ceiling.or_of_tier(&tier.limits, &[]),
        })
    }

    /// Asks for other limits of a destination, for larger batches, or for both. Of what was
    /// asked for before, and nobody has decided on, the other part stays; if it says the
    /// same, all of it.
    pub async fn request_limits(
        &self,
        id: DestinationId,
        (change, batches): (LimitsChange, LargerBatches),
        note: String,
    ) -> Result<LimitRequest, ServiceError> {
        rules::text("note", &note, MAX_REASON_BYTES, Lines::Many)?;
        if change.is_empty() && batches.is_empty() {
            return Err(ServiceError::invalid("limits", "say which are wanted"));
        }
        within("batch_events", batches.events, batch::MAX_EVENTS)?;
        within("batch_bytes", batches.bytes, batch::MAX_BYTES)?;
        let before = self.catalog.destination(self.tenant, id).await?.limits;
        // Who asks for batches alone is not to be granted the limits as well, which may be
        // above a ceiling that was lowered.
        let limits = (!change.is_empty()).then(|| OtherLimits {
            before,
            settings: change.applied_to(before),
        });
        if let Some(limits) = &limits {
            validate(&limits.settings)?;
        }
        let new = NewLimitRequest {
            id: self.mint.uuid(),
            destination: id,
            limits,
            batches,
            note,
        };
        let open = self.requests.request_limits(self.tenant, &new).await?;
        tracing::info!(destination = %id, event = "limits_requested", "limits are asked for");
        Ok(self.requests.limit_request(open).await?)
    }

    /// Asks for so many destinations, with those that are there; the same holds.
    pub async fn request_destinations(
        &self,
        destinations: u32,
        note: String,
    ) -> Result<LimitRequest, ServiceError> {
        rules::text("note", &note, MAX_REASON_BYTES, Lines::Many)?;
        bound("destinations", Some(destinations))?;
        let new = NewDestinationsRequest {
            id: self.mint.uuid(),
            destinations,
            note,
        };
        let open = self.requests.request_destinations(self.tenant, &new);
        let open = open.await?;
        let tenant = self.tenant;
        tracing::info!(%tenant, event = "limits_requested", "destinations are asked for");
        Ok(self.requests.limit_request(open).await?)
    }

    /// A page of the tenant's requests, those first that wait for a decision. `before` is the
    /// `next` of the page before it.
    pub async fn limit_requests(
        &self,
        before: Option<&str>,
        limit: u32,
    ) -> Result<LimitRequestPage, ServiceError> {
        self.requests_of(Some(self.tenant), before, limit).await
    }

    /// A page of everybody's, for operators.
    pub async fn all_limit_requests(
        &self,
        before: Option<&str>,
        limit: u32,
    ) -> Result<LimitRequestPage, ServiceError> {
        self.requests_of(None, before, limit).await
    }

    async fn requests_of(
        &self,
        tenant: Option<TenantId>,
        before: Option<&str>,
        limit: u32,
    ) -> Result<LimitRequestPage, ServiceError> {
        bounded("limit", limit, 1, MAX_LIMIT_REQUESTS)?;
        let before = before.map(position).transpose()?;
        let found = self.reading.requests.limit_requests(tenant, before, limit);
        let found = found.await?;
        let is_full = found.len() >= limit as usize;
        let last = found.last().filter(|_| is_full);
        Ok(LimitRequestPage {
            next: last.map(|last| position_text(last.position())),
            requests: found,
        })
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

    /// Decides somebody's request, for an operator. Approved, its limits are in force, and
    /// batches may be as large, or destinations as many.
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
        let (tenant, state) = (decided.tenant, decision.as_str());
        match decided.wanted.destination() {
            Some(destination) => {
                tracing::info!(%destination, event = "limits_decided", state, "limits decided on");
                self.look_now(destination).await;
            }
            None => tracing::info!(%tenant, event = "limits_decided", state, "a number decided on"),
        }
        Ok(decided)
    }
}

#[cfg(test)]
mod tests {
    use domain::time::Timestamp;

    use super::*;

    #[test]
    fn a_page_goes_on_where_its_word_says() {
        for is_open in [true, false] {
            let at = LimitRequestPosition {
                is_open,
                created_at: Timestamp::from_millis(1_795_000_000_000),
                id: Uuid::from_u128(7),
            };
            assert_eq!(position(&position_text(at)), Ok(at));
        }
        for wrong in ["", "open", "open:1", "open:x:1", "shut:1:2", "open:1:2"] {
            let refused = position(wrong).unwrap_err();
            assert!(refused.is_of("before"), "{wrong}: {refused}");
        }
    }
}
