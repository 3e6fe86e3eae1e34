//! Pauses: nothing starts strictly within one. A start at its very first instant
//! may have been claimed in the microsecond before it.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{MAX_ATTEMPTS, Rule, Segment, Start, Violation, Violations, newest};
use crate::policy::Rate;
use crate::time::Timestamp;

/// Judges pauses, start by start.
pub(super) struct PauseJudge {
    segments: Arc<[Segment]>,
    /// The segment at hand.
    current: usize,
    /// Starts within it, if it is a pause.
    starts: u64,
    /// The newest of them.
    newest: VecDeque<Start>,
    violations: Violations,
}

impl PauseJudge {
    pub(super) fn new(segments: Arc<[Segment]>) -> Self {
        Self {
            segments,
            current: 0,
            starts: 0,
            newest: VecDeque::new(),
            violations: Violations::default(),
        }
    }

    /// The next start, no earlier than the last.
    pub(super) fn push(&mut self, start: Start) {
        let last = self.segments.len().saturating_sub(1);
        while self.current < last && self.segments[self.current].until <= start.0 {
            self.list();
            self.current += 1;
        }
        let within = |segment: &Segment| {
            segment.policy.rate == Rate::Paused && start.0 > segment.alone_from()
        };
        if !self.segments.get(self.current).is_some_and(within) {
            return;
        }
        self.starts += 1;
        if self.newest.len() >= MAX_ATTEMPTS {
            self.newest.pop_front();
        }
        self.newest.push_back(start);
    }

    fn list(&mut self) {
        let starts = std::mem::take(&mut self.starts);
        self.violations.early_starts += starts;
        let ends_at = self.newest.back().map(|(at, _)| *at);
        let violation = |ends_at: Timestamp| Violation {
            rule: Rule::Pause,
            ends_at,
            starts,
            bound: 0,
            attempts: newest(&self.newest),
        };
        let violation = ends_at.map(violation);
        self.violations.list(violation);
        self.newest.clear();
    }

    pub(super) fn finish(mut self) -> Violations {
        self.list();
        self.violations
    }
}
