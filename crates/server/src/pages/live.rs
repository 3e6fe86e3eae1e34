//! Event streams: what pages show, again and again.
//!
//! Each stream is a task that ends with its browser, its session or the process;
//! another one asks the store, once for all that watch the same. There is room for
//! so many streams and no more: who finds none has a page that stands still, and is
//! told so.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use domain::ids::TenantId;
use engine::ports::wanted;
use http::Uri;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, timeout};
use tokio_util::sync::CancellationToken;

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

/// How far apart the looks of one tenant's pages begin. As many as it may watch, twice a
/// second each, would be 80 looks a second, and others would wait for them.
const APART: Duration = Duration::from_millis(50);

/// How long a browser may take to read what it is told.
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
    looks: Looks,
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

fn full() -> Refused {
    Refused::unavailable("Too many pages are watching; this one stands still.")
}

impl Places {
    pub(super) fn new() -> Self {
        Self {
            all: Arc::new(Semaphore::new(MAX_STREAMS)),
            taken: Arc::default(),
            looks: Looks::default(),
        }
    }

    fn take(&self, tenant: TenantId, session: [u8; 32]) -> Result<Place, Refused> {
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

/// Which page is watched, and by whose session: whoever watches the same sees the
/// same, so it is looked at once for all of them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Page {
    /// The session's tenant, and the one whose things are shown.
    tenants: [TenantId; 2],
    /// Path and query.
    address: String,
}

/// What was said last, as an event's text.
type Saying = watch::Sender<Option<Arc<str>>>;

/// Looks that go on, by their pages.
#[derive(Clone, Default)]
struct Looks {
    pages: Arc<Mutex<HashMap<Page, Saying>>>,
    turns: Turns,
}

/// When the last look of a line began. Whoever is first in the line holds the lock.
type Line = Arc<tokio::sync::Mutex<Option<Instant>>>;

/// The line of each tenant's looks.
#[derive(Clone, Default)]
struct Turns(Arc<Mutex<HashMap<TenantId, Line>>>);

impl Turns {
    /// Waits until a look of the tenant's may begin, in the order in which they ask. Who
    /// gives up takes nobody's time.
    async fn take(&self, tenant: TenantId) {
        let line = self.line(tenant);
        let mut last = line.lock().await;
        if let Some(last) = *last {
            tokio::time::sleep_until(last + APART).await;
        }
        *last = Some(Instant::now());
    }

    /// One that nobody is in is forgotten, once its next look would not have to wait.
    fn line(&self, tenant: TenantId) -> Line {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.retain(|_, line| match Arc::get_mut(line) {
            None => true,
            Some(last) => last.get_mut().is_some_and(|last| last.elapsed() < APART),
        });
        Arc::clone(lines.entry(tenant).or_default())
    }
}

impl Looks {
    /// What is said of a page from now on, and what was said last. `begin` is asked to
    /// look at one that nobody watches yet; `None` where as many are looked at as the
    /// tenant may watch. That is asked for itself: a look goes on for a moment after
    /// the last browser has left, whose place is free again.
    fn join(
        &self,
        page: Page,
        begin: impl FnOnce(Page, Saying),
    ) -> Option<watch::Receiver<Option<Arc<str>>>> {
        let mut pages = self.pages();
        if let Some(saying) = pages.get(&page) {
            let mut said = saying.subscribe();
            said.mark_changed();
            return Some(said);
        }
        let [home, _shown] = page.tenants;
        let of_tenant = pages.keys().filter(|one| one.tenants[0] == home);
        if of_tenant.count() >= OF_A_TENANT {
            return None;
        }
        let (saying, said) = watch::channel(None);
        pages.insert(page.clone(), saying.clone());
        drop(pages);
        begin(page, saying);
        Some(said)
    }

    /// Whether nobody watches a page any more; it is forgotten then.
    fn is_left(&self, page: &Page, saying: &Saying) -> bool {
        let mut pages = self.pages();
        let left = saying.receiver_count() == 0;
        if left {
            pages.remove(page);
        }
        left
    }

    /// Waits for the turn of a page, and keeps it for whoever comes after all have left.
    /// Not any longer, and says so, once nobody watches, or the process ends.
    async fn in_turn(
        &self,
        (page, saying): (&Page, &Saying),
        shutdown: &CancellationToken,
    ) -> bool {
        let [home, _shown] = page.tenants;
        let mut turn = std::pin::pin!(self.turns.take(home));
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return false,
                () = saying.closed() => if self.is_left(page, saying) { return false },
                () = &mut turn => return true,
            }
        }
    }

    fn pages(&self) -> MutexGuard<'_, HashMap<Page, Saying>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says what `look` finds, every so often, to all that watch this address.
pub(super) fn stream<F>(
    pages: &Pages,
    visitor: &Visitor,
    address: &Uri,
    (every, look): (Duration, impl Fn(Pages) -> F + Send + Sync + 'static),
) -> Result<Response, Refused>
where
    F: Future<Output = Result<Said, Refused>> + Send + 'static,
{
    let places = &pages.0.streams;
    let place = places.take(visitor.home(), visitor.digest)?;
    let page = Page {
        tenants: [visitor.home(), visitor.tenant()],
        address: address.to_string(),
    };
    let said = places.looks.join(page, |page, saying| {
        tokio::spawn(look_on(
            pages.clone(),
            page,
            saying,
            (every, Arc::new(look)),
        ));
    });
    let said = said.ok_or_else(full)?;
    let (sender, mut receiver) = mpsc::channel(1);
    let whose = (visitor.digest, visitor.home());
    tokio::spawn(tell(pages.clone(), whose, said, (sender, place)));
    let events = futures_util::stream::poll_fn(move |context| {
        receiver
            .poll_recv(context)
            .map(|event| event.map(Ok::<_, Infallible>))
    });
    Ok(Sse::new(events)
        .keep_alive(KeepAlive::default())
        .into_response())
}

/// Looks at a page for as long as somebody watches it.
async fn look_on<L, F>(pages: Pages, page: Page, saying: Saying, (every, look): (Duration, Arc<L>))
where
    L: Fn(Pages) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Said, Refused>> + Send + 'static,
{
    let looks = pages.0.streams.looks.clone();
    let [home, _shown] = page.tenants;
    while !pages.0.shutdown.is_cancelled() && !looks.is_left(&page, &saying) {
        if !looks.in_turn((&page, &saying), &pages.0.shutdown).await {
            return;
        }
        let (asked, look) = (pages.clone(), Arc::clone(&look));
        let looking = async move {
            // Beside the tenant's other readers.
            let _place = asked.service(home).read().await?;
            look(asked).await
        };
        let left = pages.0.shutdown.child_token();
        let found = while_watched(&saying, &left, looking).await;
        if left.is_cancelled() {
            // Whoever has come since is looked for at once.
            continue;
        }
        // What cannot be asked now is asked again: the page keeps what it has.
        if let Some(Ok(said)) = found
            && let Ok(text) = serde_json::to_string(&said)
        {
            saying.send_replace(Some(text.into()));
        }
        tokio::select! {
            biased;
            () = pages.0.shutdown.cancelled() => return,
            // Nobody watches: it ends now, or goes on for whoever has just come.
            () = saying.closed() => {}
            () = tokio::time::sleep(every) => {}
        }
    }
}

/// One look, in a task of its own, which may panic. Once nobody watches, which cancels
/// `left`, or `left` is cancelled, it ends with the statement it has begun. It is waited
/// for nevertheless: giving up on it would leave a store in mid-transaction.
async fn while_watched<T: Send + 'static>(
    saying: &Saying,
    left: &CancellationToken,
    look: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let mut looking = tokio::spawn(wanted::until(left.clone(), look));
    tokio::select! {
        biased;
        found = &mut looking => return found.ok(),
        () = left.cancelled() => {}
        () = saying.closed() => left.cancel(),
    }
    looking.await.ok()
}

/// Tells one browser, until it leaves, its session ends or its time is over.
async fn tell(
    pages: Pages,
    (digest, tenant): ([u8; 32], TenantId),
    mut said: watch::Receiver<Option<Arc<str>>>,
    (sender, _place): (mpsc::Sender<Event>, Place),
) {
    let end = Instant::now() + LIFETIME;
    let mut recheck = tokio::time::interval(RECHECK);
    recheck.set_missed_tick_behavior(MissedTickBehavior::Delay);
    recheck.reset();
    loop {
        let changed = tokio::select! {
            biased;
            () = pages.0.shutdown.cancelled() => return,
            () = sender.closed() => return,
            () = tokio::time::sleep_until(end) => return,
            _ = recheck.tick() => false,
            changed = said.changed() => match changed {
                Ok(()) => true,
                Err(_ended) => return,
            },
        };
        if !changed {
            let good = visitor::session(&pages, digest).await;
            if !good.is_ok_and(|found| found.is_some_and(|one| one.tenant == tenant)) {
                return;
            }
            continue;
        }
        let text = said.borrow_and_update().clone();
        let Some(text) = text else { continue };
        // A browser that does not read has no place for good.
        let sent = tokio::select! {
            biased;
            () = pages.0.shutdown.cancelled() => return,
            sent = timeout(PATIENCE, sender.send(Event::default().data(&*text))) => sent,
        };
        if !matches!(sent, Ok(Ok(()))) {
            return;
        }
    }
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

    fn page(address: &str) -> Page {
        Page {
            tenants: [TENANT, TENANT],
            address: address.to_owned(),
        }
    }

    /// One look says it to all of them, and ends with the last.
    #[test]
    fn those_who_watch_the_same_page_share_its_looks() {
        let (looks, mut begun) = (Looks::default(), Vec::new());
        let begin = |page, saying| begun.push((page, saying));
        let first = looks.join(page("/a?x=1"), begin).unwrap();
        begun[0].1.send_replace(Some("said".into()));
        let second = looks.join(page("/a?x=1"), |_, _| panic!("it is looked at"));
        let mut second = second.unwrap();
        assert!(
            second.has_changed().unwrap(),
            "what was said last is for it, too"
        );
        assert_eq!(second.borrow_and_update().as_deref(), Some("said"));
        let others = [
            page("/a?x=2"),
            Page {
                tenants: [TENANT, OTHER],
                ..page("/a?x=1")
            },
            Page {
                tenants: [OTHER, TENANT],
                ..page("/a?x=1")
            },
        ];
        for other in others {
            let watched = looks.join(other, |page, saying| begun.push((page, saying)));
            assert!(watched.is_some());
        }
        assert_eq!(
            begun.len(),
            4,
            "each other page, and other tenant, has its own"
        );

        let (ours, saying) = &begun[0];
        drop(first);
        assert!(!looks.is_left(ours, saying), "one watches yet");
        drop(second);
        assert!(looks.is_left(ours, saying));
        let mut again = false;
        looks.join(page("/a?x=1"), |_, _| again = true);
        assert!(again, "who comes later begins anew");

        // However quickly browsers come and go.
        for other in 0..OF_A_TENANT {
            looks.join(page(&other.to_string()), |_, _| {});
        }
        assert!(looks.join(page("/one/more"), |_, _| {}).is_none());
        let anothers = Page {
            tenants: [OTHER, OTHER],
            ..page("/one/more")
        };
        assert!(looks.join(anothers, |_, _| {}).is_some());
    }

    /// Begins to watch so many pages, and says when each is looked at.
    async fn begin_to_watch(looks: &Looks, tenant: TenantId, pages: usize) -> Vec<Duration> {
        let (shutdown, began) = (CancellationToken::new(), Instant::now());
        let (mut said, mut waits) = (Vec::new(), Vec::new());
        for one in 0..pages {
            let page = Page {
                tenants: [tenant, tenant],
                address: one.to_string(),
            };
            said.extend(looks.join(page, |page, saying| waits.push((page, saying))));
        }
        let shutdown = &shutdown;
        let turns = waits.iter().map(|(page, saying)| async move {
            assert!(looks.in_turn((page, saying), shutdown).await);
            began.elapsed()
        });
        futures_util::future::join_all(turns).await
    }

    /// What is watched alone is looked at as soon as it is there.
    #[tokio::test(start_paused = true)]
    async fn the_looks_of_one_tenant_are_apart_and_keep_no_other_waiting() {
        let looks = Looks::default();
        let (ours, theirs) = tokio::join!(
            begin_to_watch(&looks, TENANT, OF_A_TENANT),
            begin_to_watch(&looks, OTHER, 1),
        );
        assert_eq!(theirs, [Duration::ZERO]);
        let most = Duration::from_millis(5);
        for (nth, at) in (0..).zip(ours) {
            let due = APART * nth;
            assert!(due <= at && at <= due + most * nth, "{nth}: {at:?}");
        }
        tokio::time::sleep(APART).await;
        looks.turns.take(OTHER).await;
        let known = looks.turns.0.lock().unwrap().len();
        assert_eq!(known, 1, "whose looks are over is forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_that_is_left_in_the_line_takes_nobodys_time() {
        let (looks, shutdown) = (Looks::default(), CancellationToken::new());
        looks.turns.take(TENANT).await;
        let mut begun = Vec::new();
        for one in 0..OF_A_TENANT {
            let said = looks.join(page(&one.to_string()), |page, saying| {
                begun.push((page, saying))
            });
            drop(said);
        }
        for (page, saying) in &begun {
            assert!(!looks.in_turn((page, saying), &shutdown).await);
        }
        assert!(looks.pages().is_empty(), "nothing goes on for it");
        let now = Instant::now();
        looks.turns.take(TENANT).await;
        assert!(now.elapsed() <= APART + Duration::from_millis(5));

        let mut begun = None;
        let _said = looks.join(page("/a"), |page, saying| begun = Some((page, saying)));
        let (page, saying) = begun.unwrap();
        shutdown.cancel();
        assert!(!looks.in_turn((&page, &saying), &shutdown).await);
    }

    const STATEMENT: Duration = Duration::from_secs(1);

    /// Asks for one thing after another, and says how often.
    async fn ten_statements() -> u32 {
        let mut asked = 0;
        while asked < 10 && wanted::check().is_ok() {
            tokio::time::sleep(STATEMENT).await;
            asked += 1;
        }
        asked
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_nobody_watches_begins_nothing_more() {
        let (saying, said): (Saying, _) = watch::channel(None);
        let left = CancellationToken::new();
        let leaves = async move {
            tokio::time::sleep(STATEMENT * 5 / 2).await;
            drop(said);
        };
        let looked = while_watched(&saying, &left, ten_statements());
        let (asked, ()) = tokio::join!(looked, leaves);
        assert_eq!(asked, Some(3), "the one that had begun was the last");
        assert!(left.is_cancelled(), "it is no look to be told of");
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_begins_nothing_more_when_the_process_ends() {
        let (saying, _said): (Saying, _) = watch::channel(None);
        let shutdown = CancellationToken::new();
        let ends = async {
            tokio::time::sleep(STATEMENT * 5 / 2).await;
            shutdown.cancel();
        };
        let left = shutdown.child_token();
        let looked = while_watched(&saying, &left, ten_statements());
        let (asked, ()) = tokio::join!(looked, ends);
        assert_eq!(asked, Some(3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_somebody_watches_is_made_whole() {
        let (saying, _said): (Saying, _) = watch::channel(None);
        let left = CancellationToken::new();
        let asked = while_watched(&saying, &left, ten_statements()).await;
        assert_eq!(asked, Some(10));
        assert!(!left.is_cancelled());
        let broken = while_watched(&saying, &left, async { assert!(left_alone()) });
        assert_eq!(broken.await, None, "what panics ends nothing else");
    }

    fn left_alone() -> bool {
        wanted::check().is_err()
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
