//! What a receiver says of each event of a batch, with a 207.

use std::collections::HashMap;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::ids::EventId;
use crate::remark::Remark;

/// What a receiver says about one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// As if the event had been alone.
    pub status: u16,
    /// In its own words.
    pub error: Option<Remark>,
}

impl Answer {
    /// Whether the event was taken.
    #[must_use]
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// A 207 whose body does not say what became of the events.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the body of the 207 is not a list of results: {0}")]
pub struct Malformed(String);

#[derive(Deserialize)]
struct Entry {
    id: String,
    status: u16,
    #[serde(default)]
    error: Option<String>,
}

/// A body, and whether it goes on where we stopped to read.
#[derive(Debug, Clone, Copy)]
pub struct Said<'a> {
    /// As far as it was read.
    pub body: &'a [u8],
    /// It was longer.
    pub cut: bool,
}

/// Reads `{"results":[{"id":"…","status":503,"error":"…"}]}`: one answer for
/// each of `events`, `None` where nothing is said of it, which is success,
/// unless the body was cut. Ids of other events are passed over; of two answers
/// for one event the first that is no success counts.
///
/// Of a body that was cut, the results that are whole count.
pub fn answers(said: Said<'_>, events: &[EventId]) -> Result<Vec<Option<Answer>>, Malformed> {
    let malformed = |problem: String| Malformed(problem);
    let mut by_id: HashMap<EventId, Answer> = HashMap::with_capacity(events.len());
    for result in results(said).map_err(|error| malformed(error.to_string()))? {
        if !(100..=599).contains(&result.status) {
            return Err(malformed(format!("{} is no status", result.status)));
        }
        let Ok(id) = result.id.parse() else {
            continue;
        };
        let answer = Answer {
            status: result.status,
            error: result.error.as_deref().map(Remark::new),
        };
        if by_id.get(&id).is_none_or(Answer::is_success) {
            by_id.insert(id, answer);
        }
    }
    Ok(events.iter().map(|event| by_id.remove(event)).collect())
}

fn results(said: Said<'_>) -> serde_json::Result<Vec<Entry>> {
    let mut found = Found::default();
    let mut json = serde_json::Deserializer::from_slice(said.body);
    let read = (Results(&mut found).deserialize(&mut json)).and_then(|()| json.end());
    match read {
        Ok(()) => Ok(found.results),
        Err(error) if error.is_eof() && said.cut && found.is_there => Ok(found.results),
        Err(error) => Err(error),
    }
}

/// What was read before the end, or before an error.
#[derive(Default)]
struct Found {
    results: Vec<Entry>,
    /// The list has begun.
    is_there: bool,
}

/// The object with the list of results.
struct Results<'a>(&'a mut Found);

impl<'de> DeserializeSeed<'de> for Results<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Results<'_> {
    type Value = ();

    fn expecting(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("an object with a list of results")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "results" => map.next_value_seed(List(self.0))?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        match self.0.is_there {
            true => Ok(()),
            false => Err(serde::de::Error::missing_field("results")),
        }
    }
}

struct List<'a>(&'a mut Found);

impl<'de> DeserializeSeed<'de> for List<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for List<'_> {
    type Value = ();

    fn expecting(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("a list of results")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        self.0.is_there = true;
        while let Some(entry) = list.next_element()? {
            self.0.results.push(entry);
        }
        Ok(())
    }
}
