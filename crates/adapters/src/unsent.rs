//! How much of what is written the kernel takes before it has sent it.

use std::io;

use socket2::SockRef;
use tokio::net::TcpStream;

/// What the kernel takes beyond what it has sent, in bytes. Of itself it takes megabytes, and
/// has room for more when a third of them is gone: who waits for room learns late that
/// nothing is read, and what was taken leaves whenever it can.
pub const UNSENT_BYTES: u16 = 16 * 1024;

/// Lets the kernel take no more than [`UNSENT_BYTES`] from this socket.
///
/// # Errors
/// The system cannot.
pub fn take_little(stream: &TcpStream) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_BYTES.into())
    }
    // What was sent and has not come counts as well, which is slower over long ways.
    #[cfg(not(target_os = "linux"))]
    SockRef::from(stream).set_send_buffer_size(UNSENT_BYTES.into())
}
