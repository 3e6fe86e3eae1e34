//! The demo's live table.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use comfy_table::CellAlignment;
use domain::time::Timestamp;
use engine::ports::LedgerRow;

use crate::output;
use crate::trial::{LATENCY_ALLOWANCE, Ledger, Trial};

/// The window that "now" is.
const RECENT: Duration = Duration::from_secs(1);

/// Where a terminal's cursor goes before the table is drawn again.
const ERASE_BELOW: &str = "\x1b[J";

/// Draws over itself on a terminal; elsewhere it prints every fifth state.
pub(super) struct Table {
    quiet: bool,
    terminal: bool,
    lines: usize,
    updates: u64,
}

impl Table {
    pub(super) fn new(quiet: bool) -> Self {
        Self {
            quiet,
            terminal: std::io::stdout().is_terminal(),
            lines: 0,
            updates: 0,
        }
    }

    pub(super) fn intro(&mut self, parts: &str, seconds: u32) -> anyhow::Result<()> {
        self.print(&format!(
            "Paceline demo, {seconds} s: {parts}.\n\
             Nine receivers on this machine, each with its own limit, all flooded at once.\n"
        ))
    }

    /// A line that stays.
    pub(super) fn say(&mut self, line: &str) -> anyhow::Result<()> {
        self.erase()?;
        self.print(&format!("{line}\n"))
    }

    /// Draws the present state.
    pub(super) async fn update(
        &mut self,
        trial: &mut Trial,
        elapsed: Duration,
    ) -> anyhow::Result<()> {
        self.updates += 1;
        if self.quiet || !(self.terminal || self.updates.is_multiple_of(5)) {
            return Ok(());
        }
        let now = trial.now().await?;
        let backlogs = trial.backlogs().await?;
        let mut rows = Vec::new();
        for (placed, backlog) in trial.placed.iter().zip(backlogs) {
            let ledger = trial.ledger(placed.id, now).await?;
            rows.push(row(&placed.plan.name, backlog, &ledger, trial.began, now));
        }
        let drawn = draw(rows);
        self.erase()?;
        self.print(&format!("after {:.0} s\n{drawn}\n", elapsed.as_secs_f64()))?;
        self.lines = drawn.lines().count() + 1;
        Ok(())
    }

    fn erase(&mut self) -> anyhow::Result<()> {
        if self.terminal && self.lines > 0 {
            let up = self.lines;
            self.print(&format!("\x1b[{up}A\r{ERASE_BELOW}"))?;
        }
        self.lines = 0;
        Ok(())
    }

    fn print(&self, text: &str) -> anyhow::Result<()> {
        if !self.quiet {
            let mut out = std::io::stdout().lock();
            out.write_all(text.as_bytes())?;
            out.flush()?;
        }
        Ok(())
    }
}

fn row(name: &str, backlog: u32, ledger: &Ledger, began: Timestamp, now: Timestamp) -> [String; 6] {
    let started: Vec<_> = ledger
        .rows
        .iter()
        .filter_map(|row| row.started_at)
        .collect();
    let recent = started.iter().filter(|at| **at > now - RECENT).count();
    let share = ledger.share((began, now), LATENCY_ALLOWANCE);
    let (p50, p99) = latencies(&ledger.rows);
    [
        name.to_owned(),
        backlog.to_string(),
        format!("{recent}/s"),
        format!("{:.1} %", share.percent().min(100.0)),
        p50,
        p99,
    ]
}

/// From start to outcome, which is what the receivers make it.
fn latencies(rows: &[LedgerRow]) -> (String, String) {
    let mut millis: Vec<_> = (rows.iter())
        .filter_map(|row| Some(row.finished_at?.since(row.started_at?).as_secs_f64() * 1_000.0))
        .collect();
    millis.sort_unstable_by(f64::total_cmp);
    let at = |percent: usize| {
        let index = millis.len() * percent / 100;
        (millis.get(index)).map_or("–".to_owned(), |millis| format!("{millis:.1} ms"))
    };
    (at(50), at(99))
}

fn draw(rows: Vec<[String; 6]>) -> String {
    let header = ["limit", "backlog", "rate now", "share used", "p50", "p99"];
    let mut table = output::table(&header, rows.into_iter().map(Vec::from));
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}
