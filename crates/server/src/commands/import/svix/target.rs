//! Paceline's API: what is there, and what it is made into.
//!
//! What Svix says nothing of stays as somebody has set it here: tiers, other limits, a state,
//! headers of which Svix does not give the values. A secret is taken over once.

use anyhow::bail;
use domain::destination::DestinationState;
use domain::event_types::name_problem;
use domain::external_id::ExternalId;
use domain::limit_group::{GroupLimits, GroupName};
use http::Method;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::planned;
use super::report::Done;
use crate::api::destinations::Destination;
use crate::api::event_types::EventType;
use crate::api::limit_groups::LimitGroup;
use crate::api::limits::Limits;
use crate::api::tenants;
use crate::client::{Client, patiently};
use crate::commands::event_type;
use crate::hidden::Hidden;

pub(super) struct Target {
    pub(super) client: Client,
    /// Of tenants that are created.
    pub(super) tier: String,
    /// Nothing is written.
    pub(super) dry_run: bool,
}

/// Whose destinations are looked at; `None` for one that would have been created.
pub(super) struct Tenant(Option<Uuid>);

impl Target {
    /// Creates it, or brings what Svix says of it up to date: what is set here alone stays.
    pub(super) async fn event_type(&self, planned: &mut planned::Type) -> anyhow::Result<Done> {
        if let Some(problem) = name_problem(&planned.name) {
            bail!("its name {problem}");
        }
        let path = event_type::path(&planned.name);
        let found: Option<EventType> = patiently(async || self.client.find(&path).await).await?;
        let Some(there) = found else {
            if !self.dry_run {
                let body = described(planned, None);
                let path = "/v1/event-types";
                let _made: Value = self.send(&self.client, Method::POST, path, &body).await?;
            }
            return Ok(Done::Created);
        };
        if there.archived && !planned.archived {
            let left = "that it is not archived: it is here, until `paceline event-type update \
                --archived=false`";
            planned.left.push(left.to_owned());
        }
        let body = described(planned, Some(&there));
        if body.is_empty() {
            return Ok(Done::Unchanged);
        }
        if !self.dry_run {
            let _changed: Value = self.send(&self.client, Method::PATCH, &path, &body).await?;
        }
        Ok(Done::Updated)
    }

    /// Creates it, or gives it its name.
    pub(super) async fn tenant(&self, planned: &planned::Tenant) -> anyhow::Result<(Tenant, Done)> {
        let path = format!("/v1/tenants/{}", planned.external_id);
        let found: Option<tenants::Tenant> =
            patiently(async || self.client.find(&path).await).await?;
        let name = &planned.name;
        let Some(found) = found else {
            if self.dry_run {
                return Ok((Tenant(None), Done::Created));
            }
            let body = json!({"name": name, "tier": self.tier});
            let made: tenants::Tenant = self.send(&self.client, Method::PUT, &path, &body).await?;
            return Ok((Tenant(Some(made.id)), Done::Created));
        };
        let tenant = Tenant(Some(found.id));
        if found.name == *name {
            return Ok((tenant, Done::Unchanged));
        }
        if !self.dry_run {
            let (path, body) = (format!("/v1/tenants/{}", found.id), json!({"name": name}));
            let _changed: Value = self.send(&self.client, Method::PATCH, &path, &body).await?;
        }
        Ok((tenant, Done::Updated))
    }

    /// Creates the group of an application's endpoints, or brings its rate up to date: other
    /// limits of it stay as they are set here.
    pub(super) async fn group(
        &self,
        tenant: &Tenant,
        planned: GroupLimits,
    ) -> anyhow::Result<Done> {
        let Tenant(Some(tenant)) = tenant else {
            return Ok(Done::Created);
        };
        let client = self.client.acting_for(*tenant);
        let path = format!("/v1/limit-groups/{}", planned::GROUP);
        let found: Option<LimitGroup> = patiently(async || client.find(&path).await).await?;
        let done = match &found {
            None => Done::Created,
            Some(there) if there.limits.per_second == planned.per_second => {
                return Ok(Done::Unchanged);
            }
            Some(_) => Done::Updated,
        };
        if !self.dry_run {
            let limits = Limits {
                per_second: planned.per_second,
                ..found.map(|there| there.limits).unwrap_or_default()
            };
            let body = json!({ "limits": limits });
            let _put: Value = self.send(&client, Method::PUT, &path, &body).await?;
        }
        Ok(done)
    }

    /// What a tenant calls so.
    pub(super) async fn find(
        &self,
        tenant: &Tenant,
        called: &ExternalId,
    ) -> anyhow::Result<Option<Destination>> {
        let Tenant(Some(tenant)) = tenant else {
            return Ok(None);
        };
        let client = self.client.acting_for(*tenant);
        let path = path(called);
        patiently(async || client.find(&path).await).await
    }

    /// One that begins disabled subscribes to nothing until it is: whenever this ends in
    /// between, it gets nothing.
    pub(super) async fn create(
        &self,
        tenant: &Tenant,
        planned: &planned::Destination,
        secret: &Hidden,
    ) -> anyhow::Result<Done> {
        let Tenant(Some(tenant)) = tenant else {
            return Ok(Done::Created);
        };
        if self.dry_run {
            return Ok(Done::Created);
        }
        let mut body = settings(planned);
        body.insert("secret".to_owned(), secret.expose().into());
        body.insert(
            "headers".to_owned(),
            serde_json::to_value(&planned.headers)?,
        );
        if planned.begins_disabled() {
            body.remove("event_types");
        }
        let client = self.client.acting_for(*tenant);
        let path = path(&planned.external_id);
        let _made: Value = self.send(&client, Method::PUT, &path, &body).await?;
        if planned.begins_disabled() {
            let body = json!({"event_types": planned.event_types, "state": "disabled"});
            let _changed: Value = self.send(&client, Method::PATCH, &path, &body).await?;
        }
        Ok(Done::Created)
    }

    /// Changes what Svix says something of, and says what is left as it is.
    pub(super) async fn update(
        &self,
        tenant: &Tenant,
        there: &Destination,
        planned: &mut planned::Destination,
    ) -> anyhow::Result<Done> {
        let body = changes(there, planned);
        let Tenant(Some(tenant)) = tenant else {
            return Ok(Done::Unchanged);
        };
        if body.is_empty() {
            return Ok(Done::Unchanged);
        }
        if !self.dry_run {
            let path = path(&planned.external_id);
            let client = self.client.acting_for(*tenant);
            let _changed: Value = self.send(&client, Method::PATCH, &path, &body).await?;
        }
        Ok(Done::Updated)
    }

    async fn send<T: serde::de::DeserializeOwned>(
        &self,
        client: &Client,
        method: Method,
        path: &str,
        body: &(impl serde::Serialize + Sync),
    ) -> anyhow::Result<T> {
        patiently(async || client.send(method.clone(), path, body).await).await
    }
}

/// What Svix says of a type that is otherwise there.
fn described(planned: &planned::Type, there: Option<&EventType>) -> Map<String, Value> {
    let mut said = Map::new();
    let mut say = |field: &str, value: Option<Value>, now: Option<Value>| {
        if let Some(value) = value.filter(|value| now.as_ref() != Some(value)) {
            said.insert(field.to_owned(), value);
        }
    };
    let json =
        |text: Option<&RawValue>| text.and_then(|text| serde_json::from_str(text.get()).ok());
    let schema = there.and_then(|there| json(there.schema.as_deref()));
    let example = there.and_then(|there| json(there.example.as_deref()));
    let description = Some(&planned.description).filter(|text| !text.is_empty());
    say(
        "description",
        description.map(|text| text.clone().into()),
        there.map(|there| there.description.clone().into()),
    );
    say("schema", planned.schema.clone(), schema);
    say("example", planned.example.clone(), example);
    say(
        "archived",
        planned.archived.then_some(true.into()),
        there.map(|there| there.archived.into()),
    );
    if there.is_none() {
        said.insert("name".to_owned(), planned.name.clone().into());
    }
    said
}

fn path(called: &ExternalId) -> String {
    format!("/v1/destinations/{called}")
}

/// What an endpoint says of its destination, but for secrets and headers.
fn settings(planned: &planned::Destination) -> Map<String, Value> {
    let mut settings = Map::from_iter([
        ("url".to_owned(), planned.url.clone().into()),
        ("name".to_owned(), planned.name.clone().into()),
        ("event_types".to_owned(), planned.event_types.clone().into()),
    ]);
    if let Some(rate) = planned.per_second {
        settings.insert("limits".to_owned(), json!({"per_second": rate}));
    }
    if planned.in_group {
        settings.insert("limit_group".to_owned(), planned::GROUP.into());
    }
    settings
}

/// What is otherwise there.
fn changes(there: &Destination, planned: &mut planned::Destination) -> Map<String, Value> {
    let mut changes = settings(planned);
    let mut types = there.event_types.clone();
    types.sort();
    changes.retain(|field, wanted| match field.as_str() {
        "url" => *wanted != there.url,
        "name" => *wanted != there.name,
        "event_types" => planned.event_types != types,
        // Another one was chosen here.
        "limit_group" => there.limit_group.is_none(),
        _ => planned.per_second != there.limits.per_second,
    });
    let other = there.limit_group.as_ref().map(GroupName::as_str);
    if let Some(other) = other.filter(|name| planned.in_group && *name != planned::GROUP) {
        planned.left.push(format!(
            "that it shares its application's rate limit: it is in the limit group {other} here"
        ));
    }
    // Taken away there, or never set: nobody knows which, so it is said.
    if let (None, Some(rate)) = (planned.per_second, there.limits.per_second) {
        let left = format!("that it has no rate limit: {rate}/s, which is set here, stays");
        planned.left.push(left);
    }
    if !planned.in_group && other == Some(planned::GROUP) {
        planned.left.push(format!(
            "that its application has no rate limit: it stays in the limit group {} here",
            planned::GROUP
        ));
    }
    let is_disabled = there.state == DestinationState::Disabled;
    // One without types was created, and the run ended before it was disabled.
    let is_half_made = planned.differs && there.event_types.is_empty();
    if !is_disabled && (planned.disabled || is_half_made) {
        changes.insert("state".to_owned(), "disabled".into());
    }
    if is_disabled && !planned.begins_disabled() {
        planned.left.push(
            "that it is enabled: it is disabled here, until `paceline destination resume`"
                .to_owned(),
        );
    }
    let is_known = |name: &&String| planned.headers.contains_key(*name);
    let others: Vec<&str> = there
        .headers
        .iter()
        .filter(|name| !is_known(name))
        .map(String::as_str)
        .collect();
    if !others.is_empty() {
        planned.left.push(format!(
            "its headers stay as they are here, for they have {} beside those of Svix",
            others.join(", ")
        ));
    } else if !planned.headers.is_empty() {
        // Nobody says whether the values are the same.
        let headers = serde_json::to_value(&planned.headers);
        changes.extend(headers.ok().map(|headers| ("headers".to_owned(), headers)));
    }
    changes
}
