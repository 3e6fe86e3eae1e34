//! Limit groups under admission: locked, and then read. A batch of runs without a member
//! of one asks nothing of this.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use domain::admission::{Group, Member, Outstanding};
use domain::ids::{DestinationId, TenantId};
use domain::limit_group::{GroupLimits, GroupName};
use domain::policy::LimitSettings;
use domain::time::Timestamp;
use sqlx::PgConnection;
use uuid::Uuid;

use super::destinations::Found;
use super::failure::Failure;
use super::id_range::IdRange;
use super::response_times::{Ends, spread};
use crate::row::row;

/// Whose, and its name.
pub(super) type Key = (TenantId, GroupName);

/// By whom their groups are called.
pub(super) type Groups = HashMap<Key, Arc<Group>>;

/// The groups that these destinations are in.
fn keys<'a>(of: impl Iterator<Item = &'a Found>) -> (Vec<Uuid>, Vec<String>) {
    let keys: BTreeSet<(Uuid, &str)> = of
        .filter_map(|found| Some((found.tenant.0, found.limit_group.as_ref()?.as_str())))
        .collect();
    (keys.into_iter())
        .map(|(tenant, name)| (tenant, name.to_owned()))
        .unzip()
}

/// Locks the groups of these destinations that nobody else holds, after the destinations:
/// whoever waits for a group's row holds no destination that we wait for, as we wait for
/// nobody. `for no key update`, because a destination that is inserted holds `for key share`.
pub(super) async fn lock<'a>(
    connection: &mut PgConnection,
    of: impl Iterator<Item = &'a Found>,
) -> Result<HashSet<Key>, Failure> {
    let (tenants, names) = keys(of);
    if names.is_empty() {
        return Ok(HashSet::new());
    }
    let locked: Vec<(Uuid, String)> = sqlx::query_as(
        "-- admit: lock_groups
        select g.tenant_id, g.name
        from unnest($1::uuid[], $2::text[]) as n (tenant_id, name)
        join limit_groups g on g.tenant_id = any (array[n.tenant_id])
            and g.name = any (array[n.name])
        order by n.tenant_id, n.name
        for no key update of g skip locked",
    )
    .bind(tenants)
    .bind(names)
    .fetch_all(connection)
    .await?;
    Ok((locked.into_iter())
        .map(|(tenant, name)| (TenantId(tenant), GroupName::kept(name)))
        .collect())
}

/// What the groups of these destinations allow now. Asks nothing if none is in one.
pub(super) async fn limits_of<'a>(
    connection: &mut PgConnection,
    of: impl Iterator<Item = &'a Found>,
) -> Result<HashMap<Key, GroupLimits>, Failure> {
    let (tenants, names) = keys(of);
    if names.is_empty() {
        return Ok(HashMap::new());
    }
    let found: Vec<(Uuid, String, Vec<Option<i32>>)> = sqlx::query_as(
        "-- advance_replays: limits of groups
        select g.tenant_id, g.name,
            array[
                g.limit_per_second, g.limit_per_minute, g.limit_per_hour, g.limit_per_day
            ]
        from unnest($1::uuid[], $2::text[]) as n (tenant_id, name)
        join limit_groups g on g.tenant_id = n.tenant_id and g.name = n.name",
    )
    .bind(tenants)
    .bind(names)
    .fetch_all(connection)
    .await?;
    Ok((found.into_iter())
        .map(|(tenant, name, columns)| {
            ((TenantId(tenant), GroupName::kept(name)), limits(&columns))
        })
        .collect())
}

row! {
    /// A member, or the group alone if it has none.
    struct Row {
        tenant_id: Uuid,
        name: String,
        limits: Vec<Option<i32>>,
        destination_id: Option<Uuid>,
        safety_margin: Option<f64>,
        margin_cap: Option<f64>,
        response_times: Ends,
        not_befores: Vec<i64>,
        deadlines: Vec<i64>,
        starts: Vec<i64>,
    }
}

/// One statement, and so one snapshot: no start slips from what is owed to what is over
/// between two. It is bounded by the members and the limit, which is why neither may be
/// large. The 500 ms: what was claimed before it left may start so much later. One that left
/// counts with what it claimed until then; what it has out since, it
/// has for itself. One that left and came back is a member.
const USAGE: &str = "-- admit: groups
    select g.tenant_id, g.name,
        array[
            g.limit_per_second, g.limit_per_minute, g.limit_per_hour, g.limit_per_day
        ] as limits,
        m.destination_id, d.safety_margin, d.margin_cap,
        array[r.least_micros, micros(r.least_at), r.most_micros, micros(r.most_at)]
            as response_times,
        coalesce(p.not_befores, '{}') as not_befores, coalesce(p.deadlines, '{}') as deadlines,
        coalesce(s.starts, '{}') as starts
    from unnest($1::uuid[], $2::text[]) as n (tenant_id, name)
    join limit_groups g on g.tenant_id = any (array[n.tenant_id])
        and g.name = any (array[n.name])
    cross join lateral (
        select
            greatest(g.limit_per_second, g.limit_per_minute, g.limit_per_hour, g.limit_per_day)
                as most,
            from_micros($3) - interval '500 milliseconds' - 2 * case
                when g.limit_per_day is not null then interval '24 hours'
                when g.limit_per_hour is not null then interval '1 hour'
                when g.limit_per_minute is not null then interval '1 minute'
                else interval '1 second'
            end as since
    ) w
    left join lateral (
        select m.destination_id,
            case when count(*) = count(m.left_at) then max(m.left_at) end as left_at
        from limit_group_members m
        where m.tenant_id = g.tenant_id and m.limit_group = g.name
            and (m.left_at is null or m.left_at > w.since)
        group by m.destination_id
    ) m on true
    left join destinations d on d.id = any (array[m.destination_id])
    left join response_times r on r.destination_id = any (array[m.destination_id])
    left join lateral (
        select
            coalesce(array_agg(micros(a.not_before))
                filter (where a.state = 'admitted' and m.left_at is null), '{}') as not_befores,
            coalesce(array_agg(micros(a.deadline))
                filter (where a.state = 'admitted' and m.left_at is null), '{}') as deadlines,
            coalesce(array_agg(micros(a.started_at))
                filter (
                    where a.state = 'started' and a.started_at > w.since
                        and (m.left_at is null or a.claimed_at <= m.left_at)
                ), '{}') as flying
        from deliveries a
        where a.destination_id = m.destination_id and a.permit is not null
            and a.carried_by is null
    ) p on true
    left join lateral (
        select coalesce(array_agg(x.started_at), '{}') as starts
        from (
            select f.started_at from unnest(p.flying) as f (started_at)
            union all
            (
                select micros(a.started_at) from ledger a
                where a.destination_id = m.destination_id and not a.folded
                    and a.carried_by is null and a.started_at > w.since
                    and (m.left_at is null or a.claimed_at <= m.left_at) and a.id {in_days}
                order by a.started_at desc limit w.most
            )
            union all
            (
                select micros(a.started_at) from ledger a
                where a.destination_id = m.destination_id and a.folded
                    and a.carried_by is null and a.started_at > w.since
                    and (m.left_at is null or a.claimed_at <= m.left_at) and a.id {in_days}
                order by a.started_at desc limit w.most
            )
        ) x
    ) s on true";

/// The groups of these destinations and what their members use of them, in a statement of
/// its own, after the lock where one is taken.
pub(super) async fn read<'a>(
    connection: &mut PgConnection,
    of: impl Iterator<Item = &'a Found>,
    (now, open): (Timestamp, IdRange),
) -> Result<Groups, Failure> {
    let (tenants, names) = keys(of);
    if names.is_empty() {
        return Ok(Groups::new());
    }
    let rows: Vec<Row> = sqlx::query_as(open.and_a_day().told(USAGE))
        .bind(tenants)
        .bind(names)
        .bind(now.as_micros())
        .fetch_all(connection)
        .await?;
    let mut groups: HashMap<Key, Group> = HashMap::new();
    for row in rows {
        let key = (TenantId(row.tenant_id), GroupName::kept(row.name.clone()));
        let group = (groups.entry(key.clone())).or_insert_with(|| Group {
            tenant: key.0,
            name: key.1,
            limits: limits(&row.limits),
            members: Default::default(),
        });
        if let Some(id) = row.destination_id {
            (group.members).insert(DestinationId(id), member(&row, now));
        }
    }
    Ok((groups.into_iter())
        .map(|(key, group)| (key, Arc::new(group)))
        .collect())
}

/// Of the four columns.
pub(super) fn limits(columns: &[Option<i32>]) -> GroupLimits {
    let limit = |at: usize| u32::try_from((*columns.get(at)?)?).ok();
    GroupLimits {
        per_second: limit(0),
        per_minute: limit(1),
        per_hour: limit(2),
        per_day: limit(3),
    }
}

fn member(row: &Row, now: Timestamp) -> Member {
    let margins = LimitSettings {
        safety_margin: row.safety_margin,
        margin_cap: row.margin_cap,
        ..LimitSettings::default()
    };
    let spread = spread(&row.response_times, now.as_micros());
    let at = |micros: &i64| Timestamp::from_micros(*micros);
    Member {
        margin: Some(margins.policy().measured(spread).margin),
        outstanding: (row.not_befores.iter().zip(&row.deadlines))
            .map(|(not_before, deadline)| Outstanding {
                not_before: at(not_before),
                deadline: at(deadline),
            })
            .collect(),
        starts: row.starts.iter().map(at).collect(),
    }
}

/// The group of this destination, if it is in one and that was read.
pub(super) fn of<'a>(groups: &'a Groups, found: &Found) -> Option<&'a Arc<Group>> {
    groups.get(&(found.tenant, found.limit_group.clone()?))
}
