//! A worker's places, and who may have them.
//!
//! Whoever answers may have all of them, those that hang half at most, all of them
//! together, and together with the new ones three quarters; a quarter more is set
//! aside for those that answer and have nothing in flight here: see
//! [`domain::slow::Shares`].
//!
//! The hand is small, so nobody fills it by waiting. Who answers may stand in
//! line for a place while the line moves: to be turned away is to draw lots, and
//! whoever has the most destinations wins.
//! Whoever else keeps the hand waiting, or stands in a line that does not move,
//! needs a seat on a bench, or is turned away; and who has no connection soon waits for it
//! apart from its message. Who was sent away until later is called
//! back as soon as a quarter of what those that hang may have is free.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::ids::DestinationId;
use domain::slow::{Crowd, Held, LINE, Pause, STILL, Shares, Standing, seats};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::apart::{Apart, Leave};
use super::away::Away;
use super::bench::{Bench, Seat};
use super::standing::Record;
use crate::ports::{DeliveryTag, MAX_ROWS};

/// Destinations that are remembered; beyond it those that are idle and answer
/// are forgotten, which costs them nothing but being new. About 100 bytes each.
const MOST: usize = 50_000;

pub(super) struct Places {
    all: Arc<Semaphore>,
    /// When one of these was last let go by an attempt that was sent.
    moved_at: Mutex<Option<Instant>>,
    /// For those that answer and have nothing in flight here.
    aside: Arc<Semaphore>,
    /// For those that are not known to answer.
    doubtful: Arc<Semaphore>,
    hung: Arc<Semaphore>,
    /// Seats in the hand, for each standing.
    benches: [Arc<Bench>; 3],
    /// Those that answer and those that are new, and wait for their connections.
    apart: [Arc<Apart>; 2],
    records: Mutex<HashMap<DestinationId, Record>>,
    crowd: Mutex<Crowd>,
    away: Mutex<Away>,
    /// So many are free again that some who are away should come.
    freed: Notify,
    /// How many that is.
    worth_a_call: usize,
}

/// A place, until it is dropped.
pub(super) struct Place {
    places: Arc<Places>,
    destination: DestinationId,
    /// What the attempt did with it, if it did anything.
    held: Option<Held>,
    /// It is one of those that a line forms for.
    in_line_for: bool,
    taken: Option<Taken>,
}

/// What others may have when it is dropped.
struct Taken {
    _all: OwnedSemaphorePermit,
    _doubtful: Option<OwnedSemaphorePermit>,
    _hung: Option<OwnedSemaphorePermit>,
}

/// Who asks for a place.
#[derive(Clone, Copy)]
pub(super) struct Asking {
    pub(super) destination: DestinationId,
    pub(super) standing: Standing,
    /// The message that is kept in hand meanwhile; none where it has left its own.
    pub(super) tag: Option<DeliveryTag>,
}

/// How one waits for its connection.
pub(super) enum Waits {
    /// With its message.
    InHand,
    /// Without; with this leave, where it takes one.
    Apart(Option<Leave>),
}

impl Waits {
    const fn with(leave: Leave) -> Self {
        Self::Apart(Some(leave))
    }
}

/// There is no place for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoPlace {
    /// And it may not wait for one: it would hold up others.
    TurnedAway,
    /// It waited for as long as it could.
    TooLate,
    /// Nothing of its destination can start for so long: it has no token.
    NoToken(Duration),
}

impl Places {
    /// `hand` is how many messages may be in hand.
    pub(super) fn new(places: u32, hand: u16) -> Self {
        let semaphore = |size: u32| Arc::new(Semaphore::new(size.max(1) as usize));
        let shares = Shares::of(places);
        Self {
            all: semaphore(shares.all),
            moved_at: Mutex::default(),
            aside: semaphore(shares.aside),
            doubtful: semaphore(shares.doubtful),
            hung: semaphore(shares.hung),
            benches: [(); 3].map(|()| Bench::new(seats(hand).into())),
            apart: [shares.dials, shares.dials_of_new].map(Apart::new),
            records: Mutex::default(),
            crowd: Mutex::default(),
            away: Mutex::default(),
            freed: Notify::new(),
            worth_a_call: shares.worth_a_call as usize,
        }
    }

    pub(super) fn standing(&self, destination: DestinationId) -> Standing {
        let now = Instant::now();
        let records = self.records();
        let known = records.get(&destination);
        known.map_or(Standing::New, |record| record.standing(now))
    }

    /// A place before anything else is done for it; for one that hangs. It waits
    /// only where those that answer stand in line for what is left to it: a place
    /// that comes free is theirs otherwise, each time.
    pub(super) async fn first_of_all(
        self: &Arc<Self>,
        asking: Asking,
        patience: Duration,
    ) -> Result<Place, NoPlace> {
        let hung = Arc::clone(&self.hung).try_acquire_owned();
        let doubtful = Arc::clone(&self.doubtful).try_acquire_owned();
        let (Ok(doubtful), Ok(hung)) = (doubtful, hung) else {
            return Err(NoPlace::TurnedAway);
        };
        let deadline = Instant::now() + patience.min(LINE);
        let all = self.wait(&self.all, asking, deadline).await;
        // Not at once again, also if it waited for all of its time.
        let all = all.map_err(|_none| NoPlace::TurnedAway)?;
        self.crowd().found();
        Ok(self.place(asking.destination, all, Some(doubtful), Some(hung)))
    }

    /// A place within `patience`, for one that is not known to hang.
    pub(super) async fn in_time(
        self: &Arc<Self>,
        asking: Asking,
        patience: Duration,
    ) -> Result<Place, NoPlace> {
        let deadline = Instant::now() + patience;
        let answers = asking.standing.is_known_to_answer();
        let doubtful = match answers {
            true => None,
            false => Some(self.wait(&self.doubtful, asking, deadline).await?),
        };
        let aside = || match answers && self.is_alone(asking.destination) {
            true => Arc::clone(&self.aside).try_acquire_owned().ok(),
            false => None,
        };
        if let Ok(all) = Arc::clone(&self.all).try_acquire_owned() {
            return Ok(self.place(asking.destination, all, doubtful, None));
        }
        if let Some(set_aside) = aside() {
            let mut place = self.place(asking.destination, set_aside, doubtful, None);
            place.in_line_for = false;
            return Ok(place);
        }
        let all = match self.in_line(asking.standing, deadline).await {
            Some(all) => all,
            None => self.wait(&self.all, asking, deadline).await?,
        };
        Ok(self.place(asking.destination, all, doubtful, None))
    }

    /// A place from the line, for one that answers, while the line moves.
    async fn in_line(&self, standing: Standing, deadline: Instant) -> Option<OwnedSemaphorePermit> {
        if !standing.is_known_to_answer() {
            return None;
        }
        let leaves_at = deadline.min(Instant::now() + LINE);
        let mut place = pin!(Arc::clone(&self.all).acquire_owned());
        loop {
            let until = leaves_at.min((*self.moved_at())? + STILL);
            if until <= Instant::now() {
                return None;
            }
            if let Ok(place) = timeout_at(until, &mut place).await {
                return place.ok();
            }
        }
    }

    /// One of these: at once, or from the bench.
    async fn wait(
        &self,
        places: &Arc<Semaphore>,
        asking: Asking,
        deadline: Instant,
    ) -> Result<OwnedSemaphorePermit, NoPlace> {
        if let Ok(place) = Arc::clone(places).try_acquire_owned() {
            return Ok(place);
        }
        let _seat = self.sit(asking)?;
        let place = timeout_at(deadline, Arc::clone(places).acquire_owned()).await;
        place.ok().and_then(Result::ok).ok_or(NoPlace::TooLate)
    }

    /// Whether it has nothing in flight here.
    fn is_alone(&self, destination: DestinationId) -> bool {
        let records = self.records();
        records.get(&destination).is_none_or(Record::is_alone)
    }

    /// A seat, for one that keeps the hand waiting; who has left its message needs none.
    pub(super) fn sit(&self, asking: Asking) -> Result<Option<Seat>, NoPlace> {
        let [prompt, new, hung] = &self.benches;
        let bench = match asking.standing {
            Standing::Prompt => prompt,
            Standing::New => new,
            Standing::Hung => hung,
        };
        let Some(tag) = asking.tag else {
            return Ok(None);
        };
        bench.sit(tag).map(Some).ok_or(NoPlace::TurnedAway)
    }

    /// Whether one waits for its connection apart from its message: with leave, but for
    /// those that hang, which have places first and are no more than have. Where there is no
    /// leave, one that answers goes on keeping its message, since it would be back at once.
    pub(super) fn waits_apart(&self, asking: Asking) -> Result<Waits, NoPlace> {
        let [prompt, new] = &self.apart;
        let go = |apart: &Arc<Apart>| apart.go(asking.destination);
        match asking.standing {
            Standing::Prompt => Ok(go(prompt).map_or(Waits::InHand, Waits::with)),
            Standing::New => go(new).map(Waits::with).ok_or(NoPlace::TurnedAway),
            Standing::Hung => Ok(Waits::Apart(None)),
        }
    }

    /// When to look again at one that was turned away.
    pub(super) fn pause(&self, destination: DestinationId) -> Pause {
        let now = Instant::now();
        let mut records = self.records();
        let pause = record(&mut records, destination, now).turned_away(&mut self.crowd(), now);
        if pause.defers {
            self.away().leaves(destination, now + pause.lasts);
        }
        pause
    }

    /// Waits until there is room for some of those who are away, and says whom to
    /// call back: one for each place, since each brings one permit at least.
    pub(super) async fn called_back(&self) -> Vec<DestinationId> {
        loop {
            self.freed.notified().await;
            let room = self.room_for_the_slow().min(MAX_ROWS);
            let back = self.away().come_back(room, Instant::now());
            if !back.is_empty() {
                return back;
            }
        }
    }

    fn room_for_the_slow(&self) -> usize {
        let kinds = [&self.all, &self.doubtful, &self.hung];
        let free = kinds.map(|kind| kind.available_permits());
        free.into_iter().min().unwrap_or(0)
    }

    fn call_back(&self) {
        if !self.away().is_empty() && self.room_for_the_slow() >= self.worth_a_call {
            self.freed.notify_one();
        }
    }

    fn place(
        self: &Arc<Self>,
        destination: DestinationId,
        all: OwnedSemaphorePermit,
        doubtful: Option<OwnedSemaphorePermit>,
        hung: Option<OwnedSemaphorePermit>,
    ) -> Place {
        let now = Instant::now();
        record(&mut self.records(), destination, now).took(now);
        Place {
            places: Arc::clone(self),
            destination,
            held: None,
            in_line_for: true,
            taken: Some(Taken {
                _all: all,
                _doubtful: doubtful,
                _hung: hung,
            }),
        }
    }

    fn moved_at(&self) -> MutexGuard<'_, Option<Instant>> {
        (self.moved_at.lock()).unwrap_or_else(PoisonError::into_inner)
    }

    fn away(&self) -> MutexGuard<'_, Away> {
        self.away.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn crowd(&self) -> MutexGuard<'_, Crowd> {
        self.crowd.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn records(&self) -> MutexGuard<'_, HashMap<DestinationId, Record>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn record(
    records: &mut HashMap<DestinationId, Record>,
    destination: DestinationId,
    now: Instant,
) -> &mut Record {
    if records.len() >= MOST && !records.contains_key(&destination) {
        records.retain(|_, record| !record.is_idle());
        if records.len() >= MOST {
            records.clear();
        }
    }
    records
        .entry(destination)
        .or_insert_with(|| Record::new(now))
}

impl Place {
    /// What came of the attempt in it.
    pub(super) fn held(&mut self, time: Duration, timed_out: bool) {
        self.held = Some(Held { time, timed_out });
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let now = Instant::now();
        if let Some(record) = self.places.records().get_mut(&self.destination) {
            record.let_go(self.held, now);
        }
        // A place that comes free late is no sign that the line moves.
        if self.in_line_for && self.held.is_none_or(|held| !held.is_hung()) {
            *self.places.moved_at() = Some(now);
        }
        drop(self.taken.take());
        self.places.call_back();
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn destination(number: u128) -> DestinationId {
        DestinationId(Uuid::from_u128(number))
    }

    const SECOND: Duration = Duration::from_secs(1);

    /// Each in a message of its own.
    fn asking(number: u64, standing: Standing) -> Asking {
        Asking {
            destination: destination(number.into()),
            standing,
            tag: Some(DeliveryTag {
                connection: 1,
                number,
            }),
        }
    }

    async fn taken(places: &Arc<Places>, standing: Standing, most: u64) -> Vec<Place> {
        let mut taken = Vec::new();
        for number in 0..most {
            let place = match standing {
                Standing::Hung => {
                    let asking = asking(number, standing);
                    places.first_of_all(asking, Duration::ZERO).await
                }
                other => places.in_time(asking(number, other), SECOND).await,
            };
            taken.extend(place.ok());
        }
        taken
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_hang_have_half_and_with_the_new_three_quarters() {
        let places = Arc::new(Places::new(32, 8));
        let hung = taken(&places, Standing::Hung, 100).await;
        assert_eq!(hung.len(), 16);
        let new = taken(&places, Standing::New, 30).await;
        assert_eq!(hung.len() + new.len(), 24);
        let prompt = taken(&places, Standing::Prompt, 30).await;
        assert_eq!(prompt.len(), 16, "a quarter, and what is set aside");
        drop(prompt);
        drop(hung);
        assert_eq!(taken(&places, Standing::Prompt, 40).await.len(), 24 + 8);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_set_aside_is_for_those_that_have_nothing_in_flight() {
        let places = Arc::new(Places::new(32, 8));
        let mut crowd = Vec::new();
        for _ in 0..40 {
            let place = places.in_time(asking(1, Standing::Prompt), SECOND).await;
            crowd.extend(place.ok());
        }
        assert_eq!(crowd.len(), 32, "alone it has them all, and no more");
        let mut few = Vec::new();
        for number in 2..20 {
            let place = places
                .in_time(asking(number, Standing::Prompt), SECOND)
                .await;
            few.extend(place.ok());
        }
        assert_eq!(few.len(), 8);
    }

    /// A quarter of the seats would do for two of them.
    #[tokio::test(start_paused = true)]
    async fn who_answers_stands_in_line_while_it_moves() {
        let places = Arc::new(Places::new(32, 8));
        let mut crowd = taken(&places, Standing::Prompt, 40).await;
        assert_eq!(crowd.len(), 40);
        // Of the 32 that a line forms for.
        let mut first = crowd.remove(0);
        first.held(SECOND, false);
        drop(first);
        crowd.extend(places.in_time(asking(0, Standing::Prompt), SECOND).await);
        let crowd = Mutex::new(crowd);
        let waits = async |number| {
            let place = places.in_time(asking(number, Standing::Prompt), SECOND);
            place.await.map(|place| crowd.lock().unwrap().push(place))
        };
        // Each has something in flight, so none is set aside for them.
        let (one, two, three, four, ()) =
            tokio::join!(waits(1), waits(2), waits(3), waits(4), async {
                for _ in 0..4 {
                    tokio::time::sleep(STILL / 2).await;
                    let mut place = crowd.lock().unwrap().remove(0);
                    place.held(SECOND, false);
                }
            });
        assert!([one, two, three, four].iter().all(Result::is_ok));
        // It stands still: from now on, who waits needs a seat.
        tokio::time::sleep(STILL).await;
        let began = Instant::now();
        let (five, six, seven) = tokio::join!(waits(5), waits(6), waits(7));
        assert_eq!(five, Err(NoPlace::TooLate));
        assert_eq!(six, Err(NoPlace::TooLate));
        assert_eq!(seven, Err(NoPlace::TurnedAway));
        assert_eq!(began.elapsed(), SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_sits_on_a_bench() {
        let places = Arc::new(Places::new(32, 8));
        let new = taken(&places, Standing::New, 24).await;
        assert_eq!(new.len(), 24);
        let began = Instant::now();
        let waits = |number| places.in_time(asking(number, Standing::New), SECOND);
        let (first, second, third, ()) = tokio::join!(waits(1), waits(2), waits(3), async {
            tokio::time::sleep(SECOND / 2).await;
            drop(new);
        });
        assert!(first.is_ok() && second.is_ok());
        assert!(third.is_err(), "two seats in a hand of eight");
        assert_eq!(began.elapsed(), SECOND / 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_teaches_when_it_is_let_go() {
        let places = Arc::new(Places::new(32, 8));
        let one = destination(1);
        assert_eq!(places.standing(one), Standing::New);
        let mut place = places
            .in_time(asking(1, Standing::New), SECOND)
            .await
            .ok()
            .unwrap();
        place.held(SECOND, false);
        drop(place);
        assert_eq!(places.standing(one), Standing::Prompt);
        let mut place = places
            .in_time(asking(1, Standing::Prompt), SECOND)
            .await
            .ok()
            .unwrap();
        tokio::time::sleep(SECOND * 3).await;
        assert_eq!(places.standing(one), Standing::Hung, "nothing comes back");
        place.held(SECOND * 3, true);
        drop(place);
        assert_eq!(places.standing(one), Standing::Hung);
        drop(
            places
                .first_of_all(asking(1, Standing::Hung), SECOND)
                .await
                .ok(),
        );
        assert_eq!(places.standing(one), Standing::Hung, "nothing was tried");
    }
}
