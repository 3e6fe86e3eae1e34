//! Events that are sent to a destination again, whatever became of them.

use std::collections::BTreeMap;
use std::time::Duration;

use domain::attempt::{AttemptState, OutcomeKind};
use domain::event::{IDEMPOTENCY_KEY_KEPT, Idempotency, NewEvent};
use domain::ids::{DestinationId, EventId, ReplayId, TenantId};
use domain::replay::{ReplaySource, ReplayState};
use domain::search::IDS_BEFORE;
use domain::time::Timestamp;

use super::BacklogWorld;
use engine::ports::{
    AttemptView, CatalogError, DEFAULT_TENANT, DeadLetterFilter, MAX_EVENTS_COUNTED,
    MIN_DELIVERIES, NewReplay, NextTry, Resendable, ResentEvents, Which,
};

/// What a destination has missed since then.
fn missed(since: Timestamp) -> ResentEvents {
    ResentEvents {
        since,
        until: None,
        event_type: None,
        only_missed: true,
        state: None,
        status: None,
        text: None,
    }
}

impl BacklogWorld {
    /// One event for it alone, and what becomes of that.
    async fn one_that(&self, of: DestinationId, became: Option<OutcomeKind>) -> EventId {
        let event = self.accept_one(&self.typed("paid", Some(of)).await).await;
        if let Some(kind) = became {
            self.all_become(of, kind).await;
        }
        event
    }

    /// What becomes of all that waits there.
    async fn all_become(&self, of: DestinationId, kind: OutcomeKind) {
        let worker = self.worker().await;
        let permits = self.start_all(worker, of).await;
        match kind {
            OutcomeKind::Succeeded => {
                self.finish(worker, &permits).await;
            }
            _ => {
                for permit in &permits {
                    self.record(worker, permit, kind, NextTry::DeadLetter).await;
                }
            }
        }
        self.pass(Duration::from_millis(5)).await;
    }

    /// How many of these would be sent again.
    async fn resendable(&self, to: &[DestinationId], which: &ResentEvents) -> Resendable {
        let found = self.backlog.resendable(DEFAULT_TENANT, to, which);
        found.await.unwrap()
    }

    /// Sends these again; as many match as were counted before.
    async fn resend(&self, to: DestinationId, which: ResentEvents, share: f64) -> ReplayId {
        let counted = self.resendable(&[to], &which).await;
        let id = self.replay_of(Which::Events(to, which), share).await;
        let total = self.replay(id).await.total;
        assert_eq!(counted.counts, BTreeMap::from([(to, total)]));
        id
    }

    /// How many steps add, until one adds nothing.
    async fn resent(&self) -> u32 {
        let mut resent = 0;
        loop {
            let advanced = self.replays.advance_replays(10).await.unwrap();
            assert_eq!(advanced.replayed, 0);
            resent += advanced.resent;
            if advanced.resent == 0 {
                return resent;
            }
            assert!(!advanced.wakes.is_empty(), "whoever has work is woken");
        }
    }

    async fn tries(&self, of: DestinationId, event: EventId) -> Vec<AttemptView> {
        let attempts = self.attempts(of).await;
        attempts
            .into_iter()
            .filter(|one| one.event == event)
            .collect()
    }
}

/// Delivered or dead it is sent again, by the next try, which says by which replay; a
/// dead letter of it is replayed with that. What waits is left alone.
pub async fn an_event_is_sent_again_whatever_became_of_it(world: &BacklogWorld) {
    let of = world.destination().unlimited().create().await;
    let delivered = world.one_that(of, Some(OutcomeKind::Succeeded)).await;
    let dead = world.one_that(of, Some(OutcomeKind::Failed)).await;
    let waits = world.one_that(of, None).await;
    for (event, is_sent) in [(delivered, true), (dead, true), (waits, false)] {
        let id = world.replay_of(Which::Event(of, event), 1.0).await;
        let begun = world.replay(id).await;
        assert_eq!(
            (begun.source, begun.event),
            (ReplaySource::Events, Some(event))
        );
        assert_eq!(begun.total, u64::from(is_sent));
        world.pass(Duration::from_millis(20)).await;
        assert_eq!(world.resent().await, u32::from(is_sent), "{event}");
        let tries = world.tries(of, event).await;
        let newest = tries.last().unwrap();
        assert_eq!(newest.replay, is_sent.then_some(id));
        assert_eq!(newest.state, AttemptState::Waiting);
        assert_eq!(newest.try_number, if is_sent { 2 } else { 1 });
        let ended = world.replay(id).await;
        assert_eq!(ended.state, ReplayState::Completed);
        assert_eq!(
            (ended.done, ended.pending),
            (u64::from(is_sent), u64::from(is_sent))
        );
    }
    let none = world.dead_letters(&DeadLetterFilter::default()).await;
    assert_eq!(none, [], "it is not replayed a second time");
    let worker = world.worker().await;
    let permits = world.admit(of).await;
    let mut starts = world.start(worker, &permits).await;
    starts.sort_by_key(|start| start.try_number);
    let tries: Vec<_> = starts
        .iter()
        .map(|start| (start.try_number, start.tries_before))
        .collect();
    assert_eq!(tries, [(1, 0), (2, 1), (2, 1)]);
    world.finish(worker, &permits).await;
    let states: Vec<_> = (world.tries(of, delivered).await.iter())
        .map(|one| one.state)
        .collect();
    assert_eq!(states, [AttemptState::Succeeded; 2]);
}

/// It may go where it never was.
pub async fn an_event_is_sent_to_another_destination(world: &BacklogWorld) {
    let of = world.destination().unlimited().create().await;
    let other = world.destination().unlimited().create().await;
    let event = world.one_that(of, Some(OutcomeKind::Succeeded)).await;
    world.replay_of(Which::Event(other, event), 1.0).await;
    assert_eq!(world.resent().await, 1);
    let tries = world.tries(other, event).await;
    assert_eq!((tries.len(), tries[0].try_number), (1, 1));
    assert_eq!(world.tries(of, event).await.len(), 1);
}

/// What was for it and did not arrive, and what came while it was disabled: not what
/// came before, what it has got, what waits, and what was for others.
pub async fn what_a_destination_has_missed_is_sent_again(world: &BacklogWorld) {
    let subscribe = || world.destination().unlimited().event_types(&["paid"]);
    let of = subscribe().create().await;
    let other = subscribe().create().await;
    world.one_that(of, Some(OutcomeKind::Failed)).await;
    let since = world.now().await;
    let delivered = world.one_that(of, Some(OutcomeKind::Succeeded)).await;
    let dead = world.one_that(of, Some(OutcomeKind::Failed)).await;
    let set = |state| format!("update destinations set state = '{state}' where id = '{of}'");
    world.sql(&set("disabled")).await;
    let unseen = world.accept_one(&world.typed("paid", None).await).await;
    let others = world
        .accept_one(&world.typed("paid", Some(other)).await)
        .await;
    let foreign = world.typed("lost", None).await;
    let foreign = world.accept_one(&foreign).await;
    world.sql(&set("active")).await;
    let waits = world.one_that(of, None).await;
    world.pass(Duration::from_millis(20)).await;
    let id = world.resend(of, missed(since), 1.0).await;
    assert_eq!(world.replay(id).await.total, 2);
    assert_eq!(world.resent().await, 2);
    assert_eq!(world.tries(of, dead).await.len(), 2);
    assert_eq!(world.tries(of, unseen).await.len(), 1);
    for (event, tries) in [(delivered, 1), (waits, 1), (others, 0), (foreign, 0)] {
        assert_eq!(world.tries(of, event).await.len(), tries, "{event}");
    }
    let replay = world.replay(id).await;
    assert_eq!(replay.state, ReplayState::Completed);
    assert_eq!((replay.done, replay.skipped, replay.event), (2, 0, None));
    let older = world.dead_letters(&DeadLetterFilter::default()).await;
    assert_eq!(older.len(), 1, "what died before since then");
}

/// Filters are asked when an event is accepted, and not again: one that has a filter is
/// sent what went there, and nothing that it may have left out.
pub async fn one_with_a_filter_is_sent_what_went_there(world: &BacklogWorld) {
    let of = world.destination().unlimited().event_types(&["paid"]);
    let of = of.create().await;
    let since = world.now().await;
    let dead = world.one_that(of, Some(OutcomeKind::Failed)).await;
    let set = |filter| format!("update destinations set filter = {filter} where id = '{of}'");
    world.sql(&set(r#"'{"/never": 1}'"#)).await;
    let left_out = world.accept_one(&world.typed("paid", None).await).await;
    world.pass(Duration::from_millis(20)).await;
    let id = world.resend(of, missed(since), 1.0).await;
    assert_eq!(world.replay(id).await.total, 1);
    assert_eq!(world.resent().await, 1);
    assert_eq!(world.tries(of, dead).await.len(), 2);
    assert_eq!(world.tries(of, left_out).await.len(), 0);
    world.sql(&set("null")).await;
    world.resend(of, missed(since), 1.0).await;
    assert_eq!(world.resent().await, 1);
    assert_eq!(world.tries(of, left_out).await.len(), 1);
}

/// Delivered or not, of one type, until then.
pub async fn a_time_and_a_type_are_sent_again(world: &BacklogWorld) {
    let of = world.destination().unlimited().create().await;
    let since = world.now().await;
    let first = world.one_that(of, Some(OutcomeKind::Succeeded)).await;
    let typed = world.typed("other", Some(of)).await;
    world.accept_one(&typed).await;
    world.all_become(of, OutcomeKind::Succeeded).await;
    let until = world.now().await;
    world.pass(Duration::from_millis(5)).await;
    world.one_that(of, Some(OutcomeKind::Succeeded)).await;
    let all_until = ResentEvents {
        until: Some(until),
        event_type: Some("paid".to_owned()),
        only_missed: false,
        ..missed(since)
    };
    let none = ResentEvents {
        only_missed: true,
        ..all_until.clone()
    };
    let none = world.resend(of, none, 1.0).await;
    assert_eq!(world.resent().await, 0);
    assert_eq!(world.replay(none).await.state, ReplayState::Completed);
    world.resend(of, all_until, 1.0).await;
    assert_eq!(world.resent().await, 1);
    assert_eq!(world.tries(of, first).await.len(), 2);
}

/// A second's worth of its share waits; what was added stays when it is ended.
pub async fn a_resend_keeps_to_its_share_and_is_cancelled(world: &BacklogWorld) {
    let of = world.destination().per_second(40).max_in_flight(100);
    let of = of.create().await;
    let since = world.now().await;
    for _ in 0..30 {
        world.accept_one(&world.typed("paid", Some(of)).await).await;
    }
    world.all_become(of, OutcomeKind::Failed).await;
    world.pass(Duration::from_millis(1_100)).await;
    let id = world.resend(of, missed(since), 0.25).await;
    assert_eq!(world.replay(id).await.total, 30);
    assert_eq!(world.resent().await, 10);
    world.pass(Duration::from_millis(1_100)).await;
    assert_eq!(
        world.resent().await,
        0,
        "no more than a second's worth waits"
    );
    let worker = world.worker().await;
    let permits = world.admit(of).await;
    world.start(worker, &permits).await;
    world.finish(worker, &permits).await;
    let more = world.replays.advance_replays(10).await.unwrap().resent;
    assert!((1..=10).contains(&more), "{more} go on after the last");
    let cancelled = world
        .backlog
        .cancel_replay(DEFAULT_TENANT, id)
        .await
        .unwrap();
    assert_eq!(cancelled.state, ReplayState::Cancelled);
    assert_eq!(
        (cancelled.done, cancelled.succeeded),
        (u64::from(10 + more), 10)
    );
    world.pass(Duration::from_millis(1_100)).await;
    assert_eq!(world.resent().await, 0);
}

/// Two replays of the same, of its dead letters too, and many who carry them out.
pub async fn several_at_once_send_each_once(world: &BacklogWorld) {
    let of = world.destination().unlimited().create().await;
    let since = world.now().await;
    for _ in 0..12 {
        world.accept_one(&world.typed("paid", Some(of)).await).await;
    }
    world.all_become(of, OutcomeKind::Failed).await;
    world.pass(Duration::from_millis(50)).await;
    let all = Which::Matching(of, DeadLetterFilter::default());
    for which in [
        Which::Events(of, missed(since)),
        all,
        Which::Events(of, missed(since)),
    ] {
        world.replay_of(which, 0.5).await;
    }
    let mut moved = 0;
    for _ in 0..6 {
        let advance = || world.replays.advance_replays(1);
        let steps = tokio::join!(advance(), advance(), advance(), advance());
        for step in [steps.0, steps.1, steps.2, steps.3] {
            let step = step.unwrap();
            moved += step.replayed + step.resent;
        }
    }
    assert_eq!(moved, 12);
    let attempts = world.attempts(of).await;
    assert_eq!(attempts.len(), 24);
    let mut events: Vec<_> = attempts[12..].iter().map(|one| one.event).collect();
    events.sort_unstable();
    events.dedup();
    assert_eq!(events.len(), 12, "each once");
}

/// Retention came first: that is counted and said.
pub async fn what_has_no_payload_any_more_is_skipped(world: &BacklogWorld) {
    let of = world.destination().unlimited().create().await;
    let since = world.now().await;
    let gone = world.one_that(of, Some(OutcomeKind::Succeeded)).await;
    let kept = world.one_that(of, Some(OutcomeKind::Succeeded)).await;
    let one = world.replay_of(Which::Event(of, gone), 1.0).await;
    world
        .sql(&format!("delete from events where id = '{gone}'"))
        .await;
    assert_eq!(world.resent().await, 0);
    let replay = world.replay(one).await;
    assert_eq!(replay.state, ReplayState::Completed);
    assert_eq!((replay.done, replay.skipped), (0, 1));
    let all = ResentEvents {
        only_missed: false,
        ..missed(since)
    };
    let all = world.resend(of, all, 1.0).await;
    assert_eq!(world.resent().await, 1);
    let replay = world.replay(all).await;
    assert_eq!((replay.total, replay.done, replay.skipped), (1, 1, 1));
    assert_eq!(world.tries(of, kept).await.len(), 2);
    let none = world.resend(of, missed(since), 1.0).await;
    assert_eq!(world.replay(none).await.skipped, 0, "it was delivered");
}

/// At each destination alone, whether it has missed them or not; and nothing has begun.
pub async fn what_would_be_sent_again_is_counted(world: &BacklogWorld) {
    let subscribe = || world.destination().unlimited().event_types(&["paid"]);
    let (of, other) = (subscribe().create().await, subscribe().create().await);
    let since = world.now().await;
    world.one_that(of, Some(OutcomeKind::Succeeded)).await;
    for to in [of, of, other] {
        world.one_that(to, Some(OutcomeKind::Failed)).await;
    }
    world.one_that(of, None).await;
    world.pass(Duration::from_millis(20)).await;
    let found = (world.resendable(&[of, other, DestinationId(world.id())], &missed(since))).await;
    assert_eq!(found.counts, BTreeMap::from([(of, 2), (other, 1)]));
    assert!(!found.is_part && !found.is_none());
    let all = ResentEvents {
        only_missed: false,
        ..missed(since)
    };
    let found = world.resendable(&[of], &all).await;
    assert_eq!(found.counts, BTreeMap::from([(of, 3)]), "what waits is not");
    let later = missed(world.now().await);
    let found = world.resendable(&[of, other], &later).await;
    assert_eq!(found.counts, BTreeMap::from([(of, 0), (other, 0)]));
    assert!(found.is_none());
    let deleted = world.catalog.delete_destination(DEFAULT_TENANT, other);
    deleted.await.unwrap();
    let found = world.resendable(&[of, other], &missed(since)).await;
    assert_eq!(found.counts, BTreeMap::from([(of, 2)]));
    let begun = world.backlog.replays(DEFAULT_TENANT, None, 10).await;
    assert_eq!(begun.unwrap(), []);
}

/// It looks at fewer events for each of many destinations, and says so.
pub async fn a_count_says_that_there_may_be_more(world: &BacklogWorld) {
    let of = world.destination().unlimited().create().await;
    let since = world.now().await;
    let others = MAX_EVENTS_COUNTED / 2 - 1;
    let mut many: Vec<_> = (0..others).map(|_| DestinationId(world.id())).collect();
    many.push(of);
    assert_eq!(Resendable::events_each(many.len()), 2);
    for (events, counted, is_part) in [(1, 1, false), (2, 2, true), (3, 2, true)] {
        world.one_that(of, Some(OutcomeKind::Failed)).await;
        let found = world.resendable(&many, &missed(since)).await;
        let counts = BTreeMap::from([(of, counted)]);
        assert_eq!(found, Resendable { counts, is_part }, "{events}");
    }
    let one = world.resendable(&[of], &missed(since)).await;
    assert_eq!((one.counts[&of], one.is_part), (3, false));
    // More than were looked at may match, though none of those did.
    let none = ResentEvents {
        event_type: Some("nobody's".to_owned()),
        ..missed(since)
    };
    assert!(!world.resendable(&many, &none).await.is_none());
    assert!(world.resendable(&[of], &none).await.is_none());
}

/// A row of the outbox has waited for its relay: it is sent, so it has to be counted.
pub async fn what_has_an_older_id_is_counted(world: &BacklogWorld) {
    let of = world.destination().unlimited().create().await;
    let since = world.now().await;
    let mut event = world.typed("paid", Some(of)).await;
    event.id = world.id_of(since - IDS_BEFORE - Duration::from_secs(5));
    let event = world.accept_one(&event).await;
    world.all_become(of, OutcomeKind::Failed).await;
    let found = world.resendable(&[of], &missed(since)).await;
    assert_eq!(found.counts, BTreeMap::from([(of, 1)]));
    world.pass(Duration::from_millis(20)).await;
    let which = Which::Events(of, missed(since));
    let replay = world.replay_of(which, 1.0).await;
    assert_eq!(world.replay(replay).await.total, 0, "it begins without it");
    assert_eq!(world.resent().await, 1);
    assert_eq!(world.tries(of, event).await.len(), 2);
}

/// A tenant with as many events before as are looked at has none of them since.
pub async fn older_ids_alone_say_nothing_of_more(world: &BacklogWorld) {
    let of = world.destination().unlimited().event_types(&["paid"]);
    let of = of.create().await;
    let since = world.now().await;
    let before = since - IDS_BEFORE - Duration::from_secs(5);
    let event = world.typed("lost", None).await;
    for _ in 0..MAX_EVENTS_COUNTED as usize / MIN_DELIVERIES {
        let events = (0..MIN_DELIVERIES).map(|_| NewEvent {
            id: world.id_of(before),
            ..event.clone()
        });
        let events: Vec<_> = events.collect();
        let answers = world.store.accept_events(&events).await.unwrap();
        assert_eq!(answers.len(), events.len());
    }
    let found = world.resendable(&[of], &missed(since)).await;
    assert_eq!((found.counts[&of], found.is_part), (0, false));
    assert!(found.is_none());
}

/// And of what is not there.
pub async fn another_tenant_sends_nothing_again(world: &BacklogWorld) {
    let of = world.destination().unlimited().create().await;
    let since = world.now().await;
    let event = world.one_that(of, Some(OutcomeKind::Failed)).await;
    let begin = async |tenant, which| {
        let new = NewReplay {
            id: ReplayId(world.id()),
            which,
            share: 1.0,
        };
        world.backlog.create_replay(tenant, &new).await
    };
    let nobody = TenantId(world.id());
    let (no_event, no_destination) = (EventId(world.id()), DestinationId(world.id()));
    for (tenant, which, missing) in [
        (nobody, Which::Event(of, event), "destination"),
        (nobody, Which::Events(of, missed(since)), "destination"),
        (DEFAULT_TENANT, Which::Event(of, no_event), "event"),
        (
            DEFAULT_TENANT,
            Which::Event(no_destination, event),
            "destination",
        ),
        (
            DEFAULT_TENANT,
            Which::Events(no_destination, missed(since)),
            "destination",
        ),
    ] {
        let refused = begin(tenant, which.clone()).await;
        let what = match refused {
            Err(CatalogError::NotFound(what)) => what,
            other => panic!("{which:?}: {other:?}"),
        };
        assert_eq!(what, missing, "{which:?}");
    }
    assert_eq!(world.resent().await, 0);
    assert_eq!(world.attempts(of).await.len(), 1);
    let which = missed(since);
    let counted = world.backlog.resendable(nobody, &[of], &which).await;
    assert_eq!(counted.unwrap(), Resendable::default());
    assert_eq!(world.resendable(&[of], &which).await.counts[&of], 1);
}

/// By how an attempt there ended: one, and not another one of its event.
pub async fn what_was_answered_so_is_sent_again(world: &BacklogWorld) {
    let of = world.destination().unlimited().create().await;
    let since = world.now().await;
    let worker = world.worker().await;
    let mut events = Vec::new();
    for status in [Some(500), Some(503), Some(422), None] {
        let event = world.typed("paid", Some(of)).await;
        events.push(world.accept_one(&event).await);
        for permit in world.start_all(worker, of).await {
            let (failed, dead) = (OutcomeKind::Failed, NextTry::DeadLetter);
            let mut outcome = world.outcome(&permit, failed, dead);
            outcome.status = status;
            let recorded = world.store.record_outcomes(worker, &[outcome]).await;
            recorded.unwrap();
        }
    }
    let delivered = world.one_that(of, Some(OutcomeKind::Succeeded)).await;
    let begun = async |status: Option<&str>, state, only_missed| {
        let which = ResentEvents {
            status: status.map(|text| text.parse().unwrap()),
            state,
            only_missed,
            ..missed(since)
        };
        let id = world.resend(of, which, 1.0).await;
        world.replay(id).await.total
    };
    let failed = Some(AttemptState::Failed);
    // Until they are looked at they wait for nobody: each is counted alone.
    assert_eq!(begun(Some("500"), None, true).await, 1);
    assert_eq!(world.resent().await, 1);
    let waits = |one: &AttemptView| one.state == AttemptState::Waiting;
    let again = world.tries(of, events[0]).await;
    assert!(again.iter().any(waits), "{again:?}");
    assert_eq!(begun(Some("5xx"), failed, true).await, 1, "the other waits");
    assert_eq!(world.resent().await, 1);
    assert_eq!(
        begun(Some("5xx"), Some(AttemptState::Expired), true).await,
        0
    );
    assert_eq!(begun(Some("200"), None, true).await, 0, "it was delivered");
    assert_eq!(begun(None, Some(AttemptState::Succeeded), false).await, 1);
    assert_eq!(world.resent().await, 1);
    let again = world.tries(of, delivered).await;
    assert!(again.iter().any(waits), "{again:?}");
    assert_eq!(begun(None, failed, true).await, 2, "422 and no answer");
    assert_eq!(world.resent().await, 2);
}

/// By a part of its id, by all of it, or by the key that stands for it; and a text by which
/// none can be found begins nothing.
pub async fn a_part_of_an_id_is_sent_again(world: &BacklogWorld) {
    let of = world.destination().unlimited().create().await;
    let since = world.now().await;
    let mut event = world.typed("paid", Some(of)).await;
    event.idempotency = Some(Idempotency {
        key: "order-4711".to_owned(),
        digest: [7; 32],
        kept_for: IDEMPOTENCY_KEY_KEPT,
    });
    let keyed = world.accept_one(&event).await;
    let other = world.one_that(of, Some(OutcomeKind::Failed)).await;
    let begun = async |text: &str| {
        let which = ResentEvents {
            text: Some(text.to_owned()),
            ..missed(since)
        };
        let id = world.resend(of, which, 1.0).await;
        (world.replay(id).await.total, world.resent().await)
    };
    let end = keyed.to_string()[30..].to_uppercase();
    assert_eq!(begun(&end).await, (1, 1), "a part");
    assert_eq!(world.tries(of, keyed).await.len(), 2);
    world.all_become(of, OutcomeKind::Failed).await;
    assert_eq!(begun(&other.to_string()).await, (1, 1), "all of it");
    assert_eq!(world.tries(of, other).await.len(), 2);
    world.all_become(of, OutcomeKind::Failed).await;
    assert_eq!(begun("order-4711").await, (1, 1), "its key");
    assert_eq!(world.tries(of, keyed).await.len(), 3);
    assert_eq!(begun("ffffffff-ffff").await, (0, 0), "none is called so");
    let new = NewReplay {
        id: ReplayId(world.id()),
        which: Which::Events(
            of,
            ResentEvents {
                text: Some("order-4712".to_owned()),
                ..missed(since)
            },
        ),
        share: 1.0,
    };
    let refused = world.backlog.create_replay(DEFAULT_TENANT, &new).await;
    match refused {
        Err(CatalogError::Invalid { field, problem }) => {
            assert_eq!(field, "text");
            assert!(problem.contains("\"order-4712\" is no part"), "{problem}");
        }
        other => panic!("expected a refusal, got {other:?}"),
    }
}
