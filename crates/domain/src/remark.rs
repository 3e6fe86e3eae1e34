//! What is remembered of an answer, in words.
//!
//! Much of it was written by a receiver, or by a server on the way to it: a result's
//! `error`, the names in a certificate, a DNS server's reason. None of them may decide
//! what our tables, logs and pages can hold.

use std::fmt;
use std::ops::Deref;

use serde::Serialize;

/// A line for people: no control characters, at most [`Remark::MAX_BYTES`] long.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct Remark(String);

impl Remark {
    /// Enough to say what went wrong; a certificate can name thousands of hosts.
    pub const MAX_BYTES: usize = 1_000;

    /// `text` with each control character replaced by U+FFFD, and cut between two
    /// characters where it is too long. Postgres refuses a NUL in any text; a line
    /// break or an escape sequence would forge what an operator reads in a log.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(printable(text, Self::MAX_BYTES))
    }
}

/// What others wrote, as a line of at most so many bytes.
pub(crate) fn printable(text: &str, max_bytes: usize) -> String {
    let mut line = String::with_capacity(text.len().min(max_bytes));
    for character in text.chars() {
        let character = match is_unprintable(character) {
            true => char::REPLACEMENT_CHARACTER,
            false => character,
        };
        if line.len() + character.len_utf8() > max_bytes {
            break;
        }
        line.push(character);
    }
    line
}

/// Control characters, and those that reorder or hide the text around them.
fn is_unprintable(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

impl Deref for Remark {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<String> for Remark {
    fn from(text: String) -> Self {
        Self::new(&text)
    }
}

impl From<&str> for Remark {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_a_store_or_a_terminal_would_choke_on_is_replaced() {
        assert_eq!(
            &*Remark::new("a\0b\r\nc\u{1b}[31m"),
            "a\u{fffd}b\u{fffd}\u{fffd}c\u{fffd}[31m"
        );
        assert_eq!(&*Remark::new("grün \u{202e}txt"), "grün \u{fffd}txt");
    }

    #[test]
    fn it_is_cut_between_two_characters() {
        let long = "é".repeat(Remark::MAX_BYTES);
        assert_eq!(&*Remark::new(&long), "é".repeat(Remark::MAX_BYTES / 2));
        // A replacement is longer than what it replaces.
        assert!(Remark::new(&"\0".repeat(Remark::MAX_BYTES)).len() <= Remark::MAX_BYTES);
    }

    proptest! {
        #[test]
        fn any_text_becomes_a_short_line(text: String) {
            let remark = Remark::new(&text);
            prop_assert!(remark.len() <= Remark::MAX_BYTES);
            prop_assert!(!remark.chars().any(is_unprintable));
            prop_assert_eq!(&Remark::new(&remark), &remark);
        }
    }
}
