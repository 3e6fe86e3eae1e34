//! Target `response`: whatever a receiver answers.
//!
//! Each input is played three times: by a receiver that closes afterwards, by
//! one that keeps the connection open, and by one that goes on with the end of
//! the input until the sender hangs up. Time is virtual: a deadline passes when
//! nothing else can happen.

use domain::signals::MAX_HEADER_BYTES;
use engine::ports::{Response, STORED_BODY_BYTES, SendError};
use fuzzing::{Verdict, ensure};
use tokio::io::AsyncWriteExt;

use super::super::metered::MAX_RESPONSE_BYTES;
use super::wire::{Wire, read_request, send};

/// What a second request on the same connection is answered with.
const SECOND: &[u8] = b"HTTP/1.1 203 Second\r\ncontent-length: 6\r\n\r\nsecond";

/// How long a receiver that goes on does so.
const FLOOD_BYTES: usize = MAX_RESPONSE_BYTES + 128 * 1024;

/// The most that may be read for one response: its cap, and what the last read
/// may bring at once.
const MOST_READ_BYTES: usize = MAX_RESPONSE_BYTES + 64 * 1024;

#[test]
fn responses() -> fuzzing::Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    fuzzing::run(super::CRATE, "response", 1_000, |input| {
        runtime.block_on(async {
            let closed = closes(input).await?;
            let open = stays_open(input).await?;
            let flood = goes_on(input).await?;
            Ok(format!("{closed}; {open}; {flood}"))
        })
    })
}

async fn closes(input: &[u8]) -> Verdict {
    let mut wire = Wire::open().await?;
    let answer = play(&mut wire, input, async |receiver| receiver.shutdown().await).await?;
    ensure!(
        !matches!(answer, Err(SendError::TimedOut(_))),
        "waits for one who has hung up"
    );
    ensure!(wire.idle() == 0, "keeps a connection that is closed");
    if let (Ok(response), Some(body)) = (&answer, plain_body(input)) {
        let stored = &body[..body.len().min(STORED_BODY_BYTES)];
        ensure!(response.body == stored, "the body is {:?}", response.body);
    }
    bounded(input, &wire, &answer)
}

/// What is read on this connection later must be what is sent later.
async fn stays_open(input: &[u8]) -> Verdict {
    let mut wire = Wire::open().await?;
    let answer = play(&mut wire, input, async |_| Ok(())).await?;
    let kind = bounded(input, &wire, &answer)?;
    let Some(again) = wire.reuse().await else {
        return Ok(kind);
    };
    ensure!(answer.is_ok(), "keeps a connection that has failed");
    let (second, ()) = tokio::join!(send(again), async {
        if read_request(&mut wire.receiver).await.is_ok() {
            let _written = wire.receiver.write_all(SECOND).await;
        }
    });
    match second {
        Ok(second) => ensure!(
            (second.status, second.body.as_ref()) == (203, b"second"),
            "the first answer's rest is taken for the second: {second:?}"
        ),
        Err(error) => ensure!(matches!(error, SendError::Exchange(_)), "{error}"),
    }
    Ok(format!("{kind}, used again"))
}

async fn goes_on(input: &[u8]) -> Verdict {
    let end = &input[input.len().saturating_sub(64)..];
    if end.is_empty() {
        return Ok("nothing to go on with".to_owned());
    }
    let mut flood = input.to_vec();
    while flood.len() < FLOOD_BYTES {
        flood.extend_from_slice(end);
    }
    let mut wire = Wire::open().await?;
    let answer = play(&mut wire, &flood, async |receiver| {
        receiver.shutdown().await
    })
    .await?;
    bounded(&flood, &wire, &answer)
}

/// Sends one request, answers it with these bytes, and then does `then`.
async fn play(
    wire: &mut Wire,
    answer: &[u8],
    then: impl AsyncFnOnce(&mut tokio::io::DuplexStream) -> std::io::Result<()>,
) -> fuzzing::Result<Result<Response, SendError>> {
    let exchange = wire.reuse().await;
    let exchange =
        exchange.ok_or_else(|| std::io::Error::other("a new connection is not ready"))?;
    let receiver = &mut wire.receiver;
    let (sent, answered) = tokio::join!(send(exchange), async {
        read_request(receiver).await?;
        // The sender may hang up before all of it is written.
        let _written = receiver.write_all(answer).await;
        let _done = then(receiver).await;
        Ok::<_, std::io::Error>(())
    });
    answered?;
    Ok(sent)
}

/// Every cap holds, and the words for what came of it.
fn bounded(input: &[u8], wire: &Wire, answer: &Result<Response, SendError>) -> Verdict {
    ensure!(
        wire.bytes_read() <= MOST_READ_BYTES,
        "{} bytes were read",
        wire.bytes_read()
    );
    let response = match answer {
        Ok(response) => response,
        Err(SendError::TimedOut(_)) => return Ok("timed out".to_owned()),
        Err(SendError::Exchange(why)) => return Ok(without_numbers(why)),
        Err(other) => fuzzing::bail!("nothing was refused here: {other}"),
    };
    // 101 ends an exchange too: whatever follows it is not HTTP any more.
    let last = response.status == 101 || (200..=999).contains(&response.status);
    ensure!(last, "ended by {}", response.status);
    ensure!(response.body.len() <= STORED_BODY_BYTES);
    ensure!(
        in_order(&response.body, input),
        "a body that was never sent"
    );
    if let Some(text) = &response.signals.retry_after {
        ensure!(
            text.len() <= MAX_HEADER_BYTES
                && text
                    .bytes()
                    .all(|byte| byte == b'\t' || (32..127).contains(&byte))
        );
    }
    Ok(format!(
        "{}xx, body of {:?} bits, retry-after {}",
        response.status / 100,
        response.body.len().checked_ilog2(),
        response.signals.retry_after.is_some()
    ))
}

/// Whether all of `part` is in `whole`, in this order.
fn in_order(part: &[u8], whole: &[u8]) -> bool {
    let mut rest = whole.iter();
    part.iter().all(|byte| rest.any(|other| other == byte))
}

/// The body of a response that leaves no doubt about it: by hand, so that it is
/// judged by more than one parser.
fn plain_body(input: &[u8]) -> Option<&[u8]> {
    let end = input.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&input[..end]).ok()?;
    let plain = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
    let mut lines = head.split("\r\n");
    if !lines.clone().all(|line| line.bytes().all(plain)) {
        return None;
    }
    let status = lines.next()?.strip_prefix("HTTP/1.1 2")?;
    let bodiless = status.starts_with("04");
    let mut length = None;
    for line in lines {
        let (name, value) = line.split_once(": ")?;
        match name.to_ascii_lowercase().as_str() {
            "content-length" if length.is_none() => length = Some(value),
            "content-length" | "transfer-encoding" => return None,
            _ => {}
        }
    }
    let length = length.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    if bodiless {
        return Some(&[]);
    }
    input.get(end + 4..)?.get(..length.parse().ok()?)
}

fn without_numbers(text: &str) -> String {
    text.chars()
        .filter(|letter| !letter.is_ascii_digit())
        .collect()
}
