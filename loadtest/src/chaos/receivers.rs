//! The receiver farm: one listener for all destinations, which logs every
//! whole request before it answers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context;
use http::HeaderMap;
use server::receiver::{Behaviour, Observed, Receiver};
use tokio::time::Instant;
use uuid::Uuid;

use super::batch;
use super::diary::Diary;
use super::log::{Appender, Receipt, boottime_us, fingerprint};
use super::secrets::Secrets;
use super::world::{Destination, Manners, part};

/// Arrivals that the receiver itself keeps: the log has them all.
const KEPT: usize = 0;

/// The storm: when it began, once it has, and how long it is.
pub(crate) struct Storm {
    pub(crate) began: OnceLock<Instant>,
    pub(crate) length: Duration,
}

/// Starts the receivers of these destinations, by their numbers.
pub(crate) async fn start(
    destinations: &[Destination],
    secrets: Arc<Secrets>,
    storm: Arc<Storm>,
    log: Appender,
) -> anyhow::Result<Receiver> {
    let manners: Vec<_> = destinations.iter().map(|one| one.manners).collect();
    let requests: Vec<_> = manners.iter().map(|_| AtomicU64::new(0)).collect();
    let observer = move |seen: Observed<'_>| {
        let mut receipts = receipts(&seen, &secrets);
        let number = seen.destination as usize;
        let told = requests.get(number).and_then(|requests| {
            let request = requests.fetch_add(1, Ordering::Relaxed) + 1;
            let passed = storm.began.get().map(Instant::elapsed);
            let events: Vec<_> = receipts.iter().filter_map(|one| one.event).collect();
            let manners = manners.get(number)?;
            manners.answer(request, part(passed, storm.length), &events)
        });
        if let Some(first) = receipts.first_mut() {
            first.nonsense = told.is_some() && manners.get(number) == Some(&Manners::Hostile);
        }
        if let Err(error) = log.append_all(&receipts) {
            // A receipt that is not in the log was not received.
            complain(&error);
            return Some(http::StatusCode::INTERNAL_SERVER_ERROR.into());
        }
        told
    };
    let receiver = Receiver::start_observed(Behaviour::ACCEPT, KEPT, Some(Box::new(observer)))
        .await
        .context("start the receivers")?;
    for (number, one) in (0..).zip(destinations) {
        receiver.set_behaviour(number, one.manners.behaviour());
    }
    Ok(receiver)
}

/// Stops them, and notes when they stood still.
pub(crate) async fn stop(receiver: Receiver, diary: &Diary) -> anyhow::Result<()> {
    let ahead = boottime_us() - receiver.clock();
    let record = receiver.stop().await.context("stop the receivers")?;
    for stall in record.stalls {
        let length = stall.until.since(stall.from).as_micros();
        let until = stall.until.as_micros() + ahead;
        diary.note_lag(until, i64::try_from(length).unwrap_or(i64::MAX))?;
    }
    Ok(())
}

/// One for each event of the request.
fn receipts(seen: &Observed<'_>, secrets: &Secrets) -> Vec<Receipt> {
    let of_request = receipt(seen, secrets);
    let id = text(seen.headers, "webhook-id").unwrap_or_default();
    let Some(items) = batch::items(id, seen.body) else {
        return vec![of_request];
    };
    (items.iter().enumerate())
        .map(|(place, item)| Receipt {
            event: Some(item.id),
            try_number: Some(item.try_number),
            body: fingerprint(item.data.get().as_bytes()),
            carried: place > 0,
            ..of_request.clone()
        })
        .collect()
}

fn receipt(seen: &Observed<'_>, secrets: &Secrets) -> Receipt {
    let signatures = secrets.signatures(seen.destination, seen.headers, seen.body);
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
        verified: signatures.wrong == 0 && !signatures.by.is_empty(),
        signed_by: signatures.by,
        body: fingerprint(seen.body),
        at_us: boottime_us() - since.unwrap_or(0),
        carried: false,
        nonsense: false,
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
