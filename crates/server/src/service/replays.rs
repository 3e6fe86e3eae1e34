//! Replays: of one dead letter, of what matches at one destination, or of what
//! matches at all of them.

use std::collections::BTreeMap;
use std::time::Duration;

use domain::ids::{AttemptId, DestinationId, ReplayId};
use domain::replay::{DEFAULT_SHARE, takes};
use engine::ports::{
    CatalogError, DeadLetterFilter, Destination, NewReplay, Replay, ReplayProgress, Which,
};

use super::{Service, ServiceError, rules};

/// Destinations that one request looks at, and replays that it begins at most.
const REPLAYS_AT_ONCE: u32 = 100;

/// A replay that somebody wants.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReplayDraft {
    /// Of this dead letter.
    pub attempt: Option<AttemptId>,
    /// Of those that match; `destination` too, unless `everywhere` is set.
    pub filter: DeadLetterFilter,
    /// Those of all destinations; where to go on, after the first request.
    pub everywhere: Option<Everywhere>,
    pub share: Option<f64>,
}

/// How many dead letters a preview counts.
pub const PREVIEWED: u64 = 10_000;

/// Of these, so many are read at once.
const PREVIEW_PAGE: u32 = 1_000;

/// What a replay would be of.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplayPreview {
    /// Dead letters, as far as they were counted.
    pub count: u64,
    /// Whether all were.
    pub is_all: bool,
    /// In id order.
    pub each: Vec<PreviewedReplay>,
}

/// Of one destination.
#[derive(Debug, Clone, PartialEq)]
pub struct PreviewedReplay {
    pub destination: Destination,
    /// Of those that were counted.
    pub dead_letters: u64,
    /// About how long they take at half of its limit; `None` while that is 0.
    pub takes: Option<Duration>,
}

/// All destinations, after one in id order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Everywhere {
    pub after: Option<DestinationId>,
}

/// Replays that one request has begun, one for each destination; few, or none,
/// of those that it looked at.
#[derive(Debug, Clone, PartialEq)]
pub struct BegunReplays {
    pub replays: Vec<Replay>,
    /// Where to go on; `None` when it is done.
    pub next: Option<DestinationId>,
}

impl Service {
    /// Begins what is wanted. Repeating it begins another replay, which finds
    /// what the first one has not moved: no dead letter is replayed twice.
    pub async fn create_replays(&self, draft: ReplayDraft) -> Result<BegunReplays, ServiceError> {
        let share = draft.share.unwrap_or(DEFAULT_SHARE);
        if !(share > 0.0 && share <= 1.0) {
            return Err(ServiceError::invalid("share", "must be above 0, at most 1"));
        }
        rules::wanted_type(draft.filter.event_type.as_deref())?;
        let plain = draft.filter == DeadLetterFilter::default();
        let which = match (draft.attempt, draft.filter.destination, draft.everywhere) {
            (Some(attempt), None, None) if plain => Which::One(attempt),
            (Some(_), ..) => {
                let problem = "excludes destinations, type, status and times";
                return Err(ServiceError::invalid("attempt_id", problem));
            }
            (None, Some(_), Some(_)) => {
                let problem = "excludes all_destinations";
                return Err(ServiceError::invalid("destination_id", problem));
            }
            (None, Some(destination), None) => Which::Matching(destination, draft.filter),
            (None, None, Some(everywhere)) => {
                return self
                    .replay_everywhere(draft.filter, everywhere, share)
                    .await;
            }
            (None, None, None) => {
                let problem = "give it, or all_destinations, or the attempt_id of one dead letter";
                return Err(ServiceError::invalid("destination_id", problem));
            }
        };
        Ok(BegunReplays {
            replays: vec![self.create_replay(which, share).await?],
            next: None,
        })
    }

    /// What a replay of those that match would be of. Counts up to [`PREVIEWED`].
    pub async fn replay_preview(
        &self,
        filter: &DeadLetterFilter,
    ) -> Result<ReplayPreview, ServiceError> {
        rules::wanted_type(filter.event_type.as_deref())?;
        let mut counts: BTreeMap<DestinationId, u64> = BTreeMap::new();
        counts.extend(filter.destination.map(|destination| (destination, 0)));
        let (mut count, mut after) = (0, None);
        loop {
            let page = (self.reading.backlog)
                .dead_letters(self.tenant, filter, after, PREVIEW_PAGE)
                .await?;
            count += page.dead_letters.len() as u64;
            for one in &page.dead_letters {
                *counts.entry(one.attempt.destination).or_default() += 1;
            }
            after = page.next;
            if after.is_none() || count >= PREVIEWED {
                break;
            }
        }
        let mut each = Vec::with_capacity(counts.len());
        for (id, dead_letters) in counts {
            let found = self.reading.catalog.destination(self.tenant, id).await;
            let destination = match found {
                // Deleted: nothing of it is replayed.
                Err(CatalogError::NotFound(_)) if filter.destination.is_none() => {
                    count -= dead_letters;
                    continue;
                }
                found => found?,
            };
            let policy = destination.effective.policy();
            each.push(PreviewedReplay {
                takes: takes(&policy, DEFAULT_SHARE, dead_letters),
                destination,
                dead_letters,
            });
        }
        Ok(ReplayPreview {
            count,
            is_all: after.is_none(),
            each,
        })
    }

    /// One replay for each destination that has what matches: each has limits,
    /// and a pace, of its own.
    async fn replay_everywhere(
        &self,
        filter: DeadLetterFilter,
        Everywhere { after }: Everywhere,
        share: f64,
    ) -> Result<BegunReplays, ServiceError> {
        let page = (self.backlog())
            .destinations_with_dead_letters(self.tenant, &filter, after, REPLAYS_AT_ONCE)
            .await?;
        let mut replays = Vec::with_capacity(page.destinations.len());
        for destination in page.destinations {
            let which = Which::Matching(destination, filter.clone());
            match self.create_replay(which, share).await {
                Ok(replay) => replays.push(replay),
                // Deleted meanwhile.
                Err(ServiceError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(BegunReplays {
            replays,
            next: page.next,
        })
    }

    async fn create_replay(&self, which: Which, share: f64) -> Result<Replay, ServiceError> {
        let new = NewReplay {
            id: ReplayId(self.mint.uuid()),
            which,
            share,
        };
        Ok(self.backlog().create_replay(self.tenant, &new).await?)
    }

    /// A page of replays, the newest first.
    pub async fn replays(
        &self,
        after: Option<ReplayId>,
        limit: u32,
    ) -> Result<Vec<ReplayProgress>, ServiceError> {
        rules::page(limit)?;
        Ok((self.reading.backlog)
            .replays(self.tenant, after, limit)
            .await?)
    }

    pub async fn replay(&self, id: ReplayId) -> Result<Replay, ServiceError> {
        Ok(self.backlog().replay(self.tenant, id).await?)
    }

    pub async fn cancel_replay(&self, id: ReplayId) -> Result<Replay, ServiceError> {
        Ok(self.backlog().cancel_replay(self.tenant, id).await?)
    }
}
