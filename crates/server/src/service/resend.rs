//! Events that are sent again, whatever became of them: one, or what a destination or all
//! of them have missed. All are replays, with the pace, progress and end of those.

use std::collections::BTreeMap;
use std::sync::Arc;

use domain::attempt::AttemptState;
use domain::destination::DestinationState;
use domain::ids::{DestinationId, EventId};
use domain::search::Sought;
use engine::ports::{Catalog, Destination, EventFilter, Replay, ResentEvents, Which, no_event_by};

use super::replays::{Counted, PREVIEWED, REPLAYS_AT_ONCE, checked_share};
use super::{BegunReplays, Everywhere, OfAll, ReplayPreview, Service, ServiceError, rules};

/// Destinations that a preview of all of them counts for, at most.
pub const PREVIEWED_DESTINATIONS: u32 = 100;

/// For so many of these it counts at once, among the tenant's first 500 events of the time.
const COUNTED_AT_ONCE: u32 = 20;

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

    /// Sends events again to the next of all destinations, as [`Service::begin_part`] begins
    /// replays. One where nothing matches has none, nor has a disabled one; one where more
    /// could match than were looked at has one that may find none.
    pub async fn resend_everywhere(
        &self,
        which: ResentEvents,
        from: Everywhere,
        share: Option<f64>,
    ) -> Result<BegunReplays, ServiceError> {
        self.begin_part(OfAll::Events(&which), from, share).await
    }

    /// Those of the next `limit` destinations that are not disabled: what is sent to all is
    /// not for those.
    pub(super) async fn enabled(
        &self,
        catalog: &Arc<dyn Catalog>,
        after: Option<DestinationId>,
        limit: u32,
    ) -> Result<Enabled, ServiceError> {
        let mut found = catalog.destinations(self.tenant, after, limit + 1).await?;
        let is_last = found.len() <= limit as usize;
        found.truncate(limit as usize);
        let next = found.last().filter(|_| !is_last).map(|last| last.id);
        found.retain(|one| one.state != DestinationState::Disabled);
        Ok(Enabled {
            destinations: found,
            next,
        })
    }

    /// What sending these again would be of, to one destination or to all, at this part of
    /// the limits. Begins nothing. Counts up to about [`PREVIEWED`], and of all destinations
    /// the first [`PREVIEWED_DESTINATIONS`].
    pub async fn resend_preview(
        &self,
        to: Option<DestinationId>,
        which: &ResentEvents,
        share: Option<f64>,
    ) -> Result<ReplayPreview, ServiceError> {
        let share = checked_share(share)?;
        check(which)?;
        let counted = match to {
            Some(to) => {
                let place = self.reading.catalog.destination(self.tenant, to).await?;
                self.resendable(vec![place], which).await?
            }
            None => self.resendable_everywhere(which).await?,
        };
        self.previewed(&counted, share).await
    }

    async fn resendable(
        &self,
        places: Vec<Destination>,
        which: &ResentEvents,
    ) -> Result<Counted, ServiceError> {
        let ids: Vec<DestinationId> = places.iter().map(|place| place.id).collect();
        let found = (self.reading.backlog)
            .resendable(self.tenant, &ids, which)
            .await?;
        Ok(Counted {
            places,
            counts: found.counts,
            is_all: !found.is_part,
        })
    }

    /// Without those where nothing matches.
    async fn resendable_everywhere(&self, which: &ResentEvents) -> Result<Counted, ServiceError> {
        let mut all = Counted {
            is_all: true,
            ..Counted::default()
        };
        let (mut looked_at, mut count, mut after) = (0, 0, None);
        loop {
            let catalog = &self.reading.catalog;
            let page = self.enabled(catalog, after, COUNTED_AT_ONCE).await?;
            after = page.next;
            let mut found = self.resendable(page.destinations, which).await?;
            found.counts.retain(|_, matching| *matching > 0);
            (found.places).retain(|place| found.counts.contains_key(&place.id));
            count += found.counts.values().sum::<u64>();
            all.is_all &= found.is_all;
            all.places.append(&mut found.places);
            all.counts.append(&mut found.counts);
            looked_at += COUNTED_AT_ONCE;
            if after.is_none() || count >= PREVIEWED || looked_at >= PREVIEWED_DESTINATIONS {
                all.is_all &= after.is_none();
                return Ok(all);
            }
        }
    }

    /// Refuses what finds nothing or makes no sense, before anybody is asked whether he is
    /// sure.
    pub async fn check_resend(
        &self,
        which: &ResentEvents,
        share: Option<f64>,
    ) -> Result<(), ServiceError> {
        checked_share(share)?;
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

/// Some of a tenant's destinations.
pub(super) struct Enabled {
    pub(super) destinations: Vec<Destination>,
    /// Where the next of them begin; `None` after the last.
    pub(super) next: Option<DestinationId>,
}

/// What can be told without the store.
pub(super) fn check(which: &ResentEvents) -> Result<(), ServiceError> {
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
