//! Guests: whoever opened a link. Their pages look as the platform wants, and may stand
//! in its frames. An operator's never do, nor those of whoever signed in with a key: what
//! is framed can be clicked by people who do not see it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use axum::extract::FromRequestParts;
use domain::access::Scope;
use domain::ids::TenantId;
use engine::ports::{Session, SessionKind};
use http::request::Parts;
use http::{HeaderMap, HeaderValue};

use super::assets::Asset;
use crate::portal::Portal;

/// No script, style or picture but our own, and nothing inline.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors";

/// Whether it is a guest who asks, and of which tenant; known once his session or his
/// link is.
#[derive(Debug, Clone, Default)]
pub(super) struct Guest(Arc<Noted>);

#[derive(Debug, Default)]
struct Noted {
    is_one: AtomicBool,
    tenant: OnceLock<TenantId>,
}

impl Guest {
    pub(super) fn is_one(&self) -> bool {
        self.0.is_one.load(Ordering::Relaxed)
    }

    /// Whose answer it is; `None` where nobody is signed in.
    pub(super) fn tenant(&self) -> Option<TenantId> {
        self.0.tenant.get().copied()
    }

    /// Notes whose answer this is.
    pub(super) fn note(&self, session: &Session) {
        self.0.is_one.store(is_guest(session), Ordering::Relaxed);
        // A link's, and its session's, is the same one.
        let _ = self.0.tenant.set(session.tenant);
    }
}

/// What the guard has put there.
impl<S: Sync> FromRequestParts<S> for Guest {
    type Rejection = std::convert::Infallible;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or_default())
    }
}

/// A link, or the session that it opened. One with an operator's rights, as the demo
/// makes, is an operator's.
pub(super) fn is_guest(session: &Session) -> bool {
    let by_link = matches!(session.kind, SessionKind::Link | SessionKind::Opened);
    by_link && !session.scopes.contains(Scope::Admin)
}

/// Whether the browser shows the answer in a frame of another page. It says so itself,
/// and no page can make it say otherwise.
pub(super) fn is_in_frame(headers: &HeaderMap) -> bool {
    headers
        .get("sec-fetch-dest")
        .is_some_and(|to| to == "iframe" || to == "frame")
}

/// What guests see instead of our name.
#[derive(Debug)]
pub(super) struct Brand {
    pub(super) name: Option<String>,
    style: Option<Asset>,
    logo: Option<Asset>,
}

impl Brand {
    pub(super) fn style(&self) -> Option<&str> {
        self.style.as_ref().map(|style| &*style.path)
    }

    pub(super) fn logo(&self) -> Option<&str> {
        self.logo.as_ref().map(|logo| &*logo.path)
    }
}

/// What is configured, made ready.
pub(super) struct GuestPages {
    brand: Arc<Brand>,
    own: HeaderValue,
    /// `None` where nobody may frame anything.
    framed: Option<HeaderValue>,
}

impl GuestPages {
    pub(super) fn new(portal: Portal) -> Self {
        let ancestors = portal.ancestors.iter().map(|one| format!(" {one}"));
        let ancestors: String = ancestors.collect();
        let policy = |ancestors: &str| HeaderValue::from_str(&format!("{POLICY}{ancestors}"));
        let style = portal.accent.map(|accent| accent.style());
        Self {
            brand: Arc::new(Brand {
                name: portal.name,
                style: style.map(|style| Asset::new(("brand", "css"), style.into_bytes())),
                logo: portal.logo.map(|logo| Asset::new(("logo", "png"), logo)),
            }),
            own: policy(" 'none'").expect("it is in ASCII"),
            // An origin is in ASCII too, so none is lost here.
            framed: policy(&ancestors).ok().filter(|_| !ancestors.is_empty()),
        }
    }

    pub(super) fn brand(&self) -> &Arc<Brand> {
        &self.brand
    }

    /// Whether a platform may frame a guest's pages.
    pub(super) const fn may_be_framed(&self) -> bool {
        self.framed.is_some()
    }

    /// The policy of an answer, which may stand in a frame or not.
    pub(super) fn policy(&self, is_framed: bool) -> HeaderValue {
        let framed = self.framed.as_ref().filter(|_| is_framed);
        framed.unwrap_or(&self.own).clone()
    }

    /// The files of the brand.
    pub(super) fn assets(&self) -> impl Iterator<Item = &Asset> {
        [&self.brand.style, &self.brand.logo].into_iter().flatten()
    }
}
