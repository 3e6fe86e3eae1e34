//! Who attacks, and what it asks for.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use http::StatusCode;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::api::Client;

/// What the attackers call from: another address than their neighbours, as anybody's.
pub(super) const FROM: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A history is made in so long, or nobody waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A tenant with bad intentions, or a stranger.
#[derive(Clone)]
pub(in crate::figures::neighbours) struct Attacker {
    /// Of the API.
    pub(in crate::figures::neighbours) address: String,
    pub(in crate::figures::neighbours) key: String,
    pub(in crate::figures::neighbours) tenant: Uuid,
    /// Where it may write events itself, if that is a database that takes them of others.
    pub(in crate::figures::neighbours) database: Option<String>,
    /// Of its session, if it has signed in.
    pub(in crate::figures::neighbours) cookie: Option<String>,
}

impl Attacker {
    pub(super) async fn client(&self) -> anyhow::Result<Client> {
        let client = Client::dial_from(FROM, &self.address).await?;
        let client = client.with_key(&self.key);
        Ok(match &self.cookie {
            Some(cookie) => client.with_cookie(cookie),
            None => client,
        })
    }

    /// The same, signed in to the pages.
    pub(super) async fn signed_in(&self) -> anyhow::Result<Self> {
        let cookie = self.client().await?.sign_in().await?.to_owned();
        Ok(Self {
            cookie: Some(cookie),
            ..self.clone()
        })
    }

    /// One of its destinations, however often it has to ask for it.
    pub(super) async fn destination(&self, url: &str, with: Value) -> anyhow::Result<String> {
        let made = self.destinations(1, url, with).await?;
        made.into_iter().next().context("no destination was made")
    }

    /// So many of them.
    pub(super) async fn destinations(
        &self,
        count: usize,
        url: &str,
        mut with: Value,
    ) -> anyhow::Result<Vec<String>> {
        with["url"] = url.into();
        let body = with.to_string();
        let mut client = self.client().await?;
        let mut made = Vec::with_capacity(count);
        while made.len() < count {
            let (status, answer) = client.answer("POST", "/v1/destinations", &body).await?;
            if status == StatusCode::TOO_MANY_REQUESTS {
                sleep(Duration::from_millis(100)).await;
                continue;
            }
            let said = String::from_utf8_lossy(&answer);
            ensure!(status.is_success(), "no destination: {status} {said}");
            let created: Value = serde_json::from_slice(&answer)?;
            let id = created["id"].as_str().context("a destination has no id")?;
            made.push(id.to_owned());
        }
        Ok(made)
    }

    /// Deletes what is there, however often it has to ask for that.
    pub(super) async fn deleted(&self, path: &str) -> anyhow::Result<()> {
        let mut client = self.client().await?;
        loop {
            let (status, _) = client.answer("DELETE", path, "").await?;
            if status != StatusCode::TOO_MANY_REQUESTS {
                ensure!(status.is_success(), "not deleted: {status}");
                return Ok(());
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// The cookies of so many sessions.
    pub(super) async fn sessions(&self, count: usize) -> anyhow::Result<Vec<String>> {
        let mut cookies = Vec::with_capacity(count);
        for _ in 0..count {
            let signed_in = self.signed_in().await?;
            cookies.push(signed_in.cookie.context("nobody was signed in")?);
        }
        Ok(cookies)
    }

    /// At least so many events that were for nobody, of the type that its subscribers
    /// will want.
    pub(super) async fn history(&self, events: usize) -> anyhow::Result<()> {
        let body = batch(&json!({"type": TYPE, "payload": {}}));
        self.accepted(&body, events).await
    }

    /// Posts this batch until at least so many events were accepted.
    pub(super) async fn accepted(&self, body: &str, events: usize) -> anyhow::Result<()> {
        let mut client = self.client().await?;
        let began = Instant::now();
        let mut taken = 0;
        while taken < events {
            ensure!(began.elapsed() < PATIENCE, "not {events} events in time");
            let (status, answer) = client.answer("POST", "/v1/events/batch", body).await?;
            if !status.is_success() {
                sleep(Duration::from_millis(100)).await;
                continue;
            }
            let answer: Value = serde_json::from_slice(&answer)?;
            let results = answer["results"].as_array().context("no results")?;
            taken += results.iter().filter(|one| one["id"].is_string()).count();
        }
        Ok(())
    }
}

/// The type of its events.
pub(super) const TYPE: &str = "a.b";

/// Where nobody listens.
pub(super) const NOBODY: &str = "http://127.0.0.1:9/";

/// A thousand of an event, as a body.
pub(super) fn batch(event: &Value) -> String {
    json!({"events": vec![event; 1_000]}).to_string()
}

#[derive(Clone)]
pub(super) struct Ask {
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) body: String,
    /// In place of the attacker's own.
    pub(super) key: Option<String>,
}

pub(super) fn ask(method: &'static str, path: &str) -> Ask {
    Ask {
        method,
        path: path.to_owned(),
        body: String::new(),
        key: None,
    }
}

pub(super) fn post(path: &str, body: &str) -> Ask {
    Ask {
        body: body.to_owned(),
        ..ask("POST", path)
    }
}
