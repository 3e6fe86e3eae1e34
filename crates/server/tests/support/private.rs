//! Servers of one test's own, which it may kill: started by the project's
//! `scripts/servers` in a folder that goes with the test.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;

use server::trial::Servers;

/// Running servers.
pub(crate) struct PrivateServers {
    folder: tempfile::TempDir,
}

impl PrivateServers {
    /// Starts these; panics with the script's words if one does not start.
    pub(crate) fn start(names: &[&str]) -> Self {
        let private = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        private.script("start", names);
        private
    }

    /// Their URLs.
    pub(crate) fn servers(&self) -> Servers {
        Servers {
            database: self.value("postgres", "DATABASE_URL"),
            schedule: self.value("redis", "REDIS_URL"),
            queue: self.value("rabbitmq", "AMQP_URL"),
        }
    }

    /// `kill -9`.
    pub(crate) fn kill(&self, name: &str) {
        self.script("kill", &[name]);
    }

    /// Starts a killed one again, on the same port.
    pub(crate) fn restart(&self, name: &str) {
        self.script("start", &[name]);
    }

    fn script(&self, verb: &str, names: &[&str]) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/servers");
        let output = Command::new(script)
            .arg(verb)
            .arg(self.data())
            .args(names)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "scripts/servers {verb} {names:?}: {said}"
        );
    }

    /// The script wants a folder that is new.
    fn data(&self) -> PathBuf {
        self.folder.path().join("servers")
    }

    /// What its script says of one of them.
    pub(crate) fn value(&self, name: &str, variable: &str) -> String {
        let file = self.data().join(format!("{name}.env"));
        let text = std::fs::read_to_string(file).unwrap();
        (text.lines())
            .find_map(|line| line.strip_prefix(variable)?.strip_prefix('='))
            .unwrap()
            .to_owned()
    }
}

impl Drop for PrivateServers {
    fn drop(&mut self) {
        self.script("remove", &[]);
    }
}
