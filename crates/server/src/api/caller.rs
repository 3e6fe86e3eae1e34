//! Who calls, as handlers have it.

use std::sync::Arc;

use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use domain::access::{KeyId, Scope, Scopes};
use domain::ids::{AttemptId, DestinationId, TenantId};
use engine::ports::{Thing, wanted};
use http::request::Parts;
use http::{HeaderMap, Method, header};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::acting::{self, TenantName};
use super::problem::Problem;
use super::{App, bulk, lists, rate};
use crate::access::Identity;
use crate::listening::Known;
use crate::service::bulkhead::Place;
use crate::service::ceilings::setter_of;
use crate::service::rate::Limited;
use crate::service::readings::Report;
use crate::service::{Service, ServiceError, Tenancy, whose};

/// A larger body is parsed apart: one of this size takes a fraction of a millisecond.
const PARSED_AT_ONCE_BYTES: usize = 16 * 1024;

/// The tenant that an operator's request looks at: another one, or the one that its query
/// names, which may be the own.
#[derive(Clone, Copy)]
struct LooksAt(TenantId);

/// Among what a request asks for a place once its body is there, so that none that drips in
/// holds one meanwhile.
#[derive(Clone, Copy)]
enum Among {
    /// What its tenant reads.
    Reads,
    /// What its tenant changes.
    Changes,
}

/// An authenticated request: all that it can reach is one tenant's, its own or, with
/// an operator's key, that of the thing that its path, its query or a replay names.
pub(super) struct Caller {
    app: App,
    identity: Identity,
    /// It has no place yet.
    among: Option<Among>,
    /// An operator's that names another tenant's thing, or a tenant.
    looks_at: Option<TenantId>,
    /// Of one that reads, and has no body.
    place: Option<Arc<Place>>,
}

impl FromRequestParts<App> for Caller {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        Ok(Self {
            identity: identity(parts)?,
            looks_at: parts.extensions.get().map(|LooksAt(tenant)| *tenant),
            among: parts.extensions.get::<Among>().copied(),
            app: app.clone(),
            // Nobody else keeps it.
            place: parts.extensions.remove(),
        })
    }
}

/// Absent only on a route that is not behind `authenticate`.
fn identity(parts: &Parts) -> Result<Identity, Problem> {
    let identity = parts.extensions.get::<Identity>();
    identity.copied().ok_or_else(Problem::unauthorized)
}

/// What the caller's tenant can do, before there is a handler.
pub(super) fn service_of(parts: &Parts, app: &App) -> Result<Service, Problem> {
    Ok(app.0.service.of(identity(parts)?.tenant, None))
}

impl Caller {
    /// Runs `work` for the caller's tenant. What changes something is done to its end, even
    /// if the client does not wait for it; what only reads, as long as he does.
    pub(super) async fn run<T, F>(&self, work: impl FnOnce(Service) -> F) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ServiceError>> + Send + 'static,
    {
        let service = self.service();
        // Before the work, so that whoever leaves the line has changed nothing.
        let late = match self.among {
            Some(Among::Changes) => Some(service.change().await?),
            Some(Among::Reads) => Some(service.read().await?),
            None => None,
        };
        let reads = self.place.is_some() || matches!(self.among, Some(Among::Reads));
        let (work, place) = (work(service), self.place.clone());
        let work = Box::pin(async move {
            let done = work.await;
            drop((place, late));
            done
        });
        match reads {
            true => while_wanted(work).await,
            false => to_its_end(work).await,
        }
    }

    /// Parses a body of so many bytes. What takes a core for milliseconds waits for a place,
    /// and is done apart from the threads that everybody's requests run on.
    pub(super) async fn parse<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce(&Service) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let service = self.service();
        if bytes <= PARSED_AT_ONCE_BYTES {
            return work(&service);
        }
        let place = service.body().await?;
        let parsing = tokio::task::spawn_blocking(move || {
            let parsed = work(&service);
            drop(place);
            parsed
        });
        let broken = |error: tokio::task::JoinError| ServiceError::Internal(error.to_string());
        parsing.await.map_err(broken)?
    }

    /// Makes a report for the caller's tenant. It waits for a place for as long as
    /// the client does, and ends between two steps when nobody waits any more.
    pub(super) async fn report<T, F>(
        self,
        work: impl FnOnce(Service, Report) -> F,
    ) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ServiceError>> + Send + 'static,
    {
        let service = self.service();
        // Others of this tenant read meanwhile.
        drop(self.place);
        let (report, _wanted) = service.report().await?;
        to_its_end(work(service, report)).await
    }

    /// Forgets what it knows of the tenants that platforms act for: one was changed.
    pub(super) fn forget_tenants(&self) {
        self.app.forget_tenants();
    }

    /// What the caller's tenant can do: for work that outlives the handler.
    pub(super) fn service(&self) -> Service {
        let Identity {
            tenant,
            home,
            ingest_limit,
            ..
        } = self.identity;
        let own = self.app.0.service.of(tenant, ingest_limit);
        let own = own.set_by(setter_of(home));
        match self.looks_at {
            Some(other) => own.looking_at(other),
            None => own,
        }
    }

    /// The same, about these dead letters: an operator's are whoever's they are.
    pub(super) async fn replaying(
        mut self,
        dead_letter: Option<AttemptId>,
        destination: Option<DestinationId>,
    ) -> Result<Self, Problem> {
        let named = whose::named_by_replay(self.identity.scopes, dead_letter, destination);
        self.looks_at = looks_at(&self.app, &self.identity, named).await?;
        Ok(self)
    }

    /// Asks for a scope beyond the route's: for what shows more of the same to
    /// those who may.
    pub(super) fn needs(&self, scope: Scope) -> Result<(), Problem> {
        match self.identity.scopes.contains(scope) {
            true => Ok(()),
            false => Err(Problem::forbidden(scope)),
        }
    }

    /// The key that it came with; `None` for the one that is configured.
    pub(super) const fn key(&self) -> Option<KeyId> {
        self.identity.key
    }

    /// A place for a bulk body.
    pub(super) fn bulk_place(&self) -> Result<bulk::Place, Problem> {
        self.app.0.bulk.take(self.identity.tenant)
    }

    /// The same for what concerns the whole installation. The route's scope,
    /// `admin`, was asked for before the handler.
    pub(super) async fn administer<T, F>(
        &self,
        work: impl FnOnce(Arc<Tenancy>) -> F,
    ) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ServiceError>> + Send + 'static,
    {
        to_its_end(work(Arc::clone(&self.app.0.tenancy))).await
    }
}

/// What only reads, for as long as somebody waits for it: then it ends with the statement that
/// it has begun, which the store bounds.
async fn while_wanted<T: Send + 'static>(
    work: impl Future<Output = Result<T, ServiceError>> + Send + 'static,
) -> Result<T, Problem> {
    let gone = CancellationToken::new();
    // Dropped with the client's connection.
    let _left = gone.clone().drop_guard();
    to_its_end(wanted::until(gone, work)).await
}

/// In a task of its own, whoever waits for it.
pub(super) async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, ServiceError>> + Send + 'static,
) -> Result<T, Problem> {
    match tokio::spawn(work.in_current_span()).await {
        Ok(done) => Ok(done?),
        Err(broken) => Err(ServiceError::Internal(broken.to_string()).into()),
    }
}

/// `Authorization: Bearer KEY`, or 401; the scope that the route asks for, or
/// 403. Before the body is read. Answers say how fast the tenant may hand
/// events in.
pub(super) async fn authenticate(State(app): State<App>, request: Request, next: Next) -> Response {
    let mut claim = Claim::of(&app, &request);
    match own(&app, claim.key.take()).await {
        // Whatever comes of it, whoever asks is somebody we know.
        Ok(own) => {
            let answer = answered(&app, (claim, own), request, next).await;
            Known::told(answer.unwrap_or_else(IntoResponse::into_response))
        }
        Err(problem) => problem.into_response(),
    }
}

/// Whose key it is.
async fn own(app: &App, offered: Option<String>) -> Result<Identity, Problem> {
    let offered = offered.ok_or_else(Problem::unauthorized)?;
    let known = (app.0.gate.identify(&offered).await)
        .map_err(|error| ServiceError::Unavailable(error.to_string()))?;
    known.ok_or_else(Problem::unauthorized)
}

/// What whoever has this key is answered.
async fn answered(
    app: &App,
    (claim, own): (Claim, Identity),
    mut request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let scope = claim.scope;
    let identity = claim.identity(app, own).await?;
    let listed = listed(app, &identity, scope, &mut request).await?;
    request.extensions_mut().insert(identity);
    place(app, &identity, scope, &mut request).await?;
    let named = whose::named(identity.scopes, request.uri());
    let looks_at = match listed {
        // Whatever else it names is looked for among that tenant's.
        Some(tenant) => Some(tenant),
        None => looks_at(app, &identity, named).await?,
    };
    if let Some(tenant) = looks_at {
        request.extensions_mut().insert(LooksAt(tenant));
    }
    let method = request.method().clone();
    let response = next.run(request).await;
    let held = app.hold(identity.tenant, &method, response).await;
    let mut response = held.unwrap_or_else(IntoResponse::into_response);
    let whose = Limited {
        tenant: identity.tenant,
        limit: identity.ingest_limit,
    };
    let standing = app.0.service.rates().standing(whose);
    rate::tell(&standing, response.headers_mut());
    Ok(response)
}

/// A place for what reads. What changes something is counted here, and has its place once
/// its body is there, as a read that has one; events go by a rate.
async fn place(
    app: &App,
    identity: &Identity,
    scope: Option<Scope>,
    request: &mut Request,
) -> Result<(), ServiceError> {
    match scope {
        Some(Scope::Manage) => {
            app.manage(identity.tenant)?;
            request.extensions_mut().insert(Among::Changes);
        }
        Some(Scope::Read | Scope::ReadPayloads) if request.method() == Method::POST => {
            request.extensions_mut().insert(Among::Reads);
        }
        Some(Scope::Read | Scope::ReadPayloads) => {
            let place = app.0.service.of(identity.tenant, None).read().await?;
            request.extensions_mut().insert(Arc::new(place));
        }
        _ => {}
    }
    Ok(())
}

/// The tenant whose list an operator wants; `None` where nobody is named.
async fn listed(
    app: &App,
    identity: &Identity,
    scope: Option<Scope>,
    request: &mut Request,
) -> Result<Option<TenantId>, Problem> {
    let route = request.extensions().get::<MatchedPath>();
    let route = route.map(MatchedPath::as_str).unwrap_or_default();
    let Some(named) = lists::Named::by(route, request.method(), request.uri())? else {
        // What is the installation's is of no tenant.
        if scope != Some(Scope::Admin) {
            lists::refuse(request.uri())?;
        }
        return Ok(None);
    };
    let (tenant, rest) = named.looked_up(app, identity).await?;
    *request.uri_mut() = rest;
    Ok(Some(tenant))
}

/// The one place where an operator comes to another tenant's things.
async fn looks_at(
    app: &App,
    identity: &Identity,
    named: Option<Thing>,
) -> Result<Option<TenantId>, Problem> {
    let Some(thing) = named else {
        return Ok(None);
    };
    let own = app.0.service.of(identity.tenant, None);
    to_its_end(async move { own.other_tenant_of(thing).await }).await
}

/// The key of `Authorization: Bearer KEY`.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, key) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
}

/// What a request offers, and what its route asks for.
struct Claim {
    key: Option<String>,
    /// The tenant that it acts for.
    acts_for: Result<Option<TenantName>, Problem>,
    /// The most that it shall be able to do.
    most: Result<Scopes, Problem>,
    scope: Option<Scope>,
}

impl Claim {
    fn of(app: &App, request: &Request) -> Self {
        let key = bearer(request.headers()).map(str::to_owned);
        let path = request.extensions().get::<MatchedPath>();
        let scope = path.and_then(|path| app.0.required.scope(path.as_str(), request.method()));
        Self {
            key,
            acts_for: acting::tenant_of(request.headers()),
            most: acting::scopes_of(request.headers()),
            scope,
        }
    }

    /// As whom the one with this key asks, if the route is for him.
    async fn identity(self, app: &App, mut identity: Identity) -> Result<Identity, Problem> {
        identity.scopes = identity.scopes.and(self.most?);
        if let Some(tenant) = self.acts_for? {
            identity = app.0.acting.identity(app, identity, tenant).await?;
        }
        match self.scope {
            Some(scope) if identity.scopes.contains(scope) => Ok(identity),
            Some(scope) => Err(Problem::forbidden(scope)),
            None => Err(Problem::undescribed()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, sleep, timeout};

    use super::*;

    const STATEMENT: Duration = Duration::from_secs(3);

    /// Three statements, one after another; and where it has ended.
    fn statements() -> (
        impl Future<Output = Result<(), ServiceError>> + Send + 'static,
        CancellationToken,
    ) {
        let ended = CancellationToken::new();
        let at_the_end = ended.clone().drop_guard();
        let work = async move {
            let _at_the_end = at_the_end;
            for _ in 0..3 {
                wanted::check()?;
                sleep(STATEMENT).await;
            }
            Ok(())
        };
        (work, ended)
    }

    /// What only reads begins nothing more; what changes something is done whole.
    #[tokio::test(start_paused = true)]
    async fn what_reads_ends_with_the_statement_at_which_its_client_left() {
        let left = Duration::from_secs(1);
        let began = Instant::now();
        let (reads, ended) = statements();
        assert!(timeout(left, while_wanted(reads)).await.is_err());
        ended.cancelled().await;
        assert!(began.elapsed() < STATEMENT * 2);

        let began = Instant::now();
        let (changes, ended) = statements();
        assert!(timeout(left, to_its_end(changes)).await.is_err());
        ended.cancelled().await;
        assert!(began.elapsed() >= STATEMENT * 3);
    }
}
