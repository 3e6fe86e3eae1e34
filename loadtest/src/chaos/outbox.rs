//! Events by the outbox: rows that a program inserts in transactions of its own,
//! some of which it rolls back.
//!
//! What is committed is one event, and is logged like one that the API accepted;
//! what is rolled back is none. Where nobody knows whether a transaction was
//! committed, its rows are inserted again with the same event ids. Some rows name a
//! tenant that their destination is not of: those are no events either.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use sqlx::{Connection, PgConnection};
use tokio::time::{Instant, sleep, sleep_until};
use uuid::Uuid;

use super::client::payload;
use super::log::{Appender, Post, Said, Tried, fingerprint};
use super::servers::PrivateServers;

/// One of so many events comes by the outbox.
const SHARE: u64 = 40;

/// At least so many do.
const AT_LEAST: u64 = 30;

/// The most rows of one transaction.
const ROWS: u64 = 5;

/// Their numbers begin here: above all that clients post.
const FIRST: u64 = 2_000_000_000;

/// How many transactions of ten are rolled back.
const ROLLED_BACK: u32 = 3;

/// One row of so many names another's destination.
const INTRUDING: u32 = 12;

/// Before a store that is away is asked again.
const AWAY: Duration = Duration::from_millis(200);

/// A program with a transaction of its own.
pub(crate) struct Program {
    pub(crate) seed: u64,
    /// Of all events of the run.
    pub(crate) events: u64,
    pub(crate) length: Duration,
    /// With their numbers: those that nothing refuses.
    pub(crate) destinations: Vec<(u32, Tried)>,
    pub(crate) log: Arc<Appender>,
}

struct Row {
    number: u64,
    place: usize,
    /// Of the destination, unless it intrudes.
    tenant: Uuid,
    intruding: bool,
    event: Uuid,
    payload: String,
}

/// What becomes of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Commit,
    RollBack,
}

impl Program {
    /// Inserts them all, spread over the time.
    pub(crate) async fn run(self, servers: &PrivateServers) -> anyhow::Result<()> {
        let mut random = StdRng::seed_from_u64(self.seed ^ FIRST);
        let transactions = self.transactions(&mut random);
        let began = Instant::now();
        let pause = self.length / u32::try_from(transactions.len().max(1)).unwrap_or(u32::MAX);
        let mut connection = None;
        for (turn, (rows, end)) in (0_u32..).zip(&transactions) {
            sleep_until(began + pause * turn).await;
            self.note(rows, |_| Said::Posted)?;
            while self
                .insert((rows, *end), &mut connection, servers)
                .await
                .is_err()
            {
                connection = None;
                sleep(AWAY).await;
            }
            self.note(rows, |row| match end {
                End::Commit if row.intruding => Said::Refused,
                End::Commit => Said::Accepted(row.event),
                End::RollBack => Said::RolledBack(row.event),
            })?;
        }
        Ok(())
    }

    fn transactions(&self, random: &mut StdRng) -> Vec<(Vec<Row>, End)> {
        let mut left = (self.events / SHARE).max(AT_LEAST);
        let mut number = FIRST;
        let mut transactions = Vec::new();
        while left > 0 {
            let rows = random.random_range(1..=ROWS).min(left);
            left -= rows;
            let end = match random.random_ratio(ROLLED_BACK, 10) {
                true => End::RollBack,
                false => End::Commit,
            };
            let rows = (0..rows).map(|_| {
                number += 1;
                self.row(number, random)
            });
            transactions.push((rows.collect(), end));
        }
        transactions
    }

    fn row(&self, number: u64, random: &mut StdRng) -> Row {
        let place = random.random_range(0..self.destinations.len().max(1));
        let own = (self.destinations.get(place)).map_or(Uuid::nil(), |(_, to)| to.tenant);
        let others = self.destinations.iter().map(|(_, to)| to.tenant);
        let others: Vec<Uuid> = others.filter(|tenant| *tenant != own).collect();
        let other = others.choose(random).copied();
        let other = other.filter(|_| random.random_ratio(1, INTRUDING));
        Row {
            number,
            place,
            tenant: other.unwrap_or(own),
            intruding: other.is_some(),
            // Of version 4: the time of a version 7 would be judged.
            event: uuid::Builder::from_random_bytes(random.random()).into_uuid(),
            payload: payload(number, random),
        }
    }

    async fn insert(
        &self,
        (rows, end): (&[Row], End),
        connection: &mut Option<PgConnection>,
        servers: &PrivateServers,
    ) -> anyhow::Result<()> {
        let open = match connection {
            Some(open) => open,
            None => connection.insert(servers.connect().await?),
        };
        let mut transaction = open.begin().await?;
        for row in rows {
            let (_, to) = &self.destinations[row.place];
            sqlx::query(
                "insert into paceline.outbox (event_id, tenant_id, destination_id, payload)
                values ($1, $2, $3, $4)",
            )
            .bind(row.event)
            .bind(row.tenant)
            .bind(to.id)
            .bind(&row.payload)
            .execute(&mut *transaction)
            .await
            .context("insert into the outbox")?;
        }
        match end {
            End::Commit => transaction.commit().await?,
            End::RollBack => transaction.rollback().await?,
        }
        Ok(())
    }

    fn note(&self, rows: &[Row], said: impl Fn(&Row) -> Said) -> anyhow::Result<()> {
        let lines: Vec<_> = (rows.iter())
            .map(|row| Post {
                number: row.number,
                destination: self.destinations[row.place].0,
                body: fingerprint(row.payload.as_bytes()),
                said: said(row),
                intruding: row.intruding,
            })
            .collect();
        self.log.append_all(&lines)
    }
}

#[cfg(test)]
mod tests {
    use super::super::log::Folder;
    use super::*;

    fn tried(number: u32, tenant: u128) -> (u32, Tried) {
        let tried = Tried {
            id: Uuid::from_u128(number.into()),
            name: String::new(),
            proxied: false,
            told: None,
            tenant: Uuid::from_u128(tenant),
            doomed: false,
        };
        (number, tried)
    }

    #[test]
    fn some_are_committed_and_some_are_not_and_some_intrude() {
        let folder = Folder(tempfile::tempdir().unwrap().keep());
        let program = Program {
            seed: 1,
            events: 12_000,
            length: Duration::ZERO,
            destinations: vec![tried(3, 1), tried(4, 2)],
            log: Arc::new(folder.appender(Folder::CLIENT).unwrap()),
        };
        let transactions = program.transactions(&mut StdRng::seed_from_u64(1));
        let rows = |wanted| -> usize {
            let those = transactions.iter().filter(|(_, end)| *end == wanted);
            those.map(|(rows, _)| rows.len()).sum()
        };
        let (committed, rolled_back) = (rows(End::Commit), rows(End::RollBack));
        assert_eq!(committed + rolled_back, 300);
        assert!(committed > rolled_back && rolled_back > 30);
        let all = || transactions.iter().flat_map(|(rows, _)| rows);
        let owner = |row: &Row| program.destinations[row.place].1.tenant;
        assert!(all().all(|row| row.intruding == (row.tenant != owner(row))));
        let intruding = all().filter(|row| row.intruding).count();
        assert!((10..60).contains(&intruding), "{intruding}");
        std::fs::remove_dir_all(folder.0).unwrap();
    }
}
