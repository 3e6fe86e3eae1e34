//! A bounded memory that forgets its older half: a cache of what can be read or
//! computed again.

use std::collections::HashMap;
use std::hash::Hash;

/// Values by key, `most` of them at most. When the newer half is full, the older one
/// goes: the last `most / 2` that came are always there, and as long as there are no more
/// than `most` keys none of them goes at all. One that is asked for gets no younger:
/// otherwise more than half of `most` in turn would push each other out.
#[derive(Debug)]
pub struct Recent<K, V> {
    newer: HashMap<K, V>,
    older: HashMap<K, V>,
    half: usize,
}

impl<K: Eq + Hash, V> Recent<K, V> {
    /// Empty. `most` is a number of entries, two or more.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            newer: HashMap::new(),
            older: HashMap::new(),
            half: most / 2,
        }
    }

    /// What is remembered of this key.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<&V> {
        self.newer.get(key).or_else(|| self.older.get(key))
    }

    /// Remembers a value, or in place of the key's last one.
    pub fn insert(&mut self, key: K, value: V) {
        for half in [&mut self.newer, &mut self.older] {
            if let Some(known) = half.get_mut(&key) {
                *known = value;
                return;
            }
        }
        if self.newer.len() >= self.half {
            std::mem::swap(&mut self.newer, &mut self.older);
            self.newer.clear();
        }
        self.newer.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(most: usize, keys: impl IntoIterator<Item = usize>) -> Recent<usize, usize> {
        let mut recent = Recent::new(most);
        for key in keys {
            recent.insert(key, key * 10);
        }
        recent
    }

    fn known(recent: &Recent<usize, usize>) -> Vec<usize> {
        (0..100).filter(|key| recent.get(key).is_some()).collect()
    }

    #[test]
    fn the_older_half_goes_and_the_newer_one_stays() {
        assert_eq!(known(&of(4, 0..4)), [0, 1, 2, 3]);
        assert_eq!(known(&of(4, 0..5)), [2, 3, 4]);
        assert_eq!(known(&of(4, 0..6)), [2, 3, 4, 5]);
        assert_eq!(known(&of(4, 0..7)), [4, 5, 6]);
    }

    #[test]
    fn whoever_comes_again_pushes_nobody_out() {
        let recent = of(4, (0..4).chain(0..4).chain([3, 3, 0, 0]));
        assert_eq!(known(&recent), [0, 1, 2, 3]);
    }

    #[test]
    fn a_value_is_replaced_wherever_it_is() {
        let mut recent = of(4, 0..4);
        for key in [0, 3] {
            recent.insert(key, 7);
            assert_eq!(recent.get(&key), Some(&7));
        }
        assert_eq!(known(&recent), [0, 1, 2, 3]);
    }
}
