//! What every [`Backlog`] and [`Replays`] must do, beside the
//! [`Store`](engine::ports::Store) that they are: one test per sentence of the
//! ports' documentation, and the share between first attempts and retries.
//! [`backlog_contract!`](crate::backlog_contract) turns it into tests.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use domain::attempt::OutcomeKind;
use domain::event::{Audience, NewEvent};
use domain::ids::{AttemptId, DestinationId, EventId, ReplayId, WorkerId};
use domain::permit::Permit;
use domain::retry::RetrySettings;
use uuid::Uuid;

use super::store::World;
use engine::ports::{
    Acceptance, Backlog, DEFAULT_TENANT, DeadLetter, DeadLetterFilter, NewReplay, NextTry,
    Overview, ReapRules, Reaped, Replay, Replays, RetryRules, Which,
};

pub mod batches;
pub mod cancel;
pub mod dead_letters;
pub mod expire;
pub mod replay;
pub mod resend;
pub mod rules;
pub mod search;
pub mod turns;
pub mod urgent;

/// A [`World`], and the other ports of its store.
pub struct BacklogWorld {
    world: World,
    /// The store under test.
    pub backlog: Arc<dyn Backlog>,
    /// The same store.
    pub replays: Arc<dyn Replays>,
    /// As people look at it.
    pub overview: Arc<dyn Overview>,
}

impl Deref for BacklogWorld {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl BacklogWorld {
    /// The world of a store, with its other ports.
    pub fn new<S: Backlog + Replays + Overview + 'static>(world: World, store: Arc<S>) -> Self {
        Self {
            world,
            backlog: store.clone(),
            replays: store.clone(),
            overview: store,
        }
    }

    /// An event of this type for a destination, or for all who subscribe to the type.
    pub async fn typed(&self, event_type: &str, to: Option<DestinationId>) -> NewEvent {
        NewEvent {
            id: self.dated_id().await,
            event_type: Some(event_type.to_owned()),
            audience: to.map_or(Audience::Subscribers, Audience::Destination),
            ..self.event(DestinationId(Uuid::nil()))
        }
    }

    /// Accepts this event.
    pub async fn accept_one(&self, event: &NewEvent) -> EventId {
        let answers = self.store.accept_events(std::slice::from_ref(event)).await;
        let answers = answers.unwrap();
        assert!(
            matches!(answers[..], [Acceptance::Accepted(_)]),
            "{answers:?}"
        );
        event.id
    }

    /// Sets a destination's policy and the age of its events.
    pub async fn rules(&self, of: DestinationId, policy: RetrySettings, max_age: Option<Duration>) {
        let rules = RetryRules { policy, max_age };
        let set = self.backlog.set_retry_rules(DEFAULT_TENANT, of, &rules);
        set.await.unwrap();
    }

    /// Admits and starts whatever can.
    pub async fn start_all(&self, worker: WorkerId, of: DestinationId) -> Vec<Permit> {
        let permits = self.admit(of).await;
        self.start(worker, &permits).await;
        permits
    }

    /// Accepts `count` events and gives them all up.
    pub async fn die(&self, of: DestinationId, count: usize) -> Vec<AttemptId> {
        self.accept(of, count).await;
        let worker = self.worker().await;
        let permits = self.start_all(worker, of).await;
        for permit in &permits {
            self.record(worker, permit, OutcomeKind::Failed, NextTry::DeadLetter)
                .await;
        }
        // A replay is of what died before it.
        self.pass(Duration::from_millis(50)).await;
        permits.iter().map(|permit| permit.attempt).collect()
    }

    /// Destinations with dead letters that match, from pages of so many.
    pub async fn with_dead_letters(
        &self,
        filter: &DeadLetterFilter,
        limit: u32,
    ) -> Vec<DestinationId> {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page =
                (self.backlog).destinations_with_dead_letters(DEFAULT_TENANT, filter, after, limit);
            let page = page.await.unwrap();
            assert!(page.destinations.len() <= limit as usize);
            found.extend(page.destinations);
            after = match page.next {
                Some(next) => Some(next),
                None => return found,
            };
        }
    }

    /// All dead letters that match, on pages of two.
    pub async fn dead_letters(&self, filter: &DeadLetterFilter) -> Vec<DeadLetter> {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = self.backlog.dead_letters(DEFAULT_TENANT, filter, after, 2);
            let page = page.await.unwrap();
            assert!(page.dead_letters.len() <= 2, "a page is of two");
            found.extend(page.dead_letters);
            after = match page.next {
                Some(next) => Some(next),
                None => return found,
            };
        }
    }

    /// Begins a replay.
    pub async fn replay_of(&self, which: Which, share: f64) -> ReplayId {
        let id = ReplayId(self.id());
        let new = NewReplay { id, which, share };
        let created = self.backlog.create_replay(DEFAULT_TENANT, &new).await;
        assert_eq!(created.unwrap().id, id);
        id
    }

    /// How far it is.
    pub async fn replay(&self, id: ReplayId) -> Replay {
        self.backlog.replay(DEFAULT_TENANT, id).await.unwrap()
    }

    /// One step of all replays: how many were moved.
    pub async fn advance(&self) -> u32 {
        self.replays.advance_replays(10).await.unwrap().replayed
    }

    /// Reaps what is over; takes no start for lost.
    pub async fn reap(&self) -> Reaped {
        const NEVER: Duration = Duration::from_secs(86_400);
        let rules = ReapRules {
            heartbeat_timeout: NEVER,
            start_timeout: NEVER,
            permit_grace: Duration::from_millis(1),
            everything: true,
        };
        self.store.reap(&rules, 100).await.unwrap()
    }
}

/// Declares one `#[tokio::test]` for each test of the contract.
///
/// `$world` is an async function without arguments that returns something that
/// dereferences to a fresh [`BacklogWorld`] and lives as long as the test.
#[macro_export]
macro_rules! backlog_contract {
    ($world:path) => {
        $crate::backlog_contract!(@module $world, turns:
            while_both_wait_permits_go_in_turn
            one_permit_a_run_goes_in_turn_as_well
            what_waits_alone_gets_all
        );
        $crate::backlog_contract!(@module $world, urgent:
            of_four_first_attempts_three_are_urgent
            one_permit_a_run_keeps_the_share_beside_retries
            a_lane_alone_gets_all
            a_permit_that_comes_back_keeps_its_place
            what_is_meant_for_later_is_in_no_hurry
            what_is_sent_again_keeps_its_lane
            what_was_never_sent_keeps_its_lane
            a_retry_is_in_no_lane
            a_batch_is_of_one_lane
            all_lanes_are_cancelled
            an_urgent_event_grows_too_old
        );
        $crate::backlog_contract!(@module $world, batches:
            settings_are_read_as_they_were_set
            nonsense_is_refused_by_its_field
            a_full_batch_is_one_start
            a_member_is_its_event
            events_of_any_day_are_one_batch
            a_batch_is_full_by_its_bytes
            nobody_waits_for_longer_than_the_wait
            nobody_waits_for_longer_than_half_of_an_age
            a_limit_counts_batches
            what_is_promised_is_not_admitted_again
            what_was_due_before_its_leader_is_carried
            what_is_too_old_is_not_carried
            a_split_batch_comes_back_in_halves
            each_event_has_its_own_outcome
            a_revocation_returns_the_leader_alone
            a_batch_starts_once
            turning_it_on_or_off_revokes
            a_lapsed_workers_batch_becomes_unknown
            a_batch_is_given_up_in_steps
            a_lost_batch_is_split_when_batches_are_off
            a_halved_retry_is_the_next_try
            a_late_success_of_a_batch_cancels_its_retries
            a_failed_batch_is_one_failure
            firsts_and_retries_open_batches_in_turn
        );
        $crate::backlog_contract!(@module $world, rules:
            rules_are_read_as_they_were_set
            nonsense_is_refused_by_its_field
            the_policy_comes_with_the_start
            a_change_of_the_rules_revokes_nothing
            an_unknown_try_is_the_last_by_the_policy
        );
        $crate::backlog_contract!(@module $world, expire:
            what_is_too_old_expires_and_is_a_dead_letter
            what_is_too_old_is_not_admitted
            what_has_started_does_not_expire
            an_event_says_when_it_is_due_and_too_old
            what_is_meant_for_later_starts_then
            a_retry_is_as_old_as_its_event
            an_age_holds_for_events_accepted_after_it
            an_event_is_as_old_as_the_tier_says_where_its_destination_says_nothing
            another_age_of_the_tier_holds_for_events_accepted_after_it
            what_is_sent_again_is_as_old_as_the_tier_says
        );
        $crate::backlog_contract!(@module $world, cancel:
            all_that_has_not_started_is_cancelled
            cancelling_goes_in_bounded_steps
            only_what_matches_is_cancelled
            one_is_cancelled_until_it_starts
            a_cancelled_permit_frees_its_place
            another_tenant_cancels_nothing
        );
        $crate::backlog_contract!(@module $world, dead_letters:
            a_dead_letter_says_why_when_and_what_was_answered
            dead_letters_are_paged_by_when_they_died
            dead_letters_are_found_by_filter
            another_tenant_sees_none
        );
        $crate::backlog_contract!(@module $world, resend:
            an_event_is_sent_again_whatever_became_of_it
            an_event_is_sent_to_another_destination
            what_a_destination_has_missed_is_sent_again
            one_with_a_filter_is_sent_what_went_there
            a_time_and_a_type_are_sent_again
            what_was_answered_so_is_sent_again
            a_part_of_an_id_is_sent_again
            a_resend_keeps_to_its_share_and_is_cancelled
            several_at_once_send_each_once
            what_has_no_payload_any_more_is_skipped
            what_would_be_sent_again_is_counted
            a_count_says_that_there_may_be_more
            what_has_an_older_id_is_counted
            older_ids_alone_say_nothing_of_more
            another_tenant_sends_nothing_again
        );
        $crate::backlog_contract!(@module $world, search:
            events_are_found_by_when_they_were_accepted
            events_are_found_by_their_destination
            events_are_found_by_a_part_of_their_id_or_their_key
            events_found_say_when_they_are_due
            a_page_of_events_examines_so_many
            attempts_are_found_by_what_is_known_of_them
            attempts_are_found_by_their_status
            events_are_found_by_the_status_of_an_attempt
            attempts_are_found_by_their_event
            an_attempt_went_where_its_destination_was_then
        );
        $crate::backlog_contract!(@module $world, replay:
            one_is_replayed_once
            what_was_not_sent_is_still_the_replays
            a_replay_keeps_to_its_share
            only_what_matches_and_died_before_is_replayed
            several_at_once_move_each_once
            a_replay_is_cancelled
            a_paused_destination_replays_nothing
            a_member_replays_no_faster_than_its_group_allows
            a_replay_of_a_destination_that_is_gone_ends
            tries_count_from_the_replay
            a_late_success_cancels_what_was_replayed
            replays_are_listed
            destinations_with_dead_letters_are_found
            a_destination_with_too_many_dead_letters_is_named
            tenants_take_turns
            a_slow_replay_holds_up_no_other
            so_many_of_a_tenant_run_at_once
        );
    };
    (@module $world:path, $module:ident: $($test:ident)+) => {
        mod $module {
            $crate::tests_of!($world, $crate::backlog::$module: $($test)+);
        }
    };
}
