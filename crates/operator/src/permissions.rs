//! What the operator may do to the API server, all of it: the Role in
//! `k8s/components/operator` says the same, and a test compares them. What it
//! does is compared with this by the scenario tests.

/// One verb on one resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Permission {
    pub group: &'static str,
    /// With its subresource, as in a Role: `destinations/status`.
    pub resource: &'static str,
    pub verb: &'static str,
}

const fn may(verb: &'static str, group: &'static str, resource: &'static str) -> Permission {
    Permission {
        group,
        resource,
        verb,
    }
}

/// All that it may do.
pub const PERMISSIONS: [Permission; 10] = [
    may("list", "paceline.dev", "destinations"),
    may("watch", "paceline.dev", "destinations"),
    // The finalizer.
    may("patch", "paceline.dev", "destinations"),
    may("patch", "paceline.dev", "destinations/status"),
    // One at a time, by the name that a resource gives: no list, no watch.
    may("get", "", "secrets"),
    may("create", "events.k8s.io", "events"),
    may("patch", "events.k8s.io", "events"),
    // Who leads.
    may("get", "coordination.k8s.io", "leases"),
    may("create", "coordination.k8s.io", "leases"),
    may("update", "coordination.k8s.io", "leases"),
];
