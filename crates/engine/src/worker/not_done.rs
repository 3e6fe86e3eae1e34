//! Why a start has no response.

use std::time::Duration;

use crate::ports::SendError;

/// Why there is no response.
pub(super) enum NotDone {
    /// Too late to be sent.
    Late(Duration),
    /// Sending failed.
    Send(SendError),
}
