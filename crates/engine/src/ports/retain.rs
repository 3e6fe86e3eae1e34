//! The same store, as seen by the loop that forgets.

use std::time::Duration;

use async_trait::async_trait;
use domain::retention::Retention;

use super::error::StoreError;
use super::store::MAX_ROWS;

/// What is over and old goes.
#[async_trait]
pub trait Retain: Send + Sync {
    /// One step of the walk that has been due for longest, unless somebody else
    /// takes it this moment: looks at no more than `rules.limit` rows, and
    /// deletes those of them that are over and older than their age, in one
    /// commit. A walk remembers where it is; one that has come to what is young
    /// rests, and after a while it begins anew, to look again at what it had
    /// to leave.
    ///
    /// What is deleted:
    /// - of **attempts**, those in a final state that ended before the ledger's
    ///   age (were created, if they never started), but no dead letters that can
    ///   be replayed;
    /// - of **dead letters**, those older than their own age that no running
    ///   replay may still come to: they can be replayed no more, and go unless
    ///   the ledger keeps them as failed;
    /// - of **events**, those accepted before the payloads' age, but none with an
    ///   attempt that is not over or a dead letter that can be replayed;
    /// - of **limit history**, what was superseded before the ledger's age, and
    ///   before all that is left of that destination's starts;
    /// - of **destinations**, those that were deleted at least `rules.deleted_for`
    ///   ago and have no attempt left in the ledger, with their limit history and
    ///   whatever else is known of them. One of them that has a waiting attempt
    ///   after all is given back to [`Store::reap`](super::Store::reap);
    /// - of **records**, replays that ended before the ledger's age, and rows of
    ///   the outbox that were rejected before it;
    /// - of **days**, where the store keeps attempts and events by the day: whole
    ///   days that are older than their age and hold nothing that has to stay.
    ///
    /// Repeating it is the next step. A crash half-way has done nothing; of days,
    /// what the next step finishes. A step that fails puts its walk off for
    /// [`PUT_OFF`], so that the others get their turn. Rows that somebody holds
    /// are left for another round.
    async fn retain(&self, rules: &RetainRules) -> Result<Retained, StoreError>;
}

/// How long a walk waits after a step that failed.
pub const PUT_OFF: Duration = Duration::from_secs(60);

/// By how much later rows of attempts and events go one by one, where their days
/// go whole: a day goes at its end and its age, so until then, and a day more, it
/// would be emptied in vain.
pub const DAY_GOES_FIRST: Duration = Duration::from_secs(2 * 86_400);

/// How long a deleted destination is kept, however little is left of it: no
/// transaction that began before the deletion is that old.
pub const DELETED_FOR: Duration = Duration::from_secs(86_400);

/// How it is gone about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetainRules {
    /// How long what is kept.
    pub keep: Retention,
    /// Rows that one step looks at.
    pub limit: u32,
    /// How long a walk rests that has come to what is young.
    pub rest: Duration,
    /// How long after it began a walk begins anew, once it is through.
    pub again: Duration,
    /// So many times as long as a step took nobody takes the next, where several
    /// processes share the store.
    pub pause_factor: u32,
    /// How much later than its age a row goes by itself, where its day goes whole.
    /// Stores without days have no use for it.
    pub day_goes_first: Duration,
    /// How long a deleted destination is kept at least.
    pub deleted_for: Duration,
}

impl Default for RetainRules {
    fn default() -> Self {
        Self {
            keep: Retention::default(),
            limit: u32::try_from(MAX_ROWS).unwrap_or(u32::MAX),
            rest: Duration::from_secs(60),
            again: Duration::from_secs(3_600),
            pause_factor: 4,
            day_goes_first: DAY_GOES_FIRST,
            deleted_for: DELETED_FOR,
        }
    }
}

/// What is walked along.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Walk {
    /// The ledger, from its oldest row.
    Attempts,
    /// Whole days of attempts and events; of no use where a store has none.
    Days,
    /// Dead letters that can be replayed, those first that died first.
    DeadLetters,
    /// Destinations that were deleted, from the first.
    Destinations,
    /// Events with their payloads, from the oldest.
    Events,
    /// What was in force from when on.
    LimitHistory,
    /// Replays that are over, and rejected rows of the outbox.
    Records,
}

impl Walk {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Attempts,
        Self::Days,
        Self::DeadLetters,
        Self::Destinations,
        Self::Events,
        Self::LimitHistory,
        Self::Records,
    ];

    /// The word, as in the store and in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Attempts => "attempts",
            Self::Days => "days",
            Self::DeadLetters => "dead_letters",
            Self::Destinations => "destinations",
            Self::Events => "events",
            Self::LimitHistory => "limit_history",
            Self::Records => "records",
        }
    }
}

/// The text is no walk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown walk {0:?}")]
pub struct UnknownWalk(pub String);

impl std::str::FromStr for Walk {
    type Err = UnknownWalk;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|walk| walk.as_str() == text);
        known.ok_or_else(|| UnknownWalk(text.to_owned()))
    }
}

/// What one step did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retained {
    /// Whose step it was; `None` if nothing was due.
    pub walk: Option<Walk>,
    /// Rows that it looked at; of days, tables.
    pub examined: u32,
    /// Rows that went, or are no dead letters any more.
    pub removed: u32,
    /// The walk goes on; else it rests.
    pub more: bool,
}
