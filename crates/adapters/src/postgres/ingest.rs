//! Accepting events.
//!
//! First who gets them (reads), then one transaction that inserts the events
//! that are new and, for those, their attempts. Between the two a destination
//! may be disabled or deleted: its attempts then wait, or are cancelled by the
//! reaper. Destinations' rows are only locked by the foreign key, which does
//! not hide them from admission.

use std::collections::{HashMap, HashSet};

use domain::event::{Audience, NewEvent};
use domain::ids::DestinationId;
use domain::time::micros;
use engine::ports::{Acceptance, StoreError};
use sqlx::{Connection, PgConnection, PgPool};
use uuid::Uuid;

use super::failure::Failure;
use super::keys;

/// Accepts events; the answers are in their order.
pub(super) async fn accept_events(
    pool: &PgPool,
    events: &[NewEvent],
) -> Result<Vec<Acceptance>, Failure> {
    let mut connection = pool.acquire().await?;
    let mut batch = Batch::resolve(&mut connection, events).await?;
    if batch.has_work() {
        let mut transaction = connection.begin().await?;
        batch.write(&mut transaction).await?;
        transaction.commit().await?;
    }
    batch.settle(&mut connection).await?;
    Ok(batch.answers)
}

/// The same as part of a transaction that is open: for a caller that writes
/// more with it. The answers are true if that commits.
pub(super) async fn accept_within(
    transaction: &mut PgConnection,
    events: &[NewEvent],
) -> Result<Vec<Acceptance>, Failure> {
    let mut batch = Batch::resolve(transaction, events).await?;
    if batch.has_work() {
        batch.write(transaction).await?;
    }
    batch.settle(transaction).await?;
    Ok(batch.answers)
}

/// A batch on its way in.
struct Batch<'a> {
    events: &'a [NewEvent],
    answers: Vec<Acceptance>,
    /// The places of those that are to be written: of several with one id or
    /// one key the first. In order.
    wanted: Vec<usize>,
    /// The ids that were written.
    new: HashSet<Uuid>,
}

impl<'a> Batch<'a> {
    /// What each is to be answered, if nobody else comes first.
    async fn resolve(
        connection: &mut PgConnection,
        events: &'a [NewEvent],
    ) -> Result<Self, Failure> {
        let known = keys::known(connection, events.iter()).await?;
        let mut known = keys::answer(connection, events, &known).await?;
        let mut answers = resolve_audiences(connection, events).await?;
        let mut wanted = Vec::new();
        let (mut ids, mut taken) = (HashSet::new(), HashSet::new());
        for (place, event) in events.iter().enumerate() {
            if let Some(answer) = known.remove(&place) {
                answers[place] = answer;
            } else if matches!(answers[place], Acceptance::Accepted(_)) {
                let key = event.idempotency.as_ref();
                let first_of_key = key.is_none_or(|asked| taken.insert((event.tenant, &asked.key)));
                if first_of_key && ids.insert(event.id) {
                    wanted.push(place);
                }
            }
        }
        Ok(Self {
            events,
            answers,
            wanted,
            new: HashSet::new(),
        })
    }

    fn has_work(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// Writes what is new. In one transaction.
    async fn write(&mut self, connection: &mut PgConnection) -> Result<(), Failure> {
        let wanted: Vec<&NewEvent> = self.wanted.iter().map(|at| &self.events[*at]).collect();
        let inserted = match wanted.iter().any(|event| event.idempotency.is_some()) {
            true => insert_keyed_events(connection, &wanted).await?,
            false => insert_events(connection, &wanted).await?,
        };
        self.new = inserted.iter().map(|(id, _)| *id).collect();
        if let Some((_, created_at)) = inserted.first() {
            let fresh = (self.wanted.iter())
                .map(|at| (&self.events[*at], self.answers[*at].destinations()))
                .filter(|(event, _)| self.new.contains(&event.id.0));
            insert_attempts(connection, fresh, *created_at).await?;
        }
        Ok(())
    }

    /// Answers what was not written after all: ids and keys that were there
    /// already, an id also where it went to what is gone by now. To another
    /// tenant an id says nothing. Reads what is committed.
    async fn settle(&mut self, connection: &mut PgConnection) -> Result<(), Failure> {
        let mut open: Vec<usize> = (0..self.events.len())
            .filter(|at| !self.is_by_key(*at) && !self.was_written(*at))
            .collect();
        if open.is_empty() {
            return Ok(());
        }
        let of_open = open.iter().map(|at| &self.events[*at]);
        let known = keys::known(connection, of_open).await?;
        let by_key = keys::answer(connection, self.events, &known).await?;
        open.retain(|at| match by_key.get(at) {
            // One that is refused took no key, and is answered by none that a
            // later one of the batch took.
            Some(answer) if matches!(self.answers[*at], Acceptance::Accepted(_)) => {
                self.answers[*at] = answer.clone();
                false
            }
            _ => true,
        });
        let old = open.iter().map(|at| self.events[*at].id.0).collect();
        let by_id = went_to(connection, old).await?;
        for at in open {
            let event = &self.events[at];
            let accepted = matches!(self.answers[at], Acceptance::Accepted(_));
            match by_id.get(&event.id.0) {
                Some((tenant, ids)) => {
                    let told = ids.iter().filter(|_| *tenant == event.tenant.0);
                    self.answers[at] =
                        Acceptance::Accepted(told.copied().map(DestinationId).collect());
                }
                None if accepted && event.idempotency.is_some() => {
                    let problem = "an idempotency key expired while it was looked at".to_owned();
                    return Err(Failure::Corrupt(StoreError::Unavailable(problem)));
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Its key was known: that is its answer.
    fn is_by_key(&self, at: usize) -> bool {
        matches!(
            self.answers[at],
            Acceptance::Repeated { .. } | Acceptance::KeyReused
        )
    }

    fn was_written(&self, at: usize) -> bool {
        self.wanted.binary_search(&at).is_ok() && self.new.contains(&self.events[at].id.0)
    }
}

/// Inserts the events that are not there yet: their ids and the time.
async fn insert_events(
    connection: &mut PgConnection,
    events: &[&NewEvent],
) -> Result<Vec<(Uuid, i64)>, Failure> {
    let columns = Columns::of(events);
    Ok(sqlx::query_as(
        "-- accept_events: insert_events
        with clock as materialized (select clock_timestamp() as now)
        insert into events (id, tenant_id, event_type, content_type, payload, created_at, day)
        select n.id, n.tenant_id, n.event_type, n.content_type, n.payload, clock.now,
            event_day(n.id)
        from unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::bytea[])
            as n (id, tenant_id, event_type, content_type, payload)
        cross join clock
        on conflict (id, day) do nothing
        returning id, micros(created_at)",
    )
    .bind(columns.ids)
    .bind(columns.tenants)
    .bind(columns.types)
    .bind(columns.content_types)
    .bind(columns.payloads)
    .fetch_all(connection)
    .await?)
}

/// The same where some have keys: those whose key is taken, by a request that
/// came first, are left out. Keys are taken in order, so that batches that
/// share several wait for each other and not in a circle.
async fn insert_keyed_events(
    connection: &mut PgConnection,
    events: &[&NewEvent],
) -> Result<Vec<(Uuid, i64)>, Failure> {
    let columns = Columns::of(events);
    let keys = Keys::of(events);
    Ok(sqlx::query_as(
        "-- accept_events: insert_keyed_events
        with clock as materialized (select clock_timestamp() as now),
        taken as (
            insert into idempotency_keys as k (tenant_id, key, digest, event_id, expires_at)
            select n.tenant_id, n.key, n.digest, n.event_id,
                clock.now + n.kept_for * interval '1 microsecond'
            from unnest($6::uuid[], $7::text[], $8::bytea[], $9::uuid[], $10::bigint[])
                as n (tenant_id, key, digest, event_id, kept_for)
            cross join clock
            order by n.tenant_id, n.key
            on conflict (tenant_id, key) do update
            set digest = excluded.digest, event_id = excluded.event_id,
                expires_at = excluded.expires_at
            where k.expires_at <= (select now from clock)
            returning k.event_id
        )
        insert into events (id, tenant_id, event_type, content_type, payload, created_at, day)
        select n.id, n.tenant_id, n.event_type, n.content_type, n.payload, clock.now,
            event_day(n.id)
        from unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::bytea[], $11::boolean[])
            as n (id, tenant_id, event_type, content_type, payload, keyed)
        cross join clock
        where not n.keyed or n.id in (select event_id from taken)
        on conflict (id, day) do nothing
        returning id, micros(created_at)",
    )
    .bind(columns.ids)
    .bind(columns.tenants)
    .bind(columns.types)
    .bind(columns.content_types)
    .bind(columns.payloads)
    .bind(keys.tenants)
    .bind(keys.keys)
    .bind(keys.digests)
    .bind(keys.events)
    .bind(keys.kept_for)
    .bind(keys.of_all)
    .fetch_all(connection)
    .await?)
}

/// Events, column by column.
struct Columns<'a> {
    ids: Vec<Uuid>,
    tenants: Vec<Uuid>,
    types: Vec<Option<&'a str>>,
    content_types: Vec<&'a str>,
    payloads: Vec<&'a [u8]>,
}

impl<'a> Columns<'a> {
    fn of(events: &[&'a NewEvent]) -> Self {
        let events = || events.iter();
        Self {
            ids: events().map(|event| event.id.0).collect(),
            tenants: events().map(|event| event.tenant.0).collect(),
            types: events().map(|event| event.event_type.as_deref()).collect(),
            content_types: events().map(|event| event.content_type.as_str()).collect(),
            payloads: events().map(|event| event.payload.as_ref()).collect(),
        }
    }
}

/// The keys of those events that have one, column by column.
#[derive(Default)]
struct Keys<'a> {
    tenants: Vec<Uuid>,
    keys: Vec<&'a str>,
    digests: Vec<&'a [u8]>,
    events: Vec<Uuid>,
    kept_for: Vec<i64>,
    /// Of each event, with a key or without: whether it has one.
    of_all: Vec<bool>,
}

impl<'a> Keys<'a> {
    fn of(events: &[&'a NewEvent]) -> Self {
        let mut keys = Self::default();
        for event in events {
            keys.of_all.push(event.idempotency.is_some());
            if let Some(asked) = &event.idempotency {
                keys.tenants.push(event.tenant.0);
                keys.keys.push(asked.key.as_str());
                keys.digests.push(&asked.digest);
                keys.events.push(event.id.0);
                keys.kept_for.push(micros(asked.kept_for));
            }
        }
        keys
    }
}

/// Inserts one waiting attempt for each event and destination, in the order of
/// the events: ids are in creation order.
async fn insert_attempts<'a>(
    connection: &mut PgConnection,
    fresh: impl Iterator<Item = (&'a NewEvent, &'a [DestinationId])>,
    created_at: i64,
) -> Result<(), Failure> {
    let (mut ids, mut destinations, mut tenants) = (vec![], vec![], vec![]);
    let mut bytes: Vec<i32> = vec![];
    for (event, audience) in fresh {
        for destination in audience {
            ids.push(event.id.0);
            bytes.push(i32::try_from(event.payload.len()).unwrap_or(i32::MAX));
            destinations.push(destination.0);
            tenants.push(event.tenant.0);
        }
    }
    sqlx::query(
        "-- accept_events: insert_attempts
        insert into attempts (
            event_id, destination_id, tenant_id, created_at, expires_at, payload_bytes
        )
        select n.event_id, n.destination_id, n.tenant_id, from_micros($4),
            from_micros($4) + d.max_age_ms * interval '1 millisecond', n.payload_bytes
        from unnest($1::uuid[], $2::uuid[], $3::uuid[], $5::integer[])
            with ordinality as n (event_id, destination_id, tenant_id, payload_bytes, position)
        join destinations d on d.id = n.destination_id
        order by n.position",
    )
    .bind(ids)
    .bind(destinations)
    .bind(tenants)
    .bind(created_at)
    .bind(bytes)
    .execute(connection)
    .await?;
    Ok(())
}

/// Who gets each event, or why nobody does.
async fn resolve_audiences(
    connection: &mut PgConnection,
    events: &[NewEvent],
) -> Result<Vec<Acceptance>, Failure> {
    let (mut named, mut types) = (HashSet::new(), HashSet::new());
    for event in events {
        match event.audience {
            Audience::Destination(id) => {
                named.insert((event.tenant.0, id.0));
            }
            Audience::Subscribers => {
                types.insert((event.tenant.0, event.event_type.as_deref().unwrap_or("")));
            }
        }
    }
    let states = states_of(connection, &named).await?;
    let subscribers = subscribers_of(connection, &types).await?;
    let answer = |event: &NewEvent| match event.audience {
        Audience::Destination(id) => match states.get(&(event.tenant.0, id.0)) {
            None => Acceptance::UnknownDestination,
            Some(state) if state == "disabled" => Acceptance::DisabledDestination,
            Some(_) => Acceptance::Accepted(vec![id]),
        },
        Audience::Subscribers => {
            let event_type = event.event_type.clone().unwrap_or_default();
            let found = subscribers.get(&(event.tenant.0, event_type));
            Acceptance::Accepted(found.cloned().unwrap_or_default())
        }
    };
    Ok(events.iter().map(answer).collect())
}

/// The states of those of these destinations that are there.
async fn states_of(
    connection: &mut PgConnection,
    named: &HashSet<(Uuid, Uuid)>,
) -> Result<HashMap<(Uuid, Uuid), String>, Failure> {
    if named.is_empty() {
        return Ok(HashMap::new());
    }
    let (tenants, ids): (Vec<Uuid>, Vec<Uuid>) = named.iter().copied().unzip();
    let rows: Vec<(Uuid, Uuid, String)> = sqlx::query_as(
        "-- accept_events: states_of
        select d.tenant_id, d.id, d.state
        from unnest($1::uuid[], $2::uuid[]) as n (tenant_id, id)
        join destinations d on d.id = n.id and d.tenant_id = n.tenant_id
        where d.deleted_at is null",
    )
    .bind(tenants)
    .bind(ids)
    .fetch_all(&mut *connection)
    .await?;
    Ok((rows.into_iter())
        .map(|(tenant, id, state)| ((tenant, id), state))
        .collect())
}

/// The destinations that take events of these types.
async fn subscribers_of(
    connection: &mut PgConnection,
    types: &HashSet<(Uuid, &str)>,
) -> Result<HashMap<(Uuid, String), Vec<DestinationId>>, Failure> {
    if types.is_empty() {
        return Ok(HashMap::new());
    }
    let (tenants, names): (Vec<Uuid>, Vec<&str>) = types.iter().copied().unzip();
    let rows: Vec<(Uuid, String, Uuid)> = sqlx::query_as(
        "-- accept_events: subscribers_of
        select n.tenant_id, n.event_type, d.id
        from unnest($1::uuid[], $2::text[]) as n (tenant_id, event_type)
        join destinations d on d.tenant_id = n.tenant_id
        where d.deleted_at is null and d.state <> 'disabled'
            and (n.event_type = any (d.event_types) or '*' = any (d.event_types))
        order by d.id",
    )
    .bind(tenants)
    .bind(names)
    .fetch_all(&mut *connection)
    .await?;
    let mut found: HashMap<_, Vec<DestinationId>> = HashMap::new();
    for (tenant, event_type, id) in rows {
        let of_type = found.entry((tenant, event_type)).or_default();
        of_type.push(DestinationId(id));
    }
    Ok(found)
}

/// Where events that are there already went, and whose they are; only those
/// that are there.
pub(super) async fn went_to(
    connection: &mut PgConnection,
    events: Vec<Uuid>,
) -> Result<HashMap<Uuid, (Uuid, Vec<Uuid>)>, Failure> {
    if events.is_empty() {
        return Ok(HashMap::new());
    }
    let rows: Vec<(Uuid, Uuid, Vec<Uuid>)> = sqlx::query_as(
        "-- accept_events: went_to
        select e.id, e.tenant_id, array(
            select a.destination_id from attempts a
            where a.event_id = e.id group by a.destination_id order by min(a.id)
        )
        from unnest($1::uuid[]) as n (id)
        cross join lateral (
            select e.id, e.tenant_id from events e
            where e.id = n.id and e.day = event_day(n.id)
            limit 1
        ) e",
    )
    .bind(events)
    .fetch_all(connection)
    .await?;
    Ok((rows.into_iter())
        .map(|(id, tenant, destinations)| (id, (tenant, destinations)))
        .collect())
}
