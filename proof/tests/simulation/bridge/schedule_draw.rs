//! Drawn batches of takes, finishes and wakes.

use std::time::Duration;

use domain::ids::DestinationId;
use engine::ports::{NextRun, Wake};
use proptest::prelude::{Just, Strategy, any, prop};
use uuid::Uuid;

const HOUR: Duration = Duration::from_secs(3_600);

/// Few, so that calls meet at the same one.
const DESTINATIONS: u128 = 4;

/// The most calls in one batch.
const BATCH: usize = 6;

const BATCHES: usize = 12;

/// A call as it is drawn: tokens are places in the list of those seen so far.
#[derive(Debug, Clone)]
pub(crate) enum Drawn {
    Take { max: usize, lease: Duration },
    Finish(Vec<(prop::sample::Index, NextRun)>),
    Wake(Vec<Wake>),
}

fn delays() -> impl Strategy<Value = Duration> {
    prop::sample::select(vec![Duration::ZERO, HOUR])
}

fn calls() -> impl Strategy<Value = Drawn> {
    let take = (1..=6_usize, prop::bool::weighted(0.8)).prop_map(|(max, lasts)| Drawn::Take {
        max,
        lease: if lasts { HOUR } else { Duration::ZERO },
    });
    let next = proptest::prop_oneof![
        2 => Just(NextRun::Remove),
        3 => (delays(), prop::option::of(delays()))
            .prop_map(|(delay, floor)| NextRun::After { delay, floor }),
    ];
    let finish = prop::collection::vec((any::<prop::sample::Index>(), next), 1..4);
    let wake = (0..DESTINATIONS, delays(), prop::bool::weighted(0.3));
    let wake = wake.prop_map(|(number, after, clear_floor)| Wake {
        destination: DestinationId(Uuid::from_u128(number)),
        after,
        clear_floor,
    });
    let wake = prop::collection::vec(wake, 1..4);
    proptest::prop_oneof![
        3 => take,
        3 => finish.prop_map(Drawn::Finish),
        4 => wake.prop_map(Drawn::Wake),
    ]
}

/// Batches: each call with the connection that makes it.
pub(crate) fn batches(connections: usize) -> impl Strategy<Value = Vec<Vec<(usize, Drawn)>>> {
    let most = if connections == 1 { 1 } else { BATCH };
    let batch = prop::collection::vec((0..connections, calls()), 1..=most);
    let count = BATCHES * BATCH / most;
    prop::collection::vec(batch, 1..=count)
}
