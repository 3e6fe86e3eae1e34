//! One case on a store: destinations and workers, then batches at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use domain::handshake::Handshake;
use domain::ids::{DestinationId, WorkerId};
use domain::policy::LimitSettings;
use engine::ports::{DEFAULT_TENANT, Heartbeat, NewDestination};
use proptest::prelude::{Strategy, prop};

use super::calls::{Answer, Call, Drawn, Driver, ask, calls, limits, meetings};
use super::known::Known;
use crate::bridge::linear::{Called, Order};

/// A batch: how much time passes before it where the clock is ours, and each
/// call with the connection that makes it.
#[derive(Debug, Clone)]
pub(crate) struct Batch {
    pub(crate) pause: Duration,
    pub(crate) calls: Vec<(usize, Drawn)>,
}

/// What is drawn of a case.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) connections: usize,
    pub(crate) limits: Vec<LimitSettings>,
    pub(crate) batches: Vec<Batch>,
}

/// Cases of up to `count` batches of up to `size` calls.
pub(crate) fn plans(
    connections: std::ops::RangeInclusive<usize>,
    size: usize,
    count: usize,
) -> impl Strategy<Value = Plan> {
    connections.prop_flat_map(move |connections| {
        let pause = proptest::prop_oneof![
            12 => 0..120_000_u64,
            1 => 0..4_000_000_u64,
        ];
        let any = prop::collection::vec((0..connections, calls()), 1..=size);
        let meeting = meetings(size).prop_map(move |calls| {
            let each = calls.into_iter().enumerate();
            each.map(|(number, call)| (number % connections, call))
                .collect()
        });
        let calls = proptest::prop_oneof![2 => any, 1 => meeting];
        let batch = (pause, calls).prop_map(|(pause, calls)| Batch {
            pause: Duration::from_micros(pause),
            calls,
        });
        let limits = prop::collection::vec(limits(), 3);
        let batches = prop::collection::vec(batch, count / 2..=count);
        (limits, batches).prop_map(move |(limits, batches)| Plan {
            connections,
            limits,
            batches,
        })
    })
}

/// Two workers and the destinations of a plan, the same in every store;
/// `before` is called before each step.
pub(crate) async fn furnish(
    driver: &(impl Driver + ?Sized),
    known: &mut Known,
    limits: &[LimitSettings],
    before: impl Fn(),
) {
    for limits in limits {
        let new = NewDestination {
            external_id: None,
            id: DestinationId(known.id()),
            name: String::new(),
            url: "https://receiver.example/".to_owned(),
            event_types: Vec::new(),
            filter: None,
            limits: *limits,
            pass_traceparent: false,
            handshake: Handshake::None,
            limit_group: None,
        };
        before();
        let created = driver
            .catalog()
            .create_destination(DEFAULT_TENANT, &new)
            .await;
        created.unwrap();
        known.destinations.push(new.id);
    }
    for _ in 0..2 {
        let worker = WorkerId(known.id());
        let heartbeat = Heartbeat { worker, places: 50 };
        before();
        driver.store().heartbeat(&heartbeat).await.unwrap();
        known.workers.push(worker);
    }
}

/// Makes a batch's calls, each connection its own one after the other.
pub(crate) async fn at_once(
    driver: &Arc<dyn Driver>,
    calls: Vec<(usize, Call)>,
) -> Vec<Called<Call, Answer>> {
    let order = Arc::new(Order::default());
    let mut of_each: BTreeMap<usize, Vec<Call>> = BTreeMap::new();
    for (by, call) in calls {
        of_each.entry(by).or_default().push(call);
    }
    let begin = Arc::new(tokio::sync::Barrier::new(of_each.len()));
    let mut tasks = tokio::task::JoinSet::new();
    for (_, calls) in of_each {
        let (driver, order, begin) = (driver.clone(), order.clone(), begin.clone());
        tasks.spawn(async move {
            let mut called = Vec::new();
            begin.wait().await;
            for call in calls {
                let ask = async |call: &Call| ask(&*driver, call).await;
                called.push(order.note(call, ask).await);
            }
            called
        });
    }
    tasks.join_all().await.into_iter().flatten().collect()
}
