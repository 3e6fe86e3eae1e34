//! How much memory each role had at most while an attack went on: what it has at the end
//! may be less.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::interval;

use crate::run::processes::{Used, Watched, look};

/// A look reads of every process there is, which takes some milliseconds of a core.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// It is looked at until this is dropped.
pub(super) struct Memory {
    most: Arc<Most>,
    _looking: JoinSet<()>,
}

/// MiB, by the name of what is watched.
#[derive(Default)]
struct Most(Mutex<BTreeMap<String, f64>>);

impl Memory {
    pub(super) fn watch(watched: &[Watched]) -> Self {
        let most = Arc::<Most>::default();
        let mut looking = JoinSet::new();
        let (watched, into) = (watched.to_vec(), Arc::clone(&most));
        looking.spawn(async move {
            let mut turns = interval(LOOK_EVERY);
            loop {
                turns.tick().await;
                let watched = watched.clone();
                if let Ok(used) = spawn_blocking(move || look(&watched)).await {
                    into.keep(used);
                }
            }
        });
        Self {
            most,
            _looking: looking,
        }
    }

    /// The most so far; nothing of what has ended before it was looked at.
    pub(super) fn most(self) -> BTreeMap<String, f64> {
        self.most.all().clone()
    }
}

impl Most {
    fn keep(&self, used: BTreeMap<String, Used>) {
        let mut all = self.all();
        for (name, used) in used {
            let most = all.entry(name).or_default();
            *most = most.max(used.resident_mib);
        }
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, f64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_is_kept_of_each() {
        let most = Most::default();
        for (api, worker) in [(10.0, 5.0), (30.0, 4.0), (20.0, 6.0)] {
            let used = |resident_mib| Used {
                resident_mib,
                ..Used::default()
            };
            most.keep(BTreeMap::from([
                ("api".to_owned(), used(api)),
                ("worker".to_owned(), used(worker)),
            ]));
        }
        let kept = BTreeMap::from([("api".to_owned(), 30.0), ("worker".to_owned(), 6.0)]);
        assert_eq!(*most.all(), kept);
    }
}
