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
//! wait behind what the network does not take, and no longer than the request may
//! ([`FirstByte::leave_by`]): after that they do not leave any more, whoever drives the
//! connection by then.

use std::future::poll_fn;
use std::mem::take;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use engine::ports::{FirstByte, SendError};
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::header::HOST;
use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri, Version};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use super::frames::{Fate, Followed, Frames, Watched};
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
    _asking: Asking,
}

/// A request that h2 has. Dropped before all of its body is out, it resets its stream: if
/// the answer is over, h2 would keep the body for as long as the receiver grants no window.
struct Asking {
    followed: Followed,
    stream: SendStream<Bytes>,
}

impl Drop for Asking {
    fn drop(&mut self) {
        // Before the reset, which would be the first of a request that has not left.
        let _fate = self.followed.give_up();
        if self.followed.leaves_unfinished() {
            self.stream.send_reset(Reason::CANCEL);
        }
    }
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
        tokio::spawn(drive(connection, released, frames.clone()));
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

    /// A place, if one is free, a request would leave at once, and somebody seems to be there.
    pub(super) fn place(self: &Arc<Self>) -> Option<Place> {
        if self.frames.is_silent() {
            return None;
        }
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

/// Reads and writes until the connection ends, or nobody holds it any more. How it ended is
/// told to those who wait on it; those who wait to begin are told that it has.
async fn drive(
    mut connection: Connection<Watched, Bytes>,
    released: oneshot::Receiver<()>,
    frames: Frames,
) {
    tokio::select! {
        biased;
        _ended = &mut connection => {
            frames.retire();
            return;
        }
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
        let leave_by = first_byte.leave_by();
        let (head, payload) = over_http2(request)?;
        let followed = self.begin(first_byte, payload.len()).await?;
        let (mut response, asking) = self.ask(head, payload, followed)?;
        let answered = match leave_by {
            Some(leave_by) => match timeout_at(leave_by, &mut response).await {
                Ok(answered) => answered,
                Err(_elapsed) => match asking.followed.give_up() {
                    Fate::Left => response.await,
                    fate => return Err(too_late(fate)),
                },
            },
            None => response.await,
        };
        let answered = answered.map_err(|error| unanswered(&error, &asking.followed))?;
        if answered.headers().len() > MAX_HEADERS {
            let why = format!("the response has more than {MAX_HEADERS} headers");
            return Err(SendError::Exchange(why));
        }
        Ok(answered.map(|body| Answering {
            body,
            _asking: asking,
        }))
    }

    /// Follows the request, once the network has all that was written before it. The
    /// connection was ready when the start was claimed, and what is stuck since may move.
    async fn begin(&mut self, first_byte: FirstByte, bytes: usize) -> Result<Followed, SendError> {
        let leave_by = first_byte.leave_by();
        // Before the wait, in which the response before it would be too slow.
        self.meter.reset(first_byte);
        let frames = &self.shared.frames;
        let moves = match leave_by {
            Some(leave_by) => timeout_at(leave_by, frames.flushed()).await.is_ok(),
            None => {
                frames.flushed().await;
                true
            }
        };
        let request = (self.meter.clone(), bytes);
        let most = self.requests.current_max_send_streams();
        let followed = match moves && self.is_open() {
            true => self.shared.frames.follow(request, most),
            false => None,
        };
        let why = "the connection takes no more requests";
        followed.ok_or_else(|| SendError::NotSent(why.to_owned()))
    }

    /// Gives the request to h2.
    fn ask(
        &mut self,
        head: Request<()>,
        payload: Bytes,
        mut followed: Followed,
    ) -> Result<(ResponseFuture, Asking), SendError> {
        let is_empty = payload.is_empty();
        let sent = self.requests.send_request(head, is_empty);
        let (response, mut stream) = sent.map_err(|error| SendError::NotSent(error.to_string()))?;
        followed.numbered(stream.stream_id().as_u32());
        if !is_empty {
            // If the stream is over already, its response says why.
            let _over = stream.send_data(payload, true);
        }
        Ok((response, Asking { followed, stream }))
    }

    /// Whether h2 takes a request for this connection.
    fn is_open(&mut self) -> bool {
        // With a waker that does nothing: nobody waits for it.
        let mut context = Context::from_waker(Waker::noop());
        matches!(self.requests.poll_ready(&mut context), Poll::Ready(Ok(())))
    }

    /// Whether a request would leave at once. A receiver may take fewer by now than have
    /// places; what counts then are those that are under way.
    pub(super) fn is_ready(&mut self) -> bool {
        let most = self.requests.current_max_send_streams();
        let frames = &self.shared.frames;
        let takes_more = frames.takes_more() && frames.under_way() < most;
        takes_more && self.is_open()
    }

    /// An exchange that began then has had no answer in time. If nothing of any has come
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

/// Why there is no response. What was not handed over the receiver will not see, whatever it
/// says of it. Of the rest, what it refused, or was to finish no more when it said GOAWAY, it
/// has not looked at (RFC 9113, 6.8 and 8.7).
fn unanswered(error: &h2::Error, followed: &Followed) -> SendError {
    let why = error.to_string();
    let is_refused = error.is_go_away() || error.reason() == Some(Reason::REFUSED_STREAM);
    match followed.give_up() {
        Fate::Stays => SendError::NotSent(why),
        Fate::Begun | Fate::Left if error.is_remote() && is_refused => SendError::Unread {
            why,
            may_arrive: error.is_go_away(), // behind that, and its own stream is open
        },
        Fate::Begun | Fate::Left => SendError::Exchange(why),
    }
}

/// What is said of a request that had to leave by now.
fn too_late(fate: Fate) -> SendError {
    match fate {
        Fate::Stays => SendError::NotSent("the connection took nothing of it in time".to_owned()),
        Fate::Begun | Fate::Left => {
            SendError::Exchange("the connection did not take it in time".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::ready;

    use http::HeaderValue;
    use tokio::io::{
        AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex,
    };

    use super::*;

    /// A network that takes nothing any more once it is stuck, under TLS, which does; and
    /// that breaks with the receiver.
    struct Sticky {
        stream: DuplexStream,
        is_stuck: Arc<AtomicBool>,
    }

    impl AsyncRead for Sticky {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let before = buffer.filled().len();
            ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
            match buffer.filled().len() > before {
                true => Poll::Ready(Ok(())),
                false => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            }
        }
    }

    impl AsyncWrite for Sticky {
        fn poll_write(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            match self.is_stuck.load(Ordering::SeqCst) {
                true => Poll::Ready(Ok(bytes.len())),
                false => Pin::new(&mut self.stream).poll_write(context, bytes),
            }
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            match self.is_stuck.load(Ordering::SeqCst) {
                true => Poll::Pending,
                false => Poll::Ready(Ok(())),
            }
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// A connection, and its receiver, on a network that is stuck when that is set.
    async fn sticky() -> (Place, DuplexStream, Arc<AtomicBool>) {
        let (stream, mut theirs) = duplex(1 << 16);
        let is_stuck = Arc::<AtomicBool>::default();
        let ours = Sticky {
            stream,
            is_stuck: Arc::clone(&is_stuck),
        };
        let place = opened(Box::new(ours), &mut theirs).await;
        (place, theirs, is_stuck)
    }

    /// A connection whose receiver says what it takes and then reads nothing any more, on a
    /// network that holds 64 bytes.
    async fn unread() -> (Place, DuplexStream) {
        let (ours, mut theirs) = duplex(64);
        (opened(Box::new(ours), &mut theirs).await, theirs)
    }

    /// A connection whose receiver says what it takes.
    async fn opened(ours: Stream, theirs: &mut DuplexStream) -> Place {
        let (opened, ()) = tokio::join!(Multiplexed::open(ours), async {
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
        opened.unwrap()
    }

    fn request() -> Request<Bytes> {
        let long = HeaderValue::try_from("x".repeat(256)).unwrap();
        let request = Request::post("/hook").header(HOST, "receiver.example");
        request.header("x-long", long).body(Bytes::new()).unwrap()
    }

    const LIMIT: Duration = Duration::from_millis(200);

    fn in_time() -> FirstByte {
        FirstByte::default().by(Instant::now() + LIMIT)
    }

    /// The next request, of which it reads all.
    async fn reads(theirs: &mut DuplexStream) {
        loop {
            let mut head = [0_u8; 9];
            theirs.read_exact(&mut head).await.unwrap();
            let length = usize::from(head[1]) * 256 + usize::from(head[2]);
            theirs.read_exact(&mut vec![0; length]).await.unwrap();
            if head[3] == 1 {
                return; // HEADERS
            }
        }
    }

    /// With 200, and nothing else.
    async fn answers(theirs: &mut DuplexStream, stream: u8) {
        let answer = [0, 0, 1, 1, 5, 0, 0, 0, stream, 0x88];
        theirs.write_all(&answer).await.unwrap();
    }

    /// No request comes any more, until the other side has closed.
    async fn reads_no_more(theirs: &mut DuplexStream) {
        let mut rest = Vec::new();
        theirs.read_to_end(&mut rest).await.unwrap();
        let mut rest = &rest[..];
        while let [_, _, length, kind, ..] = rest {
            assert_ne!(*kind, 1, "HEADERS");
            rest = &rest[9 + usize::from(*length)..];
        }
    }

    /// The network took a part of the first and nothing for a while.
    #[tokio::test(start_paused = true)]
    async fn a_request_that_does_not_leave_in_time_does_not_leave_at_all() {
        for is_dropped in [false, true] {
            let (mut one, mut theirs) = unread().await;
            let mut other = one.shared().place().unwrap();
            let first_bytes = [in_time(), in_time()];
            let patience = match is_dropped {
                true => LIMIT / 4,
                false => LIMIT * 4,
            };
            let (first, second, ()) = tokio::join!(
                one.send(request(), first_bytes[0].clone()),
                timeout(patience, other.send(request(), first_bytes[1].clone())),
                async {
                    tokio::time::sleep(LIMIT * 2).await;
                    reads(&mut theirs).await;
                    answers(&mut theirs, 1).await;
                }
            );
            assert_eq!(first.unwrap().status(), 200, "it had left");
            match second {
                Err(_elapsed) => assert!(is_dropped),
                Ok(second) => {
                    let second = second.err();
                    assert!(matches!(second, Some(SendError::NotSent(_))), "{second:?}");
                }
            }
            assert_eq!(first_bytes[1].left_at(), None);
            assert!(one.shared().place().is_none());
            drop((one, other));
            reads_no_more(&mut theirs).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_begun_behind_what_the_network_does_not_take() {
        let (mut one, _theirs) = unread().await;
        let mut other = one.shared().place().unwrap();
        let shared = Arc::clone(one.shared());
        let sending = timeout(LIMIT, one.send(request(), in_time()));
        let (_, (sent, waited)) = tokio::join!(sending, async {
            tokio::time::sleep(LIMIT / 4).await; // it is stuck by then
            assert!(shared.place().is_none());
            let began = Instant::now();
            let hurried = FirstByte::default().by(began + LIMIT / 4);
            (other.send(request(), hurried).await.err(), began.elapsed())
        });
        assert!(matches!(sent, Some(SendError::NotSent(_))), "{sent:?}");
        assert!(waited >= LIMIT / 4, "it might have moved");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_stuck_for_a_moment_holds_nothing_up() {
        let (mut one, mut theirs) = unread().await;
        let mut other = one.shared().place().unwrap();
        let first_bytes = [in_time(), in_time()];
        let (first, second, ()) = tokio::join!(
            one.send(request(), first_bytes[0].clone()),
            async {
                tokio::time::sleep(LIMIT / 4).await; // it is stuck by then
                other.send(request(), first_bytes[1].clone()).await
            },
            async {
                tokio::time::sleep(LIMIT / 2).await;
                for stream in [1, 3] {
                    reads(&mut theirs).await;
                    answers(&mut theirs, stream).await;
                }
            },
        );
        assert_eq!(first.unwrap().status(), 200);
        assert_eq!(second.unwrap().status(), 200);
        assert!(first_bytes.iter().all(|one| one.left_at().is_some()));
    }

    /// Until then its response counts as the next one's, and would be too slow for it.
    #[tokio::test(start_paused = true)]
    async fn the_response_before_says_nothing_of_one_that_waits_for_the_network() {
        let (mut one, mut theirs) = unread().await;
        let mut other = one.shared().place().unwrap();
        let (first, ()) = tokio::join!(one.send(request(), in_time()), async {
            reads(&mut theirs).await;
            answers(&mut theirs, 1).await;
        });
        drop(first.unwrap());
        let meter = one.meter();
        assert!(meter.due().is_some());
        let mut another = request();
        let unknown = HeaderValue::try_from("y".repeat(256)).unwrap(); // to HPACK
        another.headers_mut().insert("x-long", unknown);
        let (stuck, next, ()) = tokio::join!(
            other.send(another, in_time()),
            async {
                tokio::time::sleep(LIMIT / 4).await;
                assert!(one.shared().place().is_none(), "it is stuck by then");
                one.send(request(), in_time()).await
            },
            async {
                tokio::time::sleep(LIMIT / 2).await;
                assert_eq!(meter.due(), None);
                for stream in [3, 5] {
                    reads(&mut theirs).await;
                    answers(&mut theirs, stream).await;
                }
            },
        );
        assert_eq!(stuck.unwrap().status(), 200);
        assert_eq!(next.unwrap().status(), 200);
    }

    /// TLS has it. If a part of it left, that was when the network was last tried, or before;
    /// and with a read that fails TLS tries it as well.
    #[tokio::test(start_paused = true)]
    async fn what_may_have_left_counts_from_when_it_may_have_at_the_latest() {
        for is_gone in [false, true] {
            let (mut one, mut theirs, is_stuck) = sticky().await;
            is_stuck.store(true, Ordering::SeqCst);
            let (began, first_byte) = (Instant::now(), in_time());
            let (sent, _theirs) = tokio::join!(one.send(request(), first_byte.clone()), async {
                tokio::time::sleep(LIMIT / 2).await;
                // A ping, and to write its answer the network is tried again.
                let ping = [0, 0, 8, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                theirs.write_all(&ping).await.unwrap();
                tokio::time::sleep(LIMIT / 4).await;
                (!is_gone).then_some(theirs)
            });
            let sent = sent.err();
            assert!(matches!(sent, Some(SendError::Exchange(_))), "{sent:?}");
            let left_at = first_byte.left_at().expect("a start");
            let tried_at = match is_gone {
                true => began + LIMIT * 3 / 4,
                false => began + LIMIT / 2,
            };
            let more = left_at.duration_since(tried_at);
            assert!(left_at >= tried_at && more < LIMIT / 4, "{more:?}");
            assert_eq!(began.elapsed() < LIMIT, is_gone);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_the_network_is_told_that_the_connection_is_gone() {
        let (mut one, theirs, is_stuck) = sticky().await;
        let mut other = one.shared().place().unwrap();
        is_stuck.store(true, Ordering::SeqCst);
        let (sent, waited, ()) = tokio::join!(
            one.send(request(), FirstByte::default()),
            async {
                tokio::time::sleep(LIMIT / 4).await; // it is stuck by then
                timeout(LIMIT, other.send(request(), FirstByte::default())).await
            },
            async {
                tokio::time::sleep(LIMIT / 2).await;
                drop(theirs);
            },
        );
        let sent = sent.err();
        assert!(matches!(sent, Some(SendError::Exchange(_))), "{sent:?}");
        let waited = waited.expect("nothing to wait for").err();
        assert!(matches!(waited, Some(SendError::NotSent(_))), "{waited:?}");
    }

    /// Its receiver says that it looks at nothing more, and has not seen it.
    #[tokio::test(start_paused = true)]
    async fn what_h2_still_has_when_the_receiver_goes_away_was_not_sent() {
        let (mut one, mut theirs) = unread().await;
        let mut other = one.shared().place().unwrap();
        let first_bytes = [in_time(), in_time()];
        let (first, second, ()) = tokio::join!(
            one.send(request(), first_bytes[0].clone()),
            other.send(request(), first_bytes[1].clone()),
            async {
                tokio::time::sleep(LIMIT / 4).await; // a part of the first has left by then
                let goes_away = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
                theirs.write_all(&goes_away).await.unwrap();
                tokio::time::sleep(LIMIT / 4).await;
                reads(&mut theirs).await;
                answers(&mut theirs, 1).await;
            }
        );
        assert_eq!(first.unwrap().status(), 200);
        let second = second.err();
        assert!(matches!(second, Some(SendError::NotSent(_))), "{second:?}");
        assert_eq!(first_bytes[1].left_at(), None);
    }

    /// As if whoever drives the connection, or all of the process, had been frozen.
    #[tokio::test(start_paused = true)]
    async fn what_h2_has_when_it_is_too_late_does_not_leave() {
        let (mut one, mut theirs) = unread().await;
        let first_byte = in_time();
        let followed = one.begin(first_byte.clone(), 0).await.unwrap();
        let (head, payload) = over_http2(request()).unwrap();
        let (response, asking) = one.ask(head, payload, followed).unwrap();
        // The clock goes on before anybody else runs.
        tokio::time::advance(LIMIT * 2).await;
        tokio::task::yield_now().await;
        assert_eq!(asking.followed.give_up(), Fate::Stays);
        drop((response, asking, one));
        reads_no_more(&mut theirs).await;
        assert_eq!(first_byte.left_at(), None);
    }
}
