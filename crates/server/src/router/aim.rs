//! Where a request goes, by what it says: a decision that asks nobody.

use domain::access::Scope;
use domain::shard::ShardName;
use engine::ports::DEFAULT_TENANT;
use http::Method;

use crate::api::acting::TenantName;

/// The list of tenants, and where one is made.
pub(super) const TENANTS: &str = "/v1/tenants";

/// What all routes of one tenant begin with.
pub(super) const TENANT: &str = "/v1/tenants/{";

/// One tenant.
pub(super) const THE_TENANT: &str = "/v1/tenants/{id}";

/// What a request says of where it belongs.
#[derive(Debug, Clone)]
pub(super) struct Asked<'a> {
    pub(super) method: &'a Method,
    /// As it is described.
    pub(super) route: &'a str,
    /// What the route asks of a key.
    pub(super) scope: Option<Scope>,
    /// The tenant that the path names, or whose list the query wants.
    pub(super) in_path: Option<&'a str>,
    /// The tenant that the key acts for.
    pub(super) acts_for: Option<TenantName>,
    pub(super) named: Named,
    /// The key's; `None` for the one that all shards have.
    pub(super) home: Option<&'a ShardName>,
    /// Whose is what names no shard.
    pub(super) first: &'a ShardName,
}

/// The shard that a header names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Named {
    None,
    One(ShardName),
    /// It names none of ours.
    Unknown,
}

/// Where it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Aim {
    Shard(ShardName),
    /// To wherever this tenant is.
    Tenant(TenantName),
    /// To one that takes new tenants.
    NewTenant,
    /// To all, and what they say is one answer.
    EveryShard,
    /// Nowhere: it has to say where.
    NameOne,
}

impl Asked<'_> {
    pub(super) fn aim(&self) -> Aim {
        if self.named == Named::Unknown {
            return Aim::NameOne;
        }
        // Whoever acts for a tenant is no administrator, whatever the route: its shard says so.
        if self.route == TENANTS && self.acts_for.is_none() {
            return match (self.method, &self.named) {
                (&Method::POST, _) => Aim::NewTenant,
                (&Method::GET | &Method::HEAD, Named::None) => Aim::EveryShard,
                // What there is no such method for is for a shard to refuse.
                _ => Aim::Shard(self.own().clone()),
            };
        }
        // What is no name of a tenant is for a shard to refuse.
        let in_path = || self.in_path.and_then(TenantName::parse);
        let tenant = self.acts_for.clone().or_else(in_path);
        let is_default = |tenant: &TenantName| *tenant == TenantName::Id(DEFAULT_TENANT);
        match (tenant, &self.named) {
            // Each shard has one.
            (Some(tenant), _) if is_default(&tenant) => Aim::Shard(self.own().clone()),
            // One that is not there yet may be somewhere else.
            (Some(tenant), _) if self.makes_or_renames() => Aim::Tenant(tenant),
            (_, Named::One(name)) => Aim::Shard(name.clone()),
            (Some(tenant), _) => Aim::Tenant(tenant),
            (None, _) if self.scope == Some(Scope::Admin) && self.in_path.is_none() => Aim::NameOne,
            (None, _) => Aim::Shard(self.own().clone()),
        }
    }

    /// What a shard's key needs, before anything is asked on its account. Where it goes to
    /// the key's own shard that one judges it.
    pub(super) fn needs(&self, aim: &Aim) -> Option<Scope> {
        match aim {
            Aim::Shard(name) if Some(name) == self.home => None,
            Aim::Shard(_) | Aim::Tenant(_) if self.acts_for.is_some() => Some(Scope::Platform),
            _ => Some(Scope::Admin),
        }
    }

    fn makes_or_renames(&self) -> bool {
        let is_the_tenants = self.acts_for.is_none() && self.route == THE_TENANT;
        is_the_tenants && matches!(*self.method, Method::PUT | Method::PATCH)
    }

    fn own(&self) -> &ShardName {
        match &self.named {
            Named::One(name) => name,
            Named::None | Named::Unknown => self.home.unwrap_or(self.first),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> ShardName {
        text.parse().unwrap()
    }

    /// What a request is that says so: its route, and in words the rest.
    struct Said {
        first: ShardName,
        home: ShardName,
    }

    impl Said {
        fn new() -> Self {
            Self {
                first: name("a"),
                home: name("b"),
            }
        }

        fn asked<'a>(&'a self, method: &'a Method, route: &'a str) -> Asked<'a> {
            Asked {
                method,
                route,
                scope: Some(Scope::Read),
                in_path: None,
                acts_for: None,
                named: Named::None,
                home: Some(&self.home),
                first: &self.first,
            }
        }
    }

    fn shard(text: &str) -> Aim {
        Aim::Shard(name(text))
    }

    fn tenant(text: &str) -> TenantName {
        TenantName::parse(text).unwrap()
    }

    #[test]
    fn a_tenants_own_request_goes_home_and_is_judged_there() {
        let said = Said::new();
        let own = said.asked(&Method::POST, "/v1/events");
        assert_eq!(own.aim(), shard("b"));
        assert_eq!(own.needs(&own.aim()), None);
        let shared = Asked { home: None, ..own };
        assert_eq!(
            shared.aim(),
            shard("a"),
            "what names no shard is the first one's"
        );
    }

    #[test]
    fn who_acts_for_a_tenant_goes_where_it_is() {
        let said = Said::new();
        let acting = Asked {
            acts_for: Some(tenant("customer-1")),
            ..said.asked(&Method::POST, "/v1/events")
        };
        assert_eq!(acting.aim(), Aim::Tenant(tenant("customer-1")));
        assert_eq!(acting.needs(&acting.aim()), Some(Scope::Platform));
        let told = Asked {
            named: Named::One(name("c")),
            ..acting
        };
        assert_eq!(told.aim(), shard("c"), "whoever says where is believed");
        assert_eq!(told.needs(&told.aim()), Some(Scope::Platform));
    }

    #[test]
    fn who_acts_for_a_tenant_lists_and_makes_none() {
        let said = Said::new();
        for method in [Method::GET, Method::POST] {
            let acting = Asked {
                acts_for: Some(tenant("customer-1")),
                scope: Some(Scope::Admin),
                ..said.asked(&method, TENANTS)
            };
            assert_eq!(acting.aim(), Aim::Tenant(tenant("customer-1")), "{method}");
            assert_eq!(acting.needs(&acting.aim()), Some(Scope::Platform));
        }
    }

    #[test]
    fn a_path_names_its_tenant() {
        let said = Said::new();
        let keys = Asked {
            scope: Some(Scope::Admin),
            in_path: Some("customer-1"),
            ..said.asked(&Method::POST, "/v1/tenants/{id}/keys")
        };
        assert_eq!(keys.aim(), Aim::Tenant(tenant("customer-1")));
        assert_eq!(keys.needs(&keys.aim()), Some(Scope::Admin));
        let wrong = Asked {
            in_path: Some("no name"),
            ..keys.clone()
        };
        assert_eq!(wrong.aim(), shard("b"), "its shard says what is wrong");
        let default = DEFAULT_TENANT.to_string();
        let own = Asked {
            in_path: Some(&default),
            ..keys.clone()
        };
        assert_eq!(own.aim(), shard("b"));
        let of_another = Asked {
            named: Named::One(name("a")),
            ..own
        };
        assert_eq!(of_another.aim(), shard("a"));
        assert_eq!(of_another.needs(&of_another.aim()), Some(Scope::Admin));
    }

    /// A header cannot make one tenant be in two places.
    #[test]
    fn who_may_make_a_tenant_looks_for_it_first_whatever_the_header_says() {
        let said = Said::new();
        for method in [Method::PUT, Method::PATCH] {
            let put = Asked {
                in_path: Some("customer-1"),
                named: Named::One(name("a")),
                ..said.asked(&method, THE_TENANT)
            };
            assert_eq!(put.aim(), Aim::Tenant(tenant("customer-1")), "{method}");
        }
        let post = said.asked(&Method::POST, TENANTS);
        assert_eq!(post.aim(), Aim::NewTenant);
    }

    #[test]
    fn tenants_are_listed_of_all_shards_and_the_rest_of_an_installation_of_one() {
        let said = Said::new();
        let list = said.asked(&Method::GET, TENANTS);
        assert_eq!(list.aim(), Aim::EveryShard);
        assert_eq!(list.needs(&list.aim()), Some(Scope::Admin));
        let fleet = Asked {
            scope: Some(Scope::Admin),
            ..said.asked(&Method::GET, "/v1/fleet")
        };
        assert_eq!(fleet.aim(), Aim::NameOne);
        let one = Named::One(name("a"));
        for asked in [list, fleet] {
            let named = Asked {
                named: one.clone(),
                ..asked.clone()
            };
            assert_eq!(named.aim(), shard("a"));
            assert_eq!(named.needs(&named.aim()), Some(Scope::Admin));
            let unknown = Asked {
                method: &Method::DELETE,
                scope: None,
                ..asked.clone()
            };
            assert_eq!(unknown.aim(), shard("b"));
            let nowhere = Asked {
                named: Named::Unknown,
                ..asked
            };
            assert_eq!(nowhere.aim(), Aim::NameOne);
        }
    }
}
