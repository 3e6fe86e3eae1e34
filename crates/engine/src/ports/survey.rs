//! What metrics are sampled from.

use async_trait::async_trait;
use domain::admission::{Backlog, Usage};
use domain::destination::DestinationState;
use domain::explain::Circumstances;
use domain::health::HoldReason;
use domain::ids::{DestinationId, TenantId};
use domain::operations::OperationalType;
use domain::policy::Policy;
use domain::time::Timestamp;
use domain::watch::{Around, Shortfall};

use super::error::StoreError;
use super::secrets::TokenTrouble;
use super::store::Fleet;

/// What a survey asks of a store. Reads only, on the side: nothing on the way
/// of an event waits for it, and nothing that it costs grows with the ledger.
#[async_trait]
pub trait Survey: Send + Sync {
    /// One page of the destinations that have a backlog, after `after` in id
    /// order, with how much of it. Costs a few index probes for each, and a
    /// count along an index up to the rules' cap.
    async fn survey_backlogs(
        &self,
        after: Option<DestinationId>,
        rules: &SurveyRules,
    ) -> Result<SurveyPage, StoreError>;

    /// Where these destinations stand, in the order of the ids; those that are
    /// gone are left out. At most [`MAX_SURVEYED`]; costs as much as a run of
    /// each that decides nothing.
    async fn survey_standings(
        &self,
        destinations: &[DestinationId],
    ) -> Result<Vec<Surveyed>, StoreError>;

    /// How many destinations and tenants are in trouble, counted up to [`MAX_TROUBLES`].
    async fn survey_troubles(&self) -> Result<Troubles, StoreError>;
}

/// The most destinations that are surveyed one by one.
pub const MAX_SURVEYED: usize = 200;

/// How far what is in trouble is counted.
pub const MAX_TROUBLES: u32 = 100_000;

/// How a survey goes through the backlogs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SurveyRules {
    /// Destinations on a page.
    pub page: u32,
    /// How far each one's first attempts are counted, and its others.
    pub far: u32,
}

impl Default for SurveyRules {
    fn default() -> Self {
        Self {
            page: 100,
            far: 5_000,
        }
    }
}

/// One page of backlogs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SurveyPage {
    /// In id order.
    pub backlogs: Vec<SurveyedBacklog>,
    /// Where the next page begins; `None` after the last.
    pub next: Option<DestinationId>,
}

/// The backlog of one destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SurveyedBacklog {
    /// Whose.
    pub destination: DestinationId,
    /// Its tenant.
    pub tenant: TenantId,
    /// First attempts that wait.
    pub firsts: u32,
    /// What waits and has a time at which it is due: retries, and permits that
    /// ended unused.
    pub others: u32,
    /// Since when the first of what is due waits.
    pub oldest: Option<Timestamp>,
}

impl SurveyedBacklog {
    /// All that waits, as far as it was counted.
    #[must_use]
    pub const fn waiting(&self) -> u32 {
        self.firsts.saturating_add(self.others)
    }
}

/// Where one destination stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Surveyed {
    /// Which.
    pub destination: DestinationId,
    /// Its tenant.
    pub tenant: TenantId,
    /// Of all its tenant's destinations together.
    pub tenant_max_in_flight: Option<u32>,
    /// What admission obeys.
    pub policy: Policy,
    /// What it uses of that, with the starts that a bucket is judged by.
    pub usage: Usage,
    /// What waits, as far as a run looks.
    pub backlog: Backlog,
    /// The reason of its hold, while it lasts.
    pub held_for: Option<HoldReason>,
    /// Why it had no access token when one was asked for last, if so.
    pub token_trouble: Option<TokenTrouble>,
}

impl Surveyed {
    /// What is explained of it, and by which its backlog drains; the first of what is due
    /// waits since then, where that matters.
    #[must_use]
    pub fn circumstances<'a>(
        &'a self,
        state: DestinationState,
        fleet: &'a Fleet,
        waits_since: Option<Timestamp>,
    ) -> Circumstances<'a> {
        Circumstances {
            state,
            policy: &self.policy,
            usage: &self.usage,
            backlog: &self.backlog,
            around: self.around(fleet, waits_since),
            no_token: self.no_token(fleet.now),
            workers: fleet.workers,
            now: fleet.now,
        }
    }

    /// Why it has no access token, if a worker has said so lately.
    fn no_token(&self, now: Timestamp) -> Option<&str> {
        let trouble = self.token_trouble.as_ref();
        let trouble = trouble.filter(|trouble| trouble.stands(now));
        trouble.map(|trouble| trouble.words.as_str())
    }

    /// What binds it beside its own limits.
    #[must_use]
    pub fn around(&self, fleet: &Fleet, waits_since: Option<Timestamp>) -> Around {
        let tenant = (self.tenant, self.tenant_max_in_flight);
        Around::of(fleet, (self.held_for, waits_since), tenant)
            .without_token(self.no_token(fleet.now).is_some())
    }
}

/// How many destinations and tenants are in trouble.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Troubles {
    /// Their breaker is open, or half open.
    pub breakers_open: u32,
    /// They get less than their limits allow, and operators were told: by the
    /// reason, in the order of [`Shortfall::ALL`]; reasons without any are left
    /// out.
    pub short: Vec<(Shortfall, u32)>,
    /// Tenants that operators were told of.
    pub tenants: TroubledTenants,
}

/// How many tenants are in a trouble that operators were told of and that is not over: a
/// few numbers, however many tenants there are. What was told says who they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TroubledTenants {
    /// Too few of their requests succeed.
    pub success_low: u32,
    /// They have nearly as many destinations as they may have.
    pub destinations_high: u32,
    /// Their backlog is nearly so long that their events are refused.
    pub backlog_high: u32,
    /// Their events are refused.
    pub refused: u32,
}

impl TroubledTenants {
    /// By what operators were told.
    #[must_use]
    pub const fn by_type(&self) -> [(OperationalType, u32); 4] {
        [
            (OperationalType::SuccessLow, self.success_low),
            (OperationalType::DestinationsHigh, self.destinations_high),
            (OperationalType::TenantBacklogHigh, self.backlog_high),
            (OperationalType::IngestRefused, self.refused),
        ]
    }
}
