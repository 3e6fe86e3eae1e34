//! What an operational webhook says: `{type, timestamp, data}`, as Standard
//! Webhooks recommends.

use uuid::Uuid;

use super::OperationalEvent;
use crate::ids::{DestinationId, EventId};
use crate::time::Timestamp;

/// The body. `data` names the news, the destination that they are about (`null`
/// where it is the tenant) and its tenant, and then says what their type has to say.
#[must_use]
pub fn payload(event: &OperationalEvent) -> String {
    let OperationalEvent {
        id,
        event_type,
        destination,
        tenant,
        ..
    } = event;
    let timestamp = rfc3339(event.created_at);
    let destination = destination.map_or("null".to_owned(), |id| format!("\"{id}\""));
    // Ours, and an object: what follows the brace is empty or begins with a name.
    let details = event.details.trim();
    let details = (details.strip_prefix('{'))
        .and_then(|details| details.strip_suffix('}'))
        .unwrap_or_default()
        .trim();
    let comma = if details.is_empty() { "" } else { "," };
    format!(
        r#"{{"type":"{event_type}","timestamp":"{timestamp}","data":{{"operational_event_id":{id},"destination_id":{destination},"tenant_id":"{tenant}"{comma}{details}}}}}"#
    )
}

/// The id of the event that tells `to` of this: another for every news and
/// every destination, and always the same.
#[must_use]
pub fn event_id(event: &OperationalEvent, to: DestinationId) -> EventId {
    // Odd, so that no two numbers become the same by them; beside that, any.
    const OF_ID: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
    const OF_TIME: u128 = 0xc2b2_ae3d_27d4_eb4f_1656_67b1_9e37_79f9;
    let id = u128::from(event.id.cast_unsigned()).wrapping_mul(OF_ID);
    let time = u128::from(event.created_at.as_micros().cast_unsigned()).wrapping_mul(OF_TIME);
    let mixed = id ^ time ^ to.0.as_u128().rotate_left(64);
    EventId(uuid::Builder::from_custom_bytes(Uuid::from_u128(mixed).into_bytes()).into_uuid())
}

/// RFC 3339 in UTC with microseconds: `2026-01-31T12:00:00.000001Z`.
#[must_use]
pub fn rfc3339(time: Timestamp) -> String {
    let micros = time.as_micros();
    let (days, of_day) = (
        micros.div_euclid(86_400_000_000),
        micros.rem_euclid(86_400_000_000),
    );
    let (year, month, day) = civil(days);
    let (seconds, fraction) = (of_day / 1_000_000, of_day % 1_000_000);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:06}Z")
}

/// Year, month and day of a number of days since 1970-01-01, in years that
/// begin in March: then the leap day is the last.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}
