//! Starts per second against the limit, as SVG.
//!
//! A point every half second says how many attempts started in the second
//! before it: what a limit of so many in any second is about. The drawing is
//! stretched to its place, so it has no letters; those are HTML beside it.

use std::fmt::Write as _;
use std::time::Duration;

use domain::destination::DestinationState;
use domain::ids::DestinationId;
use domain::policy::{LimitSettings, Rate};
use domain::series::Curve;
use domain::time::Timestamp;
use engine::ports::{LimitHistory, StartsAt};

use super::Pages;
use super::refused::Refused;

/// What it shows.
pub(super) const SHOWN: Duration = Duration::from_secs(120);

const STEP: Duration = Duration::from_millis(500);
const STEP_MICROS: i64 = 500_000;

/// The drawing's size, in its own units.
pub(super) const WIDTH: f64 = 960.0;
pub(super) const HEIGHT: f64 = 240.0;

/// A drawing, and what is written beside it.
#[derive(Debug, Clone)]
pub(super) struct Chart {
    /// The inside of the SVG.
    pub(super) svg: String,
    /// At the top of its scale.
    pub(super) top: String,
    /// The last point.
    pub(super) rate: u32,
}

/// Changes of limits that are drawn, of the newest: more than there are points.
const MAX_CHANGES: usize = 1_000;

/// Of the last two minutes of the store's clock.
pub(super) async fn draw(pages: &Pages, id: DestinationId) -> Result<Chart, Refused> {
    let now = pages.0.overview.now().await?;
    // The last whole step: a later start would change it yet.
    let end = now.as_micros().div_euclid(STEP_MICROS) * STEP_MICROS;
    let end = Timestamp::from_micros(end);
    let since = end - SHOWN;
    let starts = pages.0.overview.starts(id, since - STEP * 2, STEP).await?;
    let history = (pages.0.catalog)
        .recent_limits(id, since, MAX_CHANGES)
        .await?;
    Ok(drawn(&starts, &history, (since, end)))
}

fn drawn(
    starts: &[StartsAt],
    history: &[LimitHistory],
    (since, end): (Timestamp, Timestamp),
) -> Chart {
    let in_step = |from: i64| {
        let at = starts.binary_search_by_key(&from, |one| one.from.as_micros());
        at.ok()
            .and_then(|at| starts.get(at))
            .map_or(0, |one| one.starts)
    };
    let points: Vec<(i64, u32)> = (since.as_micros()..=end.as_micros())
        .step_by(STEP_MICROS.unsigned_abs() as usize)
        .map(|at| {
            (
                at,
                in_step(at - STEP_MICROS) + in_step(at - STEP_MICROS * 2),
            )
        })
        .collect();
    let limits = steps(history, (since, end));
    let highest = points.iter().map(|(_, rate)| f64::from(*rate));
    let highest = highest.chain(limits.iter().filter_map(|(_, limit)| *limit));
    let top = nice(highest.fold(1.0, f64::max) * 1.1);
    let length = end.since(since).as_micros() as f64;
    let x = |at: i64| (at - since.as_micros()) as f64 / length * WIDTH;
    let y = |rate: f64| HEIGHT - rate / top * HEIGHT;

    let line = path(
        points
            .iter()
            .map(|(at, rate)| (x(*at), y(f64::from(*rate)))),
    );
    let mut limit_line = String::new();
    for (i, (at, limit)) in limits.iter().enumerate() {
        let until = limits.get(i + 1).map_or(end.as_micros(), |(next, _)| *next);
        if let Some(limit) = limit {
            let _ = write!(
                limit_line,
                "M{:.1} {:.1}H{:.1}",
                x(*at),
                y(*limit),
                x(until)
            );
        }
    }
    let mut svg = String::new();
    for quarter in 1..4 {
        let at = HEIGHT * f64::from(quarter) / 4.0;
        let _ = write!(svg, r#"<path class="grid" d="M0 {at}H{WIDTH}"/>"#);
    }
    let _ = write!(
        svg,
        r#"<path class="area" d="{line}V{HEIGHT}H0Z"/><path class="line" d="{line}"/><path class="limit" d="{limit_line}"/>"#
    );
    Chart {
        svg,
        top: format!("{top:.0}/s"),
        rate: points.last().map_or(0, |(_, rate)| *rate),
    }
}

/// What was, and what would have been: starts per second of each, over the same
/// slots.
pub(super) fn compared(each: [&Curve; 2]) -> String {
    let rates = each.map(|curve| {
        let seconds = curve.step.as_secs_f64();
        let slots = curve.slots.iter();
        slots
            .map(|slot| slot.starts as f64 / seconds)
            .collect::<Vec<_>>()
    });
    let all = rates.iter().flatten().copied();
    let highest = all.fold(0.0, f64::max);
    if highest <= 0.0 {
        return String::new();
    }
    let top = nice(highest * 1.1);
    let mut svg = String::new();
    for (class, rates) in ["before", "line"].into_iter().zip(&rates) {
        let last = rates.len().saturating_sub(1).max(1) as f64;
        let points = rates.iter().enumerate();
        let points = points.map(|(i, rate)| {
            let (x, y) = (i as f64 / last * WIDTH, HEIGHT - rate / top * HEIGHT);
            (x, y)
        });
        let _ = write!(svg, r#"<path class="{class}" d="{}"/>"#, path(points));
    }
    svg
}

/// A line through these points.
fn path(points: impl Iterator<Item = (f64, f64)>) -> String {
    let mut line = String::new();
    for (i, (x, y)) in points.enumerate() {
        let pen = if i == 0 { 'M' } else { 'L' };
        let _ = write!(line, "{pen}{x:.1} {y:.1}");
    }
    line
}

/// From when on which limit was in force, within what is shown.
fn steps(
    history: &[LimitHistory],
    (since, end): (Timestamp, Timestamp),
) -> Vec<(i64, Option<f64>)> {
    let mut steps: Vec<(i64, Option<f64>)> = Vec::new();
    for entry in history.iter().filter(|entry| entry.in_force_from <= end) {
        let limit = match entry.state {
            DestinationState::Active => per_second(&entry.effective),
            DestinationState::Paused | DestinationState::Disabled => Some(0.0),
        };
        let from = entry.in_force_from.max(since).as_micros();
        // What was over before all this is not shown.
        if steps.last().is_some_and(|(last, _)| *last == from) {
            steps.pop();
        }
        steps.push((from, limit));
    }
    steps
}

/// The line of a limit: its second's, or what it allows in the long run.
fn per_second(settings: &LimitSettings) -> Option<f64> {
    match (settings.policy().rate, settings.per_second) {
        (Rate::Unlimited, _) => None,
        (Rate::Paused, _) => Some(0.0),
        (Rate::Limited(_), Some(second)) => Some(f64::from(second)),
        (Rate::Limited(limited), None) => Some(limited.per_second()),
    }
}

/// The next of 1, 2, 5, 10, 20, 50 …
pub(super) fn nice(number: f64) -> f64 {
    let magnitude = 10_f64.powf(number.log10().floor());
    let steps = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    let found = steps
        .into_iter()
        .map(|step| step * magnitude)
        .find(|step| *step >= number);
    found.unwrap_or(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_the_second_before_it_and_the_limit_steps_where_it_changed() {
        let at = Timestamp::from_millis;
        let starts = [1_000, 1_500, 2_000].map(|from| StartsAt {
            from: at(from),
            starts: 5,
        });
        let entry = |from, limit| LimitHistory {
            in_force_from: at(from),
            effective: LimitSettings {
                per_second: Some(limit),
                ..LimitSettings::default()
            },
            state: DestinationState::Active,
        };
        let history = [entry(0, 20), entry(2_250, 10)];
        let chart = drawn(&starts, &history, (at(1_000), at(2_500)));
        assert_eq!(chart.rate, 10);
        assert_eq!(chart.top, "30/s");
        // 20/s for 1.25 of 1.5 s, then 10/s.
        assert!(
            chart.svg.contains("M0.0 80.0H800.0M800.0 160.0H960.0"),
            "{}",
            chart.svg
        );
    }
}
