use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::admission::{Backlog, Bucket, CoarseStarts, Outstanding, Usage};
use crate::health::HoldReason;
use crate::limit::{Period, Shape};
use crate::policy::{LimitSettings, Policy};
use crate::smart::Effective;

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const DUE: Backlog = Backlog {
    due: 3,
    urgent: 0,
    next_due: None,
};
const MINUTE: Duration = Duration::from_secs(60);

fn limits(per_second: Option<u32>, per_hour: Option<u32>) -> LimitSettings {
    LimitSettings {
        per_second,
        per_hour,
        ..LimitSettings::EXACT
    }
}

/// So many starts, one every `every`, the last of them now.
fn starts(count: u32, every: Duration) -> Usage {
    let starts: Vec<Timestamp> = (0..count).map(|number| NOW - every * number).collect();
    Usage {
        claims: starts.clone(),
        starts,
        ..Usage::default()
    }
}

fn why(policy: &Policy, usage: &Usage) -> Option<Shortfall> {
    let around = Around {
        held_for: Some(HoldReason::Refused),
        ..Around::default()
    };
    shortfall(policy, usage, &DUE, around, NOW)
}

#[test]
fn a_window_that_is_full_is_no_shortfall() {
    let policy = limits(Some(10), None).policy();
    let every = |millis| Duration::from_millis(millis);
    assert_eq!(why(&policy, &starts(10, every(100))), None);
    assert_eq!(why(&policy, &starts(9, every(110))), None);
    assert_eq!(
        why(&policy, &starts(10, every(200))),
        Some(Shortfall::Unscheduled)
    );
    // Nothing is due, or nothing may start.
    let none = Backlog { due: 0, ..DUE };
    assert_eq!(
        shortfall(&policy, &Usage::default(), &none, Around::default(), NOW),
        None
    );
    assert_eq!(
        why(&limits(Some(0), None).policy(), &Usage::default()),
        None
    );
}

#[test]
fn a_long_window_that_was_used_up_at_its_beginning_is_no_shortfall() {
    let policy = limits(Some(100), Some(30)).policy();
    let mut usage = starts(30, Duration::from_millis(10));
    for start in &mut usage.starts {
        *start = *start - 30 * MINUTE;
    }
    assert_eq!(why(&policy, &usage), None);
    usage.starts.truncate(20);
    assert_eq!(why(&policy, &usage), Some(Shortfall::Unscheduled));
}

#[test]
fn a_coarse_window_counts_buckets_and_what_is_in_none() {
    let policy = limits(None, Some(10_000)).policy();
    let counted = |starts| CoarseStarts {
        period: Period::Hour,
        buckets: vec![Bucket {
            ends_at: NOW - MINUTE,
            starts,
        }],
        unfolded: vec![NOW; 100],
    };
    let usage = |starts| Usage {
        coarse: vec![counted(starts)],
        ..Usage::default()
    };
    assert_eq!(why(&policy, &usage(8_900)), None);
    assert_eq!(why(&policy, &usage(8_800)), Some(Shortfall::Unscheduled));
}

#[test]
fn a_bucket_is_judged_by_its_refill() {
    let bucket = LimitSettings {
        shape: Some(Shape::TokenBucket),
        burst: Some(10),
        ..limits(Some(2), None)
    };
    assert_eq!(
        why(&bucket.policy(), &starts(12, Duration::from_millis(500))),
        None
    );
    assert_eq!(
        why(&bucket.policy(), &starts(12, Duration::from_millis(700))),
        Some(Shortfall::Unscheduled)
    );
    let leaky = LimitSettings {
        shape: Some(Shape::LeakyBucket),
        burst: None,
        ..bucket
    };
    assert_eq!(
        why(&leaky.policy(), &starts(3, Duration::from_millis(500))),
        None
    );
    assert_eq!(
        why(&leaky.policy(), &starts(3, Duration::from_millis(1_500))),
        Some(Shortfall::Unscheduled)
    );
}

/// One that works since a minute has not used an hour's worth.
#[test]
fn a_slow_bucket_is_judged_since_work_began() {
    let leaky = LimitSettings {
        shape: Some(Shape::LeakyBucket),
        ..limits(None, Some(100))
    }
    .policy();
    let slot = Duration::from_secs(36);
    let since = |started: &Usage, ago: Duration| {
        let around = Around {
            waits_since: Some(NOW - ago),
            ..Around::default()
        };
        shortfall(&leaky, started, &DUE, around, NOW)
    };
    assert_eq!(since(&starts(2, slot), MINUTE), None);
    assert_eq!(since(&Usage::default(), slot / 2), None, "no token yet");
    assert_eq!(
        since(&Usage::default(), slot * 2),
        Some(Shortfall::Unscheduled)
    );
    // What waits since long ago was held, or paused.
    let held = Usage {
        held_until: Some(NOW - MINUTE),
        ..starts(2, slot)
    };
    assert_eq!(since(&held, 60 * MINUTE), None);
    assert_eq!(since(&starts(2, slot), 60 * MINUTE), None, "after silence");
    assert_eq!(since(&starts(100, slot), 60 * MINUTE), None);
    assert_eq!(
        since(&starts(50, slot * 2), 60 * MINUTE),
        Some(Shortfall::Unscheduled)
    );
}

#[test]
fn a_shortfall_has_its_reason() {
    let policy = LimitSettings {
        max_in_flight: Some(4),
        ..limits(Some(10), None)
    }
    .policy();
    let outstanding = |count| {
        vec![
            Outstanding {
                not_before: NOW,
                deadline: NOW + MINUTE
            };
            count
        ]
    };
    let held = Usage {
        held_until: Some(NOW + MINUTE),
        ..Usage::default()
    };
    assert_eq!(why(&policy, &held), Some(Shortfall::Refused));
    let over = Usage {
        held_until: Some(NOW),
        probing: true,
        ..Usage::default()
    };
    assert_eq!(why(&policy, &over), Some(Shortfall::Breaker));
    let slow = Usage {
        in_flight: 3,
        outstanding: outstanding(1),
        ..Usage::default()
    };
    assert_eq!(why(&policy, &slow), Some(Shortfall::Concurrency));
    let unclaimed = Usage {
        outstanding: outstanding(4),
        ..Usage::default()
    };
    assert_eq!(why(&policy, &unclaimed), Some(Shortfall::Unclaimed));
    let some = Usage {
        outstanding: outstanding(2),
        ..Usage::default()
    };
    assert_eq!(why(&policy, &some), Some(Shortfall::Unclaimed));
    let mut around = Around {
        no_places: true,
        ..Around::default()
    };
    let full = shortfall(&policy, &some, &DUE, around, NOW);
    assert_eq!(full, Some(Shortfall::Places));
    around.tenant_is_full = true;
    let full = shortfall(&policy, &some, &DUE, around, NOW);
    assert_eq!(full, Some(Shortfall::Tenant), "whose places these are");
    let put_off = Usage {
        deferred_until: Some(NOW + Duration::from_secs(10)),
        ..Usage::default()
    };
    for (no_token, word) in [(false, Shortfall::Places), (true, Shortfall::NoToken)] {
        let around = Around::default().without_token(no_token);
        let found = shortfall(&policy, &put_off, &DUE, around, NOW);
        assert_eq!(found, Some(word));
        // What puts nothing off is no reason.
        let found = shortfall(&policy, &some, &DUE, around, NOW);
        assert_eq!(found, Some(Shortfall::Unclaimed));
    }
    for word in Shortfall::ALL {
        assert_eq!(word.as_str().parse(), Ok(word));
    }
}

#[test]
fn unlimited_is_short_when_it_stands_still() {
    let policy = LimitSettings {
        unlimited: true,
        ..limits(None, None)
    }
    .policy();
    assert_eq!(
        why(&policy, &Usage::default()),
        Some(Shortfall::Unscheduled)
    );
    let busy = Usage {
        in_flight: 50,
        ..Usage::default()
    };
    assert_eq!(why(&policy, &busy), None);
    assert_eq!(
        why(
            &policy,
            &Usage {
                in_flight: 1,
                ..Usage::default()
            }
        ),
        None
    );
}

/// Between two instants at which something is in flight, nothing may be.
#[test]
fn unlimited_is_not_short_while_it_drains() {
    let policy = LimitSettings {
        unlimited: true,
        ..limits(None, None)
    }
    .policy();
    let newest = crate::admission::newest_claims(&policy, true).unwrap();
    let started = |ago| Usage {
        claims: vec![NOW - Duration::from_secs(ago)],
        ..Usage::default()
    };
    assert!(newest.count > 0 && newest.period > Duration::from_secs(1));
    let outstanding = |count| {
        let deadline = NOW + Duration::from_secs(2);
        let not_before = NOW;
        vec![
            Outstanding {
                not_before,
                deadline
            };
            count
        ]
    };
    for count in [0, 1, 20, 50] {
        let drains = Usage {
            outstanding: outstanding(count),
            ..started(1)
        };
        assert_eq!(why(&policy, &drains), None, "{count} are out");
        let places = Around {
            no_places: true,
            tenant_is_full: true,
            ..Around::default()
        };
        assert_eq!(shortfall(&policy, &drains, &DUE, places, NOW), None);
        // But nothing that is out is no progress.
        let stands = Usage {
            outstanding: outstanding(count),
            ..started(60)
        };
        let stalled = match count {
            0 => Shortfall::Unscheduled,
            _ => Shortfall::Unclaimed,
        };
        assert_eq!(why(&policy, &stands), Some(stalled), "{count} are out");
    }
    let held = Usage {
        held_until: Some(NOW + MINUTE),
        ..started(1)
    };
    assert_eq!(why(&policy, &held), Some(Shortfall::Refused));
    // Its workers have no place: the hold before it is over.
    let deferred = Usage {
        held_until: Some(NOW - MINUTE),
        deferred_until: Some(NOW + MINUTE),
        ..started(1)
    };
    assert_eq!(why(&policy, &deferred), Some(Shortfall::Places));
    let both = Usage {
        held_until: Some(NOW + MINUTE * 2),
        ..deferred
    };
    assert_eq!(why(&policy, &both), Some(Shortfall::Refused));
}

#[test]
fn what_smart_delivery_has_lowered_is_its_doing() {
    let half = Effective {
        per_second: Some(50.0),
        max_in_flight: None,
    };
    let policy = limits(Some(100), None).policy().slowed(half);
    let at_its_pace = starts(50, Duration::from_millis(20));
    assert_eq!(why(&policy, &at_its_pace), Some(Shortfall::Smart));
    let full = Around {
        no_places: true,
        ..Around::default()
    };
    let places = shortfall(&policy, &at_its_pace, &DUE, full, NOW);
    assert_eq!(places, Some(Shortfall::Places));
    assert_eq!(
        why(&policy, &starts(100, Duration::from_millis(10))),
        None,
        "it gets what is configured"
    );
    // It stands still, and that is not smart delivery's doing.
    assert_eq!(
        why(&policy, &Usage::default()),
        Some(Shortfall::Unscheduled)
    );
    let unlimited = LimitSettings {
        unlimited: true,
        ..limits(None, None)
    };
    let policy = unlimited.policy().slowed(half);
    assert_eq!(why(&policy, &at_its_pace), None);
}

fn seen(backlog: u32) -> Sight {
    Sight {
        backlog,
        oldest: Some(NOW - MINUTE),
        shortfall: None,
    }
}

fn short(reason: Shortfall) -> Sight {
    Sight {
        shortfall: Some(reason),
        oldest: Some(NOW - MINUTE),
        ..Sight::default()
    }
}

const PATIENCE: Duration = Duration::from_secs(10);

/// A look in an ordinary round.
fn look(watch: &mut Watch, settings: &AlertSettings, sight: &Sight, now: Timestamp) -> Vec<News> {
    watch.look(settings, sight, (PATIENCE, now))
}

fn types(news: &[News]) -> Vec<OperationalType> {
    news.iter().map(|one| one.event_type).collect()
}

#[test]
fn a_backlog_is_high_at_the_threshold_and_normal_at_half_of_it() {
    let settings = AlertSettings {
        backlog: 100,
        ..AlertSettings::default()
    };
    let mut watch = Watch::default();
    assert_eq!(watch.count_up_to(&settings), 100);
    assert!(look(&mut watch, &settings, &seen(99), NOW).is_empty());
    let news = look(&mut watch, &settings, &seen(100), NOW);
    assert_eq!(types(&news), [OperationalType::BacklogHigh]);
    assert_eq!(
        news[0].details,
        r#"{"backlog_at_least":100,"threshold":100,"oldest_since":"2023-11-14T22:12:20.000000Z"}"#
    );
    assert_eq!(watch.count_up_to(&settings), 51);
    assert!(look(&mut watch, &settings, &seen(51), NOW).is_empty());
    assert_eq!(
        types(&look(&mut watch, &settings, &seen(50), NOW)),
        [OperationalType::BacklogNormal]
    );
    assert!(watch.is_well(MINUTE, NOW));
}

#[test]
fn no_threshold_is_no_alert_and_ends_one() {
    let never = AlertSettings {
        backlog: 0,
        under_delivery: Duration::ZERO,
        ..AlertSettings::default()
    };
    let mut watch = Watch::default();
    assert_eq!(watch.count_up_to(&never), 0);
    let sight = Sight {
        backlog: 5_000,
        ..short(Shortfall::Places)
    };
    assert!(look(&mut watch, &never, &sight, NOW).is_empty());
    let set = AlertSettings {
        backlog: 1,
        ..never
    };
    assert_eq!(look(&mut watch, &set, &sight, NOW).len(), 1);
    assert_eq!(
        types(&look(&mut watch, &never, &sight, NOW)),
        [OperationalType::BacklogNormal]
    );
}

#[test]
fn a_shortfall_is_told_after_a_while_and_once() {
    let settings = AlertSettings::default();
    let mut watch = Watch::default();
    let at = |seconds| NOW + Duration::from_secs(seconds);
    assert!(look(&mut watch, &settings, &short(Shortfall::Places), at(0)).is_empty());
    assert!(look(&mut watch, &settings, &short(Shortfall::Places), at(59)).is_empty());
    let news = look(
        &mut watch,
        &settings,
        &short(Shortfall::Concurrency),
        at(60),
    );
    assert_eq!(types(&news), [OperationalType::UnderDelivery]);
    assert_eq!(
        news[0].details,
        r#"{"reason":"concurrency","since":"2023-11-14T22:13:20.000000Z","seconds":60}"#
    );
    assert!(
        look(
            &mut watch,
            &settings,
            &short(Shortfall::Concurrency),
            at(900)
        )
        .is_empty()
    );
    let ended = look(&mut watch, &settings, &Sight::default(), at(901));
    assert_eq!(types(&ended), [OperationalType::UnderDeliveryEnded]);
    assert!(watch.is_well(MINUTE, at(901)));
}

#[test]
fn one_that_recovers_in_time_is_not_told_of() {
    let settings = AlertSettings::default();
    let mut watch = Watch::default();
    let at = |seconds| NOW + Duration::from_secs(seconds);
    assert!(look(&mut watch, &settings, &short(Shortfall::Places), at(0)).is_empty());
    assert!(look(&mut watch, &settings, &Sight::default(), at(50)).is_empty());
    assert!(look(&mut watch, &settings, &short(Shortfall::Places), at(61)).is_empty());
    // Nobody looked for an hour: what was in between is not known.
    assert!(look(&mut watch, &settings, &short(Shortfall::Places), at(3_700)).is_empty());
    assert_eq!(
        look(&mut watch, &settings, &short(Shortfall::Places), at(3_760)).len(),
        1
    );
}

#[test]
fn dead_letters_are_counted_in_intervals() {
    let mut watch = Watch {
        dead_letters: 3,
        ..Watch::default()
    };
    let first = watch.tell_dead_letters(MINUTE, NOW).unwrap();
    assert_eq!(first.details, r#"{"count":3,"since":null}"#);
    watch.dead_letters += 40;
    assert_eq!(watch.tell_dead_letters(MINUTE, NOW + MINUTE / 2), None);
    assert!(!watch.is_well(MINUTE, NOW + MINUTE));
    let second = watch.tell_dead_letters(MINUTE, NOW + MINUTE).unwrap();
    assert_eq!(
        second.details,
        r#"{"count":40,"since":"2023-11-14T22:13:20.000000Z"}"#
    );
    assert!(
        !watch.is_well(MINUTE, NOW + MINUTE),
        "the interval has to be remembered"
    );
    assert!(watch.is_well(MINUTE, NOW + 2 * MINUTE));
}

/// It is remembered for something else, so every round looks at it: there is
/// always something due at one that is busy, and never for long.
#[test]
fn one_that_keeps_up_is_not_short_because_it_is_looked_at() {
    let settings = AlertSettings::default();
    let mut watch = Watch {
        dead_letters_told_at: Some(NOW),
        ..Watch::default()
    };
    for seconds in (0..600).step_by(10) {
        let now = NOW + Duration::from_secs(seconds);
        let sight = Sight {
            oldest: Some(now - Duration::from_secs(9)),
            ..short(Shortfall::Unscheduled)
        };
        assert!(look(&mut watch, &settings, &sight, now).is_empty());
        assert_eq!(watch.short, None);
    }
}

#[test]
fn a_shortfall_is_told_when_something_has_waited_as_long() {
    let settings = AlertSettings::default();
    let mut watch = Watch::default();
    for seconds in (0..600).step_by(10) {
        let now = NOW + Duration::from_secs(seconds);
        let sight = Sight {
            oldest: Some(now - Duration::from_secs(59)),
            ..short(Shortfall::Places)
        };
        assert!(look(&mut watch, &settings, &sight, now).is_empty());
    }
    assert!(watch.short.is_some_and(|short| !short.told));
    let now = NOW + Duration::from_secs(600);
    let sight = Sight {
        oldest: Some(now - MINUTE),
        ..short(Shortfall::Places)
    };
    let news = look(&mut watch, &settings, &sight, now);
    assert_eq!(types(&news), [OperationalType::UnderDelivery]);
    // Nothing waits for long any more: it is over, whatever it gets.
    let sight = Sight {
        oldest: Some(now),
        ..sight
    };
    let news = look(&mut watch, &settings, &sight, now);
    assert_eq!(types(&news), [OperationalType::UnderDeliveryEnded]);
}

proptest! {
    /// Every alert that is raised ends before it is raised again, and one that
    /// is well for long enough has none.
    #[test]
    fn alerts_come_in_pairs(
        looks in proptest::collection::vec((0_u32..200, proptest::option::of(0..Shortfall::ALL.len()), 1_u64..90, 0_u64..120), 1..60),
    ) {
        let settings = AlertSettings { backlog: 100, ..AlertSettings::default() };
        let mut watch = Watch::default();
        let mut now = NOW;
        let mut raised = std::collections::BTreeSet::new();
        let mut check = |news: Vec<News>| {
            for one in news {
                let fair = match one.event_type {
                    OperationalType::BacklogHigh => raised.insert("backlog"),
                    OperationalType::BacklogNormal => raised.remove("backlog"),
                    OperationalType::UnderDelivery => raised.insert("short"),
                    OperationalType::UnderDeliveryEnded => raised.remove("short"),
                    _ => false,
                };
                prop_assert!(fair, "{one:?}");
            }
            Ok(())
        };
        for (backlog, reason, seconds, waited) in looks {
            now = now + Duration::from_secs(seconds);
            let counted = backlog.min(watch.count_up_to(&settings));
            let shortfall = reason.map(|index| Shortfall::ALL[index]);
            let oldest = Some(now - Duration::from_secs(waited));
            check(look(&mut watch, &settings, &Sight { backlog: counted, oldest, shortfall }, now))?;
        }
        check(look(&mut watch, &settings, &Sight::default(), now))?;
        prop_assert!(raised.is_empty());
        prop_assert!(watch.is_well(MINUTE, now));
    }
}
