//! Connections: what is said when there is no server, and what a statement
//! costs.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use adapters::postgres::{PostgresOptions, PostgresStore};
use engine::ports::{Catalog, CatalogError, Store};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::database::{Database, run};

/// The pool's own words are that it timed out; the reason is what helps.
#[tokio::test]
async fn an_address_without_server_is_refused_with_the_reason() {
    // A port that was free a moment ago, and nobody listens on.
    let port = TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .unwrap()
        .port();
    let options = PostgresOptions {
        url: format!("postgres://me:hunter2@127.0.0.1:{port}/nowhere"),
        max_connections: 1,
    };
    let error = PostgresStore::connect(options).await.err().unwrap();
    let error = error.to_string().to_lowercase();
    assert!(error.contains("connection refused"), "{error}");
    assert!(!error.contains("hunter2"));
}

/// Nobody has migrated, then somebody has, half-way, whole, and further than we know.
#[tokio::test]
async fn a_schema_that_is_older_than_needed_is_not_ready() {
    let database = Database::empty().await;
    let found = async || match database.store.ready().await {
        Ok(()) => None,
        Err(CatalogError::Schema { found, needed }) => Some((found, needed)),
        Err(other) => panic!("{other}"),
    };
    let (nothing, needed) = found().await.expect("nobody has migrated");
    assert_eq!(nothing, 0);
    database.store.migrate().await.unwrap();
    assert_eq!(found().await, None);
    let mut user = database.user().await;
    let newest = "(select max(version) from _sqlx_migrations)";
    let unfinished =
        format!("update _sqlx_migrations set success = false where version = {newest}");
    run(&mut user, unfinished).await;
    let (older, _) = found().await.expect("the last one is missing");
    assert!(0 < older && older < needed, "{older} of {needed}");
    // The next version's migration is done while we still serve.
    run(
        &mut user,
        format!(
            "update _sqlx_migrations set success = true;
             insert into _sqlx_migrations (version, description, success, checksum, execution_time)
             values ({newest} + 1, 'next', true, '', 0)"
        ),
    )
    .await;
    assert_eq!(found().await, None);
    // One of our pods starts once more, and changes nothing.
    database.store.migrate().await.unwrap();
    assert_eq!(found().await, None);
    // Of a schema that is not newer but another, nothing is known.
    let another = "update _sqlx_migrations set version = 0 where
        description = 'next'";
    run(&mut user, another.to_owned()).await;
    let refused = database.store.migrate().await.unwrap_err().to_string();
    assert!(refused.contains("migration 0"), "{refused}");
}

/// One round trip to ask, and one on the way back to the pool. To ask whether
/// the connection lives before each statement would be a third.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_on_a_warm_connection_is_one_round_trip() {
    let database = Database::create().await;
    let answers = Arc::new(AtomicUsize::new(0));
    let options = PostgresOptions {
        url: counted(&database.url, &answers).await,
        max_connections: 1,
    };
    let store = PostgresStore::connect(options).await.unwrap();
    // With one connection, a statement waits until it is back from the last.
    store.fleet().await.unwrap();
    store.fleet().await.unwrap();
    let before = answers.load(Ordering::SeqCst);
    for _ in 0..10 {
        store.fleet().await.unwrap();
    }
    let trips = answers.load(Ordering::SeqCst) - before;
    assert!((19..=21).contains(&trips), "{trips} for 10 statements");
}

/// Each dead connection costs one statement at most.
#[tokio::test]
async fn connections_that_the_server_ended_are_dialled_again() {
    let database = Database::create().await;
    let mut user = database.user().await;
    database.store.fleet().await.unwrap();
    let ours = "datname = current_database() and pid <> pg_backend_pid()";
    let end = format!("select pg_terminate_backend(pid) from pg_stat_activity where {ours}");
    run(&mut user, end).await;
    let mut failures = 0;
    while database.store.fleet().await.is_err() {
        failures += 1;
        assert!(failures <= 12, "more often than there are connections");
    }
}

/// The URL by way of a proxy that counts the server's `ReadyForQuery`.
async fn counted(url: &str, answers: &Arc<AtomicUsize>) -> String {
    let mut url = url::Url::parse(url).unwrap();
    let server = format!("{}:{}", url.host_str().unwrap(), url.port().unwrap_or(5432));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let answers = Arc::clone(answers);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(&server).await.unwrap();
            tokio::spawn(forward(client, server, Arc::clone(&answers)));
        }
    });
    url.set_host(Some("127.0.0.1")).unwrap();
    url.set_port(Some(port)).unwrap();
    url.query_pairs_mut().append_pair("sslmode", "disable");
    url.into()
}

async fn forward(client: TcpStream, server: TcpStream, answers: Arc<AtomicUsize>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
    // Each message: a letter, and its length without the letter.
    let mut head = [0; 5];
    while from_server.read_exact(&mut head).await.is_ok() {
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let mut message = head.to_vec();
        message.resize(length + 1, 0);
        if from_server.read_exact(&mut message[5..]).await.is_err() {
            return;
        }
        if head[0] == b'Z' {
            answers.fetch_add(1, Ordering::SeqCst);
        }
        if to_client.write_all(&message).await.is_err() {
            return;
        }
    }
}

/// A pooler that knows of no `options`: it leaves the parameter out.
async fn forgetful_pooler(server: String) -> u16 {
    use tokio::io::copy_bidirectional;

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let server = server.clone();
            tokio::spawn(async move {
                let startup = loop {
                    let length = client.read_u32().await.unwrap() as usize;
                    let mut message = vec![0; length - 4];
                    client.read_exact(&mut message).await.unwrap();
                    // A request for TLS; no.
                    match message[..4] == 80_877_103_u32.to_be_bytes() {
                        true => client.write_all(b"N").await.unwrap(),
                        false => break message,
                    }
                };
                let words: Vec<&[u8]> = startup[4..].split(|byte| *byte == 0).collect();
                let mut kept = startup[..4].to_vec();
                for pair in words.chunks(2).filter(|pair| !pair[0].is_empty()) {
                    if pair[0] != b"options" {
                        kept.extend([pair[0], b"\0", pair[1], b"\0"].concat());
                    }
                }
                kept.push(0);
                let mut server = tokio::net::TcpStream::connect(server).await.unwrap();
                server.write_u32(kept.len() as u32 + 4).await.unwrap();
                server.write_all(&kept).await.unwrap();
                let _ = copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    port
}

#[tokio::test]
async fn a_pooler_that_drops_settings_is_refused_in_words() {
    let database = Database::create().await;
    let (before, name) = database.url.rsplit_once('/').unwrap();
    let (user, server) = before.rsplit_once('@').unwrap();
    let port = forgetful_pooler(server.to_owned()).await;
    let options = PostgresOptions {
        url: format!("{user}@127.0.0.1:{port}/{name}"),
        max_connections: 1,
    };
    let refused = PostgresStore::connect(options).await.unwrap_err();
    let refused = refused.to_string();
    for word in ["statement_timeout", "\"5s\"", "pooler", "options"] {
        assert!(refused.contains(word), "{word}: {refused}");
    }
}
