//! Attacks by requests, one after the other.

use anyhow::Context as _;
use serde_json::{Value, json};

use super::attacker::{Ask, Attacker, NOBODY, TYPE, ask, batch, post};
use super::underway::{CLIENTS, Underway};

/// Destinations that want every event.
const SUBSCRIBERS: usize = 300;

/// Destinations that a batch with idempotency keys is for, an event each.
const KEYED: usize = 1_000;

/// Events that are sent again, and destinations that they are sent to.
const HISTORY: usize = 20_000;
const RESENT_TO: usize = 20;

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

/// Half of them with one very long text, half with as many fields as there is room for.
pub(super) async fn forms(attacker: &Attacker, underway: &mut Underway) -> anyhow::Result<()> {
    let id = attacker.destination(NOBODY, json!({})).await?;
    let path = format!("/dashboard/destinations/{id}/edit");
    let attacker = attacker.signed_in().await?;
    let (_, page) = attacker.client().await?.answer("GET", &path, "").await?;
    let token = token(&String::from_utf8_lossy(&page)).context("a page has no form")?;
    let begun = format!("token={token}&url={NOBODY}");
    let forms = [one_long_field(&begun), many_fields(&begun)];
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

pub(super) fn unknown_keys(attacker: &Attacker, underway: &mut Underway) {
    for number in 0..8 {
        let stranger = Attacker {
            key: format!("pk_nobody_{number}_{}", "x".repeat(32)),
            ..attacker.clone()
        };
        underway.crew(&stranger, 25, |_| ask("GET", "/v1/destinations"));
    }
}

pub(super) async fn reports(attacker: &Attacker, underway: &mut Underway) -> anyhow::Result<()> {
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
    ];
    underway.crew(attacker, 100, in_turn(asks));
    Ok(())
}

pub(super) async fn changes(attacker: &Attacker, underway: &mut Underway) -> anyhow::Result<()> {
    let id = attacker.destination(NOBODY, json!({})).await?;
    let path = format!("/v1/destinations/{id}");
    underway.crew(attacker, 200, move |turn| Ask {
        method: "PATCH",
        path: path.clone(),
        body: json!({"limits": {"per_second": turn % 1_000 + 1}}).to_string(),
    });
    Ok(())
}

/// Bounded by what it may ask for in a second.
pub(super) fn deletions(attacker: &Attacker, underway: &mut Underway) {
    for _ in 0..CLIENTS {
        let attacker = attacker.clone();
        underway.repeat(move || {
            let attacker = attacker.clone();
            async move {
                let id = attacker.destination(NOBODY, json!({})).await?;
                let path = format!("/v1/destinations/{id}");
                attacker.client().await?.send("DELETE", &path, "").await
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

fn keyed(turn: u64, ids: &[String]) -> String {
    let event = |(place, id): (usize, &String)| {
        let key = match turn % 2 {
            0 => format!("{turn}"),
            _ => format!("{turn}-{place}"),
        };
        json!({"destination_id": id, "payload": {}, "idempotency_key": key})
    };
    let events: Vec<Value> = ids.iter().enumerate().map(event).collect();
    json!({"events": events}).to_string()
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

pub(super) async fn fan_out(attacker: &Attacker, underway: &mut Underway) -> anyhow::Result<()> {
    let all = json!({"event_types": ["*"], "limits": {"per_minute": 1}});
    attacker.destinations(SUBSCRIBERS, NOBODY, all).await?;
    // A thousand would be 300,000 deliveries, which is answered after a minute.
    let events = vec![json!({"type": TYPE, "payload": {}}); 50];
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

    use super::*;

    #[test]
    fn a_form_is_as_large_as_it_may_be() {
        let long = one_long_field("token=a");
        assert_eq!(long.len(), FORM);
        let many = many_fields("token=a");
        assert!((FORM - 16..=FORM).contains(&many.len()), "{}", many.len());
        let names: BTreeSet<&str> = many.split('&').collect();
        assert_eq!(names.len(), many.split('&').count(), "fields of one name");
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
