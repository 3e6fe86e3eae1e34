//! Where backlogs stand, counted from the indexes of what is pending: on a
//! connection of its own, so that neither an event's way nor a reader waits for
//! a count.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use domain::backpressure::{
    BacklogBounds, Backlogged, Count, CountPace, LastCount, Standing, stand,
};
use domain::destination::DestinationState;
use domain::event::NewEvent;
use domain::ids::{DestinationId, TenantId};
use domain::smart::Effective;
use domain::time::Timestamp;
use engine::ports::{Acceptance, Backpressure, Counted, MAX_STANDINGS, StoreError};
use rusqlite::{Connection, Row, Transaction, params};
use uuid::Uuid;

use super::SqliteStore;
use super::accepted::went_to;
use super::fault::Fault;
use super::keys;
use super::rows::{all, execute, first, maybe_time, settings, tier_settings, time, word};

const READ: &str = "
    -- standings: read
    select scope, id, tenant_id, pending, refused_at, refused_pending, retry_after_ms
    from backlog_standings
    order by scope = 'all' desc, refused_at is not null desc, pending desc";

const LAST: &str = "
    -- standings: the last count
    select counted_at, took_ms from backlog_standings where scope = 'all'";

/// A destination that is disabled or deleted refuses by itself, and says so.
const DESTINATION: &str = "
    -- standings: whose it is, and its limits
    select d.limit_per_second, d.limit_per_minute, d.limit_per_hour, d.limit_per_day, d.unlimited,
        d.burst, d.shape, d.max_in_flight, d.safety_margin, d.margin_cap, d.count,
        t.limit_per_second, t.limit_per_minute, t.limit_per_hour, t.limit_per_day, t.unlimited,
        t.burst, t.shape, t.max_in_flight, d.tenant_id, d.state, s.per_second,
        s.max_in_flight, d.deleted_at is null and d.state <> 'disabled', d.allowed_per_minute
    from destinations d
    join tenants n on n.id = d.tenant_id
    join tiers t on t.name = n.tier
    left join smart_limits s on s.destination_id = d.id
    where d.id = ?1";

const CLEAR: &str = "
    -- standings: clear
    delete from backlog_standings";

const WRITE: &str = "
    -- standings: write
    insert into backlog_standings
        (scope, id, tenant_id, pending, refused_at, refused_pending, retry_after_ms, counted_at,
        took_ms, bound)
    values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";

#[async_trait]
impl Backpressure for SqliteStore {
    async fn standings(
        &self,
        bounds: &BacklogBounds,
        passed: &[Backlogged],
        pace: Option<&CountPace>,
    ) -> Result<Counted, StoreError> {
        let clock = self.clock.clone();
        let asked = pace.copied();
        let began = clock();
        // What a shell has deleted since the last step counts no more.
        self.look(|_, _| Ok(())).await?;
        let (last, before, counts) = self
            .count_all(move |tx| {
                let (last, before) = read(tx)?;
                let due = asked.is_some_and(|pace| pace.is_due(&last, began));
                Ok((last, before, due.then(|| count(tx)).transpose()?))
            })
            .await?;
        let pace = pace.copied().unwrap_or_default();
        let Some(counts) = counts else {
            return Ok(Counted {
                standings: before,
                age: began.since(last.at),
                wait: pace.wait(last.took),
            });
        };
        let known = (&before[..], passed);
        let standings = stand(known, &counts, (began, bounds), MAX_STANDINGS + 1);
        let last = LastCount {
            at: began,
            took: clock().since(began),
        };
        let (told, bounds) = (standings.clone(), *bounds);
        let step = move |tx: &Transaction<'_>, _| write(tx, &told, (&last, &bounds));
        self.write(step).await?;
        Ok(Counted {
            standings,
            age: clock().since(began),
            wait: pace.wait(last.took),
        })
    }

    async fn repeated(&self, events: &[NewEvent]) -> Result<Vec<Option<Acceptance>>, StoreError> {
        let events = events.to_vec();
        Ok(self
            .look(move |tx, now| {
                let answer = |event: &NewEvent| match &event.idempotency {
                    Some(asked) => keys::known((tx, now), event.tenant, asked, |id| {
                        went_to(tx, id, event.tenant)
                    }),
                    None => Ok(None),
                };
                events.iter().map(answer).collect()
            })
            .await?)
    }
}

fn read(connection: &Connection) -> Result<(LastCount, Vec<Standing>), Fault> {
    let last = first(connection, LAST, [], |row| {
        Ok(LastCount {
            at: time(row, 0)?,
            took: Duration::from_millis(number(row, 1)?),
        })
    })?;
    let never = LastCount {
        at: Timestamp::from_micros(0),
        took: Duration::ZERO,
    };
    let standings = all(connection, READ, [], |row| {
        let scope: String = row.get(0)?;
        let place = ("backlog_standings", "id");
        let refused = maybe_time(row, 4)?;
        Ok(Standing {
            whose: match scope.as_str() {
                "destination" => {
                    let tenant = word(row, 2, ("backlog_standings", "tenant_id"))?;
                    Backlogged::Destination(tenant, word(row, 1, place)?)
                }
                "tenant" => Backlogged::Tenant(word(row, 1, place)?),
                _ => Backlogged::All,
            },
            pending: number(row, 3)?,
            refused: match refused {
                Some(at) => Some((at, number(row, 5)?)),
                None => None,
            },
            retry_after: Duration::from_millis(number(row, 6)?),
        })
    })?;
    Ok((last.unwrap_or(never), standings))
}

fn number(row: &Row<'_>, index: usize) -> Result<u64, Fault> {
    let number: i64 = row.get(index)?;
    Ok(u64::try_from(number).unwrap_or(0))
}

/// One for each index of what is pending.
fn counts() -> [&'static str; 4] {
    [
        "-- standings: first attempts
    select key, value from json_each(line_lengths())",
        "-- standings: the others
    select destination_id, count(*) from deliveries indexed by deliveries_due
    where permit is null and due_at is not null group by destination_id",
        "-- standings: what has permits, and what is under way
    select destination_id, count(*) from deliveries indexed by deliveries_held
    where permit is not null and carried_by is null group by destination_id",
        "-- standings: what is under way in the request of another
    select destination_id, count(*) from deliveries indexed by deliveries_carried
    where carried_by is not null group by destination_id",
    ]
}

/// What is pending of each destination and tenant, and of all.
fn count(tx: &Transaction<'_>) -> Result<Vec<Count>, Fault> {
    let mut pending: BTreeMap<DestinationId, u64> = BTreeMap::new();
    for sql in counts() {
        let rows = all(tx, sql, [], |row| {
            let destination = word(row, 0, ("attempts", "destination_id"))?;
            Ok((destination, number(row, 1)?))
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
        let Some((tenant, limit_per_second, takes)) = limit(tx, destination)? else {
            continue;
        };
        *of_tenants.entry(tenant).or_default() += pending;
        if takes {
            counts.push(Count {
                whose: Backlogged::Destination(tenant, destination),
                pending,
                limit_per_second,
            });
        }
    }
    counts.extend(of_tenants.into_iter().map(|(tenant, pending)| Count {
        whose: Backlogged::Tenant(tenant),
        pending,
        limit_per_second: None,
    }));
    Ok(counts)
}

/// Whose it is, how fast it may drain, and whether it takes events.
fn limit(
    tx: &Transaction<'_>,
    destination: DestinationId,
) -> Result<Option<(TenantId, Option<f64>, bool)>, Fault> {
    first(tx, DESTINATION, [destination.to_string()], |row| {
        let state: DestinationState = word(row, 20, ("destinations", "state"))?;
        let smart = Effective {
            per_second: row.get(21)?,
            max_in_flight: row.get(22)?,
        };
        let configured = settings(row, (0, 24))?
            .or_tier(&tier_settings(row, 11)?)
            .policy();
        let limit = match state {
            DestinationState::Active => configured.slowed(smart).starts_per_second(),
            DestinationState::Paused | DestinationState::Disabled => Some(0.0),
        };
        let tenant = word(row, 19, ("destinations", "tenant_id"))?;
        Ok((tenant, limit, row.get(23)?))
    })
}

fn write(
    tx: &Transaction<'_>,
    standings: &[Standing],
    (last, bounds): (&LastCount, &BacklogBounds),
) -> Result<(), Fault> {
    let number = |pending: u64| i64::try_from(pending).unwrap_or(i64::MAX);
    let millis = |long: Duration| i64::try_from(long.as_millis()).unwrap_or(i64::MAX);
    execute(tx, CLEAR, [])?;
    for one in standings {
        let (scope, id, tenant) = match one.whose {
            Backlogged::Destination(tenant, id) => ("destination", id.0, Some(tenant.to_string())),
            Backlogged::Tenant(id) => ("tenant", id.0, None),
            Backlogged::All => ("all", Uuid::nil(), None),
        };
        let row = params![
            scope,
            id.to_string(),
            tenant,
            number(one.pending),
            one.refused.map(|(at, _)| at.as_micros()),
            one.refused.map(|(_, pending)| number(pending)),
            millis(one.retry_after),
            last.at.as_micros(),
            millis(last.took),
            number(bounds.of(one.whose)),
        ];
        execute(tx, WRITE, row)?;
    }
    Ok(())
}
