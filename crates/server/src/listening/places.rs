//! Room for connections: in all, and from one address.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

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
    told_at: Option<Instant>,
}

/// A connection's, until it is dropped.
pub(super) struct Place {
    places: Arc<Inner>,
    from: IpAddr,
}

impl Places {
    pub(super) fn new(most: usize, most_from_one: usize) -> Self {
        Self(Arc::new(Inner {
            most,
            most_from_one,
            taken: Mutex::default(),
        }))
    }

    /// `None` if there is no place for whoever comes from there.
    pub(super) fn take(&self, from: IpAddr) -> Option<Place> {
        let from = network(from);
        let mut taken = self.0.taken();
        let of_it = taken.from.get(&from).copied().unwrap_or_default();
        let reason = if taken.all >= self.0.most {
            "all"
        } else if of_it >= self.0.most_from_one {
            "address"
        } else {
            taken.all += 1;
            taken.from.insert(from, of_it + 1);
            return Some(Place {
                places: Arc::clone(&self.0),
                from,
            });
        };
        metrics::counter!("paceline_connections_refused_total", "bound" => reason).increment(1);
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
        None
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
        taken.all -= 1;
        if let Entry::Occupied(mut from) = taken.from.entry(self.from) {
            *from.get_mut() -= 1;
            if *from.get() == 0 {
                from.remove();
            }
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

    #[test]
    fn one_address_leaves_places_to_another_and_all_come_back() {
        let places = Places::new(5, 3);
        let mut taken: Vec<Place> = (0..3)
            .map(|_| places.take(at("192.0.2.1")).unwrap())
            .collect();
        assert!(places.take(at("192.0.2.1")).is_none());
        assert!(places.take(at("::ffff:192.0.2.1")).is_none(), "the same");
        taken.push(places.take(at("192.0.2.2")).unwrap());
        taken.push(places.take(at("192.0.2.3")).unwrap());
        assert!(places.take(at("192.0.2.4")).is_none(), "five are all");
        taken.remove(0);
        assert!(places.take(at("192.0.2.1")).is_some());
        taken.clear();
        assert_eq!(places.0.taken().all, 0);
        assert!(places.0.taken().from.is_empty());
    }

    #[test]
    fn a_network_of_ipv6_is_one() {
        let places = Places::new(5, 1);
        let _one = places.take(at("2001:db8::1")).unwrap();
        assert!(places.take(at("2001:db8::ffff:2")).is_none());
        assert!(places.take(at("2001:db8:0:1::1")).is_some());
    }
}
