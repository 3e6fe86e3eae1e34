//! Random ledgers whose faults are known: a base that keeps its limits by
//! construction, and crowds in the silence after it. Everything here counts by
//! brute force and calls nothing of the code that it is to judge.

use domain::ids::{AttemptId, DestinationId};
use domain::time::Timestamp;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use uuid::Uuid;

pub(crate) const SECOND: i64 = 1_000_000;

/// No start is at such an instant, so none meets a change.
const ODD: i64 = 333_337;

/// How the limit goes on from its first value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Constant,
    Lowered,
    Raised,
    Lifted,
    Bucket,
}

const KINDS: [Kind; 5] = [
    Kind::Constant,
    Kind::Lowered,
    Kind::Raised,
    Kind::Lifted,
    Kind::Bucket,
];

/// A limit per second and from when on; none is any number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) from: i64,
    pub(crate) limit: Option<u32>,
}

/// One destination and its starts, by time and id.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) kind: Kind,
    pub(crate) destination: DestinationId,
    pub(crate) event: Uuid,
    pub(crate) burst: Option<u32>,
    pub(crate) history: Vec<Entry>,
    pub(crate) starts: Vec<(i64, i64)>,
    /// The crowds that are over the limit, each with its ids in order of time.
    pub(crate) planted: Vec<Vec<i64>>,
}

/// What one clock second should look like to SQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Second {
    pub(crate) second: i64,
    pub(crate) starts: i64,
    pub(crate) limit: Option<i64>,
    pub(crate) over: bool,
}

impl Ledger {
    /// Ledger `number`, from the full second `begin` on; half a minute.
    pub(crate) fn random(number: u32, begin: i64) -> Self {
        let mut random = StdRng::seed_from_u64(u64::from(number));
        let kind = KINDS[number as usize % KINDS.len()];
        let first: u32 = random.random_range(2..=8);
        let next = match kind {
            Kind::Lowered => Some(random.random_range(1..first)),
            Kind::Raised => Some(first + random.random_range(1..=8)),
            Kind::Constant | Kind::Lifted | Kind::Bucket => None,
        };
        let mut history = vec![Entry {
            from: begin - 600 * SECOND,
            limit: Some(first),
        }];
        if !matches!(kind, Kind::Constant | Kind::Bucket) {
            let from = begin + random.random_range(3..7) * SECOND + ODD;
            history.push(Entry { from, limit: next });
        }
        let mut ledger = Self {
            kind,
            destination: DestinationId(Uuid::from_u128(0xd << 100 | u128::from(number))),
            event: Uuid::from_u128(0xe << 100 | u128::from(number)),
            burst: (kind == Kind::Bucket).then(|| random.random_range(1..=6)),
            history,
            starts: Vec::new(),
            planted: Vec::new(),
        };
        let mut times = ledger.base(&mut random, begin, begin + 12 * SECOND);
        let crowds: Vec<Vec<i64>> = (0..i64::from(number % 3))
            .map(|crowd| ledger.crowd(&mut random, begin + (15 + 4 * crowd) * SECOND))
            .collect();
        times.extend(crowds.iter().flatten());
        times.extend(ledger.base(&mut random, begin + 25 * SECOND, begin + 28 * SECOND));
        ledger.number(&times, &crowds, i64::from(number) * 10_000);
        ledger
    }

    /// As many starts as the limit allows, or not quite.
    fn base(&self, random: &mut StdRng, begin: i64, end: i64) -> Vec<i64> {
        let mut times: Vec<i64> = Vec::new();
        let mut at = begin + random.random_range(0..900) * 1_000;
        if let Some(burst) = self.burst {
            times.extend((0..burst).map(|_| at));
            at += self.spacing();
        }
        while at < end {
            let crowded = self.bound(at).and_then(|bound| {
                let within = times.iter().filter(|time| **time > at - SECOND);
                let oldest = within.clone().min()?;
                (within.count() >= bound as usize).then_some(*oldest)
            });
            match crowded {
                // The window is half open: a period after it there is room.
                Some(oldest) if self.burst.is_none() => at = oldest + SECOND,
                _ => {
                    times.push(at);
                    let gap = random.random_range(0..180) * 1_000;
                    at += gap + self.burst.map_or(0, |_| self.spacing());
                }
            }
        }
        times
    }

    /// What a bucket leaves between two starts.
    fn spacing(&self) -> i64 {
        let rate = self.history[0].limit.unwrap_or(1);
        SECOND / i64::from(rate) + 1_000
    }

    /// More starts than the limit allows, with silence around them: every
    /// other crowd so that no clock second shows it.
    fn crowd(&self, random: &mut StdRng, edge: i64) -> Vec<i64> {
        let limit = self.history.last().and_then(|entry| entry.limit);
        let limit = limit.unwrap_or(20);
        let most = self.burst.map_or(limit, |burst| bucket_bound(limit, burst));
        let count = most + random.random_range(1..=limit.min(4));
        let hidden = self.burst.is_none() && random.random_bool(0.5);
        let mut times: Vec<i64> = (0..count)
            .map(|start| {
                let within = random.random_range(0..450) * 1_000;
                match hidden && start < limit {
                    true => edge - 450_000 + within,
                    false => edge + within,
                }
            })
            .collect();
        times.sort_unstable();
        times
    }

    /// Gives ids, which do not go up with time.
    fn number(&mut self, times: &[i64], crowds: &[Vec<i64>], first: i64) {
        let ids = (0_i64..).map(|position| first + (position * 7 % 9_973));
        self.starts = times.iter().copied().zip(ids).collect();
        self.starts.sort_unstable();
        let over = crowds.iter().filter(|_| self.kind != Kind::Lifted);
        self.planted = over
            .map(|crowd| {
                let within = |start: &&(i64, i64)| crowd.contains(&start.0);
                let planted = self.starts.iter().filter(within);
                planted.map(|start| start.1).collect()
            })
            .collect();
    }

    /// The largest limit in force anywhere in the second that ends at `at`.
    fn bound(&self, at: i64) -> Option<u32> {
        largest(&self.in_force(at - SECOND, at))
    }

    fn in_force(&self, begin: i64, end: i64) -> Vec<Option<u32>> {
        let untils = self.history.iter().skip(1).map(|entry| entry.from);
        let untils = untils.chain([i64::MAX]);
        let touching = (self.history.iter().zip(untils))
            .filter(|(entry, until)| entry.from < end && *until > begin);
        touching.map(|(entry, _)| entry.limit).collect()
    }

    /// What an over-full window may hold, where the crowds are.
    pub(crate) fn allowed(&self) -> Option<u64> {
        let limit = self.history.last()?.limit?;
        // The report's bound of a window is rounded down, the view's up.
        Some(match self.burst {
            Some(burst) => u64::from(burst + limit * 3 / 2),
            None => u64::from(limit),
        })
    }

    /// The count and the end of the fullest window, by looking at all of them.
    pub(crate) fn fullest(&self) -> (u64, Timestamp) {
        let count = |end: i64| {
            let within = |start: &&(i64, i64)| start.0 > end - SECOND && start.0 <= end;
            self.starts.iter().filter(within).count() as u64
        };
        let windows = self.starts.iter().map(|(end, _)| (count(*end), *end));
        let fullest = windows.max_by_key(|(count, end)| (*count, -*end)).unwrap();
        (fullest.0, Timestamp::from_micros(fullest.1))
    }

    /// Every clock second with a start.
    pub(crate) fn seconds(&self) -> Vec<Second> {
        let mut seconds: Vec<i64> = self.starts.iter().map(|start| start.0 / SECOND).collect();
        seconds.dedup();
        let view = seconds.iter().map(|second| {
            let starts = self
                .starts
                .iter()
                .filter(|start| start.0 / SECOND == *second);
            let starts = starts.count() as i64;
            let limit = largest(&self.in_force(second * SECOND, (second + 1) * SECOND));
            let bound = limit.map(|limit| match self.burst {
                Some(burst) => bucket_bound(limit, burst),
                None => limit,
            });
            Second {
                second: *second,
                starts,
                limit: limit.map(i64::from),
                over: bound.is_some_and(|bound| starts > i64::from(bound)),
            }
        });
        view.collect()
    }

    /// The starts as a receiver that saw them at once would log them.
    pub(crate) fn log(&self) -> Vec<(Timestamp, AttemptId)> {
        let starts = self.starts.iter();
        starts
            .map(|(at, id)| (Timestamp::from_micros(*at), AttemptId(*id)))
            .collect()
    }
}

/// A burst, and what the refill gives in a second and half a second of slack.
fn bucket_bound(limit: u32, burst: u32) -> u32 {
    burst + (limit * 3).div_ceil(2)
}

fn largest(limits: &[Option<u32>]) -> Option<u32> {
    let all: Option<Vec<u32>> = limits.iter().copied().collect();
    all.and_then(|all| all.into_iter().max())
}
