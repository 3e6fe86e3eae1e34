//! The store from beside the roles: what the run adds to it, asks it while it
//! goes on, and takes from it at the end.

use std::time::Duration;

use anyhow::Context;
use domain::ids::DestinationId;
use engine::ports::Catalog;
use sqlx::{Connection, PgConnection};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::log::{Change, ClockSample, Folder, Row, Tried, boottime_us};
use super::servers::PrivateServers;

/// Remembers which attempts were ever `unknown`: a late outcome overwrites the
/// state, and the request that it explains may be out already.
pub(crate) const REMEMBER_UNKNOWN: &str = "
    create table chaos_unknown (attempt_id bigint not null);
    create function chaos_remember_unknown() returns trigger language plpgsql as $$
    begin
        insert into chaos_unknown (attempt_id) values (new.id);
        return null;
    end;
    $$;
    create trigger chaos_remember_unknown after insert on ledger
        for each row when (new.state = 'unknown')
        execute function chaos_remember_unknown();
";

/// Makes every retry due: their pauses, of days, are not what is tried here.
const HURRY: &str = "
    with hurried as (
        update attempts set due_at = clock_timestamp()
        where id in (
            select id from attempts
            where state = 'waiting' and due_at > clock_timestamp()
            for update skip locked
        )
        returning destination_id
    )
    select mark_changed(array(select distinct destination_id from hurried))
    where exists (select from hurried)
";

/// Between two questions.
pub(crate) const TICK: Duration = Duration::from_millis(250);

/// Asks the store for its time, now and again, until told to stop.
pub(crate) async fn sample_clock(
    servers: &PrivateServers,
    folder: &Folder,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let log = folder.appender(Folder::CLOCK)?;
    let mut connection: Option<PgConnection> = None;
    while !stop.is_cancelled() {
        if connection.is_none() {
            connection = servers.connect().await.ok();
        }
        if let Some(open) = &mut connection {
            let before_us = boottime_us();
            let store = sqlx::query_scalar("select micros(clock_timestamp())")
                .fetch_one(open)
                .await;
            let after_us = boottime_us();
            match store {
                Ok(store_us) => log.append(&ClockSample {
                    before_us,
                    after_us,
                    store_us,
                })?,
                Err(_away) => connection = None,
            }
        }
        sleep(TICK).await;
    }
    Ok(())
}

/// How many times its patience draining may take, as long as it gets on.
const PATIENCES: u32 = 5;

/// What is under way and what is to come of the outbox, what operators are to be told of
/// or have not been told to be over, what replays have yet to move, and destinations
/// whose last starts the tally has yet to count: while they go on, as many attempts begin
/// as end. A destination whose receiver does not come back is waited for until it is
/// disabled; what waits at it then stays.
const LEFT: &str = "
    select (
        select count(*) from attempts a
        join destinations d on d.id = a.destination_id
        where a.state in ('waiting', 'admitted', 'started')
            and not (
                a.state = 'waiting' and d.state = 'disabled'
                and d.id in (select destination_id from chaos_doomed)
            )
    ) + (
        select count(*) from outbox
    ) + (
        select count(*) from operational_events where relayed_at is null
    ) + (
        select count(*) from watches where backlog_high_since is not null or short_told
    ) + (
        select count(*) from destinations
        where state = 'disabled' and deleted_at is null
            and id not in (select destination_id from chaos_doomed)
    ) + (
        select coalesce(sum(1 + greatest(total - done, 0)), 0)::bigint
        from replays where state = 'running'
    ) + (
        select count(*) from destinations d
        left join tally_marks m on m.destination_id = d.id
        where d.deleted_at is null and exists (
            select from attempts a
            where a.destination_id = d.id
                and a.started_at >= coalesce(m.until, '-infinity'::timestamptz)
        )
    )
";

/// Waits until every attempt and every replay has ended; returns how many have
/// not when fewer have not come to be for as long as `patience`, or it took far
/// too long. A machine that does much else is slow, and not stuck.
pub(crate) async fn drain(
    servers: &PrivateServers,
    patience: Duration,
    cancelled: &CancellationToken,
) -> anyhow::Result<i64> {
    let began = Instant::now();
    let (mut fewest, mut got_on_at) = (i64::MAX, began);
    loop {
        servers.sql(HURRY).await?;
        let mut connection = servers.connect().await?;
        let left: i64 = sqlx::query_scalar(LEFT)
            .fetch_one(&mut connection)
            .await
            .context("count what is left")?;
        connection.close().await.context("leave Postgres")?;
        if left < fewest {
            (fewest, got_on_at) = (left, Instant::now());
        }
        let stuck = got_on_at.elapsed() > patience || began.elapsed() > patience * PATIENCES;
        if left == 0 || stuck || cancelled.is_cancelled() {
            return Ok(left);
        }
        sleep(TICK * 4).await;
    }
}

adapters::row! {
    struct LedgerRow {
        id: i64,
        event_id: Uuid,
        destination_id: Uuid,
        try_number: i32,
        state: String,
        dead_letter: bool,
        due_at: i64,
        created_at: i64,
        claimed_at: Option<i64>,
        started_at: Option<i64>,
        finished_at: Option<i64>,
        was_unknown: bool,
        is_replayed: bool,
        is_replay: bool,
        carried_by: Option<i64>,
    }
}

impl LedgerRow {
    fn row(self) -> anyhow::Result<Row> {
        Ok(Row {
            attempt: self.id,
            event: self.event_id,
            destination: self.destination_id,
            try_number: u32::try_from(self.try_number).context("a try's number")?,
            state: self.state.parse().context("an attempt's state")?,
            dead_letter: self.dead_letter,
            due_at: self.due_at,
            created_at: self.created_at,
            claimed_at: self.claimed_at,
            started_at: self.started_at,
            finished_at: self.finished_at,
            was_unknown: self.was_unknown,
            is_replayed: self.is_replayed,
            is_replay: self.is_replay,
            carried_by: self.carried_by,
        })
    }
}

/// Writes the whole ledger and the history of limits to the logs.
pub(crate) async fn export(
    servers: &PrivateServers,
    catalog: &dyn Catalog,
    destinations: &[Tried],
    folder: &Folder,
) -> anyhow::Result<()> {
    let mut connection = servers.connect().await?;
    let rows: Vec<LedgerRow> = sqlx::query_as(
        "select a.id, a.event_id, a.destination_id, a.try_number, a.state, a.dead_letter,
            micros(coalesce(a.due_at, a.created_at)) as due_at, micros(a.created_at) as created_at,
            micros(a.claimed_at) as claimed_at, micros(a.started_at) as started_at,
            micros(a.finished_at) as finished_at,
            a.id in (select attempt_id from chaos_unknown) as was_unknown,
            a.replayed_at is not null as is_replayed, a.replay_id is not null as is_replay,
            a.carried_by
        from attempts a
        order by a.id",
    )
    .fetch_all(&mut connection)
    .await
    .context("read the ledger")?;
    connection.close().await.context("leave Postgres")?;
    let log = folder.appender(Folder::LEDGER)?;
    let rows: Vec<Row> = rows
        .into_iter()
        .map(LedgerRow::row)
        .collect::<Result<_, _>>()?;
    for chunk in rows.chunks(1_000) {
        log.append_all(chunk)?;
    }
    let log = folder.appender(Folder::CHANGES)?;
    for tried in destinations {
        let history = catalog.limit_history(DestinationId(tried.id)).await?;
        let changes: Vec<_> = (history.into_iter())
            .map(|entry| Change {
                destination: tried.id,
                from: entry.in_force_from.as_micros(),
                effective: entry.effective,
                state: entry.state,
            })
            .collect();
        log.append_all(&changes)?;
    }
    Ok(())
}
