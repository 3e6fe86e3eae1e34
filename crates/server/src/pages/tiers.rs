//! Plan tiers, for operators: what destinations without limits of their own have, and the
//! most that a tenant has and sets.

use axum::extract::{Path, Query, State};
use axum::response::{Html, Response};
use domain::access::Scope;
use domain::ceiling::Ceiling;
use domain::policy::{LimitSettings, Rate};
use engine::ports::{DEFAULT_MAX_DESTINATIONS, Tier};
use serde::Deserialize;

use super::frame::{Frame, rendered};
use super::refused::Refused;
use super::sure::{self, Question};
use super::typed::{self, Number, SHAPES, shown};
use super::visitor::{Fields, Posted, Visitor};
use super::words::{self, NONE};
use super::{Asked, Pages};
use crate::service::LimitsChange;
use crate::service::tenancy::{CeilingChange, TierEdit};

/// The part of the navigation, and where tiers are.
const PART: &str = "/dashboard/tenants";
const TIERS: &str = "/dashboard/tiers";

const LIMITS: [(&str, &str); 6] = [
    ("per_second", "per second"),
    ("per_minute", "per minute"),
    ("per_hour", "per hour"),
    ("per_day", "per day"),
    ("burst", "burst"),
    ("max_in_flight", "in flight at once"),
];

const OF_A_TENANT: [(&str, &str); 3] = [
    ("tenant_max_in_flight", "in flight at once"),
    ("tenant_ingest_per_second", "events taken in a second"),
    ("tenant_max_destinations", "destinations"),
];

const CEILING: [(&str, &str); 6] = [
    ("ceiling_per_second", "a second, in the long run"),
    ("ceiling_at_once", "at one instant"),
    ("ceiling_max_in_flight", "in flight at once"),
    ("ceiling_batch_events", "events in one request"),
    ("ceiling_batch_bytes", "bytes in one request"),
    ("ceiling_age_seconds", "age of an event, in seconds"),
];

/// A tier in the list.
struct Line {
    name: String,
    path: String,
    limits: String,
    ceiling: String,
    destinations: String,
}

impl From<Tier> for Line {
    fn from(tier: Tier) -> Self {
        let parts = [
            words::ceiling(&tier.ceiling),
            words::batch_ceiling(&tier.ceiling),
            words::age_ceiling(&tier.ceiling),
        ];
        let said: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let most = said.join(", ");
        let destinations = tier.tenant_max_destinations;
        Self {
            path: path(&tier.name),
            limits: words::limits(&tier.limits),
            ceiling: Some(most)
                .filter(|most| !most.is_empty())
                .unwrap_or(NONE.to_owned()),
            destinations: destinations.map_or(NONE.to_owned(), |most| words::large(most.into())),
            name: tier.name,
        }
    }
}

#[derive(askama::Template)]
#[template(path = "tiers.html")]
struct Page {
    frame: Frame,
    lines: Vec<Line>,
    form: Form,
    problem: Option<String>,
    notice: &'static str,
}

#[derive(askama::Template)]
#[template(path = "tier.html")]
struct OnePage {
    frame: Frame,
    path: String,
    form: Form,
    problem: Option<String>,
    notice: &'static str,
}

typed::again!(Page);
typed::again!(OnePage);

/// What the form of a tier says.
struct Form {
    /// Of one that is to be added.
    name: String,
    limits: Vec<Number>,
    of_a_tenant: Vec<Number>,
    ceiling: Vec<Number>,
    unlimited: bool,
    shape: String,
    shapes: [(&'static str, &'static str); 3],
    was: String,
}

impl Form {
    fn of(fields: &Fields) -> Self {
        Self {
            name: fields.text("name").to_owned(),
            limits: typed::numbers(fields, &LIMITS),
            of_a_tenant: typed::numbers(fields, &OF_A_TENANT),
            ceiling: typed::numbers(fields, &CEILING),
            unlimited: fields.has("unlimited"),
            shape: fields.text("shape").to_owned(),
            shapes: SHAPES,
            was: fields.text(typed::WAS).to_owned(),
        }
    }

    /// What a tier that is added has, if nothing else is typed.
    fn empty() -> Self {
        let most = DEFAULT_MAX_DESTINATIONS.to_string();
        Self::of(&Fields::from([("tenant_max_destinations", most)]))
    }
}

/// What its form is filled with.
fn values(tier: &Tier) -> Fields {
    let (limits, most) = (&tier.limits, &tier.ceiling);
    let numbers = [
        ("per_second", shown(limits.per_second)),
        ("per_minute", shown(limits.per_minute)),
        ("per_hour", shown(limits.per_hour)),
        ("per_day", shown(limits.per_day)),
        ("burst", shown(limits.burst)),
        ("max_in_flight", shown(limits.max_in_flight)),
        (
            "shape",
            limits.shape.unwrap_or_default().as_str().to_owned(),
        ),
        ("tenant_max_in_flight", shown(tier.tenant_max_in_flight)),
        (
            "tenant_ingest_per_second",
            shown(tier.tenant_ingest_per_second),
        ),
        (
            "tenant_max_destinations",
            shown(tier.tenant_max_destinations),
        ),
        ("ceiling_per_second", shown(most.per_second)),
        ("ceiling_at_once", shown(most.at_once)),
        ("ceiling_max_in_flight", shown(most.max_in_flight)),
        ("ceiling_batch_events", shown(most.batch_events)),
        ("ceiling_batch_bytes", shown(most.batch_bytes)),
        ("ceiling_age_seconds", shown(most.age_seconds)),
    ];
    let unlimited = limits.unlimited.then(|| ("unlimited", "yes".to_owned()));
    numbers.into_iter().chain(unlimited).collect()
}

/// Where a tier is.
pub(super) fn path(name: &str) -> String {
    format!("{TIERS}/{}", words::in_path(name))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Done {
    done: String,
}

impl Done {
    fn notice(&self) -> &'static str {
        match self.done.as_str() {
            "added" => "Added. Tenants can have it now.",
            "changed" => "Changed, for all destinations that have no limits of their own.",
            "deleted" => "Deleted.",
            _ => "",
        }
    }
}

pub(super) async fn list(
    State(pages): Asked,
    visitor: Visitor,
    Query(query): Query<Done>,
) -> Result<Html<String>, Refused> {
    visitor.needs(Scope::Admin)?;
    rendered(&Page {
        notice: query.notice(),
        ..listed(&pages, &visitor, Form::empty()).await?
    })
}

async fn listed(pages: &Pages, visitor: &Visitor, form: Form) -> Result<Page, Refused> {
    let tiers = pages.0.app.tenancy().tiers().await?;
    Ok(Page {
        frame: Frame::of(pages, visitor, ("Tiers", PART)).await?,
        lines: tiers.into_iter().map(Line::from).collect(),
        form,
        problem: None,
        notice: "",
    })
}

pub(super) async fn create(
    State(pages): Asked,
    Posted {
        visitor, fields, ..
    }: Posted,
) -> Result<Response, Refused> {
    visitor.needs(Scope::Admin)?;
    let created = created(&pages, &fields).await;
    let done = created.map(|tier| typed::done(&path(&tier.name), "added"));
    typed::or_again(done, listed(&pages, &visitor, Form::of(&fields))).await
}

async fn created(pages: &Pages, fields: &Fields) -> Result<Tier, Refused> {
    let new = wanted(fields, (fields.text("name"), &LimitSettings::default()))?;
    Ok(pages.0.app.tenancy().create_tier(new).await?)
}

/// All of the form: what is empty bounds nothing. A shape that stays the usual one stays
/// unsaid: to say it is another limit to a store, which takes back what is admitted.
fn wanted(fields: &Fields, (name, now): (&str, &LimitSettings)) -> Result<Tier, Refused> {
    let shape = typed::shape(fields)?;
    let is_same = shape.unwrap_or_default() == now.shape.unwrap_or_default();
    Ok(Tier {
        name: name.to_owned(),
        limits: LimitSettings {
            per_second: typed::number(fields, "per_second")?,
            per_minute: typed::number(fields, "per_minute")?,
            per_hour: typed::number(fields, "per_hour")?,
            per_day: typed::number(fields, "per_day")?,
            unlimited: fields.has("unlimited"),
            burst: typed::number(fields, "burst")?,
            shape: if is_same { now.shape } else { shape },
            max_in_flight: typed::number(fields, "max_in_flight")?,
            ..*now
        },
        tenant_max_in_flight: typed::number(fields, "tenant_max_in_flight")?,
        tenant_ingest_per_second: typed::number(fields, "tenant_ingest_per_second")?,
        tenant_max_destinations: typed::number(fields, "tenant_max_destinations")?,
        ceiling: Ceiling {
            per_second: typed::decimal(fields, "ceiling_per_second")?,
            at_once: typed::number(fields, "ceiling_at_once")?,
            max_in_flight: typed::number(fields, "ceiling_max_in_flight")?,
            batch_events: typed::number(fields, "ceiling_batch_events")?,
            batch_bytes: typed::number(fields, "ceiling_batch_bytes")?,
            age_seconds: typed::number(fields, "ceiling_age_seconds")?,
        },
    })
}

async fn found(pages: &Pages, name: &str) -> Result<Tier, Refused> {
    let tiers = pages.0.app.tenancy().tiers().await?;
    let tier = tiers.into_iter().find(|tier| tier.name == name);
    tier.ok_or_else(|| Refused::not_found("tier"))
}

pub(super) async fn show(
    State(pages): Asked,
    visitor: Visitor,
    Path(name): Path<String>,
    Query(query): Query<Done>,
) -> Result<Html<String>, Refused> {
    visitor.needs(Scope::Admin)?;
    let tier = found(&pages, &name).await?;
    rendered(&OnePage {
        notice: query.notice(),
        ..one(
            &pages,
            &visitor,
            (&name, Form::of(&typed::filled(values(&tier)))),
        )
        .await?
    })
}

async fn one(
    pages: &Pages,
    visitor: &Visitor,
    (name, form): (&str, Form),
) -> Result<OnePage, Refused> {
    Ok(OnePage {
        frame: Frame::of(pages, visitor, (&format!("Tier {name}"), PART)).await?,
        path: path(name),
        form,
        problem: None,
        notice: "",
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
    typed::or_again(done, one(&pages, &visitor, (&name, Form::of(&fields)))).await
}

/// A limit of 0, which pauses whoever has none of his own, is asked about first.
async fn saved(
    pages: &Pages,
    visitor: &Visitor,
    name: &str,
    fields: &mut Fields,
) -> Result<Response, Refused> {
    let now = found(pages, name).await?;
    typed::unchanged(fields, &values(&now), &["unlimited"])?;
    let wanted = wanted(fields, (name, &now.limits))?;
    if pauses(&now, &wanted) && !sure::is_sure(fields) {
        return sure::ask(pages, visitor, PART, pausing(name, fields)).await;
    }
    changed(pages, &now, &wanted).await?;
    Ok(typed::done(&path(name), "changed"))
}

fn pauses(now: &Tier, wanted: &Tier) -> bool {
    let is_paused = |tier: &Tier| tier.limits.policy().rate == Rate::Paused;
    is_paused(wanted) && !is_paused(now)
}

fn pausing(name: &str, fields: &Fields) -> Question {
    let names = [LIMITS.as_slice(), &OF_A_TENANT, &CEILING].concat();
    let names = names.into_iter().map(|(name, _)| name);
    let names = names.chain(["shape", "unlimited", typed::WAS]);
    Question {
        asks: format!("Pause the tier {name} with a limit of 0?"),
        does: vec![
            "Nothing is sent any more to destinations of its tenants that have no limits of \
             their own, until its limit is above 0."
                .to_owned(),
            "What waits for them goes on waiting, and so does what comes; none is dropped before \
             its age allows."
                .to_owned(),
        ],
        action: path(name),
        fields: (names.filter_map(|name| Some((name, fields.get(name)?.to_owned())))).collect(),
        button: "Pause it",
        back: path(name),
    }
}

/// Limits only where they are others: to set them takes back what is admitted by them.
async fn changed(pages: &Pages, now: &Tier, wanted: &Tier) -> Result<(), Refused> {
    let limits = wanted.limits;
    let all = LimitsChange {
        per_second: Some(limits.per_second),
        per_minute: Some(limits.per_minute),
        per_hour: Some(limits.per_hour),
        per_day: Some(limits.per_day),
        unlimited: Some(limits.unlimited),
        burst: Some(limits.burst),
        shape: Some(limits.shape),
        max_in_flight: Some(limits.max_in_flight),
        ..LimitsChange::default()
    };
    let edit = TierEdit {
        limits: match limits == now.limits {
            true => LimitsChange::default(),
            false => all,
        },
        tenant_max_in_flight: Some(wanted.tenant_max_in_flight),
        tenant_ingest_per_second: Some(wanted.tenant_ingest_per_second),
        tenant_max_destinations: Some(wanted.tenant_max_destinations),
        ceiling: CeilingChange {
            per_second: Some(wanted.ceiling.per_second),
            at_once: Some(wanted.ceiling.at_once),
            max_in_flight: Some(wanted.ceiling.max_in_flight),
            batch_events: Some(wanted.ceiling.batch_events),
            batch_bytes: Some(wanted.ceiling.batch_bytes),
            age_seconds: Some(wanted.ceiling.age_seconds),
        },
    };
    let tenancy = pages.0.app.tenancy();
    tenancy.change_tier(&now.name, edit).await?;
    Ok(())
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
        found(&pages, &name).await?;
        let does = vec![
            "It is deleted only if no tenant has it.".to_owned(),
            "Its limits and its ceiling cannot be brought back.".to_owned(),
        ];
        let asks = format!("Delete the tier {name}?");
        let question = Question::delete(asks, does, path(&name));
        return sure::ask(&pages, &visitor, PART, question).await;
    }
    pages.0.app.tenancy().delete_tier(&name).await?;
    Ok(typed::done(TIERS, "deleted"))
}
