//! What a person does to a part from its own shell: `psql`, `sqlite3`,
//! `redis-cli`, `rabbitmqctl`.
//!
//! For the demo, the load test and the tests, which change limits by SQL and
//! take things away in mid-run. Every call opens a connection of its own and
//! closes it: nothing here is on the path of an event.

use std::path::Path;
use std::time::Duration;

use lapin::options::{QueueDeleteOptions, QueuePurgeOptions};
use lapin::{ConnectionProperties, types::ShortString};
use sqlx::Connection;

/// A command was refused, or the server could not be reached.
#[derive(Debug, thiserror::Error)]
#[error("{server}: {problem}")]
pub struct ShellError {
    /// Such as `postgres`.
    server: &'static str,
    /// What it said, without the URL.
    problem: String,
}

impl ShellError {
    fn of(server: &'static str) -> impl Fn(String) -> Self {
        move |problem| Self { server, problem }
    }
}

/// Runs SQL statements in a Postgres database.
pub async fn psql(url: &str, sql: &str) -> Result<(), ShellError> {
    let failed = |error: sqlx::Error| ShellError::of("postgres")(error.to_string());
    let mut connection = sqlx::PgConnection::connect(url).await.map_err(failed)?;
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned()))
        .execute(&mut connection)
        .await
        .map_err(failed)?;
    connection.close().await.map_err(failed)
}

/// Runs SQL statements on a SQLite file, beside the process that has it open.
pub fn sqlite3(path: &Path, sql: &str) -> Result<(), ShellError> {
    let failed = |error: rusqlite::Error| ShellError::of("sqlite")(error.to_string());
    let connection = rusqlite::Connection::open(path).map_err(failed)?;
    connection
        .busy_timeout(Duration::from_secs(5))
        .map_err(failed)?;
    connection.execute_batch(sql).map_err(failed)
}

/// Sends one command to Redis, such as `["FLUSHALL"]`.
pub async fn redis_cli(url: &str, command: &[&str]) -> Result<(), ShellError> {
    let failed = |error: ::redis::RedisError| ShellError::of("redis")(error.to_string());
    let client = ::redis::Client::open(url).map_err(failed)?;
    let mut connection = client
        .get_multiplexed_async_connection()
        .await
        .map_err(failed)?;
    let mut parts = command.iter();
    let mut redis = ::redis::cmd(parts.next().unwrap_or(&"PING"));
    parts.for_each(|argument| {
        redis.arg(*argument);
    });
    redis
        .query_async::<::redis::Value>(&mut connection)
        .await
        .map_err(failed)?;
    Ok(())
}

/// Removes every key that begins with `prefix`.
pub async fn redis_forget(url: &str, prefix: &str) -> Result<(), ShellError> {
    let failed = |error: ::redis::RedisError| ShellError::of("redis")(error.to_string());
    let client = ::redis::Client::open(url).map_err(failed)?;
    let mut connection = client
        .get_multiplexed_async_connection()
        .await
        .map_err(failed)?;
    let keys: Vec<String> = ::redis::cmd("KEYS")
        .arg(format!("{prefix}:*"))
        .query_async(&mut connection)
        .await
        .map_err(failed)?;
    if !keys.is_empty() {
        ::redis::cmd("DEL")
            .arg(keys)
            .query_async::<()>(&mut connection)
            .await
            .map_err(failed)?;
    }
    Ok(())
}

/// What to do to a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueCommand {
    /// Throw its messages away.
    Purge,
    /// Delete it, with its messages.
    Delete,
}

/// Purges or deletes one queue of a RabbitMQ.
pub async fn rabbitmq(url: &str, queue: &str, command: QueueCommand) -> Result<(), ShellError> {
    let failed = |error: lapin::Error| ShellError::of("rabbitmq")(error.to_string());
    let properties = ConnectionProperties::default();
    let connection = lapin::Connection::connect(url, properties)
        .await
        .map_err(failed)?;
    let channel = connection.create_channel().await.map_err(failed)?;
    let name = ShortString::from(queue);
    match command {
        QueueCommand::Purge => {
            let options = QueuePurgeOptions::default();
            channel.queue_purge(name, options).await.map_err(failed)?;
        }
        QueueCommand::Delete => {
            let options = QueueDeleteOptions::default();
            channel.queue_delete(name, options).await.map_err(failed)?;
        }
    }
    connection.close(200, "done".into()).await.map_err(failed)
}
