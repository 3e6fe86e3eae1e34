//! Admission: which attempts of one destination may start, and when.
//!
//! The classic formula is `allow = rate_limit − attempts_still_in_queue`. It
//! is not a bound: a burst late in one period and one early in the next put
//! up to 2·L into one second. We keep its shape and count everything that can
//! still fall into the window, `allow = rate_limit − still_in_queue −
//! started_in_window`, and plan ahead by the rule that this illustrates.
//!
//! **Rule.** At admission time t, let `end(q)` be the recorded start of permit
//! q; its `deadline` if it may still start; and −∞ only if a committed update
//! has moved its row out of `admitted` without a start. Admit p with
//! `not_before ≥ t` only if fewer than L permits have
//! `end(q) > not_before − P`.
//!
//! **Theorem.** Every half-open window (w − P, w] holds at most L starts.
//! *Proof.* Of the permits that start in the window take p, the one admitted
//! last. Its `not_before ≤ w`. Any other q that starts in the window was
//! admitted earlier and starts after w − P ≥ `not_before(p)` − P. When p was
//! admitted, q was recorded (its end is its start) or still possible (its end
//! is its deadline, which is no earlier than its start), so it was counted.
//! There are at most L − 1 such q. ∎
//!
//! Buckets are planned by `not_before` instead: the [`Meter`] is charged when
//! a permit is planned, whether or not it starts, so the planned slots of any
//! interval are at most `burst + r·t`; and as every start falls within
//! [`SLACK`] after its slot, at most `burst + r·(t + SLACK)` starts fall into
//! any t.
//!
//! Cost: linear in what is in the window, which the store bounds by
//! [`crate::limit::EXACT_MAX`] starts or 200 buckets a period. Never in the
//! backlog.

use std::collections::VecDeque;
use std::time::Duration;

use crate::limit::{EXACT_MAX, Period};
use crate::policy::{Limited, Pacing, Policy, Rate};
use crate::time::{Timestamp, micros};

/// How long after its slot a permit may still start. Long enough for the
/// queue's 99.9th percentile; an orphaned permit blocks its place until then.
pub const GRACE: Duration = Duration::from_secs(2);

/// The same where slots are planned by `not_before` (buckets and `burst`):
/// it enters their promise, so it is shorter.
pub const SLACK: Duration = Duration::from_millis(500);

/// The most permits of one destination in one run. A run that hits it runs
/// again at once.
pub const MAX_BATCH: u32 = 500;

/// How far ahead slots are planned at most. Longer leads hide more of the
/// queue's latency; they also hold more permits that a change must revoke.
pub const MAX_LEAD: Duration = Duration::from_millis(200);

/// How far ahead slots are planned at least: the scheduler's own latency.
pub const MIN_LEAD: Duration = Duration::from_millis(20);

/// When a destination that concurrency or the fleet's places stopped is looked
/// at again if nobody wakes it; outcomes do.
pub const LOOK_WHEN_CROWDED: Duration = Duration::from_secs(1);

/// How soon, at the earliest, a wake makes a crowded destination run again:
/// arrivals must not cost a run each.
pub const CROWDED_FLOOR: Duration = Duration::from_millis(5);

/// What a destination uses of its limits, as the store's rows say, all read
/// in one statement, so that no permit slips from one list to another.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Usage {
    /// Permits that may still start.
    pub outstanding: Vec<Outstanding>,
    /// Attempts started and not yet finished.
    pub in_flight: u32,
    /// The newest starts, the newest first: at least as many as the largest
    /// limit that is not coarse, or all in the longest of their periods.
    pub starts: Vec<Timestamp>,
    /// The starts that coarse limits count, by period. Absent where no limit
    /// of that period is coarse.
    pub coarse: Vec<CoarseStarts>,
    /// Some starts of a coarse limit have not been counted yet (the limit has
    /// just become coarse): admit nothing until they are.
    pub incomplete: bool,
    /// The bucket's level as of the last permit planned. The default where
    /// none was planned since a bucket came into force: then the level is
    /// computed from `starts`, which has to hold the newest `burst` + L.
    pub meter: Meter,
    /// No start before then: the receiver asked for it.
    pub held_until: Option<Timestamp>,
}

/// A permit that may still start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outstanding {
    /// Its slot.
    pub not_before: Timestamp,
    /// Its last chance; it is counted there.
    pub deadline: Timestamp,
}

/// Starts counted for one coarse limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoarseStarts {
    /// Which limit's.
    pub period: Period,
    /// Folded starts, in any order.
    pub buckets: Vec<Bucket>,
    /// Starts in the period that are in no bucket yet, in any order.
    pub unfolded: Vec<Timestamp>,
}

/// Starts that fell into one bucket, all counted at its end: later than they
/// were, which is safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// Its end, exclusive.
    pub ends_at: Timestamp,
    /// How many starts.
    pub starts: u32,
}

/// The level of a bucket, as what is missing from it.
///
/// It is charged when a slot is planned, so a permit that is still
/// outstanding is never forgotten; one that ends unused has cost a token. A
/// change from one bucket to another keeps it; one from a shape without bucket
/// to one with must set it back to the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meter {
    /// Tokens missing at `as_of`, in millionths.
    pub missing_micro: i64,
    /// The last slot planned.
    pub as_of: Timestamp,
}

impl Default for Meter {
    /// A full bucket.
    fn default() -> Self {
        Self {
            missing_micro: 0,
            as_of: Timestamp::MIN,
        }
    }
}

/// One token.
const TOKEN: i128 = 1_000_000;

impl Meter {
    /// The level that these starts, the newest first, leave behind: a bucket
    /// that comes into force has to count them, or a window that straddles the
    /// change would hold what was allowed before and a whole burst.
    ///
    /// No more than `burst` + L are missing: then nothing starts for a whole
    /// period, and no window of it straddles the change any more.
    fn from_starts(starts: &[Timestamp], pacing: Pacing, period_micros: i64) -> Self {
        let most = i64::from(pacing.burst) + i64::from(pacing.refill.max.get());
        let most = most.saturating_mul(1_000_000);
        let mut meter = Self::default();
        for start in starts.iter().rev() {
            meter = meter.charged(pacing, period_micros, *start);
            meter.missing_micro = meter.missing_micro.min(most);
        }
        meter
    }

    /// The level at `at`, refilled at L per `period_micros`.
    fn refilled(self, pacing: Pacing, period_micros: i64, at: Timestamp) -> Self {
        if at <= self.as_of {
            return self;
        }
        let elapsed = i128::from(at.micros_since(self.as_of));
        let max = i128::from(pacing.refill.max.get());
        let refill = elapsed.saturating_mul(max).saturating_mul(TOKEN) / i128::from(period_micros);
        let missing = (i128::from(self.missing_micro) - refill).max(0);
        Self {
            missing_micro: i64::try_from(missing).unwrap_or(i64::MAX),
            as_of: at,
        }
    }

    /// The first instant, `at` or later, at which a token is there. Slots are
    /// planned in order, so never before the last one.
    fn next_token(self, pacing: Pacing, period_micros: i64, at: Timestamp) -> Timestamp {
        let at = at.max(self.as_of);
        let now = self.refilled(pacing, period_micros, at);
        let room = (i128::from(pacing.burst) - 1) * TOKEN;
        let over = i128::from(now.missing_micro) - room;
        if over <= 0 {
            return at;
        }
        let max = i128::from(pacing.refill.max.get()) * TOKEN;
        // Rounded up: a slot a microsecond late is safe, one early is not.
        let wait = (over * i128::from(period_micros) + max - 1) / max;
        at + Duration::from_micros(u64::try_from(wait).unwrap_or(u64::MAX))
    }

    /// The level after a slot at `at`.
    fn charged(self, pacing: Pacing, period_micros: i64, at: Timestamp) -> Self {
        let level = self.refilled(pacing, period_micros, at);
        Self {
            missing_micro: level.missing_micro.saturating_add(1_000_000),
            as_of: level.as_of,
        }
    }
}

/// What waits at a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    /// Attempts due now, counted up to [`read_ahead`] and no further.
    pub due: u32,
    /// When the earliest of the others is due.
    pub next_due: Option<Timestamp>,
}

/// What one run decides. Execution makes no choices.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Decision {
    /// The slots to give, in order, never more than `backlog.due`.
    pub slots: Vec<Slot>,
    /// When to look again.
    pub look: Look,
    /// What stops the rest of the backlog, if anything does.
    pub blocked: Option<Blocked>,
    /// The bucket's level after the slots.
    pub meter: Meter,
    /// Outcomes of these attempts make room that somebody waits for: they
    /// wake the destination.
    pub crowded: bool,
}

/// One slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// The earliest start.
    pub not_before: Timestamp,
    /// The latest start.
    pub deadline: Timestamp,
}

/// When to look at a destination again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// At `at`; and no wake for new work need come before `floor`.
    At {
        /// The next run.
        at: Timestamp,
        /// Nothing can be admitted before that, whatever arrives.
        floor: Option<Timestamp>,
    },
    /// Not at all, until something wakes it.
    Idle,
}

/// Why a destination's next attempt is not admitted now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Blocked {
    /// A limit of zero.
    Paused,
    /// The receiver asked for a hold.
    Hold,
    /// A limit, until its next slot.
    Limit,
    /// `max_in_flight`.
    Concurrency,
    /// The workers' places, all destinations together.
    Places,
    /// Starts that a newly coarse limit has yet to count.
    Counting,
}

impl Blocked {
    /// The word, for logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Paused => "paused",
            Self::Hold => "hold",
            Self::Limit => "limit",
            Self::Concurrency => "concurrency",
            Self::Places => "places",
            Self::Counting => "counting",
        }
    }
}

/// How far ahead this policy's slots are planned: so far that what is planned
/// stays within a quarter of `max_in_flight`.
#[must_use]
pub fn lead(policy: &Policy) -> Duration {
    let Rate::Limited(limited) = &policy.rate else {
        return MAX_LEAD;
    };
    let quarter = f64::from(policy.max_in_flight.max(4)) / 4.0;
    let seconds = quarter / limited.per_second().max(f64::MIN_POSITIVE);
    Duration::from_secs_f64(seconds.clamp(MIN_LEAD.as_secs_f64(), MAX_LEAD.as_secs_f64()))
}

/// How many waiting attempts a store has to read for one run: one more than
/// the run could admit, so that it knows whether more are left.
#[must_use]
pub fn read_ahead(policy: &Policy) -> u32 {
    let most = match &policy.rate {
        Rate::Paused => 0,
        Rate::Unlimited => MAX_BATCH,
        Rate::Limited(limited) => limited
            .windows
            .iter()
            .map(|limit| limit.max.get())
            .min()
            .unwrap_or(MAX_BATCH),
    };
    most.min(policy.max_in_flight).min(MAX_BATCH) + 1
}

/// Which starts a store has to read one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewestStarts {
    /// How far back.
    pub period: Duration,
    /// How many at most, the newest.
    pub count: u32,
}

/// The most starts that are read for a bucket that has just come into force.
const BUCKET_STARTS_MAX: u32 = 2 * EXACT_MAX;

/// Which starts [`Usage::starts`] must hold for this policy; `None` for none.
///
/// Those in the windows that are counted one by one, and, while the bucket's
/// level is not known, those that it has to be computed from.
#[must_use]
pub fn newest_starts(policy: &Policy, meter: Meter) -> Option<NewestStarts> {
    let Rate::Limited(limited) = &policy.rate else {
        return None;
    };
    let windows = (limited.windows.iter())
        .filter(|limit| !limit.is_coarse())
        .map(|limit| (policy.stretched(limit.period), limit.max.get()));
    let unknown = limited.pacing.filter(|_| meter == Meter::default());
    let bucket = unknown.map(|pacing| {
        let refill = pacing.refill.max.get();
        let count = pacing.burst.saturating_add(refill).min(BUCKET_STARTS_MAX);
        let period = policy.stretched(pacing.refill.period);
        (period.mul_f64(f64::from(count) / f64::from(refill)), count)
    });
    let (period, count) = windows
        .chain(bucket)
        .reduce(|a, b| (a.0.max(b.0), a.1.max(b.1)))?;
    Some(NewestStarts { period, count })
}

/// Decides one run of one destination at `now`.
///
/// `places` bounds the permits by what the fleet's workers have room for.
/// Pure and total: the same arguments give the same decision, and none panics.
///
/// ```
/// use domain::admission::{admit, Backlog, Usage};
/// use domain::policy::LimitSettings;
/// use domain::time::Timestamp;
///
/// let policy = LimitSettings { per_second: Some(3), ..LimitSettings::default() }.policy();
/// let now = Timestamp::from_millis(10_000);
/// let started = |ms| Timestamp::from_millis(ms);
/// // Two of three have started within the last second, five wait.
/// let usage = Usage { starts: vec![started(9_700), started(9_100)], ..Usage::default() };
/// let backlog = Backlog { due: 5, next_due: None };
/// let decision = admit(&policy, &usage, &backlog, 1_000, now);
/// let slots: Vec<_> = decision.slots.iter().map(|slot| slot.not_before).collect();
/// // One at once; the next when the start of 9.1 s leaves the window.
/// assert_eq!(slots, [now, started(10_100)]);
/// ```
pub fn admit(
    policy: &Policy,
    usage: &Usage,
    backlog: &Backlog,
    places: u32,
    now: Timestamp,
) -> Decision {
    let horizon = now + lead(policy);
    let plan = Plan::new(policy, usage, now, horizon);
    plan.decide(backlog, places)
}

/// One run in the making.
struct Plan<'a> {
    policy: &'a Policy,
    usage: &'a Usage,
    now: Timestamp,
    /// Slots after this are left to a later run.
    horizon: Timestamp,
    /// Nothing starts before this: now, or the end of a hold.
    from: Timestamp,
    /// The bucket's level before this run.
    meter: Meter,
}

impl<'a> Plan<'a> {
    fn new(policy: &'a Policy, usage: &'a Usage, now: Timestamp, horizon: Timestamp) -> Self {
        let from = usage.held_until.map_or(now, |until| until.max(now));
        let mut plan = Self {
            policy,
            usage,
            now,
            horizon,
            from,
            meter: usage.meter,
        };
        if let Some(pacing) = plan.pacing().filter(|_| usage.meter == Meter::default()) {
            plan.meter = Meter::from_starts(&usage.starts, pacing, plan.refill_micros(pacing));
        }
        plan
    }

    fn decide(&self, backlog: &Backlog, places: u32) -> Decision {
        let stopped = |blocked, look| Decision {
            slots: Vec::new(),
            look,
            blocked: Some(blocked),
            meter: self.meter,
            crowded: false,
        };
        if self.policy.rate == Rate::Paused {
            return stopped(Blocked::Paused, Look::Idle);
        }
        if self.usage.incomplete {
            let at = self.now + MIN_LEAD;
            return stopped(
                Blocked::Counting,
                Look::At {
                    at,
                    floor: Some(at),
                },
            );
        }
        if self.from > self.horizon && backlog.due > 0 {
            let (at, floor) = (self.from, Some(self.from));
            return stopped(Blocked::Hold, Look::At { at, floor });
        }
        let queued = u32::try_from(self.usage.outstanding.len()).unwrap_or(u32::MAX);
        let free = (self.policy.max_in_flight)
            .saturating_sub(queued)
            .saturating_sub(self.usage.in_flight);
        let cap = backlog.due.min(free).min(places).min(MAX_BATCH);
        let (slots, meter) = self.slots(cap);
        let given = u32::try_from(slots.len()).unwrap_or(u32::MAX);
        // Without a bucket the level means nothing any more: one that comes
        // into force later has to count the starts made meanwhile.
        let meter = self.pacing().map_or_else(Meter::default, |_| meter);
        let blocked = self.what_blocks(given, backlog, free, places);
        let used = self.policy.max_in_flight.saturating_sub(free) + given;
        Decision {
            look: self.look(&slots, meter, backlog, blocked),
            crowded: used.saturating_mul(2) >= self.policy.max_in_flight
                || blocked == Some(Blocked::Places),
            slots,
            blocked,
            meter,
        }
    }

    fn what_blocks(
        &self,
        given: u32,
        backlog: &Backlog,
        free: u32,
        places: u32,
    ) -> Option<Blocked> {
        if given >= backlog.due || given >= MAX_BATCH {
            None
        } else if given >= free {
            Some(Blocked::Concurrency)
        } else if given >= places {
            Some(Blocked::Places)
        } else {
            Some(Blocked::Limit)
        }
    }

    /// Up to `cap` slots within the horizon, and the bucket's level after them.
    fn slots(&self, cap: u32) -> (Vec<Slot>, Meter) {
        let mut windows = self.windows(|outstanding| outstanding.deadline);
        let mut meter = self.meter;
        let mut slots: Vec<Slot> = Vec::new();
        while slots.len() < cap as usize {
            let earliest = slots.last().map_or(self.from, |slot| slot.not_before);
            let Some(not_before) = self.next_slot(&mut windows, meter, earliest) else {
                break;
            };
            if not_before > self.horizon {
                break;
            }
            if let Some(pacing) = self.pacing() {
                meter = meter.charged(pacing, self.refill_micros(pacing), not_before);
            }
            windows.iter_mut().for_each(Window::take);
            slots.push(Slot {
                not_before,
                deadline: not_before + self.patience(),
            });
        }
        (slots, meter)
    }

    /// The next instant, `earliest` or later, that every window and the bucket
    /// allow; `None` where a window waits for a start that has no time yet.
    fn next_slot(
        &self,
        windows: &mut [Window],
        meter: Meter,
        earliest: Timestamp,
    ) -> Option<Timestamp> {
        let mut at = earliest;
        for window in windows.iter_mut() {
            at = at.max(window.opens()?);
        }
        if let Some(pacing) = self.pacing() {
            at = meter.next_token(pacing, self.refill_micros(pacing), at);
        }
        Some(at)
    }

    /// When to look again.
    fn look(
        &self,
        slots: &[Slot],
        meter: Meter,
        backlog: &Backlog,
        blocked: Option<Blocked>,
    ) -> Look {
        let given = u32::try_from(slots.len()).unwrap_or(u32::MAX);
        match blocked {
            Some(Blocked::Concurrency | Blocked::Places) => Look::At {
                at: self.now + LOOK_WHEN_CROWDED,
                floor: Some(self.now + CROWDED_FLOOR),
            },
            Some(_) => {
                let at = self.reopens(slots, meter);
                Look::At {
                    at,
                    floor: Some(at),
                }
            }
            None if given < backlog.due => Look::At {
                at: self.now,
                floor: None,
            },
            None => self.look_when_empty(slots, meter, backlog),
        }
    }

    /// The backlog is empty: look when the next retry is due, or when the last
    /// permit has run out (to remove the job then), but a wake may come as
    /// soon as a slot opens.
    fn look_when_empty(&self, slots: &[Slot], meter: Meter, backlog: &Backlog) -> Look {
        let last_deadline = (self.usage.outstanding.iter())
            .map(|outstanding| outstanding.deadline)
            .chain(slots.iter().map(|slot| slot.deadline))
            .max()
            // One that is past it is the reaper's, and the reaper wakes.
            .map(|deadline| match deadline > self.now {
                true => deadline,
                false => self.now + LOOK_WHEN_CROWDED,
            });
        let reopens = self.reopens(slots, meter);
        let floor = (reopens > self.now + CROWDED_FLOOR).then_some(reopens);
        let at = [last_deadline, backlog.next_due]
            .into_iter()
            .flatten()
            .min();
        at.map_or(Look::Idle, |at| Look::At {
            at: at.max(self.now + Duration::from_millis(1)),
            floor,
        })
    }

    /// When a further slot may be planned if what is outstanding starts on
    /// time: half a lead before it opens, so that runs coalesce, and always
    /// in the future.
    fn reopens(&self, slots: &[Slot], meter: Meter) -> Timestamp {
        let mut windows = self.windows(|outstanding| outstanding.not_before.max(self.now));
        for window in &mut windows {
            window.start_at(slots.iter().map(|slot| slot.not_before));
        }
        let earliest = slots.last().map_or(self.from, |slot| slot.not_before);
        let opens = (self.next_slot(&mut windows, meter, earliest)).unwrap_or(self.horizon);
        let half = lead(self.policy) / 2;
        (opens - half).max(self.now + Duration::from_millis(1))
    }

    fn limited(&self) -> Option<&'a Limited> {
        match &self.policy.rate {
            Rate::Limited(limited) => Some(limited),
            Rate::Paused | Rate::Unlimited => None,
        }
    }

    fn pacing(&self) -> Option<Pacing> {
        self.limited().and_then(|limited| limited.pacing)
    }

    fn refill_micros(&self, pacing: Pacing) -> i64 {
        micros(self.policy.stretched(pacing.refill.period)).max(1)
    }

    fn patience(&self) -> Duration {
        if self.pacing().is_some() {
            SLACK
        } else {
            GRACE
        }
    }

    /// The windows as they stand, with each outstanding permit counted where
    /// `counted_at` says: at its deadline, to be safe.
    fn windows(&self, counted_at: impl Fn(&Outstanding) -> Timestamp) -> Vec<Window> {
        let Some(limited) = self.limited() else {
            return Vec::new();
        };
        let outstanding: Vec<_> = (self.usage.outstanding.iter())
            .map(|one| (counted_at(one), 1))
            .collect();
        let count = |limit: &crate::limit::Limit| {
            let mut ends = outstanding.clone();
            if limit.is_coarse() {
                let of_period = (self.usage.coarse.iter()).filter(|c| c.period == limit.period);
                for coarse in of_period {
                    ends.extend(coarse.buckets.iter().map(|b| (b.ends_at, b.starts)));
                    ends.extend(coarse.unfolded.iter().map(|start| (*start, 1)));
                }
            } else {
                ends.extend(self.usage.starts.iter().map(|start| (*start, 1)));
            }
            Window::new(limit.max.get(), self.policy.stretched(limit.period), ends)
        };
        limited.windows.iter().map(count).collect()
    }
}

/// One sliding window: the ends in it, the latest first.
struct Window {
    period: Duration,
    /// The latest `max` ends, the latest first, with their weights, none of
    /// them zero; what is beyond them cannot matter.
    ends: VecDeque<(Timestamp, u32)>,
    /// How many more may be taken before the last of `ends` matters.
    spare: u32,
}

impl Window {
    fn new(max: u32, period: Duration, mut ends: Vec<(Timestamp, u32)>) -> Self {
        ends.sort_unstable_by_key(|(end, _)| std::cmp::Reverse(*end));
        let mut room = max;
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
    /// where all L places were taken in this very run.
    fn opens(&self) -> Option<Timestamp> {
        if self.spare > 0 {
            return Some(Timestamp::MIN);
        }
        self.ends.back().map(|(end, _)| *end + self.period)
    }

    /// Takes the slot that [`Window::opens`] named. The new permit's end is
    /// later than any other that matters, so what falls off is the earliest.
    fn take(&mut self) {
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
    fn start_at(&mut self, slots: impl Iterator<Item = Timestamp>) {
        for slot in slots {
            self.take();
            self.ends.push_front((slot, 1));
        }
    }
}
