//! `loadtest compare`: two reports beside each other.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use server::output;

use super::report::{FORMAT, Report, number};
use super::table::heading;

/// Shows two reports beside each other.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A report, as `--summary` has written it.
    before: PathBuf,
    /// Another one.
    after: PathBuf,
}

/// Prints the comparison.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (before, after) = (read(&args.before)?, read(&args.after)?);
    output::line(&compared(&before, &after))?;
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path) -> anyhow::Result<Report> {
    let text = std::fs::read_to_string(path);
    let text = text.with_context(|| format!("read {}", path.display()))?;
    parsed(&text).with_context(|| format!("{} is no report", path.display()))
}

fn parsed(text: &str) -> anyhow::Result<Report> {
    #[derive(serde::Deserialize)]
    struct Version {
        format: u32,
    }
    let version: Version = serde_json::from_str(text)?;
    let format = version.format;
    ensure!(
        format == FORMAT,
        "it has format {format}, this program reads {FORMAT}"
    );
    Ok(serde_json::from_str(text)?)
}

fn compared(before: &Report, after: &Report) -> String {
    let mut names: Vec<&str> = before.in_order().map(|(name, _)| name).collect();
    let new = after.in_order().map(|(name, _)| name);
    names.extend(new.filter(|name| before.metric(name).is_none()));
    let shown = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), number);
    let rows = names.into_iter().map(|name| {
        let (one, other) = (before.metric(name), after.metric(name));
        vec![name.to_owned(), shown(one), shown(other), ratio(one, other)]
    });
    let table = output::table(&["figure", "A", "B", "B / A"], rows);
    format!("A: {}\nB: {}\n\n{table}", heading(before), heading(after))
}

fn ratio(one: Option<f64>, other: Option<f64>) -> String {
    match (one, other) {
        (Some(one), Some(other)) if one.abs() > f64::EPSILON => format!("{:.2}", other / one),
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::gathering;
    use super::super::gathering::tests::evidence;
    use super::*;

    #[test]
    fn figures_stand_beside_each_other_with_their_ratio() {
        let before = gathering::report(evidence());
        let mut after = before.clone();
        after.metrics.insert("p50_ms".to_owned(), 3.5);
        after.metrics.remove("statements_per_delivery");
        after.metrics.insert("quiet_p99_ms".to_owned(), 8.0);
        let text = compared(&before, &after);
        let row = |name: &str| -> Vec<&str> {
            let line = text
                .lines()
                .find(|line| line.split_whitespace().next() == Some(name));
            line.unwrap().split_whitespace().skip(1).collect()
        };
        assert_eq!(row("p50_ms"), ["1", "3.5", "3.50"]);
        assert_eq!(row("statements_per_delivery"), ["6", "-", "-"]);
        assert_eq!(row("quiet_p99_ms"), ["-", "8", "-"]);
        assert_eq!(row("duplicates"), ["1", "1", "1.00"]);
        assert_eq!(row("drain_seconds").len(), 3);
    }

    #[test]
    fn a_report_of_another_format_is_refused() {
        let mut report = gathering::report(evidence());
        assert!(parsed(&serde_json::to_string(&report).unwrap()).is_ok());
        report.format = 2;
        let error = parsed(&serde_json::to_string(&report).unwrap()).unwrap_err();
        assert!(error.to_string().contains("format 2"), "{error}");
        assert!(parsed("{}").is_err());
    }
}
