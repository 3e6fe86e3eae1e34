//! What every store must do for the metrics that are sampled from it
//! ([`Survey`]), and what the loop makes of that.
//!
//! [`survey_contract!`](crate::survey_contract) turns the suite into tests.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use domain::admission::MAX_CLAIM_TO_SEND;
use domain::attempt::OutcomeKind;
use domain::health::{HoldReason, Signal};
use domain::ids::DestinationId;
use domain::watch::{Shortfall, tokens};

use super::operations::OperationsWorld;
use engine::ports::{
    AlertsChange, BreakerChange, DEFAULT_TENANT, Deferral, LedgerRow, NextTry, Outcome, Survey,
    SurveyRules, Surveyed, TroubledTenants, WatchRules,
};
use engine::survey::{Picture, SurveyLoop, SurveyOptions};

/// An [`OperationsWorld`], and the port of this suite on the same store.
pub struct SurveyWorld {
    world: OperationsWorld,
    /// The same store.
    pub survey: Arc<dyn Survey>,
}

impl Deref for SurveyWorld {
    type Target = OperationsWorld;

    fn deref(&self) -> &OperationsWorld {
        &self.world
    }
}

impl SurveyWorld {
    /// The world of a store, with this port of the same store.
    pub fn new(world: OperationsWorld, survey: Arc<dyn Survey>) -> Self {
        Self { world, survey }
    }

    /// A loop that shows the longest so many, and this one.
    pub fn survey_loop(&self, top: usize, asked: DestinationId) -> SurveyLoop {
        let options = SurveyOptions {
            rules: SurveyRules { page: 2, far: 100 },
            top,
            asked: vec![asked],
            ..SurveyOptions::default()
        };
        let (survey, store) = (Arc::clone(&self.survey), Arc::clone(&self.store));
        SurveyLoop::new(survey, store, Arc::clone(&self.catalog), options)
    }

    /// One round a moment later, and how many ticks it took.
    pub async fn round(&self, survey: &mut SurveyLoop) -> (Picture, u32) {
        self.pass(Duration::from_millis(20)).await;
        for ticks in 1..100 {
            if let Some(picture) = survey.tick().await.unwrap() {
                return (picture, ticks);
            }
        }
        panic!("a round has no end");
    }

    async fn standing(&self, destination: DestinationId) -> Surveyed {
        let mut standings = self.survey.survey_standings(&[destination]).await.unwrap();
        assert_eq!(standings.len(), 1);
        standings.remove(0)
    }
}

/// Declares one `#[tokio::test]` for each test of the contract. `$world` is an
/// async function that returns what dereferences to a fresh [`SurveyWorld`].
#[macro_export]
macro_rules! survey_contract {
    ($world:path) => {
        $crate::survey_contract!(@all $world:
            backlogs_are_paged_in_the_order_of_ids
            a_backlog_is_counted_so_far_and_no_further
            retries_are_told_from_first_attempts
            a_standing_is_what_a_run_would_be_decided_from
            a_deferral_is_no_hold_and_a_hold_that_is_over_has_no_reason
            a_deleted_destination_has_no_standing
            open_breakers_and_short_destinations_are_counted
            tenants_in_trouble_are_counted_by_what_was_told
            a_round_sums_all_and_shows_a_few
            what_started_since_the_last_round_has_a_lag
            requests_that_have_ended_say_how_fast_places_come_free
        );
    };
    (@all $world:path: $($test:ident)+) => {
        $crate::tests_of!($world, $crate::survey: $($test)+);
    };
}

const RULES: SurveyRules = SurveyRules { page: 2, far: 100 };

/// Those without one are not on any.
pub async fn backlogs_are_paged_in_the_order_of_ids(world: &SurveyWorld) {
    let idle = world.destination().per_second(9).create().await;
    let mut busy = Vec::new();
    for waiting in [3, 1, 2] {
        let destination = world.destination().per_second(9).create().await;
        world.accept(destination, waiting).await;
        busy.push((destination, u32::try_from(waiting).unwrap()));
    }
    let admitted = world.destination().per_second(9).create().await;
    world.accept(admitted, 1).await;
    assert_eq!(world.admit(admitted).await.len(), 1);
    let (mut found, mut after, mut pages) = (Vec::new(), None, 0);
    loop {
        let page = world.survey.survey_backlogs(after, &RULES).await.unwrap();
        assert!(page.backlogs.len() <= 2, "{page:?}");
        found.extend(page.backlogs);
        pages += 1;
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let of = |id| found.iter().filter(move |one| one.destination == id);
    assert_eq!((of(idle).count(), of(admitted).count()), (0, 0));
    let counts: Vec<_> = (found.iter())
        .map(|one| (one.destination, one.waiting()))
        .collect();
    assert_eq!(counts, busy);
    assert!(pages >= 2, "{pages}");
    assert!(found.iter().all(|one| one.tenant == DEFAULT_TENANT));
}

/// However long it is.
pub async fn a_backlog_is_counted_so_far_and_no_further(world: &SurveyWorld) {
    let destination = world.destination().per_second(9).create().await;
    world.accept(destination, 8).await;
    for (far, counted) in [(5, 5), (8, 8), (9, 8)] {
        let rules = SurveyRules { page: 10, far };
        let page = world.survey.survey_backlogs(None, &rules).await.unwrap();
        assert_eq!((page.backlogs[0].firsts, page.next), (counted, None));
    }
}

/// Those that are not due yet are not waited for.
pub async fn retries_are_told_from_first_attempts(world: &SurveyWorld) {
    let destination = world.destination().per_second(1).create().await;
    world.accept(destination, 1).await;
    let worker = world.worker().await;
    let permits = world.admit(destination).await;
    world.start(worker, &permits).await;
    let later = NextTry::RetryAfter(Duration::from_secs(3_600));
    world
        .record(worker, &permits[0], OutcomeKind::Failed, later)
        .await;
    let page = world.survey.survey_backlogs(None, &RULES).await.unwrap();
    let one = page.backlogs[0];
    assert_eq!((one.firsts, one.others, one.oldest), (0, 1, None));
    let before = world.now().await;
    world.accept(destination, 2).await;
    let page = world.survey.survey_backlogs(None, &RULES).await.unwrap();
    let one = page.backlogs[0];
    assert_eq!((one.firsts, one.others), (2, 1));
    assert!(one.oldest.unwrap() >= before, "{one:?}");
}

/// Limits, what is used of them, and what is left.
pub async fn a_standing_is_what_a_run_would_be_decided_from(world: &SurveyWorld) {
    let destination = world.destination().per_minute(5).create().await;
    world.accept(destination, 2).await;
    let worker = world.worker().await;
    let permits = world.admit(destination).await;
    world.start(worker, &permits).await;
    world.accept(destination, 4).await;
    let standing = world.standing(destination).await;
    assert_eq!(standing.tenant, DEFAULT_TENANT);
    assert_eq!(standing.policy.starts_per_second(), Some(5.0 / 60.0));
    assert_eq!((standing.usage.in_flight, standing.backlog.due), (2, 4));
    let left = tokens(&standing.policy, &standing.usage, world.now().await);
    assert_eq!(left, Some(3.0));
    let pause = format!("update destinations set state = 'paused' where id = '{destination}'");
    world.sql(&pause).await;
    let paused = world.standing(destination).await;
    assert_eq!(paused.policy.starts_per_second(), Some(0.0));
}

/// So that what binds is named.
pub async fn a_deferral_is_no_hold_and_a_hold_that_is_over_has_no_reason(world: &SurveyWorld) {
    let destination = world.destination().per_second(9).create().await;
    world.accept(destination, 3).await;
    let worker = world.worker().await;
    let permits = world.admit(destination).await;
    world.start(worker, &permits[..1]).await;
    let lasts = Duration::from_secs(3_600);
    let deferral = Deferral { destination, lasts };
    world.store.defer(&[deferral]).await.unwrap();
    let usage = world.standing(destination).await.usage;
    assert_eq!(usage.held_until, None);
    assert!(usage.deferred_until > Some(world.now().await));

    let held = Outcome {
        signal: Signal {
            wait: Some(Duration::from_millis(300)),
            ..Signal::default()
        },
        ..world.outcome(&permits[0], OutcomeKind::Failed, NextTry::DeadLetter)
    };
    world.store.record_outcomes(worker, &[held]).await.unwrap();
    let standing = world.standing(destination).await;
    assert_eq!(standing.held_for, Some(HoldReason::Asked));
    world.pass_until(standing.usage.held_until.unwrap()).await;
    world.pass(Duration::from_millis(10)).await;
    assert_eq!(world.standing(destination).await.held_for, None);
}

/// And does not shift the others.
pub async fn a_deleted_destination_has_no_standing(world: &SurveyWorld) {
    let gone = world.destination().unlimited().create().await;
    let there = world.destination().unlimited().create().await;
    let deleted = world.catalog.delete_destination(DEFAULT_TENANT, gone).await;
    deleted.unwrap();
    let asked = [gone, there];
    let standings = world.survey.survey_standings(&asked).await.unwrap();
    let of: Vec<_> = standings.iter().map(|one| one.destination).collect();
    assert_eq!(of, [there]);
}

/// By the reason that operators were told.
pub async fn open_breakers_and_short_destinations_are_counted(world: &SurveyWorld) {
    let none = world.survey.survey_troubles().await.unwrap();
    assert_eq!((none.breakers_open, none.short), (0, Vec::new()));

    // Nobody lives who could send it.
    let short = world.destination().per_minute(10).create().await;
    let change = AlertsChange {
        backlog: Some(Some(0)),
        under_delivery_seconds: Some(Some(1)),
        failing_percent: None,
    };
    let changed = world.book.change_alerts(DEFAULT_TENANT, short, &change);
    changed.await.unwrap();
    world.accept(short, 30).await;
    let rules = WatchRules {
        every: Duration::ZERO,
        pace: Duration::ZERO,
        patience: Duration::ZERO,
        ..WatchRules::default()
    };
    world.operations.watch(&rules).await.unwrap();
    let untold = world.survey.survey_troubles().await.unwrap();
    assert_eq!(untold.short, [], "it has not been short for long");
    world.pass(Duration::from_millis(1_100)).await;
    world.operations.watch(&rules).await.unwrap();
    let told = world.survey.survey_troubles().await.unwrap();
    assert_eq!(told.short, [(Shortfall::Places, 1)]);

    let broken = world.destination().unlimited().create().await;
    let change = BreakerChange {
        failures: Some(Some(1)),
        failing_for_seconds: Some(Some(0)),
        ..BreakerChange::default()
    };
    let changed = (world.health()).change_breaker(DEFAULT_TENANT, broken, &change);
    changed.await.unwrap();
    world.accept(broken, 1).await;
    let worker = world.worker().await;
    let permits = world.admit(broken).await;
    world.start(worker, &permits).await;
    world
        .record(
            worker,
            &permits[0],
            OutcomeKind::Failed,
            NextTry::DeadLetter,
        )
        .await;
    let open = world.survey.survey_troubles().await.unwrap();
    assert_eq!(open.breakers_open, 1);
    assert!(world.standing(broken).await.usage.probing);
}

/// As long as the watch remembers it.
pub async fn tenants_in_trouble_are_counted_by_what_was_told(world: &SurveyWorld) {
    let troubled = async || world.survey.survey_troubles().await.unwrap().tenants;
    assert_eq!(troubled().await, TroubledTenants::default());
    let now = match world.is_postgres() {
        true => "now()",
        false => "1",
    };
    for since in [
        format!("{now}, null, null, {now}"),
        format!("{now}, {now}, null, null"),
        format!("{now}, null, {now}, null"),
    ] {
        let row = format!(
            "insert into tenant_watches (tenant_id, success_low_since, destinations_high_since, \
            backlog_high_since, refused_since) values ('{}', {since})",
            world.id()
        );
        world.sql(&row).await;
    }
    let found = troubled().await;
    let one_each = TroubledTenants {
        success_low: 3,
        destinations_high: 1,
        backlog_high: 1,
        refused: 1,
    };
    assert_eq!(found, one_each);
    let by_type = found
        .by_type()
        .map(|(trouble, tenants)| (trouble.as_str(), tenants));
    let said = [
        ("success_low", 3),
        ("destinations_high", 1),
        ("tenant_backlog_high", 1),
        ("ingest_refused", 1),
    ];
    assert_eq!(by_type, said);
    world
        .sql("update tenant_watches set success_low_since = null")
        .await;
    assert_eq!(troubled().await.success_low, 0);
}

/// The longest, and those that were asked for, each once and in id order.
pub async fn a_round_sums_all_and_shows_a_few(world: &SurveyWorld) {
    let mut busy = Vec::new();
    for waiting in [2, 40, 3] {
        let destination = world.destination().per_second(4).create().await;
        world.accept(destination, waiting).await;
        busy.push(destination);
    }
    let mut survey = world.survey_loop(1, busy[2]);
    let (picture, ticks) = world.round(&mut survey).await;
    assert_eq!(ticks, 2, "two pages");
    assert_eq!(
        (picture.destinations, picture.backlog, picture.others),
        (3, 45, 0)
    );
    let shown: Vec<_> = picture.shown.iter().map(|one| one.destination).collect();
    assert_eq!(
        shown,
        busy[1..],
        "the longest, and the one that was asked for"
    );
    let longest = &picture.shown[0];
    assert_eq!((longest.backlog, longest.in_flight), (40, 0));
    assert_eq!(
        (longest.configured, longest.effective),
        (Some(4.0), Some(4.0))
    );
    assert_eq!(longest.tokens, Some(4.0));
    assert_eq!(longest.drains_in, None, "nobody sends");
    assert_eq!(longest.shortfall, Some(Shortfall::Places), "nobody sends");
    assert_eq!((longest.early_starts, longest.breaker_open), (0, false));
    let asked = &picture.shown[1];
    assert_eq!(asked.backlog, 3);
    assert!(picture.oldest >= asked.oldest && asked.oldest > Duration::ZERO);
}

/// `max_in_flight` is what it is at: it has no limit. One that never was answered says
/// nothing of it.
pub async fn requests_that_have_ended_say_how_fast_places_come_free(world: &SurveyWorld) {
    let narrow = world.destination().unlimited().max_in_flight(2);
    let destination = narrow.create().await;
    world.accept(destination, 102).await;
    let worker = world.worker().await;
    let mut survey = world.survey_loop(1, destination);
    let permits = world.admit(destination).await;
    world.start(worker, &permits).await;
    let (picture, _) = world.round(&mut survey).await;
    assert_eq!(picture.shown[0].drains_in, None, "none has ended");
    world.pass(Duration::from_millis(300)).await;
    world.finish(worker, &permits).await;
    let rows = world.ledger(destination).await;
    let took = |row: &LedgerRow| Some(row.finished_at?.since(row.started_at?));
    let took: Duration = rows.iter().filter_map(took).sum();
    world.beat(worker).await;
    let (picture, _) = world.round(&mut survey).await;
    // Two at once, and of the others one in half the time that one takes.
    let mean = took / 2;
    let expected = mean * 98 / 2;
    let drains = picture.shown[0].drains_in.expect("it is known by now");
    assert_eq!(picture.shown[0].backlog, 100);
    assert!(
        expected.abs_diff(drains) < Duration::from_millis(1),
        "{drains:?} of {expected:?}"
    );
}

/// Each of them once.
pub async fn what_started_since_the_last_round_has_a_lag(world: &SurveyWorld) {
    let destination = world.destination().per_minute(20).create().await;
    let mut survey = world.survey_loop(1, destination);
    world.round(&mut survey).await;
    world.accept(destination, 2).await;
    world.pass(Duration::from_millis(50)).await;
    let worker = world.worker().await;
    let permits = world.admit(destination).await;
    world.start(worker, &permits).await;
    // Until it is known for certain when they were sent.
    world
        .pass(2 * MAX_CLAIM_TO_SEND + Duration::from_millis(50))
        .await;
    let (picture, _) = world.round(&mut survey).await;
    let lags = &picture.shown[0].lags;
    assert_eq!(lags.len(), 2);
    let least = Duration::from_millis(50);
    assert!(lags.iter().all(|lag| *lag >= least), "{lags:?}");
    assert_eq!(picture.fleet.loads[0].in_flight, 2);
    let (picture, _) = world.round(&mut survey).await;
    assert_eq!(picture.shown[0].lags, [], "they have been told of");
    assert_eq!(picture.shown[0].tokens, Some(18.0));
}
