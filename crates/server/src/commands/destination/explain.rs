//! `paceline destination explain` and `standings`: where destinations stand, on a
//! terminal.

use chrono::DateTime;
use uuid::Uuid;

use super::{Connection, Named, PATH};
use crate::api::fleet::FleetStanding;
use crate::api::standings::{Outcomes, Standing, Standings};
use crate::client::Client;
use crate::commands::plan::duration;
use crate::output::{self, Format};
use crate::service::standing::COUNTED;

/// The most rows asked for at once.
const PAGE: usize = 200;

/// Says why the next attempt is not going out now.
pub(super) async fn explain(id: &Named, connection: &Connection) -> anyhow::Result<()> {
    let client = Client::new(&connection.client)?;
    let id = id.destination(&client).await?;
    let found: Standing = client.get(&format!("{PATH}/{id}/explanation")).await?;
    if connection.output == Format::Json {
        return output::json(&found);
    }
    output::line(&found.explanation)?;
    if let Some(why) = &found.drain_unknown {
        output::line(&format!("How long the backlog takes is unknown: {why}."))?;
    }
    output::line(&table(&[found]))
}

/// What a destination is called, and how many deliveries wait there, in words.
pub(super) async fn waiting(client: &Client, id: Uuid) -> anyhow::Result<(String, String)> {
    let found: Standing = client.get(&format!("{PATH}/{id}/explanation")).await?;
    let mut waiting = output::grouped(found.backlog.into());
    if found.backlog >= COUNTED {
        waiting = format!("{waiting} or more");
    }
    let name = match found.name.is_empty() {
        true => id.to_string(),
        false => found.name,
    };
    Ok((name, waiting))
}

/// All of them, the longest backlog first.
pub(super) async fn list(connection: &Connection) -> anyhow::Result<()> {
    let client = Client::new(&connection.client)?;
    let mut found = all(&client).await?;
    if connection.output == Format::Json {
        return output::json(&serde_json::json!({ "standings": found }));
    }
    found.sort_by_key(|one| std::cmp::Reverse(one.backlog));
    output::line(&table(&found))
}

/// Page by page.
pub(in crate::commands) async fn all(client: &Client) -> anyhow::Result<Vec<Standing>> {
    let mut all = Vec::new();
    let mut after = String::new();
    loop {
        let path = format!("/v1/standings?limit={PAGE}{after}");
        let page: Standings = client.get(&path).await?;
        all.extend(page.standings);
        match page.next {
            Some(next) => after = format!("&after={next}"),
            None => return Ok(all),
        }
    }
}

/// Of the last minutes, or of what was sent before, where nothing was since; of the last
/// hour; and of the last day.
fn failed(one: &Standing) -> String {
    let lately = match (one.answered_lately, one.failures_in_a_row) {
        (0, 0) => output::or_dash(None::<String>),
        (0, in_a_row) => format!("last {in_a_row}"),
        (answered, _) => format!("{} of {answered}", one.failed_lately),
    };
    let percent = |of: &Outcomes| {
        let percent = of.failed_percent.map(|percent| format!("{percent:.0} %"));
        output::or_dash(percent)
    };
    let (hour, day) = (percent(&one.last_hour), percent(&one.last_day));
    format!("{lately} / {hour} / {day}")
}

/// One line each.
pub(in crate::commands) fn table(standings: &[Standing]) -> String {
    let rows = standings.iter().map(row);
    output::table(&HEADER, rows).to_string()
}

/// The same of several tenants' destinations.
pub(in crate::commands) fn table_of_all(standings: &[FleetStanding]) -> String {
    let rows = standings.iter().map(|one| {
        let mut cells = row(&one.standing);
        cells.insert(1, one.tenant_name.clone());
        cells
    });
    let mut header = HEADER.to_vec();
    header.insert(1, "TENANT");
    output::table(&header, rows).to_string()
}

fn row(one: &Standing) -> Vec<String> {
    let label = match one.name.is_empty() {
        true => one.destination_id.to_string(),
        false => output::shortened(&one.name, NAME),
    };
    vec![
        label,
        one.limit.clone(),
        one.starts_in_last_second.to_string(),
        one.backlog.to_string(),
        output::or_dash(one.drains_in_seconds.map(duration)),
        failed(one),
        one.in_flight.to_string(),
        one.reason.as_str().to_owned(),
        output::or_dash(one.next_at.as_ref().map(|next| until(&one.at, next))),
    ]
}

/// From one time to the other, as `1m 12s`; the other itself where they are no times.
fn until(at: &str, next: &str) -> String {
    let parsed = |text| DateTime::parse_from_rfc3339(text).ok();
    match (parsed(at), parsed(next)) {
        (Some(at), Some(next)) => {
            let millis = (next - at).num_milliseconds().max(0);
            duration(millis as f64 / 1_000.0)
        }
        _ => next.to_owned(),
    }
}

/// Letters of a name in a table: a long one pushes what counts out of sight.
const NAME: usize = 40;

const HEADER: [&str; 9] = [
    "DESTINATION",
    "LIMIT",
    "STARTS/S",
    "BACKLOG",
    "DRAINS IN",
    "FAILED 5M / 1H / 24H",
    "IN FLIGHT",
    "REASON",
    "NEXT IN",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_time_is_said_as_how_long_that_is() {
        let at = "2026-01-31T12:00:00.000000Z";
        assert_eq!(until(at, "2026-01-31T12:01:12.400000Z"), "1m 12s");
        assert_eq!(until(at, "2026-01-31T12:00:00.250000Z"), "0.25s");
        assert_eq!(until(at, "2026-01-31T11:00:00.000000Z"), "0s", "it is due");
    }

    #[test]
    fn a_long_name_leaves_room_for_what_counts() {
        let long = output::shortened(&"ß".repeat(50), NAME);
        assert_eq!(long.chars().count(), NAME);
        assert!(long.ends_with('…'));
        assert_eq!(output::shortened("shop", NAME), "shop");
    }
}
