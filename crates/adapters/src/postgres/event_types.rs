//! The catalogue of event types.

use async_trait::async_trait;
use domain::event_types::{EventType, ListedEventType, MAX_TYPES};
use engine::ports::{
    CatalogError, EventTypeChange, EventTypes, WantedEventTypes, catalogue_is_full, has_rules,
};
use sqlx::PgPool;

use super::PostgresStore;
use super::failure::{Failure, retried};
use crate::row::row;

row! {
    /// What there is of a type.
    struct Row {
        name: String,
        description: String,
        schema: Option<String>,
        example: Option<String>,
        redact: Vec<String>,
        archived: bool,
    }
}

row! {
    struct ListedRow {
        name: String,
        description: String,
        redact: Vec<String>,
        archived: bool,
        has_schema: bool,
        has_example: bool,
    }
}

impl From<Row> for EventType {
    fn from(row: Row) -> Self {
        Self {
            name: row.name,
            description: row.description,
            schema: row.schema,
            example: row.example,
            redact: row.redact,
            archived: row.archived,
        }
    }
}

impl From<ListedRow> for ListedEventType {
    fn from(row: ListedRow) -> Self {
        Self {
            name: row.name,
            description: row.description,
            redact: row.redact,
            archived: row.archived,
            has_schema: row.has_schema,
            has_example: row.has_example,
        }
    }
}

#[async_trait]
impl EventTypes for PostgresStore {
    async fn event_types(
        &self,
        wanted: &WantedEventTypes,
    ) -> Result<Vec<ListedEventType>, CatalogError> {
        Ok(retried(|| list(&self.pool, wanted)).await?)
    }

    async fn event_type(&self, name: &str) -> Result<EventType, CatalogError> {
        let found = retried(|| read(&self.pool, name)).await?;
        found.ok_or(CatalogError::NotFound("event type"))
    }

    async fn create_event_type(&self, new: &EventType) -> Result<(), CatalogError> {
        Ok(retried(|| create(&self.pool, new)).await?)
    }

    async fn change_event_type(
        &self,
        name: &str,
        change: &EventTypeChange,
    ) -> Result<EventType, CatalogError> {
        let found = retried(|| alter(&self.pool, name, change)).await?;
        found.ok_or(CatalogError::NotFound("event type"))
    }

    async fn delete_event_type(&self, name: &str) -> Result<(), CatalogError> {
        Ok(retried(|| delete(&self.pool, name)).await?)
    }
}

async fn list(pool: &PgPool, wanted: &WantedEventTypes) -> Result<Vec<ListedEventType>, Failure> {
    let rows: Vec<ListedRow> = sqlx::query_as(
        "-- event_types
        select name, description, redact, archived,
            schema is not null as has_schema, example is not null as has_example
        from event_types
        where ($1 or not archived) and name > $2 order by name limit $3",
    )
    .bind(wanted.archived)
    .bind(wanted.after.as_deref().unwrap_or_default())
    .bind(i64::from(wanted.limit))
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(ListedEventType::from).collect())
}

async fn read(pool: &PgPool, name: &str) -> Result<Option<EventType>, Failure> {
    let row: Option<Row> = sqlx::query_as(
        "-- event_type
        select name, description, schema::text, example::text, redact, archived
        from event_types where name = $1",
    )
    .bind(name)
    .fetch_optional(pool)
    .await?;
    Ok(row.map(EventType::from))
}

async fn create(pool: &PgPool, new: &EventType) -> Result<(), Failure> {
    let mut transaction = pool.begin().await?;
    let created = sqlx::query(
        "-- create_event_type
        insert into event_types (name, description, schema, example, redact, archived)
        select $1, $2, $3::text::json, $4::text::json, $5, $6
        where (select count(*) from event_types) < $7
        on conflict (name) do nothing",
    )
    .bind(&new.name)
    .bind(&new.description)
    .bind(&new.schema)
    .bind(&new.example)
    .bind(&new.redact)
    .bind(new.archived)
    .bind(i64::from(MAX_TYPES))
    .execute(&mut *transaction)
    .await?;
    if created.rows_affected() == 0 {
        let is_there: bool = sqlx::query_scalar(
            "-- create_event_type: is it there already
            select exists (select from event_types where name = $1)",
        )
        .bind(&new.name)
        .fetch_one(&mut *transaction)
        .await?;
        return Err(Failure::Refused(match is_there {
            true => CatalogError::Invalid {
                field: "name".to_owned(),
                problem: "is there already".to_owned(),
            },
            false => catalogue_is_full(),
        }));
    }
    transaction.commit().await?;
    Ok(())
}

async fn alter(
    pool: &PgPool,
    name: &str,
    change: &EventTypeChange,
) -> Result<Option<EventType>, Failure> {
    let row: Option<Row> = sqlx::query_as(
        "-- change_event_type
        update event_types
        set description = coalesce($2, description),
            schema = case when $3 then $4::text::json else schema end,
            example = case when $5 then $6::text::json else example end,
            redact = coalesce($7, redact),
            archived = coalesce($8, archived)
        where name = $1
        returning name, description, schema::text, example::text, redact, archived",
    )
    .bind(name)
    .bind(&change.description)
    .bind(change.schema.is_some())
    .bind(change.schema.as_ref().and_then(Option::as_deref))
    .bind(change.example.is_some())
    .bind(change.example.as_ref().and_then(Option::as_deref))
    .bind(&change.redact)
    .bind(change.archived)
    .fetch_optional(pool)
    .await?;
    Ok(row.map(EventType::from))
}

async fn delete(pool: &PgPool, name: &str) -> Result<(), Failure> {
    let deleted = sqlx::query(
        "-- delete_event_type
        delete from event_types where name = $1 and redact = '{}'",
    )
    .bind(name)
    .execute(pool)
    .await?;
    if deleted.rows_affected() > 0 {
        return Ok(());
    }
    Err(match read(pool, name).await? {
        None => Failure::NotFound("event type"),
        Some(_) => Failure::Refused(has_rules()),
    })
}
