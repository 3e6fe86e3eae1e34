//! A destination's health, on a terminal.

use clap::Args;
use humantime::parse_duration;
use serde_json::{Map, Value};

use crate::api::destination_health::Health;
use crate::output::{self, Format};

/// What to change of a breaker.
#[derive(Debug, Clone, Args)]
#[group(required = true, multiple = true)]
pub struct BreakerSettings {
    /// So many failures in a row open it; 0 for never.
    #[arg(long, value_name = "COUNT")]
    pub(super) opens_after_failures: Option<u32>,

    /// If they go on for so long at least, such as `5s`; `0s` for at once.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(super) opens_after_failing_for: Option<std::time::Duration>,

    /// Open for so long, such as `5d`, the destination is disabled; `0s` for
    /// at once.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(super) disable_after: Option<std::time::Duration>,
}

impl BreakerSettings {
    pub(super) fn json(&self) -> Map<String, Value> {
        let failures = self.opens_after_failures.map(Value::from);
        let seconds = |set: Option<std::time::Duration>| set.map(|set| set.as_secs().into());
        [
            ("opens_after_failures", failures),
            (
                "opens_after_failing_for_seconds",
                seconds(self.opens_after_failing_for),
            ),
            ("disable_after_seconds", seconds(self.disable_after)),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
    }
}

pub(super) fn print(health: &Health, format: Format) -> anyhow::Result<()> {
    if format == Format::Json {
        return output::json(health);
    }
    let hold = health.hold.as_ref();
    let row = vec![
        health.state.as_str().to_owned(),
        output::or_dash(health.disabled_for.map(|reason| reason.as_str())),
        health.breaker.state.as_str().to_owned(),
        health.breaker.failures.to_string(),
        health.breaker.failed_probes.to_string(),
        output::or_dash(hold.map(|hold| &hold.until)),
        output::or_dash(hold.map(|hold| hold.reason.as_str())),
    ];
    let header = [
        "STATE",
        "DISABLED FOR",
        "BREAKER",
        "FAILURES",
        "FAILED PROBES",
        "HELD UNTIL",
        "HELD FOR",
    ];
    output::line(&output::table(&header, [row]).to_string())
}
