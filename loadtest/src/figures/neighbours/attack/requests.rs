//! Attacks by requests, one after the other.

use anyhow::Context as _;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use server::access::MintedKey;

use super::attacker::{Ask, Attacker, NOBODY, TYPE, ask, batch, post};
use super::underway::{CLIENTS, Underway};

/// Destinations that want every event.
const SUBSCRIBERS: usize = 300;

/// Destinations that a batch with idempotency keys is for, an event each; and that subscribe
/// to other types.
const KEYED: usize = 1_000;

/// Events that are sent again, and destinations that they are sent to.
const HISTORY: usize = 20_000;
const RESENT_TO: usize = 20;

/// Destinations that reports tell of, and deliveries that wait for each.
const REPORTED: usize = 200;
const WAITING_FOR_EACH: usize = 50;

/// Deliveries that wait for a retry of one destination, which a plan reads.
const RETRIED: usize = 10_000;

/// Deliveries that wait for a destination when it is deleted.
const PILE: usize = 100;

/// Bytes of the largest form.
const FORM: usize = 64 * 1_024;

pub(super) fn words(attacker: &Attacker, underway: &mut Underway) {
    let texts = vec![
        ask("GET", "/v1/dead-letters?type=%00"),
        ask("GET", "/v1/dead-letters?after=%00"),
        ask("GET", "/v1/standings?search=%00"),
        post("/v1/replays", "{\"type\":\"\\u0000\"}"),
        post("/v1/events", "{\"type\":\"\\u0000\",\"payload\":{}}"),
        post(
            "/v1/events",
            &format!("{{\"type\":\"a\",\"payload\":{}", "[".repeat(100_000)),
        ),
        post("/v1/events/bulk", "\u{0}\n\u{0}"),
        post(
            "/v1/destinations",
            "{\"url\":\"http://\\u0000\",\"name\":\"\\u0000\"}",
        ),
    ];
    underway.crew(attacker, 200, in_turn(texts));
}

/// One after the other of these.
fn in_turn(asks: Vec<Ask>) -> impl Fn(u64) -> Ask + Send + Sync + 'static {
    move |turn| asks[turn as usize % asks.len()].clone()
}

/// By a stranger: nobody has to say who he is for it.
pub(super) fn ready(attacker: &Attacker, underway: &mut Underway) {
    underway.crew(attacker, 500, |_| ask("GET", "/readyz"));
}

/// By turns with one very long text, with as many fields as there is room for, and with
/// each field about as long as it may be.
pub(super) async fn forms(attacker: &Attacker, underway: &mut Underway) -> anyhow::Result<()> {
    let id = attacker.destination(NOBODY, json!({})).await?;
    let path = format!("/dashboard/destinations/{id}/edit");
    let attacker = attacker.signed_in().await?;
    let (_, page) = attacker.client().await?.answer("GET", &path, "").await?;
    let token = token(&String::from_utf8_lossy(&page)).context("a page has no form")?;
    let begun = format!("token={token}&url={NOBODY}");
    let forms = [
        one_long_field(&begun),
        many_fields(&begun),
        full_fields(&begun),
    ];
    let forms = forms.map(|form| post(&path, &form)).to_vec();
    underway.crew(&attacker, 100, in_turn(forms));
    Ok(())
}

/// What a form of this page has to bring back.
fn token(page: &str) -> Option<String> {
    let (_, rest) = page.split_once("name=\"token\" value=\"")?;
    let (token, _) = rest.split_once('"')?;
    Some(token.to_owned())
}

/// Each character of it takes several on a page.
fn one_long_field(begun: &str) -> String {
    let begun = format!("{begun}&name=");
    let rest = FORM.saturating_sub(begun.len());
    begun + &"<".repeat(rest)
}

fn many_fields(begun: &str) -> String {
    let mut form = begun.to_owned();
    for number in 0_u32.. {
        let field = format!("&{number:x}=");
        if form.len() + field.len() > FORM {
            break;
        }
        form += &field;
    }
    form
}

/// The pages refuse no field of these lengths before they know what it means, and show it
/// again.
fn full_fields(begun: &str) -> String {
    let lines = ["name", "token_url", "client_id", "scopes", "audience"].map(|name| (name, 4_096));
    let mut form = begun.to_owned();
    for (name, bytes) in [("event_types", 25_000), ("filter", 8_000)]
        .into_iter()
        .chain(lines)
    {
        form += &format!("&{name}={}", "<".repeat(bytes));
    }
    form
}

/// Another one for each request: of what is no key, or is known, the store is not asked.
pub(super) fn unknown_keys(attacker: &Attacker, underway: &mut Underway) {
    let (_, seed) = attacker.tenant.as_u64_pair();
    underway.crew(attacker, 200, move |turn| Ask {
        key: Some(unknown_key(seed.wrapping_add(turn))),
        ..ask("GET", "/v1/destinations")
    });
}

/// As a key is written, and of nobody.
fn unknown_key(seed: u64) -> String {
    let mut random = StdRng::seed_from_u64(seed);
    let key = MintedKey::new(None, random.random(), random.random());
    key.text.expose_secret().to_owned()
}

pub(super) async fn reports(attacker: &Attacker, underway: &mut Underway) -> anyhow::Result<()> {
    let seldom = json!({"limits": {"per_minute": 1}});
    let ids = attacker.destinations(REPORTED, NOBODY, seldom).await?;
    let waiting = for_each(&ids, 1_000 / REPORTED);
    attacker
        .accepted(&waiting, REPORTED * WAITING_FOR_EACH)
        .await?;
    let retried = with_retries(attacker).await?;
    let id = attacker.destination(NOBODY, json!({})).await?;
    let mut client = attacker.client().await?;
    for limit in 1..=100 {
        let change = json!({"limits": {"per_second": limit}}).to_string();
        let path = format!("/v1/destinations/{id}");
        // As many of these as it may make: the reports read them all.
        client.answer("PATCH", &path, &change).await?;
    }
    let plan = json!({"limits": {"per_second": 5}}).to_string();
    let asks = vec![
        ask("GET", "/v1/compliance"),
        ask("GET", "/v1/standings?limit=200"),
        ask("GET", "/v1/dead-letters?limit=1000"),
        ask("GET", &format!("/v1/destinations/{id}/explanation")),
        ask("GET", &format!("/v1/destinations/{id}/attempts?limit=1000")),
        post(&format!("/v1/destinations/{id}/plan"), &plan),
        post(&format!("/v1/destinations/{retried}/plan"), &plan),
    ];
    underway.crew(attacker, 100, in_turn(asks));
    Ok(())
}

/// So many events for each of these, as a batch.
fn for_each(ids: &[String], events: usize) -> String {
    let event = |id: &String| json!({"destination_id": id, "payload": {}});
    let events: Vec<Value> = (0..events).flat_map(|_| ids.iter().map(event)).collect();
    json!({"events": events}).to_string()
}

/// A destination of which more and more deliveries wait for a retry: nobody listens,
/// no breaker opens for it, and an hour passes before the next try.
async fn with_retries(attacker: &Attacker) -> anyhow::Result<String> {
    let unlimited = json!({"unlimited": true});
    let id = attacker.destination(NOBODY, unlimited).await?;
    let mut client = attacker.client().await?;
    let never = json!({"opens_after_failures": 0}).to_string();
    let path = format!("/v1/destinations/{id}/breaker");
    client.send("PATCH", &path, &never).await?;
    let late = json!({"delays_ms": [3_600_000]}).to_string();
    let path = format!("/v1/destinations/{id}/retries");
    client.send("PUT", &path, &late).await?;
    let body = batch(&json!({"destination_id": id, "payload": {}}));
    attacker.accepted(&body, RETRIED).await?;
    Ok(id)
}

pub(super) async fn changes(attacker: &Attacker, underway: &mut Underway) -> anyhow::Result<()> {
    let id = attacker.destination(NOBODY, json!({})).await?;
    let path = format!("/v1/destinations/{id}");
    underway.crew(attacker, 200, move |turn| Ask {
        body: json!({"limits": {"per_second": turn % 1_000 + 1}}).to_string(),
        ..ask("PATCH", &path)
    });
    // What shows the limits and what they were is read all the while.
    let pages = vec![
        ask("GET", &format!("/dashboard/destinations/{id}")),
        ask("GET", &format!("/dashboard/destinations/{id}/edit")),
    ];
    underway.crew(&attacker.signed_in().await?, 25, in_turn(pages));
    Ok(())
}

/// Bounded by what it may ask for in a second. Each leaves what waited for it.
pub(super) fn deletions(attacker: &Attacker, underway: &mut Underway) {
    for _ in 0..CLIENTS {
        let attacker = attacker.clone();
        underway.repeat(move || {
            let attacker = attacker.clone();
            async move {
                let seldom = json!({"limits": {"per_minute": 1}});
                let id = attacker.destination(NOBODY, seldom).await?;
                let path = format!("/v1/destinations/{id}");
                let pile = for_each(&[id], PILE);
                attacker.accepted(&pile, PILE).await?;
                attacker.deleted(&path).await
            }
        });
    }
}

/// By turns one key for a thousand destinations, and a thousand new keys.
pub(super) async fn idempotency(
    attacker: &Attacker,
    underway: &mut Underway,
) -> anyhow::Result<()> {
    let seldom = json!({"limits": {"per_minute": 1}});
    let ids = attacker.destinations(KEYED, NOBODY, seldom).await?;
    underway.crew(attacker, 10, move |turn| {
        post("/v1/events/batch", &keyed(turn, &ids))
    });
    Ok(())
}

/// Written as text, without a tree of values: this process measures the neighbour as well.
fn keyed(turn: u64, ids: &[String]) -> String {
    let event = |(place, id): (usize, &String)| {
        let key = match turn % 2 {
            0 => format!("{turn}"),
            _ => format!("{turn}-{place}"),
        };
        format!(r#"{{"destination_id":"{id}","payload":{{}},"idempotency_key":"{key}"}}"#)
    };
    let events: Vec<String> = ids.iter().enumerate().map(event).collect();
    format!(r#"{{"events":[{}]}}"#, events.join(","))
}

pub(super) async fn resends(attacker: &Attacker, underway: &mut Underway) -> anyhow::Result<()> {
    attacker.history(HISTORY).await?;
    // What was for nobody is for them, once they want the type.
    let wants = json!({"event_types": [TYPE], "limits": {"per_minute": 1}});
    let ids = attacker.destinations(RESENT_TO, NOBODY, wants).await?;
    let all = json!({"since": "2020-01-01T00:00:00Z", "only_failed": false}).to_string();
    let path = |id: &String| format!("/v1/destinations/{id}/resend");
    let asks = ids.iter().map(|id| post(&path(id), &all)).collect();
    underway.crew(attacker, 100, in_turn(asks));
    Ok(())
}

pub(super) async fn types(attacker: &Attacker, underway: &mut Underway) -> anyhow::Result<()> {
    let subscriptions: Vec<String> = (0..10).map(|n| format!("order.paid.{n}.*")).collect();
    let others = json!({"event_types": subscriptions, "limits": {"per_minute": 1}});
    attacker.destinations(KEYED, NOBODY, others).await?;
    underway.crew(attacker, 20, |turn| {
        post("/v1/events/batch", &unknown(turn))
    });
    Ok(())
}

/// A hundred events of as many types, each of which many subscriptions could take.
fn unknown(turn: u64) -> String {
    let event = |n| json!({"type": format!("{turn}.{n}{}", ".a".repeat(50)), "payload": {}});
    json!({"events": (0..100).map(event).collect::<Vec<_>>()}).to_string()
}

pub(super) async fn fan_out(attacker: &Attacker, underway: &mut Underway) -> anyhow::Result<()> {
    let all = json!({"event_types": ["*"], "limits": {"per_minute": 1}});
    attacker.destinations(SUBSCRIBERS, NOBODY, all).await?;
    // All that ask at once are answered within seconds: fifty events each were 240,000
    // deliveries, of which none was answered in half a minute.
    let events = vec![json!({"type": TYPE, "payload": {}}); 4];
    let body = json!({"events": events}).to_string();
    underway.crew(attacker, 20, move |_| post("/v1/events/batch", &body));
    Ok(())
}

pub(super) async fn backlog(attacker: &Attacker, underway: &mut Underway) -> anyhow::Result<()> {
    let id = attacker.destination(NOBODY, json!({})).await?;
    let paused = json!({"state": "paused"}).to_string();
    let mut client = attacker.client().await?;
    let path = format!("/v1/destinations/{id}");
    client.send("PATCH", &path, &paused).await?;
    let body = batch(&json!({"destination_id": id, "payload": {}}));
    underway.crew(attacker, 50, move |_| post("/v1/events/batch", &body));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use domain::event::event_type_problem;
    use server::access::KeyText;

    use super::*;

    /// Else nobody would ask the store for it.
    #[test]
    fn a_key_of_nobody_is_written_as_a_key_and_another_each_time() {
        let ids: BTreeSet<_> = (0..100)
            .map(|seed| KeyText::parse(&unknown_key(seed)).unwrap().id.0)
            .collect();
        assert_eq!(ids.len(), 100);
    }

    #[test]
    fn each_type_is_another_and_as_long_as_it_may_be() {
        let types: BTreeSet<String> = [unknown(1), unknown(u64::MAX)]
            .iter()
            .map(|body| serde_json::from_str::<Value>(body).unwrap())
            .flat_map(|body| body["events"].as_array().unwrap().clone())
            .map(|event| event["type"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(types.len(), 200);
        assert!(types.iter().all(|one| event_type_problem(one).is_none()));
    }

    #[test]
    fn each_destination_has_as_much_to_wait_for() {
        let ids = ["a".to_owned(), "b".to_owned()];
        let batch: Value = serde_json::from_str(&for_each(&ids, 3)).unwrap();
        let events = batch["events"].as_array().unwrap();
        let of = |id| {
            events
                .iter()
                .filter(|one| one["destination_id"] == id)
                .count()
        };
        assert_eq!((events.len(), of("a"), of("b")), (6, 3, 3));
    }

    #[test]
    fn a_form_is_as_large_as_it_may_be() {
        let long = one_long_field("token=a");
        assert_eq!(long.len(), FORM);
        let many = many_fields("token=a");
        assert!((FORM - 16..=FORM).contains(&many.len()), "{}", many.len());
        let names: BTreeSet<&str> = many.split('&').collect();
        assert_eq!(names.len(), many.split('&').count(), "fields of one name");
        let full = full_fields("token=a").len();
        assert!((FORM * 3 / 4..=FORM).contains(&full), "{full}");
    }

    #[test]
    fn a_form_brings_back_what_its_page_said() {
        let page = "<form><input type=\"hidden\" name=\"token\" value=\"abc\"><input>";
        assert_eq!(token(page).as_deref(), Some("abc"));
        assert_eq!(token("<form></form>"), None);
    }

    #[test]
    fn one_key_is_for_all_destinations_and_then_each_has_its_own() {
        let ids = ["a".to_owned(), "b".to_owned()];
        let keys = |turn| {
            let batch: Value = serde_json::from_str(&keyed(turn, &ids)).unwrap();
            let events = batch["events"].as_array().unwrap();
            let key = |event: &Value| event["idempotency_key"].as_str().unwrap().to_owned();
            events.iter().map(key).collect::<Vec<_>>()
        };
        assert_eq!(keys(2), ["2", "2"]);
        assert_eq!(keys(3), ["3-0", "3-1"]);
    }
}
