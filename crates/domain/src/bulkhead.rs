//! A bulkhead: places for work of one kind, shared between tenants by turns.
//!
//! **The rule.** A tenant gets another place while it has fewer than are free. So the
//! first that comes has half of them at most, the next one half of the rest, and of n
//! places two tenants that want all leave a quarter to others.
//!
//! Bytes are shared by that rule as well ([`may_have`]); for them nobody stands in line.
//!
//! **The turns.** Of those that wait and may have a place, it goes to a tenant that has
//! the fewest, and of these to whoever waits for longest. So a tenant that has none is
//! never behind one that has some, however long its line is.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::TenantId;

/// Whether a tenant that has so much may have so much more, where so much is free: it has no
/// more then than was free, so that whoever comes next still finds something.
#[must_use]
pub const fn may_have(has: usize, more: usize, free: usize) -> bool {
    has.saturating_add(more) <= free
}

/// Who works or waits: a ticket is never given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    tenant: TenantId,
    number: u64,
}

/// The places, and a line for each tenant.
#[derive(Debug, Clone)]
pub struct Lines {
    free: usize,
    of_one: usize,
    next: u64,
    tenants: BTreeMap<TenantId, Line>,
}

/// One tenant's, for as long as it has somebody here: tickets by number.
#[derive(Debug, Clone, Default)]
struct Line {
    working: BTreeSet<u64>,
    waiting: BTreeSet<u64>,
}

impl Lines {
    /// So many places, and room for so many of one tenant, who work or wait.
    #[must_use]
    pub const fn new(places: usize, of_one: usize) -> Self {
        Self {
            free: places,
            of_one,
            next: 0,
            tenants: BTreeMap::new(),
        }
    }

    /// One more of this tenant, who waits; `None` if its line is full.
    #[must_use]
    pub fn join(&mut self, tenant: TenantId) -> Option<Ticket> {
        let line = self.tenants.entry(tenant).or_default();
        if line.working.len() + line.waiting.len() >= self.of_one {
            self.forget(tenant);
            return None;
        }
        let number = self.next;
        line.waiting.insert(number);
        self.next += 1;
        Some(Ticket { tenant, number })
    }

    /// Gives a place to the one whose turn it is, and says who has it now; `None` if
    /// nobody who waits may have one.
    #[must_use]
    pub fn serve(&mut self) -> Option<Ticket> {
        let turns = self.tenants.iter().filter_map(|(tenant, line)| {
            let (has, first) = (line.working.len(), *line.waiting.first()?);
            may_have(has, 1, self.free).then_some((has, first, *tenant))
        });
        let (_has, number, tenant) = turns.min()?;
        let line = self.tenants.get_mut(&tenant)?;
        line.waiting.remove(&number);
        line.working.insert(number);
        self.free -= 1;
        Some(Ticket { tenant, number })
    }

    /// This one goes, from his place or from the line. Who has gone already goes once.
    pub fn leave(&mut self, ticket: Ticket) {
        let Some(line) = self.tenants.get_mut(&ticket.tenant) else {
            return;
        };
        match line.working.remove(&ticket.number) {
            true => self.free += 1,
            false => _ = line.waiting.remove(&ticket.number),
        }
        self.forget(ticket.tenant);
    }

    /// Nobody is remembered who has nobody here.
    fn forget(&mut self, tenant: TenantId) {
        let line = self.tenants.get(&tenant);
        if line.is_some_and(|line| line.working.is_empty() && line.waiting.is_empty()) {
            self.tenants.remove(&tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn tenant(id: u8) -> TenantId {
        TenantId(Uuid::from_u128(id.into()))
    }

    /// So many of a tenant join the line.
    fn join(lines: &mut Lines, id: u8, count: usize) -> Vec<Ticket> {
        (0..count)
            .map(|_| lines.join(tenant(id)).unwrap())
            .collect()
    }

    fn serve(lines: &mut Lines) -> Vec<Ticket> {
        std::iter::from_fn(|| lines.serve()).collect()
    }

    #[test]
    fn two_that_want_all_leave_a_place_for_a_third() {
        let mut lines = Lines::new(4, 10);
        let first = join(&mut lines, 1, 10);
        assert_eq!(serve(&mut lines), first[..2], "half of all");
        let second = join(&mut lines, 2, 10);
        assert_eq!(serve(&mut lines), second[..1], "half of the rest");
        let third = join(&mut lines, 3, 1);
        assert_eq!(serve(&mut lines), third);
    }

    #[test]
    fn who_has_fewest_is_next_and_then_who_waits_for_longest() {
        let mut lines = Lines::new(2, 10);
        let first = join(&mut lines, 1, 3);
        let second = join(&mut lines, 2, 2);
        assert_eq!(serve(&mut lines), [first[0], second[0]]);
        let [third, fourth] = [3, 4].map(|id| join(&mut lines, id, 1)[0]);
        lines.leave(first[0]);
        assert_eq!(
            serve(&mut lines),
            [first[1]],
            "the first has none, and came first"
        );
        lines.leave(second[0]);
        assert_eq!(serve(&mut lines), [second[1]]);
        lines.leave(second[1]);
        assert_eq!(serve(&mut lines), [third], "before the third of the first");
        lines.leave(fourth);
        lines.leave(first[1]);
        assert_eq!(serve(&mut lines), [first[2]], "the fourth has gone");
    }

    #[test]
    fn a_line_has_an_end_and_is_forgotten() {
        let mut lines = Lines::new(4, 2);
        let both = join(&mut lines, 1, 2);
        assert_eq!(lines.join(tenant(1)), None);
        assert!(lines.join(tenant(2)).is_some());
        lines.leave(both[0]);
        lines.leave(both[0]);
        assert!(lines.join(tenant(1)).is_some());
        let mut none = Lines::new(4, 0);
        assert_eq!(none.join(tenant(1)), None);
        assert!(none.tenants.is_empty());
    }

    proptest! {
        #[test]
        fn whoever_has_none_finds_any_place_that_is_free(
            places in 1..8_usize,
            steps in prop::collection::vec((0..5_u8, any::<prop::sample::Index>(), any::<bool>()), 0..60),
        ) {
            let mut lines = Lines::new(places, 6);
            let mut here = Vec::new();
            for (id, which, comes) in steps {
                match comes || here.is_empty() {
                    true => here.extend(lines.join(tenant(id))),
                    false => lines.leave(here.swap_remove(which.index(here.len()))),
                }
                serve(&mut lines);
                let each = || lines.tenants.values();
                let working: usize = each().map(|line| line.working.len()).sum();
                prop_assert_eq!(working + lines.free, places);
                prop_assert!(each().all(|line| line.working.len() <= places.div_ceil(2)));
                let stands = |line: &Line| line.working.is_empty() && !line.waiting.is_empty();
                prop_assert!(lines.free == 0 || !each().any(stands));
            }
            here.into_iter().for_each(|ticket| lines.leave(ticket));
            prop_assert!(lines.tenants.is_empty());
            prop_assert_eq!(lines.free, places);
        }
    }
}
