//! The turns beside each other: medians, ratios of pairs, and the worst windows; and
//! whether they are what they must be.

use std::fmt;

use serde::Serialize;
use server::output;

use super::judging::{Drained, Limited};
use super::side::Who;
use crate::figures::figure::verdict;
use crate::run::report::number;
use crate::run::settings::{Limit, Size};

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Part {
    /// A backlog without a limit.
    Drain {
        /// Events that wait.
        events: u32,
    },
    /// A limit with a backlog.
    Limit(Limit),
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Drain { events } => write!(f, "drain of {}", number(f64::from(*events))),
            Self::Limit(limit) => write!(f, "{limit}"),
        }
    }
}

/// What a turn came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Outcome {
    Drained(Drained),
    Limited(Limited),
}

/// One turn.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Turned {
    pub(super) size: Size,
    pub(super) part: Part,
    pub(super) pair: u32,
    pub(super) who: Who,
    pub(super) outcome: Outcome,
}

/// What both sides have in common, and what they have not.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Report {
    pub(super) machine: String,
    /// One sentence each: versions, settings, and how safe what is written is.
    pub(super) notes: Vec<String>,
    pub(super) rows: Vec<Row>,
    pub(super) turns: Vec<Turned>,
}

/// A figure of both sides.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) size: Size,
    pub(super) part: String,
    pub(super) figure: &'static str,
    pub(super) paceline: f64,
    pub(super) bullmq: f64,
    /// Ours to the peer's, pair by pair; none of a worst value.
    pub(super) ratio: Option<Ratio>,
    /// None of a figure that may be anything.
    pub(super) verdict: Option<Verdict>,
}

/// What a figure must be, and whether it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Verdict {
    /// In words, such as `≥ 2 × the peer`.
    pub(super) threshold: String,
    pub(super) passed: bool,
}

/// Of all pairs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Ratio {
    pub(super) median: f64,
    pub(super) lowest: f64,
    pub(super) highest: f64,
}

/// How a figure of several turns is made one.
#[derive(Clone, Copy, PartialEq)]
enum Of {
    Median,
    Largest,
}

/// What a figure has to be.
#[derive(Clone, Copy)]
enum Must {
    BeAnything,
    /// [`times_the_peer`], by the median of the pairs.
    BeFaster,
    /// At most what the limit lets into a window.
    KeepTheLimit,
    /// At least [`LEAST_SHARE`].
    UseTheLimit,
}

struct Figure {
    name: &'static str,
    of: Of,
    must: Must,
    value: fn(&Outcome) -> Option<f64>,
}

const fn figure(name: &'static str, of: Of, value: fn(&Outcome) -> Option<f64>) -> Figure {
    judged(name, (of, Must::BeAnything), value)
}

const fn judged(
    name: &'static str,
    (of, must): (Of, Must),
    value: fn(&Outcome) -> Option<f64>,
) -> Figure {
    Figure {
        name,
        of,
        must,
        value,
    }
}

/// How many times as fast as the peer's a backlog of ours must drain: one process over a
/// file has fewer ways to go than several over Postgres.
const fn times_the_peer(size: Size) -> f64 {
    match size {
        Size::Embedded => 2.0,
        Size::Distributed => 1.5,
    }
}

/// Of the limit, in per cent: no window is over where nothing is sent either.
const LEAST_SHARE: f64 = 95.0;

const FIGURES: [Figure; 8] = [
    figure("seconds until all had arrived", Of::Median, |outcome| {
        Some(outcome.drained()?.seconds)
    }),
    judged("deliveries/s", (Of::Median, Must::BeFaster), |outcome| {
        Some(outcome.drained()?.per_second)
    }),
    figure("processor time, µs a delivery", Of::Median, |outcome| {
        Some(outcome.drained()?.cpu_us)
    }),
    figure("of the receiver beside it, µs", Of::Median, |outcome| {
        Some(outcome.drained()?.receiver_us)
    }),
    figure("most connections", Of::Largest, |outcome| {
        Some(outcome.drained()?.connections as f64)
    }),
    judged(
        "share of the limit, %",
        (Of::Median, Must::UseTheLimit),
        |outcome| Some(outcome.limited()?.share_percent),
    ),
    judged(
        "worst window at the receiver",
        (Of::Largest, Must::KeepTheLimit),
        |outcome| Some(outcome.limited()?.worst as f64),
    ),
    figure("most arrivals beyond the limit", Of::Largest, |outcome| {
        Some(outcome.limited()?.early as f64)
    }),
];

impl Outcome {
    fn drained(&self) -> Option<&Drained> {
        match self {
            Self::Drained(drained) => Some(drained),
            Self::Limited(_) => None,
        }
    }

    fn limited(&self) -> Option<&Limited> {
        match self {
            Self::Limited(limited) => Some(limited),
            Self::Drained(_) => None,
        }
    }

    /// In a few words.
    fn in_short(&self) -> String {
        match self {
            Self::Drained(drained) => format!(
                "{} s, {} deliveries/s, {} µs each",
                number(drained.seconds),
                number(drained.per_second),
                number(drained.cpu_us)
            ),
            Self::Limited(limited) => format!(
                "{:.2} % of the limit, worst window {} of {}",
                limited.share_percent, limited.worst, limited.allowed
            ),
        }
    }
}

impl Turned {
    /// A line, while it runs.
    pub(super) fn in_short(&self, pairs: u32) -> String {
        format!(
            "{}, {}, pair {} of {pairs}, {}: {}",
            self.size.name(),
            self.part,
            self.pair + 1,
            self.who.name(),
            self.outcome.in_short()
        )
    }
}

/// All figures of the pairs that are whole, in the order in which they were measured.
pub(super) fn rows(turns: &[Turned]) -> Vec<Row> {
    let mut measured: Vec<(Size, Part)> = Vec::new();
    for turn in turns {
        if !measured.contains(&(turn.size, turn.part)) {
            measured.push((turn.size, turn.part));
        }
    }
    let figures = |(size, part)| {
        let pairs = pairs(turns, size, part);
        FIGURES
            .iter()
            .filter_map(move |figure| row((size, part), figure, &pairs))
    };
    measured.into_iter().flat_map(figures).collect()
}

/// Ours and the peer's, of each pair that is whole.
fn pairs(turns: &[Turned], size: Size, part: Part) -> Vec<[&Outcome; 2]> {
    let of = |who: Who, pair: u32| {
        let is =
            |turn: &&Turned| (turn.size, turn.part, turn.pair, turn.who) == (size, part, pair, who);
        turns.iter().find(is).map(|turn| &turn.outcome)
    };
    let last = turns.iter().map(|turn| turn.pair).max().unwrap_or(0);
    let [ours, peers] = Who::BOTH;
    (0..=last)
        .filter_map(|pair| Some([of(ours, pair)?, of(peers, pair)?]))
        .collect()
}

fn row((size, part): (Size, Part), figure: &Figure, pairs: &[[&Outcome; 2]]) -> Option<Row> {
    let pairs: Vec<[f64; 2]> = pairs
        .iter()
        .map(|[ours, peers]| Some([(figure.value)(ours)?, (figure.value)(peers)?]))
        .collect::<Option<_>>()?;
    if pairs.is_empty() {
        return None;
    }
    let one = |side: usize| {
        let values: Vec<f64> = pairs.iter().map(|pair| pair[side]).collect();
        match figure.of {
            Of::Median => median(values),
            Of::Largest => values.into_iter().fold(0.0, f64::max),
        }
    };
    let ratios: Vec<f64> = pairs.iter().map(|[ours, peers]| ours / peers).collect();
    let ratio = (figure.of == Of::Median).then(|| Ratio {
        lowest: ratios.iter().copied().fold(f64::MAX, f64::min),
        highest: ratios.iter().copied().fold(0.0, f64::max),
        median: median(ratios),
    });
    let paceline = one(0);
    Some(Row {
        size,
        part: part.to_string(),
        figure: figure.name,
        paceline,
        bullmq: one(1),
        ratio,
        verdict: figure.must.verdict((size, part), paceline, ratio),
    })
}

impl Must {
    fn verdict(
        self,
        (size, part): (Size, Part),
        ours: f64,
        ratio: Option<Ratio>,
    ) -> Option<Verdict> {
        match (self, part) {
            (Self::BeFaster, _) => {
                let least = times_the_peer(size);
                Some(Verdict {
                    threshold: format!("≥ {least} × the peer"),
                    passed: ratio?.median >= least,
                })
            }
            (Self::KeepTheLimit, Part::Limit(Limit::Per(max, _))) => Some(Verdict {
                threshold: format!("≤ {max}"),
                passed: ours <= f64::from(max),
            }),
            (Self::UseTheLimit, _) => Some(Verdict {
                threshold: format!("≥ {LEAST_SHARE}"),
                passed: ours >= LEAST_SHARE,
            }),
            (Self::KeepTheLimit | Self::BeAnything, _) => None,
        }
    }
}

impl Report {
    /// Whether every figure is what it must be.
    pub(super) fn passed(&self) -> bool {
        let mut verdicts = self.rows.iter().filter_map(|row| row.verdict.as_ref());
        verdicts.all(|verdict| verdict.passed)
    }
}

/// Of an even number, what is between the two in the middle.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) {
        f64::midpoint(values[middle - 1], values[middle])
    } else {
        values[middle]
    }
}

/// The report at a terminal.
pub(super) fn table(report: &Report) -> String {
    let [ours, peers] = Who::BOTH.map(Who::name);
    let header = [
        "size",
        "part",
        "figure",
        ours,
        peers,
        "ratio",
        "of single pairs",
        "must be",
        "verdict",
    ];
    let rows = report.rows.iter().map(|row| {
        let (ratio, pairs) = match row.ratio {
            Some(ratio) => (
                format!("{:.2}", ratio.median),
                format!("{:.2} to {:.2}", ratio.lowest, ratio.highest),
            ),
            None => ("–".to_owned(), "–".to_owned()),
        };
        let (must_be, said) = match &row.verdict {
            Some(judged) => (judged.threshold.as_str(), verdict(judged.passed)),
            None => ("–", "–"),
        };
        vec![
            row.size.name().to_owned(),
            row.part.clone(),
            row.figure.to_owned(),
            number(row.paceline),
            number(row.bullmq),
            ratio,
            pairs,
            must_be.to_owned(),
            said.to_owned(),
        ]
    });
    let mut text = output::table(&header, rows).to_string();
    text.push_str(&format!("\n\nmachine: {}", report.machine));
    for note in &report.notes {
        text.push_str(&format!("\nnote: {note}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn drained(seconds: f64, cpu_us: f64) -> Outcome {
        Outcome::Drained(Drained {
            seconds,
            per_second: 1_000.0 / seconds,
            cpu_us,
            receiver_us: 10.0,
            processes_us: BTreeMap::new(),
            extra: 0,
            connections: 64,
        })
    }

    fn limited(share_percent: f64, worst: u64) -> Outcome {
        Outcome::Limited(Limited {
            share_percent,
            allowed: 100,
            worst,
            early: worst.saturating_sub(100),
            explained: 0,
        })
    }

    fn turned(part: Part, pair: u32, who: Who, outcome: Outcome) -> Turned {
        Turned {
            size: Size::Embedded,
            part,
            pair,
            who,
            outcome,
        }
    }

    fn turns() -> Vec<Turned> {
        let part = Part::Drain { events: 1_000 };
        let limit = Part::Limit("100/s".parse().unwrap());
        let drains = [(2.0, 4.0), (1.0, 5.0), (4.0, 6.0)];
        let shares = [(99.0, 100, 99.9, 200), (98.0, 99, 99.7, 141)];
        let mut turns = Vec::new();
        for (pair, (ours, peers)) in (0..).zip(drains) {
            turns.push(turned(part, pair, Who::Paceline, drained(ours, 50.0)));
            turns.push(turned(part, pair, Who::BullMq, drained(peers, 100.0)));
        }
        for (pair, (ours, our_worst, peers, worst)) in (0..).zip(shares) {
            turns.push(turned(limit, pair, Who::Paceline, limited(ours, our_worst)));
            turns.push(turned(limit, pair, Who::BullMq, limited(peers, worst)));
        }
        // Its peer's turn was interrupted.
        turns.push(turned(limit, 2, Who::Paceline, limited(1.0, 900)));
        turns
    }

    fn of<'a>(rows: &'a [Row], name: &str) -> &'a Row {
        let found = rows.iter().find(|row| row.figure.contains(name));
        found.unwrap_or_else(|| panic!("no {name}"))
    }

    #[test]
    fn a_turn_says_in_a_line_what_it_came_to() {
        let turns = turns();
        assert_eq!(
            turns[0].in_short(3),
            "embedded, drain of 1,000, pair 1 of 3, Paceline: 2 s, 500 deliveries/s, 50 µs each"
        );
        assert_eq!(
            turns[7].in_short(3),
            "embedded, 100/s, pair 1 of 3, BullMQ: 99.90 % of the limit, worst window 200 of 100"
        );
    }

    #[test]
    fn medians_are_of_each_side_and_ratios_of_each_pair() {
        let rows = rows(&turns());
        let seconds = of(&rows, "seconds");
        assert_eq!((seconds.paceline, seconds.bullmq), (2.0, 5.0));
        let ratio = seconds.ratio.unwrap();
        assert_eq!((ratio.lowest, ratio.median), (0.2, 0.5));
        assert!((ratio.highest - 2.0 / 3.0).abs() < 1e-9);
        assert_eq!(of(&rows, "processor").ratio.unwrap().median, 0.5);
        assert_eq!(seconds.part, "drain of 1,000");
    }

    #[test]
    fn of_windows_the_worst_counts_and_of_pairs_whole_ones() {
        let rows = rows(&turns());
        let worst = of(&rows, "worst window");
        assert_eq!((worst.paceline, worst.bullmq), (100.0, 200.0));
        assert_eq!(worst.ratio, None);
        assert_eq!(of(&rows, "beyond").bullmq, 100.0);
        let share = of(&rows, "share");
        assert_eq!((share.paceline, share.part.as_str()), (98.5, "100/s"));
        assert!(super::rows(&turns()[..1]).is_empty(), "no pair is whole");
    }

    #[test]
    fn the_table_has_a_line_for_each_figure_and_all_that_is_to_be_said() {
        let turns = turns();
        let report = Report {
            machine: "2 cores".to_owned(),
            notes: vec!["Redis: appendonly yes".to_owned()],
            rows: rows(&turns),
            turns,
        };
        let text = table(&report);
        let line = |name: &str| {
            let line = text.lines().find(|line| line.contains(name));
            let words = line.unwrap_or_default().split_whitespace();
            words.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            line("deliveries/s"),
            "embedded drain of 1,000 deliveries/s 500 200 2.00 1.50 to 5.00 ≥ 2 × the peer holds"
        );
        assert_eq!(
            line("worst window"),
            "embedded 100/s worst window at the receiver 100 200 – – ≤ 100 holds"
        );
        assert!(line("most connections").ends_with("– – – –"));
        assert!(text.ends_with("machine: 2 cores\nnote: Redis: appendonly yes"));
    }

    /// A drain of this many times the peer's speed, and a worst window of a limit of 100.
    fn report(size: Size, times: f64, worst: u64) -> Report {
        report_of(size, times, limited(99.0, worst))
    }

    fn report_of(size: Size, times: f64, ours: Outcome) -> Report {
        let limit = Part::Limit("100/s".parse().unwrap());
        let drain = Part::Drain { events: 1_000 };
        let mut turns = vec![
            turned(drain, 0, Who::Paceline, drained(1.0, 50.0)),
            turned(drain, 0, Who::BullMq, drained(times, 50.0)),
            turned(limit, 0, Who::Paceline, ours),
            turned(limit, 0, Who::BullMq, limited(99.0, 200)),
        ];
        for turn in &mut turns {
            turn.size = size;
        }
        Report {
            machine: String::new(),
            notes: Vec::new(),
            rows: rows(&turns),
            turns,
        }
    }

    #[test]
    fn a_drain_must_be_so_many_times_as_fast_as_the_peers() {
        for (size, times, passed) in [
            (Size::Embedded, 2.0, true),
            (Size::Embedded, 1.9, false),
            (Size::Distributed, 1.6, true),
            (Size::Distributed, 1.4, false),
        ] {
            let report = report(size, times, 100);
            let verdict = of(&report.rows, "deliveries/s").verdict.clone().unwrap();
            assert_eq!(verdict.passed, passed, "{size:?} {times}");
            assert_eq!(report.passed(), passed, "{size:?} {times}");
        }
        let distributed = report(Size::Distributed, 1.0, 100);
        let row = of(&distributed.rows, "deliveries/s");
        let threshold = row.verdict.as_ref().map(|one| one.threshold.as_str());
        assert_eq!(threshold, Some("≥ 1.5 × the peer"));
    }

    #[test]
    fn our_share_of_the_limit_must_be_most_of_it() {
        for (share, passed) in [(95.0, true), (94.9, false), (0.0, false)] {
            let report = report_of(Size::Embedded, 2.0, limited(share, 100));
            let verdict = of(&report.rows, "share").verdict.clone().unwrap();
            assert_eq!(
                (verdict.threshold.as_str(), verdict.passed),
                ("≥ 95", passed)
            );
            assert_eq!(report.passed(), passed, "{share}");
        }
    }

    #[test]
    fn our_worst_window_must_hold_at_most_the_limit_and_the_peers_may_hold_more() {
        assert!(report(Size::Embedded, 2.0, 100).passed());
        let over = report(Size::Embedded, 2.0, 101);
        assert!(!over.passed());
        let text = table(&over);
        let line = text.lines().find(|line| line.contains("worst window"));
        assert!(line.is_some_and(|line| line.contains("MISSED")), "{text}");
    }
}
