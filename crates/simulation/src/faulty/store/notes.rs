//! What the witness and the trace are told of each statement.

use domain::attempt::{AttemptState, OutcomeKind};
use domain::permit::Permit;
use engine::ports::{ClaimAnswer, Claims, Outcome, Reaped, Run, RunResult, Start};

use super::{FaultyStore, short};
use crate::model::Rows;
use crate::site::Site;

impl FaultyStore {
    pub(super) fn note_run(&self, run: &Run, result: &RunResult) {
        let destination = short(run.destination);
        let RunResult::Decided {
            permits,
            look,
            blocked,
        } = result
        else {
            self.line(Site::Admit, format_args!("{destination} {result:?}"));
            return;
        };
        let first = |attempt| {
            let of = |rows: &Rows| rows.attempt(attempt).map(|row| row.try_number);
            self.inner.read(of) == Some(1)
        };
        self.witness.admitted(permits, first);
        let attempts: Vec<_> = permits.iter().map(|permit| permit.attempt.0).collect();
        self.line(
            Site::Admit,
            format_args!("{destination} {attempts:?} {look:?} {blocked:?}"),
        );
    }

    pub(super) fn note_claims(&self, permits: &[Permit], claims: &Claims) {
        let state = |attempt| {
            let of = |rows: &Rows| rows.attempt(attempt).map(|row| row.state);
            self.inner.read(of)
        };
        // What the row says: a message from before a crash may carry a number
        // that was given again since.
        let own = |permit: &Permit| {
            let of = |rows: &Rows| rows.attempt(permit.attempt).and_then(|row| row.permit);
            (self.inner.read(of)).filter(|own| own.number == permit.number)
        };
        let own: Vec<_> = (permits.iter())
            .map(|permit| own(permit).unwrap_or(*permit))
            .collect();
        self.witness.claimed(&own, claims, state);
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

    pub(super) fn note_reaped(&self, reaped: &Reaped) {
        let counts = &self.gate.around.counts;
        counts.add("permit expired", u64::from(reaped.expired_permits));
        counts.add("start became unknown", u64::from(reaped.unknown_starts));
        counts.add("attempt cancelled", u64::from(reaped.cancelled));
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

    pub(super) fn note_outcomes(&self, outcomes: &[Outcome]) {
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

    /// How many of these outcomes are of starts that are `unknown`.
    pub(super) fn unknown_among(&self, outcomes: &[Outcome]) -> u64 {
        self.inner.read(|rows| {
            let state = |one: &Outcome| rows.attempt(one.attempt).map(|row| row.state);
            let unknown = |one: &&Outcome| state(one) == Some(AttemptState::Unknown);
            outcomes.iter().filter(unknown).count() as u64
        })
    }

    /// Answers refused claims of what has started like the first ones: a
    /// compare-and-set that does not compare.
    pub(super) fn start_again(&self, permits: &[Permit], claims: &mut Claims) {
        for (permit, answer) in permits.iter().zip(&mut claims.answers) {
            let again = self.inner.read(|rows| {
                let row = rows.attempt(permit.attempt)?;
                let event = rows.event(row.event)?;
                Some(Start {
                    started_at: row.started_at?,
                    event: row.event,
                    try_number: row.try_number,
                    content_type: event.content_type.clone(),
                    payload: event.payload.clone(),
                })
            });
            if let (ClaimAnswer::Refused, Some(again)) = (&*answer, again) {
                *answer = ClaimAnswer::Started(again);
            }
        }
    }
}
