//! Notifiers that are killed in the middle of their work, on any store: what
//! operators must know is written down once, and told once.

use std::collections::HashMap;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use adapters::in_process::InProcessSchedule;
use bytes::Bytes;
use domain::event::{Audience, NewEvent, Timing};
use domain::handshake::Handshake;
use domain::ids::{DestinationId, EventId};
use domain::policy::LimitSettings;
use engine::notifier::{Notifier, NotifierOptions};
use engine::ports::{
    AlertsChange, Catalog, DEFAULT_TENANT, NewDestination, Operations, OperationsBook,
    Registration, Store, WatchRules,
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Where the store is, for a process that does nothing but notify.
const STORE: &str = "PACELINE_TEST_NOTIFIER_STORE";

/// Destinations with a high backlog.
const HIGH: u32 = 60;

/// Events of each: all but one of them die.
const EVENTS: u32 = 3;

/// News that are relayed between two kills, at least.
const NEWS_OF_A_LIFE: i64 = 5;

/// Who is told.
const TOLD: DestinationId = DestinationId(Uuid::from_u128(0xffff));

/// A store, and how to run notifiers on it in other processes.
pub(crate) trait Place {
    /// For [`STORE`].
    fn name(&self) -> String;

    /// The test that calls [`notify`], and how many of it work at once.
    fn notifiers(&self) -> (&'static str, usize);

    /// What the store itself writes for those that have just died, where no trigger does.
    fn tally(&self) -> &'static str;

    /// A user's SQL.
    async fn sql(&self, sql: &str);

    /// One number that a query answers.
    async fn number(&self, sql: &str) -> i64;

    /// Pairs of texts that a query answers.
    async fn texts(&self, sql: &str) -> Vec<(String, String)>;
}

/// In the process that is started and killed: notifies until then. `None` in
/// any other.
pub(crate) fn store_to_notify_of() -> Option<String> {
    std::env::var(STORE).ok()
}

/// In small steps, one after the other.
pub(crate) async fn notify(store: impl Operations + 'static) {
    let options = NotifierOptions {
        every: Duration::from_millis(1),
        batch: 2,
        batches: 1,
        watch: WatchRules {
            every: Duration::ZERO,
            pace: Duration::ZERO,
            patience: Duration::ZERO,
            dead_letters_every: Duration::ZERO,
            looks: 3,
            ..WatchRules::default()
        },
        ..NotifierOptions::default()
    };
    let schedule = Arc::new(InProcessSchedule::new());
    let notifier = Notifier::new(Arc::new(store), schedule, options);
    notifier.run(CancellationToken::new()).await;
}

/// A notifier in a process of its own, killed at the latest when this is dropped.
struct Life(Child);

impl Drop for Life {
    fn drop(&mut self) {
        // It may have ended by itself: whoever waits for it has looked.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(place: &impl Place) -> Life {
    let (test, _) = place.notifiers();
    let started = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test])
        .env(STORE, place.name())
        .stdout(Stdio::null())
        .spawn();
    Life(started.unwrap())
}

/// Who is told, and those of whom there is something to tell. Whatever has an
/// id that three divides stays where it waits.
pub(crate) async fn furnish(store: &(impl Store + Catalog + OperationsBook)) {
    let of = |id| NewDestination {
        external_id: None,
        id,
        name: String::new(),
        url: "https://receiver.example/".to_owned(),
        event_types: Vec::new(),
        filter: None,
        limits: LimitSettings::EXACT,
        pass_traceparent: false,
        handshake: Handshake::None,
        limit_group: None,
    };
    let alerts = |backlog| AlertsChange {
        backlog: Some(Some(backlog)),
        under_delivery_seconds: Some(Some(0)),
        failing_percent: None,
    };
    let told = store.create_destination(DEFAULT_TENANT, &of(TOLD)).await;
    told.unwrap();
    let silent = store.change_alerts(DEFAULT_TENANT, TOLD, &alerts(0)).await;
    silent.unwrap();
    let registration = Registration::default();
    let registered = store.register_operational(DEFAULT_TENANT, TOLD, &registration);
    registered.await.unwrap();
    for number in 1..=HIGH {
        let id = DestinationId(Uuid::from_u128(number.into()));
        let created = store.create_destination(DEFAULT_TENANT, &of(id)).await;
        created.unwrap();
        let set = store.change_alerts(DEFAULT_TENANT, id, &alerts(1)).await;
        set.unwrap();
        let event = |event: u32| NewEvent {
            id: EventId(Uuid::from_u128((number * EVENTS + event).into())),
            tenant: DEFAULT_TENANT,
            audience: Audience::Destination(id),
            event_type: None,
            content_type: "text/plain".to_owned(),
            payload: Bytes::from_static(b"hello"),
            idempotency: None,
            trace: None,
            timing: Timing::default(),
        };
        let events: Vec<_> = (0..EVENTS).map(event).collect();
        store.accept_events(&events).await.unwrap();
    }
}

/// Attempts that are still to die.
fn dying() -> String {
    format!("destination_id <> '{TOLD}' and state = 'waiting' and id % {EVENTS} <> 0")
}

/// How many are still to die: that is the test's part.
async fn to_die(place: &impl Place) -> i64 {
    let to_die = format!("select count(*) from deliveries where {}", dying());
    place.number(&to_die).await
}

/// What the notifiers have still to do. Asked for in the order in which it goes
/// from one to the next, so that nothing is missed on its way.
async fn untold(place: &impl Place) -> i64 {
    let high = "select count(*) from operational_events where event_type = 'backlog_high'";
    let mut untold = i64::from(HIGH) - place.number(high).await;
    for next in [
        "select count(*) from dead_letter_tallies",
        "select coalesce(sum(dead_letters), 0) from watches",
        "select count(*) from operational_events where relayed_at is null",
    ] {
        untold += place.number(next).await;
    }
    untold
}

/// Some more die, of whichever destinations come next: enough for
/// [`NEWS_OF_A_LIFE`].
async fn some_die(place: &impl Place) {
    let die = format!(
        "insert into ledger (
            id, event_id, destination_id, tenant_id, created_at, state, dead_letter, finished_at
        )
        select id, event_id, destination_id, tenant_id, created_at, 'expired', true, created_at
        from deliveries where {} order by id desc limit {}",
        dying(),
        NEWS_OF_A_LIFE * i64::from(EVENTS - 1)
    );
    place.sql(&die).await;
    place.sql(place.tally()).await;
    let gone = "delete from deliveries where id in (select id from ledger)";
    place.sql(gone).await;
}

/// Until all is told; how often one was killed.
async fn kill_again_and_again(place: &impl Place) -> u32 {
    let relayed = "select count(*) from operational_events where relayed_at is not null";
    let mut kills = 0;
    while to_die(place).await + untold(place).await > 0 {
        let before = place.number(relayed).await;
        let (_, at_once) = place.notifiers();
        let mut notifiers: Vec<Life> = (0..at_once).map(|_| start(place)).collect();
        some_die(place).await;
        // All are at work when news go; somewhere in there they die.
        while place.number(relayed).await < before + NEWS_OF_A_LIFE && untold(place).await > 0 {
            for notifier in &mut notifiers {
                let ended = notifier.0.try_wait().unwrap();
                assert_eq!(ended, None, "a notifier ended by itself");
            }
            tokio::task::yield_now().await;
        }
        kills += u32::try_from(at_once).unwrap();
        drop(notifiers);
    }
    kills
}

/// Furnished, and with nobody at work.
pub(crate) async fn notifiers_that_are_killed_lose_and_repeat_nothing(place: &impl Place) {
    let kills = kill_again_and_again(place).await;
    assert!(kills >= 10, "it was over after {kills} kills");
    let high = "select cast(destination_id as text), details from operational_events
        where event_type = 'backlog_high'";
    let high = place.texts(high).await;
    let destinations: HashMap<_, _> = high.iter().cloned().collect();
    assert_eq!(
        (high.len(), destinations.len()),
        (HIGH as usize, HIGH as usize)
    );

    let dead = "select cast(destination_id as text), details from operational_events
        where event_type = 'dead_letters'";
    let mut counts: HashMap<String, u32> = HashMap::new();
    for (destination, details) in place.texts(dead).await {
        let count = details.strip_prefix(r#"{"count":"#).unwrap();
        let (count, _) = count.split_once(',').unwrap();
        *counts.entry(destination).or_default() += count.parse::<u32>().unwrap();
    }
    assert_eq!(counts.len(), HIGH as usize);
    assert!(
        counts.values().all(|count| *count == EVENTS - 1),
        "{counts:?}"
    );

    let news = place
        .number("select count(*) from operational_events")
        .await;
    let others = "select count(*) from operational_events
        where event_type not in ('backlog_high', 'dead_letters')";
    assert_eq!(place.number(others).await, 0);
    for told in ["count(*)", "count(distinct event_id)"] {
        let sql = format!("select {told} from attempts where destination_id = '{TOLD}'");
        assert_eq!(place.number(&sql).await, news, "{told}");
    }
}
