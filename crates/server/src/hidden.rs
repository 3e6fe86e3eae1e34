//! Text that must not be seen: a secret, or the value of a header.

use std::fmt;

use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use zeroize::Zeroizing;

/// Never shown by `Debug` or by the error of a body that holds it in the wrong
/// place; wiped when dropped. `Serialize` shows it: that is how a secret is
/// shown once.
#[derive(Clone, PartialEq, Eq)]
pub struct Hidden(Zeroizing<String>);

impl Hidden {
    /// Hides a text.
    #[must_use]
    pub const fn new(text: Zeroizing<String>) -> Self {
        Self(text)
    }

    /// The text.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The text.
    #[must_use]
    pub fn into_inner(self) -> Zeroizing<String> {
        self.0
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Serialize for Hidden {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Hidden {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Hidden;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Hidden, E> {
                Ok(Hidden(Zeroizing::new(text.to_owned())))
            }
            fn visit_string<E: Error>(self, text: String) -> Result<Hidden, E> {
                Ok(Hidden(Zeroizing::new(text)))
            }
        }
        deserializer.deserialize_string(Text)
    }
}
