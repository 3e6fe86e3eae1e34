use proptest::prelude::*;

use super::*;
use crate::compliance::{InForce, Start, ideal_starts, judge};
use crate::destination::DestinationState;
use crate::ids::AttemptId;
use crate::limit_group::GroupLimits;
use crate::policy::LimitSettings;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn per_second(max: u32) -> LimitSettings {
    LimitSettings {
        per_second: Some(max),
        max_in_flight: Some(10_000),
        ..LimitSettings::EXACT
    }
}

fn arrival(due: i64, latency: u64) -> Arrival {
    Arrival {
        due_at: at(due),
        latency: Duration::from_millis(latency),
    }
}

fn passage(due: i64, started: Option<i64>) -> Passage {
    Passage {
        due_at: at(due),
        started_at: started.map(at),
        finished_at: started.map(|started| at(started + 10)),
        refused: false,
    }
}

#[test]
fn a_burst_drains_at_the_proposed_limit() {
    let burst = vec![arrival(5_000, 20); 1_000];
    let replayed = replay(&per_second(20).policy(), None, &burst, 1_000_000);
    let summary = summary(&replayed);
    assert_eq!((summary.starts, summary.waiting), (1_000, 0));
    assert_eq!(summary.peak_backlog, 980, "twenty went at once");
    // Forty-nine full seconds lie before the last twenty.
    let drained = summary.drained_at.unwrap();
    assert!(drained >= at(54_000) && drained < at(54_600), "{drained:?}");
    let wait = summary.wait_p50.unwrap().as_secs();
    assert!((24..=25).contains(&wait), "{wait}");
}

#[test]
fn what_is_within_the_limit_waits_for_nothing() {
    let even: Vec<_> = (0..500).map(|number| arrival(number * 60, 20)).collect();
    let summary = summary(&replay(&per_second(20).policy(), None, &even, 1_000_000));
    assert_eq!(summary.wait_p99, Some(Duration::ZERO));
    assert_eq!((summary.peak_backlog, summary.peak_at), (0, None));
}

#[test]
fn as_many_are_in_flight_as_may_be() {
    let policy = LimitSettings {
        unlimited: true,
        max_in_flight: Some(5),
        ..LimitSettings::EXACT
    };
    let replayed = replay(
        &policy.policy(),
        None,
        &vec![arrival(0, 1_000); 50],
        1_000_000,
    );
    let mut steps: Vec<_> = (replayed.iter())
        .flat_map(|one| [(one.started_at.unwrap(), 1), (one.finished_at.unwrap(), -1)])
        .collect();
    steps.sort_unstable();
    let mut in_flight = 0;
    for (_, step) in steps {
        in_flight += step;
        assert!(in_flight <= 5);
    }
    let drained = summary(&replayed).drained_at.unwrap();
    assert!(drained < at(9_500), "nine rounds of a second: {drained:?}");
}

#[test]
fn a_limit_of_zero_starts_nothing() {
    let replayed = replay(&per_second(0).policy(), None, &[arrival(0, 10); 3], 1_000);
    let summary = summary(&replayed);
    assert_eq!((summary.starts, summary.waiting), (0, 3));
    assert_eq!((summary.drained_at, summary.peak_backlog), (None, 3));
    assert!(replay(&per_second(0).policy(), None, &[], 1_000).is_empty());
}

/// Four a second in all, of which others take one every half second.
#[test]
fn what_others_of_its_group_started_is_not_there_for_it() {
    let group = Shared {
        limits: GroupLimits {
            per_second: Some(4),
            ..GroupLimits::default()
        },
        others: (0..40).map(|number| at(5_000 + number * 500)).collect(),
    };
    let burst = vec![arrival(5_000, 20); 40];
    let replayed = replay(&per_second(20).policy(), Some(&group), &burst, 1_000_000);
    let own = replayed.iter().filter_map(|one| one.started_at);
    let mut all: Vec<Start> = own.chain(group.others).zip((0..).map(AttemptId)).collect();
    all.sort_unstable();
    let limits = group.limits.as_settings();
    let history = [InForce::new(at(0), &limits, DestinationState::Active)];
    let (within, verdict) = (all.len(), judge(&history, &all));
    assert_eq!(within, 80);
    // The others do not wait for it, so a window may hold one of theirs more.
    assert!(verdict.limits[0].sliding.starts <= 5, "{verdict:?}");
    let drained = summary(&replayed).drained_at.unwrap();
    assert!(drained > at(22_000) && drained < at(26_000), "{drained:?}");
}

#[test]
fn a_group_of_zero_starts_nothing() {
    let group = Shared {
        limits: GroupLimits {
            per_day: Some(0),
            ..GroupLimits::default()
        },
        others: Vec::new(),
    };
    let arrivals = [arrival(0, 10); 3];
    let replayed = replay(&per_second(5).policy(), Some(&group), &arrivals, 1_000);
    assert_eq!(summary(&replayed).waiting, 3);
}

/// More than two thousand a period are counted in buckets.
#[test]
fn a_coarse_limit_is_used_and_kept() {
    let settings = LimitSettings {
        per_minute: Some(3_000),
        max_in_flight: Some(10_000),
        ..LimitSettings::EXACT
    };
    let replayed = replay(
        &settings.policy(),
        None,
        &vec![arrival(0, 10); 9_000],
        1_000_000,
    );
    assert_kept(&settings, &replayed);
    let drained = summary(&replayed).drained_at.unwrap();
    assert!(drained < at(122_000), "{drained:?}");
}

#[test]
fn what_has_no_latency_takes_those_of_others_in_turn() {
    let mut recorded = vec![passage(0, None), passage(5, None), passage(3, Some(7))];
    let latencies = |recorded: &[Passage]| {
        let arrivals = arrivals(recorded).into_iter();
        arrivals
            .map(|one| (one.due_at, one.latency.as_millis()))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        latencies(&recorded),
        [(at(0), 10), (at(3), 10), (at(5), 10)]
    );
    recorded.truncate(1);
    assert_eq!(latencies(&recorded), [(at(0), 100)]);
}

#[test]
fn a_receiver_is_known_by_what_it_refused() {
    let mut recorded: Vec<_> = (0..30).map(|number| passage(0, Some(number))).collect();
    recorded[..10].iter_mut().for_each(|one| one.refused = true);
    recorded.extend((0..15).map(|number| passage(0, Some(5_000 + number))));
    let receiver = Receiver::of(&recorded);
    assert_eq!(
        (receiver.takes_per_second, receiver.most_taken),
        (Some(20), 15)
    );
    let proposed: Vec<_> = (0..26).map(|number| passage(0, Some(number))).collect();
    assert_eq!(receiver.would_refuse(&proposed), Some(6));

    let patient = Receiver::of(&recorded[30..]);
    assert_eq!(patient.would_refuse(&proposed[..15]), Some(0));
    assert_eq!(patient.would_refuse(&proposed), None, "nobody has tried");
}

fn assert_kept(settings: &LimitSettings, replayed: &[Passage]) {
    let history = [InForce::new(at(0), settings, DestinationState::Active)];
    let mut starts: Vec<Start> = (replayed.iter())
        .zip((0..).map(AttemptId))
        .filter_map(|(one, id)| Some((one.started_at?, id)))
        .collect();
    starts.sort_unstable();
    let verdict = judge(&history, &starts);
    assert!(verdict.is_kept(), "{verdict:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The audit finds nothing in a replay, each attempt starts once, in order
    /// and not before it is due; and no perfect sender would have been more
    /// than a moment faster.
    #[test]
    fn a_replay_keeps_its_limit_and_uses_it(
        max in 1_u32..30,
        per_minute in proptest::option::of(1_u32..200),
        gaps in proptest::collection::vec(0_i64..400, 1..200),
    ) {
        let settings = LimitSettings { per_minute, ..per_second(max) };
        let mut due = 0;
        let arrivals: Vec<_> = gaps.iter().map(|gap| { due += gap; arrival(due, 20) }).collect();
        let replayed = replay(&settings.policy(), None, &arrivals, 1_000_000);
        assert_kept(&settings, &replayed);
        let starts: Vec<_> = replayed.iter().filter_map(|one| one.started_at).collect();
        prop_assert_eq!(starts.len(), arrivals.len());
        prop_assert!(starts.is_sorted());
        prop_assert!(replayed.iter().all(|one| one.started_at >= Some(one.due_at)));

        let last = starts[starts.len() - 1];
        let history = [InForce::new(at(0), &settings, DestinationState::Active)];
        let due: Vec<_> = arrivals.iter().map(|one| one.due_at).collect();
        let moment = Duration::from_millis(50);
        let ideal = ideal_starts(&history, &due, at(0), last - moment);
        let done = starts.iter().filter(|start| **start <= last).count() as u64;
        prop_assert!(done >= ideal);
        let sooner = ideal_starts(&history, &due, at(0), last - Duration::from_secs(1));
        prop_assert!(sooner < done || arrivals.len() as u64 == done, "{} of {}", sooner, done);
    }
}
