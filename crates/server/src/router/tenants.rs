//! Tenants of all shards: where one is, where a new one goes, and the list of all.

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::{Query, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use domain::shard::ShardName;
use futures_util::future::join_all;
use http::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::aim::{Named, THE_TENANT};
use super::shards::{As, Shard};
use super::{Inner, no_tenant};
use crate::api::acting::TenantName;
use crate::api::parameters::TenantsPage;
use crate::api::problem::Problem;

/// The largest body that makes or changes a tenant.
const MAX_BODY_BYTES: usize = 64 * 1024;

/// A page of one shard's tenants, as it is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Page {
    tenants: Vec<Map<String, Value>>,
    next: Option<String>,
}

/// What is looked at of what makes or changes a tenant. All else is for the shard to
/// judge, and so is a body that is none.
#[derive(Default, Deserialize)]
struct Draft {
    external_id: Option<String>,
}

impl Inner {
    /// To the shard that has this tenant, or that gets it.
    pub(super) async fn to_tenant(
        &self,
        (route, tenant): (&str, TenantName),
        whose: &As,
        request: Request,
    ) -> Result<Response, Problem> {
        let found = self.pins.find(&self.shards, &tenant).await?;
        let named = self.shards.named(request.headers());
        let makes = route == THE_TENANT && request.method() == Method::PUT;
        let shard = match (found, &tenant) {
            (Some(shard), _) => not_elsewhere(&tenant, shard, &named)?,
            (None, TenantName::External(_)) if makes => self.new_home(&tenant, &named)?,
            (None, _) => return Err(no_tenant()),
        };
        let renames = route == THE_TENANT && request.method() == Method::PATCH;
        let request = match renames {
            true => self.not_to_a_name_elsewhere(&shard, request).await?,
            false => request,
        };
        let is_change = route == THE_TENANT && !request.method().is_safe();
        let answer = self.pass(route, &shard, whose, request).await?;
        // It has another name, is gone, or was somewhere else a minute ago.
        if is_change || answer.status() == StatusCode::NOT_FOUND {
            self.pins.forget(&tenant);
        }
        Ok(answer)
    }

    /// To the shard that gets a new tenant.
    pub(super) async fn create(
        &self,
        route: &str,
        whose: &As,
        request: Request,
    ) -> Result<Response, Problem> {
        let named = self.shards.named(request.headers());
        let (request, called) = self.called(request).await?;
        let shard = match called {
            Some(tenant) => match self.pins.find(&self.shards, &tenant).await? {
                Some(shard) => not_elsewhere(&tenant, shard, &named)?,
                None => self.new_home(&tenant, &named)?,
            },
            None => match named {
                Named::One(name) => name,
                _ => {
                    let id = self.mint.uuid().to_string();
                    let home = self.shards.home_for_any(&id);
                    home.cloned().ok_or_else(|| self.name_one())?
                }
            },
        };
        self.pass(route, &shard, whose, request).await
    }

    fn new_home(&self, tenant: &TenantName, named: &Named) -> Result<ShardName, Problem> {
        if let Named::One(name) = named {
            return Ok(name.clone());
        }
        let home = self.shards.home(&tenant.to_string());
        home.cloned().ok_or_else(|| self.name_one())
    }

    /// The external id that a body gives, which is read for that.
    async fn called(&self, request: Request) -> Result<(Request, Option<TenantName>), Problem> {
        let (head, body) = request.into_parts();
        let body = to_bytes(body, MAX_BODY_BYTES).await;
        let body: Bytes = body.map_err(|error| {
            tracing::debug!(%error, "a body was not read");
            Problem::too_large("body", MAX_BODY_BYTES)
        })?;
        let draft: Draft = serde_json::from_slice(&body).unwrap_or_default();
        let external = draft.external_id.and_then(|text| text.parse().ok());
        let called = external.map(TenantName::External);
        Ok((Request::from_parts(head, Body::from(body)), called))
    }

    async fn not_to_a_name_elsewhere(
        &self,
        shard: &ShardName,
        request: Request,
    ) -> Result<Request, Problem> {
        let (request, called) = self.called(request).await?;
        let Some(tenant) = called else {
            return Ok(request);
        };
        match self.pins.find(&self.shards, &tenant).await? {
            Some(other) if other != *shard => Err(Problem::invalid(
                "external_id",
                format!("a tenant of the shard {other} has it"),
            )),
            _ => Ok(request),
        }
    }

    /// The tenants of all shards, as one list.
    pub(super) async fn list_tenants(&self, request: Request) -> Result<Response, Problem> {
        let asked = Query::<TenantsPage>::try_from_uri(request.uri());
        let path = request
            .uri()
            .path_and_query()
            .map_or("/", |path| path.as_str());
        let answers = join_all(self.shards.all().map(|shard| async move {
            let answer = self
                .shards
                .ask(shard, Method::GET, path, String::new())
                .await;
            (shard, answer)
        }));
        let mut pages: Vec<(&Shard, Page)> = Vec::new();
        for (shard, answer) in answers.await {
            let answer = answer.map_err(|why| shard.away(&why))?;
            match answer.status {
                StatusCode::OK => {
                    let page = answer.json().map_err(|why| shard.away(&why))?;
                    pages.push((shard, page));
                }
                // What is wrong with the question all say alike.
                status if status.is_client_error() => return Ok(answer.pass(shard)),
                _ => return Err(shard.away(&answer.unusable())),
            }
        }
        let limit = asked.map_or(0, |Query(page)| page.limit as usize);
        let pages = pages.into_iter().map(|(shard, page)| (shard.name(), page));
        Ok(Json(merged(pages, limit)).into_response())
    }
}

/// Where it is, unless the request says another shard.
fn not_elsewhere(
    tenant: &TenantName,
    shard: ShardName,
    named: &Named,
) -> Result<ShardName, Problem> {
    match named {
        Named::One(name) if *name != shard => Err(Problem::conflict(format!(
            "the tenant {tenant} is on the shard {shard} and not on {name}: tenants do not move"
        ))),
        _ => Ok(shard),
    }
}

/// One page of several, in the order of ids. Each of them has so many tenants as one
/// page has, so what none of them has comes after all that is taken. The default tenant,
/// which each shard has, is shown once.
fn merged<'a>(pages: impl Iterator<Item = (&'a ShardName, Page)>, limit: usize) -> Page {
    let (mut all, mut more) = (Vec::new(), false);
    for (shard, page) in pages {
        more |= page.next.is_some();
        all.extend(page.tenants.into_iter().map(|mut tenant| {
            tenant.insert("shard".to_owned(), shard.as_str().into());
            tenant
        }));
    }
    let id = |tenant: &Map<String, Value>| {
        let id = tenant.get("id").and_then(Value::as_str);
        id.unwrap_or_default().to_owned()
    };
    // Stable: of the same id the first shard's stays first.
    all.sort_by_key(id);
    all.dedup_by_key(|tenant| id(tenant));
    more |= all.len() > limit;
    all.truncate(limit);
    let next = all.last().filter(|_| more).map(id);
    Page { tenants: all, next }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn page(ids: &[&str], next: Option<&str>) -> Page {
        let tenant = |id: &&str| json!({"id": id}).as_object().unwrap().clone();
        Page {
            tenants: ids.iter().map(tenant).collect(),
            next: next.map(str::to_owned),
        }
    }

    /// What each page shows, and where the next one begins.
    fn shown(limit: usize, pages: &[(&str, Page)]) -> (Vec<String>, Option<String>) {
        let names: Vec<ShardName> = pages
            .iter()
            .map(|(name, _)| name.parse().unwrap())
            .collect();
        let pages = names.iter().zip(pages.iter().map(|(_, page)| page.clone()));
        let page = merged(pages, limit);
        let words = page.tenants.iter().map(|tenant| {
            let text = |name: &str| tenant[name].as_str().unwrap().to_owned();
            text("id") + &text("shard")
        });
        (words.collect(), page.next)
    }

    #[test]
    fn pages_of_shards_are_one_in_the_order_of_ids() {
        let pages = [
            ("a", page(&["1", "4"], Some("4"))),
            ("b", page(&["2", "3"], None)),
        ];
        let words = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            shown(2, &pages),
            (words(&["1a", "2b"]), Some("2".to_owned()))
        );
        let last = [("a", page(&["4"], None)), ("b", page(&["3"], None))];
        assert_eq!(shown(2, &last), (words(&["3b", "4a"]), None));
        let empty = [("a", page(&[], None)), ("b", page(&[], None))];
        assert_eq!(shown(2, &empty), (Vec::new(), None));
    }

    #[test]
    fn a_page_that_ends_where_a_shard_goes_on_has_a_next_one() {
        let pages = [("a", page(&["1", "2"], Some("2"))), ("b", page(&[], None))];
        assert_eq!(shown(2, &pages).1, Some("2".to_owned()));
    }

    #[test]
    fn the_tenant_that_each_shard_has_is_shown_once() {
        let pages = [("a", page(&["0"], None)), ("b", page(&["0", "1"], None))];
        let (words, next) = shown(100, &pages);
        assert_eq!(words, ["0a", "1b"]);
        assert_eq!(next, None);
    }
}
