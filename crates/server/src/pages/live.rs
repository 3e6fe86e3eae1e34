//! Event streams: what pages show, again and again.
//!
//! Each stream is a task that asks the store and ends with its browser, its
//! session or the process. There is room for so many and no more: who finds
//! none has a page that stands still, and is told so.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use domain::ids::TenantId;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::Pages;
use super::refused::Refused;
use super::standing::Standing;
use super::visitor::{self, Visitor};

/// Streams in one process, of all visitors.
const MAX_STREAMS: usize = 200;

/// Of one tenant, whose key can open any number of sessions.
const OF_A_TENANT: usize = MAX_STREAMS / 5;

/// And of one session: a customer's link does not take all of them.
const OF_A_SESSION: usize = 6;

/// How long a browser may take to read what it is told, or the store to say it.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often a stream sees to it that its session is still good.
const RECHECK: Duration = Duration::from_secs(5);

/// How long one stream lasts. The browser begins another, anywhere.
const LIFETIME: Duration = Duration::from_secs(600);

/// Room for streams.
#[derive(Clone)]
pub(super) struct Places {
    all: Arc<Semaphore>,
    /// How many streams each has.
    taken: Arc<Mutex<HashMap<Holder, usize>>>,
}

/// Whose streams are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Holder {
    Tenant(TenantId),
    Session([u8; 32]),
}

/// A stream's, until it is dropped.
struct Place {
    places: Places,
    holders: [Holder; 2],
    _one: OwnedSemaphorePermit,
}

impl Places {
    pub(super) fn new() -> Self {
        Self {
            all: Arc::new(Semaphore::new(MAX_STREAMS)),
            taken: Arc::default(),
        }
    }

    fn take(&self, tenant: TenantId, session: [u8; 32]) -> Result<Place, Refused> {
        let full = || Refused::unavailable("Too many pages are watching; this one stands still.");
        let one = Arc::clone(&self.all).try_acquire_owned();
        let one = one.map_err(|_full| full())?;
        let mut taken = self.taken();
        let holders = [Holder::Tenant(tenant), Holder::Session(session)];
        let has = |holder| taken.get(&holder).copied().unwrap_or_default();
        let [of_tenant, of_session] = holders.map(has);
        if of_tenant >= OF_A_TENANT || of_session >= OF_A_SESSION {
            return Err(full());
        }
        for holder in holders {
            *taken.entry(holder).or_default() += 1;
        }
        drop(taken);
        Ok(Place {
            places: self.clone(),
            holders,
            _one: one,
        })
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<Holder, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        for holder in self.holders {
            if let Entry::Occupied(mut count) = taken.entry(holder) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
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
    /// The same of the latencies'.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) latency: Option<String>,
    /// How far what is measured has come, by its name: of 100.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) meters: Vec<(String, u32)>,
}

impl Said {
    /// A destination's line.
    pub(super) fn line(&mut self, one: &Standing) {
        let texts = one.live().into_iter();
        self.texts
            .extend(texts.map(|(what, text)| (format!("{}.{what}", one.id), text)));
        self.tones.push((format!("{}.state", one.id), one.tone));
    }
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
    let place = pages.0.streams.take(visitor.home(), visitor.digest)?;
    let (sender, mut receiver) = mpsc::channel(1);
    let look = Arc::new(look);
    let (pages, digest, tenant) = (pages.clone(), visitor.digest, visitor.home());
    tokio::spawn(async move {
        let _place = place;
        let (began, mut checked) = (Instant::now(), Instant::now());
        // In a task of its own: giving up on it must not leave a store in
        // mid-transaction. It ends before another begins.
        let mut looking: Option<JoinHandle<Result<Said, Refused>>> = None;
        while began.elapsed() < LIFETIME {
            if checked.elapsed() >= RECHECK {
                checked = Instant::now();
                let good = visitor::session(&pages, digest).await;
                if !good.is_ok_and(|found| found.is_some_and(|one| one.tenant == tenant)) {
                    return;
                }
            }
            let look = looking.get_or_insert_with(|| {
                let (pages, look) = (pages.clone(), Arc::clone(&look));
                tokio::spawn(async move {
                    // Beside the tenant's other readers.
                    let _place = pages.service(tenant).read().await?;
                    look(pages).await
                })
            });
            let said = tokio::select! {
                biased;
                () = pages.0.shutdown.cancelled() => return,
                said = timeout(PATIENCE, look) => said,
            };
            if said.is_ok() {
                looking = None;
            }
            // What cannot be asked now is asked again: the page keeps what it has.
            if let Ok(Ok(Ok(said))) = said
                && let Ok(event) = Event::default().json_data(said)
            {
                // A browser that does not read has no place for good.
                let sent = tokio::select! {
                    biased;
                    () = pages.0.shutdown.cancelled() => return,
                    sent = timeout(PATIENCE, sender.send(event)) => sent,
                };
                if !matches!(sent, Ok(Ok(()))) {
                    return;
                }
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

#[cfg(test)]
mod tests {
    use super::*;

    const TENANT: TenantId = TenantId(uuid::Uuid::from_u128(1));
    const OTHER: TenantId = TenantId(uuid::Uuid::from_u128(2));

    #[test]
    fn a_session_has_so_many_streams_and_no_more() {
        let places = Places::new();
        let mut taken: Vec<_> = (0..OF_A_SESSION)
            .map(|_| places.take(TENANT, [1; 32]).ok().unwrap())
            .collect();
        assert!(places.take(TENANT, [1; 32]).is_err());
        let other = places.take(TENANT, [2; 32]);
        assert!(other.is_ok(), "it is nobody else's affair");
        drop(other);
        taken.pop();
        assert!(places.take(TENANT, [1; 32]).is_ok());
        taken.clear();
        assert!(places.taken().is_empty());
        assert_eq!(places.all.available_permits(), MAX_STREAMS);
    }

    /// However many sessions its keys have opened.
    #[test]
    fn a_tenant_leaves_streams_to_the_others() {
        let places = Places::new();
        let mut taken: Vec<Place> = Vec::new();
        for session in 0..=u8::MAX {
            taken.extend(places.take(TENANT, [session; 32]).ok());
        }
        assert_eq!(taken.len(), OF_A_TENANT);
        assert!(places.take(OTHER, [1; 32]).is_ok());
        taken.pop();
        assert!(places.take(TENANT, [3; 32]).is_ok());
    }
}
