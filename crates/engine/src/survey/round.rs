//! A round: what its pages come to.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use domain::ids::DestinationId;
use domain::time::Timestamp;

use crate::ports::{SurveyPage, SurveyedBacklog};

/// How far a round has come, and what it has found.
#[derive(Debug, Clone, Default)]
pub(super) struct Round {
    after: Option<DestinationId>,
    pub(super) destinations: u64,
    pub(super) backlog: u64,
    pub(super) others: u64,
    pub(super) oldest: Option<Timestamp>,
    /// The longest so far, the longest first; of equal ones the oldest.
    longest: Vec<SurveyedBacklog>,
    /// Of those that were asked for.
    asked: Vec<SurveyedBacklog>,
}

impl Round {
    /// Where the next page begins.
    pub(super) const fn after(&self) -> Option<DestinationId> {
        self.after
    }

    /// Adds a page; whether it was the last.
    pub(super) fn add(&mut self, page: &SurveyPage, top: usize, asked: &[DestinationId]) -> bool {
        for one in &page.backlogs {
            self.destinations += 1;
            self.backlog += u64::from(one.waiting());
            self.others += u64::from(one.others);
            self.oldest = self.oldest.into_iter().chain(one.oldest).min();
        }
        let wanted = |one: &&SurveyedBacklog| asked.contains(&one.destination);
        self.asked.extend(page.backlogs.iter().filter(wanted));
        self.longest.extend(&page.backlogs);
        let oldest = |one: &SurveyedBacklog| one.oldest.unwrap_or(Timestamp::MAX);
        (self.longest).sort_by_key(|one| (Reverse(one.waiting()), oldest(one), one.destination));
        self.longest.truncate(top);
        self.after = page.next;
        page.next.is_none()
    }

    /// Since when the first of what is due waits, of those that are shown.
    pub(super) fn oldest(&self) -> HashMap<DestinationId, Option<Timestamp>> {
        let shown = self.longest.iter().chain(&self.asked);
        shown.map(|one| (one.destination, one.oldest)).collect()
    }

    /// Who is shown: the longest, and those that were asked for; each once.
    pub(super) fn shown(&self, asked: &[DestinationId]) -> Vec<DestinationId> {
        let longest = self.longest.iter().map(|one| one.destination);
        let shown: BTreeSet<_> = longest.chain(asked.iter().copied()).collect();
        shown.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::ports::DEFAULT_TENANT;

    fn id(number: u128) -> DestinationId {
        DestinationId(Uuid::from_u128(number))
    }

    fn backlog(number: u128, firsts: u32, oldest: i64) -> SurveyedBacklog {
        SurveyedBacklog {
            destination: id(number),
            tenant: DEFAULT_TENANT,
            firsts,
            others: 1,
            oldest: Some(Timestamp::from_millis(oldest)),
        }
    }

    #[test]
    fn the_longest_of_all_pages_are_shown_and_all_are_summed() {
        let mut round = Round::default();
        let first = SurveyPage {
            backlogs: vec![backlog(1, 5, 30), backlog(2, 50, 20), backlog(3, 7, 9)],
            next: Some(id(3)),
        };
        assert!(!round.add(&first, 2, &[id(1)]));
        assert_eq!(round.after(), Some(id(3)));
        let last = SurveyPage {
            backlogs: vec![backlog(4, 7, 8)],
            next: None,
        };
        assert!(round.add(&last, 2, &[id(1)]));
        assert_eq!(
            (round.destinations, round.backlog, round.others),
            (4, 73, 4)
        );
        assert_eq!(round.oldest, Some(Timestamp::from_millis(8)));
        assert_eq!(round.shown(&[]), [id(2), id(4)], "of equal ones the oldest");
        assert_eq!(round.shown(&[id(9), id(2)]), [id(2), id(4), id(9)]);
        assert_eq!(round.oldest()[&id(1)], Some(Timestamp::from_millis(30)));
    }
}
