//! An incoming webhook, as Slack has them: `{"text": …}`, answered with 2xx.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use domain::header::CustomHeaders;
use domain::ids::{AttemptId, DestinationId, Epoch, EventId, NoticeAddressId};
use domain::notices::Written;
use domain::time::Timestamp;
use engine::ports::{FirstByte, Request, SendError, Sender, Target, Unsent};
use serde_json::json;
use uuid::Uuid;

/// For a connection, and then for the whole exchange.
const TIMEOUT: Duration = Duration::from_secs(15);

/// How much of an answer is repeated in the log.
const SAID: usize = 100;

pub(super) async fn send(
    sender: &dyn Sender,
    (address, url): (NoticeAddressId, &str),
    message: &Written,
    now: Timestamp,
) -> Result<(), Unsent> {
    let target = Target {
        destination: DestinationId(address.0),
        epoch: Epoch(0),
        url: url.to_owned(),
        timeout: TIMEOUT,
        batches: false,
        pass_traceparent: false,
        names_origin: false,
        identity: None,
        secrets: Vec::new(),
    };
    let prepared = sender.prepare(&target).await.map_err(|e| unsent(&e))?;
    let request = Request {
        attempt: AttemptId(0),
        event: EventId(Uuid::nil()),
        batch: Some(message.id.clone()),
        try_number: 1,
        sent_at_seconds: now.as_micros().div_euclid(1_000_000),
        content_type: "application/json".to_owned(),
        payload: Bytes::from(json!({ "text": text(message) }).to_string()),
        signature: None,
        token: None,
        headers: Arc::new(CustomHeaders::default()),
        trace: None,
        timeout: TIMEOUT,
    };
    let answer = prepared.send(request, FirstByte::default()).await;
    let answer = answer.map_err(|e| unsent(&e))?;
    if (200..300).contains(&answer.status) {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&answer.body);
    let said: String = said
        .chars()
        .take(SAID)
        .filter(|c| !c.is_control())
        .collect();
    Err(Unsent(format!("answered {}: {said}", answer.status)))
}

/// Never the URL: whoever has it can write there.
fn unsent(error: &SendError) -> Unsent {
    Unsent(error.to_string())
}

/// The subject stands above the text. What could mention somebody, or be a link
/// with another name, is written out: names are anybody's to choose.
fn text(message: &Written) -> String {
    let plain = format!("{}\n\n{}", message.subject, message.text);
    plain
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_mentioned_by_a_name() {
        let message = Written {
            id: String::new(),
            subject: "<!channel> & co".to_owned(),
            text: "<https://a|b>".to_owned(),
        };
        assert_eq!(
            text(&message),
            "&lt;!channel&gt; &amp; co\n\n&lt;https://a|b&gt;"
        );
    }
}
