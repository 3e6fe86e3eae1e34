//! What the members of a limit group use of it: what a run of one of them reads beside its
//! own usage. Where no destination is in a group nothing of this is asked.

use std::collections::BTreeMap;
use std::sync::Arc;

use domain::admission::{Group, Member, Outstanding};
use domain::ids::{DestinationId, TenantId};
use domain::limit_group::GroupName;
use domain::margin::Margin;
use domain::policy::LimitSettings;
use domain::time::Timestamp;
use rusqlite::Transaction;

use super::fault::Fault;
use super::limit_groups::limits;
use super::response_times::spread;
use super::rows::{all, first, maybe_time, time, word};

const LIMITS: &str = "
    -- admit: a group's limits as they are now
    select limit_per_second, limit_per_minute, limit_per_hour, limit_per_day
    from limit_groups where tenant_id = ?1 and name = ?2";

/// One that left and came back is a member.
const MEMBERS: &str = "
    -- admit: whose starts may be in a group's windows
    select m.destination_id, iif(count(*) = count(m.left_at), max(m.left_at), null),
        d.safety_margin, d.margin_cap, r.least_micros, r.least_at, r.most_micros, r.most_at
    from limit_group_members m indexed by limit_group_members_of_group
    join destinations d on d.id = m.destination_id
    left join response_times r on r.destination_id = d.id
    where m.tenant_id = ?1 and m.limit_group = ?2 and (m.left_at is null or m.left_at > ?3)
    group by m.destination_id";

const OUTSTANDING: &str = "
    -- admit: a member's permits that may still start
    select not_before, deadline from deliveries indexed by deliveries_held
    where destination_id = ?1 and state = 'admitted' and permit is not null
        and carried_by is null";

const UNDER_WAY: &str = "
    -- admit: a member's starts of what is under way
    select started_at from deliveries indexed by deliveries_held
    where destination_id = ?1 and state = 'started' and started_at > ?2
        and permit is not null and carried_by is null
        and (?4 is null or claimed_at < ?4)
    order by started_at desc limit ?3";

const STARTS: &str = "
    -- admit: a member's starts of what is over
    select started_at from ledger indexed by ledger_starts
    where destination_id = ?1 and folded = ?5 and started_at > ?2 and carried_by is null
        and (?4 is null or claimed_at < ?4)
    order by started_at desc limit ?3";

/// The statements that meet the ledger, for the test of what they cost.
#[cfg(test)]
pub(super) const MEASURED: [&str; 3] = [OUTSTANDING, UNDER_WAY, STARTS];

/// Groups that a transaction has read: each is read once, and its members share it.
#[derive(Default)]
pub(super) struct Groups(BTreeMap<(TenantId, GroupName), Option<Arc<Group>>>);

impl Groups {
    /// `None` if there is no such group, which the schema keeps from happening.
    pub(super) fn read(
        &mut self,
        tx: &Transaction<'_>,
        now: Timestamp,
        (tenant, name): (TenantId, GroupName),
    ) -> Result<Option<Arc<Group>>, Fault> {
        let key = (tenant, name);
        if let Some(known) = self.0.get(&key) {
            return Ok(known.clone());
        }
        let group = group(tx, now, &key)?.map(Arc::new);
        self.0.insert(key, group.clone());
        Ok(group)
    }
}

/// Who is in it, until when it counts, and how its requests may meet others'.
struct Counted {
    destination: DestinationId,
    left_at: Option<Timestamp>,
    margin: Margin,
}

fn group(
    tx: &Transaction<'_>,
    now: Timestamp,
    (tenant, name): &(TenantId, GroupName),
) -> Result<Option<Group>, Fault> {
    let key = (tenant.to_string(), name.as_str());
    let Some(limits) = first(tx, LIMITS, (&key.0, key.1), |row| limits(row, 0))? else {
        return Ok(None);
    };
    let since = now - Group::reaches_back(&limits);
    let key = (key.0, key.1, since.as_micros());
    let counted = all(tx, MEMBERS, key, |row| {
        let margins = LimitSettings {
            safety_margin: row.get(2)?,
            margin_cap: row.get(3)?,
            ..LimitSettings::default()
        };
        Ok(Counted {
            destination: word(row, 0, ("limit_group_members", "destination_id"))?,
            left_at: maybe_time(row, 1)?,
            margin: margins.policy().measured(spread(row, 4, now)?).margin,
        })
    })?;
    let mut members = BTreeMap::new();
    for one in counted {
        let member = member(tx, &one, (since, Group::reads(&limits)))?;
        members.insert(one.destination, member);
    }
    Ok(Some(Group {
        tenant: *tenant,
        name: name.clone(),
        limits,
        members,
    }))
}

fn member(
    tx: &Transaction<'_>,
    one: &Counted,
    (since, most): (Timestamp, u32),
) -> Result<Member, Fault> {
    let key = one.destination.to_string();
    let left_at = one.left_at.map(Timestamp::as_micros);
    let since = since.as_micros();
    let mut starts = all(tx, UNDER_WAY, (&key, since, most, left_at), |row| {
        time(row, 0)
    })?;
    for folded in [false, true] {
        let of = (&key, since, most, left_at, folded);
        starts.extend(all(tx, STARTS, of, |row| time(row, 0))?);
    }
    // What one that left has out it has for itself.
    let outstanding = match one.left_at {
        Some(_) => Vec::new(),
        None => all(tx, OUTSTANDING, [&key], |row| {
            Ok(Outstanding {
                not_before: time(row, 0)?,
                deadline: time(row, 1)?,
            })
        })?,
    };
    Ok(Member {
        margin: Some(one.margin),
        outstanding,
        starts,
    })
}
