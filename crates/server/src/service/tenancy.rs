//! What the installation's administrator does: tenants, their keys and links, and
//! tiers; and, in [`super::event_types`], the catalogue of event types.
//!
//! Reached with the scope `admin` only, which only keys of the default tenant
//! can have: an administrator of tenants is none of them.

use std::sync::Arc;
use std::time::Duration;

use domain::access::{KeyId, Scope, Scopes};
use domain::batch;
use domain::ceiling::{Ceiling, MAX_AGE_SECONDS};
use domain::external_id::ExternalId;
use domain::ids::TenantId;
use engine::ports::{
    ApiKey, CatalogError, DEFAULT_TENANT, EventTypes, Keys, NewKey, NewTenant, Sessions, Tenant,
    TenantChange, Tenants, Tier, TierChange,
};
use secrecy::SecretString;

use super::{LimitsChange, Links, ServiceError, limits, rules};
use crate::access::{Gate, Identity};
use crate::config::PublicUrl;
use crate::edge::Mint;

/// The most keys in one list: those in force, and those of the past.
pub const MAX_LISTED_KEYS: u32 = 1_000;

/// The longest that a key can be good for if it ends at all: ten years.
const MAX_GOOD_FOR: Duration = Duration::from_secs(10 * 366 * 86_400);

/// The largest number that the store takes as a bound.
const MAX_BOUND: u32 = 1_000_000_000;

/// The rules of administration.
pub struct Tenancy {
    tenants: Arc<dyn Tenants>,
    keys: Arc<dyn Keys>,
    links: Links,
    pub(super) event_types: Arc<dyn EventTypes>,
    gate: Arc<Gate>,
    mint: Arc<Mint>,
}

/// One store, as administration sees it.
#[derive(Clone)]
pub struct Registers {
    pub tenants: Arc<dyn Tenants>,
    pub keys: Arc<dyn Keys>,
    pub sessions: Arc<dyn Sessions>,
    pub event_types: Arc<dyn EventTypes>,
}

/// A tenant that somebody wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantDraft {
    pub external_id: Option<ExternalId>,
    pub name: String,
    pub tier: String,
    pub max_in_flight: Option<u32>,
    pub ingest_per_second: Option<u32>,
}

/// A key that somebody wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyDraft {
    pub name: String,
    pub scopes: Vec<Scope>,
    pub expires_in: Option<Duration>,
}

/// What somebody wants changed of a tier.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TierEdit {
    pub limits: LimitsChange,
    pub tenant_max_in_flight: Option<Option<u32>>,
    pub tenant_ingest_per_second: Option<Option<u32>>,
    pub tenant_max_destinations: Option<Option<u32>>,
    pub ceiling: CeilingChange,
}

/// The outer `None` leaves a number as it is; the inner clears it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CeilingChange {
    pub per_second: Option<Option<f64>>,
    pub at_once: Option<Option<u32>>,
    pub max_in_flight: Option<Option<u32>>,
    pub batch_events: Option<Option<u32>>,
    pub batch_bytes: Option<Option<u32>>,
    pub age_seconds: Option<Option<u32>>,
}

impl CeilingChange {
    /// Any number of everything.
    pub const NONE: Self = Self {
        per_second: Some(None),
        at_once: Some(None),
        max_in_flight: Some(None),
        batch_events: Some(None),
        batch_bytes: Some(None),
        age_seconds: Some(None),
    };

    fn applied_to(&self, now: Ceiling) -> Ceiling {
        Ceiling {
            per_second: self.per_second.unwrap_or(now.per_second),
            at_once: self.at_once.unwrap_or(now.at_once),
            max_in_flight: self.max_in_flight.unwrap_or(now.max_in_flight),
            batch_events: self.batch_events.unwrap_or(now.batch_events),
            batch_bytes: self.batch_bytes.unwrap_or(now.batch_bytes),
            age_seconds: self.age_seconds.unwrap_or(now.age_seconds),
        }
    }
}

impl Tenancy {
    /// Over these parts.
    #[must_use]
    pub fn new(registers: Registers, gate: Arc<Gate>, mint: Arc<Mint>) -> Self {
        let Registers {
            tenants,
            keys,
            sessions,
            event_types,
        } = registers;
        let (of, through, by) = (Arc::clone(&tenants), Arc::clone(&gate), Arc::clone(&mint));
        Self {
            links: Links::new(sessions, of, through, by),
            event_types,
            tenants,
            keys,
            gate,
            mint,
        }
    }

    /// With links that begin with this.
    #[must_use]
    pub fn found_at(mut self, public_url: Option<PublicUrl>) -> Self {
        self.links = self.links.found_at(public_url);
        self
    }

    /// Links that open a tenant's pages.
    #[must_use]
    pub const fn links(&self) -> &Links {
        &self.links
    }

    pub async fn create_tenant(&self, draft: TenantDraft) -> Result<Tenant, ServiceError> {
        named(&draft.name)?;
        rules::tier("tier", &draft.tier)?;
        bound("max_in_flight", draft.max_in_flight)?;
        bound("ingest_per_second", draft.ingest_per_second)?;
        let new = NewTenant {
            id: TenantId(self.mint.uuid()),
            external_id: draft.external_id,
            name: draft.name,
            tier: draft.tier,
            max_in_flight: draft.max_in_flight,
            ingest_per_second: draft.ingest_per_second,
        };
        Ok(self.tenants.create_tenant(&new).await?)
    }

    pub async fn tenant(&self, id: TenantId) -> Result<Tenant, ServiceError> {
        Ok(self.tenants.tenant(id).await?)
    }

    /// The one that its platform calls so.
    pub async fn tenant_called(&self, id: &ExternalId) -> Result<Tenant, ServiceError> {
        Ok(self.tenants.tenant_called(id).await?)
    }

    /// Makes the tenant that its platform calls so into this one, and says whether it
    /// had to be created: what the draft leaves out is the tier's.
    pub async fn put_tenant(
        &self,
        id: ExternalId,
        draft: TenantDraft,
    ) -> Result<(Tenant, bool), ServiceError> {
        let draft = TenantDraft {
            external_id: Some(id.clone()),
            ..draft
        };
        let found = match self.tenants.tenant_called(&id).await {
            Err(CatalogError::NotFound(_)) => match self.create_tenant(draft.clone()).await {
                // Another request has just created it.
                Err(error) if error.is_of("external_id") => self.tenants.tenant_called(&id).await?,
                created => return Ok((created?, true)),
            },
            found => found?,
        };
        let change = TenantChange {
            external_id: None,
            name: Some(draft.name),
            tier: Some(draft.tier),
            max_in_flight: Some(draft.max_in_flight),
            ingest_per_second: Some(draft.ingest_per_second),
        };
        Ok((self.change_tenant(found.id, change).await?, false))
    }

    /// A page in id order, which is about the order of creation.
    pub async fn tenants(
        &self,
        after: Option<TenantId>,
        limit: u32,
    ) -> Result<Vec<Tenant>, ServiceError> {
        rules::page(limit)?;
        Ok(self.tenants.tenants(after, limit).await?)
    }

    pub async fn change_tenant(
        &self,
        id: TenantId,
        change: TenantChange,
    ) -> Result<Tenant, ServiceError> {
        if let Some(name) = &change.name {
            named(name)?;
        }
        if let Some(tier) = &change.tier {
            rules::tier("tier", tier)?;
        }
        bound("max_in_flight", change.max_in_flight.flatten())?;
        bound("ingest_per_second", change.ingest_per_second.flatten())?;
        Ok(self.tenants.change_tenant(id, &change).await?)
    }

    /// Ends all that it has, step by step: [`Tenants::delete_tenant`].
    pub async fn delete_tenant(&self, id: TenantId) -> Result<Tenant, ServiceError> {
        if id == DEFAULT_TENANT {
            let problem = "the default tenant is the installation's own";
            return Err(CatalogError::Conflict(problem.to_owned()).into());
        }
        let deleted = self.tenants.delete_tenant(id).await?;
        self.gate.forget_tenant(id);
        Ok(deleted)
    }

    /// A new key and its text, which nobody can be told again.
    pub async fn create_key(
        &self,
        tenant: TenantId,
        draft: KeyDraft,
    ) -> Result<(ApiKey, SecretString), ServiceError> {
        rules::name(&draft.name)?;
        let scopes: Scopes = draft.scopes.iter().copied().collect();
        if scopes.is_empty() {
            return Err(ServiceError::invalid("scopes", "name at least one"));
        }
        let beyond = scopes.iter().find(|scope| scope.is_the_installations());
        if let Some(scope) = beyond.filter(|_| tenant != DEFAULT_TENANT) {
            let problem = format!("{scope} is for keys of the default tenant only");
            return Err(ServiceError::invalid("scopes", problem));
        }
        let good_for = Duration::from_secs(1)..=MAX_GOOD_FOR;
        if (draft.expires_in).is_some_and(|expires_in| !good_for.contains(&expires_in)) {
            let problem = "must be at least 1 and at most ten years";
            return Err(ServiceError::invalid("expires_in_seconds", problem));
        }
        let minted = self.mint.key();
        let new = NewKey {
            id: minted.id,
            name: draft.name,
            digest: minted.digest,
            scopes,
            expires_in: draft.expires_in,
        };
        let key = self.keys.create_key(tenant, &new).await?;
        self.gate.forget(key.id);
        Ok((key, minted.text))
    }

    /// A tenant's keys, the newest first.
    pub async fn keys(&self, tenant: TenantId) -> Result<Vec<ApiKey>, ServiceError> {
        // Of a tenant that is not there, there are no keys to list.
        self.tenants.tenant(tenant).await?;
        Ok(self.keys.keys(tenant, MAX_LISTED_KEYS).await?)
    }

    /// Whose key this is. The one that is configured is no row, and has no id.
    pub async fn identify_key(&self, offered: &str) -> Result<(KeyId, Identity), ServiceError> {
        let known = self.gate.identify(offered).await?;
        let with_id = known.and_then(|known| known.key.map(|id| (id, known)));
        with_id.ok_or(ServiceError::NotFound("key"))
    }

    pub async fn revoke_key(&self, tenant: TenantId, id: KeyId) -> Result<(), ServiceError> {
        self.keys.revoke_key(tenant, id).await?;
        self.gate.forget(id);
        Ok(())
    }

    pub async fn tiers(&self) -> Result<Vec<Tier>, ServiceError> {
        Ok(self.tenants.tiers().await?)
    }

    /// Adds a tier.
    pub async fn create_tier(&self, new: Tier) -> Result<Tier, ServiceError> {
        rules::new_tier(&new.name)?;
        limits::validate(&new.limits)?;
        bound("tenant_max_in_flight", new.tenant_max_in_flight)?;
        bound("tenant_ingest_per_second", new.tenant_ingest_per_second)?;
        bound("tenant_max_destinations", new.tenant_max_destinations)?;
        possible(&new.ceiling)?;
        Ok(self.tenants.create_tier(&new).await?)
    }

    /// Deletes a tier that no tenant has.
    pub async fn delete_tier(&self, name: &str) -> Result<(), ServiceError> {
        rules::tier("name", name)?;
        Ok(self.tenants.delete_tier(name).await?)
    }

    /// Changes a tier. Limits are merged with those of the moment, so of two
    /// simultaneous changes of limits the later wins whole.
    pub async fn change_tier(&self, name: &str, edit: TierEdit) -> Result<Tier, ServiceError> {
        rules::tier("name", name)?;
        bound("tenant_max_in_flight", edit.tenant_max_in_flight.flatten())?;
        let ingest = edit.tenant_ingest_per_second;
        bound("tenant_ingest_per_second", ingest.flatten())?;
        let destinations = edit.tenant_max_destinations;
        bound("tenant_max_destinations", destinations.flatten())?;
        let (mut limits, mut ceiling) = (None, None);
        if !edit.limits.is_empty() || edit.ceiling != CeilingChange::default() {
            let tiers = self.tenants.tiers().await?;
            let current = tiers.into_iter().find(|tier| tier.name == name);
            let current = current.ok_or(ServiceError::NotFound("tier"))?;
            let wanted = edit.limits.applied_to(current.limits);
            limits::validate(&wanted)?;
            limits = (!edit.limits.is_empty()).then_some(wanted);
            let most = edit.ceiling.applied_to(current.ceiling);
            possible(&most)?;
            ceiling = (most != current.ceiling).then_some(most);
        }
        let change = TierChange {
            limits,
            tenant_max_in_flight: edit.tenant_max_in_flight,
            tenant_ingest_per_second: ingest,
            tenant_max_destinations: destinations,
            ceiling,
        };
        Ok(self.tenants.change_tier(name, &change).await?)
    }
}

fn named(name: &str) -> Result<(), ServiceError> {
    if name.is_empty() {
        return Err(ServiceError::invalid("name", "must not be empty"));
    }
    rules::name(name)
}

fn possible(ceiling: &Ceiling) -> Result<(), ServiceError> {
    bound("ceiling.at_once", ceiling.at_once)?;
    bound("ceiling.max_in_flight", ceiling.max_in_flight)?;
    within(
        "ceiling.batch_events",
        ceiling.batch_events,
        batch::MAX_EVENTS,
    )?;
    within("ceiling.batch_bytes", ceiling.batch_bytes, batch::MAX_BYTES)?;
    within("ceiling.age_seconds", ceiling.age_seconds, MAX_AGE_SECONDS)?;
    match ceiling.per_second {
        Some(most) if !(most > 0.0 && most <= f64::from(MAX_BOUND)) => {
            let problem = format!("must be above 0, and at most {MAX_BOUND}");
            Err(ServiceError::invalid("ceiling.per_second", problem))
        }
        _ => Ok(()),
    }
}

pub(super) fn bound(field: &str, most: Option<u32>) -> Result<(), ServiceError> {
    within(field, most, MAX_BOUND)
}

pub(super) fn within(field: &str, most: Option<u32>, largest: u32) -> Result<(), ServiceError> {
    match most {
        Some(most) if !(1..=largest).contains(&most) => {
            let problem = format!("must be 1 to {largest}");
            Err(ServiceError::invalid(field, problem))
        }
        _ => Ok(()),
    }
}
