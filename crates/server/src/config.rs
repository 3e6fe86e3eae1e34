//! Configuration: one struct per concern, every field a flag and a variable.
//!
//! A role flattens the concerns it has, so that its `--help` lists what it
//! obeys and nothing else. Secrets never reach `Debug`, `--help` or an error:
//! URLs are taken as they are ([`SecretUrl`]) and understood afterwards, since
//! clap repeats a value that it refuses.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::time::Duration;

use adapters::http::{AllowedNetwork, EgressProxy, Nat64Prefix, NotAProxy, Policy, USUAL_PORTS};
use adapters::rabbitmq::QueueKind;
use clap::builder::BoolishValueParser;
use clap::{ArgAction, Args, ValueEnum};
use domain::backpressure::BacklogBounds;
use domain::handshake::Origin;
use domain::ingest_limit::IngestLimit;
use domain::signature::HeaderPrefix;
use engine::ports::MAX_REQUEST_TIMEOUT;
use secrecy::SecretString;

use crate::listening::Bounds;
use crate::service::rate::ManageRates;

pub mod keep;
pub mod notices;
pub mod operator;
pub mod places;
pub mod portal;
pub mod public_url;
pub mod secret_url;
pub mod shard;
pub mod shown;
pub mod traces;
pub mod unknown;

pub use keep::KeepConfig;
pub use notices::{LinksConfig, MailConfig};
pub use operator::OperatorConfig;
pub use places::{Database, QueuePlace, SchedulePlace, require_shared};
pub use portal::PortalConfig;
pub use public_url::PublicUrl;
pub use secret_url::SecretUrl;
pub use shard::{RouterConfig, ShardAddress, ShardConfig};
pub use shown::ShownConfig;
pub use traces::TracesConfig;

/// A flag or variable that cannot be obeyed, by both its names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {problem}")]
pub struct ConfigError {
    /// Such as `--listen (PACELINE_LISTEN)`.
    pub name: String,
    /// What is wrong, and what to set.
    pub problem: String,
}

impl ConfigError {
    /// A problem with the flag `--flag`, whose variable is `PACELINE_FLAG`.
    #[must_use]
    pub fn flag(flag: &str, problem: impl Into<String>) -> Self {
        let variable = flag.to_uppercase().replace('-', "_");
        Self {
            name: format!("--{flag} (PACELINE_{variable})"),
            problem: problem.into(),
        }
    }
}

/// Where the truth lives.
#[derive(Debug, Clone, Args)]
pub struct StoreConfig {
    /// The store: `sqlite:FILE` (one process) or `postgres://…`.
    #[arg(long, env = "PACELINE_DATABASE_URL", value_name = "URL")]
    #[arg(default_value = "sqlite:paceline.db", hide_env_values = true)]
    pub database_url: SecretUrl,

    /// The most connections that this process opens to Postgres; where it serves
    /// the API, three of eight for what people read.
    #[arg(long, env = "PACELINE_DATABASE_CONNECTIONS", value_name = "N")]
    #[arg(default_value_t = 16, value_parser = clap::value_parser!(u32).range(2..=500))]
    pub database_connections: u32,
}

/// Of the connections of a process that serves the API, so many of how many are for
/// what people read: two parts of reads and one of reports.
const FOR_READING: [u32; 2] = [3, 8];

impl StoreConfig {
    /// The same store twice, for a process that serves the API: what it lives by,
    /// and what people read.
    #[must_use]
    pub fn divided(&self) -> [Self; 2] {
        let [part, of] = FOR_READING;
        let for_reading = (self.database_connections * part / of).max(1);
        let rest = self.database_connections.saturating_sub(for_reading).max(1);
        [rest, for_reading].map(|database_connections| Self {
            database_connections,
            ..self.clone()
        })
    }
}

/// Where the jobs live.
#[derive(Debug, Clone, Args)]
pub struct ScheduleConfig {
    /// The schedule: `in-process` or `redis://…` (`rediss://…` over TLS).
    #[arg(long, env = "PACELINE_SCHEDULE_URL", value_name = "URL")]
    #[arg(default_value = "in-process", hide_env_values = true)]
    pub schedule_url: SecretUrl,

    /// What the schedule's Redis keys begin with.
    #[arg(long, env = "PACELINE_SCHEDULE_PREFIX", value_name = "TEXT")]
    #[arg(default_value = "paceline")]
    pub schedule_prefix: String,

    /// Over how many slots of a Redis Cluster the jobs are spread; the same in
    /// every process.
    #[arg(long, env = "PACELINE_SCHEDULE_SHARDS", value_name = "N")]
    #[arg(default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub schedule_shards: u16,
}

/// What carries permits.
#[derive(Debug, Clone, Args)]
pub struct QueueConfig {
    /// The delivery queue: `in-process` or `amqp://…` (`amqps://…` over TLS).
    #[arg(long, env = "PACELINE_QUEUE_URL", value_name = "URL")]
    #[arg(default_value = "in-process", hide_env_values = true)]
    pub queue_url: SecretUrl,

    /// The name of the delivery queue; the same in every process.
    #[arg(long, env = "PACELINE_QUEUE_NAME", value_name = "NAME")]
    #[arg(default_value = "paceline.deliveries")]
    pub queue_name: String,

    /// Over how many queues permits are spread; the same in every process.
    #[arg(long, env = "PACELINE_QUEUE_SHARDS", value_name = "N")]
    #[arg(default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub queue_shards: u16,

    /// How RabbitMQ keeps the queues; the same in every process.
    #[arg(long, env = "PACELINE_QUEUE_TYPE", value_enum, value_name = "TYPE")]
    #[arg(default_value_t = QueueType::Quorum)]
    pub queue_type: QueueType,
}

/// How RabbitMQ keeps the delivery queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum QueueType {
    /// On several nodes and on their disks.
    #[default]
    Quorum,
    /// In the memory of one node, which costs less. Permits that are lost with
    /// it are given out again two seconds later.
    Classic,
}

impl From<QueueType> for QueueKind {
    fn from(queue_type: QueueType) -> Self {
        match queue_type {
            QueueType::Quorum => Self::Quorum,
            QueueType::Classic => Self::Classic,
        }
    }
}

/// An address to listen on, as people write it. A name is nothing to listen on, but
/// for that of this host.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let here = |port: &str| Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse().ok()?)));
    let port = text.strip_prefix("localhost:").unwrap_or(text);
    (text.parse().ok())
        .or_else(|| here(port))
        .ok_or_else(|| "expected ADDRESS:PORT or a port, such as 127.0.0.1:8080 or 8080".to_owned())
}

/// A duration with its unit.
pub fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| match text.parse::<f64>() {
        Ok(_) => format!("needs a unit: {text}s, {text}m or {text}h"),
        Err(_) => error.to_string(),
    })
}

/// What this process serves: the API where the role has one, else only
/// `/livez`, `/readyz` and `/metrics`.
#[derive(Debug, Clone, Args)]
pub struct ListenConfig {
    /// The address to listen on; a port alone is one of 127.0.0.1.
    #[arg(long, env = "PACELINE_LISTEN", value_name = "ADDRESS:PORT")]
    #[arg(default_value = "127.0.0.1:8080", value_parser = address)]
    pub listen: SocketAddr,

    /// A second address, for those who run this alone: `/metrics` is then served
    /// there and not on the first one, beside `/livez` and `/readyz`.
    #[arg(long, env = "PACELINE_METRICS_LISTEN", value_name = "ADDRESS:PORT")]
    #[arg(value_parser = address)]
    pub metrics_listen: Option<SocketAddr>,

    /// How many connections there may be at each address that is listened on.
    #[arg(long, env = "PACELINE_MAX_CONNECTIONS", value_name = "N")]
    #[arg(default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_connections: u32,

    /// And from one address, or one /64 of IPv6; all that comes through a proxy
    /// is from the proxy's.
    #[arg(long, env = "PACELINE_MAX_CONNECTIONS_PER_ADDRESS", value_name = "N")]
    #[arg(default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_connections_per_address: u32,
}

impl ListenConfig {
    /// What connections may take.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        Bounds {
            connections: self.max_connections as usize,
            from_one_address: self.max_connections_per_address as usize,
            ..Bounds::default()
        }
    }
}

/// TLS at the API's address, where no proxy does it.
#[derive(Debug, Clone, Default, Args)]
pub struct TlsConfig {
    /// The API speaks TLS with this certificate: PEM, this server's own first,
    /// then its authorities'. Read again on SIGHUP and when it changes.
    #[arg(long, env = "PACELINE_TLS_CERT", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,

    /// The private key of the certificate, in PEM.
    #[arg(long, env = "PACELINE_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
}

/// Who may call the API.
#[derive(Debug, Clone, Args)]
pub struct ApiConfig {
    /// The key that clients send as `Authorization: Bearer KEY`. `serve`
    /// without one, on a loopback address, makes one and prints it.
    #[arg(
        long,
        env = "PACELINE_API_KEY",
        value_name = "KEY",
        hide_env_values = true
    )]
    pub api_key: Option<SecretString>,

    #[command(flatten)]
    pub manage: ManageConfig,
}

/// How much is created, changed and deleted.
#[derive(Debug, Clone, Copy, Args)]
pub struct ManageConfig {
    /// How many management calls a second the default tenant may make at this
    /// process, and how many at once: what creates, changes or deletes.
    #[arg(long, env = "PACELINE_MANAGE_PER_SECOND", value_name = "N")]
    #[arg(default_value_t = MANAGE_PER_SECOND)]
    pub manage_per_second: NonZeroU32,

    /// The same of each other tenant; no more than the default tenant.
    #[arg(long, env = "PACELINE_TENANT_MANAGE_PER_SECOND", value_name = "N")]
    #[arg(default_value_t = TENANT_MANAGE_PER_SECOND)]
    pub tenant_manage_per_second: NonZeroU32,
}

/// Far more than people and programs that provision do, and few enough that the
/// history of limits grows by no more than a few gigabytes a day.
pub const MANAGE_PER_SECOND: NonZeroU32 = NonZeroU32::MIN.saturating_add(99);

/// More than a customer's people and programs do. One who changed limits 100 times a second,
/// beside his pages, made the posts of others twice as slow.
const TENANT_MANAGE_PER_SECOND: NonZeroU32 = NonZeroU32::MIN.saturating_add(19);

impl Default for ManageConfig {
    fn default() -> Self {
        Self {
            manage_per_second: MANAGE_PER_SECOND,
            tenant_manage_per_second: TENANT_MANAGE_PER_SECOND,
        }
    }
}

impl ManageConfig {
    /// What is counted by it.
    #[must_use]
    pub fn rates(&self) -> ManageRates {
        let all = self.manage_per_second;
        ManageRates::new(all).of_others(self.tenant_manage_per_second.min(all))
    }
}

/// How much is taken in. Tenants and tiers can have an `ingest_per_second` of
/// their own.
#[derive(Debug, Clone, Copy, Args)]
pub struct IngestConfig {
    /// How many events a second the default tenant may hand in at this process, and
    /// how many at once.
    #[arg(long, env = "PACELINE_INGEST_PER_SECOND", value_name = "N")]
    #[arg(default_value_t = IngestLimit::default().0)]
    pub ingest_per_second: NonZeroU32,

    /// The same of each other tenant, if neither it nor its tier has an
    /// `ingest_per_second`; no more than the default tenant.
    #[arg(long, env = "PACELINE_TENANT_INGEST_PER_SECOND", value_name = "N")]
    #[arg(default_value_t = IngestLimit::of_a_tenant().0)]
    pub tenant_ingest_per_second: NonZeroU32,

    /// How many attempts of one destination may be pending: above 80 % of it
    /// events are refused until below 50 %. The same in every process.
    #[arg(long, env = "PACELINE_MAX_DESTINATION_BACKLOG", value_name = "N")]
    #[arg(default_value_t = BacklogBounds::default().destination)]
    pub max_destination_backlog: NonZeroU64,

    /// The same of all destinations of one tenant.
    #[arg(long, env = "PACELINE_MAX_TENANT_BACKLOG", value_name = "N")]
    #[arg(default_value_t = BacklogBounds::default().tenant)]
    pub max_tenant_backlog: NonZeroU64,

    /// The same of all destinations.
    #[arg(long, env = "PACELINE_MAX_BACKLOG", value_name = "N")]
    #[arg(default_value_t = BacklogBounds::default().all)]
    pub max_backlog: NonZeroU64,
}

impl IngestConfig {
    /// The bounds of backlogs.
    #[must_use]
    pub fn bounds(&self) -> BacklogBounds {
        let set = BacklogBounds {
            destination: self.max_destination_backlog,
            tenant: self.max_tenant_backlog,
            all: self.max_backlog,
        };
        set.nested()
    }
}

/// What destinations' secrets are sealed under. The same keys in every process
/// that serves the API or delivers.
#[derive(Debug, Clone, Default, Args)]
pub struct SecretKeysConfig {
    /// Keys as ID:KEY, separated by commas; the first seals, the others open
    /// what was sealed under them. One process with an SQLite file makes one.
    #[arg(
        long,
        env = "PACELINE_SECRET_KEYS",
        value_name = "KEYS",
        hide_env_values = true
    )]
    pub secret_keys: Option<SecretString>,

    /// A file of such keys, one a line.
    #[arg(long, env = "PACELINE_SECRET_KEYS_FILE", value_name = "FILE")]
    pub secret_keys_file: Option<PathBuf>,
}

/// Where requests may go.
#[derive(Debug, Clone, Args)]
pub struct TargetConfig {
    /// Allow destinations with `http://` URLs, for tests and closed networks.
    #[arg(long, env = "PACELINE_ALLOW_HTTP", value_name = "BOOL", action = ArgAction::Set)]
    #[arg(default_value = "false", default_missing_value = "true", num_args = 0..=1)]
    #[arg(value_parser = BoolishValueParser::new())]
    pub allow_http: bool,

    /// Networks to open although they are not public, such as
    /// `10.0.0.0/8,192.168.1.20:8123,[fd12::/48]:8000-8999`; `private` and
    /// `localhost` are words for the usual ones, and `:*` opens every port.
    #[arg(long, env = "PACELINE_ALLOW_NETWORKS", value_name = "NETWORK[:PORTS]")]
    #[arg(value_delimiter = ',')]
    pub allow_networks: Vec<AllowedNetwork>,

    /// The prefixes of NAT64 in this network, such as `64:ff9b:1::/96`: what stands behind
    /// one is as open as the IPv4 address that it leads to.
    #[arg(long, env = "PACELINE_NAT64_PREFIXES", value_name = "PREFIX")]
    #[arg(value_delimiter = ',')]
    pub nat64_prefixes: Vec<Nat64Prefix>,

    /// The ports that requests may go to, but for networks with ports of their
    /// own.
    #[arg(long, env = "PACELINE_ALLOW_PORTS", value_name = "PORT")]
    #[arg(value_delimiter = ',', default_value = "443,80,8443,8080")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    pub allow_ports: Vec<u16>,

    /// The proxy that all requests to destinations go through: `http://proxy:3128`
    /// (CONNECT) or `socks5://user:password@proxy:1080`. It is told addresses and no names,
    /// and those that may be.
    #[arg(
        long,
        env = "PACELINE_EGRESS_PROXY",
        value_name = "URL",
        hide_env_values = true
    )]
    pub egress_proxy: Option<SecretUrl>,

    /// Offer HTTP/2 to receivers, over TLS. One lost packet delays all requests that share
    /// a connection, and they may arrive together.
    #[arg(long, env = "PACELINE_HTTP2", value_name = "BOOL", action = ArgAction::Set)]
    #[arg(default_value = "off", default_missing_value = "on", num_args = 0..=1)]
    #[arg(value_parser = BoolishValueParser::new())]
    pub http2: bool,

    /// The DNS name by which receivers are asked whether they want to be sent anything,
    /// and that their requests name then. By default the host of `--public-url`, where
    /// that is set.
    #[arg(long, env = "PACELINE_HANDSHAKE_ORIGIN", value_name = "NAME")]
    pub handshake_origin: Option<Origin>,

    #[command(flatten)]
    pub signature: SignatureConfig,
}

/// What receivers find signatures by.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct SignatureConfig {
    /// What the three headers of a signature begin with: `webhook-`, or `svix-` for
    /// receivers that look for those of Svix; the same in every process.
    #[arg(long, env = "PACELINE_SIGNATURE_PREFIX", value_name = "PREFIX")]
    #[arg(default_value_t)]
    pub signature_prefix: HeaderPrefix,
}

impl TargetConfig {
    /// The proxy, if there is one.
    pub fn proxy(&self) -> Result<Option<EgressProxy>, ConfigError> {
        let parsed = self.egress_proxy.as_ref().map(|url| url.expose().parse());
        parsed
            .transpose()
            .map_err(|problem: NotAProxy| ConfigError::flag("egress-proxy", problem.to_string()))
    }

    /// Receivers are asked as the host of this address, unless it is set who asks.
    #[must_use]
    pub fn asking_as(self, public_url: Option<&PublicUrl>) -> Self {
        let host = || public_url?.host()?.parse().ok();
        Self {
            handshake_origin: self.handshake_origin.or_else(host),
            ..self
        }
    }

    /// The rules that the API and the sender go by.
    #[must_use]
    pub fn policy(&self) -> Policy {
        Policy {
            allow_http: self.allow_http,
            ports: self.allow_ports.clone(),
            networks: self.allow_networks.clone(),
            nat64: self.nat64_prefixes.clone(),
        }
    }

    /// For a trial, whose receivers are all on this host.
    #[must_use]
    pub fn this_host() -> Self {
        Self {
            allow_http: true,
            allow_networks: THIS_HOST.parse().into_iter().collect(),
            ..Self::default()
        }
    }
}

/// The value of `PACELINE_ALLOW_NETWORKS` for a trial's processes.
pub const THIS_HOST: &str = "localhost:*";

/// For a role that sends nothing, and for tests.
impl Default for TargetConfig {
    fn default() -> Self {
        Self {
            allow_http: false,
            allow_networks: Vec::new(),
            nat64_prefixes: Vec::new(),
            allow_ports: USUAL_PORTS.to_vec(),
            egress_proxy: None,
            http2: false,
            handshake_origin: None,
            signature: SignatureConfig::default(),
        }
    }
}

/// How much a worker sends at once.
#[derive(Debug, Clone, Copy, Args)]
pub struct WorkerConfig {
    /// How many requests this process has in flight at once.
    #[arg(long, env = "PACELINE_WORKER_PLACES", value_name = "N")]
    #[arg(default_value_t = 2_048, value_parser = clap::value_parser!(u32).range(16..=65_536))]
    pub worker_places: u32,
}

/// How long a request may take: workers give it up then, and ten seconds later
/// a start without an outcome is taken for lost.
#[derive(Debug, Clone, Copy, Args)]
pub struct RequestConfig {
    /// How long a connection may take, and then one request to the last byte, at most
    /// 30s; the same in every process.
    #[arg(long, env = "PACELINE_REQUEST_TIMEOUT", value_name = "DURATION")]
    #[arg(default_value = "15s", value_parser = request_duration)]
    pub request_timeout: Duration,
}

/// For a role that neither sends nor reaps.
impl Default for RequestConfig {
    fn default() -> Self {
        Self {
            request_timeout: Duration::from_secs(15),
        }
    }
}

/// How a process ends.
#[derive(Debug, Clone, Copy, Args)]
pub struct ShutdownConfig {
    /// How long what has begun may take to end after SIGTERM or SIGINT. A
    /// second signal ends the process at once.
    #[arg(long, env = "PACELINE_SHUTDOWN_GRACE", value_name = "DURATION")]
    #[arg(default_value = "25s", value_parser = positive_duration)]
    pub shutdown_grace: Duration,
}

/// What is logged where nothing else is said.
pub const DEFAULT_LOG: &str = "info";

/// What is logged, and how; to standard error.
#[derive(Debug, Clone, Args)]
pub struct LogConfig {
    /// What to log, such as `info` or `warn,engine=debug`; of other people's
    /// code never more than `info`, since it does not know what is secret.
    #[arg(long, env = "PACELINE_LOG", value_name = "FILTER", global = true)]
    #[arg(default_value = DEFAULT_LOG)]
    pub log: String,

    /// How to log; `auto` is text on a terminal and JSON elsewhere.
    #[arg(
        long,
        env = "PACELINE_LOG_FORMAT",
        value_name = "FORMAT",
        global = true
    )]
    #[arg(value_enum, default_value_t = LogFormat::Auto)]
    pub log_format: LogFormat,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Auto,
    Text,
    Json,
}

/// The longest duration that a setting may be: beyond it, it is a typing
/// error.
const MAX_DURATION: Duration = Duration::from_secs(3_600);

fn request_duration(text: &str) -> Result<Duration, String> {
    let duration = positive_duration(text)?;
    if duration > MAX_REQUEST_TIMEOUT {
        return Err("must be at most 30s".to_owned());
    }
    Ok(duration)
}

pub(crate) fn positive_duration(text: &str) -> Result<Duration, String> {
    let duration = duration(text)?;
    if duration.is_zero() || duration > MAX_DURATION {
        return Err("must be more than 0 and at most 1h".to_owned());
    }
    Ok(duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_to_listen_on_is_taken_as_people_write_it() {
        for (text, address) in [
            ("8080", "127.0.0.1:8080"),
            ("localhost:8080", "127.0.0.1:8080"),
            ("0.0.0.0:0", "0.0.0.0:0"),
            ("[::1]:8080", "[::1]:8080"),
        ] {
            assert_eq!(super::address(text).unwrap().to_string(), address);
        }
        for wrong in ["", "example.com:8080", "localhost", "99999", ":8080"] {
            assert_eq!(
                super::address(wrong).unwrap_err(),
                "expected ADDRESS:PORT or a port, such as 127.0.0.1:8080 or 8080",
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_number_alone_is_no_duration() {
        assert_eq!(duration("15s").unwrap(), Duration::from_secs(15));
        assert_eq!(duration("15").unwrap_err(), "needs a unit: 15s, 15m or 15h");
        assert!(
            request_duration("15")
                .unwrap_err()
                .starts_with("needs a unit")
        );
    }
}
