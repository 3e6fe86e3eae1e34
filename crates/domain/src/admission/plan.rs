//! One run in the making: slots, and when to look again.

mod openings;

use std::time::Duration;

pub use openings::{Gate, Opening, openings};

use super::crowd::Crowd;
use super::window::Window;
use super::{
    BUSY_FLOOR, Backlog, Blocked, CROWDED_FLOOR, Decision, GRACE, GROUP_LEAD, LOOK_WHEN_CROWDED,
    LOOK_WHEN_NONE_WAKES, Look, MAX_BATCH, MIN_LEAD, Meter, Outstanding, SLACK, Slot, Usage, lead,
};
use crate::limit::{Count, Limit};
use crate::policy::{Limited, Pacing, Policy, Rate};
use crate::time::{Timestamp, micros};

/// One run in the making.
pub(super) struct Plan<'a> {
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
    pub(super) fn new(policy: &'a Policy, usage: &'a Usage, now: Timestamp) -> Self {
        let horizon = now + lead_of(policy, usage);
        let from = usage.admits_from().map_or(now, |until| until.max(now));
        let mut plan = Self {
            policy,
            usage,
            now,
            horizon,
            from,
            meter: usage.meter,
        };
        if let Some(pacing) = plan.pacing().filter(|_| usage.recount) {
            let period = plan.refill_micros(pacing);
            plan.meter = usage.meter.recounted(&usage.claims, pacing, period);
        }
        plan
    }

    /// `places` are the fleet's, `of_group` what its group leaves to it.
    pub(super) fn decide(&self, backlog: &Backlog, (places, of_group): (u32, u32)) -> Decision {
        let stopped = |blocked, look| Decision {
            slots: Vec::new(),
            look,
            blocked: Some(blocked),
            meter: self.meter,
            crowd: None,
        };
        let group = self.usage.group.as_ref();
        if self.policy.rate == Rate::Paused || group.is_some_and(|group| group.limits.is_paused()) {
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
        let most = self.max_in_flight();
        let free = most
            .saturating_sub(queued)
            .saturating_sub(self.usage.in_flight);
        let cap = backlog.due.min(free).min(places).min(MAX_BATCH);
        let cap = cap.min(of_group);
        let (slots, meter, by_group) = self.slots(cap);
        let given = u32::try_from(slots.len()).unwrap_or(u32::MAX);
        let blocked = match self.what_blocks(given, backlog, free, places) {
            Some(Blocked::Limit) if by_group || given >= of_group => Some(Blocked::Group),
            other => other,
        };
        let used = most.saturating_sub(free) + given;
        Decision {
            look: self.look(&slots, meter, backlog, blocked),
            crowd: self.crowd(used, blocked),
            slots,
            blocked,
            meter,
        }
    }

    /// What comes later may find its concurrency used up: so from half of it on.
    ///
    /// It decides when somebody looks, and nothing else: a run admits by the rule whenever it
    /// comes, so the theorem holds whoever wakes, and however late.
    fn crowd(&self, used: u32, blocked: Option<Blocked>) -> Option<Crowd> {
        let crowd = match blocked {
            Some(Blocked::Places) => Some(Crowd::of_places(used)),
            _ if used.saturating_mul(2) >= self.max_in_flight() => Some(Crowd::of(used)),
            // Where answers count, each may make room.
            _ if self.policy.count == Count::Response => Some(Crowd::of(used)),
            _ => None,
        };
        match self.usage.wakes {
            true => crowd,
            false => crowd.map(Crowd::first),
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

    /// Up to `cap` slots within the horizon, the bucket's level after them, and whether it
    /// is the group that has no more.
    fn slots(&self, cap: u32) -> (Vec<Slot>, Meter, bool) {
        let mut windows = self.windows(Counted::ToBeSafe);
        let (mut meter, mut by_group) = (self.meter, false);
        let mut slots: Vec<Slot> = Vec::new();
        while slots.len() < cap as usize {
            let earliest = slots.last().map_or(self.from, |slot| slot.not_before);
            let at = self.next_slot(&windows, meter, earliest);
            let Some(not_before) = at.filter(|at| *at <= self.horizon) else {
                by_group = windows.group_opens_after(self.horizon);
                break;
            };
            if let Some(pacing) = self.pacing() {
                meter = meter.charged(pacing, self.refill_micros(pacing), not_before);
            }
            windows.take(not_before);
            slots.push(Slot {
                not_before,
                deadline: not_before + self.patience(),
            });
        }
        (slots, meter, by_group)
    }

    /// The next instant, `earliest` or later, that every window and the bucket
    /// allow; `None` where a window waits for a start that has no time yet.
    fn next_slot(&self, windows: &Windows, meter: Meter, earliest: Timestamp) -> Option<Timestamp> {
        let mut at = earliest;
        for window in windows.all() {
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
        // All that is out was given while nobody waited for its room, or nothing is out.
        let none_wakes = given == 0 && !self.usage.wakes;
        let when_woken = Look::At {
            at: match blocked == Some(Blocked::Places) && none_wakes {
                true => self.now + LOOK_WHEN_NONE_WAKES,
                false => self.now + LOOK_WHEN_CROWDED,
            },
            floor: Some(self.now + CROWDED_FLOOR),
        };
        match blocked {
            Some(Blocked::Concurrency | Blocked::Places) => when_woken,
            Some(_) => match self.reopens(slots, meter) {
                // An answer opens it.
                None if self.policy.count == Count::Response => when_woken,
                at => {
                    let at = self.before(at.unwrap_or(self.horizon));
                    Look::At {
                        at,
                        floor: Some(at),
                    }
                }
            },
            None if given < backlog.due => Look::At {
                at: self.now,
                floor: None,
            },
            None => self.look_when_empty(slots, meter, backlog),
        }
    }

    /// It has permits queued or in flight.
    fn is_busy(&self) -> bool {
        self.usage.in_flight > 0 || !self.usage.outstanding.is_empty()
    }

    /// The backlog is empty: look when the next retry is due, or when the last
    /// permit has run out (to remove the job then), but a wake may come as
    /// soon as a slot opens.
    ///
    /// And where it is busy no sooner than [`BUSY_FLOOR`]. One that stood idle is looked at as
    /// soon as something else comes: neither a lone event waits, nor the one behind it.
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
        let reopens = self.before(self.reopens(slots, meter).unwrap_or(self.horizon));
        let busy = (self.is_busy() && !slots.is_empty()).then(|| self.now + BUSY_FLOOR);
        let reopens = (reopens > self.now + CROWDED_FLOOR).then_some(reopens);
        let floor = reopens.max(busy);
        let at = [last_deadline, backlog.next_due]
            .into_iter()
            .flatten()
            .min();
        at.map_or(Look::Idle, |at| Look::At {
            at: at.max(self.now + Duration::from_millis(1)),
            floor,
        })
    }

    /// When a further slot opens if what is outstanding starts on time, and where
    /// answers count is answered at once; `None` where that has no time yet.
    fn reopens(&self, slots: &[Slot], meter: Meter) -> Option<Timestamp> {
        let mut windows = self.windows(Counted::OnTime);
        for window in windows.all_mut() {
            window.start_at(slots.iter().map(|slot| slot.not_before));
        }
        let earliest = slots.last().map_or(self.from, |slot| slot.not_before);
        self.next_slot(&windows, meter, earliest)
    }

    /// When a slot is planned that opens then: half a lead before, so that runs
    /// coalesce, and always in the future.
    ///
    /// A permit of another member of its group may end unused, and nobody says so here: while
    /// one is out, no look is far away.
    fn before(&self, opens: Timestamp) -> Timestamp {
        let half = lead_of(self.policy, self.usage) / 2;
        let at = opens - half;
        let group = self.usage.group.as_ref();
        let at = match group.is_some_and(|group| group.has_permits_out()) {
            true => at.min(self.now + LOOK_WHEN_CROWDED),
            false => at,
        };
        at.max(self.now + Duration::from_millis(1))
    }

    /// Queued and in flight at once.
    fn max_in_flight(&self) -> u32 {
        match self.usage.probing {
            true => self.policy.max_in_flight.min(1),
            false => self.policy.max_in_flight,
        }
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
        micros(self.policy.refill_period(pacing)).max(1)
    }

    fn patience(&self) -> Duration {
        if self.pacing().is_some() {
            SLACK
        } else {
            GRACE
        }
    }

    /// The windows as they stand.
    fn windows(&self, counted: Counted) -> Windows {
        let group = self.usage.group.as_ref();
        Windows {
            own: self.limits(counted),
            group: group.map_or_else(Vec::new, |group| {
                group.windows(|one| self.end(one, counted), self.now)
            }),
            pace: self.pace(),
        }
    }

    /// Where a permit is counted that may still start.
    fn end(&self, one: &Outstanding, counted: Counted) -> Timestamp {
        match counted {
            Counted::ToBeSafe => one.deadline,
            Counted::OnTime => one.not_before.max(self.now),
        }
    }

    /// The pace as it stands, by slots and claims. A permit that is late is counted
    /// as if it were claimed just now.
    fn pace(&self) -> Option<Window> {
        let pace = self.policy.pace?;
        let soonest = self.now - MIN_LEAD;
        let outstanding = self.usage.outstanding.iter();
        let slots = outstanding.map(|one| one.not_before.max(soonest));
        let claims = self.usage.claims.iter().copied();
        let ends = slots.chain(claims).map(|end| (end, 1)).collect();
        Some(Window::new((pace.max(), 0), pace.period(), ends))
    }

    fn limits(&self, counted: Counted) -> Vec<Window> {
        let Some(limited) = self.limited() else {
            return Vec::new();
        };
        let outstanding: Vec<_> = (self.usage.outstanding.iter())
            .map(|one| (self.end(one, counted), 1))
            .collect();
        let window = |limit: &Limit| {
            // A coarse window counts starts, and is longer by any answer.
            let unanswered = match limit.is_coarse() {
                true => 0,
                false => self.usage.unanswered(self.policy),
            };
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
            let most = (limit.max.get(), unanswered);
            Window::new(most, self.policy.stretched(*limit), ends)
        };
        limited.windows.iter().map(window).collect()
    }
}

/// How far ahead its slots are planned.
fn lead_of(policy: &Policy, usage: &Usage) -> Duration {
    match usage.group {
        Some(_) => GROUP_LEAD,
        None => lead(policy),
    }
}

/// All windows that a slot has to pass.
struct Windows {
    own: Vec<Window>,
    group: Vec<Window>,
    pace: Option<Window>,
}

impl Windows {
    fn all(&self) -> impl Iterator<Item = &Window> {
        self.own.iter().chain(&self.group).chain(&self.pace)
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Window> {
        (self.own.iter_mut())
            .chain(&mut self.group)
            .chain(&mut self.pace)
    }

    /// Takes a slot of every window. The pace counts it where it is, the limits
    /// at its deadline, which is later than anything that matters to this run.
    fn take(&mut self, slot: Timestamp) {
        self.own.iter_mut().for_each(Window::take);
        self.group.iter_mut().for_each(Window::take);
        if let Some(pace) = &mut self.pace {
            pace.start_at([slot].into_iter());
        }
    }

    /// Whether the group is full until then, and its member's own windows are not.
    fn group_opens_after(&self, horizon: Timestamp) -> bool {
        let late = |window: &Window| window.opens().is_none_or(|at| at > horizon);
        self.group.iter().any(late) && !self.own.iter().chain(&self.pace).any(late)
    }
}

/// Where a window counts a permit that may still start.
#[derive(Clone, Copy)]
enum Counted {
    /// At its deadline. Where answers count its end is later still, but no slot of this run
    /// is a period after the deadline: a lead is shorter than any period.
    ToBeSafe,
    /// At its slot, or now.
    OnTime,
}
