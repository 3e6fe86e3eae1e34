use std::time::Duration;

use super::*;
use crate::attempt::outcome::tests::outcome;
use crate::health::{FREE_HOLDS, Hold, HoldReason};

const START: Timestamp = Timestamp::from_millis(10_000);
const NOW: Timestamp = Timestamp::from_millis(10_100);

const THIRD: Started = Started {
    state: AttemptState::Started,
    claimed_at: START,
    latest: Timestamp::from_millis(10_500),
    try_number: 3,
    batch_limit: Some(7),
    dead_letter: false,
};

fn next(next: NextTry) -> FollowUp {
    follow_up(&Outcome { next, ..outcome() }, &THIRD, NOW, None)
}

fn retry(try_number: u32, due_ms: i64, batch_limit: u32) -> Option<Retry> {
    Some(Retry {
        try_number,
        due_at: Timestamp::from_millis(due_ms),
        batch_limit: Some(batch_limit),
        in_its_place: false,
        in_its_lane: false,
    })
}

/// Of what was never sent nothing has become: whoever counts what became of it, such as
/// a replay, waits for what follows.
#[test]
fn what_follows_something_that_was_not_sent_stands_in_its_place() {
    let follows = |kind| {
        let outcome = Outcome {
            kind,
            next: NextTry::Again,
            ..outcome()
        };
        follow_up(&outcome, &THIRD, NOW, None).retry
    };
    let not_sent = follows(OutcomeKind::NotSent).map(|retry| retry.in_its_place);
    let failed = follows(OutcomeKind::Failed).map(|retry| retry.in_its_place);
    assert_eq!((not_sent, failed), (Some(true), Some(false)));
}

#[test]
fn a_retry_is_due_after_the_end_and_not_after_the_record() {
    let second = Duration::from_secs(1);
    assert_eq!(next(NextTry::RetryAfter(second)).retry, retry(4, 11_050, 7));
    let halved = NextTry::RetryHalved {
        limit: 3,
        delay: second,
    };
    assert_eq!(next(halved).retry, retry(4, 11_050, 3));
    let split = NextTry::Split {
        limit: 1,
        delay: second,
    };
    assert_eq!(next(split).retry, retry(3, 11_050, 1), "the same try");
    assert_eq!(next(NextTry::Again).retry, retry(3, 10_100, 7), "at once");
}

#[test]
fn a_start_is_the_send_and_no_later_than_it_was_counted() {
    let sent = |millis| {
        let outcome = Outcome {
            sent_after: Duration::from_millis(millis),
            ..outcome()
        };
        let next = follow_up(&outcome, &THIRD, NOW, None);
        (next.started_at, next.finished_at)
    };
    let at = Timestamp::from_millis;
    assert_eq!(sent(0), (START, at(10_050)));
    assert_eq!(sent(300), (at(10_300), at(10_350)));
    assert_eq!(sent(900), (at(10_500), at(10_550)));
}

#[test]
fn a_dead_letter_and_a_success_are_followed_by_nothing() {
    let dead = next(NextTry::DeadLetter);
    assert_eq!((dead.dead_letter, dead.retry), (true, None));
    let over = next(NextTry::None);
    assert_eq!((over.dead_letter, over.retry), (false, None));
    assert!(!over.calls_off_retry, "nobody has added one");
    assert_eq!(over.finished_at, Timestamp::from_millis(10_050));
}

#[test]
fn what_was_given_up_gets_no_second_retry() {
    let unknown = Started {
        state: AttemptState::Unknown,
        ..THIRD
    };
    let failed = follow_up(&outcome(), &unknown, NOW, None);
    assert_eq!((failed.retry, failed.calls_off_retry), (None, false));
    let last = Started {
        dead_letter: true,
        ..unknown
    };
    assert!(follow_up(&outcome(), &last, NOW, None).dead_letter);
    let succeeded = Outcome {
        kind: OutcomeKind::Succeeded,
        next: NextTry::None,
        ..outcome()
    };
    let late = follow_up(&succeeded, &last, NOW, None);
    assert_eq!((late.dead_letter, late.calls_off_retry), (false, true));
}

#[test]
fn a_refusal_waits_for_the_hold_and_keeps_its_try() {
    let until = Timestamp::from_millis(15_000);
    let health = Health {
        refusals: FREE_HOLDS,
        hold: Some(Hold {
            since: NOW,
            until,
            reason: HoldReason::Refused,
        }),
        ..Health::default()
    };
    let refused = Outcome {
        status: Some(429),
        ..outcome()
    };
    let after = |outcome: &Outcome, health| follow_up(outcome, &THIRD, NOW, health).retry;
    assert_eq!(after(&refused, Some(&health)), retry(3, 15_000, 7));
    let apart = Outcome {
        speaks: Speaks::Apart,
        ..refused.clone()
    };
    assert_eq!(after(&apart, Some(&health)), retry(4, 11_050, 7));
    assert_eq!(after(&outcome(), Some(&health)), retry(4, 11_050, 7));
    assert_eq!(after(&refused, None), retry(4, 11_050, 7));
    // A hold that is over by now: not before now.
    let later = Timestamp::from_millis(20_000);
    let kept = follow_up(&refused, &THIRD, later, Some(&health)).retry;
    assert_eq!(kept, retry(3, 20_000, 7));
    let refused_often = Health {
        refusals: FREE_HOLDS + 1,
        ..health
    };
    assert_eq!(after(&refused, Some(&refused_often)), retry(4, 11_050, 7));
}

const UNKNOWN: GivenUp = GivenUp {
    try_number: 7,
    tries_before: 5,
    max_tries: 3,
    is_batch: false,
    batch_limit: Some(7),
    destination_is_gone: false,
};

#[test]
fn an_unknown_start_costs_its_try() {
    let again = after_unknown(&UNKNOWN, NOW);
    assert_eq!(
        (again.dead_letter, again.retry),
        (false, retry(8, 10_100, 7))
    );
    let last = GivenUp {
        max_tries: 2,
        ..UNKNOWN
    };
    let over = after_unknown(&last, NOW);
    assert_eq!((over.dead_letter, over.retry), (true, None));
}

#[test]
fn an_unknown_batch_gets_one_more_try_each_alone() {
    let last = GivenUp {
        max_tries: 2,
        is_batch: true,
        ..UNKNOWN
    };
    let alone = after_unknown(&last, NOW);
    assert_eq!(
        (alone.dead_letter, alone.retry),
        (false, retry(7, 10_100, 1))
    );
}

#[test]
fn nothing_follows_where_the_destination_is_gone() {
    let gone = GivenUp {
        destination_is_gone: true,
        ..UNKNOWN
    };
    let after = after_unknown(&gone, NOW);
    assert_eq!((after.dead_letter, after.retry), (false, None));
}
