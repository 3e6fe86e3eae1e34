//! What came of requests over time, as bars: delivered, failed, refused.
//!
//! A quarter of an hour is read from the ledger; what is longer from the tallies, which
//! are a few rows whatever was sent. Each bar says its numbers: to the pointer, to the
//! arrow keys, and in the table beneath the drawing.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use domain::health::{Slot, Tally};
use domain::ids::DestinationId;
use domain::time::{Timestamp, micros};
use engine::ports::MAX_CHARTED_ANSWERS;

use super::Pages;
use super::chart::{HEIGHT, WIDTH, nice};
use super::refused::Refused;
use super::words;

/// How much is shown, in bars of so long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Over {
    /// In the address.
    pub(super) word: &'static str,
    shown: Duration,
    bar: Duration,
    /// What it is read from; the ledger without one.
    slot: Option<Slot>,
    /// From one time beneath the drawing to the next.
    tick: Duration,
}

const fn over(word: &'static str, [shown, bar, tick]: [u64; 3], slot: Option<Slot>) -> Over {
    Over {
        word,
        shown: Duration::from_secs(shown),
        bar: Duration::from_secs(bar),
        slot,
        tick: Duration::from_secs(tick),
    }
}

/// All that can be chosen.
pub(super) const ALL: [Over; 6] = [
    over("15m", [900, 15, 180], None),
    over("1h", [3_600, 300, 900], Some(Slot::Minutes)),
    over("6h", [6 * 3_600, 300, 3_600], Some(Slot::Minutes)),
    over("24h", [86_400, 900, 4 * 3_600], Some(Slot::Minutes)),
    over("7d", [7 * 86_400, 3_600, 86_400], Some(Slot::Hour)),
    over("30d", [30 * 86_400, 86_400, 5 * 86_400], Some(Slot::Day)),
];

impl Over {
    /// The one of this word; an hour for any other.
    pub(super) fn of(word: &str) -> Self {
        let found = ALL.into_iter().find(|one| one.word == word);
        found.unwrap_or(ALL[1])
    }

    /// `15 min`, `1 h`, `7 d`.
    pub(super) fn words(&self) -> String {
        words::span(self.shown)
    }
}

/// A drawing, and what is written beside it.
#[derive(Debug, Clone)]
pub(super) struct Drawn {
    pub(super) over: Over,
    /// The inside of the SVG.
    pub(super) svg: String,
    /// At the top of its scale, and half-way.
    pub(super) scale: [String; 2],
    /// Times, from left to right: the part of the width, in percent, and the words.
    pub(super) ticks: Vec<(f64, String)>,
    /// Bars that have any requests, the newest first.
    pub(super) rows: Vec<Bar>,
    /// All together.
    pub(super) sum: String,
}

/// One bar, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bar {
    pub(super) from: String,
    pub(super) delivered: String,
    pub(super) failed: String,
    pub(super) refused: String,
    pub(super) unknown: String,
}

/// Up to now, by the store's clock.
pub(super) async fn draw(
    pages: &Pages,
    id: DestinationId,
    (over, now): (Over, Timestamp),
) -> Result<Drawn, Refused> {
    // The bar that is not over is the last.
    let bar = micros(over.bar);
    let end = Timestamp::from_micros((now.as_micros().div_euclid(bar) + 1) * bar);
    let since = end - over.shown;
    let mut bars: BTreeMap<Timestamp, Tally> = BTreeMap::new();
    let start_of = |at: Timestamp| Timestamp::from_micros(at.as_micros().div_euclid(bar) * bar);
    let mut cut = false;
    match over.slot {
        None => {
            let answers = pages.0.overview.answers(id, since).await?;
            cut = answers.len() >= MAX_CHARTED_ANSWERS as usize;
            for one in answers {
                let bar = bars.entry(start_of(one.started_at)).or_default();
                bar.count(one.state, one.status);
            }
        }
        Some(slot) => {
            for one in pages.0.tallies.tallied(id, slot, since).await? {
                *bars
                    .entry(start_of(one.ends_at - slot.length()))
                    .or_default() += one.tally;
            }
        }
    }
    Ok(drawn(&bars, over, (since, end), cut))
}

fn drawn(
    bars: &BTreeMap<Timestamp, Tally>,
    over: Over,
    (since, end): (Timestamp, Timestamp),
    cut: bool,
) -> Drawn {
    let most = bars.values().map(Tally::requests).max().unwrap_or(0);
    let top = nice((most as f64).max(1.0));
    let length = over.shown.as_secs_f64();
    let width = over.bar.as_secs_f64() / length * WIDTH;
    let mut svg = String::new();
    for quarter in 1..4 {
        let at = HEIGHT * f64::from(quarter) / 4.0;
        let _ = write!(svg, r#"<path class="grid" d="M0 {at}H{WIDTH}"/>"#);
    }
    let mut sum = Tally::default();
    let mut rows = Vec::new();
    for (from, tally) in bars.range(since..end) {
        sum += *tally;
        let bar = Bar::of(*from, tally);
        let x = from.since(since).as_secs_f64() / length * WIDTH;
        let _ = write!(svg, r#"<g data-words="{}">"#, bar.words());
        // All of the height, so that a low bar is found as well.
        let _ = write!(
            svg,
            r#"<title>{}</title><rect class="hit" x="{x:.1}" y="0" width="{width:.1}" height="{HEIGHT}"/>"#,
            bar.words()
        );
        let mut y = HEIGHT;
        let parts = [
            ("delivered", tally.succeeded),
            ("failed", tally.failed),
            ("refused", tally.refused),
            ("unknown", tally.unknown),
        ];
        for (class, count) in parts.into_iter().filter(|(_, count)| *count > 0) {
            // What failed once among thousands is seen.
            let height = (count as f64 / top * HEIGHT).max(1.0);
            y -= height;
            let wide = (width * 0.9).max(0.5);
            let _ = write!(
                svg,
                r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{wide:.1}" height="{height:.1}"/>"#
            );
        }
        svg.push_str("</g>");
        rows.push(bar);
    }
    rows.reverse();
    let all = Bar::of(since, &sum);
    let newest = if cut {
        ", of the newest 20,000 requests"
    } else {
        ""
    };
    let scale = |count: f64| {
        let number = match count.fract() {
            0.0 => words::large(count as u64),
            _ => count.to_string(),
        };
        format!("{number} in {}", words::span(over.bar))
    };
    Drawn {
        over,
        svg,
        // Of one request there is no half.
        scale: [
            scale(top),
            if top >= 2.0 {
                scale(top / 2.0)
            } else {
                String::new()
            },
        ],
        ticks: ticks(over, (since, end)),
        rows,
        sum: format!("{}{newest}", all.counts()),
    }
}

/// Where a whole number of them is, in UTC.
fn ticks(over: Over, (since, end): (Timestamp, Timestamp)) -> Vec<(f64, String)> {
    let tick = micros(over.tick);
    let first = (since.as_micros() + tick - 1).div_euclid(tick) * tick;
    let length = micros(over.shown) as f64;
    (first..end.as_micros())
        .step_by(usize::try_from(tick).unwrap_or(1).max(1))
        .map(|at| {
            let part = (at - since.as_micros()) as f64 / length * 100.0;
            let at = Timestamp::from_micros(at);
            let text = match over.tick >= Duration::from_secs(86_400) {
                true => words::day(at),
                false => words::minute(at),
            };
            ((part * 10.0).round() / 10.0, text)
        })
        // One at the end would stand out of the drawing.
        .filter(|(part, _)| *part < 95.0)
        .collect()
}

impl Bar {
    fn of(from: Timestamp, tally: &Tally) -> Self {
        Self {
            from: words::time(from),
            delivered: words::large(tally.succeeded),
            failed: words::large(tally.failed),
            refused: words::large(tally.refused),
            unknown: words::large(tally.unknown),
        }
    }

    fn counts(&self) -> String {
        let mut text = format!("{} delivered, {} failed", self.delivered, self.failed);
        let others = [
            (&self.refused, "refused by 429"),
            (&self.unknown, "unknown"),
        ];
        for (count, what) in others.into_iter().filter(|(count, _)| *count != "0") {
            let _ = write!(text, ", {count} {what}");
        }
        text
    }

    fn words(&self) -> String {
        format!("{} UTC: {}", self.from, self.counts())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(0) + Duration::from_secs(seconds)
    }

    #[test]
    fn a_bar_says_what_was_delivered_and_what_failed() {
        let tally = |succeeded, failed, refused| Tally {
            succeeded,
            failed,
            refused,
            unknown: 0,
        };
        let bars = BTreeMap::from([(at(300), tally(1_500, 500, 0)), (at(3_600), tally(0, 0, 3))]);
        let over = Over::of("1h");
        let found = drawn(&bars, over, (at(300), at(3_900)), false);
        assert_eq!(found.scale, ["2,000 in 5 min", "1,000 in 5 min"]);
        assert_eq!(found.sum, "1,500 delivered, 500 failed, 3 refused by 429");
        let words = "1970-01-01 00:05:00 UTC: 1,500 delivered, 500 failed";
        assert!(found.svg.contains(words), "{}", found.svg);
        // Three quarters of the height, and a quarter above it.
        let drawn = r#"<rect class="delivered" x="0.0" y="60.0" width="72.0" height="180.0"/><rect class="failed" x="0.0" y="0.0""#;
        assert!(found.svg.contains(drawn), "{}", found.svg);
        // The newest is the first.
        assert_eq!(found.rows[0].refused, "3");
        let ticks: Vec<_> = found.ticks.iter().map(|(_, words)| &**words).collect();
        assert_eq!(ticks, ["00:15", "00:30", "00:45", "01:00"]);
    }

    #[test]
    fn a_week_is_told_by_days_and_what_is_unknown_is_an_hour() {
        let week = Over::of("7d");
        let found = ticks(week, (at(1_800), at(1_800 + 7 * 86_400)));
        assert_eq!(found.len(), 6, "{found:?}");
        assert_eq!(found[0].1, "Jan 2");
        assert_eq!(Over::of("a fortnight").words(), "1 h");
        let none = drawn(&BTreeMap::new(), week, (at(0), at(7 * 86_400)), false);
        assert_eq!(none.scale, ["1 in 1 h", ""]);
        let three = Tally {
            failed: 3,
            ..Tally::default()
        };
        let few = BTreeMap::from([(at(0), three)]);
        let few = drawn(&few, week, (at(0), at(7 * 86_400)), false);
        assert_eq!(few.scale, ["3 in 1 h", "1.5 in 1 h"]);
        assert_eq!(none.sum, "0 delivered, 0 failed");
    }
}
