//! What happened, line by line: printed if asked for, hashed always.
//!
//! One line for every operation of the scenario, every call of a port with its
//! answer in short, and every fault. Equal seeds have to give equal traces,
//! and two of them are equal if their hashes are.

use std::fmt::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

/// Where lines go beside the hash.
pub type Sink = Box<dyn std::io::Write + Send>;

/// The trace of one run. Clones share it.
#[derive(Clone)]
pub struct Trace(Arc<Mutex<Inner>>);

struct Inner {
    began: Instant,
    hash: Fnv,
    lines: u64,
    line: String,
    sink: Option<Sink>,
}

impl Trace {
    /// A trace that begins now.
    #[must_use]
    pub fn new(sink: Option<Sink>) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            began: Instant::now(),
            hash: Fnv::default(),
            lines: 0,
            line: String::new(),
            sink,
        })))
    }

    /// Adds a line, with the virtual time in microseconds in front of it.
    pub fn line(&self, what: fmt::Arguments<'_>) {
        let mut inner = self.inner();
        let at = inner.began.elapsed().as_micros();
        let mut line = std::mem::take(&mut inner.line);
        line.clear();
        // Writing into a string cannot fail.
        let _ = writeln!(line, "{:>6}.{:06} {what}", at / 1_000_000, at % 1_000_000);
        inner.hash.write(line.as_bytes());
        inner.lines += 1;
        if let Some(sink) = &mut inner.sink {
            // A reader that went away must not change the run.
            let _ = sink.write_all(line.as_bytes());
        }
        inner.line = line;
    }

    /// The hash of all lines so far.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.inner().hash.0
    }

    /// How many lines there are.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.inner().lines
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// FNV-1a: the same on every machine and in every release, unlike the standard
/// library's hasher.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
