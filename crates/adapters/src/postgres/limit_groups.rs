//! Limit groups, as their owners see and change them. What a change does to permits and
//! history is the triggers' business.

use std::time::Duration;

use async_trait::async_trait;
use domain::compliance::Start;
use domain::ids::{AttemptId, DestinationId, TenantId};
use domain::limit_group::{GroupLimits, GroupName, MAX_GROUPS};
use domain::time::Timestamp;
use engine::ports::{
    CatalogError, GroupPast, LimitGroup, LimitGroups, Membership, group_has_members,
    too_many_groups,
};
use sqlx::PgPool;
use uuid::Uuid;

use super::PostgresStore;
use super::failure::{Failure, retried};
use super::limit_group::limits;
use super::rows::{integer, time};
use crate::row::row;

#[async_trait]
impl LimitGroups for PostgresStore {
    async fn limit_groups(
        &self,
        tenant: TenantId,
        after: Option<&GroupName>,
        limit: u32,
    ) -> Result<Vec<LimitGroup>, CatalogError> {
        let after = after.map_or("", GroupName::as_str);
        let page = || read(&self.pool, tenant, (after, None), limit);
        Ok(retried(page).await?)
    }

    async fn limit_group(
        &self,
        tenant: TenantId,
        name: &GroupName,
    ) -> Result<LimitGroup, CatalogError> {
        let found = retried(|| one(&self.pool, tenant, name)).await?;
        found.ok_or(CatalogError::NotFound("limit group"))
    }

    async fn put_limit_group(
        &self,
        tenant: TenantId,
        name: &GroupName,
        limits: &GroupLimits,
    ) -> Result<LimitGroup, CatalogError> {
        retried(|| put(&self.pool, tenant, name, limits)).await?;
        self.limit_group(tenant, name).await
    }

    async fn delete_limit_group(
        &self,
        tenant: TenantId,
        name: &GroupName,
    ) -> Result<(), CatalogError> {
        Ok(retried(|| delete(&self.pool, tenant, name)).await?)
    }

    async fn limit_group_past(
        &self,
        tenant: TenantId,
        name: &GroupName,
        within: (Timestamp, Timestamp),
    ) -> Result<GroupPast, CatalogError> {
        Ok(retried(|| past(&self.pool, tenant, name, within)).await?)
    }

    async fn limit_group_starts(
        &self,
        tenant: TenantId,
        name: &GroupName,
        within: (Timestamp, Timestamp),
        after: Option<Start>,
        limit: u32,
    ) -> Result<Vec<Start>, CatalogError> {
        let page = || starts(&self.pool, (tenant, name), within, after, limit);
        Ok(retried(page).await?)
    }
}

async fn starts(
    pool: &PgPool,
    (tenant, name): (TenantId, &GroupName),
    (since, until): (Timestamp, Timestamp),
    after: Option<Start>,
    limit: u32,
) -> Result<Vec<Start>, Failure> {
    let (after, id) = after.unwrap_or((since - Duration::from_micros(1), AttemptId(i64::MIN)));
    let rows: Vec<(i64, i64)> = sqlx::query_as(
        "-- limit_group_starts
        select micros(x.started_at), x.id from (
            select a.started_at, a.id from limit_group_members m
            join ledger a on a.destination_id = m.destination_id
            where m.tenant_id = $1 and m.limit_group = $2 and m.joined_at < from_micros($4)
                and a.folded in (true, false) and a.carried_by is null
                and a.started_at >= from_micros($3) and a.started_at < from_micros($4)
                and a.claimed_at >= m.joined_at
                and (m.left_at is null or a.claimed_at <= m.left_at)
            union all
            select a.started_at, a.id from limit_group_members m
            join deliveries a on a.destination_id = m.destination_id
            where m.tenant_id = $1 and m.limit_group = $2 and m.joined_at < from_micros($4)
                and a.permit is not null and a.carried_by is null and a.state = 'started'
                and a.started_at >= from_micros($3) and a.started_at < from_micros($4)
                and a.claimed_at >= m.joined_at
                and (m.left_at is null or a.claimed_at <= m.left_at)
        ) x
        where (x.started_at, x.id) > (from_micros($5), $6)
        order by x.started_at, x.id
        limit $7",
    )
    .bind(tenant.0)
    .bind(name.as_str())
    .bind(since.as_micros())
    .bind(until.as_micros())
    .bind(after.as_micros())
    .bind(id.0)
    .bind(i64::from(limit))
    .fetch_all(pool)
    .await?;
    Ok((rows.into_iter())
        .map(|(at, id)| (Timestamp::from_micros(at), AttemptId(id)))
        .collect())
}

row! {
    struct Row {
        name: String,
        limits: Vec<Option<i32>>,
        members: Vec<Uuid>,
        created_at: i64,
    }
}

impl Row {
    fn group(self) -> LimitGroup {
        LimitGroup {
            name: GroupName::kept(self.name),
            limits: limits(&self.limits),
            members: self.members.into_iter().map(DestinationId).collect(),
            created_at: Timestamp::from_micros(self.created_at),
        }
    }
}

/// A page after a name, or that one.
async fn read(
    pool: &PgPool,
    tenant: TenantId,
    (after, name): (&str, Option<&str>),
    limit: u32,
) -> Result<Vec<LimitGroup>, Failure> {
    let rows: Vec<Row> = sqlx::query_as(
        "-- limit_groups
        select g.name,
            array[
                g.limit_per_second, g.limit_per_minute, g.limit_per_hour, g.limit_per_day
            ] as limits,
            array(
                select d.id from destinations d
                where d.tenant_id = g.tenant_id and d.limit_group = g.name
                order by d.id
            ) as members,
            micros(g.created_at) as created_at
        from limit_groups g
        where g.tenant_id = $1 and g.name collate \"C\" > $2 and ($3::text is null or g.name = $3)
        order by g.name collate \"C\"
        limit $4",
    )
    .bind(tenant.0)
    .bind(after)
    .bind(name)
    .bind(i64::from(limit))
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(Row::group).collect())
}

async fn one(
    pool: &PgPool,
    tenant: TenantId,
    name: &GroupName,
) -> Result<Option<LimitGroup>, Failure> {
    let found = read(pool, tenant, ("", Some(name.as_str())), 1).await?;
    Ok(found.into_iter().next())
}

async fn put(
    pool: &PgPool,
    tenant: TenantId,
    name: &GroupName,
    limits: &GroupLimits,
) -> Result<(), Failure> {
    let mut transaction = pool.begin().await?;
    let count: i64 = sqlx::query_scalar(
        "-- put_limit_group: how many others there are
        select count(*) from limit_groups g where g.tenant_id = $1 and g.name <> $2",
    )
    .bind(tenant.0)
    .bind(name.as_str())
    .fetch_one(&mut *transaction)
    .await?;
    if count >= i64::from(MAX_GROUPS) {
        return Err(Failure::Refused(too_many_groups()));
    }
    sqlx::query(
        "-- put_limit_group
        insert into limit_groups
            (tenant_id, name, limit_per_second, limit_per_minute, limit_per_hour, limit_per_day)
        values ($1, $2, $3, $4, $5, $6)
        on conflict (tenant_id, name) do update
        set limit_per_second = excluded.limit_per_second,
            limit_per_minute = excluded.limit_per_minute,
            limit_per_hour = excluded.limit_per_hour,
            limit_per_day = excluded.limit_per_day",
    )
    .bind(tenant.0)
    .bind(name.as_str())
    .bind(limits.per_second.map(integer))
    .bind(limits.per_minute.map(integer))
    .bind(limits.per_hour.map(integer))
    .bind(limits.per_day.map(integer))
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await?;
    Ok(())
}

/// Whoever joins meanwhile holds the row against it.
async fn delete(pool: &PgPool, tenant: TenantId, name: &GroupName) -> Result<(), Failure> {
    let mut transaction = pool.begin().await?;
    let found: Option<i32> = sqlx::query_scalar(
        "-- delete_limit_group: lock
        select 1 from limit_groups g where g.tenant_id = $1 and g.name = $2 for update",
    )
    .bind(tenant.0)
    .bind(name.as_str())
    .fetch_optional(&mut *transaction)
    .await?;
    if found.is_none() {
        return Err(Failure::NotFound("limit group"));
    }
    let has_members: bool = sqlx::query_scalar(
        "-- delete_limit_group: has it members
        select exists (
            select from destinations d where d.tenant_id = $1 and d.limit_group = $2
        )",
    )
    .bind(tenant.0)
    .bind(name.as_str())
    .fetch_one(&mut *transaction)
    .await?;
    if has_members {
        return Err(Failure::Refused(group_has_members()));
    }
    sqlx::query(
        "-- delete_limit_group\ndelete from limit_groups where tenant_id = $1 and name = $2",
    )
    .bind(tenant.0)
    .bind(name.as_str())
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await?;
    Ok(())
}

async fn past(
    pool: &PgPool,
    tenant: TenantId,
    name: &GroupName,
    (since, until): (Timestamp, Timestamp),
) -> Result<GroupPast, Failure> {
    let allowed: Vec<(i64, Vec<Option<i32>>)> = sqlx::query_as(
        "-- limit_group_past: what it allowed
        select micros(h.in_force_from),
            array[h.limit_per_second, h.limit_per_minute, h.limit_per_hour, h.limit_per_day]
        from limit_group_history h
        where h.tenant_id = $1 and h.limit_group = $2 and h.in_force_from < from_micros($4)
            and h.in_force_from >= coalesce(
                (
                    select max(o.in_force_from) from limit_group_history o
                    where o.tenant_id = $1 and o.limit_group = $2
                        and o.in_force_from <= from_micros($3)
                ),
                '-infinity'
            )
        order by h.in_force_from, h.id",
    )
    .bind(tenant.0)
    .bind(name.as_str())
    .bind(since.as_micros())
    .bind(until.as_micros())
    .fetch_all(pool)
    .await?;
    let members: Vec<(Uuid, i64, Option<i64>)> = sqlx::query_as(
        "-- limit_group_past: who was a member
        select m.destination_id, micros(m.joined_at), micros(m.left_at)
        from limit_group_members m
        where m.tenant_id = $1 and m.limit_group = $2
            and (m.left_at is null or m.left_at > from_micros($3))
            and m.joined_at < from_micros($4)
        order by m.joined_at, m.id",
    )
    .bind(tenant.0)
    .bind(name.as_str())
    .bind(since.as_micros())
    .bind(until.as_micros())
    .fetch_all(pool)
    .await?;
    Ok(GroupPast {
        allowed: (allowed.into_iter())
            .map(|(from, columns)| (Timestamp::from_micros(from), limits(&columns)))
            .collect(),
        members: (members.into_iter())
            .map(|(destination, from, until)| Membership {
                destination: DestinationId(destination),
                from: Timestamp::from_micros(from),
                until: time(until),
            })
            .collect(),
    })
}
