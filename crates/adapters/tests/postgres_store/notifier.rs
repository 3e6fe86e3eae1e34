//! The notifier on Postgres: two processes at once, killed again and again.

use adapters::postgres::{PostgresOptions, PostgresStore};

use crate::database::Database;
use crate::killed::{self, Place};

struct Killed(Database);

impl Place for Killed {
    fn name(&self) -> String {
        self.0.url.clone()
    }

    fn notifiers(&self) -> (&'static str, usize) {
        ("notifier::notifier_of_another_process", 2)
    }

    fn tally(&self) -> &'static str {
        "select"
    }

    async fn sql(&self, sql: &str) {
        self.0.sql(sql).await;
    }

    async fn number(&self, sql: &str) -> i64 {
        self.0.number(&format!("select ({sql})::bigint")).await
    }

    async fn texts(&self, sql: &str) -> Vec<(String, String)> {
        let mut user = self.0.user().await;
        let query = sqlx::query_as(sqlx::AssertSqlSafe(sql.to_owned()));
        query.fetch_all(&mut user).await.unwrap()
    }
}

/// Not a test by itself: the process that the next one starts and kills.
#[tokio::test]
async fn notifier_of_another_process() {
    if let Some(url) = killed::store_to_notify_of() {
        let options = PostgresOptions {
            url,
            max_connections: 4,
        };
        killed::notify(PostgresStore::connect(options).await.unwrap()).await;
    }
}

#[tokio::test]
async fn notifiers_that_are_killed_lose_and_repeat_nothing() {
    let place = Killed(Database::create().await);
    killed::furnish(&place.0.store).await;
    killed::notifiers_that_are_killed_lose_and_repeat_nothing(&place).await;
}
