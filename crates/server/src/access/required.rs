//! Which scope a route asks for, read from its description.
//!
//! A route says `security(("key" = ["manage"]))` where it is described. What
//! is enforced is read from there, so the description cannot be wrong about
//! it; a route that says nothing is refused to everybody.

use std::collections::HashMap;

use domain::access::Scope;
use http::Method;
use serde_json::Value;
use utoipa::openapi::OpenApi;

/// The scope of each route.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Required(HashMap<(String, Method), Scope>);

impl Required {
    /// Of everything that is described with exactly one scope.
    #[must_use]
    pub(crate) fn of(document: &OpenApi) -> Self {
        let document = serde_json::to_value(document).unwrap_or_default();
        let paths = document["paths"].as_object().into_iter().flatten();
        let operations = paths.flat_map(|(path, item)| {
            let operations = item.as_object().into_iter().flatten();
            operations.filter_map(move |(method, operation)| {
                let method = method.to_uppercase().parse().ok()?;
                Some(((path.clone(), method), scope(operation)?))
            })
        });
        Self(operations.collect())
    }

    /// What this route asks for. GET answers HEAD as well.
    #[must_use]
    pub fn scope(&self, path: &str, method: &Method) -> Option<Scope> {
        let method = match *method {
            Method::HEAD => Method::GET,
            ref method => method.clone(),
        };
        self.0.get(&(path.to_owned(), method)).copied()
    }
}

fn scope(operation: &Value) -> Option<Scope> {
    let [only] = operation["security"].as_array()?.as_slice() else {
        return None;
    };
    let [scope] = only["key"].as_array()?.as_slice() else {
        return None;
    };
    scope.as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_of_the_api_asks_for_one_scope() {
        let document = crate::api::openapi();
        let required = Required::of(&document);
        for (path, _) in document.paths.paths.iter() {
            let ours = path.starts_with("/v1/");
            let described = required.0.keys().any(|(known, _)| known == path);
            assert_eq!(ours, described, "{path}");
        }
    }

    #[test]
    fn what_says_nothing_is_for_nobody() {
        let required = crate::api::required();
        assert_eq!(required.scope("/v1/nowhere", &Method::GET), None);
        assert_eq!(
            required.scope("/v1/destinations", &Method::HEAD),
            Some(Scope::Read)
        );
        assert_eq!(required.scope("/v1/destinations", &Method::PUT), None);
    }
}
