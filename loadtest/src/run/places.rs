//! Where a Paceline that is started here has its data, and which servers are
//! used for it.

use adapters::shell;
use anyhow::Context as _;
use server::config::{SecretUrl, StoreConfig, THIS_HOST};
use server::edge::Mint;
use server::secret_keys::new_key;
use server::trial::Servers;
use url::Url;

use super::processes::{Watched, listener};
use crate::servers::PrivateServers;

/// A store by its URL, to look at beside those that work on it.
pub(super) fn store(url: SecretUrl) -> StoreConfig {
    StoreConfig {
        database_url: url,
        database_connections: 2,
    }
}

/// What an embedded Paceline over this file needs in its environment.
pub(crate) fn embedded_environment(url: &str) -> anyhow::Result<Vec<(String, String)>> {
    let key = new_key(&Mint::from_system()?);
    let variables = [
        ("PACELINE_DATABASE_URL", url),
        ("PACELINE_SCHEDULE_URL", "in-process"),
        ("PACELINE_QUEUE_URL", "in-process"),
        ("PACELINE_SECRET_KEYS", key.as_str()),
        ("PACELINE_ALLOW_HTTP", "true"),
        ("PACELINE_ALLOW_NETWORKS", THIS_HOST),
        ("PACELINE_LOG", "error"),
        ("PACELINE_SHUTDOWN_GRACE", "3s"),
    ];
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    Ok(variables.into_iter().map(owned).collect())
}

/// Those that tests may use, or private ones.
pub(crate) async fn servers() -> anyhow::Result<(Servers, Option<PrivateServers>)> {
    if let Ok(servers) = Servers::for_tests() {
        return Ok((servers, None));
    }
    let private = PrivateServers::start().await?;
    let counted = match private.url("postgres-superuser") {
        Ok(url) => count_statements(&private, &url).await,
        Err(error) => Err(error),
    };
    match counted.and_then(|()| private.servers()) {
        Ok(servers) => Ok((servers, Some(private))),
        Err(error) => {
            private.remove().await?;
            Err(error)
        }
    }
}

/// Has a private Postgres count its statements, if it has what that takes: in each
/// database that is made from now on, since only a superuser may ask for it.
async fn count_statements(private: &PrivateServers, url: &str) -> anyhow::Result<()> {
    let template = url
        .strip_suffix("/postgres")
        .context("the superuser's database")?;
    let create = "create extension pg_stat_statements";
    if shell::psql(&format!("{template}/template1"), create)
        .await
        .is_err()
    {
        return Ok(());
    }
    let preload = "alter system set shared_preload_libraries = 'pg_stat_statements'";
    shell::psql(url, preload).await?;
    private.restart("postgres").await
}

/// The process behind a URL of this machine.
pub(crate) fn server_at(name: &str, url: &str) -> Option<Watched> {
    let url = Url::parse(url).ok()?;
    let usual = match name {
        "postgres" => 5_432,
        "redis" => 6_379,
        _ => 5_672,
    };
    let here = matches!(url.host_str()?, "127.0.0.1" | "localhost" | "[::1]");
    let process = here.then(|| listener(url.port().unwrap_or(usual)))??;
    Some(Watched::tree(name, process))
}
