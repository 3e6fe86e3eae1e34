//! Who calls: keys, what they stand for, and what each route asks of them.
//!
//! A key is `pl_<id>_<secret>_<checksum>` ([`key`]). The store knows its
//! digest; a process remembers what it was told of a key for [`REMEMBERED`],
//! which is also how long a revoked key may go on elsewhere ([`gate`]). What a
//! route asks for stands in its description and nowhere else ([`required`]).

use std::time::Duration;

pub mod gate;
pub mod key;
pub mod required;

pub use gate::{Gate, Identity};
pub use key::{KeyText, MintedKey};

/// How long a process believes what the store said of a key: a key that is
/// revoked in one process is refused in every other within this time.
pub const REMEMBERED: Duration = Duration::from_secs(5);
