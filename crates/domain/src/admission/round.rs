//! One round: what a scheduler's batch of destinations is given.
//!
//! ```text
//!   read ──► decide each ──► share between tenants, ──► decide again ──► number ──► write
//!            for itself      and a tenant's between     with its share    permits
//!                            its destinations
//! ```
//!
//! The store locks, reads the [`Candidate`]s and writes what comes out; it makes
//! no choices.
//!
//! **A share breaks no limit.** Who gets less than it could have is decided
//! again with so many places, by the same rule and on the same usage; it is not
//! cut short. So each of its permits was admitted by the rule of
//! [`crate::admission`], whatever the others asked for, and the theorem holds of
//! each destination as if it had been alone. A decision that were cut short would
//! charge the meter for what nobody got, and would look again at the wrong time.
//!
//! **Groups first.** Members of one limit group that are in the same round share what the
//! group has room for, and each is decided with what those before it were given as if they
//! had it already. Whoever then gets less of the fleet's places than that leaves room in the
//! group, which the next round finds.
//!
//! **A number is given once.** Permits are numbered from the last one on, in the
//! order of their slots. The store remembers the last number in the transaction
//! that marks the attempts, under the destination's lock; where an attempt could
//! not be marked after all, its number is spent.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::{
    Backlog, Blocked, Decision, GROUP_LEAD, Group, Look, Outstanding, Usage, admit, admit_share,
};
use crate::ids::{AttemptId, DestinationId, Epoch, PermitNumber, TenantId};
use crate::limit::Count;
use crate::limit_group::GroupName;
use crate::permit::Permit;
use crate::policy::Policy;
use crate::share::{Ask, Given, Room, share_between_tenants};
use crate::time::Timestamp;

/// A destination that a round decides about, as the store's rows say. Each is in
/// a round once: a second decision would not know of the first.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// Which.
    pub destination: DestinationId,
    /// Whose it is.
    pub tenant: TenantId,
    /// The most that the tenant may have queued and in flight at once.
    pub tenant_max_in_flight: Option<u32>,
    /// What limits it now.
    pub policy: Policy,
    /// The epoch that its permits carry.
    pub epoch: Epoch,
    /// The number of the last permit that it was given.
    pub last_permit: PermitNumber,
    /// What it uses of its limits.
    pub usage: Usage,
    /// What waits and is due, in the order in which it goes, up to
    /// [`super::read_ahead`]; where requests are batches, what opens them.
    pub due: Vec<AttemptId>,
    /// How many wait in the urgent lane, counted as far.
    pub urgent: u32,
    /// When the earliest of the others is due.
    pub next_due: Option<Timestamp>,
}

impl Candidate {
    /// What waits, in figures.
    #[must_use]
    pub fn backlog(&self) -> Backlog {
        Backlog {
            due: u32::try_from(self.due.len()).unwrap_or(u32::MAX),
            urgent: self.urgent,
            next_due: self.next_due,
        }
    }

    /// Without a group's others.
    fn decide(&self, places: u32, now: Timestamp) -> Decision {
        admit(&self.policy, &self.usage, &self.backlog(), places, now)
    }

    /// Who gets which slot, numbered.
    fn numbered(&self, usage: &Usage, decision: Decision, now: Timestamp) -> Decided {
        let permit = |((attempt, slot), number): ((&AttemptId, &super::Slot), i64)| Permit {
            destination: self.destination,
            attempt: *attempt,
            number: PermitNumber(number),
            epoch: self.epoch,
            not_before: slot.not_before,
            deadline: slot.deadline,
        };
        let slots = self.due.iter().zip(&decision.slots);
        let permits: Vec<Permit> = slots.zip(self.last_permit.0 + 1..).map(permit).collect();
        Decided {
            last_permit: permits.last().map_or(self.last_permit, |last| last.number),
            permits,
            is_coarse: self.policy.is_coarse(),
            by_response: self.policy.count == Count::Response,
            next_look_at: decision.looks_help_from(usage, now),
            decision,
        }
    }
}

/// What a round comes to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use]
pub struct Round {
    /// One for each candidate, in their order.
    pub decided: Vec<Decided>,
    /// The new permits of each tenant, in id order.
    pub given: Vec<Given>,
}

/// What is decided for one destination.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Decided {
    /// Its new permits, in the order of their slots and numbers.
    pub permits: Vec<Permit>,
    /// The last number that is given by now.
    pub last_permit: PermitNumber,
    /// Their starts count in a coarse limit.
    pub is_coarse: bool,
    /// They are counted at the ends of their answers ([`Count::Response`]).
    pub by_response: bool,
    /// From when on a look may help; see [`Decision::looks_help_from`].
    pub next_look_at: Option<Timestamp>,
    /// When to look again, what blocks the rest, and what admission remembers.
    pub decision: Decision,
}

impl Decided {
    /// Whether the outcome of the attempt with this permit wakes the destination.
    #[must_use]
    pub fn wakes(&self, permit: PermitNumber) -> bool {
        self.decision.wakes(permit, self.last_permit)
    }
}

/// Decides one round at `now`: the store's clock. `room`
/// bounds the permits of all of them together.
///
/// Pure and total, like [`admit`].
pub fn round<'a>(
    room: &Room,
    candidates: impl IntoIterator<Item = &'a Candidate>,
    now: Timestamp,
) -> Round {
    let mut all: Vec<Deciding> = (candidates.into_iter())
        .map(|candidate| Deciding::alone(candidate, now))
        .collect();
    share_groups(&mut all, now);
    let asks: Vec<Ask> = all.iter().map(Deciding::ask).collect();
    for (one, places) in all.iter_mut().zip(share_between_tenants(room, &asks)) {
        if places < permits_of(&one.decision) {
            one.decide(places, now);
        }
    }
    look_together(&mut all, now);
    let of_tenant = |one: &Deciding| (one.candidate.tenant, permits_of(&one.decision));
    Round {
        given: Given::by_tenant(all.iter().map(of_tenant)),
        decided: (all.into_iter())
            .map(|one| one.candidate.numbered(&one.usage, one.decision, now))
            .collect(),
    }
}

/// A candidate, and what it is given so far.
struct Deciding<'a> {
    candidate: &'a Candidate,
    /// Of a member of a group that others of the round are in: with what they are given
    /// before it.
    usage: Cow<'a, Usage>,
    /// Its share of what its group has room for.
    of_group: u32,
    decision: Decision,
}

impl<'a> Deciding<'a> {
    fn alone(candidate: &'a Candidate, now: Timestamp) -> Self {
        Self {
            decision: candidate.decide(u32::MAX, now),
            usage: Cow::Borrowed(&candidate.usage),
            of_group: u32::MAX,
            candidate,
        }
    }

    fn decide(&mut self, places: u32, now: Timestamp) {
        let Candidate { policy, .. } = self.candidate;
        let places = (places, self.of_group);
        self.decision = admit_share(policy, &self.usage, &self.candidate.backlog(), places, now);
    }

    fn ask(&self) -> Ask {
        Ask {
            tenant: self.candidate.tenant,
            wants: permits_of(&self.decision),
            tenant_max_in_flight: self.candidate.tenant_max_in_flight,
        }
    }

    fn permits(&self) -> impl Iterator<Item = Outstanding> {
        self.decision.slots.iter().map(|slot| Outstanding {
            not_before: slot.not_before,
            deadline: slot.deadline,
        })
    }
}

/// Which of the round are members of the same group, where there is more than one.
type Members = Vec<(Arc<Group>, Vec<usize>)>;

fn by_group(all: &[Deciding<'_>]) -> Members {
    let mut groups: BTreeMap<(TenantId, &GroupName), Vec<usize>> = BTreeMap::new();
    for (index, one) in all.iter().enumerate() {
        if let Some(group) = &one.candidate.usage.group {
            let members = groups.entry((group.tenant, &group.name)).or_default();
            members.push(index);
        }
    }
    let group = |members: Vec<usize>| {
        let group = all[*members.first()?].candidate.usage.group.as_ref()?;
        Some((Arc::clone(group), members))
    };
    groups.into_values().filter_map(group).collect()
}

/// Members of one group are decided one after another, each with what those before it are
/// given, and none with more than its share: see [`Group`].
fn share_groups(all: &mut [Deciding<'_>], now: Timestamp) {
    for (mut group, members) in by_group(all) {
        if members.len() < 2 {
            continue;
        }
        let wants: Vec<(DestinationId, u32)> = (members.iter())
            .map(|index| &all[*index])
            .map(|one| (one.candidate.destination, permits_of(&one.decision)))
            .collect();
        let shares = group.shares(&wants, (now, now + GROUP_LEAD));
        for (place, share) in shares {
            let one = &mut all[members[place]];
            one.usage.to_mut().group = Some(Arc::clone(&group));
            if share < wants[place].1 {
                one.of_group = share;
            }
            one.decide(u32::MAX, now);
            let given: Vec<Outstanding> = one.permits().collect();
            Arc::make_mut(&mut group).give(one.candidate.destination, given.into_iter());
        }
    }
}

/// Those that wait for their group look again at one time, and not before all that it gave
/// in this round has left its windows.
fn look_together(all: &mut [Deciding<'_>], now: Timestamp) {
    for (mut group, members) in by_group(all) {
        for index in &members {
            let one = &all[*index];
            let given: Vec<Outstanding> = one.permits().collect();
            Arc::make_mut(&mut group).give(one.candidate.destination, given.into_iter());
        }
        let at = group.look_at(now);
        for index in members {
            let decision = &mut all[index].decision;
            if decision.blocked == Some(Blocked::Group) {
                let floor = Some(at);
                decision.look = Look::At { at, floor };
            }
        }
    }
}

fn permits_of(decision: &Decision) -> u32 {
    u32::try_from(decision.slots.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
