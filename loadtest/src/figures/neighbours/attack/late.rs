//! An attack by a program that writes events in transactions of its own, and commits
//! them late: admission has long gone past the ids of their deliveries.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;
use server::receiver::{Behaviour, Receiver};
use sqlx::{Connection, PgConnection};
use tokio::time::sleep;
use uuid::Uuid;

use super::super::super::stage::until;
use super::attacker::{Attacker, post};
use super::underway::Underway;
use crate::chaos::write_event;

/// Transactions that are open at once, and events of each.
const PROGRAMS: u32 = 20;
const EVENTS: usize = 20;

/// The destination is paused for so long from the beginning: what came after the late
/// ones is older than what admission goes past (30 s) when it goes.
const PAUSED: Duration = Duration::from_secs(34);

/// The transactions are open from so long on, for up to 15 s longer.
const OPEN: Duration = Duration::from_secs(35);
const APART: Duration = Duration::from_millis(750);

/// After which the first of all of them are committed.
#[cfg(test)]
pub(super) const LONGEST: Duration = Duration::from_secs(50);

/// Within which what was committed has to come: somebody has to go back for it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Arrivals that are kept: more than there are.
const ARRIVALS: usize = 100_000;

/// Events that were committed late, and where they have to come.
pub(super) struct Late {
    receiver: Receiver,
    committed: Arc<Mutex<Vec<Uuid>>>,
}

impl Late {
    /// Waits until all have come that are committed by now.
    pub(super) async fn all_arrive(&self) -> anyhow::Result<()> {
        let committed = self.committed.lock();
        let committed = committed.unwrap_or_else(PoisonError::into_inner).clone();
        ensure!(!committed.is_empty(), "nothing was committed late");
        let all_there = async || {
            let arrivals = self.receiver.record().arrivals;
            let arrived: BTreeSet<Uuid> = arrivals.iter().filter_map(|one| one.event).collect();
            Ok(committed.iter().all(|event| arrived.contains(event)))
        };
        until("what is committed late arrives", PATIENCE, all_there).await?;
        Ok(())
    }
}

pub(super) async fn late_commits(
    attacker: &Attacker,
    underway: &mut Underway,
) -> anyhow::Result<()> {
    let database = attacker.database.as_ref();
    let database = database.context("no other program writes there")?;
    let receiver = Receiver::start(Behaviour::ACCEPT, ARRIVALS).await?;
    let unlimited = json!({"unlimited": true});
    let id = attacker.destination(&receiver.url(0), unlimited).await?;
    let destination: Uuid = id.parse()?;
    let mut client = attacker.client().await?;
    client.send("POST", &pause(&id), "").await?;
    let late = Late {
        receiver,
        committed: Arc::default(),
    };
    for number in 0..PROGRAMS {
        let (database, tenant) = (database.clone(), attacker.tenant);
        let committed = Arc::clone(&late.committed);
        let (_, seed) = tenant.as_u64_pair();
        let mut random = StdRng::seed_from_u64(seed.wrapping_add(number.into()));
        // In another order than they began in.
        let open_for = OPEN + APART * (number * 7 % PROGRAMS);
        underway.repeat(move || {
            let (database, committed) = (database.clone(), Arc::clone(&committed));
            let events: Vec<Uuid> = (0..EVENTS).map(|_| new_event(&mut random)).collect();
            async move {
                commit_late(&database, [tenant, destination], &events, open_for).await?;
                let mut committed = committed.lock().unwrap_or_else(PoisonError::into_inner);
                committed.extend(events);
                Ok(())
            }
        });
    }
    underway.late = Some(late);
    // The younger ones.
    let body = json!({"destination_id": id, "payload": {}}).to_string();
    underway.crew(attacker, 10, move |_| post("/v1/events", &body));
    let (attacker, resume) = (attacker.clone(), resume(&id));
    underway.tasks.spawn(async move {
        sleep(PAUSED).await;
        // However often it has to ask: else nothing would come.
        while let Err(_refused) = resumed(&attacker, &resume).await {
            sleep(Duration::from_millis(100)).await;
        }
    });
    Ok(())
}

fn pause(destination: &str) -> String {
    format!("/v1/destinations/{destination}/pause")
}

fn resume(destination: &str) -> String {
    format!("/v1/destinations/{destination}/resume")
}

async fn resumed(attacker: &Attacker, resume: &str) -> anyhow::Result<()> {
    attacker.client().await?.send("POST", resume, "").await
}

/// Of version 4, as an event has that another program writes.
fn new_event(random: &mut StdRng) -> Uuid {
    uuid::Builder::from_random_bytes(random.random()).into_uuid()
}

async fn commit_late(
    database: &str,
    of: [Uuid; 2],
    events: &[Uuid],
    open_for: Duration,
) -> anyhow::Result<()> {
    let mut connection = PgConnection::connect(database).await?;
    let patient = "set idle_in_transaction_session_timeout = 0";
    sqlx::raw_sql(patient).execute(&mut connection).await?;
    let mut transaction = connection.begin().await?;
    for event in events {
        write_event(&mut transaction, *event, of, b"{}").await?;
    }
    sleep(open_for).await;
    transaction.commit().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpStream;

    use super::*;

    async fn late(committed: Vec<Uuid>) -> Late {
        Late {
            receiver: Receiver::start(Behaviour::ACCEPT, 10).await.unwrap(),
            committed: Arc::new(Mutex::new(committed)),
        }
    }

    #[tokio::test]
    async fn what_is_committed_late_has_to_come() {
        let event = Uuid::from_u128(1);
        let late = late(vec![event]).await;
        let (address, id) = (late.receiver.address(), event.simple());
        let request = format!(
            "POST /r/0 HTTP/1.1\r\nhost: {address}\r\nwebhook-id: {id}\r\n\
             content-length: 2\r\n\r\n{{}}"
        );
        let mut stream = TcpStream::connect(address).await.unwrap();
        let arrival = late.all_arrive();
        let mut arrival = std::pin::pin!(arrival);
        let early = tokio::time::timeout(Duration::from_millis(50), &mut arrival).await;
        assert!(early.is_err(), "nothing has come");
        stream.write_all(request.as_bytes()).await.unwrap();
        arrival.await.unwrap();
    }

    #[test]
    fn transactions_are_open_for_as_long_as_is_said() {
        assert!(OPEN > PAUSED, "the younger ones go first");
        assert!(OPEN + APART * PROGRAMS <= LONGEST);
    }

    #[tokio::test]
    async fn an_attack_that_committed_nothing_was_none() {
        let told = late(Vec::new()).await.all_arrive().await;
        assert_eq!(told.unwrap_err().to_string(), "nothing was committed late");
    }
}
