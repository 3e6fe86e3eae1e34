//! How much response times differ is measured, and said when it is news.

use std::ops::Range;
use std::time::Duration;

use domain::ids::{DestinationId, Epoch};
use domain::margin::Spread;
use domain::permit::Permit;

use crate::support::{
    Event, World, answer, destination, in_slot, ms, pass, permit, permit_of, settle, store_away,
};

/// What was said, and when.
fn said(world: &World) -> Vec<(Duration, DestinationId, Spread)> {
    let times = world
        .journal
        .times(|event| matches!(event, Event::ReportSpreads(_)));
    let said = world.journal.pick(|event| match event {
        Event::ReportSpreads(spreads) => Some(spreads),
        _ => None,
    });
    let said = times.into_iter().zip(said);
    said.flat_map(|(at, spreads)| {
        spreads
            .into_iter()
            .map(move |(of, spread)| (at, of, spread))
    })
    .collect()
}

/// So many requests, one after the other from this number on, answered in this time.
async fn deliver(world: &World, numbers: Range<i64>, takes: Duration) {
    deliver_of(world, Epoch(1), numbers, takes).await;
}

async fn deliver_of(world: &World, epoch: Epoch, numbers: Range<i64>, takes: Duration) {
    world.sender.send.takes(takes);
    for number in numbers {
        let elapsed = world.journal.now();
        let permit = Permit {
            epoch,
            ..in_slot(permit(number), elapsed)
        };
        world.queue.delivers(&[permit]);
        pass(takes).await;
        settle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_spread_is_said_once_there_are_enough_answers_and_again_when_it_is_wider() {
    let world = World::new();
    let _worker = world.worker().await;
    deliver(&world, 0..10, ms(3)).await;
    pass(ms(2_500)).await;
    assert_eq!(said(&world), [], "ten are luck");
    deliver(&world, 10..20, ms(5)).await;
    pass(ms(2_500)).await;
    let spreads = |world: &World| {
        let said = said(world).into_iter();
        said.map(|(_, of, spread)| (of, spread.least, spread.most))
            .collect::<Vec<_>>()
    };
    let first = (destination(1), ms(3), ms(5));
    assert_eq!(spreads(&world), [first]);
    // The same again is no news.
    deliver(&world, 20..30, ms(4)).await;
    pass(ms(2_500)).await;
    assert_eq!(spreads(&world), [first]);
    deliver(&world, 30..40, ms(9)).await;
    pass(ms(2_500)).await;
    assert_eq!(spreads(&world), [first, (destination(1), ms(3), ms(9))]);
}

/// What one worker says stands for two minutes, so it says it again before, as long as
/// there are answers.
#[tokio::test(start_paused = true)]
async fn what_is_no_news_is_said_once_a_minute() {
    let world = World::new();
    let _worker = world.worker().await;
    deliver(&world, 0..20, ms(3)).await;
    for minute in 1..4_i64 {
        pass(Duration::from_secs(60)).await;
        assert_eq!(said(&world).len() as i64, minute, "in silence");
        deliver(&world, 20 + minute..21 + minute, ms(3)).await;
    }
    pass(Duration::from_secs(60)).await;
    let silent = said(&world).len();
    pass(Duration::from_secs(600)).await;
    assert_eq!(said(&world).len(), silent);
}

/// A request that is not answered says nothing of the way, and a destination's times are
/// its own.
#[tokio::test(start_paused = true)]
async fn only_answers_count_and_those_of_one_destination() {
    let world = World::new();
    let _worker = world.worker().await;
    deliver(&world, 0..19, ms(3)).await;
    world.queue.delivers(&[permit_of(2, 50)]);
    pass(ms(1_900)).await;
    world.sender.hangs_from(domain::ids::AttemptId(60));
    let elapsed = world.journal.now();
    world.queue.delivers(&[in_slot(permit(60), elapsed)]);
    pass(Duration::from_secs(20)).await;
    assert_eq!(said(&world), []);
    world.sender.send.answers(|_| Ok(answer(500)));
    deliver(&world, 19..20, ms(3)).await;
    pass(ms(2_500)).await;
    assert_eq!(said(&world).len(), 1, "any answer counts");
}

/// What could not be said is said at the next answer.
#[tokio::test(start_paused = true)]
async fn a_report_that_fails_is_made_again() {
    let world = World::new();
    world.store.spreads.answers(|_| Err(store_away()));
    let _worker = world.worker().await;
    deliver(&world, 0..20, ms(3)).await;
    pass(ms(2_500)).await;
    assert_eq!(said(&world).len(), 1);
    world.store.spreads.answers(|_| Ok(()));
    deliver(&world, 20..21, ms(3)).await;
    pass(ms(2_500)).await;
    assert_eq!(said(&world).len(), 2);
    deliver(&world, 21..22, ms(3)).await;
    pass(ms(2_500)).await;
    assert_eq!(said(&world).len(), 2, "no news");
}

/// Another URL is another receiver: what the one before took says nothing of it.
#[tokio::test(start_paused = true)]
async fn another_receiver_is_measured_from_the_beginning() {
    let world = World::new();
    let _worker = world.worker().await;
    deliver(&world, 0..20, ms(3)).await;
    pass(ms(2_500)).await;
    assert_eq!(said(&world).len(), 1);
    // The fake's URL is another one with each epoch.
    world.store.targets.answers(|()| Ok(Epoch(2)));
    deliver_of(&world, Epoch(2), 20..39, ms(30)).await;
    pass(ms(2_500)).await;
    assert_eq!(said(&world).len(), 1, "nineteen are luck");
    deliver_of(&world, Epoch(2), 39..40, ms(30)).await;
    pass(ms(2_500)).await;
    let (_, _, spread) = said(&world)[1];
    assert_eq!((spread.least, spread.most), (ms(30), ms(30)));
}
