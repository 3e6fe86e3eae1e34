//! One request and its response on one connection, within one deadline.

use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use domain::credentials::OAuthClient;
use domain::handshake::{Origin, Reply};
use domain::header::CustomHeaders;
use domain::response_headers::ResponseHeaders;
use domain::signals::RawSignals;
use domain::signature::HeaderPrefix;
use domain::trace::TraceContext;
use engine::ports::{
    BATCH_BODY_BYTES, FirstByte, Prepared, READ_BODY_BYTES, Request, Response, STORED_BODY_BYTES,
    SendError, TokenAnswer,
};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Version};
use tokio::time::{Instant, timeout_at};

use super::connection::{AtRest, Body, Connection};
use super::connections::{Connections, Refused};
use super::endpoint::Endpoint;
use super::metered::{MIN_BYTES_PER_SECOND, Meter, SLOW_START};
use super::pool::{Key, Returned};
use super::token::token_request;

pub(super) const USER_AGENT: &str = concat!("Paceline/", env!("CARGO_PKG_VERSION"));

/// Our own word for the number of the try.
const PACELINE_TRY: HeaderName = HeaderName::from_static("paceline-try");
/// Those of CloudEvents' handshake.
const WEBHOOK_REQUEST_ORIGIN: HeaderName = HeaderName::from_static("webhook-request-origin");
const WEBHOOK_REQUEST_RATE: HeaderName = HeaderName::from_static("webhook-request-rate");
const WEBHOOK_ALLOWED_ORIGIN: HeaderName = HeaderName::from_static("webhook-allowed-origin");
const WEBHOOK_ALLOWED_RATE: HeaderName = HeaderName::from_static("webhook-allowed-rate");
/// Those of W3C Trace Context.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// How much earlier than the receiver we stop using a connection: its close
/// may be on its way while our request is.
const KEEP_ALIVE_MARGIN: Duration = Duration::from_secs(1);

/// A connection that is ready for one request. If it is dropped without one,
/// the connection goes back to the pool.
pub(super) struct Exchange {
    /// `None` from the moment that a request may have been written.
    unused: Option<AtRest>,
    key: Key,
    endpoint: Arc<Endpoint>,
    connections: Arc<Connections>,
    /// Who the request says that it is of.
    origin: Option<HeaderValue>,
    prefix: HeaderPrefix,
}

impl Exchange {
    pub(super) fn new(
        connection: AtRest,
        key: Key,
        endpoint: Arc<Endpoint>,
        connections: Arc<Connections>,
    ) -> Self {
        Self {
            unused: Some(connection),
            key,
            endpoint,
            connections,
            origin: None,
            prefix: HeaderPrefix::default(),
        }
    }

    /// Its request says that it is of this origin.
    pub(super) fn naming(self, origin: Option<&Origin>) -> Result<Self, SendError> {
        let mut named = self;
        let origin = origin.map(|origin| HeaderValue::from_str(origin.as_str()));
        named.origin = (origin.transpose()).map_err(|_invalid| bad("origin"))?;
        Ok(named)
    }

    /// Asks whether so many requests a minute may be sent there. Of the answer's body
    /// nothing is kept.
    pub(super) async fn ask(
        mut self,
        per_minute: Option<NonZeroU32>,
        limit: Duration,
    ) -> Result<Reply, SendError> {
        let question = question(&self.endpoint, self.origin.take(), per_minute);
        let caps = Caps {
            read: READ_BODY_BYTES,
            kept: 0,
        };
        let (answer, _) = self
            .exchange(question, FirstByte::default(), (limit, caps))
            .await?;
        let text = |name| Some(answer.headers.get(name)?.to_str().ok()?.to_owned());
        Ok(Reply {
            status: answer.status,
            allowed_origin: text(WEBHOOK_ALLOWED_ORIGIN),
            allowed_rate: text(WEBHOOK_ALLOWED_RATE),
        })
    }

    /// Asks a token server. Of its answer's body as much is kept as of any other.
    pub(super) async fn ask_for_token(
        mut self,
        client: &OAuthClient,
        limit: Duration,
    ) -> Result<TokenAnswer, SendError> {
        let request = token_request(&self.endpoint, client)?;
        let caps = Caps {
            read: READ_BODY_BYTES,
            kept: STORED_BODY_BYTES,
        };
        let (answer, _) = self
            .exchange(request, FirstByte::default(), (limit, caps))
            .await?;
        Ok(TokenAnswer {
            status: answer.status,
            body: answer.body,
        })
    }

    /// One request and its answer. The connection goes back if it may serve another.
    async fn exchange(
        &mut self,
        outgoing: http::Request<Bytes>,
        first_byte: FirstByte,
        (limit, caps): (Duration, Caps),
    ) -> Result<(Answer, Duration), SendError> {
        let started_at = Instant::now();
        let Some(unused) = self.unused.take() else {
            return Err(SendError::Exchange("the connection was used".to_owned()));
        };
        let mut connection = unused.wake().await?;
        // On every way out but the last, the connection is dropped, and with
        // it the socket is closed: over HTTP/2, if nobody else has a place on it.
        let meter = connection.meter();
        let deadline = started_at + limit;
        let first_byte = first_byte.by(deadline);
        let exchange = exchange(&mut connection, (outgoing, first_byte), caps);
        let done = progressing(&meter, deadline, exchange).await;
        let answer = match done {
            Ok(Ok(answer)) => answer,
            Ok(Err(SendError::Unread { why, may_arrive })) => {
                return Err(match self.connections.refused(&self.key) {
                    Refused::AsItMay => SendError::Unread { why, may_arrive },
                    Refused::TooOften => SendError::Exchange(why),
                });
            }
            Ok(Err(error)) => return Err(error),
            Err(Stopped::Deadline) => {
                connection.timed_out(started_at);
                return Err(SendError::TimedOut(limit));
            }
            Err(Stopped::Slow) => return Err(SendError::Exchange(too_slow())),
        };
        let elapsed = started_at.elapsed();
        if connection.is_shared() {
            self.connections.answered(&self.key);
        }
        if let Some(connection) = connection.rest(answer.whole).await {
            self.put(connection, keep_alive(&answer.headers));
        }
        Ok((answer, elapsed))
    }

    /// Whose headers of a signature begin so.
    pub(super) fn prefixed(self, prefix: HeaderPrefix) -> Self {
        let mut exchange = self;
        exchange.prefix = prefix;
        exchange
    }

    fn put(&self, connection: AtRest, keep_alive: Option<Duration>) {
        let returned = Returned {
            opened_at: connection.opened_at(),
            connection,
            keep_alive,
        };
        self.connections.put(&self.key, returned);
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if let Some(connection) = self.unused.take() {
            self.put(connection, None);
        }
    }
}

#[async_trait]
impl Prepared for Exchange {
    async fn send(
        mut self: Box<Self>,
        request: Request,
        first_byte: FirstByte,
    ) -> Result<Response, SendError> {
        let bounds = (request.timeout, caps(&request));
        let mut outgoing = outgoing(&self.endpoint, request, self.prefix)?;
        if let Some(origin) = self.origin.take() {
            outgoing
                .headers_mut()
                .insert(WEBHOOK_REQUEST_ORIGIN, origin);
        }
        let (answer, elapsed) = self.exchange(outgoing, first_byte, bounds).await?;
        Ok(Response {
            status: answer.status,
            signals: signals(&answer.headers),
            headers: ResponseHeaders::kept(
                (answer.status, &answer.body),
                (answer.headers.iter()).map(|(name, value)| (name.as_str(), value.as_bytes())),
            ),
            body: answer.body,
            elapsed,
        })
    }
}

/// Why an exchange is not waited for any longer.
enum Stopped {
    Deadline,
    Slow,
}

fn too_slow() -> String {
    format!("the response came slower than {MIN_BYTES_PER_SECOND} bytes a second")
}

/// Waits until the deadline, and after the first byte of the response for no
/// longer than it makes progress: one that drips would hold its place for as
/// long as one that never comes.
async fn progressing<T>(
    meter: &Meter,
    deadline: Instant,
    exchange: impl Future<Output = T>,
) -> Result<T, Stopped> {
    let mut exchange = pin!(exchange);
    loop {
        let due = meter.due().unwrap_or_else(|| Instant::now() + SLOW_START);
        let until = due.min(deadline);
        if let Ok(done) = timeout_at(until, &mut exchange).await {
            return Ok(done);
        }
        if until == deadline {
            return Err(Stopped::Deadline);
        }
        if meter.due().is_some_and(|due| due <= until) {
            return Err(Stopped::Slow);
        }
    }
}

struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Bytes,
    /// Whether the body was read to its end.
    whole: bool,
}

/// The request as it goes out. Nothing asks for a compressed answer, and the
/// body is the accepted payload, byte for byte.
fn outgoing(
    endpoint: &Endpoint,
    request: Request,
    prefix: HeaderPrefix,
) -> Result<http::Request<Bytes>, SendError> {
    let id = match &request.batch {
        Some(batch) => batch.clone(),
        None => request.event.to_string(),
    };
    let ours = OwnHeaders {
        prefix,
        id: &id,
        content_type: &request.content_type,
        content_length: request.payload.len(),
        sent_at_seconds: request.sent_at_seconds,
        try_number: request.try_number,
    };
    let ours = ours.values()?;
    let mut outgoing = http::Request::new(request.payload.clone());
    *outgoing.method_mut() = Method::POST;
    *outgoing.version_mut() = Version::HTTP_11;
    *outgoing.uri_mut() = endpoint.request_target.clone();
    let headers = outgoing.headers_mut();
    add(headers, &request.headers)?;
    if let Some(token) = &request.token {
        let value = HeaderValue::from_str(&token.authorization());
        let mut value = value.map_err(|_invalid| bad("token"))?;
        value.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, value);
    }
    // Ours after the destination's: whatever came through, these stand.
    headers.insert(header::HOST, endpoint.authority.clone());
    for (name, value) in ours {
        headers.insert(name, value);
    }
    if let Some(signature) = request.signature {
        let signature = HeaderValue::try_from(signature);
        headers.insert(
            SignatureNames::of(prefix).signature,
            signature.map_err(|_invalid| bad("signature"))?,
        );
    }
    if let Some(trace) = &request.trace {
        tell_trace(headers, trace)?;
    }
    Ok(outgoing)
}

/// What is asked, with nothing of the destination's own in it.
fn question(
    endpoint: &Endpoint,
    origin: Option<HeaderValue>,
    per_minute: Option<NonZeroU32>,
) -> http::Request<Bytes> {
    let mut outgoing = http::Request::new(Bytes::new());
    *outgoing.method_mut() = Method::OPTIONS;
    *outgoing.version_mut() = Version::HTTP_11;
    *outgoing.uri_mut() = endpoint.request_target.clone();
    let headers = outgoing.headers_mut();
    headers.insert(header::HOST, endpoint.authority.clone());
    headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
    headers.extend(origin.map(|origin| (WEBHOOK_REQUEST_ORIGIN, origin)));
    let rate = per_minute.map(|rate| HeaderValue::from(rate.get()));
    headers.extend(rate.map(|rate| (WEBHOOK_REQUEST_RATE, rate)));
    outgoing
}

/// What the destination itself adds by these names belongs to another trace.
fn tell_trace(to: &mut HeaderMap, trace: &TraceContext) -> Result<(), SendError> {
    let parent = HeaderValue::try_from(trace.traceparent());
    to.insert(TRACEPARENT, parent.map_err(|_invalid| bad("traceparent"))?);
    to.remove(TRACESTATE);
    if let Some(state) = trace.tracestate() {
        let state = HeaderValue::from_str(state);
        to.insert(TRACESTATE, state.map_err(|_invalid| bad("tracestate"))?);
    }
    Ok(())
}

/// What the headers of a signature are called.
#[derive(Debug, Clone)]
pub struct SignatureNames {
    /// Of the event's id, or the batch's.
    pub id: HeaderName,
    /// Of the time of the start.
    pub timestamp: HeaderName,
    /// Of the signatures themselves.
    pub signature: HeaderName,
}

impl SignatureNames {
    /// Those that begin so.
    #[must_use]
    pub const fn of(prefix: HeaderPrefix) -> Self {
        let [id, timestamp, signature] = match prefix {
            HeaderPrefix::Webhook => ["webhook-id", "webhook-timestamp", "webhook-signature"],
            HeaderPrefix::Svix => ["svix-id", "svix-timestamp", "svix-signature"],
        };
        Self {
            id: HeaderName::from_static(id),
            timestamp: HeaderName::from_static(timestamp),
            signature: HeaderName::from_static(signature),
        }
    }
}

/// The headers that are ours in every request, but for `host` and the
/// signature: none of them is a secret.
#[derive(Debug, Clone, Copy)]
pub struct OwnHeaders<'a> {
    /// What those of the signature begin with.
    pub prefix: HeaderPrefix,
    /// The event's id, or the batch's.
    pub id: &'a str,
    /// The body's media type.
    pub content_type: &'a str,
    /// Of the body.
    pub content_length: usize,
    /// Seconds since the Unix epoch.
    pub sent_at_seconds: i64,
    /// Which try of the event: 1 is the first.
    pub try_number: u32,
}

impl OwnHeaders<'_> {
    /// Names and values, as they are sent.
    pub fn values(&self) -> Result<[(HeaderName, HeaderValue); 6], SendError> {
        let content_type = HeaderValue::from_str(self.content_type);
        let id = HeaderValue::from_str(self.id);
        let names = SignatureNames::of(self.prefix);
        Ok([
            (
                header::CONTENT_TYPE,
                content_type.map_err(|_invalid| bad("content type"))?,
            ),
            (
                header::CONTENT_LENGTH,
                HeaderValue::from(self.content_length),
            ),
            (header::USER_AGENT, HeaderValue::from_static(USER_AGENT)),
            // The signature covers these two and the payload.
            (names.id, id.map_err(|_invalid| bad("event id"))?),
            (names.timestamp, HeaderValue::from(self.sent_at_seconds)),
            (PACELINE_TRY, HeaderValue::from(self.try_number)),
        ])
    }
}

/// What the destination adds. That none of them is ours was checked when they
/// were set and when they were opened: nothing else makes [`CustomHeaders`].
fn add(to: &mut HeaderMap, headers: &CustomHeaders) -> Result<(), SendError> {
    for (name, value) in headers.iter() {
        let name = HeaderName::from_bytes(name.as_bytes());
        let mut value = HeaderValue::from_str(value).map_err(|_invalid| bad("added header"))?;
        value.set_sensitive(true);
        to.insert(name.map_err(|_invalid| bad("added header's name"))?, value);
    }
    Ok(())
}

/// Refused, as nothing was sent.
fn bad(what: &str) -> SendError {
    SendError::Refused(format!("the {what} is not a header value"))
}

async fn exchange(
    connection: &mut Connection,
    (outgoing, first_byte): (http::Request<Bytes>, FirstByte),
    caps: Caps,
) -> Result<Answer, SendError> {
    let response = connection.send(outgoing, first_byte).await?;
    let (head, body) = response.into_parts();
    let (body, whole) = read(body, caps).await?;
    Ok(Answer {
        status: head.status.as_u16(),
        headers: head.headers,
        body,
        whole,
    })
}

/// How much of the response's body is read and kept: of a batch's all that is read, for
/// it may say what became of each event.
const fn caps(request: &Request) -> Caps {
    match request.batch {
        Some(_) => Caps {
            read: BATCH_BODY_BYTES,
            kept: BATCH_BODY_BYTES,
        },
        None => Caps {
            read: READ_BODY_BYTES,
            kept: STORED_BODY_BYTES,
        },
    }
}

/// Bytes of a response's body.
#[derive(Clone, Copy)]
struct Caps {
    read: usize,
    kept: usize,
}

/// Reads and keeps within the caps, and says whether that was all there is.
async fn read(mut body: Body<'_>, caps: Caps) -> Result<(Bytes, bool), SendError> {
    let mut stored = BytesMut::new();
    let mut bytes_read = 0;
    while bytes_read < caps.read {
        let Some(data) = body.next().await else {
            return Ok((stored.freeze(), true));
        };
        let data = data?;
        bytes_read += data.len();
        let room = caps.kept - stored.len();
        stored.extend_from_slice(&data[..data.len().min(room)]);
    }
    Ok((stored.freeze(), body.is_over()))
}

fn signals(headers: &HeaderMap) -> RawSignals {
    RawSignals::read(|name| {
        let values = headers.get_all(name).into_iter();
        (values.filter_map(|value| value.to_str().ok()))
            .map(str::to_owned)
            .collect()
    })
}

/// What `keep-alive: timeout=5` leaves after the margin; the shortest, if there
/// are several. Common application servers close after 5 s, and say so.
pub(super) fn keep_alive(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers
        .get_all("keep-alive")
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','))
        .filter_map(timeout_parameter)
        .min()?;
    Some(Duration::from_secs(seconds.into()).saturating_sub(KEEP_ALIVE_MARGIN))
}

fn timeout_parameter(text: &str) -> Option<u32> {
    let (name, value) = text.split_once('=')?;
    let named = name.trim().eq_ignore_ascii_case("timeout");
    named.then(|| value.trim().parse().ok())?
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::super::fuzz::wire::{Wire, read_request, send};
    use super::*;

    /// What comes of a response of this head, and then so many bytes a second.
    async fn dripped(bytes_per_second: usize, most: usize) -> (Result<Response, SendError>, u64) {
        let mut wire = Wire::open().await.unwrap();
        let exchange = wire.reuse().await.unwrap();
        let began = Instant::now();
        let timed = async { (send(exchange).await, began.elapsed().as_secs()) };
        let (answer, ()) = tokio::join!(timed, async {
            read_request(&mut wire.receiver).await.unwrap();
            tokio::time::sleep(Duration::from_secs(3)).await; // that is thinking, not dripping
            let head = b"HTTP/1.1 200 OK\r\n\r\n";
            wire.receiver.write_all(head).await.unwrap();
            for _ in 0..most {
                let second = vec![b'x'; bytes_per_second];
                if wire.receiver.write_all(&second).await.is_err() {
                    return;
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            wire.receiver.shutdown().await.unwrap();
        });
        answer
    }

    #[tokio::test(start_paused = true)]
    async fn a_drip_is_left_after_five_seconds() {
        let (answer, seconds) = dripped(1, usize::MAX).await;
        assert_eq!(answer, Err(SendError::Exchange(too_slow())));
        assert_eq!(seconds, 8, "three to think, five to drip");
    }

    #[tokio::test(start_paused = true)]
    async fn a_kibibyte_a_second_is_fast_enough() {
        let (answer, seconds) = dripped(1024, 20).await;
        assert_eq!(answer.unwrap().body.len(), STORED_BODY_BYTES);
        assert_eq!(seconds, 23);
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_that_stops_is_left_when_its_bytes_are_used_up() {
        let mut wire = Wire::open().await.unwrap();
        let exchange = wire.reuse().await.unwrap();
        let began = Instant::now();
        let (answer, ()) = tokio::join!(send(exchange), async {
            read_request(&mut wire.receiver).await.unwrap();
            let head = b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n";
            wire.receiver.write_all(head).await.unwrap();
            wire.receiver.write_all(&[b'x'; 4096]).await.unwrap();
        });
        assert_eq!(answer, Err(SendError::Exchange(too_slow())));
        assert_eq!(
            began.elapsed().as_secs(),
            9,
            "five, and one for each kibibyte"
        );
    }
}
