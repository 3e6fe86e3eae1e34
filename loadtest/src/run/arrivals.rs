//! What the receiver saw, in sixteen bytes each, and the file that it hands
//! over.

use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, ensure};

/// In a file.
const BYTES: usize = 16;

/// The bit of the destination that says that the answer was no success.
const REFUSED: u32 = 1 << 31;

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// When its head was read, since the machine started.
    pub(crate) at_us: i64,
    /// The number in its payload.
    pub(crate) event: u32,
    destination: u32,
}

impl Arrival {
    /// A request that was answered with a success, or not.
    pub(crate) fn new(at_us: i64, event: u32, destination: u32, answer: Answer) -> Self {
        let refused = match answer {
            Answer::Taken => 0,
            Answer::Refused => REFUSED,
        };
        Self {
            at_us,
            event,
            destination: (destination & !REFUSED) | refused,
        }
    }

    /// The number in its path.
    pub(crate) fn destination(self) -> u32 {
        self.destination & !REFUSED
    }

    /// Whether the answer was a success.
    pub(crate) fn is_taken(self) -> bool {
        self.destination & REFUSED == 0
    }
}

/// How a request is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Taken,
    Refused,
}

/// Writes them all.
pub(crate) fn write(path: &Path, arrivals: &[Arrival]) -> anyhow::Result<()> {
    let file = std::fs::File::create(path).context("write the arrivals")?;
    let mut file = BufWriter::new(file);
    for arrival in arrivals {
        file.write_all(&arrival.at_us.to_le_bytes())?;
        file.write_all(&arrival.event.to_le_bytes())?;
        file.write_all(&arrival.destination.to_le_bytes())?;
    }
    file.flush().context("write the arrivals")
}

/// Reads them, in the order of their times.
pub(crate) fn read(path: &Path) -> anyhow::Result<Vec<Arrival>> {
    let bytes = std::fs::read(path).context("read the arrivals")?;
    let (records, rest) = bytes.as_chunks::<BYTES>();
    ensure!(rest.is_empty(), "the arrivals end in the middle of one");
    let mut arrivals: Vec<_> = records.iter().map(parsed).collect();
    arrivals.sort_by_key(|arrival| arrival.at_us);
    Ok(arrivals)
}

fn parsed(record: &[u8; BYTES]) -> Arrival {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *record;
    Arrival {
        at_us: i64::from_le_bytes([a, b, c, d, e, f, g, h]),
        event: u32::from_le_bytes([i, j, k, l]),
        destination: u32::from_le_bytes([m, n, o, p]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_in_order() {
        let later = Arrival::new(9, 1, 70_000, Answer::Refused);
        let sooner = Arrival::new(5, u32::MAX, 0, Answer::Taken);
        assert_eq!((later.destination(), later.is_taken()), (70_000, false));
        assert!(sooner.is_taken());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("arrivals");
        write(&path, &[later, sooner]).unwrap();
        assert_eq!(read(&path).unwrap(), [sooner, later]);
        std::fs::write(&path, [0; 17]).unwrap();
        assert!(read(&path).is_err());
    }
}
