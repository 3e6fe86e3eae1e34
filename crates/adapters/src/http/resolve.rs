//! From a host to the addresses that may be connected to. What is connected to
//! afterwards is exactly one of them, and the name is not resolved a second
//! time: a name server that gives another answer next time gains nothing.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use engine::ports::SendError;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::Name;
use hickory_resolver::system_conf::read_system_conf;
use tokio::time::timeout;
use url::Host;

use super::endpoint::Origin;
use super::policy::{Policy, Vetted};

/// For all that is asked about one name.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(2);

/// For one answer; then the next name server is asked, or the same again.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(900);

/// How long an answer is kept at most, whatever its TTL says: a receiver that
/// moves is followed within a minute.
const MAX_TTL: Duration = Duration::from_secs(60);

/// How long "no such name" is kept at most: names that have just been made are
/// tried first when they are not known everywhere yet.
const MAX_NEGATIVE_TTL: Duration = Duration::from_secs(5);

/// Answers kept, of all names together.
const CACHED_ANSWERS: u64 = 8_192;

/// How many addresses of one name are tried: a name with a thousand addresses
/// must not cost a thousand connects. All of them are vetted.
const MAX_ADDRESSES: usize = 4;

/// Asks the host's name servers itself: a name that does not resolve holds no
/// thread, and delays nobody else.
pub(super) struct Resolver {
    /// Or why there is none on this host.
    resolver: Result<TokioResolver, String>,
}

impl Resolver {
    /// Asks these name servers; if there are none, those of the host.
    pub(super) fn new(name_servers: &[SocketAddr]) -> Self {
        Self {
            resolver: build(name_servers).map_err(|error| error.to_string()),
        }
    }

    /// The addresses to try, in order; at least one.
    pub(super) async fn choose(
        &self,
        origin: &Origin,
        policy: &Policy,
    ) -> Result<Vec<Vetted>, SendError> {
        let name = match &origin.host {
            Host::Ipv4(address) => return vetted(origin, [IpAddr::from(*address)], policy),
            Host::Ipv6(address) => return vetted(origin, [IpAddr::from(*address)], policy),
            Host::Domain(name) => name,
        };
        let found = timeout(RESOLVE_TIMEOUT, self.look_up(name))
            .await
            .map_err(|_elapsed| failed(&format!("no answer within {RESOLVE_TIMEOUT:?}")))??;
        let mut addresses = vetted(origin, found, policy)?;
        if addresses.is_empty() {
            return Err(failed("the name has no address"));
        }
        addresses.truncate(MAX_ADDRESSES);
        Ok(addresses)
    }

    async fn look_up(&self, name: &str) -> Result<Vec<IpAddr>, SendError> {
        let resolver = self.resolver.as_ref().map_err(|why| failed(why))?;
        let mut name = Name::from_ascii(name).map_err(|error| failed(&error.to_string()))?;
        // Never with a search domain behind it: `metrics` is nobody's webhook
        // receiver, and `metrics.prod.example` is not what was written.
        name.set_fqdn(true);
        match resolver.lookup_ip(name).await {
            Ok(found) => Ok(found.iter().collect()),
            Err(error) => Err(failed(&in_words(&error))),
        }
    }
}

/// The log says what would open what is refused; those at the destination are not
/// told.
fn vetted(
    origin: &Origin,
    found: impl IntoIterator<Item = IpAddr>,
    policy: &Policy,
) -> Result<Vec<Vetted>, SendError> {
    policy.vet_all(found, origin.port).map_err(|refusal| {
        let opened_by = policy.opened_by(&origin.host.to_string(), origin.port, refusal);
        tracing::debug!(%refusal, opened_by, "a request was refused");
        refusal.into()
    })
}

fn build(name_servers: &[SocketAddr]) -> Result<TokioResolver, NetError> {
    let name_servers = if name_servers.is_empty() {
        read_system_conf()?.0.name_servers().to_vec()
    } else {
        name_servers.iter().copied().map(name_server).collect()
    };
    let config = ResolverConfig::from_parts(None, Vec::new(), name_servers);
    let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    set(builder.options_mut());
    builder.build()
}

fn set(options: &mut ResolverOpts) {
    options.timeout = ANSWER_TIMEOUT;
    options.attempts = 1; // after the first one
    // Both, so that both are vetted.
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    options.cache_size = CACHED_ANSWERS;
    options.positive_max_ttl = Some(MAX_TTL);
    options.negative_max_ttl = Some(MAX_NEGATIVE_TTL);
}

fn name_server(address: SocketAddr) -> NameServerConfig {
    let mut server = NameServerConfig::udp_and_tcp(address.ip());
    let at = |connection: &mut ConnectionConfig| connection.port = address.port();
    server.connections.iter_mut().for_each(at);
    server
}

/// hickory's own words carry the name and the server; these are for people at
/// the destination.
fn in_words(error: &NetError) -> String {
    if error.is_nx_domain() {
        "there is no such name".to_owned()
    } else if error.is_no_records_found() {
        "the name has no address".to_owned()
    } else {
        "the name servers do not answer".to_owned()
    }
}

fn failed(why: &str) -> SendError {
    SendError::Connect(format!("dns: {why}"))
}
