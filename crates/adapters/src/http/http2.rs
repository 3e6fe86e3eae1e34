//! One connection of HTTP/2, and the requests that share it.
//!
//! A place is leave to have one request under way. There are as many as the receiver takes
//! at once, and no more than [`MOST_PLACES`]; who has one waits for nothing more, so a
//! request that is sent opens its stream there and then, and a start is not dated long
//! before it.
//!
//! A task drives the connection, for several wait on it. It ends with the last who holds the
//! connection, and so do the streams of those who gave up: each is reset, and the others go
//! on. A receiver that says GOAWAY is sent nothing new, and finishes what it has.
//!
//! # When a request leaves
//! Its start is when the network has the first byte of its HEADERS ([`super::frames`]).
//! What h2 may hold back of a request is only its body, beyond the windows that the receiver
//! grants: that is the receiver's own doing, after its first byte, and takes part in the
//! response times that the margin is measured from. HEADERS have no window. They can only
//! wait behind what the network does not take; then the connection is not ready, and where
//! that is known too late it is given up after [`LEAVES_WITHIN`], before they leave.

use std::future::poll_fn;
use std::mem::take;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use engine::ports::{FirstByte, SendError};
use h2::client::{Builder, Connection, SendRequest};
use h2::{Reason, RecvStream};
use http::header::HOST;
use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri, Version};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, timeout};

use super::frames::{Followed, Frames, Watched};
use super::http1::{MAX_HEAD_BYTES, MAX_HEADERS};
use super::metered::Meter;
use super::stream::Stream;

/// Requests at once on one connection, whatever a receiver takes: what is lost with a
/// connection is bounded.
const MOST_PLACES: usize = 64;

/// What a receiver may send of one body before it is read, as much as is read ahead over
/// HTTP/1.1; and of all of them together, so that none that is not read holds up another:
/// 2 MiB for a connection.
const WINDOW_BYTES: u32 = MAX_HEAD_BYTES as u32;
const CONNECTION_WINDOW_BYTES: u32 = MOST_PLACES as u32 * WINDOW_BYTES;

/// For a receiver's first word, by which it says how many requests it takes at once.
const SETTLED_WITHIN: Duration = Duration::from_secs(5);

/// For the last words on a connection that nobody uses any more.
const CLOSED_WITHIN: Duration = Duration::from_secs(1);

/// A request whose first byte has not left by then does not leave any more. Less than what
/// a start that nobody knows yet is counted for after its claim, which is half a second.
const LEAVES_WITHIN: Duration = Duration::from_millis(200);

/// A connection with places.
pub(super) struct Multiplexed {
    requests: SendRequest<Bytes>,
    frames: Frames,
    places: Arc<Semaphore>,
    /// How many places there are.
    most: usize,
    pub(super) opened_at: Instant,
    /// Dropped with the last who holds the connection, which tells whoever drives it.
    _held: oneshot::Sender<()>,
}

/// Leave for one request at a time.
pub(super) struct Place {
    requests: SendRequest<Bytes>,
    meter: Meter,
    shared: Arc<Multiplexed>,
    _permit: OwnedSemaphorePermit,
}

/// What is still to come of a response. Dropped before its end, it resets its stream.
pub(super) struct Answering {
    body: RecvStream,
    _followed: Followed,
}

impl Multiplexed {
    /// A connection whose receiver has said what it takes, and the first place on it; or why
    /// there is none.
    pub(super) async fn open(stream: Stream) -> Result<Place, String> {
        let (watched, frames) = Watched::new(stream);
        let settling = settle(watched, &frames);
        let (requests, connection) = match timeout(SETTLED_WITHIN, settling).await {
            Ok(settled) => settled.map_err(|error| error.to_string())?,
            Err(_elapsed) => return Err(format!("no settings within {SETTLED_WITHIN:?}")),
        };
        let (held, released) = oneshot::channel();
        tokio::spawn(drive(connection, frames.clone(), released));
        let most = MOST_PLACES.min(requests.current_max_send_streams());
        let shared = Arc::new(Self {
            requests,
            frames,
            places: Arc::new(Semaphore::new(most)),
            most,
            opened_at: Instant::now(),
            _held: held,
        });
        (shared.place()).ok_or_else(|| "it takes no requests".to_owned())
    }

    /// A place, if one is free and a request would leave at once.
    pub(super) fn place(self: &Arc<Self>) -> Option<Place> {
        let permit = Arc::clone(&self.places).try_acquire_owned().ok()?;
        let mut place = Place {
            requests: self.requests.clone(),
            meter: Meter::default(),
            shared: Arc::clone(self),
            _permit: permit,
        };
        place.is_ready().then_some(place)
    }

    /// How many places there are.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Places that somebody has.
    pub(super) fn taken(&self) -> usize {
        self.most - self.places.available_permits()
    }
}

/// Opens the connection, and waits until the receiver has said how many requests it takes,
/// and the network has our answer to that.
async fn settle(
    watched: Watched,
    frames: &Frames,
) -> Result<(SendRequest<Bytes>, Connection<Watched, Bytes>), h2::Error> {
    let mut builder = Builder::new();
    builder
        .initial_window_size(WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_header_list_size(MAX_HEAD_BYTES as u32)
        .enable_push(false)
        .initial_max_send_streams(0);
    let (requests, mut connection) = builder.handshake::<Watched, Bytes>(watched).await?;
    let is_settled = || requests.current_max_send_streams() > 0 && frames.takes_more();
    poll_fn(|context| match Pin::new(&mut connection).poll(context) {
        Poll::Ready(Ok(())) => Poll::Ready(Err(Reason::REFUSED_STREAM.into())),
        Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
        Poll::Pending if is_settled() => Poll::Ready(Ok(())),
        Poll::Pending => Poll::Pending,
    })
    .await?;
    Ok((requests, connection))
}

/// Reads and writes until the connection ends, is given up, or nobody holds it any more.
/// How it ended is told to those who wait on it.
async fn drive(
    mut connection: Connection<Watched, Bytes>,
    frames: Frames,
    released: oneshot::Receiver<()>,
) {
    tokio::select! {
        biased;
        _ended = &mut connection => return,
        () = frames.given_up() => return,
        _released = released => {}
    }
    // Resets and the farewell, for a receiver that takes them.
    let _closed = timeout(CLOSED_WITHIN, connection).await;
}

impl Place {
    /// Sends the request, telling when it left, and waits for the response's head.
    pub(super) async fn send(
        &mut self,
        request: Request<Bytes>,
        first_byte: FirstByte,
    ) -> Result<Response<Answering>, SendError> {
        if !self.is_ready() {
            let why = "the connection takes no more requests";
            return Err(SendError::NotSent(why.to_owned()));
        }
        let (head, payload) = over_http2(request)?;
        let (bytes, is_empty) = (payload.len(), payload.is_empty());
        self.meter.reset(first_byte);
        let sent = self.requests.send_request(head, is_empty);
        let (mut response, mut body) = sent.map_err(|error| unanswered(&error, None))?;
        let stream = body.stream_id().as_u32();
        let followed = (self.shared.frames).follow(stream, (self.meter.clone(), bytes));
        if !is_empty {
            // If the stream is over already, its response says why.
            let _over = body.send_data(payload, true);
        }
        let mut answered = timeout(LEAVES_WITHIN / 2, &mut response).await;
        if answered.is_err() && !followed.was_handed_over() {
            // Once more: whoever drives the connection was as frozen as we, if we were.
            answered = timeout(LEAVES_WITHIN / 2, &mut response).await;
        }
        let answered = match answered {
            Ok(answered) => answered,
            Err(_elapsed) if followed.give_up_unless_handed_over() => {
                let why = format!("the connection took nothing for {LEAVES_WITHIN:?}");
                return Err(SendError::NotSent(why));
            }
            Err(_elapsed) => response.await,
        };
        let answered = answered.map_err(|error| unanswered(&error, Some(&followed)))?;
        if answered.headers().len() > MAX_HEADERS {
            let why = format!("the response has more than {MAX_HEADERS} headers");
            return Err(SendError::Exchange(why));
        }
        Ok(answered.map(|body| Answering {
            body,
            _followed: followed,
        }))
    }

    /// Whether a request would leave at once: the receiver takes more on this connection, as
    /// many as have places, and the network has all that was written.
    pub(super) fn is_ready(&mut self) -> bool {
        // With a waker that does nothing: nobody waits for it.
        let mut context = Context::from_waker(Waker::noop());
        let is_open = matches!(self.requests.poll_ready(&mut context), Poll::Ready(Ok(())));
        is_open
            && self.shared.taken() <= self.requests.current_max_send_streams()
            && self.shared.frames.takes_more()
    }

    /// An exchange that began then has had no answer in time. If nothing at all has come
    /// since, nobody may be there any more, and others would wait as long.
    pub(super) fn timed_out(&self, began_at: Instant) {
        self.shared.frames.retire_if_silent_since(began_at);
    }

    pub(super) fn meter(&self) -> Meter {
        self.meter.clone()
    }

    pub(super) fn shared(&self) -> &Arc<Multiplexed> {
        &self.shared
    }
}

impl Answering {
    /// The next piece, or `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Result<Bytes, SendError>> {
        match self.body.data().await? {
            Ok(data) => {
                // It fails where the stream is over, and then nothing more is let in.
                let _over = self.body.flow_control().release_capacity(data.len());
                Some(Ok(data))
            }
            Err(error) => Some(Err(SendError::Exchange(error.to_string()))),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.body.is_end_stream()
    }
}

/// The request as HTTP/2 has it: its receiver is named with its path, and not by a header
/// (RFC 9113, 8.3.1). Of the headers that are the connection's (8.2.2) it has none: a
/// destination cannot set them.
fn over_http2(request: Request<Bytes>) -> Result<(Request<()>, Bytes), SendError> {
    let unnamed = || SendError::Refused("the URL has no host that HTTP/2 can name".to_owned());
    let (mut head, payload) = request.into_parts();
    let host = head.headers.remove(HOST).ok_or_else(unnamed)?;
    let mut parts = take(&mut head.uri).into_parts();
    parts.scheme = Some(Scheme::HTTPS);
    parts.authority = Authority::try_from(host.as_bytes()).ok();
    head.uri = Uri::from_parts(parts).ok().ok_or_else(unnamed)?;
    head.version = Version::HTTP_2;
    Ok((Request::from_parts(head, ()), payload))
}

/// Why there is no response. What the receiver refused, or was to finish no more when it
/// said GOAWAY, it has not looked at (RFC 9113, 6.8 and 8.7); and what was never handed over
/// it cannot have seen.
fn unanswered(error: &h2::Error, followed: Option<&Followed>) -> SendError {
    let was_handed_over = followed.is_some_and(Followed::was_handed_over);
    let is_refused = error.is_go_away() || error.reason() == Some(Reason::REFUSED_STREAM);
    match !was_handed_over || error.is_remote() && is_refused {
        true => SendError::NotSent(error.to_string()),
        false => SendError::Exchange(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    /// A connection whose receiver says what it takes and then reads nothing any more, on a
    /// network that holds 64 bytes.
    async fn unread() -> (Place, DuplexStream) {
        let (ours, mut theirs) = duplex(64);
        let (opened, ()) = tokio::join!(Multiplexed::open(Box::new(ours)), async {
            let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
            theirs.write_all(&settings).await.unwrap();
            theirs.read_exact(&mut [0; 24]).await.unwrap();
            loop {
                let mut head = [0_u8; 9];
                theirs.read_exact(&mut head).await.unwrap();
                let mut payload = vec![0; usize::from(head[2])];
                theirs.read_exact(&mut payload).await.unwrap();
                if (head[3], head[4]) == (4, 1) {
                    return; // our settings are known
                }
            }
        });
        (opened.unwrap(), theirs)
    }

    fn request() -> Request<Bytes> {
        let long = HeaderValue::try_from("x".repeat(256)).unwrap();
        let request = Request::post("/hook").header(HOST, "receiver.example");
        request.header("x-long", long).body(Bytes::new()).unwrap()
    }

    /// It has no end by itself: the network took a part of the first and nothing since.
    #[tokio::test(start_paused = true)]
    async fn a_request_that_does_not_leave_in_time_does_not_leave_at_all() {
        let (mut one, _theirs) = unread().await;
        let mut other = one.shared().place().unwrap();
        let first_bytes = [FirstByte::default(), FirstByte::default()];
        let began = Instant::now();
        let (one, other) = tokio::join!(
            one.send(request(), first_bytes[0].clone()),
            other.send(request(), first_bytes[1].clone()),
        );
        assert_eq!(began.elapsed(), LEAVES_WITHIN);
        let (Err(one), Err(other)) = (one, other) else {
            panic!("nobody answers");
        };
        assert!(matches!(one, SendError::Exchange(_)), "{one}");
        assert!(matches!(other, SendError::NotSent(_)), "{other}");
        assert_eq!(first_bytes[1].left_at(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_begun_behind_what_the_network_does_not_take() {
        let (mut one, _theirs) = unread().await;
        let mut other = one.shared().place().unwrap();
        let shared = Arc::clone(one.shared());
        let sending = one.send(request(), FirstByte::default());
        let (_, sent) = tokio::join!(timeout(LEAVES_WITHIN / 2, sending), async {
            tokio::time::sleep(LEAVES_WITHIN / 4).await; // it is stuck by then
            assert!(shared.place().is_none());
            other.send(request(), FirstByte::default()).await.err()
        });
        assert!(matches!(sent, Some(SendError::NotSent(_))), "{sent:?}");
    }
}
