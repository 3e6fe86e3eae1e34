//! Receivers that fail by design, and count for themselves what reaches them.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use server::receiver::{Behaviour, Observed, Receiver, Told};
use tokio::net::TcpSocket;

/// How an endpoint answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answers {
    Ok,
    /// 204, after a while.
    Slow,
    /// Never.
    Hang,
    /// 500 each time.
    Fail,
    /// 422 each time, which is final.
    Unprocessable,
    /// 401 each time.
    Unauthorized,
    /// 503 to three in ten.
    Flaky,
    /// 503 to six in ten, and the last is none of these.
    Mostly,
    /// 429, and to come again in half an hour.
    TooMany,
    /// Nobody listens.
    Closed,
}

pub(crate) const SLOW: Duration = Duration::from_millis(150);

/// Of ten requests, those that the flaky one answers with 503.
const FAILS: [u32; 3] = [2, 5, 8];
const MOSTLY_FAILS: [u32; 6] = [0, 1, 3, 4, 6, 7];

/// What one endpoint got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Got {
    pub(crate) requests: u32,
    /// Of these, the ones that it answered with a failure.
    pub(crate) failed: u32,
}

#[derive(Default)]
struct Books {
    answers: HashMap<u32, Answers>,
    got: HashMap<u32, Got>,
}

pub(crate) struct Receivers {
    receiver: Receiver,
    books: Arc<Mutex<Books>>,
    /// Bound and not listening: nobody else takes its port.
    closed: TcpSocket,
}

impl Receivers {
    pub(crate) async fn start() -> Self {
        let books: Arc<Mutex<Books>> = Arc::default();
        let judge = Arc::clone(&books);
        let observer = move |seen: Observed<'_>| judge.lock().unwrap().answer(seen.destination);
        let receiver = Receiver::start_observed(Behaviour::ACCEPT, 0, Some(Box::new(observer)));
        let closed = TcpSocket::new_v4().unwrap();
        closed
            .bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
            .unwrap();
        Self {
            receiver: receiver.await.unwrap(),
            books,
            closed,
        }
    }

    /// Where an endpoint of this number is, which answers so.
    pub(crate) fn url(&self, number: u32, answers: Answers) -> String {
        if answers == Answers::Closed {
            return format!("http://{}/r/{number}", self.closed.local_addr().unwrap());
        }
        let other = match answers {
            Answers::Slow => Some(Behaviour::Answer {
                status: StatusCode::NO_CONTENT,
                after: SLOW,
            }),
            Answers::Hang => Some(Behaviour::NeverAnswer),
            _ => None,
        };
        if let Some(behaviour) = other {
            self.receiver.set_behaviour(number, behaviour);
        }
        self.books.lock().unwrap().answers.insert(number, answers);
        self.receiver.url(number)
    }

    /// Its owner has mended it.
    pub(crate) fn mend(&self, number: u32) {
        let mut books = self.books.lock().unwrap();
        books.answers.insert(number, Answers::Ok);
    }

    pub(crate) fn got(&self, number: u32) -> Got {
        let books = self.books.lock().unwrap();
        books.got.get(&number).copied().unwrap_or_default()
    }
}

impl Books {
    fn answer(&mut self, number: u32) -> Option<Told> {
        let answers = self.answers.get(&number).copied().unwrap_or(Answers::Ok);
        let got = self.got.entry(number).or_default();
        let in_ten = got.requests % 10;
        got.requests += 1;
        let status = match answers {
            Answers::Ok | Answers::Slow | Answers::Hang | Answers::Closed => None,
            Answers::Fail => Some(StatusCode::INTERNAL_SERVER_ERROR),
            Answers::Unprocessable => Some(StatusCode::UNPROCESSABLE_ENTITY),
            Answers::Unauthorized => Some(StatusCode::UNAUTHORIZED),
            Answers::Flaky => FAILS
                .contains(&in_ten)
                .then_some(StatusCode::SERVICE_UNAVAILABLE),
            Answers::Mostly => MOSTLY_FAILS
                .contains(&in_ten)
                .then_some(StatusCode::SERVICE_UNAVAILABLE),
            Answers::TooMany => Some(StatusCode::TOO_MANY_REQUESTS),
        }?;
        got.failed += u32::from(answers != Answers::TooMany);
        Some(Told {
            status,
            retry_after: (answers == Answers::TooMany).then(|| HeaderValue::from_static("1800")),
            body: Bytes::from_static(b"the receiver says why"),
        })
    }
}
