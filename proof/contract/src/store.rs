//! What every [`Store`](engine::ports::Store) and [`Catalog`](engine::ports::Catalog) must do: one test per sentence of the
//! ports' documentation.
//!
//! A test takes a [`World`]: a fresh, migrated store and two back doors, one
//! for SQL (as a user's own tool would run it) and one for time. All times are
//! of the store's clock, so the same suite runs on a store whose clock the
//! test moves and on one where time really has to pass.
//! [`store_contract!`](crate::store_contract) turns the whole suite into tests.

mod world;

pub mod admission;
pub mod answers;
pub mod catalog;
pub mod claim;
pub mod coarse;
pub mod filters;
pub mod fleet;
pub mod handshake;
pub mod health;
pub mod held;
pub mod idempotency;
pub mod ingest;
pub mod ledger;
pub mod limit_groups;
pub mod limits;
pub mod managers;
pub mod margin;
pub mod reap;
pub mod record;
pub mod secrets;
pub mod sends;
pub mod shapes;
pub mod smart;
pub mod sweep;
pub mod tenants;
pub mod traces;

pub use world::{Backdoor, DestinationBuilder, World};

/// Declares one `#[tokio::test]` for each test of the store's contract.
///
/// `$world` is an async function without arguments that returns something that
/// dereferences to a fresh [`World`] and lives as long as the test.
#[macro_export]
macro_rules! store_contract {
    ($world:path) => {
        $crate::store_contract!(@module $world, ingest:
            an_accepted_event_waits_at_its_destination
            accepting_an_id_again_adds_nothing
            an_id_that_is_known_outlives_its_destination
            where_an_event_went_is_not_told_to_another_tenant
            a_refused_event_does_not_touch_the_others
            events_fan_out_by_type_and_star
            events_fan_out_by_the_beginning_of_their_type
            who_subscribes_goes_by_the_destination
            an_event_that_nobody_subscribes_to_is_accepted
            a_paused_destination_still_accepts
            payloads_come_back_byte_for_byte
            an_event_for_nobody_is_refused_where_there_has_to_be_somebody
            what_goes_to_many_is_to_each_as_if_it_were_alone
            what_goes_to_very_many_is_written_in_parts
        );
        $crate::store_contract!(@module $world, filters:
            an_event_goes_where_filters_take_it
            an_event_that_names_its_destination_passes_its_filter
            an_event_that_no_filter_takes_is_for_nobody
            a_repeated_event_goes_where_it_went
            a_filter_is_changed_and_removed
            a_filter_is_set_by_sql
            subscribers_count_whatever_their_filters_say
            filters_in_the_store_say_what_they_say_outside
        );
        $crate::store_contract!(@module $world, idempotency:
            the_same_key_and_content_is_the_same_event
            the_same_key_for_something_else_is_refused
            a_key_is_of_its_tenant
            keys_in_one_batch_are_answered_in_order
            a_repeated_request_is_answered_whatever_became_of_the_destination
            a_refused_event_takes_no_key
            a_key_that_has_expired_is_free
            more_expired_keys_than_a_pass_deletes_are_told_of
            one_of_many_at_once_is_accepted
            a_batch_that_is_tried_again_is_repeated
        );
        $crate::store_contract!(@module $world, admission:
            no_window_holds_more_than_the_limit
            a_permit_counts_to_its_deadline_not_to_its_slot
            a_start_counts_from_its_claim_on
            a_destination_named_twice_is_decided_once
            first_attempts_are_admitted_in_creation_order
            permit_numbers_never_repeat
            republish_returns_the_same_permits
            republish_leaves_out_what_has_no_time_left
            room_is_shared_between_the_runs
            who_becomes_short_of_places_is_woken_by_one_that_is_out
            a_paused_destination_admits_nothing
            a_limit_of_zero_pauses
            max_in_flight_holds_until_an_outcome
            a_destination_that_is_gone_says_so
            a_retry_is_admitted_when_it_is_due
        );
        $crate::store_contract!(@module $world, shapes:
            two_limits_hold_at_once
            a_token_bucket_has_its_capacity_and_its_refill
            a_bucket_counts_permits_that_have_not_started
            a_leaky_bucket_spaces_its_starts
            a_bucket_that_comes_into_force_counts_the_starts_before_it
            a_bucket_after_a_bucket_beside_a_window_counts_the_starts
            another_url_does_not_fill_the_bucket
            a_smaller_bucket_does_not_pay_for_the_larger_ones_burst
            unlimited_is_bounded_by_max_in_flight_alone
            without_limits_of_its_own_it_has_the_tiers
            one_limit_of_its_own_is_not_the_tiers
        );
        $crate::store_contract!(@module $world, limit_groups:
            members_share_what_their_group_allows
            no_window_of_a_group_holds_more_than_its_limit
            members_that_run_at_once_do_not_both_take_what_is_free
            a_member_keeps_its_own_limit
            what_one_that_left_started_counts
            a_deleted_member_has_left_and_its_starts_count
            one_that_joins_gives_its_permits_back
            a_cut_of_a_group_revokes_what_its_members_have_out
            a_group_of_zero_pauses_its_members
            groups_are_the_tenants
            a_group_has_so_many_members_and_no_more
        );
        $crate::store_contract!(@module $world, coarse:
            a_coarse_limit_counts_started_and_finished
            what_is_recorded_together_counts_each_its_own_way
            a_limit_that_becomes_coarse_counts_what_started_before
        );
        $crate::store_contract!(@module $world, claim:
            a_claim_records_its_start
            an_early_claim_is_told_how_long_to_wait
            a_slot_within_the_head_start_is_its_start
            a_permit_starts_once
            a_permit_that_is_early_twice_is_told_so_twice
            a_stale_number_is_refused_and_touches_nothing
            a_permit_for_another_destination_is_refused
            another_destinations_permit_is_not_released
            a_late_claim_goes_back_to_waiting
            an_unknown_worker_is_refused
            a_retired_worker_is_refused
            a_lapsed_worker_is_refused_for_ever
            a_permit_that_its_worker_cannot_use_is_free
            a_paused_destination_refuses_claims
            a_deleted_destination_refuses_claims
            a_changed_url_refuses_claims
            answers_are_in_the_order_of_the_permits
            events_of_any_day_start_together
            a_released_permit_waits_again
            a_deferred_destination_is_not_admitted
            releasing_is_idempotent_and_by_number
            targets_are_of_the_present_epoch
        );
        $crate::store_contract!(@module $world, record:
            a_success_is_final
            a_list_shows_the_beginning_of_a_body
            a_failure_adds_a_retry_that_is_due_later
            a_dead_letter_adds_nothing
            not_sent_again_keeps_the_try_number
            recording_again_changes_nothing
            a_wrong_worker_or_number_changes_nothing
            a_late_success_overwrites_unknown_and_cancels_the_retry
            a_late_success_cancels_what_its_batch_adds
            a_late_success_leaves_a_started_retry_alone
            a_late_failure_adds_no_second_retry
        );
        $crate::store_contract!(@module $world, sends:
            a_start_is_the_send
            a_failed_start_is_its_send_too
            until_it_is_known_a_start_is_its_latest
            a_reported_send_is_the_start
            a_report_that_is_not_its_own_changes_nothing
            a_limit_counts_from_the_send
            a_bucket_is_recounted_from_claims
        );
        $crate::store_contract!(@module $world, margin:
            a_margin_is_measured_unless_one_is_set
            what_workers_say_is_joined
            two_that_are_first_are_joined
            another_receiver_is_measured_anew
            a_window_is_longer_by_its_margin
            a_change_of_the_margin_revokes_unless_it_is_none
            the_cap_of_a_margin_is_its_owners
        );
        $crate::store_contract!(@module $world, answers:
            a_request_counts_until_its_answer_and_a_period
            one_that_nobody_answers_counts_to_its_time_out
            one_that_ended_without_an_answer_counts_to_its_time_out
            answers_and_requests_under_way_share_the_limit
            what_started_before_answers_counted_counts_by_its_start
            a_change_of_what_counts_revokes
        );
        $crate::store_contract!(@module $world, health:
            a_receiver_that_asks_is_left_alone
            no_slot_lies_within_a_hold
            a_429_holds_and_costs_no_try
            a_success_forgets_the_refusals_before_it
            any_other_failure_costs_a_try
            refusals_do_not_open_the_breaker
            failures_in_a_row_open_the_breaker
            a_success_and_a_failure_count_the_same_together_or_apart
            a_crowd_that_fails_together_is_one_failure
            failures_open_the_breaker_when_they_go_on
            a_run_says_who_is_failing
            what_was_not_sent_is_no_failure
            a_half_open_breaker_admits_one_probe
            a_failed_probe_waits_for_longer
            a_probe_that_succeeds_closes_the_breaker
            a_breaker_is_set_by_its_owner
            a_receiver_that_is_gone_is_disabled
            a_receiver_that_says_disable_is_disabled
            resuming_forgets_and_drains
            a_resumed_backlog_keeps_the_limit
            another_url_forgets
            health_is_the_tenants
        );
        $crate::store_contract!(@module $world, handshake:
            nothing_starts_until_the_receiver_allows_it
            a_receiver_may_allow_any_rate
            a_refusal_revokes_what_was_allowed
            a_receiver_that_cannot_be_reached_keeps_what_it_allowed
            another_url_is_asked_anew
            it_is_turned_on_and_off
            it_is_asked_again_in_time_or_at_once
            what_is_disabled_or_deleted_is_not_asked
            questions_are_taken_in_turn
            tenants_take_turns_to_be_asked
            those_that_are_disabled_hold_up_no_other_tenant
            one_that_moves_is_asked_for_its_new_tenant
            handshakes_are_the_tenants
        );
        $crate::store_contract!(@module $world, smart:
            it_is_off_unless_asked_for
            a_refusal_cuts_and_its_burst_counts_once
            admission_plans_at_the_effective_limit
            it_begins_anew
            late_answers_of_another_receiver_say_nothing
            a_503_alone_is_noise
            successes_that_become_slow_cut
            a_higher_configured_limit_is_followed
            the_configured_windows_hold_beside_it
            a_lower_configured_limit_holds
            it_is_the_tenants
        );
        $crate::store_contract!(@module $world, reap:
            an_expired_permit_waits_again
            a_lapsed_workers_start_becomes_unknown_with_a_retry
            a_start_that_is_too_old_becomes_unknown
            an_unknown_last_try_is_a_dead_letter
            what_is_given_up_says_why
            what_is_given_up_together_is_tried_again_in_the_order_of_its_starts
            a_deleted_destinations_start_is_not_tried_again
            a_deleted_destinations_backlog_is_cancelled_in_steps
            permits_and_starts_that_are_over_can_be_looked_for_alone
            what_is_fresh_is_left_alone
        );
        $crate::store_contract!(@module $world, sweep:
            due_work_that_nobody_looked_at_is_found
            a_sweep_finds_each_however_much_waits
            new_work_does_not_wait_for_the_look_at_a_retry
            a_slot_that_nobody_used_does_not_wait_for_the_next
            what_is_looked_at_in_time_is_left_out
            a_sweep_of_marks_visits_nobody
            idle_and_paused_destinations_are_left_out
            a_resumed_destination_is_found
            everything_finds_retries_of_the_future
            everything_wakes_for_permits_before_a_retry_of_the_future
            pages_follow_each_other
            a_mark_is_woken_and_cleared
            a_mark_of_what_is_not_active_is_woken_too
            a_mark_made_again_survives
        );
        $crate::store_contract!(@module $world, fleet:
            live_workers_and_their_places_count
            a_retired_worker_does_not_count
            a_lapsed_worker_does_not_count_and_is_not_revived
            outstanding_permits_count
            empty_batches_touch_nothing
        );
        $crate::store_contract!(@module $world, tenants:
            tenants_share_before_their_destinations_do
            a_share_is_given_though_another_has_taken_the_room
            the_fleet_says_what_each_tenant_has
            a_tenants_max_in_flight_holds_over_all_its_destinations
        );
        $crate::store_contract!(@module $world, limits:
            a_lowered_limit_revokes_at_once
            a_cut_is_dated_after_starts_that_are_dated_ahead
            a_raised_limit_leaves_permits_alone
            a_change_of_shape_revokes
            no_limit_any_more_may_mean_the_tiers
            a_tiers_change_reaches_all_that_inherit
            a_tenants_change_of_tier_reaches_its_destinations
            a_change_through_the_catalog_is_the_same
            a_change_of_the_name_is_no_change
            history_begins_with_the_destination
            nonsense_is_refused_by_the_constraints
        );
        $crate::store_contract!(@module $world, secrets:
            a_destination_is_created_with_its_secrets
            a_refused_destination_leaves_no_secret
            a_rotation_overlaps_and_ends
            a_rotation_without_overlap_ends_the_old_one_at_once
            a_secret_that_ends_earlier_still_does
            another_kind_ends_the_old_one_as_well
            no_more_than_three_secrets_sign
            the_last_secret_is_not_deleted
            a_change_of_secrets_revokes
            headers_are_set_and_cleared
            a_new_url_and_its_headers_come_together
            another_tenant_has_no_say
            credentials_are_set_shown_and_cleared
            why_there_is_no_token_is_written_down
            a_deleted_destination_forgets_its_secrets
            secrets_under_other_keys_are_paged
            a_secret_is_sealed_anew_only_as_it_was_opened
            all_is_sealed_anew_without_a_new_epoch
            what_does_not_open_is_left
            ended_secrets_are_forgotten
        );
        $crate::store_contract!(@module $world, managers:
            a_managed_destination_is_held_from_the_start
            a_resource_has_one_destination
            a_refused_one_leaves_nothing
            what_is_held_is_not_given_away
            what_was_released_is_taken_over_by_its_name
            only_its_manager_lets_go
            one_of_the_same_name_is_found_while_nobody_manages_it
            a_deleted_destination_has_no_manager
            managers_are_of_their_tenant
            what_is_sealed_is_read_as_it_was
            managing_is_no_change
            what_is_held_is_seen_at_a_glance
        );
        $crate::store_contract!(@module $world, held:
            what_is_held_only_its_manager_changes
            what_was_let_go_its_manager_changes_no_more
            a_change_is_before_the_take_over_or_refused
            only_its_manager_ends_its_pause
        );
        $crate::store_contract!(@module $world, traces:
            a_start_has_its_events_trace
            an_event_without_a_trace_has_none
            who_is_told_is_by_the_epoch
        );
        $crate::store_contract!(@module $world, ledger:
            the_ledger_is_paged_by_start
            the_ledger_begins_and_ends_where_asked
            starts_are_read_backwards
            backlogs_are_counted_up_to_the_cap
        );
        $crate::store_contract!(@module $world, catalog:
            a_destination_is_read_as_it_was_created
            what_nobody_waits_for_is_not_asked
            a_destination_is_found_by_what_its_platform_calls_it
            a_change_leaves_the_rest_alone
            nonsense_is_refused_by_the_name_of_its_column
            a_deleted_destination_is_gone_and_its_ledger_stays
            another_tenant_sees_nothing
            destinations_are_paged_by_id
            destinations_are_read_together
            an_event_shows_its_attempts
            attempts_are_paged_newest_first
            a_migrated_store_is_ready
            recent_limits_are_the_end_of_limit_history
        );
    };
    (@module $world:path, $module:ident: $($test:ident)+) => {
        mod $module {
            $crate::tests_of!($world, $crate::store::$module: $($test)+);
        }
    };
}
