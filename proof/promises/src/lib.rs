//! What has to be true, whatever goes wrong.
//!
//! One function for each promise, on plain facts: what the clients were told,
//! what the receivers saw, when the store recorded which start. None of them
//! knows how Paceline works, and none has a bound of its own: limits are
//! judged by [`domain::compliance`], as the audit judges them.
//!
//! Whoever runs Paceline to see whether it holds asks the same functions: the
//! simulation after each step, in virtual time; `loadtest chaos` of the logs of a
//! whole installation that was killed and cut off; `loadtest cluster` by the API.
//! The table says when the simulation asks; the last ones need logs that only
//! chaos has.
//!
//! | promise | judged |
//! |---|---|
//! | [`nothing_is_lost`] | at rest |
//! | [`a_repeated_request_is_one_event`] | at rest |
//! | [`a_duplicate_has_a_reason`] | at every delivery |
//! | [`no_window_is_over`] | at every claim; at rest over all claims |
//! | [`no_window_of_sends_is_over`] | at rest over all requests |
//! | [`no_window_of_arrivals_is_over`] | at every request; by chaos, at its end |
//! | [`a_start_is_dated_to_its_send`] | at every outcome, and at every report before it |
//! | [`the_limit_is_used`] | at rest, where nothing failed |
//! | [`nobody_is_delayed`] | at rest, where nothing failed |
//! | [`first_attempts_are_admitted_in_order`] | at every admission |
//! | [`a_permit_starts_once_and_in_time`] | at every start |
//! | [`what_is_carried_starts_once`] | at every start of a batch |
//! | [`a_batch_keeps_to_its_size`] | at every start of a batch |
//! | [`a_start_is_sent_once_and_at_once`] | at every request |
//! | [`every_request_is_signed`] | at every request |
//! | [`a_lease_is_exclusive`] | at every take |
//! | [`nothing_starts_during_a_hold`] | at every start |
//! | [`nothing_starts_before_it_is_for`] | at every start |
//! | [`a_breaker_lets_one_through`] | at every start |
//! | [`all_is_drained`] | after the last fault |
//! | [`both_get_their_turn`] | at every admission |
//! | [`each_lane_gets_its_share`] | at every admission |
//! | [`a_dead_letter_is_replayed_once`] | at rest |
//! | [`a_backlog_is_bounded`] | at every event that is let in |
//! | [`what_is_short_again_is_taken`] | at every refusal |
//! | [`what_is_refused_is_not_stored`] | at rest |
//! | [`every_client_is_answered`] | after the last fault |
//! | [`what_is_recorded_is_what_was_answered`] | at rest |
//! | [`what_is_recorded_can_be_stored`] | at every outcome |
//! | [`news_are_told_once`] | at rest |
//! | [`an_alert_is_raised_and_ended_in_turn`] | at rest |
//! | [`every_alert_ends`] | after the last fault |
//! | [`what_is_to_be_sent_has_its_event`] | at every step of retention |
//! | [`a_further_attempt_has_a_reason`] | by chaos, at its end |
//! | [`a_try_is_one_request`] | by chaos, at its end |
//! | [`an_event_is_where_it_was_posted`] | by chaos, at its end |
//! | [`what_was_rolled_back_is_nowhere`] | by chaos, at its end |

#![warn(missing_docs)]

mod ingest;
mod news;
#[cfg(test)]
mod planted;

use std::fmt;
use std::time::Duration;

use domain::attempt::AttemptState;
use domain::batch::BatchRules;
use domain::compliance::{ArrivalVerdict, InForce, Share, Start, Verdict, ideal_starts};
use domain::ids::AttemptId;
use domain::limit::Period;
use domain::permit::Permit;
use domain::policy::Rate;
use domain::time::Timestamp;

pub use ingest::{
    LetIn, a_backlog_is_bounded, every_client_is_answered, what_is_refused_is_not_stored,
    what_is_short_again_is_taken,
};
pub use news::{
    Unsettled, an_alert_is_raised_and_ended_in_turn, every_alert_ends, news_are_told_once,
};

/// A promise that was broken, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// Which: the name of its function.
    pub promise: &'static str,
    /// By what, for people.
    pub how: String,
}

impl Broken {
    /// Says whose promise it was.
    #[must_use]
    pub fn of(self, whose: impl fmt::Display) -> Self {
        Self {
            how: format!("{whose}: {}", self.how),
            ..self
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.promise, self.how)
    }
}

/// Kept, or broken and how.
pub type Promise = Result<(), Broken>;

/// How many thousandths of the limit have to be used while there is backlog: of one per
/// second, and of those per minute, hour and day, which the time from slot to start costs
/// less. The margin may take ten of them.
pub const USED_THOUSANDTHS: (u32, u32) = (985, 990);

/// How long a destination that is below its limits may keep an event waiting
/// while nothing fails, however busy or broken the others are.
pub const DELAYED_AT_MOST: Duration = Duration::from_secs(1);

/// An event that a client was told is accepted, for one destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    /// The receiver took it, at least once.
    pub was_taken: bool,
    /// Its tries are used up, which its owner sees and can replay.
    pub is_dead_letter: bool,
    /// Its owner has deleted the destination, or cancelled what waits there
    /// and it among it.
    pub is_cancelled: bool,
}

/// "A 2xx from the API means the event is durable and will be attempted until
/// it is delivered, exhausted (visible, replayable) or cancelled by its owner."
pub fn nothing_is_lost(event: impl fmt::Display, accepted: Accepted) -> Promise {
    let ended = accepted.was_taken || accepted.is_dead_letter || accepted.is_cancelled;
    keep("nothing_is_lost", ended, || {
        format!("{event} was accepted, and is neither delivered nor a dead letter nor cancelled")
    })
}

/// However old an event is: as long as it is to be delivered, or can be
/// replayed, it is there.
pub fn what_is_to_be_sent_has_its_event(orphan: Option<AttemptId>) -> Promise {
    keep("what_is_to_be_sent_has_its_event", orphan.is_none(), || {
        format!("attempt {orphan:?} has lost its event")
    })
}

/// What is known of an attempt that another one of its event follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Followed {
    /// What became of it.
    pub state: AttemptState,
    /// At some time nobody knew; a late outcome may have overwritten it.
    pub was_unknown: bool,
    /// Somebody had it replayed.
    pub is_replayed: bool,
}

/// "A duplicate happens only after a crash or a lost response": an event is tried
/// again only where the try before failed, was not sent, was replayed, or was at
/// some time unknown.
pub fn a_further_attempt_has_a_reason(
    attempt: impl fmt::Display,
    (followed, before): (impl fmt::Display, Followed),
) -> Promise {
    use AttemptState::{Failed, NotSent, Unknown};
    let by_state = matches!(before.state, Failed | NotSent | Unknown);
    let kept = by_state || before.was_unknown || before.is_replayed;
    keep("a_further_attempt_has_a_reason", kept, || {
        let state = before.state.as_str();
        format!("attempt {attempt} follows attempt {followed}, which {state}")
    })
}

/// No attempt is one request more than once: of a try of an event as many arrive as
/// the ledger has attempts that were sent, at most.
pub fn a_try_is_one_request(of: impl fmt::Display, arrived: u64, attempts: u64) -> Promise {
    keep("a_try_is_one_request", arrived <= attempts, || {
        format!("{of}: {arrived} requests, and {attempts} attempts that were sent")
    })
}

/// An event is at the destination that it was posted for, with a key of that
/// destination's tenant, and nowhere else.
pub fn an_event_is_where_it_was_posted<D: PartialEq + fmt::Debug>(
    event: impl fmt::Display,
    (is, posted_for): (D, Option<D>),
) -> Promise {
    let kept = posted_for.as_ref() == Some(&is);
    keep("an_event_is_where_it_was_posted", kept, || {
        format!("{event} is at {is:?}, and was posted for {posted_for:?}")
    })
}

/// What a transaction took back is no event.
pub fn what_was_rolled_back_is_nowhere(
    event: impl fmt::Display,
    (attempts, requests): (usize, usize),
) -> Promise {
    let kept = attempts + requests == 0;
    keep("what_was_rolled_back_is_nowhere", kept, || {
        format!("event {event} was rolled back: {attempts} attempts, {requests} requests")
    })
}

/// "The same idempotency key is the same event", however often its client had
/// to ask, and whatever became of the answers.
pub fn a_repeated_request_is_one_event(request: impl fmt::Display, events: u32) -> Promise {
    keep("a_repeated_request_is_one_event", events <= 1, || {
        format!("the client's event {request} is {events} events")
    })
}

/// A delivery that the receiver took, before another one of the same event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivered {
    /// By which attempt.
    pub attempt: AttemptId,
    /// Its row was `unknown` when the other attempt started.
    pub was_unknown: bool,
    /// Its response never reached the worker.
    pub response_was_lost: bool,
}

/// "At least once, with the same id on every try; a duplicate happens only
/// after a crash or a lost response."
///
/// A try that arrives after its own retry was given up before: its worker was
/// stopped in the middle of sending. What arrived first is then no duplicate.
pub fn a_duplicate_has_a_reason(earlier: &[Delivered], again: AttemptId) -> Promise {
    let mut before = earlier.iter().filter(|one| one.attempt < again);
    let without = before.find(|one| !one.was_unknown && !one.response_was_lost);
    keep("a_duplicate_has_a_reason", without.is_none(), || {
        let first = without.map(|one| one.attempt);
        format!("attempt {again} delivered what {first:?} had delivered, with a known outcome")
    })
}

/// "At most L starts in every sliding window of P (bucket shapes: burst +
/// r·(t + slack) in any t), for every limit, through crashes, scale-out, clock
/// skew and limit changes." And none while paused.
pub fn no_window_is_over(verdict: &Verdict) -> Promise {
    let over = verdict.violations().next();
    keep("no_window_is_over", over.is_none(), || format!("{over:?}"))
}

/// The same of when requests were sent, which is what a receiver sees: not one more in
/// any window of the whole period. A change of limits reaches them later by what a claim
/// may take to be sent ([`domain::compliance::judge_sends`]).
pub fn no_window_of_sends_is_over(verdict: &Verdict) -> Promise {
    let over = verdict.violations().next();
    keep("no_window_of_sends_is_over", over.is_none(), || {
        format!("{over:?}")
    })
}

/// "At most L in every window of P at a receiver whose network jitters by no more than
/// the margin", by the receiver's own clock, but for what the receiver's own stalls
/// explain ([`domain::compliance::AtReceiver`] has the rule).
pub fn no_window_of_arrivals_is_over(verdict: &ArrivalVerdict) -> Promise {
    let over = verdict.unexplained.violations().next();
    let words = over.map(|over| {
        let ends = over.attempts.first().zip(over.attempts.last());
        let (arrivals, bound, rule) = (over.starts, over.bound, over.rule);
        format!("{arrivals} arrivals of {bound} by {rule:?}, from place to place {ends:?}")
    });
    keep("no_window_of_arrivals_is_over", over.is_none(), || {
        words.unwrap_or_default()
    })
}

/// An event that is for later does not go out before.
pub fn nothing_starts_before_it_is_for(
    attempt: AttemptId,
    started_at: Timestamp,
    deliver_at: Option<Timestamp>,
) -> Promise {
    let kept = deliver_at.is_none_or(|deliver_at| started_at >= deliver_at);
    keep("nothing_starts_before_it_is_for", kept, || {
        format!("attempt {attempt} started at {started_at:?} and is for {deliver_at:?}")
    })
}

/// What is recorded of a start may be later than its request's first byte, by what its
/// worker could not know, and is never earlier: the next slots are counted from it.
pub fn a_start_is_dated_to_its_send(
    attempt: AttemptId,
    recorded_at: Timestamp,
    sent_at: Option<Timestamp>,
) -> Promise {
    let kept = sent_at.is_none_or(|sent_at| recorded_at >= sent_at);
    keep("a_start_is_dated_to_its_send", kept, || {
        format!("attempt {attempt} is dated to {recorded_at:?} and was sent at {sent_at:?}")
    })
}

/// "While there is backlog, at least 98.5 % of the limit is used (99 % of a limit per
/// minute, hour or day), unless concurrency binds."
///
/// `due` is when each attempt could have started at the earliest, ascending;
/// `burst_takes` is how long `max_in_flight` makes a whole window's worth of
/// starts last. Who uses so much of a limit has started by `until` what a perfect
/// sender has after so much of the time, and a burst earlier. (To compare both
/// at one instant would be to ask where a burst falls: one that is a moment late
/// counts whole or not at all.)
pub fn the_limit_is_used(
    history: &[InForce],
    due: &[Timestamp],
    starts: &[Start],
    (since, until): (Timestamp, Timestamp),
    burst_takes: Duration,
) -> Promise {
    let within = |at: &Timestamp| (since..until).contains(at);
    let from = due.first().map_or(since, |first| since.max(*first));
    let is_by_second = |entry: &InForce| match &entry.policy.rate {
        Rate::Limited(limited) => {
            let refill = limited.pacing.map(|pacing| pacing.refill);
            let mut all = refill.into_iter().chain(limited.windows.iter().copied());
            all.any(|limit| limit.period == Period::Second)
        }
        Rate::Paused | Rate::Unlimited => false,
    };
    let thousandths = match history.iter().any(is_by_second) {
        true => USED_THOUSANDTHS.0,
        false => USED_THOUSANDTHS.1,
    };
    let used_up = until.since(from) * thousandths / 1_000;
    let perfect = from + used_up.saturating_sub(burst_takes);
    let share = Share {
        started: starts.iter().filter(|(at, _)| within(at)).count() as u64,
        allowed: ideal_starts(history, due, since, perfect),
    };
    // Of a few starts, one that was due at the very end is more than a hundredth.
    let used = share.started + 1 >= share.allowed;
    keep("the_limit_is_used", used, || format!("{share:?}"))
}

/// "No destination delays another beyond a stated bound."
pub fn nobody_is_delayed(attempt: AttemptId, waited: Duration) -> Promise {
    keep("nobody_is_delayed", waited <= DELAYED_AT_MOST, || {
        format!("attempt {attempt} of a destination below its limits waited {waited:?}")
    })
}

/// "First attempts are admitted in creation order": one that was never
/// admitted before comes after all that were.
pub fn first_attempts_are_admitted_in_order(newest: AttemptId, next: AttemptId) -> Promise {
    keep(
        "first_attempts_are_admitted_in_order",
        next > newest,
        || format!("attempt {next} was first admitted after {newest}"),
    )
}

/// One start per permit, one start per attempt, and no start outside of the
/// permit's time: what the theorem of `domain::admission` rests on.
pub fn a_permit_starts_once_and_in_time(
    permit: &Permit,
    started_at: Timestamp,
    has_started: bool,
) -> Promise {
    let in_time = (permit.not_before..=permit.deadline).contains(&started_at);
    let kept = in_time && !has_started;
    keep("a_permit_starts_once_and_in_time", kept, || {
        let again = if has_started { "again " } else { "" };
        format!("started {again}at {started_at:?} under {permit:?}")
    })
}

/// An attempt that another one's request carries has no permit, and starts with
/// it: once, as with a permit of its own.
pub fn what_is_carried_starts_once(attempt: AttemptId, has_started: bool) -> Promise {
    keep("what_is_carried_starts_once", !has_started, || {
        format!("attempt {attempt} was carried after it had started")
    })
}

/// "Up to N events or B bytes": but for one that is larger, and goes alone.
pub fn a_batch_keeps_to_its_size(
    leader: AttemptId,
    payloads: &[usize],
    rules: &BatchRules,
) -> Promise {
    let bytes: usize = payloads.iter().sum();
    let fits = payloads.len() <= rules.max_events as usize && bytes <= rules.max_bytes as usize;
    keep(
        "a_batch_keeps_to_its_size",
        fits || payloads.len() == 1,
        || {
            format!(
                "attempt {leader} carries {} events of {bytes} bytes: {rules:?}",
                payloads.len()
            )
        },
    )
}

/// What is known of a start when its request goes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sending {
    /// Since the claim; `None` if there never was one.
    pub since_start: Option<Duration>,
    /// The stated bound of that.
    pub within: Duration,
    /// The attempt has been sent before.
    pub was_sent: bool,
}

/// The claim is recorded before the request is sent, one request is sent for it, and no
/// later than the stated bound: until its start is known it is counted there.
pub fn a_start_is_sent_once_and_at_once(attempt: AttemptId, sending: Sending) -> Promise {
    let at_once = (sending.since_start).is_some_and(|since| since <= sending.within);
    let kept = at_once && !sending.was_sent;
    keep("a_start_is_sent_once_and_at_once", kept, || {
        format!("attempt {attempt}: {sending:?}")
    })
}

/// Whatever crashes, and whatever is cached: a request is signed by its
/// destination's secret, over its event, its timestamp and its payload.
pub fn every_request_is_signed(attempt: impl fmt::Display, is_signed: bool) -> Promise {
    keep("every_request_is_signed", is_signed, || {
        format!("attempt {attempt} was sent without the signature of its destination's secret")
    })
}

/// Nobody takes a job that somebody else holds.
pub fn a_lease_is_exclusive(job: impl fmt::Display, held_for: Option<Duration>) -> Promise {
    keep("a_lease_is_exclusive", held_for.is_none(), || {
        format!("{job} was taken while its lease went on for {held_for:?}")
    })
}

/// A receiver that asks to be left alone is left alone, and so is one whose
/// breaker is open: nothing starts before the hold is over.
pub fn nothing_starts_during_a_hold(
    attempt: AttemptId,
    started_at: Timestamp,
    held_until: Option<Timestamp>,
) -> Promise {
    let kept = held_until.is_none_or(|until| started_at >= until);
    keep("nothing_starts_during_a_hold", kept, || {
        format!("attempt {attempt} started at {started_at:?}, held until {held_until:?}")
    })
}

/// While the breaker is not closed, one attempt at a time is sent.
pub fn a_breaker_lets_one_through(destination: impl fmt::Display, in_flight: u32) -> Promise {
    keep("a_breaker_lets_one_through", in_flight <= 1, || {
        format!("{destination} has {in_flight} in flight beside an open breaker")
    })
}

/// What one destination has left after the last fault.
///
/// The simulation looks again and again and gives it time; a run that has waited
/// already says [`Left::at_the_end`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Left {
    /// Attempts that wait, are admitted, or have started without an outcome.
    pub attempts: usize,
    /// The state of one of them.
    pub state: Option<AttemptState>,
    /// For how long all has been well.
    pub after: Duration,
    /// How long it may take.
    pub bound: Duration,
}

impl Left {
    /// All the time that it may take is over.
    pub fn at_the_end(attempts: usize, state: Option<AttemptState>) -> Self {
        Self {
            attempts,
            state,
            after: Duration::MAX,
            bound: Duration::ZERO,
        }
    }
}

/// Recovery needs nobody's help: once the faults are over, everything that is
/// left is done within the time that its limits need and a stated bound.
pub fn all_is_drained(destination: impl fmt::Display, left: Left) -> Promise {
    let drained = left.attempts == 0 || left.after <= left.bound;
    keep("all_is_drained", drained, || {
        format!("{destination} is stuck: {left:?}")
    })
}

/// "Retries cannot starve first attempts, nor the other way round": of the
/// permits of a run that leaves both waiting, half go to each.
pub fn both_get_their_turn((firsts, others): (usize, usize)) -> Promise {
    keep("both_get_their_turn", firsts.abs_diff(others) <= 1, || {
        format!("{firsts} permits to first attempts and {others} to others, and both still wait")
    })
}

/// "An urgent event is not held up, and holds nobody up for good": of the permits of a run
/// that go to first attempts and that leaves both lanes waiting, each fourth is normal.
pub fn each_lane_gets_its_share((urgent, normal): (usize, usize)) -> Promise {
    let first_attempts = urgent + normal;
    let is_fourth = (first_attempts / 4..=first_attempts.div_ceil(4)).contains(&normal);
    keep("each_lane_gets_its_share", is_fourth, || {
        format!("{urgent} permits to urgent events and {normal} to others, and both still wait")
    })
}

/// A dead letter that was replayed has one attempt that follows it, and every
/// attempt of a replay follows one.
///
/// Each is named by its event and its place among the event's attempts: of what was
/// replayed, the place of what follows.
pub fn a_dead_letter_is_replayed_once<E: PartialEq + fmt::Debug>(
    replayed: &[(E, u32)],
    made: &[(E, u32)],
) -> Promise {
    let kept = replayed == made && made.windows(2).all(|two| two[0] != two[1]);
    keep("a_dead_letter_is_replayed_once", kept, || {
        format!("replayed {replayed:?}, and made {made:?}")
    })
}

/// "An outcome for each event where the receiver answers 207 with one": as if
/// each had been alone, and what nothing is said of was taken.
pub fn what_is_recorded_is_what_was_answered(
    attempt: AttemptId,
    answered: Option<u16>,
    (state, status): (AttemptState, Option<u16>),
) -> Promise {
    let status_of = answered.unwrap_or(207);
    let expected = match (200..300).contains(&status_of) {
        true => AttemptState::Succeeded,
        false => AttemptState::Failed,
    };
    // Whose worker never recorded it was given up.
    let kept = state == AttemptState::Unknown || (state, status) == (expected, Some(status_of));
    keep("what_is_recorded_is_what_was_answered", kept, || {
        format!("attempt {attempt} was answered {answered:?}, and is {state:?} with {status:?}")
    })
}

/// A receiver's words do not decide what a table can hold: what was cleaned before
/// is never refused. One that is would still be recorded without its words, and
/// nobody would know what went wrong.
pub fn what_is_recorded_can_be_stored(refused: Option<&str>) -> Promise {
    keep("what_is_recorded_can_be_stored", refused.is_none(), || {
        format!("the store refused outcomes: {refused:?}")
    })
}

fn keep(promise: &'static str, kept: bool, how: impl FnOnce() -> String) -> Promise {
    if kept {
        return Ok(());
    }
    Err(Broken {
        promise,
        how: how(),
    })
}
