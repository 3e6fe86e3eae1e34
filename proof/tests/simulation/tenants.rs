//! A greedy tenant beside a small one, on workers whose places are short: the
//! real engine on the shipped store and on models, in virtual time.
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use domain::event::{Audience, NewEvent, Timing};
use domain::handshake::Handshake;
use domain::ids::{DestinationId, EventId, TenantId};
use domain::policy::LimitSettings;
use domain::time::Timestamp;
use engine::ports::{
    Catalog as _, DEFAULT_TENANT, DeliveryQueue, MIN_DELIVERIES, NewDestination, NewTenant,
    Request, Schedule, Sender, Store, Target, TenantChange, Tenants as _, Wake,
};
use engine::reaper::{Reaper, ReaperOptions};
use engine::scheduler::{Scheduler, SchedulerOptions};
use engine::sweep::{SweepLoop, SweepOptions};
use engine::worker::{Worker, WorkerOptions};
use simulation::model::{Connecting, ModelQueue, ModelSender, Reaction, Receivers};
use simulation::{SimulatedSchedule, SimulatedStore};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const BEGAN: Timestamp = Timestamp::from_millis(1_760_000_000_000);
const SMALL: TenantId = TenantId(Uuid::from_u128(7));

/// The fewest that a worker has.
const PLACES: u32 = 16;

/// How long every receiver takes: 160 starts a second fill the places.
const ANSWER: Duration = Duration::from_millis(100);

/// The greedy tenant's destinations.
const MANY: u128 = 300;

/// The small tenant's only one.
const SINGLE: DestinationId = DestinationId(Uuid::from_u128(1_000_000));

struct Slow;

impl Receivers for Slow {
    fn connect(&mut self, _: &Target) -> Connecting {
        Connecting::Ready(Duration::from_millis(1))
    }

    fn react(&mut self, _: DestinationId, _: &Request) -> Reaction {
        Reaction::answers(200, ANSWER)
    }
}

struct World {
    store: Arc<SimulatedStore>,
    schedule: Arc<SimulatedSchedule>,
    sender: Arc<ModelSender>,
    events: u128,
    _loops: JoinSet<()>,
}

impl World {
    async fn new(schedulers: u32) -> Self {
        let store = Arc::new(SimulatedStore::new(BEGAN, Duration::ZERO).unwrap());
        let small = NewTenant {
            external_id: None,
            id: SMALL,
            name: String::new(),
            tier: "enterprise".to_owned(),
            max_in_flight: None,
            ingest_per_second: None,
        };
        store.shipped().create_tenant(&small).await.unwrap();
        let schedule = Arc::new(SimulatedSchedule::new("schedule", BEGAN));
        let queue = Arc::new(ModelQueue::new(10_000));
        let sender = Arc::new(ModelSender::new(Slow));
        let mut loops = JoinSet::new();
        let stop = CancellationToken::new;
        let of_store = || store.clone() as Arc<dyn Store>;
        let of_schedule = || schedule.clone() as Arc<dyn Schedule>;
        let of_queue = || queue.clone() as Arc<dyn DeliveryQueue>;
        for _ in 0..schedulers {
            let options = SchedulerOptions::default();
            let scheduler = Scheduler::new(of_store(), of_schedule(), of_queue(), options);
            loops.spawn(scheduler.run(stop()));
        }
        let reaper = Reaper::new(of_store(), of_schedule(), ReaperOptions::default());
        loops.spawn(reaper.run(stop()));
        let sweep = SweepLoop::new(of_store(), of_schedule(), SweepOptions::default());
        loops.spawn(sweep.run(stop()));
        let options = WorkerOptions {
            places: PLACES,
            ..WorkerOptions::default()
        };
        let of_sender = sender.clone() as Arc<dyn Sender>;
        let worker = Worker::new(of_store(), of_schedule(), of_queue(), of_sender, options);
        loops.spawn(worker.run(stop()));
        sleep(Duration::from_millis(100)).await;
        let world = Self {
            store,
            schedule,
            sender,
            events: 0,
            _loops: loops,
        };
        world.destination(SMALL, SINGLE).await;
        world
    }

    async fn destination(&self, tenant: TenantId, id: DestinationId) {
        let new = NewDestination {
            external_id: None,
            id,
            name: String::new(),
            url: "https://receiver.example/".to_owned(),
            event_types: Vec::new(),
            filter: None,
            limits: LimitSettings {
                unlimited: true,
                ..LimitSettings::default()
            },
            pass_traceparent: false,
            handshake: Handshake::None,
            limit_group: None,
        };
        let created = self.store.shipped().create_destination(tenant, &new);
        created.await.unwrap();
    }

    /// As ingest does it: written, then woken.
    async fn accept(&mut self, tenant: TenantId, to: DestinationId, count: u32) -> Vec<EventId> {
        let mut events = Vec::new();
        for _ in 0..count {
            self.events += 1;
            events.push(NewEvent {
                id: EventId(Uuid::from_u128(self.events)),
                tenant,
                audience: Audience::Destination(to),
                event_type: None,
                content_type: "text/plain".to_owned(),
                payload: Bytes::new(),
                idempotency: None,
                trace: None,
                timing: Timing::default(),
            });
        }
        for batch in events.chunks(MIN_DELIVERIES) {
            self.store.accept_events(batch).await.unwrap();
        }
        self.schedule.wake(&[Wake::now(to)]).await.unwrap();
        events.iter().map(|event| event.id).collect()
    }

    /// Far more than the places can take in the time of a test.
    async fn flood_by_many(&mut self) {
        for number in 1..=MANY {
            let id = DestinationId(Uuid::from_u128(number));
            self.destination(DEFAULT_TENANT, id).await;
            self.accept(DEFAULT_TENANT, id, 30).await;
        }
        // Until they have taken all the room there is.
        sleep(Duration::from_secs(3)).await;
        let _ = self.sender.take_received();
    }

    /// The requests of so long: the small tenant's, and all.
    async fn requests_of(&self, time: Duration) -> (usize, usize) {
        sleep(time).await;
        let received = self.sender.take_received();
        let single = received.iter().filter(|one| one.destination == SINGLE);
        (single.count(), received.len())
    }
}

/// Half of the places that a line forms for, for one destination of one tenant and for three
/// hundred of another: of all, with the quarter more that is set aside for destinations with
/// nothing in flight, of which the one is none, that is two fifths at the least.
#[tokio::test(start_paused = true)]
async fn a_small_tenant_has_its_share_beside_a_greedy_one() {
    for schedulers in [1, 3] {
        let mut world = World::new(schedulers).await;
        world.flood_by_many().await;
        world.accept(SMALL, SINGLE, 3_000).await;
        // From the first second on: a share is not to be waited for.
        let (single, all) = world.requests_of(Duration::from_secs(1)).await;
        assert!(single * 100 >= all * 25, "{single} of {all} at first");
        let (single, all) = world.requests_of(Duration::from_secs(8)).await;
        assert!(all >= 1_200, "the places are used: {all} of 1,280");
        let percent = single * 100 / all;
        assert!((40..=55).contains(&percent), "{single} of {all}");
    }
}

/// What the small one leaves is the greedy one's.
#[tokio::test(start_paused = true)]
async fn what_a_tenant_does_not_want_is_used_by_the_others() {
    let mut world = World::new(1).await;
    world.flood_by_many().await;
    let (single, all) = world.requests_of(Duration::from_secs(5)).await;
    assert_eq!(single, 0);
    assert!(all >= 750, "alone it has all places: {all} of 800");
}

/// One event now and then: its permit is given at its first look, and waits for
/// its turn behind what was queued before it, two permits for each place.
#[tokio::test(start_paused = true)]
async fn a_small_tenants_event_waits_for_a_bounded_time() {
    let mut world = World::new(2).await;
    world.flood_by_many().await;
    for _ in 0..40 {
        let began = Instant::now();
        let event = world.accept(SMALL, SINGLE, 1).await[0];
        let waited = loop {
            sleep(Duration::from_millis(1)).await;
            let received = world.sender.take_received();
            if let Some(one) = received.iter().find(|one| one.event == event) {
                break one.at - began;
            }
            assert!(began.elapsed() < Duration::from_secs(5), "it is starved");
        };
        // The queue before it is two permits a place, and one is in each.
        let bound = ANSWER * 3 + Duration::from_millis(100);
        assert!(waited <= bound, "{waited:?}");
        sleep(Duration::from_millis(137)).await;
    }
}

/// Queued and in flight, over all its destinations, at every instant.
#[tokio::test(start_paused = true)]
async fn a_tenants_max_in_flight_is_kept() {
    let mut world = World::new(1).await;
    let bound = TenantChange {
        max_in_flight: Some(Some(6)),
        ..TenantChange::default()
    };
    let tenants = world.store.shipped();
    tenants.change_tenant(DEFAULT_TENANT, &bound).await.unwrap();
    world.flood_by_many().await;
    let mut most = 0;
    for _ in 0..2_000 {
        sleep(Duration::from_millis(2)).await;
        let fleet = world.store.fleet().await.unwrap();
        let load = fleet
            .loads
            .iter()
            .find(|load| load.tenant == DEFAULT_TENANT);
        most = most.max(load.map_or(0, |load| load.outstanding + load.in_flight));
    }
    assert_eq!(most, 6);
}
