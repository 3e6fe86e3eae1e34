//! The publishing side: one connection, redialled for as long as this lives.
//!
//! Promises that `publish` ends within [`CONFIRM_TIMEOUT`] and says
//! `Confirmed` only of what the broker has. Refuses to publish while the
//! broker blocks us, so that nothing piles up in memory to arrive late.
//!
//! A connection has a few channels, and each carries one batch at a time:
//! lapin hands a returned message to whichever confirm it completes first,
//! not to the one that it belongs to, so that returns can be told apart by
//! batch only.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::permit::PermitGroup;
use engine::ports::{Published, QueueError};
use lapin::Channel;
use lapin::options::ConfirmSelectOptions;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};

use super::batch::Batch;
use super::connection::{Address, BLOCKED, Backoff, LOOK_INTERVAL, Line, bounded, unavailable};
use super::topology::{self, Queue};

/// A permit's deadline is 2 s after its start: what is confirmed later is of
/// no use.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(2);

/// Batches that are published at the same time. More wait their turn: it
/// bounds what a broker that stops answering can hold in our memory.
const LANES: usize = 4;

pub(super) struct Publisher {
    shared: Arc<Shared>,
    supervisor: JoinHandle<()>,
}

struct Shared {
    address: Arc<Address>,
    queue: Queue,
    state: Mutex<State>,
    /// The broker returned a message: the queue is gone.
    redeclare: Notify,
}

enum State {
    Up(Arc<Lanes>),
    /// And why.
    Down(String),
}

impl Publisher {
    pub(super) async fn connect(address: Arc<Address>, queue: &Queue) -> Result<Self, QueueError> {
        let lanes = Lanes::dial(&address, queue).await?;
        let shared = Arc::new(Shared {
            address,
            queue: queue.clone(),
            state: Mutex::new(State::Up(Arc::new(lanes))),
            redeclare: Notify::new(),
        });
        let supervisor = tokio::spawn(supervise(Arc::clone(&shared)));
        Ok(Self { shared, supervisor })
    }

    pub(super) async fn publish(
        &self,
        groups: &[PermitGroup],
    ) -> Result<Vec<Published>, QueueError> {
        let lanes = self.shared.usable()?;
        if groups.is_empty() {
            return Ok(Vec::new());
        }
        let deadline = Instant::now() + CONFIRM_TIMEOUT;
        let Ok(place) = timeout_at(deadline, lanes.places.acquire()).await else {
            return Err(unavailable("earlier batches are still unconfirmed"));
        };
        let _place = place.expect("the semaphore is never closed");
        let channel = lanes.take_channel(deadline).await?;
        let batch = Batch::send(
            &lanes.line,
            &channel,
            &self.shared.queue.name,
            groups,
            deadline,
        )
        .await;
        // A channel with confirms outstanding would hand them to the next
        // batch; dropped, it closes.
        if batch.is_answered() {
            lanes.put_back(channel);
        }
        if batch.returned {
            self.shared.redeclare.notify_one();
        }
        batch.conclude(lanes.line.is_blocked())
    }

    pub(super) fn health(&self) -> Result<(), QueueError> {
        self.shared.usable().map(|_| ())
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.supervisor.abort();
    }
}

impl Shared {
    /// The connection, if it is one that takes publishes.
    fn usable(&self) -> Result<Arc<Lanes>, QueueError> {
        let lanes = match &*self.state.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Up(lanes) => Arc::clone(lanes),
            State::Down(reason) => return Err(unavailable(reason.clone())),
        };
        if !lanes.line.is_connected() {
            return Err(unavailable("the connection broke"));
        }
        if lanes.line.is_blocked() {
            return Err(QueueError::Blocked(BLOCKED.to_owned()));
        }
        Ok(lanes)
    }

    fn set(&self, state: State) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    fn lanes(&self) -> Option<Arc<Lanes>> {
        match &*self.state.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Up(lanes) => Some(Arc::clone(lanes)),
            State::Down(_) => None,
        }
    }
}

/// Redials and redeclares, for as long as the publisher lives.
async fn supervise(shared: Arc<Shared>) {
    while let Some(lanes) = shared.lanes() {
        let reason = watch(&shared, &lanes).await;
        lanes.line.sever();
        drop(lanes);
        tracing::warn!(address = %shared.address, %reason, "lost the publishing connection");
        shared.set(State::Down(reason));
        let lanes = redial(&shared).await;
        shared.set(State::Up(Arc::new(lanes)));
        tracing::info!(address = %shared.address, "publishing connection is back");
    }
}

/// Returns why the connection is of no more use.
async fn watch(shared: &Shared, lanes: &Lanes) -> String {
    let mut missing = false;
    while lanes.line.is_connected() {
        tokio::select! {
            biased;
            () = shared.redeclare.notified() => missing = true,
            () = sleep(LOOK_INTERVAL) => {}
        }
        // While blocked it would wait and fail: nothing is written.
        if missing && !lanes.line.is_blocked() {
            tracing::warn!(
                queue = shared.queue.name,
                "the delivery queue is missing; declaring it"
            );
            sleep(topology::MISSING_FOR).await;
            match lanes.declare(&shared.queue).await {
                Ok(()) => missing = false,
                Err(_) if lanes.line.is_blocked() => {}
                Err(error) => return error.to_string(),
            }
        }
    }
    "the connection broke".to_owned()
}

async fn redial(shared: &Shared) -> Lanes {
    let mut backoff = Backoff::new();
    loop {
        backoff.wait().await;
        match Lanes::dial(&shared.address, &shared.queue).await {
            Ok(lanes) => return lanes,
            Err(error) => {
                tracing::debug!(%error, "redialling failed");
                shared.set(State::Down(error.to_string()));
            }
        }
    }
}

/// A connection and its channels.
struct Lanes {
    line: Line,
    places: Semaphore,
    /// Open, confirming, nothing outstanding.
    free: Mutex<Vec<Channel>>,
}

impl Lanes {
    async fn dial(address: &Address, queue: &Queue) -> Result<Self, QueueError> {
        let name = format!("paceline publisher of {}", queue.name);
        let lanes = Self {
            line: Line::dial(&address.for_publishing(), &name).await?,
            places: Semaphore::new(LANES),
            free: Mutex::new(Vec::with_capacity(LANES)),
        };
        if let Err(error) = lanes.declare(queue).await {
            lanes.line.sever();
            return Err(error);
        }
        Ok(lanes)
    }

    async fn declare(&self, queue: &Queue) -> Result<(), QueueError> {
        let channel = self.line.open_channel().await?;
        topology::declare(&channel, queue).await
    }

    async fn take_channel(&self, deadline: Instant) -> Result<Channel, QueueError> {
        let free = self
            .free
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        if let Some(channel) = free.filter(|channel| channel.status().connected()) {
            return Ok(channel);
        }
        if let Ok(opened) = timeout_at(deadline, self.open()).await {
            return opened;
        }
        if self.line.is_blocked() {
            return Err(QueueError::Blocked(BLOCKED.to_owned()));
        }
        // Connected, not blocked, and silent: a peer that is gone.
        self.line.sever();
        Err(unavailable("opening a channel: timed out"))
    }

    async fn open(&self) -> Result<Channel, QueueError> {
        let channel = self.line.open_channel().await?;
        let options = ConfirmSelectOptions::default();
        bounded("asking for confirms", channel.confirm_select(options)).await?;
        Ok(channel)
    }

    fn put_back(&self, channel: Channel) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.push(channel);
    }
}
