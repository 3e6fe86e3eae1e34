//! What passes on a connection of HTTP/2, frame by frame.
//!
//! h2 speaks the protocol. It does not say when a request's first byte has left, which is
//! the start that limits count, nor how much has come for one response, and it lets a
//! receiver send what nobody asked for as fast as it can. All of that is read off the heads
//! of frames (RFC 9113, 4.1) on their way between h2 and the socket.
//!
//! # What is too late does not leave
//! h2 takes back no request that waits in it, and TLS nothing that it has encrypted. So what
//! is still behind us is looked at before every write. From the first request on of which
//! nothing was handed over when it had to leave, frames are swallowed: h2 believes that they
//! are out, and those that were out before go on. Where something was handed over that the
//! network has not taken, nothing at all is written any more, but for an alert by which TLS
//! ends a connection whose receiver breaks its records. Either way answers are still read,
//! so that those of requests that have left are not lost, and nobody begins another exchange.

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::mem::take;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

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

/// The flag by which DATA and HEADERS are the last of their stream.
const END_STREAM: u8 = 1;

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

/// Heads of one response that do not end it: any of information (1xx), and the one that
/// counts. h2 decodes each and keeps it until the response is waited for again, and a field
/// that is one byte of it may be a hundred there.
const MOST_HEADS: u32 = 16;

/// Others do not share a connection whose oldest request has waited for so long while
/// nothing of any answer came: less than two in a row take to find out.
const SILENT_FOR: Duration = Duration::from_secs(3);

/// What has passed on one connection.
struct Passed {
    written: Cursor,
    read: Cursor,
    /// When anything of an exchange was read last. What a receiver's front answers by itself,
    /// as pings and settings, says nothing of what is behind it.
    heard_at: Instant,
    /// Requests that h2 is being given: it has not said their number.
    expected: Vec<Meter>,
    /// Those under way, by stream.
    exchanges: HashMap<u32, Exchange>,
    /// The newest stream of whose request anything was handed over.
    handed_over: u32,
    /// The newest stream whose request has left.
    left: u32,
    /// When the network could last take any of it.
    offered_at: Instant,
    /// The network has not taken all yet that was handed over.
    is_stalled: bool,
    /// Whoever waits for that is told of it, or that nothing is begun any more.
    moves: Arc<Notify>,
    /// How many frames may still come that are no part of an answer.
    unasked: u32,
    /// It begins no more exchanges.
    is_retired: bool,
    /// The last stream that anything is still let out of.
    last_out: u32,
    /// Nothing is let out any more.
    is_mute: bool,
    /// Nothing is read or written any more.
    given_up: Option<String>,
}

/// One under way.
struct Exchange {
    meter: Meter,
    began_at: Instant,
    /// The last frame of its request was handed over.
    is_whole: bool,
    /// Something of its answer has come.
    is_answered: bool,
    /// Those of its answer that have not ended it.
    heads: u32,
}

/// The connection, as those see it who have exchanges on it. Clones share it.
#[derive(Clone)]
pub(super) struct Frames {
    passed: Arc<Mutex<Passed>>,
    /// The network has all again that was handed over, or it begins no more exchanges.
    moves: Arc<Notify>,
}

/// A stream whose frames are looked at.
pub(super) struct Watched {
    stream: Stream,
    frames: Frames,
}

/// One exchange, whose response is counted until this is dropped. If its request has not
/// left by then, it does not leave any more.
pub(super) struct Followed {
    frames: Frames,
    meter: Meter,
    is_empty: bool,
    /// `None` as long as h2 has not said it.
    stream: Option<u32>,
}

/// What has become of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// The network has its first byte.
    Left,
    /// A part of it was handed over; whether that part was all of a first record, and left,
    /// nobody can say. It counts as a start, when it may have left at the latest.
    Begun,
    /// Nothing of it leaves.
    Stays,
}

impl Frames {
    fn new() -> Self {
        let moves = Arc::<Notify>::default();
        Self {
            passed: Arc::new(Mutex::new(Passed::new(Arc::clone(&moves)))),
            moves,
        }
    }

    fn passed(&self) -> MutexGuard<'_, Passed> {
        self.passed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request of so many bytes is about to be given to h2, if no more than `most` are
    /// under way with it. From now on it does not leave too late: whoever writes may do so
    /// before h2 says its number.
    pub(super) fn follow(&self, (meter, bytes): (Meter, usize), most: usize) -> Option<Followed> {
        let mut passed = self.passed();
        if passed.is_retired || passed.under_way() >= most {
            return None;
        }
        passed.expected.push(meter.clone());
        let windows = u32::try_from(bytes / BYTES_PER_UNASKED).unwrap_or(MOST_UNASKED);
        let more = UNASKED_PER_REQUEST.saturating_add(windows);
        passed.unasked = passed.unasked.saturating_add(more).min(MOST_UNASKED);
        drop(passed);
        Some(Followed {
            frames: self.clone(),
            meter,
            is_empty: bytes == 0,
            stream: None,
        })
    }

    /// How many requests h2 has, of those that somebody waits for.
    pub(super) fn under_way(&self) -> usize {
        self.passed().under_way()
    }

    /// Whether another request would leave at once.
    pub(super) fn takes_more(&self) -> bool {
        let passed = self.passed();
        !passed.is_stalled && !passed.is_retired
    }

    /// Waits until the network has, or had since, all that was handed over, or no exchange is
    /// begun any more. Where a long body keeps it busy, it never has for long.
    pub(super) async fn flushed(&self) {
        let moved = self.moves.notified(); // before the look: it is not missed
        if self.passed().is_stuck() {
            moved.await;
        }
    }

    /// The connection begins no more exchanges.
    pub(super) fn retire(&self) {
        self.passed().retire();
    }

    /// It begins no more exchanges if nothing of any has come since.
    pub(super) fn retire_if_silent_since(&self, began_at: Instant) {
        let mut passed = self.passed();
        if passed.heard_at < began_at {
            passed.retire();
        }
    }

    /// Whether the oldest request without an answer has waited for [`SILENT_FOR`], and no
    /// other had anything of one meanwhile: nobody may be there any more.
    pub(super) fn is_silent(&self) -> bool {
        let passed = self.passed();
        let unanswered = passed.exchanges.values().filter(|one| !one.is_answered);
        let oldest = unanswered.map(|one| one.began_at).min();
        oldest.is_some_and(|oldest| oldest.max(passed.heard_at).elapsed() >= SILENT_FOR)
    }
}

impl Followed {
    /// The request is on this stream. Its first byte may have left already.
    pub(super) fn numbered(&mut self, stream: u32) {
        let mut passed = self.frames.passed();
        passed.expected.retain(|one| !one.is(&self.meter));
        if stream <= passed.left {
            self.meter.leaves();
        }
        let exchange = Exchange {
            meter: self.meter.clone(),
            began_at: Instant::now(),
            is_whole: self.is_empty,
            is_answered: false,
            heads: 0,
        };
        passed.exchanges.insert(stream, exchange);
        drop(passed);
        self.stream = Some(stream);
    }

    /// It ends here; whether h2 may still have a part of its request. What is half written
    /// h2 does not throw away when it is reset, so the connection begins no more exchanges
    /// then.
    pub(super) fn leaves_unfinished(&self) -> bool {
        let mut passed = self.frames.passed();
        let exchange = self.stream.and_then(|stream| passed.exchanges.get(&stream));
        let is_unfinished = exchange.is_some_and(|exchange| !exchange.is_whole);
        if is_unfinished && passed.is_stalled {
            passed.retire();
        }
        is_unfinished
    }

    /// If the request has not left, it does not any more; what has become of it. Asked
    /// again, what had begun counts as left.
    pub(super) fn give_up(&self) -> Fate {
        let mut passed = self.frames.passed();
        let fate = match self.stream {
            _ if !self.meter.is_pending() => Fate::Left,
            // h2 has not taken it.
            None => Fate::Stays,
            Some(stream) => passed.hold_back(stream),
        };
        if fate == Fate::Begun {
            self.meter.may_have_left(passed.offered_at);
        }
        fate
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        let _fate = self.give_up();
        let mut passed = self.frames.passed();
        passed.expected.retain(|one| !one.is(&self.meter));
        if let Some(stream) = self.stream {
            passed.exchanges.remove(&stream);
        }
    }
}

impl Passed {
    fn new(moves: Arc<Notify>) -> Self {
        Self {
            written: Cursor::after(PREFACE_BYTES),
            read: Cursor::after(0),
            heard_at: Instant::now(),
            expected: Vec::new(),
            exchanges: HashMap::new(),
            handed_over: 0,
            left: 0,
            offered_at: Instant::now(),
            is_stalled: false,
            moves,
            unasked: FIRST_UNASKED,
            is_retired: false,
            last_out: u32::MAX,
            is_mute: false,
            given_up: None,
        }
    }

    fn check(&self) -> io::Result<()> {
        match &self.given_up {
            Some(why) => Err(io::Error::other(why.clone())),
            None => Ok(()),
        }
    }

    /// It begins no more exchanges, and whoever waits to begin one is told.
    fn retire(&mut self) {
        self.is_retired = true;
        self.moves.notify_waiters();
    }

    /// Whether an exchange has to wait before it is begun.
    fn is_stuck(&self) -> bool {
        self.is_stalled && !self.is_retired
    }

    fn under_way(&self) -> usize {
        self.exchanges.len() + self.expected.len()
    }

    /// Lets nothing more out of this stream, whose request has not left.
    fn hold_back(&mut self, stream: u32) -> Fate {
        self.retire();
        if stream <= self.handed_over {
            self.is_mute = true;
            return Fate::Begun;
        }
        self.lets_out_no_new();
        Fate::Stays
    }

    /// Of streams of which nothing was handed over.
    fn lets_out_no_new(&mut self) {
        // Whose head it is that was handed over in part, nobody knows here.
        self.is_mute |= self.written.known > 0;
        self.last_out = self.last_out.min(self.handed_over);
    }

    /// Nothing of a request leaves when it is too late for it.
    fn hold_back_what_is_late(&mut self) {
        let now = Instant::now();
        let late = (self.exchanges.iter()).filter(|(_, exchange)| exchange.meter.is_late(now));
        let mut late: Vec<u32> = late.map(|(stream, _)| *stream).collect();
        if self.expected.iter().any(|meter| meter.is_late(now)) {
            // It may be the last that was handed over, if that has not left.
            late.push(match self.left < self.handed_over {
                true => self.handed_over,
                false => u32::MAX,
            });
        }
        for stream in late {
            let _fate = self.hold_back(stream);
        }
    }

    /// How much of these bytes, from the first one on, is treated alike; and whether that is
    /// let out.
    fn alike<'b>(&self, bytes: &'b [u8]) -> (&'b [u8], bool) {
        let mut cursor = self.written.clone();
        // Of the first head, so much is out.
        let mut known = cursor.known;
        let (mut length, mut lets_out, mut is_over) = (0, None, false);
        cursor.pass(bytes, |piece| {
            let leaves = piece.stream <= self.last_out;
            is_over |= *lets_out.get_or_insert(leaves) != leaves;
            if !is_over {
                length += piece.bytes - take(&mut known);
            }
        });
        (&bytes[..length], lets_out == Some(true))
    }

    fn swallow(&mut self, bytes: &[u8]) {
        self.written.pass(bytes, |_| {});
    }

    fn hand_over(&mut self, bytes: &[u8]) {
        let Self {
            written,
            exchanges,
            handed_over,
            ..
        } = self;
        written.pass(bytes, |piece| {
            if piece.begins && piece.kind == HEADERS {
                *handed_over = piece.stream.max(*handed_over);
            }
            if piece.ends
                && let Some(exchange) = exchanges.get_mut(&piece.stream)
            {
                exchange.is_whole = true;
            }
        });
    }

    /// Lets the network take what it does.
    fn offer<T>(&mut self, taking: impl FnOnce() -> Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        let taken = taking();
        self.offered_at = Instant::now();
        self.is_stalled = !matches!(taken, Poll::Ready(Ok(_)));
        taken
    }

    /// The network has all that was handed over.
    fn flushed(&mut self) {
        self.is_stalled = false;
        self.moves.notify_waiters();
        if self.left < self.handed_over {
            self.left = self.handed_over;
            for (stream, exchange) in &self.exchanges {
                if *stream <= self.left {
                    exchange.meter.leaves();
                }
            }
        }
    }

    fn read(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Self {
            read,
            heard_at,
            exchanges,
            unasked,
            given_up,
            ..
        } = self;
        read.pass(bytes, |piece| {
            let exchange = match piece.kind {
                DATA | HEADERS | CONTINUATION => exchanges.get_mut(&piece.stream),
                _ => None,
            };
            match exchange {
                Some(Exchange {
                    meter,
                    is_answered,
                    heads,
                    ..
                }) => {
                    *heard_at = Instant::now();
                    *is_answered = true;
                    meter.leaves(); // by now, whatever comes after it is still held up
                    meter.read(piece.bytes);
                    *heads += u32::from(piece.begins && piece.kind == HEADERS && !piece.ends);
                    if *heads > MOST_HEADS {
                        *given_up = Some(format!("the response has over {MOST_HEADS} heads"));
                    }
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
        if self.given_up.is_some() {
            self.retire();
        }
        self.check()
    }
}

/// Where one is in a sequence of frames.
#[derive(Clone)]
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
    /// Of the last frame of its stream.
    ends: bool,
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
            let [_, _, _, kind, flags, stream @ ..] = self.head;
            seen(Piece {
                kind,
                // Its highest bit says nothing.
                stream: u32::from_be_bytes(stream) & (u32::MAX >> 1),
                bytes: match begins {
                    true => HEAD_BYTES,
                    false => piece.len(),
                },
                begins,
                ends: matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0,
            });
        }
    }
}

impl Watched {
    pub(super) fn new(stream: Stream) -> (Self, Frames) {
        let frames = Frames::new();
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
        passed.hold_back_what_is_late();
        let all: usize = slices.iter().map(|slice| slice.len()).sum();
        if passed.is_mute {
            return Poll::Ready(Ok(all));
        }
        if passed.is_stalled {
            ready!(passed.offer(|| Pin::new(&mut self.stream).poll_flush(context)))?;
            passed.flushed();
        }
        let (offered, written) = match (slices.iter()).find(|slice| !slice.is_empty()) {
            Some(first) if passed.last_out < u32::MAX => {
                let (alike, is_let_out) = passed.alike(first);
                if !is_let_out {
                    // A head in two pieces h2 does not write; whose it is cannot be told.
                    passed.is_mute |= alike.is_empty();
                    passed.swallow(alike);
                    let swallowed = match alike.len() {
                        0 => first.len(),
                        some => some,
                    };
                    return Poll::Ready(Ok(swallowed));
                }
                let stream = Pin::new(&mut self.stream);
                let written = passed.offer(|| stream.poll_write(context, alike));
                (alike.len(), written)
            }
            _ => {
                let stream = Pin::new(&mut self.stream);
                (all, passed.offer(|| write(stream, context)))
            }
        };
        let mut left = match &written {
            Poll::Ready(Ok(written)) => *written,
            // TLS writes several times, and what was before the one that failed is out.
            Poll::Ready(Err(_)) => offered,
            Poll::Pending => 0,
        };
        for slice in slices {
            let here = &slice[..left.min(slice.len())];
            passed.hand_over(here);
            left -= here.len();
        }
        let written = ready!(written)?;
        // At once, and not when all of a long body is written: a start is known then, and
        // nothing else is put behind what TLS could not get rid of.
        let flushed = passed.offer(|| Pin::new(&mut self.stream).poll_flush(context));
        if let Poll::Ready(Ok(())) = flushed {
            passed.flushed();
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
        let filled = ready!(Pin::new(&mut this.stream).poll_read(context, buffer));
        let mut passed = this.frames.passed();
        if filled.is_err() {
            passed.offered_at = Instant::now(); // with TLS's alert, and what it held
        }
        filled?;
        Poll::Ready(passed.read(&buffer.filled()[before..]))
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
        let mut passed = this.frames.passed();
        passed.check()?;
        passed.hold_back_what_is_late();
        if passed.is_mute {
            return Poll::Ready(Ok(()));
        }
        ready!(passed.offer(|| Pin::new(&mut this.stream).poll_flush(context)))?;
        passed.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let mut passed = this.frames.passed();
        passed.check()?;
        passed.hold_back_what_is_late();
        if passed.is_mute {
            return Poll::Ready(Ok(())); // TLS would get rid of what it has
        }
        Pin::new(&mut this.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use engine::ports::FirstByte;
    use tokio::io::{AsyncWriteExt, duplex};
    use tokio::task::yield_now;
    use tokio::time::timeout;

    use super::*;

    fn frame(kind: u8, stream: u32, payload: usize) -> Vec<u8> {
        let [_, _, high, low] = u32::try_from(payload).unwrap().to_be_bytes();
        let mut frame = vec![0, high, low, kind, 0];
        frame.extend(stream.to_be_bytes());
        frame.resize(HEAD_BYTES + payload, 7);
        frame
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

    /// One on this stream.
    fn followed(frames: &Frames, stream: u32, meter: Meter) -> Followed {
        let mut followed = frames.follow((meter, 0), 9).unwrap();
        followed.numbered(stream);
        followed
    }

    /// Whatever of others is on its way before it, or behind it.
    #[test]
    fn a_request_leaves_when_the_network_has_its_own_first_byte() {
        let frames = Frames::new();
        let (meter, first_byte) = meter();
        frames.passed().hand_over(&[b'x'; PREFACE_BYTES]);
        let followed = followed(&frames, 3, meter);
        for before in [frame(HEADERS, 1, 20), frame(DATA, 1, 9)] {
            frames.passed().hand_over(&before);
            frames.passed().flushed();
        }
        assert_eq!(first_byte.left_at(), None);

        frames.passed().hand_over(&frame(HEADERS, 3, 20));
        assert_eq!(
            first_byte.left_at(),
            None,
            "TLS has it, the network not yet"
        );
        frames.passed().flushed();
        assert!(first_byte.left_at().is_some());
        assert_eq!(followed.give_up(), Fate::Left);

        let (meter, first_byte) = self::meter();
        let _late = self::followed(&frames, 3, meter);
        assert!(
            first_byte.left_at().is_some(),
            "before its number was known"
        );
    }

    #[test]
    fn what_is_answered_has_left() {
        let frames = Frames::new();
        let (meter, first_byte) = meter();
        let _followed = followed(&frames, 1, meter);
        frames.passed().read(&frame(HEADERS, 3, 1)).unwrap();
        assert_eq!(first_byte.left_at(), None, "another");
        frames.passed().read(&frame(HEADERS, 1, 1)).unwrap();
        assert!(first_byte.left_at().is_some());
    }

    #[test]
    fn nothing_new_leaves_of_what_was_given_up_and_the_others_go_on() {
        let frames = Frames::new();
        frames.passed().hand_over(&[b'x'; PREFACE_BYTES]);
        let (meter, _) = meter();
        let followed = followed(&frames, 3, meter);
        frames.passed().hand_over(&frame(HEADERS, 1, 20));
        frames.passed().flushed();
        assert!(frames.takes_more());
        assert_eq!(followed.give_up(), Fate::Stays);
        assert!(!frames.takes_more());
        let (ping, others) = (frame(6, 0, 8), frame(DATA, 1, 9));
        let all = [ping, others, frame(HEADERS, 3, 20), frame(DATA, 3, 1)].concat();
        let mut passed = frames.passed();
        let (out, is_let_out) = passed.alike(&all);
        assert_eq!((out.len(), is_let_out), (35, true));
        // The network takes it in two pieces, and one of them ends within a head.
        passed.hand_over(&all[..20]);
        let (out, is_let_out) = passed.alike(&all[20..]);
        assert_eq!((out.len(), is_let_out), (15, true));
        passed.hand_over(out);
        let (rest, is_let_out) = passed.alike(&all[35..]);
        assert_eq!((rest.len(), is_let_out), (39, false));
        passed.swallow(rest);
        assert_eq!(passed.handed_over, 1);
        assert!(!passed.is_mute);
    }

    #[test]
    fn nothing_at_all_leaves_behind_what_is_handed_over_and_late() {
        let frames = Frames::new();
        frames.passed().hand_over(&[b'x'; PREFACE_BYTES]);
        let (meter, _) = meter();
        let followed = followed(&frames, 1, meter);
        frames.passed().hand_over(&frame(HEADERS, 1, 20));
        assert_eq!(followed.give_up(), Fate::Begun);
        assert!(frames.passed().is_mute);
    }

    /// TLS writes several times, and what was before the one that failed is out.
    #[tokio::test]
    async fn what_is_in_a_write_that_fails_may_have_left() {
        let (ours, theirs) = duplex(64);
        drop(theirs);
        let (mut watched, frames) = Watched::new(Box::new(ours));
        frames.passed().hand_over(&[b'x'; PREFACE_BYTES]);
        let (meter, first_byte) = meter();
        let written = followed(&frames, 1, meter);
        let (meter, _) = self::meter();
        let other = followed(&frames, 3, meter);
        (watched.write_all(&frame(HEADERS, 1, 20)).await).unwrap_err();
        assert_eq!(written.give_up(), Fate::Begun);
        assert!(first_byte.left_at().is_some());
        assert_eq!(other.give_up(), Fate::Stays);
    }

    /// Or they would wait for as long as they may, or for ever.
    #[tokio::test(start_paused = true)]
    async fn who_waits_to_begin_is_told_that_nothing_is_begun_any_more() {
        let ends: [fn(&Frames, &mut Option<Followed>); 5] = [
            |frames, _| frames.retire(),
            |frames, _| frames.retire_if_silent_since(Instant::now() + SILENT_FOR),
            |_, followed| drop(followed.take()),
            |_, followed| {
                let followed = followed.as_ref();
                assert!(followed.is_some_and(Followed::leaves_unfinished));
            },
            |frames, _| {
                let pings = frame(6, 0, 0).repeat(2_000);
                assert!(frames.passed().read(&pings).is_err());
            },
        ];
        for (number, end) in ends.into_iter().enumerate() {
            let frames = Frames::new();
            let (meter, _) = meter();
            let mut followed = frames.follow((meter, 9), 9).unwrap();
            followed.numbered(1);
            let mut followed = Some(followed);
            frames.passed().is_stalled = true;
            let (told, ()) = tokio::join!(timeout(SILENT_FOR, frames.flushed()), async {
                yield_now().await; // until it waits
                end(&frames, &mut followed);
            });
            assert!(told.is_ok(), "{number}");
        }
    }

    /// Whoever writes may do so before h2 says the number.
    #[tokio::test(start_paused = true)]
    async fn what_has_no_number_yet_is_late_as_well() {
        for (is_handed_over, is_mute) in [(false, false), (true, true)] {
            let frames = Frames::new();
            frames.passed().hand_over(&[b'x'; PREFACE_BYTES]);
            let (meter, limit) = (Meter::default(), Instant::now());
            meter.reset(FirstByte::default().by(limit));
            let _followed = frames.follow((meter, 0), 9).unwrap();
            if is_handed_over {
                frames.passed().hand_over(&frame(HEADERS, 1, 20));
            }
            frames.passed().hold_back_what_is_late();
            assert!(frames.takes_more(), "it is still in time");
            tokio::time::advance(Duration::from_millis(1)).await;
            frames.passed().hold_back_what_is_late();
            assert!(!frames.takes_more());
            assert_eq!(frames.passed().is_mute, is_mute);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_of_answers_and_not_of_the_connection() {
        let frames = Frames::new();
        let (meter, _) = meter();
        let oldest = followed(&frames, 1, meter);
        let (meter, _) = self::meter();
        let _other = followed(&frames, 3, meter);
        tokio::time::advance(SILENT_FOR / 2).await;
        assert!(!frames.is_silent());
        tokio::time::advance(SILENT_FOR / 2).await;
        frames.passed().read(&frame(6, 0, 8)).unwrap();
        assert!(frames.is_silent(), "a ping is no answer");
        frames.passed().read(&frame(HEADERS, 3, 1)).unwrap();
        assert!(!frames.is_silent(), "another is answered");
        tokio::time::advance(SILENT_FOR).await;
        assert!(frames.is_silent());
        drop(oldest);
        assert!(!frames.is_silent(), "that one is being answered");
    }

    #[test]
    fn no_more_are_begun_than_a_receiver_takes() {
        let frames = Frames::new();
        let (meter, _) = meter();
        let _one = followed(&frames, 1, meter);
        let (meter, _) = self::meter();
        assert!(frames.follow((meter.clone(), 0), 1).is_none());
        let other = frames.follow((meter, 0), 2);
        assert_eq!(frames.under_way(), 2);
        drop(other);
        assert_eq!(frames.under_way(), 1);
    }

    #[test]
    fn a_response_is_bounded_in_heads_and_in_bytes() {
        for (piece, most) in [
            (frame(HEADERS, 1, 1), MOST_HEADS),
            (frame(DATA, 1, 65_000), 8),
        ] {
            let frames = Frames::new();
            let (meter, _) = meter();
            let _followed = followed(&frames, 1, meter);
            for _ in 0..most {
                frames.passed().read(&piece).unwrap();
            }
            assert!(frames.takes_more());
            frames.passed().read(&piece).unwrap_err();
            assert!(!frames.takes_more());
        }
    }

    #[test]
    fn a_receiver_may_send_so_much_that_nobody_asked_for() {
        let frames = Frames::new();
        for _ in 0..FIRST_UNASKED {
            frames.passed().read(&frame(6, 0, 8)).unwrap();
        }
        let (meter, _) = meter();
        let mut followed = frames.follow((meter, 1_024), 9).unwrap();
        followed.numbered(1);
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
