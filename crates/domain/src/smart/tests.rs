//! The law against receivers with a hidden capacity.

use super::*;

/// A receiver that takes `capacity` a second.
struct Hidden {
    capacity: f64,
    /// By a bucket of one second's worth, or by its own seconds.
    counts: Counts,
    /// What it could still take.
    room: f64,
    /// Seconds since the beginning, by its clock.
    now: f64,
}

#[derive(Debug, Clone, Copy)]
enum Counts {
    Bucket,
    /// Its seconds begin this part of one after ours.
    Windows(f64),
}

impl Hidden {
    fn new(capacity: f64, counts: Counts) -> Self {
        Self {
            capacity,
            counts,
            room: capacity,
            now: match counts {
                Counts::Bucket => 0.0,
                Counts::Windows(later) => 1.0 - later,
            },
        }
    }

    fn refill(&mut self, passed: f64) {
        let before = self.now;
        self.now += passed;
        self.room = match self.counts {
            Counts::Bucket => (self.room + self.capacity * passed).min(self.capacity),
            Counts::Windows(_) if self.now.floor() > before.floor() => self.capacity,
            Counts::Windows(_) => self.room,
        };
    }

    /// A second in which `asked` requests come, evenly.
    fn second(&mut self, asked: u32) -> Seen {
        let mut seen = Seen {
            was_limited: true,
            latency: Some(Duration::from_millis(20)),
            ..Seen::default()
        };
        for _ in 0..asked {
            self.refill(1.0 / f64::from(asked));
            if self.room >= 1.0 {
                self.room -= 1.0;
                seen.taken += 1;
            } else {
                seen.refused += 1;
            }
        }
        seen
    }
}

/// Runs for so many seconds; what was seen in each.
fn run(
    smart: &mut Smart,
    ceiling: &Ceiling,
    hidden: &mut Hidden,
    seconds: std::ops::Range<i64>,
) -> Vec<Seen> {
    let mut owed = 0.0;
    (seconds)
        .map(|second| {
            owed += smart.per_second;
            let asked = owed.floor();
            owed -= asked;
            let seen = hidden.second(asked as u32);
            *smart = smart.judged(ceiling, &seen, Timestamp::from_millis((second + 1) * 1_000));
            seen
        })
        .collect()
}

fn sum(seen: &[Seen], of: impl Fn(&Seen) -> u32) -> f64 {
    seen.iter().map(|one| f64::from(of(one))).sum()
}

#[test]
fn a_hidden_capacity_is_found_within_a_minute_and_seldom_exceeded_after_it() {
    for counts in [Counts::Bucket, Counts::Windows(0.0), Counts::Windows(0.37)] {
        finds(counts);
    }
}

fn finds(counts: Counts) {
    for capacity in [10.0, 17.0, 30.0, 100.0, 333.0, 1_000.0] {
        for factor in [1.0, 1.3, 2.0, 5.0, 10.0] {
            let ceiling = Ceiling {
                per_second: capacity * factor,
                max_in_flight: 250,
            };
            let mut smart = Smart::new(&ceiling);
            let mut hidden = Hidden::new(capacity, counts);
            run(&mut smart, &ceiling, &mut hidden, 0..60);
            let after = run(&mut smart, &ceiling, &mut hidden, 60..660);
            let (taken, refused) = (sum(&after, |one| one.taken), sum(&after, |one| one.refused));
            let found = taken / (capacity * 600.0);
            let share = refused / (taken + refused);
            assert!(
                found >= 0.9,
                "{counts:?} of {capacity}/s, limit × {factor}: finds {found:.3}"
            );
            assert!(
                share < 0.01,
                "{counts:?} of {capacity}/s, limit × {factor}: {share:.4} refused"
            );
        }
    }
}

#[test]
fn a_capacity_that_falls_or_rises_is_found_again() {
    let ceiling = Ceiling {
        per_second: 1_000.0,
        max_in_flight: 250,
    };
    let mut smart = Smart::new(&ceiling);
    let mut hidden = Hidden::new(200.0, Counts::Bucket);
    run(&mut smart, &ceiling, &mut hidden, 0..60);
    for (capacity, from) in [(40.0, 60), (400.0, 400)] {
        hidden.capacity = capacity;
        hidden.room = 0.0;
        run(&mut smart, &ceiling, &mut hidden, from..from + 240);
        let after = run(&mut smart, &ceiling, &mut hidden, from + 240..from + 300);
        let found = sum(&after, |one| one.taken) / (capacity * 60.0);
        assert!(found >= 0.9, "{capacity}: {found:.3}");
    }
}

#[test]
fn it_never_leaves_its_bounds() {
    let ceiling = Ceiling {
        per_second: 50.0,
        max_in_flight: 20,
    };
    let nothing = Seen {
        refused: 9,
        ..Seen::default()
    };
    let mut smart = Smart::new(&ceiling);
    for second in 0..100 {
        smart = smart.judged(&ceiling, &nothing, Timestamp::from_millis(second * 1_000));
    }
    assert!((smart.per_second - SLOWEST).abs() < 1e-9);
    let clean = Seen {
        taken: 50,
        was_limited: true,
        ..Seen::default()
    };
    for second in 100..600 {
        smart = smart.judged(&ceiling, &clean, Timestamp::from_millis(second * 1_000));
    }
    assert_eq!((smart.per_second, smart.in_flight), (50.0, 20.0));
    assert_eq!(smart.reason, Reason::Configured);
}

#[test]
fn a_cut_of_what_is_configured_counts_at_once() {
    let high = Ceiling {
        per_second: 50.0,
        max_in_flight: 20,
    };
    let low = Ceiling {
        per_second: 5.0,
        max_in_flight: 2,
    };
    let cut = Smart::new(&high).judged(&low, &Seen::default(), Timestamp::from_millis(1_000));
    assert_eq!((cut.per_second, cut.in_flight), (5.0, 2.0));
}

#[test]
fn a_second_without_backlog_says_nothing() {
    let ceiling = Ceiling {
        per_second: 50.0,
        max_in_flight: 20,
    };
    let refused = Seen {
        taken: 10,
        refused: 10,
        ..Seen::default()
    };
    let cut = Smart::new(&ceiling).judged(&ceiling, &refused, Timestamp::from_millis(1_000));
    let idle = Seen {
        taken: 1,
        ..Seen::default()
    };
    let later = cut.judged(&ceiling, &idle, Timestamp::from_millis(2_000));
    assert!((later.per_second - cut.per_second).abs() < 1e-9);
}

#[test]
fn rising_latency_cuts_what_is_in_flight() {
    let ceiling = Ceiling {
        per_second: 50.0,
        max_in_flight: 64,
    };
    let answers = |millis| Seen {
        taken: 40,
        was_limited: true,
        latency: Some(Duration::from_millis(millis)),
        ..Seen::default()
    };
    let mut smart = Smart::new(&ceiling);
    smart = smart.judged(&ceiling, &answers(30), Timestamp::from_millis(1_000));
    smart = smart.judged(&ceiling, &answers(400), Timestamp::from_millis(2_000));
    assert_eq!((smart.in_flight, smart.reason), (32.0, Reason::Slow));
    smart = smart.judged(&ceiling, &answers(30), Timestamp::from_millis(3_000));
    assert_eq!((smart.in_flight, smart.reason), (33.0, Reason::Raising));
}
