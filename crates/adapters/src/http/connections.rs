//! The connections of all destinations: those that are idle, and those that are being
//! opened.
//!
//! Dials to one destination are few at a time, and more as they succeed: a burst of a
//! thousand would overrun the accept queue of a healthy receiver, which would then look
//! like one that does not answer. Whoever needs a connection waits in line, and gets the
//! next that is opened or comes back.
//!
//! A dial belongs to nobody. Who waited for it may have no more time, because a permit
//! ends after two seconds, and then says nothing of the receiver; the dial goes on to
//! its own end, and what it comes to is for who waits by then, or for who asks next.
//!
//! Over HTTP/2 a connection has places for many. It is idle when nobody has one; until then
//! it is known here, for whoever comes next, and those who have places hold it. What a
//! receiver speaks is remembered: where it may be HTTP/2 and nobody knows, the first dial
//! goes alone.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use engine::ports::SendError;
use engine::recent::Recent;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::connection::AtRest;
use super::endpoint::Scheme;
use super::http2::Multiplexed;
use super::pool::{Key, Pool, PoolLimits, Returned};

/// Dials of this process to one destination at first, and again after one that failed:
/// eight workers that are cold fill the accept queue of a common server.
const FIRST_DIALS: usize = 16;

/// The most, each success making room for one more: what the accept queue of a common
/// server holds.
const MOST_DIALS: usize = 128;

/// Failures that nobody waited for are told to who asks within this time: longer than a
/// destination that got no connection is left alone.
const FAILURE_KEPT: Duration = Duration::from_secs(20);

/// Receivers of which it is remembered what they speak; beyond it the older half is
/// forgotten. About 100 bytes each.
const MOST_SPOKEN: usize = 16_384;

/// Requests that a receiver says it has not looked at, less those that it has answered
/// since: more of them are failures, or one that mostly says so would be sent to for ever.
/// As many as four of its connections have places.
const MOST_REFUSED: u32 = 256;

/// What a dial came to.
pub(super) type Dialled = Result<AtRest, SendError>;

/// Idle connections, and lines for new ones.
pub(super) struct Connections {
    limits: PoolLimits,
    pool: Mutex<Pool<AtRest>>,
    lines: Mutex<HashMap<Key, Line<AtRest>>>,
    /// Those with places, as long as somebody holds them. Locked before the pool.
    shared: Mutex<HashMap<Key, Vec<Weak<Multiplexed>>>>,
    spoken: Mutex<Recent<Key, Spoken>>,
}

/// How a receiver has answered so far.
#[derive(Debug, Clone, Copy)]
struct Spoken {
    /// Requests at once on one connection: over HTTP/1.1 one.
    places: usize,
    /// Requests that it did not look at; each answer makes up for one.
    refused: u32,
}

/// What it comes to that a receiver has not looked at a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// It is sent again.
    AsItMay,
    /// A failure.
    TooOften,
}

impl Spoken {
    const HTTP1: Self = Self {
        places: 1,
        refused: 0,
    };
}

/// How to get a connection that is not idle already.
pub(super) struct Lined {
    /// What will be there.
    pub(super) dialled: oneshot::Receiver<Dialled>,
    /// So many dials are to be begun now, each to be [`Connections::ended`].
    pub(super) begin: usize,
}

impl Connections {
    pub(super) fn new(limits: PoolLimits) -> Self {
        Self {
            limits,
            pool: Mutex::new(Pool::new(limits)),
            lines: Mutex::default(),
            shared: Mutex::default(),
            spoken: Mutex::new(Recent::new(MOST_SPOKEN)),
        }
    }

    /// How many are idle.
    pub(super) fn idle(&self) -> usize {
        lock(&self.pool).len()
    }

    /// The one that became idle last, or a place beside others.
    pub(super) fn take(&self, key: &Key) -> Option<AtRest> {
        let now = Instant::now();
        let (taken, closing) = lock(&self.pool).take(key, now);
        drop(closing); // after the lock: closing sockets takes time
        if taken.is_some() {
            return taken;
        }
        let known = lock(&self.shared).get(key).cloned().unwrap_or_default();
        let mut young = (known.iter().filter_map(Weak::upgrade))
            .filter(|shared| now < shared.opened_at + self.limits.age);
        let place = young.find_map(|shared| shared.place())?;
        Some(AtRest::Http2(place))
    }

    /// Closes those that have been idle for too long, and forgets old failures and
    /// connections that are closed.
    pub(super) fn sweep(&self) {
        let now = Instant::now();
        let expired = lock(&self.pool).sweep(now);
        drop(expired);
        lock(&self.lines).retain(|_, line| !line.is_over(now));
        lock(&self.shared).retain(|_, known| {
            known.retain(|shared| shared.strong_count() > 0);
            !known.is_empty()
        });
    }

    /// The receiver has answered a request on a connection that is shared.
    pub(super) fn answered(&self, key: &Key) {
        let mut spoken = lock(&self.spoken);
        if let Some(before) = spoken.get(key).copied()
            && before.refused > 0
        {
            let refused = before.refused - 1;
            spoken.insert(key.clone(), Spoken { refused, ..before });
        }
    }

    /// The receiver says that it has not looked at a request.
    pub(super) fn refused(&self, key: &Key) -> Refused {
        let mut spoken = lock(&self.spoken);
        // What it speaks may be forgotten; the next dial learns it.
        let Some(before) = spoken.get(key).copied() else {
            return Refused::AsItMay;
        };
        let refused = before.refused.saturating_add(1);
        spoken.insert(key.clone(), Spoken { refused, ..before });
        match refused > MOST_REFUSED {
            true => Refused::TooOften,
            false => Refused::AsItMay,
        }
    }

    /// One that was used, or was not needed: for who waits, or else idle.
    pub(super) fn put(&self, key: &Key, returned: Returned<AtRest>) {
        let Returned {
            mut connection,
            opened_at,
            keep_alive,
        } = returned;
        if let AtRest::Http2(place) = &mut connection
            && !place.is_ready()
        {
            return; // its receiver has said GOAWAY meanwhile, say
        }
        // The receiver is about to close it, or it is too old for another request.
        let closes = keep_alive.is_some_and(|kept| kept.is_zero())
            || Instant::now() >= opened_at + self.limits.age;
        let left = match lock(&self.lines).get_mut(key) {
            Some(line) => {
                line.answers();
                match closes {
                    true => Some(Ok(connection)),
                    false => line.hand_over(Ok(connection)),
                }
            }
            None => Some(Ok(connection)),
        };
        if let Some(Ok(connection)) = left {
            let returned = Returned {
                connection,
                opened_at,
                keep_alive,
            };
            self.rest(key, returned);
        }
    }

    /// Nobody waits for it. It is idle, unless others have places on it and hold it.
    fn rest(&self, key: &Key, returned: Returned<AtRest>) {
        let with_others = returned.connection.shared().cloned();
        // Of the last two that come back at once one has to be the last: under the lock.
        let shared = lock(&self.shared);
        let is_held = with_others.is_some_and(|shared| shared.taken() > 1);
        let closing = match is_held {
            true => {
                drop(returned); // which closes nothing
                Vec::new()
            }
            false => lock(&self.pool).put(key.clone(), returned, Instant::now()),
        };
        drop(shared);
        drop(closing); // after the locks
    }

    /// A place in the destination's line.
    ///
    /// # Errors
    /// A dial has failed since, and nobody was told.
    pub(super) fn line_up(&self, key: &Key) -> Result<Lined, SendError> {
        let mut lines = lock(&self.lines);
        let new = || Line::new(self.places(key));
        let line = lines.entry(key.clone()).or_insert_with(new);
        if let Some(failure) = line.untold(Instant::now()) {
            return Err(failure);
        }
        let (sender, dialled) = oneshot::channel();
        line.waiting.push_back(sender);
        let begin = line.begin();
        Ok(Lined { dialled, begin })
    }

    /// How many requests a connection to there serves at once; `None` if nobody knows.
    fn places(&self, key: &Key) -> Option<usize> {
        if key.origin.scheme == Scheme::Http || !self.limits.http2 {
            return Some(1);
        }
        let spoken = lock(&self.spoken);
        spoken.get(key).map(|spoken| spoken.places)
    }

    /// What a dial has found out: the places of its connection.
    fn learn(&self, key: &Key, connection: &AtRest) -> usize {
        let places = connection.shared().map_or(1, |shared| shared.most());
        let mut spoken = lock(&self.spoken);
        let before = spoken.get(key).copied().unwrap_or(Spoken::HTTP1);
        spoken.insert(key.clone(), Spoken { places, ..before });
        drop(spoken);
        if let Some(shared) = connection.shared() {
            let mut known = lock(&self.shared);
            let known = known.entry(key.clone()).or_default();
            known.retain(|shared| shared.strong_count() > 0);
            known.push(Arc::downgrade(shared));
        }
        places
    }

    /// A dial has ended; how many to begin now.
    pub(super) fn ended(&self, key: &Key, dialled: Dialled) -> usize {
        let now = Instant::now();
        let places = dialled.as_ref().ok().map(|one| self.learn(key, one));
        let shared = dialled.as_ref().ok().and_then(AtRest::shared).cloned();
        // Before the lock, which is everybody's: a place is not had without other locks.
        let waiting = (lock(&self.lines).get(key)).map_or(0, |line| line.waiting.len());
        let place = |_| Some(AtRest::Http2(shared.as_ref()?.place()?));
        let mut places_left: Vec<AtRest> = (1..waiting).map_while(place).collect();
        let mut lines = lock(&self.lines);
        let Entry::Occupied(mut line) = lines.entry(key.clone()) else {
            return 0;
        };
        if let Some(places) = places {
            line.get_mut().places = places;
        }
        let left = line.get_mut().ended(dialled, now);
        line.get_mut().share(|| places_left.pop());
        let begin = line.get_mut().begin();
        if line.get().is_over(now) {
            line.remove();
        }
        drop(lines);
        drop(places_left); // those who waited for them are gone
        if let Some(connection) = left {
            let returned = Returned {
                opened_at: connection.opened_at(),
                connection,
                keep_alive: None,
            };
            self.rest(key, returned);
        }
        begin
    }
}

/// Who waits for a connection to one destination: pure, and told the time.
struct Line<C> {
    /// In order. One whose other end is dropped waits no more.
    waiting: VecDeque<oneshot::Sender<Result<C, SendError>>>,
    under_way: usize,
    /// How many may be under way.
    most: usize,
    /// How many of those who wait one dial is for.
    places: usize,
    /// Failures that nobody has been told of.
    untold: VecDeque<(Instant, SendError)>,
}

impl<C> Line<C> {
    /// For a receiver whose connections serve so many at once. If nobody knows, the first
    /// dial tells: the others may need none.
    fn new(places: Option<usize>) -> Self {
        Self {
            waiting: VecDeque::new(),
            under_way: 0,
            most: places.map_or(1, |_| FIRST_DIALS),
            places: places.unwrap_or(1),
            untold: VecDeque::new(),
        }
    }

    /// How many dials to begin; they count as under way from here on.
    fn begin(&mut self) -> usize {
        self.waiting.retain(|one| !one.is_closed());
        let wanted = (self.waiting.len().div_ceil(self.places)).min(self.most);
        let begin = wanted.saturating_sub(self.under_way);
        self.under_way += begin;
        begin
    }

    /// A dial is over; a connection that nobody waits for.
    fn ended(&mut self, dialled: Result<C, SendError>, now: Instant) -> Option<C> {
        self.under_way = self.under_way.saturating_sub(1);
        match &dialled {
            Ok(_) => {
                self.most = (self.most + 1).clamp(FIRST_DIALS, MOST_DIALS);
                self.answers();
            }
            Err(_) => self.most = FIRST_DIALS,
        }
        match self.hand_over(dialled)? {
            Ok(connection) => Some(connection),
            Err(failure) => {
                self.untold.push_back((now, failure));
                None
            }
        }
    }

    /// To those who wait, as long as there is more.
    fn share(&mut self, mut more: impl FnMut() -> Option<C>) {
        self.waiting.retain(|one| !one.is_closed());
        while !self.waiting.is_empty()
            && let Some(connection) = more()
        {
            // Back from one who left meanwhile: there is one for the next.
            drop(self.hand_over(Ok(connection)));
        }
    }

    /// The receiver is there: that a dial failed before is no news any more.
    fn answers(&mut self) {
        self.untold.clear();
    }

    /// To the first who still waits; back, if nobody does.
    fn hand_over(&mut self, mut dialled: Result<C, SendError>) -> Option<Result<C, SendError>> {
        while let Some(first) = self.waiting.pop_front() {
            match first.send(dialled) {
                Ok(()) => return None,
                Err(back) => dialled = back,
            }
        }
        Some(dialled)
    }

    /// The oldest failure that nobody has been told of.
    fn untold(&mut self, now: Instant) -> Option<SendError> {
        while let Some((since, failure)) = self.untold.pop_front() {
            if now.duration_since(since) < FAILURE_KEPT {
                return Some(failure);
            }
        }
        None
    }

    fn is_over(&self, now: Instant) -> bool {
        let is_old = |(since, _): &(Instant, SendError)| now.duration_since(*since) >= FAILURE_KEPT;
        self.under_way == 0
            && self.waiting.iter().all(oneshot::Sender::is_closed)
            && self.untold.iter().all(is_old)
    }
}

/// Each is whole between any two of its methods, so a panic elsewhere that held the lock
/// has not broken it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use domain::ids::DestinationId;
    use tokio::io::{AsyncWriteExt, DuplexStream, duplex};
    use url::Host;
    use uuid::Uuid;

    use super::super::endpoint::Origin;
    use super::*;

    const LIMITS: PoolLimits = PoolLimits {
        per_key: 2,
        total: 2,
        idle_age: Duration::from_secs(30),
        age: Duration::from_secs(300),
        http2: true,
    };

    fn key() -> Key {
        Key {
            destination: DestinationId(Uuid::from_u128(1)),
            origin: Arc::new(Origin {
                scheme: Scheme::Https,
                host: Host::Domain("example.com".to_owned()),
                port: 443,
            }),
            identity: None,
        }
    }

    /// One over HTTP/1.1 that was just opened, and its other end.
    async fn opened() -> (Returned<AtRest>, DuplexStream) {
        let (ours, theirs) = duplex(64);
        let connection = AtRest::open(Box::new(ours)).await.unwrap();
        let returned = Returned {
            opened_at: connection.opened_at(),
            connection,
            keep_alive: None,
        };
        (returned, theirs)
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_gets_none_that_is_too_old() {
        let connections = Connections::new(LIMITS);
        for (age, is_young) in [
            (LIMITS.age, false),
            (LIMITS.age - Duration::from_secs(1), true),
        ] {
            let mut lined = connections.line_up(&key()).unwrap();
            let (returned, _theirs) = opened().await;
            tokio::time::advance(age).await;
            connections.put(&key(), returned);
            let got = lined.dialled.try_recv();
            assert_eq!(got.is_ok(), is_young, "{age:?}");
            assert_eq!(connections.idle(), 0);
        }
    }

    /// A dial that failed: nothing was asked yet.
    #[tokio::test]
    async fn one_that_is_closed_or_speaks_at_once_is_not_opened() {
        let open = async |theirs_says: &'static [u8], stays: bool| {
            let (ours, mut theirs) = duplex(64);
            theirs.write_all(theirs_says).await.unwrap();
            let _theirs = stays.then_some(theirs);
            AtRest::open(Box::new(ours)).await.err()
        };
        assert_eq!(open(b"", true).await, None);
        let closed = open(b"", false).await;
        assert_eq!(closed.as_deref(), Some("it was closed at once"));
        let spoke = open(b"220 mail.example.com ESMTP", true).await;
        let unasked = "it spoke before it was asked anything";
        assert_eq!(spoke.as_deref(), Some(unasked));
    }

    #[tokio::test]
    async fn one_that_speaks_unasked_is_of_no_more_use() {
        let (mut returned, mut theirs) = opened().await;
        assert!(returned.connection.is_ready().await);
        theirs.write_all(b"HTTP/1.1 408 ").await.unwrap();
        assert!(!returned.connection.is_ready().await);
    }

    #[tokio::test]
    async fn refusals_teach_nothing_of_what_a_receiver_speaks() {
        let connections = Connections::new(LIMITS);
        assert_eq!(connections.refused(&key()), Refused::AsItMay);
        assert_eq!(connections.places(&key()), None);
        let (returned, _theirs) = opened().await;
        connections.learn(&key(), &returned.connection);
        for _ in 0..MOST_REFUSED {
            assert_eq!(connections.refused(&key()), Refused::AsItMay);
        }
        assert_eq!(connections.refused(&key()), Refused::TooOften);
        connections.answered(&key());
        connections.answered(&key());
        assert_eq!(connections.refused(&key()), Refused::AsItMay);
        assert_eq!(connections.refused(&key()), Refused::TooOften);
        assert_eq!(connections.places(&key()), Some(1));
    }

    type Waits = oneshot::Receiver<Result<u32, SendError>>;

    fn waits(line: &mut Line<u32>) -> Waits {
        let (sender, receiver) = oneshot::channel();
        line.waiting.push_back(sender);
        receiver
    }

    fn failure() -> SendError {
        SendError::Connect("tcp: nobody there".to_owned())
    }

    #[test]
    fn dials_are_few_at_first_and_more_as_they_succeed() {
        let (mut line, now) = (Line::new(Some(1)), Instant::now());
        let mut waiting: Vec<Waits> = (0..1_000).map(|_| waits(&mut line)).collect();
        assert_eq!(line.begin(), FIRST_DIALS);
        assert_eq!(line.begin(), 0, "they are under way");
        for connection in 0..500 {
            assert_eq!(line.ended(Ok(connection), now), None);
            line.begin();
            assert_eq!(
                waiting.remove(0).try_recv().unwrap(),
                Ok(connection),
                "in turn"
            );
        }
        assert_eq!(line.under_way, MOST_DIALS);
        line.ended(Err(failure()), now);
        assert_eq!(line.begin(), 0);
        assert_eq!(line.most, FIRST_DIALS, "after a failure few again");
    }

    #[test]
    fn no_more_are_dialled_than_wait() {
        let (mut line, now) = (Line::new(Some(1)), Instant::now());
        let waiting: Vec<Waits> = (0..3).map(|_| waits(&mut line)).collect();
        assert_eq!(line.begin(), 3);
        drop(waiting);
        assert_eq!(line.ended(Ok(1), now), Some(1), "for the pool");
        assert_eq!(line.begin(), 0);
    }

    #[test]
    fn where_a_connection_may_serve_many_the_first_dial_goes_alone() {
        let (mut line, now) = (Line::new(None), Instant::now());
        let mut waiting: Vec<Waits> = (0..10).map(|_| waits(&mut line)).collect();
        assert_eq!(line.begin(), 1);
        line.places = 4;
        line.ended(Ok(7), now);
        let places = std::cell::Cell::new(3_usize);
        line.share(|| (places.replace(places.get().saturating_sub(1)) > 0).then_some(7));
        for mut one in waiting.drain(..4) {
            assert_eq!(one.try_recv().unwrap(), Ok(7));
        }
        assert_eq!(line.begin(), 2, "of four places each, for six");

        let mut line = Line::new(None);
        let _waiting: Vec<Waits> = (0..20).map(|_| waits(&mut line)).collect();
        line.begin();
        line.ended(Ok(7), now);
        assert_eq!(line.begin(), FIRST_DIALS, "of one each");
    }

    /// A permit ends before a dial into nothing does. If that were all, no such
    /// destination would ever fail.
    #[test]
    fn a_failure_that_nobody_waited_for_is_told_once_to_who_asks() {
        let (mut line, now) = (Line::<u32>::new(Some(1)), Instant::now());
        drop(waits(&mut line));
        line.under_way = 2;
        line.ended(Err(failure()), now);
        line.ended(Err(failure()), now);
        assert!(!line.is_over(now));
        assert_eq!(line.untold(now), Some(failure()));
        assert_eq!(line.untold(now + FAILURE_KEPT), None, "that one is old");
        assert!(line.is_over(now));
        line.ended(Err(failure()), now);
        line.answers();
        assert_eq!(line.untold(now), None, "it is there after all");
    }
}
