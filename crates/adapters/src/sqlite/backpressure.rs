//! Where backlogs stand, counted from the indexes of what is pending: on the
//! connection that reads, so that an event's way never waits for a count.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use domain::backpressure::{BacklogBounds, Backlogged, Count, Standing, stand};
use domain::destination::DestinationState;
use domain::ids::{DestinationId, TenantId};
use engine::ports::{Backpressure, MAX_STANDINGS, StoreError};
use rusqlite::{Connection, Row, Transaction, params};
use uuid::Uuid;

use super::SqliteStore;
use super::fault::Fault;
use super::rows::{all, execute, first, settings, time, word};

const READ: &str = "
    -- standings: read
    select scope, id, pending, counted_at, refusing, drained_per_second, retry_after_ms
    from backlog_standings
    order by scope = 'all' desc, refusing desc, pending desc";

/// One for each index of what is pending.
const COUNTS: [&str; 4] = [
    "-- standings: first attempts
    select destination_id, count(*) from attempts indexed by attempts_first
    where state = 'waiting' and due_at is null group by destination_id",
    "-- standings: the others
    select destination_id, count(*) from attempts indexed by attempts_due
    where state = 'waiting' and due_at is not null group by destination_id",
    "-- standings: admitted
    select destination_id, count(*) from attempts indexed by attempts_admitted
    where state = 'admitted' group by destination_id",
    "-- standings: started
    select destination_id, count(*) from attempts indexed by attempts_in_flight
    where state = 'started' group by destination_id",
];

const DESTINATION: &str = "
    -- standings: whose it is, and its limits
    select d.limit_per_second, d.limit_per_minute, d.limit_per_hour, d.limit_per_day, d.unlimited,
        d.burst, d.shape, d.max_in_flight, d.safety_margin,
        t.limit_per_second, t.limit_per_minute, t.limit_per_hour, t.limit_per_day, t.unlimited,
        t.burst, t.shape, t.max_in_flight, 0.0, d.tenant_id, d.state
    from destinations d
    join tenants n on n.id = d.tenant_id
    join tiers t on t.name = n.tier
    where d.id = ?1";

const CLEAR: &str = "
    -- standings: clear
    delete from backlog_standings";

const WRITE: &str = "
    -- standings: write
    insert into backlog_standings
        (scope, id, pending, counted_at, refusing, drained_per_second, retry_after_ms)
    values (?1, ?2, ?3, ?4, ?5, ?6, ?7)";

#[async_trait]
impl Backpressure for SqliteStore {
    async fn standings(
        &self,
        bounds: &BacklogBounds,
        passed: &[Backlogged],
        if_older_than: Duration,
    ) -> Result<Vec<Standing>, StoreError> {
        let now = (self.clock)();
        let (before, counts) = self
            .read(move |tx| {
                let before = read(tx)?;
                let counted_at = before.first().map(|whole| whole.counted_at);
                let fresh = counted_at.is_some_and(|at| at > now - if_older_than);
                let counts = (!fresh).then(|| count(tx)).transpose()?;
                Ok((before, counts))
            })
            .await?;
        let Some(counts) = counts else {
            return Ok(before);
        };
        let known = (&before[..], passed);
        let after = stand(known, &counts, (now, bounds), MAX_STANDINGS + 1);
        let told = after.clone();
        self.write(move |tx, _| write(tx, &told)).await?;
        Ok(after)
    }
}

fn read(connection: &Connection) -> Result<Vec<Standing>, Fault> {
    all(connection, READ, [], |row| {
        let scope: String = row.get(0)?;
        let id = || word(row, 1, ("backlog_standings", "id"));
        let wait: i64 = row.get(6)?;
        Ok(Standing {
            whose: match scope.as_str() {
                "destination" => Backlogged::Destination(id()?),
                "tenant" => Backlogged::Tenant(id()?),
                _ => Backlogged::All,
            },
            pending: number(row, 2)?,
            counted_at: time(row, 3)?,
            refusing: row.get(4)?,
            drained_per_second: row.get(5)?,
            retry_after: Duration::from_millis(u64::try_from(wait).unwrap_or(0)),
        })
    })
}

fn number(row: &Row<'_>, index: usize) -> Result<u64, Fault> {
    let number: i64 = row.get(index)?;
    Ok(u64::try_from(number).unwrap_or(0))
}

/// What is pending of each destination and tenant, and of all.
fn count(tx: &Transaction<'_>) -> Result<Vec<Count>, Fault> {
    let mut pending: BTreeMap<DestinationId, u64> = BTreeMap::new();
    for sql in COUNTS {
        let rows = all(tx, sql, [], |row| {
            Ok((
                word(row, 0, ("attempts", "destination_id"))?,
                number(row, 1)?,
            ))
        })?;
        for (destination, more) in rows {
            *pending.entry(destination).or_default() += more;
        }
    }
    let mut of_tenants: BTreeMap<TenantId, u64> = BTreeMap::new();
    let mut counts = vec![Count {
        whose: Backlogged::All,
        pending: pending.values().sum(),
        limit_per_second: None,
    }];
    for (destination, pending) in pending {
        let found = first(tx, DESTINATION, [destination.to_string()], |row| {
            let state: DestinationState = word(row, 19, ("destinations", "state"))?;
            let policy = settings(row, 0)?.or_tier(&settings(row, 9)?).policy();
            let limit = match state {
                DestinationState::Active => policy.starts_per_second(),
                _ => Some(0.0),
            };
            Ok((word(row, 18, ("destinations", "tenant_id"))?, limit))
        })?;
        let Some((tenant, limit_per_second)) = found else {
            continue;
        };
        *of_tenants.entry(tenant).or_default() += pending;
        counts.push(Count {
            whose: Backlogged::Destination(destination.0),
            pending,
            limit_per_second,
        });
    }
    counts.extend(of_tenants.into_iter().map(|(tenant, pending)| Count {
        whose: Backlogged::Tenant(tenant.0),
        pending,
        limit_per_second: None,
    }));
    Ok(counts)
}

fn write(tx: &Transaction<'_>, standings: &[Standing]) -> Result<(), Fault> {
    execute(tx, CLEAR, [])?;
    for one in standings {
        let (scope, id) = match one.whose {
            Backlogged::Destination(id) => ("destination", id),
            Backlogged::Tenant(id) => ("tenant", id),
            Backlogged::All => ("all", Uuid::nil()),
        };
        let row = params![
            scope,
            id.to_string(),
            i64::try_from(one.pending).unwrap_or(i64::MAX),
            one.counted_at.as_micros(),
            one.refusing,
            one.drained_per_second,
            i64::try_from(one.retry_after.as_millis()).unwrap_or(i64::MAX),
        ];
        execute(tx, WRITE, row)?;
    }
    Ok(())
}
