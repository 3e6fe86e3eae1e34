//! The one call that opens a socket to a destination.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use async_trait::async_trait;
use tokio::net::TcpStream;

/// Opens sockets. A port, so that tests can watch every connect.
#[async_trait]
pub trait Dial: fmt::Debug + Send + Sync {
    /// Connects to exactly this address. The caller bounds the time.
    async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream>;
}

/// By the host's own sockets.
#[derive(Debug, Clone, Copy, Default)]
pub struct DialDirect;

#[async_trait]
impl Dial for DialDirect {
    async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connect(address).await
    }
}
