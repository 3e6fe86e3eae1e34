//! One run, as a process of its own: its memory is its own, and so is what it
//! leaves behind.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use tempfile::TempDir;
use tokio::process::Command;

use crate::apart::Running;
use crate::figures::{self, figure::Figure};
use crate::run::places;
use crate::run::report::{Ended, Report};
use crate::run::thresholds::{Broken, broken};

/// What a run is asked for.
#[derive(Debug, Clone)]
pub(super) struct Trial {
    arguments: Vec<String>,
    lasts: Option<u32>,
    /// What the target has a row of its own for.
    judged: &'static [&'static str],
}

impl Trial {
    pub(super) fn new(size: &str, rate: u32) -> Self {
        let arguments = ["--size", size, "--rate", &format!("{rate}/s")];
        Self {
            arguments: arguments.map(str::to_owned).to_vec(),
            lasts: None,
            judged: &[],
        }
    }

    pub(super) fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.arguments.extend([name.to_owned(), value.to_string()]);
        self
    }

    /// Of the highest rate that is sustained.
    pub(super) fn finding(mut self) -> Self {
        self.arguments.push("--find-rate".to_owned());
        self
    }

    /// Of these figures the target has a row, whatever they are: no second one is missed.
    pub(super) fn judging(mut self, names: &'static [&'static str]) -> Self {
        self.judged = names;
        self
    }

    /// For so many seconds, and not as long as the others.
    pub(super) fn lasting(mut self, seconds: u32) -> Self {
        self.lasts = Some(seconds);
        self
    }

    /// Nothing starts before everything waits; for so many seconds it comes.
    pub(super) fn holding_for(mut self, seconds: u32) -> Self {
        self.arguments.push("--hold".to_owned());
        self.lasting(seconds)
    }
}

/// Where runs are made.
pub(super) struct Trials {
    program: PathBuf,
    seconds: u32,
    folder: TempDir,
    /// What runs broke that holds of every run.
    missed: Vec<Figure>,
}

impl Trials {
    /// Runs of this `paceline`; each load lasts so many seconds.
    pub(super) fn new(program: PathBuf, seconds: u32) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("make a folder for reports")?;
        Ok(Self {
            program,
            seconds,
            folder,
            missed: Vec::new(),
        })
    }

    /// What the runs since the last time broke that holds of every run.
    pub(super) fn take_missed(&mut self) -> Vec<Figure> {
        std::mem::take(&mut self.missed)
    }

    /// Makes one run. What it broke is kept for [`Self::take_missed`]; one without a
    /// report is an error.
    pub(super) async fn run(&mut self, name: &str, trial: Trial) -> anyhow::Result<Report> {
        let arguments = trial.arguments.join(" ");
        writeln!(std::io::stderr().lock(), "{name}: loadtest run {arguments}")?;
        // Of this run alone: one of before says nothing of it.
        let folder = tempfile::tempdir_in(self.folder.path()).context("make a folder")?;
        let summary = folder.path().join("report.json");
        let ours = std::env::current_exe().context("find this program")?;
        let mut command = Command::new(ours);
        command
            .arg("--program")
            .arg(&self.program)
            .arg("run")
            .args(&trial.arguments)
            // Every core is busy: what is on its way then waits for one.
            .args(["--windows", "90"])
            .args([
                "--seconds",
                &trial.lasts.unwrap_or(self.seconds).to_string(),
            ])
            .arg("--summary")
            .arg(&summary);
        let status = Running::start(&mut command)?.end().await?;
        let run = (name, trial.judged);
        let (report, missed) = read(run, status.success(), &summary)?;
        self.missed.extend(missed);
        Ok(report)
    }

    /// What `loadtest figures` measures by these words, on the servers of tests or on
    /// private ones.
    pub(super) async fn figures(&self, words: &[&str]) -> anyhow::Result<Vec<Figure>> {
        let said = words.join(" ");
        writeln!(std::io::stderr().lock(), "loadtest figures {said}")?;
        let (servers, private) = places::servers().await?;
        // Large, for it has every figure's in it.
        let measured = Box::pin(figures::measured(words, servers, self.program.clone())).await;
        let removed = match private {
            Some(private) => private.remove().await,
            None => Ok(()),
        };
        let measured = measured?;
        removed.context("take the servers away")?;
        Ok(measured)
    }

    /// What a delivery costs in one run, against another. Of each two, by turns:
    /// machines have moods.
    pub(super) async fn ratio(
        &mut self,
        what: &str,
        one: Trial,
        other: Trial,
        most: f64,
        unit: &'static str,
    ) -> anyhow::Result<Figure> {
        let mut sums = [0.0; 2];
        for _turn in 0..2 {
            for (sum, trial) in sums.iter_mut().zip([&one, &other]) {
                let report = self.run(what, trial.clone()).await?;
                *sum += report.needed("cpu_us_per_delivery")?;
            }
        }
        Ok(Figure::at_most(what, sums[0] / sums[1], most, unit))
    }
}

/// What a run has left: its report, and a figure for each thing that it broke and that is
/// not judged elsewhere. One that failed without having broken anything is an error.
fn read(
    (name, judged): (&str, &[&str]),
    succeeded: bool,
    summary: &Path,
) -> anyhow::Result<(Report, Vec<Figure>)> {
    let text = std::fs::read_to_string(summary);
    let text = text.with_context(|| format!("{name}: the run ended without a report"))?;
    let report: Report = serde_json::from_str(&text).context("read a run's report")?;
    ensure!(
        report.ended != Ended::Interrupted,
        "{name}: the run was interrupted"
    );
    let broken = broken(&report);
    ensure!(
        succeeded || !broken.is_empty(),
        "{name}: the run failed after its report"
    );
    let others = broken.iter().filter(|one| match one {
        Broken::Crossed { threshold, .. } => !judged.contains(&threshold.name()),
        Broken::Over { .. } => true,
    });
    let mut missed: Vec<_> = others.map(|one| of_broken(name, one)).collect();
    if report.ended == Ended::Undrained {
        let left = report.metric("undelivered").unwrap_or(f64::NAN);
        missed.push(Figure::missed(
            format!("{name}: not delivered in time"),
            left,
            "≤ 0",
            "events",
        ));
    }
    Ok((report, missed))
}

fn of_broken(name: &str, broken: &Broken) -> Figure {
    match broken {
        Broken::Crossed {
            threshold,
            measured,
        } => Figure::missed(
            format!("{name}: {}", threshold.name()),
            measured.unwrap_or(f64::NAN),
            threshold.allowed(),
            "",
        ),
        Broken::Over { destination, over } => Figure::missed(
            format!("{name}: destination {destination}: {over}"),
            over.arrivals as f64,
            format!("≤ {}", over.allowed),
            "arrivals",
        ),
    }
}

impl Report {
    /// A figure that a target is about.
    pub(super) fn needed(&self, name: &str) -> anyhow::Result<f64> {
        self.metric(name)
            .with_context(|| format!("{name} was not measured"))
    }

    /// Events that had been accepted when the load ended, and had not arrived.
    pub(super) fn waited(&self) -> anyhow::Result<f64> {
        let in_time = self.needed("delivered_per_second")? * self.load_seconds;
        Ok((self.needed("accepted")? - in_time.round()).max(0.0))
    }

    /// The largest that processes of this name were, together.
    pub(super) fn peak_mib(&self, name: &str) -> anyhow::Result<f64> {
        let process = self.processes.iter().find(|process| process.name == name);
        let process = process.with_context(|| format!("no process {name} was measured"))?;
        Ok(process.peak_rss_mib)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::run::report::FORMAT;
    use crate::run::settings::{Shape, tests::settings};

    /// Of a run of two seconds that ended so and measured this much.
    pub(in crate::targets) fn report(ended: Ended, metrics: &[(&str, f64)]) -> Report {
        Report {
            format: FORMAT,
            system: "embedded".to_owned(),
            machine: "2 cores of a test".to_owned(),
            began_at_unix_ms: 1_700_000_000_000,
            settings: settings(Shape::Constant),
            ended,
            load_seconds: 2.0,
            metrics: (metrics.iter())
                .map(|(name, value)| ((*name).to_owned(), *value))
                .collect::<BTreeMap<_, _>>(),
            seconds: Vec::new(),
            processes: Vec::new(),
            destinations: Vec::new(),
            judged: 0,
            statements: Vec::new(),
            side_by_side: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// What a run that ended so and measured this much has left.
    fn left(
        succeeded: bool,
        ended: Ended,
        metrics: &[(&str, f64)],
    ) -> anyhow::Result<(Report, Vec<Figure>)> {
        left_and_judged(&[], (succeeded, ended), metrics)
    }

    fn left_and_judged(
        judged: &[&str],
        (succeeded, ended): (bool, Ended),
        metrics: &[(&str, f64)],
    ) -> anyhow::Result<(Report, Vec<Figure>)> {
        let report = report(ended, metrics);
        let folder = tempfile::tempdir().unwrap();
        let summary = folder.path().join("report.json");
        std::fs::write(&summary, serde_json::to_string(&report).unwrap()).unwrap();
        read(("a run", judged), succeeded, &summary)
    }

    #[test]
    fn a_run_that_broke_what_always_holds_has_a_report_and_a_line_for_each() {
        let broke = [
            ("delivered_per_second", 9_000.0),
            ("stragglers_seconds", 31.0),
            ("unfounded_failures", 94.0),
            ("early_arrivals", 0.0),
        ];
        let (report, missed) = left(false, Ended::Drained, &broke).unwrap();
        assert_eq!(report.metric("delivered_per_second"), Some(9_000.0));
        let rows: Vec<_> = (missed.iter())
            .map(|one| (one.name.as_str(), one.measured, one.threshold.as_str()))
            .collect();
        assert_eq!(
            rows,
            [
                ("a run: unfounded_failures", 94.0, "<= 0"),
                ("a run: stragglers_seconds", 31.0, "<= 2"),
            ]
        );
        assert!(missed.iter().all(|one| !one.passed));
    }

    #[test]
    fn what_the_target_judges_itself_is_not_missed_twice() {
        let broke = [("stragglers_seconds", 31.0), ("unfounded_failures", 94.0)];
        let left = |judged: &[&str]| {
            let (_, missed) = left_and_judged(judged, (false, Ended::Drained), &broke).unwrap();
            missed.into_iter().map(|one| one.name).collect::<Vec<_>>()
        };
        assert_eq!(left(&["stragglers_seconds"]), ["a run: unfounded_failures"]);
        assert!(left(&["stragglers_seconds", "unfounded_failures"]).is_empty());
    }

    #[test]
    fn what_was_not_delivered_is_a_line_and_a_sound_run_has_none() {
        let (_, missed) = left(true, Ended::Undrained, &[("undelivered", 7.0)]).unwrap();
        assert_eq!(missed[0].name, "a run: not delivered in time");
        assert_eq!((missed[0].measured, missed.len()), (7.0, 1));
        let (_, missed) = left(true, Ended::Drained, &[("stragglers_seconds", 2.0)]).unwrap();
        assert!(missed.is_empty());
    }

    #[test]
    fn a_run_that_failed_for_another_reason_has_measured_nothing() {
        let error = left(false, Ended::Drained, &[]).unwrap_err().to_string();
        assert_eq!(error, "a run: the run failed after its report");
        let error = left(false, Ended::Interrupted, &[("stalled_seconds", 9.0)]);
        assert!(error.is_err());
        let nothing = tempfile::tempdir().unwrap();
        let error = read(("a run", &[]), false, &nothing.path().join("report.json"));
        let error = error.unwrap_err().to_string();
        assert_eq!(error, "a run: the run ended without a report");
    }
}
