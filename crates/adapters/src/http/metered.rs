//! A stream that ends in an error when one response takes too many bytes.
//!
//! hyper caps a head and we cap a body, but neither counts what comes in
//! between: a receiver that answers `100 Continue` over and over would be read
//! until the deadline, as fast as it can write.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use engine::ports::READ_BODY_BYTES;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection::Stream;

/// The most bytes that are read for one response, heads and chunk sizes
/// included. A body up to its cap fits even in chunks of one byte, which take
/// six each.
pub(super) const MAX_RESPONSE_BYTES: usize = 8 * READ_BODY_BYTES;

/// How much may still be read for the response under way.
pub(super) struct Meter(Arc<AtomicUsize>);

impl Meter {
    /// Another response begins.
    pub(super) fn reset(&self) {
        self.0.store(MAX_RESPONSE_BYTES, Ordering::Relaxed);
    }
}

/// A stream under a [`Meter`]. Writing is not metered.
pub(super) struct Metered {
    stream: Stream,
    left: Arc<AtomicUsize>,
}

impl Metered {
    pub(super) fn new(stream: Stream) -> (Self, Meter) {
        let left = Arc::new(AtomicUsize::new(MAX_RESPONSE_BYTES));
        let meter = Meter(Arc::clone(&left));
        (Self { stream, left }, meter)
    }
}

impl AsyncRead for Metered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let left = self.left.load(Ordering::Relaxed);
        if left == 0 {
            let why = format!("the response is over {MAX_RESPONSE_BYTES} bytes");
            return Poll::Ready(Err(io::Error::other(why)));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let read = buffer.filled().len() - before;
        // Whoever resets it holds the connection, and so is not reading.
        self.left
            .store(left.saturating_sub(read), Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Metered {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
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
