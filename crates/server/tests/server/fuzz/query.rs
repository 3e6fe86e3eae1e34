//! Targets `query` and `id`: what stands in a request's line.

use axum::body::Body;
use domain::ids::{DestinationId, EventId};
use fuzzing::{Context, Verdict, ensure};
use http::{Method, Request, Uri};
use serde_json::json;

use super::problem::refusal;
use crate::world::{KEY, World};

/// A GET of what the input makes of a path; `None` if that is no path.
async fn get(world: &World, uri: Option<Uri>) -> Verdict {
    let Some(uri) = uri else {
        return Ok("no URI".to_owned());
    };
    let request = Request::builder()
        .method(Method::GET)
        .uri(uri)
        .header("authorization", format!("Bearer {KEY}"))
        .body(Body::empty())?;
    let answer = world.request(request).await;
    if answer.status == 200 {
        return Ok("200".to_owned());
    }
    refusal(&answer)
}

fn uri(before: &str, input: &[u8]) -> Option<Uri> {
    Uri::try_from([before.as_bytes(), input].concat()).ok()
}

#[test]
fn queries() -> fuzzing::Outcome {
    let runtime = super::runtime();
    let world = runtime.block_on(async { World::new() });
    let path = runtime.block_on(world.destination(json!({})));
    fuzzing::run(super::CRATE, "query", 2_000, |input| {
        runtime.block_on(async {
            let destinations = get(&world, uri("/v1/destinations?", input)).await?;
            let attempts = get(&world, uri(&format!("{path}/attempts?"), input)).await?;
            Ok(format!("{destinations}, {attempts}"))
        })
    })
}

#[test]
fn ids() -> fuzzing::Outcome {
    let runtime = super::runtime();
    let world = runtime.block_on(async { World::new() });
    fuzzing::run(super::CRATE, "id", 2_000, |input| {
        let read = match std::str::from_utf8(input) {
            Ok(text) => read_again(text)?,
            Err(_) => false,
        };
        let encoded = std::str::from_utf8(input).is_ok_and(|text| text.contains('%'));
        runtime.block_on(async {
            let shown = get(&world, uri("/v1/events/", input)).await?;
            // A path may go on after the id, or say the id in another way.
            if !encoded && !input.contains(&b'?') && !input.contains(&b'#') {
                ensure!(
                    !read || shown.starts_with("404") || shown == "no URI",
                    "{shown}"
                );
                ensure!(read || shown != "200", "shows what is no id");
            }
            Ok(format!("{read}, {shown}"))
        })
    })
}

/// Whether it is an id; if so, what is printed is the same one.
fn read_again(text: &str) -> fuzzing::Result<bool> {
    let Ok(id) = text.parse::<EventId>() else {
        ensure!(text.parse::<DestinationId>().is_err());
        return Ok(false);
    };
    let printed = id.to_string();
    ensure!(
        printed.len() == 36
            && printed
                .bytes()
                .all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
    );
    ensure!(printed.parse::<EventId>().context("not read again")? == id);
    Ok(true)
}
