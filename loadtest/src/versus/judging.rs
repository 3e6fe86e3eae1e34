//! What a turn came to, from what the receiver saw and what the kernel says. Pure, and
//! the same for both sides.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, ensure};
use domain::compliance::{InForce, MeanShare};
use domain::destination::DestinationState;
use domain::time::Timestamp;
use serde::Serialize;
use server::trial::WHOLE_WINDOWS;

use crate::run::arrivals::Arrival;
use crate::run::judging::{Received, at_receiver};
use crate::run::processes::Used;
use crate::run::receiving::Seen;
use crate::run::settings::{Limit, Settings};

/// What the receiver's processes are called.
pub(super) const RECEIVER: &str = "receiver";

/// A backlog that was drained.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Drained {
    /// From letting go until every event had arrived.
    pub(super) seconds: f64,
    pub(super) per_second: f64,
    /// Processor time of all processes of the side, for each delivery.
    pub(super) cpu_us: f64,
    /// The receiver's, which is not in it.
    pub(super) receiver_us: f64,
    /// Of each process, for each delivery.
    pub(super) processes_us: BTreeMap<String, f64>,
    /// Requests beyond one for each event.
    pub(super) extra: u64,
    /// The most connections that were open to the receiver.
    pub(super) connections: u64,
}

/// A limit with a backlog behind it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Limited {
    /// Arrivals in per cent of those of a perfect sender that began with the first one,
    /// on average over the instants of the last period.
    pub(super) share_percent: f64,
    /// What a window may hold.
    pub(super) allowed: u64,
    /// The fullest window of the whole period, less what the receiver's stalls explain.
    pub(super) worst: u64,
    /// Arrivals beyond the limit.
    pub(super) early: u64,
    /// Those that stalls of the receiver explain.
    pub(super) explained: u64,
}

impl Drained {
    /// Of so many events, since letting go.
    pub(super) fn new(
        (events, began_us): (u32, i64),
        seen: &Seen,
        used: &BTreeMap<String, Used>,
    ) -> anyhow::Result<Self> {
        let mut first_us = vec![None; events as usize];
        for arrival in seen.arrivals.iter().filter(|arrival| arrival.is_taken()) {
            if let Some(first) = first_us.get_mut(arrival.event as usize) {
                first.get_or_insert(arrival.at_us);
            }
        }
        let missing = first_us.iter().filter(|first| first.is_none()).count();
        ensure!(missing == 0, "{missing} of {events} events did not arrive");
        let last_us = first_us.into_iter().flatten().max().context("no events")?;
        let seconds = (last_us - began_us) as f64 / 1_000_000.0;
        let each = |used: &Used| used.cpu_seconds() * 1_000_000.0 / f64::from(events);
        let mut processes_us: BTreeMap<_, _> = used
            .iter()
            .map(|(name, used)| (name.clone(), each(used)))
            .collect();
        let receiver_us = processes_us.remove(RECEIVER);
        Ok(Self {
            seconds,
            per_second: f64::from(events) / seconds,
            cpu_us: processes_us.values().sum(),
            receiver_us: receiver_us.context("what the receiver used is not known")?,
            processes_us,
            extra: seen.arrivals.len() as u64 + seen.dropped - u64::from(events),
            connections: seen.connections,
        })
    }
}

/// What was used between two looks, by name. A process that has ended meanwhile is an
/// error: what it used is not known.
pub(super) fn between(
    before: &BTreeMap<String, Used>,
    after: &BTreeMap<String, Used>,
) -> anyhow::Result<BTreeMap<String, Used>> {
    let mut used = BTreeMap::new();
    for (name, before) in before {
        let after = after.get(name);
        let after = after.with_context(|| format!("{name} ended by itself"))?;
        let difference = Used {
            user_seconds: (after.user_seconds - before.user_seconds).max(0.0),
            system_seconds: (after.system_seconds - before.system_seconds).max(0.0),
            ..*after
        };
        used.insert(name.clone(), difference);
    }
    Ok(used)
}

impl Limited {
    /// Of the first destination, in so many seconds from its first arrival.
    pub(super) fn new(settings: &Settings, seconds: u32, seen: Seen) -> anyhow::Result<Self> {
        let Limit::Per(_, period) = settings.limit else {
            anyhow::bail!("an unlimited destination has no share");
        };
        let (arrivals, stalls) = (seen.arrivals, seen.stalls);
        let first = arrivals.first().context("nothing arrived")?.at_us;
        let end = first + i64::from(seconds) * 1_000_000;
        let dry = arrivals.len() as u64 + seen.dropped >= u64::from(settings.events);
        ensure!(!dry, "the backlog ran dry: a share says nothing");
        let within: Vec<Arrival> = arrivals
            .into_iter()
            .filter(|arrival| arrival.at_us < end)
            .collect();
        let received = Received {
            arrivals: &within,
            stalls: &stalls,
            window_percent: WHOLE_WINDOWS,
        };
        let judged = at_receiver(settings, 0, received);
        let at = |us: i64| Timestamp::from_micros(us);
        let in_force = settings.limit.settings();
        let history = [InForce::new(
            Timestamp::MIN,
            &in_force,
            DestinationState::Active,
        )];
        let due = vec![at(first); settings.events as usize];
        let starts: Vec<_> = within.iter().map(|arrival| at(arrival.at_us)).collect();
        let fair = (at(first), at(end));
        let average = (period.duration(), Duration::ZERO);
        let share = MeanShare::new(&history, (&due, &starts), fair, average);
        Ok(Self {
            share_percent: share.percent(),
            allowed: judged.bound.context("a limit has no bound")?,
            worst: judged.worst_at_receiver,
            early: judged.at_receiver.early_arrivals,
            explained: judged.at_receiver.explained,
        })
    }
}

#[cfg(test)]
mod tests {
    use domain::compliance::Stall;

    use super::*;
    use crate::run::arrivals::Answer;
    use crate::run::settings::{Shape, tests::settings};

    fn seen(arrivals: &[(i64, u32)]) -> Seen {
        let arrival = |(ms, event): &(i64, u32)| Arrival::new(ms * 1_000, *event, 0, Answer::Taken);
        Seen {
            arrivals: arrivals.iter().map(arrival).collect(),
            dropped: 0,
            stalls: Vec::new(),
            connections: 7,
        }
    }

    fn used(user_seconds: f64, system_seconds: f64) -> Used {
        Used {
            user_seconds,
            system_seconds,
            resident_mib: 1.0,
        }
    }

    fn limited(limit: &str) -> Settings {
        Settings {
            limit: limit.parse().unwrap(),
            destinations: 1,
            events: 1_000,
            ..settings(Shape::Import)
        }
    }

    /// So many at once, each time.
    fn bursts(of: u32, at_ms: &[i64]) -> Seen {
        let arrivals = at_ms
            .iter()
            .flat_map(|ms| (0..of).map(move |_| (*ms, 0)))
            .collect::<Vec<_>>();
        seen(&arrivals)
    }

    #[test]
    fn a_drain_ends_when_each_event_has_arrived_once() {
        let processes = BTreeMap::from([
            ("worker".to_owned(), used(0.000_2, 0.000_1)),
            ("redis".to_owned(), used(0.000_06, 0.0)),
            (RECEIVER.to_owned(), used(0.000_03, 0.0)),
        ]);
        let arrivals = [(1_500, 0), (2_000, 2), (3_000, 1), (9_000, 2)];
        let drained = Drained::new((3, 1_000_000), &seen(&arrivals), &processes).unwrap();
        assert!((drained.seconds - 2.0).abs() < 1e-9, "{drained:?}");
        assert!((drained.per_second - 1.5).abs() < 1e-9);
        assert!((drained.cpu_us - 120.0).abs() < 1e-9);
        assert!((drained.receiver_us - 10.0).abs() < 1e-9);
        assert_eq!((drained.extra, drained.connections), (1, 7));
        assert!(!drained.processes_us.contains_key(RECEIVER));
    }

    #[test]
    fn a_drain_in_which_an_event_is_missing_is_none() {
        let processes = BTreeMap::from([(RECEIVER.to_owned(), used(0.1, 0.0))]);
        let twice = seen(&[(1, 0), (2, 0)]);
        let error = Drained::new((2, 0), &twice, &processes).unwrap_err();
        assert_eq!(error.to_string(), "1 of 2 events did not arrive");
    }

    #[test]
    fn a_process_that_ended_is_no_cheap_one() {
        let one = BTreeMap::from([("worker".to_owned(), used(1.0, 0.5))]);
        let more = BTreeMap::from([("worker".to_owned(), used(1.5, 0.75))]);
        let difference = between(&one, &more).unwrap();
        assert!((difference["worker"].cpu_seconds() - 0.75).abs() < 1e-9);
        assert!(between(&one, &BTreeMap::new()).is_err());
    }

    #[test]
    fn each_second_full_is_the_whole_limit_and_no_window_is_over() {
        let seconds: Vec<i64> = (0..6).map(|second| second * 1_000).collect();
        let judged = Limited::new(&limited("10/s"), 5, bursts(10, &seconds)).unwrap();
        assert!((judged.share_percent - 100.0).abs() < 1e-9, "{judged:?}");
        assert_eq!((judged.allowed, judged.worst, judged.early), (10, 10, 0));
    }

    /// A counter that begins anew each second lets a late burst and an early one through.
    #[test]
    fn two_bursts_that_touch_are_twice_the_limit() {
        let at_ms = [0, 1_950, 2_000, 3_000, 4_000, 5_000];
        let judged = Limited::new(&limited("10/s"), 5, bursts(10, &at_ms)).unwrap();
        assert_eq!((judged.worst, judged.early), (20, 10));
        // What comes after the time that is judged is nobody's.
        let at_ms = [0, 1_000, 2_000, 5_100, 5_200];
        let judged = Limited::new(&limited("10/s"), 5, bursts(10, &at_ms)).unwrap();
        assert_eq!((judged.worst, judged.early), (10, 0));
    }

    #[test]
    fn half_of_the_limit_is_half_and_a_dry_backlog_is_none() {
        let seconds: Vec<i64> = (0..6).map(|second| second * 1_000).collect();
        let judged = Limited::new(&limited("10/s"), 5, bursts(5, &seconds)).unwrap();
        assert!((judged.share_percent - 50.0).abs() < 1e-9, "{judged:?}");
        let few = Settings {
            events: 30,
            ..limited("10/s")
        };
        assert!(Limited::new(&few, 5, bursts(5, &seconds)).is_err());
        assert!(Limited::new(&few, 5, seen(&[])).is_err());
    }

    #[test]
    fn what_the_receiver_held_up_itself_is_told_apart() {
        let late = || bursts(10, &[50, 1_000, 2_000]);
        assert_eq!(Limited::new(&limited("10/s"), 2, late()).unwrap().early, 10);
        let stalled = Seen {
            stalls: vec![Stall {
                from: Timestamp::from_millis(0),
                until: Timestamp::from_millis(50),
            }],
            ..late()
        };
        let judged = Limited::new(&limited("10/s"), 2, stalled).unwrap();
        assert_eq!((judged.early, judged.explained), (0, 10));
    }
}
