//! What stands before several shards: each request goes to the API of the shard whose
//! tenant it is about, and its answer comes back, both as they stream.
//!
//! It keeps nothing. A key, a link and a cookie name their shard ([`crate::access::key`]),
//! so a tenant's own requests need no look anywhere. Which tenant is where is asked of
//! the shards (`pins`): a tenant is on the shard whose store has it, and nowhere is that
//! written a second time. What goes where is decided by `aim`, which asks nobody.
//!
//! A shard that is away is its own tenants' trouble: they are told so by its name, and
//! all others go on. A request is sent once, whatever comes of it.

use std::sync::Arc;

use axum::Router;
use axum::extract::{MatchedPath, RawPathParams, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use domain::shard::ShardName;
use secrecy::{ExposeSecret, SecretString};
use tokio_util::sync::CancellationToken;

use crate::access::required::Required;
use crate::api;
use crate::api::caller::bearer;
use crate::api::problem::Problem;
use crate::api::{acting, lists};
use crate::config::RouterConfig;
use crate::edge::Mint;
use crate::listening::Known;
use crate::request_id;

mod aim;
mod browser;
mod health;
mod keys;
mod pins;
mod room;
mod shards;
mod tenants;

use aim::{Aim, Asked};
pub use health::Readiness;
use keys::{Home, Keys};
use pins::Pins;
use shards::{As, Shards};

/// The header that names a shard: in a request the one to ask, in an answer the one that
/// gave it.
pub const HEADER: &str = "Paceline-Shard";

/// Routes of requests; cheap to clone.
#[derive(Clone)]
pub struct Routing(Arc<Inner>);

struct Inner {
    shards: Shards,
    keys: Keys,
    pins: Pins,
    /// What each route asks of a key.
    required: &'static Required,
    mint: Mint,
}

impl Routing {
    /// Between these shards, all of which have the key; dials nothing yet.
    pub fn new(config: &RouterConfig, key: &SecretString, mint: Mint) -> anyhow::Result<Self> {
        config.check()?;
        Ok(Self(Arc::new(Inner {
            shards: Shards::new(config, key)?,
            keys: Keys::new(key.expose_secret()),
            pins: Pins::default(),
            required: api::required(),
            mint,
        })))
    }

    /// All that clients ask for.
    pub fn router(&self) -> Router {
        let document = api::openapi();
        let paths = document.paths.paths.keys();
        let ours = paths.filter(|path| path.starts_with("/v1/"));
        let routes = ours.fold(Router::new(), |router, path| router.route(path, any(ask)));
        let pages = ["/", "/dashboard", "/dashboard/{*rest}"];
        let pages = pages.into_iter();
        pages
            .fold(routes, |router, path| router.route(path, any(browse)))
            .route("/openapi.json", api::described())
            .fallback(async || Problem::no_route())
            .layer(middleware::from_fn_with_state(self.clone(), assign_id))
            .with_state(self.clone())
    }

    /// Looks at each shard, once a second, until `shutdown`.
    pub async fn watch(self, shutdown: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = self.look_once() => {}
            }
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(health::LOOK_EVERY) => {}
            }
        }
    }

    /// Looks at each shard, and says which have come or gone.
    pub async fn look_once(&self) {
        self.0.shards.look().await;
    }
}

async fn assign_id(State(routing): State<Routing>, request: Request, next: Next) -> Response {
    request_id::assign_from(|| routing.0.mint.uuid(), request, next).await
}

async fn ask(
    State(routing): State<Routing>,
    path: MatchedPath,
    parameters: RawPathParams,
    request: Request,
) -> Response {
    let id = parameters.iter().next().map(|(_, value)| value.to_owned());
    let answer = routing.0.answer(path.as_str(), id.as_deref(), request);
    answer.await.unwrap_or_else(IntoResponse::into_response)
}

async fn browse(State(routing): State<Routing>, request: Request) -> Response {
    let answer = routing.0.show(request).await;
    answer.unwrap_or_else(|problem| browser::in_words(&problem))
}

impl Inner {
    async fn answer(
        &self,
        route: &str,
        id: Option<&str>,
        request: Request,
    ) -> Result<Response, Problem> {
        let headers = request.headers();
        let key = bearer(headers)
            .ok_or_else(Problem::unauthorized)?
            .to_owned();
        let home = self.keys.home(&key, &self.shards);
        let home = home.ok_or_else(Problem::unauthorized)?;
        let listed = lists::Named::by(route, request.method(), request.uri());
        // What makes no sense is for the shard to refuse.
        let listed = listed.ok().flatten().map(|named| named.tenant);
        let asked = Asked {
            method: request.method(),
            route,
            scope: self.required.scope(route, request.method()),
            in_path: (id.filter(|_| route.starts_with(aim::TENANT))).or(listed.as_deref()),
            // One that is none is for the shard to refuse, once it knows the key.
            acts_for: acting::tenant_of(headers).ok().flatten(),
            named: self.shards.named(headers),
            home: home.shard(),
            first: self.shards.first().name(),
        };
        let aim = asked.aim();
        if home == Home::Everywhere && !matches!(aim, Aim::Shard(_)) {
            // What the router does itself, it does as whoever asks and no more.
            acting::tenant_of(headers)?;
            if let Some(needed) = asked.needs(&aim)
                && !acting::scopes_of(headers)?.contains(needed)
            {
                return Ok(Known::told(Problem::forbidden(needed)));
            }
        }
        let mut whose = As::Caller;
        if let (Some(needed), Home::Shard(shard)) = (asked.needs(&aim), &home) {
            let scopes = self.keys.scopes(&self.shards, shard, &key).await?;
            let scopes = scopes.and(acting::scopes_of(headers)?);
            if !scopes.contains(needed) {
                return Ok(Known::told(Problem::forbidden(needed)));
            }
            whose = As::Key(shard.clone(), scopes);
        }
        // Of any other key its shard says so.
        let is_known = home == Home::Everywhere || matches!(whose, As::Key(..));
        let answer = match aim {
            Aim::Shard(name) => self.pass(route, &name, &whose, request).await,
            Aim::Tenant(tenant) => self.to_tenant((route, tenant), &whose, request).await,
            Aim::NewTenant => self.create(route, &whose, request).await,
            Aim::EveryShard => self.list_tenants(request).await,
            Aim::NameOne => Err(self.name_one()),
        };
        match is_known {
            true => Ok(Known::told(
                answer.unwrap_or_else(IntoResponse::into_response),
            )),
            false => answer,
        }
    }

    /// To this shard, whose name is known.
    async fn pass(
        &self,
        route: &str,
        name: &ShardName,
        whose: &As,
        request: Request,
    ) -> Result<Response, Problem> {
        let shard = self.shards.get(name).ok_or_else(|| self.name_one())?;
        self.shards.pass(shard, route, whose, request).await
    }

    fn name_one(&self) -> Problem {
        let names: Vec<_> = self.shards.names().map(ShardName::as_str).collect();
        let problem = format!(
            "this is asked of one shard at a time: send this header with one of {}",
            names.join(", ")
        );
        Problem::invalid(HEADER, problem)
    }
}

/// Of a tenant that is nowhere.
fn no_tenant() -> Problem {
    crate::service::ServiceError::NotFound("tenant").into()
}
