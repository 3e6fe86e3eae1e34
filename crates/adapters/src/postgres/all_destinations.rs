//! The destinations of all tenants, as an operator looks at them; see
//! [`engine::ports::Overview::all_destinations`].

use std::collections::HashMap;

use engine::ports::{
    AllDestinations, MAX_OF_ALL, MAX_SKIPPED, OfTenant, TroubleState, WantedOfAll,
};
use sqlx::{AssertSqlSafe, PgPool};
use uuid::Uuid;

use super::failure::Failure;
use super::harm::{BY_HARM, is_failing, is_troubled};
use super::{catalog, health_book};

/// Four statements: which, how many, what they are, and how they are. Between them one
/// may be deleted: it is left out.
pub(super) async fn page(pool: &PgPool, wanted: &WantedOfAll) -> Result<AllDestinations, Failure> {
    let first = first(pool, wanted).await?;
    let (count, failing) = counts(pool).await?;
    let ids: Vec<Uuid> = first.iter().map(|(id, ..)| *id).collect();
    let found = catalog::of_all(pool, &ids).await?;
    let mut found: HashMap<Uuid, _> = found.into_iter().map(|one| (one.id.0, one)).collect();
    let health = health_book::of_all(pool, &ids).await?;
    let mut health: HashMap<Uuid, _> = (health.into_iter())
        .map(|one| (one.destination.0, one))
        .collect();
    let matching = first.first().map_or(0, |(_, _, matching)| *matching);
    let page = first.into_iter().filter_map(|(id, tenant_name, _)| {
        Some(OfTenant {
            destination: found.remove(&id)?,
            health: health.remove(&id)?,
            tenant_name,
        })
    });
    Ok(AllDestinations {
        page: page.collect(),
        matching: matching.unsigned_abs(),
        count,
        failing,
    })
}

async fn first(pool: &PgPool, wanted: &WantedOfAll) -> Result<Vec<(Uuid, String, i64)>, Failure> {
    let (is_troubled, is_failing) = (is_troubled(), is_failing());
    let is_wanted = match wanted.state {
        None => "true",
        Some(TroubleState::Attention) => &is_troubled,
        Some(TroubleState::Failing) => &is_failing,
        Some(TroubleState::Held) => "coalesce(h.held_until > clock_timestamp(), false)",
        Some(TroubleState::Paused) => "d.state = 'paused'",
        Some(TroubleState::Disabled) => "d.state = 'disabled'",
    };
    let sql = format!(
        "-- all_destinations
        select d.id, n.name, count(*) over () from destinations d
        join tenants n on n.id = d.tenant_id
        left join health h on h.destination_id = d.id
        left join watches w on w.destination_id = d.id
        left join tally_marks m on m.destination_id = d.id
        where d.deleted_at is null and ({is_wanted})
            and ($1 = '' or strpos(lower(d.name), $1) > 0 or strpos(lower(d.url), $1) > 0
                or strpos(d.id::text, $1) > 0 or strpos(lower(n.name), $1) > 0
                or strpos(n.id::text, $1) > 0)
        order by not ({is_troubled}), {BY_HARM}
        limit $2 offset $3"
    );
    Ok(sqlx::query_as(AssertSqlSafe(sql))
        .bind(wanted.text.trim().to_lowercase())
        .bind(i64::from(wanted.limit.min(MAX_OF_ALL)))
        .bind(i64::from(wanted.skip.min(MAX_SKIPPED)))
        .fetch_all(pool)
        .await?)
}

async fn counts(pool: &PgPool) -> Result<(u64, u64), Failure> {
    let sql = format!(
        "-- all_destinations: counts
        select count(*), count(*) filter (where {}) from destinations d
        left join health h on h.destination_id = d.id
        left join tally_marks m on m.destination_id = d.id
        where d.deleted_at is null",
        is_failing()
    );
    let (count, failing): (i64, i64) = sqlx::query_as(AssertSqlSafe(sql)).fetch_one(pool).await?;
    Ok((count.unsigned_abs(), failing.unsigned_abs()))
}
