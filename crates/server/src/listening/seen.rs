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

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::{Bounds, STALLED};

/// Shared by a connection's bytes, its requests and its clock.
pub(super) struct Seen(Mutex<State>);

struct State {
    requests: usize,
    /// Something is to be written, and the client takes nothing.
    blocked: bool,
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
            blocked: false,
            head_since: Some(now),
            still_since: now,
            moved_at: now,
        }))
    }

    /// What to do now; a connection that is to end has until `ends_at` to have a
    /// request.
    pub(super) fn next(&self, bounds: &Bounds, ends_at: Option<Instant>) -> Next {
        let now = Instant::now();
        let state = self.state();
        // A head can begin as soon as we look away, and its time is the shortest.
        let soon = now + bounds.head / 4;
        if state.requests > 0 || state.blocked {
            return if state.blocked && now >= state.moved_at + STALLED {
                Next::Close("its client reads nothing")
            } else {
                Next::LookAt(soon)
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

    fn read(&self) {
        let now = Instant::now();
        let mut state = self.state();
        state.moved_at = now;
        if state.requests == 0 {
            state.head_since.get_or_insert(now);
        }
    }

    fn wrote(&self, moved: bool) {
        let mut state = self.state();
        if moved {
            state.moved_at = Instant::now();
        }
        state.blocked = false;
    }

    fn blocked(&self) {
        self.state().blocked = true;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request, from its head to the end of its answer.
pub(super) struct Busy(Arc<Seen>);

impl Busy {
    pub(super) fn new(seen: &Arc<Seen>) -> Self {
        let mut state = seen.state();
        state.requests += 1;
        state.head_since = None;
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

    fn written<T>(&self, written: Poll<io::Result<T>>, moved: bool) -> Poll<io::Result<T>> {
        match &written {
            Poll::Ready(_) => self.seen.wrote(moved),
            Poll::Pending => self.seen.blocked(),
        }
        written
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
        if buffer.filled().len() > before {
            self.seen.read();
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
        self.written(written, true)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.written(written, true)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.written(flushed, false)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.written(shut, false)
    }
}
