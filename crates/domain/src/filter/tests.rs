use serde_json::json;

use super::*;

fn takes(filter: Value, payload: Value) -> bool {
    let content = Content::of("application/json", payload.to_string().as_bytes());
    Filter::parse(filter).unwrap().takes(&content)
}

#[test]
fn each_operator_is_what_its_name_says() {
    let payload = || {
        json!({"n": 5, "text": "eu-west", "none": null, "flag": true, "list": ["a", {"b": 1}],
            "a/b": 1, "m~n": 2, "": 3})
    };
    let holding = [
        json!({}),
        json!({"/n": 5}),
        json!({"/n": 5.0}),
        json!({"/n": [1, 5]}),
        json!({"/n": {"eq": 5}}),
        json!({"/n": {"in": [4, 5]}}),
        json!({"/n": {"not": 4}}),
        json!({"/n": {"not": [3, 4]}}),
        json!({"/n": {"gt": 4, "lt": 6, "gte": 5, "lte": 5}}),
        json!({"/n": {"gt": 4.99}}),
        json!({"/text": {"prefix": "eu-"}}),
        json!({"/text": {"gt": "eu", "lt": "eu-x"}}),
        json!({"/none": null}),
        json!({"/none": {"exists": true}}),
        json!({"/flag": true}),
        json!({"/list/0": "a"}),
        json!({"/list/1/b": 1}),
        json!({"/a~1b": 1, "/m~0n": 2, "/": 3}),
        json!({"/gone": {"exists": false}}),
        json!({"/gone": {"not": 1}}),
        json!({"any": [{"/n": 4}, {"/n": 5}]}),
        json!({"any": [{"any": [{"any": [{"/n": 5}]}]}]}),
        json!({"any": [{"/n": 5}], "/flag": true}),
    ];
    for filter in holding {
        assert!(takes(filter.clone(), payload()), "{filter}");
    }
    let failing = [
        json!({"/n": "5"}),
        json!({"/n": {"not": [4, 5]}}),
        json!({"/n": {"gt": 5}}),
        json!({"/n": {"lt": 5}}),
        json!({"/n": {"gt": "4"}}),
        json!({"/n": {"gt": 4, "lt": 5}}),
        json!({"/text": {"prefix": "us"}}),
        json!({"/n": {"prefix": "5"}}),
        json!({"/text": {"lt": 9}}),
        json!({"/none": {"exists": false}}),
        json!({"/gone": null}),
        json!({"/gone": {"lt": 5}}),
        json!({"/flag": 1}),
        json!({"/list": "a"}),
        json!({"/list/2": "a"}),
        json!({"/list/00": "a"}),
        json!({"/N": 5}),
        json!({"any": [{"/n": 4}, {"/n": 6}]}),
        json!({"any": [{"/n": 5}], "/flag": false}),
        json!({"any": [{"/n": 5, "/flag": false}]}),
    ];
    for filter in failing {
        assert!(!takes(filter.clone(), payload()), "{filter}");
    }
}

#[test]
fn nonsense_is_refused_by_its_place() {
    let many = Value::from((0..=MAX_VALUES).collect::<Vec<_>>());
    let refused = [
        (json!(null), ""),
        (json!([]), ""),
        (json!({"/a": "x".repeat(MAX_FILTER_BYTES)}), ""),
        (json!({"a": 1}), r#"["a"]"#),
        (json!({"": 1}), r#"[""]"#),
        (json!({"/a~2": 1}), r#"["/a~2"]"#),
        (json!({"/a~": 1}), r#"["/a~"]"#),
        (json!({"/a\u{0}": 1}), r#"["/a\u0000"]"#),
        (json!({"/a": "\u{0}"}), r#"["/a"]"#),
        (json!({"/a": {}}), r#"["/a"]"#),
        (json!({"/a": []}), r#"["/a"]"#),
        (json!({"/a": [[]]}), r#"["/a"][0]"#),
        (json!({"/a": many}), r#"["/a"][100]"#),
        (json!({"/a": {"eq": []}}), r#"["/a"].eq"#),
        (json!({"/a": {"in": 1}}), r#"["/a"].in"#),
        (json!({"/a": {"not": {}}}), r#"["/a"].not"#),
        (json!({"/a": {"exists": 1}}), r#"["/a"].exists"#),
        (json!({"/a": {"gte": null}}), r#"["/a"].gte"#),
        (json!({"/a": {"prefix": 1}}), r#"["/a"].prefix"#),
        (json!({"/a": {"like": "x"}}), r#"["/a"].like"#),
        (json!({"any": []}), ".any"),
        (json!({"any": {}}), ".any"),
        (json!({"any": [{}, {"/b": {}}]}), r#".any[1]["/b"]"#),
        (
            json!({"any": [{"any": [{"any": [{"any": [{}]}]}]}]}),
            ".any[0].any[0].any[0].any",
        ),
        (json!({"any": vec![json!({}); MAX_VALUES + 1]}), ".any[100]"),
    ];
    for (json, at) in refused {
        let problem = Filter::parse(json.clone()).unwrap_err();
        assert_eq!(problem.at, at, "{json}: {problem}");
        let kept = Filter::kept(json);
        assert_eq!(kept.problem(), Some(&problem));
        assert!(!kept.takes(&Content::of("application/json", b"{}")));
    }
    assert!(Filter::parse(json!({"/a": vec![0; MAX_VALUES]})).is_ok());
    assert_eq!(Filter::stored("{").json(), &json!("{"));
    assert!(Filter::stored("{").problem().is_some());
}

/// Only a filter that asks for nothing takes what is not JSON.
#[test]
fn what_is_no_json_is_taken_by_no_filter() {
    let asks = Filter::parse(json!({"/a": {"exists": false}})).unwrap();
    let nothing = Filter::parse(json!({})).unwrap();
    for (content_type, payload, is_json) in [
        ("application/json", "{}", true),
        ("Application/JSON; charset=utf-8", "{}", true),
        ("application/cloudevents+json", "1", true),
        ("application/json", "{", false),
        ("application/json", "", false),
        ("application/json", "{} {}", false),
        ("application/jsonl", "{}", false),
        ("text/plain", "{}", false),
    ] {
        let content = Content::of(content_type, payload.as_bytes());
        assert_eq!(asks.takes(&content), is_json, "{content_type} {payload}");
        assert!(nothing.takes(&content));
    }
    let deep = format!("{}{}", "[".repeat(1_000), "]".repeat(1_000));
    assert!(!asks.takes(&Content::of("application/json", deep.as_bytes())));
}

#[test]
fn a_filter_is_its_json_and_equal_by_what_it_means() {
    let filter: Filter = serde_json::from_value(json!({"/n": 100_000})).unwrap();
    assert_eq!(serde_json::to_string(&filter).unwrap(), r#"{"/n":100000}"#);
    assert_eq!(filter, Filter::stored(r#"{"/n": 1e5}"#));
    assert_eq!(filter, Filter::stored(r#"{"/n": [100000.0]}"#));
    assert_ne!(filter, Filter::stored(r#"{"/n": 100001}"#));
    assert_ne!(filter, Filter::stored("{"));
    let refused = serde_json::from_value::<Filter>(json!({"n": 1})).unwrap_err();
    assert!(
        refused.to_string().starts_with(r#"["n"]: must be"#),
        "{refused}"
    );
}
