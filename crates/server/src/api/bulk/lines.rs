//! A body, line by line, of which only one line is in memory.

use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use tokio::time::timeout;

use super::super::body::{MAX_EVENT_BODY_BYTES, Pace};
use super::super::problem::Problem;

/// How long the next bytes may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// One line of the body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// Without its end.
    Whole(Bytes),
    /// Nothing but spaces.
    Empty,
    /// More than so many bytes: read over.
    TooLong(usize),
}

/// The body cannot be read on.
#[derive(Debug)]
pub(super) struct Stopped(pub(super) Problem);

/// The lines of a body.
pub(super) struct Lines {
    body: Body,
    read: BytesMut,
    /// So much of it has no end of a line.
    looked_at: usize,
    /// The rest of a line that is too long is read over.
    skipping: bool,
    ended: bool,
    number: u32,
    pace: Pace,
}

impl Lines {
    pub(super) fn new(body: Body) -> Self {
        Self {
            body,
            read: BytesMut::new(),
            looked_at: 0,
            skipping: false,
            ended: false,
            number: 0,
            pace: Pace::of_a_bulk_body(),
        }
    }

    /// The next line and its number; `None` after the last. May be dropped
    /// while it waits: no byte is lost.
    pub(super) async fn next(&mut self) -> Result<Option<(u32, Line)>, Stopped> {
        loop {
            if let Some(line) = self.take() {
                self.number = self.number.saturating_add(1);
                return Ok(Some((self.number, line)));
            }
            if self.ended {
                return Ok(None);
            }
            self.read_on().await?;
        }
    }

    /// A line that is there already.
    fn take(&mut self) -> Option<Line> {
        let end = self.read[self.looked_at..]
            .iter()
            .position(|byte| *byte == b'\n');
        let line = match end {
            Some(end) => {
                let line = self.read.split_to(self.looked_at + end + 1);
                self.looked_at = 0;
                line
            }
            None if self.read.len() > MAX_EVENT_BODY_BYTES => {
                self.read.clear();
                self.looked_at = 0;
                self.skipping = true;
                return None;
            }
            None if self.ended && (self.skipping || !self.read.is_empty()) => {
                self.looked_at = 0;
                self.read.split()
            }
            None => {
                self.looked_at = self.read.len();
                return None;
            }
        };
        Some(self.judged(line.freeze()))
    }

    fn judged(&mut self, line: Bytes) -> Line {
        if std::mem::take(&mut self.skipping) || line.len() > MAX_EVENT_BODY_BYTES {
            return Line::TooLong(MAX_EVENT_BODY_BYTES);
        }
        match line.trim_ascii().is_empty() {
            true => Line::Empty,
            false => Line::Whole(line),
        }
    }

    async fn read_on(&mut self) -> Result<(), Stopped> {
        let next = timeout(PATIENCE, self.body.frame());
        match self.pace.wait_for(next).await.map_err(Stopped)? {
            Err(_) => Err(Stopped(Problem::too_slow_body(PATIENCE))),
            Ok(None) => {
                self.ended = true;
                Ok(())
            }
            Ok(Some(Ok(frame))) => {
                if let Ok(bytes) = frame.into_data() {
                    self.pace.came(bytes.len());
                    self.read.extend_from_slice(&bytes);
                }
                Ok(())
            }
            Ok(Some(Err(error))) => Err(Stopped(Problem::malformed(error.to_string()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of a body that comes in these pieces.
    async fn lines(pieces: Vec<Vec<u8>>) -> Vec<(u32, Line)> {
        let longest = pieces.iter().map(Vec::len).max().unwrap_or(0);
        let frames = pieces
            .into_iter()
            .map(|piece| Ok::<_, std::convert::Infallible>(Bytes::from(piece)));
        let mut lines = Lines::new(Body::from_stream(futures_util::stream::iter(frames)));
        let mut all = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            assert!(lines.read.len() <= MAX_EVENT_BODY_BYTES + longest);
            all.push(line);
        }
        all
    }

    fn whole(text: &'static str) -> Line {
        Line::Whole(Bytes::from_static(text.as_bytes()))
    }

    #[tokio::test]
    async fn lines_are_the_same_however_the_body_is_cut() {
        let body = b"{\"a\":1}\n\n  \r\n{\"b\":2}\r\nlast".to_vec();
        let expected = [
            (1, whole("{\"a\":1}\n")),
            (2, Line::Empty),
            (3, Line::Empty),
            (4, whole("{\"b\":2}\r\n")),
            (5, whole("last")),
        ];
        for size in 1..=body.len() {
            let pieces = body.chunks(size).map(<[u8]>::to_vec).collect();
            assert_eq!(lines(pieces).await, expected, "in pieces of {size}");
        }
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_read_over() {
        let long = vec![b'x'; MAX_EVENT_BODY_BYTES];
        for size in [1_000, 100_000, 4 * MAX_EVENT_BODY_BYTES] {
            let body = [b"{}\n", &long[..], &long[..], b"\n{}\n", &long[..], b"xx"].concat();
            let pieces = body.chunks(size).map(<[u8]>::to_vec).collect();
            let too_long = || Line::TooLong(MAX_EVENT_BODY_BYTES);
            let expected = [
                (1, whole("{}\n")),
                (2, too_long()),
                (3, whole("{}\n")),
                (4, too_long()),
            ];
            assert_eq!(lines(pieces).await, expected, "in pieces of {size}");
        }
    }

    #[tokio::test]
    async fn nothing_has_no_lines() {
        assert_eq!(lines(Vec::new()).await, []);
        assert_eq!(lines(vec![b"\n".to_vec()]).await, [(1, Line::Empty)]);
    }
}
