//! What is said when there is no server.

use std::net::TcpListener;

use adapters::postgres::{PostgresOptions, PostgresStore};

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
