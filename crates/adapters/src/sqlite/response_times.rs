//! How much response times differ, as workers say; see
//! [`engine::ports::Store::report_spreads`].

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
        let known = first(tx, KNOWN, [&key], |row| measured(row, 0))?;
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

fn measured(row: &Row<'_>, first: usize) -> Result<Measured, Fault> {
    let end =
        |at: usize| -> Result<(i64, Timestamp), Fault> { Ok((row.get(at)?, time(row, at + 1)?)) };
    Ok(Measured::of_micros(end(first)?, end(first + 2)?))
}

/// How much they differ by now, by the four columns from `first` on; `None` where there is
/// no row.
pub(super) fn spread(row: &Row<'_>, first: usize, now: Timestamp) -> Result<Option<Spread>, Fault> {
    let is_there: Option<i64> = row.get(first)?;
    let known = is_there.map(|_| measured(row, first)).transpose()?;
    Ok(known.and_then(|known| known.spread(now)))
}
