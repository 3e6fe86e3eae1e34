//! Event streams: what pages show, again and again.
//!
//! Each stream is a task that asks the store and ends with its browser, its
//! session or the process. There is room for so many and no more: who finds
//! none has a page that stands still, and is told so.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;

use super::Pages;
use super::refused::Refused;
use super::visitor::{self, Visitor};

/// Streams in one process, of all visitors.
const MAX_STREAMS: usize = 200;

/// How often a stream sees to it that its session is still good.
const RECHECK: Duration = Duration::from_secs(5);

/// How long one stream lasts. The browser begins another, anywhere.
const LIFETIME: Duration = Duration::from_secs(600);

/// Room for streams.
pub(super) struct Places(Arc<Semaphore>);

impl Places {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(MAX_STREAMS)))
    }

    fn take(&self) -> Result<OwnedSemaphorePermit, Refused> {
        let full = "Too many pages are watching; this one stands still.";
        Arc::clone(&self.0)
            .try_acquire_owned()
            .map_err(|_full| Refused::unavailable(full))
    }
}

/// What a stream says: texts by their names on the page, and a chart.
#[derive(Debug, Default, Serialize)]
pub(super) struct Said {
    pub(super) texts: Vec<(String, String)>,
    /// The tone of what has one, by its name.
    pub(super) tones: Vec<(String, &'static str)>,
    /// The inside of the chart's SVG.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) chart: Option<String>,
    /// How far what is measured has come, by its name: of 100.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) meters: Vec<(String, u32)>,
}

/// Says what `look` finds, every so often.
pub(super) fn stream<F>(
    pages: &Pages,
    visitor: &Visitor,
    every: Duration,
    look: impl Fn(Pages) -> F + Send + Sync + 'static,
) -> Result<Response, Refused>
where
    F: Future<Output = Result<Said, Refused>> + Send + 'static,
{
    let place = pages.0.streams.take()?;
    let (sender, mut receiver) = mpsc::channel(1);
    let (pages, digest, tenant) = (pages.clone(), visitor.digest, visitor.tenant());
    tokio::spawn(async move {
        let _place = place;
        let (began, mut checked) = (Instant::now(), Instant::now());
        while began.elapsed() < LIFETIME {
            if checked.elapsed() >= RECHECK {
                checked = Instant::now();
                let good = visitor::session(&pages, digest).await;
                if !good.is_ok_and(|found| found.is_some_and(|one| one.tenant == tenant)) {
                    return;
                }
            }
            // What cannot be asked now is asked again: the page keeps what it has.
            if let Ok(said) = look(pages.clone()).await
                && let Ok(event) = Event::default().json_data(said)
                && sender.send(event).await.is_err()
            {
                return;
            }
            tokio::select! {
                biased;
                () = pages.0.shutdown.cancelled() => return,
                () = sender.closed() => return,
                () = tokio::time::sleep(every) => {}
            }
        }
    });
    let events = futures_util::stream::poll_fn(move |context| {
        receiver
            .poll_recv(context)
            .map(|event| event.map(Ok::<_, Infallible>))
    });
    Ok(Sse::new(events)
        .keep_alive(KeepAlive::default())
        .into_response())
}
