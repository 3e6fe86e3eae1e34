//! `paceline event resend` and `paceline destination resend`.

use clap::Args;
use domain::attempt::AttemptState;
use domain::search::SoughtStatus;
use http::Method;
use serde_json::json;
use uuid::Uuid;

use super::dead_letters::{print_replays, progress_at};
use super::destination::Connection;
use super::named::Named;
use super::sure::Sure;
use crate::api::replays::{BegunReplays, Replay};
use crate::client::Client;
use crate::output::{self, Format};

/// One event.
#[derive(Debug, Args)]
pub struct OfEvent {
    /// Its id.
    pub id: Uuid,
    /// To this destination, by its id or its name; to all where it has been if absent.
    #[arg(long, value_name = "ID")]
    pub destination: Option<Named>,
    /// Which part of the destination's limit it may use.
    #[arg(long, value_name = "PART")]
    pub share: Option<f64>,
    #[command(flatten)]
    pub sure: Sure,
    #[command(flatten)]
    pub connection: Connection,
}

/// What is sent to a destination again.
#[derive(Debug, Args)]
pub struct ToDestination {
    /// Its id or its name.
    pub id: Named,
    /// Events that were accepted then or later, such as 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "TIME")]
    pub since: String,
    /// Accepted before.
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Of this type.
    #[arg(long = "type", value_name = "TYPE")]
    pub event_type: Option<String>,
    /// An attempt there was answered with this HTTP status, or with one of a class: 500, 5xx.
    #[arg(long, value_name = "STATUS")]
    pub status: Option<SoughtStatus>,
    /// An attempt there ended so, such as failed or expired.
    #[arg(long, value_name = "STATE")]
    pub state: Option<AttemptState>,
    /// A part of its id, or its whole idempotency key.
    #[arg(long, value_name = "TEXT")]
    pub text: Option<String>,
    /// Those too that it has got.
    #[arg(long)]
    pub delivered_too: bool,
    /// Which part of its limit it may use.
    #[arg(long, value_name = "PART")]
    pub share: Option<f64>,
    #[command(flatten)]
    pub sure: Sure,
    #[command(flatten)]
    pub connection: Connection,
}

pub(super) async fn event(args: OfEvent) -> anyhow::Result<()> {
    args.sure.check()?;
    let client = Client::new(&args.connection.client)?;
    let destination = match &args.destination {
        Some(named) => Some(named.destination(&client).await?),
        None => None,
    };
    let (id, to) = (args.id, args.destination.is_some());
    let what = async || {
        let to = match to {
            true => "to this destination",
            false => "to every destination where it has been",
        };
        Ok(format!(
            "Sends the event {id} again {to}, whatever became of it."
        ))
    };
    args.sure.ask(what).await?;
    let path = format!("/v1/events/{id}/resend");
    let body = json!({ "destination_id": destination, "share": args.share });
    let begun: BegunReplays = client.send(Method::POST, &path, &body).await?;
    told(&begun.replays, args.connection.output)
}

pub(super) async fn destination(args: ToDestination) -> anyhow::Result<()> {
    args.sure.check()?;
    let client = Client::new(&args.connection.client)?;
    let id = args.id.destination(&client).await?;
    let (since, delivered_too) = (&args.since, args.delivered_too);
    let what = async || {
        let which = match delivered_too {
            true => "all that was for it, what it has got included",
            false => "what it has not got",
        };
        let so = match (args.status, args.state) {
            (None, None) => "",
            _ => ", as far as an attempt there ended as asked",
        };
        let of = (args.event_type.as_ref()).map_or(String::new(), |of| format!(", of type {of}"));
        let text = args.text.as_ref();
        let text = text.map_or(String::new(), |text| format!(", by the text {text:?}"));
        Ok(format!(
            "Sends to the destination {id} again {which}, since {since}{of}{so}{text}."
        ))
    };
    args.sure.ask(what).await?;
    let path = format!("/v1/destinations/{id}/resend");
    let body = json!({
        "since": args.since,
        "until": args.until,
        "type": args.event_type,
        "status": args.status.map(|status| status.to_string()),
        "state": args.state,
        "text": args.text,
        "only_failed": !args.delivered_too,
        "share": args.share,
    });
    let begun: Replay = client.send(Method::POST, &path, &body).await?;
    if begun.progress.skipped > 0 {
        let skipped = output::grouped(begun.progress.skipped);
        output::aside(&format!(
            "{skipped} events cannot be sent again: their payloads are no longer kept"
        ));
    }
    told(&[begun], args.connection.output)
}

fn told(begun: &[Replay], format: Format) -> anyhow::Result<()> {
    match format {
        Format::Json => output::json(&json!({ "replays": begun })),
        Format::Table => {
            print_replays(begun)?;
            output::aside(&match begun {
                [] => "None of its destinations is there any more: nothing is sent.".to_owned(),
                some => progress_at(some),
            });
            Ok(())
        }
    }
}
