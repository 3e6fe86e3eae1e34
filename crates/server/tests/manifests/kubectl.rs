//! The real `kubectl`, in front of the API server in memory.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use tempfile::TempDir;
use tokio::process::Command;

use super::api_server::ApiServer;
use super::built::{kubectl, repository};

const KUBECONFIG: &str = r#"
apiVersion: v1
kind: Config
current-context: test
clusters: [{ name: test, cluster: { server: "http://ADDRESS" } }]
users: [{ name: test, user: {} }]
contexts: [{ name: test, context: { cluster: test, user: test } }]
"#;

/// No line takes longer in front of the API server in memory, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Nor in front of a real one: the longest time that a page's line gives itself, and a
/// namespace's end.
const REAL_PATIENCE: Duration = Duration::from_secs(1_200);

/// A shell in a folder of its own, whose `kubectl` asks the API server.
pub(crate) struct Shell {
    pub(crate) server: ApiServer,
    folder: TempDir,
    patience: Duration,
}

impl Shell {
    pub(crate) async fn start() -> Self {
        let server = ApiServer::start().await;
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("make a folder");
        let shell = Self {
            server,
            folder,
            patience: PATIENCE,
        };
        let address = shell.server.address.to_string();
        shell.write("kubeconfig", &KUBECONFIG.replace("ADDRESS", &address));
        let programs = shell.path().join("bin");
        std::fs::create_dir(&programs).expect("make a folder");
        let kubectl = which(&kubectl());
        let script = format!("#!/bin/sh\nexec '{}' \"$@\"\n", kubectl.display());
        shell.write("bin/kubectl", &script);
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(programs.join("kubectl"), mode).expect("it is ours");
        shell
    }

    /// The same in front of the cluster of this kubeconfig.
    pub(crate) fn on_a_real_cluster(mut self, kubeconfig: &str) -> Self {
        self.write("kubeconfig", kubeconfig);
        self.patience = REAL_PATIENCE;
        self
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        std::fs::write(self.path().join(path), text).expect("write it");
    }

    /// Puts a copy of the repository's `k8s` here, which can be changed.
    pub(crate) fn copy_manifests(&self) {
        copy(&repository().join("k8s"), &self.path().join("k8s"));
    }

    /// Runs a line, and gives back what came of it.
    pub(crate) async fn run(&self, line: &str) -> Output {
        let path = std::env::var("PATH").expect("there is a path");
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c", line])
            .current_dir(self.path())
            .env("PATH", format!("{}/bin:{path}", self.path().display()))
            .env("HOME", self.path())
            .env("KUBECONFIG", self.path().join("kubeconfig"))
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(self.patience, output).await;
        output
            .unwrap_or_else(|_elapsed| panic!("{line} does not end"))
            .expect("there is a shell")
    }

    /// Runs a line that has to end well, and gives back what it said.
    pub(crate) async fn done(&self, line: &str) -> String {
        let output = self.run(line).await;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let problem = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}\n{said}\n{problem}");
        said
    }
}

/// Where a program is: not by its name, which is ours in the shell.
fn which(program: &str) -> PathBuf {
    let path = std::env::var_os("PATH").expect("there is a path");
    let mut folders = std::env::split_paths(&path);
    let found = folders.find_map(|folder| folder.join(program).canonicalize().ok());
    found.unwrap_or_else(|| panic!("{program} is not there"))
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("make a folder");
    for entry in std::fs::read_dir(from).expect("it is there") {
        let entry = entry.expect("it can be read");
        let to = to.join(entry.file_name());
        match entry.file_type().expect("it can be read").is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).expect("copy it")),
        }
    }
}
