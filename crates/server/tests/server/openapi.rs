//! The description and the router say the same.

use axum::body::Body;
use http::Method;
use serde_json::Value;

use crate::world::World;

/// `(method, path)` of everything that is described.
fn described() -> Vec<(Method, String)> {
    let document = serde_json::to_value(server::api::openapi()).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let operations = paths.iter().flat_map(|(path, item)| {
        let methods = item.as_object().unwrap().keys();
        methods.map(|method| (method.to_uppercase().parse().unwrap(), path.clone()))
    });
    operations.collect()
}

/// Something for each parameter of a path.
fn filled(path: &str) -> String {
    let parts = path.split('/').map(|part| match part.starts_with('{') {
        true => "x",
        false => part,
    });
    parts.collect::<Vec<_>>().join("/")
}

#[tokio::test]
async fn every_described_route_is_there() {
    let world = World::new();
    let routes = described();
    assert!(routes.len() >= 11, "{routes:?}");
    for (method, path) in routes.iter().filter(|(_, path)| path.starts_with("/v1")) {
        let answer = world
            .send(method.clone(), &filled(path), Body::empty())
            .await;
        let kind = answer.json["type"].as_str().unwrap_or_default();
        assert!(
            !kind.ends_with("no-such-route") && !kind.ends_with("no-such-method"),
            "{method} {path}"
        );
    }
}

/// Each is described once, and told by an answer.
#[tokio::test]
async fn answers_refer_to_the_headers_of_the_rate() {
    let document = serde_json::to_value(server::api::openapi()).unwrap();
    let headers = document["components"]["headers"].as_object().unwrap();
    assert_eq!(headers.len(), 5);
    let world = World::new();
    let path = "/v1/destinations";
    let answer = world.send(Method::GET, path, Body::empty()).await;
    for (name, header) in headers {
        assert!(answer.headers.contains_key(name.as_str()), "{name}");
        assert!(header["description"].is_string(), "{header}");
    }
    let told = (answer.headers.keys()).filter(|name| name.as_str().contains("ratelimit"));
    assert_eq!(told.count(), headers.len());
    let answers = &document["paths"][path]["get"]["responses"];
    for name in headers.keys() {
        let reference = format!("#/components/headers/{name}");
        assert_eq!(answers["200"]["headers"][name]["$ref"], reference);
        assert!(answers["401"]["headers"].is_null());
    }
    assert!(document["paths"]["/readyz"]["get"]["responses"]["200"]["headers"].is_null());
}

#[tokio::test]
async fn every_method_that_is_not_described_is_refused() {
    let world = World::new();
    let routes = described();
    let methods = [
        Method::GET,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
    ];
    for path in routes
        .iter()
        .map(|(_, path)| path)
        .filter(|path| path.starts_with("/v1"))
    {
        for method in &methods {
            let answer = world
                .send(method.clone(), &filled(path), Body::empty())
                .await;
            let there = routes.contains(&(method.clone(), path.clone()));
            let kind = answer.json["type"].as_str().unwrap_or_default();
            assert_eq!(!kind.ends_with("no-such-method"), there, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn it_is_served_without_a_key_and_every_reference_in_it_resolves() {
    let world = World::new();
    let request = http::Request::builder()
        .uri("/openapi.json")
        .body(Body::empty())
        .unwrap();
    let document = world.request(request).await.json;
    assert_eq!(
        document,
        serde_json::to_value(server::api::openapi()).unwrap()
    );
    let text = document.to_string();
    for reference in text.split("\"$ref\":\"#").skip(1) {
        let pointer = reference.split('"').next().unwrap();
        assert_ne!(
            document.pointer(pointer).unwrap_or(&Value::Null),
            &Value::Null,
            "{pointer}"
        );
    }
}
