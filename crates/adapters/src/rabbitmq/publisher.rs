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
use futures_util::stream::{FuturesUnordered, StreamExt};
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::{BasicProperties, Channel, Confirmation};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::connection::{Address, Backoff, Line, bounded, unavailable};
use super::{codec, topology};

/// A permit's deadline is 2 s after its start: what is confirmed later is of
/// no use.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(2);

/// Batches that are published at the same time. More wait their turn: it
/// bounds what a broker that stops answering can hold in our memory.
const LANES: usize = 4;

/// How often a connection is asked whether it still is one. Reads a flag.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The store is the truth, so we do not ask for messages to be written to
/// disk. A quorum queue does so all the same; if an operator ever replaces it
/// by another type, this saves that type the work.
const TRANSIENT: u8 = 1;

const BLOCKED: &str = "a memory or disk alarm";

pub(super) struct Publisher {
    shared: Arc<Shared>,
    supervisor: JoinHandle<()>,
}

struct Shared {
    address: Arc<Address>,
    queue: String,
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
    pub(super) async fn connect(address: Arc<Address>, queue: &str) -> Result<Self, QueueError> {
        let lanes = Lanes::dial(&address, queue).await?;
        let shared = Arc::new(Shared {
            address,
            queue: queue.to_owned(),
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
        let batch = Batch::send(&lanes.line, &channel, &self.shared.queue, groups, deadline).await;
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
                queue = shared.queue,
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
    async fn dial(address: &Address, queue: &str) -> Result<Self, QueueError> {
        let lanes = Self {
            line: Line::dial(address, &format!("paceline publisher of {queue}")).await?,
            places: Semaphore::new(LANES),
            free: Mutex::new(Vec::with_capacity(LANES)),
        };
        if let Err(error) = lanes.declare(queue).await {
            lanes.line.sever();
            return Err(error);
        }
        Ok(lanes)
    }

    async fn declare(&self, queue: &str) -> Result<(), QueueError> {
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

/// What became of one batch.
struct Batch {
    confirmed: Vec<bool>,
    unanswered: usize,
    returned: bool,
}

enum Answer {
    Confirmed,
    Refused,
    Returned,
    /// The channel or the connection ended.
    None,
}

impl Batch {
    /// Publishes everything, then joins the confirms: awaiting them one by
    /// one would cost a round trip each.
    async fn send(
        line: &Line,
        channel: &Channel,
        queue: &str,
        groups: &[PermitGroup],
        deadline: Instant,
    ) -> Self {
        let mut batch = Self {
            confirmed: vec![false; groups.len()],
            unanswered: groups.len(),
            returned: false,
        };
        let mut pending: FuturesUnordered<_> = groups
            .iter()
            .enumerate()
            .map(|(index, group)| async move { (index, publish_one(channel, queue, group).await) })
            .collect();
        let give_up = async {
            tokio::select! {
                biased;
                () = sleep_until(deadline) => {}
                () = until_unusable(line) => {}
            }
        };
        tokio::pin!(give_up);
        loop {
            let (index, answer) = tokio::select! {
                biased;
                next = pending.next() => match next {
                    Some(answered) => answered,
                    None => return batch,
                },
                () = &mut give_up => return batch,
            };
            match answer {
                Answer::Confirmed => batch.confirmed[index] = true,
                Answer::Refused => {}
                Answer::Returned => batch.returned = true,
                Answer::None => continue,
            }
            batch.unanswered -= 1;
        }
    }

    fn is_answered(&self) -> bool {
        self.unanswered == 0
    }

    fn conclude(self, blocked: bool) -> Result<Vec<Published>, QueueError> {
        if blocked && !self.is_answered() {
            return Err(QueueError::Blocked(BLOCKED.to_owned()));
        }
        // A return means that the queue was missing: whatever it had
        // confirmed before in this batch went with it.
        let queue_stood = !self.returned;
        Ok(self
            .confirmed
            .into_iter()
            .map(|confirmed| match confirmed && queue_stood {
                true => Published::Confirmed,
                false => Published::Unconfirmed,
            })
            .collect())
    }
}

async fn publish_one(channel: &Channel, queue: &str, group: &PermitGroup) -> Answer {
    // Mandatory: without it a message for a missing queue is confirmed and
    // thrown away.
    let options = BasicPublishOptions {
        mandatory: true,
        ..BasicPublishOptions::default()
    };
    let payload = codec::encode(group);
    let properties = BasicProperties::default().with_delivery_mode(TRANSIENT);
    let published = channel.basic_publish("".into(), queue.into(), options, &payload, properties);
    let Ok(confirm) = published.await else {
        return Answer::None;
    };
    match confirm.await {
        Ok(Confirmation::Ack(None)) => Answer::Confirmed,
        Ok(Confirmation::Ack(Some(_)) | Confirmation::Nack(Some(_))) => Answer::Returned,
        Ok(Confirmation::Nack(None) | Confirmation::NotRequested) => Answer::Refused,
        Err(_) => Answer::None,
    }
}

/// Returns once no confirm can be expected any more.
async fn until_unusable(line: &Line) {
    while line.is_connected() && !line.is_blocked() {
        sleep(LOOK_INTERVAL).await;
    }
}
