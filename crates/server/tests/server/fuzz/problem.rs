//! What every refusal looks like.

use fuzzing::{Context, Result, ensure};
use serde_json::Value;
use server::api::problem::Problem;

use crate::world::Answer;

/// The longest problem, in bytes of its texts: it must not repeat a body.
const MAX_PROBLEM_BYTES: usize = 2_048;

/// It is our refusal, as `application/problem+json` of a 4xx; which kind.
pub(super) fn refusal(answer: &Answer) -> Result<String> {
    let status = answer.status.as_u16();
    ensure!((400..500).contains(&status), "{status}: {}", answer.json);
    ensure!(answer.content_type == "application/problem+json");
    problem(&answer.json, status)
}

/// A problem, alone or within a batch's answer: of which kind and field.
pub(super) fn problem(json: &Value, status: u16) -> Result<String> {
    let problem: Problem = serde_json::from_value(json.clone()).context("not a problem")?;
    ensure!(problem.status == status);
    ensure!(problem.kind.starts_with("urn:paceline:problem:"));
    ensure!(!problem.title.is_empty() && !problem.detail.is_empty());
    let field = problem.field.as_deref();
    let bytes = problem.detail.len() + field.map_or(0, str::len);
    ensure!(bytes <= MAX_PROBLEM_BYTES, "a problem of {bytes} bytes");
    if matches!(status, 413 | 422) {
        ensure!(
            field.is_some_and(|field| !field.is_empty()),
            "no field: {json}"
        );
    }
    // Names that the sender made up are all one kind.
    let made_up = problem.detail.contains("unknown field") || problem.detail.len() > 200;
    let field = match field {
        Some(field) if !made_up => field.replace(|letter: char| letter.is_ascii_digit(), ""),
        Some(_) => "unknown".to_owned(),
        None => String::new(),
    };
    Ok(format!("{status} {field}"))
}
