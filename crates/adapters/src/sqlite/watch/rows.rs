//! Destinations that the watch passes by, and what it remembers of them.

use domain::health::HoldReason;
use domain::ids::{DestinationId, TenantId};
use domain::time::Timestamp;
use domain::watch::{AlertSettings, Short, Shortfall, Sight, Watch};
use engine::ports::{AlertsView, Told, WatchRules};
use rusqlite::{Connection, Row, Transaction};

use super::super::fault::Fault;
use super::super::rows::{execute, first, maybe_time, parse, word};

pub(super) const PASSED: &str = "
    -- watch: a destination that it passes by
    select w.backlog_high_since, w.short_since, w.short_seen_at, w.short_for,
        coalesce(w.short_told, 0), coalesce(w.dead_letters, 0), w.dead_letters_told_at,
        w.destination_id is not null, d.alert_backlog, d.alert_under_delivery_seconds,
        d.tenant_id, h.held_for,
        (
            select created_at from deliveries
            where id = line_head(?1) and permit is null and due_at is null
        ),
        (
            select due_at from deliveries indexed by deliveries_due
            where destination_id = ?1 and permit is null and due_at is not null
                and urgent = 1
            order by due_at limit 1
        ),
        (
            select due_at from deliveries indexed by deliveries_due
            where destination_id = ?1 and permit is null and due_at is not null
                and urgent = 0 and due_at <= ?2
            order by due_at limit 1
        )
    from destinations d
    left join watches w on w.destination_id = d.id
    left join health h on h.destination_id = d.id
    where d.id = ?1 and d.deleted_at is null";

const ALERTS: &str = "
    -- alerts
    select w.backlog_high_since, w.short_since, w.short_seen_at, w.short_for,
        coalesce(w.short_told, 0), coalesce(w.dead_letters, 0), w.dead_letters_told_at,
        d.alert_backlog, d.alert_under_delivery_seconds, d.alert_failing_percent, t.failing_since
    from destinations d
    left join watches w on w.destination_id = d.id
    left join tally_marks t on t.destination_id = d.id
    where d.id = ?1 and d.tenant_id = ?2 and d.deleted_at is null";

const FORGET: &str = "
    -- watch: nothing to remember
    delete from watches where destination_id = ?1";

const REMEMBER: &str = "
    -- watch: what to remember
    insert into watches (destination_id, tenant_id, backlog_high_since, short_since, short_seen_at,
        short_for, short_told, dead_letters, dead_letters_told_at)
    values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
    on conflict (destination_id) do update
    set backlog_high_since = excluded.backlog_high_since, short_since = excluded.short_since,
        short_seen_at = excluded.short_seen_at, short_for = excluded.short_for,
        short_told = excluded.short_told, dead_letters = excluded.dead_letters,
        dead_letters_told_at = excluded.dead_letters_told_at";

/// A destination that the watch passes by.
pub(super) struct Passed {
    pub(super) key: String,
    pub(super) id: DestinationId,
    tenant: TenantId,
    settings: AlertSettings,
    pub(super) held_for: Option<HoldReason>,
    pub(super) remembered: bool,
    watch: Watch,
    /// Since when the first of what is due waits.
    pub(super) oldest: Option<Timestamp>,
}

impl Passed {
    /// `None` if it is gone: then nothing is remembered of it any more.
    pub(super) fn read(
        tx: &Transaction<'_>,
        now: Timestamp,
        key: &str,
    ) -> Result<Option<Self>, Fault> {
        let id = parse(key, ("attempts", "destination_id"))?;
        let passed = first(tx, PASSED, (key, now.as_micros()), |row| {
            let held_for: Option<String> = row.get(11)?;
            let oldest = [12, 13, 14].map(|at| maybe_time(row, at));
            let oldest = oldest.into_iter().collect::<Result<Vec<_>, _>>()?;
            Ok(Self {
                key: key.to_owned(),
                id,
                tenant: word(row, 10, ("destinations", "tenant_id"))?,
                settings: AlertSettings::of(row.get(8)?, row.get(9)?, None),
                held_for: held_for
                    .map(|reason| parse(&reason, ("health", "held_for")))
                    .transpose()?,
                remembered: row.get(7)?,
                watch: watch(row)?,
                oldest: oldest.into_iter().flatten().min(),
            })
        })?;
        if passed.is_none() {
            execute(tx, FORGET, [key])?;
        }
        Ok(passed)
    }

    pub(super) fn count_up_to(&self) -> u32 {
        self.watch.count_up_to(&self.settings)
    }

    /// What this look comes to.
    pub(super) fn judge(&mut self, sight: &Sight, rules: &WatchRules, now: Timestamp) -> Vec<Told> {
        let mut news = (self.watch).look(&self.settings, sight, (rules.patience, now));
        news.extend(self.watch.tell_dead_letters(rules.dead_letters_every, now));
        let told = |news| Told {
            destination: Some(self.id),
            tenant: self.tenant,
            news,
        };
        news.into_iter().map(told).collect()
    }

    /// What is remembered from now on: nothing, if it is well.
    pub(super) fn write(
        &self,
        tx: &Transaction<'_>,
        rules: &WatchRules,
        now: Timestamp,
    ) -> Result<(), Fault> {
        if self.watch.is_well(rules.dead_letters_every, now) {
            if self.remembered {
                execute(tx, FORGET, [&self.key])?;
            }
            return Ok(());
        }
        let micros = |at: Option<Timestamp>| at.map(Timestamp::as_micros);
        let short = self.watch.short;
        let row = (
            &self.key,
            self.tenant.to_string(),
            micros(self.watch.backlog_high_since),
            micros(short.map(|short| short.since)),
            micros(short.map(|short| short.seen_at)),
            short.map(|short| short.reason.as_str()),
            short.is_some_and(|short| short.told),
            i64::try_from(self.watch.dead_letters).unwrap_or(i64::MAX),
            micros(self.watch.dead_letters_told_at),
        );
        execute(tx, REMEMBER, row)?;
        Ok(())
    }
}

/// The columns of `watches`, from the first on.
fn watch(row: &Row<'_>) -> Result<Watch, Fault> {
    let reason: Option<String> = row.get(3)?;
    let short = match (maybe_time(row, 1)?, maybe_time(row, 2)?, reason) {
        (Some(since), Some(seen_at), Some(reason)) => Some(Short {
            since,
            seen_at,
            reason: parse::<Shortfall>(&reason, ("watches", "short_for"))?,
            told: row.get(4)?,
        }),
        _ => None,
    };
    let dead_letters: i64 = row.get(5)?;
    Ok(Watch {
        backlog_high_since: maybe_time(row, 0)?,
        short,
        dead_letters: u64::try_from(dead_letters).unwrap_or(0),
        dead_letters_told_at: maybe_time(row, 6)?,
    })
}

/// The alerts of a destination; `None` if the tenant has none such.
pub(in super::super) fn alerts(
    connection: &Connection,
    tenant: TenantId,
    id: DestinationId,
) -> Result<Option<AlertsView>, Fault> {
    let key = (id.to_string(), tenant.to_string());
    first(connection, ALERTS, key, |row| {
        Ok(AlertsView {
            settings: AlertSettings::of(row.get(7)?, row.get(8)?, row.get(9)?),
            watch: watch(row)?,
            failing_since: maybe_time(row, 10)?,
        })
    })
}
