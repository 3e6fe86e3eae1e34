//! An example of each body, in the description of its operation: for people, and for tools
//! that try what is described.

use std::collections::BTreeMap;

use serde_json::Value;
use utoipa::openapi::{OpenApi, RefOr};

use super::answers::operations;

/// By operation.
const EXAMPLES: &str = include_str!("examples.json");

/// Lines of JSON are no one JSON value.
const JSON: &str = "application/json";

fn examples() -> BTreeMap<String, Value> {
    serde_json::from_str(EXAMPLES).expect("a test reads it")
}

/// Adds them.
pub(super) fn describe(document: &mut OpenApi) {
    let mut examples = examples();
    for operation in operations(document) {
        let name = operation.operation_id.as_deref().unwrap_or_default();
        let Some(RefOr::T(body)) = operation.request_body.as_mut() else {
            continue;
        };
        if let Some(RefOr::T(content)) = body.content.get_mut(JSON) {
            content.example = examples.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_body_has_an_example_and_each_example_a_body() {
        let mut document = crate::api::openapi();
        let mut left = examples();
        for operation in operations(&mut document) {
            let name = operation.operation_id.clone().unwrap_or_default();
            let Some(RefOr::T(body)) = operation.request_body.as_ref() else {
                continue;
            };
            if let Some(RefOr::T(content)) = body.content.get(JSON) {
                assert!(content.example.is_some(), "{name}");
                left.remove(&name);
            }
        }
        assert!(left.is_empty(), "{left:?}");
    }
}
