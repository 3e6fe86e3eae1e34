//! A broker of one test's own, to kill and to starve of memory.

use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) struct PrivateBroker {
    folder: tempfile::TempDir,
}

impl PrivateBroker {
    pub(crate) fn start() -> Self {
        let broker = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        broker.servers("start", &["rabbitmq"]);
        broker
    }

    /// As a crash would, without a farewell; then again, on the same port and
    /// with what it had written to disk.
    pub(crate) fn kill(&self) {
        self.servers("kill", &["rabbitmq"]);
    }

    /// Whether the broker has written down that there is this queue. It does so
    /// some seconds after it has confirmed that it was declared; one that is
    /// killed before comes back with a queue that never has a leader.
    pub(crate) fn has_written(&self, queue: &str) -> bool {
        let node = self.value("RABBITMQ_NODENAME");
        let names = format!("servers/rabbitmq/mnesia/{node}/quorum/{node}/names.dets");
        let written = std::fs::read(self.folder.path().join(names)).unwrap_or_default();
        let is_its = |rest: &[u8]| {
            rest.starts_with(queue.as_bytes()) && !rest[queue.len()..].starts_with(b".dead")
        };
        (0..written.len()).any(|at| is_its(&written[at..]))
    }

    pub(crate) fn start_again(&self) {
        self.servers("start", &["rabbitmq"]);
    }

    pub(crate) fn url(&self) -> String {
        self.value("AMQP_URL")
    }

    /// Runs rabbitmqctl against this broker.
    pub(crate) fn control(&self, arguments: &[&str]) {
        // Debian's one on the path changes to a user that cannot read our
        // folder.
        let plain = Path::new("/usr/lib/rabbitmq/bin/rabbitmqctl");
        let program = match plain.exists() {
            true => plain,
            false => Path::new("rabbitmqctl"),
        };
        let done = Command::new(program)
            .args(arguments)
            .env("HOME", self.folder.path().join("servers/rabbitmq"))
            .env("RABBITMQ_CONF_ENV_FILE", "/dev/null")
            .env("RABBITMQ_NODENAME", self.value("RABBITMQ_NODENAME"))
            .env("ERL_EPMD_PORT", self.value("ERL_EPMD_PORT"))
            .output()
            .unwrap();
        assert!(done.status.success(), "rabbitmqctl: {done:?}");
    }

    fn value(&self, key: &str) -> String {
        let file = self.folder.path().join("servers/rabbitmq.env");
        let text = std::fs::read_to_string(file).unwrap();
        let mut pairs = text.lines().filter_map(|line| line.split_once('='));
        let (_, value) = pairs.find(|(name, _)| *name == key).unwrap();
        value.to_owned()
    }

    fn servers(&self, command: &str, names: &[&str]) {
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scripts/servers");
        let done = Command::new(script)
            .arg(command)
            .arg(self.folder.path().join("servers"))
            .args(names)
            .output()
            .unwrap();
        assert!(done.status.success(), "servers {command}: {done:?}");
    }
}

impl Drop for PrivateBroker {
    fn drop(&mut self) {
        self.servers("remove", &[]);
    }
}
