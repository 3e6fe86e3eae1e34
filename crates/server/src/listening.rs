//! Connections from outside: how many there are, and how long each may take.
//!
//! A stranger needs no key to open a socket, so each one is bounded in memory
//! and in time before anything is known of it: a head has [`Bounds::head`] to
//! come and `HEAD_BYTES` to fit in, a connection without a request ends after
//! [`Bounds::idle`], and one whose client reads nothing of its answer, or next to
//! nothing, after `STALLED`. There are [`Bounds::connections`] at once, and fewer from one
//! address; who comes beyond them has the place of one that asks nothing, or is
//! closed at once, which costs less than letting him wait (`places`).
//!
//! Shutdown waits for requests, not for connections: one that has none, or only
//! the beginning of one, is closed.

use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use adapters::unsent::take_little;
use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse;
use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use crate::open_files;

mod places;
mod seen;
mod tls;

use places::{Asking, Place, Places};
use seen::{Busy, Next, Seen, Watched};
pub use tls::{Acceptor, Tls};

/// The largest head of a request. Ours are below 2 KiB; cookies of others on the
/// same host, of which each may have 4 KiB, can make a browser's larger.
const HEAD_BYTES: usize = 16 * 1024;

/// What one connection buffers each way, at most: of its head, of a body that is
/// read on, or of an answer. No more than a head needs: with 10,000 strangers who
/// never end theirs that is 160 MiB, and all else of theirs about as much again.
const BUFFER_BYTES: usize = HEAD_BYTES;

/// How long a client may read nothing while its answer waits for it, and send
/// nothing either: a bulk body may well be sent whole before its answer is read.
const STALLED: Duration = Duration::from_secs(60);

/// In so much time in which its answer waits for it, a client has to take so many bytes
/// or to send them: 1 KiB a second, as a body has to come. An answer is in memory until
/// it is read.
const PACE_BYTES: usize = 60 * 1_024;

/// After it was told to end, a head that has begun has so long to become a
/// request.
const LAST_HEAD: Duration = Duration::from_secs(1);

/// After a connection could not be accepted: there are too many open files, and
/// some are closed in a moment.
const PAUSE: Duration = Duration::from_millis(100);

/// What connections may take.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// All of them at one time.
    pub connections: usize,
    /// Those from one address, or from one /64 of IPv6.
    pub from_one_address: usize,
    /// How long a request's head may take to come.
    pub head: Duration,
    /// How long a connection without a request is kept open. Longer than the
    /// minute after which load balancers close theirs: whoever closes first
    /// must not be the one who is about to be asked.
    pub idle: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: 10_000,
            from_one_address: 2_000,
            head: Duration::from_secs(10),
            idle: Duration::from_secs(75),
        }
    }
}

/// An address, and what answers there.
pub struct Listening {
    pub listener: TcpListener,
    pub router: Router,
    pub bounds: Bounds,
    /// Without it, HTTP is spoken in the clear.
    pub tls: Option<Acceptor>,
}

impl Listening {
    /// Answers until `shutdown`, and then until the requests that have come are
    /// answered.
    pub async fn serve(self, shutdown: CancellationToken) {
        let Self {
            listener,
            router,
            bounds,
            tls,
        } = self;
        let connections = open_files::room_for(bounds.connections);
        let places = Places::new(connections, bounds.from_one_address);
        let running = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                accepted = listener.accept() => accepted,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::debug!(%error, "a connection was not accepted");
                    sleep(PAUSE).await;
                    continue;
                }
            };
            let Some(place) = places.take(peer.ip()) else {
                continue;
            };
            let connection = Connection {
                router: router.clone(),
                bounds,
                shutdown: shutdown.clone(),
                place,
            };
            running.spawn(connection.run(stream, tls.clone()));
        }
        drop(listener);
        running.close();
        running.wait().await;
    }
}

/// What a connection is told before anything is said on it.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    // An answer is one write: waiting for more delays it and saves nothing.
    stream.set_nodelay(true)?;
    // Of a client that reads 2 KiB a second the kernel has room again after ten minutes, so
    // that he seems to read nothing.
    if let Err(error) = take_little(stream) {
        // Without it only somebody who reads very slowly is given up.
        tracing::debug!(%error, "the system takes as much of an answer as it likes");
    }
    Ok(())
}

struct Connection {
    router: Router,
    bounds: Bounds,
    shutdown: CancellationToken,
    place: Arc<Place>,
}

/// In an answer: whoever asked has a good key or session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known;

impl Known {
    /// An answer to somebody we know.
    pub(crate) fn told(answer: impl IntoResponse) -> Response<Body> {
        let mut answer = answer.into_response();
        answer.extensions_mut().insert(Self);
        answer
    }
}

/// The header of a request that wants to be told whether it comes from somebody we know,
/// and of the answer if it does. So a router knows what its shards know.
pub(crate) const KNOWN: &str = "paceline-known";

impl Connection {
    async fn run(self, stream: TcpStream, tls: Option<Acceptor>) {
        if let Err(error) = prepare(&stream) {
            tracing::debug!(%error, "a connection is gone already");
            return;
        }
        let Some(tls) = tls else {
            return self.speak(stream).await;
        };
        let handshake = timeout(self.bounds.head, tls.now().accept(stream));
        let closing = self.place.closing();
        let stream = tokio::select! {
            biased;
            () = self.shutdown.cancelled() => return,
            () = closing.cancelled() => return,
            stream = handshake => stream,
        };
        match stream {
            Ok(Ok(stream)) => self.speak(stream).await,
            Ok(Err(error)) => tracing::debug!(%error, "a handshake of TLS failed"),
            Err(_late) => tracing::debug!("a handshake of TLS took too long"),
        }
    }

    async fn speak(self, stream: impl AsyncRead + AsyncWrite + Unpin) {
        let seen = Arc::new(Seen::new());
        let (router, busy) = (self.router, Arc::clone(&seen));
        let closing = self.place.closing();
        let place = self.place;
        let answers = service_fn(move |request: Request<Incoming>| {
            let (busy, asking) = (Busy::new(&busy), place.asks());
            let is_told = request.headers().contains_key(KNOWN);
            let answered = router.clone().oneshot(request.map(Body::new));
            async move {
                let Some(asking) = asking else {
                    // The connection is closed below, and nobody is asked anything.
                    return std::future::pending::<Result<Response<Answer>, Infallible>>().await;
                };
                let mut answer = match answered.await {
                    Ok(answer) => answer,
                    Err(never) => match never {},
                };
                if answer.extensions_mut().remove::<Known>().is_some() {
                    asking.know();
                    if is_told {
                        let headers = answer.headers_mut();
                        headers.insert(KNOWN, HeaderValue::from_static("true"));
                    }
                }
                Ok(answer.map(|body| Answer {
                    body,
                    _until_the_end: (busy, asking),
                }))
            }
        });
        let io = TokioIo::new(Watched::new(stream, Arc::clone(&seen)));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            // By `seen`, which knows the beginning of a head from keeping still.
            .header_read_timeout(None)
            .max_header_size(HEAD_BYTES)
            .max_buf_size(BUFFER_BYTES)
            .serve_connection(io, answers);
        let mut connection = pin!(connection);
        let mut ends_at = None;
        loop {
            let next = match seen.next(&self.bounds, ends_at) {
                Next::LookAt(next) => next,
                Next::Close(why) => {
                    tracing::debug!(why, "a connection was closed");
                    return;
                }
            };
            tokio::select! {
                biased;
                ended = &mut connection => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "a connection broke");
                    }
                    return;
                }
                () = self.shutdown.cancelled(), if ends_at.is_none() => {
                    ends_at = Some(Instant::now() + LAST_HEAD);
                    connection.as_mut().graceful_shutdown();
                }
                () = closing.cancelled() => {
                    tracing::debug!("a connection was closed for another");
                    return;
                }
                () = sleep_until(next) => {}
            }
        }
    }
}

/// The body of an answer: its request is in flight until the end of it.
struct Answer {
    body: Body,
    _until_the_end: (Busy, Asking),
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
