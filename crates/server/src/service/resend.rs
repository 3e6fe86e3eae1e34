//! Events that are sent again, whatever became of them: one, or what a destination has
//! missed. Both are replays, with the pace, progress and end of those.

use std::collections::BTreeMap;

use domain::attempt::AttemptState;
use domain::ids::{DestinationId, EventId};
use domain::search::Sought;
use engine::ports::{EventFilter, Replay, ResentEvents, Which, no_event_by};

use super::replays::{REPLAYS_AT_ONCE, checked_share};
use super::{BegunReplays, Service, ServiceError, rules};

impl Service {
    /// Sends an event again to this destination, or to all where it has been before that
    /// are still there. Where it waits, or is under way, it is left alone; if that is
    /// everywhere, nothing is done and said so.
    pub async fn resend_event(
        &self,
        id: EventId,
        to: Option<DestinationId>,
        share: Option<f64>,
    ) -> Result<BegunReplays, ServiceError> {
        let share = checked_share(share)?;
        let (_, attempts) = self.catalog.event(self.tenant, id).await?;
        // Whether it is owed there.
        let mut places: BTreeMap<DestinationId, bool> = BTreeMap::new();
        for attempt in attempts {
            *places.entry(attempt.destination).or_default() |= !attempt.state.is_final();
        }
        if let Some(to) = to {
            places = BTreeMap::from([(to, places.get(&to).copied().unwrap_or(false))]);
        }
        if places.len() > REPLAYS_AT_ONCE as usize {
            let problem = format!("name one: it went to more than {REPLAYS_AT_ONCE} of them");
            return Err(ServiceError::invalid("destination_id", problem));
        }
        if !places.is_empty() && places.values().all(|is_owed| *is_owed) {
            let problem = "it waits there still, or is under way: there is nothing to send again";
            return Err(ServiceError::Conflict(problem.to_owned()));
        }
        let mut replays = Vec::new();
        for (place, _) in places.into_iter().filter(|(_, is_owed)| !is_owed) {
            match self.create_replay(Which::Event(place, id), share).await {
                Ok(replay) => replays.push(replay),
                // Deleted meanwhile.
                Err(ServiceError::NotFound("destination")) if to.is_none() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(BegunReplays {
            replays,
            next: None,
        })
    }

    /// Sends events to a destination again.
    pub async fn resend_events(
        &self,
        to: DestinationId,
        which: ResentEvents,
        share: Option<f64>,
    ) -> Result<Replay, ServiceError> {
        let share = checked_share(share)?;
        check(&which)?;
        self.create_replay(Which::Events(to, which), share).await
    }

    /// Refuses what finds nothing or makes no sense, before anybody is asked whether he is
    /// sure.
    pub async fn check_resend(&self, which: &ResentEvents) -> Result<(), ServiceError> {
        check(which)?;
        let Some(text) = which.text.as_deref() else {
            return Ok(());
        };
        if Sought::by(text, None) != Sought::Nothing {
            return Ok(());
        }
        // No part of an id: it has to stand for an event as a key, and only the store knows.
        let filter = EventFilter {
            text: Some(text.to_owned()),
            ..EventFilter::default()
        };
        let overview = &self.reading.overview;
        let found = overview.find_events(self.tenant, &filter, None, 1).await?;
        match found.events.is_empty() {
            true => Err(no_event_by(text).into()),
            false => Ok(()),
        }
    }
}

/// What can be told without the store.
fn check(which: &ResentEvents) -> Result<(), ServiceError> {
    rules::wanted_type(which.event_type.as_deref())?;
    rules::sought(which.text.as_deref())?;
    rules::span(Some(which.since), which.until)?;
    match which.state {
        Some(state) if !state.is_final() => {
            let problem = "must be of an attempt that is over: what waits is left alone";
            Err(ServiceError::invalid("state", problem))
        }
        Some(AttemptState::Succeeded) if which.only_missed => {
            let problem = "finds nothing of what has not succeeded: send only_failed = false";
            Err(ServiceError::invalid("state", problem))
        }
        _ => Ok(()),
    }
}
