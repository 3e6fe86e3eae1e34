//! What every store must do about what is over and old ([`Retain`]), beside the
//! [`Store`](engine::ports::Store) that it is.
//! [`retention_contract!`](crate::retention_contract) turns it into tests.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use domain::attempt::AttemptState;
use domain::ids::{DestinationId, EventId};
use domain::retention::{Kept, Retention};

use super::backlog::BacklogWorld;
use engine::ports::{CatalogError, DEFAULT_TENANT, Retain, RetainRules, Retained, Walk};

pub mod dead;
pub mod kept;
pub mod over;
pub mod walking;

/// A [`BacklogWorld`], and the port of this suite on the same store.
pub struct RetentionWorld {
    world: BacklogWorld,
    /// The store under test.
    pub retain: Arc<dyn Retain>,
}

impl Deref for RetentionWorld {
    type Target = BacklogWorld;

    fn deref(&self) -> &BacklogWorld {
        &self.world
    }
}

/// Nothing is deleted that the age of one thing does not name.
const KEEP: Retention = Retention::FOREVER;

/// What is over is old at once.
const NOW: Kept = Kept::For(Duration::ZERO);

/// Old is what ended longer ago than this.
const AGE: Duration = Duration::from_secs(5);

impl RetentionWorld {
    /// The world of a store, with this port of the same store.
    pub fn new(world: BacklogWorld, retain: Arc<dyn Retain>) -> Self {
        Self { world, retain }
    }

    /// One step.
    pub async fn step(&self, rules: &RetainRules) -> Retained {
        self.retain.retain(rules).await.unwrap()
    }

    /// Two whole rounds of every walk: what the first has made free is gone
    /// after the second. How many rows went.
    pub async fn retain(&self, keep: Retention) -> u32 {
        // What was recorded with an end a little ahead has ended.
        self.pass(Duration::from_millis(60)).await;
        self.round(keep, 1_000).await + self.round(keep, 1_000).await
    }

    async fn round(&self, keep: Retention, limit: u32) -> u32 {
        let rules = at_once(keep, limit);
        let (mut through, mut removed) = (BTreeSet::new(), 0);
        while through.len() < Walk::ALL.len() {
            self.pass(rules.rest + Duration::from_millis(1)).await;
            let retained = self.step(&rules).await;
            assert!(retained.examined <= limit && retained.removed <= 2 * limit);
            removed += retained.removed;
            through.extend(retained.walk.filter(|_| !retained.more));
        }
        removed
    }

    /// Accepts `count` events, and delivers them.
    pub async fn deliver(&self, to: DestinationId, count: usize) -> Vec<EventId> {
        let events = self.accept(to, count).await;
        let worker = self.worker().await;
        let permits = self.start_all(worker, to).await;
        assert_eq!(permits.len(), count);
        self.finish(worker, &permits).await;
        events
    }

    /// Whether the event is there.
    pub async fn knows(&self, event: EventId) -> bool {
        match self.catalog.event(DEFAULT_TENANT, event).await {
            Ok(_) => true,
            Err(CatalogError::NotFound("event")) => false,
            Err(other) => panic!("expected the event or none, got {other}"),
        }
    }

    /// The states of a destination's attempts, and of which events.
    pub async fn rows(&self, of: DestinationId) -> Vec<(EventId, AttemptState)> {
        let attempts = self.attempts(of).await;
        attempts.iter().map(|row| (row.event, row.state)).collect()
    }
}

/// Rules by which every walk is always due, and begins anew whenever it is
/// through.
fn at_once(keep: Retention, limit: u32) -> RetainRules {
    RetainRules {
        keep,
        limit,
        rest: Duration::from_millis(1),
        again: Duration::ZERO,
        pause_factor: 0,
        day_goes_first: Duration::ZERO,
        deleted_for: Duration::ZERO,
    }
}

/// Declares one `#[tokio::test]` for each test of the contract.
///
/// `$world` is an async function without arguments that returns something that
/// dereferences to a fresh [`RetentionWorld`] and lives as long as the test.
#[macro_export]
macro_rules! retention_contract {
    ($world:path) => {
        $crate::retention_contract!(@module $world, over:
            payloads_go_before_the_ledger
            the_ledger_goes_whatever_the_end_was
            what_is_young_stays
            what_was_superseded_before_the_cut_goes
            what_a_start_that_is_left_was_made_under_stays
            replays_that_are_over_go
            a_deleted_destination_goes_once_nothing_of_it_is_left
            a_deleted_tenant_goes_with_its_last_destination
            a_destination_that_was_deleted_just_now_stays
        );
        $crate::retention_contract!(@module $world, kept:
            what_is_not_over_stays_however_old_it_is
            an_event_stays_while_one_destination_needs_it
            a_retry_finds_its_event
            nothing_goes_where_all_is_kept_for_ever
        );
        $crate::retention_contract!(@module $world, dead:
            a_dead_letter_keeps_its_row_and_its_event
            a_dead_letter_that_is_too_old_is_a_failed_attempt
            a_dead_letter_that_is_older_than_the_ledger_goes
            a_replayed_dead_letter_goes_with_the_ledger
            what_a_running_replay_awaits_stays
        );
        $crate::retention_contract!(@module $world, walking:
            a_step_is_bounded_and_the_next_goes_on
            a_walk_that_is_through_rests
            what_had_to_stay_is_looked_at_again
            what_is_new_is_found_without_beginning_anew
        );
    };
    (@module $world:path, $module:ident: $($test:ident)+) => {
        mod $module {
            $crate::tests_of!($world, $crate::retention::$module: $($test)+);
        }
    };
}
