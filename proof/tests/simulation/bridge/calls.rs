//! The calls of a store, as they are drawn and as they are made.

use std::time::Duration;

use adapters::postgres::PostgresStore;
use adapters::sqlite::SqliteStore;
use domain::destination::DestinationState;
use domain::event::NewEvent;
use domain::ids::{DestinationId, WorkerId};
use domain::permit::Permit;
use domain::policy::LimitSettings;
use domain::share::Room;
use domain::time::Timestamp;
use engine::ports::{
    Acceptance, Admitted, Catalog, Claims, DEFAULT_TENANT, DestinationChange, Fleet, Heartbeat,
    Outcome, ReapRules, Reaped, Recorded, Run, Store, Sweep, SweepPage, Wake,
};
use prop::sample::{Index, select};
use proptest::prelude::{Just, Strategy, any, prop};
use simulation::SimulatedStore;

/// A store, as its callers and its users have it.
pub(crate) trait Driver: Send + Sync {
    fn store(&self) -> &dyn Store;
    fn catalog(&self) -> &dyn Catalog;
}

impl Driver for PostgresStore {
    fn store(&self) -> &dyn Store {
        self
    }

    fn catalog(&self) -> &dyn Catalog {
        self
    }
}

impl Driver for SqliteStore {
    fn store(&self) -> &dyn Store {
        self
    }

    fn catalog(&self) -> &dyn Catalog {
        self
    }
}

impl Driver for SimulatedStore {
    fn store(&self) -> &dyn Store {
        self
    }

    fn catalog(&self) -> &dyn Catalog {
        self.shipped()
    }
}

/// A call as it is drawn: what it is about are places in lists of what there
/// is by then.
#[derive(Debug, Clone)]
pub(crate) enum Drawn {
    Accept(Vec<(Index, bool)>),
    Admit { runs: Vec<(Index, bool)>, room: u32 },
    Claim { worker: Index, permits: Vec<Index> },
    Release(Vec<Index>),
    Record(Vec<(Index, usize)>),
    Reap { unknown: bool, expired: bool },
    Sweep { everything: bool },
    Beat { worker: Index, places: u32 },
    Fleet,
    Limits(Index, LimitSettings),
    State(Index, DestinationState),
    Delete(Index),
}

/// A call as it is made.
#[derive(Debug, Clone)]
#[expect(
    clippy::large_enum_variant,
    reason = "a test holds a few hundred of them"
)]
pub(crate) enum Call {
    Accept(Vec<NewEvent>),
    Admit(Vec<Run>, u32),
    Claim(WorkerId, Vec<Permit>),
    Release(Vec<Permit>),
    Record(WorkerId, Vec<Outcome>),
    Reap(ReapRules),
    Sweep(Sweep),
    Beat(Heartbeat),
    Fleet,
    Change(DestinationId, DestinationChange),
    Delete(DestinationId),
}

/// What it answered; what went wrong in words.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Answer {
    Accepted(Vec<Acceptance>),
    Admitted(Admitted),
    Claims(Claims),
    Woken(Vec<Wake>),
    Recorded(Recorded),
    Reaped(Reaped),
    Swept(SweepPage),
    Beaten(Timestamp),
    Fleet(Fleet),
    /// Its limits and state then are in the rows.
    Changed,
    Deleted,
    Failed(String),
}

/// Limits that start much at once, and such that bind.
pub(crate) fn limits() -> impl Strategy<Value = LimitSettings> {
    let per_second = select(vec![None, Some(0), Some(3), Some(40), Some(400), Some(400)]);
    let per_minute = select(vec![None, None, Some(20), Some(300)]);
    let in_flight = select(vec![None, None, None, Some(3)]);
    (per_second, per_minute, in_flight).prop_map(|(per_second, per_minute, max_in_flight)| {
        LimitSettings {
            per_second,
            per_minute,
            max_in_flight,
            unlimited: per_second.is_none() && per_minute.is_none(),
            ..LimitSettings::default()
        }
    })
}

fn some<T: std::fmt::Debug>(of: impl Strategy<Value = T>) -> impl Strategy<Value = Vec<T>> {
    prop::collection::vec(of, 1..6)
}

/// Any call.
pub(crate) fn calls() -> impl Strategy<Value = Drawn> {
    let one = any::<Index>;
    let rarely = || prop::bool::weighted(0.15);
    let states = [
        DestinationState::Active,
        DestinationState::Active,
        DestinationState::Paused,
    ];
    proptest::prop_oneof![
        5 => some((one(), rarely())).prop_map(Drawn::Accept),
        8 => (some((one(), rarely())), select(vec![4, 1_000]))
            .prop_map(|(runs, room)| Drawn::Admit { runs, room }),
        9 => (one(), some(one())).prop_map(|(worker, permits)| Drawn::Claim { worker, permits }),
        1 => some(one()).prop_map(Drawn::Release),
        6 => some((one(), 0..8_usize)).prop_map(Drawn::Record),
        2 => (rarely(), any::<bool>()).prop_map(|(unknown, expired)| Drawn::Reap { unknown, expired }),
        1 => any::<bool>().prop_map(|everything| Drawn::Sweep { everything }),
        2 => (one(), select(vec![50, 50, 50, 50, 50, 50, 0]))
            .prop_map(|(worker, places)| Drawn::Beat { worker, places }),
        1 => Just(Drawn::Fleet),
        1 => (one(), limits()).prop_map(|(which, limits)| Drawn::Limits(which, limits)),
        1 => (one(), select(states.to_vec())).prop_map(|(which, state)| Drawn::State(which, state)),
        1 => prop::strategy::Union::new_weighted(vec![
            (4, Just(None).boxed()),
            (1, one().prop_map(Some).boxed()),
        ])
        .prop_map(|which| which.map_or(Drawn::Sweep { everything: true }, Drawn::Delete)),
    ]
}

/// Up to `size` calls that want the same rows: runs, what becomes of permits,
/// what becomes of starts.
pub(crate) fn meetings(size: usize) -> impl Strategy<Value = Vec<Drawn>> {
    let one = any::<Index>;
    let runs = (
        prop::collection::vec((one(), Just(false)), 1..3),
        Just(1_000),
    )
        .prop_map(|(runs, room)| Drawn::Admit { runs, room });
    let claims =
        (one(), some(one())).prop_map(|(worker, permits)| Drawn::Claim { worker, permits });
    let expiry = Just(Drawn::Reap {
        unknown: false,
        expired: true,
    });
    let of_permits = proptest::prop_oneof![
        5 => claims,
        2 => some(one()).prop_map(Drawn::Release),
        1 => expiry,
        1 => (one(), limits()).prop_map(|(which, limits)| Drawn::Limits(which, limits)),
    ];
    let giving_up = Just(Drawn::Reap {
        unknown: true,
        expired: false,
    });
    let of_starts = proptest::prop_oneof![
        3 => some((one(), 0..8_usize)).prop_map(Drawn::Record),
        1 => giving_up,
    ];
    let size = 2..=size.max(2);
    proptest::prop_oneof![
        prop::collection::vec(runs, size.clone()),
        prop::collection::vec(of_permits, size.clone()),
        prop::collection::vec(of_starts, size),
    ]
}

/// Makes a call.
pub(crate) async fn ask(driver: &(impl Driver + ?Sized), call: &Call) -> Answer {
    let tenant = DEFAULT_TENANT;
    let (store, catalog) = (driver.store(), driver.catalog());
    let failed = |error: &dyn std::fmt::Display| Answer::Failed(error.to_string());
    macro_rules! answer {
        ($call:expr, $of:expr) => {
            $call.await.map_or_else(|error| failed(&error), $of)
        };
    }
    match call {
        Call::Accept(events) => answer!(store.accept_events(events), Answer::Accepted),
        Call::Admit(runs, room) => answer!(store.admit(runs, &Room::of(*room)), Answer::Admitted),
        // How long it waited to be composed is the machine's, and no answer.
        Call::Claim(by, permits) => answer!(store.claim_starts(*by, permits), |claims| {
            Answer::Claims(Claims {
                composed_for: Duration::ZERO,
                ..claims
            })
        }),
        Call::Release(permits) => answer!(store.release_permits(permits), Answer::Woken),
        Call::Record(by, outcomes) => {
            answer!(store.record_outcomes(*by, outcomes), Answer::Recorded)
        }
        Call::Reap(rules) => answer!(store.reap(rules, 1_000), Answer::Reaped),
        Call::Sweep(sweep) => answer!(store.sweep(sweep), Answer::Swept),
        Call::Beat(heartbeat) => answer!(store.heartbeat(heartbeat), Answer::Beaten),
        Call::Fleet => answer!(store.fleet(), Answer::Fleet),
        Call::Change(id, change) => {
            answer!(catalog.change_destination(tenant, *id, change), |_| {
                Answer::Changed
            })
        }
        Call::Delete(id) => {
            answer!(catalog.delete_destination(tenant, *id), |()| {
                Answer::Deleted
            })
        }
    }
}
