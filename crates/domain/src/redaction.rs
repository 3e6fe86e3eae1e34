//! What of a payload people are not shown.
//!
//! An event type may have rules: JSON pointers to what its payloads keep to themselves.
//! Whoever looks at a payload, operators too, is shown [`REDACTED`] in their place. What
//! receivers get is never changed, and the store keeps the payload as it was accepted.
//!
//! What cannot be redacted is not shown at all: a payload that is no JSON, or rules that
//! make no sense because somebody has written them by SQL.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// What stands in a payload for what is not shown.
pub const REDACTED: &str = "\"[redacted]\"";

/// The most pointers that one type has.
pub const MAX_POINTERS: usize = 50;

/// The longest pointer, in bytes.
pub const MAX_POINTER_BYTES: usize = 200;

/// The most names in one pointer: each level of a payload is read once more.
pub const MAX_POINTER_DEPTH: usize = 32;

/// In a pointer: each element of an array.
const EACH: &str = "*";

/// A type's rules. Each name of a pointer is a step down, and pointers that begin alike
/// share their steps.
///
/// ```
/// use domain::redaction::{Redaction, Shown};
///
/// let rules = Redaction::parse(&["/card/number", "/items/*/price"]).unwrap();
/// let payload = br#"{"card": {"number": 42, "of": "Ada"}, "items": [{"price": 1}, {}]}"#;
/// let Shown::Redacted(text) = rules.shown(payload.to_vec()) else {
///     panic!("it is JSON");
/// };
/// assert_eq!(
///     String::from_utf8(text).unwrap(),
///     r#"{"card": {"number": "[redacted]", "of": "Ada"}, "items": [{"price": "[redacted]"}, {}]}"#
/// );
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Redaction(Step);

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Step {
    /// A pointer ends here.
    hides: bool,
    below: BTreeMap<String, Step>,
}

/// A payload, as people are shown it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    /// As it was accepted, byte for byte.
    Whole(Vec<u8>),
    /// As it was accepted, but for what its type's rules name.
    Redacted(Vec<u8>),
    /// Not at all: its type has rules, and they cannot be applied to it.
    Withheld,
}

/// A pointer that is none, by its place in the list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct InvalidPointer {
    /// Which; `None` for all of them.
    pub at: Option<usize>,
    /// What is wrong.
    pub problem: &'static str,
}

impl Redaction {
    /// Reads pointers. The empty one names the whole payload; `*` in the place of an index
    /// is each element of an array.
    pub fn parse(pointers: &[impl AsRef<str>]) -> Result<Self, InvalidPointer> {
        const _: () = assert!(MAX_POINTERS == 50, "the text says so");
        if pointers.len() > MAX_POINTERS {
            let problem = "must be at most 50 pointers";
            return Err(InvalidPointer { at: None, problem });
        }
        let mut first = Step::default();
        for (at, pointer) in pointers.iter().enumerate() {
            let refused = |problem| InvalidPointer {
                at: Some(at),
                problem,
            };
            let mut step = &mut first;
            for name in names(pointer.as_ref()).map_err(refused)? {
                step = step.below.entry(name).or_default();
            }
            if step.hides {
                return Err(refused("is there twice"));
            }
            step.hides = true;
        }
        Ok(Self(first))
    }

    /// Whether it hides nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0 == Step::default()
    }

    /// What is shown of a payload, whatever its media type says of it. Of a name that an
    /// object has twice, each value is hidden; what is not named stays byte for byte.
    #[must_use]
    pub fn shown(&self, payload: Vec<u8>) -> Shown {
        if self.is_empty() {
            return Shown::Whole(payload);
        }
        let found = std::str::from_utf8(&payload).ok().and_then(|text| {
            let root: &RawValue = serde_json::from_str(text).ok()?;
            let mut hidden = Hidden {
                text,
                places: Vec::new(),
            };
            hidden.below(root, &[&self.0]).ok()?;
            Some(hidden.written())
        });
        found.map_or(Shown::Withheld, |text| Shown::Redacted(text.into_bytes()))
    }

    /// What is shown of a payload under rules as a store has them: under rules that make
    /// no sense, nothing.
    #[must_use]
    pub fn shown_by(pointers: &[String], payload: Vec<u8>) -> Shown {
        match Self::parse(pointers) {
            Ok(rules) => rules.shown(payload),
            Err(_by_hand) => Shown::Withheld,
        }
    }
}

/// The names that a pointer has, without its escapes.
fn names(pointer: &str) -> Result<Vec<String>, &'static str> {
    const _: () = assert!(MAX_POINTER_BYTES == 200 && MAX_POINTER_DEPTH == 32);
    if pointer.len() > MAX_POINTER_BYTES {
        return Err("must be at most 200 bytes");
    }
    if pointer.chars().any(char::is_control) {
        return Err("must not have control characters");
    }
    let Some(below) = pointer.strip_prefix('/') else {
        return match pointer.is_empty() {
            true => Ok(Vec::new()),
            false => Err("must be a JSON pointer, such as /card/number"),
        };
    };
    let escaped: Vec<&str> = below.split('/').collect();
    if escaped.len() > MAX_POINTER_DEPTH {
        return Err("must have at most 32 names");
    }
    let is_escape = |after: &str| after.starts_with(['0', '1']);
    if (escaped.iter()).any(|name| !name.split('~').skip(1).all(is_escape)) {
        return Err("must write ~ as ~0, and / in a name as ~1");
    }
    // In this order: `~01` is `~1`.
    let plain = |name: &&str| name.replace("~1", "/").replace("~0", "~");
    Ok(escaped.iter().map(plain).collect())
}

/// Finds what is hidden, from the first to the last.
struct Hidden<'a> {
    text: &'a str,
    places: Vec<Range<usize>>,
}

impl<'a> Hidden<'a> {
    /// Of a value that these steps lead to.
    fn below(&mut self, value: &'a RawValue, steps: &[&Step]) -> Result<(), serde_json::Error> {
        if steps.iter().any(|step| step.hides) {
            self.hide(value.get());
            return Ok(());
        }
        let under = |name: &str| {
            let found = steps.iter().filter_map(|step| step.below.get(name));
            found.collect::<Vec<&Step>>()
        };
        match value.get().as_bytes().first() {
            Some(b'{') => {
                let Members(members) = serde_json::from_str(value.get())?;
                for (name, member) in members {
                    self.further(member, &under(&name))?;
                }
            }
            Some(b'[') => {
                let elements: Vec<&'a RawValue> = serde_json::from_str(value.get())?;
                let each = under(EACH);
                for (at, element) in elements.into_iter().enumerate() {
                    let mut steps = under(&at.to_string());
                    steps.extend(&each);
                    self.further(element, &steps)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn further(&mut self, value: &'a RawValue, steps: &[&Step]) -> Result<(), serde_json::Error> {
        match steps.is_empty() {
            true => Ok(()),
            false => self.below(value, steps),
        }
    }

    /// A value borrows from the text, so its address says where it stands.
    fn hide(&mut self, value: &str) {
        let from = value.as_ptr().addr() - self.text.as_ptr().addr();
        self.places.push(from..from + value.len());
    }

    fn written(self) -> String {
        let mut written = String::with_capacity(self.text.len());
        let mut done = 0;
        for place in self.places {
            written.push_str(&self.text[done..place.start]);
            written.push_str(REDACTED);
            done = place.end;
        }
        written.push_str(&self.text[done..]);
        written
    }
}

/// An object's, in their order, with those that it has twice.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Members<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(Object)
    }
}

#[cfg(test)]
mod tests;
