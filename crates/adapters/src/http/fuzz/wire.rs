//! A receiver in memory: it takes requests and answers with given bytes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use domain::ids::{AttemptId, DestinationId, EventId};
use engine::ports::{FirstByte, Prepared, Request, Response, SendError};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, DuplexStream, ReadBuf, duplex};
use uuid::Uuid;

use super::super::connection::AtRest;
use super::super::connections::Connections;
use super::super::endpoint::Endpoint;
use super::super::exchange::Exchange;
use super::super::policy::Policy;
use super::super::pool::{Key, PoolLimits};

const LIMITS: PoolLimits = PoolLimits {
    per_key: 1,
    total: 1,
    idle_age: Duration::from_secs(30),
    age: Duration::from_secs(300),
    http2: false,
};

/// What the wire holds between the two sides: more than any answer, so that all
/// of it has arrived when the sender first looks.
const WIRE_BYTES: usize = 1 << 21;

/// The sender's side of the wire, which counts what is read.
struct Counted {
    stream: DuplexStream,
    read: Arc<AtomicUsize>,
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let read = buffer.filled().len() - before;
        self.read.fetch_add(read, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Counted {
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

/// One connection of a sender, and the receiver at its end.
pub(in super::super) struct Wire {
    pub(in super::super) receiver: DuplexStream,
    read: Arc<AtomicUsize>,
    connections: Arc<Connections>,
    key: Key,
    endpoint: Arc<Endpoint>,
}

impl Wire {
    /// A new connection, idle in the pool.
    pub(in super::super) async fn open() -> fuzzing::Result<Self> {
        let open = Policy {
            allow_http: true,
            ..Policy::default()
        };
        let endpoint = Arc::new(Endpoint::parse("http://receiver.example/hook", &open)?);
        let (stream, receiver) = duplex(WIRE_BYTES);
        let wire = Self {
            receiver,
            read: Arc::default(),
            connections: Arc::new(Connections::new(LIMITS)),
            key: Key {
                identity: None,
                destination: DestinationId(Uuid::from_u128(1)),
                origin: Arc::clone(&endpoint.origin),
            },
            endpoint,
        };
        let read = Arc::clone(&wire.read);
        let opened = AtRest::open(Box::new(Counted { stream, read })).await;
        let connection = opened.map_err(io::Error::other)?;
        drop(wire.exchange(connection)); // unused, so it goes to the pool
        Ok(wire)
    }

    fn exchange(&self, connection: AtRest) -> Exchange {
        let (key, endpoint) = (self.key.clone(), Arc::clone(&self.endpoint));
        Exchange::new(connection, key, endpoint, Arc::clone(&self.connections))
    }

    /// The idle connection, if the sender would use it again.
    pub(in super::super) async fn reuse(&self) -> Option<Box<Exchange>> {
        let mut connection = self.connections.take(&self.key)?;
        let ready = connection.is_ready().await;
        ready.then(|| Box::new(self.exchange(connection)))
    }

    pub(in super::super) fn idle(&self) -> usize {
        self.connections.idle()
    }

    pub(in super::super) fn bytes_read(&self) -> usize {
        self.read.load(Ordering::Relaxed)
    }
}

/// Sends one request.
pub(in super::super) async fn send(exchange: Box<Exchange>) -> Result<Response, SendError> {
    let request = Request {
        attempt: AttemptId(7),
        event: EventId(Uuid::from_u128(0xe)),
        batch: None,
        try_number: 3,
        sent_at_seconds: 1_700_000_000,
        content_type: "application/json".to_owned(),
        payload: Bytes::from_static(b"{}"),
        signature: None,
        token: None,
        headers: Arc::default(),
        trace: None,
        timeout: Duration::from_secs(30),
    };
    exchange.send(request, FirstByte::default()).await
}

/// Reads one request, to the end of its body.
pub(in super::super) async fn read_request(receiver: &mut DuplexStream) -> io::Result<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n{}") {
        request.push(receiver.read_u8().await?);
    }
    Ok(())
}
