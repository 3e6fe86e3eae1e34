//! `paceline destination statistics`: a day and a month, on a terminal.

use super::{Connection, Named, PATH};
use crate::api::statistics::{Requests, Statistics};
use crate::client::Client;
use crate::output::{self, Format};

const HEADER: [&str; 8] = [
    "OF THE LAST",
    "REQUESTS",
    "SUCCEEDED",
    "SUCCEEDED %",
    "FAILED",
    "429",
    "P50 MS",
    "P99 MS",
];

/// Shows how it has done.
pub(super) async fn show(id: &Named, connection: &Connection) -> anyhow::Result<()> {
    let client = Client::new(&connection.client)?;
    let id = id.destination(&client).await?;
    let found: Statistics = client.get(&format!("{PATH}/{id}/statistics")).await?;
    match connection.output {
        Format::Json => output::json(&found),
        Format::Table => output::line(&table(&found)),
    }
}

fn table(found: &Statistics) -> String {
    let spans = [("24 h", found.last_day), ("30 d", found.last_30_days)];
    let rows = spans.into_iter().map(|(words, one)| row(words, &one));
    output::table(&HEADER, rows).to_string()
}

fn row(words: &str, one: &Requests) -> Vec<String> {
    let millis = |millis: Option<f64>| output::or_dash(millis.map(|ms| format!("{ms:.0}")));
    let percent = one.succeeded_percent;
    vec![
        words.to_owned(),
        output::grouped(one.requests),
        output::grouped(one.succeeded),
        output::or_dash(percent.map(|percent| format!("{percent:.2}"))),
        output::grouped(one.failed),
        output::grouped(one.refused),
        millis(one.p50_ms),
        millis(one.p99_ms),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_a_span_and_nothing_is_a_dash() {
        let nothing = Requests {
            requests: 0,
            succeeded: 0,
            failed: 0,
            refused: 0,
            unknown: 0,
            succeeded_percent: None,
            p50_ms: None,
            p99_ms: None,
        };
        let month = Requests {
            requests: 12_345,
            succeeded: 12_000,
            failed: 300,
            refused: 45,
            succeeded_percent: Some(97.561),
            p50_ms: Some(41.6),
            p99_ms: Some(910.4),
            ..nothing
        };
        let dash = output::or_dash(None::<String>);
        let cells = row("24 h", &nothing);
        assert_eq!(cells, ["24 h", "0", "0", &dash, "0", "0", &dash, &dash]);
        let cells = row("30 d", &month);
        let wanted = [
            "30 d", "12,345", "12,000", "97.56", "300", "45", "42", "910",
        ];
        assert_eq!(cells, wanted);
    }
}
