//! One connection of HTTP/1.1 and what drives it.
//!
//! hyper splits a connection into a handle for requests and a future that does
//! the reading and writing, usually spawned. Here both stay together and the
//! future is polled by whoever waits for the connection. So there is no task
//! to leak, dropping the connection closes the socket there and then, a
//! request is on the wire without a hop to another thread, and a connection
//! that carries no request costs its socket and nothing else: hyper's part, 36 KiB of
//! buffers, is made for each request and let go of after it. Nobody reads what a
//! receiver sends to such a connection; whoever is about to use it sees that it did.

use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use engine::ports::{FirstByte, SendError};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::task::coop::unconstrained;
use tokio::time::Instant;

use super::metered::{Meter, Metered};
use super::stream::Stream;

/// The largest response head. It is also the most that is read ahead of a body.
pub(super) const MAX_HEAD_BYTES: usize = 32 * 1024;

/// The most headers of a response.
pub(super) const MAX_HEADERS: usize = 100;

type Driver = http1::Connection<TokioIo<Metered>, Full<Bytes>>;

pub(super) struct Http1 {
    meter: Meter,
    requests: http1::SendRequest<Full<Bytes>>,
    /// `None` once it has ended: a future must not be polled after that.
    driver: Option<Box<Driver>>,
    opened_at: Instant,
}

/// One that carries no request: the socket and what counts its bytes.
pub(super) struct Resting {
    stream: Metered,
    meter: Meter,
    pub(super) opened_at: Instant,
}

impl Resting {
    /// A connection over a stream that was just opened.
    ///
    /// # Errors
    /// Why it cannot carry a request.
    pub(super) async fn open(stream: Stream) -> Result<Self, String> {
        let (stream, meter) = Metered::new(stream);
        let mut opened = Self {
            stream,
            meter,
            opened_at: Instant::now(),
        };
        match opened.unasked().await {
            Poll::Pending => Ok(opened),
            Poll::Ready(Ok(0)) => Err("it was closed at once".to_owned()),
            Poll::Ready(Ok(_)) => Err("it spoke before it was asked anything".to_owned()),
            Poll::Ready(Err(error)) => Err(error.to_string()),
        }
    }

    /// Whether it may carry a request, as far as this process knows: the receiver has not
    /// closed it or sent anything since the last. If not, it is of no more use.
    pub(super) async fn is_ready(&mut self) -> bool {
        self.unasked().await.is_pending()
    }

    /// What came that nobody asked for, of it at most one byte.
    async fn unasked(&mut self) -> Poll<io::Result<usize>> {
        let Self { stream, .. } = self;
        look(|context| {
            let mut byte = [0];
            let mut byte = ReadBuf::new(&mut byte);
            let read = Pin::new(&mut *stream).poll_read(context, &mut byte);
            read.map_ok(|()| byte.filled().len())
        })
        .await
    }

    /// The connection, for one request. Waits for nothing.
    pub(super) async fn wake(self) -> Result<Http1, SendError> {
        let woken = http1::Builder::new()
            .max_headers(MAX_HEADERS)
            .max_header_size(MAX_HEAD_BYTES)
            .max_buf_size(MAX_HEAD_BYTES)
            .handshake(TokioIo::new(self.stream))
            .await;
        let (requests, driver) = woken.map_err(broken)?;
        Ok(Http1 {
            meter: self.meter,
            requests,
            driver: Some(Box::new(driver)),
            opened_at: self.opened_at,
        })
    }
}

impl Http1 {
    /// Until the next request. `None` if there may be none: the exchange is not over on both
    /// sides, the receiver closes the connection, or something came that nobody had asked
    /// for. hyper holds nothing of a body back that it had to write: it says that it is ready
    /// once all is written, on a stream that takes several pieces at once. Of a request
    /// without a body it may, to a receiver that answers before it has read the head.
    pub(super) async fn rest(mut self) -> Option<Resting> {
        look(|context| poll_driver(&mut self.driver, context)).await;
        if !self.requests.is_ready() {
            return None;
        }
        let left = (*self.driver?).into_parts();
        left.read_buf.is_empty().then(|| Resting {
            stream: left.io.into_inner(),
            meter: self.meter,
            opened_at: self.opened_at,
        })
    }

    /// Sends the request, telling when it left, and waits for the response's head.
    pub(super) async fn send(
        &mut self,
        request: Request<Bytes>,
        first_byte: FirstByte,
    ) -> Result<Response<Incoming>, SendError> {
        self.meter.reset(first_byte);
        let response = self.requests.send_request(request.map(Full::new));
        drive(&mut self.driver, response).await.map_err(broken)
    }

    /// The next piece of the response's body, or `None` at its end.
    pub(super) async fn next_data(
        &mut self,
        body: &mut Incoming,
    ) -> Option<Result<Bytes, SendError>> {
        loop {
            let frame = drive(&mut self.driver, body.frame()).await?;
            match frame.map(Frame::into_data) {
                Ok(Ok(data)) => return Some(Ok(data)),
                // Trailers are not data and not wanted.
                Ok(Err(_trailers)) => {}
                Err(error) => return Some(Err(broken(error))),
            }
        }
    }

    /// Counts what is read for the response under way.
    pub(super) fn meter(&self) -> Meter {
        self.meter.clone()
    }
}

/// Looks once at a connection that nobody waits for. With a waker that does nothing, as a
/// real one would keep the memory of its finished task alive; unconstrained, or an
/// exhausted budget would look like "nothing new".
async fn look<T>(mut at: impl FnMut(&mut Context<'_>) -> T) -> T {
    let once = poll_fn(|_| Poll::Ready(at(&mut Context::from_waker(Waker::noop()))));
    unconstrained(once).await
}

/// Waits for something that the connection brings about, driving it meanwhile.
/// When the connection ends, hyper resolves what was waited for.
async fn drive<F: Future>(driver: &mut Option<Box<Driver>>, wanted: F) -> F::Output {
    let mut wanted = pin!(wanted);
    poll_fn(|context| {
        poll_driver(driver, context);
        wanted.as_mut().poll(context)
    })
    .await
}

/// How the connection ended is not kept: the exchange in flight is told.
fn poll_driver(driver: &mut Option<Box<Driver>>, context: &mut Context<'_>) {
    if let Some(running) = driver
        && Pin::new(running).poll(context).is_ready()
    {
        *driver = None;
    }
}

/// hyper's own words name the layer; the cause is in its sources.
fn broken(error: hyper::Error) -> SendError {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    SendError::Exchange(text)
}
