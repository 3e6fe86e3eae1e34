//! Limit groups: limits that several destinations have together. Whoever reads sees them,
//! and with `manage` they are added, changed and deleted. Who is in one is said by each
//! destination's form.

use axum::extract::{Path, Query, State};
use axum::response::{Html, Response};
use domain::access::Scope;
use domain::ids::DestinationId;
use domain::limit_group::{GroupLimits, GroupName, InvalidGroupName};
use engine::ports::LimitGroup;
use serde::Deserialize;

use super::frame::{Frame, rendered};
use super::names::Names;
use super::refused::Refused;
use super::sure::{self, Question};
use super::typed::{self, Number, shown};
use super::visitor::{Fields, Posted, Visitor};
use super::{Asked, Pages, words};
use crate::service::{Service, ServiceError};

const PART: &str = "/dashboard/limit-groups";

/// Groups on a page.
const LINES: u32 = 100;

const LIMITS: [(&str, &str); 4] = [
    ("per_second", "per second"),
    ("per_minute", "per minute"),
    ("per_hour", "per hour"),
    ("per_day", "per day"),
];

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    after: String,
    done: String,
}

impl Wanted {
    fn notice(&self) -> &'static str {
        match self.done.as_str() {
            "added" => "Added. Destinations can be in it now.",
            "changed" => "The new limits are in force.",
            "deleted" => "Deleted.",
            _ => "",
        }
    }
}

/// A group in the list.
struct Line {
    name: GroupName,
    path: String,
    limits: String,
    members: usize,
}

impl From<LimitGroup> for Line {
    fn from(group: LimitGroup) -> Self {
        Self {
            path: path(&group.name),
            limits: words::limits(&group.limits.as_settings()),
            members: group.members.len(),
            name: group.name,
        }
    }
}

#[derive(askama::Template)]
#[template(path = "limit_groups.html")]
struct Page {
    frame: Frame,
    lines: Vec<Line>,
    next: Option<String>,
    /// What is typed of one that is to be added.
    name: String,
    limits: Vec<Number>,
    problem: Option<String>,
    notice: &'static str,
}

typed::again!(Page);
typed::again!(OnePage);

#[derive(askama::Template)]
#[template(path = "limit_group.html")]
struct OnePage {
    frame: Frame,
    path: String,
    in_words: String,
    created: String,
    /// By name.
    members: Vec<(String, DestinationId)>,
    limits: Vec<Number>,
    was: String,
    problem: Option<String>,
    notice: &'static str,
}

fn path(name: &GroupName) -> String {
    format!("{PART}/{}", words::in_path(name.as_str()))
}

/// The one that a path names; what is no name is none.
fn named(name: &str) -> Result<GroupName, Refused> {
    name.parse()
        .map_err(|_no_name: InvalidGroupName| Refused::not_found("limit group"))
}

pub(super) async fn list(
    State(pages): Asked,
    visitor: Visitor,
    Query(query): Query<Wanted>,
) -> Result<Html<String>, Refused> {
    let after = query.after.parse().ok();
    rendered(&Page {
        notice: query.notice(),
        ..listed(&pages, &visitor, after, &Fields::default()).await?
    })
}

async fn listed(
    pages: &Pages,
    visitor: &Visitor,
    after: Option<GroupName>,
    typed: &Fields,
) -> Result<Page, Refused> {
    let service = pages.service(visitor.tenant());
    let found = service.limit_groups(after, LINES).await?;
    let full = found.len() >= LINES as usize;
    let next = found.last().filter(|_| full);
    Ok(Page {
        frame: Frame::of(pages, visitor, ("Limit groups", PART)).await?,
        next: next.map(|last| last.name.to_string()),
        lines: found.into_iter().map(Line::from).collect(),
        name: typed.text("name").to_owned(),
        limits: typed::numbers(typed, &LIMITS),
        problem: None,
        notice: "",
    })
}

/// Adds one. To name one that is there would set its limits, and is refused here.
pub(super) async fn create(
    State(pages): Asked,
    Posted {
        visitor, fields, ..
    }: Posted,
) -> Result<Response, Refused> {
    visitor.needs(Scope::Manage)?;
    let created = created(&pages.service(visitor.tenant()), &fields).await;
    let done = created.map(|group| typed::done(&path(&group.name), "added"));
    typed::or_again(done, listed(&pages, &visitor, None, &fields)).await
}

async fn created(service: &Service, fields: &Fields) -> Result<LimitGroup, Refused> {
    let name: GroupName = (fields.text("name").parse())
        .map_err(|problem: InvalidGroupName| Refused::invalid(format!("name: {problem}")))?;
    match service.limit_group(&name).await {
        Err(ServiceError::NotFound(_)) => {}
        found => {
            found?;
            let words = "name: there is one already that is called so: change that one";
            return Err(Refused::invalid(words));
        }
    }
    Ok(service.put_limit_group(&name, &limits(fields)?).await?)
}

/// All four: what is empty does not limit.
fn limits(fields: &Fields) -> Result<GroupLimits, Refused> {
    Ok(GroupLimits {
        per_second: typed::number(fields, "per_second")?,
        per_minute: typed::number(fields, "per_minute")?,
        per_hour: typed::number(fields, "per_hour")?,
        per_day: typed::number(fields, "per_day")?,
    })
}

pub(super) async fn show(
    State(pages): Asked,
    visitor: Visitor,
    Path(name): Path<String>,
    Query(query): Query<Wanted>,
) -> Result<Html<String>, Refused> {
    rendered(&OnePage {
        notice: query.notice(),
        ..one(&pages, &visitor, &named(&name)?, None).await?
    })
}

/// What its form is filled with.
fn values(limits: &GroupLimits) -> Fields {
    Fields::from([
        ("per_second", shown(limits.per_second)),
        ("per_minute", shown(limits.per_minute)),
        ("per_hour", shown(limits.per_hour)),
        ("per_day", shown(limits.per_day)),
    ])
}

/// As somebody has filled it in, or as the group is.
async fn one(
    pages: &Pages,
    visitor: &Visitor,
    name: &GroupName,
    typed: Option<&Fields>,
) -> Result<OnePage, Refused> {
    let group = (pages.service(visitor.tenant())).limit_group(name).await?;
    let limits = &group.limits;
    let now = typed::filled(values(limits));
    let form = typed.unwrap_or(&now);
    let names = Names::of(pages, group.members.iter().copied()).await?;
    let members = group.members.iter();
    let mut members: Vec<_> = members.map(|id| (names.name(*id), *id)).collect();
    members.sort_unstable();
    Ok(OnePage {
        frame: Frame::of(pages, visitor, (group.name.as_str(), PART)).await?,
        path: path(&group.name),
        in_words: words::limits(&limits.as_settings()),
        created: words::time(group.created_at),
        members,
        limits: typed::numbers(form, &LIMITS),
        was: form.text(typed::WAS).to_owned(),
        problem: None,
        notice: "",
    })
}

/// Sets all of its limits.
pub(super) async fn save(
    State(pages): Asked,
    Path(name): Path<String>,
    Posted {
        visitor,
        mut fields,
        ..
    }: Posted,
) -> Result<Response, Refused> {
    visitor.needs(Scope::Manage)?;
    let name = named(&name)?;
    let done = saved(&pages, &visitor, &name, &mut fields).await;
    typed::or_again(done, one(&pages, &visitor, &name, Some(&fields))).await
}

/// One of 0, which pauses all members, is asked about first.
async fn saved(
    pages: &Pages,
    visitor: &Visitor,
    name: &GroupName,
    fields: &mut Fields,
) -> Result<Response, Refused> {
    let service = pages.service(visitor.tenant());
    let group = service.limit_group(name).await?;
    typed::unchanged(fields, &values(&group.limits), &[])?;
    let wanted = limits(fields)?;
    if wanted.is_paused() && !group.limits.is_paused() && !sure::is_sure(fields) {
        return sure::ask(pages, visitor, PART, pausing(&group, fields)).await;
    }
    service.put_limit_group(name, &wanted).await?;
    Ok(typed::done(&path(name), "changed"))
}

fn pausing(group: &LimitGroup, fields: &Fields) -> Question {
    let names = LIMITS.map(|(name, _)| name).into_iter().chain([typed::WAS]);
    Question {
        asks: format!("Pause all members of {} with a limit of 0?", group.name),
        does: vec![
            format!(
                "Nothing is sent any more to its members, which are {} now, until its limit is \
                 above 0.",
                group.members.len()
            ),
            "What waits for them goes on waiting, and so does what comes; none is dropped before \
             its age allows."
                .to_owned(),
        ],
        action: path(&group.name),
        fields: (names.filter_map(|name| Some((name, fields.get(name)?.to_owned())))).collect(),
        button: "Pause them",
        back: path(&group.name),
    }
}

pub(super) async fn delete(
    State(pages): Asked,
    Path(name): Path<String>,
    Posted {
        visitor, fields, ..
    }: Posted,
) -> Result<Response, Refused> {
    visitor.needs(Scope::Manage)?;
    let service = pages.service(visitor.tenant());
    let name = named(&name)?;
    if !sure::is_sure(&fields) {
        let group = service.limit_group(&name).await?;
        let does = vec![
            format!(
                "It is deleted only if no destination is in it; {} are now.",
                group.members.len()
            ),
            "Its limits hold for nothing any more.".to_owned(),
        ];
        let asks = format!("Delete the limit group {name}?");
        let question = Question::delete(asks, does, path(&name));
        return sure::ask(&pages, &visitor, PART, question).await;
    }
    service.delete_limit_group(&name).await?;
    Ok(typed::done(PART, "deleted"))
}
