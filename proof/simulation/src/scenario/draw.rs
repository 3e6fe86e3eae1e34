//! Drawing a scenario from a seed.

mod groups;
mod handshakes;
mod limits;

use domain::destination::DestinationState;
use domain::policy::LimitSettings;
use domain::smart::SmartDelivery;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{Behaviour, Fault, Mood, Operation, Point, Process, Scenario, What};
use crate::model::Condition;
use crate::site::Site;
use limits::{NONE, enough_for};

const SECOND: u64 = 1_000;
/// Of the dice for smart delivery.
const SMART: u64 = 0x5A17;
/// Of the dice for batches.
const BATCHES: u64 = 0xBA7C;
/// Of the dice for receivers that answer event by event.
const PARTS: u64 = 0x207;
/// Of the dice for receivers that answer nonsense.
const NONSENSE: u64 = 0xBAB8;
/// Of the dice for commits that are held up.
const HELD_UP: u64 = 0x1A7E;
/// All faults but that one, which is the last.
const FAULTS: usize = Fault::ALL.len() - 1;
/// Of the dice for bounds of the backlog.
const BOUNDS: u64 = 0xB0D5;
/// Of the dice for operational destinations.
const TOLD: u64 = 0x701D;
/// Of the dice for retention.
const KEEP: u64 = 0x4EE9;
const MINUTE: u64 = 60 * SECOND;

/// The scenario of a seed. One in four is calm, one in 32 long.
pub(super) fn scenario(seed: u64) -> Scenario {
    let mut rng = StdRng::seed_from_u64(seed);
    let mood = match seed % 32 {
        31 => Mood::Long,
        n if n % 4 == 0 => Mood::Calm,
        _ => Mood::Stormy,
    };
    let draw = Draw {
        rng: &mut rng,
        schedulers: 1,
        workers: 1,
        destinations: 1,
        operations: Vec::new(),
    };
    match mood {
        Mood::Calm => draw.calm(seed),
        Mood::Stormy => draw.stormy(seed),
        Mood::Long => draw.long(seed),
    }
}

struct Draw<'a> {
    rng: &'a mut StdRng,
    schedulers: u32,
    workers: u32,
    destinations: usize,
    operations: Vec<(u64, What)>,
}

impl Draw<'_> {
    /// Backlog all the time at most destinations, a trickle at one, and one
    /// receiver that misbehaves.
    fn calm(mut self, seed: u64) -> Scenario {
        let lasts_ms = self.rng.random_range(150..300) * SECOND;
        self.size(3..6, 1..3);
        let limits: Vec<_> = (0..self.destinations).map(|_| self.steady()).collect();
        for (destination, limits) in limits.iter().enumerate() {
            if destination == 0 {
                self.trickle(destination, lasts_ms);
            } else {
                let events = enough_for(limits, lasts_ms);
                self.push(
                    0,
                    What::Arrivals {
                        destination,
                        events,
                        every_ms: 0,
                    },
                );
            }
        }
        if self.rng.random_bool(0.5) {
            let behaviour = self.behaviour();
            let receiver = What::Receiver {
                destination: self.destinations - 1,
                behaviour,
                lasts_ms: lasts_ms / 2,
            };
            self.push(lasts_ms / 4, receiver);
        }
        self.scenario(seed, Mood::Calm, limits, lasts_ms)
    }

    /// Work comes in bursts and trickles, and everything that can go wrong
    /// does.
    fn stormy(mut self, seed: u64) -> Scenario {
        let lasts_ms = self.rng.random_range(120..480) * SECOND;
        self.size(2..6, 1..4);
        let limits: Vec<_> = (0..self.destinations).map(|_| self.any_limits()).collect();
        for destination in 0..self.destinations {
            self.some_work(destination, lasts_ms);
        }
        for _ in 0..self.rng.random_range(4..40) {
            let at = self.rng.random_range(0..lasts_ms);
            let what = self.trouble();
            self.push(at, what);
        }
        self.smart_delivery(seed);
        self.batches(seed, lasts_ms);
        self.parts(seed, lasts_ms);
        self.nonsense(seed, lasts_ms);
        self.keep(seed);
        self.bounds(seed, lasts_ms);
        self.told(seed, lasts_ms);
        self.held_up(seed, lasts_ms);
        self.groups(seed, lasts_ms);
        self.handshakes(seed, lasts_ms);
        for _ in 0..self.rng.random_range(0..10) {
            let at = self.rng.random_range(0..lasts_ms);
            let what = self.afterlife();
            self.push(at, what);
        }
        self.scenario(seed, Mood::Stormy, limits, lasts_ms)
    }

    /// Some destinations have smart delivery, and some of those a receiver
    /// that takes only so much. With dice of its own: all other draws stay.
    fn smart_delivery(&mut self, seed: u64) {
        let mut rng = StdRng::seed_from_u64(seed ^ SMART);
        for destination in 0..self.destinations {
            if !rng.random_bool(0.3) {
                continue;
            }
            let to = SmartDelivery::On;
            self.push(0, What::Smart { destination, to });
            let per_second = rng.random_range(1..30);
            let behaviour = match rng.random_range(0..4) {
                0 => Behaviour::Takes { per_second },
                1 => Behaviour::Queues { per_second },
                _ => continue,
            };
            let lasts_ms = rng.random_range(20..200) * SECOND;
            let receiver = What::Receiver {
                destination,
                behaviour,
                lasts_ms,
            };
            self.push(0, receiver);
        }
    }

    /// Some destinations want batches, from the beginning or from some time on,
    /// and some change their minds. With dice of its own, like the one above.
    fn batches(&mut self, seed: u64, lasts_ms: u64) {
        let mut rng = StdRng::seed_from_u64(seed ^ BATCHES);
        for destination in 0..self.destinations {
            if !rng.random_bool(0.25) {
                continue;
            }
            for at in [0, rng.random_range(0..lasts_ms), lasts_ms / 2] {
                let max_events = match at {
                    0 => rng.random_range(2..30),
                    _ if rng.random_bool(0.6) => continue,
                    _ => rng.random_range(0..5),
                };
                let what = What::Batches {
                    destination,
                    max_events,
                    max_bytes: rng.random_range(10..2_000),
                    max_wait_ms: rng.random_range(0..3_000),
                };
                self.push(at, what);
            }
        }
    }

    /// Some that take batches answer event by event for a while. With dice of its
    /// own: all other draws stay.
    fn parts(&mut self, seed: u64, lasts_ms: u64) {
        let mut rng = StdRng::seed_from_u64(seed ^ PARTS);
        for destination in 0..self.destinations {
            if !self.takes_batches(destination) || !rng.random_bool(0.6) {
                continue;
            }
            let receiver = What::Receiver {
                destination,
                behaviour: Behaviour::AnswersInParts,
                lasts_ms: rng.random_range(20..200) * SECOND,
            };
            self.push(rng.random_range(0..lasts_ms), receiver);
        }
    }

    /// Some answer nonsense for a while, mostly those that take batches. With dice
    /// of its own: all other draws stay.
    fn nonsense(&mut self, seed: u64, lasts_ms: u64) {
        let mut rng = StdRng::seed_from_u64(seed ^ NONSENSE);
        for destination in 0..self.destinations {
            let chance = if self.takes_batches(destination) {
                0.5
            } else {
                0.1
            };
            if !rng.random_bool(chance) {
                continue;
            }
            let receiver = What::Receiver {
                destination,
                behaviour: Behaviour::AnswersNonsense,
                lasts_ms: rng.random_range(10..100) * SECOND,
            };
            self.push(rng.random_range(0..lasts_ms), receiver);
        }
    }

    /// Whether batches are ever set for it.
    fn takes_batches(&self, destination: usize) -> bool {
        let of_it = |what: &What| matches!(what, What::Batches { destination: of, .. } if *of == destination);
        self.operations.iter().any(|(_, what)| of_it(what))
    }

    /// Some forget payloads while all goes on. With dice of its own: all other
    /// draws stay.
    fn keep(&mut self, seed: u64) {
        let mut rng = StdRng::seed_from_u64(seed ^ KEEP);
        if rng.random_bool(0.3) {
            let keep = What::Keep {
                payloads_ms: rng.random_range(1..60) * SECOND,
                ledger_ms: 0,
                dead_letters_ms: 0,
            };
            self.push(0, keep);
        }
    }

    /// Some bound their backlogs, and the process that counts them dies. With
    /// dice of its own: all other draws stay.
    fn bounds(&mut self, seed: u64, lasts_ms: u64) {
        let mut rng = StdRng::seed_from_u64(seed ^ BOUNDS);
        if !rng.random_bool(0.3) {
            return;
        }
        let bound = What::Bound {
            destination_most: rng.random_range(20..200),
            tenant_most: rng.random_range(50..600),
        };
        self.push(0, bound);
        for _ in 0..rng.random_range(0..4) {
            let site = [Site::Standings, Site::AcceptEvents][rng.random_range(0..2)];
            let point = [Point::Before(site), Point::After(site)][rng.random_range(0..2)];
            let kill = What::Kill {
                process: Process::Api,
                point,
                down_ms: [0, 300, 3_000][rng.random_range(0..3)],
            };
            self.push(rng.random_range(0..lasts_ms), kill);
        }
    }

    /// Some are told what operators must know, and the process that tells them
    /// dies. With dice of its own: all other draws stay.
    fn told(&mut self, seed: u64, lasts_ms: u64) {
        let mut rng = StdRng::seed_from_u64(seed ^ TOLD);
        if !rng.random_bool(0.3) {
            return;
        }
        for _ in 0..rng.random_range(1..3) {
            let destination = rng.random_range(0..self.destinations);
            self.push(0, What::Told { destination });
        }
        for _ in 0..rng.random_range(0..5) {
            let site = [Site::Watch, Site::RelayNews][rng.random_range(0..2)];
            let point = [Point::Before(site), Point::After(site)][rng.random_range(0..2)];
            let kill = What::Kill {
                process: Process::Scheduler(rng.random_range(0..self.schedulers)),
                point,
                down_ms: [0, 300, 3_000][rng.random_range(0..3)],
            };
            self.push(rng.random_range(0..lasts_ms), kill);
        }
    }

    /// Some commits of events are held up: by a standby that stalls, or a client
    /// that is slow to end its transaction. With dice of its own: all other draws
    /// stay.
    fn held_up(&mut self, seed: u64, lasts_ms: u64) {
        let mut rng = StdRng::seed_from_u64(seed ^ HELD_UP);
        if !rng.random_bool(0.3) {
            return;
        }
        for _ in 0..rng.random_range(1..4) {
            let fault = What::Fault {
                fault: Fault::CommitHeldUp,
                permille: [50, 200, 1_000][rng.random_range(0..3)],
                lasts_ms: rng.random_range(1..30) * SECOND,
            };
            self.push(rng.random_range(0..lasts_ms), fault);
        }
    }

    /// Limits of an hour, for more than an hour.
    fn long(mut self, seed: u64) -> Scenario {
        let lasts_ms = self.rng.random_range(75..100) * MINUTE;
        self.size(2..4, 1..3);
        let limits: Vec<_> = (0..self.destinations)
            .map(|_| LimitSettings {
                per_hour: Some(self.rng.random_range(60..900)),
                per_minute: self.rng.random_bool(0.5).then_some(40),
                ..NONE
            })
            .collect();
        for destination in 0..self.destinations {
            let arrivals = What::Arrivals {
                destination,
                events: self.rng.random_range(200..1_000),
                every_ms: 0,
            };
            self.push(0, arrivals);
        }
        for _ in 0..self.rng.random_range(2..12) {
            let at = self.rng.random_range(0..lasts_ms);
            let what = self.trouble();
            self.push(at, what);
        }
        self.scenario(seed, Mood::Long, limits, lasts_ms)
    }

    fn scenario(
        self,
        seed: u64,
        mood: Mood,
        destinations: Vec<LimitSettings>,
        lasts_ms: u64,
    ) -> Scenario {
        let mut operations = self.operations;
        operations.sort_by_key(|(at_ms, _)| *at_ms);
        let operations = (0_u32..)
            .zip(operations)
            .map(|(number, (at_ms, what))| Operation {
                number,
                at_ms,
                what,
            })
            .collect();
        Scenario {
            seed,
            mood,
            destinations,
            schedulers: self.schedulers,
            workers: self.workers,
            operations,
            lasts_ms,
        }
    }

    fn push(&mut self, at_ms: u64, what: What) {
        self.operations.push((at_ms, what));
    }

    fn size(&mut self, destinations: std::ops::Range<usize>, processes: std::ops::Range<u32>) {
        self.destinations = self.rng.random_range(destinations);
        self.schedulers = self.rng.random_range(processes.clone());
        self.workers = self.rng.random_range(processes);
    }

    fn trickle(&mut self, destination: usize, lasts_ms: u64) {
        let every_ms = self.rng.random_range(1_100..4_000);
        let arrivals = What::Arrivals {
            destination,
            events: u32::try_from(lasts_ms / every_ms).unwrap_or(u32::MAX),
            every_ms,
        };
        self.push(0, arrivals);
    }

    fn some_work(&mut self, destination: usize, lasts_ms: u64) {
        if self.rng.random_bool(0.4) {
            self.trickle(destination, lasts_ms);
        }
        for _ in 0..self.rng.random_range(1..4) {
            let at = self.rng.random_range(0..lasts_ms);
            let arrivals = What::Arrivals {
                destination,
                events: self.rng.random_range(1..250),
                every_ms: [0, 0, 20, 300][self.rng.random_range(0..4)],
            };
            self.push(at, arrivals);
        }
    }

    fn behaviour(&mut self) -> Behaviour {
        match self.rng.random_range(0..6) {
            0 => Behaviour::Refuses,
            1 => Behaviour::Fails,
            2 => Behaviour::Busy,
            3 => Behaviour::Hangs,
            4 => Behaviour::LosesResponses,
            _ => Behaviour::Slow {
                millis: self.rng.random_range(200..20_000),
            },
        }
    }

    fn process(&mut self) -> Process {
        match self.rng.random_range(0..5) {
            0 => Process::Api,
            1 | 2 => Process::Scheduler(self.rng.random_range(0..self.schedulers)),
            _ => Process::Worker(self.rng.random_range(0..self.workers)),
        }
    }

    /// One thing that an owner, a receiver or fate does.
    fn trouble(&mut self) -> What {
        let destination = self.rng.random_range(0..self.destinations);
        let lasts_ms = self.rng.random_range(200..40_000);
        match self.rng.random_range(0..100) {
            0..25 => What::Fault {
                fault: Fault::ALL[self.rng.random_range(0..FAULTS)],
                permille: [10, 50, 200, 500, 1_000][self.rng.random_range(0..5)],
                lasts_ms,
            },
            25..42 => self.kill(),
            42..48 => What::Pause {
                process: self.process(),
                lasts_ms: lasts_ms / 3,
            },
            48..52 => What::Stop {
                process: self.process(),
                down_ms: lasts_ms,
            },
            52..57 => What::PodClock {
                process: self.process(),
                step_ms: self.rng.random_range(-3_000..3_000),
                lasts_ms: lasts_ms / 4,
            },
            57..59 => What::StoreClock {
                step_ms: self.rng.random_range(-5_000..5_000),
            },
            59 => What::ScheduleClock {
                step_ms: self.rng.random_range(-20_000..20_000),
            },
            60 | 61 => What::WipeSchedule,
            62 => What::WipeQueue,
            63 => What::PurgeQueue,
            64 => What::BreakConnections,
            65 => What::Broker {
                condition: [Condition::Down, Condition::Blocked][self.rng.random_range(0..2)],
                lasts_ms: lasts_ms / 2,
            },
            66 | 67 => What::Lock {
                destination,
                lasts_ms: lasts_ms / 8,
            },
            68..78 => What::Receiver {
                destination,
                behaviour: self.behaviour(),
                lasts_ms,
            },
            78..92 => What::Limits {
                destination,
                limits: self.any_limits(),
            },
            92..94 => What::Tier {
                limits: self.steady(),
            },
            94..98 => What::State {
                destination,
                state: [
                    DestinationState::Paused,
                    DestinationState::Active,
                    DestinationState::Disabled,
                ][self.rng.random_range(0..3)],
            },
            _ => What::Delete { destination },
        }
    }

    /// What ends events before they are delivered, and brings them back.
    fn afterlife(&mut self) -> What {
        let destination = self.rng.random_range(0..self.destinations);
        match self.rng.random_range(0..10) {
            0 => What::Cancel { destination },
            1 | 2 => What::Age {
                destination,
                max_age_ms: [0, 500, 5_000, 60_000][self.rng.random_range(0..4)],
            },
            3..7 => What::Replay {
                destination,
                share_percent: [10, 50, 100][self.rng.random_range(0..3)],
            },
            7 => What::Later {
                destination,
                by_ms: [0, 700, 6_000, 30_000][self.rng.random_range(0..4)],
                lives_ms: [0, 0, 800, 10_000][self.rng.random_range(0..4)],
            },
            _ => What::Receiver {
                destination,
                behaviour: Behaviour::Rejects,
                lasts_ms: self.rng.random_range(200..40_000),
            },
        }
    }

    fn kill(&mut self) -> What {
        let process = self.process();
        let sites = Site::of(process);
        let site = sites[self.rng.random_range(0..sites.len())];
        let point = match self.rng.random_range(0..5) {
            0 => Point::Now,
            1 | 2 => Point::Before(site),
            _ => Point::After(site),
        };
        What::Kill {
            process,
            point,
            down_ms: [0, 300, 3_000, 15_000][self.rng.random_range(0..4)],
        }
    }
}
