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
//! **A number is given once.** Permits are numbered from the last one on, in the
//! order of their slots. The store remembers the last number in the transaction
//! that marks the attempts, under the destination's lock; where an attempt could
//! not be marked after all, its number is spent.

use super::{Backlog, Decision, Usage, admit};
use crate::ids::{AttemptId, DestinationId, Epoch, PermitNumber, TenantId};
use crate::limit::Count;
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
    /// When the earliest of the others is due.
    pub next_due: Option<Timestamp>,
}

impl Candidate {
    /// What waits, in figures.
    #[must_use]
    pub fn backlog(&self) -> Backlog {
        Backlog {
            due: u32::try_from(self.due.len()).unwrap_or(u32::MAX),
            next_due: self.next_due,
        }
    }

    fn decide(&self, places: u32, now: Timestamp) -> Decision {
        admit(&self.policy, &self.usage, &self.backlog(), places, now)
    }

    fn ask(&self, decision: &Decision) -> Ask {
        Ask {
            tenant: self.tenant,
            wants: permits_of(decision),
            tenant_max_in_flight: self.tenant_max_in_flight,
        }
    }

    /// Who gets which slot, numbered.
    fn numbered(&self, decision: Decision, now: Timestamp) -> Decided {
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
            next_look_at: decision.looks_help_from(&self.usage, now),
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

/// Decides one round at `now`: the store's clock, read after the locks. `room`
/// bounds the permits of all of them together.
///
/// Pure and total, like [`admit`].
pub fn round<'a>(
    room: &Room,
    candidates: impl IntoIterator<Item = &'a Candidate>,
    now: Timestamp,
) -> Round {
    let alone: Vec<(&Candidate, Decision)> = (candidates.into_iter())
        .map(|candidate| (candidate, candidate.decide(u32::MAX, now)))
        .collect();
    let asks: Vec<Ask> = (alone.iter())
        .map(|(candidate, decision)| candidate.ask(decision))
        .collect();
    let shared = alone.into_iter().zip(share_between_tenants(room, &asks));
    let shared: Vec<(&Candidate, Decision)> = shared
        .map(|((candidate, decision), places)| {
            if places < permits_of(&decision) {
                (candidate, candidate.decide(places, now))
            } else {
                (candidate, decision)
            }
        })
        .collect();
    let of_tenant =
        |(candidate, decision): &(&Candidate, Decision)| (candidate.tenant, permits_of(decision));
    Round {
        given: Given::by_tenant(shared.iter().map(of_tenant)),
        decided: (shared.into_iter())
            .map(|(candidate, decision)| candidate.numbered(decision, now))
            .collect(),
    }
}

fn permits_of(decision: &Decision) -> u32 {
    u32::try_from(decision.slots.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
