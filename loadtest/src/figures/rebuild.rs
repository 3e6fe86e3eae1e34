//! What a start costs that finds a large backlog in its SQLite file: which deliveries are
//! in line is kept in memory, and made anew when the file is opened.

use std::path::Path;
use std::time::Duration;

use adapters::shell;
use anyhow::Context as _;
use engine::ports::DEFAULT_TENANT;
use rustix::process::Signal;
use server::edge::Mint;
use server::trial::Child;
use tokio::process::Command;
use tokio::time::{Instant, timeout};

use super::figure::Figure;
use super::stage::free_address;
use crate::api::{Client, OPEN};
use crate::process::resident_mib;
use crate::run::places::embedded_environment;

/// Destinations that the backlog is spread over.
const DESTINATIONS: u32 = 20;

/// How long a start with a million may take.
const MOST_SECONDS: f64 = 3.0;

/// How long it gets to end by itself.
const GRACE: Duration = Duration::from_secs(30);

/// One start.
struct Started {
    /// From the start of the process to its first answer.
    seconds: f64,
    /// At that answer.
    resident_mib: f64,
}

/// A start with nothing in the file, and one with the backlog. Nothing of it is sent: all
/// destinations are paused. The file was written just before, so it is read from memory.
pub(super) async fn measure(program: &Path, waiting: u32) -> anyhow::Result<Vec<Figure>> {
    let folder = tempfile::tempdir().context("make a folder for the database")?;
    let file = folder.path().join("paceline.db");
    // With the same keys each time.
    let environment = embedded_environment(&format!("sqlite:{}", file.display()))?;
    // Without a file it would be timed how one is made.
    let _made = start(program, &environment).await?;
    let empty = start(program, &environment).await?;
    plant(&file, waiting)?;
    let full = start(program, &environment).await?;
    let more_mib = (full.resident_mib - empty.resident_mib).max(0.0);
    Ok(vec![
        Figure::at_most(
            format!("a start with {waiting} waiting, embedded"),
            full.seconds,
            MOST_SECONDS,
            "s",
        ),
        Figure::noted("the same with nothing waiting", empty.seconds, "s"),
        Figure::noted("memory after that start", full.resident_mib, "MiB"),
        Figure::noted(
            "of it for each that waits",
            more_mib * 1_048_576.0 / f64::from(waiting),
            "bytes",
        ),
    ])
}

/// Starts it until it answers, and ends it.
async fn start(program: &Path, environment: &[(String, String)]) -> anyhow::Result<Started> {
    let address = free_address()?;
    let mut command = Command::new(program);
    command
        .arg("serve")
        .envs(environment.iter().cloned())
        .env("PACELINE_LISTEN", &address)
        .envs(OPEN);
    let began = Instant::now();
    let mut child = Child::spawn("serve", command)?;
    let mut client = Client::dial(&address).await?;
    client.send("GET", "/v1/destinations?limit=1", "").await?;
    let seconds = began.elapsed().as_secs_f64();
    let resident_mib = resident_mib(child.id().context("it ended")?)?;
    drop(client);
    child.signal(Signal::TERM)?;
    let ended = timeout(GRACE, child.end()).await;
    ended.context("it does not end")??;
    Ok(Started {
        seconds,
        resident_mib,
    })
}

/// First attempts that wait, at destinations of their own.
fn plant(file: &Path, waiting: u32) -> anyhow::Result<()> {
    let (tenant, now) = (DEFAULT_TENANT.0, server::edge::now().as_micros());
    let event = Mint::from_system()?.uuid();
    let id = "printf('%08x-0000-7000-8000-000000000000', 1 + n % ";
    let sql = format!(
        "begin;
        insert into destinations (id, tenant_id, url, limit_per_second)
        with recursive n (n) as (values (1) union all select n + 1 from n where n < {DESTINATIONS})
        select {id}{DESTINATIONS}), '{tenant}', 'https://paused.example/', 0 from n;
        insert into events (id, tenant_id, content_type, payload, created_at)
        values ('{event}', '{tenant}', 'application/json', x'7b7d', {now});
        insert into deliveries (event_id, destination_id, tenant_id, created_at)
        with recursive n (n) as (values (1) union all select n + 1 from n where n < {waiting})
        select '{event}', {id}{DESTINATIONS}), '{tenant}', {now} from n;
        commit;"
    );
    shell::sqlite3(file, &sql).context("plant a backlog")
}

#[cfg(test)]
mod tests {
    use server::config::StoreConfig;
    use server::trial::Embedded;

    use super::*;

    #[tokio::test]
    async fn as_many_wait_as_are_planted() {
        let embedded = Embedded::set_up(Vec::new()).await.unwrap();
        plant(&embedded.file, 1_001).unwrap();
        let config = StoreConfig {
            database_url: format!("sqlite:{}", embedded.file.display())
                .parse()
                .unwrap(),
            database_connections: 2,
        };
        let stored = server::parts::open_to_read(&config).await.unwrap();
        let destinations = stored.destinations(DEFAULT_TENANT, None, 100).await;
        let ids: Vec<_> = (destinations.unwrap().iter()).map(|one| one.id).collect();
        assert_eq!(ids.len(), DESTINATIONS as usize);
        let backlogs = stored.backlogs(&ids, 100_000).await.unwrap();
        embedded.strike().await.unwrap();
        assert_eq!(backlogs.iter().sum::<u32>(), 1_001);
        assert!(backlogs.iter().all(|backlog| (50..=51).contains(backlog)));
    }
}
