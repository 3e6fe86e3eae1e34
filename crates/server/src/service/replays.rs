//! Replays: of one dead letter, of what matches at one destination, or of what
//! matches at all of them; and what they would be of, before they begin.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use domain::ids::{AttemptId, DestinationId, ReplayId};
use domain::limit_group::{GroupLimits, GroupName};
use domain::replay::{DEFAULT_SHARE, Pace};
use engine::ports::{DeadLetterFilter, Destination, NewReplay, Replay, ReplayProgress, Which};

use super::{Everywhere, OfAll, Service, ServiceError, rules};

/// Destinations that one request looks at, and replays that it begins at most.
pub(super) const REPLAYS_AT_ONCE: u32 = 100;

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

/// How many dead letters, or events to send again, a preview counts.
pub const PREVIEWED: u64 = 10_000;

/// Of these, so many are read at once.
const PREVIEW_PAGE: u32 = 1_000;

/// How many destinations a preview names: what a person reads through.
pub const PREVIEW_NAMED: usize = 50;

/// What replays would be of.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplayPreview {
    /// Dead letters, or events to send again, as far as they were counted.
    pub count: u64,
    /// Whether all were.
    pub is_all: bool,
    /// Those with the most of them first, at most [`PREVIEW_NAMED`].
    pub each: Vec<PreviewedReplay>,
    /// How many more destinations have some.
    pub further: usize,
    /// About how long the one of them all takes that takes longest, or the limit group
    /// whose members do; `None` while a limit is 0.
    pub takes: Option<Duration>,
}

/// Of one destination.
#[derive(Debug, Clone, PartialEq)]
pub struct PreviewedReplay {
    pub destination: Destination,
    /// Of those that were counted.
    pub count: u64,
    /// About how long they take at that part of its limit; `None` while that is 0.
    pub takes: Option<Duration>,
}

/// What was counted for a preview.
#[derive(Default)]
pub(super) struct Counted {
    /// The destinations that replays would be of.
    pub(super) places: Vec<Destination>,
    /// At each of them.
    pub(super) counts: BTreeMap<DestinationId, u64>,
    pub(super) is_all: bool,
}

/// What the members of one limit group are to replay, side by side.
struct Together<'a> {
    limits: &'a GroupLimits,
    members: u32,
    count: u64,
}

impl Together<'_> {
    /// Each member replays at its share of what the group allows, and all of them together
    /// no faster than that.
    fn takes(&self, share: f64) -> Option<Duration> {
        let pace = Pace {
            policy: &self.limits.as_settings().policy(),
            group: None,
            share: (share * f64::from(self.members)).min(1.0),
        };
        pace.takes(self.count)
    }
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
        let share = checked_share(draft.share)?;
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
                let of = OfAll::DeadLetters(&draft.filter);
                return self.begin_part(of, everywhere, Some(share)).await;
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

    /// What a replay of those that match would be of, at this part of the limits.
    /// Counts up to [`PREVIEWED`].
    pub async fn replay_preview(
        &self,
        filter: &DeadLetterFilter,
        share: Option<f64>,
    ) -> Result<ReplayPreview, ServiceError> {
        let share = checked_share(share)?;
        rules::wanted_type(filter.event_type.as_deref())?;
        let (mut counts, is_all) = self.counted(filter).await?;
        counts.extend(
            filter
                .destination
                .filter(|id| !counts.contains_key(id))
                .map(|id| (id, 0)),
        );
        let ids: Vec<DestinationId> = counts.keys().copied().collect();
        // Of those that are deleted nothing is replayed.
        let found = (self.reading.catalog)
            .destinations_of(self.tenant, &ids)
            .await?;
        if filter.destination.is_some() && found.is_empty() {
            return Err(ServiceError::NotFound("destination"));
        }
        let counted = Counted {
            places: found,
            counts,
            is_all,
        };
        self.previewed(&counted, share).await
    }

    /// How long replays of so many take beside each other.
    pub(super) async fn previewed(
        &self,
        counted: &Counted,
        share: f64,
    ) -> Result<ReplayPreview, ServiceError> {
        let groups = self.groups_of(&counted.places).await?;
        let mut together: BTreeMap<&GroupName, Together> = BTreeMap::new();
        let mut each = Vec::with_capacity(counted.places.len());
        for destination in &counted.places {
            let count = counted.counts.get(&destination.id).copied().unwrap_or(0);
            let group = (destination.limit_group.as_ref())
                .and_then(|name| groups.iter().find(|group| group.name == *name));
            if let Some(group) = group {
                let of_group = together.entry(&group.name).or_insert(Together {
                    limits: &group.limits,
                    members: 0,
                    count: 0,
                });
                of_group.members += 1;
                of_group.count += count;
            }
            let pace = Pace {
                policy: &destination.effective.policy(),
                group: group.as_ref().map(|group| &group.limits),
                share,
            };
            each.push(PreviewedReplay {
                takes: pace.takes(count),
                destination: destination.clone(),
                count,
            });
        }
        each.sort_by_key(|one| Reverse(one.count));
        let alone = each.iter().map(|one| one.takes);
        let longest = alone.chain(together.values().map(|group| group.takes(share)));
        let longest = longest.max_by_key(|takes| takes.unwrap_or(Duration::MAX));
        let further = each.len().saturating_sub(PREVIEW_NAMED);
        let count = each.iter().map(|one| one.count).sum();
        each.truncate(PREVIEW_NAMED);
        Ok(ReplayPreview {
            count,
            is_all: counted.is_all,
            each,
            further,
            takes: longest.unwrap_or(Some(Duration::ZERO)),
        })
    }

    /// How many dead letters match at each destination, and whether those are all.
    async fn counted(
        &self,
        filter: &DeadLetterFilter,
    ) -> Result<(BTreeMap<DestinationId, u64>, bool), ServiceError> {
        let mut counts: BTreeMap<DestinationId, u64> = BTreeMap::new();
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
                return Ok((counts, after.is_none()));
            }
        }
    }

    pub(super) async fn create_replay(
        &self,
        which: Which,
        share: f64,
    ) -> Result<Replay, ServiceError> {
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
        Ok(self.reading.backlog.replay(self.tenant, id).await?)
    }

    pub async fn cancel_replay(&self, id: ReplayId) -> Result<Replay, ServiceError> {
        Ok(self.backlog().cancel_replay(self.tenant, id).await?)
    }
}

pub(super) fn checked_share(share: Option<f64>) -> Result<f64, ServiceError> {
    let share = share.unwrap_or(DEFAULT_SHARE);
    if !(share > 0.0 && share <= 1.0) {
        return Err(ServiceError::invalid("share", "must be above 0, at most 1"));
    }
    Ok(share)
}
