//! What one tenant, one receiver or one stranger does to the others.
//!
//! An attack goes on until it is dropped. It asks at a bounded pace: what is measured
//! is what its requests cost the others, not how a machine shares two cores among
//! those that use all of them.
//!
//! One is not drawn: a receiver behind a name that NAT64 leads to. It takes a resolver
//! and a route that a loopback has not; which of its addresses are dialled is tried by
//! the corpus of `http_sender`.

mod attacker;
mod late;
mod receivers;
mod requests;
mod sockets;
mod underway;

use std::time::Duration;

pub(super) use self::attacker::Attacker;
pub(super) use self::underway::Underway;
use crate::run::settings::Size;

/// One kind of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attack {
    /// Receivers whose answers are no text that a database takes, or no answer.
    Answers,
    /// A receiver whose queue of connections is always full.
    Dials,
    /// Text that no database takes, and bodies that are not what they say.
    Words,
    /// Heads that do not end, by the thousand.
    Heads,
    /// Bodies that come a little at a time.
    Bodies,
    /// Sockets that send nothing, as many as there may be.
    Idle,
    /// Long answers that nobody reads.
    Unread,
    /// Whether all is ready, asked without end.
    Ready,
    /// Forms as large as they may be, many at once.
    Forms,
    /// Keys that nobody was given.
    Keys,
    /// Pages that are watched by hundreds.
    Streams,
    /// Whatever reads most.
    Reports,
    /// Limits that change all the time.
    Changes,
    /// Destinations that are created and deleted.
    Deletions,
    /// Transactions that write events and commit late.
    LateCommits,
    /// Idempotency keys over a thousand destinations.
    Idempotency,
    /// Resends of a large history, as many as may begin.
    Resends,
    /// Events of types that nobody has seen, beside a thousand destinations.
    Types,
    /// Events for hundreds of subscribers, four in a batch.
    FanOut,
    /// A backlog as large as it is allowed, and more.
    Backlog,
}

impl Attack {
    /// Those that leave most behind come last.
    const ALL: [Self; 20] = [
        Self::Answers,
        Self::Dials,
        Self::Words,
        Self::Heads,
        Self::Bodies,
        Self::Idle,
        Self::Unread,
        Self::Ready,
        Self::Forms,
        Self::Keys,
        Self::Streams,
        Self::Reports,
        Self::Changes,
        Self::Deletions,
        Self::LateCommits,
        Self::Idempotency,
        Self::Resends,
        Self::Types,
        Self::FanOut,
        Self::Backlog,
    ];

    /// Those with one of these texts in their name, or all without any, that mean
    /// something there.
    pub(super) fn chosen(texts: &[String], size: Size) -> Vec<Self> {
        let is_meant = |one: &Self| {
            texts.is_empty() || texts.iter().any(|text| one.name().contains(text.as_str()))
        };
        let mut chosen = Self::ALL.to_vec();
        chosen.retain(|one| one.is_of(size) && is_meant(one));
        chosen
    }

    /// No other program writes events to Paceline's file.
    fn is_of(self, size: Size) -> bool {
        self != Self::LateCommits || size == Size::Distributed
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Answers => "hostile answers",
            Self::Dials => "a full accept queue",
            Self::Words => "hostile text",
            Self::Heads => "3,000 unfinished heads",
            Self::Bodies => "64 dripping bodies",
            Self::Idle => "10,000 idle sockets",
            Self::Unread => "500 unread answers",
            Self::Ready => "a flood of /readyz",
            Self::Forms => "full forms",
            Self::Keys => "unknown keys",
            Self::Streams => "200 watched pages",
            Self::Reports => "reports",
            Self::Changes => "changing limits",
            Self::Deletions => "created and deleted destinations",
            Self::LateCommits => "late commits",
            Self::Idempotency => "idempotency keys over 1,000 destinations",
            Self::Resends => "resends of a large history",
            Self::Types => "unknown types over 1,000 destinations",
            Self::FanOut => "fan-out to 300 subscribers",
            Self::Backlog => "a backlog without end",
        }
    }

    /// Refuses what it is told of one that did nothing: whose requests were few, or all of
    /// them refused where it does its harm by those that are taken.
    pub(super) fn was_made(self, [asked, taken, ..]: [u64; 4]) -> anyhow::Result<()> {
        let name = self.name();
        anyhow::ensure!(asked > 10, "{name}: nothing was asked");
        let is_refused = matches!(self, Self::Words | Self::Forms | Self::Keys);
        anyhow::ensure!(taken > 0 || is_refused, "{name}: nothing was taken");
        Ok(())
    }

    /// Refuses one that holds connections where these are too few: such as where the API
    /// refuses them as soon as they have begun.
    pub(super) fn is_held(self, held: u64) -> anyhow::Result<()> {
        let (name, least) = (self.name(), self.least_held());
        anyhow::ensure!(
            held >= least,
            "{name}: {held} connections are held, not {least}"
        );
        Ok(())
    }

    /// Connections that are held at least. Fewer than it opens, for some end by themselves
    /// and some are beyond what one tenant may have.
    const fn least_held(self) -> u64 {
        match self {
            Self::Heads | Self::Idle => 500,
            Self::Unread => 100,
            Self::Bodies => 32,
            Self::Streams => 20,
            _ => 0,
        }
    }

    /// How long the others are looked at, at least: so long that it has done what it does.
    pub(super) fn least_length(self) -> Duration {
        match self {
            Self::LateCommits => Duration::from_secs(60),
            _ => Duration::ZERO,
        }
    }

    /// Begins it, by a tenant that can do all that a tenant can.
    pub(super) async fn begin(self, attacker: &Attacker) -> anyhow::Result<Underway> {
        let mut underway = Underway::default();
        let into = &mut underway;
        match self {
            Self::Answers => receivers::answers(attacker, into).await?,
            Self::Dials => receivers::dials(attacker, into).await?,
            Self::Words => requests::words(attacker, into),
            Self::Heads => sockets::heads(attacker, into),
            Self::Bodies => sockets::bodies(attacker, into),
            Self::Idle => sockets::idle(attacker, into),
            Self::Unread => sockets::unread(attacker, into).await?,
            Self::Ready => requests::ready(attacker, into),
            Self::Forms => requests::forms(attacker, into).await?,
            Self::Keys => requests::unknown_keys(attacker, into),
            Self::Streams => sockets::streams(attacker, into).await?,
            Self::Reports => requests::reports(attacker, into).await?,
            Self::Changes => requests::changes(attacker, into).await?,
            Self::Deletions => requests::deletions(attacker, into),
            Self::LateCommits => late::late_commits(attacker, into).await?,
            Self::Idempotency => requests::idempotency(attacker, into).await?,
            Self::Resends => requests::resends(attacker, into).await?,
            Self::Types => requests::types(attacker, into).await?,
            Self::FanOut => requests::fan_out(attacker, into).await?,
            Self::Backlog => requests::backlog(attacker, into).await?,
        }
        Ok(underway)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn chosen(texts: &[&str], size: Size) -> Vec<Attack> {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        Attack::chosen(&texts, size)
    }

    #[test]
    fn each_is_tried_once_and_has_a_name_of_its_own() {
        let all = chosen(&[], Size::Distributed);
        let names: BTreeSet<&str> = all.iter().map(|one| one.name()).collect();
        assert_eq!(names.len(), all.len());
        assert_eq!(all.len(), Attack::ALL.len());
    }

    #[test]
    fn only_those_that_are_asked_for() {
        use Attack::{Backlog, Bodies, Heads};
        let some = ["backlog", "unfinished", "dripping"];
        assert_eq!(chosen(&some, Size::Embedded), [Heads, Bodies, Backlog]);
        assert!(chosen(&["nothing"], Size::Embedded).is_empty());
    }

    #[test]
    fn one_that_did_nothing_is_no_attack() {
        let said = |attack: Attack, told| attack.was_made(told).map_err(|error| error.to_string());
        for attack in Attack::ALL {
            assert_eq!(said(attack, [11, 1, 10, 0]), Ok(()));
            let few = format!("{}: nothing was asked", attack.name());
            assert_eq!(said(attack, [10, 10, 0, 0]), Err(few));
        }
        let refused = [500, 0, 400, 100];
        let none = "fan-out to 300 subscribers: nothing was taken";
        assert_eq!(said(Attack::FanOut, refused), Err(none.to_owned()));
        assert_eq!(said(Attack::Keys, refused), Ok(()));
    }

    #[test]
    fn one_that_holds_nothing_is_no_attack() {
        let said = |attack: Attack, held| attack.is_held(held).map_err(|error| error.to_string());
        let none = "64 dripping bodies: 0 connections are held, not 32";
        assert_eq!(said(Attack::Bodies, 0), Err(none.to_owned()));
        for held in [Attack::Heads, Attack::Idle, Attack::Unread, Attack::Streams] {
            assert!(said(held, 0).is_err());
            assert_eq!(said(held, 500), Ok(()));
        }
        assert_eq!(said(Attack::FanOut, 0), Ok(()), "it holds no connection");
    }

    #[test]
    fn late_commits_are_made_while_it_is_looked() {
        assert!(Attack::LateCommits.least_length() > late::LONGEST);
        assert_eq!(Attack::Backlog.least_length(), Duration::ZERO);
    }

    #[test]
    fn no_other_program_commits_late_to_a_file() {
        assert!(chosen(&["late"], Size::Embedded).is_empty());
        assert_eq!(chosen(&["late"], Size::Distributed), [Attack::LateCommits]);
    }
}
