//! Whether an answer is what a schema says: the part of JSON Schema that our description
//! has, and Svix's. A word that this does not know is a failure.

use serde_json::Value;

/// Words that say nothing of what is allowed.
const SAYS_NOTHING: [&str; 5] = ["description", "example", "examples", "default", "format"];

/// Schemas, and where they refer to.
pub(crate) struct Described {
    document: Value,
}

impl Described {
    /// By a document with `components`.
    pub(crate) const fn by(document: Value) -> Self {
        Self { document }
    }

    /// What of it is otherwise than the schema of this name says, each with its place.
    pub(crate) fn problems(&self, name: &str, value: &Value) -> Vec<String> {
        self.of(&format!("/components/schemas/{name}"), value)
    }

    /// By the schema at a place of the document.
    pub(crate) fn of(&self, pointer: &str, value: &Value) -> Vec<String> {
        let schema = self.document.pointer(pointer);
        let schema = schema.unwrap_or_else(|| panic!("there is no {pointer}"));
        let mut problems = Vec::new();
        self.look("it", (schema, value), &mut problems);
        problems
    }

    fn look(&self, at: &str, (schema, value): (&Value, &Value), problems: &mut Vec<String>) {
        for (word, says) in schema.as_object().unwrap() {
            match word.as_str() {
                "$ref" => {
                    let pointer = says.as_str().unwrap().trim_start_matches('#');
                    let schema = self.document.pointer(pointer).unwrap();
                    self.look(at, (schema, value), problems);
                }
                "allOf" => {
                    for schema in says.as_array().unwrap() {
                        self.look(at, (schema, value), problems);
                    }
                }
                "oneOf" => self.is_one_of(at, (says, value), problems),
                "properties" => self.has_properties(at, (says, value), problems),
                "additionalProperties" => {
                    let known = schema["properties"].as_object();
                    for (name, value) in value.as_object().into_iter().flatten() {
                        if known.is_some_and(|known| known.contains_key(name)) {
                            continue;
                        }
                        let at = format!("{at}.{name}");
                        match says {
                            Value::Bool(true) => {}
                            Value::Bool(false) => problems.push(format!("{at} is not described")),
                            schema => self.look(&at, (schema, value), problems),
                        }
                    }
                }
                "items" => {
                    for (number, value) in value.as_array().into_iter().flatten().enumerate() {
                        self.look(&format!("{at}[{number}]"), (says, value), problems);
                    }
                }
                word => problems.extend(leaf(word, says, value).map(|what| format!("{at} {what}"))),
            }
        }
    }

    fn is_one_of(&self, at: &str, (all, value): (&Value, &Value), problems: &mut Vec<String>) {
        let fits = all.as_array().unwrap().iter().filter(|schema| {
            let mut problems = Vec::new();
            self.look(at, (schema, value), &mut problems);
            problems.is_empty()
        });
        match fits.count() {
            1 => {}
            count => problems.push(format!("{at} is {count} of those that it is one of")),
        }
    }

    fn has_properties(&self, at: &str, (all, value): (&Value, &Value), problems: &mut Vec<String>) {
        for (name, schema) in all.as_object().unwrap() {
            if let Some(value) = value.get(name) {
                self.look(&format!("{at}.{name}"), (schema, value), problems);
            }
        }
    }
}

/// What a word that is about this value alone says against it.
fn leaf(word: &str, says: &Value, value: &Value) -> Option<String> {
    let is = match word {
        "type" => match says {
            Value::Array(types) => types.iter().any(|one| is_of(one, value)),
            one => is_of(one, value),
        },
        "required" => {
            let names = says.as_array().unwrap().iter();
            let mut names = names.map(|name| name.as_str().unwrap());
            names.all(|name| {
                value
                    .as_object()
                    .is_none_or(|value| value.contains_key(name))
            })
        }
        "enum" => says.as_array().unwrap().contains(value),
        "minimum" => value
            .as_f64()
            .is_none_or(|value| Some(value) >= says.as_f64()),
        "maximum" => value
            .as_f64()
            .is_none_or(|value| Some(value) <= says.as_f64()),
        word => SAYS_NOTHING.contains(&word),
    };
    (!is).then(|| format!("is not of {word} {says}: {value}"))
}

fn is_of(named: &Value, value: &Value) -> bool {
    match named.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other} is no type"),
    }
}

#[test]
fn what_is_otherwise_than_described_is_found() {
    let described = Described::by(serde_json::json!({"components": {"schemas": {
        "Thing": {
            "type": "object",
            "required": ["id"],
            "properties": {
                "id": {"type": "integer", "minimum": 1, "maximum": 9},
                "of": {"oneOf": [{"$ref": "#/components/schemas/Thing"}, {"type": "null"}]},
                "names": {"type": ["array", "null"], "items": {"type": "string"}},
                "word": {"enum": ["a", "b"]},
            },
            "additionalProperties": false,
        },
        "Words": {"type": "object", "additionalProperties": {"type": "string"}},
        "Both": {"allOf": [{"required": ["id"]}, {"required": ["name"]}]},
        "Strange": {"not": {}},
    }}}));
    for (name, good, bad) in [
        (
            "Thing",
            r#"{"id": 1, "of": null, "names": ["a"], "word": "b"}"#,
            "[]",
        ),
        (
            "Thing",
            r#"{"id": 9, "of": {"id": 1}, "names": null}"#,
            r#"{"of": null}"#,
        ),
        ("Thing", r#"{"id": 1}"#, r#"{"id": 0}"#),
        ("Thing", r#"{"id": 1}"#, r#"{"id": 10}"#),
        ("Thing", r#"{"id": 1}"#, r#"{"id": 1.5}"#),
        ("Thing", r#"{"id": 1}"#, r#"{"id": 1, "of": {}}"#),
        ("Thing", r#"{"id": 1}"#, r#"{"id": 1, "names": [1]}"#),
        ("Thing", r#"{"id": 1}"#, r#"{"id": 1, "word": "c"}"#),
        ("Thing", r#"{"id": 1}"#, r#"{"id": 1, "more": 1}"#),
        ("Words", r#"{"a": "b"}"#, r#"{"a": 1}"#),
        ("Both", r#"{"id": 1, "name": 1}"#, r#"{"id": 1}"#),
    ] {
        let problems = |text: &str| {
            let value = serde_json::from_str(text).unwrap();
            described.problems(name, &value)
        };
        assert_eq!(problems(good), [""; 0], "{name}: {good}");
        assert_ne!(problems(bad), [""; 0], "{name}: {bad}");
    }
    let strange = described.problems("Strange", &Value::Null);
    assert_eq!(strange, ["it is not of not {}: null"]);
}
