//! What judges ask, in SQL.

use bytes::Bytes;
use domain::batch::{BatchRules, BatchSettings};
use domain::compliance::InForce;
use domain::ids::{AttemptId, DestinationId, Epoch, EventId, PermitNumber, TenantId};
use domain::operations::OperationalEvent;
use domain::permit::Permit;
use domain::smart::Effective;
use domain::time::Timestamp;
use domain::turns::{Lane, Lanes};
use engine::ports::{Catalog, LimitHistory};
use rusqlite::{Connection, Params, Row as SqlRow};

use super::sqlite::SimulatedStore;
use super::{Row, UnderWay, at_once};

/// Attempts, as [`read_row`] reads them.
macro_rules! rows {
    ($which:literal) => {
        concat!(
            "
    select id, event_id, destination_id, try_number, tries_before, state, status, permit, epoch,
        not_before, deadline, coalesce(due_at, created_at), created_at, started_at,
        dead_letter = 1 and replayed_at is null, claimed_at
    from attempts ",
            $which
        )
    };
}

const ROW: &str = rows!("where id = ?1");

const ROWS_OF: &str = rows!("where destination_id = ?1 order by id");

const ROWS_OF_EVENT: &str = rows!("where event_id = ?1 order by id");

const IS_FIRST: &str = "
    select 1 from attempts a
    where a.id = ?1 and a.urgent = 0 and coalesce(a.due_at <= a.created_at, 1)
        and exists (select 1 from events where id = a.event_id)
        and not exists (
            select 1 from deliveries earlier
            where earlier.event_id = a.event_id and earlier.id < a.id
        )
        and not exists (
            select 1 from ledger earlier
            where earlier.event_id = a.event_id and earlier.id < a.id
        )";

const ORPHAN: &str = "
    select id from attempts a
    where (state in ('waiting', 'admitted', 'started')
            or (dead_letter = 1 and replayed_at is null))
        and not exists (select 1 from events where id = a.event_id)
    order by id limit 1";

const ALL_EVENTS: &str = "
    select e.id, e.payload, (
        select destination_id from (
            select id, destination_id from deliveries where event_id = e.id
            union all
            select id, destination_id from ledger where event_id = e.id
        )
        order by id limit 1
    )
    from events e order by e.id";

const BATCHES: &str = "
    select batch_max_events, batch_max_bytes, batch_max_wait_ms from destinations where id = ?1";

const UNDER_WAY: &str = "
    select
        line_length(?1)
        + (select count(*) from deliveries indexed by deliveries_due
            where destination_id = ?1 and permit is null and due_at is not null),
        (select count(*) from deliveries indexed by deliveries_held
            where destination_id = ?1 and state = 'admitted' and permit is not null
                and carried_by is null),
        (select count(*) from deliveries indexed by deliveries_held
            where destination_id = ?1 and state = 'started' and permit is not null
                and carried_by is null)";

/// Of each kind more than a run looks at: whether some wait, and none of them is too old.
const DUE_WAIT: &str = "
    with urgent as (
        select coalesce(expires_at <= ?2, 0) as expired from deliveries indexed by deliveries_due
        where destination_id = ?1 and permit is null and due_at is not null and urgent = 1
        order by due_at, id limit 600
    ), others as (
        select coalesce(expires_at <= ?2, 0) as expired from deliveries indexed by deliveries_due
        where destination_id = ?1 and permit is null and due_at is not null and urgent = 0
            and due_at <= ?2
        order by due_at, id limit 600
    )
    select exists (select 1 from urgent), exists (select 1 from others)
    where not exists (select 1 from urgent where expired)
        and not exists (select 1 from others where expired)";

/// The same of what is in line.
const FIRSTS_WAIT: &str = "
    select count(*) > 0 from (
        select coalesce(a.expires_at <= ?2, 0) as expired
        from json_each(line(?1, 0, 600)) l cross join deliveries a on a.id = l.value
    )
    having coalesce(max(expired), 0) = 0";

const GIVEN: &str = "
    select urgent, due_at is null from deliveries where id = ?1 and admitted_at = ?2";

/// By its answers. A change holds it too, for a millisecond.
const HELD_UNTIL: &str = "select held_until from health where destination_id = ?1";

const IS_PROBING: &str = "select 1 from health where destination_id = ?1 and opened_at is not null";

const LOWERED: &str = "
    select per_second, max_in_flight from smart_limits where destination_id = ?1";

const WAS_LOWERED: &str = "
    select 1 from smart_limits where destination_id = ?1 and exists (
        select 1 from smart_history h where h.destination_id = ?1
            and (h.per_second is not null or h.max_in_flight is not null)
    )";

const REPLAYED: &str = "
    select event_id, try_number from ledger
    where destination_id = ?1 and replayed_at is not null order by event_id, try_number";

/// One that was not sent after all is made again in its place.
const MADE: &str = "
    select event_id, tries_before from attempts a
    where destination_id = ?1 and replay_id is not null
        and not (state = 'not_sent' and (
            exists (
                select 1 from deliveries d where d.event_id = a.event_id and d.id > a.id
                    and d.replay_id = a.replay_id and d.try_number = a.try_number
            )
            or exists (
                select 1 from ledger l where l.event_id = a.event_id and l.id > a.id
                    and l.replay_id = a.replay_id and l.try_number = a.try_number
            )
        ))
    order by event_id, tries_before";

const PENDING: &str = "
    select d.tenant_id, d.id, sum(p.pending), d.deleted_at is null and d.state <> 'disabled'
    from (
        select destination_id, count(*) as pending from deliveries group by destination_id
    ) p
    join destinations d on d.id = p.destination_id
    group by d.id order by d.id";

const NEWS: &str = "
    select id, created_at, event_type, destination_id, tenant_id, details
    from operational_events where relayed_at is null or ?1 order by id";

const TOLD: &str = "
    select o.destination_id, exists (
        select 1 from destinations d
        where d.id = o.destination_id and d.deleted_at is null and d.state <> 'disabled'
    )
    from operational_destinations o order by o.position";

const ALERTS: &str = "
    select count(*) from watches w join destinations d on d.id = w.destination_id
    where d.deleted_at is null and (w.short_told = 1 or w.backlog_high_since is not null)";

type Read<T> = Result<T, rusqlite::Error>;

/// An id as the rows hold it.
pub(super) fn text(id: impl ToString) -> String {
    id.to_string()
}

pub(super) fn number<T: TryFrom<i64> + Default>(number: i64) -> T {
    T::try_from(number).unwrap_or_default()
}

/// Runs a statement; how many rows it changed. A world's own statements do not fail.
pub(super) fn execute(connection: &Connection, sql: &str, params: impl Params) -> usize {
    let done = connection.prepare_cached(sql);
    let done = done.and_then(|mut statement| statement.execute(params));
    done.expect("the schema is the one that this binary has")
}

pub(super) fn first<T>(
    connection: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnOnce(&SqlRow<'_>) -> Read<T>,
) -> Option<T> {
    let mut statement = connection.prepare_cached(sql).expect("a world's own SQL");
    let mut rows = statement.query(params).expect("a world's own SQL");
    let row = rows.next().expect("a world's own SQL")?;
    Some(read(row).expect("columns as the schema has them"))
}

pub(super) fn all<T>(
    connection: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnMut(&SqlRow<'_>) -> Read<T>,
) -> Vec<T> {
    let mut statement = connection.prepare_cached(sql).expect("a world's own SQL");
    let rows = statement
        .query_map(params, read)
        .expect("a world's own SQL");
    let rows: Read<Vec<T>> = rows.collect();
    rows.expect("columns as the schema has them")
}

pub(super) fn word<T: std::str::FromStr>(row: &SqlRow<'_>, column: usize) -> Read<T> {
    let text: String = row.get(column)?;
    let kind = rusqlite::types::Type::Text;
    let parsed = text.parse();
    parsed.map_err(|_invalid| rusqlite::Error::InvalidColumnType(column, text, kind))
}

fn maybe_word<T: std::str::FromStr>(row: &SqlRow<'_>, column: usize) -> Read<Option<T>> {
    match row.get_ref(column)? {
        rusqlite::types::ValueRef::Null => Ok(None),
        _ => word(row, column).map(Some),
    }
}

pub(super) fn time(row: &SqlRow<'_>, column: usize) -> Read<Timestamp> {
    row.get(column).map(Timestamp::from_micros)
}

fn read_row(row: &SqlRow<'_>) -> Read<Row> {
    let (id, destination) = (AttemptId(row.get(0)?), word(row, 2)?);
    // What is carried has its leader's number, and no slot of its own.
    let slot: Option<i64> = row.get(9)?;
    let permit = slot.map(|slot| -> Read<Permit> {
        Ok(Permit {
            destination,
            attempt: id,
            number: PermitNumber(row.get(7)?),
            epoch: Epoch(row.get(8)?),
            not_before: Timestamp::from_micros(slot),
            deadline: time(row, 10)?,
        })
    });
    let [claimed_at, started_at]: [Option<i64>; 2] = [row.get(15)?, row.get(13)?];
    Ok(Row {
        id,
        event: word(row, 1)?,
        destination,
        try_number: row.get(3)?,
        tries_before: row.get(4)?,
        state: word(row, 5)?,
        status: row.get(6)?,
        permit: permit.transpose()?,
        waits_since: time(row, 11)?,
        created_at: time(row, 12)?,
        claimed_at: claimed_at.map(Timestamp::from_micros),
        started_at: started_at.map(Timestamp::from_micros),
        is_open_dead_letter: row.get(14)?,
    })
}

fn read_news(row: &SqlRow<'_>) -> Read<OperationalEvent> {
    Ok(OperationalEvent {
        id: row.get(0)?,
        created_at: time(row, 1)?,
        event_type: row.get(2)?,
        destination: maybe_word(row, 3)?,
        tenant: word(row, 4)?,
        details: row.get(5)?,
    })
}

/// What judges ask of the rows. The store stands still meanwhile.
impl SimulatedStore {
    /// One attempt.
    pub(crate) fn row(&self, id: AttemptId) -> Option<Row> {
        first(&self.connection(), ROW, [id.0], read_row)
    }

    /// A destination's attempts, in creation order.
    pub(crate) fn rows_of(&self, destination: DestinationId) -> Vec<Row> {
        all(&self.connection(), ROWS_OF, [text(destination)], read_row)
    }

    /// The attempts of an event that is there, in creation order.
    pub(crate) fn rows_of_event(&self, event: EventId) -> Option<Vec<Row>> {
        let connection = self.connection();
        let event = text(event);
        let is_there = "select 1 from events where id = ?1";
        first(&connection, is_there, [&event], |_| Ok(()))?;
        Some(all(&connection, ROWS_OF_EVENT, [&event], read_row))
    }

    /// The newest attempt.
    pub(crate) fn newest(&self) -> Option<AttemptId> {
        let sql = "select max(id) from attempts";
        let newest: Option<i64> = first(&self.connection(), sql, [], |row| row.get(0))?;
        newest.map(AttemptId)
    }

    /// Whether it is the first attempt of an event that is there, and was for at once.
    pub(crate) fn is_first(&self, id: AttemptId) -> bool {
        first(&self.connection(), IS_FIRST, [id.0], |_| Ok(())).is_some()
    }

    /// An attempt that is not over, or a dead letter that can be replayed, and
    /// whose event is not there.
    pub(crate) fn orphan(&self) -> Option<AttemptId> {
        first(&self.connection(), ORPHAN, [], |row| row.get(0)).map(AttemptId)
    }

    /// An event's media type and payload.
    pub(crate) fn payload(&self, event: EventId) -> Option<(String, Bytes)> {
        let sql = "select content_type, payload from events where id = ?1";
        first(&self.connection(), sql, [text(event)], |row| {
            Ok((row.get(0)?, Bytes::from(row.get::<_, Vec<u8>>(1)?)))
        })
    }

    /// All events, each with where its first attempt goes, and its payload.
    pub(crate) fn all_events(&self) -> Vec<(EventId, Option<DestinationId>, Bytes)> {
        all(&self.connection(), ALL_EVENTS, [], |row| {
            let to: Option<String> = row.get(2)?;
            let to = to.map(|_| word(row, 2)).transpose()?;
            Ok((word(row, 0)?, to, Bytes::from(row.get::<_, Vec<u8>>(1)?)))
        })
    }

    /// What was in force from when on at a destination.
    pub(crate) fn in_force(&self, destination: DestinationId) -> Vec<InForce> {
        let history = at_once(self.shipped().limit_history(destination));
        let history = history.and_then(Result::ok).unwrap_or_default();
        let entry =
            |entry: LimitHistory| InForce::new(entry.in_force_from, &entry.effective, entry.state);
        history.into_iter().map(entry).collect()
    }

    /// What its requests are batches by; `None` if they are not.
    pub(crate) fn batch_rules(&self, destination: DestinationId) -> Option<BatchRules> {
        let settings = first(&self.connection(), BATCHES, [text(destination)], |row| {
            Ok(BatchSettings {
                max_events: row.get(0)?,
                max_bytes: row.get(1)?,
                max_wait_ms: row.get(2)?,
            })
        });
        settings?.rules()
    }

    /// How many of its attempts wait, are admitted, and are in flight.
    pub(crate) fn under_way(&self, destination: DestinationId) -> UnderWay {
        let read = |row: &SqlRow<'_>| {
            Ok(UnderWay {
                waiting: number(row.get(0)?),
                admitted: number(row.get(1)?),
                in_flight: number(row.get(2)?),
            })
        };
        let under_way = first(&self.connection(), UNDER_WAY, [text(destination)], read);
        under_way.unwrap_or_default()
    }

    /// Of which lanes a run at `now` has left what it could have admitted; `None` where
    /// nothing but first attempts of one lane wait, or something that is too old stood
    /// before that.
    pub(crate) fn lanes_wait(
        &self,
        destination: DestinationId,
        now: Timestamp,
    ) -> Option<Lanes<bool>> {
        let key = (text(destination), now.as_micros());
        let connection = self.connection();
        let of_two = |row: &SqlRow<'_>| Ok((row.get(0)?, row.get(1)?));
        let (urgent, others): (bool, bool) = first(&connection, DUE_WAIT, key.clone(), of_two)?;
        // The line is long, and seldom asked for.
        if !urgent && !others {
            return None;
        }
        let firsts = first(&connection, FIRSTS_WAIT, key, |row| row.get(0))?;
        Some(Lanes {
            urgent,
            firsts,
            others,
        })
    }

    /// How many of these permits were given at `now` to each lane.
    pub(crate) fn turns(&self, permits: &[Permit], now: Timestamp) -> Lanes<usize> {
        let connection = self.connection();
        let mut turns = Lanes::default();
        for permit in permits {
            let key = (permit.attempt.0, now.as_micros());
            let lane = first(&connection, GIVEN, key, |row| {
                Ok(Lane::of(row.get(0)?, row.get(1)?))
            });
            match lane {
                Some(Lane::Urgent) => turns.urgent += 1,
                Some(Lane::First) => turns.firsts += 1,
                Some(Lane::Other) => turns.others += 1,
                None => {}
            }
        }
        turns
    }

    /// Nothing of it starts before that.
    pub(crate) fn held_until(&self, destination: DestinationId) -> Option<Timestamp> {
        let key = [text(destination)];
        let until: Option<i64> = first(&self.connection(), HELD_UNTIL, key, |row| row.get(0))?;
        until.map(Timestamp::from_micros)
    }

    /// Whether its breaker is open, or half open.
    pub(crate) fn is_probing(&self, destination: DestinationId) -> bool {
        let key = [text(destination)];
        first(&self.connection(), IS_PROBING, key, |_| Ok(())).is_some()
    }

    /// What is lowered of its limits.
    pub(crate) fn lowered(&self, destination: DestinationId) -> Effective {
        let lowered = first(&self.connection(), LOWERED, [text(destination)], |row| {
            Ok(Effective {
                per_second: row.get(0)?,
                max_in_flight: row.get(1)?,
            })
        });
        lowered.unwrap_or_default()
    }

    /// Whether smart delivery, which is on, has ever lowered them.
    pub(crate) fn was_lowered(&self, destination: DestinationId) -> bool {
        let key = [text(destination)];
        first(&self.connection(), WAS_LOWERED, key, |_| Ok(())).is_some()
    }

    /// The dead letters of a destination that were replayed, and the attempts
    /// that replays have made: event and try, in order.
    pub(crate) fn replayed(&self, destination: DestinationId) -> [Vec<(EventId, u32)>; 2] {
        [REPLAYED, MADE].map(|sql| {
            all(&self.connection(), sql, [text(destination)], |row| {
                Ok((word(row, 0)?, row.get(1)?))
            })
        })
    }

    /// How many attempts are pending, of each destination that has some; and
    /// whether it takes events.
    pub(crate) fn all_pending(&self) -> Vec<(TenantId, DestinationId, u64, bool)> {
        all(&self.connection(), PENDING, [], |row| {
            let pending = number(row.get(2)?);
            Ok((word(row, 0)?, word(row, 1)?, pending, row.get(3)?))
        })
    }

    /// When backlogs were last counted.
    pub(crate) fn counted_at(&self) -> Timestamp {
        let sql = "select counted_at from backlog_standings where scope = 'all'";
        let at = first(&self.connection(), sql, [], |row| time(row, 0));
        at.unwrap_or(Timestamp::from_micros(0))
    }

    /// What operators must know, in order.
    pub(crate) fn news(&self) -> Vec<OperationalEvent> {
        all(&self.connection(), NEWS, [true], read_news)
    }

    /// What of it was not relayed yet, in order.
    pub(crate) fn news_to_relay(&self) -> Vec<OperationalEvent> {
        all(&self.connection(), NEWS, [false], read_news)
    }

    /// Those that are told, in the order of registration; and whether each takes
    /// events: neither deleted nor disabled.
    pub(crate) fn told(&self) -> Vec<(DestinationId, bool)> {
        all(&self.connection(), TOLD, [], |row| {
            Ok((word(row, 0)?, row.get(1)?))
        })
    }

    /// How many destinations have an alert that was raised and has not ended.
    pub(crate) fn alerts(&self) -> usize {
        let alerts = first(&self.connection(), ALERTS, [], |row| row.get(0).map(number));
        alerts.unwrap_or_default()
    }
}
