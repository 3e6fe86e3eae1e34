//! One run in the making: slots, and when to look again.

mod openings;

use std::time::Duration;

pub use openings::{Gate, Opening, openings};

use super::crowd::Crowd;
use super::window::Window;
use super::{
    Backlog, Blocked, CROWDED_FLOOR, Decision, GRACE, LOOK_WHEN_CROWDED, Look, MAX_BATCH, MIN_LEAD,
    Meter, Outstanding, SLACK, Slot, Usage, lead,
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
    pub(super) fn new(
        policy: &'a Policy,
        usage: &'a Usage,
        now: Timestamp,
        horizon: Timestamp,
    ) -> Self {
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

    pub(super) fn decide(&self, backlog: &Backlog, places: u32) -> Decision {
        let stopped = |blocked, look| Decision {
            slots: Vec::new(),
            look,
            blocked: Some(blocked),
            meter: self.meter,
            crowd: None,
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
        let most = self.max_in_flight();
        let free = most
            .saturating_sub(queued)
            .saturating_sub(self.usage.in_flight);
        let cap = backlog.due.min(free).min(places).min(MAX_BATCH);
        let (slots, meter) = self.slots(cap);
        let given = u32::try_from(slots.len()).unwrap_or(u32::MAX);
        let blocked = self.what_blocks(given, backlog, free, places);
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
    fn crowd(&self, used: u32, blocked: Option<Blocked>) -> Option<Crowd> {
        match blocked {
            Some(Blocked::Places) => Some(Crowd::EACH),
            _ if used.saturating_mul(2) >= self.max_in_flight() => Some(Crowd::of(used)),
            // Where answers count, each may make room.
            _ if self.policy.count == Count::Response => Some(Crowd::of(used)),
            _ => None,
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
        let mut windows = self.windows(Counted::ToBeSafe);
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
            self.take(&mut windows, not_before);
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

    /// Takes a slot of every window. The pace counts it where it is, the limits
    /// at its deadline, which is later than anything that matters to this run.
    fn take(&self, windows: &mut [Window], slot: Timestamp) {
        let (pace, limits) = match (self.policy.pace, windows.split_last_mut()) {
            (Some(_), Some((pace, limits))) => (Some(pace), limits),
            _ => (None, windows),
        };
        limits.iter_mut().for_each(Window::take);
        if let Some(pace) = pace {
            pace.start_at([slot].into_iter());
        }
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
        let when_woken = Look::At {
            at: self.now + LOOK_WHEN_CROWDED,
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
        let reopens = self.before(self.reopens(slots, meter).unwrap_or(self.horizon));
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

    /// When a further slot opens if what is outstanding starts on time, and where
    /// answers count is answered at once; `None` where that has no time yet.
    fn reopens(&self, slots: &[Slot], meter: Meter) -> Option<Timestamp> {
        let mut windows = self.windows(Counted::OnTime);
        for window in &mut windows {
            window.start_at(slots.iter().map(|slot| slot.not_before));
        }
        let earliest = slots.last().map_or(self.from, |slot| slot.not_before);
        self.next_slot(&mut windows, meter, earliest)
    }

    /// When a slot is planned that opens then: half a lead before, so that runs
    /// coalesce, and always in the future.
    fn before(&self, opens: Timestamp) -> Timestamp {
        let half = lead(self.policy) / 2;
        (opens - half).max(self.now + Duration::from_millis(1))
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

    /// The windows as they stand. The pace comes last.
    fn windows(&self, counted: Counted) -> Vec<Window> {
        let limits = self.limits(counted);
        limits.into_iter().chain(self.pace()).collect()
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
        let end = |one: &Outstanding| match counted {
            Counted::ToBeSafe => one.deadline,
            Counted::OnTime => one.not_before.max(self.now),
        };
        let outstanding: Vec<_> = (self.usage.outstanding.iter())
            .map(|one| (end(one), 1))
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

/// Where a window counts a permit that may still start.
#[derive(Clone, Copy)]
enum Counted {
    /// At its deadline. Where answers count its end is later still, but no slot of this run
    /// is a period after the deadline: a lead is shorter than any period.
    ToBeSafe,
    /// At its slot, or now.
    OnTime,
}
