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
use engine::ports::Acceptance;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::failure::Failure;

/// Accepts events; the answers are in their order.
pub(super) async fn accept_events(
    pool: &PgPool,
    events: &[NewEvent],
) -> Result<Vec<Acceptance>, Failure> {
    let mut answers = resolve_audiences(pool, events).await?;
    let mut once = HashSet::new();
    let accepted: Vec<(&NewEvent, &[DestinationId])> = (events.iter().zip(&answers))
        .filter_map(|(event, answer)| match answer {
            Acceptance::Accepted(destinations) => Some((event, destinations.as_slice())),
            Acceptance::UnknownDestination | Acceptance::DisabledDestination => None,
        })
        .filter(|(event, _)| once.insert(event.id))
        .collect();
    if accepted.is_empty() {
        return Ok(answers);
    }
    let new = write(pool, &accepted).await?;
    if new.len() < events.len() {
        answer_known_ids(pool, events, &new, &mut answers).await?;
    }
    Ok(answers)
}

/// Writes what is new of these, in one commit; returns the ids that were new.
async fn write(
    pool: &PgPool,
    accepted: &[(&NewEvent, &[DestinationId])],
) -> Result<HashSet<Uuid>, Failure> {
    let mut transaction = pool.begin().await?;
    let inserted = insert_events(&mut transaction, accepted).await?;
    let new: HashSet<Uuid> = inserted.iter().map(|(id, _)| *id).collect();
    if let Some((_, created_at)) = inserted.first() {
        let fresh = accepted
            .iter()
            .filter(|(event, _)| new.contains(&event.id.0));
        insert_attempts(&mut transaction, fresh, *created_at).await?;
    }
    transaction.commit().await?;
    Ok(new)
}

/// Inserts the events that are not there yet: their ids and the time.
async fn insert_events(
    connection: &mut PgConnection,
    accepted: &[(&NewEvent, &[DestinationId])],
) -> Result<Vec<(Uuid, i64)>, Failure> {
    let events = || accepted.iter().map(|(event, _)| event);
    Ok(sqlx::query_as(
        "-- accept_events: insert_events
        with clock as materialized (select clock_timestamp() as now)
        insert into events (id, tenant_id, event_type, content_type, payload, created_at)
        select n.id, n.tenant_id, n.event_type, n.content_type, n.payload, clock.now
        from unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::bytea[])
            as n (id, tenant_id, event_type, content_type, payload)
        cross join clock
        on conflict (id) do nothing
        returning id, micros(created_at)",
    )
    .bind(events().map(|event| event.id.0).collect::<Vec<_>>())
    .bind(events().map(|event| event.tenant.0).collect::<Vec<_>>())
    .bind(
        events()
            .map(|event| event.event_type.as_deref())
            .collect::<Vec<_>>(),
    )
    .bind(
        events()
            .map(|event| event.content_type.as_str())
            .collect::<Vec<_>>(),
    )
    .bind(
        events()
            .map(|event| event.payload.as_ref())
            .collect::<Vec<_>>(),
    )
    .fetch_all(connection)
    .await?)
}

/// Inserts one waiting attempt for each event and destination, in the order of
/// the events: ids are in creation order.
async fn insert_attempts<'a>(
    connection: &mut PgConnection,
    fresh: impl Iterator<Item = &'a (&'a NewEvent, &'a [DestinationId])>,
    created_at: i64,
) -> Result<(), Failure> {
    let (mut ids, mut destinations, mut tenants) = (vec![], vec![], vec![]);
    for (event, audience) in fresh {
        for destination in *audience {
            ids.push(event.id.0);
            destinations.push(destination.0);
            tenants.push(event.tenant.0);
        }
    }
    sqlx::query(
        "-- accept_events: insert_attempts
        insert into attempts (event_id, destination_id, tenant_id, created_at, expires_at)
        select n.event_id, n.destination_id, n.tenant_id, from_micros($4),
            from_micros($4) + d.max_age_ms * interval '1 millisecond'
        from unnest($1::uuid[], $2::uuid[], $3::uuid[])
            with ordinality as n (event_id, destination_id, tenant_id, position)
        join destinations d on d.id = n.destination_id
        order by n.position",
    )
    .bind(ids)
    .bind(destinations)
    .bind(tenants)
    .bind(created_at)
    .execute(connection)
    .await?;
    Ok(())
}

/// Who gets each event, or why nobody does.
async fn resolve_audiences(pool: &PgPool, events: &[NewEvent]) -> Result<Vec<Acceptance>, Failure> {
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
    let states = states_of(pool, &named).await?;
    let subscribers = subscribers_of(pool, &types).await?;
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
    pool: &PgPool,
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
    .fetch_all(pool)
    .await?;
    Ok((rows.into_iter())
        .map(|(tenant, id, state)| ((tenant, id), state))
        .collect())
}

/// The destinations that take events of these types.
async fn subscribers_of(
    pool: &PgPool,
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
    .fetch_all(pool)
    .await?;
    let mut found: HashMap<_, Vec<DestinationId>> = HashMap::new();
    for (tenant, event_type, id) in rows {
        let of_type = found.entry((tenant, event_type)).or_default();
        of_type.push(DestinationId(id));
    }
    Ok(found)
}

/// Answers ids that were there already as what they were accepted for.
async fn answer_known_ids(
    pool: &PgPool,
    events: &[NewEvent],
    new: &HashSet<Uuid>,
    answers: &mut [Acceptance],
) -> Result<(), Failure> {
    let old: HashSet<Uuid> = (events.iter().map(|event| event.id.0))
        .filter(|id| !new.contains(id))
        .collect();
    let rows: Vec<(Uuid, Vec<Uuid>)> = sqlx::query_as(
        "-- accept_events: answer_known_ids
        select e.id, array(
            select distinct a.destination_id from attempts a
            where a.event_id = e.id order by a.destination_id
        )
        from events e where e.id = any ($1)",
    )
    .bind(old.into_iter().collect::<Vec<_>>())
    .fetch_all(pool)
    .await?;
    let known: HashMap<Uuid, Vec<Uuid>> = rows.into_iter().collect();
    for (event, answer) in events.iter().zip(answers) {
        if let Some(ids) = known.get(&event.id.0) {
            *answer = Acceptance::Accepted(ids.iter().copied().map(DestinationId).collect());
        }
    }
    Ok(())
}
