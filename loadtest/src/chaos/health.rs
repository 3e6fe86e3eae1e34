//! What a run notes of destinations' health, effective limits and secrets: as it
//! is committed, by triggers of its own, for the store keeps only what is so now; and
//! what the tally has counted at the end.

use anyhow::Context;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::log::{Folder, Hold, SecretNote, SmartLimit, Tallied, Tried};
use super::servers::PrivateServers;

/// Deferred triggers run as their transaction commits: what starts later, by the
/// store's clock, has seen what they note.
pub(crate) const REMEMBER_HEALTH: &str = "
    create table chaos_holds (
        id bigint generated always as identity primary key,
        destination_id uuid not null,
        held_until timestamptz,
        held_for text,
        opened_at timestamptz,
        noted_at timestamptz not null default clock_timestamp()
    );
    create function chaos_remember_hold() returns trigger language plpgsql as $$
    begin
        if tg_op = 'DELETE' then
            insert into chaos_holds (destination_id) values (old.destination_id);
        else
            insert into chaos_holds (destination_id, held_until, held_for, opened_at)
            values (new.destination_id, new.held_until, new.held_for, new.opened_at);
        end if;
        return null;
    end;
    $$;
    create constraint trigger chaos_remember_hold
        after insert or update or delete on health
        deferrable initially deferred
        for each row execute function chaos_remember_hold();
    create table chaos_secrets (
        id bigint generated always as identity primary key,
        secret_id uuid not null,
        destination_id uuid not null,
        expires_at timestamptz,
        noted_at timestamptz not null default clock_timestamp()
    );
    create function chaos_remember_secret() returns trigger language plpgsql as $$
    begin
        insert into chaos_secrets (secret_id, destination_id, expires_at)
        values (new.id, new.destination_id, new.expires_at);
        return null;
    end;
    $$;
    create constraint trigger chaos_remember_secret
        after insert or update on destination_secrets
        deferrable initially deferred
        for each row execute function chaos_remember_secret();
    create table chaos_doomed (destination_id uuid primary key);
";

/// Nobody resumes these, and what waits at them when they are disabled is not
/// waited for.
pub(crate) async fn doom(servers: &PrivateServers, tried: &[Tried]) -> anyhow::Result<()> {
    for one in tried.iter().filter(|one| one.doomed) {
        let sql = format!(
            "insert into chaos_doomed (destination_id) values ('{}')",
            one.id
        );
        servers.sql(&sql).await?;
    }
    Ok(())
}

adapters::row! {
    struct HoldRow {
        destination_id: Uuid,
        noted_at: i64,
        held_until: Option<i64>,
        held_for: Option<String>,
        opened_at: Option<i64>,
    }
}

adapters::row! {
    struct SmartRow {
        destination_id: Uuid,
        in_force_from: i64,
        per_second: Option<f64>,
    }
}

adapters::row! {
    struct SecretRow {
        secret_id: Uuid,
        destination_id: Uuid,
        expires_at: Option<i64>,
        noted_at: i64,
    }
}

/// Writes what was noted to the logs.
pub(crate) async fn export(servers: &PrivateServers, folder: &Folder) -> anyhow::Result<()> {
    let mut connection = servers.connect().await?;
    let holds = holds(&mut connection).await?;
    let smart = smart(&mut connection).await?;
    let secrets = secrets(&mut connection).await?;
    let tallied = tallied(&mut connection).await?;
    connection.close().await.context("leave Postgres")?;
    folder.appender(Folder::HOLDS)?.append_all(&holds)?;
    folder.appender(Folder::SMART)?.append_all(&smart)?;
    folder.appender(Folder::TALLIED)?.append_all(&tallied)?;
    folder.appender(Folder::SECRETS)?.append_all(&secrets)
}

async fn holds(connection: &mut PgConnection) -> anyhow::Result<Vec<Hold>> {
    let rows: Vec<HoldRow> = sqlx::query_as(
        "select destination_id, micros(noted_at) as noted_at, micros(held_until) as held_until,
            held_for, micros(opened_at) as opened_at
        from chaos_holds
        order by id",
    )
    .fetch_all(connection)
    .await
    .context("read what was noted of holds")?;
    let hold = |row: HoldRow| Hold {
        destination: row.destination_id,
        noted_at: row.noted_at,
        until: row.held_until,
        reason: row.held_for,
        opened_at: row.opened_at,
    };
    Ok(rows.into_iter().map(hold).collect())
}

async fn smart(connection: &mut PgConnection) -> anyhow::Result<Vec<SmartLimit>> {
    let rows: Vec<SmartRow> = sqlx::query_as(
        "select destination_id, micros(in_force_from) as in_force_from, per_second
        from smart_history
        order by id",
    )
    .fetch_all(connection)
    .await
    .context("read the effective limits")?;
    let limit = |row: SmartRow| SmartLimit {
        destination: row.destination_id,
        from: row.in_force_from,
        per_second: row.per_second,
    };
    Ok(rows.into_iter().map(limit).collect())
}

adapters::row! {
    struct TalliedRow {
        destination_id: Uuid,
        slot: String,
        deleted: bool,
        succeeded: i64,
        failed: i64,
        unknown: i64,
    }
}

async fn tallied(connection: &mut PgConnection) -> anyhow::Result<Vec<Tallied>> {
    let rows: Vec<TalliedRow> = sqlx::query_as(
        "select d.id as destination_id, s.slot, d.deleted_at is not null as deleted,
            coalesce(sum(t.succeeded), 0)::bigint as succeeded,
            coalesce(sum(t.failed + t.refused), 0)::bigint as failed,
            coalesce(sum(t.unknown), 0)::bigint as unknown
        from destinations d
        cross join (values ('minutes'), ('hour'), ('day')) s (slot)
        left join tallies t on t.destination_id = d.id and t.slot = s.slot
        group by 1, 2, 3
        order by 1, 2",
    )
    .fetch_all(connection)
    .await
    .context("read what was counted")?;
    let tallied = |row: TalliedRow| Tallied {
        destination: row.destination_id,
        slot: row.slot,
        deleted: row.deleted,
        succeeded: row.succeeded.unsigned_abs(),
        failed: row.failed.unsigned_abs(),
        unknown: row.unknown.unsigned_abs(),
    };
    Ok(rows.into_iter().map(tallied).collect())
}

async fn secrets(connection: &mut PgConnection) -> anyhow::Result<Vec<SecretNote>> {
    let rows: Vec<SecretRow> = sqlx::query_as(
        "select secret_id, destination_id, micros(expires_at) as expires_at,
            micros(noted_at) as noted_at
        from chaos_secrets
        order by id",
    )
    .fetch_all(connection)
    .await
    .context("read what was noted of secrets")?;
    let note = |row: SecretRow| SecretNote {
        secret: row.secret_id,
        destination: row.destination_id,
        expires_at: row.expires_at,
        noted_at: row.noted_at,
    };
    Ok(rows.into_iter().map(note).collect())
}
