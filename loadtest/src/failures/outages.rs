//! Servers and links that go away, fill up, or lie about the time.

use super::By::{Chaos, Nothing, Test};
use super::Row;

pub(super) const ROWS: [Row; 23] = [
    Row {
        fault: "Redis restarts empty, or loses its keys",
        mechanism: "the ledger is in Postgres; another life of Redis is seen, and the schedule rebuilt",
        residue: "about a second",
        exercised: &[
            Test("a_wiped_server_shows_a_new_life_and_works"),
            Test("another_life_is_rebuilt_from_everything_and_noted_at_the_end"),
            Chaos("lose-schedule"),
            Chaos("kill-redis"),
        ],
    },
    Row {
        fault: "Redis comes back with old keys",
        mechanism: "its `run_id` has changed; jobs too many cost an empty run each",
        residue: "none",
        exercised: &[Test(
            "a_restart_from_a_snapshot_is_new_although_its_keys_survived",
        )],
    },
    Row {
        fault: "Redis is away, slow or silent",
        mechanism: "schedulers look for work in Postgres, at a bounded rate; scripts may run twice",
        residue: "a lookup each 250 ms",
        exercised: &[
            Test("without_the_schedule_work_is_found_in_the_store_at_a_bounded_rate"),
            Test("a_silent_connection_is_replaced"),
            Chaos("redis-link-*"),
        ],
    },
    Row {
        fault: "Redis is out of memory",
        mechanism: "an error is as if it were away",
        residue: "as above",
        exercised: &[Test(
            "without_the_schedule_work_is_found_in_the_store_at_a_bounded_rate",
        )],
    },
    Row {
        fault: "RabbitMQ restarts, its queue is purged or deleted",
        mechanism: "permits expire and are admitted again; connections are redialled, the queue is declared again",
        residue: "one deadline and the broker's own start",
        exercised: &[
            Test("a_deleted_queue_comes_back"),
            Test("a_purged_queue_goes_on"),
            Test("servers_that_restart_in_mid_run_lose_nothing"),
            Chaos("kill-rabbitmq"),
            Chaos("purge-queue"),
            Chaos("delete-queue"),
        ],
    },
    Row {
        fault: "A publisher's confirm is lost, or no queue takes the message",
        mechanism: "an unconfirmed permit is left to its deadline; a returned message is not a confirmed one",
        residue: "one deadline",
        exercised: &[
            Test("an_unconfirmed_permit_is_left_to_its_deadline"),
            Test("what_no_queue_takes_is_unconfirmed"),
        ],
    },
    Row {
        fault: "RabbitMQ blocks its publishers: memory or disk alarm",
        mechanism: "publishing and consuming have connections of their own; nothing is admitted while blocked",
        residue: "no starts while the alarm lasts",
        exercised: &[
            Test("a_memory_alarm_and_a_crash_are_survived"),
            Test("nothing_is_taken_while_the_queue_is_away_or_blocked"),
            Chaos("memory-alarm"),
        ],
    },
    Row {
        fault: "A connection to RabbitMQ hangs, dies or is cut",
        mechanism: "every step is bounded in time; each connection is redialled",
        residue: "redelivery of what was unacknowledged, which is refused",
        exercised: &[
            Test("a_broker_that_says_nothing_is_an_error"),
            Test("cut_and_dead_connections_are_redialled"),
            Chaos("rabbitmq-link-*"),
        ],
    },
    Row {
        fault: "Messages are redelivered, many at once",
        mechanism: "one start per permit",
        residue: "none",
        exercised: &[
            Test("a_permit_that_is_claimed_by_many_starts_once"),
            Test("a_permit_that_comes_twice_is_sent_once"),
            Chaos("rabbitmq-link-reset"),
        ],
    },
    Row {
        fault: "A message is held longer than the broker allows",
        mechanism: "no message is held longer than the last deadline of its permits; a slot farther away is given back",
        residue: "none",
        exercised: &[Test("a_slot_farther_away_than_anybody_plans_is_given_back")],
    },
    Row {
        fault: "Postgres restarts, or a connection to it is reset",
        mechanism: "202 only after the commit; a claim whose answer is lost sends nothing; an outcome is recorded again",
        residue: "starts without an answer become `unknown`",
        exercised: &[
            Test("after_an_error_of_the_claim_nothing_is_sent_or_given_back"),
            Test("what_could_not_be_recorded_is_recorded_again_unchanged"),
            Chaos("kill-postgres"),
            Chaos("postgres-link-*"),
        ],
    },
    Row {
        fault: "Postgres fails over to a replica that lacks commits",
        mechanism: "a synchronous standby is required",
        residue: "without one: events, starts and outcomes of the gap",
        exercised: &[Nothing(
            "a failover needs a replica; a changed timeline is not watched",
        )],
    },
    Row {
        fault: "Deadlocks, serialization failures, lock timeouts",
        mechanism: "read committed, locks in one order, tried again up to five times",
        residue: "latency",
        exercised: &[
            Test("schedulers_that_meet_never_exceed_the_limit"),
            Test("a_held_row_is_skipped_by_claims_and_outcomes"),
        ],
    },
    Row {
        fault: "A transaction commits an event long after its id was given: a slow client, a standby that stalls",
        mechanism: "admission goes past ids that are 30 s old; a sweep that finds one behind it goes back",
        residue: "half a second of latency",
        exercised: &[
            Test("what_is_committed_behind_the_cursor_is_found"),
            Test("a_stalled_standby_loses_no_event"),
            Test("what_was_committed_late_is_woken_counted_and_said"),
            Chaos("late-commit"),
        ],
    },
    Row {
        fault: "The disk of Postgres is full",
        mechanism: "the API answers 503; without a recorded start nothing is sent",
        residue: "Postgres may have to be started again when there is room",
        exercised: &[
            Test("a_store_that_is_away_is_a_503_and_not_a_202"),
            Chaos("disk-full"),
        ],
    },
    Row {
        fault: "The SQLite file is deleted, moved or replaced under the running program",
        mechanism: "each write looks whether the path still has the open file, before it begins and before it is answered; then nothing more is written or sent",
        residue: "503 and not ready until somebody has put it back and started Paceline again",
        exercised: &[
            Test("a_file_that_is_gone_takes_nothing_more_and_is_not_ready"),
            Test("a_database_that_is_deleted_under_it_ends_readiness_and_ingest"),
        ],
    },
    Row {
        fault: "A process's own clock is wrong",
        mechanism: "only the store's clock counts; a worker waits by an estimate of it, and an early claim is refused; ids are dated by the store's clock, too, as their days have to be there",
        residue: "an early answer",
        exercised: &[
            Test("ids_are_dated_by_the_stores_clock"),
            Test("nothing_is_claimed_before_its_slot_by_the_stores_clock"),
            Test("an_early_claim_is_told_how_long_to_wait"),
        ],
    },
    Row {
        fault: "The store's clock steps forward by J",
        mechanism: "a scheduler that sees it admits nothing for a minute",
        residue: "a window of the wire that contains the step is shorter by J; a scheduler that starts after the step does not know of it",
        exercised: &[
            Test("after_the_stores_clock_stepped_forward_nothing_is_admitted_for_the_freeze"),
            Test("a_step_of_the_store_excuses_the_wire_by_as_much_and_the_ledger_by_nothing"),
            Chaos("clock-forward"),
        ],
    },
    Row {
        fault: "The store's clock steps back",
        mechanism: "starts of the future count like any other: admission stalls until they are past",
        residue: "no starts for as long as the step at busy destinations",
        exercised: &[
            Test("a_small_step_or_one_back_does_not_freeze"),
            Test("a_slot_beyond_the_deadline_is_given_back"),
            Chaos("clock-back"),
        ],
    },
    Row {
        fault: "The machine is suspended or moved",
        mechanism: "a permit's deadline is the store's, which goes on",
        residue: "as a freeze",
        exercised: &[
            Chaos("freeze-worker"),
            Nothing("a suspended machine stops the chaos run, too"),
        ],
    },
    Row {
        fault: "The store is restored to an earlier point in time",
        mechanism: "none yet: an operator has to stop the roles first",
        residue: "events after the point are lost or delivered again",
        exercised: &[Nothing("restoring is a procedure, not a mechanism")],
    },
    Row {
        fault: "Events come in faster than they go out, for hours",
        mechanism: "above 80 % of a bound of the backlog they are refused with a time to come back, until below 50 %",
        residue: "several API processes pass a mark by what the others accept between two counts",
        exercised: &[
            Test("a_backlog_above_its_mark_refuses_until_below_the_low_one"),
            Test("a_mark_that_was_passed_is_remembered_and_told"),
            Test("what_comes_during_a_count_is_not_forgotten"),
            Test("a_count_from_before_changes_nothing"),
            Test("a_destination_whose_backlog_is_full_refuses"),
        ],
    },
    Row {
        fault: "One of several databases is away, or the API before it",
        mechanism: "a key names its shard, and of all others nobody asks it; what it alone can know is answered 503 by its name",
        residue: "its own tenants are not served; no tenant with a name of its own is made, and the list of tenants is 503",
        exercised: &[
            Test("two_databases_share_a_redis_and_a_rabbitmq_and_are_one_api"),
            Test("a_shard_that_is_away_is_its_own_tenants_trouble"),
            Test("what_nobody_has_is_nowhere_only_if_all_have_said_so"),
        ],
    },
];
