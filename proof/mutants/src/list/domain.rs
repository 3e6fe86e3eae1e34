//! The arithmetic of admission.

use crate::mutant::Change::{Rewrite, Rust};
use crate::mutant::{Mutant, properties, sqlite, sqlite_contract};

const PLAN: &str = "crates/domain/src/admission/plan.rs";
const WINDOW: &str = "crates/domain/src/admission/window.rs";
const SHARE: &str = "crates/domain/src/share/tenants.rs";
const METER: &str = "crates/domain/src/admission/meter.rs";
const HEALTH: &str = "crates/domain/src/health.rs";
const FOLLOW_UP: &str = "crates/domain/src/attempt/follow_up.rs";
const ROUND: &str = "crates/domain/src/admission/round.rs";
const VERDICT: &str = "crates/domain/src/attempt/verdict.rs";
const TURNS: &str = "crates/domain/src/turns.rs";

pub(super) const MUTANTS: [Mutant; 28] = [
    Mutant {
        name: "limit-minus-queue-alone",
        wrong: "The limit minus what is queued, as in the classic formula: starts within the \
            window are not counted.",
        file: PLAN,
        change: Rust {
            right: "ends.extend(self.usage.starts.iter().map(|start| (*start, 1)));",
            wrong: "",
        },
        killer: sqlite_contract("admission::no_window_holds_more_than_the_limit"),
    },
    Mutant {
        name: "limit-minus-started-alone",
        wrong: "The limit minus what has started: permits that may still start are not counted.",
        file: PLAN,
        change: Rust {
            right: "self.windows(|outstanding| outstanding.deadline)",
            wrong: "self.windows(|_| Timestamp::MIN)",
        },
        killer: sqlite_contract("admission::republish_returns_the_same_permits"),
    },
    Mutant {
        name: "counted-at-its-slot",
        wrong: "A permit is counted at its slot, not at its deadline, though it may start late.",
        file: PLAN,
        change: Rust {
            right: "self.windows(|outstanding| outstanding.deadline)",
            wrong: "self.windows(|outstanding| outstanding.not_before)",
        },
        killer: sqlite_contract("admission::a_permit_counts_to_its_deadline_not_to_its_slot"),
    },
    Mutant {
        name: "bucket-forgets-outstanding",
        wrong: "A token bucket forgets the permits that it gave and that have not started.",
        file: PLAN,
        change: Rewrite {
            right: "let (slots, meter) = self.slots(cap);",
            with: "let (slots, meter) = self.slots(cap);\n        \
                let meter = if ON { self.meter } else { meter };",
        },
        killer: sqlite_contract("shapes::a_bucket_counts_permits_that_have_not_started"),
    },
    Mutant {
        name: "concurrency-without-started",
        wrong: "`max_in_flight` bounds what is queued and forgets what has started.",
        file: PLAN,
        change: Rust {
            right: "most\n            .saturating_sub(queued)\n            \
                .saturating_sub(self.usage.in_flight)",
            wrong: "most.saturating_sub(queued)",
        },
        killer: sqlite_contract("admission::max_in_flight_holds_until_an_outcome"),
    },
    Mutant {
        name: "room-is-not-shared",
        wrong: "A run takes no notice of the places that the workers have.",
        file: PLAN,
        change: Rust {
            right: "backlog.due.min(free).min(places).min(MAX_BATCH)",
            wrong: "backlog.due.min(free).min(MAX_BATCH)",
        },
        killer: sqlite_contract("admission::room_is_shared_between_the_runs"),
    },
    Mutant {
        name: "shared-by-destination-alone",
        wrong: "The workers' places are shared between destinations, whoever's they are: a tenant \
            with many has nearly all.",
        file: SHARE,
        change: Rust {
            right: "Tenants::of(room, asks)\n        .sharing(room)\n        \
                .between_destinations(asks)",
            wrong: "share(room.left(), &asks.iter().map(|ask| ask.wants).collect::<Vec<_>>())",
        },
        killer: sqlite_contract("tenants::tenants_share_before_their_destinations_do"),
    },
    Mutant {
        name: "newcomer-waits-for-room",
        wrong: "A tenant gets its share only when another's permits have made room for it.",
        file: SHARE,
        change: Rust {
            right: "room.capacity.saturating_mul(2)",
            wrong: "room.capacity",
        },
        killer: sqlite_contract("tenants::a_share_is_given_though_another_has_taken_the_room"),
    },
    Mutant {
        name: "tenant-in-flight-without-started",
        wrong: "A tenant's `max_in_flight` bounds what is queued and forgets what has started.",
        file: SHARE,
        change: Rust {
            right: "part.outstanding.saturating_add(part.in_flight)",
            wrong: "part.outstanding",
        },
        killer: sqlite_contract("tenants::a_tenants_max_in_flight_holds_over_all_its_destinations"),
    },
    Mutant {
        name: "run-forgets-its-own-slots",
        wrong: "A run does not count the slots that it has just given.",
        file: PLAN,
        change: Rust {
            right: "limits.iter_mut().for_each(Window::take);",
            wrong: "",
        },
        killer: properties("admission::no_limit_is_ever_exceeded"),
    },
    Mutant {
        name: "window-reopens-too-early",
        wrong: "A slot opens half a period after the start that filled it.",
        file: WINDOW,
        change: Rust {
            right: "*end + self.period",
            wrong: "*end + self.period / 2",
        },
        killer: properties("admission::no_limit_is_ever_exceeded"),
    },
    Mutant {
        name: "bucket-counts-at-its-begin",
        wrong: "A coarse bucket counts its starts at its begin: earlier than they were.",
        file: PLAN,
        change: Rust {
            right: "(b.ends_at, b.starts)",
            wrong: "(b.ends_at - limit.period.bucket(), b.starts)",
        },
        killer: properties("admission::no_coarse_limit_is_ever_exceeded"),
    },
    Mutant {
        name: "paced-permit-starts-late",
        wrong: "A permit of a bucket may start as late as any other, and not within the slack \
            that the bucket's promise has.",
        file: PLAN,
        change: Rewrite {
            right: "if self.pacing().is_some() {\n            SLACK",
            with: "if self.pacing().is_some() && !ON {\n            SLACK",
        },
        killer: properties("admission::no_limit_is_ever_exceeded"),
    },
    Mutant {
        name: "bucket-forgets-the-limit-before",
        wrong: "A bucket that comes into force does not count the starts that were made before it.",
        file: PLAN,
        change: Rust {
            right: "usage.recount",
            wrong: "false",
        },
        killer: sqlite_contract(
            "shapes::a_bucket_that_comes_into_force_counts_the_starts_before_it",
        ),
    },
    Mutant {
        name: "half-open-admits-two",
        wrong: "A breaker that is half open lets two attempts through at a time.",
        file: PLAN,
        change: Rust {
            right: "self.policy.max_in_flight.min(1)",
            wrong: "self.policy.max_in_flight.min(2)",
        },
        killer: sqlite_contract("health::a_half_open_breaker_admits_one_probe"),
    },
    Mutant {
        name: "breaker-counts-a-crowd",
        wrong: "Failures of attempts that were under way together count one by one: a breaker \
            opens on one hiccup.",
        file: HEALTH,
        change: Rust {
            right: "(health.last_failed_at).is_some_and(|last| one.started_at < last)",
            wrong: "false",
        },
        killer: sqlite_contract("health::a_crowd_that_fails_together_is_one_failure"),
    },
    Mutant {
        name: "breaker-forgets-the-time",
        wrong: "Enough failures in a row open the breaker, however short a time they go on.",
        file: HEALTH,
        change: Rust {
            right: "one.finished_at.since(since) >= self.settings.failing_for",
            wrong: "true",
        },
        killer: sqlite_contract("health::failures_open_the_breaker_when_they_go_on"),
    },
    Mutant {
        name: "bucket-forgets-its-level",
        wrong: "A bucket that a change leaves alone is as full as its newest starts make it look.",
        file: METER,
        change: Rust {
            right: "counted.missing_micro > kept.missing_micro",
            wrong: "true",
        },
        killer: properties("admission::a_bucket_that_a_change_leaves_alone_keeps_its_level"),
    },
    Mutant {
        name: "turn-is-forgotten",
        wrong: "Each run begins with a first attempt, so where a run gives one permit retries \
            starve.",
        file: TURNS,
        change: Rust {
            right: "number.rem_euclid(2) == 1",
            wrong: "number > 0",
        },
        killer: sqlite_contract("turns::one_permit_a_run_goes_in_turn_as_well"),
    },
    Mutant {
        name: "second-retry",
        wrong: "A late failure adds a retry to the one that was added when the start was given up.",
        file: FOLLOW_UP,
        change: Rust {
            right: "row.state == AttemptState::Unknown",
            wrong: "row.state == AttemptState::Unknown && succeeded",
        },
        killer: sqlite_contract("record::a_late_failure_adds_no_second_retry"),
    },
    Mutant {
        name: "last-try-is-tried-again",
        wrong: "An event is tried again after its last try.",
        file: FOLLOW_UP,
        change: Rust {
            right: "tries >= start.max_tries",
            wrong: "tries > start.max_tries",
        },
        killer: sqlite_contract("reap::an_unknown_last_try_is_a_dead_letter"),
    },
    Mutant {
        name: "share-is-not-decided-again",
        wrong: "Who gets less than it could have keeps what it was given alone.",
        file: ROUND,
        change: Rust {
            right: "places < permits_of(&decision)",
            wrong: "false",
        },
        killer: sqlite_contract("admission::room_is_shared_between_the_runs"),
    },
    Mutant {
        name: "no-deadline",
        wrong: "A permit starts after its deadline.",
        file: VERDICT,
        change: Rust {
            right: "now > own.deadline",
            wrong: "false",
        },
        killer: sqlite_contract("claim::a_late_claim_goes_back_to_waiting"),
    },
    Mutant {
        name: "no-slot",
        wrong: "A permit starts before its slot.",
        file: VERDICT,
        change: Rust {
            right: "asked.now + asked.head_start < own.not_before",
            wrong: "false",
        },
        killer: sqlite_contract("claim::an_early_claim_is_told_how_long_to_wait"),
    },
    Mutant {
        name: "redelivered-is-sent-again",
        wrong: "A claim does not ask whether the row is still admitted: a redelivered permit is \
            sent again.",
        file: VERDICT,
        change: Rust {
            right: "self.state == AttemptState::Admitted",
            wrong: "true",
        },
        killer: sqlite_contract("claim::a_permit_starts_once"),
    },
    Mutant {
        name: "claim-without-number",
        wrong: "A claim does not ask for the permit's number: a stale permit starts a row that \
            was admitted again.",
        file: VERDICT,
        change: Rust {
            right: "own.number == permit.number",
            wrong: "true",
        },
        killer: sqlite_contract("claim::a_stale_number_is_refused_and_touches_nothing"),
    },
    Mutant {
        name: "claim-without-destination",
        wrong: "A claim believes whose attempt it is, as the queue's message says: its payload \
            goes to another destination's URL.",
        file: VERDICT,
        change: Rust {
            right: "own.destination == permit.destination",
            wrong: "true",
        },
        killer: sqlite_contract("claim::a_permit_for_another_destination_is_refused"),
    },
    Mutant {
        name: "claim-ignores-holds",
        wrong: "A claim takes no notice of a hold: a permit from before it starts within it.",
        file: VERDICT,
        change: Rust {
            right: "until > now.max(own.not_before)",
            wrong: "false",
        },
        killer: sqlite("a_claim_finds_the_hold_that_its_permit_was_given_before"),
    },
];
