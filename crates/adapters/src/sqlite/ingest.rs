//! Accepting events.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use domain::destination::DestinationState;
use domain::event::{Audience, MAX_DESTINATIONS, NewEvent};
use domain::filter::{Filters, Subscriber};
use domain::ids::{DestinationId, TenantId};
use domain::time::Timestamp;
use domain::trace::TraceContext;
use engine::ports::{Acceptance, MAX_DELIVERIES};
use rusqlite::{Row, Transaction};

use super::accepted::went_to;
use super::fault::Fault;
use super::keys;
use super::rows::{all, execute, first, word};
use crate::subscriber;

const KNOWN: &str = "
    -- accept_events: is it there already
    select 1 from events where id = ?1";

const DESTINATION: &str = "
    -- accept_events: one destination
    select state, max_age_ms from destinations
    where id = ?1 and tenant_id = ?2 and deleted_at is null";

const SUBSCRIBERS: &str = "
    -- accept_events: who subscribes
    select d.id, d.filter, d.max_age_ms from destinations d
    where d.tenant_id = ?1 and d.deleted_at is null and d.state <> 'disabled'
        and subscribes(d.event_types, ?2)
    order by d.id limit ?3";

const INSERT_EVENT: &str = "
    -- accept_events: the event
    insert into events
        (id, tenant_id, event_type, content_type, payload, created_at, trace, directed, urgent)
    values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";

/// Values, and no `select`: what comes of one SQLite puts aside in a table of its own, for
/// the triggers' sake.
const INSERT_DELIVERY: &str = "
    -- accept_events: its deliveries
    insert into deliveries
        (event_id, destination_id, tenant_id, created_at, payload_bytes, due_at, expires_at,
        urgent)
    values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

/// The statements of a lone event, for the test of what they cost.
#[cfg(test)]
pub(super) const MEASURED: [&str; 5] = [
    KNOWN,
    DESTINATION,
    SUBSCRIBERS,
    INSERT_EVENT,
    INSERT_DELIVERY,
];

/// Accepts a batch; see [`engine::ports::Store::accept_events`].
pub(super) fn accept_events(
    tx: &Transaction<'_>,
    now: Timestamp,
    events: &[NewEvent],
) -> Result<Vec<Acceptance>, Fault> {
    let mut audiences = Audiences {
        tx,
        resolved: HashMap::new(),
        filters: Filters::default(),
        max_ages: HashMap::new(),
        asked: 0,
    };
    let mut accept = |event: &NewEvent| -> Result<(Acceptance, usize), Fault> {
        if let Some(asked) = &event.idempotency
            && let Some(answer) = keys::known(tx, now, event.tenant, asked)?
        {
            return Ok((answer, audiences.asked));
        }
        let answer = if first(tx, KNOWN, [event.id.to_string()], |_| Ok(()))?.is_some() {
            Acceptance::Accepted(went_to(tx, event.id, event.tenant)?)
        } else {
            let answer = match audiences.of(event)? {
                Acceptance::Accepted(to)
                    if to.is_empty() && event.audience == Audience::SomeSubscriber =>
                {
                    Acceptance::NoSubscriber
                }
                answer => answer,
            };
            if let Acceptance::Accepted(to) = &answer {
                insert(tx, now, event, (to, &audiences.max_ages))?;
            }
            answer
        };
        if let (Some(asked), Acceptance::Accepted(_)) = (&event.idempotency, &answer) {
            keys::take(tx, now, event, asked)?;
        }
        Ok((answer, audiences.asked))
    };
    let mut answers = Vec::with_capacity(events.len());
    for event in events {
        let (answer, asked) = accept(event)?;
        answers.push(answer);
        if asked >= MAX_DELIVERIES {
            break;
        }
    }
    Ok(answers)
}

fn insert(
    tx: &Transaction<'_>,
    now: Timestamp,
    event: &NewEvent,
    (to, max_ages): (&[DestinationId], &MaxAges),
) -> Result<(), Fault> {
    let (id, tenant) = (event.id.to_string(), event.tenant.to_string());
    let row = (
        &id,
        &tenant,
        &event.event_type,
        &event.content_type,
        &event.payload[..],
        now.as_micros(),
        event.trace.as_ref().map(TraceContext::stored),
        event.audience.named().is_some(),
        event.timing.urgent,
    );
    execute(tx, INSERT_EVENT, row)?;
    for destination in to {
        let row = (
            &id,
            destination.to_string(),
            &tenant,
            now.as_micros(),
            i64::try_from(event.payload.len()).unwrap_or(i64::MAX),
            event.timing.waits_from(now).map(Timestamp::as_micros),
            event
                .timing
                .ends_at(max_ages.get(destination).copied(), now)
                .map(Timestamp::as_micros),
            event.timing.is_urgent(now),
        );
        execute(tx, INSERT_DELIVERY, row)?;
    }
    Ok(())
}

/// Of destinations that have one.
type MaxAges = HashMap<DestinationId, Duration>;

/// Whom events are for; each audience is looked up once a batch.
struct Audiences<'a> {
    tx: &'a Transaction<'a>,
    resolved: HashMap<(TenantId, AudienceKey), Resolved>,
    filters: Filters,
    /// Of those that were looked up.
    max_ages: MaxAges,
    /// How many destinations events were for, or would have been but for a filter.
    asked: usize,
}

/// Whom an audience comes to.
enum Resolved {
    Answer(Acceptance),
    /// Those whose filters take the event.
    Takers(Vec<Subscriber>),
}

/// An audience as a key.
#[derive(PartialEq, Eq, Hash)]
enum AudienceKey {
    Destination(DestinationId),
    Subscribers(String),
}

impl Audiences<'_> {
    /// What to answer, were the event new.
    fn of(&mut self, event: &NewEvent) -> Result<Acceptance, Fault> {
        let of_type = || AudienceKey::Subscribers(event.event_type.clone().unwrap_or_default());
        let audience = (event.audience.named()).map_or_else(of_type, AudienceKey::Destination);
        let tenant = event.tenant.to_string();
        let key = (event.tenant, audience);
        let resolved = match self.resolved.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let resolved = match &new.key().1 {
                    AudienceKey::Destination(id) => {
                        let found = destination(self.tx, &mut self.max_ages, (*id, &tenant))?;
                        Resolved::Answer(found)
                    }
                    AudienceKey::Subscribers(event_type) => {
                        let into = (&mut self.filters, &mut self.max_ages);
                        subscribers(self.tx, into, (&tenant, event_type))?
                    }
                };
                new.insert(resolved)
            }
        };
        let (asked, answer) = match resolved {
            Resolved::Answer(answer) => (answer.destinations().len(), answer.clone()),
            Resolved::Takers(found) => {
                let takers = self.filters.takers(event, found);
                (found.len(), Acceptance::Accepted(takers))
            }
        };
        self.asked += asked;
        Ok(answer)
    }
}

/// How many subscribe is bounded, whatever their filters say: each of those is asked.
fn subscribers(
    tx: &Transaction<'_>,
    (filters, max_ages): (&mut Filters, &mut MaxAges),
    (tenant, event_type): (&str, &str),
) -> Result<Resolved, Fault> {
    let read = |row: &Row<'_>| {
        let id = word(row, 0, ("destinations", "id"))?;
        max_ages.extend(max_age(row, 2)?.map(|age| (id, age)));
        Ok((id, row.get::<_, Option<String>>(1)?))
    };
    // One more than may be.
    let wanted = (tenant, event_type, MAX_DESTINATIONS as i64 + 1);
    let found: Vec<(DestinationId, Option<String>)> = all(tx, SUBSCRIBERS, wanted, read)?;
    Ok(match found.len() > MAX_DESTINATIONS {
        true => Resolved::Answer(Acceptance::TooManyDestinations),
        false => Resolved::Takers(
            (found.into_iter())
                .map(|(id, filter)| subscriber::read(filters, id, filter))
                .collect(),
        ),
    })
}

fn max_age(row: &Row<'_>, at: usize) -> Result<Option<Duration>, Fault> {
    let age: Option<i64> = row.get(at)?;
    Ok(age.map(|age| Duration::from_millis(age.unsigned_abs())))
}

fn destination(
    tx: &Transaction<'_>,
    max_ages: &mut MaxAges,
    (id, tenant): (DestinationId, &str),
) -> Result<Acceptance, Fault> {
    let state = first(tx, DESTINATION, (id.to_string(), tenant), |row| {
        max_ages.extend(max_age(row, 1)?.map(|age| (id, age)));
        word(row, 0, ("destinations", "state"))
    })?;
    Ok(match state {
        None => Acceptance::UnknownDestination,
        Some(DestinationState::Disabled) => Acceptance::DisabledDestination,
        Some(DestinationState::Active | DestinationState::Paused) => Acceptance::Accepted(vec![id]),
    })
}
