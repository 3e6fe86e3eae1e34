//! A stream that counts what it reads for one response, and ends in an error
//! when that is too much.
//!
//! hyper caps a head and we cap a body, but neither counts what comes in
//! between: a receiver that answers `100 Continue` over and over would be read
//! until the deadline, as fast as it can write. And the same count says when a
//! response is too slow to be waited for.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use engine::ports::{BATCH_BODY_BYTES, FirstByte, READ_BODY_BYTES};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::stream::Stream;

/// The most bytes that are read for one response, heads and chunk sizes
/// included. A body up to its cap fits even in chunks of one byte, which take
/// six each.
/// A batch's answer fits unless it comes in chunks of a few bytes.
pub(super) const MAX_RESPONSE_BYTES: usize = 8 * READ_BODY_BYTES;

const _: () = assert!(MAX_RESPONSE_BYTES >= 2 * BATCH_BODY_BYTES);

/// How long a response may take from its first byte on, however slow it is.
pub(super) const SLOW_START: Duration = Duration::from_secs(5);

/// How fast a response has to be after that, on average since its first byte.
pub(super) const MIN_BYTES_PER_SECOND: u32 = 1024;

pub(super) fn too_long() -> String {
    format!("the response is over {MAX_RESPONSE_BYTES} bytes")
}

/// What has been read for the response under way.
#[derive(Default)]
struct Count {
    bytes: usize,
    began_at: Option<Instant>,
    /// Of the request that it answers; `None` once that is on its way.
    request: Option<FirstByte>,
}

/// The count of the response under way. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Meter(Arc<Mutex<Count>>);

impl Meter {
    /// Another request goes out, and its response begins.
    pub(super) fn reset(&self, request: FirstByte) {
        *self.count() = Count {
            request: Some(request),
            ..Count::default()
        };
    }

    /// The network has taken the first of the request. Noted after the fact, so never too
    /// early; what is said again later does not count.
    pub(super) fn leaves(&self) {
        if let Some(request) = self.count().request.take() {
            request.leaves();
        }
    }

    /// The network may have taken the first of the request, then at the latest, and does not
    /// any more.
    pub(super) fn may_have_left(&self, at_the_latest: Instant) {
        if let Some(request) = self.count().request.take() {
            request.may_have_left(at_the_latest);
        }
    }

    /// Whether nothing of the request has left yet.
    pub(super) fn is_pending(&self) -> bool {
        self.count().request.is_some()
    }

    /// Whether nothing of the request has left yet, and it is too late for it.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        let count = self.count();
        let leave_by = count.request.as_ref().and_then(FirstByte::leave_by);
        leave_by.is_some_and(|leave_by| leave_by < now)
    }

    /// Whether it is of the same request.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// So much more of the response has come.
    pub(super) fn read(&self, bytes: usize) {
        let mut count = self.count();
        count.bytes += bytes;
        count.began_at.get_or_insert_with(Instant::now);
    }

    /// Whether that is all that is read for one response.
    pub(super) fn is_full(&self) -> bool {
        self.count().bytes >= MAX_RESPONSE_BYTES
    }

    /// When more has to have come than has until now; `None` before the first
    /// byte, when there is nothing yet that could be slow.
    pub(super) fn due(&self) -> Option<Instant> {
        let count = self.count();
        let earned = Duration::from_secs_f64(count.bytes as f64 / f64::from(MIN_BYTES_PER_SECOND));
        count.began_at.map(|at| at + SLOW_START + earned)
    }

    fn count(&self) -> MutexGuard<'_, Count> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream under a [`Meter`]. Of what is written, only the first after a reset is noted: it
/// is the request's, for nothing else is written on a connection that was at rest.
pub(super) struct Metered {
    stream: Stream,
    meter: Meter,
}

impl Metered {
    pub(super) fn new(stream: Stream) -> (Self, Meter) {
        let meter = Meter::default();
        let shared = meter.clone();
        (Self { stream, meter }, shared)
    }

    fn wrote(&self, bytes: usize) {
        if bytes > 0 {
            self.meter.leaves();
        }
    }
}

impl AsyncRead for Metered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.meter.is_full() {
            return Poll::Ready(Err(io::Error::other(too_long())));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let read = buffer.filled().len() - before;
        // Whoever resets it holds the connection, and so is not reading.
        self.meter.read(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Metered {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes))?;
        self.wrote(written);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(context, slices))?;
        self.wrote(written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
