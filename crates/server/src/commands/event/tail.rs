//! `paceline event tail`: events as they come.
//!
//! It asks for what was accepted lately, and prints what it has not seen. Each look goes
//! a few seconds further back than the newest event of all, whether or not that is looked
//! for: requests commit in any order, and what is looked for may be rare.

use std::collections::HashSet;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use clap::Args;
use domain::search::first_at;
use domain::time::Timestamp;
use uuid::Uuid;

use super::list::{Which, cells, page};
use crate::api::events::ListedEvent;
use crate::client::Client;
use crate::commands::destination::Connection;
use crate::output::{self, Format};
use crate::service::MAX_EVENTS_LISTED;
use crate::{edge, signals};

/// Which events. One that gets into the state, or the status, that is asked for is printed
/// if that is within a few seconds of newer ones.
#[derive(Debug, Args)]
pub struct Tail {
    #[command(flatten)]
    pub which: Which,
    /// Those first that were accepted then or later, such as 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "TIME")]
    pub since: Option<DateTime<Utc>>,
    #[command(flatten)]
    pub connection: Connection,
}

/// Between two looks.
const EVERY: Duration = Duration::from_secs(1);

/// So far back a look goes, from the newest that is known.
const BACK: TimeDelta = TimeDelta::seconds(5);

/// So many pages are read in one look.
const MAX_PAGES: u32 = 20;

/// Prints until it is interrupted.
pub(super) async fn run(args: Tail) -> anyhow::Result<()> {
    let client = Client::new(&args.connection.client)?;
    let mut seen = Seen::default();
    let query = args.which.query(&client).await?;
    match args.since {
        // Its looks begin so far before the newest.
        Some(since) => seen.newest = Some(since + BACK),
        // What is there already is not new.
        None => {
            seen.newest = Some(newest(&client, &seen).await?.unwrap_or_else(now));
            look(&client, &query, &mut seen).await?;
        }
    }
    signals::until_interrupted(Box::pin(async {
        output::aside("new events are printed as they come; Ctrl-C ends");
        loop {
            tokio::time::sleep(EVERY).await;
            for event in look(&client, &query, &mut seen).await? {
                match args.connection.output {
                    Format::Json => output::line(&serde_json::to_string(&event)?)?,
                    Format::Table => output::line(&cells(&event).join("  "))?,
                }
            }
        }
    }))
    .await
}

/// What is known of what has come.
#[derive(Debug, Default)]
struct Seen {
    /// When the newest of all was accepted.
    newest: Option<DateTime<Utc>>,
    /// Those that were there when it was looked last.
    ids: HashSet<Uuid>,
}

impl Seen {
    /// From when on the next look reads.
    fn since(&self) -> Option<String> {
        let since = self.newest? - BACK;
        Some(since.to_rfc3339_opts(SecondsFormat::Micros, true))
    }

    /// Whether an id is so old that none of its time is looked for.
    fn is_long_past(&self, id: Uuid) -> bool {
        let floor = self.newest.map(|newest| newest - BACK - BACK);
        let floor = floor.map(|at| first_at(Timestamp::from_micros(at.timestamp_micros())));
        floor.is_some_and(|floor| id < floor.0)
    }

    /// Those of a look that are new, the oldest first.
    fn see(&mut self, looked_at: &[ListedEvent]) -> Vec<ListedEvent> {
        let is_new = |event: &&ListedEvent| !self.ids.contains(&event.id);
        let new = looked_at.iter().rev().filter(is_new).cloned().collect();
        self.newest = self.newest.max(accepted(looked_at));
        self.ids = looked_at.iter().map(|event| event.id).collect();
        new
    }

    /// All was looked at that was accepted until then, whatever was found.
    fn looked_until(&mut self, newest: Option<DateTime<Utc>>) {
        self.newest = self.newest.max(newest);
    }
}

/// When the newest of them was accepted.
fn accepted(events: &[ListedEvent]) -> Option<DateTime<Utc>> {
    let times = events
        .iter()
        .filter_map(|event| event.created_at.parse().ok());
    times.max()
}

/// When the newest event of all was accepted, as far back as a look goes.
async fn newest(client: &Client, seen: &Seen) -> anyhow::Result<Option<DateTime<Utc>>> {
    let since = seen.since().map(|since| ("since", since));
    let all: Vec<(&'static str, String)> = since.into_iter().collect();
    let there = page(client, &all, (None, 1)).await?;
    Ok(accepted(&there.events))
}

/// By the clock of this machine.
fn now() -> DateTime<Utc> {
    DateTime::from_timestamp_micros(edge::now().as_micros()).unwrap_or_default()
}

async fn look(
    client: &Client,
    query: &[(&'static str, String)],
    seen: &mut Seen,
) -> anyhow::Result<Vec<ListedEvent>> {
    // Before the look, so that it has looked at all that is older; where all is looked for,
    // it says so itself.
    let newest_of_all = match query.is_empty() {
        true => None,
        false => newest(client, seen).await?,
    };
    let mut query = query.to_vec();
    query.extend(seen.since().map(|since| ("since", since)));
    let (mut found, mut before, mut pages) = (Vec::new(), None, 0);
    loop {
        let page = page(client, &query, (before, MAX_EVENTS_LISTED as usize)).await?;
        found.extend(page.events);
        before = page.next;
        pages += 1;
        if before.is_none_or(|next| seen.is_long_past(next)) {
            break;
        }
        if pages == MAX_PAGES {
            output::aside("more came than are printed: only the newest are");
            break;
        }
    }
    let new = seen.see(&found);
    seen.looked_until(newest_of_all);
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(number: u128, second: u32) -> ListedEvent {
        ListedEvent {
            id: Uuid::from_u128(number),
            event_type: None,
            payload_bytes: 1,
            urgent: false,
            created_at: format!("2026-01-31T12:00:{second:02}.000000Z"),
            attempts: 0,
            destinations: 0,
            destination_id: None,
            due_at: None,
            expires_at: None,
            last_state: None,
        }
    }

    #[test]
    fn a_look_ends_where_ids_are_long_past() {
        let mut seen = Seen::default();
        assert!(!seen.is_long_past(Uuid::nil()), "nothing is known yet");
        seen.see(&[event(5, 30)]);
        let of = |second: i64| {
            let noon = "2026-01-31T12:00:00Z".parse::<DateTime<Utc>>().unwrap();
            let at = noon + TimeDelta::seconds(second);
            first_at(Timestamp::from_micros(at.timestamp_micros())).0
        };
        assert!(seen.is_long_past(of(19)) && !seen.is_long_past(of(20)));
    }

    #[test]
    fn each_event_is_new_once_though_it_commits_late() {
        let mut seen = Seen::default();
        assert_eq!(seen.since(), None);
        seen.see(&[event(5, 10)]);
        assert_eq!(seen.since().unwrap(), "2026-01-31T12:00:05.000000Z");
        let new = |events: &[ListedEvent]| {
            events
                .iter()
                .map(|one| one.id.as_u128())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            new(&seen.see(&[event(7, 12), event(6, 11), event(5, 10)])),
            [6, 7]
        );
        // The fourth was accepted before them, and is there only now.
        let looked_at = [event(7, 12), event(6, 11), event(5, 10), event(4, 9)];
        assert_eq!(new(&seen.see(&looked_at)), [4]);
        assert_eq!(seen.since().unwrap(), "2026-01-31T12:00:07.000000Z");
        assert_eq!(new(&seen.see(&looked_at)), []);
        // Nothing came for a while.
        assert_eq!(new(&seen.see(&[event(7, 12)])), []);
        assert_eq!(new(&seen.see(&[])), []);
    }

    #[test]
    fn the_newest_is_so_by_when_it_was_accepted() {
        let noon = |second: i64| {
            let noon = "2026-01-31T12:00:00Z".parse::<DateTime<Utc>>().unwrap();
            noon + TimeDelta::seconds(second)
        };
        assert_eq!(accepted(&[]), None);
        // An id may be older than others and its event younger: it was in an outbox.
        assert_eq!(accepted(&[event(7, 12), event(5, 30)]), Some(noon(30)));
        let mut seen = Seen::default();
        seen.see(&[event(5, 10)]);
        // What is older than what is known takes nothing back.
        seen.see(&[event(4, 3)]);
        assert_eq!(seen.newest, Some(noon(10)));
    }

    #[test]
    fn what_is_not_looked_for_moves_a_look_on() {
        let mut seen = Seen::default();
        seen.see(&[event(5, 10)]);
        seen.looked_until(Some("2026-01-31T12:00:40Z".parse().unwrap()));
        assert_eq!(seen.since().unwrap(), "2026-01-31T12:00:35.000000Z");
        seen.looked_until(None);
        seen.see(&[]);
        assert_eq!(seen.since().unwrap(), "2026-01-31T12:00:35.000000Z");
    }
}
