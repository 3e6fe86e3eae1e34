//! What `serve` says when it listens: where the pages are, where the data is, and
//! what to type next. To standard output, once, and never to the log: the address of
//! the pages signs in whoever opens it first.

use std::env;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use crate::config::{Database, StoreConfig};
use crate::pages::Pages;

/// How long the address waits to be opened: as long as one who has just typed the
/// command sits before it. Terminals keep what they have shown for much longer.
const SIGNS_IN_WITHIN: Duration = Duration::from_secs(15 * 60);

/// Where the command line looks if nothing else is said.
const USUAL_PORT: u16 = 8_080;

/// Says it. Without a store that answers, the pages have to be signed in to by hand;
/// and where nobody reads it any more, the log has all that is no secret.
pub(crate) async fn say(
    pages: &Pages,
    (scheme, address): (&str, SocketAddr),
    store: &StoreConfig,
) -> anyhow::Result<()> {
    let at = format!("{scheme}://{address}");
    let dashboard = match pages.once_link(SIGNS_IN_WITHIN).await {
        Ok(path) => format!(
            "{at}{path} (signs you in once, within {} minutes; then {at}/dashboard with the key)",
            SIGNS_IN_WITHIN.as_secs() / 60
        ),
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
    let text = format!(
        "Dashboard: {dashboard}\n\
         Database: {database}\n\
         Next, in another terminal in this folder: {program} destination create {named}\
         https://example.com/webhooks --per-second 5\n",
        program = program(),
    );
    let mut out = io::stdout().lock();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        let dashboard = format!("{at}/dashboard");
        tracing::warn!(%error, dashboard, database, "nobody reads standard output");
    }
    Ok(())
}

/// What this program is called by.
const NAME: &str = "paceline";

/// As it can be typed: `cargo run` has it where no shell looks.
fn program() -> String {
    let path = env::var_os("PATH").unwrap_or_default();
    let is_found = env::split_paths(&path).any(|folder| folder.join(NAME).is_file());
    let file = env::current_exe().ok().filter(|_| !is_found);
    let here = env::current_dir().unwrap_or_default();
    file.map_or(NAME.to_owned(), |file| {
        let file = file
            .strip_prefix(here)
            .map_or(file.clone(), |file| Path::new(".").join(file));
        let file = file.display().to_string();
        match file.contains(char::is_whitespace) {
            true => format!("'{file}'"),
            false => file,
        }
    })
}
