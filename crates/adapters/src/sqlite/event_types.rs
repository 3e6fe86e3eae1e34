//! The catalogue of event types.

use async_trait::async_trait;
use domain::event_types::{EventType, ListedEventType, MAX_TYPES};
use engine::ports::{
    CatalogError, EventTypeChange, EventTypes, StoreError, WantedEventTypes, catalogue_is_full,
    has_rules,
};
use rusqlite::{Connection, Row, Transaction, params};

use super::SqliteStore;
use super::fault::Fault;
use super::rows::{all, execute, first};

const LIST: &str = "
    -- event_types
    select name, description, redact, archived, schema is not null, example is not null
    from event_types
    where (?1 or not archived) and name > ?2 order by name limit ?3";

const READ: &str = "
    -- event_type
    select name, description, redact, archived, schema is not null, example is not null, schema,
        example
    from event_types where name = ?1";

const COUNT: &str = "
    -- create_event_type: how many are there
    select count(*) from event_types";

const CREATE: &str = "
    -- create_event_type
    insert into event_types (name, description, schema, example, redact, archived)
    values (?1, ?2, ?3, ?4, ?5, ?6)";

const CHANGE: &str = "
    -- change_event_type
    update event_types
    set description = coalesce(?2, description),
        schema = iif(?3, ?4, schema),
        example = iif(?5, ?6, example),
        redact = coalesce(?7, redact),
        archived = coalesce(?8, archived)
    where name = ?1";

const DELETE: &str = "
    -- delete_event_type
    delete from event_types where name = ?1 and json_array_length(redact) = 0";

#[async_trait]
impl EventTypes for SqliteStore {
    async fn event_types(
        &self,
        wanted: &WantedEventTypes,
    ) -> Result<Vec<ListedEventType>, CatalogError> {
        let wanted = wanted.clone();
        let page = move |tx: &Transaction<'_>| {
            let after = wanted.after.as_deref().unwrap_or_default();
            all(tx, LIST, (wanted.archived, after, wanted.limit), listed)
        };
        Ok(self.read(page).await?)
    }

    async fn event_type(&self, name: &str) -> Result<EventType, CatalogError> {
        let name = name.to_owned();
        Ok(self.read(move |tx| read(tx, &name)).await?)
    }

    async fn create_event_type(&self, new: &EventType) -> Result<(), CatalogError> {
        let new = new.clone();
        Ok(self.write(move |tx, _| create(tx, &new)).await?)
    }

    async fn change_event_type(
        &self,
        name: &str,
        change: &EventTypeChange,
    ) -> Result<EventType, CatalogError> {
        let (name, change) = (name.to_owned(), change.clone());
        Ok(self.write(move |tx, _| alter(tx, &name, &change)).await?)
    }

    async fn delete_event_type(&self, name: &str) -> Result<(), CatalogError> {
        let name = name.to_owned();
        Ok(self.write(move |tx, _| delete(tx, &name)).await?)
    }
}

fn read(connection: &Connection, name: &str) -> Result<EventType, Fault> {
    let found = first(connection, READ, [name], |row| {
        let listed = listed(row)?;
        Ok(EventType {
            name: listed.name,
            description: listed.description,
            schema: row.get(6)?,
            example: row.get(7)?,
            redact: listed.redact,
            archived: listed.archived,
        })
    })?;
    found.ok_or_else(no_such_type)
}

fn create(tx: &Transaction<'_>, new: &EventType) -> Result<(), Fault> {
    let row = params![
        new.name,
        new.description,
        new.schema,
        new.example,
        kept(&new.redact),
        new.archived,
    ];
    let count: Option<u32> = first(tx, COUNT, [], |row| Ok(row.get(0)?))?;
    if count.is_some_and(|count| count >= MAX_TYPES) && read(tx, &new.name).is_err() {
        return Err(catalogue_is_full().into());
    }
    execute(tx, CREATE, row)?;
    Ok(())
}

fn alter(tx: &Transaction<'_>, name: &str, change: &EventTypeChange) -> Result<EventType, Fault> {
    let row = params![
        name,
        change.description,
        change.schema.is_some(),
        change.schema.as_ref().and_then(Option::as_deref),
        change.example.is_some(),
        change.example.as_ref().and_then(Option::as_deref),
        change.redact.as_deref().map(kept),
        change.archived,
    ];
    match execute(tx, CHANGE, row)? {
        0 => Err(no_such_type()),
        _ => read(tx, name),
    }
}

fn delete(tx: &Transaction<'_>, name: &str) -> Result<(), Fault> {
    match execute(tx, DELETE, [name])? {
        0 => read(tx, name).and(Err(has_rules().into())),
        _ => Ok(()),
    }
}

fn no_such_type() -> Fault {
    CatalogError::NotFound("event type").into()
}

fn listed(row: &Row<'_>) -> Result<ListedEventType, Fault> {
    let name: String = row.get(0)?;
    let redact: String = row.get(2)?;
    Ok(ListedEventType {
        redact: pointers(&redact, &name)?,
        name,
        description: row.get(1)?,
        archived: row.get(3)?,
        has_schema: row.get(4)?,
        has_example: row.get(5)?,
    })
}

/// Pointers, as their column has them.
fn kept(pointers: &[String]) -> String {
    serde_json::Value::from(pointers).to_string()
}

/// The same from there.
pub(super) fn pointers(json: &str, name: &str) -> Result<Vec<String>, Fault> {
    serde_json::from_str(json).map_err(|error| {
        Fault::from(StoreError::Corrupt {
            table: "event_types",
            column: "redact",
            row: name.to_owned(),
            problem: error.to_string(),
        })
    })
}
