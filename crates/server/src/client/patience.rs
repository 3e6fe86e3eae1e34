//! What somebody who is asked too fast says: no, and when to come again.

use std::time::Duration;

use http::StatusCode;
use tokio::time::sleep;

use super::wire::Answer;

/// How often one thing is asked for, at most.
const ASKS: u32 = 6;

/// The longest wait between two of them; a longer one is not waited for.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// What an API said no with.
#[derive(Debug, thiserror::Error)]
#[error("{said}")]
pub struct Refused {
    /// The HTTP status.
    pub status: StatusCode,
    /// When it may go better, if that is said.
    pub retry_after: Option<Duration>,
    said: String,
}

impl Answer {
    /// What it is, if it is no success, in these words.
    pub(crate) fn refused(&self, said: String) -> Refused {
        Refused {
            status: self.status,
            retry_after: self.retry_after,
            said,
        }
    }
}

/// The status that an API refused it with.
pub(crate) fn status(error: &anyhow::Error) -> Option<StatusCode> {
    error
        .downcast_ref::<Refused>()
        .map(|refused| refused.status)
}

/// `None` for what is not there.
pub(crate) fn absent<T>(asked: anyhow::Result<T>) -> anyhow::Result<Option<T>> {
    match asked {
        Err(error) if status(&error) == Some(StatusCode::NOT_FOUND) => Ok(None),
        asked => asked.map(Some),
    }
}

/// Asks again after 429, when it was told to or by and by, some times: at most five
/// minutes in all.
pub(crate) async fn patiently<T>(ask: impl AsyncFn() -> anyhow::Result<T>) -> anyhow::Result<T> {
    for asked in 0..ASKS - 1 {
        let error = match ask().await {
            Err(error) if status(&error) == Some(StatusCode::TOO_MANY_REQUESTS) => error,
            asked => return asked,
        };
        let told = error
            .downcast_ref::<Refused>()
            .and_then(|no| no.retry_after);
        let wait = told.unwrap_or_else(|| Duration::from_secs(1 << asked));
        if wait > LONGEST_WAIT {
            return Err(error);
        }
        sleep(wait).await;
    }
    ask().await
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::Instant;

    use super::*;

    fn too_fast(retry_after: Option<u64>) -> anyhow::Error {
        Refused {
            status: StatusCode::TOO_MANY_REQUESTS,
            retry_after: retry_after.map(Duration::from_secs),
            said: "too fast".to_owned(),
        }
        .into()
    }

    /// How often it asked, and for how long, of somebody who says so `refusals` times.
    async fn asked(refusals: u32, retry_after: Option<u64>) -> (Option<()>, u32, u64) {
        let (asks, began) = (Cell::new(0), Instant::now());
        let ask = async || {
            asks.set(asks.get() + 1);
            match asks.get() > refusals {
                true => Ok(()),
                false => Err(too_fast(retry_after)),
            }
        };
        let end = patiently(ask).await.ok();
        (end, asks.get(), began.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn too_fast_is_waited_for_as_told_and_not_for_ever() {
        assert_eq!(asked(0, None).await, (Some(()), 1, 0));
        assert_eq!(asked(2, Some(7)).await, (Some(()), 3, 14));
        assert_eq!(asked(5, None).await, (Some(()), 6, 31), "1, 2, 4, 8, 16 s");
        assert_eq!(asked(99, Some(60)).await, (None, 6, 300));
        assert_eq!(asked(99, Some(61)).await, (None, 1, 0), "that is too long");
    }

    #[tokio::test(start_paused = true)]
    async fn another_no_is_final() {
        let asks = Cell::new(0);
        let ask = async || {
            asks.set(asks.get() + 1);
            anyhow::Result::<()>::Err(anyhow::anyhow!("no"))
        };
        assert!(patiently(ask).await.is_err());
        assert_eq!(asks.get(), 1);
    }
}
