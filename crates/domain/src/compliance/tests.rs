//! What began before the time that is judged.

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds * 1_000)
}

fn in_force(settings: LimitSettings) -> Vec<InForce> {
    vec![InForce::new(at(0), &settings, DestinationState::Active)]
}

fn per_hour(limit: u32) -> Vec<InForce> {
    in_force(LimitSettings {
        per_hour: Some(limit),
        ..LimitSettings::EXACT
    })
}

fn judged(history: &[InForce], before: &[i64], starts: &[i64]) -> Verdict {
    let mut judge = Judge::new(history);
    let start = |(id, second): (i64, &i64)| (at(*second), AttemptId(id));
    (1..).zip(before).for_each(|one| judge.before(start(one)));
    let first = 1 + before.len() as i64;
    (first..).zip(starts).for_each(|one| judge.push(start(one)));
    judge.finish()
}

#[test]
fn a_window_counts_what_started_before_the_span() {
    let history = per_hour(3);
    // Three at the end of one hour of the calendar, and one at once in the next.
    let verdict = judged(&history, &[3_500, 3_550, 3_590], &[3_700]);
    let limit = &verdict.limits[0];
    assert_eq!((verdict.starts, limit.sliding.starts), (1, 4));
    assert_eq!(limit.aligned.starts, 1, "of an hour that has any");
    assert_eq!(limit.violations.early_starts, 1);
    assert_eq!(
        limit.violations.listed[0].attempts,
        [1, 2, 3, 4].map(AttemptId)
    );
    // Within one hour of the calendar they are of one aligned window.
    let verdict = judged(&history, &[3_610, 3_650], &[3_700]);
    assert_eq!(verdict.limits[0].aligned.starts, 3);
    assert!(verdict.is_kept());
}

#[test]
fn what_was_over_before_the_span_is_not_reported_in_it() {
    let verdict = judged(&per_hour(1), &[10, 20, 30], &[7_300]);
    assert!(verdict.is_kept(), "{verdict:?}");
    assert_eq!(verdict.limits[0].sliding.starts, 1);
    assert_eq!(verdict.limits[0].aligned.starts, 1);
}

#[test]
fn a_bucket_is_as_full_as_it_was() {
    let history = in_force(LimitSettings {
        per_hour: Some(3_600),
        burst: Some(2),
        shape: Some(crate::limit::Shape::TokenBucket),
        ..LimitSettings::EXACT
    });
    let burst = [100, 100, 100];
    // Slack is worth a start or so.
    assert!(!judged(&history, &burst, &[100, 100]).is_kept());
    assert!(judged(&history, &[], &[100, 100]).is_kept());
    assert!(judged(&history, &[100, 100, 100, 100], &[]).is_kept());
}

#[test]
fn a_perfect_sender_has_what_earlier_starts_left() {
    let history = per_hour(10);
    let span = (at(4_000), at(4_600));
    let dues = |before: &[i64]| {
        let mut dues = Dues::new(Duration::from_secs(600));
        before.iter().for_each(|one| dues.before(at(*one)));
        // They waited when the span began.
        (0..20).for_each(|_| dues.add(at(3_000)));
        dues
    };
    assert_eq!(dues(&[]).ideal_starts(&history, span), 10);
    assert_eq!(dues(&[3_700; 10]).ideal_starts(&history, span), 0);
    // Those of 500 s are out of the window at 4,100 s.
    let some = [500, 500, 3_700, 3_700];
    assert_eq!(dues(&some).ideal_starts(&history, span), 8);
}

#[test]
fn it_reaches_back_as_far_as_what_is_in_force() {
    let span = (at(100_000), at(100_010));
    assert_eq!(reaches_back(&per_hour(5), span), Duration::from_secs(3_600));
    let bucket = LimitSettings {
        per_second: Some(1),
        burst: Some(90),
        shape: Some(crate::limit::Shape::TokenBucket),
        ..LimitSettings::EXACT
    };
    assert_eq!(
        reaches_back(&in_force(bucket), span),
        Duration::from_secs(90)
    );
    let unlimited = LimitSettings {
        unlimited: true,
        ..LimitSettings::EXACT
    };
    let mut history = per_hour(5);
    history.push(InForce::new(
        at(50_000),
        &unlimited,
        DestinationState::Active,
    ));
    assert_eq!(reaches_back(&history, span), Duration::ZERO);
}

/// One that is not known yet stands at its latest, half a second after its claim.
#[test]
fn the_last_half_second_is_not_judged() {
    let half_ago = at(10) - MAX_CLAIM_TO_SEND;
    for (asked, until) in [
        (None, half_ago),
        (Some(at(10)), half_ago),
        (Some(at(11)), half_ago),
        (Some(at(9)), at(9)),
    ] {
        assert_eq!(judged_until(asked, at(10)), until, "{asked:?}");
    }
}
