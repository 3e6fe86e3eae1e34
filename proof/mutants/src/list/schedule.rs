//! When to look: the schedule on Redis and the one in process.

use crate::mutant::Change::{Rust, Text};
use crate::mutant::{Mutant, redis, schedule};

const TAKE: &str = "crates/adapters/src/redis/take.lua";
const FINISH: &str = "crates/adapters/src/redis/finish.lua";
const WAKE: &str = "crates/adapters/src/redis/wake.lua";
const LIFE: &str = "crates/adapters/src/redis/life.lua";
const IN_PROCESS: &str = "crates/adapters/src/in_process/schedule.rs";

pub(super) const MUTANTS: [Mutant; 14] = [
    Mutant {
        name: "redis-take-pops",
        wrong: "A take removes the jobs, as a pop does: a crash after it loses them.",
        file: TAKE,
        change: Text {
            right: "redis.call('ZADD', jobs, unpack(scores))",
            wrong: "redis.call('ZREM', jobs, unpack(names))",
        },
        killer: schedule("redis_schedule::take_pushes_forward"),
    },
    Mutant {
        name: "redis-lost-lease-is-silent",
        wrong: "Nobody learns that the last lease ended without a finish, so nothing is \
            published again.",
        file: TAKE,
        change: Text {
            right: "held[i] and 1 or 0",
            wrong: "0",
        },
        killer: schedule("redis_schedule::a_lost_lease_shows_as_lapsed"),
    },
    Mutant {
        name: "redis-finish-without-token",
        wrong: "A finish does not ask for the token: one that was overtaken ends another's lease.",
        file: FINISH,
        change: Text {
            right: "if redis.call('HGET', lease, name) == ARGV[i + 1] then",
            wrong: "if redis.call('HGET', lease, name) then",
        },
        killer: schedule("redis_schedule::a_stale_token_finishes_nothing"),
    },
    Mutant {
        name: "redis-deleted-when-idle",
        wrong: "An idle job is removed though its destination was woken since the look \
            (delete-when-idle without a generation).",
        file: FINISH,
        change: Text {
            right: "if delay < 0 and not wake then",
            wrong: "if delay < 0 then",
        },
        killer: schedule("redis_schedule::no_wake_is_lost_between_look_and_removal"),
    },
    Mutant {
        name: "redis-wake-below-the-floor",
        wrong: "A wake ignores the floor: arrivals at a blocked destination cost a run each.",
        file: WAKE,
        change: Text {
            right: "at = math.max(at, tonumber(blocked))",
            wrong: "at = at + 0",
        },
        killer: schedule("redis_schedule::a_wake_goes_no_lower_than_the_floor"),
    },
    Mutant {
        name: "redis-wake-under-lease",
        wrong: "A wake ignores the lease: two schedulers look at one destination.",
        file: WAKE,
        change: Text {
            right: "elseif clear or not leased then",
            wrong: "else",
        },
        killer: schedule("redis_schedule::a_wake_leaves_a_lease_alone"),
    },
    Mutant {
        name: "redis-wake-postpones",
        wrong: "A wake for later postpones a job that is due earlier.",
        file: WAKE,
        change: Text {
            right: "if at < tonumber(due) then",
            wrong: "if true then",
        },
        killer: schedule("redis_schedule::a_wake_takes_the_earlier_time"),
    },
    Mutant {
        name: "redis-add-if-absent",
        wrong: "A wake adds a job only where there is none, and leaves no mark under lease.",
        file: WAKE,
        change: Text {
            right: "if leased then",
            wrong: "if false then",
        },
        killer: schedule("redis_schedule::a_woken_job_is_not_postponed"),
    },
    Mutant {
        name: "redis-restart-is-the-same-life",
        wrong: "A server that came back from a snapshot, or another one after a failover, is \
            taken for the one that was there.",
        file: LIFE,
        change: Text {
            right: "if known[1] and known[2] == ARGV[1] then",
            wrong: "if known[1] then",
        },
        killer: redis("a_restart_from_a_snapshot_is_new_although_its_keys_survived"),
    },
    Mutant {
        name: "in-process-finish-without-token",
        wrong: "A finish does not ask for the token: one that was overtaken ends another's lease.",
        file: IN_PROCESS,
        change: Rust {
            right: "lease.token == finish.token",
            wrong: "true",
        },
        killer: schedule("in_process_schedule::a_stale_token_finishes_nothing"),
    },
    Mutant {
        name: "in-process-deleted-when-idle",
        wrong: "An idle job is removed though its destination was woken since the look.",
        file: IN_PROCESS,
        change: Rust {
            right: "lease.woken.map(|_| job.floor.unwrap_or(now))",
            wrong: "None",
        },
        killer: schedule("in_process_schedule::no_wake_is_lost_between_look_and_removal"),
    },
    Mutant {
        name: "in-process-wake-below-the-floor",
        wrong: "A wake ignores the floor.",
        file: IN_PROCESS,
        change: Rust {
            right: "job.floor.map_or(at, |floor| floor.max(at))",
            wrong: "at",
        },
        killer: schedule("in_process_schedule::a_wake_goes_no_lower_than_the_floor"),
    },
    Mutant {
        name: "in-process-wake-under-lease",
        wrong: "A wake ignores the lease.",
        file: IN_PROCESS,
        change: Rust {
            right: "wake.clear_floor || !leased",
            wrong: "true",
        },
        killer: schedule("in_process_schedule::a_wake_leaves_a_lease_alone"),
    },
    Mutant {
        name: "in-process-cleared-floor-comes-back",
        wrong: "A finish sets a floor that a wake has cleared since the look.",
        file: IN_PROCESS,
        change: Rust {
            right: "floor.filter(|_| lease.woken != Some(Woken::Clear))",
            wrong: "floor",
        },
        killer: schedule("in_process_schedule::clear_floor_under_lease_outlives_the_finish"),
    },
];
