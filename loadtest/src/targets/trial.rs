//! One run, as a process of its own: its memory is its own, and so is what it
//! leaves behind.

use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, ensure};
use tempfile::TempDir;
use tokio::process::Command;

use crate::figures::figure::Figure;
use crate::run::report::{Ended, Report};

/// What a run is asked for.
#[derive(Debug, Clone)]
pub(super) struct Trial {
    arguments: Vec<String>,
    lasts: Option<u32>,
}

impl Trial {
    pub(super) fn new(size: &str, rate: u32) -> Self {
        let arguments = ["--size", size, "--rate", &format!("{rate}/s")];
        Self {
            arguments: arguments.map(str::to_owned).to_vec(),
            lasts: None,
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

    /// Nothing starts before everything waits; for so many seconds it comes.
    pub(super) fn holding_for(mut self, seconds: u32) -> Self {
        self.arguments.push("--hold".to_owned());
        self.lasts = Some(seconds);
        self
    }
}

/// Where runs are made.
pub(super) struct Trials {
    program: PathBuf,
    seconds: u32,
    folder: TempDir,
}

impl Trials {
    /// Runs of this `paceline`; each load lasts so many seconds.
    pub(super) fn new(program: PathBuf, seconds: u32) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("make a folder for reports")?;
        Ok(Self {
            program,
            seconds,
            folder,
        })
    }

    /// Makes one run. One that did not deliver everything is an error.
    pub(super) async fn run(&self, name: &str, trial: Trial) -> anyhow::Result<Report> {
        let arguments = trial.arguments.join(" ");
        writeln!(std::io::stderr().lock(), "{name}: loadtest run {arguments}")?;
        let summary = self.folder.path().join("report.json");
        let ours = std::env::current_exe().context("find this program")?;
        let status = Command::new(ours)
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
            .arg(&summary)
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .status()
            .await
            .context("start a run")?;
        ensure!(status.success(), "{name}: the run ended with {status}");
        let text = std::fs::read_to_string(&summary).context("read a run's report")?;
        let report: Report = serde_json::from_str(&text).context("read a run's report")?;
        ensure!(
            report.ended == Ended::Drained,
            "{name}: not everything was delivered"
        );
        Ok(report)
    }

    /// What a delivery costs in one run, against another. Of each two, by turns:
    /// machines have moods.
    pub(super) async fn ratio(
        &self,
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

impl Report {
    /// A figure that a target is about.
    pub(super) fn needed(&self, name: &str) -> anyhow::Result<f64> {
        self.metric(name)
            .with_context(|| format!("{name} was not measured"))
    }

    /// The largest that processes of this name were, together.
    pub(super) fn peak_mib(&self, name: &str) -> anyhow::Result<f64> {
        let process = self.processes.iter().find(|process| process.name == name);
        let process = process.with_context(|| format!("no process {name} was measured"))?;
        Ok(process.peak_rss_mib)
    }
}
