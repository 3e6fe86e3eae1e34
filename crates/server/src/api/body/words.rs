//! What a parser says of a value, in the words of those who write JSON and not of
//! those who write Rust.

/// What is wrong with a field.
pub(in super::super) fn of(field: &str, said: &str) -> String {
    let number = said.contains("digit found in string")
        || said.contains("number too large to fit")
        || said.contains("number too small to fit");
    if said.starts_with("UUID parsing failed") {
        return id(field);
    }
    if number {
        return match field {
            "status" => "must be a status, 100 to 599".to_owned(),
            _ => "must be a whole number".to_owned(),
        };
    }
    let wrong = ["invalid type: ", "invalid value: "];
    let Some(rest) = wrong.iter().find_map(|kind| said.strip_prefix(kind)) else {
        return said.to_owned();
    };
    match rest.rsplit_once(", expected ") {
        Some((_, expected)) => expected_instead(field, expected, said),
        None => said.to_owned(),
    }
}

fn expected_instead(field: &str, expected: &str, said: &str) -> String {
    match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" | "a nonzero u32" | "a nonzero u64" => {
            let most = match expected {
                "u8" => u64::from(u8::MAX),
                "u16" => u64::from(u16::MAX),
                "u32" | "a nonzero u32" => u64::from(u32::MAX),
                _ => u64::MAX,
            };
            let least = u32::from(expected.starts_with("a nonzero"));
            // Of one that is whole, and is not taken.
            match said.starts_with("invalid value: integer") {
                true => format!("must be a whole number, {least} to {most}"),
                false => "must be a whole number".to_owned(),
            }
        }
        "i32" | "i64" => "must be a whole number".to_owned(),
        "f64" | "f32" => "must be a number".to_owned(),
        "a boolean" => "must be true or false".to_owned(),
        "a string" | "a borrowed string" => "must be a text".to_owned(),
        "a sequence" => "must be a list".to_owned(),
        "a map" | "a JSON object" => "must be a JSON object".to_owned(),
        "a formatted UUID string" => id(field),
        _ => said.to_owned(),
    }
}

fn id(field: &str) -> String {
    let last = field.rsplit('.').next().unwrap_or(field);
    match last.strip_suffix("_id") {
        Some(of) => format!("must be the id of a {}", of.replace('_', " ")),
        None => "must be an id, such as 0192f0c1-7a3e-7c4e-9b1a-2f6d8e5a4b3c".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use domain::ids::DestinationId;
    use serde::Deserialize;

    use super::super::parse;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only parsed")]
    struct Body {
        destination_id: Option<DestinationId>,
        per_second: Option<u32>,
        margin: Option<f64>,
        on: Option<bool>,
        name: Option<String>,
        types: Option<Vec<String>>,
    }

    /// The sentences that people read.
    #[test]
    fn a_wrong_value_is_told_in_words_without_rust_in_them() {
        for (body, field, says) in [
            (
                r#"{"destination_id":"shop"}"#,
                "destination_id",
                "must be the id of a destination",
            ),
            (
                r#"{"destination_id":7}"#,
                "destination_id",
                "must be the id of a destination",
            ),
            (
                r#"{"per_second":1.5}"#,
                "per_second",
                "must be a whole number",
            ),
            (
                r#"{"per_second":"50"}"#,
                "per_second",
                "must be a whole number",
            ),
            (
                r#"{"per_second":-5}"#,
                "per_second",
                "must be a whole number, 0 to 4294967295",
            ),
            (r#"{"margin":"x"}"#, "margin", "must be a number"),
            (r#"{"on":"yes"}"#, "on", "must be true or false"),
            (r#"{"name":5}"#, "name", "must be a text"),
            (r#"{"types":"a"}"#, "types", "must be a list"),
        ] {
            let problem = parse::<Body>(body.as_bytes()).unwrap_err();
            let said = (
                problem.status,
                problem.field.as_deref(),
                problem.detail.as_str(),
            );
            assert_eq!(said, (422, Some(field), says), "{body}");
        }
    }

    #[test]
    fn broken_json_is_called_that_whatever_its_fields_are() {
        for (body, says) in [
            (
                r#"{"bad""#,
                "broken JSON: EOF while parsing an object at column 6",
            ),
            (
                "{\n\"on\": maybe}",
                "broken JSON: expected value at line 2 column 7",
            ),
            ("{} x", "broken JSON: trailing characters at column 4"),
        ] {
            let problem = parse::<Body>(body.as_bytes()).unwrap_err();
            assert_eq!(
                (problem.status, problem.detail.as_str()),
                (400, says),
                "{body}"
            );
        }
        let unknown = parse::<Body>(br#"{"bad":1}"#).unwrap_err();
        assert_eq!(unknown.status, 422);
    }
}
