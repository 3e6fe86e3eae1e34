//! Nothing is sent but what the store has started, and that at once.

use std::time::Duration;

use domain::attempt::OutcomeKind;
use domain::ids::AttemptId;
use domain::permit::Permit;
use engine::ports::{ClaimAnswer, MAX_HEAD_START, NextTry, Settlement, Start};

use crate::support::{
    Counted, Event, World, in_slot, ms, pass, permit, settle, started, store_away,
};

fn claimed_at(world: &World) -> Vec<u128> {
    let times = world.journal.times(|e| matches!(e, Event::Claim(..)));
    times.iter().map(Duration::as_millis).collect()
}

/// The sends that were reported, and how long after their claims.
fn reported(world: &World) -> Vec<(AttemptId, Duration)> {
    let reports = world.journal.pick(|event| match event {
        Event::ReportSends(_, sends) => Some(sends),
        _ => None,
    });
    let reports = reports.into_iter().flatten();
    reports.map(|one| (one.attempt, one.sent_after)).collect()
}

#[tokio::test(start_paused = true)]
async fn many_claims_travel_together() {
    let world = World::new();
    let _worker = world.worker().await;
    let permits: Vec<_> = (0..16).map(permit).collect();
    world.queue.delivers(&permits);
    settle().await;
    assert!(world.journal.claims().len() <= 2);
    assert_eq!(world.journal.sent().len(), 16);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_came_early_is_asked_for_again_after_the_wait() {
    let world = World::new();
    let _worker = world.worker().await;
    let mut answers = vec![started(1), ClaimAnswer::Early(ms(40))];
    world.store.claim.answers(move |_| answers.pop().map(Ok));
    world.queue.delivers(&[permit(7)]);
    pass(ms(100)).await;
    assert_eq!(claimed_at(&world), [0, 40]);
    assert_eq!(world.journal.sent(), [AttemptId(7)]);
}

#[tokio::test(start_paused = true)]
async fn a_slot_beyond_the_deadline_is_given_back() {
    let world = World::new();
    let _worker = world.worker().await;
    let hours = Duration::from_secs(7_200);
    world
        .store
        .claim
        .answers(move |_| Some(Ok(ClaimAnswer::Early(hours))));
    let tag = world.queue.delivers(&[permit(7)]);
    settle().await;
    assert_eq!(world.journal.released(), [permit(7)]);
    assert_eq!(world.journal.settled(), [(tag, Settlement::Done)]);
}

/// A message is not held for an hour because the store's clock stepped back.
#[tokio::test(start_paused = true)]
async fn a_slot_farther_away_than_anybody_plans_is_given_back() {
    let world = World::new();
    let _worker = world.worker().await;
    let far = in_slot(permit(7), Duration::from_secs(3_600));
    let tag = world.queue.delivers(&[far]);
    settle().await;
    assert_eq!(world.journal.released(), [far]);
    assert_eq!(world.journal.settled(), [(tag, Settlement::Done)]);
}

#[tokio::test(start_paused = true)]
async fn a_locked_row_is_asked_for_again_until_the_deadline() {
    let world = World::new();
    let _worker = world.worker().await;
    let skipped = |_| Some(Ok(ClaimAnswer::Skipped));
    world.store.claim.answers(skipped);
    let tag = world.queue.delivers(&[permit(7)]);
    pass(ms(1_900)).await;
    let claims = claimed_at(&world);
    assert_eq!(claims[..5], [0, 2, 6, 14, 30]);
    assert!(claims.windows(2).all(|pair| pair[1] - pair[0] <= 101));
    assert_eq!(world.journal.settled(), [], "it may still start");
    pass(ms(500)).await;
    assert_eq!(world.journal.settled(), [(tag, Settlement::Done)]);
    assert!(*claimed_at(&world).last().unwrap() <= 2_100);
    assert_eq!(world.journal.sent(), []);
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_is_not_sent() {
    let world = World::new();
    let _worker = world.worker().await;
    world.store.claim.answers(|permit| {
        let odd = permit.number.0 % 2 == 1;
        odd.then_some(Ok(ClaimAnswer::Refused))
    });
    let permits: Vec<_> = (0..4).map(permit).collect();
    let tag = world.queue.delivers(&permits);
    settle().await;
    assert_eq!(world.journal.sent(), [AttemptId(0), AttemptId(2)]);
    assert_eq!(world.journal.settled(), [(tag, Settlement::Done)]);
}

/// The claim may have been committed all the same.
#[tokio::test(start_paused = true)]
async fn after_an_error_of_the_claim_nothing_is_sent_or_given_back() {
    let world = World::new();
    let _worker = world.worker().await;
    world.store.claim.answers(|_| Some(Err(store_away())));
    let tag = world.queue.delivers(&[permit(7)]);
    pass(Duration::from_secs(3)).await;
    assert_eq!(world.journal.claims().len(), 1);
    assert_eq!(world.journal.sent(), []);
    assert_eq!(world.journal.recorded(), []);
    assert_eq!(world.journal.released(), []);
    assert_eq!(world.journal.settled(), [(tag, Settlement::Done)]);
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_comes_twice_is_sent_once() {
    let world = World::new();
    let _worker = world.worker().await;
    let first = world.queue.delivers(&[permit(7), permit(8)]);
    let second = world.queue.delivers(&[permit(8), permit(7)]);
    settle().await;
    let mut sent = world.journal.sent();
    sent.sort_unstable();
    assert_eq!(sent, [AttemptId(7), AttemptId(8)]);
    let mut settled = world.journal.settled();
    settled.sort_unstable_by_key(|(tag, _)| *tag);
    let done = [(first, Settlement::Done), (second, Settlement::Done)];
    assert_eq!(settled, done);
}

#[tokio::test(start_paused = true)]
async fn a_start_that_was_claimed_too_slowly_is_not_sent() {
    let world = World::new();
    let _worker = world.worker().await;
    world.store.claim.takes(ms(501));
    world.queue.delivers(&[permit(7)]);
    pass(ms(600)).await;
    assert_eq!(world.journal.sent(), []);
    let outcome = world.journal.only_outcome();
    assert_eq!(outcome.kind, OutcomeKind::NotSent);
    assert_eq!(outcome.next, NextTry::Again);
}

#[tokio::test(start_paused = true)]
async fn a_start_is_counted_from_asking_for_its_claim_to_its_first_byte() {
    let world = World::new();
    let _worker = world.worker().await;
    world.store.claim.takes(ms(30));
    world.sender.send.takes(ms(50));
    world.queue.delivers(&[permit(7)]);
    pass(ms(100)).await;
    let outcome = world.journal.only_outcome();
    assert_eq!((outcome.sent_after, outcome.elapsed), (ms(30), ms(50)));
    assert_eq!(reported(&world), [], "its answer came first");
}

#[tokio::test(start_paused = true)]
async fn a_send_whose_answer_is_slow_is_reported_before_it() {
    let world = World::new();
    let _worker = world.worker().await;
    world.store.claim.takes(ms(30));
    world.sender.send.takes(ms(2_000));
    world.queue.delivers(&[permit(7), permit(8)]);
    pass(ms(200)).await;
    // One statement for both, which takes twice as long.
    let sends = [7, 8].map(|attempt| (AttemptId(attempt), ms(60)));
    assert_eq!(reported(&world), sends);
    assert_eq!(world.journal.recorded(), []);
    pass(ms(2_000)).await;
    let recorded = world.journal.recorded();
    let outcomes = recorded.iter().flat_map(|(_, outcomes)| outcomes);
    let sent: Vec<_> = outcomes.map(|one| (one.attempt, one.sent_after)).collect();
    assert_eq!(sent, sends);
    assert_eq!(reported(&world).len(), 2, "once");
}

/// Its row would be locked just when its outcome wants it.
#[tokio::test(start_paused = true)]
async fn what_is_answered_while_its_report_waits_is_not_reported() {
    let world = World::new();
    let _worker = world.worker().await;
    world.store.report.takes(ms(50));
    world.sender.send.takes(ms(120));
    world.queue.delivers(&[permit(7)]);
    pass(ms(10)).await;
    // Its report waits for the first one's statement, from 110 to 150 ms.
    world.queue.delivers(&[permit(8)]);
    pass(ms(1)).await;
    world.sender.send.takes(ms(2_000));
    world.queue.delivers(&[permit(9)]);
    pass(ms(300)).await;
    let reported: Vec<_> = reported(&world).iter().map(|(one, _)| one.0).collect();
    assert_eq!(reported, [7, 9]);
}

/// What is held up after the last look at the clock cannot be taken back; it can be
/// told.
#[tokio::test(start_paused = true)]
async fn a_send_that_was_held_up_is_counted_by_what_the_ledger_says_of_it() {
    let (counted, world) = (Counted::default(), World::new());
    let _counting = counted.begin();
    let _worker = world.worker().await;
    // Claims are quick, so the bound is 100 ms from the second on.
    for (attempt, held_up) in [(7, 1), (8, 100), (9, 101), (10, 500), (11, 501)] {
        world.sender.holds_up(ms(held_up));
        world.queue.delivers(&[permit(attempt)]);
        pass(ms(held_up)).await;
    }
    let late = counted.of("paceline_sends_late_total");
    let late: Vec<_> = late.iter().map(|(of, count)| (&**of, *count)).collect();
    assert_eq!(late, [("dated_early", 1), ("recorded", 2)]);
    let recorded = world.journal.recorded();
    let outcomes = recorded.iter().flat_map(|(_, outcomes)| outcomes);
    let sent: Vec<_> = outcomes.map(|one| one.sent_after).collect();
    assert_eq!(sent, [1, 100, 101, 500, 501].map(ms));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_later_than_the_deadline_by_the_time_of_its_claim() {
    let world = World::new();
    let _worker = world.worker().await;
    world.store.claim.takes(ms(60));
    // The claim finds 50 ms left, and its answer takes 60.
    let short = Permit {
        deadline: permit(7).not_before + ms(50),
        ..permit(7)
    };
    world.queue.delivers(&[short]);
    pass(ms(200)).await;
    assert_eq!(world.journal.sent(), []);
    assert_eq!(world.journal.only_outcome().kind, OutcomeKind::NotSent);
}

#[tokio::test(start_paused = true)]
async fn the_bound_of_promptness_follows_quick_claims_down() {
    let world = World::new();
    let _worker = world.worker().await;
    world.queue.delivers(&[permit(7)]);
    settle().await;
    world.store.claim.takes(ms(101));
    world.queue.delivers(&[permit(8)]);
    pass(ms(200)).await;
    assert_eq!(world.journal.sent(), [AttemptId(7)]);
    // Not for ever: two hundred are usual now.
    world.queue.delivers(&[permit(9)]);
    pass(ms(200)).await;
    assert_eq!(world.journal.sent(), [AttemptId(7), AttemptId(9)]);
}

#[tokio::test(start_paused = true)]
async fn with_a_head_start_it_is_claimed_before_its_slot_and_sent_at_it() {
    let world = World::new();
    world.store.has_head_start(ms(10));
    let _worker = world.worker().await;
    world.queue.delivers(&[in_slot(permit(7), ms(800))]);
    pass(ms(790)).await;
    assert_eq!(claimed_at(&world), []);
    pass(ms(9)).await;
    assert_eq!(claimed_at(&world), [792]);
    assert_eq!(world.journal.sent(), [], "its start is still to come");
    pass(ms(2)).await;
    assert_eq!(world.journal.sent(), [AttemptId(7)]);
    let sent_at = world.journal.times(|e| matches!(e, Event::Send(_)));
    assert_eq!(sent_at[0].as_millis(), 800);
}

/// The clock is read before the claim waits for its disk, and other answers have said what it
/// shows.
#[tokio::test(start_paused = true)]
async fn a_claim_that_is_slow_to_answer_is_sent_at_its_slot_all_the_same() {
    let world = World::new();
    world.store.has_head_start(MAX_HEAD_START);
    let _worker = world.worker().await;
    world.store.claim.takes(ms(15));
    world.queue.delivers(&[in_slot(permit(7), ms(800))]);
    pass(ms(1_000)).await;
    let sent_at = world.journal.times(|e| matches!(e, Event::Send(_)));
    // Half a millisecond by which the clocks may have drifted apart.
    assert!((800..=801).contains(&sent_at[0].as_millis()), "{sent_at:?}");
}

/// What counts is how far the wire lags behind the start, not behind the claim.
#[tokio::test(start_paused = true)]
async fn the_wait_for_its_start_makes_nothing_late() {
    let world = World::new();
    world.store.has_head_start(ms(10));
    let _worker = world.worker().await;
    world.store.claim.takes(ms(495));
    world.queue.delivers(&[in_slot(permit(7), ms(800))]);
    pass(ms(1_400)).await;
    assert_eq!(world.journal.sent(), [AttemptId(7)]);
}

/// A store whose answers show another clock does not hold a request for long.
#[tokio::test(start_paused = true)]
async fn no_answer_holds_a_request_for_longer_than_a_head_start() {
    let world = World::new();
    let _worker = world.worker().await;
    let hour = Duration::from_secs(3_600);
    world.store.claim.answers(move |permit| {
        let ClaimAnswer::Started(start) = started(1) else {
            return None;
        };
        let started_at = permit.not_before + hour;
        Some(Ok(ClaimAnswer::Started(Start {
            claimed_at: started_at,
            ..start
        })))
    });
    world.queue.delivers(&[permit(7)]);
    pass(MAX_HEAD_START + ms(1)).await;
    assert_eq!(world.journal.sent(), [AttemptId(7)]);
}
