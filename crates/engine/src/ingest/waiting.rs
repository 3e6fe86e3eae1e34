//! Requests that wait, and whose turn it is.

use std::collections::{HashMap, HashSet, VecDeque};

use domain::ids::TenantId;

use super::Request;

/// Requests in the order in which each tenant made them; tenants have their turns.
#[derive(Default)]
pub(super) struct Waiting {
    /// Of tenants that have some.
    requests: HashMap<TenantId, VecDeque<Request>>,
    /// The same tenants; the first one is next.
    turns: VecDeque<TenantId>,
    /// Tenants that get no more of this commit: those that will be first in the next.
    passed: VecDeque<TenantId>,
    count: usize,
}

impl Waiting {
    /// How many wait.
    pub(super) const fn len(&self) -> usize {
        self.count
    }

    /// Behind its tenant's others.
    pub(super) fn push(&mut self, request: Request) {
        self.count += 1;
        self.of(request.tenant).push_back(request);
    }

    /// Before their tenants' others, in this order; whoever was next still is.
    pub(super) fn put_back(&mut self, requests: Vec<Request>) {
        self.count += requests.len();
        // Tenants that have none left get their turns in the order of the requests.
        for request in &requests {
            self.of(request.tenant);
        }
        for request in requests.into_iter().rev() {
            self.of(request.tenant).push_front(request);
        }
    }

    /// The same of requests to which their turn did not come: their tenants are next, in this
    /// order, with what may begin the next commit.
    pub(super) fn untake(&mut self, requests: Vec<Request>) {
        let mut tenants = HashSet::new();
        let mut turns: VecDeque<TenantId> = (requests.iter())
            .map(|request| request.tenant)
            .filter(|tenant| tenants.insert(*tenant))
            .collect();
        self.put_back(requests);
        self.turns.retain(|tenant| !tenants.contains(tenant));
        turns.append(&mut self.turns);
        self.turns = turns;
    }

    /// One that the rest of a commit is too small for: what others have may still fit. Its
    /// tenant has no more turns until [`Self::end_turns`].
    pub(super) fn pass_over(&mut self, request: Request) {
        let tenant = request.tenant;
        self.put_back(vec![request]);
        self.turns.retain(|one| *one != tenant);
        self.passed.push_back(tenant);
    }

    /// The commit is made: those that were passed over are next.
    pub(super) fn end_turns(&mut self) {
        self.passed.append(&mut self.turns);
        std::mem::swap(&mut self.passed, &mut self.turns);
    }

    /// The first of the tenant whose turn it is.
    pub(super) fn pop(&mut self) -> Option<Request> {
        let tenant = self.turns.pop_front()?;
        let of_tenant = self.requests.get_mut(&tenant)?;
        let request = of_tenant.pop_front()?;
        match of_tenant.is_empty() {
            true => drop(self.requests.remove(&tenant)),
            false => self.turns.push_back(tenant),
        }
        self.count -= 1;
        Some(request)
    }

    /// Those of a tenant, to which one is added.
    fn of(&mut self, tenant: TenantId) -> &mut VecDeque<Request> {
        self.requests.entry(tenant).or_insert_with(|| {
            self.turns.push_back(tenant);
            VecDeque::new()
        })
    }
}
