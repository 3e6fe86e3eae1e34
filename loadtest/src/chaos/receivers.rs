//! The receiver farm: one listener for all destinations, which logs every
//! whole request before it answers.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use domain::signature::SigningSecret;
use http::HeaderMap;
use server::receiver::{Behaviour, Observed, Receiver};
use standardwebhooks::Webhook;
use tokio::time::Instant;
use uuid::Uuid;

use super::log::{Appender, Receipt, boottime_us, fingerprint};
use super::world::Destination;

/// Arrivals that the receiver itself keeps: the log has them all.
const KEPT: usize = 0;

/// Starts the receivers of these destinations, by their numbers.
pub(crate) async fn start(
    destinations: &[Destination],
    secrets: &[SigningSecret],
    log: Appender,
) -> anyhow::Result<Receiver> {
    let verifiers = (secrets.iter())
        .map(|secret| Webhook::new(&secret.expose()).context("the official library"))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let manners: Vec<_> = destinations.iter().map(|one| one.manners).collect();
    let requests: Vec<_> = manners.iter().map(|_| AtomicU64::new(0)).collect();
    let observer = move |seen: Observed<'_>| {
        if let Err(error) = log.append(&receipt(&seen, &verifiers)) {
            // A receipt that is not in the log was not received.
            complain(&error);
            return Some(http::StatusCode::INTERNAL_SERVER_ERROR);
        }
        let number = seen.destination as usize;
        let request = requests.get(number)?.fetch_add(1, Ordering::Relaxed) + 1;
        manners.get(number)?.answer(request)
    };
    Receiver::start_observed(Behaviour::ACCEPT, KEPT, Some(Box::new(observer)))
        .await
        .context("start the receivers")
}

fn receipt(seen: &Observed<'_>, verifiers: &[Webhook]) -> Receipt {
    let verifier = verifiers.get(seen.destination as usize);
    // Signed by the library, and compared: its `verify` refuses timestamps of
    // another time, and these are the store's, whose clock this run steps.
    let expected = || {
        let id = text(seen.headers, "webhook-id")?;
        let timestamp = text(seen.headers, "webhook-timestamp")?.parse().ok()?;
        verifier?.sign(id, timestamp, seen.body).ok()
    };
    let verified = expected()
        .is_some_and(|expected| text(seen.headers, "webhook-signature") == Some(&expected));
    let since = i64::try_from(
        Instant::now()
            .saturating_duration_since(seen.at)
            .as_micros(),
    );
    Receipt {
        destination: seen.destination,
        event: text(seen.headers, "webhook-id").and_then(|id| Uuid::try_parse(id).ok()),
        try_number: text(seen.headers, "paceline-try").and_then(|word| word.parse().ok()),
        timestamp: text(seen.headers, "webhook-timestamp").and_then(|word| word.parse().ok()),
        signature: text(seen.headers, "webhook-signature").map(str::to_owned),
        verified,
        body: fingerprint(seen.body),
        at_us: boottime_us() - since.unwrap_or(0),
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn complain(error: &anyhow::Error) {
    use std::io::Write;
    let _ = writeln!(
        std::io::stderr().lock(),
        "a receipt was not logged: {error:#}"
    );
}
