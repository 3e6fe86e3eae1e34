//! The load client's thread, as this program sees it.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use tokio::sync::oneshot;
use tokio::task::LocalSet;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::client::{Client, Loaded, Tally, Target};
use super::shapes::Steps;

/// A client at work.
pub(crate) struct Loading {
    thread: std::thread::JoinHandle<anyhow::Result<Loaded>>,
    pub(crate) tally: Arc<Tally>,
    /// Where the kernel says what its thread has used.
    pub(crate) stat: PathBuf,
    /// When the first step was due, since the machine started.
    pub(crate) began_us: i64,
    /// Cancelled when the last answer is there.
    pub(crate) done: CancellationToken,
    stop: CancellationToken,
    leave: CancellationToken,
    /// A thread of which nobody knows any more must not go on.
    _on_drop: [DropGuard; 2],
}

impl Loading {
    /// Dials, and begins.
    pub(crate) async fn start(target: Target, steps: Steps) -> anyhow::Result<Self> {
        let tally = Arc::new(Tally::default());
        let (stop, done) = (CancellationToken::new(), CancellationToken::new());
        let leave = CancellationToken::new();
        let (ready, told) = oneshot::channel();
        let thread = {
            let (tally, stop) = (Arc::clone(&tally), stop.clone());
            let (done, leave) = (done.clone(), leave.clone());
            let client = async move || {
                let _done = done.clone().drop_guard();
                let client = Client::new(target, tally);
                let sent = client.run(steps, stop, ready).await;
                done.cancel();
                // The kernel forgets what a thread has used when it ends.
                leave.cancelled().await;
                sent
            };
            std::thread::Builder::new()
                .name("client".to_owned())
                .spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread()
                        .enable_all()
                        .build()?;
                    LocalSet::new().block_on(&runtime, client())
                })
                .context("start the client's thread")?
        };
        let Ok((stat, began_us)) = told.await else {
            leave.cancel();
            joined(thread).await?;
            anyhow::bail!("the client ended before it began");
        };
        Ok(Self {
            thread,
            tally,
            stat,
            began_us,
            done,
            _on_drop: [stop.clone().drop_guard(), leave.clone().drop_guard()],
            stop,
            leave,
        })
    }

    /// Sends nothing more; what is under way is waited for.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    /// Ends the thread; returns what became of every event.
    pub(crate) async fn finish(self) -> anyhow::Result<Loaded> {
        self.stop.cancel();
        self.leave.cancel();
        joined(self.thread).await
    }
}

async fn joined(thread: std::thread::JoinHandle<anyhow::Result<Loaded>>) -> anyhow::Result<Loaded> {
    let joined = tokio::task::spawn_blocking(move || thread.join()).await?;
    joined.ok().context("the client's thread broke")?
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use uuid::Uuid;

    use super::super::settings::Ingest;
    use super::super::shapes::Step;
    use super::*;

    /// How long the API takes to answer.
    const ANSWER: Duration = Duration::from_millis(50);

    /// An API that answers each request with this status.
    async fn api(status: u16) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, status));
            }
        });
        address
    }

    async fn answer(mut stream: TcpStream, status: u16) {
        let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: 2\r\n\r\n{{}}");
        let mut read = Vec::new();
        // A request ends where its payload does.
        while let Ok(1..) = stream.read_buf(&mut read).await {
            while let Some(end) = read.windows(4).position(|four| four == b"x\"}}") {
                read.drain(..end + 4);
                tokio::time::sleep(ANSWER).await;
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        }
    }

    async fn loaded(address: String, connections: u32, events: u32) -> Loaded {
        let target = Target {
            addresses: vec![address],
            destinations: vec![(Uuid::nil(), 0)],
            keys: vec!["Bearer key".to_owned()],
            payload_bytes: 200,
            ingest: Ingest::Single,
            connections,
        };
        let step = Step {
            at_us: 0,
            destination: 0,
            count: events,
        };
        let steps = Box::new(std::iter::once(step));
        let loading = Loading::start(target, steps).await.unwrap();
        loading.done.cancelled().await;
        assert!(loading.stat.is_file(), "its thread is still known");
        loading.finish().await.unwrap()
    }

    #[tokio::test]
    async fn what_finds_no_connection_free_is_late_and_says_so() {
        let loaded = loaded(api(202).await, 2, 10).await;
        assert_eq!(loaded.sent.len(), 10);
        assert!(loaded.sent.iter().all(|sent| sent.accepted_us > 0));
        let late = loaded.sent.iter().map(|sent| sent.sent_us - sent.due_us);
        let rounds_before_the_last = 4;
        let least = ANSWER.as_micros() as i64 * rounds_before_the_last;
        assert!(late.max().unwrap() >= least, "two at a time");
        assert!(loaded.refusals.is_empty());
    }

    #[tokio::test]
    async fn refusals_are_counted_by_status() {
        let loaded = loaded(api(429).await, 4, 7).await;
        assert_eq!(loaded.refusals, BTreeMap::from([(429, 7)]));
        assert!(loaded.sent.iter().all(|sent| sent.accepted_us == 0));
    }

    #[tokio::test]
    async fn an_api_that_is_not_there_is_an_error() {
        let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = nobody.local_addr().unwrap().to_string();
        drop(nobody);
        let target = Target {
            addresses: vec![address],
            destinations: Vec::new(),
            keys: Vec::new(),
            payload_bytes: 64,
            ingest: Ingest::Auto,
            connections: 1,
        };
        let started = Loading::start(target, Box::new(std::iter::empty())).await;
        assert!(started.is_err());
    }
}
