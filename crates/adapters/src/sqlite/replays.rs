//! Replays: dead letters, or events, that become waiting attempts again. A step is one
//! transaction of the one writer: the dead letter is marked as replayed and its
//! attempt is added, or neither.
//!
//! What matches when one begins is counted before, on the connection that counts: that is
//! up to 100 ms of reading, for which the writer would keep everybody waiting.

mod moves;
mod resent;

use domain::destination::DestinationState;
use domain::ids::{AttemptId, DestinationId, EventId, ReplayId, TenantId};
use domain::limit_group::GroupLimits;
use domain::policy::{Policy, Rate};
use domain::replay::{MAX_RUNNING, MAX_STEP, Pace, ReplaySource, ReplayState};
use domain::time::Timestamp;
use engine::ports::{
    CatalogError, DeadLetterFilter, MAX_COUNTED, MAX_EVENTS_STEP, MAX_EXAMINED, NewReplay, Replay,
    ReplayProgress, ResentEvents, Which, too_many_replays,
};
use rusqlite::{Connection, Row, Transaction};

use super::fault::Fault;
use super::limit_groups::limits;
use super::rows::{all, execute, first, maybe_time, parse, settings, tier_settings, time, word};
use resent::OfEvents;
pub(super) use resent::resendable;

const RUN: &str = "
    -- create_replay: how many run
    select count(*) from (
        select 1 from replays indexed by replays_running
        where tenant_id = ?1 and state = 'running' limit ?2
    )";

const DEAD_LETTER: &str = "
    -- create_replay: a single one
    select a.destination_id, coalesce(a.finished_at, a.started_at) from ledger a
    where a.id = ?1 and a.tenant_id = ?2 and a.dead_letter = 1 and a.replayed_at is null";

const LIVES: &str = "
    -- create_replay: is it the tenant's, and there
    select 1 from destinations where id = ?1 and tenant_id = ?2 and deleted_at is null";

const COUNT: &str = "
    -- create_replay: how many match
    select count(*)
    from (
        select a.id, a.event_id, a.status from ledger a indexed by ledger_dead
        where a.destination_id = ?1 and a.dead_letter = 1 and a.replayed_at is null
            and coalesce(a.finished_at, a.started_at) >= ?2
            and coalesce(a.finished_at, a.started_at) < ?3
        order by coalesce(a.finished_at, a.started_at), a.id
        limit ?7
    ) a
    cross join events e on e.id = a.event_id
    where (?4 is null or a.id = ?4)
        and (?5 is null or a.status is ?5)
        and (?6 is null or e.event_type is ?6)";

const CREATE: &str = "
    -- create_replay
    insert into replays (
        id, tenant_id, destination_id, attempt_id, event_type, status, died_from, died_before,
        share, total, created_at
    )
    values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";

const REPLAY: &str = "
    -- replay
    select id, destination_id, share, state, total, done, created_at, finished_at, source,
        event_id, skipped
    from replays where id = ?1 and tenant_id = ?2";

const REPLAYS: &str = "
    -- replays
    select id, destination_id, share, state, total, done, created_at, finished_at, source,
        event_id, skipped
    from replays indexed by replays_of_tenant
    where tenant_id = ?1 and id < ?2
    order by id desc limit ?3";

/// After the text of every id.
const PAST_ALL: &str = "g";

const OUTCOMES: &str = "
    -- replay: what became of its attempts
    select (
            select count(*) from deliveries indexed by deliveries_of_replay where replay_id = ?1
        ),
        coalesce(sum(state = 'succeeded'), 0),
        coalesce(sum(state in ('failed', 'unknown', 'expired')), 0)
    from ledger indexed by ledger_of_replay where replay_id = ?1";

const CANCEL: &str = "
    -- cancel_replay
    update replays set state = 'cancelled', finished_at = ?3
    where id = ?1 and tenant_id = ?2 and state = 'running'";

/// What one that begins is of, found and the tenant's.
struct Begins<'a> {
    destination: DestinationId,
    of: Of<'a>,
}

enum Of<'a> {
    /// Those that match, or the one with this number.
    DeadLetters(Option<i64>, DeadLetterFilter),
    /// The one, or those that match.
    Events(Option<EventId>, Option<&'a ResentEvents>),
}

/// How many it is of, as far as they were counted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counted {
    total: i64,
    /// See [`ReplayProgress::skipped`].
    skipped: i64,
}

/// Counts what would be of it, unless it would be refused: those that are cost nothing.
pub(super) fn count(
    tx: &Transaction<'_>,
    now: Timestamp,
    tenant: TenantId,
    new: &NewReplay,
) -> Result<Counted, Fault> {
    let Begins { destination, of } = begins(tx, tenant, new)?;
    match of {
        Of::Events(event, which) => resent::count(
            tx,
            &OfEvents::by(tx, now, (tenant, destination), (event, which))?,
        ),
        Of::DeadLetters(one, filter) => {
            let (died_from, died_before) = died(now, one, &filter);
            let matching = (
                destination.to_string(),
                died_from.unwrap_or(i64::MIN),
                died_before,
                one,
                filter.status,
                &filter.event_type,
                MAX_COUNTED,
            );
            let total = first(tx, COUNT, matching, |row| Ok(row.get(0)?))?;
            Ok(Counted {
                total: total.unwrap_or(0),
                skipped: 0,
            })
        }
    }
}

/// Begins one that was counted; see [`engine::ports::Backlog::create_replay`].
pub(super) fn create(
    tx: &Transaction<'_>,
    now: Timestamp,
    tenant: TenantId,
    (new, counted): (&NewReplay, Counted),
) -> Result<Replay, Fault> {
    let Begins { destination, of } = begins(tx, tenant, new)?;
    match of {
        Of::Events(event, which) => {
            let of = OfEvents::by(tx, now, (tenant, destination), (event, which))?;
            resent::create(tx, now, (new, counted), &of)?;
        }
        Of::DeadLetters(one, filter) => {
            let (died_from, died_before) = died(now, one, &filter);
            let row = (
                new.id.to_string(),
                tenant.to_string(),
                destination.to_string(),
                one,
                &filter.event_type,
                filter.status,
                died_from,
                died_before,
                new.share,
                counted.total,
                now.as_micros(),
            );
            execute(tx, CREATE, row)?;
        }
    }
    read(tx, tenant, new.id)
}

/// What it is of, unless it may not begin.
fn begins<'a>(
    tx: &Transaction<'_>,
    tenant: TenantId,
    new: &'a NewReplay,
) -> Result<Begins<'a>, Fault> {
    let owner = tenant.to_string();
    let running = first(tx, RUN, (&owner, MAX_RUNNING), |row| number(row, 0))?;
    if running.unwrap_or(0) >= u64::from(MAX_RUNNING) {
        return Err(too_many_replays().into());
    }
    let (destination, of) = match &new.which {
        Which::One(attempt) => {
            let found = first(tx, DEAD_LETTER, (attempt.0, &owner), |row| {
                let destination: DestinationId = word(row, 0, ("attempts", "destination_id"))?;
                Ok((destination, time(row, 1)?))
            })?;
            let (destination, died) = found.ok_or(CatalogError::NotFound("dead letter"))?;
            // It is the only one of its destination that died just then.
            let just_then = DeadLetterFilter {
                died_from: Some(died),
                died_before: Some(Timestamp::from_micros(died.as_micros() + 1)),
                ..DeadLetterFilter::default()
            };
            (destination, Of::DeadLetters(Some(attempt.0), just_then))
        }
        Which::Matching(to, filter) => (*to, Of::DeadLetters(None, filter.clone())),
        Which::Event(to, event) => (*to, Of::Events(Some(*event), None)),
        Which::Events(to, which) => (*to, Of::Events(None, Some(which))),
    };
    let lives = first(tx, LIVES, (destination.to_string(), &owner), |_| Ok(()))?;
    lives.ok_or(CatalogError::NotFound(match new.which {
        Which::One(_) => "dead letter",
        _ => "destination",
    }))?;
    Ok(Begins { destination, of })
}

/// From when and before when the dead letters died.
fn died(now: Timestamp, one: Option<i64>, filter: &DeadLetterFilter) -> (Option<i64>, i64) {
    let latest = one.map_or(now, |_| Timestamp::MAX);
    let before = filter.died_before.unwrap_or(now).min(latest);
    (
        filter.died_from.map(Timestamp::as_micros),
        before.as_micros(),
    )
}

/// Reads one; see [`engine::ports::Backlog::replay`].
pub(super) fn read(
    connection: &Connection,
    tenant: TenantId,
    id: ReplayId,
) -> Result<Replay, Fault> {
    let key = id.to_string();
    let outcomes = first(connection, OUTCOMES, [&key], |row| {
        Ok((number(row, 0)?, number(row, 1)?, number(row, 2)?))
    })?;
    let (pending, succeeded, failed) = outcomes.unwrap_or((0, 0, 0));
    let found = first(connection, REPLAY, (&key, tenant.to_string()), progress)?;
    Ok(Replay {
        progress: found.ok_or(CatalogError::NotFound("replay"))?,
        pending,
        succeeded,
        failed,
    })
}

/// Reads a page; see [`engine::ports::Backlog::replays`].
pub(super) fn page(
    connection: &Connection,
    tenant: TenantId,
    after: Option<ReplayId>,
    limit: u32,
) -> Result<Vec<ReplayProgress>, Fault> {
    let after = after.map_or_else(|| PAST_ALL.to_owned(), |after| after.to_string());
    let key = (tenant.to_string(), after, limit);
    all(connection, REPLAYS, key, progress)
}

fn progress(row: &Row<'_>) -> Result<ReplayProgress, Fault> {
    Ok(ReplayProgress {
        id: word(row, 0, ("replays", "id"))?,
        destination: word(row, 1, ("replays", "destination_id"))?,
        share: row.get(2)?,
        state: word(row, 3, ("replays", "state"))?,
        total: number(row, 4)?,
        done: number(row, 5)?,
        created_at: time(row, 6)?,
        finished_at: maybe_time(row, 7)?,
        source: word(row, 8, ("replays", "source"))?,
        event: maybe_event(row, 9)?,
        skipped: number(row, 10)?,
    })
}

fn maybe_event(row: &Row<'_>, index: usize) -> Result<Option<EventId>, Fault> {
    let id: Option<String> = row.get(index)?;
    id.map(|id| parse(&id, ("replays", "event_id"))).transpose()
}

fn number(row: &Row<'_>, index: usize) -> Result<u64, Fault> {
    Ok(row.get::<_, i64>(index)?.unsigned_abs())
}

/// Ends one; see [`engine::ports::Backlog::cancel_replay`].
pub(super) fn cancel(
    tx: &Transaction<'_>,
    now: Timestamp,
    tenant: TenantId,
    id: ReplayId,
) -> Result<Replay, Fault> {
    let key = (id.to_string(), tenant.to_string(), now.as_micros());
    execute(tx, CANCEL, key)?;
    read(tx, tenant, id)
}

const RUNNING: &str = "
    -- advance_replays: the first of each tenant's, then the second of each
    select r.id
    from (
        select id, row_number() over (
            partition by tenant_id order by looked_at nulls first, id
        ) as turn
        from replays indexed by replays_running where state = 'running'
    ) t
    cross join replays r on r.id = t.id
    order by t.turn, r.looked_at nulls first, r.id limit ?1";

const ONE: &str = "
    -- advance_replays: one that runs
    select id, destination_id, attempt_id, event_type, status, died_from, died_before, share,
        after_at, after_id, paced_at, source, event_id, after_event, event_text
    from replays where id = ?1 and state = 'running'";

const POLICY: &str = "
    -- advance_replays: limits as they are now
    select d.limit_per_second, d.limit_per_minute, d.limit_per_hour, d.limit_per_day, d.unlimited,
        d.burst, d.shape, d.max_in_flight, d.safety_margin, d.margin_cap, d.count,
        t.limit_per_second, t.limit_per_minute, t.limit_per_hour, t.limit_per_day, t.unlimited,
        t.burst, t.shape, t.max_in_flight,
        d.state, coalesce(d.max_age_ms, d.tier_age_ms), d.allowed_per_minute, g.name is not null,
        g.limit_per_second, g.limit_per_minute, g.limit_per_hour, g.limit_per_day
    from destinations d
    join tenants n on n.id = d.tenant_id
    join tiers t on t.name = n.tier
    left join limit_groups g on g.tenant_id = d.tenant_id and g.name = d.limit_group
    where d.id = ?1 and d.deleted_at is null";

const WAITING: &str = "
    -- advance_replays: what has yet to start
    select count(*) from deliveries indexed by deliveries_of_replay
    where replay_id = ?1 and state in ('waiting', 'admitted')";

/// A replay under way.
pub(super) struct Running {
    id: String,
    destination: DestinationId,
    source: ReplaySource,
    event: Option<EventId>,
    attempt: Option<AttemptId>,
    event_type: Option<String>,
    event_text: Option<String>,
    status: Option<u16>,
    died_from: Option<i64>,
    died_before: i64,
    share: f64,
    after_at: Option<i64>,
    after_id: Option<i64>,
    after_event: Option<String>,
    paced_at: Option<Timestamp>,
}

/// So many dead letters or events one step looks at, and so many it moves at most: some
/// 2 ms of the one writer where all of them move. A call takes such steps one after the
/// other, and whoever else waits goes between.
const STEP_EXAMINED: u32 = 100;

/// What the steps of one replay have come to, of one call.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Advance {
    examined: u32,
    pub(super) replayed: u32,
    pub(super) resent: u32,
    /// Whether it has not ended.
    pub(super) runs: bool,
    /// Whether another step of the call may move more.
    pub(super) more: bool,
    /// Where something was moved to.
    pub(super) to: Option<DestinationId>,
}

/// Up to so many of those that run, in the order of their turns.
pub(super) fn running(connection: &Connection, limit: u32) -> Result<Vec<String>, Fault> {
    all(connection, RUNNING, [limit], |row| Ok(row.get(0)?))
}

/// One step of one, after others of the same call; see
/// [`engine::ports::Replays::advance_replays`].
pub(super) fn advance(
    tx: &Transaction<'_>,
    now: Timestamp,
    id: &str,
    before: &Advance,
) -> Result<Advance, Fault> {
    let mut advance = Advance {
        runs: false,
        more: false,
        ..*before
    };
    // It may have ended since it was looked for.
    let Some(replay) = first(tx, ONE, [id], read_running)? else {
        return Ok(advance);
    };
    let Some(Target {
        policy,
        group,
        max_age_ms,
    }) = target(tx, replay.destination)?
    else {
        moves::end(tx, now, &replay, ReplayState::Cancelled)?;
        return Ok(advance);
    };
    let waiting = first(tx, WAITING, [&replay.id], |row| Ok(row.get(0)?))?;
    let pace = Pace {
        policy: &policy,
        group: group.as_ref(),
        share: replay.share,
    };
    let mut step = pace.step(replay.paced_at, waiting.unwrap_or(0), now);
    let moved_before = before.replayed.saturating_add(before.resent);
    step.count = step.count.min(MAX_STEP.saturating_sub(moved_before));
    let (moved, most) = match replay.source {
        ReplaySource::DeadLetters => {
            let moved = moves::take(tx, now, &replay, step, max_age_ms)?;
            advance.replayed = advance.replayed.saturating_add(moved.count);
            (moved, MAX_EXAMINED)
        }
        ReplaySource::Events => {
            let moved = resent::take(tx, now, &replay, step)?;
            advance.resent = advance.resent.saturating_add(moved.count);
            (moved, MAX_EVENTS_STEP)
        }
    };
    if moved.count > 0 {
        advance.to = Some(replay.destination);
    }
    advance.examined = advance.examined.saturating_add(moved.examined);
    advance.runs = !moved.all;
    advance.more = advance.runs && moved.count < step.count && advance.examined < most;
    Ok(advance)
}

fn read_running(row: &Row<'_>) -> Result<Running, Fault> {
    Ok(Running {
        id: row.get(0)?,
        destination: word(row, 1, ("replays", "destination_id"))?,
        attempt: row.get::<_, Option<i64>>(2)?.map(AttemptId),
        event_type: row.get(3)?,
        status: row.get(4)?,
        died_from: row.get(5)?,
        died_before: row.get(6)?,
        share: row.get(7)?,
        after_at: row.get(8)?,
        after_id: row.get(9)?,
        paced_at: maybe_time(row, 10)?,
        source: word(row, 11, ("replays", "source"))?,
        event: maybe_event(row, 12)?,
        after_event: row.get(13)?,
        event_text: row.get(14)?,
    })
}

/// What a step asks of its destination.
struct Target {
    policy: Policy,
    group: Option<GroupLimits>,
    /// The age of its events.
    max_age_ms: Option<i64>,
}

/// `None` if it is gone.
fn target(tx: &Transaction<'_>, destination: DestinationId) -> Result<Option<Target>, Fault> {
    first(tx, POLICY, [destination.to_string()], |row| {
        let mut policy = settings(row, (0, 21))?
            .or_tier(&tier_settings(row, 11)?)
            .policy();
        let state: DestinationState = word(row, 19, ("destinations", "state"))?;
        if state != DestinationState::Active {
            policy.rate = Rate::Paused;
        }
        let group = row.get::<_, bool>(22)?.then(|| limits(row, 23));
        Ok(Target {
            policy,
            group: group.transpose()?,
            max_age_ms: row.get(20)?,
        })
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use domain::search::first_at;
    use engine::ports::DEFAULT_TENANT;
    use uuid::Uuid;

    use super::super::lines::Lines;
    use super::super::{migrate, prepare};
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_795_000_000_000);
    const TO: DestinationId = DestinationId(Uuid::from_u128(1));

    /// A store with one destination, where nothing has died.
    fn with_a_destination() -> Connection {
        let mut connection = Connection::open_in_memory().unwrap();
        prepare(&connection).unwrap();
        migrate::migrate(&mut connection).unwrap();
        Lines::follow(&connection).unwrap();
        let insert = "insert into destinations (id, tenant_id, url, event_types, unlimited)
            values (?1, ?2, 'https://x.example/', '[\"*\"]', 1)";
        let row = (TO.to_string(), DEFAULT_TENANT.to_string());
        connection.execute(insert, row).unwrap();
        connection
    }

    fn events() -> ResentEvents {
        ResentEvents {
            since: NOW,
            until: None,
            event_type: None,
            only_missed: false,
            state: None,
            status: None,
            text: None,
        }
    }

    fn new(id: u128, which: Which) -> NewReplay {
        NewReplay {
            id: ReplayId(Uuid::from_u128(id)),
            which,
            share: 1.0,
        }
    }

    /// Others wait for the writer meanwhile.
    #[test]
    fn the_step_that_writes_one_counts_nothing() {
        let mut connection = with_a_destination();
        let tx = connection.transaction().unwrap();
        let all = [
            Which::Events(TO, events()),
            Which::Matching(TO, DeadLetterFilter::default()),
        ];
        for (id, which) in (1..).zip(all) {
            let new = new(id, which);
            let counted = count(&tx, NOW, DEFAULT_TENANT, &new).unwrap();
            assert_eq!((counted.total, counted.skipped), (0, 0));
            let counted = Counted {
                total: 7,
                ..counted
            };
            let begun = create(&tx, NOW, DEFAULT_TENANT, (&new, counted)).unwrap();
            assert_eq!(begun.total, 7, "{new:?}");
        }
    }

    /// Whoever else waits for the writer goes between.
    #[test]
    fn a_step_moves_few_and_the_next_goes_on_from_there() {
        let mut connection = with_a_destination();
        let tx = connection.transaction().unwrap();
        let insert = "insert into events (id, tenant_id, event_type, content_type, payload,
                created_at, trace, directed, urgent)
            values (?1, ?2, 'a', 'text/plain', x'00', ?3, null, 0, 0)";
        for number in 0..250 {
            let id = Uuid::from_u128(first_at(NOW).0.as_u128() + number);
            let row = (id.to_string(), DEFAULT_TENANT.to_string(), NOW.as_micros());
            execute(&tx, insert, row).unwrap();
        }
        let later = NOW + Duration::from_secs(1);
        let new = new(1, Which::Events(TO, events()));
        let counted = count(&tx, later, DEFAULT_TENANT, &new).unwrap();
        assert_eq!(counted.total, 250);
        create(&tx, later, DEFAULT_TENANT, (&new, counted)).unwrap();
        let id = new.id.to_string();
        assert_eq!(running(&tx, 10).unwrap(), std::slice::from_ref(&id));
        let (mut so_far, mut steps) = (Advance::default(), Vec::new());
        loop {
            so_far = advance(&tx, later, &id, &so_far).unwrap();
            steps.push((so_far.resent, so_far.runs));
            if !so_far.more {
                break;
            }
        }
        assert_eq!(steps, [(100, true), (200, true), (250, false)]);
        assert!(running(&tx, 10).unwrap().is_empty());
    }

    /// A flood of requests that are refused keeps nobody waiting.
    #[test]
    fn one_that_may_not_begin_is_refused_before_it_is_counted() {
        let mut connection = with_a_destination();
        let tx = connection.transaction().unwrap();
        let counted =
            |which| count(&tx, NOW, DEFAULT_TENANT, &new(1, which)).map_err(CatalogError::from);
        let nobody = DestinationId(Uuid::from_u128(2));
        let unknown = counted(Which::Events(nobody, events()));
        assert!(
            matches!(unknown, Err(CatalogError::NotFound("destination"))),
            "{unknown:?}"
        );
        for id in 1..=u128::from(MAX_RUNNING) {
            let new = new(id, Which::Events(TO, events()));
            create(&tx, NOW, DEFAULT_TENANT, (&new, Counted::default())).unwrap();
        }
        for which in [
            Which::Events(TO, events()),
            Which::Matching(TO, DeadLetterFilter::default()),
        ] {
            let one_more = counted(which);
            let Err(CatalogError::Invalid { field, .. }) = &one_more else {
                panic!("expected a refusal, got {one_more:?}");
            };
            assert_eq!(field, "replays");
        }
    }
}
