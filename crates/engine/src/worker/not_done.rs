//! Why a start has no response.

use crate::ports::SendError;

/// Why there is no response.
pub(super) enum NotDone {
    /// It did not leave, or its receiver has not looked at it; and why.
    NotSent(String),
    /// Sending failed.
    Send(SendError),
}

impl From<SendError> for NotDone {
    fn from(error: SendError) -> Self {
        match error {
            SendError::NotSent(why) => Self::NotSent(why),
            error => Self::Send(error),
        }
    }
}
