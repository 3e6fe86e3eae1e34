//! Notices: operational events, told to people by e-mail and in chats.
//!
//! The first notice of an address goes at once. What follows within the
//! address's own time is put together into one digest, with a count of each
//! type and the newest lines: a flood is one message.

mod address;
mod written;

pub use address::email_problem;
pub use written::{Digest, Line, Written};

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::health::UnknownWord;
use crate::ids::{NoticeAddressId, TenantId};
use crate::operations::{OperationalEvent, OperationalScope, wants};

/// Between two messages to one address, unless it says otherwise.
pub const DEFAULT_EVERY: Duration = Duration::from_secs(600);

/// The least that an address may ask for: fewer seconds are a flood.
pub const MIN_EVERY: Duration = Duration::from_secs(60);

/// The most: what is older than this is dropped.
pub const MAX_EVERY: Duration = Duration::from_secs(12 * 3_600);

/// What could not be told for so long is dropped.
pub const KEPT: Duration = Duration::from_secs(86_400);

/// After the first failure in a row.
const FIRST_PAUSE: Duration = Duration::from_secs(30);

/// However many have failed.
const LONGEST_PAUSE: Duration = Duration::from_secs(1_800);

/// How an address is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeForm {
    /// A mail in plain text.
    Email,
    /// A `POST` of `{"text": …}` to an incoming webhook, as Slack takes it.
    Slack,
}

impl NoticeForm {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Email, Self::Slack];

    /// The word, as in SQL and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Email => "email",
            Self::Slack => "slack",
        }
    }
}

impl fmt::Display for NoticeForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for NoticeForm {
    type Err = UnknownWord;
    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        let found = Self::ALL.into_iter().find(|one| one.as_str() == word);
        found.ok_or_else(|| UnknownWord(word.to_owned()))
    }
}

/// An address that is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoticeAddress {
    /// Its id.
    pub id: NoticeAddressId,
    /// Whose it is.
    pub tenant: TenantId,
    /// Of whose destinations it is told.
    pub scope: OperationalScope,
    /// How it is told.
    pub form: NoticeForm,
    /// What people see of it: a mail address, or the host of a webhook, whose
    /// path is a secret.
    pub shown: String,
    /// Of which types; none is all.
    pub event_types: Vec<String>,
    /// Between two messages.
    pub every: Duration,
}

/// Which address is told of which event, by its id.
#[must_use]
pub fn notices(
    events: &[OperationalEvent],
    addresses: &[NoticeAddress],
) -> Vec<(NoticeAddressId, i64)> {
    let told = |event: &OperationalEvent, to: &NoticeAddress| {
        wants((to.scope, to.tenant), &to.event_types, event)
    };
    (events.iter())
        .flat_map(|event| {
            let to = addresses.iter().filter(move |to| told(event, to));
            to.map(move |to| (to.id, event.id))
        })
        .collect()
}

/// How long after another failure an address is tried again; `failures` came
/// before it in a row.
#[must_use]
pub fn again_in(failures: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(failures);
    FIRST_PAUSE.saturating_mul(doubled).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests;
