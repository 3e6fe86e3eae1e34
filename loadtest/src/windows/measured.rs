//! What each run came to, and the tables of them.

use std::cmp::Reverse;
use std::process::ExitCode;

use serde::Serialize;
use server::output;
use server::trial::WHOLE_WINDOWS;

use super::Cell;
use crate::run::report::Report;
use crate::run::settings::Limit;

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Measured {
    /// Of how many rounds it is, from 1 on.
    run: u32,
    #[serde(flatten)]
    cell: Cell,
    /// Windows of which part of each period were judged, in per cent.
    window_percent: u32,
    /// What a window may hold.
    allowed: Option<u64>,
    /// The fullest one at a receiver, less what its own stalls explain.
    at_receiver: u64,
    /// The fullest one of the whole period, where shorter ones are judged.
    in_whole_period: Option<u64>,
    /// The fullest one of the ledger.
    in_ledger: Option<u64>,
    /// Of the destination that got the least of its limit; `None` where it is not known.
    share_percent: Option<f64>,
    /// Arrivals beyond the limit; `None` where they could not be judged.
    early_arrivals: Option<u64>,
    /// Starts beyond it, by the ledger.
    early_starts: Option<u64>,
    /// Those that the receiver's own stalls explain.
    explained_arrivals: u64,
    /// The first places that were over, in words.
    over: Vec<String>,
    arrivals: u64,
    /// Why there is nothing of it: the run itself failed.
    failed: Option<String>,
}

/// Of its limit, in per cent, what a window of the whole period may hold beside other
/// work.
const IN_WHOLE_PERIOD_PERCENT: u64 = 103;

/// From the best to the worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    Kept,
    /// Kept but for what the receiver's own stalls explain.
    Explained,
    /// A destination got less of its limit than it should.
    Under,
    Over,
    /// Events have not arrived, through a fault.
    Lost,
    /// What could not be measured is not kept.
    NotJudged,
}

impl Verdict {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Explained => "explained",
            Self::Under => "UNDER",
            Self::Over => "OVER",
            Self::Lost => "LOST",
            Self::NotJudged => "NOT JUDGED",
        }
    }

    pub(super) const fn holds(self) -> bool {
        matches!(self, Self::Kept | Self::Explained)
    }
}

impl Measured {
    pub(super) fn new((run, cell): (u32, Cell), window_percent: u32, report: &Report) -> Self {
        let whole = |name| report.metric(name).map(|count| count as u64);
        let listed = &report.destinations;
        let over = listed.iter().flat_map(|one| &one.at_receiver.over);
        let at_receiver = listed.iter().map(|one| one.worst_at_receiver);
        Self {
            run,
            cell,
            window_percent,
            allowed: listed.iter().filter_map(|one| one.bound).max(),
            at_receiver: at_receiver.max().unwrap_or(0),
            in_whole_period: whole("fullest_whole_window"),
            in_ledger: listed.iter().filter_map(|one| one.worst_at_sender).max(),
            share_percent: report.metric("least_share_percent"),
            early_arrivals: whole("early_arrivals"),
            early_starts: whole("early_starts"),
            explained_arrivals: whole("explained_arrivals").unwrap_or(0),
            over: over.map(ToString::to_string).collect(),
            arrivals: whole("requests").unwrap_or(0),
            failed: None,
        }
    }

    /// One that failed.
    pub(super) fn failed((run, cell): (u32, Cell), window_percent: u32, why: String) -> Self {
        Self {
            run,
            cell,
            window_percent,
            allowed: None,
            at_receiver: 0,
            in_whole_period: None,
            in_ledger: None,
            share_percent: None,
            early_arrivals: None,
            early_starts: None,
            explained_arrivals: 0,
            over: Vec::new(),
            arrivals: 0,
            failed: Some(why),
        }
    }

    /// Its row in a line.
    pub(super) fn line(&self, least_share: f64) -> String {
        line(&HEADER, &row(self, least_share))
    }

    fn verdict(&self, least_share: f64) -> Verdict {
        let least = match self.cell.limit {
            Limit::Per(_, period) if period.duration().as_secs() > 1 => least_share + 1.0,
            Limit::Per(..) | Limit::Unlimited => least_share,
        };
        let over = [self.early_arrivals, self.early_starts];
        match (self.share_percent, self.explained_arrivals) {
            _ if over.contains(&None) => Verdict::NotJudged,
            _ if over.iter().flatten().any(|over| *over > 0) => Verdict::Over,
            _ if self.whole_period_is_over() => Verdict::Over,
            _ if self.arrivals == 0 || !self.knows_whole_periods() => Verdict::NotJudged,
            (None, _) => Verdict::NotJudged,
            (Some(share), _) if share < least => Verdict::Under,
            (Some(_), 1..) => Verdict::Explained,
            (Some(_), 0) => Verdict::Kept,
        }
    }

    /// Beside shorter windows, the ones of the whole period have to be known too.
    fn knows_whole_periods(&self) -> bool {
        self.window_percent >= WHOLE_WINDOWS || self.in_whole_period.is_some()
    }

    /// What a window of the whole period may hold where shorter ones are judged: the
    /// machine does other work, which moves requests together on their way.
    fn allowed_in_whole_period(&self) -> Option<u64> {
        let allowed = self.in_whole_period.and(self.allowed)?;
        Some((allowed * IN_WHOLE_PERIOD_PERCENT).div_ceil(100))
    }

    fn whole_period_is_over(&self) -> bool {
        let allowed = self.allowed_in_whole_period();
        allowed.is_some_and(|allowed| self.in_whole_period > Some(allowed))
    }

    /// The worst run is the one with the most of it.
    fn badness(&self, least_share: f64) -> (Verdict, u64, u64, Reverse<u64>) {
        let early = [self.early_arrivals, self.early_starts];
        let share = self.share_percent.unwrap_or(0.0) * 1_000.0;
        (
            self.verdict(least_share),
            early.into_iter().flatten().sum(),
            self.at_receiver,
            Reverse(share as u64),
        )
    }
}

/// For programs.
#[derive(Serialize)]
struct Printed<'a> {
    runs: &'a [Measured],
    /// The worst run of each.
    worst: Vec<&'a Measured>,
}

/// Shows them, and of several rounds the worst of each. The exit code fails where one
/// run fails.
pub(super) fn show(
    measured: &[Measured],
    least_share: f64,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let worst = worst(measured, least_share);
    if json {
        output::json(&Printed {
            runs: measured,
            worst,
        })?;
    } else {
        output::line(&table(measured.iter(), least_share))?;
        if worst.len() < measured.len() {
            output::line("\nThe worst run of each:")?;
            output::line(&table(worst.into_iter(), least_share))?;
        }
    }
    Ok(exit_code(
        measured.iter().map(|one| one.verdict(least_share)),
    ))
}

/// Fails where one does.
pub(super) fn exit_code(mut verdicts: impl Iterator<Item = Verdict>) -> ExitCode {
    if verdicts.all(Verdict::holds) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn worst(measured: &[Measured], least_share: f64) -> Vec<&Measured> {
    let of = |first: &Measured| {
        let same = measured.iter().filter(|one| one.cell == first.cell);
        same.max_by_key(|one| one.badness(least_share))
    };
    let firsts = measured.iter().filter(|one| one.run == 1);
    firsts.filter_map(of).collect()
}

/// What [`row`] has.
const HEADER: [&str; 15] = [
    "run",
    "size",
    "schedulers + workers",
    "limit",
    "destinations",
    "answers after ms",
    "allowed",
    "at receiver",
    "in whole period",
    "in ledger",
    "early",
    "explained",
    "share %",
    "arrivals",
    "verdict",
];

fn table<'a>(measured: impl Iterator<Item = &'a Measured> + Clone, least_share: f64) -> String {
    let mut text =
        output::table(&HEADER, measured.clone().map(|one| row(one, least_share))).to_string();
    for one in measured {
        if let Some(why) = &one.failed {
            text.push_str(&format!(
                "\nNOT JUDGED: {} at {} ms: {why}",
                one.cell.limit, one.cell.answer_ms
            ));
        }
        if one.whole_period_is_over() {
            text.push_str(&format!(
                "\nOVER: {} at {} ms: {} arrivals within a whole period, {} allowed",
                one.cell.limit,
                one.cell.answer_ms,
                or_dash(one.in_whole_period),
                or_dash(one.allowed_in_whole_period()),
            ));
        }
        for over in &one.over {
            text.push_str(&format!(
                "\nOVER: {} at {} ms: {over}",
                one.cell.limit, one.cell.answer_ms
            ));
        }
    }
    text
}

fn row(one: &Measured, least_share: f64) -> Vec<String> {
    let share = one.share_percent;
    vec![
        one.run.to_string(),
        one.cell.size.name().to_owned(),
        one.cell.processes(),
        one.cell.limit.to_string(),
        one.cell.destinations.to_string(),
        one.cell.answer_ms.to_string(),
        or_dash(one.allowed),
        one.at_receiver.to_string(),
        or_dash(one.in_whole_period),
        or_dash(one.in_ledger),
        or_dash(one.early_arrivals),
        one.explained_arrivals.to_string(),
        share.map_or("–".to_owned(), |share| format!("{share:.2}")),
        one.arrivals.to_string(),
        one.verdict(least_share).as_str().to_owned(),
    ]
}

/// A row in a line, for whoever waits for the table.
pub(super) fn line(header: &[&str], row: &[String]) -> String {
    let cells = header.iter().zip(row);
    let cells = cells.map(|(name, value)| format!("{name} {value}"));
    cells.collect::<Vec<_>>().join(", ")
}

pub(super) fn or_dash(value: Option<u64>) -> String {
    value.map_or("–".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::settings::Size;

    fn measured(limit: &str, early: [u64; 2], explained: u64, share: Option<f64>) -> Measured {
        Measured {
            run: 1,
            cell: Cell {
                size: Size::Embedded,
                roles: None,
                limit: limit.parse().unwrap(),
                destinations: 1,
                answer_ms: 0,
            },
            window_percent: WHOLE_WINDOWS,
            allowed: Some(10),
            at_receiver: 20,
            in_whole_period: None,
            in_ledger: Some(10),
            share_percent: share,
            early_arrivals: Some(early[0]),
            early_starts: Some(early[1]),
            explained_arrivals: explained,
            over: vec!["20 arrivals".to_owned()],
            arrivals: 100,
            failed: None,
        }
    }

    #[test]
    fn one_that_is_over_under_or_not_measured_fails() {
        let verdict = |early, explained, share| {
            let measured = measured("10/s", early, explained, share);
            measured.verdict(98.5)
        };
        assert_eq!(verdict([1, 0], 5, Some(99.0)), Verdict::Over);
        assert_eq!(
            verdict([0, 1], 5, Some(99.0)),
            Verdict::Over,
            "in the ledger"
        );
        assert_eq!(verdict([0, 0], 5, Some(99.0)), Verdict::Explained);
        assert_eq!(verdict([0, 0], 0, Some(98.5)), Verdict::Kept);
        assert_eq!(verdict([0, 0], 0, Some(98.4)), Verdict::Under);
        assert_eq!(verdict([1, 0], 0, None), Verdict::Over);
        let minute = measured("100/min", [0, 0], 0, Some(99.0));
        assert_eq!(minute.verdict(98.5), Verdict::Under);
        let fails = [Verdict::Under, Verdict::Over, Verdict::NotJudged];
        assert!(!fails.into_iter().any(Verdict::holds));
        let over = measured("10/s", [1, 0], 0, Some(99.0));
        let text = table(std::iter::once(&over), 98.5);
        assert!(text.contains("OVER: 10/s at 0 ms: 20 arrivals"), "{text}");
    }

    #[test]
    fn what_is_not_known_is_not_kept_whatever_share_is_asked_for() {
        let kept = || measured("10/s", [0, 0], 0, Some(99.0));
        assert_eq!(kept().verdict(0.0), Verdict::Kept);
        let unknown = [
            Measured {
                early_starts: None,
                ..kept()
            },
            Measured {
                arrivals: 0,
                ..kept()
            },
            Measured {
                share_percent: None,
                ..kept()
            },
            Measured {
                window_percent: 97,
                ..kept()
            },
        ];
        for one in unknown {
            assert_eq!(one.verdict(0.0), Verdict::NotJudged, "{one:?}");
        }
        let whole_too = Measured {
            window_percent: 97,
            in_whole_period: Some(10),
            ..kept()
        };
        assert_eq!(whole_too.verdict(0.0), Verdict::Kept);
    }

    #[test]
    fn a_run_that_failed_is_a_row_and_says_why() {
        let cell = measured("10/s", [0, 0], 0, None).cell;
        let failed = Measured::failed((2, cell), WHOLE_WINDOWS, "it left no report".to_owned());
        assert_eq!(failed.verdict(0.0), Verdict::NotJudged);
        let line = failed.line(0.0);
        assert!(line.starts_with("run 2, size embedded"), "{line}");
        assert!(line.ends_with("verdict NOT JUDGED"), "{line}");
        let text = table(std::iter::once(&failed), 0.0);
        let said = "NOT JUDGED: 10/s at 0 ms: it left no report";
        assert!(text.contains(said), "{text}");
    }

    #[test]
    fn beside_other_work_a_whole_period_may_hold_three_per_cent_more() {
        let verdict = |allowed, in_whole_period| {
            let measured = Measured {
                window_percent: 97,
                allowed: Some(allowed),
                in_whole_period: Some(in_whole_period),
                ..measured("10/s", [0, 0], 0, Some(99.0))
            };
            let text = table(std::iter::once(&measured), 98.5);
            (
                measured.verdict(98.5),
                text.contains("within a whole period"),
            )
        };
        assert_eq!(verdict(1, 2), (Verdict::Kept, false), "rounded up");
        assert_eq!(verdict(10, 11), (Verdict::Kept, false));
        assert_eq!(verdict(10, 12), (Verdict::Over, true));
        assert_eq!(verdict(1_000, 1_030), (Verdict::Kept, false));
        assert_eq!(verdict(1_000, 1_031), (Verdict::Over, true));
    }

    #[test]
    fn of_several_rounds_the_worst_is_shown() {
        let run = |run, limit, early, share| Measured {
            run,
            ..measured(limit, [early, 0], 0, Some(share))
        };
        let all = [
            run(1, "10/s", 0, 99.5),
            run(1, "100/s", 0, 99.5),
            run(2, "10/s", 1, 99.9),
            run(2, "100/s", 0, 99.1),
            run(3, "10/s", 0, 90.0),
            run(3, "100/s", 0, 99.3),
        ];
        let worst = worst(&all, 98.5);
        let shown: Vec<_> = worst
            .iter()
            .map(|one| (one.cell.limit.to_string(), one.run))
            .collect();
        assert_eq!(shown, [("10/s".to_owned(), 2), ("100/s".to_owned(), 2)]);
    }
}
