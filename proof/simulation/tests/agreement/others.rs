//! The ports beside the two: what owners do to backlogs, replays, batches, counts, and
//! what operators must know.
//!
//! Not asked step by step: smart delivery, which a trigger dates by the system's clock
//! here, and the watch and the walks that forget, of which each store takes its own
//! number of rows a step.

use std::num::NonZeroU64;
use std::time::Duration;

use domain::backpressure::{BacklogBounds, CountPace};
use domain::batch::BatchSettings;
use domain::ids::ReplayId;
use engine::ports::{
    AlertsChange, Backlog as _, Backpressure as _, CancelFrom, CancelStep, DEFAULT_TENANT,
    DeadLetterFilter, Deferral, NewReplay, Operations as _, OperationsBook as _, Registration,
    Replays as _, RetryRules, Store as _, Which,
};

use super::{Pair, both};

impl Pair {
    /// A drawn step of one of them.
    pub(super) async fn other(&mut self) {
        match self.below(9) {
            0 => self.cancel().await,
            1 => self.replay().await,
            2 => self.rules().await,
            3 => self.batches().await,
            4 => self.count().await,
            5 => self.relay().await,
            6 => self.tell().await,
            7 => self.put_off().await,
            _ => {
                both!(self, advance_replays(3)).unwrap();
            }
        }
    }

    async fn cancel(&mut self) {
        let mut step = CancelStep {
            destination: self.destination(),
            event_type: self.one_in(3).then(|| "a".to_owned()),
            accepted_before: None,
            from: CancelFrom::BEGIN,
            limit: 3,
        };
        for _ in 0..self.below(4) {
            let Ok(done) = both!(self, cancel_step(DEFAULT_TENANT, &step)) else {
                return;
            };
            step.accepted_before = Some(done.accepted_before);
            match done.next {
                Some(next) => step.from = next,
                None => return,
            }
        }
    }

    async fn replay(&mut self) {
        // Of one that was admitted: the model ends those of others at once.
        let Some(permit) = self.permits.last() else {
            return;
        };
        let destination = permit.destination;
        let new = NewReplay {
            id: ReplayId(self.id()),
            which: Which::Matching(destination, DeadLetterFilter::default()),
            share: [0.1, 0.5, 1.0][self.below(3)],
        };
        let _ = both!(self, create_replay(DEFAULT_TENANT, &new));
        if self.one_in(4) {
            let _ = both!(self, cancel_replay(DEFAULT_TENANT, new.id));
        }
    }

    async fn rules(&mut self) {
        let age = self.one_in(2).then(|| Duration::from_millis(1_500));
        let rules = RetryRules {
            max_age: age,
            ..RetryRules::default()
        };
        let id = self.destination();
        let _ = both!(self, set_retry_rules(DEFAULT_TENANT, id, &rules));
    }

    async fn batches(&mut self) {
        let on = !self.one_in(3);
        let settings = BatchSettings {
            max_events: on.then_some(4),
            max_bytes: on.then_some(12),
            max_wait_ms: on.then_some(200),
        };
        let id = self.destination();
        let _ = both!(self, set_batch_settings(DEFAULT_TENANT, id, &settings));
    }

    async fn count(&mut self) {
        let most = |count| NonZeroU64::new(count).unwrap();
        let bounds = BacklogBounds {
            destination: most(20),
            tenant: most(60),
            all: most(100),
        };
        let pace = CountPace {
            every: Duration::from_secs(1),
            one_part_in: 20,
            at_most: Duration::from_secs(10),
        };
        let pace = (!self.one_in(4)).then_some(&pace);
        both!(self, standings(&bounds, &[], pace)).unwrap();
    }

    async fn relay(&mut self) {
        both!(self, relay_operational_events(5)).unwrap();
        if self.one_in(5) {
            both!(self, trim_operational_events(Duration::from_secs(5), 10)).unwrap();
        }
    }

    async fn tell(&mut self) {
        let id = self.destination();
        let change = AlertsChange {
            backlog: Some(Some(5)),
            under_delivery_seconds: Some(Some(2)),
            failing_percent: None,
        };
        let _ = both!(self, change_alerts(DEFAULT_TENANT, id, &change));
        if self.one_in(4) {
            let all = Registration::default();
            // Where it stands among the others is each store's own number.
            let model = (self.model).register_operational(DEFAULT_TENANT, id, &all);
            let told = model.await.is_ok();
            self.set_clock(self.model.now());
            let sqlite = (self.sqlite).register_operational(DEFAULT_TENANT, id, &all);
            assert_eq!(sqlite.await.is_ok(), told);
        }
    }

    async fn put_off(&mut self) {
        // Of one that was admitted: others have no pacing yet.
        let Some(permit) = self.permits.last() else {
            return;
        };
        let deferral = Deferral {
            destination: permit.destination,
            lasts: Duration::from_millis(300),
        };
        both!(self, defer(&[deferral])).unwrap();
    }
}
