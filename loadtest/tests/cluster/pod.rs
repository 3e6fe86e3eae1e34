//! A pod: a whole Paceline over a SQLite file, in a process of its own that can
//! be killed and started again at the same address.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use server::config::THIS_HOST;
use server::edge::Mint;
use server::secret_keys::new_key;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

/// The key of its API.
pub(crate) const KEY: &str = "a-key-of-the-load-test";

/// It ends when this is dropped.
pub(crate) struct Pod {
    /// Where its API is.
    pub(crate) address: String,
    database: PathBuf,
    secret_key: String,
    child: Option<Child>,
}

impl Pod {
    /// Starts it, and waits until it listens.
    pub(crate) async fn start(folder: &Path) -> Self {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut pod = Self {
            address: free.local_addr().unwrap().to_string(),
            database: folder.join("paceline.db"),
            secret_key: new_key(&Mint::from_system().unwrap()).to_string(),
            child: None,
        };
        drop(free);
        pod.spawn();
        while TcpStream::connect(&pod.address).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        pod
    }

    /// `kill -9`, and again from the start, as a Deployment would.
    pub(crate) async fn replace(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().await.unwrap();
        }
        self.spawn();
    }

    fn spawn(&mut self) {
        let child = Command::new(env!("CARGO_BIN_EXE_loadtest"))
            .arg("serve")
            .env("PACELINE_API_KEY", KEY)
            .env("PACELINE_LISTEN", &self.address)
            .env(
                "PACELINE_DATABASE_URL",
                format!("sqlite:{}", self.database.display()),
            )
            .env("PACELINE_SCHEDULE_URL", "in-process")
            .env("PACELINE_QUEUE_URL", "in-process")
            .env("PACELINE_SECRET_KEYS", &self.secret_key)
            .env("PACELINE_ALLOW_HTTP", "true")
            .env("PACELINE_ALLOW_NETWORKS", THIS_HOST)
            .env("PACELINE_LOG", "error")
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("this program starts");
        self.child = Some(child);
    }
}
