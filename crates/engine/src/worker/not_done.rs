//! Why a start has no response.

use crate::ports::SendError;

/// Why there is no response.
pub(super) enum NotDone {
    /// It did not leave, and why.
    NotSent(String),
    /// Its receiver says that it has not looked at it, and whether it may arrive yet.
    Unread {
        /// In whose words.
        why: String,
        may_arrive: bool,
    },
    /// Sending failed.
    Send(SendError),
}

impl From<SendError> for NotDone {
    fn from(error: SendError) -> Self {
        match error {
            SendError::NotSent(why) => Self::NotSent(why),
            SendError::Unread { why, may_arrive } => Self::Unread { why, may_arrive },
            error => Self::Send(error),
        }
    }
}
