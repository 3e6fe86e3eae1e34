//! Counts the statements of a store on their way to the server: by the protocol,
//! so that any server will do, and nobody else's are counted.

use std::sync::{Arc, Mutex};

use adapters::postgres::{PostgresOptions, PostgresStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use url::Url;

use crate::database::Database;

/// A store whose statements pass through here.
pub(crate) struct Counted {
    pub(crate) store: PostgresStore,
    seen: Arc<Mutex<Seen>>,
    accepting: JoinHandle<()>,
}

/// What has passed.
#[derive(Default)]
struct Seen {
    statements: u64,
    /// Texts, as they were prepared.
    prepared: Vec<String>,
}

impl Counted {
    /// Another way to this database, over one connection.
    pub(crate) async fn of(database: &Database) -> Self {
        let mut url = Url::parse(&database.url).unwrap();
        let host = url.host_str().unwrap().to_owned();
        let server = (host, url.port().unwrap_or(5_432));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        url.set_host(Some("127.0.0.1")).unwrap();
        let port = listener.local_addr().unwrap().port();
        url.set_port(Some(port)).unwrap();
        url.set_query(Some("sslmode=disable"));
        let seen = Arc::new(Mutex::new(Seen::default()));
        let passing = Arc::clone(&seen);
        let accepting = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let server = TcpStream::connect(server.clone()).await.unwrap();
                tokio::spawn(pass(client, server, Arc::clone(&passing)));
            }
        });
        let options = PostgresOptions {
            url: url.into(),
            max_connections: 1,
        };
        Self {
            store: PostgresStore::connect(options).await.unwrap(),
            seen,
            accepting,
        }
    }

    /// Statements so far, `begin` and `commit` too.
    pub(crate) fn statements(&self) -> u64 {
        self.seen.lock().unwrap().statements
    }

    /// The text of the statement of this name, which has been prepared.
    pub(crate) fn text(&self, name: &str) -> String {
        let seen = self.seen.lock().unwrap();
        let is_it = |text: &&String| text.contains(name);
        seen.prepared.iter().find(is_it).unwrap().clone()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Forwards both ways until either end is done.
async fn pass(client: TcpStream, server: TcpStream, seen: Arc<Mutex<Seen>>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let asking = async {
        let mut messages = Messages::default();
        let mut buffer = vec![0; 16 * 1_024];
        while let Ok(read @ 1..) = from_client.read(&mut buffer).await {
            messages.see(&buffer[..read], &mut seen.lock().unwrap());
            if to_server.write_all(&buffer[..read]).await.is_err() {
                break;
            }
        }
    };
    let answering = copy(&mut from_server, &mut to_client);
    tokio::select! {
        biased;
        () = asking => {}
        _ = answering => {}
    }
}

/// A client's side of a connection, cut into messages.
#[derive(Default)]
struct Messages {
    unread: Vec<u8>,
    /// The first message has a length and no kind.
    is_started: bool,
}

impl Messages {
    fn see(&mut self, bytes: &[u8], seen: &mut Seen) {
        self.unread.extend_from_slice(bytes);
        loop {
            let kind_bytes = usize::from(self.is_started);
            let Some(length) = self.unread.get(kind_bytes..kind_bytes + 4) else {
                return;
            };
            let length = u32::from_be_bytes(length.try_into().unwrap()) as usize;
            if self.unread.len() < kind_bytes + length {
                return;
            }
            let message: Vec<u8> = self.unread.drain(..kind_bytes + length).collect();
            // Execute, or a query without parameters.
            seen.statements += u64::from(self.is_started && b"EQ".contains(&message[0]));
            if self.is_started && message[0] == b'P' {
                // Its name, its text and its parameters' types.
                let text = message[5..]
                    .split(|byte| *byte == 0)
                    .nth(1)
                    .unwrap_or_default();
                (seen.prepared).push(String::from_utf8_lossy(text).into_owned());
            }
            self.is_started = true;
        }
    }
}

#[test]
fn statements_are_counted_however_the_bytes_come() {
    let mut session = vec![0, 0, 0, 8, 0, 3, 0, 0];
    for (kind, body) in [
        (b'P', "name\0select 'E'\0\0"),
        (b'B', ""),
        (b'E', "E"),
        (b'S', ""),
        (b'Q', "QE"),
    ] {
        session.push(kind);
        session.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        session.extend_from_slice(body.as_bytes());
    }
    for size in 1..session.len() {
        let mut messages = Messages::default();
        let mut seen = Seen::default();
        for bytes in session.chunks(size) {
            messages.see(bytes, &mut seen);
        }
        assert_eq!(seen.statements, 2, "in chunks of {size}");
        assert_eq!(seen.prepared, ["select 'E'"], "in chunks of {size}");
    }
}
