use proptest::prelude::*;
use uuid::Uuid;

use super::*;

fn tenant(number: u8) -> TenantId {
    TenantId(Uuid::from_u128(u128::from(number)))
}

fn destination(number: u8) -> DestinationId {
    DestinationId(Uuid::from_u128(1_000 + u128::from(number)))
}

fn news(about: DestinationId, tenant: TenantId) -> OperationalEvent {
    OperationalEvent {
        id: 7,
        created_at: Timestamp::from_millis(1_700_000_000_000),
        event_type: "breaker_opened".to_owned(),
        destination: Some(about),
        tenant,
        details: r#"{"failures":20}"#.to_owned(),
    }
}

fn one(number: u8, of: u8, scope: OperationalScope) -> OperationalDestination {
    OperationalDestination {
        destination: destination(number),
        tenant: tenant(of),
        scope,
        event_types: Vec::new(),
        position: i64::from(number),
    }
}

#[test]
fn a_tenants_news_go_to_the_tenant_and_to_the_installation() {
    let all = [
        one(1, 1, OperationalScope::Installation),
        one(2, 2, OperationalScope::Tenant),
        one(3, 3, OperationalScope::Tenant),
    ];
    let told: Vec<_> = told(&news(destination(9), tenant(2)), &all)
        .iter()
        .map(|one| one.position)
        .collect();
    assert_eq!(told, [1, 2]);
}

#[test]
fn only_the_types_that_it_wants() {
    let mut only = one(1, 1, OperationalScope::Tenant);
    only.event_types = vec!["dead_letters".to_owned(), "of_a_newer_version".to_owned()];
    assert_eq!(
        told(&news(destination(9), tenant(1)), &[only.clone()]).len(),
        0
    );
    only.event_types.push("breaker_opened".to_owned());
    assert_eq!(told(&news(destination(9), tenant(1)), &[only]).len(), 1);
}

#[test]
fn news_about_one_that_is_told_go_to_those_before_it() {
    let all = [
        one(2, 1, OperationalScope::Tenant),
        one(1, 1, OperationalScope::Tenant),
        one(3, 2, OperationalScope::Installation),
    ];
    let told_of = |number| -> Vec<i64> {
        let news = news(destination(number), all[usize::from(number == 1)].tenant);
        told(&news, &all).iter().map(|one| one.position).collect()
    };
    assert_eq!(told_of(2), [1, 3]);
    assert_eq!(told_of(1), [3]);
    assert_eq!(told(&news(destination(3), tenant(2)), &all).len(), 0);
}

#[test]
fn a_payload_is_a_type_a_time_and_what_happened() {
    let text = payload(&news(destination(1), tenant(1)));
    let said = r#"{"type":"breaker_opened","timestamp":"2023-11-14T22:13:20.000000Z","data":{"operational_event_id":7,"destination_id":"00000000-0000-0000-0000-0000000003e9","tenant_id":"00000000-0000-0000-0000-000000000001","failures":20}}"#;
    assert_eq!(text, said);
    let bare = OperationalEvent {
        details: "{}".to_owned(),
        ..news(destination(1), tenant(1))
    };
    assert!(payload(&bare).ends_with(r#""tenant_id":"00000000-0000-0000-0000-000000000001"}}"#));
    let of_tenant = OperationalEvent {
        destination: None,
        ..news(destination(1), tenant(1))
    };
    assert!(payload(&of_tenant).contains(r#","destination_id":null,"tenant_id":"#));
    let nested = OperationalEvent {
        details: r#"{"of":{"a":{}}}"#.to_owned(),
        ..news(destination(1), tenant(1))
    };
    assert!(payload(&nested).ends_with(r#","of":{"a":{}}}}"#));
}

#[test]
fn news_of_a_tenant_go_to_all_who_are_told_of_it() {
    let all = [
        one(1, 1, OperationalScope::Tenant),
        one(2, 2, OperationalScope::Tenant),
        one(3, 1, OperationalScope::Installation),
    ];
    let event = OperationalEvent {
        destination: None,
        ..news(destination(1), tenant(1))
    };
    let to: Vec<_> = told(&event, &all)
        .iter()
        .map(|one| one.destination)
        .collect();
    assert_eq!(to, [destination(1), destination(3)]);
}

#[test]
fn so_many_news_as_make_so_many_events() {
    let all = [1, 2, 3].map(|number| one(number, 1, OperationalScope::Tenant));
    let news = |number| OperationalEvent {
        id: i64::from(number),
        ..news(destination(number), tenant(1))
    };
    // Three events, none (it is the first of those that are told), and three.
    let news = [news(9), news(1), news(8)];
    let first = |most| {
        let (taken, made) = first_deliveries(&news, &all, most);
        (taken, made.len())
    };
    assert_eq!(first(6), (3, 6));
    assert_eq!(first(5), (2, 3));
    assert_eq!(first(0), (1, 3), "one at least");
    assert_eq!(first_deliveries(&[], &all, 5).0, 0);
}

#[test]
fn words_come_back() {
    for word in OperationalType::ALL {
        assert_eq!(word.as_str().parse(), Ok(word));
        assert_eq!(crate::event::event_type_problem(word.as_str()), None);
    }
    assert!("anything".parse::<OperationalType>().is_err());
}

#[test]
fn times_are_of_the_calendar() {
    let said = |seconds: i64| rfc3339(Timestamp::from_micros(seconds * 1_000_000 + 1));
    assert_eq!(said(0), "1970-01-01T00:00:00.000001Z");
    assert_eq!(said(951_782_400), "2000-02-29T00:00:00.000001Z");
    assert_eq!(said(1_709_251_199), "2024-02-29T23:59:59.000001Z");
    assert_eq!(said(1_709_251_200), "2024-03-01T00:00:00.000001Z");
    assert_eq!(said(4_107_542_399), "2100-02-28T23:59:59.000001Z");
    assert_eq!(said(4_107_542_400), "2100-03-01T00:00:00.000001Z");
    assert_eq!(said(-1), "1969-12-31T23:59:59.000001Z");
}

proptest! {
    /// News about news end: whoever is told comes before the one that the news
    /// are about, so no chain of them comes back.
    #[test]
    fn no_news_go_round(
        all in proptest::collection::vec((1_u8..4, any::<bool>()), 1..8),
        about in 0_usize..8,
    ) {
        let all: Vec<_> = (0_u8..).zip(&all).map(|(number, (of, installation))| {
            let scope = match installation {
                true => OperationalScope::Installation,
                false => OperationalScope::Tenant,
            };
            one(number, *of, scope)
        }).collect();
        let mut reached = vec![all[about % all.len()].clone()];
        let first = reached[0].destination;
        for _ in 0..all.len() {
            reached = reached.iter()
                .flat_map(|about| told(&news(about.destination, about.tenant), &all))
                .cloned()
                .collect();
            prop_assert!(reached.iter().all(|one| one.destination != first));
        }
        prop_assert!(reached.is_empty());
    }

    /// Every delivery has an id of its own.
    #[test]
    fn ids_are_of_the_news_and_whom_they_are_for(
        ids in proptest::collection::hash_set((0_i64..1_000, 0_i64..1_000, 0_u8..9), 2..50),
    ) {
        let events: std::collections::HashSet<_> = ids.iter().map(|(id, at, to)| {
            let event = OperationalEvent {
                id: *id,
                created_at: Timestamp::from_micros(1_700_000_000_000_000 + at),
                ..news(destination(9), tenant(1))
            };
            event_id(&event, destination(*to))
        }).collect();
        prop_assert_eq!(events.len(), ids.len());
    }
}
