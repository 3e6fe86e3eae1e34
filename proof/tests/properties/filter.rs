//! Filters against a slow and obvious reading of them.

use bytes::Bytes;
use domain::event::{Audience, NewEvent, Timing};
use domain::filter::{Content, Filter, Filters};
use domain::ids::{DestinationId, EventId, TenantId};
use proptest::prelude::*;
use serde_json::{Map, Value};
use uuid::Uuid;

/// Few, so that they meet.
fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3_i64..3).prop_map(Value::from),
        (-6_i32..6).prop_map(|half| Value::from(f64::from(half) / 2.0)),
        "[ab]{0,2}".prop_map(Value::from),
    ]
}

fn name() -> impl Strategy<Value = String> {
    "[xy/~]".prop_map(String::from)
}

/// Objects of objects and lists.
pub(crate) fn payload() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(name(), inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

pub(crate) fn pointer() -> impl Strategy<Value = String> {
    let step = prop_oneof![
        4 => name().prop_map(|name| name.replace('~', "~0").replace('/', "~1")),
        1 => "[01]",
    ];
    prop::collection::vec(step, 1..3).prop_map(|steps| format!("/{}", steps.join("/")))
}

fn operator() -> impl Strategy<Value = (String, Value)> {
    let bound = prop_oneof![
        (-3_i64..3).prop_map(Value::from),
        "[ab]{0,2}".prop_map(Value::from)
    ];
    let list = prop::collection::vec(scalar(), 1..4).prop_map(Value::from);
    prop_oneof![
        ("eq|not", scalar()),
        ("in|not", list),
        ("exists", any::<bool>().prop_map(Value::from)),
        ("gte?|lte?", bound),
        ("prefix", "[ab]{0,1}".prop_map(Value::from)),
    ]
}

fn wanted() -> impl Strategy<Value = Value> {
    prop_oneof![
        scalar(),
        prop::collection::vec(scalar(), 1..4).prop_map(Value::from),
        prop::collection::vec(operator(), 1..3)
            .prop_map(|all| Value::Object(all.into_iter().collect())),
    ]
}

/// Filters, up to two deep.
fn filter() -> impl Strategy<Value = Value> {
    let entries = || prop::collection::btree_map(pointer(), wanted(), 0..3);
    let flat = entries().prop_map(|entries| Value::Object(entries.into_iter().collect()));
    flat.prop_recursive(2, 8, 3, move |inner| {
        (entries(), prop::collection::vec(inner, 1..3)).prop_map(|(entries, any)| {
            let mut filter: Map<String, Value> = entries.into_iter().collect();
            filter.insert("any".to_owned(), any.into());
            Value::Object(filter)
        })
    })
}

/// What the documentation says, word by word.
fn obvious(filter: &Value, payload: &Value) -> bool {
    filter.as_object().unwrap().iter().all(|(name, wanted)| {
        if name == "any" {
            return (wanted.as_array().unwrap().iter()).any(|filter| obvious(filter, payload));
        }
        let found = find(name, payload);
        match wanted {
            Value::Object(all) => all
                .iter()
                .all(|(name, operand)| passes(name, operand, found)),
            Value::Array(_) => passes("in", wanted, found),
            _ => passes("eq", wanted, found),
        }
    })
}

fn find<'a>(pointer: &str, payload: &'a Value) -> Option<&'a Value> {
    pointer.split('/').skip(1).try_fold(payload, |value, step| {
        let step = step.replace("~1", "/").replace("~0", "~");
        match value {
            Value::Object(fields) => fields.get(&step),
            Value::Array(items) => items.get(step.parse::<usize>().ok()?),
            _ => None,
        }
    })
}

fn same(some: &Value, other: &Value) -> bool {
    match (some.as_f64(), other.as_f64()) {
        (Some(some), Some(other)) => some == other,
        _ => some == other,
    }
}

fn passes(operator: &str, operand: &Value, found: Option<&Value>) -> bool {
    let among = |list: &Value| {
        let list = list
            .as_array()
            .cloned()
            .unwrap_or_else(|| vec![list.clone()]);
        found.is_some_and(|found| list.iter().any(|one| same(one, found)))
    };
    let compares = |number: fn(f64, f64) -> bool, text: fn(&str, &str) -> bool| {
        let Some(found) = found else { return false };
        let numbers = found.as_f64().zip(operand.as_f64());
        let texts = found.as_str().zip(operand.as_str());
        numbers.is_some_and(|(a, b)| number(a, b)) || texts.is_some_and(|(a, b)| text(a, b))
    };
    match operator {
        "eq" | "in" => among(operand),
        "not" => !among(operand),
        "exists" => found.is_some() == operand.as_bool().unwrap(),
        "gt" => compares(|a, b| a > b, |a, b| a > b),
        "gte" => compares(|a, b| a >= b, |a, b| a >= b),
        "lt" => compares(|a, b| a < b, |a, b| a < b),
        "lte" => compares(|a, b| a <= b, |a, b| a <= b),
        // `prefix`
        _ => (found.and_then(Value::as_str))
            .is_some_and(|text| text.starts_with(operand.as_str().unwrap())),
    }
}

fn event(payload: &Value) -> NewEvent {
    NewEvent {
        id: EventId(Uuid::nil()),
        tenant: TenantId(Uuid::nil()),
        audience: Audience::Subscribers,
        event_type: Some("order.paid".to_owned()),
        content_type: "application/json".to_owned(),
        payload: Bytes::from(payload.to_string()),
        idempotency: None,
        trace: None,
        timing: Timing::default(),
    }
}

proptest! {
    #[test]
    fn a_filter_takes_what_its_words_say(filter in filter(), payload in payload()) {
        let content = Content::of("application/json", payload.to_string().as_bytes());
        let takes = Filter::parse(filter.clone()).unwrap().takes(&content);
        prop_assert_eq!(takes, obvious(&filter, &payload));
    }

    /// Whatever is given, it is answered, and what is a filter is one after it was kept.
    #[test]
    fn a_filter_that_is_kept_is_the_same(filter in prop_oneof![filter(), payload()]) {
        let kept = Filter::stored(&filter.to_string());
        match Filter::parse(filter) {
            Ok(filter) => prop_assert_eq!(kept, filter),
            Err(problem) => prop_assert_eq!(kept.problem(), Some(&problem)),
        }
    }

    /// Those of many together are those of each alone.
    #[test]
    fn takers_are_those_whose_filters_take_it(
        filters in prop::collection::vec(prop::option::of(filter()), 0..6),
        payload in payload(),
    ) {
        let event = event(&payload);
        let mut known = Filters::default();
        let id = |at: usize| DestinationId(Uuid::from_u128(at as u128));
        let subscribers: Vec<_> = (filters.iter().enumerate())
            .map(|(at, filter)| known.subscriber(id(at), filter.as_ref().map(Value::to_string)))
            .collect();
        let expected: Vec<_> = (filters.iter().enumerate())
            .filter(|(_, filter)| filter.as_ref().is_none_or(|filter| obvious(filter, &payload)))
            .map(|(at, _)| id(at))
            .collect();
        prop_assert_eq!(known.takers(&event, &subscribers), expected);
    }
}
