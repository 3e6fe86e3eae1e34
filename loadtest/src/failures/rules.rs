//! Changes by people, receivers that misbehave, and input that makes no sense.

use super::By::{Cast, Chaos, Nothing, Test};
use super::Row;

pub(super) const ROWS: [Row; 23] = [
    Row {
        fault: "A limit is lowered while permits are out",
        mechanism: "the change locks the destination and moves its permits back before it enters history",
        residue: "none",
        exercised: &[
            Test("a_cut_is_in_force_from_its_time_in_history"),
            Test("a_permit_from_before_a_cut_is_refused_and_one_from_before_a_raise_is_not"),
            Chaos("cut-limit"),
        ],
    },
    Row {
        fault: "A limit is raised while the destination is blocked",
        mechanism: "the change leaves a mark; the sweep wakes it within a second, whatever its floor",
        residue: "a second",
        exercised: &[
            Test("a_raise_by_sql_is_used_although_the_destination_was_blocked_for_an_hour"),
            Chaos("raise-limit"),
        ],
    },
    Row {
        fault: "A limit of zero, none, a huge or a negative one",
        mechanism: "zero pauses, none is the tier's, a huge one is counted coarsely, a negative one is refused",
        residue: "none",
        exercised: &[
            Test("a_limit_of_zero_pauses"),
            Test("without_limits_of_its_own_it_has_the_tiers"),
            Test("a_huge_limit_is_decided_from_two_hundred_buckets"),
            Test("nonsense_is_refused_by_the_constraints"),
        ],
    },
    Row {
        fault: "A destination is paused or deleted with permits out",
        mechanism: "a claim looks at its state; what waits goes back, or is cancelled with it",
        residue: "requests in flight finish",
        exercised: &[
            Test("a_paused_destination_refuses_claims"),
            Test("a_deleted_destination_refuses_claims"),
            Test("a_deleted_destinations_backlog_is_cancelled_in_steps"),
            Test("a_pass_costs_the_same_whatever_was_deleted"),
            Chaos("pause"),
            Chaos("delete-destination"),
        ],
    },
    Row {
        fault: "A receiver hangs, drips, resets or cuts",
        mechanism: "one deadline to the last byte; a bound on what is in flight at each destination",
        residue: "a failed try",
        exercised: &[
            Test("a_receiver_that_stalls_is_left_at_the_deadline"),
            Test("a_slow_drip_ends_at_the_deadline"),
            Chaos("receiver-link-*"),
        ],
    },
    Row {
        fault: "A connection to a receiver dies before the answer",
        mechanism: "the client never sends again by itself; a retry is an attempt with its own start",
        residue: "a duplicate, if the request had arrived",
        exercised: &[Test("nothing_is_sent_twice"), Chaos("receiver-link-reset")],
    },
    Row {
        fault: "A receiver ends a connection over HTTP/2 by GOAWAY, or refuses a stream",
        mechanism: "what it says that it has not looked at is `not_sent` and waits again with the same try; what it still finishes is answered, and the next request has another connection",
        residue: "a start of the limit for each; with more than 256 that no answer made up for, each more is a failure",
        exercised: &[
            Test("what_a_receiver_was_to_finish_no_more_is_not_sent"),
            Test("a_stream_that_is_refused_was_not_sent_and_any_other_reset_is_a_failure"),
            Test("one_that_only_refuses_fails_in_the_end"),
            Test("one_that_mostly_refuses_fails_in_the_end"),
            Test("what_a_receiver_has_not_looked_at_is_not_sent"),
        ],
    },
    Row {
        fault: "A receiver answers 429 or 503 with Retry-After",
        mechanism: "the destination is held for as long as it asks, an hour at most; a 429 costs \
            no try",
        residue: "requests that are under way when it begins to refuse",
        exercised: &[
            Test("a_receiver_that_asks_is_left_alone"),
            Test("a_429_holds_and_costs_no_try"),
            Test("a_receiver_that_asks_is_left_alone_and_its_backlog_drains"),
            Cast("asking for time"),
        ],
    },
    Row {
        fault: "A receiver takes less than its limit says, and does not say how much",
        mechanism: "with smart delivery an effective limit below the configured one follows its \
            answers; without it each 429 begins a hold",
        residue: "429s for about a minute, and after it fewer than one in a hundred",
        exercised: &[
            Test("a_hidden_capacity_is_found_within_a_minute_and_seldom_exceeded_after_it"),
            Test("the_configured_windows_hold_beside_it"),
            Cast("taking less"),
        ],
    },
    Row {
        fault: "A receiver answers what no table can hold, or what means nothing",
        mechanism: "its words are a line without control characters; what the store refuses all the same is recorded alone and without them; a 207 without a list is a failed try",
        residue: "a retry; of a batch in halves",
        exercised: &[
            Test("any_text_becomes_a_short_line"),
            Test("a_refused_outcome_is_recorded_alone_without_the_answer"),
            Cast("answering nonsense"),
        ],
    },
    Row {
        fault: "A receiver fails for hours",
        mechanism: "after 20 failures in a row over 5 s its breaker holds the backlog; one probe at a time, \
            at growing intervals; after five days it is disabled",
        residue: "20 tries, what was under way, and up to an hour after it is back",
        exercised: &[
            Test("failures_in_a_row_open_the_breaker"),
            Test("a_half_open_breaker_admits_one_probe"),
            Test("a_receiver_that_fails_for_long_is_probed_and_comes_back"),
            Cast("ill for a while"),
            Cast("not coming back"),
        ],
    },
    Row {
        fault: "An event fails for ever",
        mechanism: "eight tries, then a dead letter, which stays visible",
        residue: "none",
        exercised: &[
            Test("the_eighth_failure_is_a_dead_letter"),
            Test("an_unknown_last_try_is_a_dead_letter"),
            Test("dead_letters_and_cancelled_events_are_not_lost"),
        ],
    },
    Row {
        fault: "A backlog is cancelled, events expire, or dead letters are replayed, while processes end",
        mechanism: "each step is one commit: a row that is cancelled loses its permit in it, and a dead \
            letter is marked where its attempt is added",
        residue: "what is being claimed while its backlog is cancelled goes out; what has a permit when \
            it grows too old may start until its deadline",
        exercised: &[
            Test("all_that_has_not_started_is_cancelled"),
            Test("what_is_too_old_is_not_admitted"),
            Test("several_at_once_move_each_once"),
            Test("a_dead_letter_that_is_not_replayed_exactly_once_is_found"),
            Chaos("cancel-backlog"),
            Chaos("short-age"),
            Chaos("replay"),
        ],
    },
    Row {
        fault: "A secret is rotated while requests are under way",
        mechanism: "the change revokes permits as a change of the URL does, and workers read the secrets \
            before the next start; what has ended by a start's time does not sign it",
        residue: "none",
        exercised: &[
            Test("a_rotation_overlaps_and_ends"),
            Test("a_change_of_secrets_revokes"),
            Test("each_request_is_signed_by_the_secrets_in_force_and_by_no_other"),
            Chaos("rotate-secret"),
        ],
    },
    Row {
        fault: "A tenant hands in far more than the others, or names another's destination",
        mechanism: "places are shared between tenants first; each statement asks for the tenant, and what \
            is another's is answered as if it did not exist",
        residue: "others wait for their turn",
        exercised: &[
            Test("a_small_tenant_has_its_share_beside_a_greedy_one"),
            Test("another_tenants_key_reaches_nothing"),
            Test("an_event_that_reached_another_tenants_destination_is_found"),
            Cast("noisy 0"),
            Cast("quiet"),
        ],
    },
    Row {
        fault: "Tenants read all that they can, and their reads hang",
        mechanism: "a tenant gets another connection for reading while it has fewer than are free, and \
            one that comes free is for whoever has fewest; events and sign-in have others. SQLite \
            has one reader: there a read ends after 5 s, and the others wait for that",
        residue: "their own other reads wait, and are refused beyond their line",
        exercised: &[
            Test("reads_that_hang_hold_up_no_events_and_no_sign_in"),
            Test("two_that_want_all_leave_a_place_for_a_third"),
            Test("whoever_has_none_finds_any_place_that_is_free"),
        ],
    },
    Row {
        fault: "A transaction with rows of the outbox is rolled back, or its end is not known",
        mechanism: "a row is an event when its transaction has committed; one that is inserted again with \
            its event id is the same event",
        residue: "none",
        exercised: &[
            Test("a_row_is_an_event_when_its_transaction_commits_and_not_before"),
            Test("an_id_that_is_there_already_is_no_second_event"),
            Test("relays_that_are_killed_lose_and_repeat_nothing"),
            Test("an_event_that_was_rolled_back_and_is_there_is_found"),
        ],
    },
    Row {
        fault: "A message that nobody can read",
        mechanism: "it is a dead letter of the queue; the permit expires, the row is untouched",
        residue: "one deadline",
        exercised: &[
            Test("a_message_that_is_no_group_is_a_dead_letter"),
            Test("no_bytes_make_it_panic"),
        ],
    },
    Row {
        fault: "An attempt whose sending panics",
        mechanism: "the panic fails this one try",
        residue: "a dead letter after eight of them",
        exercised: &[Test("a_panic_of_the_sender_is_a_failed_try")],
    },
    Row {
        fault: "A row that makes no sense",
        mechanism: "it is given up alone, and the others are recorded",
        residue: "its start becomes `unknown`",
        exercised: &[Test("a_corrupt_row_is_given_up_alone")],
    },
    Row {
        fault: "A payload too large, or too many at once",
        mechanism: "sizes are checked as they come in; the bytes that wait are bounded; messages carry ids only",
        residue: "413, or 503 and later",
        exercised: &[
            Test("what_is_wrong_with_an_event_is_named"),
            Test("the_bytes_that_wait_are_bounded"),
            Test("one_permit_is_58_bytes_and_its_form_is_fixed"),
        ],
    },
    Row {
        fault: "More permits than places",
        mechanism: "a worker reads ahead no more than it can send; outstanding permits are bounded by the fleet's places",
        residue: "what finds no place is given back before its deadline",
        exercised: &[
            Test("prefetch_bounds_the_unsettled"),
            Test("admission_is_told_the_room_that_the_fleet_has"),
            Test("a_permit_that_finds_no_place_by_its_deadline_is_given_back"),
        ],
    },
    Row {
        fault: "Queries of people use up the connections",
        mechanism: "every process has a pool of its own; sessions time out on the server's side",
        residue: "the process's own loops wait up to 5 s for a connection",
        exercised: &[Nothing(
            "one process still shares one pool between its loops and its API",
        )],
    },
];
