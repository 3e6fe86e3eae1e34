use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::admission::{Bucket, CoarseStarts, Look, Outstanding, admit};
use crate::admission::{Group, Member};
use crate::health::HoldReason;
use crate::ids::{DestinationId, TenantId};
use crate::limit::{Count, Period, Shape};
use crate::limit_group::GroupLimits;
use crate::policy::LimitSettings;
use crate::smart::Effective;

const NOW: Timestamp = Timestamp::from_millis(100_000);

fn ms(millis: i64) -> Timestamp {
    Timestamp::from_millis(100_000 + millis)
}

fn per_second(max: u32) -> Policy {
    limits(LimitSettings {
        per_second: Some(max),
        ..LimitSettings::EXACT
    })
}

fn limits(settings: LimitSettings) -> Policy {
    settings.policy()
}

/// Two a second, and so many a minute as the receiver says.
fn allowed(per_minute: u32) -> Policy {
    limits(LimitSettings {
        per_second: Some(2),
        allowed_per_minute: Some(per_minute),
        ..LimitSettings::EXACT
    })
}

fn permit(slot: i64) -> Outstanding {
    Outstanding {
        not_before: ms(slot),
        deadline: ms(slot + 2_000),
    }
}

/// A destination that could go at once, and what differs from that.
struct Case {
    state: DestinationState,
    policy: Policy,
    usage: Usage,
    backlog: Backlog,
    around: Around,
    no_token: Option<&'static str>,
    workers: u32,
    measured: Measured,
}

fn free() -> Case {
    Case {
        state: DestinationState::Active,
        policy: per_second(2),
        usage: Usage::default(),
        backlog: Backlog {
            due: 3,
            urgent: 0,
            next_due: None,
        },
        around: Around::default(),
        no_token: None,
        workers: 1,
        measured: Measured::default(),
    }
}

impl Case {
    fn circumstances(&self) -> Circumstances<'_> {
        Circumstances {
            state: self.state,
            policy: &self.policy,
            usage: &self.usage,
            backlog: &self.backlog,
            around: self.around,
            no_token: self.no_token,
            workers: self.workers,
            now: NOW,
        }
    }

    fn explained(&self) -> Explanation {
        explain(&self.circumstances())
    }

    fn drains(&self, backlog: u32) -> Result<Duration, Unknown> {
        drains_in(&self.circumstances(), &self.measured, backlog)
    }

    fn held(reason: HoldReason) -> Self {
        let mut case = free();
        case.usage.held_until = Some(ms(7_000));
        case.around.held_for = Some(reason);
        case
    }

    fn with(change: impl FnOnce(&mut Self)) -> Self {
        let mut case = free();
        change(&mut case);
        case
    }
}

#[test]
fn a_window_that_the_receiver_allows_is_said_to_be_its() {
    let mut case = Case::with(|case| case.policy = allowed(2));
    case.usage.starts = vec![ms(-2_000), ms(-4_000)];
    let explained = case.explained();
    assert_eq!(
        (explained.reason, explained.next_at),
        (Reason::Window, Some(ms(56_000)))
    );
    assert!(
        explained
            .words
            .starts_with("The window of 2 a minute, which the receiver allows,"),
        "{}",
        explained.words
    );
}

/// What is different, the reason, when the next goes out, and what the sentence
/// has to name.
type Row = (Case, Reason, Option<Timestamp>, &'static str);

/// One row for each reason, at least.
fn table() -> Vec<Row> {
    let rows = [
        of_its_owner(),
        of_its_receiver(),
        of_its_limits(),
        of_the_fleet(),
        of_what_is_under_way(),
    ];
    rows.into_iter().flatten().collect()
}

fn full(usage: &mut Usage) {
    usage.starts = vec![ms(-100), ms(-400)];
    usage.claims = usage.starts.clone();
}

fn of_its_owner() -> Vec<Row> {
    vec![
        (free(), Reason::Now, Some(NOW), "nothing is in its way"),
        (
            Case::with(|case| case.backlog.due = 0),
            Reason::NoWork,
            None,
            "Nothing waits",
        ),
        (
            Case::with(|case| {
                case.backlog = Backlog {
                    due: 0,
                    urgent: 0,
                    next_due: Some(ms(60_000)),
                }
            }),
            Reason::Backoff,
            Some(ms(60_000)),
            "1970-01-01T00:02:40",
        ),
        (
            Case::with(|case| case.state = DestinationState::Paused),
            Reason::Paused,
            None,
            "resumes",
        ),
        (
            Case::with(|case| case.state = DestinationState::Disabled),
            Reason::Disabled,
            None,
            "disabled",
        ),
        (
            Case::with(|case| case.policy = per_second(0)),
            Reason::ZeroLimit,
            None,
            "0",
        ),
        (
            Case::with(|case| case.policy = allowed(0)),
            Reason::NotAllowed,
            None,
            "has not allowed",
        ),
    ]
}

fn of_its_receiver() -> Vec<Row> {
    vec![
        (
            Case::held(HoldReason::Asked),
            Reason::Asked,
            Some(ms(7_000)),
            "00:01:47",
        ),
        (
            Case::held(HoldReason::Refused),
            Reason::Refused,
            Some(ms(7_000)),
            "429",
        ),
        (
            Case::held(HoldReason::Breaker),
            Reason::Breaker,
            Some(ms(7_000)),
            "breaker",
        ),
        (
            Case::with(|case| {
                case.usage.probing = true;
                case.usage.in_flight = 1;
            }),
            Reason::Probe,
            None,
            "half open",
        ),
    ]
}

fn of_its_limits() -> Vec<Row> {
    let bucket = LimitSettings {
        per_second: Some(2),
        shape: Some(Shape::TokenBucket),
        burst: Some(4),
        ..LimitSettings::EXACT
    };
    vec![
        (
            Case::with(|case| full(&mut case.usage)),
            Reason::Window,
            Some(ms(600)),
            "2 a second",
        ),
        (
            Case::with(|case| {
                case.policy = limits(bucket);
                case.usage.meter = crate::admission::Meter {
                    missing_micro: 4_000_000,
                    as_of: NOW,
                };
            }),
            Reason::Spacing,
            Some(ms(500)),
            "bucket of 4",
        ),
        (
            Case::with(|case| {
                case.policy = per_second(100).slowed(Effective {
                    per_second: Some(2.0),
                    max_in_flight: None,
                });
                full(&mut case.usage);
            }),
            Reason::Smart,
            Some(ms(400)),
            "2 a second",
        ),
        (
            Case::with(|case| {
                case.policy.max_in_flight = 5;
                case.usage.in_flight = 5;
            }),
            Reason::Concurrency,
            None,
            "max_in_flight is 5",
        ),
    ]
}

fn of_the_fleet() -> Vec<Row> {
    vec![
        (
            Case::with(|case| case.around.tenant_is_full = true),
            Reason::Tenant,
            None,
            "tenant",
        ),
        (
            Case::with(|case| case.workers = 0),
            Reason::NoWorkers,
            None,
            "paceline worker",
        ),
        (
            Case::with(|case| case.around.no_places = true),
            Reason::Places,
            None,
            "places",
        ),
        (
            Case::with(|case| case.usage.deferred_until = Some(ms(7_000))),
            Reason::Places,
            Some(ms(7_000)),
            "places",
        ),
        (
            Case::with(|case| {
                case.usage.deferred_until = Some(ms(7_000));
                case.no_token = Some("the token server answered 401");
            }),
            Reason::NoToken,
            Some(ms(7_000)),
            "the token server answered 401. One is asked for again at",
        ),
        (
            // What it had lately is no matter while something else holds it.
            Case::with(|case| {
                case.workers = 0;
                case.no_token = Some("the token server answered 401");
            }),
            Reason::NoWorkers,
            None,
            "paceline worker",
        ),
        (
            // The hold before it is over: its reason is none any more.
            Case::with(|case| {
                case.usage.held_until = Some(ms(-1));
                case.usage.deferred_until = Some(ms(7_000));
                case.around.held_for = Some(HoldReason::Refused);
            }),
            Reason::Places,
            Some(ms(7_000)),
            "places",
        ),
        (
            Case::with(|case| {
                case.usage.held_until = Some(ms(8_000));
                case.usage.deferred_until = Some(ms(7_000));
                case.around.held_for = Some(HoldReason::Refused);
            }),
            Reason::Refused,
            Some(ms(8_000)),
            "429",
        ),
    ]
}

fn of_what_is_under_way() -> Vec<Row> {
    vec![
        (
            Case::with(|case| case.usage.incomplete = true),
            Reason::Counting,
            None,
            "counted",
        ),
        (
            Case::with(|case| case.around.waits_since = Some(ms(-6_000))),
            Reason::Unscheduled,
            None,
            "scheduler",
        ),
        (
            Case::with(|case| case.usage.outstanding = vec![permit(-20)]),
            Reason::Permitted,
            Some(NOW),
            "worker claims it",
        ),
        // It has a permit for when the window opens: the window is why.
        (
            Case::with(|case| {
                full(&mut case.usage);
                case.usage.outstanding = vec![permit(600), permit(900)];
            }),
            Reason::Window,
            Some(ms(600)),
            "2 a second",
        ),
        (
            Case::with(|case| case.usage.group = Some(group(1, &[-400]))),
            Reason::Group,
            Some(ms(600)),
            "acme has 1 a second",
        ),
        (
            Case::with(|case| case.usage.group = Some(group(0, &[]))),
            Reason::ZeroLimit,
            None,
            "acme",
        ),
    ]
}

/// A group in which another member has started at these times.
fn group(per_second: u32, starts: &[i64]) -> Arc<Group> {
    let member = Member {
        starts: starts.iter().map(|at| ms(*at)).collect(),
        ..Member::default()
    };
    Arc::new(Group {
        tenant: TenantId(uuid::Uuid::from_u128(1)),
        name: "acme".parse().unwrap(),
        limits: GroupLimits {
            per_second: Some(per_second),
            ..GroupLimits::default()
        },
        members: [(DestinationId(uuid::Uuid::from_u128(7)), member)].into(),
    })
}

#[test]
fn every_reason_has_its_circumstances_its_time_and_its_words() {
    let mut seen = Vec::new();
    for (case, reason, next_at, named) in table() {
        let found = case.explained();
        assert_eq!(
            (found.reason, found.next_at),
            (reason, next_at),
            "{found:?}"
        );
        assert!(found.words.contains(named), "{}", found.words);
        seen.push(reason);
    }
    for reason in Reason::ALL {
        assert!(seen.contains(&reason), "{reason:?}");
        assert_eq!(reason.as_str().parse(), Ok(reason));
    }
}

#[test]
fn of_several_windows_the_one_that_opens_last_is_named() {
    let case = Case::with(|case| {
        case.policy = limits(LimitSettings {
            per_second: Some(2),
            per_minute: Some(3),
            ..LimitSettings::EXACT
        });
        case.usage.starts = vec![ms(-100), ms(-400), ms(-50_000)];
    });
    let found = case.explained();
    assert_eq!(found.next_at, Some(ms(10_000)));
    assert!(found.words.contains("3 a minute"), "{}", found.words);
}

#[test]
fn where_answers_count_those_that_have_not_come_are_the_limit() {
    let case = Case::with(|case| {
        case.policy = limits(LimitSettings {
            per_second: Some(2),
            count: Some(Count::Response),
            ..LimitSettings::EXACT
        });
        case.usage.in_flight = 2;
    });
    let found = case.explained();
    assert_eq!(found.reason, Reason::Window, "{}", found.words);
    assert_eq!(found.next_at, Some(ms(1_000)));
    let words = "2 requests have no answer yet";
    assert!(found.words.contains(words), "{}", found.words);
}

#[test]
fn a_backlog_drains_at_the_limit_after_what_is_left_of_it() {
    let seconds = |seconds| Ok(Duration::from_secs(seconds));
    let mut case = free();
    // The first two at once, two more after a second, and so on.
    assert_eq!(
        [0, 1, 2].map(|backlog| case.drains(backlog)),
        [seconds(0); 3]
    );
    assert_eq!(
        [3, 4, 22].map(|backlog| case.drains(backlog)),
        [1, 1, 10].map(seconds)
    );
    case.usage.held_until = Some(ms(5_000));
    case.around.held_for = Some(HoldReason::Asked);
    assert_eq!(case.drains(22), seconds(15));
}

#[test]
fn of_several_limits_the_one_that_takes_longest_counts() {
    let mut case = Case::with(|case| {
        case.policy = limits(LimitSettings {
            per_second: Some(2),
            per_day: Some(1_000),
            ..LimitSettings::EXACT
        });
    });
    let day = 86_400;
    let seconds = |case: &Case, backlog| case.drains(backlog).map(|time| time.as_secs());
    assert_eq!(seconds(&case, 96), Ok(47), "the day has room for them");
    assert_eq!(
        seconds(&case, 1_004),
        Ok(day + 1),
        "a day, and two of the next"
    );
    // 990 of the day are used, an hour ago: they come back tomorrow.
    case.usage.starts = vec![ms(-3_600_000); 990];
    assert_eq!(seconds(&case, 10), Ok(4));
    assert_eq!(seconds(&case, 13), Ok(day - 3_600 + 1));
}

#[test]
fn a_full_window_is_waited_for_before_anything_drains() {
    let mut case = Case::with(|case| {
        case.policy = limits(LimitSettings {
            per_hour: Some(1_000),
            ..LimitSettings::EXACT
        });
        case.usage.starts = vec![ms(-780_000); 1_000];
    });
    let in_47_minutes = Ok(Duration::from_secs(47 * 60));
    assert_eq!(case.drains(319), in_47_minutes);
    assert_eq!(case.explained().next_at, Some(ms(47 * 60_000)));
    // The same where they are counted in buckets.
    case.policy = limits(LimitSettings {
        per_hour: Some(3_000),
        ..LimitSettings::EXACT
    });
    case.usage.starts = Vec::new();
    case.usage.coarse = vec![CoarseStarts {
        period: Period::Hour,
        buckets: vec![Bucket {
            ends_at: ms(-780_000),
            starts: 2_900,
        }],
        unfolded: vec![ms(-60_000); 90],
    }];
    assert_eq!(case.drains(10), Ok(Duration::ZERO));
    assert_eq!(case.drains(319), in_47_minutes);
}

#[test]
fn what_is_to_be_retried_drains_no_sooner_than_it_is_due() {
    let case = Case::with(|case| {
        case.backlog = Backlog {
            due: 0,
            urgent: 0,
            next_due: Some(ms(45 * 60_000)),
        };
    });
    assert_eq!(case.explained().reason, Reason::Backoff);
    assert_eq!(case.drains(1), Ok(Duration::from_secs(45 * 60)));
}

#[test]
fn smart_delivery_is_a_limit_too() {
    let case = Case::with(|case| {
        case.policy = limits(LimitSettings::EXACT).slowed(Effective {
            per_second: Some(0.5),
            max_in_flight: None,
        });
    });
    assert_eq!(case.drains(31), Ok(Duration::from_secs(60)));
}

#[test]
fn nobody_can_say_how_long_it_is_up_to_somebody() {
    let unknown = |change: fn(&mut Case)| Case::with(change).drains(22).expect_err("unknown");
    let held = |case: &mut Case, reason| {
        case.usage.held_until = Some(ms(5_000));
        case.around.held_for = Some(reason);
    };
    let stopped = Unknown::Stopped;
    assert_eq!(
        [
            unknown(|case| case.state = DestinationState::Paused),
            unknown(|case| case.state = DestinationState::Disabled),
            unknown(|case| case.policy = per_second(0)),
        ],
        [stopped; 3]
    );
    assert_eq!(unknown(|case| case.workers = 0), Unknown::NoWorkers);
    assert_eq!(
        unknown(|case| case.around.waits_since = Some(ms(-6_000))),
        Unknown::Unscheduled
    );
    let breaker = Case::with(|case| held(case, HoldReason::Breaker));
    assert_eq!(
        (breaker.explained().reason, breaker.drains(22)),
        (Reason::Breaker, Err(Unknown::Breaker))
    );
}

fn unlimited(case: &mut Case) {
    case.policy = limits(LimitSettings {
        max_in_flight: Some(20),
        ..LimitSettings::EXACT
    });
}

#[test]
fn max_in_flight_is_a_rule_once_it_is_known_how_long_a_request_takes() {
    let mut case = Case::with(unlimited);
    assert_eq!(case.drains(22), Err(Unknown::Untimed));
    case.measured = Measured::of(
        [1, 3].map(Duration::from_secs),
        (2, Duration::from_secs(10)),
    );
    assert_eq!(case.measured.request_time, Some(Duration::from_secs(2)));
    assert_eq!(case.drains(20), Ok(Duration::ZERO), "all of them at once");
    assert_eq!(
        case.drains(120),
        Ok(Duration::from_secs(10)),
        "ten a second"
    );
    case.usage.in_flight = 20;
    assert_eq!(case.explained().reason, Reason::Concurrency);
    assert_eq!(
        case.drains(120),
        Ok(Duration::from_secs(12)),
        "once one ends"
    );
    // The limit is the narrower one.
    case.policy.rate = per_second(2).rate;
    assert_eq!(case.drains(120), Ok(Duration::from_secs(59)));
    case.measured.request_time = None;
    assert_eq!(case.drains(120), Err(Unknown::Untimed));
    // While a place is free, it is its limits that it is at.
    case.usage.in_flight = 19;
    assert_eq!(case.drains(120), Ok(Duration::from_secs(59)));
}

#[test]
fn where_others_take_the_places_it_goes_on_as_it_went_lately() {
    let crowded: [fn(&mut Case); 3] = [
        |case| case.around.no_places = true,
        |case| case.around.tenant_is_full = true,
        |case| case.usage.deferred_until = Some(NOW + Duration::from_millis(1)),
    ];
    for change in crowded {
        let mut case = Case::with(|case| {
            unlimited(case);
            change(case);
        });
        assert_eq!(case.drains(22), Err(Unknown::Crowded));
        case.measured = Measured::of([], (5, Duration::from_secs(10)));
        let seconds = |case: &Case| case.drains(22).map(|time| time.as_secs());
        assert_eq!(seconds(&case), Ok(44));
        // Where that is faster than its own rules, these count.
        case.policy.rate = per_second(2).rate;
        case.measured.starts_per_second = 50.0;
        assert_eq!(seconds(&case), Ok(10));
    }
}

/// Runs of admission, one after the other, until so many have started; when the last
/// one did. The requests take so long, in turn; those that are under way have begun
/// one after the other.
fn drained(case: &Case, backlog: u32, took: &[Duration]) -> Timestamp {
    let (mut usage, mut now, mut left) = (case.usage.clone(), NOW, backlog);
    let mut took = took.iter().cycle();
    let longest = took.clone().next().copied().unwrap_or_default();
    let under_way = usage.in_flight;
    let mut ends: Vec<Timestamp> = (1..=under_way)
        .map(|place| NOW + longest * place / under_way)
        .collect();
    loop {
        ends.retain(|end| *end > now);
        usage.in_flight = u32::try_from(ends.len()).unwrap();
        let waits = Backlog {
            due: left,
            urgent: 0,
            next_due: None,
        };
        let decision = admit(&case.policy, &usage, &waits, 1_000, now);
        // They start at their slots.
        for slot in &decision.slots {
            usage.starts.insert(0, slot.not_before);
            usage.claims.insert(0, slot.not_before);
            ends.extend(took.next().map(|time| slot.not_before + *time));
            now = now.max(slot.not_before);
        }
        left -= u32::try_from(decision.slots.len()).unwrap();
        if left == 0 {
            return now;
        }
        usage.meter = decision.meter;
        // An outcome wakes.
        let ends = ends.iter().copied().filter(|end| *end > now).min();
        now = match decision.look {
            Look::At { at, .. } => now.max(ends.map_or(at, |end| end.min(at))),
            look => panic!("{look:?}"),
        };
    }
}

/// Under limits per second and minute, of which so much was used so many milliseconds
/// ago.
fn used((max, per_minute, burst): (u32, Option<u32>, Option<u32>), ages: &[i64]) -> Case {
    let mut starts: Vec<_> = ages.iter().map(|age| ms(-age)).collect();
    starts.sort_by_key(|start| std::cmp::Reverse(*start));
    Case::with(|case| {
        case.policy = limits(LimitSettings {
            per_second: Some(max),
            per_minute,
            burst,
            ..LimitSettings::EXACT
        });
        case.usage.starts = starts;
    })
}

proptest! {
    /// As long as it takes when it is tried. Two rules together may take longer than
    /// each of them: by no more than a turn of the shorter one for each of the longer.
    #[test]
    fn a_backlog_drains_when_it_is_said_to(
        max in 1_u32..6,
        per_minute in proptest::option::of(1_u32..40),
        burst in proptest::option::of(1_u32..4),
        ages in proptest::collection::vec(0_i64..70_000, 0..40),
        backlog in 1_u32..150,
    ) {
        let case = used((max, per_minute, burst), &ages);
        let said = NOW + case.drains(backlog).expect("only limits bind");
        let tried = drained(&case, backlog, &[]);
        let turns = per_minute.map_or(1, |max| backlog / max + 2);
        prop_assert!(said <= tried + Duration::from_millis(1), "{said:?} of {tried:?}");
        prop_assert!(tried <= said + Duration::from_secs(turns.into()), "{said:?} of {tried:?}");
    }

    /// Where requests take their time, `max_in_flight` is a rule as others are. Rules
    /// together, and requests that take longer than others, cost more than each by
    /// itself: it takes twice as long as is said at most, and a turn of the limit and
    /// of the requests longer. It never takes less than is said, but for such a turn.
    #[test]
    fn requests_that_take_their_time_drain_when_it_is_said(
        max in proptest::option::of(1_u32..20),
        max_in_flight in 1_u32..10,
        under_way in 0_u32..10,
        took in proptest::collection::vec(1_u64..8_000, 1..6),
        backlog in 1_u32..150,
    ) {
        let took: Vec<Duration> = took.into_iter().map(Duration::from_millis).collect();
        let mut case = Case::with(|case| {
            case.policy = limits(LimitSettings {
                per_second: max,
                max_in_flight: Some(max_in_flight),
                ..LimitSettings::EXACT
            });
            case.usage.in_flight = under_way.min(max_in_flight);
        });
        case.measured = Measured::of(took.iter().copied(), (0, Duration::ZERO));
        let said = case.drains(backlog).expect("how long they take is known");
        let tried = drained(&case, backlog, &took).since(NOW);
        let turn = Duration::from_secs(1) + took.iter().sum::<Duration>();
        prop_assert!(said <= tried + turn, "{said:?} of {tried:?}");
        prop_assert!(tried <= said * 2 + turn, "{said:?} of {tried:?}");
    }

    /// Admission agrees: before the time that is named it gives no slot, and a
    /// look at that time gives one. Nothing is outstanding, so that slots are
    /// counted where they are.
    #[test]
    fn the_time_that_is_named_is_when_admission_opens(
        max in 1_u32..6,
        per_minute in proptest::option::of(1_u32..20),
        burst in proptest::option::of(1_u32..4),
        ages in proptest::collection::vec(0_i64..70_000, 0..20),
    ) {
        let case = used((max, per_minute, burst), &ages);
        let found = case.explained();
        let next_at = found.next_at.expect("only limits bind");
        let first = |now| admit(&case.policy, &case.usage, &case.backlog, 1_000, now)
            .slots
            .first()
            .map(|slot| slot.not_before);
        prop_assert_eq!(first(next_at), Some(next_at));
        if found.reason == Reason::Window {
            let look = admit(&case.policy, &case.usage, &case.backlog, 1_000, NOW);
            prop_assert!(look.slots.iter().all(|slot| slot.not_before >= next_at));
            if look.slots.is_empty() {
                let looks_in_time = matches!(look.look, Look::At { at, .. } if at <= next_at);
                prop_assert!(looks_in_time, "{:?}", look.look);
            }
        }
    }
}

#[test]
fn when_a_token_comes_is_up_to_its_server() {
    let case = Case::with(|case| {
        case.usage.deferred_until = Some(ms(7_000));
        case.no_token = Some("the token server answered 401");
    });
    assert_eq!(case.drains(5), Err(Unknown::NoToken));
}

#[test]
fn what_waits_behind_urgent_events_is_told() {
    let told = |urgent| {
        Case::with(|case| case.backlog.urgent = urgent)
            .explained()
            .words
    };
    let ends = |words: &str, end| assert!(words.ends_with(end), "{words}");
    assert!(!told(0).contains("urgent"));
    ends(
        &told(1),
        " One urgent event goes before other first attempts.",
    );
    let many = " 12 urgent events or more go before other first attempts, three of four.";
    ends(&told(12), many);
}
