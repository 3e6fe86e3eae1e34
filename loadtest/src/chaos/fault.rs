//! What can go wrong in a run, by name.

use std::time::Duration;

use super::crash::CrashPoint;
use super::proxy::Link;

/// A place for a process: its role and its number. A process that ended is
/// followed by another one in the same slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Slot {
    pub(crate) role: &'static str,
    pub(crate) number: usize,
}

impl Slot {
    /// Two of the API, two schedulers, three workers.
    pub(crate) const ALL: [Self; 7] = [
        Self::new("api", 0),
        Self::new("api", 1),
        Self::new("scheduler", 0),
        Self::new("scheduler", 1),
        Self::new("worker", 0),
        Self::new("worker", 1),
        Self::new("worker", 2),
    ];

    const fn new(role: &'static str, number: usize) -> Self {
        Self { role, number }
    }

    /// Those of one role.
    pub(crate) fn of(role: &str) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |slot| slot.role == role)
    }
}

impl std::fmt::Display for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.role, self.number)
    }
}

/// One of the three servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Server {
    Postgres,
    Redis,
    Rabbitmq,
}

impl Server {
    pub(crate) const ALL: [Self; 3] = [Self::Postgres, Self::Redis, Self::Rabbitmq];

    /// As `scripts/servers` calls it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Redis => "redis",
            Self::Rabbitmq => "rabbitmq",
        }
    }
}

/// What a proxy does to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// For a while.
    For(Link, Duration),
    /// Once, to all that are open.
    Reset,
}

impl Trouble {
    const fn name(self) -> &'static str {
        match self {
            Self::Reset => "reset",
            Self::For(link, _) => match link {
                Link::Pass => "pass",
                Link::Latency(_) => "latency",
                Link::Throttle(_) => "throttle",
                Link::Blackhole => "blackhole",
                Link::DeafServer | Link::DeafProcess => "one-way",
                Link::CutAfter(_) => "cut",
            },
        }
    }
}

/// One thing that goes wrong. Destinations are given by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// `kill -9`.
    Kill(Slot),
    /// SIGSTOP, and SIGCONT after this long.
    Freeze(Slot, Duration),
    /// SIGTERM, and a new process after the old one has drained.
    Terminate(Slot),
    /// The next process in this slot ends, without a word, when it has been at
    /// a point so many times.
    Crash(Slot, CrashPoint, u32),
    /// The link of one process to one server.
    ServerLink(Slot, Server, Trouble),
    /// The link of the client to one process of the API.
    ApiLink(Slot, Trouble),
    /// The link of all workers to one destination.
    ReceiverLink(u32, Trouble),
    /// `kill -9` of a server, and a start after this long.
    KillServer(Server, Duration),
    /// FLUSHALL.
    LoseSchedule,
    /// The delivery queue is emptied.
    PurgeQueue,
    /// The delivery queue is deleted.
    DeleteQueue,
    /// The broker believes that its memory is full.
    MemoryAlarm(Duration),
    /// The disk of Postgres is full.
    DiskFull(Duration),
    /// The store's clock is set, in milliseconds.
    ClockStep(i64),
    /// A limit is multiplied by this many per cent.
    ChangeLimit(u32, u32),
    /// A destination is paused, and resumed after this long.
    Pause(u32, Duration),
    /// A destination is deleted, with its backlog.
    Delete(u32),
    /// What waits at a destination is cancelled.
    Cancel(u32),
    /// The events that a destination gets for this long may not become old.
    Age(u32, Duration),
    /// All dead letters of all destinations are replayed.
    Replay,
    /// A destination gets another secret; the one before signs beside it for this
    /// long.
    Rotate(u32, Duration),
    /// A transaction that inserts an event for a destination stays open for this
    /// long, and commits.
    LateCommit(u32, Duration),
}

impl Fault {
    /// The name of its kind, by which documents and summaries count it.
    pub(crate) fn kind(self) -> String {
        match self {
            Self::Kill(slot) => format!("kill-{}", slot.role),
            Self::Freeze(slot, _) => format!("freeze-{}", slot.role),
            Self::Terminate(slot) => format!("terminate-{}", slot.role),
            Self::Crash(_, point, _) => format!("crash-{}", point.as_str()),
            Self::ServerLink(_, server, trouble) => {
                format!("{}-link-{}", server.as_str(), trouble.name())
            }
            Self::ApiLink(_, trouble) => format!("api-link-{}", trouble.name()),
            Self::ReceiverLink(_, trouble) => format!("receiver-link-{}", trouble.name()),
            Self::KillServer(server, _) => format!("kill-{}", server.as_str()),
            Self::LoseSchedule => "lose-schedule".to_owned(),
            Self::PurgeQueue => "purge-queue".to_owned(),
            Self::DeleteQueue => "delete-queue".to_owned(),
            Self::MemoryAlarm(_) => "memory-alarm".to_owned(),
            Self::DiskFull(_) => "disk-full".to_owned(),
            Self::ClockStep(millis) if millis > 0 => "clock-forward".to_owned(),
            Self::ClockStep(_) => "clock-back".to_owned(),
            Self::ChangeLimit(_, percent) if percent > 100 => "raise-limit".to_owned(),
            Self::ChangeLimit(..) => "cut-limit".to_owned(),
            Self::Pause(..) => "pause".to_owned(),
            Self::Delete(_) => "delete-destination".to_owned(),
            Self::Cancel(_) => "cancel-backlog".to_owned(),
            Self::Age(..) => "short-age".to_owned(),
            Self::Replay => "replay".to_owned(),
            Self::Rotate(..) => "rotate-secret".to_owned(),
            Self::LateCommit(..) => "late-commit".to_owned(),
        }
    }
}

/// Whether faults of this kind end a process or a server without warning.
pub(crate) fn is_kill(kind: &str) -> bool {
    kind.starts_with("kill-") || kind.starts_with("crash-")
}

/// Every kind there is. A test compares this with what plans are made of.
pub(crate) const KINDS: [&str; 72] = [
    "api-link-blackhole",
    "api-link-cut",
    "api-link-latency",
    "api-link-one-way",
    "api-link-reset",
    "api-link-throttle",
    "cancel-backlog",
    "clock-back",
    "clock-forward",
    "crash-after-accept",
    "crash-after-admit",
    "crash-after-claim",
    "crash-after-publish",
    "crash-after-receive",
    "crash-after-record",
    "crash-after-relay",
    "crash-after-send",
    "crash-after-settle",
    "crash-after-take",
    "crash-after-watch",
    "crash-before-accept",
    "crash-before-record",
    "crash-mid-publish",
    "cut-limit",
    "delete-destination",
    "delete-queue",
    "disk-full",
    "freeze-api",
    "freeze-scheduler",
    "freeze-worker",
    "kill-api",
    "kill-postgres",
    "kill-rabbitmq",
    "kill-redis",
    "kill-scheduler",
    "kill-worker",
    "late-commit",
    "lose-schedule",
    "memory-alarm",
    "pause",
    "postgres-link-blackhole",
    "postgres-link-cut",
    "postgres-link-latency",
    "postgres-link-one-way",
    "postgres-link-reset",
    "postgres-link-throttle",
    "purge-queue",
    "rabbitmq-link-blackhole",
    "rabbitmq-link-cut",
    "rabbitmq-link-latency",
    "rabbitmq-link-one-way",
    "rabbitmq-link-reset",
    "rabbitmq-link-throttle",
    "raise-limit",
    "receiver-link-blackhole",
    "receiver-link-cut",
    "receiver-link-latency",
    "receiver-link-one-way",
    "receiver-link-reset",
    "receiver-link-throttle",
    "redis-link-blackhole",
    "redis-link-cut",
    "redis-link-latency",
    "redis-link-one-way",
    "redis-link-reset",
    "redis-link-throttle",
    "replay",
    "rotate-secret",
    "short-age",
    "terminate-api",
    "terminate-scheduler",
    "terminate-worker",
];
