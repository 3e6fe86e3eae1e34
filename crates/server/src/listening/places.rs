//! Room for connections: in all, and from one address.
//!
//! When all places are taken, the oldest connection that asks nothing and has never
//! asked as somebody we know is closed for whoever comes. So sockets that are only held
//! shut nobody out: whoever comes has the time in which as many others come after him.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How often it is logged that connections were refused: whoever floods us does
/// not flood the log.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// The network half of an IPv6 address: one host has all of the other half.
const NETWORK_HALF: u128 = u128::MAX << 64;

/// The places of one listener.
pub(super) struct Places(Arc<Inner>);

struct Inner {
    most: usize,
    most_from_one: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    all: usize,
    from: HashMap<IpAddr, usize>,
    /// Those who are closed for others, in the order in which they came.
    strangers: BTreeMap<u64, Stranger>,
    /// The number of the next connection.
    next: u64,
    told_at: Option<Instant>,
}

struct Stranger {
    from: IpAddr,
    closing: CancellationToken,
}

/// A connection's, until it is dropped.
pub(super) struct Place {
    places: Arc<Inner>,
    from: IpAddr,
    number: u64,
    /// It has asked as somebody we know.
    known: AtomicBool,
    /// Somebody else has the place.
    closing: CancellationToken,
}

/// A request of a connection, until it is answered.
pub(super) struct Asking(Arc<Place>);

impl Places {
    pub(super) fn new(most: usize, most_from_one: usize) -> Self {
        Self(Arc::new(Inner {
            most,
            most_from_one,
            taken: Mutex::default(),
        }))
    }

    /// `None` if there is no place for whoever comes from there.
    pub(super) fn take(&self, from: IpAddr) -> Option<Arc<Place>> {
        let from = network(from);
        let mut taken = self.0.taken();
        let of_it = taken.from.get(&from).copied().unwrap_or_default();
        let (bound, is_free) = if of_it >= self.0.most_from_one {
            ("address", false)
        } else if taken.all < self.0.most {
            return Some(self.give(&mut taken, from));
        } else {
            ("all", taken.close_a_stranger())
        };
        metrics::counter!("paceline_connections_refused_total", "bound" => bound).increment(1);
        let now = Instant::now();
        if (taken.told_at).is_none_or(|told_at| now - told_at >= TOLD_EVERY) {
            taken.told_at = Some(now);
            tracing::warn!(
                %from,
                connections = taken.all,
                from_there = of_it,
                "connections are refused: PACELINE_MAX_CONNECTIONS or \
                 PACELINE_MAX_CONNECTIONS_PER_ADDRESS is reached"
            );
        }
        is_free.then(|| self.give(&mut taken, from))
    }

    fn give(&self, taken: &mut Taken, from: IpAddr) -> Arc<Place> {
        taken.all += 1;
        *taken.from.entry(from).or_default() += 1;
        let number = taken.next;
        taken.next += 1;
        let place = Place {
            places: Arc::clone(&self.0),
            from,
            number,
            known: AtomicBool::new(false),
            closing: CancellationToken::new(),
        };
        taken.strangers.insert(number, place.stranger());
        Arc::new(place)
    }
}

impl Place {
    /// Told when the connection is to be closed, its place being another's.
    pub(super) fn closing(&self) -> CancellationToken {
        self.closing.clone()
    }

    /// A request has come: it is not closed in the middle of it. `None` if another has the
    /// place already.
    pub(super) fn asks(self: &Arc<Self>) -> Option<Asking> {
        if !self.is_known() {
            let mut taken = self.places.taken();
            // Told under the same lock.
            if self.closing.is_cancelled() {
                return None;
            }
            taken.strangers.remove(&self.number);
        }
        Some(Asking(Arc::clone(self)))
    }

    fn is_known(&self) -> bool {
        self.known.load(Ordering::Relaxed)
    }

    fn stranger(&self) -> Stranger {
        Stranger {
            from: self.from,
            closing: self.closing.clone(),
        }
    }
}

impl Asking {
    /// Whoever asks is somebody we know, and keeps the place.
    pub(super) fn know(&self) {
        self.0.known.store(true, Ordering::Relaxed);
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let place = &self.0;
        if place.is_known() {
            return;
        }
        let mut taken = place.places.taken();
        if !place.closing.is_cancelled() {
            taken.strangers.insert(place.number, place.stranger());
        }
    }
}

impl Taken {
    /// Gives the place of the oldest one back, and tells it; whether there is one.
    fn close_a_stranger(&mut self) -> bool {
        let Some((_number, stranger)) = self.strangers.pop_first() else {
            return false;
        };
        stranger.closing.cancel();
        self.leave(stranger.from);
        true
    }

    fn leave(&mut self, from: IpAddr) {
        self.all -= 1;
        if let Entry::Occupied(mut from) = self.from.entry(from) {
            *from.get_mut() -= 1;
            if *from.get() == 0 {
                from.remove();
            }
        }
    }
}

impl Inner {
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        // Told under the same lock: another has the place already.
        if !self.closing.is_cancelled() {
            taken.strangers.remove(&self.number);
            taken.leave(self.from);
        }
    }
}

/// Whom we take for one.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let network = Ipv6Addr::from_bits(address.to_bits() & NETWORK_HALF);
            IpAddr::V6(network)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Somebody who has asked as one we know.
    fn known(places: &Places, from: &str) -> Arc<Place> {
        let place = places.take(at(from)).unwrap();
        place.asks().unwrap().know();
        place
    }

    #[test]
    fn one_address_leaves_places_to_another_and_all_come_back() {
        let places = Places::new(5, 3);
        let mut taken: Vec<_> = (0..3).map(|_| known(&places, "192.0.2.1")).collect();
        assert!(places.take(at("192.0.2.1")).is_none());
        assert!(places.take(at("::ffff:192.0.2.1")).is_none(), "the same");
        taken.push(known(&places, "192.0.2.2"));
        taken.push(known(&places, "192.0.2.3"));
        assert!(places.take(at("192.0.2.4")).is_none(), "five are all");
        taken.remove(0);
        assert!(places.take(at("192.0.2.1")).is_some());
        taken.clear();
        assert_eq!(places.0.taken().all, 0);
        assert!(places.0.taken().from.is_empty());
        assert!(places.0.taken().strangers.is_empty());
    }

    #[test]
    fn whoever_comes_has_the_place_of_the_oldest_who_asks_nothing() {
        let places = Places::new(4, 4);
        let known = known(&places, "192.0.2.1");
        let strangers: Vec<_> = (0..3)
            .map(|_| places.take(at("192.0.2.2")).unwrap())
            .collect();
        let asking = strangers[0].asks();
        let is_closed = |place: &Arc<Place>| place.closing().is_cancelled();
        let come: Vec<_> = (0..2)
            .map(|_| places.take(at("192.0.2.3")).unwrap())
            .collect();
        assert!(!is_closed(&known) && !is_closed(&strangers[0]));
        assert!(is_closed(&strangers[1]) && is_closed(&strangers[2]));
        assert!(strangers[1].asks().is_none(), "its place is another's");
        assert_eq!(places.0.taken().all, 4);
        // Answered, and still nobody we know.
        drop(asking);
        let last = places.take(at("192.0.2.4")).unwrap();
        assert!(is_closed(&strangers[0]));
        let held = [(&known, &come[0]), (&come[1], &last)];
        let asking = held.map(|(one, other)| [one.asks(), other.asks()]);
        assert!(places.take(at("192.0.2.5")).is_none(), "all of them ask");
        drop((asking, strangers));
        assert_eq!(places.0.taken().all, 4, "their places were another's");
        drop((known, come, last));
        assert_eq!(places.0.taken().all, 0);
        assert!(places.0.taken().strangers.is_empty());
    }

    #[test]
    fn a_network_of_ipv6_is_one() {
        let places = Places::new(5, 1);
        let _one = places.take(at("2001:db8::1")).unwrap();
        assert!(places.take(at("2001:db8::ffff:2")).is_none());
        assert!(places.take(at("2001:db8:0:1::1")).is_some());
    }
}
