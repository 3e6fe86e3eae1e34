//! What operators are told in a run: who is registered, when alerts are raised,
//! and what the run notes of it beside the store.

use anyhow::Context;
use domain::ids::{DestinationId, TenantId};
use engine::ports::{AlertsChange, OperationsBook};
use sqlx::Connection;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::ledger::TICK;
use super::log::{Folder, Happened, News, Note, Telling, Tried, fingerprint};
use super::servers::PrivateServers;
use super::world::Destination;

/// Alerts are raised soon: a storm is short.
const SOON: AlertsChange = AlertsChange {
    backlog: Some(Some(40)),
    under_delivery_seconds: Some(Some(10)),
    failing_percent: None,
};

/// They would never end of a backlog that stays.
const NEVER: AlertsChange = AlertsChange {
    backlog: Some(Some(0)),
    under_delivery_seconds: Some(Some(0)),
    failing_percent: None,
};

/// Remembers what operators have to be told of, each time that it happens.
pub(crate) const REMEMBER_NEWS: &str = "
    create table chaos_happened (destination_id uuid not null, what text not null);
    create function chaos_remember_dead_letter() returns trigger language plpgsql as $$
    begin
        insert into chaos_happened (destination_id, what) values (new.destination_id, 'died');
        return null;
    end;
    $$;
    create trigger chaos_remember_new_dead_letter after insert on ledger
        for each row when (new.dead_letter)
        execute function chaos_remember_dead_letter();
    create trigger chaos_remember_dead_letter after update of dead_letter on ledger
        for each row when (new.dead_letter and not old.dead_letter)
        execute function chaos_remember_dead_letter();
    create function chaos_remember_disabled() returns trigger language plpgsql as $$
    begin
        insert into chaos_happened (destination_id, what) values (new.id, 'disabled');
        return null;
    end;
    $$;
    create trigger chaos_remember_disabled after update of state on destinations
        for each row when (new.state = 'disabled' and old.state <> 'disabled')
        execute function chaos_remember_disabled();
";

/// Owners resume what a receiver's 410 has disabled: everything has to drain, but
/// for what waits for a receiver that never comes back.
const RESUME: &str = "
    update destinations set state = 'active'
    where state = 'disabled' and deleted_at is null
        and id not in (select destination_id from chaos_doomed)
";

/// No step of the watch follows: a step that goes on is waited for. What it tells
/// of after everything has drained would arrive too late.
const END_WATCH: &str = "update watch_turn set due_at = 'infinity' where id = 1";

/// Registers the operational destination that this one may be, and has alerts of
/// it raised soon.
pub(crate) async fn arrange(
    book: &dyn OperationsBook,
    (tenant, destination): (TenantId, DestinationId),
    planned: &Destination,
) -> anyhow::Result<Option<Telling>> {
    let alerts = match planned.manners.is_doomed() {
        true => &NEVER,
        false => &SOON,
    };
    book.change_alerts(tenant, destination, alerts).await?;
    let Some(told) = &planned.told else {
        return Ok(None);
    };
    let registered = book.register_operational(tenant, destination, told);
    let registered = registered.await?;
    Ok(Some(Telling {
        installation: registered.scope == domain::operations::OperationalScope::Installation,
        event_types: registered.event_types,
    }))
}

/// Resumes what is disabled, now and again, until told to stop.
pub(crate) async fn resume(
    servers: &PrivateServers,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    while !stop.is_cancelled() {
        // One that is away is asked again.
        let _resumed = servers.sql(RESUME).await;
        sleep(TICK * 4).await;
    }
    Ok(())
}

/// The watch tells of nothing more.
pub(crate) async fn end_watch(servers: &PrivateServers) -> anyhow::Result<()> {
    servers.sql(END_WATCH).await
}

adapters::row! {
    struct NewsRow {
        id: i64,
        created_at: i64,
        event_type: String,
        destination_id: Option<Uuid>,
        tenant_id: Uuid,
        details: String,
        relayed: bool,
    }
}

adapters::row! {
    struct NoteRow {
        id: Uuid,
        destination_id: Uuid,
        payload: Vec<u8>,
    }
}

adapters::row! {
    struct HappenedRow {
        id: Uuid,
        is_deleted: bool,
        died: i64,
        died_untold: i64,
        disabled: i64,
    }
}

/// Writes what was noted, what it became, and what happened to the logs.
pub(crate) async fn export(
    servers: &PrivateServers,
    destinations: &[Tried],
    folder: &Folder,
) -> anyhow::Result<()> {
    let mut connection = servers.connect().await?;
    let news: Vec<NewsRow> = sqlx::query_as(
        "select o.id, micros(o.created_at) as created_at, o.event_type, o.destination_id,
            o.tenant_id, o.details, o.relayed_at is not null as relayed
        from operational_events o
        order by o.id",
    )
    .fetch_all(&mut connection)
    .await
    .context("read the operational events")?;
    let told = destinations.iter().filter(|one| one.told.is_some());
    let notes: Vec<NoteRow> = sqlx::query_as(
        "select distinct e.id, a.destination_id, e.payload
        from attempts a
        join events e on e.id = a.event_id
        where a.destination_id = any ($1)
        order by e.id",
    )
    .bind(told.map(|one| one.id).collect::<Vec<_>>())
    .fetch_all(&mut connection)
    .await
    .context("read what they became")?;
    let happened: Vec<HappenedRow> = sqlx::query_as(
        "select d.id, d.deleted_at is not null as is_deleted,
            (
                select count(*) from chaos_happened c
                where c.destination_id = d.id and c.what = 'died'
            ) as died,
            (
                select count(*) from dead_letter_tallies t where t.destination_id = d.id
            ) + coalesce(
                (select w.dead_letters from watches w where w.destination_id = d.id), 0
            ) as died_untold,
            (
                select count(*) from chaos_happened c
                where c.destination_id = d.id and c.what = 'disabled'
            ) as disabled
        from destinations d
        order by d.id",
    )
    .fetch_all(&mut connection)
    .await
    .context("read what happened")?;
    connection.close().await.context("leave Postgres")?;
    let news: Vec<_> = news.into_iter().map(NewsRow::news).collect();
    folder.appender(Folder::NEWS)?.append_all(&news)?;
    let notes: Vec<_> = notes.into_iter().map(NoteRow::note).collect();
    folder.appender(Folder::NOTES)?.append_all(&notes)?;
    let happened: Result<Vec<_>, _> = happened.into_iter().map(HappenedRow::happened).collect();
    folder.appender(Folder::HAPPENED)?.append_all(&happened?)
}

impl NewsRow {
    fn news(self) -> News {
        News {
            id: self.id,
            created_at: self.created_at,
            event_type: self.event_type,
            destination: self.destination_id,
            tenant: self.tenant_id,
            details: self.details,
            relayed: self.relayed,
        }
    }
}

impl NoteRow {
    fn note(self) -> Note {
        Note {
            event: self.id,
            destination: self.destination_id,
            body: fingerprint(&self.payload),
        }
    }
}

impl HappenedRow {
    fn happened(self) -> anyhow::Result<Happened> {
        Ok(Happened {
            destination: self.id,
            is_deleted: self.is_deleted,
            died: u64::try_from(self.died).context("a count")?,
            died_untold: u64::try_from(self.died_untold).context("a count")?,
            disabled: u64::try_from(self.disabled).context("a count")?,
        })
    }
}
