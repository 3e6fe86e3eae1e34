//! What admission promises, whatever the workers do.

use std::collections::BTreeMap;
use std::time::Duration;

use domain::admission::{Backlog, Bucket, CoarseStarts, GRACE, SLACK, Usage, admit, lead};
use domain::compliance::{Rule, Start, Verdict, judge, judge_sends};
use domain::limit::{Count, Period, Shape};
use domain::margin::{self, Margin, Spread};
use domain::policy::{LimitSettings, Policy};
use domain::smart::Effective;
use domain::time::Timestamp;
use proptest::prelude::*;

use crate::brute;
use crate::world::{Fate, World};

/// A limit of a handful, or a coarse one.
fn small() -> impl Strategy<Value = Option<u32>> {
    prop_oneof![2 => Just(None), 5 => (1..8_u32).prop_map(Some)]
}

fn shape() -> impl Strategy<Value = Shape> {
    prop_oneof![
        3 => Just(Shape::SlidingWindow),
        1 => Just(Shape::TokenBucket),
        1 => Just(Shape::LeakyBucket),
    ]
}

fn margin() -> impl Strategy<Value = f64> {
    prop_oneof![3 => Just(0.0), 1 => 0.0..0.5]
}

/// Every shape, with one to three small limits at once.
pub(crate) fn small_policy() -> impl Strategy<Value = Policy> {
    let limits = (small(), small(), small());
    let rest = (shape(), prop::option::of(1..10_u32), margin(), 1..40_u32);
    (limits, rest).prop_map(
        |((second, minute, hour), (shape, burst, margin, in_flight))| {
            LimitSettings {
                per_second: second,
                per_minute: minute.map(|max| max * 5),
                per_hour: hour.map(|max| max * 40),
                shape: Some(shape),
                burst: burst.filter(|_| shape != Shape::LeakyBucket),
                safety_margin: Some(margin),
                max_in_flight: Some(in_flight),
                ..LimitSettings::EXACT
            }
            .policy()
        },
    )
}

/// Windows that count in buckets, some with an exact one beside them.
fn coarse_policy() -> impl Strategy<Value = Policy> {
    let limits = (2_001..2_100_u32, prop::option::of(2_500..4_000_u32));
    (limits, margin(), any::<bool>()).prop_map(|((max, other), margin, by_minute)| {
        LimitSettings {
            per_second: if by_minute { Some(1_500) } else { Some(max) },
            per_minute: if by_minute { Some(max) } else { other },
            safety_margin: Some(margin),
            max_in_flight: Some(20_000),
            ..LimitSettings::EXACT
        }
        .policy()
    })
}

pub(crate) fn fate() -> impl Strategy<Value = Fate> {
    let patience = GRACE.as_micros() as u64;
    let slack = SLACK.as_micros() as u64;
    let takes = prop_oneof![0..50_000_u64, 0..3_000_000_u64];
    let late = prop_oneof![
        3 => 0..5_000_u64,
        2 => 0..slack,
        2 => 0..patience,
        1 => Just(patience),
    ];
    let sent = prop_oneof![4 => 0..5_000_u64, 2 => 0..600_000_u64];
    prop_oneof![
        8 => (late, sent, takes).prop_map(|(late, sent, takes)| Fate::Start { late, sent, takes }),
        1 => (0..slack).prop_map(|after| Fate::Release { after }),
        1 => (0..2_000_000_u64).prop_map(|reaped_after| Fate::Orphan { reaped_after }),
    ]
}

#[derive(Debug, Clone)]
enum Op {
    /// Lets so many microseconds pass.
    Wait(u64),
    Run {
        places: u32,
    },
    /// Runs as the looks say, for so many microseconds.
    Follow(u64),
    Hold(u64),
    /// Smart delivery lowers something, or nothing any more.
    Slow(Effective),
    /// Response times have come to differ so much.
    Measure(Option<Spread>),
    Change(Policy),
}

fn slower() -> impl Strategy<Value = Effective> {
    let per_second = prop::option::of(0.1..12.0_f64);
    let slower = (per_second, prop::option::of(1..20_u32));
    slower.prop_map(|(per_second, max_in_flight)| Effective {
        per_second,
        max_in_flight,
    })
}

fn op() -> impl Strategy<Value = Op> {
    let micros = prop_oneof![0..20_000_u64, 0..500_000_u64, 0..4_000_000_u64];
    prop_oneof![
        8 => micros.prop_map(Op::Wait),
        12 => Just(Op::Run { places: 1_000 }),
        2 => (0..4_u32).prop_map(|places| Op::Run { places }),
        4 => (0..3_000_000_u64).prop_map(Op::Follow),
        1 => (0..2_000_000_u64).prop_map(Op::Hold),
        1 => slower().prop_map(Op::Slow),
    ]
}

fn spread() -> impl Strategy<Value = Spread> {
    (0..30_000_u64, 0..30_000_u64).prop_map(|(one, other)| Spread {
        least: Duration::from_micros(one.min(other)),
        most: Duration::from_micros(one.max(other)),
    })
}

fn op_or_measure() -> impl Strategy<Value = Op> {
    prop_oneof![6 => op(), 1 => prop::option::of(spread()).prop_map(Op::Measure)]
}

fn op_or_change() -> impl Strategy<Value = Op> {
    prop_oneof![4 => op(), 1 => small_policy().prop_map(Op::Change)]
}

fn play(world: &mut World, ops: Vec<Op>) {
    for op in ops {
        match op {
            Op::Wait(micros) => world.advance(world.now + Duration::from_micros(micros)),
            Op::Run { places } => {
                let from = world
                    .usage()
                    .held_until
                    .map_or(world.now, |h| h.max(world.now));
                let horizon = world.now + lead(&world.policy);
                let decision = world.run(places);
                for slot in &decision.slots {
                    assert!(from <= slot.not_before && slot.not_before <= horizon);
                }
            }
            Op::Follow(micros) => {
                world.follow_looks(1_000, world.now + Duration::from_micros(micros));
            }
            Op::Hold(micros) => world.hold(Duration::from_micros(micros)),
            Op::Slow(to) => world.slow(to),
            Op::Measure(spread) => world.policy = world.policy.clone().measured(spread),
            Op::Change(policy) => world.change(policy),
        }
    }
    world.settle();
}

fn assert_kept(world: &World) {
    let verdict = judge(&world.history, &world.starts);
    assert!(
        verdict.is_kept(),
        "{:#?}\n{:?}\n{:?}",
        verdict,
        world.history,
        world.starts
    );
    for period in Period::ALL {
        let over = brute::windows_over(&world.history, &world.starts, period);
        assert!(over.is_empty(), "{period}: {over:?} of {:?}", world.starts);
    }
    let over = brute::buckets_over(&world.history, &world.starts);
    assert!(over.is_empty(), "{over:?} of {:?}", world.starts);
    assert_sends_kept(world);
}

fn assert_sends_kept(world: &World) {
    let mut sends = world.sends.clone();
    sends.sort_unstable();
    let verdict = judge_sends(&world.history, &sends);
    assert!(
        verdict.is_kept(),
        "{verdict:#?}\n{:?}\n{sends:?}",
        world.history
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_limit_is_ever_exceeded(
        policy in small_policy(),
        fates in prop::collection::vec(fate(), 1..12),
        ops in prop::collection::vec(op(), 1..60),
    ) {
        let mut world = World::new(policy).fates(fates);
        play(&mut world, ops);
        assert_kept(&world);
    }

    #[test]
    fn no_limit_is_exceeded_across_changes(
        policy in small_policy(),
        fates in prop::collection::vec(fate(), 1..12),
        ops in prop::collection::vec(op_or_change(), 1..60),
    ) {
        let mut world = World::new(policy).fates(fates);
        play(&mut world, ops);
        assert_kept(&world);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn no_coarse_limit_is_ever_exceeded(
        policy in coarse_policy(),
        fates in prop::collection::vec(fate(), 1..12),
        ops in prop::collection::vec(op(), 10..40),
    ) {
        let mut world = World::new(policy).fates(fates);
        play(&mut world, ops);
        let verdict = judge(&world.history, &world.starts);
        prop_assert!(verdict.is_kept(), "{:?}", verdict.violations().next());
        assert_sends_kept(&world);
    }
}

/// Windows alone: a bucket has room for the network in its slack.
fn windows() -> impl Strategy<Value = LimitSettings> {
    (1..8_u32, small(), small()).prop_map(|(second, minute, hour)| LimitSettings {
        per_second: Some(second),
        per_minute: minute.map(|max| max * 5),
        per_hour: hour.map(|max| max * 40),
        safety_margin: None,
        ..LimitSettings::EXACT
    })
}

/// What a receiver judges whose requests are on their way for so long and a part of
/// the margin longer, in thousandths.
fn at_the_receiver(world: &World, margin: Duration, parts: &[u32]) -> Verdict {
    let way = Duration::from_millis(3);
    let mut arrivals: Vec<Start> = (world.sends.iter())
        .zip(parts.iter().cycle())
        .map(|((sent_at, id), part)| (*sent_at + way + margin * *part / 1_000, *id))
        .collect();
    arrivals.sort_unstable();
    judge(&world.history, &arrivals)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn no_limit_is_exceeded_at_a_receiver_whose_network_is_within_the_margin(
        limits in windows(),
        first in prop::option::of(spread()),
        parts in prop::collection::vec(0..=1_000_u32, 1..12),
        fates in prop::collection::vec(fate(), 1..12),
        ops in prop::collection::vec(op_or_measure(), 1..60),
    ) {
        let policy = limits.policy().measured(first);
        // The network is within the least of them.
        let measured = ops.iter().filter_map(|op| match op {
            Op::Measure(spread) => Some(*spread),
            _ => None,
        });
        let cap = margin::MOST;
        let margins = measured.chain([first]).map(|spread| Margin::Measured { spread, cap });
        let margin = margins.map(|margin| margin.of(Period::Second.duration())).min();
        let margin = margin.unwrap_or_default();
        let mut world = World::new(policy).fates(fates);
        play(&mut world, ops);
        assert_kept(&world);
        let verdict = at_the_receiver(&world, margin, &parts);
        prop_assert!(verdict.is_kept(), "{:?}", verdict.violations().next());
    }
}

/// What a receiver judges where each request arrives at that part of the time, in
/// thousandths, between its first byte and the end of its answer.
fn anywhere_before_its_answer(world: &World, parts: &[u32]) -> Verdict {
    let sends: BTreeMap<_, _> = world.sends.iter().map(|(at, id)| (*id, *at)).collect();
    let arrives = |((answered_at, id), part): (&Start, &u32)| {
        let way = answered_at.since(sends[id]);
        (sends[id] + way * *part / 1_000, *id)
    };
    let answers = world.answers.iter().zip(parts.iter().cycle());
    let mut arrivals: Vec<Start> = answers.map(arrives).collect();
    arrivals.sort_unstable();
    judge(&world.history, &arrivals)
}

/// Where answers count.
fn by_response(limits: LimitSettings) -> Policy {
    let limits = LimitSettings {
        count: Some(Count::Response),
        ..limits
    };
    limits.policy()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn where_answers_count_no_network_lets_a_receiver_see_more(
        limits in windows(),
        shape in shape(),
        parts in prop::collection::vec(0..=1_000_u32, 1..12),
        fates in prop::collection::vec(fate(), 1..12),
        ops in prop::collection::vec(op(), 1..60),
    ) {
        let ops = ops.into_iter().filter(|op| !matches!(op, Op::Change(_)));
        let policy = by_response(LimitSettings { shape: Some(shape), ..limits });
        let mut world = World::new(policy).fates(fates);
        play(&mut world, ops.collect());
        let verdict = anywhere_before_its_answer(&world, &parts);
        // Windows hold there. The spacing of a bucket is between sends: a network that
        // holds one of them back brings it nearer to the next.
        let broken = verdict.violations().find(|one| one.rule != Rule::Bucket);
        prop_assert!(broken.is_none(), "{broken:?}");
        assert_sends_kept(&world);
    }
}

/// What counts starts is over at a receiver whose requests are on their way for long, and
/// what counts answers is not; which costs a round trip in each period and no more.
#[test]
fn counting_answers_costs_a_round_trip_in_each_period() {
    let ten = LimitSettings {
        per_second: Some(10),
        ..LimitSettings::EXACT
    };
    let slow = Fate::Start {
        late: 0,
        sent: 0,
        takes: 400_000,
    };
    // Every other ten arrive at once, the others as late as they may.
    let parts: Vec<u32> = (0..20).map(|at| if at < 10 { 1_000 } else { 0 }).collect();
    for (policy, is_kept, sends) in [(ten.policy(), false, 140), (by_response(ten), true, 95)] {
        let mut world = World::new(policy).fates(vec![slow]);
        world.follow_looks(1_000, world.now + Duration::from_secs(14));
        let sent = world.sends.len();
        assert!(sent >= sends && sent <= sends + 15, "{sent}");
        world.settle();
        let verdict = anywhere_before_its_answer(&world, &parts);
        assert_eq!(verdict.is_kept(), is_kept);
        assert!(world.runs < 300, "{} runs", world.runs);
    }
}

/// Where only an answer can help, a look each second is enough, beside those that it wakes.
#[test]
fn what_waits_for_answers_is_looked_at_once_a_second() {
    let one = by_response(LimitSettings {
        per_second: Some(1),
        ..LimitSettings::EXACT
    });
    let slow = Fate::Start {
        late: 0,
        sent: 0,
        takes: 3_500_000,
    };
    let mut world = World::new(one).fates(vec![slow]);
    world.follow_looks(1_000, world.now + Duration::from_secs(44));
    // One in 4.5 s, and a run in each second at most beside two for each of them.
    assert_eq!(world.sends.len(), 10);
    assert!(world.runs <= 44 + 3 * 10, "{} runs", world.runs);
}

/// The margin is what keeps it: without one, the same network shows the receiver more.
#[test]
fn a_receiver_sees_more_than_the_limit_where_there_is_no_margin() {
    let limits = |safety_margin| LimitSettings {
        per_second: Some(10),
        safety_margin,
        ..LimitSettings::EXACT
    };
    let network = Duration::from_millis(2);
    for (safety_margin, is_kept) in [(Some(0.0), false), (Some(0.002), true), (None, true)] {
        let at_once = Fate::Start {
            late: 0,
            sent: 0,
            takes: 20_000,
        };
        let mut world = World::new(limits(safety_margin).policy()).fates(vec![at_once]);
        world.follow_looks(1_000, world.now + Duration::from_secs(5));
        world.settle();
        assert!(world.sends.len() > 40, "{}", world.sends.len());
        // The first second's are slow, the others are not.
        let parts: Vec<u32> = (0..1_000)
            .map(|at| if at < 10 { 1_000 } else { 0 })
            .collect();
        let verdict = at_the_receiver(&world, network, &parts);
        assert_eq!(verdict.is_kept(), is_kept, "{safety_margin:?}");
    }
}

/// Folded starts are counted when the last of them may have been: the limit is free a
/// whole period after the end of their bucket, and not after its begin.
#[test]
fn a_coarse_limit_counts_a_bucket_until_its_end() {
    let now = Timestamp::from_millis(1_795_000_000_000);
    let ends_at = now - Duration::from_millis(950);
    let limit = LimitSettings {
        per_second: Some(3_000),
        max_in_flight: Some(100_000),
        ..LimitSettings::EXACT
    };
    let full = Bucket {
        ends_at,
        starts: 3_000,
    };
    let usage = Usage {
        coarse: vec![CoarseStarts {
            period: Period::Second,
            buckets: vec![full],
            unfolded: Vec::new(),
        }],
        ..Usage::default()
    };
    let backlog = Backlog {
        due: 10,
        urgent: 0,
        next_due: None,
    };
    let decision = admit(&limit.policy(), &usage, &backlog, u32::MAX, now);
    assert!(
        !decision.slots.is_empty(),
        "it is free within the look ahead"
    );
    for slot in &decision.slots {
        assert!(
            slot.not_before >= ends_at + Period::Second.duration(),
            "{slot:?}"
        );
    }
}

/// A window of ten has just been used up when a bucket takes its place: the
/// bucket has to know, or the second that straddles the change holds both.
#[test]
fn a_bucket_that_comes_into_force_counts_the_starts_before_it() {
    let window = LimitSettings {
        per_second: Some(10),
        ..LimitSettings::EXACT
    };
    let bucket = LimitSettings {
        per_second: Some(2),
        burst: Some(5),
        shape: Some(Shape::TokenBucket),
        ..LimitSettings::EXACT
    };
    let mut world = World::new(window.policy());
    let _ = world.run(1_000);
    world.advance(world.now + Duration::from_millis(100));
    assert_eq!(world.starts.len(), 10);
    world.change(bucket.policy());
    world.follow_looks(1_000, world.now + Duration::from_secs(5));
    world.settle();
    assert_kept(&world);
    assert!(
        world.starts.len() > 10,
        "it goes on when the bucket has recovered"
    );
}

/// The same where more has started than is read for it: the bucket waits for a
/// whole period.
#[test]
fn a_huge_bucket_that_comes_into_force_counts_the_starts_before_it() {
    let limit = |max| LimitSettings {
        per_second: Some(max),
        max_in_flight: Some(100_000),
        ..LimitSettings::EXACT
    };
    let bucket = LimitSettings {
        shape: Some(Shape::TokenBucket),
        ..limit(5_000)
    };
    let mut world = World::new(limit(10_000).policy());
    world = world.started_before(10_000, Duration::from_millis(900));
    world.change(bucket.policy());
    world.follow_looks(1_000_000, world.now + Duration::from_secs(3));
    world.settle();
    let verdict = judge(&world.history, &world.starts);
    assert!(verdict.is_kept(), "{verdict:#?}");
    assert!(world.starts.len() > 10_000 + 5_000);
}

/// A bucket that has been in use for long is no fuller after a change that
/// leaves it as it is: its newest starts alone would not tell.
#[test]
fn a_bucket_that_a_change_leaves_alone_keeps_its_level() {
    let bucket = LimitSettings {
        per_second: Some(10),
        burst: Some(10),
        shape: Some(Shape::TokenBucket),
        ..LimitSettings::EXACT
    };
    let mut world = World::new(bucket.policy());
    world.follow_looks(1_000, world.now + Duration::from_secs(5));
    world.change(bucket.policy());
    world.follow_looks(1_000, world.now + Duration::from_secs(2));
    world.settle();
    assert_kept(&world);
    assert!(world.starts.len() > 60);
}
