//! A connection to a receiver that is ready for one request: all of one over HTTP/1.1, or
//! a place on one over HTTP/2.

use std::sync::Arc;

use bytes::Bytes;
use engine::ports::{FirstByte, SendError};
use http::{Request, Response};
use hyper::body::{Body as _, Incoming};
use tokio::time::Instant;

use super::http1::{Http1, Resting};
use super::http2::{Answering, Multiplexed, Place};
use super::metered::Meter;
use super::stream::Stream;

/// One that carries a request.
pub(super) enum Connection {
    Http1(Http1),
    Http2(Place),
}

/// One that carries none.
pub(super) enum AtRest {
    Http1(Resting),
    Http2(Place),
}

/// What is still to come of a response.
pub(super) enum Body<'c> {
    /// Whoever reads drives the connection.
    Http1(&'c mut Http1, Incoming),
    Http2(Answering),
}

impl AtRest {
    /// Over HTTP/1.1, on a stream that was just opened.
    ///
    /// # Errors
    /// Why it cannot carry a request.
    pub(super) async fn open(stream: Stream) -> Result<Self, String> {
        Resting::open(stream).await.map(Self::Http1)
    }

    /// The first place on a connection over HTTP/2, or why there is none.
    pub(super) async fn multiplexed(stream: Stream) -> Result<Self, String> {
        Multiplexed::open(stream).await.map(Self::Http2)
    }

    /// Whether it may carry a request, as far as this process knows. If not, it is of no more
    /// use.
    pub(super) async fn is_ready(&mut self) -> bool {
        match self {
            Self::Http1(resting) => resting.is_ready().await,
            Self::Http2(place) => place.is_ready(),
        }
    }

    /// The connection, for one request. Waits for nothing.
    pub(super) async fn wake(self) -> Result<Connection, SendError> {
        match self {
            Self::Http1(resting) => resting.wake().await.map(Connection::Http1),
            Self::Http2(place) => Ok(Connection::Http2(place)),
        }
    }

    pub(super) fn opened_at(&self) -> Instant {
        match self {
            Self::Http1(resting) => resting.opened_at,
            Self::Http2(place) => place.shared().opened_at,
        }
    }

    /// The connection that others may have places on as well.
    pub(super) fn shared(&self) -> Option<&Arc<Multiplexed>> {
        match self {
            Self::Http1(_) => None,
            Self::Http2(place) => Some(place.shared()),
        }
    }
}

impl Connection {
    /// Sends the request, telling when it left, and waits for the response's head.
    pub(super) async fn send(
        &mut self,
        request: Request<Bytes>,
        first_byte: FirstByte,
    ) -> Result<Response<Body<'_>>, SendError> {
        match self {
            Self::Http1(connection) => {
                let response = connection.send(request, first_byte).await?;
                let (head, body) = response.into_parts();
                Ok(Response::from_parts(head, Body::Http1(connection, body)))
            }
            Self::Http2(place) => Ok(place.send(request, first_byte).await?.map(Body::Http2)),
        }
    }

    /// Counts what is read for the response under way.
    pub(super) fn meter(&self) -> Meter {
        match self {
            Self::Http1(connection) => connection.meter(),
            Self::Http2(place) => place.meter(),
        }
    }

    /// Until the next request. `None` if there may be none after this one. The rest of a
    /// body that was not read to its end stands before the next answer; over HTTP/2 it was
    /// refused with its stream.
    pub(super) async fn rest(self, whole: bool) -> Option<AtRest> {
        match self {
            Self::Http1(connection) if whole => connection.rest().await.map(AtRest::Http1),
            Self::Http1(_) => None,
            Self::Http2(mut place) => place.is_ready().then_some(AtRest::Http2(place)),
        }
    }

    /// An exchange that began then has had no answer in time.
    pub(super) fn timed_out(&self, began_at: Instant) {
        if let Self::Http2(place) = self {
            place.timed_out(began_at);
        }
    }

    /// Whether others may have places on it as well.
    pub(super) const fn is_shared(&self) -> bool {
        matches!(self, Self::Http2(_))
    }
}

impl Body<'_> {
    /// The next piece, or `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Result<Bytes, SendError>> {
        match self {
            Self::Http1(connection, body) => connection.next_data(body).await,
            Self::Http2(body) => body.next().await,
        }
    }

    /// Whether it is known that nothing more comes.
    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Http1(_, body) => body.is_end_stream(),
            Self::Http2(body) => body.is_over(),
        }
    }
}
