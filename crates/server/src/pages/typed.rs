//! What somebody types into a form, as what it means. What means nothing is refused by
//! the name of its field.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::str::FromStr;

use domain::external_id::{ExternalId, InvalidExternalId};
use domain::limit::{Count, Shape};
use http::StatusCode;

use askama::Template;
use axum::response::{IntoResponse, Redirect, Response};

use super::frame::rendered;
use super::refused::Refused;
use super::visitor::Fields;
use crate::access::key::{digest, hex};

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

/// Until when a request counts, in words; the first is what holds where nothing is said.
pub(super) const COUNTS: [(&str, &str); 2] = [
    ("", "its start"),
    (Count::Response.as_str(), "the end of its answer"),
];

/// Until when a request counts, if that is said.
pub(super) fn count(fields: &Fields, name: &str) -> Result<Option<Count>, Refused> {
    let count = fields.get(name).map(str::parse).transpose();
    count.map_err(|_unknown| Refused::invalid(format!("{name}: must be response, or empty")))
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

/// The field by which a form says with what it was filled.
pub(super) const WAS: &str = "was";

/// What a form is filled with, which it says of itself: so it is known when it comes
/// whether another has changed that meanwhile.
pub(super) fn filled(mut values: Fields) -> Fields {
    let version = version(&values);
    values.set(WAS, version);
    values
}

/// What a form is not filled with although it can set it, in short: it counts for whether
/// another has changed that.
pub(super) const UNSEEN: &str = "unseen";

/// Of a destination, which alone has it.
const UNSEEN_IS_ANOTHER: &str = "its headers, certificate or client are others (type yours again)";

/// What is there, in short; and behind a dash what is not seen of it.
pub(super) fn version(values: &Fields) -> String {
    let seen = values.names().filter(|name| *name != UNSEEN);
    let sorted: BTreeMap<_, _> = seen.map(|name| (name, values.as_typed(name))).collect();
    let seen = short(&serde_json::json!(sorted).to_string());
    match values.get(UNSEEN) {
        Some(unseen) => format!("{seen}-{unseen}"),
        None => seen,
    }
}

/// A text by which it is known again, and that says nothing of it.
pub(super) fn short(text: &str) -> String {
    hex(&digest(text))
}

/// Refuses a form of something that another has changed since it was filled, which would set
/// it back, and says what it is by now. Sent once more, it is taken. One that does not say
/// with what it was filled is taken as well: no page has such a form.
///
/// `typed` is the form, `now` what it would be filled with now; both by the same names, and
/// both without those of `boxes` that are not ticked.
pub(super) fn unchanged(typed: &mut Fields, now: &Fields, boxes: &[&str]) -> Result<(), Refused> {
    let (was, version) = (typed.text(WAS).to_owned(), version(now));
    let is_old = !was.is_empty() && was != version;
    let unseen_was = was.split_once('-').map(|(_, unseen)| unseen);
    let is_unseen_another = unseen_was != now.get(UNSEEN);
    typed.set(WAS, version);
    if !is_old {
        return Ok(());
    }
    let mut others = others(typed, now, boxes);
    if is_unseen_another {
        others.push(UNSEEN_IS_ANOTHER.to_owned());
    }
    if others.is_empty() {
        return Ok(());
    }
    let words = format!(
        "Somebody has changed it meanwhile. By now: {}. What you typed stands below: save it \
         again to set that all the same.",
        others.join(", ")
    );
    Err(Refused::new(StatusCode::CONFLICT, words))
}

/// What is there by now and stands otherwise in the form, in words.
fn others(typed: &Fields, now: &Fields, boxes: &[&str]) -> Vec<String> {
    let plain = |text: &str| text.replace("\r\n", "\n").trim().to_owned();
    let is_text = |name: &&str| *name != UNSEEN && !boxes.contains(name);
    let names: BTreeSet<_> = now.names().filter(is_text).collect();
    let texts = names.into_iter().filter_map(|name| {
        let is = plain(now.as_typed(name));
        (is != plain(typed.as_typed(name))).then(|| match is.as_str() {
            "" => format!("{name} is empty"),
            _ if is.len() > SHOWN_BYTES => format!("{name} is another one"),
            _ => format!("{name} is {}", is.replace('\n', " ")),
        })
    });
    let ticks = boxes.iter().filter_map(|name| {
        let is = if now.has(name) { "on" } else { "off" };
        (now.has(name) != typed.has(name)).then(|| format!("{name} is {is}"))
    });
    texts.chain(ticks).collect()
}

/// The longest value that is said to be there by now.
const SHOWN_BYTES: usize = 200;

/// A page with a form, which can say what is wrong with it.
pub(super) trait Again: Template {
    /// Says this beside the form.
    fn say(&mut self, problem: String);
}

/// Of a page that has a `problem`.
macro_rules! again {
    ($page:ty) => {
        impl $crate::pages::typed::Again for $page {
            fn say(&mut self, problem: String) {
                self.problem = Some(problem);
            }
        }
    };
}
pub(super) use again;

/// What comes of a form: what was done; or its page again, as it was typed, with what is
/// wrong.
pub(super) async fn or_again<P: Again>(
    done: Result<Response, Refused>,
    page: impl Future<Output = Result<P, Refused>>,
) -> Result<Response, Refused> {
    let refused = match done {
        Ok(done) => return Ok(done),
        Err(refused) => refused,
    };
    let status = match &refused {
        Refused::Problem(StatusCode::CONFLICT, _) => StatusCode::CONFLICT,
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    };
    let problem = refused.said()?;
    let mut page = page.await?;
    page.say(problem);
    Ok((status, rendered(&page)?).into_response())
}

/// On to a page that says what was done.
pub(super) fn done(path: &str, what: &str) -> Response {
    Redirect::to(&format!("{path}?done={what}")).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(limit: &str) -> Fields {
        Fields::from([
            ("per_second", limit.to_owned()),
            ("note", "a\nb".to_owned()),
        ])
    }

    fn typed(limit: &str, was: &Fields) -> Fields {
        let was = filled(now(was.text("per_second"))).text(WAS).to_owned();
        Fields::from([
            ("per_second", limit.to_owned()),
            ("note", "a\r\nb".to_owned()),
            (WAS, was),
        ])
    }

    #[test]
    fn a_form_that_is_older_than_a_change_is_taken_once_it_was_told() {
        let mut form = typed("7", &now("5"));
        assert!(unchanged(&mut form, &now("5"), &[]).is_ok());
        let refused = unchanged(&mut form, &now("6"), &[]).unwrap_err();
        let said = refused.said().unwrap();
        assert!(said.contains("By now: per_second is 6."), "{said}");
        assert!(unchanged(&mut form, &now("6"), &[]).is_ok(), "it was told");
    }

    #[test]
    fn what_another_has_set_just_so_is_no_conflict() {
        let mut form = typed("6", &now("5"));
        assert!(unchanged(&mut form, &now("6"), &[]).is_ok());
        let mut silent = Fields::from([("per_second", "7".to_owned())]);
        assert!(unchanged(&mut silent, &now("6"), &[]).is_ok());
    }

    #[test]
    fn a_box_that_another_has_ticked_or_not_is_said() {
        let ticked = || Fields::from([("archived", "yes".to_owned())]);
        for (was, is, said) in [
            (ticked(), Fields::default(), "By now: archived is off."),
            (Fields::default(), ticked(), "By now: archived is on."),
        ] {
            let mut form = filled(was);
            let refused = unchanged(&mut form, &is, &["archived"]).unwrap_err();
            let words = refused.said().unwrap();
            assert!(words.contains(said), "{words}");
            assert!(unchanged(&mut form, &is, &["archived"]).is_ok(), "told");
        }
    }

    #[test]
    fn what_no_form_shows_is_said_where_another_has_changed_it() {
        let with = |unseen: &str, limit: &str| {
            let mut values = now(limit);
            values.set(UNSEEN, short(unseen));
            values
        };
        let form = || {
            let mut form = typed("5", &now("5"));
            form.set(WAS, version(&with("x-key", "5")));
            form
        };
        let refused = unchanged(&mut form(), &with("x-other", "5"), &[]).unwrap_err();
        let words = refused.said().unwrap();
        assert!(words.contains(UNSEEN_IS_ANOTHER), "{words}");
        let refused = unchanged(&mut form(), &with("x-key", "6"), &[]).unwrap_err();
        let words = refused.said().unwrap();
        assert!(!words.contains(UNSEEN_IS_ANOTHER), "{words}");
        assert!(unchanged(&mut form(), &with("x-key", "5"), &[]).is_ok());
    }
}
