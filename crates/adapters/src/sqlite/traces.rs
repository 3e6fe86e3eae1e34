//! Which traces attempts belong to; asked only where they are recorded.

use async_trait::async_trait;
use domain::ids::AttemptId;
use domain::trace::TraceContext;
use engine::ports::{StoreError, TraceBook, Traced};
use rusqlite::Connection;

use super::SqliteStore;
use super::fault::Fault;
use super::rows::{first, word};

const TRACE: &str = "
    -- traces
    select a.event_id, e.trace from attempts a
    join events e on e.id = a.event_id
    where a.id = ?1 and e.trace is not null";

#[async_trait]
impl TraceBook for SqliteStore {
    async fn traces(&self, attempts: &[AttemptId]) -> Result<Vec<Traced>, StoreError> {
        let attempts = attempts.to_vec();
        Ok(self.read(move |tx| traces(tx, &attempts)).await?)
    }
}

fn traces(connection: &Connection, attempts: &[AttemptId]) -> Result<Vec<Traced>, Fault> {
    let mut found = Vec::new();
    for attempt in attempts {
        let row = first(connection, TRACE, [attempt.0], |row| {
            let event = word(row, 0, ("attempts", "event_id"))?;
            Ok((event, row.get::<_, String>(1)?))
        })?;
        let traced = row.and_then(|(event, trace)| {
            Some(Traced {
                attempt: *attempt,
                event,
                trace: TraceContext::from_stored(&trace)?,
            })
        });
        found.extend(traced);
    }
    Ok(found)
}
