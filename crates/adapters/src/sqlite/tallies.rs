//! What came of requests, counted; see [`engine::ports::Tallies`].
//!
//! A step shares the writer's thread with the path of events, so it is short.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use domain::attempt::AttemptState;
use domain::health::{FAILING_PERCENT, Failing, LastDay, Slot, Tally, Took};
use domain::ids::{DestinationId, TenantId};
use domain::time::Timestamp;
use engine::ports::{
    CatalogError, GLANCE_ANSWERS, GLANCE_SAMPLE, MAX_GLANCED, Outcomes, StoreError, TALLIED_BEFORE,
    Tallied, TalliedSlot, Tallies, TallyRules, Told, lately,
};
use rusqlite::{Row, Transaction};

use super::SqliteStore;
use super::fault::Fault;
use super::overview::answers;
use super::rows::{all, execute, first, maybe_time, parse, time, word};
use super::watch::{note, tenants};

/// Destinations that one step looks at, whatever the rules say.
const MAX_LOOKS: u32 = 50;

/// Starts that one step counts, of all destinations; one more destination may be begun.
const MAX_STARTS: u64 = 5_000;

const TAKE_TURN: &str = "
    -- tally: how far the round has come and whether it leaves something, if a step is due
    select after, is_cut from tally_turn where id = 1 and due_at <= ?1";

const END_TURN: &str = "
    -- tally: the next step
    update tally_turn set after = ?1, due_at = ?2, is_cut = ?3 where id = 1";

const PASSED: &str = "
    -- tally: the next destinations
    select d.id, d.tenant_id, max(coalesce(m.until, d.created_at), ?3), p.looked_at,
        coalesce(h.failures, 0), d.alert_failing_percent, m.failing_since,
        coalesce(m.failing_told, 0), m.last_failed_at, m.last_failed_status
    from destinations d
    left join pacing p on p.destination_id = d.id
    left join health h on h.destination_id = d.id
    left join tally_marks m on m.destination_id = d.id
    where d.deleted_at is null and d.id > ?1
    order by d.id limit ?2";

const STARTED: &str = "
    -- tally: what has started since
    select * from (
        select * from (
            select started_at, state, status, finished_at from ledger indexed by ledger_starts
            where destination_id = ?1 and folded = 0 and carried_by is null
                and started_at >= ?2 and started_at < ?3
            order by started_at, id limit ?4
        )
        union all
        select * from (
            select started_at, state, status, finished_at from ledger indexed by ledger_starts
            where destination_id = ?1 and folded = 1 and carried_by is null
                and started_at >= ?2 and started_at < ?3
            order by started_at, id limit ?4
        )
    )
    order by started_at limit ?4";

const OPEN_SINCE: &str = "
    -- tally: since when something has no outcome yet
    select min(claimed_at) from deliveries indexed by deliveries_held
    where destination_id = ?1 and state = 'started' and permit is not null
        and carried_by is null";

const ADD: &str = "
    -- tally: add to a slot
    insert into tallies
        (destination_id, slot, ends_at, succeeded, failed, refused, unknown, latencies)
    values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
    on conflict do update
    set succeeded = succeeded + excluded.succeeded, failed = failed + excluded.failed,
        refused = refused + excluded.refused, unknown = unknown + excluded.unknown,
        latencies = excluded.latencies";

const LATENCIES: &str = "
    -- tally: how long the answers of a slot took, as far as they are counted
    select latencies from tallies where destination_id = ?1 and slot = ?2 and ends_at = ?3";

const MARK: &str = "
    -- tally: mark
    insert into tally_marks (destination_id, until, last_failed_at, last_failed_status,
        failing_since, failing_told)
    values (?1, ?2, ?3, ?4, ?5, ?6)
    on conflict do update
    set until = excluded.until, last_failed_at = excluded.last_failed_at,
        last_failed_status = excluded.last_failed_status,
        failing_since = excluded.failing_since, failing_told = excluded.failing_told";

const TRIM: &str = "
    -- tally: slots that nobody asks for any more
    delete from tallies where (destination_id, slot, ends_at) in (
        select destination_id, slot, ends_at from tallies
        where slot = ?1 and ends_at < ?2 limit ?3
    )";

const TALLIED: &str = "
    -- tallied
    select ends_at, succeeded, failed, refused, unknown, latencies from tallies
    where destination_id = ?1 and slot = ?2 and ends_at > ?3 and ends_at <= ?4
    order by ends_at";

const LAST_FAILURE: &str = "
    -- outcomes: the last failure
    select last_failed_at, last_failed_status from tally_marks where destination_id = ?1";

#[async_trait]
impl Tallies for SqliteStore {
    async fn tally(&self, rules: &TallyRules) -> Result<Tallied, StoreError> {
        let rules = *rules;
        Ok(self.write(move |tx, now| step(tx, now, &rules)).await?)
    }

    async fn tallied(
        &self,
        destination: DestinationId,
        slot: Slot,
        since: Timestamp,
    ) -> Result<Vec<TalliedSlot>, CatalogError> {
        let key = destination.to_string();
        let span = (since, Timestamp::MAX);
        Ok(self.count(move |tx| slots(tx, &key, slot, span)).await?)
    }

    async fn outcomes(
        &self,
        destinations: &[DestinationId],
    ) -> Result<Vec<Outcomes>, CatalogError> {
        let asked = destinations.len().min(MAX_GLANCED);
        let (ids, now) = (destinations[..asked].to_vec(), (self.clock)());
        let step =
            move |tx: &Transaction<'_>| ids.iter().map(|id| outcomes(tx, now, *id)).collect();
        Ok(self.count(step).await?)
    }
}

fn step(tx: &Transaction<'_>, now: Timestamp, rules: &TallyRules) -> Result<Tallied, Fault> {
    let turn = first(tx, TAKE_TURN, [now.as_micros()], |row| {
        Ok((row.get::<_, Option<String>>(0)?, row.get::<_, bool>(1)?))
    })?;
    let Some((after, was_cut)) = turn else {
        return Ok(Tallied::default());
    };
    let kept = (now - Slot::Hour.kept()).as_micros();
    let page = (after.unwrap_or_default(), rules.page, kept);
    let passed = all(tx, PASSED, page, Passed::read)?;
    let mut tallied = Tallied {
        stepped: true,
        more: u32::try_from(passed.len()).is_ok_and(|length| length >= rules.page),
        ..Tallied::default()
    };
    let (mut looks, mut last, mut is_cut) = (0, None, was_cut);
    for mut one in passed {
        if one.is_due() {
            if looks >= rules.looks.min(MAX_LOOKS) || tallied.counted >= MAX_STARTS {
                tallied.more = true;
                break;
            }
            looks += 1;
            let before = one.clone();
            let (counted, cut) = one.add(tx, (now - rules.settled, rules.starts))?;
            tallied.counted += counted;
            is_cut |= cut;
            if let Some(told) = one.look(tx, (rules.told_after, now))? {
                note(tx, now, &told)?;
                tallied.news.push(told);
            }
            if one != before {
                one.write(tx)?;
            }
        }
        last = Some(one.key);
    }
    for slot in Slot::ALL {
        let before = (now - slot.kept()).as_micros();
        execute(tx, TRIM, (slot.as_str(), before, rules.trimmed))?;
    }
    tenants::trim(tx, now, rules.trimmed)?;
    // At the end of a round that leaves something the next one begins soon.
    let next = last.filter(|_| tallied.more);
    let leaves = is_cut && tallied.more;
    tallied.more |= is_cut;
    let pause = if tallied.more {
        rules.pace
    } else {
        rules.every
    };
    let due_at = now + pause;
    execute(tx, END_TURN, (next, due_at.as_micros(), leaves))?;
    Ok(tallied)
}

/// A destination that the round passes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Passed {
    key: String,
    tenant: String,
    /// Every start before that is counted.
    until: Timestamp,
    looked_at: Option<Timestamp>,
    failures: u32,
    failing_percent: u32,
    failing: Option<Failing>,
    last_failed_at: Option<Timestamp>,
    last_failed_status: Option<u16>,
}

impl Passed {
    fn read(row: &Row<'_>) -> Result<Self, Fault> {
        let told: bool = row.get(7)?;
        let set: Option<u32> = row.get(5)?;
        Ok(Self {
            key: row.get(0)?,
            tenant: row.get(1)?,
            until: time(row, 2)?,
            looked_at: maybe_time(row, 3)?,
            failures: row.get(4)?,
            failing_percent: set.unwrap_or(FAILING_PERCENT),
            failing: maybe_time(row, 6)?.map(|since| Failing { since, told }),
            last_failed_at: maybe_time(row, 8)?,
            last_failed_status: row.get(9)?,
        })
    }

    /// Whether it may have started something, or its owner may have to be told.
    fn is_due(&self) -> bool {
        let admitted = self
            .looked_at
            .is_some_and(|at| at >= self.until - TALLIED_BEFORE);
        admitted || self.failing.is_some()
    }

    /// Counts what has started before `until` and up to the first that has no outcome
    /// yet: how many that were, and whether there may be more.
    fn add(
        &mut self,
        tx: &Transaction<'_>,
        (until, starts): (Timestamp, u32),
    ) -> Result<(u64, bool), Fault> {
        let starts = starts.max(2);
        // Its start is not known yet, but that it is no earlier than its claim.
        let open = first(tx, OPEN_SINCE, [&self.key], |row| maybe_time(row, 0))?.flatten();
        let until = open.map_or(until, |open| until.min(open));
        let params = (&self.key, self.until.as_micros(), until.as_micros(), starts);
        let rows: Vec<Started> = all(tx, STARTED, params, Started::read)?;
        let (Some(Started { at: first, .. }), Some(Started { at: last, .. })) =
            (rows.first(), rows.last())
        else {
            // Nothing more of it is looked for, once it has long been idle.
            if self.until < until - TALLIED_BEFORE {
                self.until = until;
            }
            return Ok((0, false));
        };
        let full = u32::try_from(rows.len()).is_ok_and(|length| length >= starts);
        // The last ones of the same instant may be cut off.
        let cut = full.then(|| (*last).max(*first + Duration::from_micros(1)));
        let edge = cut.unwrap_or(until).min(until);
        let mut slots: BTreeMap<(Slot, Timestamp), (Tally, Took)> = BTreeMap::new();
        let mut counted = 0;
        for one in rows.into_iter().filter(|one| one.at < edge) {
            counted += 1;
            for slot in Slot::ALL {
                let (tally, took) = slots.entry((slot, slot.end_of(one.at))).or_default();
                tally.count(one.state, one.status);
                one.took.into_iter().for_each(|latency| took.add(latency));
            }
            if Tally::is_failure(one.state, one.status) {
                self.last_failed_at = Some(one.at);
                self.last_failed_status = one.status;
            }
        }
        self.until = edge;
        for (slot, counts) in slots {
            if slot.0 == Slot::Minutes {
                tenants::add(tx, &self.tenant, (slot.1, &counts.0))?;
            }
            add_slot(tx, &self.key, slot, counts)?;
        }
        Ok((counted, full))
    }

    /// Whether it begins to fail or has recovered, where that may be.
    fn look(
        &mut self,
        tx: &Transaction<'_>,
        (told_after, now): (Duration, Timestamp),
    ) -> Result<Option<Told>, Fault> {
        let since = now - GLANCE_ANSWERS;
        let failed_lately = self.last_failed_at.is_some_and(|at| at > since);
        if !failed_lately && self.failing.is_none() && self.failures == 0 {
            return Ok(None);
        }
        let found = answers(tx, &self.key, (since, GLANCE_SAMPLE))?;
        let lately = lately(&found);
        let by = (self.failures, self.failing_percent);
        let (failing, news) = Failing::look(self.failing, &lately, by, (told_after, now));
        self.failing = failing;
        let Some(news) = news else {
            return Ok(None);
        };
        Ok(Some(Told {
            destination: Some(parse::<DestinationId>(&self.key, ("destinations", "id"))?),
            tenant: parse::<TenantId>(&self.tenant, ("destinations", "tenant_id"))?,
            news,
        }))
    }

    fn write(&self, tx: &Transaction<'_>) -> Result<(), Fault> {
        let at = |time: Option<Timestamp>| time.map(Timestamp::as_micros);
        let row = (
            &self.key,
            self.until.as_micros(),
            at(self.last_failed_at),
            self.last_failed_status,
            at(self.failing.map(|failing| failing.since)),
            self.failing.is_some_and(|failing| failing.told),
        );
        execute(tx, MARK, row)?;
        Ok(())
    }
}

/// What has started, and what came of it.
struct Started {
    at: Timestamp,
    state: AttemptState,
    status: Option<u16>,
    /// If it was answered.
    took: Option<Duration>,
}

impl Started {
    fn read(row: &Row<'_>) -> Result<Self, Fault> {
        let at = time(row, 0)?;
        let (state, status) = (word(row, 1, ("attempts", "state"))?, row.get(2)?);
        let finished_at = maybe_time(row, 3)?.filter(|_| Tally::is_answered(state, status));
        Ok(Self {
            at,
            state,
            status,
            took: finished_at.map(|finished_at| finished_at.since(at)),
        })
    }
}

fn add_slot(
    tx: &Transaction<'_>,
    key: &str,
    (slot, ends_at): (Slot, Timestamp),
    (tally, mut took): (Tally, Took),
) -> Result<(), Fault> {
    let place = (key, slot.as_str(), ends_at.as_micros());
    took += first(tx, LATENCIES, place, |row| latencies(row, 0))?.unwrap_or_default();
    let latencies = serde_json::json!(took.counts()).to_string();
    let row = (
        key,
        slot.as_str(),
        ends_at.as_micros(),
        number(tally.succeeded),
        number(tally.failed),
        number(tally.refused),
        number(tally.unknown),
        latencies,
    );
    execute(tx, ADD, row)?;
    Ok(())
}

/// As an array of JSON.
fn latencies(row: &Row<'_>, index: usize) -> Result<Took, Fault> {
    let text: String = row.get(index)?;
    let counts: Vec<u64> = serde_json::from_str(&text).map_err(|error| {
        Fault::from(StoreError::Corrupt {
            table: "tallies",
            column: "latencies",
            row: text,
            problem: error.to_string(),
        })
    })?;
    Ok(Took::of(counts))
}

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn slots(
    tx: &Transaction<'_>,
    destination: &str,
    slot: Slot,
    (since, until): (Timestamp, Timestamp),
) -> Result<Vec<TalliedSlot>, Fault> {
    let (since, until) = (since.as_micros(), until.as_micros());
    let params = (destination, slot.as_str(), since, until);
    all(tx, TALLIED, params, |row| {
        Ok(TalliedSlot {
            ends_at: time(row, 0)?,
            tally: Tally {
                succeeded: row.get::<_, i64>(1)?.unsigned_abs(),
                failed: row.get::<_, i64>(2)?.unsigned_abs(),
                refused: row.get::<_, i64>(3)?.unsigned_abs(),
                unknown: row.get::<_, i64>(4)?.unsigned_abs(),
            },
            took: latencies(row, 5)?,
        })
    })
}

fn outcomes(tx: &Transaction<'_>, now: Timestamp, id: DestinationId) -> Result<Outcomes, Fault> {
    let key = id.to_string();
    let sum = |slot, span| -> Result<Tally, Fault> {
        let mut sum = Tally::default();
        let slots = slots(tx, &key, slot, span)?;
        slots.into_iter().for_each(|one| sum += one.tally);
        Ok(sum)
    };
    let last = LastDay::before(now);
    let hour = sum(Slot::Minutes, (now - Slot::Hour.length(), Timestamp::MAX))?;
    let mut day = sum(Slot::Minutes, (last.since, last.hours_from))?;
    day += sum(Slot::Hour, (last.hours_from, Timestamp::MAX))?;
    let last_failure = first(tx, LAST_FAILURE, [&key], |row| {
        Ok(maybe_time(row, 0)?.zip(Some(row.get(1)?)))
    })?;
    Ok(Outcomes {
        destination: id,
        hour,
        day,
        last_failure: last_failure.flatten(),
    })
}
