//! Which part a URL names, and which parts a role can share.

use std::path::PathBuf;

use super::{ConfigError, QueueConfig, ScheduleConfig, SecretUrl, StoreConfig};

/// The store.
#[derive(Debug, Clone)]
pub enum Database {
    /// One file, one process.
    Sqlite(PathBuf),
    /// In memory: gone with the process.
    SqliteInMemory,
    /// Shared.
    Postgres(SecretUrl),
}

/// The schedule.
#[derive(Debug, Clone)]
pub enum SchedulePlace {
    /// In this process.
    InProcess,
    /// Shared.
    Redis(SecretUrl),
}

/// The delivery queue.
#[derive(Debug, Clone)]
pub enum QueuePlace {
    /// In this process.
    InProcess,
    /// Shared.
    RabbitMq(SecretUrl),
}

impl StoreConfig {
    /// Which store it is.
    pub fn place(&self) -> Result<Database, ConfigError> {
        let text = self.database_url.expose();
        match self.database_url.scheme() {
            "postgres" | "postgresql" => Ok(Database::Postgres(self.database_url.clone())),
            "sqlite" => sqlite(text.trim_start_matches("sqlite:")),
            _ => Err(ConfigError::flag(
                "database-url",
                "expected sqlite:FILE or postgres://…",
            )),
        }
    }
}

/// `sqlite:a.db`, `sqlite:///var/a.db` and `sqlite::memory:`.
fn sqlite(rest: &str) -> Result<Database, ConfigError> {
    let path = rest.strip_prefix("//").unwrap_or(rest);
    match path {
        ":memory:" => Ok(Database::SqliteInMemory),
        "" => Err(ConfigError::flag(
            "database-url",
            "sqlite: needs a file, such as sqlite:paceline.db",
        )),
        path if path.contains('?') => Err(ConfigError::flag(
            "database-url",
            "sqlite: takes a file and no ?options",
        )),
        path => Ok(Database::Sqlite(PathBuf::from(path))),
    }
}

impl ScheduleConfig {
    /// Which schedule it is.
    pub fn place(&self) -> Result<SchedulePlace, ConfigError> {
        match (self.schedule_url.expose(), self.schedule_url.scheme()) {
            ("in-process", _) => Ok(SchedulePlace::InProcess),
            (_, "redis" | "rediss") => Ok(SchedulePlace::Redis(self.schedule_url.clone())),
            _ => Err(ConfigError::flag(
                "schedule-url",
                "expected in-process or redis://…",
            )),
        }
    }
}

impl QueueConfig {
    /// Which queue it is.
    pub fn place(&self) -> Result<QueuePlace, ConfigError> {
        match (self.queue_url.expose(), self.queue_url.scheme()) {
            ("in-process", _) => Ok(QueuePlace::InProcess),
            (_, "amqp" | "amqps") => Ok(QueuePlace::RabbitMq(self.queue_url.clone())),
            _ => Err(ConfigError::flag(
                "queue-url",
                "expected in-process or amqp://…",
            )),
        }
    }
}

/// Refuses parts that other processes cannot see, for a role that works with
/// other processes: an event accepted by an `api` with a store of its own would
/// never meet a worker.
pub fn require_shared(
    role: &str,
    store: &StoreConfig,
    schedule: &ScheduleConfig,
    queue: Option<&QueueConfig>,
) -> Result<(), ConfigError> {
    let refuse = |flag, part: &str, example: &str| {
        Err(ConfigError::flag(
            flag,
            format!(
                "the role `{role}` works with other processes, which cannot see {part}: \
                 set {example}, or run everything in one process with `paceline serve`"
            ),
        ))
    };
    if !matches!(store.place()?, Database::Postgres(_)) {
        return refuse("database-url", "an embedded store", "postgres://…");
    }
    if !matches!(schedule.place()?, SchedulePlace::Redis(_)) {
        return refuse("schedule-url", "an in-process schedule", "redis://…");
    }
    if let Some(queue) = queue
        && !matches!(queue.place()?, QueuePlace::RabbitMq(_))
    {
        return refuse("queue-url", "an in-process queue", "amqp://…");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::QueueType;

    fn store(url: &str) -> StoreConfig {
        let Ok(database_url) = url.parse();
        StoreConfig {
            database_url,
            database_connections: 2,
        }
    }

    fn schedule(url: &str) -> ScheduleConfig {
        let Ok(schedule_url) = url.parse();
        ScheduleConfig {
            schedule_url,
            schedule_prefix: "p".to_owned(),
            schedule_shards: 1,
        }
    }

    fn queue(url: &str) -> QueueConfig {
        let Ok(queue_url) = url.parse();
        QueueConfig {
            queue_url,
            queue_name: "q".to_owned(),
            queue_shards: 1,
            queue_type: QueueType::default(),
        }
    }

    #[test]
    fn urls_name_their_parts() {
        let file = |url| match store(url).place() {
            Ok(Database::Sqlite(path)) => path.display().to_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!(file("sqlite:a.db"), "a.db");
        assert_eq!(file("sqlite:///var/a.db"), "/var/a.db");
        assert!(matches!(
            store("sqlite::memory:").place(),
            Ok(Database::SqliteInMemory)
        ));
        assert!(matches!(
            store("postgresql://db/x").place(),
            Ok(Database::Postgres(_))
        ));
        assert!(matches!(
            schedule("rediss://c").place(),
            Ok(SchedulePlace::Redis(_))
        ));
        assert!(matches!(
            queue("amqps://q").place(),
            Ok(QueuePlace::RabbitMq(_))
        ));
    }

    #[test]
    fn a_refused_url_is_not_repeated() {
        let error = store("mysql://ann:hunter2@db")
            .place()
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "--database-url (PACELINE_DATABASE_URL): expected sqlite:FILE or postgres://…"
        );
    }

    #[test]
    fn split_roles_refuse_each_embedded_part_by_its_flag() {
        let refused = |database, jobs, permits| {
            let queue = queue(permits);
            require_shared("worker", &store(database), &schedule(jobs), Some(&queue))
                .map_err(|error| error.name)
        };
        let name = |flag: &str| Err(ConfigError::flag(flag, "").name);
        assert_eq!(
            refused("sqlite:a.db", "redis://c", "amqp://q"),
            name("database-url")
        );
        assert_eq!(
            refused("postgres://d", "in-process", "amqp://q"),
            name("schedule-url")
        );
        assert_eq!(
            refused("postgres://d", "redis://c", "in-process"),
            name("queue-url")
        );
        assert_eq!(refused("postgres://d", "redis://c", "amqp://q"), Ok(()));
    }
}
