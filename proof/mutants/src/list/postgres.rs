//! The store on Postgres: what is its own, above all locks and snapshots.

use crate::mutant::Change::{Rewrite, Rust, Text};
use crate::mutant::{Mutant, postgres};

const ADMIT: &str = "crates/adapters/src/postgres/admit.rs";
const CLAIM: &str = "crates/adapters/src/postgres/claim.rs";
const DESTINATIONS: &str = "crates/adapters/src/postgres/destinations.rs";
const CHANGES: &str = "migrations/postgres/0004_changes.sql";
const REAP: &str = "crates/adapters/src/postgres/reap.rs";
const RECORD: &str = "crates/adapters/src/postgres/record.rs";
const USAGE: &str = "crates/adapters/src/postgres/usage.rs";

pub(super) const MUTANTS: [Mutant; 32] = [
    Mutant {
        name: "postgres-claim-ignores-holds",
        wrong: "A claim takes no notice of a hold: a permit from before it starts within it.",
        file: CLAIM,
        change: Text {
            right: "or greatest(p.held_until, h.held_until)",
            wrong: "or least(p.held_until, h.held_until, '-infinity')",
        },
        killer: postgres("starts::a_claim_finds_the_hold_that_its_permit_was_given_before"),
    },
    Mutant {
        name: "postgres-stale-snapshot",
        wrong: "Admission reads what is used before it locks: schedulers that meet count what \
            was there before the other.",
        file: ADMIT,
        change: Rewrite {
            right: "let locked = lock(&mut transaction, &ids).await?;\n    \
                let known = read_destinations(&mut transaction, &ids).await?;\n    \
                let reads = read_runs(&mut transaction, runs, &locked, &known).await?;",
            with: "let mut stale = None;\n    \
                if ON {\n        \
                    let all: HashSet<Uuid> = ids.iter().copied().collect();\n        \
                    let known = read_destinations(&mut transaction, &ids).await?;\n        \
                    stale = Some(read_runs(&mut transaction, runs, &all, &known).await?);\n    \
                }\n    \
                let locked = lock(&mut transaction, &ids).await?;\n    \
                let known = read_destinations(&mut transaction, &ids).await?;\n    \
                let mut reads = read_runs(&mut transaction, runs, &locked, &known).await?;\n    \
                if let Some(mut stale) = stale {\n        \
                    stale.retain(|read| locked.contains(&read.candidate.destination.0));\n        \
                    for (read, stale) in reads.iter_mut().zip(stale) {\n            \
                        read.candidate.usage = stale.candidate.usage;\n        \
                    }\n    \
                }",
        },
        killer: postgres("admission::schedulers_that_meet_never_exceed_the_limit"),
    },
    Mutant {
        name: "postgres-no-lock",
        wrong: "Admission does not lock the destination.",
        file: DESTINATIONS,
        change: Text {
            right: "for no key update skip locked",
            wrong: "",
        },
        killer: postgres("admission::a_held_destination_is_skipped_and_the_others_are_not"),
    },
    Mutant {
        name: "postgres-ingest-hides-the-destination",
        wrong: "Admission takes a plain `for update` lock, which every open ingest shuts out.",
        file: DESTINATIONS,
        change: Text {
            right: "for no key update skip locked",
            wrong: "for update skip locked",
        },
        killer: postgres("admission::an_open_ingest_does_not_hide_its_destination"),
    },
    Mutant {
        name: "postgres-admits-by-its-begin",
        wrong: "Admission takes `now()`, the transaction's begin, for the time after the lock.",
        file: DESTINATIONS,
        change: Text {
            right: "(select micros(clock_timestamp()) as now)",
            wrong: "(select micros(now()) as now)",
        },
        killer: postgres("admission::a_run_that_waited_has_the_time_after_its_wait"),
    },
    Mutant {
        name: "postgres-repeated-event-goes-again",
        wrong: "An event that is there already gets attempts again.",
        file: "crates/adapters/src/postgres/ingest.rs",
        change: Text {
            right: "where (n.event_id in (select w.id from written w)) is true\n        \
                order by n.position",
            wrong: "order by n.position",
        },
        killer: postgres("contract::ingest::accepting_an_id_again_adds_nothing"),
    },
    Mutant {
        name: "postgres-old-epoch-is-gone",
        wrong: "An old epoch is taken as proof that a permit is gone, before its row has moved.",
        file: USAGE,
        change: Text {
            right: "where a.destination_id = r.id and a.state = 'admitted'",
            wrong: "join destinations d on d.id = a.destination_id and d.epoch = a.epoch\n        \
                where a.destination_id = r.id and a.state = 'admitted'",
        },
        killer: postgres("contract::an_old_epoch_is_no_proof_that_a_permit_is_gone"),
    },
    Mutant {
        name: "postgres-cursor-runs-ahead",
        wrong: "The cursor of first attempts passes attempts that commit later than ones with a \
            larger id.",
        file: "crates/adapters/src/postgres/plan.rs",
        change: Rust {
            right: "now.micros_since(waiting.since) > CURSOR_AGE_MICROS",
            wrong: "true",
        },
        killer: postgres("admission::the_cursor_loses_no_attempt_that_commits_late"),
    },
    Mutant {
        name: "postgres-starts-by-its-begin",
        wrong: "A claim takes `now()`, the statement's begin, for the time after its wait.",
        file: CLAIM,
        change: Text {
            right: "with clock as materialized (select clock_timestamp() as now)",
            wrong: "with clock as materialized (select now() as now)",
        },
        killer: postgres("starts::a_claim_that_waited_starts_after_its_wait"),
    },
    Mutant {
        name: "postgres-head-start-is-dated-now",
        wrong: "A claim that comes within the head start is dated to its own instant, before the \
            slot: a window is over.",
        file: CLAIM,
        change: Text {
            right: "started_at = greatest((select now from clock), l.not_before)",
            wrong: "started_at = (select now from clock)",
        },
        killer: postgres("contract::claim::a_slot_within_the_head_start_is_its_start"),
    },
    Mutant {
        name: "postgres-cut-before-the-head-start",
        wrong: "A cut is dated before starts that were dated ahead.",
        file: CHANGES,
        change: Text {
            right: "if ahead > interval '0' then",
            wrong: "if false then",
        },
        killer: postgres("starts::a_cut_is_dated_after_a_start_that_lies_ahead"),
    },
    Mutant {
        name: "postgres-no-deadline",
        wrong: "A permit starts after its deadline.",
        file: CLAIM,
        change: Text {
            right: "or a.deadline < (select now from clock)",
            wrong: "",
        },
        killer: postgres("contract::claim::a_late_claim_goes_back_to_waiting"),
    },
    Mutant {
        name: "postgres-redelivered-is-sent-again",
        wrong: "A claim does not ask whether the row is still admitted: a redelivered permit is \
            sent again.",
        file: CLAIM,
        change: Text {
            right: "and a.state || '' = 'admitted'\n        order by a.id\n        \
                for update of a skip locked\n    ),\n    started as (",
            wrong: "and a.state in ('admitted', 'started')\n        order by a.id\n        \
                for update of a skip locked\n    ),\n    started as (",
        },
        killer: postgres("starts::a_permit_that_is_claimed_by_many_starts_once"),
    },
    Mutant {
        name: "postgres-stale-permit-moves-the-row",
        wrong: "A stale permit claims, and moves, a row that is admitted under another number.",
        file: CLAIM,
        change: Text {
            right: "join attempts a on a.id = n.id and a.permit = n.number\n            \
                and a.destination_id = n.destination_id\n        join destinations d",
            wrong: "join attempts a on a.id = n.id and a.destination_id = n.destination_id\n        \
                join destinations d",
        },
        killer: postgres("contract::claim::a_stale_number_is_refused_and_touches_nothing"),
    },
    Mutant {
        name: "postgres-a-forged-permit-is-released",
        wrong: "A release believes whose attempt it is, as the queue's message says.",
        file: CLAIM,
        change: Text {
            right: "\n                and a.destination_id = n.destination_id",
            wrong: "",
        },
        killer: postgres("contract::claim::another_destinations_permit_is_not_released"),
    },
    Mutant {
        name: "postgres-skipped-claim-is-refused",
        wrong: "A claim takes a row that somebody holds for one that is gone.",
        file: CLAIM,
        change: Rust {
            right: "held.contains(&key(permit))",
            wrong: "false",
        },
        killer: postgres("starts::a_held_row_is_skipped_by_claims_and_outcomes"),
    },
    Mutant {
        name: "postgres-claim-waits-for-the-row",
        wrong: "A claim waits for a row that a change holds, with a clock from before the wait.",
        file: CLAIM,
        change: Text {
            right: "for update of a skip locked\n    ),\n    started as (",
            wrong: "for update of a\n    ),\n    started as (",
        },
        killer: postgres("starts::a_held_row_is_skipped_by_claims_and_outcomes"),
    },
    Mutant {
        name: "postgres-started-row-waits-again",
        wrong: "A start that nobody came back for waits again in its own row, and forgets that \
            it started.",
        file: REAP,
        change: Text {
            right: "set state = 'unknown', folded = a.folded or a.coarse,\n            \
                error = case when l.worker_is_gone then $5 else $6 end\n        \
                from locked l\n        where a.id = l.id\n        \
                returning (select micros(now) from clock) as now, a.id, a.event_id, a.destination_id,\n            \
                a.tenant_id, a.try_number, a.tries_before, micros(a.expires_at) as expires_at,\n            \
                a.payload_bytes, a.batch_limit, l.max_tries, l.is_batch,\n            \
                micros(a.started_at) as started_at,",
            wrong: "set state = 'waiting', started_at = null\n        \
                from locked l\n        where a.id = l.id and $5 <> $6\n        \
                returning (select micros(now) from clock) as now, a.id, a.event_id, a.destination_id,\n            \
                a.tenant_id, a.try_number, a.tries_before, micros(a.expires_at) as expires_at,\n            \
                a.payload_bytes, a.batch_limit, 0 as max_tries, false as is_batch,\n            \
                0::bigint as started_at,",
        },
        killer: postgres("contract::reap::a_start_that_is_too_old_becomes_unknown"),
    },
    Mutant {
        name: "postgres-reaper-without-recheck",
        wrong: "The reaper does not lock and recheck a start that it gives up: an outcome that \
            came at that moment is overwritten, and the event sent again.",
        file: REAP,
        change: Text {
            right: "limit $3\n            for update of a skip locked",
            wrong: "limit $3",
        },
        killer: postgres("starts::the_reaper_leaves_what_an_outcome_holds_alone"),
    },
    Mutant {
        name: "postgres-expiry-without-recheck",
        wrong: "The reaper does not lock and recheck a permit that is past its deadline: it would \
            move back one that has just started, were it not for a constraint.",
        file: REAP,
        change: Text {
            right: "limit $2\n            for update skip locked",
            wrong: "limit $2",
        },
        killer: postgres("starts::the_reaper_leaves_what_a_claim_holds_alone"),
    },
    Mutant {
        name: "postgres-final-start-in-no-bucket",
        wrong: "A start of a coarse limit is marked as folded, and is in no bucket.",
        file: RECORD,
        change: Rewrite {
            right: "if row.to_fold {",
            with: "if row.to_fold && !ON {",
        },
        killer: postgres("coarse::a_start_is_folded_exactly_once"),
    },
    Mutant {
        name: "postgres-start-is-folded-twice",
        wrong: "A start that was folded is not marked, and may be folded again.",
        file: RECORD,
        change: Text {
            right: "folded = a.folded or a.coarse",
            wrong: "folded = a.folded",
        },
        killer: postgres("coarse::a_start_is_folded_exactly_once"),
    },
    Mutant {
        name: "postgres-anybody-records",
        wrong: "An outcome is recorded for whoever sends it, not for the worker that claimed.",
        file: RECORD,
        change: Text {
            right: "and a.worker_id = $1 and a.state in ('started', 'unknown')\n        \
                order by a.id\n        for update",
            wrong: "and $1 = $1 and a.state in ('started', 'unknown')\n        \
                order by a.id\n        for update",
        },
        killer: postgres("contract::record::a_wrong_worker_or_number_changes_nothing"),
    },
    Mutant {
        name: "postgres-anybody-records-successes",
        wrong: "A success is recorded for whoever sends it, not for the worker that claimed.",
        file: RECORD,
        change: Text {
            right: "and a.worker_id = $1\n            and a.state || '' = 'started'",
            wrong: "and $1 = $1\n            and a.state || '' = 'started'",
        },
        killer: postgres("contract::record::a_wrong_worker_or_number_changes_nothing"),
    },
    Mutant {
        name: "postgres-success-is-not-judged",
        wrong: "A success of a destination that is not well is recorded, and changes nothing of \
            what is remembered.",
        file: RECORD,
        change: Text {
            right: "and h.destination_id is null and s.destination_id is null",
            wrong: "",
        },
        killer: postgres("contract::health::a_probe_that_succeeds_closes_the_breaker"),
    },
    Mutant {
        name: "postgres-success-in-no-bucket",
        wrong: "A success of a coarse limit is left to a later run to be folded.",
        file: RECORD,
        change: Text {
            right: "and (a.folded or not a.coarse)",
            wrong: "",
        },
        killer: postgres("coarse::a_success_is_folded_with_its_outcome"),
    },
    Mutant {
        name: "postgres-change-leaves-permits",
        wrong: "A change bumps the epoch and leaves the permits of the old limit where they are.",
        file: CHANGES,
        change: Text {
            right: "where d.id = any (revoked) and",
            wrong: "where false and",
        },
        killer: postgres("contract::limits::a_change_of_shape_revokes"),
    },
    Mutant {
        name: "postgres-change-dated-by-its-begin",
        wrong: "History dates a change to `now()`, the begin of the user's transaction, and not \
            after the starts that it waited for.",
        file: CHANGES,
        change: Text {
            right: "select d.id, clock_timestamp(), r.limit_per_second",
            wrong: "select d.id, now(), r.limit_per_second",
        },
        killer: postgres("starts::a_cut_is_dated_after_what_started_in_its_transaction"),
    },
    Mutant {
        name: "postgres-change-on-an-old-snapshot",
        wrong: "Limits may be changed in a stricter isolation, which does not see the latest \
            permits.",
        file: CHANGES,
        change: Text {
            right: "if current_setting('transaction_isolation') not in \
                ('read committed', 'read uncommitted') then",
            wrong: "if false then",
        },
        killer: postgres("changes::a_stricter_isolation_is_refused_in_words"),
    },
    Mutant {
        name: "postgres-replayed-again",
        wrong: "A dead letter that was replayed is not marked, and another replay takes it again.",
        file: "crates/adapters/src/postgres/replays/moves.rs",
        change: Text {
            right: "update attempts a set replayed_at = from_micros($11)",
            wrong: "update attempts a set replayed_at = null",
        },
        killer: postgres("backlog::replay::several_at_once_move_each_once"),
    },
    Mutant {
        name: "postgres-defers-nothing",
        wrong: "Admission takes no notice of a deferral: who has no place is admitted, published \
            and turned away again in a circle.",
        file: DESTINATIONS,
        change: Text {
            right: "case when p.next_look_at is not null then p.deferred_until end",
            wrong: "p.held_until",
        },
        killer: postgres("contract::claim::a_deferred_destination_is_not_admitted"),
    },
    Mutant {
        name: "postgres-sweep-walks-past",
        wrong: "A step of the sweep goes on from the farthest that any index has come to: who \
            has a retry is passed by where first attempts are few.",
        file: "crates/adapters/src/postgres/sweep.rs",
        change: Text {
            right: "where (n.id <= least(first.ids[w.reads], due.ids[w.reads], admitted.ids[w.reads])) is not false",
            wrong: "where n.id is not null",
        },
        killer: postgres("contract::sweep::a_sweep_finds_each_however_much_waits"),
    },
];
