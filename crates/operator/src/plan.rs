//! What to do about a resource: decided from what it says and what is stored,
//! without asking anybody else.

use std::time::Duration;

use domain::credentials::{self, OAuthFacts};
use domain::destination::DestinationState;
use domain::filter::Filter;
use domain::ids::DestinationId;
use domain::limit_group::{GroupName, InvalidGroupName};
use domain::policy::LimitSettings;
use domain::{ids::TenantId, limit};
use serde_json::Value;
use uuid::Uuid;

use crate::destinations::{Refusal, Row, Stored, Wanted};
use crate::resource::{ClientAuth, Count, DeletionPolicy, DestinationSpec, OAuth2, Shape};
use crate::verdict::{Reason, Verdict};

/// Between two looks at a destination that has work.
pub const BUSY: Duration = Duration::from_secs(30);

/// Between two looks at one that has none: what somebody changed by SQL is put
/// right, and a changed Secret is noticed.
pub const IDLE: Duration = Duration::from_secs(300);

/// Before what somebody else has to put right is looked at again.
pub const WAITING: Duration = Duration::from_secs(60);

/// One thing to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    Create,
    TakeOver(DestinationId),
    Change(DestinationId),
    Rotate(DestinationId),
    Show(DestinationId),
    Release(DestinationId),
    Discard(DestinationId),
}

/// What to do, in order, and what is so once all of it is done.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub steps: Vec<Step>,
    /// The destination that it is about then, if it is known before.
    pub about: Option<DestinationId>,
    /// Whether the destination is as the resource says.
    pub synced: Verdict,
    /// Somebody else has it.
    pub conflict: Option<Verdict>,
}

/// The Secrets that a resource names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretIs<'a> {
    There,
    /// Why not.
    Missing(&'a str),
}

/// What to do about a resource that is there to stay.
#[must_use]
pub fn plan(wanted: &Wanted, stored: &Stored, secret: SecretIs<'_>) -> Plan {
    match stored {
        Stored::Absent => {
            let steps = match secret {
                SecretIs::There => vec![Step::Create],
                SecretIs::Missing(_) => Vec::new(),
            };
            Plan {
                synced: synced(secret),
                ..Plan::of(steps, None)
            }
        }
        Stored::Ours(row) => Plan {
            synced: synced(secret),
            ..Plan::of(differences(wanted, row, secret), Some(row.id))
        },
        Stored::Released(row) => {
            let mut steps = vec![Step::TakeOver(row.id)];
            steps.extend(differences(wanted, row, secret));
            Plan {
                synced: synced(secret),
                ..Plan::of(steps, Some(row.id))
            }
        }
        Stored::Held { id, uid } => Plan::in_conflict(&format!(
            "destination {id} is held by another resource of this name, with the uid {uid}"
        )),
        Stored::Unmanaged { id } => Plan::in_conflict(&format!(
            "destination {id} has this name and is the API's: rename or delete either, \
             or hand it over (see k8s/README.md)"
        )),
    }
}

/// What to do about the destination of a resource that is being deleted. Somebody
/// else's is left alone.
#[must_use]
pub fn farewell(policy: DeletionPolicy, stored: &Stored) -> Option<Step> {
    match (stored, policy) {
        (Stored::Ours(row), DeletionPolicy::Retain) => Some(Step::Release(row.id)),
        (Stored::Ours(row), DeletionPolicy::Discard) => Some(Step::Discard(row.id)),
        _ => None,
    }
}

impl Plan {
    fn of(steps: Vec<Step>, about: Option<DestinationId>) -> Self {
        Self {
            steps,
            about,
            synced: synced(SecretIs::There),
            conflict: None,
        }
    }

    fn in_conflict(message: &str) -> Self {
        Self {
            synced: Verdict::no(Reason::Conflict, message),
            conflict: Some(Verdict::yes(Reason::Conflict, message)),
            ..Self::of(Vec::new(), None)
        }
    }

    /// The same, once one of its steps was refused.
    #[must_use]
    pub fn refused(self, refusal: &Refusal) -> Self {
        let message = refusal.to_string();
        let conflict = match refusal {
            Refusal::Conflict(_) => Some(Verdict::yes(Reason::Conflict, &message)),
            _ => self.conflict,
        };
        Self {
            synced: Verdict::no(Reason::of(refusal), &message),
            conflict,
            ..self
        }
    }

    /// When to look again: soon where there is work, later where there is none,
    /// and where somebody else has to act.
    #[must_use]
    pub fn requeue(&self, is_busy: Option<bool>) -> Duration {
        match (&self.synced.reason, is_busy) {
            (Reason::Synced, Some(true)) => BUSY,
            (Reason::Synced, _) => IDLE,
            // The resource has to be changed, which calls us by itself.
            (Reason::Invalid, _) => IDLE,
            _ => WAITING,
        }
    }
}

fn synced(secret: SecretIs<'_>) -> Verdict {
    match secret {
        SecretIs::Missing(why) => Verdict::no(Reason::SecretMissing, why),
        SecretIs::There => Verdict::yes(Reason::Synced, "the destination is as specified"),
    }
}

fn differences(wanted: &Wanted, row: &Row, secret: SecretIs<'_>) -> Vec<Step> {
    let mut steps = Vec::new();
    let same = (&row.name, &row.url, row.limits) == (&wanted.name, &wanted.url, wanted.limits)
        && same_types(&row.event_types, &wanted.event_types)
        && row.filter == wanted.filter.clone().map(Filter::kept)
        && row.limit_group == wanted.limit_group
        && wanted.state_after(row.state) == row.state;
    if !same {
        steps.push(Step::Change(row.id));
    }
    if secret == SecretIs::There && !row.signs {
        steps.push(Step::Rotate(row.id));
    }
    if secret == SecretIs::There && !row.shows {
        // A certificate is shown over https alone: it goes before the https does, and
        // comes after it.
        let at = if wanted.url.starts_with("http:") {
            0
        } else {
            steps.len()
        };
        steps.insert(at, Step::Show(row.id));
    }
    steps
}

/// They are a set.
fn same_types(some: &[String], others: &[String]) -> bool {
    some.len() == others.len() && some.iter().all(|one| others.contains(one))
}

impl Wanted {
    /// What a spec wants. What the schema lets through and is nonsense is refused
    /// by the name of its field.
    pub fn of(name: &str, spec: &DestinationSpec) -> Result<Self, Refusal> {
        let limits = spec.limits.unwrap_or_default();
        let settings = LimitSettings {
            per_second: number("limits.perSecond", limits.per_second)?,
            per_minute: number("limits.perMinute", limits.per_minute)?,
            per_hour: number("limits.perHour", limits.per_hour)?,
            per_day: number("limits.perDay", limits.per_day)?,
            unlimited: spec.unlimited,
            burst: number("burst", spec.burst)?,
            shape: spec.shape.map(Shape::in_domain),
            max_in_flight: number("maxInFlight", spec.max_in_flight)?,
            safety_margin: spec.safety_margin,
            margin_cap: spec.margin_cap,
            count: spec.count.map(Count::in_domain),
            allowed_per_minute: None,
        };
        Ok(Self {
            name: name.to_owned(),
            url: spec.url.clone(),
            event_types: spec.event_types.clone(),
            filter: spec.filter.clone().map(Value::Object),
            limits: settings,
            limit_group: group(spec.limit_group.as_deref())?,
            state: match spec.paused {
                true => DestinationState::Paused,
                false => DestinationState::Active,
            },
        })
    }

    /// The state that a destination is in once it is as wanted: one that was
    /// disabled, because its receiver is gone, stays so until somebody resumes it.
    #[must_use]
    pub fn state_after(&self, now: DestinationState) -> DestinationState {
        match now {
            DestinationState::Disabled => now,
            DestinationState::Active | DestinationState::Paused => self.state,
        }
    }
}

/// As whom a resource's tokens are asked for.
#[must_use]
pub fn client(oauth2: &OAuth2) -> OAuthFacts {
    OAuthFacts {
        token_url: oauth2.token_url.clone(),
        client_id: oauth2.client_id.clone(),
        scopes: oauth2.scopes.clone(),
        audience: oauth2.audience.clone(),
        client_auth: match oauth2.client_auth {
            ClientAuth::Basic => credentials::ClientAuth::Basic,
            ClientAuth::Body => credentials::ClientAuth::Body,
        },
    }
}

impl Shape {
    const fn in_domain(self) -> limit::Shape {
        match self {
            Self::SlidingWindow => limit::Shape::SlidingWindow,
            Self::TokenBucket => limit::Shape::TokenBucket,
            Self::LeakyBucket => limit::Shape::LeakyBucket,
        }
    }
}

impl Count {
    const fn in_domain(self) -> limit::Count {
        match self {
            Self::Start => limit::Count::Start,
            Self::Response => limit::Count::Response,
        }
    }
}

/// The tenant that a spec names.
pub fn tenant(spec: &DestinationSpec) -> Result<TenantId, Refusal> {
    let id = Uuid::try_parse(&spec.tenant);
    let id = id.map_err(|_invalid| Refusal::Invalid("tenant: must be an id".to_owned()));
    Ok(TenantId(id?))
}

fn group(name: Option<&str>) -> Result<Option<GroupName>, Refusal> {
    let parsed = name.map(str::parse).transpose();
    parsed.map_err(|problem: InvalidGroupName| Refusal::Invalid(format!("limitGroup: {problem}")))
}

fn number(field: &str, value: Option<i32>) -> Result<Option<u32>, Refusal> {
    let converted = value.map(u32::try_from).transpose();
    converted.map_err(|_negative| Refusal::Invalid(format!("{field}: must not be negative")))
}
