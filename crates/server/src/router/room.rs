//! Room for what is under way to one shard, shared between those who ask.
//!
//! Whoever hangs on to requests must not take the places of all other tenants of a shard:
//! one key, or one browser, has a part of them at most. Who acts for many tenants has
//! such a part for each.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Requests of the API that one shard has at one time. With those of pages they are below
/// the 2,000 connections that its API takes from one address, so that two routers on one
/// host are no more.
const OF_API: usize = 700;

/// Of pages, which anybody asks for with a cookie that nobody has looked at yet: apart.
const OF_PAGES: usize = 200;

/// One key, or one browser, has one of so many parts of them.
const PARTS: usize = 5;

/// The rooms of one shard.
#[derive(Debug)]
pub(super) struct Rooms {
    pub(super) of_api: Room,
    pub(super) of_pages: Room,
}

impl Default for Rooms {
    fn default() -> Self {
        Self {
            of_api: Room::of(OF_API),
            of_pages: Room::of(OF_PAGES),
        }
    }
}

/// One of them.
#[derive(Debug, Clone)]
pub(super) struct Room(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    at_once: usize,
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
    fn of(at_once: usize) -> Self {
        Self(Arc::new(Inner {
            at_once,
            taken: Mutex::default(),
            hashes: RandomState::new(),
        }))
    }

    /// A place for this one.
    pub(super) fn take(&self, who: impl Hash) -> Result<Place, Full> {
        let of = self.0.hashes.hash_one(who);
        let mut taken = self.taken();
        if taken.all >= self.0.at_once {
            return Err(Full::All);
        }
        let own = taken.by.entry(of).or_default();
        if *own >= self.0.at_once / PARTS {
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
    use super::*;

    #[test]
    fn one_key_has_a_part_of_the_places_and_gives_them_back() {
        let room = Room::of(20);
        let places: Vec<_> = (0..4).map(|_| room.take("one").unwrap()).collect();
        assert_eq!(room.take("one").unwrap_err(), Full::One);
        drop(room.take("other").unwrap());
        assert_eq!(room.taken().by.len(), 1, "who has none is forgotten");
        drop(places);
        assert_eq!(room.taken().all, 0);
        assert!(room.taken().by.is_empty());
        room.take("one").unwrap();
    }

    #[test]
    fn all_have_no_more_than_there_is() {
        let room = Room::of(20);
        let who = |who: u32| (0..4).map(move |_| who);
        let mut places: Vec<_> = (0..5).flat_map(who).map(|who| room.take(who)).collect();
        assert!(places.iter().all(Result::is_ok));
        assert_eq!(room.take(9).unwrap_err(), Full::All);
        places.pop();
        room.take(9).unwrap();
    }
}
