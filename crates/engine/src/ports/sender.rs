//! The sender: one request, once, within one deadline.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use domain::credentials::{ClientCertificate, Token};
use domain::header::CustomHeaders;
use domain::ids::{AttemptId, DestinationId, Epoch, EventId, SecretId};
use domain::response_headers::ResponseHeaders;
use domain::signals::RawSignals;
use domain::trace::TraceContext;
use tokio::time::Instant;

use super::vault::SealedSecret;

/// Sends requests. Never by itself a second time, never to a redirect.
#[async_trait]
pub trait Sender: Send + Sync {
    /// Makes a connection ready before the start is claimed, so that between
    /// the claim and the first byte there is nothing left to wait for. Reuses
    /// an idle connection of the same destination.
    ///
    /// A dial is bounded by the target's timeout and belongs to nobody: if the caller
    /// has no more time and drops the future, it goes on, and what it comes to, be it a
    /// failure, is for who asks next. So an error here is the receiver's (or the
    /// network's), never the caller's impatience. Nothing has been sent then; the caller
    /// decides whether the failed try to connect is worth a start.
    async fn prepare(&self, target: &Target) -> Result<Box<dyn Prepared>, SendError>;
}

/// A connection that is ready for exactly one request. Dropped unused, it may
/// serve another.
#[async_trait]
pub trait Prepared: Send {
    /// Sends at once and reads the response within its caps, all within
    /// `request.timeout` from the call. If the connection turns out to be
    /// dead the attempt has failed: nothing is sent again. Dropping the future
    /// closes the connection, or the request's part of one that is shared.
    ///
    /// It tells `first_byte` as soon as the network has the request's first byte: that
    /// is the start, and limits count it. Where it cannot say whether the network has it, it
    /// tells when it could have it last, as it gives the request up. On a connection that is shared, nothing leaves
    /// later than `first_byte` says: what waited for so long is not sent.
    async fn send(
        self: Box<Self>,
        request: Request,
        first_byte: FirstByte,
    ) -> Result<Response, SendError>;
}

/// When the first byte of a request left, and by when it has to. Clones are of the same
/// request.
#[derive(Debug, Clone, Default)]
pub struct FirstByte {
    left_at: Arc<OnceLock<Instant>>,
    leave_by: Option<Instant>,
}

impl FirstByte {
    /// The same, which has to leave by then; of several limits the first holds.
    #[must_use]
    pub fn by(self, limit: Instant) -> Self {
        Self {
            leave_by: Some(self.leave_by.map_or(limit, |before| before.min(limit))),
            ..self
        }
    }

    /// By when it has to leave, or not at all; `None` if it may at any time.
    #[must_use]
    pub fn leave_by(&self) -> Option<Instant> {
        self.leave_by
    }

    /// It has left just now; what is said again later does not count.
    pub fn leaves(&self) {
        self.may_have_left(Instant::now());
    }

    /// Nobody can say whether it has left: only that it was not later than then, nor will be.
    /// So it counts as if it had, then.
    pub fn may_have_left(&self, at_the_latest: Instant) {
        let _ = self.left_at.set(at_the_latest);
    }

    /// When it left, or may have at the latest; `None` as long as the network has nothing of
    /// the request.
    #[must_use]
    pub fn left_at(&self) -> Option<Instant> {
        self.left_at.get().copied()
    }
}

/// Where a destination's requests go, as of one epoch. A change of URL, secrets
/// or headers bumps the epoch, so a target may be cached by
/// `(destination, epoch)`; a secret that ends by time carries that time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The destination.
    pub destination: DestinationId,
    /// The epoch at which this was true.
    pub epoch: Epoch,
    /// An absolute http or https URL.
    pub url: String,
    /// For a dial. A request says how long it may take itself ([`Request::timeout`]).
    pub timeout: Duration,
    /// Its requests are batches: [`super::Store::claim_batches`] claims them.
    pub batches: bool,
    /// Its receiver is told which trace a request belongs to.
    pub pass_traceparent: bool,
    /// Its requests name the origin that its receiver has allowed ([`super::Asker`]).
    pub names_origin: bool,
    /// What signs its requests, and whatever else it adds or shows: sealed, the newest
    /// first.
    pub secrets: Vec<SealedSecret>,
    /// What its connections show, once that is open; no store fills it.
    pub identity: Option<ClientIdentity>,
}

/// The client certificate that a connection shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientIdentity {
    /// Whose connections are told from others by it: another certificate is another
    /// secret.
    pub secret: SecretId,
    /// With its key.
    pub certificate: Arc<ClientCertificate>,
}

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The attempt it is; of a batch, its leader.
    pub attempt: AttemptId,
    /// The event's id: the same on every try.
    pub event: EventId,
    /// The batch's id, which goes for the event's: the same for the same events.
    pub batch: Option<String>,
    /// Which try of the event at this destination: 1 is the first.
    pub try_number: u32,
    /// Seconds since the Unix epoch, for the timestamp header.
    pub sent_at_seconds: i64,
    /// The body's media type.
    pub content_type: String,
    /// The payload, byte for byte as it was accepted.
    pub payload: Bytes,
    /// The value of the signature's header, over event, timestamp and payload as
    /// they are here; `None` for a destination without secrets.
    pub signature: Option<String>,
    /// What the destination adds. The sender checks them again.
    pub headers: Arc<CustomHeaders>,
    /// The token that lets it in.
    pub token: Option<Token>,
    /// The trace that its receiver is told of; of a batch, the leader's.
    pub trace: Option<TraceContext>,
    /// For the whole exchange from the first byte on.
    pub timeout: Duration,
}

/// What the receiver answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// What it says about its limits.
    pub signals: RawSignals,
    /// Those of its headers that are kept.
    pub headers: ResponseHeaders,
    /// The first [`STORED_BODY_BYTES`] of the body; of a batch's, the first
    /// [`BATCH_BODY_BYTES`]: one of that length was cut.
    pub body: Bytes,
    /// From the first byte sent to the last byte read.
    pub elapsed: Duration,
}

// The longest that one exchange may take, whatever is configured: the reaper must be able
// to tell a slow request from a lost one.
pub use domain::admission::MAX_REQUEST_TIMEOUT;

/// How much of a response body is read before the connection is closed: a
/// receiver must not be able to fill our memory.
pub const READ_BODY_BYTES: usize = 64 * 1024;

/// The same for the answer to a batch, which may say something of each event:
/// 500 of them with 500 characters each.
pub const BATCH_BODY_BYTES: usize = 256 * 1024;

/// How much of a response body is kept for people to look at.
pub const STORED_BODY_BYTES: usize = 16 * 1024;

/// Why there is no response. After [`Prepared::send`], the receiver may have
/// seen the request if it is [`SendError::TimedOut`] or
/// [`SendError::Exchange`]. Of [`SendError::Unread`] it has seen that there was one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The target cannot be connected to by rule: a malformed URL, a scheme or
    /// address that is not allowed.
    #[error("refused: {0}")]
    Refused(String),
    /// DNS, TCP or TLS failed.
    #[error("connect failed: {0}")]
    Connect(String),
    /// Nobody can be reached at all, which says nothing of the receiver.
    #[error("{0}")]
    NoWay(String),
    /// Not done within the deadline.
    #[error("timed out after {0:?}")]
    TimedOut(Duration),
    /// The connection broke, or the response was malformed or over a cap.
    #[error("exchange failed: {0}")]
    Exchange(String),
    /// The request did not leave, and does not any more.
    #[error("not sent: {0}")]
    NotSent(String),
    /// The receiver says that it has not looked at the request, which has left: a start.
    #[error("not sent: {why}")]
    Unread {
        /// In whose words.
        why: String,
        /// It has not ended this request by itself, so bytes of it may arrive yet.
        may_arrive: bool,
    },
}
