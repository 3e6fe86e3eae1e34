//! Latencies over time: the median and the 99th percentile of what was answered.

use std::fmt::Write as _;
use std::time::Duration;

use domain::health::Tally;
use domain::ids::DestinationId;
use domain::series::Latencies;
use domain::time::Timestamp;
use engine::ports::{Answered, MAX_CHARTED_ANSWERS};

use super::Pages;
use super::chart::{HEIGHT, WIDTH, nice};
use super::refused::Refused;
use super::words;

/// What it shows.
const SHOWN: Duration = Duration::from_secs(900);

/// Of a quarter of a minute each.
const SLOTS: usize = 60;

/// A drawing, and what is written beside it.
#[derive(Debug, Clone)]
pub(super) struct Latency {
    /// The inside of the SVG.
    pub(super) svg: String,
    /// At the top of its scale.
    pub(super) top: String,
    /// And half-way.
    pub(super) half: String,
    /// What it is drawn from.
    pub(super) of: String,
}

/// Of the last quarter of an hour, by the store's clock.
pub(super) async fn draw(
    pages: &Pages,
    id: DestinationId,
    now: Timestamp,
) -> Result<Latency, Refused> {
    let answers = pages.0.overview.answers(id, now - SHOWN).await?;
    Ok(drawn(&answers, now - SHOWN))
}

fn drawn(answers: &[Answered], since: Timestamp) -> Latency {
    let mut slots = vec![Latencies::default(); SLOTS];
    let mut drawn = 0;
    for one in answers {
        if !Tally::is_answered(one.state, one.status) {
            continue;
        }
        let part = one.started_at.since(since).as_secs_f64() / SHOWN.as_secs_f64();
        let slot = (part * SLOTS as f64) as usize;
        slots[slot.min(SLOTS - 1)].add(one.latency);
        drawn += 1;
    }
    let lines = [0.99, 0.5].map(|part| {
        let quantile = |slot: &Latencies| slot.quantile(part).filter(|_| slot.count() > 0);
        slots.iter().map(quantile).collect::<Vec<_>>()
    });
    let seconds = lines.iter().flatten().flatten().map(Duration::as_secs_f64);
    let top = nice(seconds.fold(0.001, f64::max) * 1.1);
    let mut svg = String::new();
    for (class, line) in ["limit", "line"].into_iter().zip(&lines) {
        let _ = write!(svg, r#"<path class="{class}" d="{}"/>"#, steps(line, top));
    }
    let of = words::large(drawn);
    Latency {
        svg,
        top: words::latency(Duration::from_secs_f64(top)),
        half: words::latency(Duration::from_secs_f64(top / 2.0)),
        of: match answers.len() >= MAX_CHARTED_ANSWERS as usize {
            true => format!("the newest {of} answers"),
            false => format!("{of} answers"),
        },
    }
}

/// A step for each slot, and a gap where nothing was answered.
fn steps(line: &[Option<Duration>], top: f64) -> String {
    let width = WIDTH / SLOTS as f64;
    let (mut path, mut goes_on) = (String::new(), false);
    for (slot, latency) in line.iter().enumerate() {
        let Some(latency) = latency else {
            goes_on = false;
            continue;
        };
        let pen = if goes_on { 'L' } else { 'M' };
        let (x, y) = (
            slot as f64 * width,
            HEIGHT - latency.as_secs_f64() / top * HEIGHT,
        );
        let _ = write!(path, "{pen}{x:.1} {y:.1}H{:.1}", x + width);
        goes_on = true;
    }
    path
}

#[cfg(test)]
mod tests {
    use domain::attempt::AttemptState;

    use super::*;

    #[test]
    fn each_slot_has_its_own_and_none_is_a_gap() {
        let at = |seconds: u64| Timestamp::from_millis(0) + Duration::from_secs(seconds);
        let answer = |seconds, millis, state| Answered {
            started_at: at(seconds),
            state,
            status: Some(200),
            latency: Duration::from_millis(millis),
        };
        let mut answers: Vec<_> = (0..98)
            .map(|_| answer(20, 100, AttemptState::Succeeded))
            .collect();
        answers.push(answer(21, 800, AttemptState::Failed));
        answers.push(answer(22, 800, AttemptState::Succeeded));
        answers.push(answer(899, 100, AttemptState::Succeeded));
        // Nobody knows how long this one took.
        answers.push(answer(500, 9_000, AttemptState::Unknown));
        // Nothing was connected to.
        answers.push(Answered {
            status: None,
            ..answer(600, 0, AttemptState::Failed)
        });
        let found = drawn(&answers, at(0));
        assert_eq!(
            (found.top.as_str(), found.of.as_str()),
            ("1.00 s", "101 answers")
        );
        // The second slot and the last one; p99 is far above p50 in the first.
        let paths: Vec<_> = found.svg.split("class=").skip(1).collect();
        assert!(
            paths[0].starts_with("\"limit\" d=\"M16.0 "),
            "{}",
            found.svg
        );
        for path in paths {
            assert_eq!(path.matches('M').count(), 2, "{path}");
            assert!(path.contains("M944.0 "), "{path}");
        }
        let empty = drawn(&[], at(0));
        assert_eq!(
            (empty.of.as_str(), empty.svg.matches('M').count()),
            ("0 answers", 0)
        );
    }
}
