//! The loops: what comes before what.

use crate::mutant::Change::{Rewrite, Rust};
use crate::mutant::{Mutant, loops};

const SCHEDULER: &str = "crates/engine/src/scheduler.rs";
const CLAIMS: &str = "crates/engine/src/worker/claims.rs";
const DELIVER: &str = "crates/engine/src/worker/deliver.rs";
const HAND: &str = "crates/engine/src/worker/hand.rs";
const IDENTITY: &str = "crates/engine/src/worker/identity.rs";
const REAPER: &str = "crates/engine/src/reaper.rs";
const SWEEP: &str = "crates/engine/src/sweep.rs";
const TURNED_AWAY: &str = "crates/engine/src/worker/turned_away.rs";
const WAKE: &str = "crates/engine/src/wake.rs";

pub(super) const MUTANTS: [Mutant; 23] = [
    Mutant {
        name: "each-failing-one-by-itself",
        wrong: "A failing destination runs alone, as soon as anything comes for it.",
        file: "crates/engine/src/scheduler/company.rs",
        change: Rust {
            right: "waits.then(|| now.rounded_up(ROUND))",
            wrong: "waits.then(|| now)",
        },
        killer: loops("scheduler::a_failing_destination_waits_for_a_round"),
    },
    Mutant {
        name: "a-count-forgets-the-other-loop",
        wrong: "What another loop gave while the fleet was counted is given again.",
        file: "crates/engine/src/scheduler/fleet.rs",
        change: Rewrite {
            right: "counted.add(&since);",
            with: "if !ON { counted.add(&since); }",
        },
        killer: loops("scheduler::permits_that_another_loop_gives_during_a_count_are_added_to_it"),
    },
    Mutant {
        name: "who-hung-is-left-behind",
        wrong: "A worker that ends waits on for those that hung.",
        file: "crates/engine/src/worker/records.rs",
        change: Rewrite {
            right: "self.patient.hurry();",
            with: "if !ON { self.patient.hurry(); }",
        },
        killer: loops("worker_records::a_shutdown_records_those_that_hung_at_once"),
    },
    Mutant {
        name: "skipped-is-empty",
        wrong: "A destination whose row was locked is taken for one with an empty backlog, and \
            loses its job.",
        file: SCHEDULER,
        change: Rust {
            right: "matches!(result, RunResult::Gone)",
            wrong: "matches!(result, RunResult::Gone | RunResult::Skipped)",
        },
        killer: loops("scheduler::a_skipped_destination_is_looked_at_again_soon_and_never_removed"),
    },
    Mutant {
        name: "lost-lease-publishes-nothing",
        wrong: "A run that follows a lost lease does not ask for what was admitted and never \
            published.",
        file: SCHEDULER,
        change: Rewrite {
            right: "republish: job.lapsed,",
            with: "republish: job.lapsed && !ON,",
        },
        killer: loops("scheduler::a_lapsed_lease_asks_for_the_permits_again"),
    },
    Mutant {
        name: "unpublished-is-forgotten",
        wrong: "Permits that could not be published block their places until their deadline.",
        file: SCHEDULER,
        change: Rewrite {
            right: "self.hand_back(permits).await;\n                Err(NotPublished)",
            with: "if !ON { self.hand_back(permits).await; }\n                Err(NotPublished)",
        },
        killer: loops(
            "scheduler_trouble::permits_that_cannot_be_published_go_back_and_lift_the_floor",
        ),
    },
    Mutant {
        name: "published-in-a-freeze",
        wrong: "What was planned by a clock that has just stepped is published.",
        file: SCHEDULER,
        change: Rust {
            right: "self.frozen_until.is_some()",
            wrong: "false",
        },
        killer: loops(
            "scheduler_trouble::\
            after_the_stores_clock_stepped_forward_nothing_is_admitted_for_the_freeze",
        ),
    },
    Mutant {
        name: "sent-before-the-claim",
        wrong: "A request goes out before the store has answered its claim.",
        file: CLAIMS,
        change: Rewrite {
            right: "let asked_at = Instant::now();",
            with: "let asked_at = Instant::now();\n        \
                let mut batch = batch;\n        \
                if ON {\n            \
                    for request in batch.drain(..) {\n                \
                        let start = crate::ports::Start {\n                    \
                            started_at: request.permit.not_before,\n                    \
                            event: domain::ids::EventId(request.permit.destination.0),\n                    \
                            try_number: 1,\n                    \
                            tries_before: 0,\n                    \
                            retry: Default::default(),\n                    \
                            content_type: String::new(),\n                    \
                            payload: bytes::Bytes::new(),\n                    \
                            members: Vec::new(),\n                    \
                            trace: None,\n                \
                        };\n                \
                        let answer = ClaimAnswer::Started(start);\n                \
                        let _ = request.answer.send(Claimed { answer, worker, asked_at, ahead: Duration::ZERO });\n            \
                    }\n        \
                }",
        },
        killer: loops("worker_claims::what_is_refused_is_not_sent"),
    },
    Mutant {
        name: "skipped-claim-is-dropped",
        wrong: "A permit whose row was locked is given up, though it has time left.",
        file: DELIVER,
        change: Rewrite {
            right: "ClaimAnswer::Skipped => again.failed(),",
            with: "ClaimAnswer::Skipped if ON => return None,\n                \
                ClaimAnswer::Skipped => again.failed(),",
        },
        killer: loops("worker_claims::a_locked_row_is_asked_for_again_until_the_deadline"),
    },
    Mutant {
        name: "claimed-before-its-slot",
        wrong: "The worker does not wait for the slot, and asks the store over and over.",
        file: DELIVER,
        change: Rust {
            right: "self.clock.reach(asked_for_at).await;",
            wrong: "",
        },
        killer: loops("worker::nothing_is_claimed_before_its_slot_by_the_stores_clock"),
    },
    Mutant {
        name: "sent-before-its-start",
        wrong: "A request goes out before its recorded start, which may be dated ahead.",
        file: DELIVER,
        change: Rust {
            right: "!claimed.ahead.is_zero()",
            wrong: "false",
        },
        killer: loops(
            "worker_claims::with_a_head_start_it_is_claimed_before_its_slot_and_sent_at_it",
        ),
    },
    Mutant {
        name: "late-after-the-claim",
        wrong: "A request goes out however long after its claim: the wire lags behind the ledger.",
        file: DELIVER,
        change: Rust {
            right: "late > bound",
            wrong: "false",
        },
        killer: loops("worker_claims::a_start_that_was_claimed_too_slowly_is_not_sent"),
    },
    Mutant {
        name: "acknowledged-in-hand",
        wrong: "A message counts as settled though its permits were not begun.",
        file: HAND,
        change: Rust {
            right: "(!self.known).then_some(self.permit)",
            wrong: "None",
        },
        killer: loops("worker_shutdown::what_has_not_begun_goes_back_to_the_queue"),
    },
    Mutant {
        name: "settled-at-its-first-permit",
        wrong: "A message is acknowledged when the first of its permits is known.",
        file: HAND,
        change: Rust {
            right: "message.left > 0",
            wrong: "false",
        },
        killer: loops("worker_hand::a_message_is_settled_once_when_each_of_its_permits_is_known"),
    },
    Mutant {
        name: "lapsed-worker-goes-on",
        wrong: "A worker whose heartbeats were late goes on under a name whose claims are refused.",
        file: IDENTITY,
        change: Rust {
            right: "begun_at.duration_since(written_at) > RENEW_AFTER",
            wrong: "false",
        },
        killer: loops(
            "worker_identity::\
            after_late_heartbeats_it_goes_on_as_another_and_records_as_the_old_one",
        ),
    },
    Mutant {
        name: "impatient-reaper",
        wrong: "The reaper gives up the starts of workers that could not write a heartbeat while \
            the store was away.",
        file: REAPER,
        change: Rust {
            right: "now < self.patient_until",
            wrong: "false",
        },
        killer: loops("reaper::workers_get_time_to_show_themselves_after_the_store_was_away"),
    },
    Mutant {
        name: "freed-slot-waits-for-the-floor",
        wrong: "What waits again is woken no earlier than the floor that counted its permit.",
        file: WAKE,
        change: Rust {
            right: "wake.clear_floor || wake.after.is_zero()",
            wrong: "wake.clear_floor",
        },
        killer: loops("reaper::what_waits_again_is_woken_whatever_the_floor"),
    },
    Mutant {
        name: "mark-is-cleared-unwoken",
        wrong: "The mark of a change is forgotten though its wake failed.",
        file: SWEEP,
        change: Rewrite {
            right: "try_wake_all(self.schedule.as_ref(), &wakes).await?;",
            with: "let woken = try_wake_all(self.schedule.as_ref(), &wakes).await;\n        \
                if !ON { woken?; }",
        },
        killer: loops("sweep::marks_stay_if_their_wake_failed"),
    },
    Mutant {
        name: "sweep-keeps-the-floor",
        wrong: "What is overdue waits for a floor that is no longer true.",
        file: SWEEP,
        change: Rewrite {
            right: "let due = lifting_floors(&page.wakes);",
            with: "let due = if ON { page.wakes.clone() } else { lifting_floors(&page.wakes) };",
        },
        killer: loops("sweep::what_is_due_is_woken_below_its_floor"),
    },
    Mutant {
        name: "rebuild-is-noted-half-way",
        wrong: "A rebuild of the schedule is noted though a wake of it was lost.",
        file: SWEEP,
        change: Rewrite {
            right: "try_wake_all(self.schedule.as_ref(), &due).await?;",
            with: "let woken = try_wake_all(self.schedule.as_ref(), &due).await;\n        \
                if !ON { woken?; }",
        },
        killer: loops("sweep::a_rebuild_of_which_a_wake_was_lost_is_not_noted"),
    },
    Mutant {
        name: "rebuild-finds-only-the-overdue",
        wrong: "A schedule that was lost is rebuilt without the retries of the future.",
        file: SWEEP,
        change: Rust {
            right: "self.page(after, whole, life.is_some())",
            wrong: "self.page(after, whole, false)",
        },
        killer: loops("sweep::another_life_is_rebuilt_from_everything_and_noted_at_the_end"),
    },
    Mutant {
        name: "a-look-walks",
        wrong: "Whoever has a backlog is visited whenever the marks are looked at.",
        file: SWEEP,
        change: Rust {
            right: "!(whole || everything)",
            wrong: "false",
        },
        killer: loops("sweep::a_look_is_for_the_marks_and_in_another_life_for_all"),
    },
    Mutant {
        name: "turned-away-is-not-deferred",
        wrong: "Who has no place is only looked at later, and is admitted by the run that its \
            limit plans.",
        file: TURNED_AWAY,
        change: Rust {
            right: "pause.defers",
            wrong: "false",
        },
        killer: loops("worker_places::who_is_turned_away_waits_again_in_the_store"),
    },
];
