//! Who visits: from the cookie to a session, and from a form to one that may be
//! done.
//!
//! The cookie holds 256 random bits, of which the store knows the digest. It is
//! `HttpOnly` and `SameSite=Strict`, and `Secure` with the `__Host-` prefix but
//! where the browser itself calls this machine in plain text.
//!
//! A browser sends no strict cookie to a page in another site's frame. So a link that is
//! opened in a frame, where the platform may frame it, has a cookie of another name, with
//! `SameSite=None` and `Partitioned`: it goes to us in frames of that one site.
//!
//! A form is done only if it came from a page of ours (by `Origin`, or `Sec-Fetch-Site`)
//! and carries the session's token, which is another digest of what the cookie holds.
//! That holds in a frame too, where the cookie alone proves nothing.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts, Request};
use domain::access::Scope;
use domain::ceiling::Setter;
use domain::ids::TenantId;
use engine::ports::{Session, Thing};
use http::request::Parts;
use http::{Extensions, HeaderMap, StatusCode, header};
use subtle::ConstantTimeEq;

use super::guest::{Guest, is_guest, is_in_frame};
use super::refused::Refused;
use super::{Late, MAX_STRANGERS_FORM_BYTES, Pages, bounds, max_form_bytes};
use crate::access::key::{digest, hex};
use crate::api::body;
use crate::service::ServiceError;
use crate::service::bulkhead::Place;
use crate::service::ceilings::setter_of;
use crate::service::whose;

/// A visitor with a session.
#[derive(Debug, Clone)]
pub(super) struct Visitor {
    pub(super) session: Session,
    pub(super) digest: [u8; 32],
    /// The tenant that an operator looks at with this request, where it is another one
    /// than the session's.
    looks_at: Option<TenantId>,
    /// What its forms carry.
    pub(super) token: String,
    /// Of one that reads, until the page is there, or changes something.
    _place: Option<Arc<Place>>,
}

impl Visitor {
    /// Whose things the page shows or changes.
    pub(super) const fn tenant(&self) -> TenantId {
        match self.looks_at {
            Some(other) => other,
            None => self.session.tenant,
        }
    }

    /// Whose places the page takes, and what the other pages of its session show.
    pub(super) const fn home(&self) -> TenantId {
        self.session.tenant
    }

    /// The one place where an operator's page comes to another tenant's things.
    async fn looking_at(mut self, pages: &Pages, thing: Option<Thing>) -> Result<Self, Refused> {
        if let Some(thing) = thing {
            self.looks_at = pages.service(self.home()).other_tenant_of(thing).await?;
        }
        Ok(self)
    }

    pub(super) const fn may(&self, scope: Scope) -> bool {
        self.session.scopes.contains(scope)
    }

    pub(super) const fn needs(&self, scope: Scope) -> Result<(), Refused> {
        match self.may(scope) {
            true => Ok(()),
            false => Err(Refused::Scope(scope)),
        }
    }

    /// The same, which does nothing any more that needs a place.
    pub(super) fn without_place(self) -> Self {
        Self {
            _place: None,
            ..self
        }
    }

    /// The same with a place for what it reads: a form that asks first changes nothing yet.
    pub(super) async fn reading(self, pages: &Pages) -> Result<Self, Refused> {
        let visitor = self.without_place();
        let place = pages.service(visitor.home()).read().await?;
        Ok(Self {
            _place: Some(Arc::new(place)),
            ..visitor
        })
    }

    /// Who came by a link: a customer, whose platform is somebody else.
    pub(super) fn is_guest(&self) -> bool {
        is_guest(&self.session)
    }

    /// Who sets limits on the page: an operator wherever he looks, and a guest for his
    /// tenant, whose ever that is.
    pub(super) fn setter(&self) -> Setter {
        match (self.is_operator(), self.is_guest()) {
            (true, _) => Setter::Operator,
            (false, true) => Setter::Tenant,
            (false, false) => setter_of(self.home()),
        }
    }

    /// Whether limits may be set above the ceiling of the tier.
    pub(super) const fn is_operator(&self) -> bool {
        self.may(Scope::Admin)
    }
}

impl FromRequestParts<Pages> for Visitor {
    type Rejection = Refused;
    async fn from_request_parts(parts: &mut Parts, pages: &Pages) -> Result<Self, Refused> {
        let visitor = identify(&parts.headers, &parts.extensions, pages).await?;
        let visitor = visitor.ok_or(Refused::SignIn)?;
        visitor.needs(Scope::Read)?;
        let thing = whose::named(visitor.session.scopes, &parts.uri);
        let visitor = visitor.reading(pages).await?;
        visitor.looking_at(pages, thing).await
    }
}

/// Who it is, if the session is good.
pub(super) async fn identify(
    headers: &HeaderMap,
    extensions: &Extensions,
    pages: &Pages,
) -> Result<Option<Visitor>, Refused> {
    let Some(held) = cookie(headers) else {
        return Ok(None);
    };
    let digest = digest(&held);
    let session = session(pages, digest).await?;
    let session = session.filter(|session| session.kind.shows_pages());
    if let (Some(session), Some(guest)) = (&session, extensions.get::<Guest>()) {
        guest.note(session);
    }
    Ok(session.map(|session| Visitor {
        session,
        digest,
        looks_at: None,
        token: token(&held),
        _place: None,
    }))
}

/// A session or link that is good, the configured key being what it was.
pub(super) async fn session(pages: &Pages, digest: [u8; 32]) -> Result<Option<Session>, Refused> {
    let links = pages.0.app.tenancy().links();
    let found = pages.0.sessions.session(digest).await?;
    Ok(found.filter(|session| links.stands(session.behind)))
}

/// A form that may be done, and who sent it.
pub(super) struct Posted {
    pub(super) visitor: Visitor,
    pub(super) fields: Fields,
    /// Where its browser has this dashboard, such as `https://hooks.example`.
    pub(super) origin: Option<String>,
    /// Of its fields, among all bodies.
    _room: body::Share,
}

/// What a form says.
#[derive(Debug, Default)]
pub(super) struct Fields(HashMap<String, String>);

impl<const N: usize> From<[(&str, String); N]> for Fields {
    /// As if somebody had typed these.
    fn from(typed: [(&str, String); N]) -> Self {
        let typed = typed.into_iter();
        Self(typed.map(|(name, text)| (name.to_owned(), text)).collect())
    }
}

impl FromIterator<(&'static str, String)> for Fields {
    fn from_iter<T: IntoIterator<Item = (&'static str, String)>>(typed: T) -> Self {
        let typed = typed.into_iter();
        Self(typed.map(|(name, text)| (name.to_owned(), text)).collect())
    }
}

impl Fields {
    /// Writes something else into a field of the form.
    pub(super) fn set(&mut self, name: &str, text: String) {
        self.0.insert(name.to_owned(), text);
    }

    /// What stands in a field of the form.
    pub(super) fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    /// A field without the spaces around it; empty is absent.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let text = self.0.get(name).map(|text| text.trim());
        text.filter(|text| !text.is_empty())
    }

    /// A field with the spaces around it.
    pub(super) fn as_typed(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// The names of all fields.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The same without this field, which was not asked for.
    fn without(mut self, name: &str) -> Self {
        self.0.remove(name);
        self
    }

    /// Whether the form has such a field.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

/// What a form is sent as.
const FORM: &str = "application/x-www-form-urlencoded";

impl FromRequest<Pages> for Posted {
    type Rejection = Refused;
    async fn from_request(request: Request, pages: &Pages) -> Result<Self, Refused> {
        let visitor = identify(request.headers(), request.extensions(), pages).await?;
        let visitor = visitor.ok_or(Refused::SignIn)?;
        let (origin, uri) = (origin(request.headers()), request.uri().clone());
        let late: Option<Late> = request.extensions().get().cloned();
        let (fields, room) = form_of(request, pages, Some(visitor.home())).await?;
        let token = fields.get("token").unwrap_or_default();
        if !bool::from(token.as_bytes().ct_eq(visitor.token.as_bytes())) {
            let words = "This form is not of your session. Go back, reload the page, try again.";
            return Err(Refused::new(StatusCode::FORBIDDEN, words));
        }
        pages.0.app.manage(visitor.home())?;
        let place = in_time(late, pages.service(visitor.home()).change()).await?;
        let visitor = Visitor {
            _place: Some(Arc::new(place)),
            ..visitor
        };
        let scopes = visitor.session.scopes;
        let thing = whose::named(scopes, &uri)
            .or_else(|| whose::named_by_form(scopes, |name| fields.get(name)));
        let visitor = visitor.looking_at(pages, thing).await?;
        Ok(Self {
            // What the platform calls things, none of its customers changes by a link.
            fields: match visitor.is_guest() {
                true => fields.without("external_id"),
                false => fields,
            },
            visitor,
            origin,
            _room: room,
        })
    }
}

/// As long as somebody waits for the page: what has not begun by then is not done.
async fn in_time<T>(
    late: Option<Late>,
    place: impl Future<Output = Result<T, ServiceError>>,
) -> Result<T, Refused> {
    let Some(Late(late)) = late else {
        return Ok(place.await?);
    };
    tokio::select! {
        biased;
        () = late.cancelled() => Err(Refused::unavailable("This took too long.")),
        place = place => Ok(place?),
    }
}

/// As its browser knows it, whatever a proxy in between makes of the host.
fn origin(headers: &HeaderMap) -> Option<String> {
    let origin = headers.get(header::ORIGIN)?.to_str().ok()?;
    let is_web = origin.starts_with("https://") || origin.starts_with("http://");
    is_web.then(|| origin.to_owned())
}

/// A form that came from a page of ours: for those without a session, which
/// have no token.
pub(super) async fn own_form(request: Request, pages: &Pages) -> Result<Fields, Refused> {
    Ok(form_of(request, pages, None).await?.0)
}

async fn form_of(
    request: Request,
    pages: &Pages,
    tenant: Option<TenantId>,
) -> Result<(Fields, body::Share), Refused> {
    if !is_ours(request.headers()) {
        let words = "This form came from another site.";
        return Err(Refused::new(StatusCode::FORBIDDEN, words));
    }
    let is_form = request.headers().get(header::CONTENT_TYPE);
    let is_form = is_form.is_some_and(|one| one.as_bytes().starts_with(FORM.as_bytes()));
    if !is_form {
        let words = format!("A form is {FORM}.");
        return Err(Refused::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, words));
    }
    let most = match tenant {
        Some(_) => max_form_bytes(request.uri().path()),
        None => MAX_STRANGERS_FORM_BYTES,
    };
    let read = body::form(&pages.0.app, request, tenant, most).await;
    let read = read.map_err(Refused::from)?;
    Ok((Fields(bounds::read(&read.bytes)?), read.room))
}

fn is_ours(headers: &HeaderMap) -> bool {
    let text = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    // Where browsers say so, they know best; in plain text to another machine
    // they do not.
    if let Some(site) = headers.get("sec-fetch-site") {
        return site == "same-origin";
    }
    match (text(header::ORIGIN), text(header::HOST)) {
        (Some(origin), Some(host)) => {
            let authority = origin.split_once("://");
            authority.is_some_and(|(_, authority)| authority == host)
        }
        _ => false,
    }
}

/// Where a browser keeps what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Jar {
    /// For our own pages, and nobody's frames.
    Own,
    /// For frames of the site that it was set in.
    Framed,
}

impl Jar {
    /// For a session that begins or ends with this request.
    fn of(pages: &Pages, headers: &HeaderMap, session: &Session) -> Self {
        let may_be_framed = pages.0.portal.may_be_framed() && is_guest(session);
        match may_be_framed && is_in_frame(headers) {
            true => Self::Framed,
            false => Self::Own,
        }
    }

    /// In plain text to this machine, and over TLS.
    const fn names(self) -> [&'static str; 2] {
        match self {
            Self::Own => ["paceline-session", "__Host-paceline-session"],
            Self::Framed => ["paceline-guest", "__Host-paceline-guest"],
        }
    }
}

pub(crate) fn cookie(headers: &HeaderMap) -> Option<String> {
    let cookies = headers.get_all(header::COOKIE).into_iter();
    let pairs = cookies
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(';'));
    let named: Vec<_> = pairs
        .filter_map(|pair| pair.trim().split_once('='))
        .collect();
    // An operator may look at a customer's frame: each page has the session of its own.
    let jars = match is_in_frame(headers) {
        true => [Jar::Framed, Jar::Own],
        false => [Jar::Own, Jar::Framed],
    };
    let is_here = is_this_machine(headers);
    let names = jars.into_iter().flat_map(|jar| {
        let [plain, secure] = jar.names();
        // Behind a proxy that calls us by another name, the secure one is there.
        [Some(secure), Some(plain).filter(|_| is_here)]
    });
    let mut found = names.flatten().filter_map(|name| {
        let one = named.iter().find(|(one, _)| *one == name);
        one.map(|(_, value)| (*value).to_owned())
    });
    found.next()
}

/// By what the browser calls us: it sends `Secure` cookies nowhere else in
/// plain text.
fn is_this_machine(headers: &HeaderMap) -> bool {
    let host = headers
        .get(header::HOST)
        .and_then(|value| value.to_str().ok());
    let authority = host.and_then(|host| host.parse::<http::uri::Authority>().ok());
    authority.is_some_and(|authority| {
        let host = authority.host().trim_matches(['[', ']']);
        host == "localhost"
            || host
                .parse()
                .is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
    })
}

/// By the page that the form came from, as the browser knows it: a proxy may
/// have ended TLS, and written another `Host`.
fn is_by_tls(headers: &HeaderMap) -> bool {
    let origin = headers.get(header::ORIGIN);
    origin.is_some_and(|origin| origin.as_bytes().starts_with(b"https://"))
}

/// Sets what the browser holds of a session, for so long.
pub(super) fn set_cookie(
    (pages, session): (&Pages, &Session),
    headers: &HeaderMap,
    held: &str,
    seconds: u64,
) -> String {
    let jar = Jar::of(pages, headers, session);
    let is_plain = is_this_machine(headers) && !is_by_tls(headers);
    let [plain, secure] = jar.names();
    let name = if is_plain { plain } else { secure };
    let keeps = match (jar, is_plain) {
        (Jar::Own, true) => "SameSite=Strict",
        (Jar::Own, false) => "SameSite=Strict; Secure",
        // To their own machine browsers send a secure one in plain text as well.
        (Jar::Framed, _) => "SameSite=None; Secure; Partitioned",
    };
    format!("{name}={held}; Path=/; Max-Age={seconds}; HttpOnly; {keeps}")
}

fn token(held: &str) -> String {
    hex(&digest(&format!("form:{held}")))
}
