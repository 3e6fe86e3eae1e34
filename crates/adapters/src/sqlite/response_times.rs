//! How much response times differ, as workers say; see
//! [`engine::ports::Store::report_spreads`].

use std::time::Duration;

use domain::ids::DestinationId;
use domain::margin::{Measured, Spread};
use domain::time::{Timestamp, micros};
use rusqlite::{Row, Transaction};

use super::fault::Fault;
use super::rows::{execute, first, time};

const KNOWN: &str = "
    -- report_spreads: what is known
    select least_micros, least_at, most_micros, most_at from response_times
    where destination_id = ?1";

const WRITE: &str = "
    -- report_spreads: of a destination that is still there
    insert into response_times (destination_id, least_micros, least_at, most_micros, most_at)
    select id, ?2, ?3, ?4, ?5 from destinations where id = ?1 and deleted_at is null
    on conflict (destination_id) do update
    set least_micros = excluded.least_micros, least_at = excluded.least_at,
        most_micros = excluded.most_micros, most_at = excluded.most_at";

/// Joins what is said with what is known.
pub(super) fn report(
    tx: &Transaction<'_>,
    now: Timestamp,
    spreads: &[(DestinationId, Spread)],
) -> Result<(), Fault> {
    for (destination, said) in spreads {
        let key = destination.to_string();
        let known = first(tx, KNOWN, [&key], measured)?;
        let Measured { least, most } = match known {
            Some(known) => known.and(*said, now),
            None => Measured::first(*said, now),
        };
        let (least_at, most_at) = (least.1.as_micros(), most.1.as_micros());
        let row = (&key, micros(least.0), least_at, micros(most.0), most_at);
        execute(tx, WRITE, row)?;
    }
    Ok(())
}

fn measured(row: &Row<'_>) -> Result<Measured, Fault> {
    Ok(Measured {
        least: (duration(row.get(0)?), time(row, 1)?),
        most: (duration(row.get(2)?), time(row, 3)?),
    })
}

/// The spread of these two columns; none where there is no row.
pub(super) fn spread(row: &Row<'_>, first: usize) -> Result<Option<Spread>, Fault> {
    let (least, most): (Option<i64>, Option<i64>) = (row.get(first)?, row.get(first + 1)?);
    Ok(least.zip(most).map(|(least, most)| Spread {
        least: duration(least),
        most: duration(most),
    }))
}

fn duration(micros: i64) -> Duration {
    Duration::from_micros(micros.max(0).unsigned_abs())
}
