//! What `serve` says when it listens: where the pages are, where the data is, and
//! what to type next. To standard output, once, and never to the log: the address of
//! the pages signs in whoever opens it.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use engine::ports::DEFAULT_TENANT;

use crate::config::{Database, StoreConfig};
use crate::pages::Pages;

/// How long the address signs in: a working day.
const SIGNS_IN_FOR: Duration = Duration::from_secs(12 * 3_600);

/// Where the command line looks if nothing else is said.
const USUAL_PORT: u16 = 8_080;

/// Says it. Without a store that answers, the pages have to be signed in to by hand.
pub(crate) async fn say(
    pages: &Pages,
    (scheme, address): (&str, SocketAddr),
    store: &StoreConfig,
) -> anyhow::Result<()> {
    let at = format!("{scheme}://{address}");
    let dashboard = match pages.full_link(DEFAULT_TENANT, SIGNS_IN_FOR).await {
        Ok(path) => format!("{at}{path} (signs you in, for 12 hours)"),
        Err(_away) => format!("{at}/dashboard"),
    };
    let database = match store.place()? {
        Database::Sqlite(file) => {
            let whole = std::path::absolute(&file).unwrap_or(file);
            whole.display().to_string()
        }
        Database::SqliteInMemory => "in memory: it ends with this process".to_owned(),
        Database::Postgres(_) => store.database_url.to_string(),
    };
    let named = match (scheme, address.port()) {
        ("http", USUAL_PORT) => String::new(),
        _ => format!("--url {at} "),
    };
    let mut out = io::stdout().lock();
    write!(
        out,
        "Dashboard: {dashboard}\n\
         Database: {database}\n\
         Next, in another terminal in this folder: paceline destination create {named}\
         https://example.com/webhooks --per-second 5\n"
    )
    .context("say where things are")?;
    out.flush().context("say where things are")
}
