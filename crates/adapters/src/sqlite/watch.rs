//! A step of the watch.
//!
//! It shares the writer's thread with the path of events, so it is short: a
//! few destinations are looked at, and backlogs counted a little way.

mod rows;
pub(super) mod tenants;

use domain::time::{Timestamp, micros};
use domain::watch::{Around, Sight, is_looked_at, shortfall};
use engine::ports::{Fleet, MAX_TALLIES, Told, WatchRules, Watched};
use rusqlite::Transaction;

use super::admit;
use super::fault::Fault;
use super::fleet::fleet;
use super::rows::{all, execute, first};
use super::secrets;
use super::sweep::Hops;
use rows::Passed;
pub(super) use rows::alerts;

/// Destinations that one step looks at, whatever the rules say.
const MAX_LOOKS: u32 = 20;

/// How far one step counts, likewise; one more may be begun.
const MAX_COUNTED: u32 = 20_000;

/// The rounds: by their numbers in `watch_turn`.
const DESTINATIONS: i64 = 1;
const TENANTS: i64 = 2;

const TAKE_TURN: &str = "
    -- watch: how far the round has come, if a step is due
    select after from watch_turn where id = ?2 and due_at <= ?1";

const END_TURN: &str = "
    -- watch: the next step
    update watch_turn set after = ?1, due_at = ?2 where id = ?3";

const TALLIES: &str = "
    -- watch: dead letters, by whose they are
    select destination_id, tenant_id, count(*) from (
        select destination_id, tenant_id from dead_letter_tallies order by id limit ?1
    ) group by destination_id, tenant_id";

const ADD_UP: &str = "
    -- watch: so many more
    insert into watches (destination_id, tenant_id, dead_letters) values (?1, ?2, ?3)
    on conflict (destination_id) do update
    set dead_letters = dead_letters + excluded.dead_letters";

const FORGET_TALLIES: &str = "
    -- watch: they are added up
    delete from dead_letter_tallies
    where id in (select id from dead_letter_tallies order by id limit ?1)";

const NEXT_WATCH: &str = "
    -- watch: the next destination of which something is remembered
    select destination_id from watches where destination_id > ?1
    order by destination_id limit 1";

pub(super) const COUNT_FIRST: &str = "
    -- watch: the backlog, counted so far: first attempts
    select min(line_length(?1), ?2)";

pub(super) const COUNT_DUE: &str = "
    -- watch: the backlog, counted so far: the others
    select count(*) from (
        select 1 from deliveries indexed by deliveries_due
        where destination_id = ?1 and permit is null and due_at is not null limit ?2
    )";

const NOTE: &str = "
    -- watch: what operators must know
    insert into operational_events (event_type, destination_id, tenant_id, details, created_at)
    values (?1, ?2, ?3, ?4, ?5)";

/// The statements of a step that meet the backlog, for the test of what they
/// cost.
#[cfg(test)]
pub(super) const MEASURED: [&str; 3] = [rows::PASSED, COUNT_FIRST, COUNT_DUE];

/// One step; see [`engine::ports::Operations::watch`].
pub(super) fn step(
    tx: &Transaction<'_>,
    now: Timestamp,
    rules: &WatchRules,
) -> Result<Watched, Fault> {
    let turn = first(tx, TAKE_TURN, (now.as_micros(), DESTINATIONS), |row| {
        Ok(row.get::<_, Option<String>>(0)?)
    })?;
    let Some(after) = turn else {
        return Ok(Watched::default());
    };
    let more_died = add_up_dead_letters(tx)?;
    let fleet = fleet(tx, now)?;
    let mut watched = Watched {
        stepped: true,
        ..Watched::default()
    };
    let mut round = Round::after(tx, after.clone().unwrap_or_default())?;
    let (mut counted, mut last) = (0_u32, after);
    for _ in 0..rules.page {
        let full = watched.looked >= rules.looks.min(MAX_LOOKS)
            || counted >= rules.counted.min(MAX_COUNTED);
        if full {
            break;
        }
        let Some(key) = round.next()? else {
            break;
        };
        if let Some(mut passed) = Passed::read(tx, now, &key)?
            && is_looked_at(passed.remembered, passed.oldest, (rules.patience, now))
        {
            watched.looked += 1;
            let sight = look(tx, now, &passed, &fleet)?;
            counted = counted.saturating_add(sight.backlog);
            watched.news.extend(passed.judge(&sight, rules, now));
            passed.write(tx, rules, now)?;
        }
        last = Some(key);
    }
    watched.more = round.has_more();
    let (of_tenants, more_tenants) = tenants::step(tx, now, rules)?;
    watched.news.extend(of_tenants);
    for told in &watched.news {
        note(tx, now, told)?;
    }
    let next = last.filter(|_| watched.more);
    let pause = match watched.more || more_died || more_tenants {
        true => rules.pace,
        false => rules.every,
    };
    execute(
        tx,
        END_TURN,
        (
            next,
            now.as_micros().saturating_add(micros(pause)),
            DESTINATIONS,
        ),
    )?;
    Ok(watched)
}

/// Whether there may be more.
fn add_up_dead_letters(tx: &Transaction<'_>) -> Result<bool, Fault> {
    let tallies = all(tx, TALLIES, [MAX_TALLIES], |row| {
        Ok((
            row.get::<_, String>(0)?,
            row.get::<_, String>(1)?,
            row.get::<_, i64>(2)?,
        ))
    })?;
    if tallies.is_empty() {
        return Ok(false);
    }
    for tally in tallies {
        execute(tx, ADD_UP, tally)?;
    }
    let taken = execute(tx, FORGET_TALLIES, [MAX_TALLIES])?;
    Ok(u32::try_from(taken).is_ok_and(|taken| taken >= MAX_TALLIES))
}

/// The destinations with work, and those of which something is remembered.
struct Round<'a> {
    tx: &'a Transaction<'a>,
    hops: Hops<'a>,
    at_work: Option<String>,
    watched: Option<String>,
}

impl<'a> Round<'a> {
    fn after(tx: &'a Transaction<'a>, after: String) -> Result<Self, Fault> {
        let mut hops = Hops::beyond(tx, &after)?;
        let at_work = hops.next()?;
        let watched = next_watch(tx, &after)?;
        Ok(Self {
            tx,
            hops,
            at_work,
            watched,
        })
    }

    fn has_more(&self) -> bool {
        self.at_work.is_some() || self.watched.is_some()
    }

    fn next(&mut self) -> Result<Option<String>, Fault> {
        let next = (self.at_work.iter().chain(&self.watched)).min().cloned();
        if let Some(key) = &next {
            if self.at_work.as_ref() == Some(key) {
                self.at_work = self.hops.next()?;
            }
            if self.watched.as_ref() == Some(key) {
                self.watched = next_watch(self.tx, key)?;
            }
        }
        Ok(next)
    }
}

fn next_watch(tx: &Transaction<'_>, after: &str) -> Result<Option<String>, Fault> {
    first(tx, NEXT_WATCH, [after], |row| Ok(row.get(0)?))
}

/// What is found at one.
fn look(
    tx: &Transaction<'_>,
    now: Timestamp,
    passed: &Passed,
    fleet: &Fleet,
) -> Result<Sight, Fault> {
    let far = passed.count_up_to();
    let mut backlog = 0_u32;
    for count in [COUNT_FIRST, COUNT_DUE] {
        if far > 0 {
            let counted: Option<u32> = first(tx, count, (&passed.key, far), |row| Ok(row.get(0)?))?;
            backlog = backlog.saturating_add(counted.unwrap_or(0)).min(far);
        }
    }
    let reading = admit::reading(tx, now, passed.id)?;
    let trouble = secrets::token_trouble(tx, passed.id)?;
    let no_token = trouble.is_some_and(|trouble| trouble.stands(now));
    let shortfall = reading.and_then(|reading| {
        let around = Around::of(fleet, (passed.held_for, passed.oldest), reading.tenant)
            .without_token(no_token);
        shortfall(
            &reading.policy,
            &reading.usage,
            &reading.backlog,
            around,
            now,
        )
    });
    Ok(Sight {
        backlog,
        oldest: passed.oldest,
        shortfall,
    })
}

pub(super) fn note(tx: &Transaction<'_>, now: Timestamp, told: &Told) -> Result<(), Fault> {
    let row = (
        told.news.event_type.as_str(),
        told.destination.map(|id| id.to_string()),
        told.tenant.to_string(),
        &told.news.details,
        now.as_micros(),
    );
    execute(tx, NOTE, row)?;
    Ok(())
}
