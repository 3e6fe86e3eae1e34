//! Whose things a request is about.
//!
//! Everybody's own, except an operator's: the scope `admin` reaches whatever its path
//! or query names by id, and whose dead letters a replay is of, whichever tenant's it
//! is. Decided here, for the API and for the
//! pages, before a handler begins: a handler sees one tenant and checks it in each
//! query, as always. For other callers nothing is looked up: what is another tenant's
//! is answered by the same reads, in the same words and the same time, as what never
//! was.

use domain::access::{Scope, Scopes};
use domain::ids::{AttemptId, DestinationId, TenantId};
use engine::ports::Thing;
use http::Uri;

use super::{Service, ServiceError};

impl Service {
    /// The tenant that has this thing, if it is not the caller's own. For what [`named`]
    /// has found.
    pub async fn other_tenant_of(&self, thing: Thing) -> Result<Option<TenantId>, ServiceError> {
        let tenant = self.reading.overview.tenant_of(thing).await?;
        Ok(tenant.filter(|tenant| *tenant != self.tenant))
    }
}

/// The thing that an operator's request names; `None` for everybody else.
#[must_use]
pub fn named(scopes: Scopes, uri: &Uri) -> Option<Thing> {
    if !scopes.contains(Scope::Admin) {
        return None;
    }
    by_path(uri)
}

/// Whose dead letters an operator wants replayed: this one, or this destination's.
#[must_use]
pub fn named_by_replay(
    scopes: Scopes,
    dead_letter: Option<AttemptId>,
    destination: Option<DestinationId>,
) -> Option<Thing> {
    if !scopes.contains(Scope::Admin) {
        return None;
    }
    match dead_letter {
        Some(id) => Some(Thing::Attempt(id)),
        None => destination.map(Thing::Destination),
    }
}

/// The thing that an operator's form names, where its path does not.
#[must_use]
pub fn named_by_form<'a>(scopes: Scopes, field: impl Fn(&str) -> Option<&'a str>) -> Option<Thing> {
    match field("attempt") {
        Some(id) => named_by_replay(scopes, id.parse().ok().map(AttemptId), None),
        None => named_by_replay(scopes, None, field("destination")?.parse().ok()),
    }
}

/// `/v1/KIND/ID…` and `/dashboard/KIND/ID…`, or a list of one destination's.
fn by_path(uri: &Uri) -> Option<Thing> {
    let mut parts = uri.path().split('/').skip(2);
    let (kind, id) = (parts.next()?, parts.next());
    match (kind, id) {
        ("destinations", Some(id)) => id.parse().ok().map(Thing::Destination),
        ("events", Some(id)) => id.parse().ok().map(Thing::Event),
        ("attempts" | "dead-letters", Some(id)) => {
            id.parse().ok().map(|id| Thing::Attempt(AttemptId(id)))
        }
        ("dead-letters" | "compliance" | "audit" | "events" | "attempts", None)
        | ("replays", Some("preview")) => {
            let query = uri.query().unwrap_or_default();
            let mut fields = url::form_urlencoded::parse(query.as_bytes());
            let (_, id) =
                fields.find(|(name, _)| name == "destination_id" || name == "destination")?;
            id.trim().parse().ok().map(Thing::Destination)
        }
        ("replays", Some(id)) => id.parse().ok().map(Thing::Replay),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_thing_is_named_by_its_path_or_as_the_one_of_a_list() {
        let id = Uuid::from_u128(7);
        let destination = Some(Thing::Destination(DestinationId(id)));
        for path in [
            format!("/v1/destinations/{id}"),
            format!("/v1/destinations/{id}/secrets/x"),
            format!("/dashboard/destinations/{id}/live?window=60"),
            format!("/v1/dead-letters?type=a&destination_id={id}"),
            format!("/v1/replays/preview?destination_id={id}"),
            format!("/v1/events?state=failed&destination_id={id}"),
            format!("/dashboard/dead-letters?destination=%20{id}"),
        ] {
            assert_eq!(
                named(Scopes::ALL, &path.parse().unwrap()),
                destination,
                "{path}"
            );
        }
        let attempt = Some(Thing::Attempt(AttemptId(9)));
        for path in ["/dashboard/attempts/9", "/v1/dead-letters/9"] {
            assert_eq!(
                named(Scopes::ALL, &path.parse().unwrap()),
                attempt,
                "{path}"
            );
        }
        let nobody = Scopes::ALL.without(Scope::Admin);
        let path = format!("/v1/destinations/{id}").parse().unwrap();
        assert_eq!(named(nobody, &path), None);
        assert_eq!(named_by_form(nobody, |_| Some("9")), None);
        for path in [
            "/",
            "/v1",
            "/v1/destinations",
            "/v1/destinations/x",
            "/v1/events/bulk",
            "/v1/events/resend/preview",
            "/v1/dead-letters?destination_id=x",
            &format!("/v1/tenants/{id}"),
            &format!("/v1/operational-destinations/{id}"),
        ] {
            assert_eq!(named(Scopes::ALL, &path.parse().unwrap()), None, "{path}");
        }
    }
}
