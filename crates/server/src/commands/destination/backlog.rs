//! `paceline destination retries` and `cancel`: what is tried again, and what
//! is taken back.

use clap::Args;
use http::Method;
use serde_json::{Map, Value, json};

use super::{Connection, Named, PATH, Sure, explain};
use crate::api::cancel::CancelledBacklog;
use crate::api::retries::RetryRules;
use crate::client::Client;
use crate::output::{self, Format};

/// What is set; nothing set is to look.
#[derive(Debug, Clone, Args)]
pub struct Retries {
    /// Its id or its name.
    pub id: Named,

    /// Tries of one event, the first included.
    #[arg(long, value_name = "N")]
    pub max_tries: Option<u32>,

    /// The delay before each retry, such as 5s,1m,1h; the last one repeats.
    #[arg(long, value_name = "DELAY", value_delimiter = ',')]
    pub delay: Vec<humantime::Duration>,

    /// The longest delay before the first retry, such as 5s.
    #[arg(long, value_name = "DELAY")]
    pub base: Option<humantime::Duration>,

    /// How much longer each following delay may be.
    #[arg(long, value_name = "FACTOR")]
    pub factor: Option<f64>,

    /// No delay is longer, such as 24h.
    #[arg(long, value_name = "DELAY")]
    pub cap: Option<humantime::Duration>,

    /// Statuses that are not tried again, such as 400,404.
    #[arg(long, value_name = "STATUS", value_delimiter = ',')]
    pub final_status: Vec<u16>,

    /// How long a request may take to the end of its answer, such as 5s.
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<humantime::Duration>,

    /// How old an event may become before it starts, such as 3d.
    #[arg(long, value_name = "AGE")]
    pub max_age: Option<humantime::Duration>,

    /// Back to the default, before what else is set.
    #[arg(long)]
    pub reset: bool,

    #[command(flatten)]
    pub connection: Connection,
}

impl Retries {
    fn changes(&self) -> Map<String, Value> {
        let ms = |delay: &humantime::Duration| Value::from(delay.as_millis() as u64);
        let list = |delays: &[humantime::Duration]| Value::from_iter(delays.iter().map(ms));
        [
            ("max_tries", self.max_tries.map(Value::from)),
            (
                "delays_ms",
                (!self.delay.is_empty()).then(|| list(&self.delay)),
            ),
            ("base_ms", self.base.as_ref().map(ms)),
            ("factor", self.factor.map(Value::from)),
            ("cap_ms", self.cap.as_ref().map(ms)),
            (
                "final_statuses",
                (!self.final_status.is_empty()).then(|| self.final_status.clone().into()),
            ),
            ("timeout_ms", self.timeout.as_ref().map(ms)),
            ("max_age_ms", self.max_age.as_ref().map(ms)),
        ]
        .into_iter()
        .filter_map(|(field, value)| Some((field.to_owned(), value?)))
        .collect()
    }
}

/// Sets what is named and leaves the rest, or shows it.
pub(super) async fn retries(args: Retries) -> anyhow::Result<()> {
    let client = Client::new(&args.connection.client)?;
    let id = args.id.destination(&client).await?;
    let path = format!("{PATH}/{id}/retries");
    let changes = args.changes();
    let rules: RetryRules = if changes.is_empty() && !args.reset {
        client.get(&path).await?
    } else {
        let mut body = Map::new();
        if !args.reset {
            body = client.get(&path).await?;
        }
        body.extend(changes);
        client.send(Method::PUT, &path, &body).await?
    };
    match args.connection.output {
        Format::Json => output::json(&rules),
        Format::Table => {
            let rows = serde_json::to_value(&rules)?;
            let rows = rows.as_object().cloned().unwrap_or_default();
            let rows = rows.into_iter().map(|(field, value)| {
                let value = match value {
                    Value::Null => "(default)".to_owned(),
                    value => value.to_string(),
                };
                vec![field, value]
            });
            output::line(&output::table(&["RULE", "VALUE"], rows).to_string())
        }
    }
}

/// What is taken back.
#[derive(Debug, Clone, Args)]
pub struct Cancel {
    /// Its id or its name.
    pub id: Named,

    /// Only events of this type.
    #[arg(long = "type", value_name = "TYPE")]
    pub event_type: Option<String>,

    /// Only events accepted before this time, such as 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "TIME")]
    pub accepted_before: Option<String>,

    #[command(flatten)]
    pub sure: Sure,

    #[command(flatten)]
    pub connection: Connection,
}

/// Cancels step by step until nothing is left.
pub(super) async fn cancel(args: Cancel) -> anyhow::Result<()> {
    args.sure.check()?;
    let client = Client::new(&args.connection.client)?;
    let id = args.id.destination(&client).await?;
    let what = async || {
        let (name, waiting) = explain::waiting(&client, id).await?;
        let which = match (&args.event_type, &args.accepted_before) {
            (None, None) => "They are dropped",
            _ => "Those that match are dropped",
        };
        Ok(format!(
            "Cancels what waits at {name}: {waiting} deliveries. {which}, and cannot be replayed."
        ))
    };
    args.sure.ask(what).await?;
    let path = format!("{PATH}/{id}/cancel");
    let mut body = json!({ "type": args.event_type, "accepted_before": args.accepted_before });
    let mut cancelled = 0_u64;
    loop {
        let part: CancelledBacklog = client.send(Method::POST, &path, &body).await?;
        cancelled += u64::from(part.cancelled);
        let Some(next) = part.next else {
            break;
        };
        body["accepted_before"] = part.accepted_before.into();
        body["after"] = next.into();
    }
    match args.connection.output {
        Format::Json => output::json(&json!({ "cancelled": cancelled })),
        Format::Table => output::line(&format!("cancelled {cancelled} attempt(s)")),
    }
}
