//! A step of the watch.

use std::collections::BTreeSet;
use std::ops::Bound;

use domain::ids::DestinationId;
use domain::time::Timestamp;
use domain::watch::{Around, Sight, Watch, is_looked_at, shortfall};
use engine::ports::{DEFAULT_TENANT, Told, WatchRules, Watched};

use super::admit::reading;
use super::fleet::fleet;
use super::rows::Rows;

/// One step; see [`engine::ports::Operations::watch`].
pub(super) fn step(rows: &mut Rows, now: Timestamp, rules: &WatchRules) -> Watched {
    let (after, due_at) = rows.news.turn;
    if due_at > now {
        return Watched::default();
    }
    add_up_dead_letters(rows);
    let mut watched = Watched {
        stepped: true,
        ..Watched::default()
    };
    let round = round(rows, after);
    let (mut counted, mut last) = (0_u32, after);
    let mut passed = 0;
    for id in &round {
        let full = watched.looked >= rules.looks || counted >= rules.counted;
        if full || passed >= rules.page {
            break;
        }
        passed += 1;
        let remembered = rows.news.watches.contains_key(id);
        if is_looked_at(remembered, oldest(rows, *id, now), (rules.patience, now)) {
            watched.looked += 1;
            counted = counted.saturating_add(look(rows, *id, (rules, now), &mut watched));
        }
        last = Some(*id);
    }
    watched.more = (passed as usize) < round.len();
    for told in &watched.news {
        let news = (told.news.event_type.as_str(), told.news.details.clone());
        (rows.news).note(now, (told.destination, told.tenant), news);
    }
    let pause = match watched.more {
        true => rules.pace,
        false => rules.every,
    };
    rows.news.turn = (last.filter(|_| watched.more), now + pause);
    watched
}

fn add_up_dead_letters(rows: &mut Rows) {
    for (id, died) in std::mem::take(&mut rows.ledger.tallies) {
        rows.news.watches.entry(id).or_default().dead_letters += died;
    }
}

/// Those with work, and those of which something is remembered.
fn round(rows: &Rows, after: Option<DestinationId>) -> BTreeSet<DestinationId> {
    let after = after.map_or(Bound::Unbounded, Bound::Excluded);
    let busy = rows.ledger.busy.range((after, Bound::Unbounded)).copied();
    let at_work = busy.filter(|id| rows.ledger.waiting(*id) > 0);
    let watches = rows.news.watches.range((after, Bound::Unbounded));
    at_work.chain(watches.map(|(id, _)| *id)).collect()
}

/// Since when the first of what is due waits.
pub(super) fn oldest(rows: &Rows, id: DestinationId, now: Timestamp) -> Option<Timestamp> {
    let indexes = rows.ledger.indexes(id)?;
    let first = indexes.first.first().and_then(|id| rows.ledger.get(*id));
    let due = indexes.due.first().map(|(at, _)| *at);
    let due = due.filter(|at| *at <= now);
    first.map(|row| row.created_at).into_iter().chain(due).min()
}

/// What one look comes to; how far it has counted.
fn look(
    rows: &mut Rows,
    id: DestinationId,
    (rules, now): (&WatchRules, Timestamp),
    watched: &mut Watched,
) -> u32 {
    let tenant = rows.tenant_of(id).unwrap_or(DEFAULT_TENANT);
    let mut watch = rows.watch(id);
    let mut backlog = 0;
    if rows.living(id).is_none() {
        watch = Watch::default();
    } else {
        let settings = rows.news.alerts_of(id);
        let waiting = u32::try_from(rows.ledger.waiting(id)).unwrap_or(u32::MAX);
        backlog = waiting.min(watch.count_up_to(&settings));
        let oldest = oldest(rows, id, now);
        let held_for = rows.health.get(&id).and_then(|health| health.hold);
        let held_for = held_for.map(|hold| hold.reason);
        let most = rows.tenant_max_in_flight.get(&tenant).copied();
        let around = Around::of(&fleet(rows, now), (held_for, oldest), (tenant, most));
        let sight = Sight {
            backlog,
            oldest,
            shortfall: reading(rows, now, id).and_then(|(policy, usage, backlog)| {
                shortfall(&policy, &usage, &backlog, around, now)
            }),
        };
        let mut news = watch.look(&settings, &sight, (rules.patience, now));
        news.extend(watch.tell_dead_letters(rules.dead_letters_every, now));
        let told = |news| Told {
            destination: id,
            tenant,
            news,
        };
        watched.news.extend(news.into_iter().map(told));
    }
    match watch.is_well(rules.dead_letters_every, now) {
        true => rows.news.watches.remove(&id),
        false => rows.news.watches.insert(id, watch),
    };
    backlog
}
