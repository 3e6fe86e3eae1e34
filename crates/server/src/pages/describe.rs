//! A type of events is described, changed and deleted in the catalogue, by operators.
//!
//! A schema and an example are kept as they were written. A browser sends another line
//! break than the one that it was shown, so what is the same but for that is the same.

use axum::extract::{Path, State};
use axum::response::{Html, Response};
use domain::access::Scope;
use domain::event_types::{EventType, MAX_DESCRIPTION_BYTES, MAX_EXAMPLE_BYTES, MAX_SCHEMA_BYTES};
use domain::redaction::{MAX_POINTER_BYTES, MAX_POINTERS};
use engine::ports::EventTypeChange;

use super::bounds::UNIT_BYTES;
use super::event_types::{PART, found, listed, path};
use super::frame::{Frame, rendered};
use super::refused::Refused;
use super::sure::{self, Question};
use super::visitor::{Fields, Posted, Visitor};
use super::{Asked, Pages, typed};

/// The largest form: as long as browsers let its fields be, each byte of which is written as
/// three at worst.
pub(super) const MAX_BYTES: usize = 4_096
    + 3 * UNIT_BYTES
        * (MAX_SCHEMA_BYTES
            + MAX_EXAMPLE_BYTES
            + MAX_DESCRIPTION_BYTES
            + MAX_POINTERS * (MAX_POINTER_BYTES + 2));

/// What the form of a type says.
pub(super) struct Form {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) example: String,
    pub(super) schema: String,
    /// One on each line.
    pub(super) redact: String,
    /// Everything is.
    pub(super) redact_all: bool,
    pub(super) was: String,
    pub(super) archived: bool,
}

impl Form {
    pub(super) fn of(fields: &Fields) -> Self {
        let text = |name| fields.text(name).replace("\r\n", "\n");
        Self {
            name: text("name"),
            description: text("description"),
            example: text("example"),
            schema: text("schema"),
            redact: fields.as_typed("redact").replace("\r\n", "\n"),
            redact_all: fields.has("redact_all"),
            was: fields.text(typed::WAS).to_owned(),
            archived: fields.has("archived"),
        }
    }

    /// What is hidden from now on. A form that does not say with what it was filled changes
    /// nothing of it.
    fn pointers_over(&self, now: &[String]) -> Option<Vec<String>> {
        // A field of lines cannot say it.
        let cannot_be_said = || now.iter().any(|pointer| pointer.contains(['\r', '\n']));
        match self.was.is_empty() || cannot_be_said() {
            true => None,
            false => Some(self.pointers(now)),
        }
    }

    /// The pointers, the one to everything first. A space behind a name that is typed is a
    /// mistake, which would leave something in sight; one that is there already is meant.
    fn pointers(&self, now: &[String]) -> Vec<String> {
        let lines = self.redact.lines().filter(|line| !line.trim().is_empty());
        let lines = lines.map(|line| match now.iter().any(|pointer| pointer == line) {
            true => line.to_owned(),
            false => line.trim().to_owned(),
        });
        let all = self.redact_all.then(String::new);
        all.into_iter().chain(lines).collect()
    }
}

/// Those of its form that are ticked or not.
const BOXES: [&str; 2] = ["redact_all", "archived"];

/// What its form is filled with.
fn values(one: &EventType) -> Fields {
    let pointers = one.redact.iter().filter(|pointer| !pointer.is_empty());
    let pointers: Vec<_> = pointers.map(String::as_str).collect();
    let texts = [
        ("description", one.description.clone()),
        ("example", one.example.clone().unwrap_or_default()),
        ("schema", one.schema.clone().unwrap_or_default()),
        ("redact", pointers.join("\n")),
    ];
    let ticked = |name, is_so: bool| is_so.then(|| (name, "yes".to_owned()));
    let redact_all = ticked("redact_all", one.redact.iter().any(String::is_empty));
    let ticked = [redact_all, ticked("archived", one.archived)];
    texts
        .into_iter()
        .chain(ticked.into_iter().flatten())
        .collect()
}

/// What was typed, or what is there where that is the same; empty is none.
fn kept(typed: &str, now: Option<&str>) -> Option<String> {
    let is_same = |now: &&str| now.replace("\r\n", "\n").trim() == typed;
    match now.filter(is_same) {
        Some(now) => Some(now.to_owned()),
        None => Some(typed.to_owned()).filter(|text| !text.is_empty()),
    }
}

pub(super) async fn create(
    State(pages): Asked,
    Posted {
        visitor, fields, ..
    }: Posted,
) -> Result<Response, Refused> {
    visitor.needs(Scope::Admin)?;
    let form = Form::of(&fields);
    let new = EventType {
        name: form.name.clone(),
        description: form.description.clone(),
        schema: kept(&form.schema, None),
        example: kept(&form.example, None),
        redact: form.pointers(&[]),
        archived: form.archived,
    };
    let created = pages.0.app.tenancy().create_event_type(new).await;
    let done = created.map(|one| typed::done(&path(&one.name), "described"));
    let done = done.map_err(Refused::from);
    typed::or_again(done, listed(&pages, &visitor, None, form)).await
}

#[derive(askama::Template)]
#[template(path = "describe.html")]
struct Page {
    frame: Frame,
    path: String,
    form: Form,
    problem: Option<String>,
}

typed::again!(Page);

/// What it is now.
pub(super) async fn show(
    State(pages): Asked,
    visitor: Visitor,
    Path(name): Path<String>,
) -> Result<Html<String>, Refused> {
    visitor.needs(Scope::Admin)?;
    let one = found(&pages, &visitor, &name).await?;
    let form = Form::of(&typed::filled(values(&one)));
    rendered(&page(&pages, &visitor, &name, form).await?)
}

async fn page(pages: &Pages, visitor: &Visitor, name: &str, form: Form) -> Result<Page, Refused> {
    Ok(Page {
        frame: Frame::of(pages, visitor, (&format!("Change {name}"), PART)).await?,
        path: path(name),
        form,
        problem: None,
    })
}

/// Changes all that the form has.
pub(super) async fn save(
    State(pages): Asked,
    Path(name): Path<String>,
    Posted {
        visitor,
        mut fields,
        ..
    }: Posted,
) -> Result<Response, Refused> {
    visitor.needs(Scope::Admin)?;
    let done = saved(&pages, &visitor, &name, &mut fields).await;
    typed::or_again(done, page(&pages, &visitor, &name, Form::of(&fields))).await
}

async fn saved(
    pages: &Pages,
    visitor: &Visitor,
    name: &str,
    fields: &mut Fields,
) -> Result<Response, Refused> {
    let now = found(pages, visitor, name).await?;
    let form = Form::of(fields);
    typed::unchanged(fields, &values(&now), &BOXES)?;
    let description = kept(&form.description, Some(&now.description));
    let change = EventTypeChange {
        description: Some(description.unwrap_or_default()),
        schema: Some(kept(&form.schema, now.schema.as_deref())),
        example: Some(kept(&form.example, now.example.as_deref())),
        redact: form.pointers_over(&now.redact),
        archived: Some(form.archived),
    };
    (pages.0.app.tenancy().change_event_type(name, &change)).await?;
    Ok(typed::done(&path(name), "changed"))
}

pub(super) async fn delete(
    State(pages): Asked,
    Path(name): Path<String>,
    Posted {
        visitor, fields, ..
    }: Posted,
) -> Result<Response, Refused> {
    visitor.needs(Scope::Admin)?;
    if !sure::is_sure(&fields) {
        found(&pages, &visitor, &name).await?;
        let does = vec![
            "Its description, schema and example cannot be brought back.".to_owned(),
            "Events of this type are delivered as before.".to_owned(),
        ];
        let asks = format!("Delete what is said of {name}?");
        let question = Question::delete(asks, does, path(&name));
        return sure::ask(&pages, &visitor, PART, question).await;
    }
    pages.0.app.tenancy().delete_event_type(&name).await?;
    Ok(typed::done(PART, "deleted"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_a_browser_has_changed_is_kept_byte_for_byte() {
        let written = "\n{\r\n  \"a\": 1\r\n}\n";
        assert_eq!(
            kept("{\n  \"a\": 1\n}", Some(written)).as_deref(),
            Some(written)
        );
        assert_eq!(kept("{}", Some(written)).as_deref(), Some("{}"));
        assert_eq!(kept("", Some(written)), None);
        assert_eq!(kept("", None), None);
    }

    #[test]
    fn a_space_behind_a_pointer_is_a_mistake_unless_it_was_there() {
        let typed = [
            ("redact", "/a \r\n\r\n/b \r\n".to_owned()),
            ("redact_all", "yes".to_owned()),
        ];
        let form = Form::of(&Fields::from(typed));
        assert_eq!(form.pointers(&["/b ".to_owned()]), ["", "/a", "/b "]);
    }
}
