//! Ingest: many requests, one commit.
//!
//! Requests queue in a bounded channel; the loop takes all that are there and
//! commits them together. It does not wait for company: while one batch
//! commits the next one gathers, so the batch grows with the load by itself.
//! An answer is given after the commit and never before; the wake comes after
//! the answer, because a lost wake is the sweep's to repair.
//!
//! Nobody's request is in everybody's way. Tenants have their turns at each commit.
//! A request that costs much is written apart, a little at a time, beside the commits
//! of the others. A commit that fails is tried again request by request, and refuses
//! only those that fail alone, unless it is the store that is away.

mod waiting;
mod widths;

use std::cmp::Reverse;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use domain::event::NewEvent;
use domain::ids::TenantId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use self::waiting::Waiting;
use self::widths::{UNKNOWN, Widths};
use crate::ports::{Acceptance, MAX_ROWS, Schedule, Store, StoreError, Wake};
use crate::wake::wake_all;

/// About as many deliveries are written at once, at most and at least, of a request
/// that adds more.
const PART: RangeInclusive<u32> = 25..=250;

/// So long a part is meant to take: where a store has one writer, the others wait for
/// it meanwhile.
const PART_TAKES: Duration = Duration::from_millis(3);

/// As many where nobody else has handed anything in for a while.
const PART_ALONE: u32 = MAX_ROWS as u32;
const ALONE_AFTER: Duration = Duration::from_secs(1);

/// Where somebody else has, the next part waits for so many times as long as this one
/// took: what costs much has about a quarter of the store, and of its disk. That is more
/// deliveries than can be made in the time.
const PART_RESTS: u32 = 3;

/// Of those that are committed together, at most so many events and payload bytes where
/// several tenants hand something in: whoever comes during a commit waits for all of it, and
/// then for the next one. One request is more, where it must be.
const SHARED_EVENTS: usize = 128;
const SHARED_BYTES: usize = 1024 * 1024;

/// A request that is expected to add more deliveries is large. Where several tenants hand
/// something in, small ones and large ones take turns: who comes while a hundred events are
/// written waits for these, and not for the next hundred as well.
const SMALL: u32 = 16;

/// A part that took longer is not what slows the store, and the next one rests as after
/// one that took so long.
const PART_RESTS_FOR: Duration = Duration::from_millis(500);

/// The store could not be asked for so many requests that are alone, one after the other:
/// it is away, and the others of that commit are refused without asking. What the store
/// itself has refused or ended is the request's fault, and says nothing of the others.
const AWAY_AFTER: u32 = 3;

/// For so long the requests of a commit that failed are tried one by one: others
/// wait meanwhile. The rest goes into the next commit.
const ALONE_FOR: Duration = Duration::from_secs(5);

/// A request is in so many commits that fail without its having been tried alone. Then it is
/// written apart, where it can be nobody's fault but its own.
const COMMITS: u32 = 3;

/// Bounds of the ingest queue.
#[derive(Debug, Clone, Copy)]
pub struct IngestOptions {
    /// Requests that may wait for a commit; the next one is refused at once
    /// rather than kept in memory.
    pub queue: usize,
    /// Payload bytes that may wait or be under commit, all requests together.
    pub queue_bytes: usize,
    /// Events in one commit, at most [`MAX_ROWS`].
    pub batch_events: usize,
    /// Payload bytes in one commit.
    pub batch_bytes: usize,
}

impl Default for IngestOptions {
    fn default() -> Self {
        Self {
            queue: 4_096,
            // Four batches: one under commit, the next one full, and room.
            queue_bytes: 64 * 1024 * 1024,
            batch_events: MAX_ROWS,
            batch_bytes: 16 * 1024 * 1024,
        }
    }
}

/// Why events were not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IngestError {
    /// Too many requests wait already. Nothing was written.
    #[error("too many requests wait to be committed")]
    Full,
    /// The store could not take them; whether it did is not known.
    #[error("{0}")]
    Unavailable(String),
    /// The store is lost, and so would be what it took.
    #[error("{0}")]
    Lost(String),
    /// The process is going down. Nothing was written.
    #[error("shutting down")]
    Stopped,
}

type Answer = Result<Vec<Acceptance>, IngestError>;

struct Request {
    tenant: TenantId,
    events: Vec<NewEvent>,
    /// Of the first of them, as far as it is written.
    answers: Vec<Acceptance>,
    /// Commits with others that have failed, and after which there was no time for it.
    failed: u32,
    answer: oneshot::Sender<Answer>,
    /// Its share of [`IngestOptions::queue_bytes`].
    _room: OwnedSemaphorePermit,
}

impl Request {
    /// What is not written yet.
    fn rest(&self) -> &[NewEvent] {
        self.events.get(self.answers.len()..).unwrap_or_default()
    }
}

/// Events on their way into the store, and what it answered. It goes on, and gives its
/// connection back, while the loop tries others one by one.
type Commit = AbortOnDropHandle<Committed>;

struct Committed {
    requests: Vec<Request>,
    answer: Result<Vec<Acceptance>, StoreError>,
    took: Duration,
}

/// What may begin a commit of several tenants, if any of it waits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Any,
    /// The last commit was long.
    Small,
    /// The last commit left one out.
    Large,
}

/// Which requests share a commit with the first one.
#[derive(Clone, Copy)]
enum Take {
    Any,
    Small,
    Large,
}

/// The front of ingest: clone it into every request handler.
#[derive(Clone)]
pub struct Ingest {
    requests: mpsc::Sender<Request>,
    room: Arc<Semaphore>,
    queue_bytes: usize,
    widths: Arc<Widths>,
}

/// The back of ingest: run it once.
pub struct IngestLoop {
    store: Arc<dyn Store>,
    schedule: Arc<dyn Schedule>,
    options: IngestOptions,
    requests: mpsc::Receiver<Request>,
    widths: Arc<Widths>,
    /// Those that are committed together.
    together: Waiting,
    /// Those that cost much, and those of which a part is written.
    apart: Waiting,
    /// Deliveries of a part, by what the last ones took.
    part: u32,
    /// When the next part may begin.
    part_from: Instant,
    /// Of the last commit of those that are committed together.
    last_together: Option<Instant>,
    /// What may begin the next of them.
    next: Next,
    /// There may be a small one that can be written beside a long commit: they are not looked
    /// for again at each request that comes.
    look_beside: bool,
    /// Who handed something in last, and when.
    last: Option<(TenantId, Instant)>,
    /// Two have, one soon after the other.
    several_until: Option<Instant>,
}

impl Ingest {
    /// A front and its back.
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        schedule: Arc<dyn Schedule>,
        options: IngestOptions,
    ) -> (Self, IngestLoop) {
        let (sender, requests) = mpsc::channel(options.queue.max(1));
        let widths = Arc::<Widths>::default();
        let back = IngestLoop {
            store,
            schedule,
            options,
            requests,
            widths: Arc::clone(&widths),
            together: Waiting::default(),
            apart: Waiting::default(),
            part: *PART.end(),
            part_from: Instant::now(),
            last_together: None,
            next: Next::Any,
            look_beside: false,
            last: None,
            several_until: None,
        };
        let queue_bytes = options.queue_bytes.min(u32::MAX as usize);
        let front = Self {
            requests: sender,
            room: Arc::new(Semaphore::new(queue_bytes.min(Semaphore::MAX_PERMITS))),
            queue_bytes,
            widths,
        };
        (front, back)
    }

    /// How many deliveries these events will add, as far as can be told before it is
    /// known who subscribes: as many each as the last ones of its type.
    #[must_use]
    pub fn expected(&self, events: &[NewEvent]) -> u32 {
        self.widths.expected(events)
    }

    /// How many of these, the first ones, add at most so many deliveries, by the same;
    /// of a type of which nothing is known, an event adds as many as one can. At least
    /// one.
    #[must_use]
    pub fn fit(&self, events: &[NewEvent], deliveries: u32) -> usize {
        self.widths.fit(events, deliveries, UNKNOWN)
    }

    /// Accepts a tenant's events in their order; at most [`MAX_ROWS`] at once. Several
    /// commits may be needed: after an error the first of them may be there.
    ///
    /// When it returns `Ok` every accepted event is durable. If the caller
    /// goes away meanwhile, the events may be committed all the same.
    pub async fn accept(&self, events: Vec<NewEvent>) -> Answer {
        let Some(tenant) = events.first().map(|event| event.tenant) else {
            return Ok(Vec::new());
        };
        let (answer, answered) = oneshot::channel();
        // One request larger than all the room may still go alone.
        let bytes = payload_bytes(&events).min(self.queue_bytes);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room).try_acquire_many_owned(bytes);
        let request = Request {
            tenant,
            events,
            answers: Vec::new(),
            failed: 0,
            answer,
            _room: room.map_err(|_full| IngestError::Full)?,
        };
        self.requests
            .try_send(request)
            .map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => IngestError::Full,
                mpsc::error::TrySendError::Closed(_) => IngestError::Stopped,
            })?;
        // The loop answers whatever it took; without an answer it was cut off,
        // perhaps in the middle of the commit.
        let cut_off = || IngestError::Unavailable("cut off before the answer".to_owned());
        answered.await.unwrap_or_else(|_| Err(cut_off()))
    }
}

impl IngestLoop {
    /// Commits until `shutdown`, then refuses new requests and commits those
    /// that wait.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let (mut together, mut beside): (Option<Commit>, Option<Commit>) = (None, None);
        let mut part: Option<Commit> = None;
        let (mut stopping, mut closed) = (false, false);
        loop {
            if together.is_none() {
                together = self.commit_together();
            }
            if together.is_some() && beside.is_none() {
                beside = self.commit_beside();
            }
            let rests = part.is_none() && !closed && Instant::now() < self.part_from;
            if part.is_none() && !rests {
                part = self.commit_part();
            }
            let writes = together.is_some() || beside.is_some() || part.is_some();
            if closed && !writes && !rests {
                return;
            }
            // What comes during commits gathers in the channel, which is bounded.
            let takes = together.is_none() || (beside.is_none() && self.takes_beside());
            tokio::select! {
                biased;
                () = shutdown.cancelled(), if !stopping => {
                    stopping = true;
                    self.requests.close();
                }
                done = under_way(&mut together) => self.deal_out(done).await,
                done = under_way(&mut beside) => self.deal_out(done).await,
                done = under_way(&mut part) => {
                    self.measure(&done);
                    self.deal_out(done).await;
                }
                () = sleep_until(self.part_from), if rests => {}
                request = self.requests.recv(), if takes && !closed => match request {
                    Some(request) => self.sort(request),
                    None => closed = true,
                },
            }
        }
    }

    /// Into the line that it belongs to.
    fn sort(&mut self, request: Request) {
        let now = Instant::now();
        let last = self.last.replace((request.tenant, now));
        if last.is_some_and(|(last, at)| last != request.tenant && now < at + ALONE_AFTER) {
            self.several_until = Some(now + ALONE_AFTER);
        }
        match self.widths.expected(request.rest()) {
            wide if wide > *PART.end() => self.apart.push(request),
            expected => {
                self.look_beside |= expected <= SMALL;
                self.together.push(request);
            }
        }
    }

    /// All that has come, as far as there is room for it.
    fn sort_all(&mut self) {
        while self.has_room()
            && let Ok(request) = self.requests.try_recv()
        {
            self.sort(request);
        }
    }

    fn has_room(&self) -> bool {
        self.together.len() < self.options.queue
    }

    /// Whether these are written apart.
    fn is_wide(&self, events: &[NewEvent]) -> bool {
        self.widths.expected(events) > *PART.end()
    }

    /// Whatever waits, tenant by tenant, up to the bounds of a commit.
    fn commit_together(&mut self) -> Option<Commit> {
        self.sort_all();
        let shared = self.is_shared();
        let first = self.first_together(shared)?;
        let large = self.is_large(&first);
        let (requests, left_out) = match (shared, large) {
            (true, false) => self.taken_with(first, shared, Take::Small),
            // The small ones need not wait for it.
            (true, true) if self.store.accepts_side_by_side() => {
                (self.taken_with(first, shared, Take::Large).0, false)
            }
            _ => self.taken_with(first, shared, Take::Any),
        };
        self.last_together = Some(Instant::now());
        let long = match shared {
            true => large,
            false => self.expected(&requests) > SMALL,
        };
        self.look_beside = long;
        self.next = match (left_out, long) {
            (true, _) => Next::Large,
            (false, true) => Next::Small,
            (false, false) => Next::Any,
        };
        Some(self.commit(requests, usize::MAX))
    }

    /// Small ones, while a long commit is under way: they need not wait for it where the store
    /// writes both at once.
    fn commit_beside(&mut self) -> Option<Commit> {
        if self.next != Next::Small || !self.store.accepts_side_by_side() {
            return None;
        }
        self.sort_all();
        if !self.is_shared() || !std::mem::take(&mut self.look_beside) {
            return None;
        }
        let first = self.first_of(false)?;
        let (requests, _) = self.taken_with(first, true, Take::Small);
        // There may be more than one commit holds, and no new one has to come for the rest.
        self.look_beside = true;
        self.last_together = Some(Instant::now());
        Some(self.commit(requests, usize::MAX))
    }

    /// Whether what comes is looked at during a commit: it may be written beside that.
    fn takes_beside(&self) -> bool {
        self.next == Next::Small && self.has_room() && self.store.accepts_side_by_side()
    }

    /// Whether several tenants hand something in.
    fn is_shared(&self) -> bool {
        (self.several_until).is_some_and(|until| Instant::now() < until)
    }

    /// The first one and what is committed with it, and whether something was left out for
    /// its size alone.
    fn taken_with(&mut self, first: Request, shared: bool, take: Take) -> (Vec<Request>, bool) {
        let (most_events, most_bytes) = self.most_together(shared);
        let mut left_out = false;
        let (mut events, mut bytes) = size(&first);
        let mut requests = vec![first];
        while events < most_events
            && bytes < most_bytes
            && let Some(request) = self.together.pop()
        {
            let (more_events, more_bytes) = size(&request);
            let other = match take {
                Take::Any => false,
                Take::Small => self.is_large(&request),
                Take::Large => !self.is_large(&request),
            };
            if other || events + more_events > most_events || bytes + more_bytes > most_bytes {
                left_out |= other;
                self.together.pass_over(request);
                continue;
            }
            events += more_events;
            bytes += more_bytes;
            requests.push(request);
        }
        self.together.end_turns();
        (requests, left_out)
    }

    /// The one whose turn it is.
    fn first_together(&mut self, shared: bool) -> Option<Request> {
        let first = match self.next {
            Next::Small if shared => self.first_of(false),
            Next::Large if shared => self.first_of(true),
            Next::Any | Next::Small | Next::Large => None,
        };
        first.or_else(|| self.together.pop())
    }

    /// The first of the large ones, or of the small ones, that is next of its tenant.
    fn first_of(&mut self, large: bool) -> Option<Request> {
        let mut first = None;
        while let Some(request) = self.together.pop() {
            if self.is_large(&request) == large {
                first = Some(request);
                break;
            }
            self.together.pass_over(request);
        }
        // What was passed over may be committed beside it.
        self.together.end_turns();
        first
    }

    fn is_large(&self, request: &Request) -> bool {
        self.widths.expected(request.rest()) > SMALL
    }

    /// Deliveries that all of these will add.
    fn expected(&self, requests: &[Request]) -> u32 {
        let each = requests.iter().map(|one| self.widths.expected(one.rest()));
        each.fold(0, u32::saturating_add)
    }

    /// Events and payload bytes of a commit; `shared` where several tenants hand something in.
    fn most_together(&self, shared: bool) -> (usize, usize) {
        let events = self.options.batch_events.min(MAX_ROWS);
        let bytes = self.options.batch_bytes;
        match shared {
            true => (events.min(SHARED_EVENTS), bytes.min(SHARED_BYTES)),
            false => (events, bytes),
        }
    }

    /// A part of the next one of those that are written apart.
    fn commit_part(&mut self) -> Option<Commit> {
        loop {
            let request = self.apart.pop()?;
            // Its caller has gone: what is written is written.
            if request.answer.is_closed() {
                continue;
            }
            let part = if self.is_alone() {
                PART_ALONE
            } else {
                self.part
            };
            let most = self.widths.fit(request.rest(), part, 1);
            return Some(self.commit(vec![request], most));
        }
    }

    /// Whether nothing has been committed together for a while.
    fn is_alone(&self) -> bool {
        (self.last_together).is_none_or(|last| last.elapsed() >= ALONE_AFTER)
    }

    /// Of these, at most so many events each.
    fn commit(&self, requests: Vec<Request>, most: usize) -> Commit {
        let events: Vec<NewEvent> = (requests.iter())
            .flat_map(|request| request.rest().iter().take(most).cloned())
            .collect();
        let store = Arc::clone(&self.store);
        AbortOnDropHandle::new(tokio::spawn(async move {
            let began = Instant::now();
            let answer = store.accept_events(&events).await;
            Committed {
                requests,
                answer,
                took: began.elapsed(),
            }
        }))
    }

    /// The next part is as large as will take as long as one is meant to, if this one
    /// tells; it grows by little, since a store has good moments.
    fn measure(&mut self, part: &Committed) {
        if !self.is_alone() {
            let took = part.took.min(PART_RESTS_FOR);
            self.part_from = Instant::now() + took * PART_RESTS;
        }
        let Ok(acceptances) = &part.answer else {
            return;
        };
        let written = acceptances
            .iter()
            .map(|one| one.destinations().len().max(1));
        let written = written.sum::<usize>() as f64;
        let fitting = written * PART_TAKES.as_secs_f64() / part.took.as_secs_f64().max(1e-6);
        let most = (self.part + self.part / 4).min(*PART.end());
        self.part = (fitting as u32).clamp(*PART.start(), most);
    }

    async fn deal_out(&mut self, committed: Committed) {
        let Committed {
            requests, answer, ..
        } = committed;
        match answer {
            Ok(acceptances) => self.answer(requests, acceptances).await,
            Err(error) if requests.len() > 1 => self.each_alone(requests, &error).await,
            Err(error) => requests.into_iter().for_each(|one| refuse(one, &error)),
        }
    }

    /// Answers the requests that are written, and keeps the others: the store has
    /// answered the first events, perhaps not all.
    async fn answer(&mut self, requests: Vec<Request>, acceptances: Vec<Acceptance>) {
        metrics::histogram!("paceline_ingest_batch_events").record(acceptances.len() as f64);
        let wakes = wakes_of(&acceptances);
        let taken = acceptances.len();
        let mut acceptances = acceptances.into_iter();
        let mut left = Vec::new();
        for mut request in requests {
            let open = request.rest().len();
            let before = request.answers.len();
            request.answers.extend(acceptances.by_ref().take(open));
            let written = request.events.iter().zip(&request.answers).skip(before);
            self.widths.learn(written);
            if request.rest().is_empty() {
                // A caller that went away has its events all the same.
                let _ = request.answer.send(Ok(request.answers));
            } else if taken == 0 {
                refuse(request, &no_answer());
            } else if request.answers.is_empty()
                || (!self.is_wide(&request.events) && request.rest().len() <= taken)
            {
                // What fits into one more commit has its turn in the next.
                left.push(request);
            } else {
                self.apart.put_back(vec![request]);
            }
        }
        self.together.untake(left);
        wake_all(self.schedule.as_ref(), &wakes).await;
    }

    /// After a commit that failed: one of them may be why.
    async fn each_alone(&mut self, mut requests: Vec<Request>, error: &StoreError) {
        let count = requests.len();
        tracing::warn!(%error, requests = count, "events not accepted together, trying one by one");
        requests.sort_by_key(|request| Reverse(request.failed));
        let until = Instant::now() + ALONE_FOR;
        let (mut away, mut later) = (0, Vec::new());
        for mut request in requests {
            // Its caller has gone, and nobody waits for the answer.
            if request.answer.is_closed() {
                continue;
            }
            let is_late = Instant::now() >= until;
            if away >= AWAY_AFTER || (is_late && away > 0) {
                refuse(request, error);
                continue;
            }
            if is_late {
                request.failed += 1;
                later.push(request);
                continue;
            }
            match self.store.accept_events(request.rest()).await {
                Ok(acceptances) => {
                    away = 0;
                    self.answer(vec![request], acceptances).await;
                }
                Err(error) => {
                    away = match is_of_the_store(&error) {
                        true => away + 1,
                        false => 0,
                    };
                    refuse(request, &error);
                }
            }
        }
        let (alone, again): (Vec<_>, Vec<_>) =
            (later.into_iter()).partition(|request| request.failed >= COMMITS);
        for request in alone {
            self.apart.push(request);
        }
        self.together.put_back(again);
    }
}

/// Whether the next request would fail as well.
const fn is_of_the_store(error: &StoreError) -> bool {
    matches!(error, StoreError::Unavailable(_) | StoreError::Lost(_))
}

/// The end of what is under way; never, where nothing is.
async fn under_way(commit: &mut Option<Commit>) -> Committed {
    match commit {
        Some(running) => {
            let done = running.await;
            *commit = None;
            // It is aborted only with the loop.
            done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
        }
        None => std::future::pending().await,
    }
}

fn size(request: &Request) -> (usize, usize) {
    let rest = request.rest();
    (rest.len(), payload_bytes(rest))
}

fn payload_bytes(events: &[NewEvent]) -> usize {
    events.iter().map(|event| event.payload.len()).sum()
}

fn wakes_of(acceptances: &[Acceptance]) -> Vec<Wake> {
    let mut destinations: Vec<_> = (acceptances.iter())
        .flat_map(Acceptance::destinations)
        .copied()
        .collect();
    destinations.sort_unstable();
    destinations.dedup();
    destinations.into_iter().map(Wake::now).collect()
}

fn refuse(request: Request, error: &StoreError) {
    tracing::warn!(%error, "events not accepted");
    let refusal = match error {
        StoreError::Lost(_) => IngestError::Lost(error.to_string()),
        _ => IngestError::Unavailable(error.to_string()),
    };
    let _ = request.answer.send(Err(refusal));
}

/// A store that answers nothing is asked no more.
fn no_answer() -> StoreError {
    StoreError::Unavailable("events were left unanswered".to_owned())
}
