//! What the dashboard looks at, on the connection of those who count.

use std::time::Duration;

use async_trait::async_trait;
use domain::ids::{AttemptId, DestinationId, EventId, TenantId};
use domain::time::{Timestamp, micros};
use engine::ports::{
    AllDestinations, Answered, AttemptFilter, AttemptPage, AttemptView, Called, CatalogError,
    EventFilter, EventPage, FAILS_FOR, GLANCE_ANSWERS, GLANCE_RATE, GLANCE_SAMPLE, GLANCE_STARTS,
    Glance, MAX_CHARTED, MAX_CHARTED_ANSWERS, MAX_GLANCED, MAX_NAMED, Overview, Payload, Requested,
    StartsAt, Thing, Troubled, WantedOfAll,
};
use rusqlite::Transaction;

use super::event_types::pointers;
use super::fault::Fault;
use super::harm::{BY_HARM, IS_TROUBLED};
use super::ledger::{self, view};
use super::rows::{all, first, maybe_time, time, word};
use super::{SqliteStore, all_destinations, found_attempts, found_events};

const FIND: &str = "
    -- find_destinations
    select id from destinations
    where tenant_id = ?1 and deleted_at is null and id > ?2
        and (instr(lower(name), ?3) > 0 or instr(lower(url), ?3) > 0 or instr(id, ?3) > 0)
    order by id limit ?4";

const NAME: &str = "
    -- names
    select coalesce(nullif(d.name, ''), d.url), n.name from destinations d
    join tenants n on n.id = d.tenant_id
    where d.id = ?1";

const STARTED_SINCE: &str = "
    -- glance: starts
    select count(*) from (
        select 1 from ledger indexed by ledger_starts
        where destination_id = ?1 and folded = 0 and started_at > ?2 and carried_by is null
        union all
        select 1 from ledger indexed by ledger_starts
        where destination_id = ?1 and folded = 1 and started_at > ?2 and carried_by is null
        union all
        select 1 from deliveries indexed by deliveries_held
        where destination_id = ?1 and state = 'started' and started_at > ?2
            and permit is not null and carried_by is null
        limit ?3
    )";

const ANSWERS: &str = "
    -- answers
    select * from (
        select * from (
            select state, status, finished_at - started_at, started_at
            from ledger indexed by ledger_starts
            where destination_id = ?1 and folded = 0 and started_at > ?2 and carried_by is null
                and finished_at is not null
            order by started_at desc, id desc limit ?3
        )
        union all
        select * from (
            select state, status, finished_at - started_at, started_at
            from ledger indexed by ledger_starts
            where destination_id = ?1 and folded = 1 and started_at > ?2 and carried_by is null
                and finished_at is not null
            order by started_at desc, id desc limit ?3
        )
    )
    order by started_at desc limit ?3";

const STARTS: &str = "
    -- starts: by step, of the newest
    select started_at / ?3 * ?3, count(*) from (
        select * from (
            select started_at from ledger indexed by ledger_starts
            where destination_id = ?1 and folded = 0 and started_at >= ?2 and carried_by is null
            order by started_at desc, id desc limit ?4
        )
        union all
        select * from (
            select started_at from ledger indexed by ledger_starts
            where destination_id = ?1 and folded = 1 and started_at >= ?2 and carried_by is null
            order by started_at desc, id desc limit ?4
        )
        union all
        select * from (
            select started_at from deliveries indexed by deliveries_held
            where destination_id = ?1 and state = 'started' and started_at >= ?2
                and permit is not null and carried_by is null
            order by started_at desc, id desc limit ?4
        )
    )
    group by 1 order by 1";

const LAST_STARTED: &str = "
    -- last_started
    select id from (
        select * from (
            select id, started_at from ledger indexed by ledger_starts
            where destination_id = ?1 and folded = 0 and started_at is not null
                and carried_by is null
            order by started_at desc, id desc limit ?2
        )
        union all
        select * from (
            select id, started_at from ledger indexed by ledger_starts
            where destination_id = ?1 and folded = 1 and started_at is not null
                and carried_by is null
            order by started_at desc, id desc limit ?2
        )
        union all
        select * from (
            select id, started_at from deliveries indexed by deliveries_held
            where destination_id = ?1 and state = 'started' and permit is not null
                and carried_by is null
            order by started_at desc, id desc limit ?2
        )
    )
    order by started_at desc, id desc limit ?2";

const REQUESTED: &str = "
    -- requested
    select a.id, a.event_id, a.destination_id, a.try_number, a.state, a.dead_letter, a.created_at,
        a.admitted_at, a.started_at, a.finished_at, a.status, a.error, a.response_body, a.replay_id,
        a.response_headers, a.due_at, a.expires_at, e.content_type, coalesce(length(e.payload), a.payload_bytes),
        a.carried_by is not null or a.batch_size is not null, a.claimed_at,
        (
            select h.url from limit_history h indexed by limit_history_of_destination
            where h.destination_id = a.destination_id and h.in_force_from <= a.claimed_at
            order by h.in_force_from desc, h.id desc limit 1
        )
    from attempts a
    left join events e on e.id = a.event_id
    where a.id = ?1 and a.tenant_id = ?2";

const PAYLOAD: &str = "
    -- payload
    select e.content_type, e.payload, t.name, t.redact
    from events e left join event_types t on t.name = e.event_type
    where e.id = ?1 and e.tenant_id = ?2";

#[async_trait]
impl Overview for SqliteStore {
    async fn now(&self) -> Result<Timestamp, CatalogError> {
        Ok((self.clock)())
    }

    async fn tenant_of(&self, thing: Thing) -> Result<Option<TenantId>, CatalogError> {
        let step = move |tx: &Transaction<'_>| match thing {
            Thing::Destination(id) => {
                let sql =
                    "-- tenant_of: destination\nselect tenant_id from destinations where id = ?1";
                first(tx, sql, [id.to_string()], |row| {
                    word(row, 0, ("destinations", "tenant_id"))
                })
            }
            Thing::Event(id) => {
                let sql = "-- tenant_of: event\nselect tenant_id from events where id = ?1";
                first(tx, sql, [id.to_string()], |row| {
                    word(row, 0, ("events", "tenant_id"))
                })
            }
            Thing::Attempt(id) => {
                let sql = "-- tenant_of: attempt\nselect tenant_id from attempts where id = ?1";
                first(tx, sql, [id.0], |row| {
                    word(row, 0, ("attempts", "tenant_id"))
                })
            }
            Thing::Replay(id) => {
                let sql = "-- tenant_of: replay\nselect tenant_id from replays where id = ?1";
                first(tx, sql, [id.to_string()], |row| {
                    word(row, 0, ("replays", "tenant_id"))
                })
            }
        };
        Ok(self.count(step).await?)
    }

    async fn find_destinations(
        &self,
        tenant: TenantId,
        text: &str,
        after: Option<DestinationId>,
        limit: u32,
    ) -> Result<Vec<DestinationId>, CatalogError> {
        let text = text.to_lowercase();
        let after = after.map(|after| after.to_string()).unwrap_or_default();
        let step = move |tx: &Transaction<'_>| {
            let params = (tenant.to_string(), after, text, limit);
            all(tx, FIND, params, |row| word(row, 0, ("destinations", "id")))
        };
        Ok(self.count(step).await?)
    }

    async fn troubled_destinations(
        &self,
        tenant: TenantId,
        limit: u32,
    ) -> Result<Troubled, CatalogError> {
        let now = (self.clock)();
        let step = move |tx: &Transaction<'_>| {
            let params = (
                tenant.to_string(),
                now.as_micros(),
                limit,
                (now - FAILS_FOR).as_micros(),
            );
            let sql = format!(
                "-- troubled_destinations
                select d.id, count(*) over () from destinations d
                left join health h on h.destination_id = d.id
                left join watches w on w.destination_id = d.id
                left join tally_marks m on m.destination_id = d.id
                where d.tenant_id = ?1 and d.deleted_at is null and {IS_TROUBLED}
                order by {BY_HARM}
                limit ?3"
            );
            let found = all(tx, &sql, params, |row| {
                let count: i64 = row.get(1)?;
                Ok((word(row, 0, ("destinations", "id"))?, count.unsigned_abs()))
            })?;
            let count = found.first().map_or(0, |(_, count)| *count);
            Ok(Troubled {
                first: found.into_iter().map(|(id, _)| id).collect(),
                count,
            })
        };
        Ok(self.count(step).await?)
    }

    async fn all_destinations(
        &self,
        wanted: &WantedOfAll,
    ) -> Result<AllDestinations, CatalogError> {
        let (wanted, now) = (wanted.clone(), (self.clock)());
        Ok(self
            .count(move |tx| all_destinations::page(tx, now, &wanted))
            .await?)
    }

    async fn names(&self, destinations: &[DestinationId]) -> Result<Vec<Called>, CatalogError> {
        let first_of = destinations.len().min(MAX_NAMED);
        let ids = destinations[..first_of].to_vec();
        let step = move |tx: &Transaction<'_>| {
            let mut called = Vec::with_capacity(ids.len());
            for id in ids {
                called.extend(first(tx, NAME, [id.to_string()], |row| {
                    Ok(Called {
                        destination: id,
                        name: row.get(0)?,
                        tenant_name: row.get(1)?,
                    })
                })?);
            }
            Ok(called)
        };
        Ok(self.count(step).await?)
    }

    async fn glance(&self, destinations: &[DestinationId]) -> Result<Vec<Glance>, CatalogError> {
        let first = destinations.len().min(MAX_GLANCED);
        let (ids, now) = (destinations[..first].to_vec(), (self.clock)());
        let step = move |tx: &Transaction<'_>| ids.iter().map(|id| glance(tx, now, *id)).collect();
        Ok(self.count(step).await?)
    }

    async fn starts(
        &self,
        destination: DestinationId,
        since: Timestamp,
        step: Duration,
    ) -> Result<Vec<StartsAt>, CatalogError> {
        let length = micros(step).max(1);
        let step = move |tx: &Transaction<'_>| {
            let params = (
                destination.to_string(),
                since.as_micros(),
                length,
                MAX_CHARTED,
            );
            all(tx, STARTS, params, |row| {
                Ok(StartsAt {
                    from: time(row, 0)?,
                    starts: row.get(1)?,
                })
            })
        };
        Ok(self.count(step).await?)
    }

    async fn answers(
        &self,
        destination: DestinationId,
        since: Timestamp,
    ) -> Result<Vec<Answered>, CatalogError> {
        let key = destination.to_string();
        let step = move |tx: &Transaction<'_>| answers(tx, &key, (since, MAX_CHARTED_ANSWERS));
        Ok(self.count(step).await?)
    }

    async fn requested(
        &self,
        tenant: TenantId,
        attempt: AttemptId,
    ) -> Result<Requested, CatalogError> {
        let step = move |tx: &Transaction<'_>| {
            let found = first(tx, REQUESTED, (attempt.0, tenant.to_string()), |row| {
                Ok(Requested {
                    attempt: view(row)?,
                    content_type: row.get(17)?,
                    payload_bytes: row.get(18)?,
                    in_batch: row.get(19)?,
                    claimed_at: maybe_time(row, 20)?,
                    url: row.get(21)?,
                })
            })?;
            Ok(found.ok_or(CatalogError::NotFound("attempt"))?)
        };
        Ok(self.count(step).await?)
    }

    async fn last_started(
        &self,
        destination: DestinationId,
        limit: u32,
    ) -> Result<Vec<AttemptView>, CatalogError> {
        let step = move |tx: &Transaction<'_>| {
            ledger::newest(tx, LAST_STARTED, (destination.to_string(), limit))
        };
        Ok(self.count(step).await?)
    }

    async fn payload(&self, tenant: TenantId, id: EventId) -> Result<Payload, CatalogError> {
        let step = move |tx: &Transaction<'_>| {
            let found = first(tx, PAYLOAD, (id.to_string(), tenant.to_string()), |row| {
                let of_type: Option<String> = row.get(2)?;
                let redact: Option<String> = row.get(3)?;
                let redact = of_type.zip(redact);
                Ok(Payload {
                    content_type: row.get(0)?,
                    bytes: row.get(1)?,
                    redact: redact.map_or(Ok(Vec::new()), |(of_type, redact)| {
                        pointers(&redact, &of_type)
                    })?,
                })
            })?;
            found.ok_or_else(|| CatalogError::NotFound("event").into())
        };
        Ok(self.read(step).await?)
    }

    async fn find_events(
        &self,
        tenant: TenantId,
        filter: &EventFilter,
        before: Option<EventId>,
        limit: u32,
    ) -> Result<EventPage, CatalogError> {
        let (filter, now) = (filter.clone(), (self.clock)());
        Ok(self
            .count(move |tx| found_events::page(tx, now, tenant, (&filter, before), limit))
            .await?)
    }

    async fn find_attempts(
        &self,
        tenant: TenantId,
        filter: &AttemptFilter,
        before: Option<AttemptId>,
        limit: u32,
    ) -> Result<AttemptPage, CatalogError> {
        let (filter, now) = (filter.clone(), (self.clock)());
        Ok(self
            .count(move |tx| found_attempts::page(tx, now, tenant, (&filter, before), limit))
            .await?)
    }
}

fn glance(tx: &Transaction<'_>, now: Timestamp, id: DestinationId) -> Result<Glance, Fault> {
    let key = id.to_string();
    let since = (now - GLANCE_RATE).as_micros();
    let starts = first(tx, STARTED_SINCE, (&key, since, GLANCE_STARTS), |row| {
        Ok(row.get(0)?)
    })?;
    Ok(Glance {
        destination: id,
        starts: starts.unwrap_or(0),
        answers: answers(tx, &key, (now - GLANCE_ANSWERS, GLANCE_SAMPLE))?,
    })
}

pub(super) fn answers(
    tx: &Transaction<'_>,
    destination: &str,
    (since, most): (Timestamp, u32),
) -> Result<Vec<Answered>, Fault> {
    all(tx, ANSWERS, (destination, since.as_micros(), most), |row| {
        let latency: i64 = row.get(2)?;
        Ok(Answered {
            started_at: time(row, 3)?,
            state: word(row, 0, ("attempts", "state"))?,
            status: row.get(1)?,
            latency: Duration::from_micros(latency.max(0).unsigned_abs()),
        })
    })
}
