//! Starts against the limit, as SVG.
//!
//! A point says how many attempts started in the period before it, the period of the
//! shortest limit: what a limit of so many in any second, or minute, is about. A
//! destination that may start 60 a minute may start them all at once, and is not over
//! anything then. The drawing is stretched to its place, so it has no letters; those
//! are HTML beside it.

use std::fmt::Write as _;
use std::time::Duration;

use domain::destination::DestinationState;
use domain::ids::DestinationId;
use domain::limit::Period;
use domain::policy::LimitSettings;
use domain::series::Curve;
use domain::time::{Timestamp, micros};
use engine::ports::{LimitHistory, StartsAt};

use super::Pages;
use super::refused::Refused;
use super::words;

/// What is counted in, and how much of it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    period: Period,
    shown: Duration,
    /// From one point to the next; the period is a multiple of it.
    step: Duration,
}

impl Window {
    /// The shortest limit's; a second where nothing limits.
    pub(super) fn of(limits: &LimitSettings) -> Self {
        let mut set = limits.limits().into_iter();
        let shortest = set.find_map(|(period, max)| max.map(|_| period));
        let period = shortest.unwrap_or(Period::Second);
        let (shown, step_millis) = match period {
            Period::Second => (120, 500),
            Period::Minute => (600, 5_000),
            Period::Hour => (3 * 3_600, 120_000),
            Period::Day => (2 * 86_400, 1_800_000),
        };
        Self {
            period,
            shown: Duration::from_secs(shown),
            step: Duration::from_millis(step_millis),
        }
    }

    /// `second`, `minute`, `hour` or `day`.
    pub(super) fn period(self) -> String {
        self.period.to_string()
    }

    /// How long ago it begins.
    pub(super) fn shown(self) -> String {
        words::span(self.shown)
    }

    /// The same in seconds.
    pub(super) fn seconds(self) -> u64 {
        self.shown.as_secs()
    }

    /// What is written beneath it, from left to right.
    pub(super) fn ticks(self) -> [String; 5] {
        let before = [4, 3, 2, 1].map(|quarters| words::span(self.shown / 4 * quarters));
        let [first, second, third, fourth] = before;
        [
            format!("{first} ago"),
            second,
            third,
            fourth,
            "now".to_owned(),
        ]
    }

    /// Whether it is drawn again with each look, as one that moves within seconds is.
    pub(super) fn is_quick(self) -> bool {
        self.period == Period::Second
    }

    /// How many starts these limits allow in it; `None` for any number.
    fn allows(self, settings: &LimitSettings) -> Option<f64> {
        settings.policy().most_in(self.period.duration())
    }
}

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
    /// And half-way.
    pub(super) half: String,
    /// The last point.
    pub(super) rate: u32,
}

/// Changes of limits that are drawn, of the newest: more than there are points.
const MAX_CHANGES: u32 = 250;

/// Up to now, by the store's clock.
pub(super) async fn draw(
    pages: &Pages,
    id: DestinationId,
    (window, now): (Window, Timestamp),
) -> Result<Chart, Refused> {
    let Window { shown, step, .. } = window;
    // The last whole step: a later start would change it yet.
    let step_micros = micros(step);
    let end = now.as_micros().div_euclid(step_micros) * step_micros;
    let end = Timestamp::from_micros(end);
    let since = end - shown;
    let counted = since - window.period.duration();
    let starts = pages.0.overview.starts(id, counted, step).await?;
    let history = (pages.0.catalog)
        .limits_within(id, (since, None), MAX_CHANGES)
        .await?;
    Ok(drawn(&starts, &history, window, (since, end)))
}

fn drawn(
    starts: &[StartsAt],
    history: &[LimitHistory],
    window: Window,
    (since, end): (Timestamp, Timestamp),
) -> Chart {
    let (period, step) = (micros(window.period.duration()), micros(window.step));
    let points: Vec<(i64, u32)> = (since.as_micros()..=end.as_micros())
        .step_by(usize::try_from(step).unwrap_or(1).max(1))
        .map(|at| {
            let from = starts.partition_point(|one| one.from.as_micros() < at - period);
            let until = starts.partition_point(|one| one.from.as_micros() < at);
            let counted = starts.get(from..until).unwrap_or_default();
            (at, counted.iter().map(|one| one.starts).sum())
        })
        .collect();
    let limits = steps(history, window, (since, end));
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
    let scale = |count: f64| format!("{count} a {}", window.period);
    Chart {
        svg,
        top: scale(top),
        half: scale(top / 2.0),
        rate: points.last().map_or(0, |(_, rate)| *rate),
    }
}

/// What was, and what would have been: starts per second of each, over the same
/// slots; and the top of the scale, and half of it.
pub(super) fn compared(each: [&Curve; 2]) -> (String, [String; 2]) {
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
        return Default::default();
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
    (svg, [top, top / 2.0].map(|rate| format!("{rate} a second")))
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
    window: Window,
    (since, end): (Timestamp, Timestamp),
) -> Vec<(i64, Option<f64>)> {
    let mut steps: Vec<(i64, Option<f64>)> = Vec::new();
    for entry in history.iter().filter(|entry| entry.in_force_from <= end) {
        let limit = match entry.state {
            DestinationState::Active => window.allows(&entry.effective),
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
    use domain::limit::Shape;

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
        let window = Window::of(&history[0].effective);
        let chart = drawn(&starts, &history, window, (at(1_000), at(2_500)));
        assert_eq!(chart.rate, 10);
        assert_eq!((&*chart.top, &*chart.half), ("30 a second", "15 a second"));
        // 20/s for 1.25 of 1.5 s, then 10/s.
        assert!(
            chart.svg.contains("M0.0 80.0H800.0M800.0 160.0H960.0"),
            "{}",
            chart.svg
        );
    }

    /// 60 at once, as a limit of 60 a minute allows.
    #[test]
    fn a_limit_is_drawn_in_its_own_period() {
        let at = Timestamp::from_millis;
        let limits = LimitSettings {
            per_minute: Some(60),
            per_day: Some(1_000),
            ..LimitSettings::default()
        };
        let starts = [StartsAt {
            from: at(600_000),
            starts: 60,
        }];
        let history = [LimitHistory {
            in_force_from: at(0),
            effective: limits,
            state: DestinationState::Active,
        }];
        let window = Window::of(&limits);
        assert_eq!((&*window.period(), &*window.shown()), ("minute", "10 min"));
        let until = |end| drawn(&starts, &history, window, (at(540_000), at(end)));
        let chart = until(660_000);
        assert_eq!((chart.rate, &*chart.top), (60, "80 a minute"));
        // The limit is at 60 of 80, and the highest point is on it.
        assert!(chart.svg.contains("d=\"M0.0 60.0H960.0\""), "{}", chart.svg);
        assert!(chart.svg.contains("L960.0 60.0"), "{}", chart.svg);
        assert_eq!(until(665_000).rate, 0, "they are out of the minute");
        let second = LimitSettings {
            per_second: Some(2),
            ..limits
        };
        assert_eq!(Window::of(&second).allows(&second), Some(2.0));
        assert_eq!(window.allows(&second), Some(60.0));
        let bucket = LimitSettings {
            per_second: Some(10),
            burst: Some(50),
            shape: Some(Shape::TokenBucket),
            ..LimitSettings::default()
        };
        assert_eq!(
            Window::of(&bucket).allows(&bucket),
            Some(60.0),
            "a full one, and its refill"
        );
    }
}
