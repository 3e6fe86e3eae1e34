//! What a witness knows of a limit group: what it allows, who is in it, and when its
//! requests were at their receivers.

use std::collections::BTreeMap;

use domain::compliance::{Arrival, InForce};
use domain::ids::{AttemptId, DestinationId};
use domain::time::Timestamp;
use engine::ports::Membership;

use super::Witness;
use super::room::Room;
use super::seen::{OfDestination, arrive};
use promises::Promise;

/// All of it.
#[derive(Default)]
pub(super) struct OfGroup {
    history: Vec<InForce>,
    room: Room,
    members: Vec<Membership>,
    /// Requests that members claimed: whose, which and when each left.
    sends: Vec<(DestinationId, AttemptId, Timestamp)>,
    /// When they were at their receivers, in order.
    arrivals: Vec<Arrival>,
}

impl OfGroup {
    /// Whether somebody is in it now, who counts what it claims from now on.
    pub(super) fn has(&self, destination: DestinationId) -> bool {
        let mut members = self.members.iter();
        members.any(|member| member.destination == destination && member.until.is_none())
    }

    /// Whether it was in it at a claim: one may be dated ahead of a leave.
    fn had(&self, destination: DestinationId, claimed_at: Timestamp) -> bool {
        let mut members = self.members.iter();
        members.any(|member| {
            let until = member.until.unwrap_or(Timestamp::MAX);
            member.destination == destination && (member.from..until).contains(&claimed_at)
        })
    }

    /// A request of a member is on its way, and judged with all that were before it.
    pub(super) fn sent(
        &mut self,
        (destination, of): (DestinationId, &OfDestination),
        attempt: AttemptId,
        (claimed_at, sent_at): (Timestamp, Timestamp),
    ) -> Promise {
        if !self.had(destination, claimed_at) {
            return Ok(());
        }
        self.sends.push((destination, attempt, sent_at));
        let at = sent_at + of.way(attempt);
        arrive((&self.history, &self.room), &mut self.arrivals, at)
            .map_err(|broken| broken.of("the limit group"))
    }

    /// A member's margin may cover less now: what is on its way comes as others will.
    pub(super) fn arrive_anew(&mut self, all: &BTreeMap<DestinationId, OfDestination>) {
        let arrival = |(destination, attempt, sent_at): &(_, AttemptId, Timestamp)| {
            let way = all.get(destination).map(|of| of.way(*attempt));
            Arrival::at(*sent_at + way.unwrap_or_default())
        };
        self.arrivals = self.sends.iter().map(arrival).collect();
        self.arrivals
            .sort_unstable_by_key(|arrival| arrival.read_at);
    }
}

impl Witness {
    /// What the group allows from when on, all of it.
    pub(crate) fn group_allows(&self, history: Vec<InForce>) {
        let mut seen = self.seen();
        seen.group.room = Room::of(&history);
        seen.group.history = history;
    }

    /// The same again.
    pub(crate) fn group_allowed(&self) -> Vec<InForce> {
        self.seen().group.history.clone()
    }

    /// Who is in the group, and who has been.
    pub(crate) fn group_has(&self, members: Vec<Membership>) {
        self.seen().group.members = members;
    }

    /// When its limits last changed, or somebody came or went.
    pub(crate) fn group_changed(&self) -> Option<Timestamp> {
        let seen = self.seen();
        let allowed = seen.group.history.iter().map(|entry| entry.from);
        let members = seen.group.members.iter();
        let came_and_went = members.flat_map(|member| [Some(member.from), member.until]);
        allowed.chain(came_and_went.flatten()).max()
    }
}
