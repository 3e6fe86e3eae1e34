//! For whom a platform acts: a key of the scope `platform` names a tenant with each
//! request, in the header `Paceline-Tenant`, and may then do what a customer's own key
//! may, and nothing else.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use domain::access::{InvalidScope, Scope, Scopes};
use domain::external_id::ExternalId;
use domain::ids::TenantId;
use domain::ingest_limit::IngestLimit;
use engine::ports::CatalogError;
use http::HeaderMap;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use utoipa::openapi::path::{ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::SchemaType;
use utoipa::openapi::{ObjectBuilder, OpenApi, RefOr, Schema, Type};

use super::answers::operations;
use super::caller::to_its_end;
use super::problem::Problem;
use super::{App, lists, named};
use crate::access::{Identity, REMEMBERED};
use crate::service::ServiceError;

/// The header that names the tenant.
pub(crate) const HEADER: &str = "Paceline-Tenant";

/// The header by which a request is done with no more than these scopes of its key:
/// a router says so that asks another shard for whoever has fewer than itself.
pub(crate) const SCOPES_HEADER: &str = "Paceline-Scopes";

/// Tenants that are remembered; beyond it all are asked for again.
const MAX_REMEMBERED: usize = 10_000;

/// A tenant as a request names it: by our id or by the caller's own.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum TenantName {
    /// Ours.
    Id(TenantId),
    /// The caller's.
    External(ExternalId),
}

impl TenantName {
    /// `None` for what can be neither.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let id = text.parse().map(Self::Id).ok();
        id.or_else(|| text.parse().map(Self::External).ok())
    }
}

impl fmt::Display for TenantName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => id.fmt(f),
            Self::External(id) => f.write_str(id.as_str()),
        }
    }
}

/// How many tenants are asked for at one time.
const ASKED_AT_ONCE: usize = 4;

/// What is known of the tenants that platforms act for, for [`REMEMBERED`].
pub(super) struct Acting {
    known: Mutex<HashMap<TenantName, Known>>,
    turns: Semaphore,
}

impl Default for Acting {
    fn default() -> Self {
        Self {
            known: Mutex::default(),
            turns: Semaphore::new(ASKED_AT_ONCE),
        }
    }
}

#[derive(Clone, Copy)]
struct Known {
    tenant: TenantId,
    ingest_limit: Option<IngestLimit>,
    /// When the store was asked.
    asked_at: Instant,
}

/// The tenant that a request names, if it does.
pub(crate) fn tenant_of(headers: &HeaderMap) -> Result<Option<TenantName>, Problem> {
    let mut values = headers.get_all(HEADER).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(Problem::invalid(HEADER, "is there more than once"));
    }
    let named = TenantName::parse(value.to_str().unwrap_or_default().trim());
    let problem = "names no tenant: expected its id, or its external id";
    named
        .map(Some)
        .ok_or_else(|| Problem::invalid(HEADER, problem))
}

/// The most that a request shall be able to do; all that its key can, if it says
/// nothing.
pub(crate) fn scopes_of(headers: &HeaderMap) -> Result<Scopes, Problem> {
    let mut values = headers.get_all(SCOPES_HEADER).iter();
    let Some(value) = values.next() else {
        return Ok(Scopes::ALL);
    };
    if values.next().is_some() {
        return Err(Problem::invalid(SCOPES_HEADER, "is there more than once"));
    }
    let words = value.to_str().unwrap_or_default().split_whitespace();
    let scopes: Result<Scopes, InvalidScope> = words.map(str::parse::<Scope>).collect();
    scopes.map_err(|error| Problem::invalid(SCOPES_HEADER, error.to_string()))
}

impl Acting {
    /// Who calls, once it acts for this tenant.
    pub(super) async fn identity(
        &self,
        app: &App,
        key: Identity,
        tenant: TenantName,
    ) -> Result<Identity, Problem> {
        if !key.scopes.contains(Scope::Platform) {
            return Err(Problem::forbidden(Scope::Platform));
        }
        let known = self.looked_up(app, tenant).await?;
        let scopes = match known.tenant == key.tenant {
            // For its own it has what it has: the installation's is no customer.
            true => key.scopes.and(key.scopes.acting()),
            false => key.scopes.acting(),
        };
        Ok(Identity {
            tenant: known.tenant,
            home: key.home,
            scopes,
            key: key.key,
            ingest_limit: known.ingest_limit,
        })
    }

    /// The tenant that is called so.
    pub(super) async fn known(&self, app: &App, tenant: TenantName) -> Result<TenantId, Problem> {
        Ok(self.looked_up(app, tenant).await?.tenant)
    }

    async fn looked_up(&self, app: &App, tenant: TenantName) -> Result<Known, Problem> {
        match self.remembered(&tenant) {
            Some(known) => Ok(known),
            None => self.ask(app, tenant).await,
        }
    }

    /// Forgets all of it, as this process has changed a tenant.
    pub(super) fn forget(&self) {
        self.memory().clear();
    }

    async fn ask(&self, app: &App, name: TenantName) -> Result<Known, Problem> {
        let _turn = self.turns.acquire().await.ok();
        // Somebody may have asked for it while we waited.
        if let Some(known) = self.remembered(&name) {
            return Ok(known);
        }
        let asked_at = Instant::now();
        let (tenancy, asked) = (app.tenancy().clone(), name.clone());
        let tenant = to_its_end(async move {
            match asked {
                TenantName::Id(id) => tenancy.tenant(id).await,
                TenantName::External(id) => tenancy.tenant_called(&id).await,
            }
        });
        let tenant = tenant.await?;
        if tenant.deletion.is_some() {
            return Err(ServiceError::from(CatalogError::NotFound("tenant")).into());
        }
        let limit = tenant.effective_ingest_per_second;
        let known = Known {
            tenant: tenant.id,
            ingest_limit: limit.and_then(IngestLimit::of),
            asked_at,
        };
        let mut memory = self.memory();
        if memory.len() >= MAX_REMEMBERED {
            memory.clear();
        }
        memory.insert(name, known);
        Ok(known)
    }

    fn remembered(&self, name: &TenantName) -> Option<Known> {
        let known = self.memory().get(name).copied();
        known.filter(|known| known.asked_at.elapsed() < REMEMBERED)
    }

    fn memory(&self) -> MutexGuard<'_, HashMap<TenantName, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds the header to the description of every route that a tenant's own key can have.
pub(super) fn describe(document: &mut OpenApi) {
    let ours = Scopes::ALL.acting();
    for operation in operations(document) {
        let of_tenants = (operation.security.iter().flatten())
            .filter_map(|needed| serde_json::to_value(needed).ok())
            .any(|needed| ours.iter().any(|scope| needed["key"][0] == scope.as_str()));
        if !of_tenants {
            continue;
        }
        let text = ObjectBuilder::new()
            .schema_type(SchemaType::new(Type::String))
            .build();
        let header = ParameterBuilder::new()
            .name(HEADER)
            .parameter_in(ParameterIn::Header)
            .description(Some(
                "With a key of the scope `platform`: the tenant that it acts for, by its id or \
                 its external id.",
            ))
            .schema(Some(RefOr::T(Schema::Object(text))))
            .build();
        operation
            .parameters
            .get_or_insert_default()
            .push(header.into());
    }
    lists::describe(document);
    named::describe(document);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_is_named_once_by_our_id_or_by_theirs() {
        let of = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(HEADER, value.parse().unwrap());
            }
            tenant_of(&headers).ok()
        };
        let ours = uuid::Uuid::from_u128(7);
        assert_eq!(of(&[]), Some(None));
        assert_eq!(
            of(&[&ours.to_string()]),
            Some(Some(TenantName::Id(TenantId(ours))))
        );
        assert_eq!(
            of(&["acme"]),
            Some(Some(TenantName::External("acme".parse().unwrap())))
        );
        for wrong in [&["a b"][..], &[""], &["acme", "acme"]] {
            assert_eq!(of(wrong), None, "{wrong:?}");
        }
    }
}
