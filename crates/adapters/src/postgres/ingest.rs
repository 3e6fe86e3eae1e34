//! Accepting events.
//!
//! One statement looks where events go, inserts those that are new and, for
//! those, their attempts. Before it only what it has to be told is read: what
//! keys stand for, and who subscribes. A destination that is disabled or deleted
//! in between gets its attempts nevertheless: they wait, or are cancelled by the
//! reaper. Destinations' rows are not locked.

use std::collections::{HashMap, HashSet};

use domain::event::{Audience, MAX_DESTINATIONS, NewEvent, Timing, subscriptions_to};
use domain::filter::{Filters, Subscriber};
use domain::ids::{DestinationId, TenantId};
use domain::time::{Timestamp, micros};
use domain::trace::TraceContext;
use engine::ports::{Acceptance, MAX_DELIVERIES, StoreError};
use sqlx::{AssertSqlSafe, PgConnection, PgPool};
use uuid::Uuid;

use super::accepted::went_to;
use super::days;
use super::failure::Failure;
use super::keys;
use crate::row::row;
use crate::subscriber;

/// Accepts events; the answers are in their order. Schedulers make the days that come;
/// where none has run for days, whoever finds today missing makes it, and asks again.
pub(super) async fn accept_events(
    pool: &PgPool,
    events: &[NewEvent],
) -> Result<Vec<Acceptance>, Failure> {
    match accept_once(pool, events, Ids::New).await {
        Err(failure) if failure.is_without_a_day() => {
            days::make_if_missing(pool).await;
            accept_once(pool, events, Ids::Any).await
        }
        Err(failure) if failure.is_known_already() => accept_once(pool, events, Ids::Any).await,
        done => done,
    }
}

async fn accept_once(
    pool: &PgPool,
    events: &[NewEvent],
    ids: Ids,
) -> Result<Vec<Acceptance>, Failure> {
    let mut connection = pool.acquire().await?;
    accept(&mut connection, events, ids).await
}

/// The same on a connection, which may have a transaction open, for a caller
/// that writes more with it: the answers are true if that commits. There may be
/// fewer of them than events; see [`engine::ports::Store::accept_events`].
pub(super) async fn accept_within(
    connection: &mut PgConnection,
    events: &[NewEvent],
) -> Result<Vec<Acceptance>, Failure> {
    accept(connection, events, Ids::Any).await
}

/// What may be known of events' ids.
#[derive(Clone, Copy)]
enum Ids {
    /// None of them is there: we gave them, a moment ago. If one is, as where the answer to a
    /// commit was lost, nothing is written. Asking first would be a tentative row and a
    /// confirmation in the log for each event.
    New,
    /// Those that are there are left.
    Any,
}

impl Ids {
    fn written(self) -> AssertSqlSafe<String> {
        let known = match self {
            Self::New => "",
            Self::Any => "on conflict (id, day) do nothing",
        };
        AssertSqlSafe(WRITE.replace("{known}", known))
    }
}

async fn accept(
    connection: &mut PgConnection,
    events: &[NewEvent],
    mut ids: Ids,
) -> Result<Vec<Acceptance>, Failure> {
    let mut batch = Batch::of(connection, events).await?;
    for _ in 0..ROUNDS {
        let offered = batch.to_offer();
        if offered.is_empty() {
            batch.settle(connection).await?;
            return Ok(batch.answers);
        }
        if batch.some_wait_for(&offered) {
            batch.look_up_named(connection).await?;
        }
        let offered = batch.to_offer();
        if offered.is_empty() {
            continue;
        }
        let written = batch.write(connection, &offered, ids).await?;
        // What was written is known: only the first statement may be the last.
        ids = Ids::Any;
        batch.note(&offered, &written);
    }
    if !batch.to_offer().is_empty() {
        let problem = "destinations changed while events were accepted for them".to_owned();
        return Err(Failure::Corrupt(StoreError::Unavailable(problem)));
    }
    batch.settle(connection).await?;
    Ok(batch.answers)
}

/// How often events are offered. A second time, where the one that came first with
/// a key or an id was refused: its destination was deleted or disabled since it was
/// looked up. That this happens again and again to one batch is no coincidence.
const ROUNDS: u32 = 3;

/// A batch on its way in.
struct Batch<'a> {
    events: &'a [NewEvent],
    /// Until it was offered, as if nothing stood in its way.
    answers: Vec<Acceptance>,
    /// Whether each is to be written no more: it was offered, or its key was
    /// known.
    offered: Vec<bool>,
    /// Whether each was written.
    written: Vec<bool>,
}

row! {
    /// What became of one that was offered.
    struct Written {
        /// Its destination's, if it names one that is there.
        state: Option<String>,
        is_written: bool,
    }
}

impl<'a> Batch<'a> {
    /// Before anything is written.
    async fn of(connection: &mut PgConnection, events: &'a [NewEvent]) -> Result<Self, Failure> {
        let mut answers = audiences(connection, events).await?;
        // Those that are looked at this time.
        let events = events.get(..answers.len()).unwrap_or(events);
        let known = keys::known(connection, events.iter()).await?;
        let mut known = keys::answer(connection, events, &known).await?;
        let mut offered = vec![false; events.len()];
        for (place, answer) in answers.iter_mut().enumerate() {
            if let Some(known) = known.remove(&place) {
                (*answer, offered[place]) = (known, true);
            }
        }
        Ok(Self {
            events,
            answers,
            offered,
            written: vec![false; events.len()],
        })
    }

    /// The places of those that are to be written next: of several with one id
    /// or one key the first. Where that is refused, the next has its turn.
    fn to_offer(&self) -> Vec<usize> {
        let (mut ids, mut taken) = (HashSet::new(), HashSet::new());
        let accepted = |at: &usize| matches!(self.answers[*at], Acceptance::Accepted(_));
        let first = |at: &usize| {
            let event = &self.events[*at];
            let key = (event.idempotency.as_ref()).map(|asked| (event.tenant, &asked.key));
            if ids.contains(&event.id) || key.is_some_and(|key| taken.contains(&key)) {
                return false;
            }
            ids.insert(event.id);
            taken.extend(key);
            true
        };
        (0..self.events.len())
            .filter(accepted)
            .filter(first)
            .filter(|at| !self.offered[*at])
            .collect()
    }

    /// Whether some that are to be written are not offered: another with the same
    /// key or id comes first.
    fn some_wait_for(&self, offered: &[usize]) -> bool {
        let open =
            |at: &usize| !self.offered[*at] && matches!(self.answers[*at], Acceptance::Accepted(_));
        (0..self.events.len()).filter(open).count() > offered.len()
    }

    /// Refuses all that name a destination which is not there or is disabled, in one
    /// read: else each of those with one key would be offered, and refused, alone.
    async fn look_up_named(&mut self, connection: &mut PgConnection) -> Result<(), Failure> {
        let named: HashSet<_> = (0..self.events.len())
            .filter_map(|at| self.named(at))
            .collect();
        let (tenants, ids): (Vec<Uuid>, Vec<Uuid>) =
            named.iter().map(|(tenant, id)| (tenant.0, id.0)).unzip();
        let states: Vec<(Uuid, Uuid, Option<String>)> = sqlx::query_as(
            "-- accept_events: look_up_named
            select n.tenant_id, n.id, d.state
            from unnest($1::uuid[], $2::uuid[]) as n (tenant_id, id)
            left join lateral (
                select d.state, d.tenant_id, d.deleted_at from destinations d
                where d.id = n.id limit 1
            ) d on d.tenant_id = n.tenant_id and d.deleted_at is null",
        )
        .bind(tenants)
        .bind(ids)
        .fetch_all(connection)
        .await?;
        let refused = (states.into_iter())
            .filter_map(|(tenant, id, state)| {
                let named = (TenantId(tenant), DestinationId(id));
                Some((named, refusal(state.as_deref())?))
            })
            .collect();
        self.refuse(&refused);
        Ok(())
    }

    /// Writes what is new.
    async fn write(
        &self,
        connection: &mut PgConnection,
        offered: &[usize],
        ids: Ids,
    ) -> Result<Vec<Written>, Failure> {
        let events: Vec<&NewEvent> = offered.iter().map(|at| &self.events[*at]).collect();
        let columns = Columns::of(&events);
        let keys = Keys::of(&events);
        let audiences = offered.iter().map(|at| self.answers[*at].destinations());
        let pairs = Pairs::of(events.iter().copied().zip(audiences));
        Ok(sqlx::query_as(ids.written())
            .bind(columns.ids)
            .bind(columns.tenants)
            .bind(columns.types)
            .bind(columns.content_types)
            .bind(columns.payloads)
            .bind(columns.named)
            .bind(keys.tenants)
            .bind(keys.keys)
            .bind(keys.digests)
            .bind(keys.events)
            .bind(keys.kept_for)
            .bind(pairs.events)
            .bind(pairs.destinations)
            .bind(pairs.tenants)
            .bind(pairs.bytes)
            .bind(columns.traces)
            .bind(pairs.deliver_at)
            .bind(pairs.expires_at)
            .bind(pairs.firsts)
            .bind(pairs.lasts)
            .bind(columns.urgent)
            .bind(pairs.urgent)
            .fetch_all(connection)
            .await?)
    }

    /// Where one was refused, all are that name the same destination.
    fn note(&mut self, offered: &[usize], written: &[Written]) {
        let mut refused = HashMap::new();
        for (at, written) in offered.iter().zip(written) {
            self.offered[*at] = true;
            self.written[*at] = written.is_written;
            if let (Some(named), Some(refusal)) =
                (self.named(*at), refusal(written.state.as_deref()))
            {
                refused.insert(named, refusal);
            }
        }
        self.refuse(&refused);
    }

    /// Refuses what is not written and names one of these destinations.
    fn refuse(&mut self, refused: &HashMap<(TenantId, DestinationId), Acceptance>) {
        for at in 0..self.events.len() {
            let refusal = self.named(at).and_then(|named| refused.get(&named));
            let accepted = matches!(self.answers[at], Acceptance::Accepted(_));
            if let (Some(refusal), true, false) = (refusal, accepted, self.written[at]) {
                self.answers[at] = refusal.clone();
            }
        }
    }

    /// The destination that it names, and whose it has to be.
    fn named(&self, at: usize) -> Option<(TenantId, DestinationId)> {
        let event = &self.events[at];
        event.audience.named().map(|id| (event.tenant, id))
    }

    /// Answers what was not written after all: ids and keys that were there
    /// already, an id also where it went to what is gone by now. To another
    /// tenant an id says nothing. Reads what is committed.
    async fn settle(&mut self, connection: &mut PgConnection) -> Result<(), Failure> {
        let mut open: Vec<usize> = (0..self.events.len())
            .filter(|at| !self.is_by_key(*at) && !self.written[*at])
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
}

/// Why nothing is taken for a destination in this state; none is one that is not
/// there.
fn refusal(state: Option<&str>) -> Option<Acceptance> {
    match state {
        None => Some(Acceptance::UnknownDestination),
        Some("disabled") => Some(Acceptance::DisabledDestination),
        Some(_) => None,
    }
}

/// Events that name a destination are taken if it is there and not disabled;
/// those whose key a request that came first has taken are left out, and so are
/// those whose id is there. Keys are taken in order, so that batches that share
/// several wait for each other and not in a circle. One waiting attempt is
/// inserted for each event and destination, in the order of the events, which know the
/// ids of theirs.
///
/// `(… in (select …)) is true`: hashed once, whatever the planner thinks of how
/// many there are.
const WRITE: &str = "-- accept_events: write
    with clock as materialized (select clock_timestamp() as now),
    offered as materialized (
        select n.id, n.position, d.state,
            n.named is null or coalesce(d.state <> 'disabled', false) as is_taken
        from unnest($1::uuid[], $2::uuid[], $6::uuid[])
            with ordinality as n (id, tenant_id, named, position)
        -- By its id, for a plan from when there were few destinations would read them all.
        left join lateral (
            select d.state, d.tenant_id, d.deleted_at from destinations d
            where d.id = n.named limit 1
        ) d on d.tenant_id = n.tenant_id and d.deleted_at is null
    ),
    keys as (
        insert into idempotency_keys as k (tenant_id, key, digest, event_id, expires_at)
        select n.tenant_id, n.key, n.digest, n.event_id,
            clock.now + n.kept_for * interval '1 microsecond'
        from unnest($7::uuid[], $8::text[], $9::bytea[], $10::uuid[], $11::bigint[])
            as n (tenant_id, key, digest, event_id, kept_for)
        cross join clock
        where (n.event_id in (select o.id from offered o where o.is_taken)) is true
        order by n.tenant_id, n.key
        on conflict (tenant_id, key) do update
        set digest = excluded.digest, event_id = excluded.event_id,
            expires_at = excluded.expires_at
        where k.expires_at <= (select now from clock)
        returning k.event_id
    ),
    -- As many as may be inserted, in this order. The first has set the day.
    ids as materialized (
        select array_agg(n.id) as ids from (
            select next_attempt_id('attempts_id_seq') as id where cardinality($12) > 0
            union all
            select nextval('attempts_id_seq') from generate_series(2, cardinality($12))
        ) n
    ),
    written as (
        insert into events (
            id, tenant_id, event_type, content_type, payload, created_at, day, trace, directed,
            urgent, delivery, deliveries
        )
        select n.id, n.tenant_id, n.event_type, n.content_type, n.payload, clock.now,
            event_day(n.id), n.trace, n.named is not null, n.urgent,
            case when n.first <= n.last then ((select i.ids from ids i))[n.first] end,
            case when n.first < n.last then ((select i.ids from ids i))[(n.first + 1):n.last] end
        from unnest(
            $1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::bytea[], $16::text[], $6::uuid[],
            $19::integer[], $20::integer[], $21::boolean[]
        ) as n (id, tenant_id, event_type, content_type, payload, trace, named, first, last, urgent)
        cross join clock
        where (n.id in (select o.id from offered o where o.is_taken)) is true
            and ((n.id in (select unnest($10::uuid[]))) is not true
                or n.id in (select k.event_id from keys k))
        order by n.id
        {known}
        returning id
    ),
    attempted as (
        insert into deliveries (
            id, event_id, destination_id, tenant_id, created_at, due_at, expires_at, payload_bytes,
            urgent
        )
        select ((select i.ids from ids i))[n.position::integer], n.event_id, n.destination_id, n.tenant_id, clock.now,
            case when n.urgent then coalesce(due.at, clock.now) else due.at end,
            least(coalesce(due.at, clock.now)
                    + coalesce(d.max_age_ms, d.tier_age_ms) * interval '1 millisecond',
                from_micros(n.expires_at)),
            n.payload_bytes, n.urgent and due.at is null
        from unnest(
            $12::uuid[], $13::uuid[], $14::uuid[], $15::integer[], $17::bigint[], $18::bigint[],
            $22::boolean[]
        ) with ordinality as n (
            event_id, destination_id, tenant_id, payload_bytes, deliver_at, expires_at, urgent,
            position
        )
        join destinations d on d.id = any (array[n.destination_id])
        cross join clock
        cross join lateral (
            select case when from_micros(n.deliver_at) > clock.now
                then from_micros(n.deliver_at) end as at
        ) due
        where (n.event_id in (select w.id from written w)) is true
        order by n.position
    )
    select o.state, (o.id in (select w.id from written w)) is true as is_written
    from offered o
    order by o.position";

/// Events, column by column.
struct Columns<'a> {
    ids: Vec<Uuid>,
    tenants: Vec<Uuid>,
    types: Vec<Option<&'a str>>,
    content_types: Vec<&'a str>,
    payloads: Vec<&'a [u8]>,
    /// The destination that it names, if it does.
    named: Vec<Option<Uuid>>,
    traces: Vec<Option<String>>,
    urgent: Vec<bool>,
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
            named: events().map(named).collect(),
            traces: events().map(trace).collect(),
            urgent: events().map(|event| event.timing.urgent).collect(),
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
}

impl<'a> Keys<'a> {
    fn of(events: &[&'a NewEvent]) -> Self {
        let mut keys = Self::default();
        for event in events {
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

/// About as many subscriptions are looked for in one step: a millisecond or two, where few
/// destinations have them.
const MAX_LOOKS: usize = 1_000;

/// Events and the destinations that they go to, column by column.
#[derive(Default)]
struct Pairs {
    events: Vec<Uuid>,
    destinations: Vec<Uuid>,
    tenants: Vec<Uuid>,
    bytes: Vec<i32>,
    deliver_at: Vec<Option<i64>>,
    expires_at: Vec<Option<i64>>,
    urgent: Vec<bool>,
    /// Of each event, which of them are its own: from the first to the last, counted from
    /// one.
    firsts: Vec<i32>,
    lasts: Vec<i32>,
}

impl Pairs {
    fn of<'a>(events: impl Iterator<Item = (&'a NewEvent, &'a [DestinationId])>) -> Self {
        let mut pairs = Self::default();
        for (event, audience) in events {
            pairs.firsts.push(pairs.last() + 1);
            for destination in audience {
                pairs.events.push(event.id.0);
                pairs.destinations.push(destination.0);
                pairs.tenants.push(event.tenant.0);
                let bytes = i32::try_from(event.payload.len()).unwrap_or(i32::MAX);
                pairs.bytes.push(bytes);
                let Timing {
                    deliver_at,
                    expires_at,
                    urgent,
                } = event.timing;
                pairs.deliver_at.push(deliver_at.map(Timestamp::as_micros));
                pairs.expires_at.push(expires_at.map(Timestamp::as_micros));
                pairs.urgent.push(urgent);
            }
            pairs.lasts.push(pairs.last());
        }
        pairs
    }

    fn last(&self) -> i32 {
        i32::try_from(self.events.len()).unwrap_or(i32::MAX)
    }
}

fn trace(event: &&NewEvent) -> Option<String> {
    event.trace.as_ref().map(TraceContext::stored)
}

fn named(event: &&NewEvent) -> Option<Uuid> {
    event.audience.named().map(|id| id.0)
}

/// Who gets each event, if those that it names are there. Of the first events
/// alone, where many subscribe: so many as one step takes, at least one. Subscribers
/// count whatever their filters say, for each of those is asked.
async fn audiences(
    connection: &mut PgConnection,
    events: &[NewEvent],
) -> Result<Vec<Acceptance>, Failure> {
    let subscribers = Subscribers::of(connection, events).await?;
    let (mut audiences, mut asked) = (Vec::with_capacity(events.len()), 0);
    for event in events {
        let (of_it, answer) = match (event.audience.named(), subscribers.to(event)) {
            (Some(id), _) => (1, Acceptance::Accepted(vec![id])),
            (None, Some(found)) => (found.len(), subscribers.answer(event, found)),
            (None, None) => break,
        };
        asked += of_it.min(MAX_DESTINATIONS);
        if asked > MAX_DELIVERIES && !audiences.is_empty() {
            break;
        }
        audiences.push(answer);
        if !subscribers.filters.is_empty() {
            // A payload was read, which others on this thread have waited for.
            tokio::task::yield_now().await;
        }
    }
    Ok(audiences)
}

/// The destinations that take events of some types.
#[derive(Default)]
struct Subscribers<'a> {
    /// Without the types of which not all was read: there were many of those before
    /// them.
    found: HashMap<(Uuid, &'a str), Vec<Subscriber>>,
    filters: Filters,
}

impl<'a> Subscribers<'a> {
    /// In the order of the events; for the first ones, where they are many.
    async fn of(connection: &mut PgConnection, events: &'a [NewEvent]) -> Result<Self, Failure> {
        let asked = Types::of(events);
        if asked.types.is_empty() {
            return Ok(Self::default());
        }
        // One more than an event may have, and so all of the first type.
        let of_one = MAX_DESTINATIONS + 1;
        let of_all = MAX_DELIVERIES + of_one;
        let rows: Vec<(i64, Uuid, Option<String>)> = sqlx::query_as(
            "-- accept_events: subscribers
            select n.position, s.destination_id, d.filter
            from unnest($1::uuid[], $2::integer[], $3::integer[])
                with ordinality as n (tenant_id, first, last, position)
            cross join lateral (
                select distinct u.destination_id
                from unnest(($4::text[])[n.first:n.last]) t (event_type)
                cross join lateral (
                    select s.destination_id from subscriptions s
                    where s.tenant_id = n.tenant_id and s.event_type = t.event_type
                    order by s.destination_id
                    limit $5
                ) u
                order by u.destination_id
                limit $5
            ) s
            cross join lateral (
                select d.filter::text from destinations d where d.id = s.destination_id limit 1
            ) d
            limit $6",
        )
        .bind(asked.tenants)
        .bind(asked.firsts)
        .bind(asked.lasts)
        .bind(asked.subscriptions)
        .bind(i64::try_from(of_one).unwrap_or(i64::MAX))
        .bind(i64::try_from(of_all).unwrap_or(i64::MAX))
        .fetch_all(&mut *connection)
        .await?;
        let last = rows.last().map(|(position, ..)| *position);
        let cut = last.filter(|_| rows.len() >= of_all);
        let mut subscribers = Self::default();
        for (position, of_type) in (1..).zip(&asked.types) {
            if cut.is_none_or(|cut| position < cut) {
                subscribers.found.insert(*of_type, Vec::new());
            }
        }
        for (position, id, filter) in rows {
            let of_type = usize::try_from(position - 1)
                .ok()
                .and_then(|at| asked.types.get(at));
            if let Some(found) = of_type.and_then(|of_type| subscribers.found.get_mut(of_type)) {
                found.push(subscriber::read(
                    &mut subscribers.filters,
                    DestinationId(id),
                    filter,
                ));
            }
        }
        Ok(subscribers)
    }

    /// Who subscribes to its type; `None` if that was not read.
    fn to(&self, event: &'a NewEvent) -> Option<&[Subscriber]> {
        self.found.get(&type_of(event)).map(Vec::as_slice)
    }

    /// Those of them that take it.
    fn answer(&self, event: &NewEvent, found: &[Subscriber]) -> Acceptance {
        if found.len() > MAX_DESTINATIONS {
            return Acceptance::TooManyDestinations;
        }
        let takers = self.filters.takers(event, found);
        match takers.is_empty() && event.audience == Audience::SomeSubscriber {
            true => Acceptance::NoSubscriber,
            false => Acceptance::Accepted(takers),
        }
    }
}

/// The types of events, and what who takes them subscribes to, column by column.
#[derive(Default)]
struct Types<'a> {
    /// Each once, in the order of the events.
    types: Vec<(Uuid, &'a str)>,
    tenants: Vec<Uuid>,
    subscriptions: Vec<String>,
    /// Of each type, which of them are its own: from the first to the last, counted from
    /// one.
    firsts: Vec<i32>,
    lasts: Vec<i32>,
}

impl<'a> Types<'a> {
    /// Of the first events alone, where there is much to look for.
    fn of(events: &'a [NewEvent]) -> Self {
        let (mut types, mut seen) = (Self::default(), HashSet::new());
        for event in events.iter().filter(|event| named(event).is_none()) {
            let (tenant, name) = type_of(event);
            if !seen.insert((tenant, name)) {
                continue;
            }
            let subscriptions = subscriptions_to(name);
            let looks = types.subscriptions.len() + subscriptions.len();
            if looks > MAX_LOOKS && !types.types.is_empty() {
                break;
            }
            types.types.push((tenant, name));
            types.tenants.push(tenant);
            types.firsts.push(types.last() + 1);
            types.subscriptions.extend(subscriptions);
            types.lasts.push(types.last());
        }
        types
    }

    fn last(&self) -> i32 {
        i32::try_from(self.subscriptions.len()).unwrap_or(i32::MAX)
    }
}

fn type_of(event: &NewEvent) -> (Uuid, &str) {
    (event.tenant.0, event.event_type.as_deref().unwrap_or(""))
}
