//! What is counted for operators.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, LocalRecorderGuard, Metadata, Recorder, SharedString,
    Unit,
};

/// The counters of all metrics that are written on this thread, which is the whole of a
/// test.
#[derive(Default)]
pub(crate) struct Counted {
    counters: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
}

impl Counted {
    /// Counts until the guard is dropped.
    pub(crate) fn begin(&self) -> LocalRecorderGuard<'_> {
        metrics::set_default_local_recorder(self)
    }

    /// What was counted by this name, by the values of its labels.
    pub(crate) fn of(&self, name: &str) -> Vec<(String, u64)> {
        let counters = self.counters.lock().unwrap();
        let of_name = counters.iter().filter_map(|(key, count)| {
            let values = key.strip_prefix(name)?.strip_prefix(' ')?;
            Some((values.to_owned(), count.load(Ordering::SeqCst)))
        });
        of_name.collect()
    }
}

impl Recorder for Counted {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let values: Vec<_> = key.labels().map(metrics::Label::value).collect();
        let key = format!("{} {}", key.name(), values.join(" "));
        let mut counters = self.counters.lock().unwrap();
        Counter::from_arc(Arc::clone(counters.entry(key).or_default()))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}
