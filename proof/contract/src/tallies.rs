//! What every store must do with what came of requests ([`Tallies`]).
//!
//! [`tallies_contract!`](crate::tallies_contract) turns the suite into tests.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use domain::attempt::OutcomeKind;
use domain::health::{Slot, Tally, Took};
use domain::ids::{DestinationId, WorkerId};
use domain::operations::OperationalType;
use domain::permit::Permit;
use domain::time::Timestamp;

use super::operations::OperationsWorld;
use engine::ports::{
    AlertsChange, DEFAULT_TENANT, NextTry, Outcome, Outcomes, Tallied, Tallies, TallyRules,
    TenantAlertsChange, Told, WatchRules,
};

/// An [`OperationsWorld`], and the tallies of the same store.
pub struct TalliesWorld {
    world: OperationsWorld,
    tallies: Arc<dyn Tallies>,
}

impl Deref for TalliesWorld {
    type Target = OperationsWorld;

    fn deref(&self) -> &OperationsWorld {
        &self.world
    }
}

/// Turns the suite into tests; `$world` is an async function that makes a world.
#[macro_export]
macro_rules! tallies_contract {
    ($world:path) => {
        $crate::tallies_contract!(@all $world:
            requests_are_counted_once_by_what_came_of_them
            what_nobody_knows_is_not_counted_as_delivered
            what_may_still_commit_is_not_passed
            a_day_is_whole_hours_and_the_slots_at_its_edge
            what_started_after_one_that_is_open_waits_for_it
            a_step_counts_so_many_and_the_next_goes_on
            who_has_been_idle_for_long_is_not_looked_at
            a_turn_is_taken_by_one
            owners_are_told_who_fails_and_who_has_recovered
            a_threshold_of_its_own_decides
            a_tenants_requests_are_counted_together
            what_is_old_is_deleted
        );
    };
    (@all $world:path: $($test:ident)+) => {
        $crate::tests_of!($world, $crate::tallies: $($test)+);
    };
}

/// A step whenever it is asked for, of what has just started.
const RULES: TallyRules = TallyRules {
    every: Duration::ZERO,
    pace: Duration::ZERO,
    settled: Duration::ZERO,
    page: 1_000,
    looks: 100,
    starts: 1_000,
    told_after: Duration::ZERO,
    trimmed: 1_000,
};

impl TalliesWorld {
    /// The world of a store, with this port of the same store.
    pub fn new(world: OperationsWorld, tallies: Arc<dyn Tallies>) -> Self {
        Self { world, tallies }
    }

    /// One step, a moment later: what started at the very instant of the step is the
    /// next one's.
    async fn tally(&self, rules: &TallyRules) -> Tallied {
        self.pass(Duration::from_millis(5)).await;
        let tallied = self.tallies.tally(rules).await.unwrap();
        assert!(tallied.stepped, "the turn was ours");
        tallied
    }

    async fn told(&self) -> Vec<OperationalType> {
        let tallied = self.tally(&RULES).await;
        tallied
            .news
            .iter()
            .map(|told| told.news.event_type)
            .collect()
    }

    async fn outcomes(&self, destination: DestinationId) -> Outcomes {
        let found = self.tallies.outcomes(&[destination]).await.unwrap();
        assert_eq!(found.len(), 1);
        found[0]
    }

    async fn open(&self, of: DestinationId, count: usize) -> (WorkerId, Vec<Permit>) {
        let worker = self.worker().await;
        self.accept(of, count).await;
        let permits = self.admit(of).await;
        assert_eq!(permits.len(), count);
        self.start(worker, &permits).await;
        (worker, permits)
    }

    /// Ends what is open with these statuses.
    async fn end(&self, worker: WorkerId, permits: &[Permit], statuses: &[u16]) {
        let outcome = |(permit, status): (&Permit, &u16)| {
            let kind = match status {
                200..300 => OutcomeKind::Succeeded,
                _ => OutcomeKind::Failed,
            };
            Outcome {
                status: Some(*status),
                ..self.outcome(permit, kind, NextTry::None)
            }
        };
        let outcomes: Vec<_> = permits.iter().zip(statuses).map(outcome).collect();
        assert_eq!(outcomes.len(), permits.len());
        let recorded = self.store.record_outcomes(worker, &outcomes).await;
        recorded.unwrap();
    }

    /// One after the other is not needed: it is of the newest answers.
    async fn send(&self, to: DestinationId, statuses: &[u16]) {
        let (worker, permits) = self.open(to, statuses.len()).await;
        self.end(worker, &permits, statuses).await;
    }
}

fn tally_of(succeeded: u64) -> Tally {
    tally(succeeded, 0, 0)
}

fn tally(succeeded: u64, failed: u64, refused: u64) -> Tally {
    Tally {
        succeeded,
        failed,
        refused,
        unknown: 0,
    }
}

/// In the hour, in the day and in slots of both lengths.
pub async fn requests_are_counted_once_by_what_came_of_them(world: &TalliesWorld) {
    let destination = world.destination().unlimited().create().await;
    let other = world.destination().unlimited().create().await;
    world.send(destination, &[204, 204, 200, 500, 503]).await;
    world.send(other, &[204]).await;
    assert_eq!(world.tally(&RULES).await.counted, 6);
    assert_eq!(world.tally(&RULES).await.counted, 0);
    world.send(destination, &[404]).await;
    assert_eq!(world.tally(&RULES).await.counted, 1);
    let found = world.outcomes(destination).await;
    assert_eq!((found.hour, found.day), (tally(3, 3, 0), tally(3, 3, 0)));
    let (at, status) = found.last_failure.unwrap();
    assert_eq!(status, Some(404));
    assert_eq!(
        at,
        world.starts(destination).await.into_iter().max().unwrap()
    );
    for slot in Slot::ALL {
        let since = Timestamp::from_micros(0);
        let slots = world
            .tallies
            .tallied(destination, slot, since)
            .await
            .unwrap();
        let mut sum = Tally::default();
        slots.iter().for_each(|slot| sum += slot.tally);
        assert_eq!(sum, tally(3, 3, 0), "{slot:?}");
        let mut took = Took::default();
        slots.iter().for_each(|slot| took += slot.took);
        assert_eq!(took.answers(), 6, "of both steps: {took:?}");
        let slowest = took.quantile(1.0).unwrap();
        assert!(slowest < Duration::from_secs(60), "{slowest:?}");
        assert!(
            slots
                .iter()
                .all(|one| slot.end_of(at - slot.length()) <= one.ends_at)
        );
        let none = slots.last().unwrap().ends_at;
        let later = world
            .tallies
            .tallied(destination, slot, none)
            .await
            .unwrap();
        assert_eq!(later, []);
    }
    assert_eq!(world.outcomes(other).await.hour, tally(1, 0, 0));
    // A 429 is no failure, and is not what failed last.
    world.send(other, &[429]).await;
    world.tally(&RULES).await;
    let found = world.outcomes(other).await;
    assert_eq!((found.hour, found.last_failure), (tally(1, 0, 1), None));
}

/// Nor as failed: its worker did not send it.
pub async fn what_nobody_knows_is_not_counted_as_delivered(world: &TalliesWorld) {
    let destination = world.destination().unlimited().create().await;
    let (worker, permits) = world.open(destination, 3).await;
    let (not_sent, next) = (OutcomeKind::NotSent, NextTry::Again);
    world.record(worker, &permits[0], not_sent, next).await;
    world.end(worker, &permits[1..], &[204, 500]).await;
    assert_eq!(world.tally(&RULES).await.counted, 3);
    let unknown = Tally {
        unknown: 1,
        ..tally(1, 1, 0)
    };
    let found = world.outcomes(destination).await;
    assert_eq!((found.hour, found.day), (unknown, unknown));
    let since = Timestamp::from_micros(0);
    let slots = world.tallies.tallied(destination, Slot::Day, since).await;
    let answers: u64 = slots.unwrap().iter().map(|slot| slot.took.answers()).sum();
    assert_eq!(answers, 2, "what was not sent took no time");
}

/// A start that commits a moment after its time would be left out for ever.
pub async fn what_may_still_commit_is_not_passed(world: &TalliesWorld) {
    let destination = world.destination().unlimited().create().await;
    let patient = TallyRules {
        settled: Duration::from_secs(600),
        ..RULES
    };
    world.send(destination, &[204]).await;
    assert_eq!(world.tally(&patient).await.counted, 0);
    world.send(destination, &[500]).await;
    assert_eq!(world.tally(&RULES).await.counted, 2);
    assert_eq!(world.outcomes(destination).await.hour, tally(1, 1, 0));
}

/// It is read from both kinds of slots, and says what those of five minutes say.
pub async fn a_day_is_whole_hours_and_the_slots_at_its_edge(world: &TalliesWorld) {
    let destination = world.destination().unlimited().create().await;
    let newest = Slot::Minutes.end_of(world.now().await);
    // Of 26 hours, each with another number of requests.
    let (of, newest_micros) = (destination.to_string(), newest.as_micros());
    let (end, numbers, micros) = match world.is_postgres() {
        true => (
            format!("from_micros({newest_micros} - n * 300000000)"),
            "(select generate_series(0::bigint, 311) as n) numbers",
            "micros(ends_at)",
        ),
        false => (
            format!("{newest_micros} - n * 300000000"),
            "(with recursive numbers (n) as (select 0 union all select n + 1 from numbers \
             where n < 311) select n from numbers)",
            "ends_at",
        ),
    };
    let columns = "destination_id, slot, ends_at, succeeded, failed, refused, unknown";
    let minutes = format!(
        "insert into tallies ({columns})
        select '{of}', 'minutes', {end}, n + 1, n * n, n % 7, n % 3 from {numbers}"
    );
    world.sql(&minutes).await;
    let hour = format!("(({micros} - 1) / 3600000000 + 1) * 3600000000");
    let hour = match world.is_postgres() {
        true => format!("from_micros({hour})"),
        false => hour,
    };
    let hours = format!(
        "insert into tallies ({columns})
        select destination_id, 'hour', {hour}, sum(succeeded), sum(failed), sum(refused),
            sum(unknown)
        from tallies where destination_id = '{of}' and slot = 'minutes' group by 1, 3"
    );
    world.sql(&hours).await;
    let said = async |length: Duration| {
        let since = world.now().await - length;
        let slots = world.tallies.tallied(destination, Slot::Minutes, since);
        let mut sum = Tally::default();
        let slots = slots.await.unwrap();
        slots.iter().for_each(|slot| sum += slot.tally);
        (sum, slots.len())
    };
    let (hour, day) = (Duration::from_secs(3_600), Duration::from_secs(86_400));
    // The next five minutes may begin between two looks.
    loop {
        let before = (said(hour).await, said(day).await);
        let found = world.outcomes(destination).await;
        if before == (said(hour).await, said(day).await) {
            let ((hour, of_hour), (day, of_day)) = before;
            assert!((12..=13).contains(&of_hour) && (288..=289).contains(&of_day));
            assert_eq!((found.hour, found.day), (hour, day));
            return;
        }
    }
}

/// Or it would never be counted.
pub async fn what_started_after_one_that_is_open_waits_for_it(world: &TalliesWorld) {
    let destination = world.destination().unlimited().create().await;
    let (worker, open) = world.open(destination, 1).await;
    world.pass(Duration::from_millis(5)).await;
    world.send(destination, &[204, 204]).await;
    assert_eq!(world.tally(&RULES).await.counted, 0);
    // However long ago it was counted last.
    let aged = match world.is_postgres() {
        true => "update tally_marks set until = until - interval '1 hour'",
        false => "update tally_marks set until = until - 3600000000",
    };
    world.sql(aged).await;
    assert_eq!(world.tally(&RULES).await.counted, 0);
    world.end(worker, &open, &[500]).await;
    assert_eq!(world.tally(&RULES).await.counted, 3);
    assert_eq!(world.outcomes(destination).await.hour, tally(2, 1, 0));
}

/// Of each destination, and of destinations.
pub async fn a_step_counts_so_many_and_the_next_goes_on(world: &TalliesWorld) {
    let first = world.destination().unlimited().create().await;
    let second = world.destination().unlimited().create().await;
    for _ in 0..5 {
        world.send(first, &[204]).await;
        world.pass(Duration::from_millis(2)).await;
    }
    world.send(second, &[204]).await;
    let few = TallyRules {
        starts: 2,
        looks: 1,
        ..RULES
    };
    // A round has a long pause, but not where there is more to count.
    let few = TallyRules {
        every: Duration::from_secs(3_600),
        ..few
    };
    let (mut counted, mut steps) = (0, 0);
    while counted < 6 {
        let step = world.tally(&few).await;
        assert!(step.counted <= 2, "{step:?}");
        counted += step.counted;
        steps += 1;
        assert!(steps < 20, "a round has no end");
    }
    assert_eq!(world.outcomes(first).await.hour, tally(5, 0, 0));
    assert_eq!(world.outcomes(second).await.hour, tally(1, 0, 0));
}

/// One that was not admitted since it was counted costs no look: its ledger is not read.
pub async fn who_has_been_idle_for_long_is_not_looked_at(world: &TalliesWorld) {
    let destination = world.destination().unlimited().create().await;
    world.send(destination, &[204]).await;
    let long_ago = "update pacing set looked_at = null";
    world.sql(long_ago).await;
    assert_eq!(world.tally(&RULES).await.counted, 0);
    world.send(destination, &[204]).await;
    assert_eq!(world.tally(&RULES).await.counted, 2);
}

/// And is not due at once.
pub async fn a_turn_is_taken_by_one(world: &TalliesWorld) {
    let slow = TallyRules {
        every: Duration::from_secs(3_600),
        ..RULES
    };
    let destination = world.destination().unlimited().create().await;
    world.send(destination, &[204; 8]).await;
    world.pass(Duration::from_millis(5)).await;
    let tally = || world.tallies.tally(&slow);
    let together = tokio::join!(tally(), tally(), tally(), tally());
    let together = [together.0, together.1, together.2, together.3].map(Result::unwrap);
    let stepped: Vec<_> = together.iter().filter(|one| one.stepped).collect();
    assert_eq!(stepped.len(), 1, "{together:?}");
    assert_eq!(stepped[0].counted, 8);
    assert_eq!(world.outcomes(destination).await.hour, tally_of(8));
    let next = world.tallies.tally(&RULES).await.unwrap();
    assert_eq!(next, Tallied::default());
}

/// Once each, in the tenant's own news.
pub async fn owners_are_told_who_fails_and_who_has_recovered(world: &TalliesWorld) {
    let destination = world.destination().unlimited().create().await;
    world.send(destination, &[204, 500, 500]).await;
    let patient = TallyRules {
        told_after: Duration::from_secs(3_600),
        ..RULES
    };
    assert_eq!(world.tally(&patient).await.news, []);
    let since = world.book.alerts(DEFAULT_TENANT, destination).await;
    assert!(since.unwrap().failing_since.is_some());
    assert_eq!(world.told().await, [OperationalType::DestinationFailing]);
    assert_eq!(world.told().await, []);
    let news = world
        .book
        .recent_operational_events(Some(DEFAULT_TENANT), None, 10);
    let news = news.await.unwrap();
    assert_eq!(news.len(), 1);
    assert_eq!(news[0].destination, Some(destination));
    let details = r#"{"answered":3,"failed":2,"in_a_row":"#;
    assert!(news[0].details.starts_with(details), "{}", news[0].details);
    world.send(destination, &[204; 3]).await;
    assert_eq!(world.told().await, [], "a third of them failed");
    world.send(destination, &[204; 4]).await;
    assert_eq!(world.told().await, [OperationalType::DestinationRecovered]);
    assert_eq!(world.told().await, []);
    let since = world.book.alerts(DEFAULT_TENANT, destination).await;
    assert_eq!(since.unwrap().failing_since, None);
}

/// 0 is never.
pub async fn a_threshold_of_its_own_decides(world: &TalliesWorld) {
    let destination = world.destination().unlimited().create().await;
    let set = async |percent| {
        let change = AlertsChange {
            failing_percent: Some(percent),
            ..AlertsChange::default()
        };
        let changed = world
            .book
            .change_alerts(DEFAULT_TENANT, destination, &change);
        changed.await.unwrap();
        let health = world.health().health(DEFAULT_TENANT, &[destination]).await;
        health.unwrap()[0].failing_percent
    };
    assert_eq!(set(Some(0)).await, 0);
    world.send(destination, &[204, 204, 204, 500]).await;
    assert_eq!(world.told().await, []);
    assert_eq!(set(Some(25)).await, 25);
    world.send(destination, &[500]).await;
    assert_eq!(world.told().await, [OperationalType::DestinationFailing]);
    assert_eq!(set(None).await, 50);
    world.send(destination, &[204; 4]).await;
    assert_eq!(world.told().await, [OperationalType::DestinationRecovered]);
}

/// Of all its destinations, so that the watch reads a few rows; a 429 is none of them.
pub async fn a_tenants_requests_are_counted_together(world: &TalliesWorld) {
    for statuses in [&[204, 500, 429][..], &[200, 503, 503]] {
        let destination = world.destination().unlimited().create().await;
        world.send(destination, statuses).await;
    }
    world.tally(&RULES).await;
    world.tally(&RULES).await;
    let change = TenantAlertsChange {
        success_least: Some(Some(1)),
        ..TenantAlertsChange::default()
    };
    let changed = world
        .book
        .change_tenant_alerts(DEFAULT_TENANT, &change)
        .await;
    changed.unwrap();
    let watched = world
        .operations
        .watch(&WatchRules::default())
        .await
        .unwrap();
    let low = |told: &&Told| told.news.event_type == OperationalType::SuccessLow;
    let told = watched.news.iter().find(low).unwrap();
    let details = r#"{"threshold":50,"answered":5,"failed":3,"seconds":3600}"#;
    assert_eq!(told.news.details, details);
}

/// What nobody asks for any more.
pub async fn what_is_old_is_deleted(world: &TalliesWorld) {
    let destination = world.destination().unlimited().create().await;
    world.send(destination, &[204]).await;
    world.tally(&RULES).await;
    let aged = match world.is_postgres() {
        true => "update tallies set ends_at = ends_at - interval '2 days'",
        false => "update tallies set ends_at = ends_at - 172800000000",
    };
    world.sql(aged).await;
    world.tally(&RULES).await;
    let left = async |slot| {
        let since = Timestamp::from_micros(0);
        world
            .tallies
            .tallied(destination, slot, since)
            .await
            .unwrap()
            .len()
    };
    assert_eq!(left(Slot::Minutes).await, 0, "kept for a day");
    assert_eq!(left(Slot::Hour).await, 1, "kept for a week");
    assert_eq!(left(Slot::Day).await, 1, "kept for a month");
}
