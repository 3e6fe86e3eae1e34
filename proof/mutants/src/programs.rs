//! The test programs of the copy: built once, with every mutant in them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// One test program, and where its package is.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(crate) executable: PathBuf,
    pub(crate) folder: PathBuf,
}

/// What `cargo run` tells this program about its own package. Some build
/// scripts look at it, and would have all third-party crates built again.
const OF_OUR_PACKAGE: [&str; 6] = [
    "CARGO_BIN_NAME",
    "CARGO_CRATE_NAME",
    "CARGO_MANIFEST_",
    "CARGO_PKG_",
    "CARGO_PRIMARY_PACKAGE",
    "OUT_DIR",
];

/// The cargo that runs us, or the one that is installed.
fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if OF_OUR_PACKAGE.iter().any(|ours| name.starts_with(ours)) {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// Where cargo builds this workspace.
pub(crate) fn target_folder(root: &Path) -> Result<PathBuf> {
    let mut metadata = cargo();
    metadata.args([
        "metadata",
        "--no-deps",
        "--format-version",
        "1",
        "--offline",
    ]);
    let output = metadata
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()?;
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    let folder = metadata["target_directory"].as_str();
    Ok(folder.context("cargo names its target directory")?.into())
}

/// Builds these targets of the copy, and finds their programs.
///
/// All packages are selected, though only some have such targets: so cargo
/// chooses the features of third-party crates as for `cargo test --workspace`,
/// and finds them built.
pub(crate) fn build(
    tree: &Path,
    target_folder: &Path,
    targets: &BTreeSet<&str>,
) -> Result<BTreeMap<String, Program>> {
    let mut build = cargo();
    build.args(["test", "--workspace", "--locked", "--offline", "--no-run"]);
    build.arg("--message-format=json-render-diagnostics");
    // They run for seconds: to optimise them would take longer.
    for name in ["domain", "engine"] {
        build.arg(format!("--config=profile.dev.package.{name}.opt-level=0"));
    }
    for target in targets {
        build.args(["--test", target]);
    }
    build
        .current_dir(tree)
        .env("CARGO_TARGET_DIR", target_folder);
    let output = build.stderr(Stdio::piped()).output()?;
    if !output.status.success() {
        bail!(
            "the copy does not build:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let mut programs = BTreeMap::new();
    for line in String::from_utf8(output.stdout)?.lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        programs.extend(program(&message));
    }
    for target in targets {
        if !programs.contains_key(*target) {
            bail!("there is no test program {target}");
        }
    }
    Ok(programs)
}

/// The test program that a message of cargo tells of.
fn program(message: &Value) -> Option<(String, Program)> {
    let name = message["target"]["name"].as_str()?;
    let is_test = message["target"]["kind"]
        .as_array()?
        .iter()
        .any(|kind| kind == "test");
    let executable = message["executable"].as_str().filter(|_| is_test)?;
    let manifest = Path::new(message["manifest_path"].as_str()?);
    let program = Program {
        executable: executable.into(),
        folder: manifest.parent()?.into(),
    };
    Some((name.to_owned(), program))
}
