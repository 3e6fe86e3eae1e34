//! A step of the watch.
//!
//! Whoever has the turn's row goes on with the round, in one transaction: what
//! is found, what is remembered of it and how far the round has come are
//! committed together.

mod rows;
pub(super) mod tenants;

use std::time::Duration;

use domain::ids::{DestinationId, TenantId};
use domain::time::{Timestamp, micros};
use domain::watch::{Around, Sight, shortfall};
use engine::ports::{Fleet, MAX_TALLIES, Told, WatchRules, Watched};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::destinations::{Known, read_destinations};
use super::failure::Failure;
use super::fleet::fleet;
use super::limit_group;
use super::rows::count;
use super::secrets;
use super::usage::{self, Question};
pub(super) use rows::WatchRow;
use rows::{Passed, passed};

/// One step.
pub(super) async fn step(pool: &PgPool, rules: &WatchRules) -> Result<Watched, Failure> {
    let mut transaction = pool.begin().await?;
    let Some(after) = take_turn(&mut transaction, DESTINATIONS).await? else {
        transaction.commit().await?;
        return Ok(Watched::default());
    };
    let fleet = fleet(&mut *transaction).await?;
    let more_died = add_up_dead_letters(&mut transaction).await?;
    let (now, mut page) = passed(&mut transaction, after, rules.page).await?;
    let full = u32::try_from(page.len()).is_ok_and(|length| length >= rules.page);
    let cut = cut(&mut page, rules, now);
    let passed_last = page.last().map(|last| last.id);
    page.retain(|one| one.is_looked_at(rules, now));
    let backlogs = backlogs(&mut transaction, &page, rules.counted).await?;
    let uncounted = backlogs.len() < page.len();
    page.truncate(backlogs.len());
    let more = full || cut || uncounted;
    let last = match uncounted {
        true => page.last().map(|last| last.id),
        false => passed_last,
    };
    let next = last.filter(|_| more);
    let sights = look(&mut transaction, &page, &backlogs, &fleet).await?;
    let mut news = Vec::new();
    for (one, sight) in page.iter_mut().zip(&sights) {
        news.extend(one.judge(sight, rules, now));
    }
    rows::write(&mut transaction, &page, rules, now).await?;
    note(&mut transaction, &news).await?;
    let (of_tenants, more_tenants) = tenants::step(&mut transaction, rules).await?;
    news.extend(of_tenants);
    let pause = match more || more_died || more_tenants {
        true => rules.pace,
        false => rules.every,
    };
    end_turn(&mut transaction, DESTINATIONS, next, pause).await?;
    transaction.commit().await?;
    Ok(Watched {
        stepped: true,
        more,
        looked: u32::try_from(page.len()).unwrap_or(u32::MAX),
        news,
    })
}

/// The rounds: by their numbers in `watch_turn`.
const DESTINATIONS: i16 = 1;
const TENANTS: i16 = 2;

/// How far a round has come, if a step is due and nobody takes it: the outer
/// `None` if not, the inner at the beginning.
async fn take_turn(
    connection: &mut PgConnection,
    round: i16,
) -> Result<Option<Option<Uuid>>, Failure> {
    Ok(sqlx::query_scalar(
        "-- watch: take_turn
        select t.after from watch_turn t
        where t.id = $1 and t.due_at <= clock_timestamp()
        for update skip locked",
    )
    .bind(round)
    .fetch_optional(connection)
    .await?)
}

async fn end_turn(
    connection: &mut PgConnection,
    round: i16,
    next: Option<Uuid>,
    pause: Duration,
) -> Result<(), Failure> {
    sqlx::query(
        "-- watch: end_turn
        update watch_turn t
        set after = $1, due_at = clock_timestamp() + $2::bigint * interval '1 microsecond'
        where t.id = $3",
    )
    .bind(next)
    .bind(micros(pause))
    .bind(round)
    .execute(connection)
    .await?;
    Ok(())
}

/// Rows that transactions under way hold are not there yet: another step's.
/// Whether there may be more.
async fn add_up_dead_letters(connection: &mut PgConnection) -> Result<bool, Failure> {
    let taken: i64 = sqlx::query_scalar(
        "-- watch: add_up_dead_letters
        with taken as materialized (
            delete from dead_letter_tallies t
            where t.id in (select id from dead_letter_tallies order by id limit $1)
            returning t.destination_id, t.tenant_id
        ),
        added as (
            insert into watches as w (destination_id, tenant_id, dead_letters)
            select t.destination_id, t.tenant_id, count(*)
            from taken t
            group by t.destination_id, t.tenant_id
            order by t.destination_id
            on conflict (destination_id) do update
            set dead_letters = w.dead_letters + excluded.dead_letters
        )
        select count(*) from taken",
    )
    .bind(i64::from(MAX_TALLIES))
    .fetch_one(connection)
    .await?;
    Ok(taken >= i64::from(MAX_TALLIES))
}

/// Leaves out those after the last that one step looks at; whether there were
/// any.
fn cut(page: &mut Vec<Passed>, rules: &WatchRules, now: Timestamp) -> bool {
    let mut looks = 0;
    let fits = |one: &Passed| {
        looks += u32::from(one.is_looked_at(rules, now));
        looks <= rules.looks
    };
    let before = page.len();
    let kept = page.iter().map(fits).take_while(|fits| *fits).count();
    page.truncate(kept);
    kept < before
}

/// What is found at each.
async fn look(
    connection: &mut PgConnection,
    page: &[Passed],
    backlogs: &[u32],
    fleet: &Fleet,
) -> Result<Vec<Sight>, Failure> {
    if page.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<Uuid> = page.iter().map(|one| one.id).collect();
    let Known { now, open, found } = read_destinations(connection, &ids).await?;
    let living: Vec<_> = (found.values())
        .filter(|destination| !destination.deleted)
        .collect();
    let groups = limit_group::read(connection, living.iter().copied(), (now, open)).await?;
    let questions: Vec<Question<'_>> = (living.iter())
        .map(|destination| Question {
            // The starts that a bucket is judged by.
            recount: true,
            ..Question::of(destination, &groups)
        })
        .collect();
    let readings = usage::read(connection, &questions, (now, open)).await?;
    let troubles = secrets::token_troubles(connection, &ids).await?;
    let sight = |(one, backlog): (&Passed, &u32)| {
        let id = DestinationId(one.id);
        let reading = readings.get(&id).zip(found.get(&id));
        let shortfall = reading.and_then(|(reading, destination)| {
            let tenant = (destination.tenant, destination.tenant_max_in_flight);
            let no_token = troubles.get(&id).is_some_and(|trouble| trouble.stands(now));
            shortfall(
                &destination.policy,
                &reading.usage,
                &reading.backlog,
                Around::of(fleet, (one.held_for, one.oldest), tenant).without_token(no_token),
                now,
            )
        });
        Sight {
            backlog: *backlog,
            oldest: one.oldest,
            shortfall,
        }
    };
    Ok(page.iter().zip(backlogs).map(sight).collect())
}

/// The backlogs of the first ones of the page: as many as make `most` together,
/// where one more may be begun.
async fn backlogs(
    connection: &mut PgConnection,
    page: &[Passed],
    most: u32,
) -> Result<Vec<u32>, Failure> {
    let (mut found, mut counted) = (Vec::new(), 0_u32);
    while found.len() < page.len() && counted < most {
        let rest = &page[found.len()..];
        let mut far = 0_u32;
        // However far each has to be counted, they fit into what is left.
        let fits = |one: &&Passed| {
            let so_far = far;
            far = far.saturating_add(one.count_up_to());
            so_far == 0 || far <= most - counted
        };
        let together = rest.iter().take_while(fits).count();
        let next = count_together(connection, &rest[..together]).await?;
        counted = next
            .iter()
            .fold(counted, |sum, one| sum.saturating_add(*one));
        found.extend(next);
    }
    Ok(found)
}

/// How many wait, counted as far as each asks for.
async fn count_together(
    connection: &mut PgConnection,
    page: &[Passed],
) -> Result<Vec<u32>, Failure> {
    let far: Vec<i64> = (page.iter())
        .map(|one| i64::from(one.count_up_to()))
        .collect();
    let counts: Vec<i64> = sqlx::query_scalar(
        "-- watch: backlogs
        select least(f.waiting + l.waiting, n.far)
        from unnest($1::uuid[], $2::bigint[]) with ordinality as n (id, far, position)
        left join pacing p on p.destination_id = n.id
        cross join lateral (
            select count(*) as waiting from (
                select from deliveries a
                where a.destination_id = n.id and a.permit is null and a.due_at is null
                    and a.id + 0 > coalesce(p.first_after, 0)
                limit n.far
            ) x
        ) f
        cross join lateral (
            select count(*) as waiting from (
                select from deliveries a
                where a.destination_id = n.id and a.permit is null and a.due_at is not null
                limit n.far
            ) x
        ) l
        order by n.position",
    )
    .bind(page.iter().map(|one| one.id).collect::<Vec<_>>())
    .bind(far)
    .fetch_all(connection)
    .await?;
    Ok(counts.into_iter().map(count).collect())
}

/// Writes down what operators must know.
pub(super) async fn note(connection: &mut PgConnection, news: &[Told]) -> Result<(), Failure> {
    if news.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "-- watch: note
        insert into operational_events (event_type, destination_id, tenant_id, details)
        select n.event_type, n.destination_id, n.tenant_id, n.details
        from unnest($1::text[], $2::uuid[], $3::uuid[], $4::text[])
            as n (event_type, destination_id, tenant_id, details)",
    )
    .bind(
        news.iter()
            .map(|one| one.news.event_type.as_str())
            .collect::<Vec<_>>(),
    )
    .bind(
        news.iter()
            .map(|one| one.destination.map(|id| id.0))
            .collect::<Vec<_>>(),
    )
    .bind(news.iter().map(|one| one.tenant.0).collect::<Vec<_>>())
    .bind(
        news.iter()
            .map(|one| one.news.details.as_str())
            .collect::<Vec<_>>(),
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// News of a destination.
fn told(id: Uuid, tenant: Uuid, news: domain::watch::News) -> Told {
    Told {
        destination: Some(DestinationId(id)),
        tenant: TenantId(tenant),
        news,
    }
}
