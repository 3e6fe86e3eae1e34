//! Processes of ours that end, stop, or meet.

use super::By::{Chaos, Nothing, Test};
use super::Row;

pub(super) const ROWS: [Row; 21] = [
    Row {
        fault: "The API ends after the commit and before the wake",
        mechanism: "the sweep finds destinations with due work that nobody looked at",
        residue: "up to a second of latency",
        exercised: &[
            Test("due_work_that_nobody_looked_at_is_found"),
            Chaos("crash-after-accept"),
        ],
    },
    Row {
        fault: "The API ends before the commit, or its answer is lost",
        mechanism: "without a 202 nothing is promised; a request that was cut off is never said to be unwritten",
        residue: "a client that posts again without an idempotency key makes a second event",
        exercised: &[
            Test("a_request_that_is_cut_off_is_not_said_to_be_unwritten"),
            Chaos("crash-before-accept"),
            Chaos("kill-api"),
            Chaos("api-link-*"),
        ],
    },
    Row {
        fault: "The API freezes, or is told to stop",
        mechanism: "what was handed in is committed; clients find the other process",
        residue: "latency",
        exercised: &[
            Test("a_shutdown_commits_what_waits_and_refuses_what_comes"),
            Chaos("freeze-api"),
            Chaos("terminate-api"),
        ],
    },
    Row {
        fault: "The scheduler ends between S0 and S1: jobs are taken",
        mechanism: "taking pushes a job forward by its lease; it never leaves the schedule",
        residue: "one lease (1 s)",
        exercised: &[
            Test("a_lost_lease_shows_as_lapsed"),
            Chaos("crash-after-take"),
        ],
    },
    Row {
        fault: "… between S1 and S2: permits are admitted and not published",
        mechanism: "the run after a lapsed lease publishes what still has time; the reaper takes back the rest",
        residue: "at most the deadline (2 s)",
        exercised: &[
            Test("republish_returns_the_same_permits"),
            Test("an_expired_permit_waits_again"),
            Chaos("crash-after-admit"),
        ],
    },
    Row {
        fault: "… in S2: some of the permits are published",
        mechanism: "a permit starts once; the second message is refused",
        residue: "none",
        exercised: &[Test("a_permit_starts_once"), Chaos("crash-mid-publish")],
    },
    Row {
        fault: "… between S2 and S3: jobs are not finished",
        mechanism: "the next run counts the permits that are out",
        residue: "an empty run",
        exercised: &[
            Test("jobs_that_cannot_be_finished_are_left_to_their_leases"),
            Chaos("crash-after-publish"),
        ],
    },
    Row {
        fault: "The scheduler is killed or told to stop at any time",
        mechanism: "recovery is the normal path run again",
        residue: "one lease",
        exercised: &[
            Test("killed_processes_a_lost_schedule_and_a_deleted_queue_lose_nothing"),
            Chaos("kill-scheduler"),
            Chaos("terminate-scheduler"),
        ],
    },
    Row {
        fault: "Two schedulers have the same job: a lapsed lease, a freeze",
        mechanism: "the destination's row is locked and its starts are counted in a later statement",
        residue: "the loser looks again in 20 ms",
        exercised: &[
            Test("schedulers_that_meet_never_exceed_the_limit"),
            Test("a_count_in_the_statement_that_locks_is_stale_and_ours_is_not"),
            Chaos("freeze-scheduler"),
        ],
    },
    Row {
        fault: "A new attempt meets the removal of an idle job",
        mechanism: "`finish` compares the wake's generation; the sweep finds what slipped through",
        residue: "none",
        exercised: &[
            Test("no_wake_is_lost_between_look_and_removal"),
            Test("a_woken_job_is_not_removed"),
        ],
    },
    Row {
        fault: "The worker ends before W1: permits are in hand",
        mechanism: "unacknowledged messages come again; the claim decides",
        residue: "none; permits that wait for a dial are out of their messages, and wait for their deadline",
        exercised: &[
            Test("unsettled_messages_outlive_their_subscription"),
            Chaos("crash-after-receive"),
        ],
    },
    Row {
        fault: "… between W1 and W2: starts are recorded and nothing was sent",
        mechanism: "the start counts; the reaper makes it `unknown` and adds a retry",
        residue: "one start of the limit, unused",
        exercised: &[
            Test("a_lapsed_workers_start_becomes_unknown_with_a_retry"),
            Chaos("crash-after-claim"),
            Chaos("crash-after-settle"),
        ],
    },
    Row {
        fault: "… between W2 and W4: the receiver has the request and the store does not know",
        mechanism: "`unknown`, and a retry with the same event id",
        residue: "a duplicate, recorded as `unknown`: at least once has no better",
        exercised: &[
            Chaos("crash-after-send"),
            Chaos("crash-before-record"),
            Chaos("kill-worker"),
        ],
    },
    Row {
        fault: "… after W4, before anybody is woken",
        mechanism: "the sweep",
        residue: "up to a second of latency",
        exercised: &[
            Test("due_work_that_nobody_looked_at_is_found"),
            Chaos("crash-after-record"),
        ],
    },
    Row {
        fault: "A worker is told to stop",
        mechanism: "it takes nothing more, gives back what has not started, lets the rest finish and records it",
        residue: "what outlives the grace period becomes `unknown`",
        exercised: &[
            Test("what_has_started_finishes_and_is_recorded_before_retiring"),
            Chaos("terminate-worker"),
        ],
    },
    Row {
        fault: "A worker freezes with permits in hand, or is starved of time",
        mechanism: "a claim after the deadline is refused; after a slow claim, or where composing the request was slow, nothing is sent",
        residue: "a freeze exactly between the last look at the clock and the first byte",
        exercised: &[
            Test("a_late_claim_goes_back_to_waiting"),
            Test("a_start_that_was_claimed_too_slowly_is_not_sent"),
            Test("a_batch_that_took_too_long_to_compose_is_not_sent"),
            Test("a_request_may_arrive_after_its_own_retry"),
            Chaos("freeze-worker"),
        ],
    },
    Row {
        fault: "A worker that was taken for dead lives",
        mechanism: "a lapsed worker's claims are refused; its late outcome overwrites `unknown` and cancels a retry that has not started",
        residue: "a duplicate if the retry has started",
        exercised: &[
            Test("a_lapsed_worker_is_refused_for_ever"),
            Test("a_late_success_overwrites_unknown_and_cancels_the_retry"),
            Chaos("freeze-worker"),
        ],
    },
    Row {
        fault: "A worker's heartbeat hangs, or its new name cannot be written, and it is the only one",
        mechanism: "it claims nothing under a name that the store has not seen, or may have given up: what it held is not refused, admitted and refused again",
        residue: "it holds permits until their deadlines meanwhile; the store is asked once in 2 s",
        exercised: &[
            Test("nothing_is_claimed_under_a_name_that_the_store_has_not_seen"),
            Test("a_name_that_may_have_lapsed_claims_once_in_a_permits_time"),
        ],
    },
    Row {
        fault: "The reaper comes back from a stall or an outage and sees stale heartbeats",
        mechanism: "workers get time to show themselves first",
        residue: "6 s more until a lost start is retried",
        exercised: &[
            Test("workers_get_time_to_show_themselves_after_the_store_was_away"),
            Test("workers_get_time_to_show_themselves_after_a_stall"),
        ],
    },
    Row {
        fault: "A notifier ends between its steps",
        mechanism: "what operators must know is written with what makes it true, and becomes its events where it is marked",
        residue: "none; a line of the log may be lost",
        exercised: &[
            Test("a_relay_that_stops_between_its_steps_has_done_nothing"),
            Test("a_watch_that_stops_between_its_steps_has_told_nothing"),
            Test("notifiers_that_are_killed_lose_and_repeat_nothing"),
            Test("a_real_receiver_is_told_once_and_signed_although_the_process_was_killed"),
            Chaos("crash-after-watch"),
            Chaos("crash-after-relay"),
        ],
    },
    Row {
        fault: "Two versions run side by side",
        mechanism: "the form of a message has a version; another one is a dead letter of the queue and the permit expires",
        residue: "one deadline",
        exercised: &[
            Test("other_versions_and_counts_are_refused"),
            Nothing("no earlier version exists to run beside this one"),
        ],
    },
];
