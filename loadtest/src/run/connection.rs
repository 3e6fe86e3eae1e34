//! One connection of the load client, which takes one job after the other.

use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context;
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, stream};
use http_body_util::{BodyExt, Either, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::client::{Answer, Client, Job};
use super::requests::{self, Draft, Way};
use crate::chaos::boottime_us;

/// How long an answer may take; a bulk request's is longer.
const PATIENCE: Duration = Duration::from_secs(30);
const BULK_PATIENCE: Duration = Duration::from_secs(600);

/// Events in one piece of a bulk body.
const PIECE: u32 = 200;

/// Between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(100);

type Pieces = Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, Infallible>>>>;
type Body = Either<Full<Bytes>, StreamBody<Pieces>>;
pub(super) type Open = SendRequest<Body>;

/// Dials.
pub(super) async fn open(address: &str) -> anyhow::Result<Open> {
    let stream = TcpStream::connect(address).await;
    let stream = stream.with_context(|| format!("connect to the API at {address}"))?;
    stream.set_nodelay(true)?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::task::spawn_local(connection);
    Ok(sender)
}

/// Takes jobs until there are no more.
pub(super) async fn work(client: Rc<Client>, mut open: Open, address: String) {
    while let Some(job) = client.job().await {
        while open.ready().await.is_err() {
            match self::open(&address).await {
                Ok(opened) => open = opened,
                Err(_) => sleep(PAUSE).await,
            }
        }
        // It is never closed.
        let _bulk = match job.way {
            Way::Bulk => client.bulks.acquire().await.ok(),
            Way::Single | Way::Batch => None,
        };
        let patience = match job.way {
            Way::Bulk => BULK_PATIENCE,
            Way::Single | Way::Batch => PATIENCE,
        };
        // What is not answered is not sent again: it may have been accepted.
        let _ = timeout(patience, send(&client, &mut open, job)).await;
    }
}

async fn send(client: &Rc<Client>, open: &mut Open, job: Job) {
    let Ok(request) = request(client, job) else {
        return;
    };
    let Ok(response) = open.send_request(request).await else {
        return;
    };
    let status = response.status();
    let answer = response.into_body();
    if !status.is_success() {
        all(client, job, Answer::Refused(status.as_u16()));
        let _ = answer.collect().await;
        return;
    }
    match job.way {
        Way::Single => {
            // The status says it; the rest is read for the connection's sake.
            all(client, job, Answer::Accepted);
            let _ = answer.collect().await;
        }
        Way::Batch => {
            if let Ok(answer) = answer.collect().await {
                batch(client, job, &answer.to_bytes());
            }
        }
        Way::Bulk => bulk(client, job, answer).await,
    }
}

fn request(client: &Rc<Client>, job: Job) -> Result<http::Request<Body>, http::Error> {
    let target = &client.target;
    let body = match job.way {
        Way::Bulk => Either::Right(StreamBody::new(pieces(client, job))),
        Way::Single | Way::Batch => {
            let drafts = drafts(client, job.first, job.count);
            Either::Left(Full::new(requests::json(job.way, &drafts)))
        }
    };
    http::Request::post(job.way.path())
        .header("host", "paceline")
        .header("authorization", &target.keys[job.tenant as usize])
        .header("content-type", job.way.content_type())
        .body(body)
}

/// A bulk body, made as it is sent.
fn pieces(client: &Rc<Client>, job: Job) -> Pieces {
    let (client, end) = (Rc::clone(client), job.first + job.count);
    let firsts = (job.first..end).step_by(PIECE as usize);
    Box::pin(stream::iter(firsts.map(move |first| {
        let drafts = drafts(&client, first, PIECE.min(end - first));
        Ok(Frame::data(requests::lines(&drafts)))
    })))
}

/// The events, which are sent now.
fn drafts(client: &Client, first: u32, count: u32) -> Vec<Draft> {
    let sent_us = boottime_us();
    let mut sent = client.sent.borrow_mut();
    let events = (first..first + count).zip(&mut sent[first as usize..][..count as usize]);
    events
        .map(|(event, sent)| {
            sent.sent_us = sent_us;
            Draft {
                event,
                to: client.target.destinations[sent.destination as usize].0,
                sent_us,
                size: client.target.payload_bytes,
            }
        })
        .collect()
}

fn all(client: &Client, job: Job, answer: Answer) {
    for event in job.first..job.first + job.count {
        client.answered(event, answer);
    }
}

fn batch(client: &Client, job: Job, answer: &[u8]) {
    let answers = requests::answers_of_batch(answer).unwrap_or_default();
    for (event, answer) in (job.first..job.first + job.count).zip(answers) {
        client.answered(event, answer);
    }
}

/// Takes each line as it comes.
async fn bulk(client: &Client, job: Job, mut answer: Incoming) {
    let mut read = BytesMut::new();
    while let Some(Ok(frame)) = answer.frame().await {
        let Ok(data) = frame.into_data() else {
            continue;
        };
        read.extend_from_slice(&data);
        while let Some(end) = read.iter().position(|byte| *byte == b'\n') {
            let line = read.split_to(end + 1);
            if let Some((place, answer)) = requests::answer_of_line(&line)
                && place < job.count
            {
                client.answered(job.first + place, answer);
            }
        }
    }
}
