//! What was written down while it happened: breakers, and shortfalls that
//! operators were told of.

use std::time::Duration;

use domain::compliance::Noted;
use domain::operations::{OperationalEvent, OperationalType};
use domain::time::Timestamp;
use domain::watch::Shortfall;
use engine::ports::{CatalogError, Destination, OperationsBook};

use super::Span;

/// Operational events read at once.
const PAGE: u32 = 1_000;

/// Pages of them, at most: the newest.
const PAGES: u32 = 20;

/// How far back before the span something may have begun that goes on in it.
const BEFORE: Duration = Duration::from_secs(86_400);

/// What was noted of a destination in a span.
pub(super) async fn noted(
    operations: &dyn OperationsBook,
    destination: &Destination,
    span: Span,
) -> Result<Vec<Noted>, CatalogError> {
    let mut events = Vec::new();
    let mut before = None;
    for _ in 0..PAGES {
        let tenant = Some(destination.tenant);
        let page = operations
            .recent_operational_events(tenant, before, PAGE)
            .await?;
        let Some(last) = page.last() else { break };
        before = Some(last.id);
        let old = last.created_at < span.since - BEFORE;
        let of_it = |event: &OperationalEvent| event.destination == Some(destination.id);
        events.extend(page.into_iter().filter(of_it));
        if old {
            break;
        }
    }
    events.reverse();
    Ok(from_events(&events, span.until))
}

/// From events, the oldest first. What has not ended lasts until `until`.
fn from_events(events: &[OperationalEvent], until: Timestamp) -> Vec<Noted> {
    let mut noted: Vec<Noted> = Vec::new();
    for event in events {
        let Ok(event_type) = event.event_type.parse::<OperationalType>() else {
            continue;
        };
        let is_breaker = |one: &Noted| one.reason == Shortfall::Breaker;
        let begun = |reason, from| Noted {
            from,
            until,
            reason,
        };
        match event_type {
            OperationalType::BreakerOpened => {
                noted.push(begun(Shortfall::Breaker, event.created_at));
            }
            OperationalType::UnderDelivery => {
                noted.extend(reason_and_since(event).map(|(reason, since)| begun(reason, since)))
            }
            OperationalType::BreakerClosed | OperationalType::DestinationDisabled => {
                end(&mut noted, event.created_at, (is_breaker, until));
            }
            OperationalType::UnderDeliveryEnded => {
                end(
                    &mut noted,
                    event.created_at,
                    (|one| !is_breaker(one), until),
                );
            }
            _ => {}
        }
    }
    noted
}

/// Ends the last of them that goes on.
fn end(noted: &mut [Noted], at: Timestamp, (which, open): (impl Fn(&Noted) -> bool, Timestamp)) {
    let last = noted
        .iter_mut()
        .rev()
        .find(|one| one.until == open && which(one));
    if let Some(last) = last {
        last.until = at;
    }
}

fn reason_and_since(event: &OperationalEvent) -> Option<(Shortfall, Timestamp)> {
    let details: serde_json::Value = serde_json::from_str(&event.details).ok()?;
    let reason = details["reason"].as_str()?.parse().ok()?;
    let since = chrono::DateTime::parse_from_rfc3339(details["since"].as_str()?).ok()?;
    Some((reason, Timestamp::from_micros(since.timestamp_micros())))
}

#[cfg(test)]
mod tests {
    use domain::ids::DestinationId;
    use engine::ports::DEFAULT_TENANT;

    use super::*;

    fn event(second: i64, event_type: OperationalType, details: &str) -> OperationalEvent {
        OperationalEvent {
            id: second,
            created_at: Timestamp::from_millis(second * 1_000),
            event_type: event_type.as_str().to_owned(),
            destination: Some(DestinationId(uuid::Uuid::nil())),
            tenant: DEFAULT_TENANT,
            details: details.to_owned(),
        }
    }

    #[test]
    fn what_begins_and_ends_is_a_time_and_what_does_not_end_goes_on() {
        let short = r#"{"reason":"concurrency","since":"1970-01-01T00:00:20Z","seconds":60}"#;
        let events = [
            event(10, OperationalType::BreakerOpened, "{}"),
            event(80, OperationalType::UnderDelivery, short),
            event(90, OperationalType::BreakerClosed, "{}"),
            event(95, OperationalType::BacklogHigh, "{}"),
            event(99, OperationalType::BreakerOpened, "{}"),
            event(120, OperationalType::UnderDeliveryEnded, "{}"),
        ];
        let noted = from_events(&events, Timestamp::from_millis(500_000));
        let seconds = |one: &Noted| {
            let second = |at: Timestamp| at.as_micros() / 1_000_000;
            (second(one.from), second(one.until), one.reason)
        };
        assert_eq!(
            noted.iter().map(seconds).collect::<Vec<_>>(),
            [
                (10, 90, Shortfall::Breaker),
                (20, 120, Shortfall::Concurrency),
                (99, 500, Shortfall::Breaker),
            ]
        );
    }
}
