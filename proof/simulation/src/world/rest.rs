//! The end of a run: the faults are over, what is left drains, and the whole
//! is judged.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::Duration;

use domain::admission::GRACE;
use domain::attempt::AttemptState;
use domain::backpressure::{BacklogBounds, high_mark, low_mark};
use domain::clock::MAX_FREEZE;
use domain::compliance::{judge, judge_sends};
use domain::destination::DestinationState;
use domain::health::FIRST_PROBE;
use domain::ids::{DestinationId, EventId};
use domain::policy::{LimitSettings, Policy, Rate};
use domain::retry::{AfterFailure, RetrySettings};
use engine::ports::{Catalog as _, DEFAULT_TENANT};
use tokio::time::Instant;

use super::clients::{CLIENT_PATIENCE, named_by_client};
use super::owners::per_second;
use super::{Action, BrokenPromise, World, destination};
use crate::faulty::{HELD_UP_FOR, LATEST_COMMIT, PROMPT};
use crate::process::{GRACE as PROCESS_GRACE, REQUEST_TIMEOUT};
use crate::scenario::{Fault, Mood, Operation, What};
use promises::{Accepted, Left, Promise, what_is_recorded_is_what_was_answered};

/// How often it is looked whether all is drained.
const LOOK: Duration = Duration::from_secs(1);

/// What recovery may take beside the time that the limits need: a freeze after
/// a step of the store's clock, the time after which a start without an
/// outcome is given up, the reaper's patience, and what was on its way.
const RECOVERY: Duration = MAX_FREEZE
    .saturating_add(REQUEST_TIMEOUT)
    .saturating_add(PROCESS_GRACE)
    .saturating_add(LATEST_COMMIT)
    .saturating_add(GRACE)
    .saturating_add(Duration::from_secs(20));

/// What recovery may take beside, where smart delivery has gone down to its
/// slowest: what was too much is soon no more, and a tenth a second is quick.
const SMART_RECOVERY: Duration = Duration::from_secs(400);

/// The slowest rate at which a backlog is waited for; below it the owner
/// raises the limit at the end.
const SLOWEST: f64 = 0.5;

/// What the owner raises it to.
const RAISED: LimitSettings = LimitSettings {
    per_second: Some(10),
    ..LimitSettings::EXACT
};

/// How long an attempt is admitted or in flight at a receiver that is prompt:
/// its answer, and the path there and back.
const IN_FLIGHT: Duration = PROMPT.saturating_add(Duration::from_millis(40));

impl World<'_> {
    /// Ends every fault, starts every process, and lets everybody send.
    pub(super) async fn calm_down(&mut self) {
        (self.parts.around.trace).line(format_args!("all faults end"));
        let agenda = std::mem::take(&mut self.agenda);
        for action in agenda.into_values() {
            match action {
                Action::End(operation) => self.end(operation),
                Action::Start(process, life) => self.start(process, life),
                Action::Begin(_) => {}
            }
        }
        for lives in self.processes.values() {
            if let Some(running) = &lives.running {
                running.gate.spare();
            }
        }
        self.end_replays().await;
        self.dissolve_group().await;
        self.end_handshakes().await;
        for of in self.living() {
            self.change_state(of, DestinationState::Active).await;
            let store = &self.parts.store;
            let Ok(now) = store.shipped().destination(DEFAULT_TENANT, of).await else {
                continue;
            };
            if per_second(&now.effective.policy()) < SLOWEST {
                self.change_limits(of, &RAISED).await;
            }
        }
    }

    /// Waits until all is drained, and judges.
    pub(super) async fn rest(&mut self) {
        let (began, handing_in) = (Instant::now(), self.handing_in());
        let mut bounds: Vec<_> = (self.living().into_iter())
            .map(|of| (of, self.bound(of)))
            .collect();
        if self.scenario.tells() {
            // What is told of the last comes after it.
            let longest = bounds.iter().map(|(_, bound)| *bound).max();
            let until_told = longest.unwrap_or_default() + RECOVERY;
            bounds.iter_mut().for_each(|(_, bound)| *bound = until_told);
        }
        let mut waited_at = began;
        loop {
            let mut left = 0;
            for (of, bound) in &bounds {
                let of_one = self.left(*of, began.elapsed(), *bound);
                left += of_one.attempts;
                self.parts
                    .witness
                    .note(promises::all_is_drained(of, of_one));
            }
            while self.clients.try_join_next().is_some() {}
            let longest = bounds.iter().map(|(_, bound)| *bound).max();
            let judged = promises::every_client_is_answered(
                self.clients.len(),
                (began.elapsed(), longest.unwrap_or(handing_in) + RECOVERY),
            );
            self.parts.witness.note(judged);
            if left > 0 {
                waited_at = Instant::now();
            }
            let unsettled = self.unsettled(waited_at.elapsed());
            if left == 0 && self.clients.is_empty() && unsettled == 0 {
                break;
            }
            if let Err(BrokenPromise) = self.go_on_until(Instant::now() + LOOK).await {
                return;
            }
        }
        for of in (0..self.scenario.destinations.len()).map(destination) {
            self.judge(of);
            let [replayed, made] = self.parts.store.replayed(of);
            let once = promises::a_dead_letter_is_replayed_once(&replayed, &made);
            self.note(of, once);
        }
        self.judge_group().await;
        self.judge_parts();
        self.judge_events();
        self.judge_news();
        for event in self.parts.witness.all_refused() {
            let is_stored = self.parts.store.rows_of_event(event).is_some();
            let judged = promises::what_is_refused_is_not_stored(event, is_stored);
            self.parts.witness.note(judged);
        }
    }

    pub(super) fn living(&self) -> Vec<DestinationId> {
        (0..self.scenario.destinations.len())
            .map(destination)
            .filter(|of| !self.deleted.contains(of))
            .collect()
    }

    fn left(&self, of: DestinationId, after: Duration, bound: Duration) -> Left {
        let left = self.parts.store.under_way(of);
        let states = [
            (left.waiting, AttemptState::Waiting),
            (left.admitted, AttemptState::Admitted),
            (left.in_flight, AttemptState::Started),
        ];
        Left {
            attempts: left.waiting + left.admitted + left.in_flight,
            state: states.iter().find(|one| one.0 > 0).map(|one| one.1),
            after,
            bound,
        }
    }

    /// How long a destination may take to drain: what its limits need for the
    /// backlog and for what clients still hand in, the longest that a retry
    /// still has to wait, and recovery.
    fn bound(&self, of: DestinationId) -> Duration {
        let store = &self.parts.store;
        let now = store.now();
        let retry = (store.rows_of(of).iter())
            .filter(|row| !row.state.is_final())
            .map(|row| {
                row.waits_since.since(now) + longest_retry(row.try_number - row.tries_before)
            })
            .max();
        let backlog = match self.scenario.bounds() {
            None => self.drains_within(of),
            Some(bounds) => self.taken_and_drained_within(&bounds),
        };
        // Whose client is refused waits for all whose backlogs are in its way.
        let in_the_way = match self.scenario.bounds() {
            None => vec![of],
            Some(_) => self.living(),
        };
        let held = (in_the_way.iter())
            .filter_map(|of| store.held_until(*of))
            .map(|until| until.since(now))
            .max()
            .unwrap_or_default();
        // What still fails while the faults end may open the breaker.
        let breaker = FIRST_PROBE.mul_f64(1.2);
        // A receiver that refused for long is asked seldom, and then more often;
        // also where its limit was as low until its owner has just raised it.
        let was_lowered = |of: &DestinationId| store.was_lowered(*of);
        let smart = if in_the_way.iter().any(was_lowered) {
            SMART_RECOVERY
        } else {
            Duration::ZERO
        };
        RECOVERY + self.held_up() + smart + backlog + retry.unwrap_or_default() + held.max(breaker)
    }

    /// How long a commit may still be held up, if any ever is; its client waits for
    /// its keys.
    fn held_up(&self) -> Duration {
        let held_up = |operation: &Operation| matches!(operation.what, What::Fault { fault, .. } if fault == Fault::CommitHeldUp);
        match self.scenario.operations.iter().any(held_up) {
            true => HELD_UP_FOR.end,
            false => Duration::ZERO,
        }
    }

    /// Events that clients hand in for a destination.
    fn coming(&self, of: DestinationId) -> u32 {
        let coming = |operation: &Operation| match operation.what {
            What::Arrivals {
                destination: to,
                events,
                ..
            } if destination(to) == of => Some(events),
            _ => None,
        };
        let coming: u32 = self.scenario.operations.iter().filter_map(coming).sum();
        coming.saturating_add(self.news_for(of))
    }

    /// How long its limits need for all that is handed in.
    fn drains_within(&self, of: DestinationId) -> Duration {
        let (history, _) = self.parts.witness.ledger(of);
        let rate = history
            .last()
            .map_or(SLOWEST, |last| per_second(&last.policy));
        Duration::from_secs_f64(f64::from(self.coming(of)) * 1.1 / rate.clamp(0.1, 1e6))
    }

    /// The same where clients are refused: each waits for the others' backlogs,
    /// and each time that a backlog takes again it takes what is between its
    /// marks at least.
    fn taken_and_drained_within(&self, bounds: &BacklogBounds) -> Duration {
        let most = bounds.destination.min(bounds.tenant).get();
        let room = (high_mark(most) - low_mark(most)).max(1);
        let all = self.living().into_iter();
        let taken: Duration = all
            .map(|of| {
                let times = u64::from(self.coming(of)) / room + 1;
                let waited = CLIENT_PATIENCE + LOOK * 2;
                self.drains_within(of) + waited * u32::try_from(times).unwrap_or(u32::MAX)
            })
            .sum();
        taken + self.handing_in()
    }

    /// How long the slowest client still takes for the rest, at its own pace, once
    /// it is no longer refused; also where its destination is gone.
    fn handing_in(&self) -> Duration {
        let left = self.handing.lock().unwrap_or_else(PoisonError::into_inner);
        left.values().copied().max().unwrap_or_default()
    }

    /// Judges one destination over the whole run.
    fn judge(&self, of: DestinationId) {
        let (history, starts) = self.parts.witness.ledger(of);
        self.note(of, promises::no_window_is_over(&judge(&history, &starts)));
        let sends = judge_sends(&history, &self.parts.witness.sends(of));
        self.note(of, promises::no_window_of_sends_is_over(&sends));
        if self.scenario.mood != Mood::Calm || self.is_held_up(of) {
            return;
        }
        let rows = self.parts.store.rows_of(of);
        let mut due: Vec<_> = rows.iter().map(|row| row.waits_since).collect();
        due.sort_unstable();
        let until = super::BEGAN + Duration::from_millis(self.scenario.lasts_ms);
        let burst_takes = (history.iter())
            .map(|entry| burst_takes(&entry.policy))
            .max();
        let used = promises::the_limit_is_used(
            &history,
            &due,
            &starts,
            (super::BEGAN + self.scenario.use_counts_from(), until),
            burst_takes.unwrap_or_default(),
        );
        self.note(of, used);
        if of == destination(0) {
            self.judge_delays(of);
        }
    }

    /// Whether its receiver is so slow at times that `max_in_flight` binds, or
    /// fails, so that it is left alone for a while.
    fn is_held_up(&self, of: DestinationId) -> bool {
        (self.scenario.operations.iter()).any(|operation| {
            matches!(operation.what, What::Receiver {
                destination: whose,
                ..
            } if destination(whose) == of)
        })
    }

    /// The first destination of a calm run is below its limits.
    fn judge_delays(&self, of: DestinationId) {
        let rows = self.parts.store.rows_of(of);
        let waited = (rows.iter().filter(|row| row.try_number == 1))
            .filter_map(|row| Some((row.id, row.started_at?.since(row.created_at))));
        for (attempt, waited) in waited {
            self.note(of, promises::nobody_is_delayed(attempt, waited));
        }
    }

    /// Judges what was recorded of attempts that a receiver answered one by one;
    /// of those that are there still.
    fn judge_parts(&self) {
        for (attempt, answered) in self.parts.witness.all_answered() {
            if let Some(row) = self.parts.store.row(attempt) {
                let row = (row.state, row.status);
                let judged = what_is_recorded_is_what_was_answered(attempt, answered, row);
                self.parts.witness.note(judged);
            }
        }
    }

    /// Judges how many events each of the clients' events became.
    fn judge_repeats(&self) {
        let mut events: BTreeMap<u128, u32> = BTreeMap::new();
        for (event, ..) in self.parts.store.all_events() {
            *events.entry(named_by_client(event)).or_default() += 1;
        }
        for (name, events) in events {
            let judged = promises::a_repeated_request_is_one_event(name, events);
            self.parts.witness.note(judged);
        }
    }

    /// Judges what became of each event that a client was told is accepted.
    fn judge_events(&self) {
        self.judge_repeats();
        for one in self.parts.witness.accepted_events() {
            // What was taken is not lost, whatever the rows say.
            let (is_dead_letter, is_cancelled) = match one.was_taken {
                true => (false, false),
                false => self.became(one.destination, one.event),
            };
            let accepted = Accepted {
                was_taken: one.was_taken,
                is_dead_letter,
                is_cancelled,
            };
            let judged = promises::nothing_is_lost(one.event, accepted);
            self.note(one.destination, judged);
        }
    }

    /// Whether an event is a dead letter, and whether its owner took it back.
    fn became(&self, destination: DestinationId, event: EventId) -> (bool, bool) {
        let attempts = self.parts.store.rows_of_event(event);
        let is_dead_letter = (attempts.unwrap_or_default().iter())
            .any(|row| row.destination == destination && row.is_open_dead_letter);
        let is_cancelled =
            self.deleted.contains(&destination) || self.is_cancelled(destination, event);
        (is_dead_letter, is_cancelled)
    }

    /// Whether its owner has cancelled what waited, and the event's last attempt
    /// was among it.
    fn is_cancelled(&self, of: DestinationId, event: EventId) -> bool {
        if !self.cancelled.contains(&of) {
            return false;
        }
        let store = &self.parts.store;
        // Where its payload was forgotten the ledger knows still.
        let attempts = store.rows_of_event(event).unwrap_or_else(|| {
            let mut rows = store.rows_of(of);
            rows.retain(|row| row.event == event);
            rows
        });
        let mut attempts = attempts.iter();
        let last = attempts
            .rfind(|row| row.destination == of)
            .map(|row| row.state);
        last == Some(AttemptState::Cancelled)
    }

    fn note(&self, of: DestinationId, judged: Promise) {
        let judged = judged.map_err(|broken| broken.of(of));
        self.parts.witness.note(judged);
    }
}

/// How long the retry that follows this try waits at most, if it fails.
fn longest_retry(try_number: u32) -> Duration {
    match RetrySettings::default().after_failure(try_number, None, 1.0) {
        AfterFailure::RetryAfter(after) => after,
        AfterFailure::DeadLetter(_) => Duration::ZERO,
    }
}

/// How long `max_in_flight` makes a burst of the largest window last, where
/// receivers are prompt; nothing where it holds the whole burst.
fn burst_takes(policy: &Policy) -> Duration {
    let Rate::Limited(limited) = &policy.rate else {
        return Duration::ZERO;
    };
    let windows = limited.windows.iter().map(|limit| limit.max.get());
    let buckets = limited.pacing.iter().map(|pacing| pacing.burst);
    let burst = windows.chain(buckets).max().unwrap_or(0);
    match burst.div_ceil(policy.max_in_flight.max(1)) {
        0 | 1 => Duration::ZERO,
        rounds => IN_FLIGHT.saturating_mul(rounds),
    }
}
