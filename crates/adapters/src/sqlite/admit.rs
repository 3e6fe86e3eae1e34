//! One scheduler run for many destinations.

use std::collections::HashSet;

use domain::admission::{
    Backlog, Decision, LOOK_AFTER_EXPIRED, Meter, Slot, Usage, admit, read_ahead,
};
use domain::batch::{self, BatchRules, Leader, Lines, openings};
use domain::destination::DestinationState;
use domain::health::is_failing;
use domain::ids::{AttemptId, DestinationId, Epoch, PermitNumber, TenantId};
use domain::permit::Permit;
use domain::policy::{Policy, Rate};
use domain::share::{Ask, Room, share_between_tenants};
use domain::smart::Effective;
use domain::time::Timestamp;
use domain::turns::in_turn;
use engine::ports::{Admitted, Given, Run, RunResult};
use rusqlite::Transaction;

use super::fault::Fault;
use super::rows::{all, batch_settings, execute, first, maybe_time, settings, time, word};
use super::usage::read_usage;

const DESTINATION: &str = "
    -- admit: limits as they are now, and what admission remembers
    select d.limit_per_second, d.limit_per_minute, d.limit_per_hour, d.limit_per_day, d.unlimited,
        d.burst, d.shape, d.max_in_flight, d.safety_margin,
        t.limit_per_second, t.limit_per_minute, t.limit_per_hour, t.limit_per_day, t.unlimited,
        t.burst, t.shape, t.max_in_flight, 0.0,
        d.state, d.epoch, coalesce(p.last_permit, 0), coalesce(p.meter_missing_micro, 0),
        p.meter_as_of, nullif(max(coalesce(p.held_until, 0), coalesce(h.held_until, 0)), 0),
        d.epoch is not p.meter_epoch, h.opened_at is not null, s.per_second, s.max_in_flight,
        n.id, coalesce(n.max_in_flight, t.tenant_max_in_flight),
        d.batch_max_events, d.batch_max_bytes, d.batch_max_wait_ms,
        nullif(iif(p.next_look_at is null, 0, coalesce(p.deferred_until, 0)), 0),
        coalesce(h.failures, 0)
    from destinations d
    join tenants n on n.id = d.tenant_id
    join tiers t on t.name = n.tier
    left join pacing p on p.destination_id = d.id
    left join health h on h.destination_id = d.id
    left join smart_limits s on s.destination_id = d.id
    where d.id = ?1 and d.deleted_at is null";

const FIRST_ATTEMPTS: &str = "
    -- admit: first attempts in creation order
    select id, coalesce(expires_at <= ?3, 0), created_at, payload_bytes, batch_limit
    from attempts indexed by attempts_first
    where destination_id = ?1 and state = 'waiting' and due_at is null
    order by id limit ?2";

const DUE: &str = "
    -- admit: retries and returned permits that are due
    select id, coalesce(expires_at <= ?3, 0), due_at, payload_bytes, batch_limit
    from attempts indexed by attempts_due
    where destination_id = ?1 and state = 'waiting' and due_at is not null and due_at <= ?3
    order by due_at, id limit ?2";

const PROMISED: &str = "
    -- admit: permits that may still start, as leaders of their batches
    select due_at is null, not_before, payload_bytes, batch_limit
    from attempts indexed by attempts_admitted
    where destination_id = ?1 and state = 'admitted' and deadline >= ?2
    order by not_before, permit";

const NEXT_DUE: &str = "
    -- admit: when the next of the others is due
    select due_at from attempts indexed by attempts_due
    where destination_id = ?1 and state = 'waiting' and due_at is not null and due_at > ?2
    order by due_at limit 1";

const REPUBLISHED: &str = "
    -- admit: permits that still have time
    select id, permit, epoch, not_before, deadline from attempts indexed by attempts_admitted
    where destination_id = ?1 and state = 'admitted' and deadline > ?2
    order by not_before, permit";

const MARK_ADMITTED: &str = "
    -- admit: a permit
    update attempts
    set state = 'admitted', permit = ?2, epoch = ?3, not_before = ?4, deadline = ?5, coarse = ?6,
        crowded = ?7, admitted_at = ?8
    where id = ?1 and state = 'waiting'";

const REMEMBER: &str = "
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
pub(super) const MEASURED: [&str; 5] = [DESTINATION, FIRST_ATTEMPTS, DUE, NEXT_DUE, MARK_ADMITTED];

/// Decides and marks; see [`engine::ports::Store::admit`].
pub(super) fn admit_runs(
    tx: &Transaction<'_>,
    now: Timestamp,
    runs: &[Run],
    room: &Room,
) -> Result<Admitted, Fault> {
    let mut seen = HashSet::new();
    let mut read = |run: &Run| {
        // A destination that is named twice is decided once: the second
        // decision would not know of the first.
        match seen.insert(run.destination) {
            true => Candidate::read(tx, now, run),
            false => Ok(None),
        }
    };
    let read: Result<Vec<_>, Fault> = runs.iter().map(&mut read).collect();
    let candidates = read?;
    let mut decisions: Vec<Option<Decision>> = (candidates.iter())
        .map(|candidate| candidate.as_ref().map(|one| one.decide(u32::MAX, now)))
        .collect();
    let asks: Vec<Ask> = (candidates.iter().zip(&decisions))
        .filter_map(|(candidate, decision)| Some(candidate.as_ref()?.ask(decision.as_ref()?)))
        .collect();
    let mut shares = share_between_tenants(room, &asks).into_iter();
    let mut given = Vec::with_capacity(asks.len());
    for (candidate, decision) in candidates.iter().zip(&mut decisions) {
        let (Some(candidate), Some(decision)) = (candidate, decision) else {
            continue;
        };
        let places = shares.next().unwrap_or(0);
        if places < wants(decision) {
            *decision = candidate.decide(places, now);
        }
        given.push((candidate.tenant, wants(decision)));
    }
    let given = Given::by_tenant(given.into_iter());
    let mut seen = HashSet::new();
    let mut results = Vec::with_capacity(runs.len());
    for ((run, candidate), decision) in runs.iter().zip(candidates).zip(decisions) {
        let known = !seen.insert(run.destination);
        results.push(match (candidate, decision) {
            (Some(candidate), Some(decision)) => candidate.carry_out(tx, now, decision)?,
            _ if known => RunResult::Skipped,
            _ => RunResult::Gone,
        });
    }
    Ok(Admitted {
        now,
        results,
        given,
    })
}

fn wants(decision: &Decision) -> u32 {
    u32::try_from(decision.slots.len()).unwrap_or(u32::MAX)
}

/// A destination that a run decides about, as the rows say.
struct Candidate {
    destination: DestinationId,
    tenant: TenantId,
    tenant_max_in_flight: Option<u32>,
    key: String,
    policy: Policy,
    epoch: Epoch,
    last_permit: i64,
    usage: Usage,
    /// What is due, in the order in which it goes.
    due: Vec<AttemptId>,
    backlog: Backlog,
    republished: Vec<Permit>,
    /// Its last tries have failed.
    failing: bool,
}

impl Candidate {
    /// `None` if there is no such destination any more.
    fn read(tx: &Transaction<'_>, now: Timestamp, run: &Run) -> Result<Option<Self>, Fault> {
        let key = run.destination.to_string();
        let read = first(tx, DESTINATION, [&key], |row| {
            let smart = Effective {
                per_second: row.get(26)?,
                max_in_flight: row.get(27)?,
            };
            let configured = settings(row, 0)?.or_tier(&settings(row, 9)?).policy();
            let mut policy = configured.slowed(smart);
            let state: DestinationState = word(row, 18, ("destinations", "state"))?;
            if state != DestinationState::Active {
                policy.rate = Rate::Paused;
            }
            let usage = Usage {
                meter: Meter {
                    missing_micro: row.get(21)?,
                    as_of: maybe_time(row, 22)?.unwrap_or(Timestamp::MIN),
                },
                recount: row.get(24)?,
                held_until: maybe_time(row, 23)?,
                deferred_until: maybe_time(row, 33)?,
                probing: row.get(25)?,
                ..Usage::default()
            };
            let tenant: TenantId = word(row, 28, ("tenants", "id"))?;
            let tenant = (tenant, row.get(29)?);
            let batch = batch_settings(row, 30)?.rules();
            let failing = is_failing(row.get(34)?, usage.probing);
            Ok((
                policy,
                Epoch(row.get(19)?),
                row.get(20)?,
                usage,
                tenant,
                batch,
                failing,
            ))
        })?;
        let Some((policy, epoch, last_permit, mut usage, tenant, batch, failing)) = read else {
            return Ok(None);
        };
        read_usage(tx, now, &key, &policy, &mut usage)?;
        let asked = Asked {
            destination: &key,
            number: last_permit + 1,
            most: read_ahead(&policy),
            batch,
        };
        let (due, backlog) = read_backlog(tx, now, &asked)?;
        let republished = match run.republish {
            true => republished(tx, now, run.destination, &key)?,
            false => Vec::new(),
        };
        let (tenant, tenant_max_in_flight) = tenant;
        Ok(Some(Self {
            destination: run.destination,
            tenant,
            tenant_max_in_flight,
            key,
            policy,
            epoch,
            last_permit,
            usage,
            due,
            backlog,
            republished,
            failing,
        }))
    }

    fn ask(&self, decision: &Decision) -> Ask {
        Ask {
            tenant: self.tenant,
            wants: wants(decision),
            tenant_max_in_flight: self.tenant_max_in_flight,
        }
    }

    fn decide(&self, places: u32, now: Timestamp) -> Decision {
        admit(&self.policy, &self.usage, &self.backlog, places, now)
    }

    /// Marks the chosen attempts and remembers the look.
    fn carry_out(
        self,
        tx: &Transaction<'_>,
        now: Timestamp,
        decision: Decision,
    ) -> Result<RunResult, Fault> {
        let mut last_permit = self.last_permit;
        let mut permits = self.republished;
        for (attempt, slot) in self.due.iter().zip(&decision.slots) {
            last_permit += 1;
            let permit = Permit {
                destination: self.destination,
                attempt: *attempt,
                number: PermitNumber(last_permit),
                epoch: self.epoch,
                not_before: slot.not_before,
                deadline: slot.deadline,
            };
            let flags = (self.policy.is_coarse(), decision.crowded);
            mark_admitted(tx, now, &permit, flags)?;
            permits.push(permit);
        }
        let next_look_at = decision.looks_help_from(&self.usage, now);
        let meter = decision.meter;
        let charged = meter.as_of > Timestamp::MIN;
        let row = (
            &self.key,
            last_permit,
            meter.missing_micro,
            charged.then(|| meter.as_of.as_micros()),
            self.epoch.0,
            now.as_micros(),
            next_look_at.map(Timestamp::as_micros),
        );
        execute(tx, REMEMBER, row)?;
        Ok(RunResult::Decided {
            permits,
            look: decision.look,
            blocked: decision.blocked,
            failing: self.failing,
        })
    }
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
    let Some(read) = Candidate::read(tx, now, &run)? else {
        return Ok(None);
    };
    let mut usage = Usage {
        recount: true,
        coarse: Vec::new(),
        ..read.usage
    };
    read_usage(tx, now, &read.key, &read.policy, &mut usage)?;
    Ok(Some(Reading {
        policy: read.policy,
        usage,
        backlog: read.backlog,
        tenant: (read.tenant, read.tenant_max_in_flight),
    }))
}

fn mark_admitted(
    tx: &Transaction<'_>,
    now: Timestamp,
    permit: &Permit,
    (coarse, crowded): (bool, bool),
) -> Result<(), Fault> {
    let slot = Slot {
        not_before: permit.not_before,
        deadline: permit.deadline,
    };
    let row = (
        permit.attempt.0,
        permit.number.0,
        permit.epoch.0,
        slot.not_before.as_micros(),
        slot.deadline.as_micros(),
        coarse,
        crowded,
        now.as_micros(),
    );
    execute(tx, MARK_ADMITTED, row)?;
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
/// are batches, what opens them.
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
    let (firsts, others) = (read(FIRST_ATTEMPTS)?, read(DUE)?);
    let (due, next_batch) = match asked.batch {
        Some(rules) => batched(tx, now, asked, &rules, (firsts, others, cut))?,
        None => {
            let ids = |line: InLine| line.into_iter().map(|(id, _)| id).collect();
            let most = usize::try_from(limit).unwrap_or(usize::MAX);
            (in_turn(ids(firsts), ids(others), asked.number, most), None)
        }
    };
    let next_due = first(tx, NEXT_DUE, (destination, now.as_micros()), |row| {
        time(row, 0)
    })?;
    let reaped_by = some_expired.then(|| now + LOOK_AFTER_EXPIRED);
    let next_due = next_due.into_iter().chain(reaped_by).chain(next_batch);
    let backlog = Backlog {
        due: u32::try_from(due.len()).unwrap_or(u32::MAX),
        next_due: next_due.min(),
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
    (firsts, others, cut): (InLine, InLine, bool),
) -> Result<(Vec<AttemptId>, Option<Timestamp>), Fault> {
    let waiting = |line: &InLine| line.iter().map(|(_, waiting)| *waiting).collect();
    let lines = Lines {
        firsts: waiting(&firsts),
        due: waiting(&others),
        promised: all(tx, PROMISED, (asked.destination, now.as_micros()), |row| {
            let leader = batch::Waiting {
                since: time(row, 1)?,
                bytes: row.get(2)?,
                limit: row.get(3)?,
            };
            Ok((row.get(0)?, leader))
        })?,
        cut,
    };
    let openings = openings(rules, &lines, (asked.number, asked.most), now);
    let leader = |leader: &Leader| match leader {
        Leader::First(place) => firsts[*place].0,
        Leader::Due(place) => others[*place].0,
    };
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
