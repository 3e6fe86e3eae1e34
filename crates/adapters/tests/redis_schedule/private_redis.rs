//! A Redis of a test's own, which it may wipe and kill; and a way to it that
//! can fall silent.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redis::Client;
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// How often to look whether a server is up, and how many times.
const POLL: Duration = Duration::from_millis(20);
const PATIENCE: usize = 1_000;

/// A `redis-server` child process on a free port; it ends with the test.
pub(super) struct PrivateRedis {
    child: Child,
    port: u16,
    arguments: Vec<String>,
    directory: TempDir,
}

impl PrivateRedis {
    /// Starts one with these further arguments.
    pub(super) async fn start(arguments: &[&str]) -> Self {
        let arguments: Vec<String> = arguments
            .iter()
            .map(|argument| (*argument).into())
            .collect();
        for _ in 0..10 {
            let port = free_port();
            let directory = tempfile::tempdir().unwrap();
            let child = spawn(port, &arguments, &directory);
            let mut redis = Self {
                child,
                port,
                arguments: arguments.clone(),
                directory,
            };
            if redis.is_up().await {
                return redis;
            }
            // Somebody took the port: the child has ended. Try another.
        }
        panic!("no redis-server could be started: is it installed?");
    }

    /// Kills it as a crash would.
    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again on the same port, in the same directory.
    pub(super) async fn start_again(&mut self) {
        self.child = spawn(self.port, &self.arguments, &self.directory);
        assert!(self.is_up().await, "redis-server did not come back");
    }

    pub(super) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    pub(super) fn url(&self) -> String {
        format!("redis://{}/", self.address())
    }

    /// Runs one command on a connection of its own.
    pub(super) async fn command(&self, words: &[&str]) {
        let mut connection = connection(&self.url()).await;
        let mut command = redis::cmd(words[0]);
        command
            .arg(&words[1..])
            .exec_async(&mut connection)
            .await
            .unwrap();
    }

    async fn is_up(&mut self) -> bool {
        for _ in 0..PATIENCE {
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            if TcpStream::connect(self.address()).await.is_ok() {
                return true;
            }
            tokio::time::sleep(POLL).await;
        }
        false
    }
}

impl Drop for PrivateRedis {
    fn drop(&mut self) {
        // It may have been killed already: then there is nothing to end.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A connection for looking at what is stored.
pub(super) async fn connection(url: &str) -> redis::aio::MultiplexedConnection {
    Client::open(url)
        .unwrap()
        .get_multiplexed_async_connection()
        .await
        .unwrap()
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

fn spawn(port: u16, arguments: &[String], directory: &TempDir) -> Child {
    Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no", "--dir"])
        .arg(directory.path())
        .args(arguments)
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server must be installed")
}

/// A proxy that can stop moving bytes without closing a connection, as a
/// machine that vanished does. Connections made after that work.
pub(super) struct SilentProxy {
    pub(super) address: SocketAddr,
    silence: watch::Sender<u64>,
}

impl SilentProxy {
    pub(super) async fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (silence, silenced) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut silenced = silenced.clone();
                silenced.mark_unchanged();
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(upstream).await.unwrap();
                    tokio::select! {
                        biased;
                        Ok(()) = silenced.changed() => std::future::pending().await,
                        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                    }
                });
            }
        });
        Self { address, silence }
    }

    /// Lets every connection of now fall silent.
    pub(super) fn fall_silent(&self) {
        self.silence.send_modify(|times| *times += 1);
    }
}
