//! Which delivery tags of one connection are unsettled, and in how few frames
//! they can be settled. Pure: sends nothing.

use std::collections::BTreeSet;

/// The tags that were handed out and not settled, of one connection.
#[derive(Debug, Default)]
pub(super) struct Unsettled {
    tags: BTreeSet<u64>,
}

/// The frames that settle one batch, to be sent in the order of the fields.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Frames {
    /// Given back one by one, and before the rest: the acknowledgement of a
    /// run would take them along.
    pub(super) requeue: Vec<u64>,
    /// Acknowledges this tag and every unsettled one below it.
    pub(super) acknowledge_through: Option<u64>,
    /// Above an unsettled one, so each by itself.
    pub(super) acknowledge: Vec<u64>,
}

impl Unsettled {
    pub(super) fn is_empty(&self) -> bool {
        self.tags.is_empty()
    }

    pub(super) fn insert(&mut self, tag: u64) {
        self.tags.insert(tag);
    }

    /// Forgets the tags of a batch. Those that are not unsettled, because they
    /// were settled before, are left out of the frames: to settle a tag twice
    /// is an error that closes the channel.
    pub(super) fn settle(
        &mut self,
        done: impl Iterator<Item = u64>,
        requeue: impl Iterator<Item = u64>,
    ) -> Frames {
        let requeue: Vec<u64> = requeue.filter(|tag| self.tags.remove(tag)).collect();
        let done: BTreeSet<u64> = done.filter(|tag| self.tags.remove(tag)).collect();
        // What is still in the client's buffer has higher tags than anything
        // that was handed out, so it is never acknowledged by a run.
        let (below, above): (Vec<u64>, Vec<u64>) = match self.tags.first() {
            Some(oldest) => done.into_iter().partition(|tag| tag < oldest),
            None => (done.into_iter().collect(), Vec::new()),
        };
        Frames {
            requeue,
            acknowledge_through: below.last().copied(),
            acknowledge: above,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unsettled(tags: impl IntoIterator<Item = u64>) -> Unsettled {
        Unsettled {
            tags: tags.into_iter().collect(),
        }
    }

    #[test]
    fn a_run_of_the_oldest_is_one_frame() {
        let mut tags = unsettled(1..=100);
        let frames = tags.settle((1..=60).chain([70, 72]), std::iter::empty());
        assert_eq!(frames.acknowledge_through, Some(60));
        assert_eq!(frames.acknowledge, [70, 72]);
        let frames = tags.settle(61..=100, std::iter::empty());
        assert_eq!(frames.acknowledge_through, Some(100));
        assert!(frames.acknowledge.is_empty());
    }

    #[test]
    fn what_is_requeued_does_not_end_a_run() {
        let mut tags = unsettled(1..=5);
        let frames = tags.settle([1, 3, 4].into_iter(), [2].into_iter());
        assert_eq!(frames.requeue, [2]);
        assert_eq!(frames.acknowledge_through, Some(4));
        assert!(frames.acknowledge.is_empty());
    }

    #[test]
    fn an_unsettled_oldest_forbids_a_run() {
        let mut tags = unsettled(1..=3);
        let frames = tags.settle([2, 3].into_iter(), std::iter::empty());
        assert_eq!(frames.acknowledge_through, None);
        assert_eq!(frames.acknowledge, [2, 3]);
    }

    #[test]
    fn nothing_is_settled_twice() {
        let mut tags = unsettled(1..=2);
        tags.settle([1, 1].into_iter(), std::iter::empty());
        let frames = tags.settle([1, 9].into_iter(), [1].into_iter());
        assert_eq!(frames, Frames::default());
    }
}
