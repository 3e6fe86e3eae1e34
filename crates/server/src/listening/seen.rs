//! What one connection is doing, as seen from its bytes and its requests.
//!
//! ```text
//! head ──► request ──► still ──► head …
//! ```
//!
//! A new connection owes a head. `still` is between requests: nothing of the
//! next one has come. An answer that waits in our buffer is a request still.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::{Bounds, PACE_BYTES, STALLED};

/// Shared by a connection's bytes, its requests and its clock.
pub(super) struct Seen(Mutex<State>);

struct State {
    requests: usize,
    /// Something is to be written, and the client takes nothing, since then.
    blocked: Option<Instant>,
    /// For so long that was so, and so many bytes went either way, since the pace was
    /// looked at last.
    waited: Duration,
    moved: usize,
    /// Since when a head is coming; `None` between requests.
    head_since: Option<Instant>,
    still_since: Instant,
    /// When a byte went either way.
    moved_at: Instant,
}

/// What to do with a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing before then.
    LookAt(Instant),
    /// End it, and why.
    Close(&'static str),
}

impl Seen {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self(Mutex::new(State {
            requests: 0,
            blocked: None,
            waited: Duration::ZERO,
            moved: 0,
            head_since: Some(now),
            still_since: now,
            moved_at: now,
        }))
    }

    /// What to do now; a connection that is to end has until `ends_at` to have a
    /// request.
    pub(super) fn next(&self, bounds: &Bounds, ends_at: Option<Instant>) -> Next {
        let now = Instant::now();
        let mut state = self.state();
        // A head can begin as soon as we look away, and its time is the shortest.
        let soon = now + bounds.head / 4;
        if state.requests > 0 || state.blocked.is_some() {
            return match state.kept_waiting(now) {
                Some(why) => Next::Close(why),
                None => Next::LookAt(soon),
            };
        }
        let (until, why) = match state.head_since {
            Some(since) => (since + bounds.head, "its head took too long"),
            None => (state.still_since + bounds.idle, "it had no request"),
        };
        let until = ends_at.map_or(until, |ends_at| until.min(ends_at));
        match now >= until {
            true => Next::Close(why),
            false => Next::LookAt(until.min(soon)),
        }
    }

    fn read(&self, bytes: usize) {
        let now = Instant::now();
        let mut state = self.state();
        state.moved_at = now;
        state.moved += bytes;
        if state.requests == 0 {
            state.head_since.get_or_insert(now);
        }
    }

    /// Something was taken, or all of it; of a flush, `bytes` is none.
    fn wrote(&self, bytes: Option<usize>) {
        let now = Instant::now();
        let mut state = self.state();
        if let Some(bytes) = bytes {
            state.moved_at = now;
            state.moved += bytes;
        }
        if let Some(since) = state.blocked.take() {
            state.waited += now - since;
        }
    }

    fn blocked(&self) {
        self.state().blocked.get_or_insert_with(Instant::now);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Why a client that reads too little is waited for no longer. Only the time counts
    /// in which something could not be written, and what it sends meanwhile is not held
    /// against it.
    fn kept_waiting(&mut self, now: Instant) -> Option<&'static str> {
        let since = self.blocked?;
        if now >= self.moved_at + STALLED {
            return Some("its client reads nothing");
        }
        if self.waited + (now - since) < STALLED {
            return None;
        }
        if self.moved < PACE_BYTES {
            return Some("its client reads too slowly");
        }
        (self.blocked, self.waited, self.moved) = (Some(now), Duration::ZERO, 0);
        None
    }
}

/// A request, from its head to the end of its answer.
pub(super) struct Busy(Arc<Seen>);

impl Busy {
    pub(super) fn new(seen: &Arc<Seen>) -> Self {
        let mut state = seen.state();
        state.requests += 1;
        state.head_since = None;
        (state.waited, state.moved) = (Duration::ZERO, 0);
        drop(state);
        Self(Arc::clone(seen))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.requests -= 1;
        state.still_since = Instant::now();
    }
}

/// A connection whose bytes are noted.
pub(super) struct Watched<S> {
    stream: S,
    seen: Arc<Seen>,
}

impl<S> Watched<S> {
    pub(super) const fn new(stream: S, seen: Arc<Seen>) -> Self {
        Self { stream, seen }
    }

    fn written(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Ready(Ok(bytes)) => self.seen.wrote(Some(*bytes)),
            Poll::Ready(Err(_)) => self.seen.wrote(None),
            Poll::Pending => self.seen.blocked(),
        }
        written
    }

    fn flushed(&self, flushed: Poll<io::Result<()>>) -> Poll<io::Result<()>> {
        match &flushed {
            Poll::Ready(_) => self.seen.wrote(None),
            Poll::Pending => self.seen.blocked(),
        }
        flushed
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        let bytes = buffer.filled().len() - before;
        if bytes > 0 {
            self.seen.read(bytes);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.written(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.flushed(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.flushed(shut)
    }
}
