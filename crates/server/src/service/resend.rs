//! Events that are sent again, whatever became of them: one, or what a destination or all
//! of them have missed. All are replays, with the pace, progress and end of those.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use domain::attempt::AttemptState;
use domain::destination::DestinationState;
use domain::ids::{DestinationId, EventId};
use domain::replay::DEFAULT_SHARE;
use domain::search::Sought;
use engine::ports::{Catalog, Destination, EventFilter, Replay, ResentEvents, Which, no_event_by};
use tokio::time::Instant;

use super::replays::{Counted, PREVIEWED, REPLAYS_AT_ONCE, checked_share};
use super::{BegunReplays, Everywhere, ReplayPreview, Service, ServiceError, rules};

/// Destinations that one request sends events to again, at most: for each of them a store
/// counts the tenant's first 10,000 events of the time twice, before its replay begins.
pub const RESENT_TO_AT_ONCE: u32 = 10;

/// After so long a request begins no replay more, and says where to go on: each takes up to
/// four statements of five seconds, and an answer is waited for no longer than 30 seconds.
const BEGINS_FOR: Duration = Duration::from_secs(5);

/// Of these requests a form makes up to so many, and then asks whether to go on.
const PARTS_OF_A_FORM: u32 = 10;

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

    /// Sends events again to the next of all destinations, a replay for each: few, or none, of
    /// the [`RESENT_TO_AT_ONCE`] that it looks at. One where nothing matches has none, nor has
    /// a disabled one; one where more could match than were looked at has one that may find
    /// none. What has begun is said, also where it ended early: after some seconds, or with a
    /// failure, which is an error only where nothing has begun.
    pub async fn resend_everywhere(
        &self,
        which: ResentEvents,
        Everywhere { after }: Everywhere,
        share: Option<f64>,
    ) -> Result<BegunReplays, ServiceError> {
        let share = checked_share(share)?;
        check(&which)?;
        let until = Instant::now() + BEGINS_FOR;
        self.resend_until(until, after, (&which, share)).await
    }

    /// The same to as many as one form sends to.
    pub async fn resend_to_all(
        &self,
        which: &ResentEvents,
        Everywhere { after }: Everywhere,
    ) -> Result<BegunReplays, ServiceError> {
        check(which)?;
        let until = Instant::now() + BEGINS_FOR;
        let mut begun = BegunReplays {
            replays: Vec::new(),
            next: after,
        };
        for _part in 0..PARTS_OF_A_FORM {
            let wanted = (which, DEFAULT_SHARE);
            match self.resend_until(until, begun.next, wanted).await {
                Ok(part) => {
                    begun.replays.extend(part.replays);
                    begun.next = part.next;
                }
                Err(error) if begun.replays.is_empty() => return Err(error),
                Err(_) => break,
            }
            if begun.next.is_none() || Instant::now() >= until {
                break;
            }
        }
        Ok(begun)
    }

    async fn resend_until(
        &self,
        until: Instant,
        after: Option<DestinationId>,
        (which, share): (&ResentEvents, f64),
    ) -> Result<BegunReplays, ServiceError> {
        let page = self
            .enabled(&self.catalog, after, RESENT_TO_AT_ONCE)
            .await?;
        let mut begun = BegunReplays {
            replays: Vec::new(),
            next: after,
        };
        for (turn, Destination { id, .. }) in page.destinations.iter().enumerate() {
            if turn > 0 && Instant::now() >= until {
                return Ok(begun);
            }
            match self.resend_to_one(*id, which, share).await {
                Ok(replay) => begun.replays.extend(replay),
                Err(error) if begun.replays.is_empty() => return Err(error),
                // Whoever goes on from here meets it again, if it lasts.
                Err(_) => return Ok(begun),
            }
            begun.next = Some(*id);
        }
        begun.next = page.next;
        Ok(begun)
    }

    /// To one of all; `None` where nothing matches, or it was deleted meanwhile.
    async fn resend_to_one(
        &self,
        to: DestinationId,
        which: &ResentEvents,
        share: f64,
    ) -> Result<Option<Replay>, ServiceError> {
        let backlog = self.backlog();
        let matching = backlog.resendable(self.tenant, &[to], which).await?;
        if matching.is_none() {
            return Ok(None);
        }
        let which = Which::Events(to, which.clone());
        self.create_replay_of_one(which, share).await
    }

    /// Those of the next `limit` destinations that are not disabled: what is sent to all is
    /// not for those.
    async fn enabled(
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

/// Some of a tenant's destinations.
struct Enabled {
    destinations: Vec<Destination>,
    /// Where the next of them begin; `None` after the last.
    next: Option<DestinationId>,
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
