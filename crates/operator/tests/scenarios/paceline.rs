//! Paceline, as the operator sees it, in memory; and what was done to it.

use std::sync::{Mutex, MutexGuard};

use async_trait::async_trait;
use domain::destination::DestinationState;
use domain::filter::Filter;
use domain::health::Breaker;
use domain::ids::DestinationId;
use operator::destinations::{
    Credentials, Destinations, Glance, Observed, Owner, Refusal, Row, Secrets, Stored, Wanted,
};
use secrecy::{ExposeSecret, SecretString};
use uuid::Uuid;

#[derive(Default)]
pub(crate) struct Paceline(Mutex<Rows>);

#[derive(Default)]
pub(crate) struct Rows {
    pub(crate) rows: Vec<Kept>,
    /// All that was changed, in words.
    pub(crate) done: Vec<String>,
    /// How often somebody looked.
    pub(crate) looks: usize,
    pub(crate) away: bool,
    pub(crate) backlog: u32,
    pub(crate) breaker_is_open: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Kept {
    pub(crate) row: Row,
    pub(crate) resource: Option<String>,
    pub(crate) uid: Option<String>,
    pub(crate) secret: String,
    /// What it shows to be let in, in words.
    pub(crate) shown: String,
}

impl Paceline {
    pub(crate) fn rows(&self) -> MutexGuard<'_, Rows> {
        self.0.lock().unwrap()
    }

    fn up(&self) -> Result<MutexGuard<'_, Rows>, Refusal> {
        let rows = self.rows();
        match rows.away {
            true => Err(Refusal::Unavailable("the store is away".to_owned())),
            false => Ok(rows),
        }
    }

    /// A destination that somebody made by the API.
    pub(crate) fn by_the_api(&self, name: &str) -> DestinationId {
        let mut rows = self.rows();
        let id = DestinationId(Uuid::from_u128(rows.rows.len() as u128 + 100));
        rows.rows.push(Kept {
            row: Row {
                id,
                name: name.to_owned(),
                url: "https://else.example".to_owned(),
                event_types: Vec::new(),
                filter: None,
                limit_group: None,
                limits: Default::default(),
                state: DestinationState::Active,
                signs: true,
                shows: true,
            },
            resource: None,
            uid: None,
            secret: String::new(),
            shown: String::new(),
        });
        id
    }

    /// What was changed since the last call.
    pub(crate) fn done(&self) -> Vec<String> {
        std::mem::take(&mut self.rows().done)
    }
}

impl Rows {
    fn held(&mut self, owner: &Owner, id: DestinationId) -> Result<&mut Kept, Refusal> {
        let found = self.rows.iter_mut().find(|kept| kept.row.id == id);
        let found = found.ok_or_else(|| Refusal::NotFound("no such destination".to_owned()))?;
        match found.uid.as_ref() == Some(&owner.uid) {
            true => Ok(found),
            false => Err(Refusal::Conflict("somebody else has it".to_owned())),
        }
    }
}

fn set(row: &mut Row, wanted: &Wanted) {
    row.name.clone_from(&wanted.name);
    row.url.clone_from(&wanted.url);
    row.event_types.clone_from(&wanted.event_types);
    row.filter = wanted.filter.clone().map(Filter::kept);
    row.limits = wanted.limits;
    row.state = wanted.state_after(row.state);
}

/// In words: the certificate and its key, and what tokens are asked for with.
fn shown(credentials: &Credentials) -> String {
    let certificate = credentials.client_certificate.as_ref().map(|one| {
        let (certificate, key) = (
            one.certificate.expose_secret(),
            one.private_key.expose_secret(),
        );
        format!("{certificate} and {key}")
    });
    let client = credentials.oauth2.as_ref().map(|one| {
        let (url, id) = (&one.facts.token_url, &one.facts.client_id);
        format!("{id} with {} at {url}", one.secret.expose_secret())
    });
    Vec::from_iter(certificate.into_iter().chain(client)).join("; ")
}

#[async_trait]
impl Destinations for Paceline {
    async fn look(
        &self,
        owner: &Owner,
        wanted: Option<(&Wanted, &Secrets)>,
    ) -> Result<Stored, Refusal> {
        let mut rows = self.up()?;
        rows.looks += 1;
        let of_resource = |kept: &&Kept| kept.resource.as_ref() == Some(&owner.resource);
        let of_name = |kept: &&Kept| kept.resource.is_none() && kept.row.name == owner.name;
        let found = rows.rows.iter().find(of_resource);
        let Some(kept) = found.or_else(|| rows.rows.iter().find(of_name)) else {
            return Ok(Stored::Absent);
        };
        let mut row = kept.row.clone();
        let secrets = wanted.map(|(_, secrets)| secrets);
        row.signs = secrets.is_some_and(|one| one.signing.expose_secret() == kept.secret);
        row.shows = secrets.is_some_and(|one| shown(&one.credentials) == kept.shown);
        Ok(match (&kept.resource, &kept.uid) {
            (None, _) => Stored::Unmanaged { id: row.id },
            (_, None) => Stored::Released(row),
            (_, Some(uid)) if *uid == owner.uid => Stored::Ours(row),
            (_, Some(uid)) => Stored::Held {
                id: row.id,
                uid: uid.clone(),
            },
        })
    }

    async fn create(
        &self,
        owner: &Owner,
        wanted: &Wanted,
        secrets: &Secrets,
    ) -> Result<DestinationId, Refusal> {
        let mut rows = self.up()?;
        if wanted.url.contains("refused") {
            return Err(Refusal::Invalid(
                "url: leads to a place that is not open".to_owned(),
            ));
        }
        let id = DestinationId(Uuid::from_u128(rows.rows.len() as u128 + 1));
        let mut row = Row {
            id,
            name: String::new(),
            url: String::new(),
            event_types: Vec::new(),
            filter: None,
            limit_group: None,
            limits: Default::default(),
            state: DestinationState::Active,
            signs: true,
            shows: true,
        };
        set(&mut row, wanted);
        rows.rows.push(Kept {
            row,
            resource: Some(owner.resource.clone()),
            uid: Some(owner.uid.clone()),
            secret: secrets.signing.expose_secret().to_owned(),
            shown: shown(&secrets.credentials),
        });
        rows.done.push("create".to_owned());
        Ok(id)
    }

    async fn take_over(&self, owner: &Owner, id: DestinationId) -> Result<(), Refusal> {
        let mut rows = self.up()?;
        let kept = rows.rows.iter_mut().find(|kept| kept.row.id == id).unwrap();
        assert!(kept.uid.is_none(), "it was released");
        kept.uid = Some(owner.uid.clone());
        rows.done.push("take over".to_owned());
        Ok(())
    }

    async fn change(
        &self,
        owner: &Owner,
        id: DestinationId,
        wanted: &Wanted,
    ) -> Result<(), Refusal> {
        let mut rows = self.up()?;
        set(&mut rows.held(owner, id)?.row, wanted);
        rows.done.push("change".to_owned());
        Ok(())
    }

    async fn rotate(
        &self,
        owner: &Owner,
        id: DestinationId,
        secret: &SecretString,
    ) -> Result<(), Refusal> {
        let mut rows = self.up()?;
        rows.held(owner, id)?.secret = secret.expose_secret().to_owned();
        rows.done.push("rotate".to_owned());
        Ok(())
    }

    async fn show(
        &self,
        owner: &Owner,
        id: DestinationId,
        credentials: &Credentials,
    ) -> Result<(), Refusal> {
        let mut rows = self.up()?;
        rows.held(owner, id)?.shown = shown(credentials);
        rows.done.push("show".to_owned());
        Ok(())
    }

    async fn release(&self, owner: &Owner, id: DestinationId) -> Result<(), Refusal> {
        let mut rows = self.up()?;
        rows.held(owner, id)?.uid = None;
        rows.done.push("release".to_owned());
        Ok(())
    }

    async fn discard(&self, owner: &Owner, id: DestinationId) -> Result<(), Refusal> {
        let mut rows = self.up()?;
        rows.held(owner, id)?;
        rows.rows.retain(|kept| kept.row.id != id);
        rows.done.push("discard".to_owned());
        Ok(())
    }

    async fn glance(&self) -> Result<Vec<Glance>, Refusal> {
        let rows = self.up()?;
        let held = rows.rows.iter().filter(|kept| kept.uid.is_some());
        let glances = held.filter_map(|kept| {
            Some(Glance {
                resource: kept.resource.clone()?,
                state: kept.row.state,
                breaker_is_open: rows.breaker_is_open,
                has_work: rows.backlog > 0,
            })
        });
        Ok(glances.collect())
    }

    async fn observe(&self, owner: &Owner, id: DestinationId) -> Result<Observed, Refusal> {
        let mut rows = self.up()?;
        let backlog = rows.backlog;
        let breaker = match rows.breaker_is_open {
            true => Breaker::Open,
            false => Breaker::Closed,
        };
        let row = &rows.held(owner, id)?.row;
        Ok(Observed {
            state: row.state,
            backlog,
            starts_per_second: 0.0,
            allowed_per_second: Some(f64::from(row.limits.per_second.unwrap_or(10))),
            limit_group: None,
            breaker,
            held: false,
        })
    }
}
