//! Target `body`: one body for every route that takes one.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fuzzing::{Context, Result, Verdict, bail, ensure};
use http::{HeaderValue, Method};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::problem::{problem, refusal};
use crate::world::{Answer, World};

/// The one destination that there is; corpus files name it.
const DESTINATION: &str = "019c13d7-0000-7000-8000-000000000001";

#[test]
fn bodies() -> fuzzing::Outcome {
    let runtime = super::runtime();
    let world = runtime.block_on(async { World::new() });
    fuzzing::run(super::CRATE, "body", 1_000, |input| {
        runtime.block_on(async {
            let body = serde_json::from_slice::<Value>(input).ok();
            let created = create(&world, input, body.as_ref()).await?;
            let changed = change(&world, input, body.as_ref()).await?;
            let posted = post(&world, input, body.as_ref()).await?;
            let batch = post_batch(&world, input, body.as_ref()).await?;
            Ok(format!("{created}; {changed}; {posted}; {batch}"))
        })
    })
}

async fn send(world: &World, method: Method, path: &str, input: &[u8]) -> Answer {
    world.send(method, path, input.to_vec()).await
}

/// Refused as what it is: what is JSON is refused by a field. (The reverse does
/// not hold: the wrong field may come before the end of the JSON.)
fn refused(answer: &Answer, body: Option<&Value>) -> Verdict {
    let kind = refusal(answer)?;
    ensure!(answer.status != 400 || body.is_none(), "{}", answer.json);
    Ok(kind)
}

async fn create(world: &World, input: &[u8], body: Option<&Value>) -> Verdict {
    let answer = send(world, Method::POST, "/v1/destinations", input).await;
    let written = std::mem::take(&mut world.store.state().destinations);
    if answer.status != 201 {
        ensure!(written.is_empty(), "refused, and written");
        return refused(&answer, body);
    }
    ensure!(written.len() == 1);
    same_fields(body, &answer.json)?;
    Ok("created".to_owned())
}

async fn change(world: &World, input: &[u8], body: Option<&Value>) -> Verdict {
    let path = world
        .destination(json!({"limits": {"per_second": 7}}))
        .await;
    let before = world.store.state().destinations.clone();
    let answer = send(world, Method::PATCH, &path, input).await;
    let after = std::mem::take(&mut world.store.state().destinations);
    if answer.status != 200 {
        ensure!(before == after, "refused, and changed");
        return refused(&answer, body);
    }
    same_fields(body, &answer.json)?;
    Ok("changed".to_owned())
}

/// Every field of the body is in the answer, as it was sent.
fn same_fields(body: Option<&Value>, answer: &Value) -> Result<()> {
    let body = body.and_then(Value::as_object).context("not an object")?;
    for (field, sent) in body {
        let shown = answer
            .get(field)
            .with_context(|| format!("{field} is ignored"))?;
        match (sent, shown) {
            (Value::Object(sent), Value::Object(shown)) => {
                let same = sent
                    .iter()
                    .all(|(name, value)| shown.get(name) == Some(value));
                ensure!(same, "{field}: {sent:?} is {shown:?}");
            }
            // serde takes `{"token_bucket": null}` for the word, too.
            (Value::Object(sent), Value::String(word)) => {
                ensure!(
                    sent.len() == 1 && sent.contains_key(word),
                    "{field}: {sent:?}"
                );
            }
            (Value::Null, Value::Object(shown)) => ensure!(shown.values().all(Value::is_null)),
            (Value::Number(sent), Value::Number(shown)) => {
                ensure!(
                    sent.as_f64() == shown.as_f64(),
                    "{field}: {sent} is {shown}"
                );
            }
            (sent, shown) => ensure!(sent == shown, "{field}: {sent} is {shown}"),
        }
    }
    Ok(())
}

async fn post(world: &World, input: &[u8], body: Option<&Value>) -> Verdict {
    let answer = send_events(world, "/v1/events", input).await?;
    let written = std::mem::take(&mut world.store.state().events);
    if answer.status != 202 {
        ensure!(written.is_empty(), "refused, and written");
        return refused(&answer, body);
    }
    let [event] = written.as_slice() else {
        bail!("{} events", written.len());
    };
    ensure!(answer.json["id"] == event.id.to_string());
    let whole: Result<&RawValue, _> = serde_json::from_slice(input);
    whole.context("accepted what is not JSON")?;
    // A payload may be deeper than a `Value`, or have half a surrogate pair.
    if let Some(body) = body {
        ensure!(body["type"].as_str() == event.event_type.as_deref());
    }
    let content_type = HeaderValue::from_str(&event.content_type);
    content_type.context("the content type cannot be sent")?;
    match body.and_then(|body| body["payload_base64"].as_str()) {
        Some(text) => {
            ensure!(
                STANDARD.encode(&event.payload) == text,
                "base64 reads otherwise"
            );
            Ok("base64".to_owned())
        }
        None => {
            let payload: &[u8] = &event.payload;
            let there = input.windows(payload.len()).any(|part| part == payload);
            ensure!(there, "the payload is not as it was sent");
            let kind = payload.first().map(|byte| char::from(*byte));
            Ok(format!("payload {kind:?}"))
        }
    }
}

async fn post_batch(world: &World, input: &[u8], body: Option<&Value>) -> Verdict {
    let answer = send_events(world, "/v1/events/batch", input).await?;
    let written = std::mem::take(&mut world.store.state().events).len();
    if answer.status != 202 {
        ensure!(written == 0, "refused, and written");
        return refused(&answer, body);
    }
    let results = answer.json["results"].as_array().context("no results")?;
    if let Some(body) = body {
        let sent = body["events"].as_array().map(Vec::len);
        ensure!(sent == Some(results.len()), "not one answer each");
    }
    let mut accepted = 0;
    let mut kinds = Vec::new();
    for result in results {
        if result.get("id").is_some() {
            accepted += 1;
            continue;
        }
        let refused = &result["problem"];
        let status = refused["status"].as_u64().unwrap_or_default();
        ensure!((400..500).contains(&status), "{refused}");
        kinds.push(problem(refused, u16::try_from(status)?)?);
    }
    ensure!(
        accepted == written,
        "{accepted} accepted, {written} written"
    );
    kinds.dedup();
    kinds.truncate(2);
    Ok(format!("batch {} {kinds:?}", accepted.min(2)))
}

/// Posts to a world that has exactly the destination of the corpus.
async fn send_events(world: &World, path: &str, input: &[u8]) -> Result<Answer> {
    world.destination(json!({"event_types": ["*"]})).await;
    if let Some(destination) = world.store.state().destinations.first_mut() {
        destination.id = DESTINATION.parse()?;
    }
    let answer = send(world, Method::POST, path, input).await;
    let mut state = world.store.state();
    state.destinations.clear();
    state.attempts.clear();
    Ok(answer)
}
