//! Lists of another tenant's things: an operator names the tenant in the query, as
//! `?tenant=`. Handlers know nothing of it: it is taken out of the query before they
//! begin, and what they read is that tenant's. Every other route of a tenant's refuses it:
//! whoever names a tenant there would be answered of the own one, without a word.

use domain::access::Scope;
use domain::ids::TenantId;
use http::{Method, Uri};
use utoipa::openapi::path::{ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::SchemaType;
use utoipa::openapi::{ObjectBuilder, OpenApi, RefOr, Schema, Type};

use super::App;
use super::acting::TenantName;
use super::problem::Problem;
use crate::access::Identity;

/// The parameter that names the tenant.
const TENANT: &str = "tenant";

/// The lists that have it.
const LISTS: [&str; 13] = [
    "/v1/alerts",
    "/v1/attempts",
    "/v1/compliance",
    "/v1/dead-letters",
    "/v1/destinations",
    "/v1/events",
    "/v1/limit-groups",
    "/v1/limit-requests",
    "/v1/notice-addresses",
    "/v1/operational-destinations",
    "/v1/operational-events",
    "/v1/replays",
    "/v1/standings",
];

/// Whose list a request wants, as it says, and its address without that.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) tenant: String,
    rest: Uri,
}

impl Named {
    /// None of what is no list, or names nobody.
    pub(crate) fn by(route: &str, method: &Method, uri: &Uri) -> Result<Option<Self>, Problem> {
        if *method != Method::GET || !LISTS.contains(&route) {
            return Ok(None);
        }
        let parts = uri.query().unwrap_or_default().split('&');
        let (named, others): (Vec<&str>, Vec<&str>) = parts.partition(|part| names_one(part));
        let [one] = named[..] else {
            return match named.is_empty() {
                true => Ok(None),
                false => Err(Problem::invalid(TENANT, "is there more than once")),
            };
        };
        let mut value = url::form_urlencoded::parse(one.as_bytes());
        let tenant = value.next().map(|(_, value)| value.trim().to_owned());
        let rest = format!("{}?{}", uri.path(), others.join("&"));
        Ok(Some(Self {
            tenant: tenant.unwrap_or_default(),
            rest: rest.parse().unwrap_or_else(|_unlikely| uri.clone()),
        }))
    }

    /// The tenant, for an operator, who may name the own one; and the address as handlers are
    /// to see it.
    pub(super) async fn looked_up(
        self,
        app: &App,
        identity: &Identity,
    ) -> Result<(TenantId, Uri), Problem> {
        if !identity.scopes.contains(Scope::Admin) {
            return Err(Problem::forbidden(Scope::Admin));
        }
        let name = TenantName::parse(&self.tenant);
        let problem = "names no tenant: expected its id, or its external id";
        let name = name.ok_or_else(|| Problem::invalid(TENANT, problem))?;
        let tenant = app.0.acting.known(app, name).await?;
        Ok((tenant, self.rest))
    }
}

/// Refuses a tenant where none is named, on a route that is a tenant's.
pub(super) fn refuse(uri: &Uri) -> Result<(), Problem> {
    let mut parts = uri.query().unwrap_or_default().split('&');
    match parts.any(names_one) {
        true => Err(Problem::invalid(
            TENANT,
            "is for lists: name the thing by its id, or the tenant in the header Paceline-Tenant",
        )),
        false => Ok(()),
    }
}

/// Whether this part of a query names a tenant.
fn names_one(part: &str) -> bool {
    let mut pairs = url::form_urlencoded::parse(part.as_bytes());
    pairs.next().is_some_and(|(name, _)| name == TENANT)
}

/// Adds it to the description of each.
pub(super) fn describe(document: &mut OpenApi) {
    for path in LISTS {
        let list = document.paths.paths.get_mut(path);
        let Some(operation) = list.and_then(|item| item.get.as_mut()) else {
            continue;
        };
        let text = ObjectBuilder::new()
            .schema_type(SchemaType::new(Type::String))
            .min_length(Some(1))
            .build();
        let parameter = ParameterBuilder::new()
            .name(TENANT)
            .parameter_in(ParameterIn::Query)
            .description(Some(
                "With a key of the scope `admin`: of this tenant, by its id or its external id.",
            ))
            .schema(Some(RefOr::T(Schema::Object(text))))
            .build();
        (operation.parameters.get_or_insert_default()).push(parameter.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(uri: &'static str) -> Result<Option<(String, String)>, Problem> {
        let uri = Uri::from_static(uri);
        let named = Named::by(uri.path(), &Method::GET, &uri)?;
        Ok(named.map(|named| (named.tenant, named.rest.to_string())))
    }

    #[test]
    fn a_tenant_is_taken_out_of_the_query() {
        let named = |tenant: &str, rest: &str| Some((tenant.to_owned(), rest.to_owned()));
        assert_eq!(
            by("/v1/events?type=a%20b&tenant=customer%3A7&limit=5").unwrap(),
            named("customer:7", "/v1/events?type=a%20b&limit=5")
        );
        assert_eq!(
            by("/v1/replays?%74enant=x").unwrap(),
            named("x", "/v1/replays?")
        );
        for none in [
            "/v1/events",
            "/v1/events?tenants=x",
            "/v1/events?text=tenant=x",
            "/v1/tiers?tenant=x",
        ] {
            assert_eq!(by(none).unwrap(), None, "{none}");
        }
        assert!(by("/v1/events?tenant=a&tenant=b").is_err());
    }

    #[test]
    fn elsewhere_it_is_refused() {
        let refused = |uri: &'static str| refuse(&Uri::from_static(uri)).is_err();
        assert!(refused("/v1/events/1?tenant=a"));
        assert!(refused("/v1/replays/preview?limit=1&%74enant"));
        assert!(!refused("/v1/events/1"));
        assert!(!refused("/v1/events/1?text=tenant=a&tenants=a"));
    }
}
