//! What a notice says: a subject, and a short text in plain English.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::NoticeAddress;
use crate::ids::DestinationId;
use crate::operations::{OperationalScope, rfc3339};
use crate::time::Timestamp;

/// The longest name, or value of a detail, that is written out: names are a
/// tenant's to choose.
const MAX_WORDS: usize = 100;

/// What one message tells.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Digest {
    /// How many there are of each type, the most first.
    pub counts: Vec<(String, u64)>,
    /// The newest of them, the newest first.
    pub newest: Vec<Line>,
    /// More wait for the next message.
    pub more: bool,
}

/// One operational event in a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Its id.
    pub id: i64,
    /// When it came to be.
    pub at: Timestamp,
    /// What happened.
    pub event_type: String,
    /// About whom, if not the tenant as a whole.
    pub destination: Option<DestinationId>,
    /// What people call it; empty where it has no name or is forgotten.
    pub name: String,
    /// The name of its tenant, the same way.
    pub tenant: String,
    /// What its type has to say: a JSON object.
    pub details: String,
}

/// A message, ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The same for the same newest event at the same address, so that who gets
    /// it twice can tell.
    pub id: String,
    /// One line without control characters.
    pub subject: String,
    /// Lines of plain text.
    pub text: String,
}

impl Digest {
    /// How many operational events it tells of.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().map(|(_, count)| count).sum()
    }

    /// The message to this address. `pages` is what addresses of the dashboard
    /// begin with, where that is known.
    #[must_use]
    pub fn written(&self, to: &NoticeAddress, pages: Option<&str>) -> Written {
        let newest = self.newest.first();
        Written {
            id: format!("{}.{}", to.id, newest.map_or(0, |line| line.id)),
            subject: self.subject(),
            text: self.text(to, pages),
        }
    }

    fn subject(&self) -> String {
        let Some(newest) = self.newest.first() else {
            return "[Paceline] nothing new".to_owned();
        };
        let (what, who) = (words(&newest.event_type), newest.who());
        match self.total() {
            0 | 1 => format!("[Paceline] {who}: {what}"),
            many => format!("[Paceline] {many} notices, the newest: {who}: {what}"),
        }
    }

    fn text(&self, to: &NoticeAddress, pages: Option<&str>) -> String {
        let mut text = String::new();
        let total = self.total();
        if total > 1 {
            let _ = writeln!(text, "{total} operational events since the last notice:\n");
            for (event_type, count) in &self.counts {
                let _ = writeln!(text, "{count:>7}  {}", plain(event_type));
            }
            text.push_str("\nThe newest:\n\n");
        }
        for line in &self.newest {
            line.write(&mut text, pages);
        }
        if self.more {
            text.push_str("More wait, and come with the next notice.\n\n");
        }
        text.push_str(&footer(to));
        text
    }
}

impl Line {
    fn who(&self) -> String {
        match (self.name.trim(), self.destination, self.tenant.trim()) {
            ("", Some(id), _) => id.to_string(),
            ("", None, "") => "a tenant".to_owned(),
            ("", None, tenant) => format!("tenant {}", plain(tenant)),
            (name, ..) => plain(name),
        }
    }

    fn write(&self, text: &mut String, pages: Option<&str>) {
        let (what, who) = (words(&self.event_type), self.who());
        let of_tenant = match (self.destination, self.tenant.trim()) {
            (None, _) | (_, "") => String::new(),
            (_, tenant) => format!(" (tenant {})", plain(tenant)),
        };
        let at = rfc3339(self.at);
        let _ = writeln!(text, "{who}{of_tenant}: {what}\n  at {at}");
        let details: Map<String, Value> = serde_json::from_str(&self.details).unwrap_or_default();
        for (name, value) in &details {
            let value = match value {
                Value::Null => continue,
                Value::String(words) => plain(words),
                value => plain(&value.to_string()),
            };
            let _ = writeln!(text, "  {}: {value}", words(name));
        }
        if let (Some(pages), Some(id)) = (pages, self.destination) {
            let _ = writeln!(text, "  {pages}/dashboard/destinations/{id}");
        }
        text.push('\n');
    }
}

fn footer(to: &NoticeAddress) -> String {
    let NoticeAddress { id, every, .. } = to;
    let whose = match to.scope {
        OperationalScope::Tenant => "one tenant's",
        OperationalScope::Installation => "all",
    };
    let minutes = every.as_secs().div_ceil(60);
    format!(
        "-- \nThis address is told of {whose} destinations, at most once in {minutes} minutes.\nTo end it: paceline operations remove-address {id}\n"
    )
}

/// `dead_letters` as people write it.
fn words(name: &str) -> String {
    plain(name).replace('_', " ")
}

/// On one line, without control characters, and not for ever.
fn plain(text: &str) -> String {
    let clean = |one: char| if one.is_control() { ' ' } else { one };
    let mut cut: String = text.chars().take(MAX_WORDS).map(clean).collect();
    if text.chars().nth(MAX_WORDS).is_some() {
        cut.push('…');
    }
    cut
}
