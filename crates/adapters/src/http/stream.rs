//! What a connection reads from and writes to.

use tokio::io::{AsyncRead, AsyncWrite};

/// TCP or TLS.
pub(super) type Stream = Box<dyn Transport>;

pub(super) trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}
