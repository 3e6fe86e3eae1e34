//! What this machine lets a run do, beyond running servers.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use tokio::process::Command;

/// Who Postgres runs as when we are root; as in `scripts/servers`.
const OWNERS: [&str; 2] = ["postgres", "nobody"];

/// What was found.
#[derive(Debug, Clone)]
pub(crate) struct Abilities {
    /// Where libfaketime is.
    pub(crate) faketime: Option<PathBuf>,
    /// The words before `mount`: none for root, `sudo -n` otherwise.
    pub(crate) mount: Option<Vec<&'static str>>,
}

impl Abilities {
    /// Looks for libfaketime, and tries `mount`.
    pub(crate) async fn find() -> Self {
        let mut found = Vec::new();
        for folder in ["/usr/lib", "/usr/local/lib"] {
            found.push(Path::new(folder).join("faketime/libfaketime.so.1"));
            let Ok(entries) = std::fs::read_dir(folder) else {
                continue;
            };
            let inner = entries.flatten().map(|entry| entry.path());
            found.extend(inner.map(|path| path.join("faketime/libfaketime.so.1")));
        }
        let is_root = rustix::process::geteuid().is_root();
        let words = if is_root { vec![] } else { vec!["sudo", "-n"] };
        Self {
            faketime: found.into_iter().find(|path| path.is_file()),
            mount: can_mount(&words).await.then_some(words),
        }
    }
}

async fn can_mount(words: &[&str]) -> bool {
    let Ok(folder) = tempfile::tempdir() else {
        return false;
    };
    let folder = folder.path().to_string_lossy().into_owned();
    let mount = [
        "mount",
        "-t",
        "tmpfs",
        "-o",
        "size=1m",
        "paceline-chaos",
        &folder,
    ];
    run(words, &mount).await.is_ok() && run(words, &["umount", &folder]).await.is_ok()
}

/// Runs a command after these words, such as `sudo -n`.
pub(super) async fn run(words: &[&str], command: &[&str]) -> anyhow::Result<()> {
    let mut all = words.iter().chain(command);
    let program = all.next().context("no command")?;
    let done = (Command::new(program).args(all).kill_on_drop(true))
        .output()
        .await
        .with_context(|| format!("run {program}"))?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{command:?}: {said}");
    Ok(())
}

/// Numbers of the user and group that Postgres runs as.
pub(super) async fn owner() -> anyhow::Result<(String, String)> {
    if !rustix::process::geteuid().is_root() {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        return Ok((uid.as_raw().to_string(), gid.as_raw().to_string()));
    }
    for name in OWNERS {
        let number = async |flag| {
            let done = Command::new("id").args([flag, name]).output().await.ok()?;
            let text = String::from_utf8(done.stdout).ok()?;
            done.status.success().then(|| text.trim().to_owned())
        };
        if let (Some(uid), Some(gid)) = (number("-u").await, number("-g").await) {
            return Ok((uid, gid));
        }
    }
    anyhow::bail!("there is no user that Postgres could run as")
}
