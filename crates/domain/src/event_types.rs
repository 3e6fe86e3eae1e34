//! The catalogue of event types: what the platform says of the types of its events, and
//! which of their fields people are not shown ([`crate::redaction`]).
//!
//! It is there to be read. Nothing is compared with it when an event is accepted, and a
//! type that it does not have is as good as one that it has.

use serde_json::Value;

use crate::event::event_type_problem;

/// The most types in it.
pub const MAX_TYPES: u32 = 1_000;

/// The longest description, in bytes.
pub const MAX_DESCRIPTION_BYTES: usize = 2_000;

/// The longest schema, in bytes.
pub const MAX_SCHEMA_BYTES: usize = 65_536;

/// The longest example, in bytes.
pub const MAX_EXAMPLE_BYTES: usize = 32_768;

/// A type of events, as the catalogue has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventType {
    /// What events call it.
    pub name: String,
    /// For people.
    pub description: String,
    /// A JSON schema of its payloads, as it was written.
    pub schema: Option<String>,
    /// A payload of it, as it was written.
    pub example: Option<String>,
    /// JSON pointers to what is not shown of its payloads. As a store has them: whoever
    /// writes SQL may have written none.
    pub redact: Vec<String>,
    /// No events of it come any more. It is offered to nobody, and its rules still hold.
    pub archived: bool,
}

/// A type of events without what may be long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedEventType {
    /// What events call it.
    pub name: String,
    /// For people.
    pub description: String,
    /// JSON pointers to what is not shown of its payloads.
    pub redact: Vec<String>,
    /// No events of it come any more.
    pub archived: bool,
    /// Whether it has a schema.
    pub has_schema: bool,
    /// Whether it has an example.
    pub has_example: bool,
}

/// What is wrong with the name of a type in the catalogue: what is wrong with an event's,
/// and it stands in paths.
#[must_use]
pub fn name_problem(name: &str) -> Option<&'static str> {
    match name {
        "." | ".." => Some("is no name for a path"),
        _ => event_type_problem(name),
    }
}

/// What is wrong with a schema. It is not read any further than this.
#[must_use]
pub fn schema_problem(text: &str) -> Option<&'static str> {
    const _: () = assert!(MAX_SCHEMA_BYTES == 65_536, "the text says so");
    if text.len() > MAX_SCHEMA_BYTES {
        return Some("must be at most 65,536 bytes");
    }
    match serde_json::from_str(text) {
        Ok(Value::Object(_)) => None,
        _ => Some("must be a JSON schema: a JSON object, at most 128 deep"),
    }
}

/// What is wrong with an example of a payload.
#[must_use]
pub fn example_problem(text: &str) -> Option<&'static str> {
    const _: () = assert!(MAX_EXAMPLE_BYTES == 32_768, "the text says so");
    if text.len() > MAX_EXAMPLE_BYTES {
        return Some("must be at most 32,768 bytes");
    }
    match serde_json::from_str::<Value>(text) {
        Ok(_) => None,
        Err(_where) => Some("must be JSON, at most 128 deep"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_is_an_object_and_an_example_any_json() {
        let deep = format!(
            "{}{}",
            r#"{"a":"#.repeat(200),
            "1".to_owned() + &"}".repeat(200)
        );
        let long = |bytes: usize| format!(r#"{{"a":"{}"}}"#, "x".repeat(bytes - 8));
        for (text, is_schema, is_example) in [
            ("{}", true, true),
            (r#"{"type": "object"}"#, true, true),
            ("true", false, true),
            ("[1]", false, true),
            ("1e400", false, false),
            (r#"{"a":"\ud800"}"#, false, false),
            ("{", false, false),
            ("", false, false),
            (&deep, false, false),
            (&long(MAX_SCHEMA_BYTES), true, false),
            (&long(MAX_SCHEMA_BYTES + 1), false, false),
            (&long(MAX_EXAMPLE_BYTES), true, true),
            (&long(MAX_EXAMPLE_BYTES + 1), true, false),
        ] {
            let start = &text[..text.len().min(20)];
            assert_eq!(schema_problem(text).is_none(), is_schema, "{start}");
            assert_eq!(example_problem(text).is_none(), is_example, "{start}");
        }
    }

    #[test]
    fn a_name_is_one_that_events_have_and_paths_too() {
        for (name, is_good) in [
            ("order.paid", true),
            ("order/paid:1", true),
            (".", false),
            ("..", false),
            ("...", true),
            ("order.*", false),
            ("", false),
        ] {
            assert_eq!(name_problem(name).is_none(), is_good, "{name}");
        }
    }
}
