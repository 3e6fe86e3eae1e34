//! Installs the peer: BullMQ, at the versions of a lock file, beside the scripts that
//! use it, in a folder under `target`. Once: later runs find it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tokio::process::Command;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// How long npm may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// The oldest Node that the locked versions run on.
const LEAST_NODE: (u32, u32) = (20, 18);

const LOCK: &str = include_str!("../../versus/package-lock.json");

/// What is in the folder, beside what npm brings.
const FILES: [(&str, &str); 6] = [
    ("package.json", include_str!("../../versus/package.json")),
    ("package-lock.json", LOCK),
    ("orders.mjs", include_str!("../../versus/orders.mjs")),
    ("queue.mjs", include_str!("../../versus/queue.mjs")),
    ("sender.mjs", include_str!("../../versus/sender.mjs")),
    ("signature.mjs", include_str!("../../versus/signature.mjs")),
];

/// Says for which lock npm has finished.
const READY: &str = "ready";

/// An installed peer.
#[derive(Debug, Clone)]
pub(super) struct Installed {
    pub(super) folder: PathBuf,
    /// Such as `v20.20.2`.
    pub(super) node: String,
    /// Such as `6.7.0`.
    pub(super) bullmq: String,
}

/// Installs it.
pub(super) async fn install() -> anyhow::Result<Installed> {
    let node = version("node").await?;
    ensure!(
        is_new_enough(&node),
        "node is {node}, and the peer needs {}.{} or later: https://nodejs.org",
        LEAST_NODE.0,
        LEAST_NODE.1
    );
    version("npm").await?;
    let folder = folder();
    fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    // Another run may install at the same time.
    let held = hold(folder.join("lock")).await?;
    write(&folder)?;
    let ready = folder.join(READY);
    if fs::read_to_string(&ready).is_ok_and(|of| of == LOCK) {
        drop(held);
    } else {
        npm(&folder).await?;
        fs::write(&ready, LOCK).context("say that the peer is installed")?;
    }
    Ok(Installed {
        folder,
        node,
        bullmq: locked("bullmq")?,
    })
}

/// Where: in the target folder, which is no part of the tree.
fn folder() -> PathBuf {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    tree.join(target).join("versus")
}

async fn version(program: &str) -> anyhow::Result<String> {
    let asked = Command::new(program).arg("--version").output().await;
    let output = match asked {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => bail!(
            "{program} is missing: BullMQ runs on Node.js {}, which brings npm \
             (https://nodejs.org); install it, and try again",
            LEAST_NODE.0
        ),
        Err(error) => return Err(error).with_context(|| format!("run {program} --version")),
    };
    ensure!(
        output.status.success(),
        "{program} --version ended with {}",
        output.status
    );
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Of `v20.20.2`.
fn is_new_enough(version: &str) -> bool {
    let mut parts = version.trim_start_matches('v').split('.');
    let mut part = || parts.next().and_then(|part| part.parse::<u32>().ok());
    part().zip(part()).is_some_and(|have| have >= LEAST_NODE)
}

/// Held until it is dropped.
async fn hold(path: PathBuf) -> anyhow::Result<File> {
    let held = spawn_blocking(move || {
        let file = File::create(path)?;
        file.lock()?;
        Ok::<_, std::io::Error>(file)
    });
    held.await?.context("wait for another installation")
}

/// Brings our files up to date.
fn write(folder: &Path) -> anyhow::Result<()> {
    for (name, text) in FILES {
        let path = folder.join(name);
        if fs::read_to_string(&path).ok().as_deref() != Some(text) {
            fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        }
    }
    Ok(())
}

async fn npm(folder: &Path) -> anyhow::Result<()> {
    match fs::remove_file(folder.join(READY)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).context("begin to install the peer");
        }
        Ok(()) | Err(_) => {}
    }
    let installing = Command::new("npm")
        .args(["ci", "--ignore-scripts", "--no-fund", "--no-audit"])
        .current_dir(folder)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(PATIENCE, installing).await;
    let output = output.context("install BullMQ: npm ci takes too long")?;
    let output = output.context("install BullMQ: run npm ci")?;
    ensure!(
        output.status.success(),
        "install BullMQ: npm ci ended with {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

/// The version of a package that the lock names.
fn locked(package: &str) -> anyhow::Result<String> {
    let lock: serde_json::Value = serde_json::from_str(LOCK).context("read the peer's lock")?;
    let version = lock["packages"][format!("node_modules/{package}")]["version"].as_str();
    let version = version.with_context(|| format!("the peer's lock has no {package}"))?;
    Ok(version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_node_are_compared_as_numbers() {
        for new in ["v20.18.1", "v20.20.2", "v22.0.0", "v100.1.0"] {
            assert!(is_new_enough(new), "{new}");
        }
        for old in ["v20.9.0", "v18.20.4", "v9.99.0", "", "x"] {
            assert!(!is_new_enough(old), "{old}");
        }
    }

    /// What is compared must be the same everywhere: each version is written down, and
    /// no address is but the one that npm has for the name.
    #[test]
    fn the_lock_pins_what_is_asked_for_and_names_no_registry() {
        let (_, asked) = FILES[0];
        let asked: serde_json::Value = serde_json::from_str(asked).unwrap();
        let packages = asked["dependencies"].as_object().unwrap();
        assert!(packages.contains_key("bullmq") && packages.contains_key("ioredis"));
        for (package, version) in packages {
            assert_eq!(&locked(package).unwrap(), version.as_str().unwrap());
        }
        assert!(!LOCK.contains("\"resolved\""));
        assert!(!LOCK.contains("://127.") && !LOCK.contains("localhost"));
    }
}
