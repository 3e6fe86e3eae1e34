//! One destination's run: what was read of it, and what was decided.

use std::collections::HashSet;

use domain::admission::{Candidate, Decided};
use domain::ids::{AttemptId, PermitNumber, TenantId};
use domain::permit::Permit;
use domain::time::Timestamp;
use engine::ports::{Run, RunResult};

use super::destinations::Found;
use super::usage::{Reading, Waiting};

/// How old a first attempt has to be for the cursor to pass it. Ids are given
/// before the commit, so an attempt with a smaller id may become visible later
/// than one with a larger; by then every transaction of ours has long ended
/// (`statement_timeout`, `idle_in_transaction_session_timeout`).
const CURSOR_AGE_MICROS: i64 = 30_000_000;

/// What was read.
pub(super) struct Read {
    pub(super) candidate: Candidate,
    /// Beside its usage, which is the candidate's.
    reading: Reading,
    first_after: i64,
    republish: bool,
    failing: bool,
    /// Of the rows that say what may start.
    pub(super) versions: (i64, Option<i64>),
}

impl Read {
    pub(super) fn of(run: &Run, destination: &Found, mut reading: Reading) -> Self {
        let due = reading.waiting.iter().map(|waiting| waiting.attempt);
        Self {
            candidate: Candidate {
                destination: destination.id,
                tenant: destination.tenant,
                tenant_max_in_flight: destination.tenant_max_in_flight,
                policy: destination.policy.clone(),
                epoch: destination.epoch,
                last_permit: PermitNumber(destination.last_permit),
                due: due.collect(),
                urgent: reading.backlog.urgent,
                usage: std::mem::take(&mut reading.usage),
                next_due: reading.backlog.next_due,
            },
            reading,
            first_after: destination.first_after,
            republish: run.republish,
            failing: destination.failing,
            versions: destination.versions,
        }
    }
}

/// What was read, and what was decided.
pub(super) struct Plan {
    pub(super) read: Read,
    pub(super) decided: Decided,
}

impl Plan {
    /// How many permits its tenant is given.
    pub(super) fn given(&self) -> (TenantId, u32) {
        let permits = self.decided.permits.len();
        let permits = u32::try_from(permits).unwrap_or(u32::MAX);
        (self.read.candidate.tenant, permits)
    }

    /// Final starts that are in no bucket, to be folded now.
    pub(super) fn to_fold(&self) -> &[AttemptId] {
        &self.read.reading.to_fold
    }

    /// The cursor after this run: past the first attempts that were admitted,
    /// none of them left out, as long as they are old enough. One that waits to
    /// be carried stops it; once it has started it is no first attempt that waits.
    /// Where some leader is always out, what waits for it is always in front of
    /// all that this run admits: the cursor comes up to it nevertheless, past
    /// what has started.
    pub(super) fn cursor(&self, marked: &HashSet<AttemptId>, now: Timestamp) -> i64 {
        let reading = &self.read.reading;
        let mut firsts: Vec<&Waiting> = (reading.waiting.iter())
            .filter(|waiting| waiting.first)
            .collect();
        firsts.sort_unstable_by_key(|waiting| waiting.attempt);
        let left = reading.first_left;
        let passed = firsts.into_iter().take_while(|waiting| {
            left.is_none_or(|left| waiting.attempt < left)
                && marked.contains(&waiting.attempt)
                && now.micros_since(waiting.since) > CURSOR_AGE_MICROS
        });
        let last = passed.last().map(|waiting| waiting.attempt.0);
        let first = reading.first_waiting;
        let up_to = first.filter(|(_, since)| now.micros_since(*since) > CURSOR_AGE_MICROS);
        last.into_iter()
            .chain(up_to.map(|(first, _)| first.0 - 1))
            .fold(self.read.first_after, i64::max)
    }

    pub(super) fn result(self, marked: &HashSet<AttemptId>, now: Timestamp) -> RunResult {
        let republish = self.read.republish;
        let mut permits: Vec<Permit> = (self.read.reading.outstanding.into_iter())
            .filter(|permit| republish && permit.deadline > now)
            .collect();
        let new = self.decided.permits.into_iter();
        permits.extend(new.filter(|permit| marked.contains(&permit.attempt)));
        RunResult::Decided {
            permits,
            look: self.decided.decision.look,
            blocked: self.decided.decision.blocked,
            failing: self.read.failing,
        }
    }
}
