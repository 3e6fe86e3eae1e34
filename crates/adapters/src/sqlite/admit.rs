//! One scheduler run for many destinations.

use std::collections::HashSet;

use domain::admission::{
    Backlog, Candidate, Decided, Group, Meter, Usage, next_due, read_ahead, round,
};
use domain::batch::{self, BatchRules, Leader, Lines, openings};
use domain::destination::{DestinationState, in_force};
use domain::health::is_failing;
use domain::ids::{AttemptId, DestinationId, Epoch, PermitNumber, TenantId};
use domain::limit_group::GroupName;
use domain::permit::Permit;
use domain::policy::Policy;
use domain::share::Room;
use domain::smart::Effective;
use domain::time::Timestamp;
use domain::turns::{Lane, Lanes, in_turn};
use engine::ports::{Admitted, Run, RunResult};
use rusqlite::{Row, Transaction};

use super::fault::Fault;
use super::limit_group::Groups;
use super::lines;
use super::response_times::spread;
use super::rows::{
    Held, age, all, batch_settings, first, maybe_time, settings, tier_settings, time, word,
};
use super::usage::read_usage;

const DESTINATION: &str = "
    -- admit: limits as they are now, and what admission remembers
    select d.limit_per_second, d.limit_per_minute, d.limit_per_hour, d.limit_per_day, d.unlimited,
        d.burst, d.shape, d.max_in_flight, d.safety_margin, d.margin_cap, d.count,
        t.limit_per_second, t.limit_per_minute, t.limit_per_hour, t.limit_per_day, t.unlimited,
        t.burst, t.shape, t.max_in_flight,
        d.state, d.epoch, coalesce(p.last_permit, 0), coalesce(p.meter_missing_micro, 0),
        p.meter_as_of, nullif(max(coalesce(p.held_until, 0), coalesce(h.held_until, 0)), 0),
        d.epoch is not p.meter_epoch, h.opened_at is not null, s.per_second, s.max_in_flight,
        n.id, coalesce(n.max_in_flight, t.tenant_max_in_flight),
        d.batch_max_events, d.batch_max_bytes, d.batch_max_wait_ms,
        nullif(iif(p.next_look_at is null, 0, coalesce(p.deferred_until, 0)), 0),
        coalesce(h.failures, 0), r.least_micros, r.least_at, r.most_micros, r.most_at,
        d.allowed_per_minute, d.limit_group, coalesce(d.max_age_ms, d.tier_age_ms)
    from destinations d
    join tenants n on n.id = d.tenant_id
    join tiers t on t.name = n.tier
    left join pacing p on p.destination_id = d.id
    left join health h on h.destination_id = d.id
    left join smart_limits s on s.destination_id = d.id
    left join response_times r on r.destination_id = d.id
    where d.id = ?1 and d.deleted_at is null";

/// Whoever asks sorts them: SQLite would put each aside for that, though they come in order.
const FIRST_ATTEMPTS: &str = "
    -- admit: first attempts
    select a.id, coalesce(a.expires_at <= ?3, 0), a.created_at, a.payload_bytes, a.batch_limit
    from json_each(line(?1, 0, ?2)) l cross join deliveries a on a.id = l.value
    where a.permit is null and a.due_at is null";

const SOME_OTHERS: &str = "
    -- admit: does anything else wait than first attempts
    select 1 from deliveries indexed by deliveries_due
    where destination_id = ?1 and permit is null and due_at is not null limit 1";

const URGENT: &str = "
    -- admit: the urgent lane in creation order
    select id, coalesce(expires_at <= ?3, 0), due_at, payload_bytes, batch_limit
    from deliveries indexed by deliveries_due
    where destination_id = ?1 and permit is null and due_at is not null and urgent = 1
    order by due_at, id limit ?2";

const DUE: &str = "
    -- admit: retries and returned permits that are due
    select id, coalesce(expires_at <= ?3, 0), due_at, payload_bytes, batch_limit
    from deliveries indexed by deliveries_due
    where destination_id = ?1 and permit is null and due_at is not null and urgent = 0
        and due_at <= ?3
    order by due_at, id limit ?2";

const PROMISED: &str = "
    -- admit: permits that may still start, as leaders of their batches
    select urgent, due_at is null, not_before, payload_bytes, batch_limit
    from deliveries indexed by deliveries_held
    where destination_id = ?1 and permit is not null and carried_by is null
        and state = 'admitted' and started_at is null and deadline >= ?2
    order by not_before, permit";

const NEXT_DUE: &str = "
    -- admit: when the next of the others is due
    select due_at from deliveries indexed by deliveries_due
    where destination_id = ?1 and permit is null and due_at is not null and urgent = 0
        and due_at > ?2
    order by due_at limit 1";

const REPUBLISHED: &str = "
    -- admit: permits that still have time
    select id, permit, epoch, not_before, deadline from deliveries indexed by deliveries_held
    where destination_id = ?1 and permit is not null and carried_by is null
        and state = 'admitted' and started_at is null and deadline > ?2
    order by not_before, permit";

const MARK_ADMITTED: &str = "
    -- admit: a permit
    update deliveries
    set state = 'admitted', permit = ?2, epoch = ?3, not_before = ?4, deadline = ?5, coarse = ?6,
        crowded = ?7, admitted_at = ?8, by_response = ?9
    where id = ?1 and state = 'waiting'";

pub(super) const REMEMBER: &str = "
    -- admit: what admission remembers
    insert into pacing
        (destination_id, last_permit, meter_missing_micro, meter_as_of, meter_epoch, looked_at,
        next_look_at)
    values (?1, ?2, ?3, ?4, ?5, ?6, ?7)
    on conflict do update
    set last_permit = excluded.last_permit, meter_missing_micro = excluded.meter_missing_micro,
        meter_as_of = excluded.meter_as_of, meter_epoch = excluded.meter_epoch,
        looked_at = excluded.looked_at, next_look_at = excluded.next_look_at";

/// The statements of a run that meet the backlog and the ledger, for the test
/// of what they cost.
#[cfg(test)]
pub(super) const MEASURED: [&str; 7] = [
    DESTINATION,
    SOME_OTHERS,
    URGENT,
    FIRST_ATTEMPTS,
    DUE,
    NEXT_DUE,
    MARK_ADMITTED,
];

/// Those that are asked only where there is something else than first attempts.
#[cfg(test)]
pub(super) const OF_OTHERS: [&str; 3] = [URGENT, DUE, NEXT_DUE];

/// Reads, lets the domain decide, and marks; see [`engine::ports::Store::admit`].
pub(super) fn admit_runs(
    tx: &Transaction<'_>,
    now: Timestamp,
    runs: &[Run],
    room: &Room,
) -> Result<Admitted, Fault> {
    let mut seen = HashSet::new();
    let mut groups = Groups::default();
    let mut read = |run: &Run| {
        // A destination that is named twice is decided once: the second
        // decision would not know of the first.
        match seen.insert(run.destination) {
            true => Read::of(tx, now, run, &mut groups),
            false => Ok(None),
        }
    };
    let read: Result<Vec<_>, Fault> = runs.iter().map(&mut read).collect();
    let read = read?;
    let candidates = read.iter().flatten().map(|read| &read.candidate);
    let round = round(room, candidates, now);
    let mut decided = round.decided.into_iter();
    let mut named = HashSet::new();
    let mut results = Vec::with_capacity(runs.len());
    let mut writes = Writes::of(tx)?;
    for (run, read) in runs.iter().zip(read) {
        let is_first = named.insert(run.destination);
        let decided = read.and_then(|read| Some((read, decided.next()?)));
        results.push(match decided {
            Some((read, decided)) => read.carry_out(&mut writes, now, &decided)?,
            None if is_first => RunResult::Gone,
            None => RunResult::Skipped,
        });
    }
    Ok(Admitted {
        now,
        results,
        given: round.given,
    })
}

/// The statements by which runs write: one for each permit, and one for each run.
struct Writes<'tx> {
    mark: Held<'tx>,
    remember: Held<'tx>,
}

impl<'tx> Writes<'tx> {
    fn of(tx: &'tx Transaction<'tx>) -> Result<Self, Fault> {
        Ok(Self {
            mark: Held::of(tx, MARK_ADMITTED)?,
            remember: Held::of(tx, REMEMBER)?,
        })
    }
}

/// A destination that a run decides about, and what is written of it.
struct Read {
    candidate: Candidate,
    key: String,
    republished: Vec<Permit>,
    /// Its last tries have failed.
    failing: bool,
}

impl Read {
    /// `None` if there is no such destination any more.
    fn of(
        tx: &Transaction<'_>,
        now: Timestamp,
        run: &Run,
        groups: &mut Groups,
    ) -> Result<Option<Self>, Fault> {
        let key = run.destination.to_string();
        let Some(row) = first(tx, DESTINATION, [&key], |row| destination(row, now))? else {
            return Ok(None);
        };
        let mut usage = row.usage;
        read_usage(tx, now, &key, &row.policy, &mut usage)?;
        if let Some(name) = row.limit_group {
            usage.group = groups.read(tx, now, (row.tenant.0, name))?;
        }
        let asked = Asked {
            destination: &key,
            number: row.last_permit + 1,
            most: match &usage.group {
                Some(group) => Group::read_ahead(&group.limits, read_ahead(&row.policy)),
                None => read_ahead(&row.policy),
            },
            batch: row.batch,
        };
        let (due, backlog) = read_backlog(tx, now, &asked)?;
        let republished = match run.republish {
            true => republished(tx, now, run.destination, &key)?,
            false => Vec::new(),
        };
        let (tenant, tenant_max_in_flight) = row.tenant;
        let candidate = Candidate {
            destination: run.destination,
            tenant,
            tenant_max_in_flight,
            policy: row.policy,
            epoch: row.epoch,
            last_permit: PermitNumber(row.last_permit),
            usage,
            due,
            urgent: backlog.urgent,
            next_due: backlog.next_due,
        };
        Ok(Some(Self {
            candidate,
            key,
            republished,
            failing: row.failing,
        }))
    }

    /// Marks the chosen attempts and remembers the look.
    fn carry_out(
        self,
        writes: &mut Writes<'_>,
        now: Timestamp,
        decided: &Decided,
    ) -> Result<RunResult, Fault> {
        let decision = &decided.decision;
        for permit in &decided.permits {
            mark_admitted(
                &mut writes.mark,
                now,
                permit,
                (decided.is_coarse, decided.wakes(permit.number)),
                decided.by_response,
            )?;
        }
        let meter = decision.meter;
        let charged = meter.as_of > Timestamp::MIN;
        let row = (
            &self.key,
            decided.last_permit.0,
            meter.missing_micro,
            charged.then(|| meter.as_of.as_micros()),
            self.candidate.epoch.0,
            now.as_micros(),
            decided.next_look_at.map(Timestamp::as_micros),
        );
        writes.remember.execute(row)?;
        let mut permits = self.republished;
        permits.extend(&decided.permits);
        Ok(RunResult::Decided {
            permits,
            look: decision.look,
            blocked: decision.blocked,
            failing: self.failing,
        })
    }
}

/// A destination's row, its tier's and its pacing's.
struct Destination {
    policy: Policy,
    epoch: Epoch,
    last_permit: i64,
    /// What admission remembers; the counts are read apart.
    usage: Usage,
    tenant: (TenantId, Option<u32>),
    batch: Option<BatchRules>,
    failing: bool,
    limit_group: Option<GroupName>,
}

fn destination(row: &Row<'_>, now: Timestamp) -> Result<Destination, Fault> {
    let smart = Effective {
        per_second: row.get(27)?,
        max_in_flight: row.get(28)?,
    };
    let configured = settings(row, (0, 40))?
        .or_tier(&tier_settings(row, 11)?)
        .policy();
    let state: DestinationState = word(row, 19, ("destinations", "state"))?;
    let usage = Usage {
        meter: Meter {
            missing_micro: row.get(22)?,
            as_of: maybe_time(row, 23)?.unwrap_or(Timestamp::MIN),
        },
        recount: row.get(25)?,
        held_until: maybe_time(row, 24)?,
        deferred_until: maybe_time(row, 34)?,
        probing: row.get(26)?,
        ..Usage::default()
    };
    let max_age = age(row, 42)?;
    Ok(Destination {
        policy: in_force(configured.measured(spread(row, 36, now)?), smart, state),
        epoch: Epoch(row.get(20)?),
        last_permit: row.get(21)?,
        tenant: (word(row, 29, ("tenants", "id"))?, row.get(30)?),
        batch: (batch_settings(row, 31)?.rules()).map(|rules| rules.within(max_age)),
        failing: is_failing(row.get(35)?, usage.probing),
        limit_group: row.get::<_, Option<String>>(41)?.map(GroupName::kept),
        usage,
    })
}

/// What a run would be decided from.
pub(super) struct Reading {
    pub(super) policy: Policy,
    pub(super) usage: Usage,
    pub(super) backlog: Backlog,
    /// Whose it is, and how much of that tenant may be under way.
    pub(super) tenant: (TenantId, Option<u32>),
}

/// The same, and the starts that a bucket is judged by, for the watch. `None`
/// if the destination is gone.
pub(super) fn reading(
    tx: &Transaction<'_>,
    now: Timestamp,
    destination: DestinationId,
) -> Result<Option<Reading>, Fault> {
    let run = Run {
        destination,
        republish: false,
    };
    let Some(read) = Read::of(tx, now, &run, &mut Groups::default())? else {
        return Ok(None);
    };
    let backlog = read.candidate.backlog();
    let Candidate {
        tenant,
        tenant_max_in_flight,
        policy,
        usage,
        ..
    } = read.candidate;
    let mut usage = Usage {
        recount: true,
        coarse: Vec::new(),
        ..usage
    };
    read_usage(tx, now, &read.key, &policy, &mut usage)?;
    Ok(Some(Reading {
        policy,
        usage,
        backlog,
        tenant: (tenant, tenant_max_in_flight),
    }))
}

fn mark_admitted(
    mark: &mut Held<'_>,
    now: Timestamp,
    permit: &Permit,
    (coarse, crowded): (bool, bool),
    by_response: bool,
) -> Result<(), Fault> {
    let row = (
        permit.attempt.0,
        permit.number.0,
        permit.epoch.0,
        permit.not_before.as_micros(),
        permit.deadline.as_micros(),
        coarse,
        crowded,
        now.as_micros(),
        by_response,
    );
    mark.execute(row)?;
    Ok(())
}

/// Whose backlog, and how much of it.
struct Asked<'a> {
    destination: &'a str,
    /// Of the next permit.
    number: i64,
    /// Permits that one run may give.
    most: u32,
    batch: Option<BatchRules>,
}

/// What is due and not too old, in the order in which it goes: where requests
/// are batches, what opens them. And what waits, in figures.
fn read_backlog(
    tx: &Transaction<'_>,
    now: Timestamp,
    asked: &Asked<'_>,
) -> Result<(Vec<AttemptId>, Backlog), Fault> {
    let destination = asked.destination;
    let limit = (asked.batch).map_or(asked.most, |rules| rules.read_ahead(asked.most));
    let (mut some_expired, mut cut) = (false, false);
    let mut read = |sql| {
        let rows = all(tx, sql, (destination, limit, now.as_micros()), |row| {
            let waiting = batch::Waiting {
                since: time(row, 2)?,
                bytes: row.get(3)?,
                limit: row.get(4)?,
            };
            Ok((AttemptId(row.get(0)?), row.get::<_, bool>(1)?, waiting))
        })?;
        cut |= rows.len() >= limit as usize;
        some_expired |= rows.iter().any(|(_, expired, _)| *expired);
        let fresh = rows.into_iter().filter(|(_, expired, _)| !expired);
        Ok::<InLine, Fault>(fresh.map(|(id, _, waiting)| (id, waiting)).collect())
    };
    lines::tidy(tx, destination, (0, limit))?;
    let some_others = first(tx, SOME_OTHERS, [destination], |_| Ok(()))?.is_some();
    let mut firsts = read(FIRST_ATTEMPTS)?;
    // In creation order.
    firsts.sort_unstable_by_key(|(id, _)| *id);
    let lanes = match some_others {
        true => Lanes {
            urgent: read(URGENT)?,
            firsts,
            others: read(DUE)?,
        },
        false => Lanes {
            urgent: Vec::new(),
            firsts,
            others: Vec::new(),
        },
    };
    let urgent = lanes.urgent.len();
    let (due, next_batch) = match asked.batch {
        Some(rules) => batched(tx, now, asked, &rules, (lanes, cut))?,
        None => {
            let ids = lanes.map(|line| line.into_iter().map(|(id, _)| id).collect());
            let most = usize::try_from(limit).unwrap_or(usize::MAX);
            (in_turn(ids, asked.number, most), None)
        }
    };
    let waits_until = match some_others {
        true => first(tx, NEXT_DUE, (destination, now.as_micros()), |row| {
            time(row, 0)
        })?,
        false => None,
    };
    let times = waits_until.into_iter().chain(next_batch);
    let counted = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let backlog = Backlog {
        due: counted(due.len()),
        urgent: counted(urgent),
        next_due: next_due(times, some_expired, now),
    };
    Ok((due, backlog))
}

type InLine = Vec<(AttemptId, batch::Waiting)>;

/// What opens batches that are due, and when the next one is.
fn batched(
    tx: &Transaction<'_>,
    now: Timestamp,
    asked: &Asked<'_>,
    rules: &BatchRules,
    (lanes, cut): (Lanes<InLine>, bool),
) -> Result<(Vec<AttemptId>, Option<Timestamp>), Fault> {
    let ids = |line: &InLine| line.iter().map(|(id, _)| *id).collect::<Vec<_>>();
    let ids = Lanes {
        urgent: ids(&lanes.urgent),
        firsts: ids(&lanes.firsts),
        others: ids(&lanes.others),
    };
    let lines = Lines {
        waiting: lanes.map(|line| line.into_iter().map(|(_, waiting)| waiting).collect()),
        promised: all(tx, PROMISED, (asked.destination, now.as_micros()), |row| {
            let leader = batch::Waiting {
                since: time(row, 2)?,
                bytes: row.get(3)?,
                limit: row.get(4)?,
            };
            Ok((Lane::of(row.get(0)?, row.get(1)?), leader))
        })?,
        cut,
    };
    let openings = openings(rules, &lines, (asked.number, asked.most), now);
    let leader = |leader: &Leader| ids.of(leader.lane)[leader.place];
    let leaders = openings.leaders.iter().map(leader).collect();
    Ok((leaders, openings.next_due))
}

fn republished(
    tx: &Transaction<'_>,
    now: Timestamp,
    destination: DestinationId,
    key: &str,
) -> Result<Vec<Permit>, Fault> {
    all(tx, REPUBLISHED, (key, now.as_micros()), |row| {
        Ok(Permit {
            destination,
            attempt: AttemptId(row.get(0)?),
            number: PermitNumber(row.get(1)?),
            epoch: Epoch(row.get(2)?),
            not_before: time(row, 3)?,
            deadline: time(row, 4)?,
        })
    })
}
