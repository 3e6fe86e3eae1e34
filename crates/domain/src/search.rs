//! Searching for events and attempts: what ids say of times and texts, and what is newest.
//!
//! An id of version 7 begins with the time at which it was given, and a store has a
//! tenant's events in the order of their ids. So a search between two times reads a
//! range of ids, however many events lie outside of it. The times themselves are judged
//! by the row: ids only say where to look.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use uuid::Uuid;

use crate::ids::{AttemptId, DestinationId, EventId};
use crate::time::Timestamp;

/// So long before its acceptance an event may have got its id: a row of the outbox
/// waits for its relay. One that waited longer is not found by when it was accepted.
pub const ACCEPTED_WITHIN: Duration = Duration::from_secs(3_600);

/// So long before its acceptance most events get their ids: no longer than a request takes.
pub const IDS_BEFORE: Duration = Duration::from_secs(10);

/// By so much the clock that gave an id may be ahead of the store's.
pub const IDS_AHEAD: Duration = Duration::from_secs(60);

/// How an id is written has so many letters.
const ID_LETTERS: usize = 36;

/// The bits of an id after its time.
const BELOW_TIME: u32 = 80;

/// Ids from one up to and without another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdRange {
    /// The first.
    pub from: EventId,
    /// After the last.
    pub before: EventId,
}

impl IdRange {
    /// All of them.
    pub const ALL: Self = Self {
        from: EventId(Uuid::nil()),
        before: EventId(Uuid::max()),
    };

    /// Where events are that were accepted from `since` until before `until`, as far as
    /// ids say times.
    ///
    /// ```
    /// use domain::search::IdRange;
    /// use domain::time::Timestamp;
    ///
    /// let noon = Timestamp::from_millis(1_700_000_000_000);
    /// let range = IdRange::between(Some(noon), None);
    /// assert_eq!(range.from.to_string(), "018bcfae-7980-0000-0000-000000000000");
    /// assert_eq!(range.before, IdRange::ALL.before);
    /// ```
    #[must_use]
    pub fn between(since: Option<Timestamp>, until: Option<Timestamp>) -> Self {
        Self {
            from: since.map_or(Self::ALL.from, |since| first_at(since - ACCEPTED_WITHIN)),
            before: until.map_or(Self::ALL.before, |until| first_at(until + IDS_AHEAD)),
        }
    }

    /// This one.
    #[must_use]
    pub const fn only(id: EventId) -> Self {
        Self {
            from: id,
            before: EventId(Uuid::from_u128(id.0.as_u128().saturating_add(1))),
        }
    }

    /// Where events are whose ids, as they are written, have these letters in them: of a
    /// whole id it alone, of a part of one anywhere.
    ///
    /// ```
    /// use domain::search::IdRange;
    /// let whole = "018bcfae-7980-7000-8000-000000000007";
    /// assert_eq!(IdRange::of_letters(whole), IdRange::only(whole.parse()?));
    /// assert_eq!(IdRange::of_letters("018bcfae-7980"), IdRange::ALL);
    /// # Ok::<(), domain::ids::InvalidId>(())
    /// ```
    #[must_use]
    pub fn of_letters(letters: &str) -> Self {
        match letters.len() {
            ID_LETTERS => letters.parse().map_or(Self::ALL, Self::only),
            _ => Self::ALL,
        }
    }

    /// Those of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            from: self.from.max(other.from),
            before: self.before.min(other.before),
        }
    }

    /// Those below `before`, if it is one.
    #[must_use]
    pub fn below(self, before: Option<EventId>) -> Self {
        Self {
            before: before.map_or(self.before, |before| before.min(self.before)),
            ..self
        }
    }
}

/// The least id that is given at this time.
#[must_use]
pub fn first_at(at: Timestamp) -> EventId {
    let millis = u128::try_from(at.as_micros().max(0) / 1_000).unwrap_or(0);
    let most = (1_u128 << (u128::BITS - BELOW_TIME)) - 1;
    EventId(Uuid::from_u128(millis.min(most) << BELOW_TIME))
}

/// What a text says of the events that are looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sought {
    /// It is the one with this id.
    One(EventId),
    /// Their ids, as they are written, have this in them.
    Part(String),
    /// No event can be found by it.
    Nothing,
}

impl Sought {
    /// An idempotency key, whole, comes before all else: `of_key` is the event that the
    /// text stands for as one. Otherwise it is an id or a part of one.
    ///
    /// ```
    /// use domain::search::Sought;
    /// assert_eq!(Sought::by("7F3A-", None), Sought::Part("7f3a-".to_owned()));
    /// assert_eq!(Sought::by("order-4711", None), Sought::Nothing);
    /// ```
    #[must_use]
    pub fn by(text: &str, of_key: Option<EventId>) -> Self {
        if let Some(id) = of_key {
            return Self::One(id);
        }
        let letters = text
            .bytes()
            .all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        match text.len() {
            1..ID_LETTERS if letters => Self::Part(text.to_ascii_lowercase()),
            ID_LETTERS => text.parse().map_or(Self::Nothing, Self::One),
            _ => Self::Nothing,
        }
    }

    /// What the written ids of those events have in them, if any can be found.
    #[must_use]
    pub fn letters(self) -> Option<String> {
        match self {
            Self::One(id) => Some(id.to_string()),
            Self::Part(part) => Some(part),
            Self::Nothing => None,
        }
    }
}

/// The HTTP status that is looked for: one, or all of a class.
///
/// ```
/// use domain::search::SoughtStatus;
/// let class: SoughtStatus = "5xx".parse()?;
/// assert!(class.is(503) && !class.is(429));
/// let one: SoughtStatus = "500".parse()?;
/// assert!(one.is(500) && !one.is(503));
/// # Ok::<(), domain::search::InvalidStatus>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SoughtStatus(u16);

/// What was given is neither a status nor a class of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be an HTTP status such as 500, or a class of them such as 5xx")]
pub struct InvalidStatus;

/// The statuses that HTTP can have.
const STATUSES: std::ops::RangeInclusive<u16> = 100..=999;

impl SoughtStatus {
    /// This one and no other; `None` for what is no status.
    #[must_use]
    pub fn one(status: u16) -> Option<Self> {
        STATUSES.contains(&status).then_some(Self(status))
    }

    /// What statements are handed: a status, or the first digit of a class. A status is
    /// looked for if it is this number, or is it after a division by 100: no status is a
    /// single digit, and none has three of them left.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }

    /// Whether this status is looked for.
    #[must_use]
    pub const fn is(self, status: u16) -> bool {
        status == self.0 || status / 100 == self.0
    }
}

impl FromStr for SoughtStatus {
    type Err = InvalidStatus;

    fn from_str(text: &str) -> Result<Self, InvalidStatus> {
        match text.as_bytes() {
            [class @ b'1'..=b'9', b'x' | b'X', b'x' | b'X'] => Ok(Self(u16::from(class - b'0'))),
            [b'1'..=b'9', b'0'..=b'9', b'0'..=b'9'] => {
                let status = text.parse().ok();
                status.and_then(Self::one).ok_or(InvalidStatus)
            }
            _ => Err(InvalidStatus),
        }
    }
}

impl fmt::Display for SoughtStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            class @ ..10 => write!(f, "{class}xx"),
            status => write!(f, "{status}"),
        }
    }
}

/// An attempt that was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Examined {
    /// Where it went.
    pub place: DestinationId,
    /// Which it is.
    pub attempt: AttemptId,
    /// It is looked for.
    pub wanted: bool,
    /// It is so old that no older one is looked for.
    pub is_too_old: bool,
}

/// How many of each place are read, where `most` are in all; at least a few.
#[must_use]
pub fn each_place(most: u32, places: usize) -> u32 {
    let places = u32::try_from(places).unwrap_or(u32::MAX);
    (most / places.max(1)).max(5)
}

/// The newest of those that are looked for, `limit` at most, and before which to go on.
///
/// Of each place the newest `each` were read. Where there were as many, there may be more:
/// what is older than the last of them waits for the next page, so that no page is newer
/// than the one before.
#[must_use]
pub fn newest(examined: &[Examined], each: u32, limit: u32) -> (Vec<AttemptId>, Option<AttemptId>) {
    // How many of each place, and its oldest.
    let mut places: BTreeMap<DestinationId, (u32, Examined)> = BTreeMap::new();
    for one in examined {
        let (count, oldest) = places.entry(one.place).or_insert((0, *one));
        *count += 1;
        if one.attempt < oldest.attempt {
            *oldest = *one;
        }
    }
    let cut = places.values().filter(|(count, _)| *count >= each);
    let horizon = cut.map(|(_, oldest)| oldest).max_by_key(|one| one.attempt);
    let is_known = |one: &&Examined| horizon.is_none_or(|at| one.attempt >= at.attempt);
    let mut found: Vec<AttemptId> = (examined.iter())
        .filter(|one| one.wanted)
        .filter(is_known)
        .map(|one| one.attempt)
        .collect();
    found.sort_unstable_by(|a, b| b.cmp(a));
    if found.len() > limit as usize {
        found.truncate(limit as usize);
        let last = found.last().copied();
        return (found, last);
    }
    let more = horizon.filter(|at| !at.is_too_old);
    (found, more.map(|at| at.attempt))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id_at(at: Timestamp, rest: u128) -> EventId {
        let millis = u128::try_from(at.as_micros() / 1_000).unwrap();
        EventId(Uuid::from_u128((millis << 80) | (7 << 76) | rest))
    }

    proptest! {
        /// Whatever an API process's clock and an outbox's relay may do to it.
        #[test]
        fn what_was_accepted_in_time_is_in_the_range(
            accepted in 1_700_000_000_000_000..4_000_000_000_000_000_i64,
            waited in 0..=3_600_000_000_i64,
            ahead in 0..=60_000_000_i64,
            rest in 0..(1_u128 << 76),
        ) {
            let accepted = Timestamp::from_micros(accepted);
            let range = IdRange::between(Some(accepted), Some(accepted + Duration::from_micros(1)));
            for given in [-waited, ahead] {
                let given = Timestamp::from_micros(accepted.as_micros() + given);
                let id = id_at(given, rest);
                prop_assert!(range.from <= id && id < range.before, "{id} in {range:?}");
            }
        }
    }

    #[test]
    fn a_range_is_far_from_what_is_far_away() {
        let day = Duration::from_secs(86_400);
        let at = Timestamp::from_millis(1_700_000_000_000);
        let range = IdRange::between(Some(at), Some(at + day));
        assert!(id_at(at - day, u128::MAX >> 52) < range.from);
        assert!(range.before < id_at(at + day + day, 0));
        let extremes = IdRange::between(Some(Timestamp::MIN), Some(Timestamp::MAX));
        assert_eq!(extremes.from, IdRange::ALL.from);
        assert!(id_at(at, 0) < extremes.before);
    }

    proptest! {
        /// However they are spread: page after page is all of them, the newest first.
        #[test]
        fn pages_are_all_attempts_in_order(
            rows in prop::collection::vec((0..4_u128, any::<bool>()), 0..80),
            each in 1..9_u32,
            limit in 1..9_u32,
        ) {
            let all: Vec<Examined> = (1_i64..).zip(&rows).map(|(id, (place, wanted))| Examined {
                place: DestinationId(Uuid::from_u128(*place)),
                attempt: AttemptId(id),
                wanted: *wanted,
                is_too_old: false,
            }).collect();
            let (mut found, mut before) = (Vec::new(), AttemptId(i64::MAX));
            loop {
                let mut examined = Vec::new();
                for place in (0..4).map(|place| DestinationId(Uuid::from_u128(place))) {
                    let there = all.iter().rev().filter(|one| one.place == place);
                    let there = there.filter(|one| one.attempt < before);
                    examined.extend(there.take(each as usize));
                }
                let (page, next) = newest(&examined, each, limit);
                prop_assert!(page.len() <= limit as usize);
                found.extend(page);
                match next {
                    Some(next) => {
                        prop_assert!(next < before, "it goes on");
                        before = next;
                    }
                    None => break,
                }
            }
            let wanted = all.iter().rev().filter(|one| one.wanted);
            prop_assert_eq!(found, wanted.map(|one| one.attempt).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_is_too_old_ends_the_search() {
        let one = Examined {
            place: DestinationId(Uuid::nil()),
            attempt: AttemptId(7),
            wanted: false,
            is_too_old: true,
        };
        assert_eq!(newest(&[one], 1, 5), (vec![], None));
        let young = Examined {
            is_too_old: false,
            ..one
        };
        assert_eq!(newest(&[young], 1, 5), (vec![], Some(AttemptId(7))));
        assert_eq!(newest(&[young], 2, 5), (vec![], None));
    }

    #[test]
    fn ranges_are_cut() {
        let at = |millis| id_at(Timestamp::from_millis(millis), 1);
        let one = IdRange::only(at(5));
        assert!(one.from <= at(5) && at(5) < one.before);
        assert_eq!(one.and(IdRange::ALL), one);
        assert_eq!(one.below(Some(at(3))).before, at(3));
        assert_eq!(one.below(None), one);
    }

    #[test]
    fn a_status_is_one_or_a_class() {
        for text in ["100", "500", "999", "1xx", "5xx", "9xx"] {
            let sought: SoughtStatus = text.parse().unwrap();
            assert_eq!(sought.to_string(), text);
        }
        assert_eq!("5XX".parse(), "5xx".parse::<SoughtStatus>());
        for bad in [
            "", "5", "50", "5x", "5x0", "0xx", "099", "1000", "+50", "5xxx", "xxx", "٥00",
        ] {
            assert_eq!(bad.parse::<SoughtStatus>(), Err(InvalidStatus), "{bad}");
        }
        for class in 1..=9_u16 {
            let sought: SoughtStatus = format!("{class}xx").parse().unwrap();
            for status in STATUSES {
                assert_eq!(sought.is(status), status / 100 == class);
                let one = SoughtStatus::one(status).unwrap();
                assert!(one.is(status) && !one.is(status ^ 1));
            }
        }
        assert_eq!([5, 99, 1_000].map(SoughtStatus::one), [None; 3]);
    }

    #[test]
    fn a_text_is_a_key_an_id_or_a_part_of_one() {
        let id = id_at(Timestamp::from_millis(1), 9);
        assert_eq!(Sought::by("order-4711", Some(id)), Sought::One(id));
        assert_eq!(
            Sought::by(&id.to_string().to_uppercase(), None),
            Sought::One(id)
        );
        assert_eq!(
            Sought::by("00-7000", None),
            Sought::Part("00-7000".to_owned())
        );
        assert_eq!(Sought::by(&"a".repeat(36), None), Sought::Nothing);
        assert_eq!(Sought::by(&"a".repeat(37), None), Sought::Nothing);
        assert_eq!(Sought::by("", None), Sought::Nothing);
    }
}
