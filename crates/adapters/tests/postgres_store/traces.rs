//! Which traces attempts belong to, as Postgres keeps them.

use bytes::Bytes;
use domain::event::{Audience, NewEvent, Timing};
use domain::ids::{AttemptId, EventId};
use domain::policy::LimitSettings;
use domain::trace::TraceContext;
use engine::ports::{Catalog, DEFAULT_TENANT, Store, TraceBook, Traced};

use crate::database::Database;

const STORED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 a=1,b=2";

/// Of those that have one, and what is malformed counts as none.
#[tokio::test]
async fn attempts_are_found_in_their_traces() {
    let database = Database::create().await;
    let to = database.destination(LimitSettings::EXACT).await;
    let trace = TraceContext::from_stored(STORED);
    let event = |trace| NewEvent {
        id: EventId(database.id()),
        tenant: DEFAULT_TENANT,
        audience: Audience::Destination(to),
        event_type: None,
        content_type: "text/plain".to_owned(),
        payload: Bytes::from_static(b"hello"),
        idempotency: None,
        trace,
        timing: Timing::default(),
    };
    let events = [event(trace.clone()), event(None), event(trace.clone())];
    database.store.accept_events(&events).await.unwrap();
    let spoilt = format!(
        "update events set trace = 'nonsense' where id = '{}'",
        events[2].id
    );
    database.sql(&spoilt).await;
    let mut attempts: Vec<AttemptId> = Vec::new();
    for event in &events {
        let (_, views) = database
            .store
            .event(DEFAULT_TENANT, event.id)
            .await
            .unwrap();
        attempts.extend(views.iter().map(|view| view.id));
    }
    assert_eq!(attempts.len(), 3);
    let expected = Traced {
        attempt: attempts[0],
        event: events[0].id,
        trace: trace.unwrap(),
    };
    assert_eq!(database.store.traces(&attempts).await.unwrap(), [expected]);
}
