//! The catalogue of event types, written on its pages by operators.

use http::Method;
use serde_json::{Value, json};

use crate::place::Place;
use crate::visit::{ADMIN, World};

const TYPES: &str = "/dashboard/event-types";

on_both! {
    a_type_is_described_changed_and_deleted
    a_wrong_type_comes_again_as_it_was_typed
    what_is_not_changed_stays_byte_for_byte
    what_is_hidden_stays_so
    the_largest_type_fits_a_form
    what_browsers_let_be_typed_comes_again
}

async fn described(world: &World, name: &str) -> Value {
    let path = format!("/v1/event-types/{name}");
    world.api(ADMIN, Method::GET, &path, json!({})).await
}

/// What a form says that was not shown when it was filled.
fn hidden(page: &str) -> String {
    let (_, rest) = page.split_once("name=\"was\" value=\"").unwrap();
    rest.split('"').next().unwrap().to_owned()
}

/// Neither by a form that does not speak of it, nor by one that is older than a change.
async fn what_is_hidden_stays_so(world: &World) {
    let operator = world.sign_in(ADMIN).await;
    let fields = [("name", "c.d"), ("redact", "/card")];
    assert_eq!(world.post(&operator, TYPES, &fields).await.status, 303);
    let edit = format!("{TYPES}/c.d/edit");
    let silent = [("description", "new")];
    assert_eq!(world.post(&operator, &edit, &silent).await.status, 303);
    let now = described(world, "c.d").await;
    assert_eq!(now["redact"], json!(["/card"]));
    let was = hidden(&world.get(&operator, &edit).await.text);
    let both = [("redact", "/card\r\n/name"), ("was", &*was)];
    assert_eq!(world.post(&operator, &edit, &both).await.status, 303);
    let stale = [("redact", "/card"), ("was", &*was)];
    assert_eq!(world.post(&operator, &edit, &stale).await.status, 409);
    let now = described(world, "c.d").await;
    assert_eq!(now["redact"], json!(["/card", "/name"]));
}

async fn a_type_is_described_changed_and_deleted(world: &World) {
    let operator = world.sign_in(ADMIN).await;
    let fields = [
        ("name", "shop/order.paid"),
        ("description", "An order\r\nwas <paid>"),
        ("example", "{\"order\": 17}"),
        ("schema", "{\"type\": \"object\"}"),
        ("redact", "/card/number\r\n\r\n /items/*/price \r\n"),
    ];
    let added = world.post(&operator, TYPES, &fields).await;
    let path = format!("{TYPES}/shop%2Forder.paid");
    assert_eq!(added.headers["location"], format!("{path}?done=described"));
    let now = described(world, "shop%2Forder.paid").await;
    assert_eq!(
        now,
        json!({
            "name": "shop/order.paid", "description": "An order\nwas <paid>",
            "example": {"order": 17}, "schema": {"type": "object"},
            "redact": ["/card/number", "/items/*/price"], "archived": false,
        })
    );
    let edit = format!("{path}/edit");
    let page = world.get(&operator, &path).await.text;
    assert!(page.contains(&format!("href=\"{edit}\"")), "{page}");
    let page = world.get(&operator, &edit).await.text;
    let shows = [
        "An order\nwas &#60;paid&#62;",
        "{&#34;order&#34;: 17}",
        "/card/number\n/items/*/price",
    ];
    for shown in shows {
        assert!(page.contains(shown), "{shown}: {page}");
    }

    let delete = format!("{path}/delete");
    let asked = world.post(&operator, &delete, &[]).await.text;
    assert!(
        asked.contains("Delete what is said of shop/order.paid?"),
        "{asked}"
    );
    let sure = [("sure", "yes")];
    let refused = world.post(&operator, &delete, &sure).await;
    assert_eq!(
        refused.status, 409,
        "it keeps something from being shown: {}",
        refused.text
    );
    let was = hidden(&page);
    let fields = [
        ("description", "Paid"),
        ("redact_all", "yes"),
        ("was", &*was),
        ("archived", "yes"),
    ];
    let saved = world.post(&operator, &edit, &fields).await;
    assert_eq!(saved.headers["location"], format!("{path}?done=changed"));
    let now = described(world, "shop%2Forder.paid").await;
    assert_eq!(
        (&now["redact"], &now["archived"]),
        (&json!([""]), &json!(true))
    );
    assert_eq!(
        (&now["example"], &now["schema"]),
        (&Value::Null, &Value::Null)
    );
    let page = world.get(&operator, &edit).await.text;
    for name in ["redact_all", "archived"] {
        let ticked = format!("name=\"{name}\" value=\"yes\" checked");
        assert!(page.contains(&ticked), "{page}");
    }
    let was = hidden(&world.get(&operator, &edit).await.text);
    let nothing = [("was", &*was)];
    assert_eq!(world.post(&operator, &edit, &nothing).await.status, 303);
    let deleted = world.post(&operator, &delete, &sure).await;
    assert_eq!(deleted.headers["location"], format!("{TYPES}?done=deleted"));
    assert_eq!(world.get(&operator, &path).await.status, 404);
}

async fn a_wrong_type_comes_again_as_it_was_typed(world: &World) {
    let operator = world.sign_in(ADMIN).await;
    let there = json!({"name": "a.b"});
    world
        .api(ADMIN, Method::POST, "/v1/event-types", there)
        .await;
    let edit = format!("{TYPES}/a.b/edit");
    let was = hidden(&world.get(&operator, &edit).await.text);
    for (name, value, problem) in [
        ("name", "a b", "name: must be of letters"),
        ("example", "{", "example: must be JSON"),
        ("schema", "[]", "schema: must be a JSON schema"),
        ("redact", "/a\r\ncard", "redact[1]: "),
    ] {
        let mut fields = vec![("name", "c.d"), ("description", "typed &"), (name, value)];
        fields.push(("was", &was));
        if name == "name" {
            fields.remove(0);
        }
        for path in [TYPES, &edit] {
            if path != TYPES && name == "name" {
                continue;
            }
            let page = world.post(&operator, path, &fields).await;
            assert_eq!(page.status, 422, "{path} {name}: {}", page.text);
            let value = value.replace("\r\n", "\n");
            for shown in [&format!("id=\"problem\">{problem}"), "typed &#38;", &value] {
                assert!(page.text.contains(shown), "{shown}: {}", page.text);
            }
        }
    }
    let twice = world.post(&operator, TYPES, &[("name", "a.b")]).await;
    assert!(twice.status.is_client_error(), "{}", twice.text);
    assert!(twice.text.contains("id=\"problem\">"), "{}", twice.text);
    assert_eq!(described(world, "a.b").await["description"], "");
}

/// A browser sends other line breaks than it was shown, and an operator means nothing by it.
async fn what_is_not_changed_stays_byte_for_byte(world: &World) {
    let operator = world.sign_in(ADMIN).await;
    let example = "{\n  \"a\":   1.0\n}";
    let body = format!(r#"{{"name": "a.b", "example": {example}, "redact": ["/x "]}}"#);
    let made = serde_json::value::RawValue::from_string(body).unwrap();
    let path = "/v1/event-types";
    let request = http::Request::post(path)
        .header("authorization", format!("Bearer {ADMIN}"))
        .header("content-type", "application/json")
        .body(axum::body::Body::from(made.get().to_owned()));
    assert_eq!(world.request(request.unwrap()).await.status, 201);
    let typed = example.replace('\n', "\r\n");
    let edit = format!("{TYPES}/a.b/edit");
    let was = hidden(&world.get(&operator, &edit).await.text);
    let fields = [
        ("example", &*typed),
        ("redact", "/x "),
        ("was", &*was),
        ("description", "new"),
    ];
    let saved = world.post(&operator, &edit, &fields).await;
    assert_eq!(saved.status, 303, "{}", saved.text);
    let request = http::Request::get(format!("{path}/a.b"))
        .header("authorization", format!("Bearer {ADMIN}"))
        .body(axum::body::Body::empty());
    let now = world.request(request.unwrap()).await.text;
    assert!(now.contains(example), "{now}");
    assert!(
        now.contains(r#""redact":["/x "]"#) && now.contains("\"new\""),
        "{now}"
    );
}

async fn the_largest_type_fits_a_form(world: &World) {
    let operator = world.sign_in(ADMIN).await;
    // Each of them is three bytes in a form.
    let quoted = |bytes: usize| format!("\"{}\"", "%".repeat(bytes - 2));
    let schema = format!("{{\"a\":{}}}", quoted(65_536 - 6));
    let example = quoted(32_768);
    let pointers = (10..60).map(|at| format!("/{}{at}", "%".repeat(197)));
    let pointers = pointers.collect::<Vec<_>>().join("\n");
    let description = "%".repeat(2_000);
    let fields = [
        ("name", "a.b"),
        ("schema", &*schema),
        ("example", &*example),
        ("redact", &*pointers),
        ("description", &*description),
    ];
    let added = world.post(&operator, TYPES, &fields).await;
    assert_eq!(
        added.status,
        303,
        "{}",
        &added.text[..added.text.len().min(3_000)]
    );
    assert_eq!(
        described(world, "a.b").await["example"]
            .as_str()
            .unwrap()
            .len(),
        32_766
    );
}

/// Browsers count other units than bytes: of some letters three times as many fit.
async fn what_browsers_let_be_typed_comes_again(world: &World) {
    let operator = world.sign_in(ADMIN).await;
    for (name, units) in [
        ("description", 2_000),
        ("example", 32_768),
        ("schema", 65_536),
    ] {
        let long = "\u{4e00}".repeat(units);
        let fields = [("name", "a.b"), (name, &*long)];
        let again = world.post(&operator, TYPES, &fields).await;
        assert_eq!(again.status, 422, "{name}");
        let problem = format!("id=\"problem\">{name}: ");
        assert!(again.text.contains(&problem), "{name}");
        assert!(again.text.contains(&long), "{name}");
    }
}
