//! The statements of an event's way, a batch of 100 at a time, while so many
//! attempts wait. What a stage needs and what it leaves is made and cleared
//! outside of the time; the backlog stays as it is.

use std::sync::MutexGuard;

use divan::Bencher;
use divan::counter::ItemsCount;
use domain::permit::Permit;
use engine::ports::Outcome;

use crate::ground::{self, Ground, Kind};
use crate::size::{BATCH, sizes};

/// Puts as many there as will be started.
fn fill(ground: &mut MutexGuard<'_, Ground>) {
    let events = ground.events();
    ground.accept(&events);
    ground.heartbeat();
}

fn finish(ground: &Ground, permits: &[Permit]) {
    ground.record(&ground.claim(permits));
}

fn accept(bencher: Bencher<'_, '_>, kind: Kind, rows: u32) {
    let ground = ground::of(kind, rows);
    let prepare = || {
        let mut ground = ground.lock().unwrap();
        ground.heartbeat();
        // As many go as came, so that the backlog stays.
        let permits = ground.admit();
        finish(&ground, &permits);
        ground.events()
    };
    let bencher = bencher.with_inputs(prepare);
    bencher.bench_local_values(|events| ground.lock().unwrap().accept(&events));
}

/// Permits that are started and recorded when they are dropped, which is after
/// the time was taken.
struct Admitted<'a>(MutexGuard<'a, Ground>, Vec<Permit>);

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        finish(&self.0, &self.1);
    }
}

fn admit(bencher: Bencher<'_, '_>, kind: Kind, rows: u32) {
    let ground = ground::of(kind, rows);
    let bencher = bencher.with_inputs(|| fill(&mut ground.lock().unwrap()));
    bencher.bench_local_values(|()| {
        let ground = ground.lock().unwrap();
        let permits = ground.admit();
        Admitted(ground, permits)
    });
}

/// Starts that are recorded when they are dropped.
struct Started<'a>(MutexGuard<'a, Ground>, Vec<Outcome>);

impl Drop for Started<'_> {
    fn drop(&mut self) {
        self.0.record(&self.1);
    }
}

fn claim(bencher: Bencher<'_, '_>, kind: Kind, rows: u32) {
    let ground = ground::of(kind, rows);
    let prepare = || {
        let mut ground = ground.lock().unwrap();
        fill(&mut ground);
        ground.admit()
    };
    let bencher = bencher.with_inputs(prepare);
    bencher.bench_local_values(|permits| {
        let ground = ground.lock().unwrap();
        let outcomes = ground.claim(&permits);
        Started(ground, outcomes)
    });
}

fn record(bencher: Bencher<'_, '_>, kind: Kind, rows: u32) {
    let ground = ground::of(kind, rows);
    let prepare = || {
        let mut ground = ground.lock().unwrap();
        fill(&mut ground);
        ground.claim(&ground.admit())
    };
    let bencher = bencher.with_inputs(prepare);
    bencher.bench_local_values(|outcomes| ground.lock().unwrap().record(&outcomes));
}

/// The four stages on one store.
macro_rules! steps {
    ($store:ident, $kind:expr) => {
        mod $store {
            use super::{BATCH, Bencher, ItemsCount, Kind, sizes};

            #[divan::bench(args = sizes(), sample_size = 1, counters = [ItemsCount::new(BATCH)])]
            fn accept_events(bencher: Bencher<'_, '_>, rows: u32) {
                super::accept(bencher, $kind, rows);
            }

            #[divan::bench(args = sizes(), sample_size = 1, counters = [ItemsCount::new(BATCH)])]
            fn admit(bencher: Bencher<'_, '_>, rows: u32) {
                super::admit(bencher, $kind, rows);
            }

            #[divan::bench(args = sizes(), sample_size = 1, counters = [ItemsCount::new(BATCH)])]
            fn claim_starts(bencher: Bencher<'_, '_>, rows: u32) {
                super::claim(bencher, $kind, rows);
            }

            #[divan::bench(args = sizes(), sample_size = 1, counters = [ItemsCount::new(BATCH)])]
            fn record_outcomes(bencher: Bencher<'_, '_>, rows: u32) {
                super::record(bencher, $kind, rows);
            }
        }
    };
}

steps!(postgres, Kind::Postgres);
steps!(sqlite, Kind::Sqlite);
