//! Counts the statements of a store on their way to the server: by the protocol,
//! so that any server will do, and nobody else's are counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use adapters::postgres::{PostgresOptions, PostgresStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use url::Url;

use crate::database::Database;

/// A store whose statements pass through here.
pub(crate) struct Counted {
    pub(crate) store: PostgresStore,
    statements: Arc<AtomicU64>,
    accepting: JoinHandle<()>,
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
        let statements = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&statements);
        let accepting = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let server = TcpStream::connect(server.clone()).await.unwrap();
                tokio::spawn(pass(client, server, Arc::clone(&counter)));
            }
        });
        let options = PostgresOptions {
            url: url.into(),
            max_connections: 1,
        };
        Self {
            store: PostgresStore::connect(options).await.unwrap(),
            statements,
            accepting,
        }
    }

    /// Statements so far, `begin` and `commit` too.
    pub(crate) fn statements(&self) -> u64 {
        self.statements.load(Ordering::SeqCst)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Forwards both ways until either end is done.
async fn pass(client: TcpStream, server: TcpStream, statements: Arc<AtomicU64>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let asking = async {
        let mut messages = Messages::default();
        let mut buffer = vec![0; 16 * 1_024];
        while let Ok(read @ 1..) = from_client.read(&mut buffer).await {
            statements.fetch_add(messages.statements_in(&buffer[..read]), Ordering::SeqCst);
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
    fn statements_in(&mut self, bytes: &[u8]) -> u64 {
        self.unread.extend_from_slice(bytes);
        let mut statements = 0;
        loop {
            let kind_bytes = usize::from(self.is_started);
            let Some(length) = self.unread.get(kind_bytes..kind_bytes + 4) else {
                return statements;
            };
            let length = u32::from_be_bytes(length.try_into().unwrap()) as usize;
            if self.unread.len() < kind_bytes + length {
                return statements;
            }
            // Execute, or a query without parameters.
            statements += u64::from(self.is_started && b"EQ".contains(&self.unread[0]));
            self.unread.drain(..kind_bytes + length);
            self.is_started = true;
        }
    }
}

#[test]
fn statements_are_counted_however_the_bytes_come() {
    let mut session = vec![0, 0, 0, 8, 0, 3, 0, 0];
    for (kind, body) in [
        (b'P', "x"),
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
        let counted: u64 = (session.chunks(size))
            .map(|bytes| messages.statements_in(bytes))
            .sum();
        assert_eq!(counted, 2, "in chunks of {size}");
    }
}
