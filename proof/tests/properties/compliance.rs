//! The judge: tables, planted violations, and agreement with a slow one.

use std::time::Duration;

use domain::admission::SLACK;
use domain::compliance::{
    InForce, MAX_ATTEMPTS, MAX_LISTED, Rule, Start, Violation, ideal_starts, judge,
    largest_aligned, largest_sliding,
};
use domain::destination::DestinationState::{Active, Paused};
use domain::ids::AttemptId;
use domain::limit::{Period, Shape};
use domain::policy::{LimitSettings, Policy, Rate};
use domain::time::Timestamp;
use proptest::prelude::*;

use crate::admission::small_policy;
use crate::brute;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

/// Starts at these milliseconds; the attempts are numbered from 1.
fn ledger(ms: &[i64]) -> Vec<Start> {
    ms.iter()
        .zip(1..)
        .map(|(ms, id)| (at(*ms), AttemptId(id)))
        .collect()
}

fn per_second(max: u32) -> LimitSettings {
    LimitSettings {
        per_second: Some(max),
        ..LimitSettings::EXACT
    }
}

fn bucket(max: u32, burst: u32) -> LimitSettings {
    let shape = Some(Shape::TokenBucket);
    LimitSettings {
        burst: Some(burst),
        shape,
        ..per_second(max)
    }
}

fn always(settings: LimitSettings) -> Vec<InForce> {
    vec![InForce::new(at(0), &settings, Active)]
}

fn found(violations: &[Violation]) -> Vec<(Rule, u64, u64, Vec<i64>)> {
    let ids = |violation: &Violation| violation.attempts.iter().map(|id| id.0).collect();
    (violations.iter())
        .map(|violation| {
            (
                violation.rule,
                violation.starts,
                violation.bound,
                ids(violation),
            )
        })
        .collect()
}

fn violations(history: &[InForce], ms: &[i64]) -> Vec<(Rule, u64, u64, Vec<i64>)> {
    let verdict = judge(history, &ledger(ms));
    found(&verdict.violations().cloned().collect::<Vec<_>>())
}

const SECOND: Rule = Rule::Window(Period::Second);

#[test]
fn windows_are_half_open_and_do_not_follow_the_calendar() {
    let starts = ledger(&[0, 999, 1_000, 1_001, 1_998]);
    let sliding = largest_sliding(&starts, Period::Second);
    assert_eq!((sliding.starts, sliding.ends_at), (4, at(1_998)));
    let aligned = largest_aligned(&starts, Period::Second);
    assert_eq!((aligned.starts, aligned.ends_at), (3, at(2_000)));
    assert_eq!(largest_sliding(&[], Period::Day).starts, 0);
    assert_eq!(largest_aligned(&[], Period::Day).starts, 0);
    // Before the epoch the calendar is cut in the same way.
    assert_eq!(largest_aligned(&ledger(&[-1, 0]), Period::Second).starts, 1);
}

#[test]
fn a_planted_violation_is_found_with_exactly_its_attempts() {
    let history = always(per_second(2));
    assert_eq!(violations(&history, &[0, 500, 1_000, 1_500]), []);
    // The third is a millisecond early; later, four within a second.
    let ms = [0, 500, 999, 5_000, 9_000, 9_100, 9_200, 9_300, 20_000];
    let expected = [
        (SECOND, 3, 2, vec![1, 2, 3]),
        (SECOND, 4, 2, vec![5, 6, 7, 8]),
    ];
    assert_eq!(violations(&history, &ms), expected);
    let verdict = judge(&history, &ledger(&ms));
    assert!(!verdict.is_kept());
    let limit = &verdict.limits[0];
    assert_eq!((limit.sliding.starts, limit.bound), (4, Some(2)));
    assert_eq!(
        (limit.sliding.ends_at, limit.violations.early_starts),
        (at(9_300), 3)
    );
}

#[test]
fn a_window_that_straddles_a_cut_has_the_larger_bound_and_no_other_has() {
    let mut history = always(per_second(3));
    history.push(InForce::new(at(10_000), &per_second(1), Active));
    assert_eq!(violations(&history, &[9_700, 9_800, 10_500, 11_500]), []);
    assert_eq!(
        violations(&history, &[9_700, 9_800, 9_900, 10_500]).len(),
        1
    );
    // Wholly under the new one.
    assert_eq!(
        violations(&history, &[11_000, 11_500]),
        [(SECOND, 2, 1, vec![1, 2])]
    );
}

#[test]
fn a_window_that_touches_a_time_without_limit_has_no_bound() {
    let mut history = always(LimitSettings {
        per_minute: Some(100),
        ..LimitSettings::EXACT
    });
    history.push(InForce::new(at(10_000), &per_second(1), Active));
    assert_eq!(violations(&history, &[9_700, 9_800, 10_500]), []);
    assert_eq!(
        violations(&history, &[11_000, 11_500]),
        [(SECOND, 2, 1, vec![1, 2])]
    );
    assert_eq!(
        judge(&history, &ledger(&[9_700, 9_800])).limits[0].bound,
        None
    );
}

#[test]
fn nothing_starts_in_a_pause() {
    let mut history = always(per_second(3));
    history.push(InForce::new(at(10_000), &per_second(3), Paused));
    history.push(InForce::new(at(20_000), &per_second(3), Active));
    assert_eq!(violations(&history, &[9_900, 10_000, 20_000, 20_001]), []);
    let early = violations(&history, &[9_900, 10_001, 10_500, 20_001]);
    assert_eq!(early, [(Rule::Pause, 2, 0, vec![2, 3])]);
    // A limit of zero pauses as well, whatever was in force before.
    let unlimited = LimitSettings {
        unlimited: true,
        ..LimitSettings::EXACT
    };
    let mut history = always(unlimited);
    history.push(InForce::new(at(10_000), &per_second(0), Active));
    assert_eq!(
        violations(&history, &[10_001]),
        [(Rule::Pause, 1, 0, vec![1])]
    );
}

#[test]
fn a_bucket_holds_its_burst_and_the_slack() {
    // 5 and 2/s: with the slack of half a second, 6 at once.
    let history = always(bucket(2, 5));
    assert_eq!(
        violations(&history, &[0, 0, 0, 0, 0, 0, 500, 1_000, 1_500]),
        []
    );
    let over = violations(&history, &[0, 0, 0, 0, 0, 0, 499, 60_000]);
    assert_eq!(over, [(Rule::Bucket, 7, 6, vec![1, 2, 3, 4, 5, 6, 7])]);
    // A window of the same period has a bound of its own: 5 + 2 · 1.5.
    assert_eq!(judge(&history, &ledger(&[0])).limits[0].bound, Some(8));
}

#[test]
fn a_smaller_bucket_does_not_judge_what_the_larger_one_allowed() {
    let mut history = always(bucket(2, 50));
    history.push(InForce::new(at(10_000), &bucket(2, 5), Active));
    let mut ms = vec![9_990; 50];
    assert_eq!(violations(&history, &ms), []);
    // Within the new one, only its own allowance.
    ms.extend([10_001; 7]);
    assert!(
        violations(&history, &ms)
            .iter()
            .any(|(rule, ..)| *rule == Rule::Bucket)
    );
}

#[test]
fn an_empty_history_and_an_empty_ledger_keep_everything() {
    assert!(judge(&[], &ledger(&[0, 0, 0])).is_kept());
    let verdict = judge(&always(bucket(1, 1)), &[]);
    assert!(verdict.is_kept() && verdict.bucket.is_some());
}

#[test]
fn lists_are_bounded_and_counts_are_not() {
    let starts: Vec<i64> = (0..300).flat_map(|second| [second * 10_000; 2]).collect();
    let limit = &judge(&always(per_second(1)), &ledger(&starts)).limits[0];
    let violations = &limit.violations;
    assert_eq!(
        (violations.listed.len(), violations.early_starts),
        (MAX_LISTED, 300)
    );
    let one = &judge(&always(per_second(1)), &ledger(&[5; 3_000])).limits[0]
        .violations
        .listed;
    assert_eq!(
        (one.len(), one[0].starts, one[0].attempts.len()),
        (1, 3_000, MAX_ATTEMPTS)
    );
    assert_eq!(one[0].attempts.last(), Some(&AttemptId(3_000)));
}

#[test]
fn a_perfect_sender_uses_each_limit_to_the_last_start() {
    let due = vec![at(0); 10_000];
    let ideal =
        |history: &[InForce], since, until| ideal_starts(history, &due, at(since), at(until));
    assert_eq!(ideal(&always(per_second(10)), 0, 10_000), 100);
    let both = LimitSettings {
        per_minute: Some(100),
        ..per_second(10)
    };
    assert_eq!(ideal(&always(both), 0, 60_000), 100);
    assert_eq!(ideal(&always(both), 60_000, 120_000), 100);
    assert_eq!(ideal(&always(bucket(10, 50)), 0, 10_000), 149);
    let leaky = LimitSettings {
        shape: Some(Shape::LeakyBucket),
        ..per_second(10)
    };
    assert_eq!(ideal(&always(leaky), 0, 1_000), 10);
    assert_eq!(ideal(&always(per_second(0)), 0, 1_000), 0);
    // It waits for what is due.
    let late = [at(0), at(100), at(5_000)];
    assert_eq!(
        ideal_starts(&always(per_second(1)), &late, at(0), at(2_000)),
        2
    );
}

#[test]
fn a_perfect_sender_obeys_changes_and_counts_what_came_before() {
    let due = vec![at(0); 1_000];
    let mut history = always(per_second(10));
    history.push(InForce::new(at(500), &per_second(0), Active));
    history.push(InForce::new(at(2_000), &per_second(4), Active));
    history.push(InForce::new(at(2_500), &per_second(6), Active));
    // Ten at 0, none in the pause, four at 2 s, two more at 2.5 s, four at 3 s.
    assert_eq!(ideal_starts(&history, &due, at(0), at(2_000)), 10);
    assert_eq!(ideal_starts(&history, &due, at(2_000), at(2_500)), 4);
    assert_eq!(ideal_starts(&history, &due, at(2_500), at(3_000)), 2);
    assert_eq!(ideal_starts(&history, &due, at(3_000), at(3_500)), 4);
    // A bucket begins with what the window before it let through.
    let mut history = always(per_second(10));
    history.push(InForce::new(at(500), &bucket(2, 5), Active));
    assert_eq!(ideal_starts(&history, &due, at(500), at(2_900)), 0);
    assert_eq!(ideal_starts(&history, &due, at(500), at(3_001)), 1);
}

/// A dense ledger: many gaps of nothing, some of about a period.
fn starts() -> impl Strategy<Value = Vec<Start>> {
    let gap = prop_oneof![
        2 => Just(0_i64), 3 => 0..400_000_i64, 2 => 900_000..1_100_000_i64, 1 => 0..30_000_000_i64
    ];
    prop::collection::vec(gap, 0..80).prop_map(|gaps| {
        let mut now = 1_000_000_000;
        (gaps.iter().zip(1..))
            .map(|(gap, id)| {
                now += gap;
                (Timestamp::from_micros(now), AttemptId(id))
            })
            .collect()
    })
}

/// Buckets of two periods; now and then a pause, or a window without burst.
fn spacing() -> impl Strategy<Value = LimitSettings> {
    let by_second = (1..6_u32, 1..8_u32).prop_map(|(max, burst)| bucket(max, burst));
    let by_minute = (1..100_u32, 1..8_u32).prop_map(|(max, burst)| LimitSettings {
        per_second: None,
        per_minute: Some(max),
        ..bucket(max, burst)
    });
    prop_oneof![6 => by_second, 4 => by_minute, 1 => Just(per_second(0)), 1 => Just(per_second(3))]
}

fn policy() -> impl Strategy<Value = Policy> {
    let other = prop_oneof![
        Just(
            LimitSettings {
                unlimited: true,
                ..LimitSettings::EXACT
            }
            .policy()
        ),
        Just(per_second(0).policy()),
    ];
    prop_oneof![5 => small_policy(), 1 => other]
}

fn history() -> impl Strategy<Value = Vec<InForce>> {
    prop::collection::vec((policy(), 1..20_000_000_i64), 1..6).prop_map(|entries| {
        let mut from = 995_000_000;
        (entries.into_iter())
            .map(|(policy, lasts)| {
                let entry = InForce {
                    from: Timestamp::from_micros(from),
                    policy,
                };
                from += lasts;
                entry
            })
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn the_judge_of_windows_agrees_with_a_slow_one(history in history(), starts in starts()) {
        let verdict = judge(&history, &starts);
        for limit in &verdict.limits {
            let over = brute::windows_over(&history, &starts, limit.period);
            prop_assert_eq!(limit.violations.early_starts, over.len() as u64);
            let of_this = &limit.violations.listed;
            prop_assert_eq!(of_this.is_empty(), over.is_empty());
            for violation in of_this {
                let begins = violation.ends_at - limit.period.duration();
                let last = *violation.attempts.last().unwrap();
                let within = starts.iter().filter(|(at, id)| *at > begins && *id <= last);
                let ids: Vec<_> = within.map(|(_, id)| *id).collect();
                prop_assert_eq!(&violation.attempts, &ids);
                prop_assert!(violation.starts > violation.bound);
            }
            // Every window that is over overlaps one that is listed.
            for index in over {
                let end = starts[index].0;
                let near = |listed: &Violation| {
                    let apart = end.since(listed.ends_at).max(listed.ends_at.since(end));
                    apart < limit.period.duration()
                };
                prop_assert!(of_this.iter().any(near));
            }
        }
    }

    #[test]
    fn the_judge_of_buckets_agrees_with_a_slow_one(
        max in 1..6_u32,
        burst in 1..8_u32,
        by_minute in any::<bool>(),
        starts in starts(),
    ) {
        let (mut settings, shape) = (bucket(max, burst), Some(Shape::TokenBucket));
        if by_minute {
            let per_minute = Some(max * 20);
            let burst = Some(burst);
            settings = LimitSettings { per_minute, burst, shape, ..LimitSettings::EXACT };
        }
        let pacing = brute::pacing(&settings.policy()).unwrap();
        let verdict = judge(&always(settings), &starts);
        let over = brute::bucket_over(pacing, &starts);
        let found = verdict.bucket.unwrap();
        prop_assert_eq!(found.early_starts, over.len() as u64);
        prop_assert_eq!(found.listed.is_empty(), over.is_empty());
        for violation in found.listed {
            // What is listed is a violation by itself.
            let id = |index: usize| violation.attempts[index];
            let time_of = |id: AttemptId| starts.iter().find(|(_, other)| *other == id).unwrap().0;
            let time = violation.ends_at.since(time_of(id(0))) + SLACK;
            let refill = u128::from(pacing.refill.max.get()) * time.as_micros()
                / pacing.refill.period.duration().as_micros();
            prop_assert_eq!(u128::from(violation.bound), u128::from(burst) + refill);
            prop_assert!(violation.starts > violation.bound);
            prop_assert_eq!(violation.starts, violation.attempts.len() as u64);
        }
    }

    #[test]
    fn the_judge_of_buckets_agrees_with_a_slow_one_across_changes(
        entries in prop::collection::vec((spacing(), 1..5_000_i64), 1..6),
        starts in starts(),
    ) {
        let (mut from, mut history) = (995_000, Vec::new());
        for (settings, lasts) in entries {
            history.push(InForce::new(at(from), &settings, Active));
            from += lasts;
        }
        // A start in a pause breaks another rule.
        let starts: Vec<_> = (starts.into_iter())
            .filter(|(at, _)| {
                let entry = history.iter().rev().find(|entry| entry.from <= *at);
                entry.unwrap_or(&history[0]).policy.rate != Rate::Paused
            })
            .collect();
        let over = brute::buckets_over(&history, &starts);
        let found = judge(&history, &starts).bucket.unwrap_or_default();
        prop_assert_eq!(found.early_starts, over.len() as u64);
        prop_assert_eq!(found.listed.is_empty(), over.is_empty());
    }
}

proptest! {
    // Each case asks for its starts by bisection.
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// What a perfect sender does is never a violation, and it is the most.
    #[test]
    fn a_perfect_sender_keeps_the_limit(policy in small_policy(), count in 1..60_usize) {
        let history = vec![InForce { from: at(0), policy }];
        let due = vec![at(0); count];
        // Its starts, one by one, by bisection of how many there are by when.
        let by = |time: Timestamp| ideal_starts(&history, &due, at(0), time + Duration::from_micros(1));
        let mut starts = Vec::new();
        for number in 1..=count as u64 {
            let (mut low, mut high) = (-1, 400_000_000_000_i64);
            while high - low > 1 {
                let middle = low + (high - low) / 2;
                match by(Timestamp::from_micros(middle)) >= number {
                    true => high = middle,
                    false => low = middle,
                }
            }
            starts.push((Timestamp::from_micros(high), AttemptId(number as i64)));
        }
        prop_assert!(judge(&history, &starts).is_kept());
    }
}
