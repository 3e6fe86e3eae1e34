//! The same store, as its users see it: limits that several destinations have together.

use async_trait::async_trait;
use domain::compliance::Start;
use domain::ids::{DestinationId, TenantId};
use domain::limit_group::{GroupLimits, GroupName, MAX_GROUPS};
use domain::time::Timestamp;

use super::error::CatalogError;

/// What is asked of limit groups, beside what admission reads of them. Every method is one
/// transaction and checks the tenant in its own query. Who is a member is a destination's
/// own setting ([`super::DestinationChange::limit_group`]).
#[async_trait]
pub trait LimitGroups: Send + Sync {
    /// A page in the order of their names, byte by byte, after `after`.
    async fn limit_groups(
        &self,
        tenant: TenantId,
        after: Option<&GroupName>,
        limit: u32,
    ) -> Result<Vec<LimitGroup>, CatalogError>;

    /// The one with this name.
    async fn limit_group(
        &self,
        tenant: TenantId,
        name: &GroupName,
    ) -> Result<LimitGroup, CatalogError>;

    /// Creates one, or sets all limits of the one that is there. By the same trigger as a
    /// user's SQL: a cut revokes what its members have out, and is in force from its time in
    /// the group's history. A `Conflict` where the tenant has [`MAX_GROUPS`]; requests at the
    /// same moment may pass that by as many as they are.
    async fn put_limit_group(
        &self,
        tenant: TenantId,
        name: &GroupName,
        limits: &GroupLimits,
    ) -> Result<LimitGroup, CatalogError>;

    /// Deletes one. A `Conflict` while it has members.
    async fn delete_limit_group(
        &self,
        tenant: TenantId,
        name: &GroupName,
    ) -> Result<(), CatalogError>;

    /// What a group has allowed, and who was in it, for the audit: what was in force or a
    /// member at some time in `[since, until)`. Both are bounded by what the store keeps.
    async fn limit_group_past(
        &self,
        tenant: TenantId,
        name: &GroupName,
        within: (Timestamp, Timestamp),
    ) -> Result<GroupPast, CatalogError>;

    /// What members started of it in `[since, until)`, in the order of `(started_at, id)`,
    /// after that start, `limit` at most: what they claimed while they were members.
    async fn limit_group_starts(
        &self,
        tenant: TenantId,
        name: &GroupName,
        within: (Timestamp, Timestamp),
        after: Option<Start>,
        limit: u32,
    ) -> Result<Vec<Start>, CatalogError>;
}

/// A group as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitGroup {
    /// What its tenant calls it.
    pub name: GroupName,
    /// What its members may start together.
    pub limits: GroupLimits,
    /// Who they are, in id order.
    pub members: Vec<DestinationId>,
    /// When it was created.
    pub created_at: Timestamp,
}

/// What a group has been.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GroupPast {
    /// What it allowed from when on, the earliest first; limits that are all `None` are of
    /// one that was deleted.
    pub allowed: Vec<(Timestamp, GroupLimits)>,
    /// Who was a member, in the order of joining.
    pub members: Vec<Membership>,
}

/// One time that a destination was a member: what it claimed from `from` on, and before
/// `until`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Membership {
    /// Who.
    pub destination: DestinationId,
    /// From then on.
    pub from: Timestamp,
    /// Before then; `None` if it still is.
    pub until: Option<Timestamp>,
}

/// Why a tenant can have no more groups.
#[must_use]
pub fn too_many_groups() -> CatalogError {
    CatalogError::Conflict(format!(
        "the tenant has {MAX_GROUPS} limit groups, which is all that it may have: delete some"
    ))
}

/// Why a store lets a destination not join, once the group was there and had room.
pub const GROUP_REFUSES: &str = "has as many members as it may have, those that left within two \
    days included, or is gone";

/// Why a group cannot be deleted.
#[must_use]
pub fn group_has_members() -> CatalogError {
    CatalogError::Conflict(
        "the limit group has members: take limit_group from these destinations first".to_owned(),
    )
}
