//! Pages: a browser holds what names its shard, a link is it, and whoever signs in says
//! so by the key.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{Method, StatusCode, header};
use secrecy::zeroize::Zeroizing;
use tokio::time::timeout;

use super::shards::As;
use super::{Home, Inner};
use crate::api::problem::Problem;
use crate::edge::shard_of_held;
use crate::pages::{self, held_by};

/// How long a form may take to come.
const FORM_WITHIN: Duration = Duration::from_secs(10);

const SIGN_IN: &str = "/dashboard/sign-in";

const LINKS: &str = "/dashboard/links/";

impl Inner {
    /// A page of the shard whose visitor it is.
    pub(super) async fn show(&self, request: Request) -> Result<Response, Problem> {
        let path = request.uri().path();
        let by_link = path.strip_prefix(LINKS).map(str::to_owned);
        let signs_in = path == SIGN_IN && request.method() == Method::POST;
        let held = by_link.or_else(|| held_by(request.headers()));
        let (request, shard) = match (signs_in, held) {
            (true, _) => self.signing_in(request).await?,
            (false, Some(held)) => {
                let named = shard_of_held(&held);
                // From before there were several, it names none.
                let shard = match &named {
                    Some(name) => self.shards.get(name),
                    None => Some(self.shards.first()),
                };
                (request, shard)
            }
            (false, None) => (request, None),
        };
        let shard = shard.unwrap_or_else(|| self.shards.any());
        let request = whole(request).await?;
        self.shards.pass(shard, PAGES, &As::Caller, request).await
    }

    /// The shard of the key that a form has; none is said to be wrong by any.
    async fn signing_in(
        &self,
        request: Request,
    ) -> Result<(Request, Option<&super::shards::Shard>), Problem> {
        let (head, body) = request.into_parts();
        let body = read(body, pages::MAX_STRANGERS_FORM_BYTES).await?;
        let key = url::form_urlencoded::parse(&body).find(|(name, _)| name == "key");
        let key = key.map(|(_, key)| Zeroizing::new(key.trim().to_owned()));
        let home = key.and_then(|key| self.keys.home(&key, &self.shards));
        let shard = home.and_then(|home| match &home {
            Home::Everywhere => Some(self.shards.first()),
            Home::Shard(name) => self.shards.get(name),
        });
        Ok((Request::from_parts(head, Body::from(body)), shard))
    }
}

/// A form once it has come: one that drips in takes nobody's place meanwhile.
async fn whole(request: Request) -> Result<Request, Problem> {
    if request.method() != Method::POST {
        return Ok(request);
    }
    let (head, body) = request.into_parts();
    // Who has no cookie has not signed in.
    let most = match head.headers.contains_key(header::COOKIE) {
        true => pages::max_form_bytes(head.uri.path()),
        false => pages::MAX_STRANGERS_FORM_BYTES,
    };
    let body = read(body, most).await?;
    Ok(Request::from_parts(head, Body::from(body)))
}

async fn read(body: Body, most: usize) -> Result<Bytes, Problem> {
    let body = timeout(FORM_WITHIN, to_bytes(body, most)).await;
    let body = body.map_err(|_late| Problem::too_slow())?;
    body.map_err(|_large| Problem::too_large("body", most))
}

/// What all of them are counted as.
pub(super) const PAGES: &str = "/dashboard";

/// For people: a browser has no use for JSON.
pub(super) fn in_words(problem: &Problem) -> Response {
    let status = StatusCode::from_u16(problem.status);
    let words = format!("{}: {}\n", problem.title, problem.detail);
    (status.unwrap_or(StatusCode::BAD_GATEWAY), words).into_response()
}
