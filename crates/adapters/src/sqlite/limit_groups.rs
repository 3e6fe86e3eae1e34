//! Limit groups, as their owners see and change them. What a change does to permits and
//! history is the triggers' business.

use async_trait::async_trait;
use domain::compliance::Start;
use domain::ids::{AttemptId, DestinationId, TenantId};
use domain::limit_group::{GroupLimits, GroupName, MAX_GROUPS};
use domain::time::Timestamp;
use engine::ports::{
    CatalogError, GroupPast, LimitGroup, LimitGroups, Membership, group_has_members,
    too_many_groups,
};
use rusqlite::{Connection, Row, Transaction, params};

use super::SqliteStore;
use super::fault::Fault;
use super::rows::{all, execute, first, maybe_time, time, word};

const LIST: &str = "
    -- limit_groups
    select limit_per_second, limit_per_minute, limit_per_hour, limit_per_day, name, created_at
    from limit_groups where tenant_id = ?1 and name > ?2 order by name limit ?3";

const READ: &str = "
    -- limit_group
    select limit_per_second, limit_per_minute, limit_per_hour, limit_per_day, name, created_at
    from limit_groups where tenant_id = ?1 and name = ?2";

const MEMBERS: &str = "
    -- limit_group: its members
    select id from destinations indexed by destinations_of_group
    where tenant_id = ?1 and limit_group = ?2 and limit_group is not null order by id";

const COUNT: &str = "
    -- put_limit_group: how many there are
    select count(*) from limit_groups where tenant_id = ?1";

const PUT: &str = "
    -- put_limit_group
    insert into limit_groups
        (tenant_id, name, limit_per_second, limit_per_minute, limit_per_hour, limit_per_day)
    values (?1, ?2, ?3, ?4, ?5, ?6)
    on conflict (tenant_id, name) do update
    set limit_per_second = excluded.limit_per_second,
        limit_per_minute = excluded.limit_per_minute,
        limit_per_hour = excluded.limit_per_hour,
        limit_per_day = excluded.limit_per_day";

const DELETE: &str = "
    -- delete_limit_group
    delete from limit_groups where tenant_id = ?1 and name = ?2";

const ALLOWED: &str = "
    -- limit_group_past: what it allowed
    select limit_per_second, limit_per_minute, limit_per_hour, limit_per_day, in_force_from
    from limit_group_history indexed by limit_group_history_of_group
    where tenant_id = ?1 and limit_group = ?2 and in_force_from < ?4
        and in_force_from >= coalesce(
            (
                select max(in_force_from)
                from limit_group_history indexed by limit_group_history_of_group
                where tenant_id = ?1 and limit_group = ?2 and in_force_from <= ?3
            ),
            0
        )
    order by in_force_from, id";

const WERE_MEMBERS: &str = "
    -- limit_group_past: who was a member
    select destination_id, joined_at, left_at
    from limit_group_members indexed by limit_group_members_of_group
    where tenant_id = ?1 and limit_group = ?2 and (left_at is null or left_at > ?3)
        and joined_at < ?4
    order by joined_at, id";

/// Both values of `folded` are named, so that the index is read by the time of starts.
const STARTS: &str = "
    -- limit_group_starts
    select started_at, id from (
        select a.started_at, a.id
        from limit_group_members m indexed by limit_group_members_of_group
        cross join ledger a indexed by ledger_starts on a.destination_id = m.destination_id
        where m.tenant_id = ?1 and m.limit_group = ?2 and m.joined_at < ?4
            and a.folded in (0, 1) and a.started_at >= ?3 and a.started_at < ?4
            and a.started_at is not null and a.carried_by is null
            and a.claimed_at >= m.joined_at and (m.left_at is null or a.claimed_at < m.left_at)
        union all
        select a.started_at, a.id
        from limit_group_members m indexed by limit_group_members_of_group
        cross join deliveries a indexed by deliveries_held on a.destination_id = m.destination_id
        where m.tenant_id = ?1 and m.limit_group = ?2 and m.joined_at < ?4
            and a.state = 'started' and a.started_at >= ?3 and a.started_at < ?4
            and a.permit is not null and a.carried_by is null
            and a.claimed_at >= m.joined_at and (m.left_at is null or a.claimed_at < m.left_at)
    )
    where (started_at, id) > (?5, ?6)
    order by started_at, id limit ?7";

#[async_trait]
impl LimitGroups for SqliteStore {
    async fn limit_groups(
        &self,
        tenant: TenantId,
        after: Option<&GroupName>,
        limit: u32,
    ) -> Result<Vec<LimitGroup>, CatalogError> {
        let after = after.map_or(String::new(), |after| after.as_str().to_owned());
        let page = move |tx: &Transaction<'_>| {
            let page = (tenant.to_string(), after, limit);
            let mut groups = all(tx, LIST, page, group)?;
            for group in &mut groups {
                group.members = members(tx, tenant, &group.name)?;
            }
            Ok(groups)
        };
        Ok(self.read(page).await?)
    }

    async fn limit_group(
        &self,
        tenant: TenantId,
        name: &GroupName,
    ) -> Result<LimitGroup, CatalogError> {
        let name = name.clone();
        Ok(self.read(move |tx| read(tx, tenant, &name)).await?)
    }

    async fn put_limit_group(
        &self,
        tenant: TenantId,
        name: &GroupName,
        limits: &GroupLimits,
    ) -> Result<LimitGroup, CatalogError> {
        let (name, limits) = (name.clone(), *limits);
        Ok(self
            .write(move |tx, _| put(tx, tenant, &name, &limits))
            .await?)
    }

    async fn delete_limit_group(
        &self,
        tenant: TenantId,
        name: &GroupName,
    ) -> Result<(), CatalogError> {
        let name = name.clone();
        Ok(self
            .write(move |tx, _| {
                if !members(tx, tenant, &name)?.is_empty() {
                    return Err(group_has_members().into());
                }
                match execute(tx, DELETE, (tenant.to_string(), name.as_str()))? {
                    0 => Err(no_such_group()),
                    _ => Ok(()),
                }
            })
            .await?)
    }

    async fn limit_group_past(
        &self,
        tenant: TenantId,
        name: &GroupName,
        (since, until): (Timestamp, Timestamp),
    ) -> Result<GroupPast, CatalogError> {
        let name = name.clone();
        let past = move |tx: &Transaction<'_>| {
            let tenant = tenant.to_string();
            let (since, until) = (since.as_micros(), until.as_micros());
            let within = || (&tenant, name.as_str(), since, until);
            Ok(GroupPast {
                allowed: all(tx, ALLOWED, within(), |row| {
                    Ok((time(row, 4)?, limits(row, 0)?))
                })?,
                members: all(tx, WERE_MEMBERS, within(), |row| {
                    Ok(Membership {
                        destination: word(row, 0, ("limit_group_members", "destination_id"))?,
                        from: time(row, 1)?,
                        until: maybe_time(row, 2)?,
                    })
                })?,
            })
        };
        Ok(self.read(past).await?)
    }

    async fn limit_group_starts(
        &self,
        tenant: TenantId,
        name: &GroupName,
        (since, until): (Timestamp, Timestamp),
        after: Option<Start>,
        limit: u32,
    ) -> Result<Vec<Start>, CatalogError> {
        let name = name.clone();
        let page = move |tx: &Transaction<'_>| {
            let (at, id) = after.unwrap_or((Timestamp::MIN, AttemptId(i64::MIN)));
            let page = (
                tenant.to_string(),
                name.as_str(),
                since.as_micros(),
                until.as_micros(),
                at.as_micros(),
                id.0,
                limit,
            );
            all(tx, STARTS, page, |row| {
                Ok((time(row, 0)?, AttemptId(row.get(1)?)))
            })
        };
        Ok(self.read(page).await?)
    }
}

fn put(
    tx: &Transaction<'_>,
    tenant: TenantId,
    name: &GroupName,
    limits: &GroupLimits,
) -> Result<LimitGroup, Fault> {
    let count: Option<u32> = first(tx, COUNT, [tenant.to_string()], |row| Ok(row.get(0)?))?;
    if count.is_some_and(|count| count >= MAX_GROUPS) && read(tx, tenant, name).is_err() {
        return Err(too_many_groups().into());
    }
    let row = params![
        tenant.to_string(),
        name.as_str(),
        limits.per_second,
        limits.per_minute,
        limits.per_hour,
        limits.per_day,
    ];
    execute(tx, PUT, row)?;
    read(tx, tenant, name)
}

fn read(connection: &Connection, tenant: TenantId, name: &GroupName) -> Result<LimitGroup, Fault> {
    let key = (tenant.to_string(), name.as_str());
    let found = first(connection, READ, key, group)?;
    let mut found = found.ok_or_else(no_such_group)?;
    found.members = members(connection, tenant, name)?;
    Ok(found)
}

fn members(
    connection: &Connection,
    tenant: TenantId,
    name: &GroupName,
) -> Result<Vec<DestinationId>, Fault> {
    let key = (tenant.to_string(), name.as_str());
    all(connection, MEMBERS, key, |row| {
        word(row, 0, ("destinations", "id"))
    })
}

fn group(row: &Row<'_>) -> Result<LimitGroup, Fault> {
    Ok(LimitGroup {
        name: GroupName::kept(row.get(4)?),
        limits: limits(row, 0)?,
        members: Vec::new(),
        created_at: time(row, 5)?,
    })
}

/// Of four columns, from `first` on.
pub(super) fn limits(row: &Row<'_>, first: usize) -> Result<GroupLimits, Fault> {
    Ok(GroupLimits {
        per_second: row.get(first)?,
        per_minute: row.get(first + 1)?,
        per_hour: row.get(first + 2)?,
        per_day: row.get(first + 3)?,
    })
}

fn no_such_group() -> Fault {
    CatalogError::NotFound("limit group").into()
}
