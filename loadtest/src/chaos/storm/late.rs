//! Events whose transaction stays open for long: a user's, who is slow to end it, or
//! one that a standby holds up.
//!
//! Attempts get their ids when they are inserted. Admission goes past ids that are old
//! enough, so one that is committed behind them is seen only if somebody goes back.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sqlx::{Connection, PgConnection};
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use super::{Scene, Target};
use crate::chaos::client::payload;
use crate::chaos::fault::Fault;
use crate::chaos::log::{Post, Said, fingerprint};

/// Their numbers begin here: above all that clients and the outbox hand in.
const FIRST: u64 = 3_000_000_000;

/// The destination is paused for so long: what came after the event whose commit is
/// late is then as old as what admission goes past (30 s), and goes first.
const PAUSED: Duration = Duration::from_secs(32);

/// As a user's transaction may write an event, and its attempt.
const INSERT: &str = "
    with written as (
        insert into events (id, tenant_id, content_type, payload, created_at, day, deliveries)
        values ($1, $2, 'application/json', $4, clock_timestamp(), event_day($1),
            array[next_attempt_id('attempts_id_seq')])
        returning id, tenant_id, created_at, deliveries
    )
    insert into attempts (id, event_id, destination_id, tenant_id, created_at, payload_bytes)
    select w.deliveries[1], w.id, $3, w.tenant_id, w.created_at, length($4)
    from written w
";

/// Whether admission has gone past an event that only its own transaction sees.
const PASSED: &str = "
    select p.first_after >= a.id from attempts a
    join pacing p on p.destination_id = a.destination_id
    where a.event_id = $1
";

/// An event that is written past the API.
struct Written {
    to: Target,
    event: Uuid,
    payload: String,
    post: Post,
}

/// Writes an event for a destination of a tenant, past the API.
pub(crate) async fn write_event(
    connection: &mut PgConnection,
    event: Uuid,
    [tenant, destination]: [Uuid; 2],
    payload: &[u8],
) -> anyhow::Result<()> {
    let written = sqlx::query(INSERT)
        .bind(event)
        .bind(tenant)
        .bind(destination)
        .bind(payload);
    let written = written.execute(connection).await;
    written.context("insert an event")?;
    Ok(())
}

impl Written {
    async fn insert(&self, connection: &mut PgConnection) -> anyhow::Result<()> {
        let to = [self.to.tenant.0, self.to.id.0];
        write_event(connection, self.event, to, self.payload.as_bytes()).await
    }

    /// It is durable.
    fn accepted(&self) -> Post {
        Post {
            said: Said::Accepted(self.event),
            ..self.post.clone()
        }
    }
}

/// Another fault may take the store away meanwhile; so often it is begun.
const TRIES: u32 = 3;

/// How often it is looked whether the store is there.
const LOOK: Duration = Duration::from_millis(500);

/// The transaction stays open for this long, unless the store goes away.
async fn stay(connection: &mut PgConnection, length: Duration) -> anyhow::Result<()> {
    let until = Instant::now() + length;
    while Instant::now() < until {
        let looked = connection.ping().await;
        looked.context("the store went away")?;
        sleep_until(until.min(Instant::now() + LOOK)).await;
    }
    Ok(())
}

impl Scene {
    /// What is not committed was not accepted: then the fault was not done.
    pub(super) async fn commit_late(
        &self,
        fault: Fault,
        number: u32,
        open: Duration,
    ) -> anyhow::Result<()> {
        for _ in 1..TRIES {
            match self.commit_once(fault, number, open).await {
                Ok(()) => return Ok(()),
                Err(error) => {
                    let words = format!("{error:#}");
                    self.diary.note("broken", &fault.kind(), &words)?;
                }
            }
        }
        self.commit_once(fault, number, open).await
    }

    async fn commit_once(&self, fault: Fault, number: u32, open: Duration) -> anyhow::Result<()> {
        let id = self.destination(number)?.id;
        let set = |state, was| {
            format!(
                "update destinations set state = '{state}' where id = '{id}' and state = '{was}'"
            )
        };
        let (late, younger) = (self.written(number)?, self.written(number)?);
        let posts = [&late, &younger].map(|one| &one.post);
        self.posts.append_all(&posts)?;
        // It answers once the store is there.
        self.servers.sql("select 1").await?;
        let mut connection = self.servers.connect().await?;
        let patient = "set idle_in_transaction_session_timeout = 0";
        sqlx::raw_sql(patient).execute(&mut connection).await?;

        self.servers.sql(&set("paused", "active")).await?;
        let aged = async {
            self.open(&mut connection, (&late, &younger)).await?;
            stay(&mut connection, PAUSED).await
        };
        let aged = aged.await;
        // Whatever became of it: nobody else resumes it.
        self.servers.sql(&set("active", "paused")).await?;
        aged?;
        stay(&mut connection, open.saturating_sub(PAUSED)).await?;
        let passed: Option<bool> = sqlx::query_scalar(PASSED)
            .bind(late.event)
            .fetch_optional(&mut connection)
            .await
            .context("look where admission is")?;
        let commit = sqlx::raw_sql("commit").execute(&mut connection).await;
        commit.context("commit late")?;
        self.posts.append(&late.accepted())?;
        let where_it_is = match passed {
            Some(true) => "behind",
            _ => "before",
        };
        let detail = format!("{fault:?}, {where_it_is} what admission has gone past");
        self.diary.note("fault", &fault.kind(), &detail)
    }

    /// Inserts one in a transaction that stays open, and then another one.
    async fn open(
        &self,
        connection: &mut PgConnection,
        (late, younger): (&Written, &Written),
    ) -> anyhow::Result<()> {
        sqlx::raw_sql("begin").execute(&mut *connection).await?;
        late.insert(connection).await?;
        let mut quick = self.servers.connect().await?;
        younger.insert(&mut quick).await?;
        self.posts.append(&younger.accepted())?;
        quick.close().await.context("leave Postgres")
    }

    /// The next event that is written, for the destination of this number.
    fn written(&self, destination: u32) -> anyhow::Result<Written> {
        let number = FIRST + self.late_commits.fetch_add(1, Ordering::Relaxed);
        let mut random = StdRng::seed_from_u64(number);
        let payload = payload(number, &mut random);
        Ok(Written {
            to: self.destination(destination)?,
            // Of version 4: the time of a version 7 would be judged.
            event: uuid::Builder::from_random_bytes(random.random()).into_uuid(),
            post: Post {
                number,
                destination,
                body: fingerprint(payload.as_bytes()),
                said: Said::Posted,
                intruding: false,
            },
            payload,
        })
    }
}
