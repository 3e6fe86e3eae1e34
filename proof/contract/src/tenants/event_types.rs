//! The catalogue of event types, and the rules that come with a payload.

use bytes::Bytes;
use domain::event::NewEvent;
use domain::event_types::{EventType, MAX_TYPES};
use domain::redaction::Shown;
use engine::ports::{CatalogError, DEFAULT_TENANT, EventTypeChange, Payload, WantedEventTypes};

use super::{TenantWorld, not_found, refuses};

const CARD: &str = r#"{"card": "4711", "of":"Ada"}"#;

fn of_name(name: &str) -> EventType {
    EventType {
        name: name.to_owned(),
        description: String::new(),
        schema: None,
        example: None,
        redact: Vec::new(),
        archived: false,
    }
}

async fn created(world: &TenantWorld, new: &EventType) {
    world.event_types.create_event_type(new).await.unwrap();
}

async fn names(world: &TenantWorld, wanted: &WantedEventTypes) -> Vec<String> {
    let found = world.event_types.event_types(wanted).await.unwrap();
    found.into_iter().map(|one| one.name).collect()
}

/// All of it, schema and example to the byte.
pub async fn a_type_is_read_as_it_was_said(world: &TenantWorld) {
    let new = EventType {
        description: "Paid,\n'at last' \u{e9}".to_owned(),
        schema: Some("{ \"type\":  \"object\", \"b\": 1.50,\n\"a\": \"\\u0000\"}".to_owned()),
        example: Some(" [1.0]".to_owned()),
        redact: vec![
            "/card".to_owned(),
            String::new(),
            "/a~1b/*/\u{e9}".to_owned(),
        ],
        archived: true,
        ..of_name("order/paid:1")
    };
    created(world, &new).await;
    let catalogue = &world.event_types;
    assert_eq!(catalogue.event_type(&new.name).await.unwrap(), new);
    refuses(
        catalogue.create_event_type(&of_name(&new.name)).await,
        "name",
    );
    assert_eq!(catalogue.event_type(&new.name).await.unwrap(), new);
    not_found(catalogue.event_type("order").await);
    // With its rules, its payloads would be shown whole again.
    let refused = catalogue.delete_event_type(&new.name).await;
    assert!(
        matches!(refused, Err(CatalogError::Conflict(_))),
        "{refused:?}"
    );
    assert_eq!(catalogue.event_type(&new.name).await.unwrap(), new);
    let shown = EventTypeChange {
        redact: Some(Vec::new()),
        ..EventTypeChange::default()
    };
    catalogue
        .change_event_type(&new.name, &shown)
        .await
        .unwrap();
    catalogue.delete_event_type(&new.name).await.unwrap();
    not_found(catalogue.event_type(&new.name).await);
    not_found(catalogue.delete_event_type(&new.name).await);
    let none = EventTypeChange::default();
    not_found(catalogue.change_event_type(&new.name, &none).await);
}

/// What is not named stays; what can be taken away is.
pub async fn a_change_of_a_type_leaves_the_rest_alone(world: &TenantWorld) {
    let text = |text: &str| Some(text.to_owned());
    let mut expected = EventType {
        description: "Paid".to_owned(),
        schema: text("{}"),
        example: text("1"),
        redact: vec!["/card".to_owned()],
        ..of_name("order.paid")
    };
    created(world, &expected).await;
    created(world, &of_name("order.sent")).await;
    let change = async |change: EventTypeChange| {
        let changed = world
            .event_types
            .change_event_type("order.paid", &change)
            .await;
        changed.unwrap()
    };
    assert_eq!(change(EventTypeChange::default()).await, expected);
    expected.archived = true;
    expected.schema = None;
    let archived = EventTypeChange {
        archived: Some(true),
        schema: Some(None),
        ..EventTypeChange::default()
    };
    assert_eq!(change(archived).await, expected);
    expected.description = String::new();
    expected.redact = Vec::new();
    expected.example = text("[2]");
    let other = EventTypeChange {
        description: text(""),
        redact: Some(Vec::new()),
        example: Some(text("[2]")),
        ..EventTypeChange::default()
    };
    assert_eq!(change(other).await, expected);
    let sent = world.event_types.event_type("order.sent").await.unwrap();
    assert_eq!(sent, of_name("order.sent"));
}

/// Byte by byte, whatever language the store's database speaks.
pub async fn types_are_paged_by_name(world: &TenantWorld) {
    for name in ["b", "a.b", "a", "B", "a-b", "_"] {
        created(
            world,
            &EventType {
                archived: name == "a-b",
                ..of_name(name)
            },
        )
        .await;
    }
    let of = |archived, after: Option<&str>, limit| WantedEventTypes {
        archived,
        after: after.map(str::to_owned),
        limit,
    };
    let all = ["B", "_", "a", "a-b", "a.b", "b"];
    assert_eq!(names(world, &of(true, None, 10)).await, all);
    assert_eq!(names(world, &of(true, Some("a"), 2)).await, all[3..5]);
    assert_eq!(names(world, &of(false, Some("a"), 2)).await, all[4..]);
    assert!(names(world, &of(true, Some("b"), 2)).await.is_empty());
    let with_both = EventType {
        schema: Some("{}".to_owned()),
        example: Some("null".to_owned()),
        redact: vec!["/x".to_owned()],
        ..of_name("c")
    };
    created(world, &with_both).await;
    let last = world
        .event_types
        .event_types(&of(false, Some("a.b"), 9))
        .await;
    let last = last.unwrap();
    assert!(!last[0].has_schema && !last[0].has_example && last[0].redact.is_empty());
    assert!(last[1].has_schema && last[1].has_example);
    assert_eq!(last[1].redact, ["/x"]);
}

/// One more than there may be is refused, and so is one that is there.
pub async fn the_catalogue_has_its_bound(world: &TenantWorld) {
    let rows: Vec<String> = (0..MAX_TYPES).map(|at| format!("('t{at}')")).collect();
    let insert = format!("insert into event_types (name) values {}", rows.join(", "));
    world.sql(&insert).await;
    let one_more = world.event_types.create_event_type(&of_name("new")).await;
    assert!(
        matches!(one_more, Err(CatalogError::Conflict(_))),
        "{one_more:?}"
    );
    refuses(
        world.event_types.create_event_type(&of_name("t7")).await,
        "name",
    );
    world.event_types.delete_event_type("t7").await.unwrap();
    created(world, &of_name("new")).await;
}

/// An event of this type with a card, and what there is to see of it.
async fn event(world: &TenantWorld, event_type: Option<&str>) -> NewEvent {
    let destination = world.destination().unlimited().create().await;
    let event = NewEvent {
        event_type: event_type.map(str::to_owned),
        payload: Bytes::from_static(CARD.as_bytes()),
        ..world.event(destination)
    };
    world
        .store
        .accept_events(std::slice::from_ref(&event))
        .await
        .unwrap();
    event
}

async fn payload(world: &TenantWorld, event: &NewEvent) -> Payload {
    world
        .overview
        .payload(DEFAULT_TENANT, event.id)
        .await
        .unwrap()
}

/// Those of its type and no other, whenever it was accepted; and what is sent is whole.
pub async fn rules_come_with_a_payload_that_receivers_get_whole(world: &TenantWorld) {
    let paid = event(world, Some("order.paid")).await;
    let others = [
        event(world, Some("order.Paid")).await,
        event(world, None).await,
    ];
    assert_eq!(payload(world, &paid).await.redact, [""; 0]);
    let hides = EventType {
        redact: vec!["/card".to_owned()],
        archived: true,
        ..of_name("order.paid")
    };
    created(world, &hides).await;
    for other in &others {
        let whole = Shown::Whole(CARD.as_bytes().to_vec());
        assert_eq!(payload(world, other).await.shown(), whole);
    }
    let found = payload(world, &paid).await;
    assert_eq!(
        (&found.redact, &found.bytes[..]),
        (&hides.redact, CARD.as_bytes())
    );
    let hidden = CARD.replace("\"4711\"", "\"[redacted]\"");
    assert_eq!(found.shown(), Shown::Redacted(hidden.into_bytes()));

    let to = paid.audience.named().unwrap();
    let worker = world.worker().await;
    let permits = world.admit(to).await;
    let starts = world.start(worker, &permits).await;
    assert_eq!(starts[0].payload, CARD, "receivers get all of it");
}

/// Somebody who writes SQL is not asked for the rules of the API, and shows no more than
/// he meant to.
pub async fn rules_that_make_no_sense_show_nothing(world: &TenantWorld) {
    let paid = event(world, Some("order.paid")).await;
    let written = EventType {
        redact: vec!["card".to_owned()],
        ..of_name("order.paid")
    };
    created(world, &written).await;
    assert_eq!(payload(world, &paid).await.shown(), Shown::Withheld);
}
