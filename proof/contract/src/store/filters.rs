//! Content filters: whom of its subscribers an event goes to.

use bytes::Bytes;
use domain::event::{Audience, Idempotency, MAX_DESTINATIONS, NewEvent};
use domain::filter::{Content, Filter};
use domain::ids::DestinationId;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng};

use super::World;
use engine::ports::{Acceptance, DEFAULT_TENANT, Destination, DestinationChange, NewDestination};

const TYPE: &str = "order.paid";

fn filter(text: &str) -> Filter {
    let filter = Filter::stored(text);
    assert_eq!(filter.problem(), None, "{text}");
    filter
}

async fn subscriber(world: &World, filter: Option<Filter>) -> DestinationId {
    let new = NewDestination {
        filter,
        ..world.destination().event_types(&[TYPE]).build()
    };
    let created = world.catalog.create_destination(DEFAULT_TENANT, &new);
    let created = created.await.unwrap();
    assert_eq!(created.filter, new.filter);
    created.id
}

fn event(world: &World, payload: &str) -> NewEvent {
    NewEvent {
        audience: Audience::Subscribers,
        event_type: Some(TYPE.to_owned()),
        payload: Bytes::from(payload.to_owned()),
        ..world.event(DestinationId(world.id()))
    }
}

/// Where each goes, in the order of ids; in as many steps as the bound of one asks for.
async fn accept(world: &World, events: &[NewEvent]) -> Vec<Vec<DestinationId>> {
    let mut answers = Vec::new();
    while answers.len() < events.len() {
        let rest = &events[answers.len()..];
        answers.extend(world.store.accept_events(rest).await.unwrap());
    }
    let answers = answers.into_iter().map(|answer| {
        let Acceptance::Accepted(mut to) = answer else {
            panic!("expected to be accepted, got {answer:?}")
        };
        to.sort();
        to
    });
    answers.collect()
}

async fn accept_one(world: &World, payload: &str) -> Vec<DestinationId> {
    accept(world, &[event(world, payload)]).await.remove(0)
}

async fn read(world: &World, id: DestinationId) -> Destination {
    let found = world.catalog.destination(DEFAULT_TENANT, id);
    found.await.unwrap()
}

/// Those that ask for nothing, and those whose filters it passes; it waits at no other.
pub async fn an_event_goes_where_filters_take_it(world: &World) {
    let all = subscriber(world, None).await;
    let large = subscriber(world, Some(filter(r#"{"/total": {"gte": 100}}"#))).await;
    let europe = subscriber(world, Some(filter(r#"{"/region": ["eu", "uk"]}"#))).await;
    let real = subscriber(world, Some(filter(r#"{"/test": {"exists": false}}"#))).await;
    let same = subscriber(world, Some(filter(r#"{"/total": {"gte": 100}}"#))).await;
    let events = [
        event(world, r#"{"total": 100, "region": "uk"}"#),
        event(world, r#"{"total": 99.5, "region": "us", "test": true}"#),
        event(world, "no JSON"),
        NewEvent {
            content_type: "text/plain".to_owned(),
            ..event(world, r#"{"total": 100}"#)
        },
    ];
    let to = accept(world, &events).await;
    assert_eq!(to[0], [all, large, europe, real, same]);
    assert_eq!(to[1..], [vec![all], vec![all], vec![all]]);
    for (destination, waiting) in [(all, 4), (large, 1), (europe, 1), (real, 1), (same, 1)] {
        assert_eq!(world.backlog(destination).await, waiting);
    }
}

/// Whoever sends to one destination means it.
pub async fn an_event_that_names_its_destination_passes_its_filter(world: &World) {
    let of = subscriber(world, Some(filter(r#"{"/total": 1}"#))).await;
    let named = NewEvent {
        audience: Audience::Destination(of),
        ..event(world, r#"{"total": 2}"#)
    };
    assert_eq!(accept(world, &[named]).await, [[of]]);
}

/// Where nobody's filter takes it there is nobody.
pub async fn an_event_that_no_filter_takes_is_for_nobody(world: &World) {
    subscriber(world, Some(filter(r#"{"/total": 1}"#))).await;
    let none = event(world, r#"{"total": 2}"#);
    let strict = NewEvent {
        audience: Audience::SomeSubscriber,
        ..event(world, r#"{"total": 2}"#)
    };
    let taken = NewEvent {
        audience: Audience::SomeSubscriber,
        ..event(world, r#"{"total": 1}"#)
    };
    let events = [none, strict, taken];
    let answers = world.store.accept_events(&events).await.unwrap();
    assert_eq!(answers[0], Acceptance::Accepted(Vec::new()));
    assert_eq!(answers[1], Acceptance::NoSubscriber);
    assert_eq!(answers[2].destinations().len(), 1);
    let refused = world.catalog.event(DEFAULT_TENANT, events[1].id).await;
    assert!(refused.is_err(), "nothing was written");
}

/// A repeated request is answered by what became of the first, not by the filter of now.
pub async fn a_repeated_event_goes_where_it_went(world: &World) {
    let of = subscriber(world, Some(filter(r#"{"/total": 1}"#))).await;
    let keyed = || NewEvent {
        idempotency: Some(Idempotency {
            key: "order-1".to_owned(),
            digest: [1; 32],
            kept_for: domain::event::IDEMPOTENCY_KEY_KEPT,
        }),
        ..event(world, r#"{"total": 1}"#)
    };
    let first = keyed();
    assert_eq!(accept(world, std::slice::from_ref(&first)).await, [[of]]);
    change(world, of, Some(filter(r#"{"/total": 2}"#))).await;
    let again = [
        keyed(),
        NewEvent {
            idempotency: None,
            ..first.clone()
        },
    ];
    let answers = world.store.accept_events(&again).await.unwrap();
    let repeated = Acceptance::Repeated {
        event: first.id,
        destinations: vec![of],
    };
    assert_eq!(answers, [repeated, Acceptance::Accepted(vec![of])]);
    assert_eq!(world.backlog(of).await, 1);
}

async fn change(world: &World, id: DestinationId, filter: Option<Filter>) -> Destination {
    let change = DestinationChange {
        filter: Some(filter),
        ..DestinationChange::default()
    };
    let changed = world
        .catalog
        .change_destination(DEFAULT_TENANT, id, &change);
    changed.await.unwrap()
}

/// It is in force for the next event; what is not named stays.
pub async fn a_filter_is_changed_and_removed(world: &World) {
    let of = subscriber(world, None).await;
    let one = filter(r#"{"/total": 1e0, "any": [{"/a": null}, {"/b~1c": {"prefix": "ä\"\\"}}]}"#);
    assert_eq!(
        change(world, of, Some(one.clone())).await.filter.as_ref(),
        Some(&one)
    );
    let other = DestinationChange {
        name: Some("shop".to_owned()),
        ..DestinationChange::default()
    };
    let renamed = world.catalog.change_destination(DEFAULT_TENANT, of, &other);
    assert_eq!(renamed.await.unwrap().filter, Some(one));
    assert!(accept_one(world, r#"{"total": 1}"#).await.is_empty());
    assert_eq!(
        accept_one(world, r#"{"total": 1, "b/c": "ä\"\\x"}"#).await,
        [of]
    );
    assert_eq!(change(world, of, None).await.filter, None);
    assert_eq!(accept_one(world, r#"{"total": 2}"#).await, [of]);
}

/// By SQL as by the API. What is no object is refused; an object that makes no sense takes
/// nothing, and its owner is shown why.
pub async fn a_filter_is_set_by_sql(world: &World) {
    let of = subscriber(world, None).await;
    let set = |filter: &str| format!("update destinations set filter = {filter} where id = '{of}'");
    world.sql(&set(r#"'{"/total": {"gt": 1}}'"#)).await;
    assert!(accept_one(world, r#"{"total": 1}"#).await.is_empty());
    assert_eq!(accept_one(world, r#"{"total": 2}"#).await, [of]);
    for nonsense in ["'[]'", "'1'", "'null'"] {
        let said = world.refused_sql(&set(nonsense)).await;
        assert!(
            said.contains("destinations_check_filter"),
            "{nonsense}: {said}"
        );
    }
    world.refused_sql(&set("'{'")).await;
    let long = format!("'{{\"/a\": \"{}\"}}'", "x".repeat(65_536));
    let said = world.refused_sql(&set(&long)).await;
    assert!(said.contains("destinations_check_filter"), "{said}");
    world.sql(&set(r#"'{"/total": {"gt": true}}'"#)).await;
    let broken = read(world, of).await.filter.unwrap();
    let problem = broken.problem().unwrap();
    assert_eq!(problem.at, r#"["/total"].gt"#);
    assert!(accept_one(world, r#"{"total": 2}"#).await.is_empty());
    world.sql(&set("null")).await;
    assert_eq!(read(world, of).await.filter, None);
    assert_eq!(accept_one(world, r#"{"total": 1}"#).await, [of]);
}

/// The bound of an event is of those that subscribe, for each of their filters is asked.
pub async fn subscribers_count_whatever_their_filters_say(world: &World) {
    for _ in 0..MAX_DESTINATIONS {
        subscriber(world, Some(filter(r#"{"/total": 1}"#))).await;
    }
    assert!(accept_one(world, r#"{"total": 2}"#).await.is_empty());
    subscriber(world, None).await;
    let events = [event(world, r#"{"total": 2}"#)];
    let answers = world.store.accept_events(&events).await.unwrap();
    assert_eq!(answers, [Acceptance::TooManyDestinations]);
}

/// Numbers that a store may write in another way, text that it may escape, and what they
/// are compared with.
const VALUES: [&str; 18] = [
    "0",
    "-0.0",
    "1",
    "1.0",
    "1e5",
    "100000",
    "0.1",
    "1e-7",
    "9007199254740992",
    "9007199254740993",
    "18446744073709551615",
    "1e300",
    "true",
    "null",
    r#""""#,
    r#""ä\u2028\"\\/""#,
    r#""10""#,
    r#""eu-west""#,
];

const NAMES: [(&str, &str); 4] = [("a", "a"), ("b/c", "b~1c"), ("~", "~0"), ("é", "é")];

fn drawn_wanted(random: &mut StdRng) -> String {
    let value = |random: &mut StdRng| *VALUES.choose(random).unwrap();
    let bound = |random: &mut StdRng| loop {
        let value = value(random);
        if value != "true" && value != "null" {
            return value;
        }
    };
    match random.random_range(0..9) {
        0 => value(random).to_owned(),
        1 => format!("[{}, {}]", value(random), value(random)),
        2 => format!(r#"{{"eq": {}}}"#, value(random)),
        3 => format!(r#"{{"not": [{}, {}]}}"#, value(random), value(random)),
        4 => format!(r#"{{"exists": {}}}"#, random.random_bool(0.5)),
        5 => format!(r#"{{"gt": {}, "lte": {}}}"#, bound(random), bound(random)),
        6 => format!(r#"{{"gte": {}}}"#, bound(random)),
        7 => format!(r#"{{"lt": {}, "exists": true}}"#, bound(random)),
        _ => r#"{"prefix": "eu"}"#.to_owned(),
    }
}

fn drawn_filter(random: &mut StdRng, depth: u32) -> String {
    let mut entries: Vec<String> = Vec::new();
    for (_, name) in NAMES {
        if random.random_bool(0.3) {
            entries.push(format!(r#""/{name}": {}"#, drawn_wanted(random)));
        }
    }
    if depth < 2 && random.random_bool(0.4) {
        let one = drawn_filter(random, depth + 1);
        let other = drawn_filter(random, depth + 1);
        entries.push(format!(r#""any": [{one}, {other}]"#));
    }
    format!("{{{}}}", entries.join(", "))
}

fn drawn_payload(random: &mut StdRng) -> String {
    let mut fields: Vec<String> = Vec::new();
    for (name, _) in NAMES {
        if random.random_bool(0.7) {
            fields.push(format!(r#""{name}": {}"#, VALUES.choose(random).unwrap()));
        }
    }
    match random.random_bool(0.9) {
        true => format!("{{{}}}", fields.join(", ")),
        false => fields.join(", "),
    }
}

/// What was written is what is read, and what takes an event before takes it after.
pub async fn filters_in_the_store_say_what_they_say_outside(world: &World) {
    let mut random = StdRng::seed_from_u64(41);
    let mut subscribers = Vec::new();
    for _ in 0..60 {
        let filter = filter(&drawn_filter(&mut random, 0));
        subscribers.push((subscriber(world, Some(filter.clone())).await, filter));
    }
    let events: Vec<NewEvent> = (0..30)
        .map(|_| event(world, &drawn_payload(&mut random)))
        .collect();
    let (mut taken, mut left) = (0, 0);
    for (event, to) in events.iter().zip(accept(world, &events).await) {
        let content = Content::of(&event.content_type, &event.payload);
        let expected: Vec<DestinationId> = (subscribers.iter())
            .filter(|(_, filter)| filter.takes(&content))
            .map(|(id, _)| *id)
            .collect();
        assert_eq!(to, expected, "{:?}", event.payload);
        taken += to.len();
        left += subscribers.len() - to.len();
    }
    assert!(taken > 100 && left > 100, "{taken} and {left}");
}
