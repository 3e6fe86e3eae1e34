//! `paceline event list`: page after page, as far as was asked for.

use clap::Args;
use domain::attempt::AttemptState;
use domain::search::SoughtStatus;
use serde_json::json;
use url::form_urlencoded;
use uuid::Uuid;

use crate::api::events::{EventList, ListedEvent};
use crate::client::Client;
use crate::commands::destination::Connection;
use crate::commands::named::Named;
use crate::output::{self, Format};
use crate::service::MAX_EVENTS_LISTED;

/// Which events, and of which time.
#[derive(Debug, Clone, Default, Args)]
pub struct Filter {
    #[command(flatten)]
    pub which: Which,
    /// Accepted then or later, such as 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Accepted before.
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
}

/// Which events.
#[derive(Debug, Clone, Default, Args)]
pub struct Which {
    /// Of this type.
    #[arg(long = "type", alias = "event-type", value_name = "TYPE")]
    pub event_type: Option<String>,
    /// With an attempt in this state, such as failed or waiting.
    #[arg(long, value_name = "STATE")]
    pub state: Option<AttemptState>,
    /// With an attempt that was answered with this HTTP status, or with one of a class: 500,
    /// 5xx.
    #[arg(long, value_name = "STATUS")]
    pub status: Option<SoughtStatus>,
    /// With an attempt at this destination: its id or its name.
    #[arg(long, value_name = "ID")]
    pub destination: Option<Named>,
    /// A part of its id, or its whole idempotency key.
    #[arg(long, value_name = "TEXT")]
    pub text: Option<String>,
}

impl Filter {
    /// As the API takes it.
    async fn query(&self, client: &Client) -> anyhow::Result<Vec<(&'static str, String)>> {
        let mut query = self.which.query(client).await?;
        query.extend(self.since.clone().map(|since| ("since", since)));
        query.extend(self.until.clone().map(|until| ("until", until)));
        Ok(query)
    }
}

impl Which {
    /// As the API takes it.
    pub(super) async fn query(
        &self,
        client: &Client,
    ) -> anyhow::Result<Vec<(&'static str, String)>> {
        let destination = match &self.destination {
            Some(named) => Some(named.destination(client).await?.to_string()),
            None => None,
        };
        let fields = [
            ("type", self.event_type.clone()),
            ("state", self.state.map(|state| state.as_str().to_owned())),
            ("status", self.status.map(|status| status.to_string())),
            ("destination_id", destination),
            ("text", self.text.clone()),
        ];
        let set = fields.into_iter();
        Ok(set
            .filter_map(|(field, value)| Some((field, value?)))
            .collect())
    }
}

/// So many pages are looked through, of 2,000 events each.
const MAX_PAGES: u32 = 100;

/// Does it.
pub(super) async fn run(
    filter: Filter,
    limit: usize,
    connection: &Connection,
) -> anyhow::Result<()> {
    let client = Client::new(&connection.client)?;
    let query = filter.query(&client).await?;
    let found = list(&client, &query, limit).await?;
    match connection.output {
        Format::Json => output::json(&json!({ "events": found })),
        Format::Table => output::line(&table(&found)),
    }
}

/// The newest of them; a page may hold few and still not be the last.
async fn list(
    client: &Client,
    query: &[(&'static str, String)],
    limit: usize,
) -> anyhow::Result<Vec<ListedEvent>> {
    let mut found: Vec<ListedEvent> = Vec::new();
    let mut before = None;
    for _ in 0..MAX_PAGES {
        let rows = (limit - found.len()).min(MAX_EVENTS_LISTED as usize);
        let page = page(client, query, (before, rows)).await?;
        found.extend(page.events);
        before = page.next;
        if before.is_none() || found.len() >= limit {
            return Ok(found);
        }
    }
    output::aside("there may be more: only the newest events were looked through");
    Ok(found)
}

/// One page.
pub(super) async fn page(
    client: &Client,
    query: &[(&'static str, String)],
    (before, rows): (Option<Uuid>, usize),
) -> anyhow::Result<EventList> {
    let mut written = form_urlencoded::Serializer::new(String::new());
    written.extend_pairs(query);
    written.append_pair("limit", &rows.to_string());
    if let Some(before) = before {
        written.append_pair("before", &before.to_string());
    }
    client
        .get(&format!("/v1/events?{}", written.finish()))
        .await
}

/// A table of them.
fn table(events: &[ListedEvent]) -> String {
    let header = [
        "ID",
        "TYPE",
        "LANE",
        "ACCEPTED",
        "BYTES",
        "DESTINATIONS",
        "ATTEMPTS",
        "LAST",
    ];
    output::table(&header, events.iter().map(cells)).to_string()
}

pub(super) fn cells(event: &ListedEvent) -> Vec<String> {
    let last = event.last_state.map_or("-", AttemptState::as_str);
    vec![
        event.id.to_string(),
        event.event_type.clone().unwrap_or_else(|| "-".to_owned()),
        if event.urgent { "urgent" } else { "-" }.to_owned(),
        event.created_at.clone(),
        event.payload_bytes.to_string(),
        event.destinations.to_string(),
        event.attempts.to_string(),
        last.to_owned(),
    ]
}
