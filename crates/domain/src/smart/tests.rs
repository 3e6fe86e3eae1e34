//! The law against receivers with a hidden capacity, through admission itself,
//! with holds.

use std::collections::{BTreeMap, VecDeque};

use super::*;
use crate::admission::{Backlog, Newest, Usage, admit, newest_claims, newest_starts};
use crate::health::{self, BreakerSettings, Health, Observation, Signal};
use crate::policy::LimitSettings;

/// Batches of outcomes, and runs, come this often.
const STEP: Duration = Duration::from_millis(10);

/// How a receiver decides what is too much.
#[derive(Debug, Clone, Copy)]
enum Counts {
    /// By a bucket of so many seconds' worth.
    Bucket(f64),
    /// By seconds of its own, which begin this part of one after ours.
    Windows(f64),
    /// Not at all: it answers one after the other.
    Queue,
    /// Not at all: of a million it fails so many, whatever it is asked for.
    Fails(u32),
}

struct Receiver {
    capacity: f64,
    counts: Counts,
    room: f64,
    at: f64,
    /// What it answers when it does not take one.
    refuses_with: u16,
    dice: u64,
}

impl Receiver {
    fn new(capacity: f64, counts: Counts) -> Self {
        let (room, at) = match counts {
            Counts::Bucket(worth) => ((capacity * worth).max(1.0), 0.0),
            Counts::Windows(_) | Counts::Queue | Counts::Fails(_) => (0.0, -1.0),
        };
        Self {
            capacity,
            counts,
            room,
            at,
            refuses_with: 429,
            dice: 1,
        }
    }

    /// The next throw, below a million.
    fn throw(&mut self) -> u32 {
        self.dice = (self.dice)
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.dice >> 33) % 1_000_000) as u32
    }

    /// A request at this second: how long it takes, if it is taken.
    fn ask(&mut self, at: f64) -> Option<f64> {
        match self.counts {
            Counts::Bucket(worth) => {
                let most = (self.capacity * worth).max(1.0);
                self.room = (self.room + (at - self.at) * self.capacity).min(most);
            }
            Counts::Windows(later) if (at - later).floor() > (self.at - later).floor() => {
                self.room = self.capacity;
            }
            Counts::Windows(_) => {}
            Counts::Queue => {
                // `at` is when the last request is done.
                self.at = self.at.max(at) + 1.0 / self.capacity;
                return Some(self.at - at + 0.01);
            }
            Counts::Fails(in_a_million) => {
                return (self.throw() >= in_a_million).then_some(0.02);
            }
        }
        self.at = at;
        (self.room >= 1.0).then(|| {
            self.room -= 1.0;
            0.02
        })
    }
}

/// A destination with a backlog.
struct World {
    policy: Policy,
    smart: Smart,
    health: Health,
    breaker: BreakerSettings,
    receiver: Receiver,
    now: Timestamp,
    /// The newest first.
    starts: VecDeque<Timestamp>,
    in_flight: BTreeMap<(Timestamp, u32), (Timestamp, Option<f64>)>,
    number: u32,
    due: u32,
    taken: u32,
    refused: u32,
}

fn seconds(at: Timestamp) -> f64 {
    at.as_micros() as f64 / 1e6
}

impl World {
    fn new(limits: &LimitSettings, receiver: Receiver) -> Self {
        let policy = limits.policy();
        let ceiling = Ceiling::of(&policy).unwrap();
        Self {
            smart: Smart::new(&ceiling, Timestamp::from_micros(0)),
            policy,
            health: Health::default(),
            breaker: BreakerSettings::default(),
            receiver,
            now: Timestamp::from_micros(0),
            starts: VecDeque::new(),
            in_flight: BTreeMap::new(),
            number: 0,
            due: 10_000,
            taken: 0,
            refused: 0,
        }
    }

    /// The parts of the capacity that were taken, and of what was asked that
    /// was refused.
    fn run(&mut self, lasts: u64) -> (f64, f64) {
        (self.taken, self.refused) = (0, 0);
        let end = self.now + Duration::from_secs(lasts);
        while self.now < end {
            self.start();
            self.now = self.now + STEP;
            self.record();
        }
        let (taken, refused) = (f64::from(self.taken), f64::from(self.refused));
        (
            taken / (self.receiver.capacity * lasts as f64),
            refused / (taken + refused).max(1.0),
        )
    }

    fn start(&mut self) {
        let policy = self
            .policy
            .clone()
            .slowed(self.smart.effective(&Ceiling::of(&self.policy).unwrap()));
        // A slower pace is all that binds.
        // They are sent at once.
        let newest = |asked: Option<Newest>| {
            let count = asked.map_or(0, |newest| newest.count as usize);
            self.starts.iter().take(count).copied().collect()
        };
        let usage = Usage {
            in_flight: self.in_flight.len() as u32,
            starts: newest(newest_starts(&policy)),
            claims: newest(newest_claims(&policy, false)),
            held_until: self.health.held_until(),
            ..Usage::default()
        };
        let (due, next_due) = (self.due, None);
        let decision = admit(
            &policy,
            &usage,
            &Backlog {
                due,
                urgent: 0,
                next_due,
            },
            500,
            self.now,
        );
        for slot in decision.slots {
            if slot.not_before >= self.now + STEP {
                break;
            }
            let taken = self.receiver.ask(seconds(slot.not_before));
            let after = Duration::from_secs_f64(taken.unwrap_or(0.005));
            self.number += 1;
            let key = (slot.not_before + after, self.number);
            self.in_flight.insert(key, (slot.not_before, taken));
            self.starts.push_front(slot.not_before);
        }
        self.starts.truncate(2_000);
    }

    fn record(&mut self) {
        let later = self.in_flight.split_off(&(self.now, 0));
        let ended = std::mem::replace(&mut self.in_flight, later);
        let mut samples = Vec::new();
        let mut observations = Vec::new();
        for ((finished_at, number), (claimed_at, taken)) in ended {
            let is_taken = taken.is_some();
            let status = if is_taken {
                200
            } else {
                self.receiver.refuses_with
            };
            self.taken += u32::from(is_taken);
            self.refused += u32::from(!is_taken);
            samples.push(Sample {
                claimed_at,
                latency: finished_at.since(claimed_at),
                answer: Answer::of(Some(status)).unwrap(),
            });
            observations.push(Observation {
                claimed_at,
                finished_at,
                answer: health::Answer::of(is_taken, Some(status)),
                signal: Signal {
                    dice: number.wrapping_mul(40_503) as u16,
                    ..Signal::default()
                },
            });
        }
        if samples.is_empty() {
            return;
        }
        let verdict = (self.health).observe(&self.breaker, &observations, self.now);
        self.health = verdict.health;
        let ceiling = Ceiling::of(&self.policy).unwrap();
        let when = (self.now, self.health.held_until());
        self.smart = self.smart.observe(&ceiling, &samples, when).smart;
    }
}

fn per_second(limit: f64) -> LimitSettings {
    LimitSettings {
        per_second: Some(limit as u32),
        ..LimitSettings::EXACT
    }
}

fn finds(counts: Counts, factors: &[f64]) {
    for capacity in [10.0, 100.0, 1_000.0_f64] {
        for factor in factors {
            let limits = per_second(capacity * factor);
            let mut world = World::new(&limits, Receiver::new(capacity, counts));
            world.run(60);
            // Where there are many, fewer seconds say as much.
            let lasts = if capacity < 500.0 { 120 } else { 20 };
            let (found, refused) = world.run(lasts);
            let named = format!("{counts:?} of {capacity}/s, limit × {factor}");
            println!("{named}: {found:.3} found, {refused:.4} refused");
            assert!(found >= 0.9, "{named}: finds {found:.3}");
            assert!(refused < 0.01, "{named}: {refused:.4} refused");
        }
    }
}

#[test]
fn the_capacity_of_a_deep_bucket_is_found_within_a_minute() {
    finds(Counts::Bucket(1.0), &[1.3, 3.0, 10.0]);
}

#[test]
fn the_capacity_of_a_shallow_bucket_is_found_within_a_minute() {
    finds(Counts::Bucket(0.2), &[1.3, 10.0]);
}

#[test]
fn the_capacity_of_a_counted_second_is_found_within_a_minute() {
    finds(Counts::Windows(0.0), &[1.3, 10.0]);
    finds(Counts::Windows(0.37), &[2.0, 10.0]);
}

/// Many say 503 when it is too much. Without the breaker, which holds for half a
/// minute after 20 of them in a row.
#[test]
fn the_capacity_of_one_that_answers_503_is_found_within_a_minute() {
    for capacity in [10.0, 100.0, 1_000.0_f64] {
        for (counts, factor) in [
            (Counts::Bucket(1.0), 1.3),
            (Counts::Bucket(1.0), 3.0),
            (Counts::Bucket(0.2), 10.0),
            (Counts::Windows(0.37), 2.0),
        ] {
            let receiver = Receiver {
                refuses_with: 503,
                ..Receiver::new(capacity, counts)
            };
            let mut world = World::new(&per_second(capacity * factor), receiver);
            world.breaker.failures = 0;
            world.run(60);
            let lasts = if capacity < 500.0 { 120 } else { 20 };
            let (found, refused) = world.run(lasts);
            let named = format!("503, {counts:?} of {capacity}/s, limit × {factor}");
            println!("{named}: {found:.3} found, {refused:.4} refused");
            assert!(found >= 0.9, "{named}: finds {found:.3}");
            // Of few answers, more have to be refused to tell them from noise.
            let most = if capacity < 50.0 { 0.03 } else { 0.02 };
            assert!(refused < most, "{named}: {refused:.4} refused");
        }
    }
}

/// One that fails now and then is not overloaded.
#[test]
fn a_few_503s_are_noise() {
    for limit in [1.0, 10.0, 100.0, 1_000.0_f64] {
        for in_a_million in [1_000, 5_000] {
            for dice in [1, 2] {
                let receiver = Receiver {
                    refuses_with: 503,
                    dice,
                    ..Receiver::new(limit, Counts::Fails(in_a_million))
                };
                let mut world = World::new(&per_second(limit), receiver);
                let lasts = if limit < 50.0 { 1_200 } else { 120 };
                let (used, failed) = world.run(lasts);
                let named = format!("{in_a_million} in a million of {limit}/s");
                println!("{named}: {used:.4} used, {failed:.4} failed");
                assert!(used + failed >= 0.95, "{named}: uses {used:.3}");
            }
        }
    }
}

/// It is lowered only by the noise: what is lowered for another reason is raised
/// in spite of it.
#[test]
fn noise_does_not_keep_a_limit_low() {
    let receiver = Receiver {
        refuses_with: 503,
        ..Receiver::new(100.0, Counts::Fails(5_000))
    };
    let mut world = World::new(&per_second(100.0), receiver);
    world.smart.per_second = 20.0;
    world.run(60);
    let (used, _) = world.run(60);
    assert!(used >= 0.95, "uses {used:.3}");
}

#[test]
fn the_capacity_of_a_queue_is_found_by_its_latency() {
    finds(Counts::Queue, &[1.3, 10.0]);
}

const CEILING: Ceiling = Ceiling {
    per_second: 50.0,
    max_in_flight: 64,
};

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// So many answers at once, of what started 10 ms before.
fn answers(count: usize, answer: Answer, now: i64, latency: u64) -> Vec<Sample> {
    let one = Sample {
        claimed_at: at(now - 10),
        latency: Duration::from_millis(latency),
        answer,
    };
    vec![one; count]
}

#[test]
fn it_never_leaves_its_bounds() {
    let mut smart = Smart::new(&CEILING, at(0));
    for second in 1..100 {
        let refused = answers(3, Answer::Refused, second * 1_000, 5);
        smart = smart
            .observe(&CEILING, &refused, (at(second * 1_000), None))
            .smart;
    }
    assert!((smart.per_second - SLOWEST).abs() < 1e-9);
    for second in 100..3_000 {
        let taken = answers(50, Answer::Taken, second * 1_000, 5);
        smart = smart
            .observe(&CEILING, &taken, (at(second * 1_000), None))
            .smart;
    }
    assert_eq!((smart.per_second, smart.in_flight), (50.0, 64.0));
    assert_eq!(smart.reason, Reason::Configured);
    assert_eq!(smart.effective(&CEILING), Effective::default());
    // What is configured is lowered: that counts at once.
    let lower = Ceiling {
        per_second: 5.0,
        max_in_flight: 2,
    };
    let smart = smart.observe(&lower, &[], (at(3_000_000), None)).smart;
    assert_eq!((smart.per_second, smart.in_flight), (5.0, 2.0));
}

/// One that is as configured, at 50 a second, and has something to remember.
fn as_configured() -> Smart {
    let taken = answers(50, Answer::Taken, 1_000, 5);
    let smart = Smart::new(&CEILING, at(0));
    smart.observe(&CEILING, &taken, (at(1_000), None)).smart
}

#[test]
fn what_was_as_configured_follows_what_is_configured() {
    let higher = Ceiling {
        per_second: 500.0,
        max_in_flight: 200,
    };
    let raised = as_configured()
        .observe(&higher, &[], (at(1_100), None))
        .smart;
    assert_eq!(raised.effective(&higher), Effective::default());
    assert_eq!((raised.per_second, raised.in_flight), (500.0, 200.0));
    assert_eq!(raised.reason, Reason::Configured);
    // One that was cut stays where it is.
    let refused = answers(1, Answer::Refused, 1_100, 5);
    let cut = as_configured().observe(&CEILING, &refused, (at(1_100), None));
    let raised = cut.smart.observe(&higher, &[], (at(1_200), None)).smart;
    assert_eq!(raised.per_second, cut.smart.per_second);
    assert_eq!(raised.in_flight, 200.0);
}

#[test]
fn a_higher_limit_does_not_forget_what_was_too_much() {
    let refused = answers(1, Answer::Refused, 1_100, 5);
    let cut = as_configured().observe(&CEILING, &refused, (at(1_100), None));
    // The owner lowers the limit below what is left, and sets it back.
    let lower = Ceiling {
        per_second: 20.0,
        ..CEILING
    };
    let lowered = cut.smart.observe(&lower, &[], (at(1_200), None)).smart;
    assert_eq!(lowered.reason, Reason::Configured);
    let back = lowered.observe(&CEILING, &[], (at(1_300), None)).smart;
    assert_eq!((back.per_second, back.reason), (47.5, Reason::Raising));
}

#[test]
fn what_started_before_it_began_says_nothing() {
    let begun = Smart::new(&CEILING, at(995));
    let refused = answers(3, Answer::Refused, 1_000, 5);
    let verdict = begun.observe(&CEILING, &refused, (at(1_000), None));
    assert_eq!((verdict.smart, verdict.is_news), (begun, false));
}

#[test]
fn an_idle_time_is_not_taken_for_a_slow_one() {
    let slow = |now| answers(40, Answer::Taken, now, 400);
    let idle = as_configured();
    let verdict = idle.observe(&CEILING, &slow(600_000), (at(600_000), None));
    let verdict = (verdict.smart).observe(&CEILING, &slow(601_000), (at(601_000), None));
    // 60 % of the 32 that were in flight, not of what ten minutes come to.
    assert_eq!(verdict.smart.reason, Reason::Slow);
    let in_flight = verdict.smart.in_flight;
    assert!((18.0..20.0).contains(&in_flight), "{in_flight}");
}

#[test]
fn one_burst_is_cut_for_once() {
    let refused = answers(3, Answer::Refused, 1_000, 5);
    let first = Smart::new(&CEILING, at(0)).observe(&CEILING, &refused, (at(1_000), None));
    assert!(first.is_news);
    let held_until = Some(at(3_000));
    let late = answers(3, Answer::Refused, 1_200, 5);
    let again = first
        .smart
        .observe(&CEILING, &late, (at(1_200), held_until));
    assert_eq!((again.smart, again.is_news), (first.smart, false));
    let fresh = answers(1, Answer::Refused, 1_300, 5);
    let third = first
        .smart
        .observe(&CEILING, &fresh, (at(1_300), held_until));
    assert!(third.smart.per_second < first.smart.per_second);
    // Nothing that started before the hold was over says more.
    let within = answers(1, Answer::Refused, 2_900, 5);
    let fourth = third
        .smart
        .observe(&CEILING, &within, (at(2_900), held_until));
    assert_eq!(fourth.smart, third.smart);
}

#[test]
fn what_the_rate_did_not_hold_says_nothing_about_more() {
    let refused = answers(1, Answer::Refused, 1_000, 5);
    let cut = Smart::new(&CEILING, at(0)).observe(&CEILING, &refused, (at(1_000), None));
    let mut smart = cut.smart;
    for second in 2..60 {
        let few = answers(5, Answer::Taken, second * 1_000, 5);
        smart = smart
            .observe(&CEILING, &few, (at(second * 1_000), None))
            .smart;
    }
    assert!((smart.per_second - cut.smart.per_second).abs() < 1e-9);
}

#[test]
fn rising_latency_cuts_and_a_receiver_that_is_slower_for_good_is_left_alone() {
    let mut smart = Smart::new(&CEILING, at(0));
    let mut watch = |now: i64, latency| {
        let taken = answers(40, Answer::Taken, now, latency);
        smart = smart.observe(&CEILING, &taken, (at(now), None)).smart;
        smart
    };
    watch(1_000, 30);
    let slow = watch(2_000, 400);
    assert_eq!(slow.reason, Reason::Slow);
    // 60 % of the 16 that were in flight, 90 % of the 40 that were answered.
    assert!((slow.in_flight - 9.6).abs() < 1e-6, "{}", slow.in_flight);
    assert!((slow.per_second - 36.0).abs() < 1e-6, "{}", slow.per_second);
    let still = watch(3_260, 390);
    assert_eq!(still.in_flight, slow.in_flight);
    let used_to = watch(4_280, 390);
    assert_eq!(used_to.reason, Reason::Raising);
    assert!(used_to.in_flight > slow.in_flight);
}

#[test]
fn what_says_nothing_is_no_sample() {
    assert_eq!(Answer::of(None), None);
    assert_eq!(Answer::of(Some(500)), None);
    assert_eq!(Answer::of(Some(404)), Some(Answer::Taken));
    assert_eq!(Answer::of(Some(429)), Some(Answer::Refused));
    assert_eq!(Answer::of(Some(503)), Some(Answer::Unavailable));
}

#[test]
fn a_policy_is_slowed_and_never_hastened() {
    let policy = per_second(100.0).policy();
    let to = |per_second, max_in_flight| {
        policy.clone().slowed(Effective {
            per_second,
            max_in_flight,
        })
    };
    assert_eq!(to(None, None), policy);
    assert_eq!(to(Some(100.0), Some(1_000)), policy);
    let slowed = to(Some(60.0), Some(7));
    assert_eq!((slowed.per_second(), slowed.max_in_flight), (60.0, 7));
    assert_eq!(slowed.rate, policy.rate);
    let lowered = Effective {
        per_second: Some(60.0),
        max_in_flight: Some(1_000),
    };
    let rate_alone = Effective {
        max_in_flight: None,
        ..lowered
    };
    assert_eq!(lowered.below(&policy), rate_alone);
    let lower = per_second(50.0).policy();
    assert_eq!(lowered.below(&lower), Effective::default());
    let never = to(Some(0.0), Some(0));
    assert_eq!((never.per_second(), never.max_in_flight), (SLOWEST, 1));
}
