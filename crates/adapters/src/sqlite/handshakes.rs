//! Handshakes: who is asked, and what is allowed by it; see
//! [`engine::ports::Handshakes`] and [`engine::ports::HandshakeBook`].

use async_trait::async_trait;
use domain::destination::DestinationState;
use domain::handshake::{
    ASKED_AT_ONCE, ASKING, Answer, Handshake, LONGEST_PAUSE, Standing, asked_rate,
};
use domain::ids::{DestinationId, TenantId};
use domain::time::Timestamp;
use domain::watch::News;
use engine::ports::{
    CatalogError, HandshakeBook, HandshakeRecorded, HandshakeView, Handshakes, Question, Questions,
    StoreError, Told,
};
use rusqlite::{Row, Transaction};

use super::SqliteStore;
use super::destinations::{dated, not_found};
use super::fault::Fault;
use super::rows::{all, execute, first, maybe_time, parse, settings, tier_settings, time, word};

const IS_DUE: &str = "
    -- take_handshakes: whether anybody is to be asked
    select 1 from handshakes indexed by handshakes_due
    where next_ask_at <= ?1 and coalesce(asking_until, 0) <= ?1 limit 1";

const NEXT_TENANT: &str = "
    -- take_handshakes: whose turn it is
    select tenant_id from handshakes indexed by handshakes_of_tenant
    where tenant_id > ?1 order by tenant_id limit 1";

const UNDER_WAY: &str = "
    -- take_handshakes: how many of its receivers are asked
    select count(*) from handshakes indexed by handshakes_asking
    where tenant_id = ?1 and asking_until > ?2";

const DUE_OF: &str = "
    -- take_handshakes: which of its receivers are to be asked
    select destination_id from handshakes indexed by handshakes_of_tenant
    where tenant_id = ?1 and next_ask_at <= ?2 and coalesce(asking_until, 0) <= ?2
    order by next_ask_at limit ?3";

const DUE: &str = "
    -- take_handshakes: what it is asked, if it still is to be
    select d.limit_per_second, d.limit_per_minute, d.limit_per_hour, d.limit_per_day, d.unlimited,
        d.burst, d.shape, d.max_in_flight, d.safety_margin, d.margin_cap, d.count,
        t.limit_per_second, t.limit_per_minute, t.limit_per_hour, t.limit_per_day, t.unlimited,
        t.burst, t.shape, t.max_in_flight,
        d.id, d.url, d.state, d.allowed_per_minute, d.tenant_id
    from handshakes h
    join destinations d on d.id = h.destination_id
    join tenants n on n.id = d.tenant_id
    join tiers t on t.name = n.tier
    where h.destination_id = ?1 and h.next_ask_at <= ?2 and coalesce(h.asking_until, 0) <= ?2";

const TAKE: &str = "
    -- take_handshakes: it is asked
    update handshakes set asking_until = ?2 where destination_id = ?1";

const PUT_OFF: &str = "
    -- take_handshakes: it is disabled
    update handshakes set next_ask_at = ?2 where destination_id = ?1";

const FIND: &str = "
    -- record_handshake: what it is about, if it still is
    select h.next_ask_at, h.asked_at, h.outcome, h.problem, h.allowed_until, h.failures,
        d.allowed_per_minute, d.tenant_id
    from destinations d
    join handshakes h on h.destination_id = d.id
    where d.id = ?1 and d.url = ?2 and d.handshake <> 'none' and d.deleted_at is null";

const RECORD: &str = "
    -- record_handshake
    update handshakes
    set next_ask_at = ?2, asking_until = null, asked_at = ?3, outcome = ?4, problem = ?5,
        allowed_until = ?6, failures = ?7
    where destination_id = ?1";

const ALLOW: &str = "
    -- record_handshake: the triggers do the rest
    update destinations set allowed_per_minute = ?2
    where id = ?1 and allowed_per_minute is not ?2";

const NOTE: &str = "
    -- record_handshake: what operators must know
    insert into operational_events (event_type, destination_id, tenant_id, details, created_at)
    values (?1, ?2, ?3, ?4, ?5)";

const VIEW: &str = "
    -- handshake
    select h.next_ask_at, h.asked_at, h.outcome, h.problem, h.allowed_until, h.failures,
        d.allowed_per_minute, d.handshake
    from destinations d
    left join handshakes h on h.destination_id = d.id
    where d.id = ?1 and d.tenant_id = ?2 and d.deleted_at is null";

const ASK_NOW: &str = "
    -- ask_now
    update handshakes set next_ask_at = 0 where destination_id = ?1";

#[async_trait]
impl Handshakes for SqliteStore {
    async fn take_handshakes(
        &self,
        after: Option<TenantId>,
        limit: u32,
    ) -> Result<Questions, StoreError> {
        // Most looks find nobody, and need no turn of the writer's.
        let due = self.look(move |tx, now| in_turn(tx, now, (after, limit)));
        let due = due.await?;
        if due.is_empty() {
            return Ok(Questions::default());
        }
        Ok(self.write(move |tx, now| take(tx, now, &due)).await?)
    }

    async fn record_handshake(
        &self,
        question: &Question,
        answer: &Answer,
    ) -> Result<HandshakeRecorded, StoreError> {
        let (question, answer) = (question.clone(), answer.clone());
        Ok(self
            .write(move |tx, now| record(tx, now, &question, &answer))
            .await?)
    }
}

/// Who is to be asked: from one tenant to the next, past all that its neighbours have.
fn in_turn(
    tx: &Transaction<'_>,
    now: Timestamp,
    (after, limit): (Option<TenantId>, u32),
) -> Result<Vec<String>, Fault> {
    let (at, mut due) = (now.as_micros(), Vec::new());
    if first(tx, IS_DUE, [at], |_| Ok(()))?.is_none() {
        return Ok(due);
    }
    let after = after.map(|tenant| tenant.to_string()).unwrap_or_default();
    let parts = [(after.clone(), None), (String::new(), Some(after))];
    for (mut tenant, upto) in parts {
        while let Some(next) = first(tx, NEXT_TENANT, [&tenant], |row| Ok(row.get(0)?))? {
            tenant = next;
            let left = limit.saturating_sub(u32::try_from(due.len()).unwrap_or(u32::MAX));
            if left == 0 || upto.as_ref().is_some_and(|upto| tenant > *upto) {
                break;
            }
            let under_way: u32 =
                first(tx, UNDER_WAY, (&tenant, at), |row| Ok(row.get(0)?))?.unwrap_or_default();
            let room = ASKED_AT_ONCE.saturating_sub(under_way).min(left);
            due.extend(all(tx, DUE_OF, (&tenant, at, room), |row| Ok(row.get(0)?))?);
        }
    }
    Ok(due)
}

fn take(tx: &Transaction<'_>, now: Timestamp, due: &[String]) -> Result<Questions, Fault> {
    let question = |row: &Row<'_>| {
        let configured = settings(row, (0, 22))?.or_tier(&tier_settings(row, 11)?);
        let question = Question {
            destination: word(row, 19, ("destinations", "id"))?,
            tenant: word(row, 23, ("destinations", "tenant_id"))?,
            url: row.get(20)?,
            per_minute: asked_rate(&configured),
            identity: None,
        };
        let state: DestinationState = word(row, 21, ("destinations", "state"))?;
        Ok((question, state))
    };
    let mut questions = Questions::default();
    for key in due {
        let Some((question, state)) = first(tx, DUE, (key, now.as_micros()), question)? else {
            continue;
        };
        questions.turn = Some(question.tenant);
        if state == DestinationState::Disabled {
            execute(tx, PUT_OFF, (key, (now + LONGEST_PAUSE).as_micros()))?;
        } else {
            execute(tx, TAKE, (key, (now + ASKING).as_micros()))?;
            questions.taken.push(question);
        }
    }
    Ok(questions)
}

fn record(
    tx: &Transaction<'_>,
    now: Timestamp,
    question: &Question,
    answer: &Answer,
) -> Result<HandshakeRecorded, Fault> {
    let key = question.destination.to_string();
    let found = first(tx, FIND, (&key, &question.url), |row| {
        let tenant: TenantId = word(row, 7, ("destinations", "tenant_id"))?;
        Ok((standing(row)?, tenant))
    })?;
    let Some((before, tenant)) = found else {
        return Ok(HandshakeRecorded::default());
    };
    let after = before.clone().after(answer, now);
    let row = (
        &key,
        after.next_ask_at.as_micros(),
        after.asked_at.map(Timestamp::as_micros),
        after.outcome.map(|outcome| outcome.as_str()),
        &after.problem,
        after.allowed_until.map(Timestamp::as_micros),
        after.failures,
    );
    execute(tx, RECORD, row)?;
    let allowed = (&key, after.allowed_per_minute);
    let changed = dated(tx, now, || execute(tx, ALLOW, allowed))? > 0;
    let news = after.news(&before).map(|event_type| News {
        event_type,
        details: after.details(),
    });
    if let Some(news) = &news {
        let (event_type, details) = (news.event_type.as_str(), &news.details);
        let row = (
            event_type,
            &key,
            tenant.to_string(),
            details,
            now.as_micros(),
        );
        execute(tx, NOTE, row)?;
    }
    let destination = question.destination;
    Ok(HandshakeRecorded {
        changed,
        told: news.map(|news| Told {
            destination: Some(destination),
            tenant,
            news,
        }),
    })
}

/// Its first seven columns.
fn standing(row: &Row<'_>) -> Result<Standing, Fault> {
    let outcome: Option<String> = row.get(2)?;
    let outcome = outcome.map(|word| parse(&word, ("handshakes", "outcome")));
    Ok(Standing {
        next_ask_at: time(row, 0)?,
        asked_at: maybe_time(row, 1)?,
        outcome: outcome.transpose()?,
        problem: row.get(3)?,
        allowed_until: maybe_time(row, 4)?,
        failures: row.get(5)?,
        allowed_per_minute: row.get(6)?,
    })
}

#[async_trait]
impl HandshakeBook for SqliteStore {
    async fn handshake(
        &self,
        tenant: TenantId,
        destination: DestinationId,
    ) -> Result<HandshakeView, CatalogError> {
        let key = (destination.to_string(), tenant.to_string());
        Ok(self
            .look(move |tx, _| first(tx, VIEW, key.clone(), view)?.ok_or_else(not_found))
            .await?)
    }

    async fn ask_now(
        &self,
        tenant: TenantId,
        destination: DestinationId,
    ) -> Result<(), CatalogError> {
        let key = (destination.to_string(), tenant.to_string());
        Ok(self
            .write(move |tx, _| {
                let found = first(tx, VIEW, key.clone(), |_| Ok(()))?;
                found.ok_or_else(not_found)?;
                execute(tx, ASK_NOW, [&key.0])?;
                Ok(())
            })
            .await?)
    }
}

fn view(row: &Row<'_>) -> Result<HandshakeView, Fault> {
    let handshake: Handshake = word(row, 7, ("destinations", "handshake"))?;
    let is_on = row.get::<_, Option<i64>>(0)?.is_some();
    Ok(HandshakeView {
        handshake,
        standing: is_on.then(|| standing(row)).transpose()?,
    })
}
