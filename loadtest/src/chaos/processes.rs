//! The processes of Paceline, each in a slot with proxies of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::diary::Diary;
use super::fault::{Server, Slot};
use super::keeper::{Keeper, Order};
use super::proxy::Proxy;
use super::servers::PrivateServers;

/// Orders that wait for a slot which is frozen or drains.
const MAX_ORDERS: usize = 64;

/// One slot, as the storm sees it.
pub(crate) struct Place {
    pub(crate) slot: Slot,
    /// To each server.
    pub(crate) links: Vec<(Server, Proxy)>,
    /// From the client, for an API.
    pub(crate) front: Option<Proxy>,
    orders: mpsc::Sender<Order>,
}

impl Place {
    /// Hands it an order; dropped if too many wait.
    pub(crate) fn order(&self, order: Order) -> anyhow::Result<()> {
        self.orders
            .try_send(order)
            .context("the slot has too much to do")
    }
}

/// All slots, and the tasks that keep them.
pub(crate) struct Processes {
    pub(crate) places: Vec<Place>,
    keepers: JoinSet<anyhow::Result<()>>,
    stop: CancellationToken,
}

impl Processes {
    /// Starts them all; `logs` is where they write.
    pub(crate) async fn start(
        program: &std::path::Path,
        logs: &std::path::Path,
        servers: &PrivateServers,
        secret_key: &str,
        diary: &Arc<Diary>,
    ) -> anyhow::Result<Self> {
        let (mut places, mut keepers) = (Vec::new(), JoinSet::new());
        let stop = CancellationToken::new();
        for slot in Slot::ALL {
            let listen = match slot.role {
                "api" => free_address().await?,
                // Nobody asks it anything.
                _ => SocketAddr::from(([127, 0, 0, 1], 0)),
            };
            let mut links = Vec::new();
            for server in Server::ALL {
                links.push((server, Proxy::start(servers.address(server)?).await?));
            }
            let front = match slot.role {
                "api" => Some(Proxy::start(listen).await?),
                _ => None,
            };
            let (orders, receiver) = mpsc::channel(MAX_ORDERS);
            let keeper = Keeper {
                slot,
                program: program.to_owned(),
                logs: logs.to_owned(),
                environment: environment(servers, secret_key, &links, listen)?,
                diary: Arc::clone(diary),
            };
            keepers.spawn(keeper.run(receiver, stop.clone()));
            places.push(Place {
                slot,
                links,
                front,
                orders,
            });
        }
        Ok(Self {
            places,
            keepers,
            stop,
        })
    }

    pub(crate) fn place(&self, slot: Slot) -> anyhow::Result<&Place> {
        let mut places = self.places.iter();
        places
            .find(|place| place.slot == slot)
            .with_context(|| format!("no slot {slot}"))
    }

    /// Where clients reach the API.
    pub(crate) fn apis(&self) -> Vec<SocketAddr> {
        let fronts = self.places.iter().filter_map(|place| place.front.as_ref());
        fronts.map(Proxy::address).collect()
    }

    /// Lets all of them drain, and waits.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        self.stop.cancel();
        while let Some(kept) = self.keepers.join_next().await {
            kept.context("a keeper broke")??;
        }
        Ok(())
    }
}

/// Below the ports that connections go out from: one of those could take the
/// port of a process that was killed before the next one listens. The first,
/// and how many.
const PORTS: (u16, u16) = (12_000, 20_000);

/// An address that was free a moment ago.
async fn free_address() -> anyhow::Result<SocketAddr> {
    // Two runs at a time begin at different places.
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    let first = u16::try_from(std::process::id() % u32::from(PORTS.1))?;
    for _ in 0..PORTS.1 {
        let offset = (first + TAKEN.fetch_add(1, Ordering::Relaxed)) % PORTS.1;
        let port = PORTS.0 + offset;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if TcpListener::bind(address).await.is_ok() {
            return Ok(address);
        }
    }
    anyhow::bail!("no port is free")
}

fn environment(
    servers: &PrivateServers,
    secret_key: &str,
    links: &[(Server, Proxy)],
    listen: SocketAddr,
) -> anyhow::Result<Vec<(String, String)>> {
    let mut variables = vec![
        ("PACELINE_LISTEN", listen.to_string()),
        ("PACELINE_API_KEY", super::client::KEY.to_owned()),
        ("PACELINE_SECRET_KEYS", secret_key.to_owned()),
        ("PACELINE_ALLOW_HTTP", "true".to_owned()),
        ("PACELINE_ALLOW_NETWORKS", "localhost:*".to_owned()),
        ("PACELINE_LOG", "warn".to_owned()),
        ("PACELINE_LOG_FORMAT", "text".to_owned()),
        // One that cannot reach a server as it starts says so in one line.
        ("RUST_BACKTRACE", "0".to_owned()),
        ("PACELINE_SHUTDOWN_GRACE", "10s".to_owned()),
        ("PACELINE_REQUEST_TIMEOUT", "6s".to_owned()),
        ("PACELINE_DATABASE_CONNECTIONS", "10".to_owned()),
        ("PACELINE_WORKER_PLACES", "512".to_owned()),
    ];
    for (server, proxy) in links {
        let mut url = Url::parse(&servers.url(*server)?).context("a server's URL")?;
        if url.set_port(Some(proxy.address().port())).is_err() {
            anyhow::bail!("{} cannot be reached through a proxy", server.as_str());
        }
        let variable = match server {
            Server::Postgres => "PACELINE_DATABASE_URL",
            Server::Redis => "PACELINE_SCHEDULE_URL",
            Server::Rabbitmq => "PACELINE_QUEUE_URL",
        };
        variables.push((variable, url.into()));
    }
    Ok((variables.into_iter())
        .map(|(name, value)| (name.to_owned(), value))
        .collect())
}
