//! One batch on one channel: published at once, its confirms joined.
//!
//! Promises to say `Confirmed` only of what the broker has, and to give up at
//! a deadline, or as soon as no confirm can be expected any more.

use domain::permit::PermitGroup;
use engine::ports::{Published, QueueError};
use futures_util::stream::{FuturesUnordered, StreamExt};
use lapin::options::BasicPublishOptions;
use lapin::{BasicProperties, Channel, Confirmation};
use tokio::time::{Instant, sleep, sleep_until};

use super::codec;
use super::connection::{BLOCKED, LOOK_INTERVAL, Line};

/// The store is the truth, so we do not ask for messages to be written to
/// disk. A quorum queue does so all the same; a classic one keeps them in
/// memory.
const TRANSIENT: u8 = 1;

/// What became of one batch.
pub(super) struct Batch {
    confirmed: Vec<bool>,
    unanswered: usize,
    /// The broker had no queue for at least one message.
    pub(super) returned: bool,
}

enum Answer {
    Confirmed,
    Refused,
    Returned,
    /// The channel or the connection ended.
    None,
}

impl Batch {
    /// Publishes everything, then joins the confirms: awaiting them one by
    /// one would cost a round trip each.
    pub(super) async fn send(
        line: &Line,
        channel: &Channel,
        queue: &str,
        groups: &[PermitGroup],
        deadline: Instant,
    ) -> Self {
        let mut batch = Self {
            confirmed: vec![false; groups.len()],
            unanswered: groups.len(),
            returned: false,
        };
        let mut pending: FuturesUnordered<_> = groups
            .iter()
            .enumerate()
            .map(|(index, group)| async move { (index, publish_one(channel, queue, group).await) })
            .collect();
        let give_up = async {
            tokio::select! {
                biased;
                () = sleep_until(deadline) => {}
                () = until_unusable(line) => {}
            }
        };
        tokio::pin!(give_up);
        loop {
            let (index, answer) = tokio::select! {
                biased;
                next = pending.next() => match next {
                    Some(answered) => answered,
                    None => return batch,
                },
                () = &mut give_up => return batch,
            };
            match answer {
                Answer::Confirmed => batch.confirmed[index] = true,
                Answer::Refused => {}
                Answer::Returned => batch.returned = true,
                Answer::None => continue,
            }
            batch.unanswered -= 1;
        }
    }

    pub(super) fn is_answered(&self) -> bool {
        self.unanswered == 0
    }

    pub(super) fn conclude(self, blocked: bool) -> Result<Vec<Published>, QueueError> {
        if blocked && !self.is_answered() {
            return Err(QueueError::Blocked(BLOCKED.to_owned()));
        }
        // A return means that the queue was missing: whatever it had
        // confirmed before in this batch went with it.
        let queue_stood = !self.returned;
        Ok(self
            .confirmed
            .into_iter()
            .map(|confirmed| match confirmed && queue_stood {
                true => Published::Confirmed,
                false => Published::Unconfirmed,
            })
            .collect())
    }
}

async fn publish_one(channel: &Channel, queue: &str, group: &PermitGroup) -> Answer {
    // Mandatory: without it a message for a missing queue is confirmed and
    // thrown away.
    let options = BasicPublishOptions {
        mandatory: true,
        ..BasicPublishOptions::default()
    };
    let payload = codec::encode(group);
    let properties = BasicProperties::default().with_delivery_mode(TRANSIENT);
    let published = channel.basic_publish("".into(), queue.into(), options, &payload, properties);
    let Ok(confirm) = published.await else {
        return Answer::None;
    };
    match confirm.await {
        Ok(Confirmation::Ack(None)) => Answer::Confirmed,
        Ok(Confirmation::Ack(Some(_)) | Confirmation::Nack(Some(_))) => Answer::Returned,
        Ok(Confirmation::Nack(None) | Confirmation::NotRequested) => Answer::Refused,
        Err(_) => Answer::None,
    }
}

/// Returns once no confirm can be expected any more.
async fn until_unusable(line: &Line) {
    while line.is_connected() && !line.is_blocked() {
        sleep(LOOK_INTERVAL).await;
    }
}
