//! `paceline crd`: what Kubernetes has to know before there can be resources.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;

/// Prints it, as YAML.
pub fn run() -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    out.write_all(operator::crd::yaml().as_bytes())
        .context("print the definition")?;
    Ok(ExitCode::SUCCESS)
}
