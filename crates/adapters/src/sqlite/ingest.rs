//! Accepting events.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;
use std::time::Duration;

use domain::destination::DestinationState;
use domain::event::{Audience, MAX_DESTINATIONS, NewEvent, subscriptions_to};
use domain::filter::{Filters, Subscriber};
use domain::ids::{DestinationId, EventId, TenantId};
use domain::time::Timestamp;
use domain::trace::TraceContext;
use engine::ports::{Acceptance, MIN_DELIVERIES, MIN_PAYLOAD_BYTES};
use rusqlite::{Row, ToSql, Transaction};

use super::accepted::went_to;
use super::fault::Fault;
use super::keys;
use super::rows::{Held, InParts, age, execute_in_parts, first, in_parts, word};
use crate::subscriber;

/// About as many events, or deliveries where an event has several, one step writes:
/// some 2 ms, for which everybody else waits for the one writer. The rest is asked for
/// again, and whoever came meanwhile goes between.
pub(super) const STEP_ROWS: usize = 128;

/// The same of payloads, which are written to the log and synced.
const STEP_BYTES: usize = 256 * 1024;

/// The same of subscriptions that are looked for.
const STEP_LOOKS: usize = 512;

const _: () = assert!(STEP_ROWS >= MIN_DELIVERIES && STEP_BYTES >= MIN_PAYLOAD_BYTES);

const KNOWN: &str = "
    -- accept_events: is it there already
    select 1 from events where id = ?1";

const DESTINATION: &str = "
    -- accept_events: one destination
    select state, coalesce(max_age_ms, tier_age_ms) from destinations
    where id = ?1 and tenant_id = ?2 and deleted_at is null";

const SUBSCRIBERS: &str = "
    -- accept_events: who subscribes to this
    select destination_id from subscriptions
    where tenant_id = ?1 and event_type = ?2
    order by destination_id limit ?3";

const SUBSCRIBER: &str = "
    -- accept_events: one that subscribes
    select filter, coalesce(max_age_ms, tier_age_ms) from destinations where id = ?1";

const INSERT_EVENT: &str = "
    -- accept_events: the event, if it is not there
    insert into events
        (id, tenant_id, event_type, content_type, payload, created_at, trace, directed, urgent)
    values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
    on conflict (id) do nothing";

/// Deliveries of a batch, whichever events they are of.
static INSERT_DELIVERIES: LazyLock<InParts> = LazyLock::new(|| in_parts(insert_deliveries));

fn insert_deliveries(rows: usize) -> String {
    let rows = vec!["(?, ?, ?, ?, ?, ?, ?, ?)"; rows].join(", ");
    format!(
        "
    -- accept_events: its deliveries
    insert into deliveries
        (event_id, destination_id, tenant_id, created_at, payload_bytes, due_at, expires_at,
        urgent)
    values {rows}"
    )
}

/// The statements of a lone event, for the test of what they cost.
#[cfg(test)]
pub(super) const MEASURED: [&str; 5] = [KNOWN, DESTINATION, SUBSCRIBERS, SUBSCRIBER, INSERT_EVENT];

/// The one of a lone delivery, likewise.
#[cfg(test)]
pub(super) fn insert_one() -> String {
    insert_deliveries(1)
}

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
        looks: 0,
    };
    let mut writes = Writes::of(tx, now)?;
    let mut accept = |event: &NewEvent| -> Result<(Acceptance, usize, usize), Fault> {
        let tenant = event.tenant;
        if let Some(asked) = &event.idempotency {
            let went_to = |id| writes.went_to(id, tenant);
            if let Some(answer) = keys::known((tx, now), tenant, asked, went_to)? {
                return Ok((answer, audiences.asked, audiences.looks));
            }
        }
        let before = audiences.asked;
        let answer = match audiences.of(event)? {
            Acceptance::Accepted(to)
                if to.is_empty() && event.audience == Audience::SomeSubscriber =>
            {
                Acceptance::NoSubscriber
            }
            answer => answer,
        };
        let is_new = match &answer {
            Acceptance::Accepted(to) => writes.add(event, (to, &audiences.max_ages))?,
            _ => first(tx, KNOWN, [event.id.to_string()], |_| Ok(()))?.is_none(),
        };
        let answer = match is_new {
            true => answer,
            false => {
                audiences.asked = before;
                Acceptance::Accepted(writes.went_to(event.id, tenant)?)
            }
        };
        if let (Some(asked), Acceptance::Accepted(_)) = (&event.idempotency, &answer) {
            keys::take(tx, now, event, asked)?;
        }
        Ok((answer, audiences.asked, audiences.looks))
    };
    let mut answers = Vec::with_capacity(events.len().min(STEP_ROWS));
    let (mut rows, mut bytes, mut before) = (0, 0, 0);
    for event in events {
        let (answer, asked, looks) = accept(event)?;
        // One that is for nobody costs its look-ups, and one that is repeated what it went to.
        rows += (asked.saturating_sub(before))
            .max(answer.destinations().len())
            .max(1);
        answers.push(answer);
        bytes += event.payload.len();
        before = asked;
        if rows >= STEP_ROWS || bytes >= STEP_BYTES || looks >= STEP_LOOKS {
            break;
        }
    }
    writes.write_deliveries()?;
    Ok(answers)
}

/// What a batch writes: its events one by one, and all their deliveries at the end.
struct Writes<'tx> {
    tx: &'tx Transaction<'tx>,
    now: Timestamp,
    event: Held<'tx>,
    deliveries: Vec<Delivery>,
}

impl<'tx> Writes<'tx> {
    fn of(tx: &'tx Transaction<'tx>, now: Timestamp) -> Result<Self, Fault> {
        Ok(Self {
            tx,
            now,
            event: Held::of(tx, INSERT_EVENT)?,
            deliveries: Vec::new(),
        })
    }

    /// Writes an event that goes to these, unless it is there. Whether it was not.
    fn add(
        &mut self,
        event: &NewEvent,
        (to, max_ages): (&[DestinationId], &MaxAges),
    ) -> Result<bool, Fault> {
        let (id, tenant) = (event.id.to_string(), event.tenant.to_string());
        let row = (
            &id,
            &tenant,
            &event.event_type,
            &event.content_type,
            &event.payload[..],
            self.now.as_micros(),
            event.trace.as_ref().map(TraceContext::stored),
            event.audience.named().is_some(),
            event.timing.urgent,
        );
        if self.event.execute(row)? == 0 {
            return Ok(false);
        }
        let (timing, now) = (&event.timing, self.now);
        self.deliveries.extend(to.iter().map(|of| Delivery {
            event: id.clone(),
            destination: of.to_string(),
            tenant: tenant.clone(),
            created_at: now.as_micros(),
            payload_bytes: i64::try_from(event.payload.len()).unwrap_or(i64::MAX),
            due_at: timing.waits_from(now).map(Timestamp::as_micros),
            expires_at: (timing.ends_at(max_ages.get(of).copied(), now)).map(Timestamp::as_micros),
            urgent: timing.is_urgent(now),
        }));
        Ok(true)
    }

    /// Where an event that is there went, be it one of this batch.
    fn went_to(&mut self, event: EventId, tenant: TenantId) -> Result<Vec<DestinationId>, Fault> {
        self.write_deliveries()?;
        went_to(self.tx, event, tenant)
    }

    fn write_deliveries(&mut self) -> Result<(), Fault> {
        let (statements, rows) = (&*INSERT_DELIVERIES, &self.deliveries);
        execute_in_parts(self.tx, statements, rows, Delivery::values)?;
        self.deliveries.clear();
        Ok(())
    }
}

/// A row of `deliveries`. Ids as the rows hold them.
struct Delivery {
    event: String,
    destination: String,
    tenant: String,
    created_at: i64,
    payload_bytes: i64,
    due_at: Option<i64>,
    expires_at: Option<i64>,
    urgent: bool,
}

impl Delivery {
    fn values(&self) -> [&dyn ToSql; 8] {
        [
            &self.event,
            &self.destination,
            &self.tenant,
            &self.created_at,
            &self.payload_bytes,
            &self.due_at,
            &self.expires_at,
            &self.urgent,
        ]
    }
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
    /// How many subscriptions were looked for.
    looks: usize,
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
                        let subscriptions = subscriptions_to(event_type);
                        self.looks += subscriptions.len();
                        subscribers(self.tx, into, (&tenant, &subscriptions))?
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
    (tenant, subscriptions): (&str, &[String]),
) -> Result<Resolved, Fault> {
    // One that subscribes to its type in several ways has it once.
    let mut found = BTreeSet::<DestinationId>::new();
    let mut subscribers = Held::of(tx, SUBSCRIBERS)?;
    for subscription in subscriptions {
        // One more than may be.
        let wanted = (tenant, subscription, MAX_DESTINATIONS as i64 + 1);
        let read = |row: &Row<'_>| word(row, 0, ("subscriptions", "destination_id"));
        let ids: Vec<DestinationId> = subscribers.all(wanted, read)?;
        found.extend(ids);
        if found.len() > MAX_DESTINATIONS {
            return Ok(Resolved::Answer(Acceptance::TooManyDestinations));
        }
    }
    let mut subscriber = Held::of(tx, SUBSCRIBER)?;
    let mut takers = Vec::with_capacity(found.len());
    for id in found {
        let read = |row: &Row<'_>| Ok((row.get::<_, Option<String>>(0)?, age(row, 1)?));
        let Some((filter, age)) = subscriber.first([id.to_string()], read)? else {
            continue;
        };
        max_ages.extend(age.map(|age| (id, age)));
        takers.push(subscriber::read(filters, id, filter));
    }
    Ok(Resolved::Takers(takers))
}

fn destination(
    tx: &Transaction<'_>,
    max_ages: &mut MaxAges,
    (id, tenant): (DestinationId, &str),
) -> Result<Acceptance, Fault> {
    let state = first(tx, DESTINATION, (id.to_string(), tenant), |row| {
        max_ages.extend(age(row, 1)?.map(|age| (id, age)));
        word(row, 0, ("destinations", "state"))
    })?;
    Ok(match state {
        None => Acceptance::UnknownDestination,
        Some(DestinationState::Disabled) => Acceptance::DisabledDestination,
        Some(DestinationState::Active | DestinationState::Paused) => Acceptance::Accepted(vec![id]),
    })
}

#[cfg(test)]
mod tests {
    use domain::event::Timing;
    use domain::ids::EventId;
    use engine::ports::DEFAULT_TENANT;
    use rusqlite::{Connection, StatementStatus};
    use uuid::Uuid;

    use super::super::lines::Lines;
    use super::super::rows::{PARTS, all};
    use super::super::{migrate, prepare};
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_795_000_000_000);

    /// A store with so many who want every event: 1, 2 and so on.
    fn with_subscribers(count: usize) -> Connection {
        let mut connection = Connection::open_in_memory().unwrap();
        prepare(&connection).unwrap();
        migrate::migrate(&mut connection).unwrap();
        Lines::follow(&connection).unwrap();
        let insert = "insert into destinations (id, tenant_id, url, event_types)
            values (?1, ?2, 'https://x.example/', '[\"*\"]')";
        for id in (1_u128..).take(count) {
            let id = Uuid::from_u128(id).to_string();
            let row = (id, DEFAULT_TENANT.0.to_string());
            connection.execute(insert, row).unwrap();
        }
        connection
    }

    fn event() -> NewEvent {
        numbered(0xe)
    }

    fn numbered(id: u128) -> NewEvent {
        NewEvent {
            id: EventId(Uuid::from_u128(id)),
            tenant: DEFAULT_TENANT,
            audience: Audience::Subscribers,
            event_type: Some("a.b".to_owned()),
            content_type: "application/json".to_owned(),
            payload: b"{}".as_slice().into(),
            idempotency: None,
            trace: None,
            timing: Timing::default(),
        }
    }

    /// How often each statement ran, for so many events and as many subscribers.
    fn ran(events: usize, subscribers: usize) -> [i32; 4] {
        let mut connection = with_subscribers(subscribers);
        let tx = connection.transaction().unwrap();
        let events: Vec<NewEvent> = (1..).take(events).map(numbered).collect();
        let answers = accept_events(&tx, NOW, &events).unwrap();
        let in_order = "select destination_id from deliveries order by id";
        let written: Vec<DestinationId> = all(&tx, in_order, [], |row| {
            word(row, 0, ("deliveries", "destination_id"))
        })
        .unwrap();
        assert_eq!(written.len(), events.len() * subscribers);
        let answered: Vec<&[DestinationId]> =
            answers.iter().map(Acceptance::destinations).collect();
        assert_eq!(answered.concat(), written);
        let mut ran = [0; 4];
        for ((ran, sql), rows) in ran.iter_mut().zip(&INSERT_DELIVERIES[..]).zip(PARTS) {
            let statement = tx.prepare_cached(sql).unwrap();
            // Its trigger runs once for each row, and that counts, too.
            *ran = statement.get_status(StatementStatus::Run) / (1 + rows as i32);
        }
        ran
    }

    /// How many of these one step answers.
    fn answered(events: &[NewEvent], subscribers: usize) -> usize {
        let mut connection = with_subscribers(subscribers);
        let tx = connection.transaction().unwrap();
        accept_events(&tx, NOW, events).unwrap().len()
    }

    /// However many destinations a tenant has, those that subscribe are found at once.
    #[test]
    fn who_does_not_subscribe_costs_nothing() {
        let looked = |others: u32| {
            let mut connection = with_subscribers(0);
            let insert = format!(
                "with recursive n (n) as (values (1) union all select n + 1 from n where n < {others})
                insert into destinations (id, tenant_id, url, event_types)
                select n, '{}', 'https://x.example/', '[\"a\", \"a.b.*\", \"b\"]' from n",
                DEFAULT_TENANT.0
            );
            connection.execute_batch(&insert).unwrap();
            let tx = connection.transaction().unwrap();
            let answers = accept_events(&tx, NOW, &[event()]).unwrap();
            assert_eq!(answers, [Acceptance::Accepted(Vec::new())]);
            let statement = tx.prepare_cached(SUBSCRIBERS).unwrap();
            statement.get_status(StatementStatus::VmStep)
        };
        assert_eq!(looked(10), looked(3_000));
    }

    /// Everybody else waits for it.
    #[test]
    fn a_step_ends_by_what_it_looks_for() {
        let long = |id: u128| NewEvent {
            event_type: Some(format!("{id}{}", ".a".repeat(60))),
            ..numbered(id)
        };
        let events: Vec<NewEvent> = (1..=300).map(long).collect();
        let looks = subscriptions_to(events[0].event_type.as_ref().unwrap()).len();
        assert_eq!(answered(&events, 1), STEP_LOOKS.div_ceil(looks));
    }

    /// Everybody else waits for it.
    #[test]
    fn a_step_ends_by_what_it_writes() {
        let events: Vec<NewEvent> = (1..=300).map(numbered).collect();
        assert_eq!(answered(&events, 0), STEP_ROWS);
        assert_eq!(answered(&events, 1), STEP_ROWS);
        assert_eq!(answered(&events, 50), 3);
        assert_eq!(answered(&events, STEP_ROWS + 1), 1);
        let large = |mut event: NewEvent| {
            event.payload = vec![b'1'; STEP_BYTES / 4].into();
            event
        };
        let large: Vec<NewEvent> = (1..=10).map(numbered).map(large).collect();
        assert_eq!(answered(&large, 1), 4);
        let again: Vec<NewEvent> = (0..300).map(|_| numbered(1)).collect();
        assert_eq!(answered(&again, 1), STEP_ROWS);
    }

    #[test]
    fn the_deliveries_of_a_batch_are_few_statements() {
        assert_eq!(ran(1, 1), [0, 0, 0, 1]);
        assert_eq!(ran(4, 1), [0, 0, 1, 0]);
        assert_eq!(ran(1, 101), [1, 2, 1, 1]);
        assert_eq!(ran(101, 1), [1, 2, 1, 1]);
    }

    /// Its deliveries are not written yet when it is asked for again.
    #[test]
    fn what_a_batch_has_twice_went_where_it_goes_the_first_time() {
        let mut connection = with_subscribers(2);
        let tx = connection.transaction().unwrap();
        let events = [numbered(1), numbered(2), numbered(1)];
        let answers = accept_events(&tx, NOW, &events).unwrap();
        assert_eq!(answers[0].destinations().len(), 2);
        assert_eq!(answers[2], answers[0]);
        let count = "select count(*) from deliveries";
        let rows = first(&tx, count, [], |row| Ok(row.get::<_, i64>(0)?)).unwrap();
        assert_eq!(rows, Some(4));
    }

    /// What the deliveries of an event say, each once.
    fn told(subscribers: usize) -> Vec<(String, i64, i64, i64, i64, bool)> {
        let mut connection = with_subscribers(subscribers);
        let tx = connection.transaction().unwrap();
        let timing = Timing {
            expires_at: Some(NOW + Duration::from_secs(120)),
            urgent: true,
            ..Timing::default()
        };
        let event = NewEvent { timing, ..event() };
        accept_events(&tx, NOW, &[event]).unwrap();
        let distinct = "select distinct event_id || ' of ' || tenant_id, created_at,
            payload_bytes, due_at, expires_at, urgent from deliveries";
        let told = all(&tx, distinct, [], |row| {
            Ok((
                row.get(0)?,
                row.get(1)?,
                row.get(2)?,
                row.get(3)?,
                row.get(4)?,
                row.get(5)?,
            ))
        });
        told.unwrap()
    }

    #[test]
    fn a_delivery_is_the_same_whichever_way_it_was_written() {
        let alone = told(1);
        assert_eq!(alone.len(), 1);
        assert_eq!(told(21), alone);
    }

    /// The last of its deliveries is refused, as a trigger of somebody's own may.
    #[test]
    fn of_an_event_for_many_all_is_written_or_nothing() {
        let mut connection = with_subscribers(20);
        let last = Uuid::from_u128(20);
        let refuses = format!(
            "create trigger refuses before insert on deliveries
            when new.destination_id = '{last}' begin select raise(abort, 'no'); end"
        );
        connection.execute_batch(&refuses).unwrap();
        let tx = connection.transaction().unwrap();
        assert!(accept_events(&tx, NOW, &[event()]).is_err());
        drop(tx);
        let rows = "select (select count(*) from events), (select count(*) from deliveries),
            (select count(*) from json_each(line_lengths()))";
        let left = |connection: &Connection| -> [i64; 3] {
            let left =
                connection.query_row(rows, [], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?]));
            left.unwrap()
        };
        assert_eq!(left(&connection), [0, 0, 0]);
        connection.execute_batch("drop trigger refuses").unwrap();
        let tx = connection.transaction().unwrap();
        accept_events(&tx, NOW, &[event()]).unwrap();
        tx.commit().unwrap();
        assert_eq!(left(&connection), [1, 20, 20]);
    }
}
