//! Two levels: tenants first, then each tenant's destinations.

use std::collections::BTreeMap;

use super::share;
use crate::ids::TenantId;
use crate::time::Timestamp;

/// What one tenant has of the fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Whose.
    pub tenant: TenantId,
    /// Its attempts that are `admitted`.
    pub outstanding: u32,
    /// Its attempts that are `started`.
    pub in_flight: u32,
}

/// The live workers, and what is on its way to them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fleet {
    /// The store's clock.
    pub now: Timestamp,
    /// Workers whose heartbeat is fresh.
    pub workers: u32,
    /// Their places together.
    pub places: u32,
    /// Attempts that are `admitted`, of all destinations.
    pub outstanding: u32,
    /// What each tenant has, in id order; those that have nothing are left out.
    pub loads: Vec<Load>,
}

/// What the fleet has room for, as somebody counted it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Room {
    /// How many permits may be outstanding, of all tenants together.
    pub capacity: u32,
    /// How many are.
    pub outstanding: u32,
    /// What each tenant has; one that has nothing may be left out.
    pub loads: Vec<Load>,
}

impl Room {
    /// So much room, and nothing in it.
    #[must_use]
    pub fn of(capacity: u32) -> Self {
        Self {
            capacity,
            ..Self::default()
        }
    }

    /// How many permits fit without anybody's being over his share.
    #[must_use]
    pub fn left(&self) -> u32 {
        self.capacity.saturating_sub(self.outstanding)
    }
}

/// What one destination could be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// Whose it is.
    pub tenant: TenantId,
    /// How many permits its limits and its backlog allow.
    pub wants: u32,
    /// The most that the tenant may have queued and in flight at once.
    pub tenant_max_in_flight: Option<u32>,
}

/// New permits of one tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Given {
    /// Whose.
    pub tenant: TenantId,
    /// How many.
    pub permits: u32,
}

impl Given {
    /// What destinations were given, by tenant and in id order.
    #[must_use]
    pub fn by_tenant(given: impl Iterator<Item = (TenantId, u32)>) -> Vec<Self> {
        let mut tenants: BTreeMap<TenantId, u32> = BTreeMap::new();
        for (tenant, permits) in given.filter(|(_, permits)| *permits > 0) {
            *tenants.entry(tenant).or_default() += permits;
        }
        (tenants.into_iter())
            .map(|(tenant, permits)| Self { tenant, permits })
            .collect()
    }
}

/// How many permits each of `asks` is given, in their order.
///
/// - Nobody is given more than it asks for, and no tenant more than its
///   `max_in_flight` leaves.
/// - While all fits into what is left, all is given.
/// - Else tenants share the capacity max-min, what they have already counted:
///   one that has less than its share is given what it lacks *although others
///   have taken the room*, and one that has more is given nothing until its
///   permits have ended. So a tenant with work never waits for another's to
///   get its share; the price is that for so long as those permits last, up to
///   twice the capacity is outstanding, and never more.
/// - What a tenant is given is shared max-min between its destinations.
///
/// ```
/// use domain::ids::TenantId;
/// use domain::share::{Ask, Load, Room, share_between_tenants};
/// let tenant = |id| TenantId(uuid::Uuid::from_u128(id));
/// let ask = |id, wants| Ask { tenant: tenant(id), wants, tenant_max_in_flight: None };
/// // Three destinations of one tenant and one of another: half each.
/// let asks = [ask(1, 90), ask(1, 90), ask(1, 90), ask(2, 90)];
/// assert_eq!(share_between_tenants(&Room::of(60), &asks), [10, 10, 10, 30]);
/// // The first has taken it all: the other is given its half all the same.
/// let load = Load { tenant: tenant(1), outstanding: 60, in_flight: 0 };
/// let room = Room { capacity: 60, outstanding: 60, loads: vec![load] };
/// assert_eq!(share_between_tenants(&room, &asks), [0, 0, 0, 30]);
/// ```
#[must_use]
pub fn share_between_tenants(room: &Room, asks: &[Ask]) -> Vec<u32> {
    Tenants::of(room, asks)
        .sharing(room)
        .between_destinations(asks)
}

/// A tenant's part in the sharing.
#[derive(Debug, Default)]
struct Part {
    outstanding: u32,
    in_flight: u32,
    wants: u32,
    given: u32,
    /// Its asks, by their index.
    asks: Vec<usize>,
}

struct Tenants(BTreeMap<TenantId, Part>);

impl Tenants {
    fn of(room: &Room, asks: &[Ask]) -> Self {
        let mut parts: BTreeMap<TenantId, Part> = BTreeMap::new();
        for load in &room.loads {
            let part = parts.entry(load.tenant).or_default();
            part.outstanding = part.outstanding.saturating_add(load.outstanding);
            part.in_flight = part.in_flight.saturating_add(load.in_flight);
        }
        for (index, ask) in asks.iter().enumerate() {
            let part = parts.entry(ask.tenant).or_default();
            let has = part.outstanding.saturating_add(part.in_flight);
            let most = ask.tenant_max_in_flight.unwrap_or(u32::MAX);
            let wants = part.wants.saturating_add(ask.wants);
            part.wants = wants.min(most.saturating_sub(has));
            part.asks.push(index);
        }
        Self(parts)
    }

    fn sharing(mut self, room: &Room) -> Self {
        let wanted = (self.0.values()).fold(0_u32, |sum, part| sum.saturating_add(part.wants));
        if wanted <= room.left() {
            for part in self.0.values_mut() {
                part.given = part.wants;
            }
            return self;
        }
        // Who has least comes first: to him goes what division leaves over.
        let mut parts: Vec<&mut Part> = self.0.values_mut().collect();
        parts.sort_by_key(|part| part.outstanding);
        let demands: Vec<u32> = (parts.iter())
            .map(|part| part.outstanding.saturating_add(part.wants))
            .collect();
        let shares = share(room.capacity, &demands);
        for (part, fair) in parts.iter_mut().zip(shares) {
            part.given = part.wants.min(fair.saturating_sub(part.outstanding));
        }
        let lacking: Vec<u32> = parts.iter().map(|part| part.given).collect();
        let most = room.capacity.saturating_mul(2);
        let bounded = share(most.saturating_sub(room.outstanding), &lacking);
        for (part, given) in parts.iter_mut().zip(bounded) {
            part.given = given;
        }
        self
    }

    fn between_destinations(&self, asks: &[Ask]) -> Vec<u32> {
        let mut given = vec![0; asks.len()];
        for part in self.0.values() {
            let wants: Vec<u32> = part.asks.iter().map(|index| asks[*index].wants).collect();
            for (index, places) in part.asks.iter().zip(share(part.given, &wants)) {
                given[*index] = places;
            }
        }
        given
    }
}

#[cfg(test)]
mod tests;
