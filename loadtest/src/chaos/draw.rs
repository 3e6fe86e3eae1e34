//! One fault at random, of one group.

use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use super::crash::CrashPoint;
use super::fault::{Fault, Server, Slot, Trouble};
use super::proxy::Link;
use super::world::Cast;

/// What is drawn from, each as often as the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Group {
    Kill,
    Freeze,
    Terminate,
    SchedulerCrash,
    WorkerCrash,
    ApiCrash,
    PostgresLink,
    RedisLink,
    RabbitmqLink,
    ApiLink,
    ReceiverLink,
    KillServer,
    Schedule,
    Queue,
    MemoryAlarm,
    DiskFull,
    Clock,
    Limit,
    Pause,
    Delete,
    Afterlife,
    Secret,
    LateCommit,
}

/// A deck of them.
pub(super) const GROUPS: [Group; 26] = [
    Group::Kill,
    Group::Kill,
    Group::Freeze,
    Group::Terminate,
    Group::SchedulerCrash,
    Group::WorkerCrash,
    Group::WorkerCrash,
    Group::ApiCrash,
    Group::PostgresLink,
    Group::RedisLink,
    Group::RabbitmqLink,
    Group::ApiLink,
    Group::ReceiverLink,
    Group::KillServer,
    Group::Schedule,
    Group::Queue,
    Group::MemoryAlarm,
    Group::DiskFull,
    Group::Clock,
    Group::Limit,
    Group::Pause,
    Group::Delete,
    Group::Afterlife,
    Group::Afterlife,
    Group::Secret,
    Group::LateCommit,
];

impl Group {
    /// Whether it stops everything for a while.
    pub(super) const fn is_heavy(self) -> bool {
        matches!(
            self,
            Self::KillServer | Self::MemoryAlarm | Self::DiskFull | Self::Clock
        )
    }

    /// One fault of this group.
    pub(super) fn draw(self, random: &mut StdRng, cast: &Cast) -> Fault {
        let millis = |random: &mut StdRng, from: u64, to: u64| {
            Duration::from_millis(random.random_range(from..=to))
        };
        match self {
            Self::Kill => Fault::Kill(slot(random)),
            Self::Freeze => {
                // Mostly short: what matters is less than a lease, more than a
                // lease, and more than a heartbeat's patience.
                let long = random.random_bool(0.3);
                let most = if long { 20_000 } else { 3_000 };
                Fault::Freeze(slot(random), millis(random, 100, most))
            }
            Self::Terminate => Fault::Terminate(slot(random)),
            Self::SchedulerCrash => crash(random, "scheduler"),
            Self::WorkerCrash => crash(random, "worker"),
            Self::ApiCrash => crash(random, "api"),
            Self::PostgresLink => server_link(random, Server::Postgres),
            Self::RedisLink => server_link(random, Server::Redis),
            Self::RabbitmqLink => server_link(random, Server::Rabbitmq),
            Self::ApiLink => Fault::ApiLink(slot_of(random, "api"), trouble(random)),
            Self::ReceiverLink => {
                Fault::ReceiverLink(one_of(random, &cast.proxied), trouble(random))
            }
            Self::KillServer => {
                let server = Server::ALL.choose(random).copied();
                let server = server.unwrap_or(Server::Redis);
                Fault::KillServer(server, millis(random, 0, 3_000))
            }
            Self::Schedule => Fault::LoseSchedule,
            Self::Queue if random.random_bool(0.5) => Fault::PurgeQueue,
            Self::Queue => Fault::DeleteQueue,
            Self::MemoryAlarm => Fault::MemoryAlarm(millis(random, 2_000, 6_000)),
            Self::DiskFull => Fault::DiskFull(millis(random, 1_000, 5_000)),
            Self::Clock => {
                let by = random.random_range(100..=3_000);
                let forward = random.random_bool(0.5);
                Fault::ClockStep(if forward { by } else { -by })
            }
            Self::Limit => {
                let percent = [20, 50, 80, 150, 200, 300].choose(random).copied();
                Fault::ChangeLimit(one_of(random, &cast.changed), percent.unwrap_or(50))
            }
            Self::Pause => Fault::Pause(one_of(random, &cast.changed), millis(random, 500, 8_000)),
            Self::Delete => Fault::Delete(one_of(random, &cast.deleted)),
            Self::Secret => {
                // Mostly long enough to be seen.
                let overlap = [0, 5_000, 20_000].choose(random).copied();
                let overlap = Duration::from_millis(overlap.unwrap_or(0));
                Fault::Rotate(one_of(random, &cast.rotated), overlap)
            }
            Self::LateCommit => {
                Fault::LateCommit(one_of(random, &cast.late), millis(random, 45_000, 50_000))
            }
            // Mostly what makes dead letters, and what brings them back.
            Self::Afterlife => {
                let changed = one_of(random, &cast.changed);
                match random.random_range(0..5) {
                    0 => Fault::Cancel(changed),
                    1 | 2 => Fault::Age(changed, millis(random, 1_000, 10_000)),
                    _ => Fault::Replay,
                }
            }
        }
    }
}

fn slot(random: &mut StdRng) -> Slot {
    Slot::ALL.choose(random).copied().unwrap_or(Slot::ALL[0])
}

fn slot_of(random: &mut StdRng, role: &str) -> Slot {
    let slots: Vec<_> = Slot::of(role).collect();
    slots.choose(random).copied().unwrap_or(Slot::ALL[0])
}

fn one_of(random: &mut StdRng, numbers: &[u32]) -> u32 {
    numbers.choose(random).copied().unwrap_or(0)
}

fn crash(random: &mut StdRng, role: &str) -> Fault {
    let points: Vec<_> = CrashPoint::of(role).collect();
    let point = points.choose(random).copied().unwrap_or(CrashPoint::ALL[0]);
    let times = random.random_range(1..=20);
    // News are rare beside all that a scheduler does.
    let times = match point {
        CrashPoint::AfterWatch | CrashPoint::AfterRelay => 1,
        _ => times,
    };
    Fault::Crash(slot_of(random, role), point, times)
}

fn server_link(random: &mut StdRng, server: Server) -> Fault {
    let slots: Vec<_> = (Slot::ALL.into_iter())
        .filter(|slot| server != Server::Rabbitmq || slot.role != "api")
        .collect();
    let slot = slots.choose(random).copied().unwrap_or(Slot::ALL[2]);
    Fault::ServerLink(slot, server, trouble(random))
}

fn trouble(random: &mut StdRng) -> Trouble {
    let link = match random.random_range(0..7) {
        0 => return Trouble::Reset,
        1 => Link::Latency(Duration::from_millis(random.random_range(5..=400))),
        2 => Link::Throttle(random.random_range(2_000..=100_000)),
        3 => Link::Blackhole,
        4 => Link::DeafServer,
        5 => Link::DeafProcess,
        _ => Link::CutAfter(random.random_range(1..=20_000)),
    };
    Trouble::For(
        link,
        Duration::from_millis(random.random_range(500..=8_000)),
    )
}
