//! Ingest: one commit for all who wait, an answer only after it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use domain::event::{Audience, NewEvent, Timing};
use domain::ids::{EventId, TenantId};
use engine::ingest::{Ingest, IngestError, IngestOptions};
use engine::ports::{Acceptance, StoreError, Wake};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use uuid::Uuid;

use crate::support::{Event, World, destination, ms, pass, settle, store_away};

const TENANT: TenantId = TenantId(Uuid::from_u128(1));
const OTHER: TenantId = TenantId(Uuid::from_u128(2));

/// Events with payloads of so many bytes.
fn events(count: usize, bytes: usize) -> Vec<NewEvent> {
    let event = NewEvent {
        id: EventId(Uuid::from_u128(1)),
        tenant: TENANT,
        audience: Audience::Destination(destination(1)),
        event_type: None,
        content_type: "application/json".to_owned(),
        payload: Bytes::from(vec![b'x'; bytes]),
        idempotency: None,
        trace: None,
        timing: Timing::default(),
    };
    vec![event; count]
}

type Accepting = JoinHandle<Result<Vec<Acceptance>, IngestError>>;

struct Front {
    world: World,
    ingest: Ingest,
    running: JoinHandle<()>,
}

impl Front {
    fn new(options: IngestOptions) -> Self {
        let world = World::new();
        let (store, schedule) = (world.store.clone(), world.schedule.clone());
        let (ingest, back) = Ingest::new(store, schedule, options);
        let running = tokio::spawn(back.run(world.shutdown.clone()));
        Self {
            world,
            ingest,
            running,
        }
    }

    /// Hands in events, and lets the loop see them.
    async fn accept(&self, events: Vec<NewEvent>) -> Accepting {
        let ingest = self.ingest.clone();
        let accepting = tokio::spawn(async move { ingest.accept(events).await });
        settle().await;
        accepting
    }

    /// The sizes of the commits, in events.
    fn commits(&self) -> Vec<usize> {
        self.world.journal.pick(|event| match event {
            Event::Accept(events) => Some(events),
            _ => None,
        })
    }
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_for_a_commit_are_committed_together() {
    let front = Front::new(IngestOptions::default());
    front.world.store.accept.takes(ms(10));
    let first = front.accept(events(1, 1)).await;
    let mut others = Vec::new();
    for size in 1..=4 {
        others.push(front.accept(events(size, 1)).await);
    }
    assert!(!first.is_finished(), "an answer before its commit");
    pass(ms(10)).await;
    assert_eq!(front.commits(), [1, 10]);
    assert!(first.is_finished());
    assert!(!others[0].is_finished());
    pass(ms(10)).await;
    for (size, other) in (1..).zip(others) {
        assert_eq!(other.await.unwrap().unwrap().len(), size);
    }
}

#[tokio::test(start_paused = true)]
async fn a_commit_is_bounded_by_events() {
    let options = IngestOptions {
        batch_events: 5,
        ..IngestOptions::default()
    };
    let front = Front::new(options);
    front.world.store.accept.takes(ms(10));
    for _ in 0..6 {
        front.accept(events(2, 1)).await;
    }
    pass(ms(100)).await;
    assert_eq!(front.commits(), [2, 4, 4, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_commit_is_bounded_by_bytes() {
    let options = IngestOptions {
        batch_bytes: 1_000,
        ..IngestOptions::default()
    };
    let front = Front::new(options);
    front.world.store.accept.takes(ms(10));
    for bytes in [1, 600, 600, 300, 5_000] {
        front.accept(events(1, bytes)).await;
    }
    pass(ms(100)).await;
    // The last one is larger than a batch, and goes alone.
    assert_eq!(front.commits(), [1, 1, 2, 1]);
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_in_the_queue_is_refused_at_once() {
    let options = IngestOptions {
        queue: 2,
        ..IngestOptions::default()
    };
    let front = Front::new(options);
    front.world.store.accept.takes(ms(10));
    let mut accepting = Vec::new();
    for _ in 0..4 {
        accepting.push(front.accept(events(1, 1)).await);
    }
    let refused = accepting.pop().unwrap();
    assert_eq!(refused.await.unwrap(), Err(IngestError::Full));
    for accepted in accepting {
        accepted.await.unwrap().unwrap();
    }
    front.ingest.accept(events(1, 1)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_bytes_that_wait_are_bounded() {
    let options = IngestOptions {
        queue_bytes: 1_000,
        ..IngestOptions::default()
    };
    let front = Front::new(options);
    front.world.store.accept.takes(ms(10));
    let first = front.accept(events(2, 400)).await;
    let refused = front.ingest.accept(events(1, 201)).await;
    assert_eq!(refused, Err(IngestError::Full));
    let second = front.accept(events(1, 200)).await;
    first.await.unwrap().unwrap();
    second.await.unwrap().unwrap();
    // One that is larger than all the room goes alone.
    front.ingest.accept(events(1, 5_000)).await.unwrap();
}

/// Only the one that fails alone is refused.
#[tokio::test(start_paused = true)]
async fn a_commit_that_fails_is_tried_again_request_by_request() {
    let front = Front::new(IngestOptions::default());
    front.world.store.accept.takes(ms(10));
    let first = front.accept(events(1, 1)).await;
    let second = front.accept(events(2, 1)).await;
    let culprit = front.accept(events(1, 13)).await;
    let third = front.accept(events(3, 1)).await;
    (front.world.store.accept).answers(move |events| {
        match events.iter().any(|event| event.payload.len() == 13) {
            true => Err(store_away()),
            false => Ok(vec![Acceptance::Accepted(Vec::new()); events.len()]),
        }
    });
    first.await.unwrap().unwrap();
    assert_eq!(second.await.unwrap().unwrap().len(), 2);
    let refusal = culprit.await.unwrap().unwrap_err();
    assert!(matches!(refusal, IngestError::Unavailable(_)), "{refusal}");
    assert_eq!(third.await.unwrap().unwrap().len(), 3);
    assert_eq!(front.commits(), [1, 6, 2, 1, 3]);
}

/// The third in a row and those after it do not make the store one that is away.
#[tokio::test(start_paused = true)]
async fn requests_that_the_store_refuses_are_nobody_elses_fault() {
    let front = Front::new(IngestOptions::default());
    front.world.store.accept.takes(ms(10));
    let first = front.accept(events(1, 1)).await;
    let mut culprits = Vec::new();
    for _ in 0..5 {
        culprits.push(front.accept(events(1, 13)).await);
    }
    let behind = front.accept(events(2, 1)).await;
    front
        .world
        .store
        .accept
        .answers(fails_of(StoreError::Refused));
    first.await.unwrap().unwrap();
    for culprit in culprits {
        assert!(culprit.await.unwrap().is_err());
    }
    assert_eq!(behind.await.unwrap().unwrap().len(), 2);
    assert_eq!(front.commits(), [1, 7, 1, 1, 1, 1, 1, 2]);
}

/// After five seconds the rest is committed together again.
#[tokio::test(start_paused = true)]
async fn those_behind_requests_that_take_too_long_are_asked_all_the_same() {
    let front = Front::new(IngestOptions::default());
    front.world.store.accept.takes(ms(3_000));
    let first = front.accept(events(1, 1)).await;
    let culprits = [
        front.accept(events(1, 13)).await,
        front.accept(events(1, 13)).await,
    ];
    let behind = [
        front.accept(events(2, 1)).await,
        front.accept(events(3, 1)).await,
    ];
    front
        .world
        .store
        .accept
        .answers(fails_of(StoreError::TooSlow));
    first.await.unwrap().unwrap();
    for culprit in culprits {
        assert!(culprit.await.unwrap().is_err());
    }
    for accepted in behind {
        accepted.await.unwrap().unwrap();
    }
    assert_eq!(front.commits(), [1, 7, 1, 1, 5]);
}

/// Nor do they make a request fail that was never tried: after three commits in which there
/// was no time for it, it is written apart.
#[tokio::test(start_paused = true)]
async fn who_only_stood_behind_requests_that_take_too_long_is_not_refused() {
    let front = Front::new(IngestOptions::default());
    front.world.store.accept.takes(ms(3_000));
    let first = front.accept(events(1, 1)).await;
    let mut culprits = Vec::new();
    for _ in 0..8 {
        culprits.push(front.accept(events(1, 13)).await);
    }
    let gone = front.accept(events(4, 1)).await;
    let behind = front.accept(events(2, 1)).await;
    front
        .world
        .store
        .accept
        .answers(fails_of(StoreError::TooSlow));
    first.await.unwrap().unwrap();
    gone.abort();
    for culprit in culprits {
        assert!(culprit.await.unwrap().is_err());
    }
    assert_eq!(behind.await.unwrap().unwrap().len(), 2);
    // The one whose caller has gone is in the first of them alone.
    assert_eq!(front.commits(), [1, 14, 1, 1, 8, 1, 1, 6, 1, 1, 1, 1, 2]);
}

/// A step of the store takes one event here: what is left of the second tenant's request
/// has its turn before the third's.
#[tokio::test(start_paused = true)]
async fn those_that_are_put_back_keep_their_turns() {
    let front = Front::new(IngestOptions::default());
    (front.world.store.accept).answers(|_| Ok(vec![Acceptance::Accepted(Vec::new())]));
    front.world.store.accept.takes(ms(10));
    let mut accepting = vec![front.accept(events(1, 1)).await];
    for (tenant, count) in (1..).zip(1..=3) {
        let mut events = events(count, 1);
        for event in &mut events {
            event.tenant = TenantId(Uuid::from_u128(tenant));
        }
        accepting.push(front.accept(events).await);
    }
    for accepted in accepting {
        accepted.await.unwrap().unwrap();
    }
    assert_eq!(front.commits()[..5], [1, 6, 5, 4, 3]);
}

/// A step of the store takes two events here, and one tenant has more requests of two
/// events than a commit holds.
#[tokio::test(start_paused = true)]
async fn those_that_a_step_did_not_come_to_are_first_in_the_next() {
    let options = IngestOptions {
        batch_events: 5,
        ..IngestOptions::default()
    };
    let front = Front::new(options);
    (front.world.store.accept).answers(|events| {
        let written = events.len().min(2);
        Ok(vec![Acceptance::Accepted(Vec::new()); written])
    });
    front.world.store.accept.takes(ms(10));
    let mut many = vec![front.accept(events(1, 1)).await];
    for _ in 0..5 {
        many.push(front.accept(events(2, 1)).await);
    }
    let mut of_another = events(1, 1);
    of_another[0].tenant = OTHER;
    let one = front.accept(of_another).await;
    pass(ms(21)).await;
    assert!(!one.is_finished(), "the first step is full without it");
    pass(ms(10)).await;
    assert!(one.is_finished(), "it waited behind all of them");
    for accepted in many {
        accepted.await.unwrap().unwrap();
    }
}

/// Fails so where there is a payload of 13 bytes.
fn fails_of(
    error: fn(String) -> StoreError,
) -> impl FnMut(Vec<NewEvent>) -> Result<Vec<Acceptance>, StoreError> {
    move |events| match events.iter().any(|event| event.payload.len() == 13) {
        true => Err(error("13 bytes".to_owned())),
        false => Ok(vec![Acceptance::Accepted(Vec::new()); events.len()]),
    }
}

/// Three in a row are enough to see it.
#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_is_not_asked_for_each_request() {
    let front = Front::new(IngestOptions::default());
    front.world.store.accept.takes(ms(10));
    let mut accepting = Vec::new();
    for _ in 0..20 {
        accepting.push(front.accept(events(1, 1)).await);
    }
    front.world.store.accept.answers(|_| Err(store_away()));
    for refused in accepting.into_iter().skip(1) {
        let refusal = refused.await.unwrap().unwrap_err();
        assert!(matches!(refusal, IngestError::Unavailable(_)), "{refusal}");
    }
    assert_eq!(front.commits(), [1, 19, 1, 1, 1]);
}

/// A step of the store takes two events here. The large request is answered when
/// all of it is written; small ones do not wait for that.
#[tokio::test(start_paused = true)]
async fn a_large_request_is_written_in_parts_beside_the_commits_of_others() {
    let front = Front::new(IngestOptions::default());
    (front.world.store.accept).answers(|events| {
        let written = events.len().min(2);
        Ok(vec![Acceptance::Accepted(Vec::new()); written])
    });
    front.world.store.accept.takes(ms(10));
    let large = front.accept(events(9, 1)).await;
    let small = front.accept(events(1, 1)).await;
    let another = front.accept(events(1, 1)).await;
    pass(ms(31)).await;
    assert!(small.is_finished() && another.is_finished());
    assert!(!large.is_finished());
    assert_eq!(large.await.unwrap().unwrap().len(), 9);
    assert_eq!(front.commits(), [9, 2, 7, 5, 3, 1]);
}

/// The first time nobody knows how many subscribe.
#[tokio::test(start_paused = true)]
async fn what_goes_to_many_is_written_a_little_at_a_time_once_that_is_known() {
    let front = Front::new(IngestOptions::default());
    (front.world.store.accept).answers(|events| {
        let to = |event: &NewEvent| match event.audience {
            Audience::Subscribers | Audience::SomeSubscriber => (0..100).map(destination).collect(),
            Audience::Destination(to) => vec![to],
        };
        Ok(events.iter().map(to).map(Acceptance::Accepted).collect())
    });
    front.world.store.accept.takes(ms(3));
    let to_all = |count| {
        let mut events = events(count, 1);
        for event in &mut events {
            event.audience = Audience::Subscribers;
        }
        events
    };
    assert_eq!(front.ingest.expected(&to_all(3)), 3);
    front.accept(to_all(3)).await.await.unwrap().unwrap();
    assert_eq!(front.ingest.expected(&to_all(3)), 300);
    assert_eq!(front.ingest.expected(&events(3, 1)), 3);
    assert_eq!(front.ingest.fit(&to_all(500), 10_000), 100);
    // Of another tenant's, and of another type, nothing is known.
    let other = |change: fn(&mut NewEvent)| {
        let mut others = to_all(500);
        others.iter_mut().for_each(change);
        others
    };
    let strange = [
        other(|event| event.tenant = OTHER),
        other(|event| event.event_type = Some("other".to_owned())),
    ];
    for others in strange {
        assert_eq!(front.ingest.expected(&others), 500);
        assert_eq!(front.ingest.fit(&others, 10_000), 10);
    }
    let wide = front.accept(to_all(5)).await;
    let narrow = front.accept(events(5, 1)).await;
    pass(ms(4)).await;
    assert!(narrow.is_finished() && !wide.is_finished());
    assert_eq!(wide.await.unwrap().unwrap().len(), 5);
    assert_eq!(front.commits(), [3, 2, 5, 2, 1]);
    pass(ms(1_000)).await;
    front.accept(to_all(13)).await.await.unwrap().unwrap();
    assert_eq!(front.commits()[5..], [10, 3], "more, where nobody waits");
}

/// 400 ms for a whole one, a hundred times as long as it is meant to take.
#[tokio::test(start_paused = true)]
async fn parts_are_smaller_where_the_store_is_slow() {
    let front = Front::new(IngestOptions::default());
    front.world.store.accept.takes(ms(400));
    let mut small = vec![front.accept(events(1, 1)).await];
    let large = front.accept(events(500, 1)).await;
    for _ in 0..20 {
        pass(ms(400)).await;
        small.push(front.accept(events(1, 1)).await);
    }
    assert!(!large.is_finished());
    let parts: Vec<_> = (front.commits().into_iter())
        .filter(|size| *size > 1)
        .collect();
    assert_eq!(parts[..3], [250, 25, 25], "{parts:?}");
}

/// Each part takes 10 ms, and each pause after one 30.
#[tokio::test(start_paused = true)]
async fn parts_leave_three_quarters_of_the_time_to_the_others() {
    let front = Front::new(IngestOptions::default());
    front.world.store.accept.takes(ms(10));
    front.accept(events(1, 1)).await.await.unwrap().unwrap();
    let began = Instant::now();
    let large = front.accept(events(1_000, 1)).await;
    let mut parts = Vec::new();
    while !large.is_finished() {
        front.accept(events(1, 1)).await.await.unwrap().unwrap();
        parts = (front.commits().into_iter())
            .filter(|size| *size > 1)
            .collect();
    }
    assert!(parts.len() > 10, "{parts:?}");
    let took = began.elapsed();
    let writing = ms(10) * parts.len() as u32;
    assert!(
        took >= writing * 37 / 10,
        "{took:?} for {writing:?} of writing"
    );
    assert!(
        took <= writing * 43 / 10,
        "{took:?} for {writing:?} of writing"
    );
}

/// Twenty requests of one tenant are there before another's one.
#[tokio::test(start_paused = true)]
async fn tenants_have_their_turns() {
    let options = IngestOptions {
        batch_events: 5,
        ..IngestOptions::default()
    };
    let front = Front::new(options);
    front.world.store.accept.takes(ms(10));
    let mut many = Vec::new();
    for _ in 0..20 {
        many.push(front.accept(events(1, 1)).await);
    }
    let mut of_another = events(1, 1);
    of_another[0].tenant = OTHER;
    let one = front.accept(of_another).await;
    pass(ms(21)).await;
    assert!(one.is_finished(), "it waited behind all of them");
    let done = many.iter().filter(|one| one.is_finished()).count();
    assert_eq!(done, 1 + 4);
}

/// Nobody waits for all that another tenant has handed in before, and not for a second such
/// commit. Of one tenant alone as much as there is goes together.
#[tokio::test(start_paused = true)]
async fn commits_are_short_where_several_tenants_hand_in() {
    let front = Front::new(IngestOptions::default());
    front.world.store.accept.takes(ms(10));
    for _ in 0..6 {
        front.accept(events(100, 1)).await;
    }
    let mut of_another = events(1, 1);
    of_another[0].tenant = OTHER;
    let one = front.accept(of_another).await;
    pass(ms(21)).await;
    assert!(one.is_finished());
    pass(ms(1_079)).await;
    for _ in 0..6 {
        front.accept(events(100, 1)).await;
    }
    pass(ms(100)).await;
    let short = [100, 1, 100, 100, 100, 100, 100];
    assert_eq!(front.commits(), [&short[..], &[100, 500]].concat());
}

/// Who comes while a large request is written waits for the end of it and for those that
/// are small as well, whoever's turn it is; and no large one stands behind small ones that
/// come again and again.
#[tokio::test(start_paused = true)]
async fn small_requests_and_large_ones_take_turns() {
    let front = Front::new(IngestOptions::default());
    front.world.store.accept.takes(ms(10));
    for _ in 0..4 {
        front.accept(events(100, 1)).await;
    }
    for _ in 0..64 {
        let mut of_another = events(1, 1);
        of_another[0].tenant = OTHER;
        front.accept(of_another).await;
    }
    pass(ms(15)).await;
    let mut of_another = events(1, 1);
    of_another[0].tenant = OTHER;
    front.accept(of_another).await;
    pass(ms(100)).await;
    assert_eq!(front.commits(), [100, 64, 101, 100, 100]);
}

/// Where the store writes both at once, nobody's small request waits for a long commit; large
/// ones do, and so does whatever one tenant hands in alone.
#[tokio::test(start_paused = true)]
async fn small_requests_are_written_beside_a_long_commit() {
    let front = Front::new(IngestOptions::default());
    front.world.store.side_by_side.store(true, Ordering::SeqCst);
    front.world.store.accept.takes(ms(10));
    front.accept(events(100, 1)).await;
    front.accept(events(1, 1)).await;
    assert_eq!(front.commits(), [100]);
    let of_another = |count| {
        let mut events = events(count, 1);
        events.iter_mut().for_each(|event| event.tenant = OTHER);
        front.accept(events)
    };
    of_another(17).await;
    assert_eq!(front.commits(), [100, 1]);
    pass(ms(5)).await;
    let waiting = [of_another(1).await, of_another(1).await];
    assert_eq!(front.commits(), [100, 1], "one is under way beside it");
    // The large one by itself, and both small ones beside it.
    pass(ms(6)).await;
    assert_eq!(front.commits(), [100, 1, 17, 2]);
    for accepted in waiting {
        assert_eq!(accepted.await.unwrap().unwrap().len(), 1);
    }
}

/// A commit that fails holds up no other that is under way, nor its connection.
#[tokio::test(start_paused = true)]
async fn a_commit_goes_on_while_others_are_tried_one_by_one() {
    let front = Front::new(IngestOptions::default());
    front.world.store.side_by_side.store(true, Ordering::SeqCst);
    front.world.store.accept.takes(ms(10));
    let ended = Arc::<Mutex<Vec<usize>>>::default();
    let mut answer = fails_of(StoreError::Refused);
    let ends = Arc::clone(&ended);
    front.world.store.accept.answers(move |events| {
        ends.lock().unwrap().push(events.len());
        answer(events)
    });
    front.accept(events(100, 1)).await;
    front.accept(events(1, 1)).await;
    pass(ms(2)).await;
    let of_another = |count, bytes| {
        let mut events = events(count, bytes);
        events.iter_mut().for_each(|event| event.tenant = OTHER);
        front.accept(events)
    };
    let culprit = of_another(1, 13).await;
    of_another(17, 1).await;
    assert!(culprit.await.unwrap().is_err());
    // After 10 and 12 ms, 20, 22 and 32.
    assert_eq!(*ended.lock().unwrap(), [100, 2, 17, 1, 1]);
}

/// A step of the store takes two events here. Those that it did not come to are first in
/// the next, and no reason to leave the large one out again.
#[tokio::test(start_paused = true)]
async fn a_large_request_is_left_out_once() {
    let front = Front::new(IngestOptions::default());
    (front.world.store.accept).answers(|events| {
        let written = events.len().min(2);
        Ok(vec![Acceptance::Accepted(Vec::new()); written])
    });
    front.world.store.accept.takes(ms(10));
    for _ in 0..9 {
        front.accept(events(1, 1)).await;
    }
    let mut of_another = events(17, 1);
    of_another.iter_mut().for_each(|event| event.tenant = OTHER);
    front.accept(of_another).await;
    pass(ms(31)).await;
    assert_eq!(front.commits()[..3], [1, 8, 17 + 6]);
}

/// What is too much for the rest of a commit keeps nobody else's out of it.
#[tokio::test(start_paused = true)]
async fn requests_share_a_commit_beside_one_that_does_not_fit() {
    let front = Front::new(IngestOptions::default());
    front.world.store.accept.takes(ms(10));
    for _ in 0..11 {
        front.accept(events(16, 1)).await;
    }
    for _ in 0..64 {
        let mut of_another = events(1, 1);
        of_another[0].tenant = OTHER;
        front.accept(of_another).await;
    }
    pass(ms(100)).await;
    // Of the second commit seven are the one's, after which another has no room.
    assert_eq!(front.commits(), [16, 128, 96]);
}

#[tokio::test(start_paused = true)]
async fn commits_hold_little_where_several_tenants_hand_in() {
    let front = Front::new(IngestOptions::default());
    front.world.store.accept.takes(ms(10));
    let mut of_another = events(1, 1);
    of_another[0].tenant = OTHER;
    front.accept(of_another).await;
    for _ in 0..4 {
        front.accept(events(1, 500 * 1024)).await;
    }
    pass(ms(100)).await;
    assert_eq!(front.commits(), [1, 2, 2]);
}

/// What is written of it stays; the rest is not written for nobody.
#[tokio::test(start_paused = true)]
async fn a_large_request_ends_with_its_caller() {
    let front = Front::new(IngestOptions::default());
    (front.world.store.accept).answers(|_| Ok(vec![Acceptance::Accepted(Vec::new())]));
    front.world.store.accept.takes(ms(10));
    let large = front.accept(events(100, 1)).await;
    pass(ms(15)).await;
    large.abort();
    pass(ms(1_000)).await;
    assert_eq!(front.commits(), [100, 99]);
}

#[tokio::test(start_paused = true)]
async fn destinations_are_woken_once_each_and_after_the_answer() {
    let front = Front::new(IngestOptions::default());
    front.world.store.accept.answers(|_| {
        let both = vec![destination(2), destination(1)];
        Ok(vec![
            Acceptance::Accepted(both),
            Acceptance::UnknownDestination,
            Acceptance::Accepted(vec![destination(1)]),
        ])
    });
    front.world.schedule.wake.takes(ms(500));
    let began = tokio::time::Instant::now();
    let answers = front.ingest.accept(events(3, 1)).await.unwrap();
    assert_eq!(began.elapsed(), ms(0), "the answer waited for the wake");
    assert_eq!(answers[1], Acceptance::UnknownDestination);
    settle().await;
    let wakes = [Wake::now(destination(1)), Wake::now(destination(2))];
    assert_eq!(front.world.journal.woken(), wakes);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_commits_what_waits_and_refuses_what_comes() {
    let front = Front::new(IngestOptions::default());
    front.world.store.accept.takes(ms(10));
    let first = front.accept(events(1, 1)).await;
    let second = front.accept(events(1, 1)).await;
    front.world.shutdown.cancel();
    pass(ms(11)).await;
    let refused = front.ingest.accept(events(1, 1)).await;
    assert_eq!(refused, Err(IngestError::Stopped));
    first.await.unwrap().unwrap();
    second.await.unwrap().unwrap();
    assert_eq!(front.commits(), [1, 1]);
    front.running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_cut_off_is_not_said_to_be_unwritten() {
    let front = Front::new(IngestOptions::default());
    front.world.store.accept.takes(ms(10));
    let first = front.accept(events(1, 1)).await;
    front.running.abort();
    let refusal = first.await.unwrap().unwrap_err();
    assert!(matches!(refusal, IngestError::Unavailable(_)), "{refusal}");
    let refused = front.ingest.accept(events(1, 1)).await;
    assert_eq!(refused, Err(IngestError::Stopped));
}
