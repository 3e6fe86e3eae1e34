//! The watch of tenants: a few of them in each step, after the destinations.

use domain::health::{Slot, Tally};
use domain::ids::{DestinationId, TenantId};
use domain::time::{Timestamp, micros};
use domain::watch::{MAX_COUNTED_DESTINATIONS, RefusedFor, TenantAlerts, TenantSight, TenantWatch};
use engine::ports::{
    CatalogError, DEFAULT_TENANT, TenantAlertsChange, TenantAlertsView, Told, WatchRules,
};
use rusqlite::{Connection, Row, Transaction};

use super::super::fault::Fault;
use super::super::rows::{all, execute, first, maybe_time, word};
use super::{END_TURN, MAX_COUNTED, TAKE_TURN, TENANTS};

/// Tenants that one step looks at, whatever the rules say.
const MAX_TENANTS: u32 = 20;

/// The first ten columns.
const WATCHED: &str = "n.id, n.alert_success_percent, n.alert_success_seconds,
        n.alert_success_least, w.success_low_since, w.destinations_high_since,
        w.backlog_high_since, w.refused_since, coalesce(w.rejected, 0), w.rejected_told_at";

fn next_tenants() -> String {
    format!(
        "-- watch tenants: the next
    select {WATCHED}, w.tenant_id is not null, n.deleted_at is not null, m.most
    from tenants n
    join most_destinations m on m.tenant_id = n.id
    left join tenant_watches w on w.tenant_id = n.id
    where n.id > ?1
    order by n.id limit ?2"
    )
}

fn one_tenant() -> String {
    format!(
        "-- tenant_alerts
    select {WATCHED}
    from tenants n left join tenant_watches w on w.tenant_id = n.id
    where n.id = ?1"
    )
}

const ANSWERED: &str = "
    -- watch tenants: what came of its requests
    select coalesce(sum(succeeded), 0), coalesce(sum(failed), 0) from tenant_tallies
    where tenant_id = ?1 and ends_at > ?2";

const DESTINATIONS: &str = "
    -- watch tenants: how many destinations it has
    select count(*) from (
        select 1 from destinations indexed by destinations_of_tenant
        where tenant_id = ?1 and deleted_at is null limit ?2
    )";

const BACKLOG: &str = "
    -- watch tenants: its backlog, where it is told of
    select pending, bound, refused_at from backlog_standings where scope = ?1 and id = ?2";

const REFUSING: &str = "
    -- watch tenants: one of its destinations that refuses
    select id from backlog_standings
    where scope = 'destination' and tenant_id = ?1 and refused_at is not null
    order by pending desc limit 1";

const REMEMBER: &str = "
    -- watch tenants: what to remember
    insert or replace into tenant_watches (tenant_id, success_low_since, destinations_high_since,
        backlog_high_since, refused_since, rejected, rejected_told_at)
    values (?1, ?2, ?3, ?4, ?5, ?6, ?7)";

const FORGET: &str = "
    -- watch tenants: nothing to remember
    delete from tenant_watches where tenant_id = ?1";

const ADD: &str = "
    -- tally: add to a slot of the tenant
    insert into tenant_tallies (tenant_id, ends_at, succeeded, failed) values (?1, ?2, ?3, ?4)
    on conflict do update
    set succeeded = succeeded + excluded.succeeded, failed = failed + excluded.failed";

const TRIM: &str = "
    -- tally: slots of tenants that nobody asks for any more
    delete from tenant_tallies where (tenant_id, ends_at) in (
        select tenant_id, ends_at from tenant_tallies where ends_at < ?1 limit ?2
    )";

const CHANGE: &str = "
    -- change_tenant_alerts
    update tenants
    set alert_success_percent = iif(?2, ?3, alert_success_percent),
        alert_success_seconds = iif(?4, ?5, alert_success_seconds),
        alert_success_least = iif(?6, ?7, alert_success_least)
    where id = ?1 and deleted_at is null";

/// One step, if one is due; whether the round goes on.
pub(super) fn step(
    tx: &Transaction<'_>,
    now: Timestamp,
    rules: &WatchRules,
) -> Result<(Vec<Told>, bool), Fault> {
    let turn = first(tx, TAKE_TURN, (now.as_micros(), TENANTS), |row| {
        Ok(row.get::<_, Option<String>>(0)?)
    })?;
    let Some(after) = turn else {
        return Ok((Vec::new(), false));
    };
    let page = rules.tenants.min(MAX_TENANTS);
    let passed = all(
        tx,
        &next_tenants(),
        (after.unwrap_or_default(), page),
        Passed::read,
    )?;
    let mut more = u32::try_from(passed.len()).is_ok_and(|length| length >= page);
    let (mut news, mut counted, mut last) = (Vec::new(), 0_u32, None);
    for mut one in passed {
        if counted >= rules.counted.min(MAX_COUNTED) {
            more = true;
            break;
        }
        last = Some(one.id.to_string());
        if one.deleted {
            one.forget(tx)?;
            continue;
        }
        let sight = one.look(tx, now)?;
        counted = counted.saturating_add(sight.destinations);
        news.extend(one.judge(&sight, rules, now));
        one.write(tx, rules, now)?;
    }
    let pause = if more {
        rules.pace
    } else {
        rules.tenants_every
    };
    let due_at = now.as_micros().saturating_add(micros(pause));
    execute(tx, END_TURN, (last.filter(|_| more), due_at, TENANTS))?;
    Ok((news, more))
}

/// A tenant that the round passes.
struct Passed {
    id: TenantId,
    settings: TenantAlerts,
    watch: TenantWatch,
    remembered: bool,
    deleted: bool,
    most: Option<u32>,
}

/// The columns of [`WATCHED`].
fn watched(row: &Row<'_>) -> Result<(TenantId, TenantAlerts, TenantWatch), Fault> {
    let settings = TenantAlerts::of(row.get(1)?, row.get(2)?, row.get(3)?);
    let watch = TenantWatch {
        success_low_since: maybe_time(row, 4)?,
        destinations_high_since: maybe_time(row, 5)?,
        backlog_high_since: maybe_time(row, 6)?,
        refused_since: maybe_time(row, 7)?,
        rejected: row.get::<_, i64>(8)?.unsigned_abs(),
        rejected_told_at: maybe_time(row, 9)?,
    };
    Ok((word(row, 0, ("tenants", "id"))?, settings, watch))
}

impl Passed {
    fn read(row: &Row<'_>) -> Result<Self, Fault> {
        let (id, settings, watch) = watched(row)?;
        Ok(Self {
            id,
            settings,
            watch,
            remembered: row.get(10)?,
            deleted: row.get(11)?,
            most: row.get(12)?,
        })
    }

    fn look(&self, tx: &Transaction<'_>, now: Timestamp) -> Result<TenantSight, Fault> {
        let key = self.id.to_string();
        let since = (now - self.settings.success_within).as_micros();
        let answered = first(tx, ANSWERED, (&key, since), |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
        })?;
        let (succeeded, failed) = answered.unwrap_or_default();
        let most = (self.most).filter(|most| *most <= MAX_COUNTED_DESTINATIONS);
        let destinations = match most {
            Some(most) => first(tx, DESTINATIONS, (&key, most), |row| Ok(row.get(0)?))?,
            None => None,
        };
        let own = standing(tx, "tenant", &key)?;
        let all = match self.id == DEFAULT_TENANT {
            true => standing(tx, "all", &uuid::Uuid::nil().to_string())?,
            false => None,
        };
        let refuses = |one: Option<Standing>| one.is_some_and(|one| one.refuses);
        let refused = if refuses(own) {
            Some(RefusedFor::Tenant)
        } else if refuses(all) {
            Some(RefusedFor::All)
        } else {
            let place = ("backlog_standings", "id");
            let id = first(tx, REFUSING, [&key], |row| {
                word::<DestinationId>(row, 0, place)
            })?;
            id.map(RefusedFor::Destination)
        };
        Ok(TenantSight {
            succeeded: succeeded.unsigned_abs(),
            failed: failed.unsigned_abs(),
            destinations: destinations.unwrap_or(0),
            most_destinations: most,
            backlog: own.map(|own| (own.pending, own.bound)),
            refused,
        })
    }

    fn judge(&mut self, sight: &TenantSight, rules: &WatchRules, now: Timestamp) -> Vec<Told> {
        let mut news = self.watch.look(&self.settings, sight, now);
        let rejected = self.watch.tell_rejected(rules.dead_letters_every, now);
        news.extend(rejected.map(|news| (None, news)));
        let told = |(destination, news)| Told {
            destination,
            tenant: self.id,
            news,
        };
        news.into_iter().map(told).collect()
    }

    /// What is remembered from now on: nothing, if it is well.
    fn write(&self, tx: &Transaction<'_>, rules: &WatchRules, now: Timestamp) -> Result<(), Fault> {
        if self.watch.is_well(rules.dead_letters_every, now) {
            return self.forget(tx);
        }
        let at = |time: Option<Timestamp>| time.map(Timestamp::as_micros);
        let row = (
            self.id.to_string(),
            at(self.watch.success_low_since),
            at(self.watch.destinations_high_since),
            at(self.watch.backlog_high_since),
            at(self.watch.refused_since),
            number(self.watch.rejected),
            at(self.watch.rejected_told_at),
        );
        execute(tx, REMEMBER, row)?;
        Ok(())
    }

    fn forget(&self, tx: &Transaction<'_>) -> Result<(), Fault> {
        if self.remembered {
            execute(tx, FORGET, [self.id.to_string()])?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct Standing {
    pending: u64,
    bound: u64,
    refuses: bool,
}

/// A backlog as it was counted last; `None` where it is too short to be told of.
fn standing(tx: &Transaction<'_>, scope: &str, id: &str) -> Result<Option<Standing>, Fault> {
    first(tx, BACKLOG, (scope, id), |row| {
        Ok(Standing {
            pending: row.get::<_, i64>(0)?.unsigned_abs(),
            bound: row.get::<_, i64>(1)?.unsigned_abs(),
            refuses: maybe_time(row, 2)?.is_some(),
        })
    })
}

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Adds what came of requests of a tenant's destinations to one of its slots.
pub(in super::super) fn add(
    tx: &Transaction<'_>,
    tenant: &str,
    (ends_at, tally): (Timestamp, &Tally),
) -> Result<(), Fault> {
    let (succeeded, failed) = (number(tally.succeeded), number(tally.failed));
    execute(tx, ADD, (tenant, ends_at.as_micros(), succeeded, failed))?;
    Ok(())
}

/// Deletes slots that are older than the longest time that can be set.
pub(in super::super) fn trim(tx: &Transaction<'_>, now: Timestamp, most: u32) -> Result<(), Fault> {
    let before = (now - Slot::Minutes.kept()).as_micros();
    execute(tx, TRIM, (before, most))?;
    Ok(())
}

pub(in super::super) fn alerts(
    connection: &Connection,
    tenant: TenantId,
) -> Result<TenantAlertsView, Fault> {
    let found = first(connection, &one_tenant(), [tenant.to_string()], watched)?;
    let (_, settings, watch) = found.ok_or_else(no_tenant)?;
    Ok(TenantAlertsView { settings, watch })
}

pub(in super::super) fn change(
    tx: &Transaction<'_>,
    tenant: TenantId,
    change: &TenantAlertsChange,
) -> Result<(), Fault> {
    let row = (
        tenant.to_string(),
        change.success_percent.is_some(),
        change.success_percent.flatten(),
        change.success_seconds.is_some(),
        change.success_seconds.flatten(),
        change.success_least.is_some(),
        change.success_least.flatten(),
    );
    match execute(tx, CHANGE, row)? {
        0 => Err(no_tenant()),
        _ => Ok(()),
    }
}

fn no_tenant() -> Fault {
    CatalogError::NotFound("tenant").into()
}
