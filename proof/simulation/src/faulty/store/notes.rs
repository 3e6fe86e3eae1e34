//! What the witness and the trace are told of each statement.

use std::collections::BTreeSet;

use domain::admission::Blocked;
use domain::attempt::{AttemptState, OutcomeKind};
use domain::ids::AttemptId;
use domain::permit::Permit;
use domain::retry::RetrySettings;
use domain::smart::Effective;
use domain::time::Timestamp;
use engine::ports::{
    Advanced, ClaimAnswer, Claims, HealthEvent, Outcome, Reaped, Recorded, Retained, Run,
    RunResult, Start, Walk,
};

use super::{FaultyStore, short};
use crate::sabotage::Sabotage;
use crate::site::Site;

impl FaultyStore {
    pub(super) fn note_run(&self, now: Timestamp, run: &Run, result: &RunResult) {
        let destination = short(run.destination);
        let RunResult::Decided {
            permits,
            look,
            blocked,
            ..
        } = result
        else {
            self.line(Site::Admit, format_args!("{destination} {result:?}"));
            return;
        };
        if *blocked == Some(Blocked::Group) {
            self.gate.around.counts.note("limit group used up");
        }
        let first = |attempt| self.inner.is_first(attempt);
        // A leader's permit may end unused while what it would have carried goes
        // with another, or leads itself: their order is kept where each has a
        // permit of its own.
        if self.inner.batch_rules(run.destination).is_some() {
            self.gate.around.counts.note("a run of batches");
            self.witness.admitted(permits, |_| false);
            let attempts: Vec<_> = permits.iter().map(|permit| permit.attempt.0).collect();
            let line = format_args!("{destination} {attempts:?} {look:?} {blocked:?}");
            self.line(Site::Admit, line);
            return;
        }
        self.witness.admitted(permits, first);
        self.note_turns(now, run, permits);
        let attempts: Vec<_> = permits.iter().map(|permit| permit.attempt.0).collect();
        self.line(
            Site::Admit,
            format_args!("{destination} {attempts:?} {look:?} {blocked:?}"),
        );
    }

    /// Of lanes of which a run has left some: so they have waited all the time.
    fn note_turns(&self, now: Timestamp, run: &Run, permits: &[Permit]) {
        let Some(wait) = self.inner.lanes_wait(run.destination, now) else {
            return;
        };
        let given = self.inner.turns(permits, now);
        let counts = &self.gate.around.counts;
        if (wait.urgent || wait.firsts) && wait.others {
            counts.note("first attempts and retries waited");
            let turns = (given.urgent + given.firsts, given.others);
            self.witness.note(promises::both_get_their_turn(turns));
        }
        if wait.urgent && wait.firsts && (wait.others || given.others == 0) {
            counts.note("urgent and normal first attempts waited");
            let turns = (given.urgent, given.firsts);
            self.witness.note(promises::each_lane_gets_its_share(turns));
        }
    }

    pub(super) fn note_claims(&self, permits: &[Permit], claims: &Claims) {
        let state = |attempt| self.inner.row(attempt).map(|row| row.state);
        // What the row says: a message from before a crash may carry a number
        // that was given again since.
        let own = |permit: &Permit| {
            let own = self.inner.row(permit.attempt).and_then(|row| row.permit);
            own.filter(|own| own.number == permit.number)
        };
        let own: Vec<_> = (permits.iter())
            .map(|permit| own(permit).unwrap_or(*permit))
            .collect();
        self.witness.claimed(&own, claims, state);
        self.note_probes(permits, claims);
        self.note_batches(permits, claims);
        for (permit, answer) in permits.iter().zip(&claims.answers) {
            let answer = match answer {
                ClaimAnswer::Started(_) => "started",
                ClaimAnswer::Early(_) => "early",
                ClaimAnswer::Skipped => "skipped",
                ClaimAnswer::Refused => "refused",
            };
            let (destination, attempt) = (short(permit.destination), permit.attempt);
            self.line(
                Site::ClaimStarts,
                format_args!("{destination} {attempt} {answer}"),
            );
        }
    }

    /// How large they are, by the rules that they were composed by.
    fn note_batches(&self, permits: &[Permit], claims: &Claims) {
        for (permit, answer) in permits.iter().zip(&claims.answers) {
            let ClaimAnswer::Started(start) = answer else {
                continue;
            };
            let rules = self.inner.batch_rules(permit.destination);
            if let (Some(rules), [_, ..]) = (rules, &start.members[..]) {
                let members = start.members.iter();
                let payloads: Vec<_> = members.map(|member| member.payload.len()).collect();
                self.gate.around.counts.note(match payloads.len() {
                    1 => "a batch of one started",
                    _ => "a batch of several started",
                });
                self.witness.note(promises::a_batch_keeps_to_its_size(
                    permit.attempt,
                    &payloads,
                    &rules,
                ));
            }
        }
    }

    /// Of each destination that started something beside an open breaker.
    fn note_probes(&self, permits: &[Permit], claims: &Claims) {
        let started: BTreeSet<_> = (permits.iter().zip(&claims.answers))
            .filter(|(_, answer)| matches!(answer, ClaimAnswer::Started(_)))
            .map(|(permit, _)| permit.destination)
            .collect();
        for destination in started {
            if self.inner.is_probing(destination) {
                let in_flight = self.inner.under_way(destination).in_flight;
                let in_flight = u32::try_from(in_flight).unwrap_or(u32::MAX);
                self.gate.around.counts.note("probe started");
                let judged = promises::a_breaker_lets_one_through(short(destination), in_flight);
                self.witness.note(judged);
            }
        }
    }

    /// What the destinations' answers came to.
    pub(super) fn note_health(&self, outcomes: &[Outcome], recorded: &Recorded) {
        let counts = &self.gate.around.counts;
        for change in &recorded.health {
            counts.note(match change.what {
                HealthEvent::BreakerOpened => "breaker opened",
                HealthEvent::BreakerClosed => "breaker closed",
                HealthEvent::DisabledSoon(_) => "destination given up soon",
                HealthEvent::Disabled(_) => "destination given up",
            });
            let (destination, what) = (short(change.destination), change.what);
            self.line(Site::RecordOutcomes, format_args!("{destination} {what:?}"));
        }
        let destinations: BTreeSet<_> = outcomes.iter().map(|one| one.destination).collect();
        for destination in destinations {
            let held_until = self.inner.held_until(destination);
            if self.witness.held(destination, held_until) {
                counts.note("destination held");
            }
            let lowered = self.inner.lowered(destination);
            if lowered != Effective::default() {
                counts.note("effective limit lowered");
            }
            if self.gate.has(Sabotage::ForgetsHolds) {
                self.inner.end_hold(destination);
            }
        }
    }

    pub(super) fn note_reaped(&self, reaped: &Reaped) {
        let counts = &self.gate.around.counts;
        counts.add("permit expired", u64::from(reaped.expired_permits));
        counts.add("start became unknown", u64::from(reaped.unknown_starts));
        counts.add("attempt cancelled", u64::from(reaped.cancelled));
        counts.add("attempt expired", u64::from(reaped.expired));
        let blank = Reaped {
            wakes: reaped.wakes.clone(),
            ..Reaped::default()
        };
        if *reaped != blank {
            let (expired, unknown) = (reaped.expired_permits, reaped.unknown_starts);
            let cancelled = reaped.cancelled;
            self.line(
                Site::Reap,
                format_args!("{expired} expired, {unknown} unknown, {cancelled} cancelled"),
            );
        }
    }

    pub(super) fn note_advanced(&self, advanced: &Advanced) {
        let counts = &self.gate.around.counts;
        counts.add("dead letter replayed", u64::from(advanced.replayed));
        if advanced.replayed > 0 {
            self.line(
                Site::AdvanceReplays,
                format_args!("{} replayed", advanced.replayed),
            );
        }
    }

    pub(super) fn note_retained(&self, retained: &Retained) {
        let Some(walk) = retained.walk.filter(|_| retained.removed > 0) else {
            return;
        };
        let counts = &self.gate.around.counts;
        let what = match walk {
            Walk::Attempts => "attempt forgotten",
            Walk::DeadLetters => "dead letter forgotten",
            Walk::Events => "event forgotten",
            Walk::Days | Walk::Destinations | Walk::LimitHistory | Walk::Records => {
                "record forgotten"
            }
        };
        counts.add(what, u64::from(retained.removed));
        self.line(
            Site::Retain,
            format_args!("{} of {}", retained.removed, walk.as_str()),
        );
        let orphan = self.inner.orphan();
        (self.witness).note(promises::what_is_to_be_sent_has_its_event(orphan));
    }

    pub(super) fn note_outcomes(&self, outcomes: &[Outcome]) {
        self.note_dates(outcomes.iter().map(|outcome| outcome.attempt));
        for outcome in outcomes {
            let (attempt, kind, status) = (outcome.attempt, outcome.kind, outcome.status);
            self.line(
                Site::RecordOutcomes,
                format_args!("{attempt} {kind:?} {status:?}"),
            );
            if kind == OutcomeKind::NotSent {
                let counts = &self.gate.around.counts;
                counts.note("start not sent for being late");
            }
        }
    }

    /// Shows the witness to when these starts are dated now.
    pub(super) fn note_dates(&self, attempts: impl Iterator<Item = AttemptId>) {
        for attempt in attempts {
            if let Some(at) = self.inner.row(attempt).and_then(|row| row.started_at) {
                self.witness.dated(attempt, at);
            }
        }
    }

    /// How many of these outcomes are of starts that are `unknown`.
    pub(super) fn unknown_among(&self, outcomes: &[Outcome]) -> u64 {
        let state = |one: &Outcome| self.inner.row(one.attempt).map(|row| row.state);
        let unknown = |one: &&Outcome| state(one) == Some(AttemptState::Unknown);
        outcomes.iter().filter(unknown).count() as u64
    }

    /// Answers refused claims of what has started like the first ones: a
    /// compare-and-set that does not compare.
    pub(super) fn start_again(&self, permits: &[Permit], claims: &mut Claims) {
        for (permit, answer) in permits.iter().zip(&mut claims.answers) {
            let again = self.inner.row(permit.attempt).and_then(|row| {
                let (content_type, payload) = self.inner.payload(row.event)?;
                Some(Start {
                    claimed_at: row.claimed_at?,
                    event: row.event,
                    try_number: row.try_number,
                    tries_before: row.tries_before,
                    retry: RetrySettings::default(),
                    content_type,
                    payload,
                    members: Vec::new(),
                    trace: None,
                })
            });
            if let (ClaimAnswer::Refused, Some(again)) = (&*answer, again) {
                *answer = ClaimAnswer::Started(again);
            }
        }
    }
}
