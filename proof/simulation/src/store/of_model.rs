//! The same of the model.

use bytes::Bytes;
use domain::batch::BatchRules;
use domain::compliance::InForce;
use domain::event::NewEvent;
use domain::ids::{AttemptId, DestinationId, EventId, TenantId};
use domain::operations::OperationalEvent;
use domain::permit::Permit;
use domain::policy::LimitSettings;
use domain::smart::Effective;
use domain::time::Timestamp;
use engine::ports::CatalogError;

use super::{OtherPorts, Row, Rows, Struck, UnderWay, Unseen, WorldStore};
use crate::model::{Attempt, ClockStep, ModelStore};

impl WorldStore for ModelStore {
    fn ports(&self) -> &dyn OtherPorts {
        self
    }
}

impl Struck for ModelStore {
    fn now(&self) -> Timestamp {
        Self::now(self)
    }

    fn step_clock(&self, step: ClockStep) {
        Self::step_clock(self, step);
    }

    fn lock_destination(&self, destination: DestinationId) {
        Self::lock_destination(self, destination);
    }

    fn unlock_destination(&self, destination: DestinationId) {
        Self::unlock_destination(self, destination);
    }

    fn forget_unflushed(&self) -> usize {
        Self::forget_unflushed(self)
    }

    fn accept_unseen(&self, events: &[NewEvent]) -> Option<Unseen> {
        Self::accept_unseen(self, events).map(Unseen::Model)
    }

    fn commit_unseen(&self, unseen: Unseen) -> Vec<AttemptId> {
        match unseen {
            Unseen::Model(unseen) => Self::commit_unseen(self, unseen),
            Unseen::Sqlite(_) => Vec::new(),
        }
    }

    fn end_hold(&self, destination: DestinationId) {
        Self::end_hold(self, destination);
    }

    fn change_tier(&self, name: &str, limits: LimitSettings) -> Result<(), CatalogError> {
        Self::change_tier(self, name, limits)
    }
}

impl From<&Attempt> for Row {
    fn from(row: &Attempt) -> Self {
        Self {
            id: row.id,
            event: row.event,
            destination: row.destination,
            try_number: row.try_number,
            tries_before: row.tries_before,
            state: row.state,
            status: row.status,
            permit: row.permit,
            waits_since: row.waits_since(),
            created_at: row.created_at,
            started_at: row.started_at,
            is_open_dead_letter: row.is_open_dead_letter(),
        }
    }
}

impl Rows for ModelStore {
    fn row(&self, id: AttemptId) -> Option<Row> {
        self.read(|rows| rows.attempt(id).map(Row::from))
    }

    fn rows_of(&self, destination: DestinationId) -> Vec<Row> {
        self.read(|rows| rows.attempts_of(destination).map(Row::from).collect())
    }

    fn rows_of_event(&self, event: EventId) -> Option<Vec<Row>> {
        self.read(|rows| {
            let attempts = rows.event(event)?.attempts.iter();
            let attempts = attempts.filter_map(|id| rows.attempt(*id));
            Some(attempts.map(Row::from).collect())
        })
    }

    fn newest(&self) -> Option<AttemptId> {
        self.read(|rows| rows.attempts().next_back().map(|row| row.id))
    }

    fn is_first(&self, id: AttemptId) -> bool {
        let first = self.read(|rows| {
            let event = rows.event(rows.attempt(id)?.event)?;
            event.attempts.first().copied()
        });
        first == Some(id)
    }

    fn orphan(&self) -> Option<AttemptId> {
        self.read(crate::model::Rows::orphan)
    }

    fn payload(&self, event: EventId) -> Option<(String, Bytes)> {
        self.read(|rows| {
            let event = rows.event(event)?;
            Some((event.content_type.clone(), event.payload.clone()))
        })
    }

    fn all_events(&self) -> Vec<(EventId, Option<DestinationId>, Bytes)> {
        self.read(|rows| {
            let events = rows.events().map(|(id, event)| {
                let mut attempts = event.attempts.iter().filter_map(|id| rows.attempt(*id));
                let first = attempts.next().map(|row| row.destination);
                (id, first, event.payload.clone())
            });
            events.collect()
        })
    }

    fn in_force(&self, destination: DestinationId) -> Vec<InForce> {
        self.read(|rows| rows.in_force(destination))
    }

    fn batch_rules(&self, destination: DestinationId) -> Option<BatchRules> {
        self.read(|rows| rows.batches(destination))
    }

    fn under_way(&self, destination: DestinationId) -> UnderWay {
        self.read(|rows| UnderWay {
            waiting: rows.waiting(destination),
            admitted: rows.permits_of(destination).count(),
            in_flight: rows.in_flight(destination) as usize,
        })
    }

    fn both_wait(&self, destination: DestinationId, now: Timestamp) -> bool {
        self.read(|rows| rows.both_wait(destination, now))
    }

    fn turns(&self, permits: &[Permit], now: Timestamp) -> (usize, usize) {
        self.read(|rows| rows.turns(permits, now))
    }

    fn held_until(&self, destination: DestinationId) -> Option<Timestamp> {
        self.read(|rows| rows.held_until(destination))
    }

    fn is_probing(&self, destination: DestinationId) -> bool {
        self.read(|rows| rows.is_probing(destination))
    }

    fn lowered(&self, destination: DestinationId) -> Effective {
        self.read(|rows| rows.lowered(destination))
    }

    fn was_lowered(&self, destination: DestinationId) -> bool {
        self.read(|rows| rows.was_lowered(destination))
    }

    fn replayed(&self, destination: DestinationId) -> [Vec<(EventId, u32)>; 2] {
        self.read(|rows| rows.replayed(destination))
    }

    fn all_pending(&self) -> Vec<(TenantId, DestinationId, u64, bool)> {
        self.read(|rows| rows.pending().collect())
    }

    fn counted_at(&self) -> Timestamp {
        self.read(crate::model::Rows::counted_at)
    }

    fn news(&self) -> Vec<OperationalEvent> {
        self.read(|rows| rows.news().to_vec())
    }

    fn news_to_relay(&self) -> Vec<OperationalEvent> {
        self.read(|rows| rows.news_to_relay().cloned().collect())
    }

    fn told(&self) -> Vec<(DestinationId, bool)> {
        self.read(|rows| {
            let told = rows.told().iter().map(|one| one.destination);
            told.map(|one| (one, rows.takes(one))).collect()
        })
    }

    fn alerts(&self) -> usize {
        self.read(|rows| rows.destinations_with_alerts().count())
    }
}
