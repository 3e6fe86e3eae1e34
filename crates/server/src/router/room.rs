//! Room for what is under way to one shard, shared between those who ask.
//!
//! Whoever hangs on to requests must not take the places of all other tenants of a shard:
//! one key, or one browser, has a part of them at most. Who acts for many tenants has
//! such a part for each.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{HeaderMap, header};

use crate::api::acting;

/// Requests that one shard has at one time: below the 2,000 connections that its API
/// takes from one address, so that two routers on one host are no more.
const AT_ONCE: usize = 900;

/// Those of one key.
const OF_ONE: usize = AT_ONCE / 5;

/// The room of one shard.
#[derive(Debug, Clone, Default)]
pub(super) struct Room(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    taken: Mutex<Taken>,
    /// Whose they are is kept as a hash: keys are nobody's to keep.
    hashes: RandomState,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by: HashMap<u64, usize>,
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Full {
    /// Nobody finds one.
    All,
    /// Whoever asks has as many as one may have.
    One,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    room: Room,
    of: u64,
}

impl Room {
    /// A place for whoever these headers are of.
    pub(super) fn take(&self, headers: &HeaderMap) -> Result<Place, Full> {
        let who = [
            acting::HEADER,
            header::AUTHORIZATION.as_str(),
            header::COOKIE.as_str(),
        ];
        let who = who.into_iter().find_map(|name| headers.get(name));
        let of = self.0.hashes.hash_one(who);
        let mut taken = self.taken();
        if taken.all >= AT_ONCE {
            return Err(Full::All);
        }
        let own = taken.by.entry(of).or_default();
        if *own >= OF_ONE {
            return Err(Full::One);
        }
        *own += 1;
        taken.all += 1;
        Ok(Place {
            room: self.clone(),
            of,
        })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        // What a panic left behind is still a count.
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.room.taken();
        taken.all = taken.all.saturating_sub(1);
        if let Entry::Occupied(mut own) = taken.by.entry(self.of) {
            match *own.get() {
                0 | 1 => drop(own.remove()),
                more => *own.get_mut() = more - 1,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn of(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name.parse().unwrap(), HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn one_key_has_a_part_of_the_places_and_gives_them_back() {
        let room = Room::default();
        let (one, other) = (of("authorization", "one"), of("authorization", "other"));
        let places: Vec<_> = (0..OF_ONE).map(|_| room.take(&one).unwrap()).collect();
        assert_eq!(room.take(&one).unwrap_err(), Full::One);
        drop(room.take(&other).unwrap());
        assert_eq!(room.taken().by.len(), 1, "who has none is forgotten");
        drop(places);
        assert_eq!(room.taken().all, 0);
        assert!(room.taken().by.is_empty());
        room.take(&one).unwrap();
    }

    #[test]
    fn who_acts_for_tenants_has_a_part_for_each_and_all_have_no_more_than_there_is() {
        let room = Room::default();
        let mut places = Vec::new();
        for tenant in 0..AT_ONCE / OF_ONE {
            let mut headers = of("authorization", "the platform's");
            headers.extend(of("paceline-tenant", &tenant.to_string()));
            places.extend((0..OF_ONE).map(|_| room.take(&headers).unwrap()));
        }
        assert_eq!(room.take(&of("cookie", "x")).unwrap_err(), Full::All);
        places.pop();
        room.take(&of("cookie", "x")).unwrap();
    }
}
