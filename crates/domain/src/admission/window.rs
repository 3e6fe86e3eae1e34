//! One sliding window, as a run sees it.

use std::collections::VecDeque;
use std::time::Duration;

use crate::time::Timestamp;

/// One sliding window: the ends in it, the latest first.
pub(super) struct Window {
    period: Duration,
    /// The latest `max` ends, the latest first, with their weights, none of
    /// them zero; what is beyond them cannot matter.
    ends: VecDeque<(Timestamp, u32)>,
    /// How many more may be taken before the last of `ends` matters.
    spare: u32,
}

impl Window {
    /// `endless` is how many count whatever the time, as they have no end yet.
    pub(super) fn new(
        (max, endless): (u32, u32),
        period: Duration,
        mut ends: Vec<(Timestamp, u32)>,
    ) -> Self {
        ends.sort_unstable_by_key(|(end, _)| std::cmp::Reverse(*end));
        let mut room = max.saturating_sub(endless);
        let mut kept = VecDeque::new();
        for (end, weight) in ends {
            if room == 0 {
                break;
            }
            let weight = weight.min(room);
            room -= weight;
            if weight > 0 {
                kept.push_back((end, weight));
            }
        }
        Self {
            period,
            ends: kept,
            spare: room,
        }
    }

    /// When the next slot opens: one period after the L-th latest end. `None`
    /// where all L places were taken in this very run, or by what has no end yet.
    pub(super) fn opens(&self) -> Option<Timestamp> {
        if self.spare > 0 {
            return Some(Timestamp::MIN);
        }
        self.ends.back().map(|(end, _)| *end + self.period)
    }

    /// Takes the slot that [`Window::opens`] named. The new permit's end is
    /// later than any other that matters, so what falls off is the earliest.
    pub(super) fn take(&mut self) {
        if self.spare > 0 {
            self.spare -= 1;
        } else if let Some((_, weight)) = self.ends.back_mut() {
            *weight -= 1;
            if *weight == 0 {
                self.ends.pop_back();
            }
        }
    }

    /// Takes slots that are assumed to start on time.
    pub(super) fn start_at(&mut self, slots: impl Iterator<Item = Timestamp>) {
        for slot in slots {
            self.take();
            self.ends.push_front((slot, 1));
        }
    }
}
