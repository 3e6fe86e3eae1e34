//! What passes on a connection of HTTP/2, frame by frame.
//!
//! h2 speaks the protocol. It does not say when a request's first byte has left, which is
//! the start that limits count, nor how much has come for one response, and it lets a
//! receiver send what nobody asked for as fast as it can. All of that is read off the heads
//! of frames (RFC 9113, 4.1) on their way between h2 and the socket; nothing is changed.

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::metered::{Meter, too_long};
use super::stream::Stream;

/// What we say before our first frame: `PRI * HTTP/2.0`, and `SM`.
const PREFACE_BYTES: usize = 24;

/// The head of a frame.
const HEAD_BYTES: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;

/// Frames that a receiver may send although they are no part of an answer under way: pings,
/// settings, windows, resets, and what was on its way when we gave an answer up. Each costs
/// a look at it, and some of them a frame in return.
const FIRST_UNASKED: u32 = 1_000;

/// So many more for each request, and one for so many bytes of its body: a receiver says
/// for each piece that it has read it.
const UNASKED_PER_REQUEST: u32 = 100;
const BYTES_PER_UNASKED: usize = 512;

/// The most that they add up to.
const MOST_UNASKED: u32 = 10_000;

/// What has passed on one connection.
struct Passed {
    written: Cursor,
    read: Cursor,
    /// When anything was read last.
    read_at: Instant,
    /// Those under way, by stream.
    exchanges: HashMap<u32, Meter>,
    /// The newest stream of whose request anything was handed over.
    handed_over: u32,
    /// The newest stream whose request has left.
    left: u32,
    /// The network has not taken all yet that was handed over.
    is_stalled: bool,
    /// How many frames may still come that are no part of an answer.
    unasked: u32,
    /// It begins no more exchanges.
    is_retired: bool,
    /// Nothing is read or written any more.
    given_up: Option<String>,
}

/// The connection, as those see it who have exchanges on it. Clones share it.
#[derive(Clone)]
pub(super) struct Frames {
    passed: Arc<Mutex<Passed>>,
    gives_up: Arc<Notify>,
}

/// A stream whose frames are looked at.
pub(super) struct Watched {
    stream: Stream,
    frames: Frames,
}

/// One exchange, whose response is counted until this is dropped.
pub(super) struct Followed {
    frames: Frames,
    stream: u32,
}

impl Frames {
    fn passed(&self) -> MutexGuard<'_, Passed> {
        self.passed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The exchange on this stream, which is of a request of so many bytes, has begun. Its
    /// first byte may have left already: h2 wakes whoever writes before it says the number.
    pub(super) fn follow(&self, stream: u32, (meter, bytes): (Meter, usize)) -> Followed {
        let mut passed = self.passed();
        if stream <= passed.left {
            meter.leaves();
        }
        passed.exchanges.insert(stream, meter);
        let windows = u32::try_from(bytes / BYTES_PER_UNASKED).unwrap_or(MOST_UNASKED);
        let more = UNASKED_PER_REQUEST.saturating_add(windows);
        passed.unasked = passed.unasked.saturating_add(more).min(MOST_UNASKED);
        drop(passed);
        Followed {
            frames: self.clone(),
            stream,
        }
    }

    /// Whether another request would leave at once.
    pub(super) fn takes_more(&self) -> bool {
        let passed = self.passed();
        !passed.is_stalled && !passed.is_retired && passed.given_up.is_none()
    }

    /// It begins no more exchanges if nothing has come since.
    pub(super) fn retire_if_silent_since(&self, began_at: Instant) {
        let mut passed = self.passed();
        passed.is_retired |= passed.read_at < began_at;
    }

    /// Comes when the connection is given up, so that whoever drives it drops it.
    pub(super) async fn given_up(&self) {
        self.gives_up.notified().await;
    }
}

impl Followed {
    /// Whether anything of the request was handed over.
    pub(super) fn was_handed_over(&self) -> bool {
        self.stream <= self.frames.passed().handed_over
    }

    /// Gives the whole connection up if nothing of the request was handed over yet: h2 takes
    /// back no request that waits. Nothing of it will leave then; false if it has.
    pub(super) fn give_up_unless_handed_over(&self) -> bool {
        let mut passed = self.frames.passed();
        if self.stream <= passed.handed_over {
            return false;
        }
        passed.given_up = Some("the connection takes nothing".to_owned());
        drop(passed);
        self.frames.gives_up.notify_one();
        true
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.frames.passed().exchanges.remove(&self.stream);
    }
}

impl Passed {
    fn new() -> Self {
        Self {
            written: Cursor::after(PREFACE_BYTES),
            read: Cursor::after(0),
            read_at: Instant::now(),
            exchanges: HashMap::new(),
            handed_over: 0,
            left: 0,
            is_stalled: false,
            unasked: FIRST_UNASKED,
            is_retired: false,
            given_up: None,
        }
    }

    fn check(&self) -> io::Result<()> {
        match &self.given_up {
            Some(why) => Err(io::Error::other(why.clone())),
            None => Ok(()),
        }
    }

    fn hand_over(&mut self, bytes: &[u8]) {
        let Self {
            written,
            handed_over,
            ..
        } = self;
        written.pass(bytes, |piece| {
            if piece.begins && piece.kind == HEADERS {
                *handed_over = piece.stream.max(*handed_over);
            }
        });
    }

    /// The network has all that was handed over.
    fn flushed(&mut self) {
        self.is_stalled = false;
        if self.left < self.handed_over {
            self.left = self.handed_over;
            for (stream, meter) in &self.exchanges {
                if *stream <= self.left {
                    meter.leaves();
                }
            }
        }
    }

    fn read(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.read_at = Instant::now();
        let Self {
            read,
            exchanges,
            unasked,
            given_up,
            ..
        } = self;
        read.pass(bytes, |piece| {
            let meter = match piece.kind {
                DATA | HEADERS | CONTINUATION => exchanges.get(&piece.stream),
                _ => None,
            };
            match meter {
                Some(meter) => {
                    meter.leaves(); // by now, whatever comes after it is still held up
                    meter.read(piece.bytes);
                    if meter.is_full() {
                        *given_up = Some(too_long());
                    }
                }
                None if piece.begins => match unasked.checked_sub(1) {
                    Some(left) => *unasked = left,
                    None => {
                        *given_up = Some("the receiver sends what nobody asked for".to_owned());
                    }
                },
                None => {}
            }
        });
        self.check()
    }
}

/// Where one is in a sequence of frames.
struct Cursor {
    head: [u8; HEAD_BYTES],
    /// So much of the head is known while none of the payload is left.
    known: usize,
    /// What is still to come of the payload.
    left: usize,
}

/// Of one frame: its head, or a piece of its payload.
struct Piece {
    kind: u8,
    stream: u32,
    bytes: usize,
    begins: bool,
}

impl Cursor {
    /// At a first frame that comes after so many bytes, which are of no kind.
    fn after(bytes: usize) -> Self {
        Self {
            head: [u8::MAX; HEAD_BYTES],
            known: 0,
            left: bytes,
        }
    }

    fn pass(&mut self, mut bytes: &[u8], mut seen: impl FnMut(Piece)) {
        while !bytes.is_empty() {
            let begins = self.left == 0;
            let wanted = match begins {
                true => HEAD_BYTES - self.known,
                false => self.left,
            };
            let (piece, rest) = bytes.split_at(wanted.min(bytes.len()));
            bytes = rest;
            if begins {
                let known = self.known + piece.len();
                self.head[self.known..known].copy_from_slice(piece);
                self.known = known;
                if known < HEAD_BYTES {
                    return;
                }
                self.known = 0;
                let [high, middle, low, ..] = self.head.map(usize::from);
                self.left = (high << 16) | (middle << 8) | low;
            } else {
                self.left -= piece.len();
            }
            let [_, _, _, kind, _, stream @ ..] = self.head;
            seen(Piece {
                kind,
                // Its highest bit says nothing.
                stream: u32::from_be_bytes(stream) & (u32::MAX >> 1),
                bytes: match begins {
                    true => HEAD_BYTES,
                    false => piece.len(),
                },
                begins,
            });
        }
    }
}

impl Watched {
    pub(super) fn new(stream: Stream) -> (Self, Frames) {
        let frames = Frames {
            passed: Arc::new(Mutex::new(Passed::new())),
            gives_up: Arc::default(),
        };
        let shared = frames.clone();
        (Self { stream, frames }, shared)
    }

    /// Hands over what `write` writes of these pieces. Under the lock, so that whoever gives
    /// up a request knows whether anything of it was handed over: nothing in here waits.
    fn write(
        &mut self,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
        write: impl FnOnce(Pin<&mut Stream>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let mut passed = self.frames.passed();
        passed.check()?;
        if passed.is_stalled {
            ready!(Pin::new(&mut self.stream).poll_flush(context))?;
            passed.flushed();
        }
        let written = write(Pin::new(&mut self.stream), context);
        passed.is_stalled = written.is_pending();
        let written = ready!(written)?;
        let mut left = written;
        for slice in slices {
            let here = &slice[..left.min(slice.len())];
            passed.hand_over(here);
            left -= here.len();
        }
        // At once, and not when all of a long body is written: a start is known then, and
        // nothing else is put behind what TLS could not get rid of.
        match Pin::new(&mut self.stream).poll_flush(context) {
            Poll::Ready(Ok(())) => passed.flushed(),
            Poll::Ready(Err(_)) | Poll::Pending => passed.is_stalled = true,
        }
        Poll::Ready(Ok(written))
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.frames.passed().check()?;
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        let read = this.frames.passed().read(&buffer.filled()[before..]);
        Poll::Ready(read)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let slices = [IoSlice::new(bytes)];
        (self.get_mut()).write(context, &slices, |stream, context| {
            stream.poll_write(context, bytes)
        })
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        (self.get_mut()).write(context, slices, |stream, context| {
            stream.poll_write_vectored(context, slices)
        })
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(context);
        let mut passed = this.frames.passed();
        passed.is_stalled = flushed.is_pending();
        ready!(flushed)?;
        passed.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use engine::ports::FirstByte;

    use super::*;

    fn frame(kind: u8, stream: u32, payload: usize) -> Vec<u8> {
        let [_, _, high, low] = u32::try_from(payload).unwrap().to_be_bytes();
        let mut frame = vec![0, high, low, kind, 0];
        frame.extend(stream.to_be_bytes());
        frame.resize(HEAD_BYTES + payload, 7);
        frame
    }

    fn frames() -> Frames {
        Frames {
            passed: Arc::new(Mutex::new(Passed::new())),
            gives_up: Arc::default(),
        }
    }

    /// A meter of a request that is on its way, and when it left.
    fn meter() -> (Meter, FirstByte) {
        let (meter, first_byte) = (Meter::default(), FirstByte::default());
        meter.reset(first_byte.clone());
        (meter, first_byte)
    }

    #[test]
    fn frames_are_the_same_in_whatever_pieces_they_come() {
        let mut all = vec![b'x'; PREFACE_BYTES];
        all.extend(frame(4, 0, 18));
        all.extend(frame(HEADERS, 1, 0));
        all.extend(frame(DATA, (1 << 31) | 3, 300));
        let expected = [(4, 0, 27), (HEADERS, 1, 9), (DATA, 3, 309)];
        for size in 1..all.len() {
            let mut cursor = Cursor::after(PREFACE_BYTES);
            let mut found: Vec<(u8, u32, usize)> = Vec::new();
            for piece in all.chunks(size) {
                cursor.pass(piece, |piece| {
                    if piece.begins {
                        found.push((piece.kind, piece.stream, piece.bytes));
                    } else if let Some(last) = found.last_mut() {
                        last.2 += piece.bytes;
                    }
                });
            }
            assert_eq!(found, expected, "in pieces of {size}");
        }
    }

    /// Whatever of others is on its way before it, or behind it.
    #[test]
    fn a_request_leaves_when_the_network_has_its_own_first_byte() {
        let frames = frames();
        let (meter, first_byte) = meter();
        frames.passed().hand_over(&[b'x'; PREFACE_BYTES]);
        let followed = frames.follow(3, (meter, 0));
        for before in [frame(HEADERS, 1, 20), frame(DATA, 1, 9)] {
            frames.passed().hand_over(&before);
            frames.passed().flushed();
        }
        assert!(!followed.was_handed_over());
        assert_eq!(first_byte.left_at(), None);

        frames.passed().hand_over(&frame(HEADERS, 3, 20));
        assert!(followed.was_handed_over());
        assert_eq!(
            first_byte.left_at(),
            None,
            "TLS has it, the network not yet"
        );
        frames.passed().flushed();
        assert!(first_byte.left_at().is_some());
        assert!(!followed.give_up_unless_handed_over());

        let (meter, first_byte) = self::meter();
        let _late = frames.follow(3, (meter, 0));
        assert!(
            first_byte.left_at().is_some(),
            "before its number was known"
        );
    }

    #[test]
    fn what_is_answered_has_left() {
        let frames = frames();
        let (meter, first_byte) = meter();
        let _followed = frames.follow(1, (meter, 0));
        frames.passed().read(&frame(HEADERS, 3, 1)).unwrap();
        assert_eq!(first_byte.left_at(), None, "another");
        frames.passed().read(&frame(HEADERS, 1, 1)).unwrap();
        assert!(first_byte.left_at().is_some());
    }

    #[test]
    fn nothing_leaves_of_what_was_given_up() {
        let frames = frames();
        let (meter, _) = meter();
        let followed = frames.follow(1, (meter, 0));
        assert!(frames.takes_more());
        assert!(followed.give_up_unless_handed_over());
        assert!(!frames.takes_more());
        assert!(frames.passed().check().is_err());
    }

    #[test]
    fn a_receiver_may_send_so_much_that_nobody_asked_for() {
        let frames = frames();
        for _ in 0..FIRST_UNASKED {
            frames.passed().read(&frame(6, 0, 8)).unwrap();
        }
        let (meter, _) = meter();
        let _followed = frames.follow(1, (meter, 1_024));
        for _ in 0..UNASKED_PER_REQUEST + 2 {
            frames.passed().read(&frame(8, 0, 4)).unwrap();
        }
        frames.passed().read(&frame(DATA, 1, 100)).unwrap();
        assert!(frames.takes_more());
        let refused = frames.passed().read(&frame(DATA, 5, 0));
        assert!(refused.is_err(), "of an answer that nobody waits for");
        assert!(!frames.takes_more());
    }
}
