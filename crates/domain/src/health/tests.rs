use super::*;

const SETTINGS: BreakerSettings = BreakerSettings {
    failures: 20,
    failing_for: DEFAULT_FAILING_FOR,
    disable_after: DEFAULT_DISABLE_AFTER,
};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds * 1_000)
}

/// An answer to what started and ended at `seconds`.
fn one(answer: Answer, seconds: i64) -> Observation {
    Observation {
        claimed_at: at(seconds),
        finished_at: at(seconds),
        answer,
        signal: Signal::default(),
    }
}

fn asks(answer: Answer, seconds: i64, wait: u64) -> Observation {
    let signal = Signal {
        wait: Some(Duration::from_secs(wait)),
        ..Signal::default()
    };
    Observation {
        signal,
        ..one(answer, seconds)
    }
}

fn seen(health: Health, observation: Observation) -> Verdict {
    health.observe(&SETTINGS, &[observation], observation.finished_at)
}

/// Failures one after the other, a second apart; the last ends at `seconds`.
fn in_a_row(count: i64, seconds: i64) -> Vec<Observation> {
    (seconds - count + 1..=seconds)
        .map(|second| one(Answer::Failed, second))
        .collect()
}

/// A failure between these milliseconds.
fn failed_between(started: i64, finished: i64) -> Observation {
    Observation {
        claimed_at: Timestamp::from_millis(started),
        finished_at: Timestamp::from_millis(finished),
        ..one(Answer::Failed, 0)
    }
}

/// After 20 failures in a row up to 100 s.
fn open() -> Health {
    let verdict = Health::default().observe(&SETTINGS, &in_a_row(20, 100), at(100));
    assert!(verdict.opened && verdict.held && verdict.disable.is_none());
    verdict.health
}

#[test]
fn a_success_of_one_that_is_well_leaves_nothing() {
    let verdict = seen(Health::default(), one(Answer::Succeeded, 100));
    assert!(verdict.health.is_well(at(100)) && !verdict.held);
}

#[test]
fn failures_in_a_row_open_the_breaker_and_one_success_begins_anew() {
    let mut health = Health::default();
    for failure in in_a_row(19, 99) {
        health = seen(health, failure).health;
    }
    assert_eq!(
        (health.failures, health.breaker(at(100))),
        (19, Breaker::Closed)
    );
    assert_eq!(health.failing_since, Some(at(81)));
    assert!(seen(health, one(Answer::Failed, 100)).opened);
    let well = seen(health, one(Answer::Succeeded, 100)).health;
    assert_eq!(well, Health::default(), "the time begins anew as well");
    let quick: Vec<_> = (0..20)
        .map(|n| failed_between(100_000 + n * 100, 100_050 + n * 100))
        .collect();
    assert!(!well.observe(&SETTINGS, &quick, at(102)).opened);
}

/// Whether they are told of together or one by one, and in whatever order.
#[test]
fn a_thousand_failures_that_started_together_count_as_one() {
    let crowd: Vec<_> = (0..1_000)
        .map(|n| failed_between(100_000 + n % 7, 101_000 + n * 13 % 10_000))
        .collect();
    let together = Health::default().observe(&SETTINGS, &crowd, at(111));
    let mut one_by_one = Health::default();
    for failure in crowd {
        let verdict = seen(one_by_one, failure);
        assert!(!verdict.opened && !verdict.held);
        one_by_one = verdict.health;
    }
    for health in [together.health, one_by_one] {
        assert_eq!(health.failures, 1);
        assert_eq!(health.breaker(at(111)), Breaker::Closed);
        // It is one accident to admission too.
        assert!(!is_failing(health.failures, false));
        let again = seen(health, failed_between(112_000, 112_001)).health;
        assert!(is_failing(again.failures, false));
    }
}

#[test]
fn quick_failures_open_it_when_they_have_gone_on_for_long_enough() {
    let every_100_ms = |n: i64| failed_between(100_000 + n * 100, 100_050 + n * 100);
    let quick: Vec<_> = (0..20).map(every_100_ms).collect();
    let within_2_s = Health::default().observe(&SETTINGS, &quick, at(102));
    assert_eq!((within_2_s.opened, within_2_s.health.failures), (false, 20));
    let until: Vec<_> = (20..50).map(every_100_ms).collect();
    let before = within_2_s.health.observe(&SETTINGS, &until, at(105));
    assert_eq!((before.opened, before.health.failures), (false, 50));
    let verdict = before
        .health
        .observe(&SETTINGS, &[every_100_ms(50)], at(106));
    assert!(verdict.opened, "five seconds since the first one ended");

    let slower: Vec<_> = (0..20)
        .map(|n| failed_between(100_000 + n * 264, 100_050 + n * 264))
        .collect();
    assert!(
        Health::default()
            .observe(&SETTINGS, &slower, at(106))
            .opened
    );
    // Few do not, however long they go on.
    let few = Health::default().observe(&SETTINGS, &in_a_row(19, 100), at(100));
    assert!(!few.opened);
    let at_once = BreakerSettings {
        failing_for: Duration::ZERO,
        ..SETTINGS
    };
    assert!(Health::default().observe(&at_once, &quick, at(102)).opened);
}

#[test]
fn a_late_failure_of_an_old_start_does_not_count() {
    let health = Health::default()
        .observe(&SETTINGS, &in_a_row(19, 100), at(100))
        .health;
    // One hung since before the last counted one ended, one from the beginning.
    for started in [99_999, 70_000] {
        let late = seen(health, failed_between(started, 130_000));
        assert_eq!((late.opened, late.health), (false, health));
    }
    let verdict = seen(health, failed_between(100_000, 130_000));
    assert!(verdict.opened, "it started when the last one had ended");
}

#[test]
fn a_429_neither_opens_nor_closes() {
    let refused = vec![one(Answer::Refused, 100); 50];
    let health = Health::default()
        .observe(&SETTINGS, &refused, at(100))
        .health;
    assert_eq!((health.failures, health.opened_at), (0, None));
    let open = open();
    let probe = seen(open, one(Answer::Refused, 131));
    assert!(!probe.closed && probe.health.opened_at.is_some());
    assert_eq!(probe.health.probes, 0);
}

#[test]
fn it_never_opens_if_told_so() {
    let never = BreakerSettings {
        failures: 0,
        ..SETTINGS
    };
    let verdict = Health::default().observe(&never, &in_a_row(500, 600), at(600));
    assert_eq!((verdict.opened, verdict.health.opened_at), (false, None));
}

#[test]
fn probes_come_at_growing_intervals() {
    let mut health = open();
    let mut now = at(100);
    let mut waits = Vec::new();
    for _ in 0..10 {
        let until = health.held_until().unwrap();
        assert_eq!(health.breaker(now), Breaker::Open);
        assert_eq!(health.breaker(until), Breaker::HalfOpen);
        waits.push(until.since(now).as_secs());
        now = until;
        let probe = Observation {
            claimed_at: now,
            finished_at: now,
            ..one(Answer::Failed, 0)
        };
        health = health.observe(&SETTINGS, &[probe], now).health;
    }
    assert_eq!(
        waits,
        [30, 60, 120, 240, 480, 960, 1_920, 3_600, 3_600, 3_600]
    );
}

#[test]
fn a_probe_that_succeeds_closes_and_forgets() {
    let verdict = seen(open(), one(Answer::Succeeded, 131));
    assert!(verdict.closed && !verdict.held);
    assert_eq!(verdict.health, Health::default());
}

#[test]
fn what_was_on_its_way_when_it_opened_decides_nothing() {
    let open = open();
    for answer in [Answer::Failed, Answer::Succeeded] {
        let late = Observation {
            claimed_at: at(90),
            finished_at: at(110),
            ..one(answer, 0)
        };
        assert_eq!(open.observe(&SETTINGS, &[late], at(110)).health, open);
    }
}

#[test]
fn open_for_too_long_it_is_disabled() {
    let days = |days: i64| at(100 + days * 86_400);
    let probe = |now| Observation {
        claimed_at: now,
        finished_at: now,
        ..one(Answer::Failed, 0)
    };
    let before = open().observe(&SETTINGS, &[probe(days(4))], days(4));
    assert_eq!(before.disable, None);
    let after = before.health.observe(&SETTINGS, &[probe(days(5))], days(5));
    assert_eq!(after.disable, Some(DisableReason::Failing));
    assert_eq!(after.health.disabled, after.disable);
    // And that is the last word.
    let later = after.health.observe(&SETTINGS, &[probe(days(6))], days(6));
    assert_eq!((later.disable, later.held), (None, false));
}

/// Once for each mark that is passed, and for the last where several are at once.
#[test]
fn who_fails_on_is_warned_on_the_way() {
    let hours = |hours: i64| at(100 + hours * 3_600);
    let warned = |every: i64| {
        let (mut health, mut warned) = (open(), Vec::new());
        for hour in (1..=120_i64).filter(|hour| hour % every == 0) {
            let probe = Observation {
                claimed_at: hours(hour),
                finished_at: hours(hour),
                ..one(Answer::Failed, 0)
            };
            let verdict = health.observe(&SETTINGS, &[probe], hours(hour));
            health = verdict.health;
            if let Some(disabled_soon) = verdict.disabled_soon.filter(|_| verdict.disable.is_none())
            {
                assert_eq!(disabled_soon.disabled_at, hours(120));
                warned.push((hour, disabled_soon.percent));
            }
        }
        warned
    };
    assert_eq!(warned(1), [(60, 50), (84, 70), (108, 90)]);
    assert_eq!(warned(30), [(60, 50), (90, 70)]);
    assert_eq!(warned(110), [(110, 90)]);
}

#[test]
fn at_once_means_when_it_opens() {
    let at_once = BreakerSettings {
        failures: 2,
        failing_for: Duration::from_secs(1),
        disable_after: Duration::ZERO,
    };
    let verdict = Health::default().observe(&at_once, &in_a_row(2, 100), at(100));
    assert_eq!(verdict.disable, Some(DisableReason::Failing));
}

#[test]
fn gone_disables_at_once() {
    let verdict = seen(Health::default(), one(Answer::Gone, 100));
    assert_eq!(verdict.disable, Some(DisableReason::Gone));
}

#[test]
fn whoever_says_so_is_disabled_at_once_whatever_was_answered() {
    for answer in [Answer::Succeeded, Answer::Refused, Answer::Failed] {
        let mut observation = one(answer, 100);
        observation.signal.disable = true;
        let verdict = seen(Health::default(), observation);
        assert_eq!(verdict.disable, Some(DisableReason::Gone), "{answer:?}");
        assert_eq!(verdict.health.disabled, Some(DisableReason::Gone));
    }
}

#[test]
fn a_hold_lasts_as_long_as_was_asked_and_up_to_a_tenth_more() {
    let mut observation = asks(Answer::Refused, 100, 60);
    let hold = seen(Health::default(), observation).health.hold.unwrap();
    assert_eq!((hold.until, hold.reason), (at(160), HoldReason::Asked));
    observation.signal.dice = u16::MAX;
    let verdict = seen(Health::default(), observation);
    assert_eq!(verdict.health.held_until(), Some(at(166)));
    // In a success too.
    let verdict = seen(Health::default(), asks(Answer::Succeeded, 100, 5));
    assert_eq!(verdict.health.held_until(), Some(at(105)));
    assert!(verdict.held && verdict.health.failures == 0);
}

#[test]
fn a_hold_gets_longer_and_never_shorter() {
    let held = seen(Health::default(), asks(Answer::Refused, 100, 60)).health;
    let shorter = seen(held, asks(Answer::Refused, 101, 5));
    assert_eq!(
        (shorter.health.held_until(), shorter.held),
        (Some(at(160)), false)
    );
    let longer = seen(held, asks(Answer::Refused, 101, 90));
    assert_eq!(
        (longer.health.held_until(), longer.held),
        (Some(at(191)), true)
    );
    assert_eq!(longer.health.hold.unwrap().since, at(100));
}

#[test]
fn a_burst_of_429s_is_one_refusal_and_the_next_hold_is_longer() {
    let burst = vec![one(Answer::Refused, 100); 50];
    let first = Health::default().observe(&SETTINGS, &burst, at(101)).health;
    assert_eq!(first.refusals, 1);
    let until = first.held_until().unwrap();
    assert_eq!(until.since(at(101)), FIRST_HOLD / 2);
    let again = Observation {
        claimed_at: until,
        finished_at: until,
        ..one(Answer::Refused, 0)
    };
    let second = first.observe(&SETTINGS, &[again], until).health;
    assert_eq!(second.refusals, 2);
    assert_eq!(second.held_until(), Some(until + FIRST_HOLD));
    // A success that started since begins anew.
    let after = Observation {
        answer: Answer::Succeeded,
        claimed_at: until,
        ..again
    };
    assert_eq!(
        second.observe(&SETTINGS, &[after], until).health.refusals,
        0
    );
}

/// Claims go on until the hold is committed, and it begins when it was decided.
#[test]
fn what_starts_while_a_hold_is_written_is_of_its_burst() {
    let first = seen(Health::default(), one(Answer::Refused, 100)).health;
    let after = |millis| at(100) + Duration::from_millis(millis);
    let late = |millis| Observation {
        claimed_at: after(millis),
        finished_at: after(millis),
        ..one(Answer::Refused, 0)
    };
    let burst: Vec<_> = (1..50).map(late).collect();
    let held = first.observe(&SETTINGS, &burst, after(60)).health;
    assert_eq!((held.refusals, held.hold), (first.refusals, first.hold));
    // The same of failures while a breaker opens: they are no probes.
    let failed = Observation {
        answer: Answer::Failed,
        ..late(10)
    };
    let opened = open();
    assert_eq!(seen(opened, failed).health, opened);
}

#[test]
fn refusals_cost_a_try_when_nothing_else_comes_for_long() {
    let mut health = Health::default();
    let (mut now, mut free) = (at(100), 0);
    while health.spares_tries() {
        let refused = Observation {
            claimed_at: now,
            finished_at: now,
            ..one(Answer::Refused, 0)
        };
        health = health.observe(&SETTINGS, &[refused], now).health;
        now = health.held_until().unwrap();
        free += 1;
    }
    assert_eq!(free, FREE_HOLDS + 1);
    assert!(now.since(at(100)) > Duration::from_secs(2_048));
}

#[test]
fn one_that_is_well_after_a_hold_is_forgotten() {
    let held = seen(Health::default(), asks(Answer::Succeeded, 100, 5)).health;
    assert!(!held.is_well(at(104)) && held.is_well(at(105)));
}
