//! What somebody types into a form, as what it means. What means nothing is refused by
//! the name of its field.

use std::fmt::Display;
use std::str::FromStr;

use domain::external_id::{ExternalId, InvalidExternalId};
use domain::limit::Shape;
use http::StatusCode;

use askama::Template;
use axum::response::{IntoResponse, Response};

use super::frame::rendered;
use super::refused::Refused;
use super::visitor::Fields;

/// How a limit spreads its starts, in words.
pub(super) const SHAPES: [(&str, &str); 3] = [
    (Shape::SlidingWindow.as_str(), "sliding window"),
    (Shape::TokenBucket.as_str(), "token bucket"),
    (Shape::LeakyBucket.as_str(), "leaky bucket, evenly spaced"),
];

/// A number of a form.
pub(super) struct Number {
    pub(super) name: &'static str,
    pub(super) label: &'static str,
    pub(super) value: String,
}

/// The numbers of a form, as they stand in it.
pub(super) fn numbers(form: &Fields, of: &[(&'static str, &'static str)]) -> Vec<Number> {
    let number = |(name, label): &(&'static str, &'static str)| Number {
        name,
        label,
        value: form.text(name).to_owned(),
    };
    of.iter().map(number).collect()
}

/// How a number that is there stands in a form.
pub(super) fn shown(number: Option<impl Display>) -> String {
    number.map_or(String::new(), |number| number.to_string())
}

/// A whole number; none of an empty field.
pub(super) fn number<T: FromStr>(fields: &Fields, name: &str) -> Result<Option<T>, Refused> {
    let parsed = fields.get(name).map(str::parse).transpose();
    parsed.map_err(|_bad| Refused::invalid(format!("{name}: must be a whole number, or empty")))
}

/// One that may have a fraction.
pub(super) fn decimal(fields: &Fields, name: &str) -> Result<Option<f64>, Refused> {
    let parsed = fields.get(name).map(str::parse).transpose();
    parsed.map_err(|_bad| Refused::invalid(format!("{name}: must be a number, or empty")))
}

/// How a limit spreads its starts, if that is said.
pub(super) fn shape(fields: &Fields) -> Result<Option<Shape>, Refused> {
    let shape = fields.get("shape").map(str::parse).transpose();
    shape.map_err(|_unknown| Refused::invalid("shape: no such shape"))
}

/// What somebody calls it in his own books, if he does.
pub(super) fn external_id(fields: &Fields) -> Result<Option<ExternalId>, Refused> {
    let parsed = fields.get("external_id").map(str::parse).transpose();
    parsed.map_err(|problem: InvalidExternalId| Refused::invalid(format!("external_id: {problem}")))
}

/// The same of what has one: it can be another one, and not none.
pub(super) fn another_external_id(
    fields: &Fields,
    now: Option<&ExternalId>,
) -> Result<Option<ExternalId>, Refused> {
    // Of a form that has no such field nothing is said.
    if !fields.has("external_id") {
        return Ok(None);
    }
    let typed = external_id(fields)?;
    if typed.is_none() && now.is_some() {
        let words = "external_id: can be changed, and not taken away: type another one";
        return Err(Refused::invalid(words));
    }
    Ok(typed.filter(|typed| now != Some(typed)))
}

/// The form again, as it was typed, with what is wrong.
pub(super) fn again(page: &impl Template) -> Result<Response, Refused> {
    Ok((StatusCode::UNPROCESSABLE_ENTITY, rendered(page)?).into_response())
}
