//! What operators are told: who is registered, and what is judged of it.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use domain::ids::DestinationId;
use domain::operations::{OperationalType, payload};
use engine::ports::{AlertsChange, DEFAULT_TENANT, OperationsBook as _, Registration};

use super::{World, destination};
use promises::Unsettled;

/// How long it may take until operators know that all is well: two rounds of the
/// watch, a step of the store's clock, and the relay.
const SETTLED_WITHIN: Duration = Duration::from_secs(60);

/// News that may still come when the faults are over.
const NEWS_TO_COME: u32 = 60;

/// Alerts are raised soon.
const ALERTS: AlertsChange = AlertsChange {
    backlog: Some(Some(20)),
    under_delivery_seconds: Some(Some(10)),
    failing_percent: None,
};

/// What is raised, and what ends it.
const RAISED: [(OperationalType, OperationalType); 2] = [
    (OperationalType::BacklogHigh, OperationalType::BacklogNormal),
    (
        OperationalType::UnderDelivery,
        OperationalType::UnderDeliveryEnded,
    ),
];

impl World<'_> {
    /// Has alerts of all destinations raised soon, where somebody is told.
    pub(super) async fn arrange_alerts(&self) {
        if !self.scenario.tells() {
            return;
        }
        for of in (0..self.scenario.destinations.len()).map(destination) {
            let store = self.parts.store.shipped();
            let changed = store.change_alerts(DEFAULT_TENANT, of, &ALERTS).await;
            changed.expect("it has just been created");
        }
    }

    /// Registers a destination for everything; one that is deleted is not there.
    pub(super) async fn tell(&self, of: DestinationId) {
        let all = Registration::default();
        let store = self.parts.store.shipped();
        let _gone = store.register_operational(DEFAULT_TENANT, of, &all).await;
    }

    /// News that a destination may still be told of.
    pub(super) fn news_for(&self, of: DestinationId) -> u32 {
        let store = &self.parts.store;
        let is_told = store.told().iter().any(|(told, _)| *told == of);
        let news = || u32::try_from(store.news().len()).unwrap_or(u32::MAX);
        match is_told {
            true => news().saturating_add(NEWS_TO_COME),
            false => 0,
        }
    }

    /// What operators are left with, when nothing has waited for so long.
    pub(super) fn unsettled(&self, after: Duration) -> usize {
        if !self.scenario.tells() {
            return 0;
        }
        let left = Unsettled {
            unrelayed: self.parts.store.news_to_relay().len(),
            raised: self.parts.store.alerts(),
            after,
            bound: SETTLED_WITHIN,
        };
        self.parts.witness.note(promises::every_alert_ends(left));
        left.unrelayed + left.raised
    }

    /// Judges what became of the news.
    pub(super) fn judge_news(&self) {
        let mut events: BTreeMap<(DestinationId, Bytes), usize> = BTreeMap::new();
        for (_, first, payload) in self.parts.store.all_events() {
            if let Some(first) = first {
                *events.entry((first, payload)).or_default() += 1;
            }
        }
        let forgotten = self.scenario.keep().is_some();
        let news = self.parts.store.news();
        for one in news.iter().filter(|_| self.scenario.tells()) {
            let payload = Bytes::from(payload(one));
            for to in (0..self.scenario.destinations.len()).map(destination) {
                let made = events.get(&(to, payload.clone())).copied().unwrap_or(0);
                let expected = usize::from(self.parts.witness.was_told(one.id, to));
                let what = (one.id, &one.event_type, to);
                let judged = promises::news_are_told_once(what, (made, expected), forgotten);
                self.parts.witness.note(judged);
            }
        }
        for of in (0..self.scenario.destinations.len()).map(destination) {
            for (raised, ended) in RAISED {
                let of_alert = news.iter().filter(|one| {
                    let is = |what: OperationalType| one.event_type == what.as_str();
                    one.destination == Some(of) && (is(raised) || is(ended))
                });
                let in_turn: Vec<_> = of_alert
                    .map(|one| one.event_type == raised.as_str())
                    .collect();
                let judged = promises::an_alert_is_raised_and_ended_in_turn((of, raised), &in_turn);
                self.parts.witness.note(judged);
            }
        }
    }
}
