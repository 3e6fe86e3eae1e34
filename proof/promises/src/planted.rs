//! The promises, judged: each is kept by what is so, and broken, by its own name, by
//! the lie that is planted.

use std::collections::BTreeSet;

use domain::compliance::{AtReceiver, Stall, Stalls, judge, judge_sends};
use domain::destination::DestinationState;
use domain::ids::{DestinationId, Epoch, PermitNumber};
use domain::policy::LimitSettings;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// Two a second from the beginning on.
fn two_a_second() -> [InForce; 1] {
    let settings = LimitSettings {
        per_second: Some(2),
        ..LimitSettings::EXACT
    };
    [InForce::new(at(0), &settings, DestinationState::Active)]
}

fn starts(millis: &[i64]) -> Vec<Start> {
    let numbered = (1..).zip(millis);
    numbered
        .map(|(number, one)| (at(*one), AttemptId(number)))
        .collect()
}

/// The truth is kept, and each lie breaks `promise`.
#[track_caller]
fn tells_lies_from<const LIES: usize>(promise: &str, truth: Promise, lies: [Promise; LIES]) {
    assert_eq!(truth, Ok(()));
    for (number, lie) in lies.into_iter().enumerate() {
        let broken = lie.expect_err(&format!("{promise} believes lie {number}"));
        assert_eq!(broken.promise, promise);
    }
}

#[test]
fn what_is_accepted_comes_to_an_end() {
    let nowhere = Accepted {
        was_taken: false,
        is_dead_letter: false,
        is_cancelled: false,
    };
    let taken = Accepted {
        was_taken: true,
        ..nowhere
    };
    tells_lies_from(
        "nothing_is_lost",
        nothing_is_lost(1, taken),
        [nothing_is_lost(1, nowhere)],
    );
    tells_lies_from(
        "what_is_to_be_sent_has_its_event",
        what_is_to_be_sent_has_its_event(None),
        [what_is_to_be_sent_has_its_event(Some(AttemptId(1)))],
    );
    tells_lies_from(
        "all_is_drained",
        all_is_drained(1, Left::at_the_end(0, None)),
        [all_is_drained(1, Left::at_the_end(1, None))],
    );
    tells_lies_from(
        "what_was_rolled_back_is_nowhere",
        what_was_rolled_back_is_nowhere(1, (0, 0)),
        [
            what_was_rolled_back_is_nowhere(1, (1, 0)),
            what_was_rolled_back_is_nowhere(1, (0, 1)),
        ],
    );
    tells_lies_from(
        "an_event_is_where_it_was_posted",
        an_event_is_where_it_was_posted(1, (7, Some(7))),
        [
            an_event_is_where_it_was_posted(1, (7, Some(8))),
            an_event_is_where_it_was_posted(1, (7, None)),
        ],
    );
}

#[test]
fn nothing_is_there_twice_without_a_reason() {
    tells_lies_from(
        "a_repeated_request_is_one_event",
        a_repeated_request_is_one_event(1, 1),
        [a_repeated_request_is_one_event(1, 2)],
    );
    let known = Delivered {
        attempt: AttemptId(1),
        was_unknown: false,
        response_was_lost: false,
    };
    let unknown = Delivered {
        was_unknown: true,
        ..known
    };
    tells_lies_from(
        "a_duplicate_has_a_reason",
        a_duplicate_has_a_reason(&[unknown], AttemptId(2)),
        [a_duplicate_has_a_reason(&[unknown, known], AttemptId(2))],
    );
    let succeeded = Followed {
        state: AttemptState::Succeeded,
        was_unknown: false,
        is_replayed: false,
    };
    let given_up = Followed {
        was_unknown: true,
        ..succeeded
    };
    tells_lies_from(
        "a_further_attempt_has_a_reason",
        a_further_attempt_has_a_reason(2, (1, given_up)),
        [a_further_attempt_has_a_reason(2, (1, succeeded))],
    );
    tells_lies_from(
        "a_try_is_one_request",
        a_try_is_one_request(1, 1, 1),
        [a_try_is_one_request(1, 2, 1)],
    );
    tells_lies_from(
        "a_dead_letter_is_replayed_once",
        a_dead_letter_is_replayed_once(&[(1, 2)], &[(1, 2)]),
        [
            a_dead_letter_is_replayed_once(&[(1, 2)], &[]),
            a_dead_letter_is_replayed_once(&[], &[(1, 2)]),
            a_dead_letter_is_replayed_once(&[(1, 2), (1, 2)], &[(1, 2), (1, 2)]),
        ],
    );
}

#[test]
fn a_limit_is_kept_and_used() {
    let history = two_a_second();
    let judged = |millis: &[i64]| no_window_is_over(&judge(&history, &starts(millis)));
    tells_lies_from(
        "no_window_is_over",
        judged(&[0, 0, 1_000, 1_000]),
        [judged(&[0, 0, 999])],
    );
    let sent = |millis: &[i64]| no_window_of_sends_is_over(&judge_sends(&history, &starts(millis)));
    tells_lies_from(
        "no_window_of_sends_is_over",
        sent(&[0, 0, 1_000, 1_000]),
        [sent(&[0, 0, 999])],
    );
    let arrived = |stall: (i64, i64), millis: &[i64]| {
        let (from, until) = (at(stall.0), at(stall.1));
        let stalls = Stalls::longer_than(SECOND / 100, [Stall { from, until }]);
        let arrivals: Vec<_> = (millis.iter())
            .map(|one| stalls.arrival(at(*one)))
            .collect();
        let of = AtReceiver {
            history: &history,
            later: Duration::ZERO,
            window_percent: 100,
        };
        no_window_of_arrivals_is_over(&of.judge(&arrivals))
    };
    // Two that came at 0 ms were read at 50 ms, for the receiver stood still.
    let held = [50, 50, 1_000, 1_000];
    tells_lies_from(
        "no_window_of_arrivals_is_over",
        arrived((0, 50), &held).and(arrived((7_000, 7_050), &[0, 0, 1_000, 1_000])),
        [
            arrived((7_000, 7_050), &held),
            arrived((950, 1_000), &held),
            arrived((41, 50), &held),
            arrived((0, 50), &[50, 50, 999, 999]),
            arrived((0, 50), &[50, 50, 50, 1_050]),
            arrived((0, 50), &[50, 50, 52, 54]),
        ],
    );
    let dated = |millis| a_start_is_dated_to_its_send(AttemptId(1), at(millis), Some(at(5)));
    tells_lies_from("a_start_is_dated_to_its_send", dated(5), [dated(4)]);
    let due = vec![at(0); 100];
    let used = |millis: &[i64]| {
        let until = (at(0), at(5_000));
        the_limit_is_used(&history, &due, &starts(millis), until, Duration::ZERO)
    };
    let all: Vec<i64> = (0..10).map(|number| number / 2 * 1_000).collect();
    tells_lies_from("the_limit_is_used", used(&all), [used(&all[..7])]);
    tells_lies_from(
        "nobody_is_delayed",
        nobody_is_delayed(AttemptId(1), DELAYED_AT_MOST),
        [nobody_is_delayed(
            AttemptId(1),
            DELAYED_AT_MOST + Duration::from_micros(1),
        )],
    );
}

#[test]
fn what_is_for_later_does_not_go_out_before() {
    let started =
        |at_millis| nothing_starts_before_it_is_for(AttemptId(1), at(at_millis), Some(at(500)));
    assert_eq!(
        nothing_starts_before_it_is_for(AttemptId(1), at(0), None),
        Ok(())
    );
    tells_lies_from(
        "nothing_starts_before_it_is_for",
        started(500),
        [started(499)],
    );
}

#[test]
fn admission_keeps_its_order() {
    let admitted = first_attempts_are_admitted_in_order;
    tells_lies_from(
        "first_attempts_are_admitted_in_order",
        admitted(AttemptId(1), AttemptId(2)),
        [
            admitted(AttemptId(2), AttemptId(2)),
            admitted(AttemptId(3), AttemptId(2)),
        ],
    );
    tells_lies_from(
        "both_get_their_turn",
        both_get_their_turn((2, 1)),
        [both_get_their_turn((3, 1)), both_get_their_turn((1, 3))],
    );
    tells_lies_from(
        "each_lane_gets_its_share",
        each_lane_gets_its_share((4, 1)),
        [
            each_lane_gets_its_share((4, 0)),
            each_lane_gets_its_share((2, 2)),
        ],
    );
    tells_lies_from(
        "a_lease_is_exclusive",
        a_lease_is_exclusive(1, None),
        [a_lease_is_exclusive(1, Some(SECOND))],
    );
}

#[test]
fn a_start_is_one_and_in_its_time() {
    let permit = Permit {
        destination: DestinationId(uuid::Uuid::nil()),
        attempt: AttemptId(1),
        number: PermitNumber(1),
        epoch: Epoch(1),
        not_before: at(1_000),
        deadline: at(2_000),
    };
    let started = |millis, again| a_permit_starts_once_and_in_time(&permit, at(millis), again);
    tells_lies_from(
        "a_permit_starts_once_and_in_time",
        started(1_000, false),
        [
            started(999, false),
            started(2_001, false),
            started(1_000, true),
        ],
    );
    tells_lies_from(
        "what_is_carried_starts_once",
        what_is_carried_starts_once(AttemptId(1), false),
        [what_is_carried_starts_once(AttemptId(1), true)],
    );
    let sent = Sending {
        since_start: Some(SECOND),
        within: SECOND,
        was_sent: false,
    };
    let sending = |sending| a_start_is_sent_once_and_at_once(AttemptId(1), sending);
    tells_lies_from(
        "a_start_is_sent_once_and_at_once",
        sending(sent),
        [
            sending(Sending {
                since_start: Some(SECOND + SECOND),
                ..sent
            }),
            sending(Sending {
                since_start: None,
                ..sent
            }),
            sending(Sending {
                was_sent: true,
                ..sent
            }),
        ],
    );
    let held = |until| nothing_starts_during_a_hold(AttemptId(1), at(1_000), until);
    tells_lies_from(
        "nothing_starts_during_a_hold",
        held(Some(at(1_000))),
        [held(Some(at(1_001)))],
    );
    tells_lies_from(
        "a_breaker_lets_one_through",
        a_breaker_lets_one_through(1, 1),
        [a_breaker_lets_one_through(1, 2)],
    );
}

#[test]
fn a_request_is_what_it_should_be() {
    tells_lies_from(
        "every_request_is_signed",
        every_request_is_signed(1, true),
        [every_request_is_signed(1, false)],
    );
    let rules = BatchRules {
        max_events: 2,
        max_bytes: 10,
        max_wait: SECOND,
    };
    let batch = |payloads: &[usize]| a_batch_keeps_to_its_size(AttemptId(1), payloads, &rules);
    tells_lies_from(
        "a_batch_keeps_to_its_size",
        batch(&[5, 5]).and(batch(&[11])),
        [batch(&[1, 1, 1]), batch(&[5, 6])],
    );
    use AttemptState::{Failed, Succeeded, Unknown};
    let recorded =
        |answered, row| what_is_recorded_is_what_was_answered(AttemptId(1), answered, row);
    tells_lies_from(
        "what_is_recorded_is_what_was_answered",
        recorded(None, (Succeeded, Some(207)))
            .and(recorded(Some(500), (Failed, Some(500))))
            .and(recorded(Some(200), (Unknown, None))),
        [
            recorded(Some(500), (Succeeded, Some(500))),
            recorded(Some(200), (Failed, Some(200))),
            recorded(None, (Failed, None)),
        ],
    );
    tells_lies_from(
        "what_is_recorded_can_be_stored",
        what_is_recorded_can_be_stored(None),
        [what_is_recorded_can_be_stored(Some("a NUL"))],
    );
}

#[test]
fn a_backlog_has_its_bound_and_whoever_asks_an_answer() {
    let let_in = LetIn {
        pending: 12,
        mark: 10,
        unknown: 2,
    };
    let of_backlog = |one| a_backlog_is_bounded(1, one);
    tells_lies_from(
        "a_backlog_is_bounded",
        of_backlog(let_in),
        [of_backlog(LetIn {
            pending: 13,
            ..let_in
        })],
    );
    let refused = |counted, since| what_is_short_again_is_taken(1, (counted, since), (5, 10));
    tells_lies_from(
        "what_is_short_again_is_taken",
        refused([4, 5, 4], 0).and(refused([4, 4, 4], 6)),
        [refused([4, 4, 4], 5)],
    );
    tells_lies_from(
        "what_is_refused_is_not_stored",
        what_is_refused_is_not_stored(1, false),
        [what_is_refused_is_not_stored(1, true)],
    );
    let two = SECOND + SECOND;
    tells_lies_from(
        "every_client_is_answered",
        every_client_is_answered(1, (SECOND, SECOND)),
        [every_client_is_answered(1, (two, SECOND))],
    );
}

#[test]
fn news_are_told_and_alerts_end() {
    tells_lies_from(
        "news_are_told_once",
        news_are_told_once(1, (1, 1), false).and(news_are_told_once(1, (0, 1), true)),
        [
            news_are_told_once(1, (0, 1), false),
            news_are_told_once(1, (2, 1), true),
        ],
    );
    let alert = |raised: &[bool]| an_alert_is_raised_and_ended_in_turn(1, raised);
    tells_lies_from(
        "an_alert_is_raised_and_ended_in_turn",
        alert(&[true, false, true]),
        [alert(&[false]), alert(&[true, true])],
    );
    tells_lies_from(
        "every_alert_ends",
        every_alert_ends(Unsettled::at_the_end(0, 0)),
        [
            every_alert_ends(Unsettled::at_the_end(1, 0)),
            every_alert_ends(Unsettled::at_the_end(0, 1)),
        ],
    );
}

/// The table at the top and the lies above have each promise that there is.
#[test]
fn every_promise_is_in_the_table_and_has_a_lie() {
    let sources = [
        include_str!("lib.rs"),
        include_str!("ingest.rs"),
        include_str!("news.rs"),
    ];
    let named = |line: &str| -> Option<String> {
        let name = line.strip_prefix("    keep(\"").or_else(|| {
            let line = line.strip_prefix("        \"")?;
            line.ends_with("\",").then_some(line)
        })?;
        Some(name.split('"').next()?.to_owned())
    };
    let lines = sources.iter().flat_map(|source| source.lines());
    let promises: BTreeSet<String> = lines.filter_map(named).collect();
    let table = include_str!("lib.rs").lines().filter_map(|line| {
        let name = line.strip_prefix("//! | [`")?.split('`').next()?;
        Some(name.to_owned())
    });
    assert_eq!(table.collect::<BTreeSet<_>>(), promises);
    let lies = include_str!("planted.rs");
    let without = |name: &&String| !lies.contains(&format!("\"{name}\","));
    assert_eq!(promises.iter().find(without), None);
}
