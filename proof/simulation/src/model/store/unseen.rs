//! A transaction that stays open: what it has inserted has its ids, holds its keys,
//! and is not seen before the commit.

use std::time::Duration;

use domain::event::NewEvent;
use domain::ids::{AttemptId, DestinationId};
use domain::time::Timestamp;
use engine::ports::Acceptance;

use super::{ModelStore, ingest};

/// How old a first attempt has to be for admission to go past it, and never look
/// back by itself: ids are given in order, and do not become visible in order.
const CURSOR_AGE: Duration = Duration::from_secs(30);

/// What such a transaction has inserted.
#[derive(Debug)]
pub struct Unseen {
    since: Timestamp,
    events: Vec<(NewEvent, Vec<DestinationId>, Vec<AttemptId>)>,
}

impl ModelStore {
    /// Accepts these events in a transaction that stays open; `None` if there is
    /// nothing to insert, or another one holds one of their keys.
    #[must_use]
    pub fn accept_unseen(&self, events: &[NewEvent]) -> Option<Unseen> {
        self.step(|rows, since| {
            if ingest::is_held_up(rows, events) {
                return None;
            }
            let mut inside = rows.clone();
            let answers = ingest::accept_events(&mut inside, since, events);
            let mut inserted = Vec::new();
            for (event, answer) in events.iter().zip(answers) {
                let Acceptance::Accepted(to) = answer else {
                    continue;
                };
                if rows.events.contains_key(&event.id) {
                    continue;
                }
                let ids = to.iter().map(|_| rows.ledger.next_id()).collect();
                rows.keys.hold(ingest::key(event));
                inserted.push((event.clone(), to, ids));
            }
            (!inserted.is_empty()).then_some(Unseen {
                since,
                events: inserted,
            })
        })
    }

    /// It commits. The attempts that are there now.
    pub fn commit_unseen(&self, unseen: Unseen) -> Vec<AttemptId> {
        self.step(|rows, now| {
            let passed = now.since(unseen.since) > CURSOR_AGE;
            let mut all = Vec::new();
            for (event, to, ids) in unseen.events {
                rows.keys.let_go(ingest::key(&event));
                ingest::insert(rows, unseen.since, &event, &to, &ids);
                ingest::take_key(rows, unseen.since, &event);
                if passed {
                    for (destination, attempt) in to.iter().zip(&ids) {
                        rows.ledger.pass(*destination, *attempt);
                    }
                }
                all.extend(ids);
            }
            all
        })
    }
}
