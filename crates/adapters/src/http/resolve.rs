//! From a host to the addresses that may be connected to: the one place where
//! they are chosen. What is connected to afterwards is exactly one of them,
//! and the name is not resolved a second time.
//!
//! No address is refused yet: vetting belongs here and nowhere else.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use engine::ports::SendError;
use tokio::net::lookup_host;
use tokio::time::timeout;
use url::Host;

use super::endpoint::Origin;

/// How long a name server may take.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(2);

/// How many addresses of one name are tried: a name with a thousand addresses
/// must not cost a thousand connects.
const MAX_ADDRESSES: usize = 4;

/// Chooses addresses by the host's own resolver.
#[derive(Debug, Clone, Copy)]
pub(super) struct Resolver;

impl Resolver {
    /// The addresses to try, in order; at least one.
    pub(super) async fn choose(&self, origin: &Origin) -> Result<Vec<SocketAddr>, SendError> {
        let name = match &origin.host {
            Host::Ipv4(address) => return Ok(vec![(IpAddr::from(*address), origin.port).into()]),
            Host::Ipv6(address) => return Ok(vec![(IpAddr::from(*address), origin.port).into()]),
            Host::Domain(name) => name.as_str(),
        };
        let found = timeout(RESOLVE_TIMEOUT, lookup_host((name, origin.port)))
            .await
            .map_err(|_elapsed| failed(&format!("no answer within {RESOLVE_TIMEOUT:?}")))?
            .map_err(|error| failed(&error.to_string()))?;
        let addresses: Vec<_> = found.take(MAX_ADDRESSES).collect();
        if addresses.is_empty() {
            return Err(failed("the name has no address"));
        }
        Ok(addresses)
    }
}

fn failed(why: &str) -> SendError {
    SendError::Connect(format!("dns: {why}"))
}
