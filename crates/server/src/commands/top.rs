//! `paceline top`: where destinations stand, looked at again and again.
//!
//! Plain text that is drawn over itself: it works in every terminal, over ssh
//! and in a pipe, and needs no terminal library.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;

use super::destination::{Connection, explain};
use crate::api::fleet::Fleet;
use crate::api::standings::Standing;
use crate::client::Client;
use crate::output::{self, Format};
use crate::signals;

/// Below this the API would be asked more often than it answers.
const SHORTEST: Duration = Duration::from_millis(100);

/// Moves to the upper left corner, and clears what is below.
const CLEAR: &str = "\x1b[H\x1b[J";

#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// How many destinations to show: those that fail, then those with the longest
    /// backlogs.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub count: usize,

    /// The destinations of all tenants, those first that harm most; needs the scope
    /// `admin`.
    #[arg(long)]
    pub all: bool,

    /// How often to look.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "1s")]
    pub every: Duration,

    /// Look once and end.
    #[arg(long)]
    pub once: bool,

    #[command(flatten)]
    pub connection: Connection,
}

/// Looks until it is interrupted; once where nobody can watch.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let client = Client::new(&args.connection.client)?;
    let live = io::stdout().is_terminal() && !args.once;
    let look = async || match args.all {
        true => of_all(&client, &args, live).await,
        false => of_one(&client, &args, live).await,
    };
    if !live {
        look().await?;
        return Ok(ExitCode::SUCCESS);
    }
    signals::until_interrupted(Box::pin(async {
        loop {
            look().await?;
            tokio::time::sleep(args.every.max(SHORTEST)).await;
        }
    }))
    .await?;
    Ok(ExitCode::SUCCESS)
}

async fn of_one(client: &Client, args: &Args, live: bool) -> anyhow::Result<()> {
    let mut found = explain::all(client).await?;
    found.sort_by_key(|one| std::cmp::Reverse((one.failing, one.backlog, one.in_flight)));
    match args.connection.output {
        Format::Json => output::json(&serde_json::json!({ "standings": found })),
        Format::Table => draw(&page(&found, args.count), live),
    }
}

/// One page: the server has them in order, however many there are.
async fn of_all(client: &Client, args: &Args, live: bool) -> anyhow::Result<()> {
    let most = engine::ports::MAX_OF_ALL as usize;
    let path = format!("/v1/fleet?limit={}", args.count.clamp(1, most));
    let found: Fleet = client.get(&path).await?;
    match args.connection.output {
        Format::Json => output::json(&found),
        Format::Table => draw(&page_of_all(&found), live),
    }
}

/// `350 destinations, 37 failing`, and those that harm most.
fn page_of_all(found: &Fleet) -> String {
    let at = (found.destinations.first()).map_or("", |one| one.standing.at.as_str());
    let [count, failing] = [found.count, found.failing].map(output::grouped);
    let table = explain::table_of_all(&found.destinations);
    let left = match found
        .matching
        .saturating_sub(found.destinations.len() as u64)
    {
        0 => String::new(),
        left => format!(
            "\n{} more that harm less; see --count",
            output::grouped(left)
        ),
    };
    format!("{at}  {count} destinations, {failing} failing\n\n{table}{left}")
}

fn draw(page: &str, live: bool) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if live {
        write!(out, "{CLEAR}").context("print")?;
    }
    writeln!(out, "{page}").context("print")?;
    out.flush().context("print")
}

/// A line for all of them, and the first ones.
fn page(found: &[Standing], count: usize) -> String {
    let sum = |of: fn(&Standing) -> u32| found.iter().map(|one| u64::from(of(one))).sum::<u64>();
    let at = found.first().map_or("", |one| one.at.as_str());
    let all = format!(
        "{at}  {} destinations, {} failing, {} waiting, {} in flight, {} starts in the last second",
        found.len(),
        found.iter().filter(|one| one.failing).count(),
        sum(|one| one.backlog),
        sum(|one| one.in_flight),
        sum(|one| one.starts_in_last_second),
    );
    let shown = &found[..count.min(found.len())];
    let left = match found.len() - shown.len() {
        0 => String::new(),
        left => format!("\n{left} more with shorter backlogs; see --count"),
    };
    format!("{all}\n\n{}{left}", explain::table(shown))
}
