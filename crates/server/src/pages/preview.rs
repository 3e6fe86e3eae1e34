//! What other limits would have done: what the API and `paceline plan` say, on
//! a page.

use std::time::Duration;

use domain::explain::Unknown;
use domain::policy::LimitSettings;
use domain::what_if::Summary;
use engine::ports::Destination;

use super::refused::Refused;
use super::visitor::Fields;
use super::words::{self, NONE};
use super::{change, chart};
use crate::service::{LimitsChange, Plan, PlanDraft, Service};

/// How much of the past is replayed: seconds, and words.
pub(super) type Last = (&'static str, &'static str);

/// What the form offers. The default is that of the API.
pub(super) const LASTS: [Last; 4] = [
    ("900", "15 minutes"),
    ("3600", "hour"),
    (DEFAULT, "6 hours"),
    ("86400", "day"),
];

/// [`crate::service::plan::DEFAULT_LAST`], in seconds.
pub(super) const DEFAULT: &str = "21600";

/// What was, beside what would have been.
pub(super) struct Preview {
    /// What the form asks for, as the destination's own.
    pub(super) settings: LimitSettings,
    /// What would hold, in words.
    pub(super) words: String,
    /// As it was, as proposed.
    pub(super) rows: Vec<(&'static str, String, String)>,
    pub(super) svg: String,
    /// At the top of its scale, and half-way.
    pub(super) scale: [String; 2],
    pub(super) arrivals: String,
    /// Seconds, as the form has them, and words.
    pub(super) last: &'static str,
    pub(super) last_words: &'static str,
    /// Above the ceiling, so it can only be asked for.
    pub(super) is_above: bool,
    /// What the form said, to send it again.
    pub(super) fields: Vec<(&'static str, String)>,
}

pub(super) async fn of(
    service: &Service,
    destination: &Destination,
    (limits, is_above): (LimitsChange, bool),
    fields: &Fields,
) -> Result<Preview, Refused> {
    let asked = fields.get("last").unwrap_or(DEFAULT);
    let last = LASTS.into_iter().find(|(seconds, _)| *seconds == asked);
    let (last, last_words) = last.ok_or_else(|| Refused::invalid("last: no such time"))?;
    let seconds = last.parse().unwrap_or_default();
    let draft = PlanDraft {
        change: limits,
        last: Duration::from_secs(seconds),
    };
    let (turn, _wanted) = service.report().await?;
    let plan = service.plan(destination.id, draft, &turn).await?;
    let settings = limits.applied_to(destination.limits);
    let (svg, scale) = chart::compared([&plan.actual_curve, &plan.replayed_curve]);
    Ok(Preview {
        settings,
        words: proposed(&settings, &plan.proposed),
        rows: rows(&plan),
        svg,
        scale,
        arrivals: words::large(plan.replayed.starts + plan.replayed.waiting),
        last,
        last_words,
        is_above,
        fields: change::again(fields),
    })
}

/// Without limits of its own it has its tier's, which may have none.
fn proposed(own: &LimitSettings, holds: &LimitSettings) -> String {
    let words = words::limits(holds);
    match (own.inherits(), holds.inherits()) {
        (false, _) => words,
        (true, false) => format!("what its tier gives, {words}"),
        (true, true) => format!("{words}: its tier has none either"),
    }
}

fn rows(plan: &Plan) -> Vec<(&'static str, String, String)> {
    let row = |name, words: &dyn Fn(&Summary) -> String| {
        (name, words(&plan.actual), words(&plan.replayed))
    };
    let wait = |wait: Option<Duration>| wait.map_or(NONE.to_owned(), words::span);
    let number = |number: Option<u64>| number.map_or("unknown".to_owned(), words::large);
    let drains = |backlog: u64, time: Result<Duration, Unknown>| match (backlog, time) {
        (0, _) => NONE.to_owned(),
        (_, Ok(time)) => words::span(time),
        (_, Err(why)) => format!("unknown: {}", why.words()),
    };
    vec![
        row("starts", &|one| words::large(one.starts)),
        row("all sent after", &|one| {
            wait(one.drained_at.map(|at| at.since(plan.since)))
        }),
        row("median wait", &|one| wait(one.wait_p50)),
        row("p99 wait", &|one| wait(one.wait_p99)),
        row("largest backlog", &|one| words::large(one.peak_backlog)),
        (
            "answered 429",
            words::large(plan.refused),
            number(plan.expected_refused),
        ),
        (
            "today's backlog drains in",
            NONE.to_owned(),
            drains(plan.backlog_now, plan.backlog_drains_in),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::plan::DEFAULT_LAST;

    #[test]
    fn what_it_inherits_is_said() {
        let ten = LimitSettings {
            per_second: Some(10),
            ..LimitSettings::default()
        };
        let none = LimitSettings::default();
        assert_eq!(proposed(&ten, &ten), "10/s");
        assert_eq!(proposed(&none, &ten), "what its tier gives, 10/s");
        assert_eq!(proposed(&none, &none), "no limit: its tier has none either");
    }

    #[test]
    fn the_default_is_that_of_the_api() {
        assert_eq!(DEFAULT.parse(), Ok(DEFAULT_LAST.as_secs()));
    }
}
