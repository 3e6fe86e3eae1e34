//! A destination is added, changed, tried and deleted.
//!
//! What its owner typed stands in the form again if something of it was wrong, but for
//! values of headers, certificates, keys and secrets, which are never shown.

use std::collections::BTreeSet;

use axum::extract::{Path, State};
use axum::response::{Html, IntoResponse, Redirect, Response};
use domain::access::Scope;
use domain::batch::BatchSettings;
use domain::credentials::{CertificateFacts, ClientAuth, OAuthFacts, UnknownClientAuth};
use domain::destination::DestinationState;
use domain::event_types::ListedEventType;
use domain::ids::DestinationId;
use domain::limit_group::{GroupName, InvalidGroupName, MAX_GROUPS};
use domain::policy::LimitSettings;
use engine::ports::RetryRules;
use serde_json::Value;
use zeroize::Zeroizing;

use super::destination::{Beside, done, page, parsed};
use super::event_types;
use super::frame::{Frame, rendered};
use super::refused::Refused;
use super::sure::{self, Question};
use super::visitor::{Fields, Posted, Visitor};
use super::{Asked, Pages, delivery, typed};
use crate::hidden::Hidden;
use crate::service::credentials::{CertificateDraft, ClientDraft};
use crate::service::secrets::{MadeSecret, SecretDraft};
use crate::service::trial::LONGEST_TRIAL;
use crate::service::{
    DeliveryDraft, Described, DestinationDraft, DestinationEdit, LimitsChange, Service,
};

const PART: &str = "/dashboard";

#[derive(askama::Template)]
#[template(path = "edit.html")]
struct Page {
    frame: Frame,
    /// `None` for one that is to be added.
    id: Option<DestinationId>,
    /// For a customer: what the platform calls it is not his.
    by_link: bool,
    form: Form,
    /// The headers that it adds now.
    header_names: String,
    /// Whose client certificate its connections show now.
    certificate: Option<String>,
    /// As whom and where it asks for tokens now.
    client: Option<String>,
    is_disabled: bool,
    /// The most that its tier allows of batches; empty for anything.
    batch_ceiling: String,
    /// And how old events may become.
    age_ceiling: String,
    /// What is wrong with the form.
    problem: Option<String>,
    /// The catalogue's types, and whether it subscribes to each.
    offered: Vec<(ListedEventType, bool)>,
    /// The limit groups that it may be in.
    groups: Vec<String>,
}

/// What the form says of a destination.
struct Form {
    name: String,
    url: String,
    /// As they are typed.
    event_types: String,
    /// Those that are ticked.
    ticked: Vec<String>,
    filter: String,
    token_url: String,
    client_id: String,
    scopes: String,
    audience: String,
    client_auth: String,
    limit_group: String,
    external_id: String,
    delivery: delivery::Form,
    was: String,
}

/// Before the name of a type that can be ticked.
const TICKED: &str = "takes ";

impl Form {
    fn of(fields: &Fields) -> Self {
        let text = |name| fields.get(name).unwrap_or_default().to_owned();
        Self {
            name: text("name"),
            url: text("url"),
            event_types: text("event_types"),
            ticked: {
                let names = fields.names().filter_map(|name| name.strip_prefix(TICKED));
                let mut names: Vec<String> = names.map(str::to_owned).collect();
                names.sort_unstable();
                names
            },
            filter: text("filter"),
            token_url: text("token_url"),
            client_id: text("client_id"),
            scopes: text("scopes"),
            audience: text("audience"),
            client_auth: text("client_auth"),
            limit_group: text("limit_group"),
            external_id: text("external_id"),
            delivery: delivery::Form::of(fields),
            was: text(typed::WAS),
        }
    }

    /// What is offered, ticked where it is subscribed to; the rest is typed.
    fn offer(&mut self, types: Vec<ListedEventType>) -> Vec<(ListedEventType, bool)> {
        let all = self.event_types();
        let is_offered = |one: &&String| types.iter().any(|offered| offered.name == **one);
        // As it was typed, if nothing of it can be ticked.
        if !self.ticked.is_empty() || all.iter().any(|one| is_offered(&one)) {
            let typed = all.iter().filter(|one| !is_offered(one));
            let typed: Vec<&str> = typed.map(String::as_str).collect();
            self.event_types = typed.join(" ");
        }
        let ticked = |one: ListedEventType| {
            let is_ticked = all.contains(&one.name);
            (one, is_ticked)
        };
        types.into_iter().map(ticked).collect()
    }

    /// What is ticked, and what is typed beside it, with commas or spaces between.
    fn event_types(&self) -> Vec<String> {
        let is_ticked = |word: &String| self.ticked.contains(word);
        let typed = words(&self.event_types)
            .into_iter()
            .filter(|word| !is_ticked(word));
        self.ticked.iter().cloned().chain(typed).collect()
    }

    /// The client as which tokens are asked for, if one was typed.
    fn client(&self, fields: &Fields) -> Result<Option<ClientDraft>, Refused> {
        let secret = hidden(fields, "client_secret");
        let typed = [
            &self.token_url,
            &self.client_id,
            &self.scopes,
            &self.audience,
        ];
        if secret.is_none() && typed.iter().all(|text| text.is_empty()) {
            return Ok(None);
        }
        let way = match self.client_auth.as_str() {
            "" => Ok(ClientAuth::default()),
            word => word.parse(),
        };
        let way = way.map_err(|problem: UnknownClientAuth| {
            Refused::invalid(format!("oauth2.client_auth: {problem}"))
        })?;
        Ok(Some(ClientDraft {
            token_url: self.token_url.clone(),
            client_id: self.client_id.clone(),
            client_secret: secret.unwrap_or_else(empty),
            scopes: words(&self.scopes),
            audience: Some(self.audience.clone()).filter(|text| !text.is_empty()),
            client_auth: way,
        }))
    }
}

typed::again!(Page);

/// A destination with all that its form sets.
struct Whole {
    described: Described,
    rules: RetryRules,
    batches: BatchSettings,
}

impl Whole {
    async fn of(service: &Service, id: DestinationId) -> Result<Self, Refused> {
        Ok(Self {
            described: service.destination(id).await?,
            rules: service.retry_rules(id).await?,
            batches: service.batches(id).await?,
        })
    }

    /// What its form is filled with.
    fn values(&self, visitor: &Visitor) -> Fields {
        let destination = &self.described.destination;
        let mut values = vec![
            ("name", destination.name.clone()),
            ("url", destination.url.clone()),
            ("event_types", destination.event_types.join(" ")),
            ("filter", typed::shown(destination.filter.as_ref())),
            (
                "limit_group",
                typed::shown(destination.limit_group.as_ref()),
            ),
            (typed::UNSEEN, self.unseen()),
        ];
        if !visitor.is_guest() {
            let external_id = destination.external_id.as_ref();
            values.push((
                "external_id",
                typed::shown(external_id.map(|id| id.as_str())),
            ));
        }
        values.extend(delivery::values(destination, &self.rules, &self.batches));
        values.into_iter().collect()
    }

    /// Of what is never shown again there is what may be: the names of headers, not their
    /// values.
    fn unseen(&self) -> String {
        let shown = &self.described.shown;
        let facts = serde_json::json!([
            shown.header_names,
            shown.certificate.as_ref().map(CertificateFacts::text),
            shown.oauth2.as_ref().map(OAuthFacts::text),
        ]);
        typed::short(&facts.to_string())
    }
}

/// Refuses a form that is older than a change by another. Types that are ticked stand among
/// those that are typed, and their order means nothing.
fn unchanged(fields: &mut Fields, form: &Form, now: &Fields) -> Result<(), Refused> {
    let (is, wanted) = (now.text("event_types"), form.event_types());
    let is_same =
        words(is).into_iter().collect::<BTreeSet<_>>() == wanted.iter().cloned().collect();
    let wanted = match is_same {
        true => is.to_owned(),
        false => wanted.join(" "),
    };
    fields.set("event_types", wanted);
    typed::unchanged(fields, now, &delivery::BOXES)
}

/// Between commas or spaces.
pub(super) fn words(text: &str) -> Vec<String> {
    let words = text.split(|one: char| one == ',' || one.is_whitespace());
    let words = words.filter(|word| !word.is_empty());
    words.map(str::to_owned).collect()
}

fn hidden(fields: &Fields, name: &str) -> Option<Hidden> {
    let text = fields.get(name)?;
    Some(Hidden::new(Zeroizing::new(text.to_owned())))
}

fn empty() -> Hidden {
    Hidden::new(Zeroizing::default())
}

/// The client certificate, if one was typed.
fn certificate(fields: &Fields) -> Option<CertificateDraft> {
    let [certificate, private_key] =
        ["certificate", "private_key"].map(|name| hidden(fields, name));
    if certificate.is_none() && private_key.is_none() {
        return None;
    }
    Some(CertificateDraft {
        certificate: certificate.unwrap_or_else(empty),
        private_key: private_key.unwrap_or_else(empty),
    })
}

/// What was typed is set, and nothing typed stays as it is unless it is to be removed.
fn set_or_removed<T>(typed: Option<T>, removed: bool) -> Option<Option<T>> {
    match (typed, removed) {
        (None, false) => None,
        (typed, _) => Some(typed),
    }
}

/// As JSON, if there is one.
fn filter(form: &Form) -> Result<Option<Value>, Refused> {
    let said = Some(form.filter.as_str()).filter(|text| !text.is_empty());
    let parsed = said.map(serde_json::from_str).transpose();
    parsed.map_err(|problem: serde_json::Error| {
        Refused::invalid(format!("filter: must be JSON: {problem}"))
    })
}

/// The group that was chosen, if one was.
fn group(form: &Form) -> Result<Option<GroupName>, Refused> {
    let chosen = Some(form.limit_group.as_str()).filter(|name| !name.is_empty());
    let parsed = chosen.map(str::parse).transpose();
    parsed.map_err(|problem: InvalidGroupName| Refused::invalid(format!("limit_group: {problem}")))
}

/// The names of its tenant's groups, to choose from.
async fn groups(service: &Service) -> Result<Vec<String>, Refused> {
    let found = service.limit_groups(None, MAX_GROUPS).await?;
    Ok(found.iter().map(|group| group.name.to_string()).collect())
}

/// One a line, `name: value`.
fn headers(fields: &Fields) -> Result<Vec<(String, Hidden)>, Refused> {
    let lines = fields.get("headers").unwrap_or_default().lines();
    let lines = lines.map(str::trim).filter(|line| !line.is_empty());
    let parsed = lines.enumerate().map(|(at, line)| {
        // What it says is hidden: it may be a password.
        let (name, value) = line.split_once(':').ok_or_else(|| {
            let line = at + 1;
            Refused::invalid(format!("headers: line {line} has no colon after a name"))
        })?;
        let value = Zeroizing::new(value.trim().to_owned());
        Ok((name.trim().to_owned(), Hidden::new(value)))
    });
    parsed.collect()
}

/// An empty form.
pub(super) async fn add(State(pages): Asked, visitor: Visitor) -> Result<Html<String>, Refused> {
    visitor.needs(Scope::Manage)?;
    let form = Form::of(&Fields::default());
    rendered(&adding(&pages, &visitor, form).await?)
}

/// The form of one that is to be added.
async fn adding(pages: &Pages, visitor: &Visitor, mut form: Form) -> Result<Page, Refused> {
    let service = pages.service(visitor.tenant());
    let ceiling = service.ceiling().await?;
    let offered = event_types::offered(&service).await?;
    Ok(Page {
        by_link: visitor.is_guest(),
        groups: groups(&service).await?,
        offered: form.offer(offered),
        frame: Frame::of(pages, visitor, ("Add a destination", PART)).await?,
        id: None,
        form,
        header_names: String::new(),
        certificate: None,
        client: None,
        is_disabled: false,
        batch_ceiling: super::words::batch_ceiling(&ceiling),
        age_ceiling: super::words::age_ceiling(&ceiling),
        problem: None,
    })
}

/// Adds it, and shows its secret: to whoever said where it is, and this once.
pub(super) async fn create(
    State(pages): Asked,
    Posted {
        visitor, fields, ..
    }: Posted,
) -> Result<Response, Refused> {
    visitor.needs(Scope::Manage)?;
    let form = Form::of(&fields);
    let service = pages.service(visitor.tenant());
    let created = async {
        let delivery = delivery::wanted(&fields)?.unwrap_or_default();
        // Nothing is made whose age or batches would be refused once it is there.
        let draft = delivery.draft.clone().checked()?;
        service.check_new_delivery(&draft).await?;
        let created = created(&service, &form, (&fields, &delivery)).await?;
        Ok((created, delivery))
    };
    let ((described, made), delivery) = match created.await {
        Ok(created) => created,
        Err(refused) => {
            return typed::or_again(Err(refused), adding(&pages, &visitor, form)).await;
        }
    };
    let id = described.destination.id;
    let mut notice = "Added. Its tier's limits hold until you set its own.".to_owned();
    // It is there by now, and its secret is not shown again.
    if let Err(error) = service.set_delivery(id, delivery.draft).await {
        notice.push_str(&format!(" Its retries and batches were not set: {error}."));
    }
    let beside = Beside {
        new_secret: made.shown_once.map(|secret| secret.expose().to_owned()),
        notice,
        ..Beside::default()
    };
    Ok(page(&pages, &visitor, id, beside).await?.into_response())
}

async fn created(
    service: &Service,
    form: &Form,
    (fields, delivery): (&Fields, &delivery::Wanted),
) -> Result<(Described, MadeSecret), Refused> {
    let draft = DestinationDraft {
        external_id: typed::external_id(fields)?,
        name: form.name.clone(),
        url: form.url.clone(),
        event_types: form.event_types(),
        filter: filter(form)?,
        limits: LimitSettings::default(),
        pass_traceparent: delivery.pass_traceparent,
        secret: SecretDraft {
            own: None,
            kind: None,
        },
        handshake: delivery.handshake,
        limit_group: group(form)?,
        headers: Some(headers(fields)?),
        client_certificate: Some(certificate(fields)),
        oauth2: Some(form.client(fields)?),
    };
    Ok(service.create_destination(draft).await?)
}

/// What it is now.
pub(super) async fn show(
    State(pages): Asked,
    visitor: Visitor,
    Path(id): Path<String>,
) -> Result<Html<String>, Refused> {
    visitor.needs(Scope::Manage)?;
    rendered(&filled(&pages, &visitor, parsed(&id)?, None).await?)
}

/// As somebody has filled it in, or as the destination is.
async fn filled(
    pages: &Pages,
    visitor: &Visitor,
    id: DestinationId,
    form: Option<Form>,
) -> Result<Page, Refused> {
    let service = pages.service(visitor.tenant());
    let whole = Whole::of(&service, id).await?;
    let mut form = form.unwrap_or_else(|| Form::of(&typed::filled(whole.values(visitor))));
    let described = whole.described;
    let destination = described.destination;
    let title = format!("Change {}", destination.called());
    let offered = event_types::offered(&service).await?;
    Ok(Page {
        by_link: visitor.is_guest(),
        frame: Frame::of(pages, visitor, (&title, PART)).await?,
        id: Some(id),
        groups: groups(&service).await?,
        offered: form.offer(offered),
        form,
        header_names: described.shown.header_names.join(", "),
        certificate: described.shown.certificate.map(|facts| facts.subject),
        client: (described.shown.oauth2)
            .map(|facts| format!("{} at {}", facts.client_id, facts.token_url)),
        is_disabled: destination.state == DestinationState::Disabled,
        batch_ceiling: super::words::batch_ceiling(&destination.ceiling),
        age_ceiling: super::words::age_ceiling(&destination.ceiling),
        problem: None,
    })
}

/// Changes all that the form has; headers only if it says so, a certificate and a client
/// only if one is typed or it says that it is to be removed.
pub(super) async fn save(
    State(pages): Asked,
    Path(id): Path<String>,
    Posted {
        visitor,
        mut fields,
        ..
    }: Posted,
) -> Result<Response, Refused> {
    visitor.needs(Scope::Manage)?;
    let id = parsed(&id)?;
    let done = saved(&pages, &visitor, id, &mut fields).await;
    let form = Some(Form::of(&fields));
    typed::or_again(done, filled(&pages, &visitor, id, form)).await
}

async fn saved(
    pages: &Pages,
    visitor: &Visitor,
    id: DestinationId,
    fields: &mut Fields,
) -> Result<Response, Refused> {
    let (service, form) = (pages.service(visitor.tenant()), Form::of(fields));
    let now = Whole::of(&service, id).await?;
    unchanged(fields, &form, &now.values(visitor))?;
    let delivery = delivery::wanted(fields)?;
    let edit = edited((&now, &form), fields, delivery.as_ref())?;
    let has_set = HasSet::of(&edit);
    if let Some(wanted) = &delivery {
        // What comes first would be changed by the time that the store refuses them.
        let draft = wanted.draft.clone().checked()?;
        service.check_delivery(id, &draft).await?;
    }
    let described = service.change_destination(id, edit).await?;
    let Some(wanted) = delivery else {
        return Ok(done(id, "changed"));
    };
    let Err(error) = service.set_delivery(id, wanted.draft.clone()).await else {
        return Ok(done(id, "changed"));
    };
    // The rest is changed by now, and that was no other.
    let is = (service.retry_rules(id).await?, service.batches(id).await?);
    let known = known((now, has_set), (described, wanted.draft), is)?;
    fields.set(typed::WAS, typed::version(&known.values(visitor)));
    Err(Refused::invalid(format!(
        "Changed, but for its retries and batches: {error}"
    )))
}

/// What the form makes of it, but for its retries and batches.
fn edited(
    (now, form): (&Whole, &Form),
    fields: &Fields,
    delivery: Option<&delivery::Wanted>,
) -> Result<DestinationEdit, Refused> {
    let headers = match fields.has("replace_headers") {
        true => Some(headers(fields)?),
        false => None,
    };
    let external_id = now.described.destination.external_id.as_ref();
    Ok(DestinationEdit {
        external_id: typed::another_external_id(fields, external_id)?,
        name: Some(form.name.clone()),
        url: Some(form.url.clone()),
        event_types: Some(form.event_types()),
        filter: Some(filter(form)?),
        limits: LimitsChange::default(),
        limit_group: Some(group(form)?),
        pass_traceparent: delivery.map(|wanted| wanted.pass_traceparent),
        handshake: delivery.map(|wanted| wanted.handshake),
        headers,
        client_certificate: set_or_removed(certificate(fields), fields.has("remove_certificate")),
        oauth2: set_or_removed(form.client(fields)?, fields.has("remove_oauth2")),
        ..DestinationEdit::default()
    })
}

/// What a form has set of what it may leave as it is.
struct HasSet {
    external_id: bool,
    unseen: bool,
}

impl HasSet {
    fn of(edit: &DestinationEdit) -> Self {
        Self {
            external_id: edit.external_id.is_some(),
            unseen: edit.headers.is_some()
                || edit.client_certificate.is_some()
                || edit.oauth2.is_some(),
        }
    }
}

/// What whoever sent a form knows of its destination, where its retries and batches were not
/// all set: what was there before, and what the form has set, but nothing that another has.
fn known(
    (before, has_set): (Whole, HasSet),
    (mut described, draft): (Described, DeliveryDraft),
    is: (RetryRules, BatchSettings),
) -> Result<Whole, Refused> {
    if !has_set.external_id {
        described.destination.external_id = before.described.destination.external_id;
    }
    if !has_set.unseen {
        described.shown = before.described.shown;
    }
    let (rules, batches) = draft.checked()?;
    Ok(Whole {
        described,
        rules: match is.0 == rules {
            true => rules,
            false => before.rules,
        },
        batches: match is.1 == batches {
            true => batches,
            false => before.batches,
        },
    })
}

pub(super) async fn delete(
    State(pages): Asked,
    Path(id): Path<String>,
    Posted {
        visitor, fields, ..
    }: Posted,
) -> Result<Response, Refused> {
    visitor.needs(Scope::Manage)?;
    let id = parsed(&id)?;
    let service = pages.service(visitor.tenant());
    if !sure::is_sure(&fields) {
        let destination = service.destination(id).await?.destination;
        let does = vec![
            "Nothing is sent to it any more, and it cannot be brought back.".to_owned(),
            "What waits for it is cancelled. What was tried stays in the ledger for its age."
                .to_owned(),
        ];
        let asks = format!("Delete {}?", destination.called());
        let path = format!("/dashboard/destinations/{id}");
        let question = Question {
            back: format!("/dashboard/destinations/{id}/edit"),
            ..Question::delete(asks, does, path)
        };
        return sure::ask(&pages, &visitor, PART, question).await;
    }
    service.delete_destination(id).await?;
    Ok(Redirect::to("/dashboard").into_response())
}

/// Sends an event to try it, and shows what came of it: a small one, or the catalogue's
/// example of a type.
pub(super) async fn trial(
    State(pages): Asked,
    Path(id): Path<String>,
    Posted {
        visitor, fields, ..
    }: Posted,
) -> Result<Redirect, Refused> {
    visitor.needs(Scope::Manage)?;
    let service = pages.service(visitor.home()).looking_at(visitor.tenant());
    let event = service.try_destination(parsed(&id)?, fields.get("type"));
    let event = event.await?;
    // Nothing is changed any more.
    drop(visitor);
    // Its page is shown then, whatever it says.
    service.tried(event, LONGEST_TRIAL).await?;
    Ok(Redirect::to(&format!("/dashboard/events/{event}")))
}
