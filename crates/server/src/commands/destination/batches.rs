//! `paceline destination batches`: several events in one request.

use clap::Args;
use http::Method;
use serde_json::{Map, Value};

use super::{Connection, Named, PATH};
use crate::api::batches::Batches as Settings;
use crate::client::Client;
use crate::output::{self, Format};

/// What is set; nothing set is to look.
#[derive(Debug, Clone, Args)]
pub struct Batches {
    /// Its id or its name.
    pub id: Named,

    /// Events in one request, at most: this turns batches on.
    #[arg(long, value_name = "N", conflicts_with = "off")]
    pub max_events: Option<u32>,

    /// Bytes of their payloads, at most.
    #[arg(long, value_name = "BYTES", conflicts_with = "off")]
    pub max_bytes: Option<u32>,

    /// How long an event waits for others, such as 500ms.
    #[arg(long, value_name = "WAIT", conflicts_with = "off")]
    pub max_wait: Option<humantime::Duration>,

    /// One event a request again.
    #[arg(long)]
    pub off: bool,

    #[command(flatten)]
    pub connection: Connection,
}

impl Batches {
    fn changes(&self) -> Map<String, Value> {
        let wait = self
            .max_wait
            .map(|wait| Value::from(wait.as_millis() as u64));
        super::settings::object([
            ("max_events", self.max_events.map(Value::from)),
            ("max_bytes", self.max_bytes.map(Value::from)),
            ("max_wait_ms", wait),
        ])
    }
}

/// Sets what is named and leaves the rest, or shows it.
pub(super) async fn batches(args: Batches) -> anyhow::Result<()> {
    let client = Client::new(&args.connection.client)?;
    let id = args.id.destination(&client).await?;
    let path = format!("{PATH}/{id}/batches");
    let changes = args.changes();
    let set: Settings = if changes.is_empty() && !args.off {
        client.get(&path).await?
    } else {
        let mut body = Map::new();
        if !args.off {
            body = client.get(&path).await?;
        }
        body.extend(changes);
        client.send(Method::PUT, &path, &body).await?
    };
    match args.connection.output {
        Format::Json => output::json(&set),
        Format::Table => output::line(&words(&set)),
    }
}

fn words(set: &Settings) -> String {
    let Some(events) = set.max_events else {
        return "one event a request".to_owned();
    };
    let default = domain::batch::DEFAULT_WAIT.as_millis();
    let wait = set.max_wait_ms.map_or(default, u128::from);
    let bytes = set.max_bytes.unwrap_or(domain::batch::MAX_BYTES);
    format!("up to {events} events or {bytes} bytes a request, after {wait} ms at the latest")
}
