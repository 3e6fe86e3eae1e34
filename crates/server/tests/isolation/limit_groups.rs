//! Limit groups are a tenant's own, and what is wrong is named.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::world::{Answer, Tenant, World};

async fn call(
    world: &World,
    tenant: &Tenant,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> Answer {
    world.call(Some(&tenant.key), &method, path, body).await
}

/// Created, joined, shown, changed and deleted, each tenant's by itself though they have the
/// same name.
pub(crate) async fn a_group_is_joined_by_its_tenants_destinations_alone(world: &World) {
    let (ours, theirs) = (&world.ours, &world.theirs);
    let group = "/v1/limit-groups/acme";
    let two = json!({"limits": {"per_second": 2}});
    let made = call(world, ours, Method::PUT, group, Some(two)).await;
    assert_eq!(made.status, StatusCode::OK, "{made:?}");
    let joins = Some(json!({"limit_group": "acme"}));
    let path = |tenant: &Tenant| format!("/v1/destinations/{}", tenant.destination);
    let refused = call(world, theirs, Method::PATCH, &path(theirs), joins.clone()).await;
    assert_eq!(
        refused.status,
        StatusCode::UNPROCESSABLE_ENTITY,
        "{refused:?}"
    );
    assert_eq!(refused.json["field"], "limit_group", "{refused:?}");
    let joined = call(world, ours, Method::PATCH, &path(ours), joins.clone()).await;
    assert_eq!(joined.json["limit_group"], "acme", "{joined:?}");
    let compliance = format!("/v1/compliance?destination_id={}", ours.destination);
    for path in ["/v1/compliance", &compliance] {
        let report = call(world, ours, Method::GET, path, None).await.json;
        let judged = report["limit_groups"].as_array().unwrap();
        assert_eq!(judged.len(), 1, "{path}: {report}");
        assert_eq!(judged[0]["name"], "acme");
        // It is half a second younger than what can be judged.
        assert_eq!(
            (&judged[0]["compliant"], &report["compliant"]),
            (&json!(true), &json!(true))
        );
    }
    let report = call(world, theirs, Method::GET, "/v1/compliance", None).await;
    assert_eq!(report.json["limit_groups"], json!([]), "{report:?}");
    // Theirs has its name, and its own limits and members.
    let nine = json!({"limits": {"per_hour": 9}});
    call(world, theirs, Method::PUT, group, Some(nine)).await;
    let seen = call(world, ours, Method::GET, group, None).await;
    assert_eq!(seen.json["limits"]["per_second"], 2, "{seen:?}");
    assert_eq!(seen.json["members"], json!([ours.destination]), "{seen:?}");
    let listed = call(world, theirs, Method::GET, "/v1/limit-groups", None).await;
    assert_eq!(
        listed.json["limit_groups"][0]["members"],
        json!([]),
        "{listed:?}"
    );
    let kept = call(world, ours, Method::DELETE, group, None).await;
    assert_eq!(kept.status, StatusCode::CONFLICT, "{kept:?}");
    let gone = call(world, theirs, Method::DELETE, group, None).await;
    assert_eq!(gone.status, StatusCode::NO_CONTENT, "{gone:?}");
    let none = Some(json!({"limit_group": null}));
    let left = call(world, ours, Method::PATCH, &path(ours), none).await;
    assert_eq!(left.json["limit_group"], Value::Null, "{left:?}");
    // What it started before it left is judged still.
    let report = call(world, ours, Method::GET, "/v1/compliance", None).await;
    assert_eq!(report.json["limit_groups"][0]["name"], "acme", "{report:?}");
    let gone = call(world, ours, Method::DELETE, group, None).await;
    assert_eq!(gone.status, StatusCode::NO_CONTENT, "{gone:?}");
}

/// By its field.
pub(crate) async fn what_is_wrong_with_a_group_is_named(world: &World) {
    let ours = &world.ours;
    for (name, limits, field) in [
        ("acme", json!({"per_second": 2_001}), "limits.per_second"),
        ("acme", json!({}), "limits.per_second"),
        ("a%20b", json!({"per_second": 1}), "name"),
    ] {
        let path = format!("/v1/limit-groups/{name}");
        let body = Some(json!({"limits": limits}));
        let refused = call(world, ours, Method::PUT, &path, body).await;
        assert!(refused.status.is_client_error(), "{refused:?}");
        assert_eq!(refused.json["field"], field, "{refused:?}");
    }
    let missing = call(world, ours, Method::GET, "/v1/limit-groups/none", None).await;
    assert_eq!(missing.status, StatusCode::NOT_FOUND, "{missing:?}");
}
