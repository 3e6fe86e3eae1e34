use proptest::prelude::*;
use uuid::Uuid;

use super::*;

fn tenant(id: u8) -> TenantId {
    TenantId(Uuid::from_u128(u128::from(id)))
}

fn ask(id: u8, wants: u32) -> Ask {
    Ask {
        tenant: tenant(id),
        wants,
        tenant_max_in_flight: None,
    }
}

fn room(capacity: u32, loads: &[(u8, u32, u32)]) -> Room {
    let loads = loads.iter().map(|(id, outstanding, in_flight)| Load {
        tenant: tenant(*id),
        outstanding: *outstanding,
        in_flight: *in_flight,
    });
    let loads: Vec<Load> = loads.collect();
    Room {
        capacity,
        outstanding: loads.iter().map(|load| load.outstanding).sum(),
        loads,
    }
}

#[test]
fn ten_thousand_destinations_count_as_one() {
    let mut asks = vec![ask(1, 5); 10_000];
    asks.push(ask(2, 200));
    let given = share_between_tenants(&Room::of(100), &asks);
    assert_eq!(given.iter().take(10_000).sum::<u32>(), 50);
    assert_eq!(given[10_000], 50);
}

#[test]
fn what_one_does_not_want_is_the_others() {
    let asks = [ask(1, 500), ask(2, 3)];
    assert_eq!(share_between_tenants(&Room::of(100), &asks), [97, 3]);
    // Nobody else wants any: all of it, in this run and in the next.
    let alone = room(100, &[(1, 60, 100)]);
    assert_eq!(share_between_tenants(&alone, &asks[..1]), [40]);
}

#[test]
fn a_newcomer_gets_its_share_though_there_is_no_room() {
    let full = room(100, &[(1, 100, 50)]);
    let asks = [ask(1, 10), ask(2, 500)];
    assert_eq!(share_between_tenants(&full, &asks), [0, 50]);
    // And the other gets nothing until it is down to its own.
    let drained = room(100, &[(1, 45, 50), (2, 50, 0)]);
    assert_eq!(share_between_tenants(&drained, &asks), [5, 0]);
}

#[test]
fn newcomers_together_get_no_more_than_the_capacity_once_again() {
    let full = room(100, &[(1, 100, 0), (2, 50, 0), (3, 34, 0)]);
    let asks = [ask(4, 100), ask(5, 100)];
    let given = share_between_tenants(&full, &asks);
    assert_eq!(given, [8, 8], "up to 200 in all");
}

#[test]
fn a_tenant_has_no_more_in_flight_than_it_may() {
    let capped = Ask {
        tenant_max_in_flight: Some(30),
        ..ask(1, 20)
    };
    let some = room(100, &[(1, 10, 15)]);
    let given = share_between_tenants(&some, &[capped, capped, ask(2, 20)]);
    assert_eq!(given, [3, 2, 20], "30 less 10 queued and 15 in flight");
    let over = room(100, &[(1, 10, 45)]);
    assert_eq!(share_between_tenants(&over, &[capped]), [0]);
}

#[test]
fn of_more_tenants_than_places_those_that_have_nothing_come_first() {
    let few = room(2, &[(1, 1, 0), (2, 1, 0)]);
    let asks = [ask(1, 5), ask(2, 5), ask(3, 5)];
    assert_eq!(share_between_tenants(&few, &asks), [0, 0, 1]);
    assert_eq!(share_between_tenants(&Room::of(0), &asks), [0, 0, 0]);
}

fn rooms() -> impl Strategy<Value = Room> {
    let load = (0..6_u8, 0..120_u32, 0..120_u32);
    let loads = prop::collection::btree_map(0..6_u8, load, 0..6);
    (0..200_u32, loads).prop_map(|(capacity, loads)| {
        let loads: Vec<_> = (loads.into_iter())
            .map(|(id, (_, outstanding, in_flight))| (id, outstanding, in_flight))
            .collect();
        room(capacity, &loads)
    })
}

fn asks() -> impl Strategy<Value = Vec<Ask>> {
    let caps = prop::collection::vec(prop::option::of(1..150_u32), 6);
    let wants = prop::collection::vec((0..6_u8, prop_oneof![0..4_u32, 0..100_u32]), 0..24);
    (caps, wants).prop_map(|(caps, wants)| {
        let asked = wants.into_iter().map(|(id, wants)| Ask {
            tenant_max_in_flight: caps[usize::from(id)],
            ..ask(id, wants)
        });
        asked.collect()
    })
}

/// What one tenant has, wants within its bound, and is given.
struct Seen {
    outstanding: u32,
    wants: u32,
    given: u32,
}

fn seen(room: &Room, asks: &[Ask], given: &[u32]) -> Vec<Seen> {
    let each = (0..6).map(|id| {
        let of = |load: &&Load| load.tenant == tenant(id);
        let load = room.loads.iter().find(of);
        let (outstanding, in_flight) =
            load.map_or((0, 0), |load| (load.outstanding, load.in_flight));
        let ours = || {
            asks.iter()
                .zip(given)
                .filter(|(ask, _)| ask.tenant == tenant(id))
        };
        let most = ours().find_map(|(ask, _)| ask.tenant_max_in_flight);
        let left = most
            .unwrap_or(u32::MAX)
            .saturating_sub(outstanding + in_flight);
        Seen {
            outstanding,
            wants: ours().map(|(ask, _)| ask.wants).sum::<u32>().min(left),
            given: ours().map(|(_, given)| given).sum(),
        }
    });
    each.collect()
}

proptest! {
    #[test]
    fn nobody_gets_more_than_it_asks_for_or_may_have(room in rooms(), asks in asks()) {
        let given = share_between_tenants(&room, &asks);
        prop_assert!(given.iter().zip(&asks).all(|(given, ask)| *given <= ask.wants));
        for one in seen(&room, &asks, &given) {
            prop_assert!(one.given <= one.wants);
        }
    }

    #[test]
    fn room_that_somebody_wants_is_given(room in rooms(), asks in asks()) {
        let given = share_between_tenants(&room, &asks);
        let wanted: u32 = seen(&room, &asks, &given).iter().map(|one| one.wants).sum();
        prop_assert!(given.iter().sum::<u32>() >= wanted.min(room.left()));
    }

    #[test]
    fn no_more_than_twice_the_capacity_is_outstanding(room in rooms(), asks in asks()) {
        let given: u32 = share_between_tenants(&room, &asks).iter().sum();
        prop_assert!(given == 0 || room.outstanding + given <= 2 * room.capacity);
    }

    /// The promise: whoever has less than an equal part gets up to it, whatever
    /// the others hold, unless twice the capacity is taken.
    #[test]
    fn whoever_has_less_than_its_part_gets_up_to_it(room in rooms(), asks in asks()) {
        let given = share_between_tenants(&room, &asks);
        let all = seen(&room, &asks, &given);
        let active = all.iter().filter(|one| one.outstanding + one.wants > 0).count();
        let total: u32 = given.iter().sum();
        prop_assume!(active > 0 && room.outstanding + total < 2 * room.capacity);
        let part = room.capacity / active as u32;
        for one in &all {
            let lacks = part.saturating_sub(one.outstanding);
            prop_assert!(one.given >= one.wants.min(lacks));
        }
    }

    /// A tenant that has more than another, and more than its part, gets
    /// nothing while the other lacks something.
    #[test]
    fn whoever_has_more_waits_for_whoever_lacks(room in rooms(), asks in asks()) {
        let given = share_between_tenants(&room, &asks);
        let all = seen(&room, &asks, &given);
        for poor in all.iter().filter(|one| one.given < one.wants) {
            for rich in all.iter().filter(|one| one.given > 0) {
                let poors = poor.outstanding + poor.given;
                prop_assert!(rich.outstanding + rich.given <= poors.max(rich.outstanding) + 1
                    || room.outstanding + given.iter().sum::<u32>() >= 2 * room.capacity);
            }
        }
    }

    #[test]
    fn alone_a_tenant_is_shared_between_its_destinations(
        capacity in 0..200_u32,
        wants in prop::collection::vec(0..50_u32, 0..20),
    ) {
        let asks: Vec<Ask> = wants.iter().map(|wants| ask(1, *wants)).collect();
        let given = share_between_tenants(&Room::of(capacity), &asks);
        prop_assert_eq!(given, share(capacity, &wants));
    }
}
