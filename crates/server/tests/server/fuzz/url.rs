//! Target `url`: a destination's URL in the API, against the sender.
//!
//! The same corpus as the sender's own target in `adapters`, and the same
//! question: who could make two parsers disagree could have one place vetted
//! and another connected to.

use ::url::Url;
use adapters::http::Policy;
use fuzzing::{Context, ensure};
use serde_json::json;

use super::problem::refusal;
use crate::world::World;

#[test]
fn urls() -> fuzzing::Outcome {
    let runtime = super::runtime();
    let world = runtime.block_on(async { World::new() });
    fuzzing::run(super::CRATE, "url", 2_000, |input| {
        let Ok(text) = std::str::from_utf8(input) else {
            return Ok("not UTF-8".to_owned());
        };
        let answer = runtime.block_on(world.post("/v1/destinations", json!({"url": text})));
        world.store.state().destinations.clear();
        if answer.status != 201 {
            let kind = refusal(&answer)?;
            let detail = answer.json["detail"].as_str().unwrap_or_default();
            return Ok(format!("{kind}: {detail}"));
        }
        ensure!(answer.json["url"] == text, "stored another URL");
        let sent = adapters::http::place(text, &Policy::default());
        let (host, port) = sent.context("accepted, but never sent to")?;
        let url = Url::parse(text).context("accepted what is no URL")?;
        ensure!(url.host_str() == Some(host.to_string().as_str()));
        ensure!(url.port_or_known_default() == Some(port));
        ensure!(url.scheme() == "https" && url.fragment().is_none());
        ensure!(url.username().is_empty() && url.password().is_none());
        ensure!(!text.contains(|letter: char| letter.is_control() || letter.is_whitespace()));
        let (own_port, query) = (url.port().is_some(), url.query().is_some());
        Ok(format!("accepted: port {own_port} query {query}"))
    })
}
