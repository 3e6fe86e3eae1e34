//! Links that open one tenant's pages: given, listed and ended.
//!
//! A link is 256 random bits of which the store knows the digest, like a
//! session. Nothing is signed: there is no key to lose, a link ends with the
//! key of whoever made it, and every process knows it at once.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use domain::access::{KeyId, LinkId, Scope, Scopes};
use domain::ids::TenantId;
use engine::ports::{
    BehindSession, CatalogError, Link, NewSession, SessionKind, Sessions, Tenants,
};
use subtle::ConstantTimeEq;

use super::{ServiceError, rules};
use crate::access::Gate;
use crate::access::key::digest;
use crate::config::PublicUrl;
use crate::edge::Mint;

/// How long a link can be good: a minute, so that somebody can follow it, to
/// seven days, since whoever finds it in a mail has it.
pub const LINK_LIFETIMES: RangeInclusive<Duration> =
    Duration::from_secs(60)..=Duration::from_secs(7 * 86_400);

/// The most links in one list.
pub const MAX_LISTED_LINKS: u32 = 1_000;

/// A link that somebody wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkDraft {
    /// For people; may be empty.
    pub name: String,
    /// What may be done by it.
    pub scopes: Scopes,
    /// How long it is good.
    pub good_for: Duration,
}

/// A link that was just made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MadeLink {
    /// As it is listed.
    pub link: Link,
    /// What opens it, below the address of the API: shown now and never again.
    pub path: String,
}

/// The rules of links.
pub struct Links {
    sessions: Arc<dyn Sessions>,
    tenants: Arc<dyn Tenants>,
    gate: Arc<Gate>,
    mint: Arc<Mint>,
    public_url: Option<PublicUrl>,
}

impl Links {
    pub(super) fn new(
        sessions: Arc<dyn Sessions>,
        tenants: Arc<dyn Tenants>,
        gate: Arc<Gate>,
        mint: Arc<Mint>,
    ) -> Self {
        Self {
            sessions,
            tenants,
            gate,
            mint,
            public_url: None,
        }
    }

    pub(super) fn found_at(self, public_url: Option<PublicUrl>) -> Self {
        Self { public_url, ..self }
    }

    /// The whole of a link, where it is configured what links begin with. Else
    /// whoever asks for it knows best where it is: no header of a request says
    /// under which name somebody else will find this.
    #[must_use]
    pub fn whole(&self, path: &str) -> Option<String> {
        self.public_url.as_ref().map(|at| at.of(path))
    }

    /// What a link stands on that is made with this key; `None` for the one
    /// that is configured.
    #[must_use]
    pub fn behind(&self, key: Option<KeyId>) -> BehindSession {
        key.map_or_else(
            || BehindSession::Configured(self.gate.configured()),
            BehindSession::Key,
        )
    }

    /// A new link, which ends with what is behind it.
    pub async fn create(
        &self,
        tenant: TenantId,
        behind: BehindSession,
        draft: LinkDraft,
    ) -> Result<MadeLink, ServiceError> {
        rules::name(&draft.name)?;
        if !LINK_LIFETIMES.contains(&draft.good_for) {
            let problem = "must be 60 to 604800, which is seven days";
            return Err(ServiceError::invalid("expires_in_seconds", problem));
        }
        if self.tenants.tenant(tenant).await?.deletion.is_some() {
            return Err(CatalogError::NotFound("tenant").into());
        }
        let token = self.new_held();
        let new = NewSession {
            digest: digest(&token),
            kind: SessionKind::Link,
            tenant,
            behind,
            scopes: draft.scopes,
            good_for: draft.good_for,
            name: draft.name,
            opened_by: None,
        };
        let expires_at = self.sessions.begin_session(&new).await?;
        Ok(MadeLink {
            link: Link {
                id: LinkId::of(new.digest),
                tenant,
                name: new.name,
                behind,
                scopes: new.scopes,
                created_at: expires_at - new.good_for,
                expires_at,
            },
            path: format!("/dashboard/links/{token}"),
        })
    }

    /// A tenant's links that are good, the newest first.
    pub async fn list(&self, tenant: TenantId) -> Result<Vec<Link>, ServiceError> {
        // Of a tenant that is not there, there are no links to list.
        self.tenants.tenant(tenant).await?;
        let mut links = self.sessions.links(tenant, MAX_LISTED_LINKS).await?;
        links.retain(|link| self.stands(link.behind));
        Ok(links)
    }

    /// Ends a link and the sessions that it opened.
    pub async fn end(&self, tenant: TenantId, id: LinkId) -> Result<(), ServiceError> {
        Ok(self.sessions.end_link(tenant, id).await?)
    }

    /// Whether the key behind it is what it was: what the store cannot know of
    /// the one that is configured.
    #[must_use]
    pub fn stands(&self, behind: BehindSession) -> bool {
        match behind {
            BehindSession::Key(_) => true,
            BehindSession::Configured(digest) => {
                bool::from(digest[..].ct_eq(&self.gate.configured()[..]))
            }
        }
    }

    /// What a browser shall hold, or a link.
    #[must_use]
    pub fn new_held(&self) -> String {
        self.mint.held()
    }
}

/// What a link may do beside showing: never keys, links or another tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkRights {
    /// What the scope `manage` may.
    pub may_change: bool,
    /// See what events carry.
    pub may_read_payloads: bool,
}

impl LinkRights {
    /// As scopes.
    #[must_use]
    pub fn scopes(self) -> Scopes {
        let manage = self.may_change.then_some(Scope::Manage);
        let payloads = self.may_read_payloads.then_some(Scope::ReadPayloads);
        let beside = manage.into_iter().chain(payloads);
        beside.chain([Scope::Read]).collect()
    }

    /// In a list.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match (self.may_change, self.may_read_payloads) {
            (true, true) => "changes, with payloads",
            (true, false) => "changes",
            (false, true) => "shows, with payloads",
            (false, false) => "shows",
        }
    }

    /// Of the scopes that a link has.
    #[must_use]
    pub const fn of(scopes: Scopes) -> Self {
        Self {
            may_change: scopes.contains(Scope::Manage),
            may_read_payloads: scopes.contains(Scope::ReadPayloads),
        }
    }
}
