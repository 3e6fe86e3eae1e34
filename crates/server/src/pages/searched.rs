//! What somebody types into a form that searches, and what it means.
//!
//! Whatever is wrong with it is said beside the form, which keeps what was typed.

use chrono::{DateTime, NaiveDate, NaiveDateTime};
use domain::ids::{DestinationId, TenantId};
use domain::search::{InvalidStatus, SoughtStatus};
use domain::time::Timestamp;
use engine::ports::Destination;

use super::Pages;
use super::refused::Refused;
use crate::service::rules::{self, Lines};

/// So many pages are asked for until one has a line: what was searched for may be far back.
pub(super) const ROUNDS: u32 = 5;

/// How people write a time; our pages write the first.
const WRITTEN: [&str; 4] = [
    "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%d %H:%M",
    "%Y-%m-%dT%H:%M:%S",
    "%Y-%m-%dT%H:%M",
];

/// What was typed, if anything was.
pub(super) fn text(typed: &str) -> Option<&str> {
    Some(typed.trim()).filter(|text| !text.is_empty())
}

/// A time or a day, in UTC unless it says its offset.
pub(super) fn time(field: &str, typed: &str) -> Result<Option<Timestamp>, Refused> {
    let Some(typed) = text(typed) else {
        return Ok(None);
    };
    let written = |form: &&str| NaiveDateTime::parse_from_str(typed, form).ok();
    let day = || typed.parse::<NaiveDate>().ok()?.and_hms_opt(0, 0, 0);
    let in_utc = || WRITTEN.iter().find_map(written).or_else(day);
    let time = match DateTime::parse_from_rfc3339(typed) {
        Ok(time) => Some(time.to_utc()),
        Err(_) => in_utc().map(|time| time.and_utc()),
    };
    let problem = || format!("{field}: must be a time such as 2026-01-31 12:00, or a day");
    let time = time.ok_or_else(|| Refused::invalid(problem()))?;
    Ok(Some(Timestamp::from_micros(time.timestamp_micros())))
}

/// A status, or a class of them.
pub(super) fn status(typed: &str) -> Result<Option<SoughtStatus>, Refused> {
    let parsed = text(typed).map(str::parse).transpose();
    parsed.map_err(|problem: InvalidStatus| Refused::invalid(format!("status: {problem}")))
}

/// Among so many that have it in their names or URLs, one is looked for that is called just
/// so.
const SOUGHT: u32 = 1_000;

/// A destination by its id, by its whole name or URL, or by what only one has in those.
pub(super) async fn destination(
    pages: &Pages,
    tenant: TenantId,
    typed: &str,
) -> Result<Option<DestinationId>, Refused> {
    let Some(typed) = text(typed) else {
        return Ok(None);
    };
    if let Ok(id) = typed.parse() {
        return Ok(Some(id));
    }
    rules::text("destination", typed, rules::MAX_URL_BYTES, Lines::One)?;
    let overview = &pages.0.overview;
    let found = overview.find_destinations(tenant, typed, None, SOUGHT);
    let found = found.await?;
    match found.as_slice() {
        [one] => Ok(Some(*one)),
        [] => Err(Refused::invalid(
            "destination: there is none with this in its name, its URL or its id",
        )),
        several => {
            let several = pages.0.catalog.destinations_of(tenant, several).await?;
            let called = called(&several, typed);
            called.map(Some).ok_or_else(|| {
                Refused::invalid(
                    "destination: several have this in their names, URLs or ids: type more of it",
                )
            })
        }
    }
}

/// The only one of these whose whole name or URL this is.
fn called(of: &[Destination], typed: &str) -> Option<DestinationId> {
    let typed = typed.to_lowercase();
    let is_it = |text: &str| text.to_lowercase() == typed;
    let mut found = of.iter().filter(|one| is_it(&one.name) || is_it(&one.url));
    let only = found.next().filter(|_| found.next().is_none());
    only.map(|one| one.id)
}

/// The query of a link to a search: what was typed, and where to go on.
pub(super) fn query(fields: &[(&str, &str)], before: &str) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    for (name, typed) in fields {
        if let Some(typed) = text(typed) {
            query.append_pair(name, typed);
        }
    }
    query.append_pair("before", before).finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_typed_as_pages_write_them_or_with_an_offset() {
        let noon = Some(Timestamp::from_millis(1_769_860_800_000));
        for typed in [
            "2026-01-31 12:00",
            " 2026-01-31 12:00:00 ",
            "2026-01-31T12:00",
            "2026-01-31T12:00:00Z",
            "2026-01-31T13:00:00+01:00",
        ] {
            assert_eq!(time("since", typed).unwrap(), noon, "{typed}");
        }
        let day = Some(Timestamp::from_millis(1_769_817_600_000));
        assert_eq!(time("since", "2026-01-31").unwrap(), day);
        assert_eq!(time("since", "  ").unwrap(), None);
        for bad in ["noon", "2026-02-30", "12:00"] {
            let words = time("since", bad).unwrap_err().said().unwrap();
            let says = "since: must be a time such as 2026-01-31 12:00, or a day";
            assert_eq!(words, says, "{bad}");
        }
    }

    #[test]
    fn a_link_has_what_was_typed() {
        let typed = [("type", "a b"), ("state", ""), ("text", " 7f3a ")];
        assert_eq!(query(&typed, "9"), "type=a+b&text=7f3a&before=9");
    }
}
