//! `paceline event resend` and `paceline destination resend`.

use clap::Args;
use domain::attempt::AttemptState;
use domain::replay::DEFAULT_SHARE;
use domain::search::SoughtStatus;
use http::Method;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::dead_letters::{begin, print_replays, progress_at, takes};
use super::destination::Connection;
use super::named::Named;
use super::plan::duration;
use super::sure::Sure;
use crate::api::replays::{BegunReplays, Replay};
use crate::api::resend::ResendPreview;
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

/// What is sent to a destination again, or to all of them.
#[derive(Debug, Args)]
pub struct ToDestination {
    /// Its id or its name; without it, say --all-destinations.
    #[arg(required_unless_present = "all_destinations")]
    pub id: Option<Named>,
    /// To all destinations that are not disabled: a replay for each where something matches.
    #[arg(long, conflicts_with = "id")]
    pub all_destinations: bool,
    /// To all destinations after this one in the order of their ids: where another command
    /// stopped.
    #[arg(
        long,
        value_name = "ID",
        requires = "all_destinations",
        conflicts_with = "dry_run"
    )]
    pub after: Option<Uuid>,
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
    /// Say how many deliveries that is, and for about how long, and send nothing.
    #[arg(long)]
    pub dry_run: bool,
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
    let instead = "None of its destinations is there any more: nothing is sent.";
    told(&begun.replays, instead, args.connection.output)
}

impl ToDestination {
    /// As the API takes it.
    fn body(&self) -> Map<String, Value> {
        let status = self.status.map(|status| status.to_string());
        [
            ("since", json!(self.since)),
            ("until", json!(self.until)),
            ("type", json!(self.event_type)),
            ("status", json!(status)),
            ("state", json!(self.state)),
            ("text", json!(self.text)),
            ("only_failed", json!(!self.delivered_too)),
            ("share", json!(self.share)),
        ]
        .into_iter()
        .map(|(field, value)| (field.to_owned(), value))
        .collect()
    }

    /// What it does, in words.
    fn does(&self, to: Option<Uuid>) -> String {
        let to = match (to, self.after) {
            (Some(id), _) => format!("the destination {id}"),
            (None, Some(after)) => format!("every destination after {after}"),
            (None, None) => "every destination".to_owned(),
        };
        let which = match self.delivered_too {
            true => "all that was for it, what it has got included",
            false => "what it has not got",
        };
        let so = match (self.status, self.state) {
            (None, None) => "",
            _ => ", as far as an attempt there ended as asked",
        };
        let of = (self.event_type.as_ref()).map_or(String::new(), |of| format!(", of type {of}"));
        let text = self.text.as_ref();
        let text = text.map_or(String::new(), |text| format!(", by the text {text:?}"));
        let since = &self.since;
        format!("Sends to {to} again {which}, since {since}{of}{so}{text}.")
    }
}

pub(super) async fn destination(args: ToDestination) -> anyhow::Result<()> {
    if !args.dry_run {
        args.sure.check()?;
    }
    let client = Client::new(&args.connection.client)?;
    let to = match &args.id {
        Some(named) => Some(named.destination(&client).await?),
        None => None,
    };
    let path = to.map_or("/v1/events/resend".to_owned(), |id| {
        format!("/v1/destinations/{id}/resend")
    });
    let (body, format) = (args.body(), args.connection.output);
    let share = args.share.unwrap_or(DEFAULT_SHARE);
    if args.dry_run {
        let found = preview(&client, &path, &body).await?;
        return previewed(&found, share, format);
    }
    let what = async || {
        if args.after.is_some() {
            return Ok(args.does(to));
        }
        let found = preview(&client, &path, &body).await;
        // Who may not read may resend all the same.
        let much = found.map_or_else(
            |problem| format!("How many deliveries those are is not known: {problem:#}."),
            |found| in_words(&found, share),
        );
        Ok(format!("{} {much}", args.does(to)))
    };
    args.sure.ask(what).await?;
    let begun: Vec<Replay> = match to {
        Some(_) => vec![client.send(Method::POST, &path, &body).await?],
        None => {
            let after = args.after.map(|after| ("after".to_owned(), json!(after)));
            let body = body.into_iter().chain(after).collect();
            begin(&client, &path, body, format).await?
        }
    };
    let skipped: u64 = begun.iter().map(|one| one.progress.skipped).sum();
    if skipped > 0 {
        let skipped = output::grouped(skipped);
        output::aside(&format!(
            "{skipped} events cannot be sent again: their payloads are no longer kept"
        ));
    }
    told(&begun, "Nothing matches: nothing is sent.", format)
}

/// What a resend by this route would be of.
async fn preview(
    client: &Client,
    path: &str,
    body: &Map<String, Value>,
) -> anyhow::Result<ResendPreview> {
    let path = format!("{path}/preview");
    client.send(Method::POST, &path, body).await
}

fn previewed(found: &ResendPreview, share: f64, format: Format) -> anyhow::Result<()> {
    if format == Format::Json {
        return output::json(found);
    }
    let rows = found.destinations.iter().map(|one| {
        vec![
            one.destination_id.to_string(),
            one.name.clone(),
            output::grouped(one.deliveries),
            output::or_dash(one.takes_seconds.map(duration)),
        ]
    });
    let header = ["DESTINATION", "NAME", "DELIVERIES", "TAKES ABOUT"];
    output::line(&output::table(&header, rows).to_string())?;
    output::aside(&in_words(found, share));
    Ok(())
}

fn in_words(preview: &ResendPreview, share: f64) -> String {
    let count = output::grouped(preview.deliveries);
    let least = if preview.is_all { "" } else { "at least " };
    // One that is named is among them where it gets none.
    let some = preview.destinations.iter().filter(|one| one.deliveries > 0);
    let destinations = some.count() as u64 + preview.further_destinations;
    let takes = takes(least, preview.takes_seconds);
    format!(
        "That is {least}{count} deliveries to {destinations} destination(s) at {share} of their \
         limits, {takes}."
    )
}

/// What has begun; or what there was `instead`.
fn told(begun: &[Replay], instead: &str, format: Format) -> anyhow::Result<()> {
    match format {
        Format::Json => output::json(&json!({ "replays": begun })),
        Format::Table => {
            print_replays(begun)?;
            output::aside(&match begun {
                [] => instead.to_owned(),
                some => progress_at(some),
            });
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_all_counted_is_at_least_so_much_and_takes_at_least_so_long() {
        let preview = |is_all| ResendPreview {
            deliveries: 10_000,
            is_all,
            takes_seconds: Some(61.0),
            destinations: Vec::new(),
            further_destinations: 3,
        };
        let said = in_words(&preview(false), 0.5);
        assert!(said.contains("at least 10,000 deliveries"), "{said}");
        assert!(said.contains("which takes at least about"), "{said}");
        let said = in_words(&preview(true), 0.5);
        assert!(!said.contains("at least"), "{said}");
    }
}
