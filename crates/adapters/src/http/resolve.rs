//! From a host to the addresses that may be connected to: the one place where
//! they are chosen. What is connected to afterwards is exactly one of them,
//! and the name is not resolved a second time.
//!
//! No address is refused yet: vetting belongs here and nowhere else.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use engine::ports::SendError;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use url::Host;

use super::endpoint::Origin;

/// How long a name server may take.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(2);

/// How many addresses of one name are tried: a name with a thousand addresses
/// must not cost a thousand connects.
const MAX_ADDRESSES: usize = 4;

/// How many lookups run at a time. Each holds a thread of the runtime until the
/// host's resolver gives up, long after we have: names that do not resolve must
/// not use up the threads that others need.
const MAX_LOOKUPS: usize = 32;

/// Chooses addresses by the host's own resolver.
pub(super) struct Resolver {
    lookups: Arc<Semaphore>,
}

impl Resolver {
    pub(super) fn new() -> Self {
        Self {
            lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)),
        }
    }

    /// The addresses to try, in order; at least one.
    pub(super) async fn choose(&self, origin: &Origin) -> Result<Vec<SocketAddr>, SendError> {
        let name = match &origin.host {
            Host::Ipv4(address) => return Ok(vec![(IpAddr::from(*address), origin.port).into()]),
            Host::Ipv6(address) => return Ok(vec![(IpAddr::from(*address), origin.port).into()]),
            Host::Domain(name) => name.clone(),
        };
        let addresses = timeout(RESOLVE_TIMEOUT, self.look_up(name, origin.port))
            .await
            .map_err(|_elapsed| failed(&format!("no answer within {RESOLVE_TIMEOUT:?}")))?
            .map_err(|error| failed(&error.to_string()))?;
        if addresses.is_empty() {
            return Err(failed("the name has no address"));
        }
        Ok(addresses)
    }

    async fn look_up(&self, name: String, port: u16) -> io::Result<Vec<SocketAddr>> {
        let permit = Arc::clone(&self.lookups).acquire_owned().await;
        let lookup = spawn_blocking(move || {
            let found = (name.as_str(), port).to_socket_addrs();
            drop(permit); // by the lookup itself, which nobody may wait for any more
            Ok(found?.take(MAX_ADDRESSES).collect())
        });
        lookup.await.map_err(io::Error::other)?
    }
}

fn failed(why: &str) -> SendError {
    SendError::Connect(format!("dns: {why}"))
}
