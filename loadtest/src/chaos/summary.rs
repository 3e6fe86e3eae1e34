//! What a run was and what the judge says, for people.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use serde::Serialize;

use super::fault::{KINDS, is_kill};
use super::judge::{Evidence, Judgement, RULES};

/// Printed as JSON after the findings.
#[derive(Debug, Serialize)]
pub(crate) struct Summary<'a> {
    pub(crate) passed: bool,
    pub(crate) seed: u64,
    /// Faults that were done, by kind.
    pub(crate) faults: BTreeMap<String, u64>,
    pub(crate) faults_done: u64,
    /// Of which three quarters have to be done.
    pub(crate) faults_planned: usize,
    /// Kills of processes and servers, and crashes at their points.
    pub(crate) kills: u64,
    /// Faults of the plan that could not be done.
    pub(crate) not_done: u64,
    /// Crash points at which a process did end.
    pub(crate) crashed_at: BTreeMap<String, u64>,
    /// Processes that ended by themselves, and were replaced.
    pub(crate) ended_by_themselves: u64,
    /// Left out of the whole run, by request.
    pub(crate) without: Vec<String>,
    pub(crate) storm_seconds: i64,
    /// From the end of the faults until nothing was left, or patience was over.
    pub(crate) drain_seconds: i64,
    pub(crate) rules: BTreeMap<&'static str, u64>,
    #[serde(flatten)]
    pub(crate) judgement: &'a Judgement,
}

impl<'a> Summary<'a> {
    pub(crate) fn new(evidence: &Evidence, judgement: &'a Judgement, without: &[String]) -> Self {
        let mut faults: BTreeMap<String, u64> = BTreeMap::new();
        let mut crashed_at: BTreeMap<String, u64> = BTreeMap::new();
        let (mut not_done, mut ended) = (0, 0);
        for one in &evidence.happenings {
            match one.what.as_str() {
                "fault" => *faults.entry(one.kind.clone()).or_default() += 1,
                "crashed" => *crashed_at.entry(one.kind.clone()).or_default() += 1,
                "not_done" => not_done += 1,
                "ended" => ended += 1,
                _ => {}
            }
        }
        let kills = faults
            .iter()
            .filter(|(kind, _)| is_kill(kind))
            .map(|(_, count)| count)
            .sum();
        let (began, ended_us) = evidence.run.storm_us;
        let until = evidence
            .clock
            .last()
            .map_or(ended_us, |sample| sample.after_us);
        let mut rules: BTreeMap<_, _> = RULES.into_iter().map(|rule| (rule, 0)).collect();
        rules.extend(judgement.broken.iter().map(|(rule, count)| (*rule, *count)));
        let faults_done = faults.values().sum();
        // A storm that did not take place proves nothing.
        let stormed = faults_done * 4 >= evidence.run.planned as u64 * 3;
        Self {
            passed: judgement.is_sound() && stormed,
            seed: evidence.run.seed,
            faults_planned: evidence.run.planned,
            faults_done,
            faults,
            kills,
            not_done,
            crashed_at,
            ended_by_themselves: ended,
            without: without.to_vec(),
            storm_seconds: (ended_us - began) / 1_000_000,
            drain_seconds: (until - ended_us) / 1_000_000,
            rules,
            judgement,
        }
    }

    /// Findings, figures, and what the run did not exercise.
    pub(crate) fn print(&self) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", serde_json::to_string_pretty(self)?)?;
        let done: BTreeSet<&str> = self.faults.keys().map(String::as_str).collect();
        let absent: Vec<_> = KINDS
            .into_iter()
            .filter(|kind| !done.contains(kind))
            .collect();
        writeln!(out, "\nnot exercised in this run: {}", absent.join(", "))?;
        for kind in &self.without {
            writeln!(out, "LEFT OUT by --without: {kind}")?;
        }
        for (rule, count) in &self.rules {
            let verdict = if *count == 0 { "kept" } else { "BROKEN" };
            writeln!(out, "{rule:<10} {verdict:<7} {count}")?;
        }
        // Once more where everybody looks: at the end.
        for finding in &self.judgement.findings {
            writeln!(out, "{finding}")?;
        }
        let figures = &self.judgement.figures;
        writeln!(
            out,
            "{}: {} faults, {} kills, {} late commits, {} answers of nonsense, {} accepted, \
             {} received, {} extra (all explained: {}), longest wait {} s, {} of {} signatures \
             verified",
            if self.passed { "SOUND" } else { "NOT SOUND" },
            self.faults_done,
            self.kills,
            self.faults.get("late-commit").unwrap_or(&0),
            figures.nonsense,
            figures.accepted,
            figures.receipts,
            figures.extra_receipts,
            if self.judgement.broken.contains_key("extra") {
                "no"
            } else {
                "yes"
            },
            figures.longest_wait_seconds,
            figures.verified,
            figures.receipts,
        )?;
        Ok(())
    }
}
