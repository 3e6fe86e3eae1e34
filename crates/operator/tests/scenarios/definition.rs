//! The definition in the repository is the program's, and says what it means.
use kube::core::cel::Validator;
use operator::crd;
use operator::resource::{ClientAuth, Destination, DestinationSpec};
use serde_json::{Value, json};

fn read(path: &str) -> String {
    let path = format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn the_definition_is_the_programs() {
    assert_eq!(
        read("k8s/crds/destinations.yaml"),
        crd::yaml(),
        "paceline crd > k8s/crds/destinations.yaml"
    );
}

fn schema() -> Value {
    let definition = serde_json::to_value(crd::definition()).unwrap();
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// Its names are anybody's: an API server keeps them all.
#[test]
fn a_filter_has_whatever_fields() {
    let filter = &schema()["properties"]["spec"]["properties"]["filter"];
    assert_eq!(filter["type"], "object");
    assert_eq!(filter["x-kubernetes-preserve-unknown-fields"], true);
    assert_eq!(filter.get("additionalProperties"), None);
}

/// What the rules say of a change from `old`, by an API server's judgement.
fn judged(spec: Value, old: Option<Value>) -> Vec<String> {
    let object = |spec: Value| json!({ "metadata": { "name": "shop" }, "spec": spec });
    let old = old.map(object);
    let judged = Validator::new().validate_with_defaults(&schema(), &object(spec), old.as_ref());
    let errors = judged.err().map(|errors| errors.into_vec());
    let errors = errors.into_iter().flatten();
    errors.map(|error| error.to_string()).collect()
}

fn spec(more: Value) -> Value {
    let mut spec = json!({
        "url": "https://shop.example/hooks",
        "signingSecretRef": { "name": "shop" },
        "tenant": "00000000-0000-0000-0000-000000000001",
        "allowHttp": false,
        "unlimited": false,
    });
    for (key, value) in more.as_object().expect("fields") {
        spec[key] = value.clone();
    }
    spec
}

#[test]
fn the_rules_refuse_what_makes_no_sense() {
    for (good, why) in [
        (json!({}), "the least"),
        (
            json!({ "url": "http://shop.example", "allowHttp": true }),
            "http, allowed",
        ),
        (json!({ "limits": { "perSecond": 5 } }), "a limit"),
        (json!({ "unlimited": true }), "none"),
        (json!({ "shape": "leaky_bucket", "burst": 1 }), "a bucket"),
        (json!({ "shape": "token_bucket", "burst": 9 }), "another"),
        (json!({ "clientCertificateRef": { "name": "tls" } }), "mTLS"),
    ] {
        assert_eq!(judged(spec(good), None), [""; 0], "{why}");
    }
    for (bad, message) in [
        (json!({ "url": "http://shop.example" }), "must be https"),
        (
            json!({ "url": "ftp://shop.example", "allowHttp": true }),
            "must be https",
        ),
        (
            json!({ "unlimited": true, "limits": { "perSecond": 5 } }),
            "exclude each other",
        ),
        (
            json!({ "shape": "leaky_bucket", "burst": 2 }),
            "a burst of 1",
        ),
        (
            json!({ "url": "http://shop.example", "allowHttp": true, "clientCertificateRef": { "name": "tls" } }),
            "over https",
        ),
    ] {
        let errors = judged(spec(bad.clone()), None);
        assert!(
            errors.len() == 1 && errors[0].contains(message),
            "{bad}: {errors:?}"
        );
    }
}

#[test]
fn the_tenant_cannot_be_changed() {
    let other = json!({ "tenant": "00000000-0000-0000-0000-000000000002" });
    assert_eq!(judged(spec(json!({})), Some(spec(json!({})))), [""; 0]);
    let errors = judged(spec(other), Some(spec(json!({}))));
    assert!(
        errors.len() == 1 && errors[0].contains("can't be changed"),
        "{errors:?}"
    );
}

/// A default within an object that may be left out is the program's alone to check.
#[test]
fn references_have_the_keys_that_cert_manager_writes() {
    let spec: DestinationSpec = serde_json::from_value(spec(json!({
        "clientCertificateRef": { "name": "tls" },
        "oauth2": {
            "tokenUrl": "https://login.example/token", "clientId": "paceline",
            "clientSecretRef": { "name": "login" },
        },
    })))
    .unwrap();
    let certificate = spec.client_certificate_ref.as_ref().unwrap();
    let keys = (&*certificate.certificate, &*certificate.private_key);
    assert_eq!(keys, ("tls.crt", "tls.key"));
    let client = spec.oauth2.as_ref().unwrap();
    assert_eq!(
        (&*client.client_secret_ref.key, client.client_auth),
        ("secret", ClientAuth::Basic)
    );
    assert_eq!(
        Vec::from_iter(spec.secret_names()),
        ["login", "shop", "tls"]
    );
    let properties = schema()["properties"]["spec"]["properties"].clone();
    let named = &properties["clientCertificateRef"]["properties"];
    assert_eq!(named["certificate"]["default"], "tls.crt");
    assert_eq!(named["privateKey"]["default"], "tls.key");
    assert_eq!(
        properties["oauth2"]["properties"]["clientAuth"]["default"],
        "basic"
    );
}

/// A definition with formats that the API server does not know is one with
/// warnings.
#[test]
fn formats_are_those_that_kubernetes_knows() {
    fn walk(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                if let Some(Value::String(format)) = fields.get("format") {
                    found.push(format.clone());
                }
                fields.values().for_each(|field| walk(field, found));
            }
            Value::Array(items) => items.iter().for_each(|item| walk(item, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    walk(&schema(), &mut found);
    found.sort();
    found.dedup();
    assert_eq!(found, ["date-time", "double", "int32", "int64"]);
}

/// Defaults are the same in the schema and in the program, which may meet objects
/// that were stored before a field was there.
#[test]
fn defaults_agree() {
    let least = json!({
        "apiVersion": "paceline.dev/v1alpha1", "kind": "Destination",
        "metadata": { "name": "shop" },
        "spec": { "url": "https://shop.example", "signingSecretRef": { "name": "shop" } },
    });
    let parsed: Destination = serde_json::from_value(least).unwrap();
    let printed = serde_json::to_value(&parsed.spec).unwrap();
    let properties = schema()["properties"]["spec"]["properties"].clone();
    for (field, property) in properties.as_object().unwrap() {
        if !property["default"].is_null() {
            assert_eq!(printed[field], property["default"], "{field}");
        }
    }
    assert_eq!(printed["signingSecretRef"]["key"], "secret");
}
