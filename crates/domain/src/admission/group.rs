//! A limit that several destinations have together, as a run of one of them sees it.
//!
//! **The rule, once more.** Whoever admits a member holds the group's lock as well as the
//! member's, and reads, in a later statement than the lock, the permits and starts of all
//! members. Then p is admitted only if fewer than L_g of *these* have
//! `end(q) > not_before − P − J_g`. Nothing in the proof of [`crate::admission`] says whose
//! the permits are: it needs that admissions are serialised, and that each counts all that
//! may start in the window. So no window (w − P − J_g, w] holds more than L_g starts of the
//! group. A member gets what both rules allow, the later of the two instants.
//!
//! What a member started before it left counts as long as it is in a window; what it
//! started before it joined is counted as well, which can only make others wait.

use std::collections::BTreeMap;
use std::time::Duration;

use super::window::Window;
use super::{LOOK_WHEN_CROWDED, MAX_CLAIM_TO_SEND, Outstanding};
use crate::ids::{DestinationId, TenantId};
use crate::limit::Limit;
use crate::limit_group::{GroupLimits, GroupName};
use crate::margin::{Margin, together};
use crate::share::share;
use crate::time::Timestamp;

/// How far ahead slots of members are planned. The same for all of them: one that looked
/// further ahead than the others would take each slot before they see it.
pub const GROUP_LEAD: Duration = Duration::from_millis(50);

/// Members that wait for their group look at it together, at whole multiples of this by the
/// store's clock: so they meet in one batch, and share what opens.
const TOGETHER: i64 = 5_000;

/// What a group's members use of it, read in one statement after its lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Whose it is.
    pub tenant: TenantId,
    /// What its tenant calls it.
    pub name: GroupName,
    /// What it allows.
    pub limits: GroupLimits,
    /// Those whose starts may be in its windows: its members, and those that left.
    pub members: BTreeMap<DestinationId, Member>,
}

/// What one member uses.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Member {
    /// By how much its requests may meet those of others at the receiver. Groups count
    /// starts, so this is measured also where the member counts answers.
    pub margin: Option<Margin>,
    /// Permits that may still start.
    pub outstanding: Vec<Outstanding>,
    /// Starts in the longest window, at most as many as the largest limit, the newest; one
    /// that is not known yet is where it may be at the latest.
    pub starts: Vec<Timestamp>,
}

/// Margins are finite.
impl Eq for Member {}

impl Group {
    /// How long the window of this limit is planned: by the margin of all members together.
    #[must_use]
    pub fn stretched(&self, limit: Limit) -> Duration {
        let period = limit.period.duration();
        let margins = self.members.values().filter_map(|member| member.margin);
        period + together(margins, period)
    }

    /// How far back starts have to be read, and whoever left is remembered, whose last claim
    /// may have started later; with the largest margin that there is.
    #[must_use]
    pub fn reaches_back(limits: &GroupLimits) -> Duration {
        let longest = limits.windows().map(|limit| limit.period.duration()).max();
        longest.unwrap_or_default() * 2 + MAX_CLAIM_TO_SEND
    }

    /// How many starts of each member have to be read at most.
    #[must_use]
    pub fn reads(limits: &GroupLimits) -> u32 {
        let max = limits.windows().map(|limit| limit.max.get()).max();
        max.unwrap_or(0)
    }

    /// How many waiting attempts a store has to read for a run of a member, that would read
    /// so many without it ([`super::read_ahead`]).
    #[must_use]
    pub fn read_ahead(limits: &GroupLimits, alone: u32) -> u32 {
        let max = limits.windows().map(|limit| limit.max.get()).min();
        alone.min(max.unwrap_or(0).saturating_add(1))
    }

    /// The windows as they stand, permits counted where `end` says. Starts that were out of
    /// one by `now` are not in it: members bring what they started before they joined.
    pub(super) fn windows(
        &self,
        end: impl Fn(&Outstanding) -> Timestamp,
        now: Timestamp,
    ) -> Vec<Window> {
        let members = || self.members.values();
        let window = |limit: Limit| {
            let length = self.stretched(limit);
            let outstanding = members().flat_map(|member| member.outstanding.iter().map(&end));
            let starts = members().flat_map(|member| member.starts.iter().copied());
            let starts = starts.filter(|start| *start > now - length);
            let ends = outstanding.chain(starts).map(|end| (end, 1)).collect();
            Window::new((limit.max.get(), 0), length, ends)
        };
        self.limits.windows().map(window).collect()
    }

    /// Whether a permit is out, of any member.
    pub(super) fn has_permits_out(&self) -> bool {
        self.members
            .values()
            .any(|member| !member.outstanding.is_empty())
    }

    /// What its members use apart from permits that may still start.
    #[must_use]
    pub fn without_permits(&self) -> Self {
        let mut without = self.clone();
        for member in without.members.values_mut() {
            member.outstanding.clear();
        }
        without
    }

    /// What counts in its windows: starts, and permits as if they start on time.
    pub fn counted(&self) -> impl Iterator<Item = Timestamp> {
        (self.members.values()).flat_map(|member| {
            let permits = member.outstanding.iter().map(|one| one.not_before);
            permits.chain(member.starts.iter().copied())
        })
    }

    /// Whether this part of one of its limits is used, or nothing of it may start.
    #[must_use]
    pub fn is_used(&self, part: f64, now: Timestamp) -> bool {
        let used = |limit: Limit| {
            let since = now - self.stretched(limit);
            let starts = (self.members.values()).flat_map(|member| &member.starts);
            let started = starts.filter(|start| **start > since).count();
            started as f64 >= f64::from(limit.max.get()) * part
        };
        self.limits.is_paused() || self.limits.windows().any(used)
    }

    /// Counts permits that this very round gives.
    pub(super) fn give(
        &mut self,
        member: DestinationId,
        permits: impl Iterator<Item = Outstanding>,
    ) {
        let member = self.members.entry(member).or_default();
        member.outstanding.extend(permits);
    }

    /// When members that wait for it look again: shortly before it opens, all of them at
    /// the same time. Soon where a permit is out: one that ends unused makes room early, and
    /// only the member that had it is woken.
    pub(super) fn look_at(&self, now: Timestamp) -> Timestamp {
        let windows = self.windows(|one| one.not_before.max(now), now);
        let opens = windows.iter().filter_map(Window::opens).max();
        let at = opens.unwrap_or(now) - GROUP_LEAD / 2;
        let at = match self.has_permits_out() {
            true => at.min(now + LOOK_WHEN_CROWDED),
            false => at,
        };
        let micros = at.max(now + Duration::from_millis(1)).as_micros();
        let up = (TOGETHER - micros.rem_euclid(TOGETHER)) % TOGETHER;
        Timestamp::from_micros(micros.saturating_add(up))
    }

    /// How many slots of it open until then, `most` at most.
    fn room(&self, (now, horizon): (Timestamp, Timestamp), most: u32) -> u32 {
        let mut windows = self.windows(|one| one.deadline, now);
        let opens = |windows: &[Window]| {
            let opens: Option<Vec<_>> = windows.iter().map(Window::opens).collect();
            opens.is_some_and(|opens| opens.into_iter().all(|at| at <= horizon))
        };
        let mut room = 0;
        while room < most && opens(&windows) {
            windows.iter_mut().for_each(Window::take);
            room += 1;
        }
        room
    }

    /// What a member has of it: of its shortest window, and of its longest.
    fn has(&self, member: DestinationId, now: Timestamp) -> (u32, u32) {
        let Some(member) = self.members.get(&member) else {
            return (0, 0);
        };
        let within = |limit: Option<Limit>| {
            let since = limit.map_or(now, |limit| now - limit.period.duration());
            let starts = member.starts.iter().filter(|start| **start > since).count();
            u32::try_from(starts + member.outstanding.len()).unwrap_or(u32::MAX)
        };
        (
            within(self.limits.windows().next()),
            within(self.limits.windows().last()),
        )
    }

    /// Who of these goes first, and how much each is given of what opens until `horizon`:
    /// max-min, what they have had within the shortest window counted. Where that is the same,
    /// who has had least within the longest comes first: to him goes what division leaves
    /// over. So where one slot opens at a time, they take turns.
    pub(super) fn shares(
        &self,
        wants: &[(DestinationId, u32)],
        (now, horizon): (Timestamp, Timestamp),
    ) -> Vec<(usize, u32)> {
        let mut order: Vec<(usize, u32, u32)> = (wants.iter().enumerate())
            .map(|(index, (member, _))| {
                let (lately, all) = self.has(*member, now);
                (index, lately, all)
            })
            .collect();
        order.sort_by_key(|(index, lately, all)| (*lately, *all, *index));
        let wanted = wants
            .iter()
            .fold(0_u32, |sum, (_, wants)| sum.saturating_add(*wants));
        let room = self.room((now, horizon), wanted);
        let had = order
            .iter()
            .fold(0_u32, |sum, (_, had, _)| sum.saturating_add(*had));
        let demands: Vec<u32> = (order.iter())
            .map(|(index, had, _)| had.saturating_add(wants[*index].1))
            .collect();
        let fair = share(had.saturating_add(room), &demands);
        let lacking: Vec<u32> = (order.iter().zip(fair))
            .map(|((index, had, _), fair)| wants[*index].1.min(fair.saturating_sub(*had)))
            .collect();
        let given = share(room, &lacking);
        (order.iter().zip(given))
            .map(|((index, ..), given)| (*index, given))
            .collect()
    }
}
