//! What metrics are sampled from, on the connection of those who count.

use async_trait::async_trait;
use domain::ids::DestinationId;
use domain::time::Timestamp;
use domain::watch::Shortfall;
use engine::ports::{
    MAX_SURVEYED, MAX_TROUBLES, StoreError, Survey, SurveyPage, SurveyRules, Surveyed,
    SurveyedBacklog, TroubledTenants, Troubles,
};
use rusqlite::Transaction;

use super::SqliteStore;
use super::admit;
use super::fault::Fault;
use super::rows::{all, first, maybe_time, parse, word};
use super::secrets;
use super::sweep::Hops;
use super::watch::{COUNT_DUE, COUNT_FIRST};

const OLDEST: &str = "
    -- survey: whose it is, and since when the first of what is due waits
    select d.tenant_id,
        (
            select created_at from deliveries
            where id = line_head(?1) and permit is null and due_at is null
        ),
        (
            select due_at from deliveries indexed by deliveries_due
            where destination_id = ?1 and permit is null and due_at is not null
                and urgent = 1
            order by due_at limit 1
        ),
        (
            select due_at from deliveries indexed by deliveries_due
            where destination_id = ?1 and permit is null and due_at is not null
                and urgent = 0 and due_at <= ?2
            order by due_at limit 1
        )
    from destinations d where d.id = ?1 and d.deleted_at is null";

const HELD_FOR: &str = "
    -- survey: the reason of the hold, if it goes on
    select held_for from health where destination_id = ?1 and held_until > ?2";

const BREAKERS: &str = "
    -- survey: open breakers
    select count(*) from (select 1 from health where opened_at is not null limit ?1)";

const SHORT: &str = "
    -- survey: who gets less than its limit allows
    select short_for, count(*) from watches
    where short_told = 1 and short_for is not null
    group by short_for";

/// The table has those alone that are not well.
const TENANTS: &str = "
    -- survey: troubled tenants
    select count(success_low_since), count(destinations_high_since), count(backlog_high_since),
        count(refused_since)
    from (select * from tenant_watches limit ?1)";

/// The statements of a page, for the test of what they cost.
#[cfg(test)]
pub(super) const MEASURED: [&str; 3] = [OLDEST, COUNT_FIRST, COUNT_DUE];

#[async_trait]
impl Survey for SqliteStore {
    async fn survey_backlogs(
        &self,
        after: Option<DestinationId>,
        rules: &SurveyRules,
    ) -> Result<SurveyPage, StoreError> {
        let (rules, now) = (*rules, (self.clock)());
        Ok(self
            .count(move |tx| backlogs(tx, now, after, &rules))
            .await?)
    }

    async fn survey_standings(
        &self,
        destinations: &[DestinationId],
    ) -> Result<Vec<Surveyed>, StoreError> {
        let first = destinations.len().min(MAX_SURVEYED);
        let (ids, now) = (destinations[..first].to_vec(), (self.clock)());
        let step = move |tx: &Transaction<'_>| {
            let standings = ids.iter().map(|id| standing(tx, now, *id));
            standings.filter_map(Result::transpose).collect()
        };
        Ok(self.count(step).await?)
    }

    async fn survey_troubles(&self) -> Result<Troubles, StoreError> {
        Ok(self.count(troubles).await?)
    }
}

pub(super) fn backlogs(
    tx: &Transaction<'_>,
    now: Timestamp,
    after: Option<DestinationId>,
    rules: &SurveyRules,
) -> Result<SurveyPage, Fault> {
    let after = after.map(|after| after.to_string()).unwrap_or_default();
    let mut hops = Hops::beyond(tx, &after)?;
    let mut page = SurveyPage::default();
    for _ in 0..rules.page {
        let Some(key) = hops.next()? else {
            return Ok(SurveyPage { next: None, ..page });
        };
        page.backlogs.extend(backlog(tx, now, &key, rules.far)?);
        page.next = Some(parse(&key, ("attempts", "destination_id"))?);
    }
    Ok(page)
}

/// `None` if it is gone, or if what it has has permits.
fn backlog(
    tx: &Transaction<'_>,
    now: Timestamp,
    key: &str,
    far: u32,
) -> Result<Option<SurveyedBacklog>, Fault> {
    let found = first(tx, OLDEST, (key, now.as_micros()), |row| {
        let oldest = [1, 2, 3].map(|at| maybe_time(row, at));
        let oldest = oldest.into_iter().collect::<Result<Vec<_>, _>>()?;
        let oldest = oldest.into_iter().flatten().min();
        Ok((word(row, 0, ("destinations", "tenant_id"))?, oldest))
    })?;
    let Some((tenant, oldest)) = found else {
        return Ok(None);
    };
    let count = |sql| {
        let counted: Option<u32> = first(tx, sql, (key, far), |row| Ok(row.get(0)?))?;
        Ok::<_, Fault>(counted.unwrap_or(0))
    };
    let one = SurveyedBacklog {
        destination: parse(key, ("attempts", "destination_id"))?,
        tenant,
        firsts: count(COUNT_FIRST)?,
        others: count(COUNT_DUE)?,
        oldest,
    };
    Ok((one.waiting() > 0).then_some(one))
}

fn standing(
    tx: &Transaction<'_>,
    now: Timestamp,
    id: DestinationId,
) -> Result<Option<Surveyed>, Fault> {
    let Some(reading) = admit::reading(tx, now, id)? else {
        return Ok(None);
    };
    let held_for: Option<Option<String>> =
        first(tx, HELD_FOR, (id.to_string(), now.as_micros()), |row| {
            Ok(row.get(0)?)
        })?;
    let held_for = held_for.flatten();
    let (tenant, tenant_max_in_flight) = reading.tenant;
    Ok(Some(Surveyed {
        destination: id,
        tenant,
        tenant_max_in_flight,
        policy: reading.policy,
        usage: reading.usage,
        backlog: reading.backlog,
        held_for: held_for
            .map(|reason| parse(&reason, ("health", "held_for")))
            .transpose()?,
        token_trouble: secrets::token_trouble(tx, id)?,
    }))
}

fn troubles(tx: &Transaction<'_>) -> Result<Troubles, Fault> {
    let open: Option<u32> = first(tx, BREAKERS, [MAX_TROUBLES], |row| Ok(row.get(0)?))?;
    let mut short = all(tx, SHORT, [], |row| {
        let reason: Shortfall = word(row, 0, ("watches", "short_for"))?;
        Ok((reason, row.get::<_, u32>(1)?))
    })?;
    short.sort_by_key(|(reason, _)| Shortfall::ALL.iter().position(|one| one == reason));
    let tenants = first(tx, TENANTS, [MAX_TROUBLES], |row| {
        Ok(TroubledTenants {
            success_low: row.get(0)?,
            destinations_high: row.get(1)?,
            backlog_high: row.get(2)?,
            refused: row.get(3)?,
        })
    })?;
    Ok(Troubles {
        breakers_open: open.unwrap_or(0),
        short,
        tenants: tenants.unwrap_or_default(),
    })
}
