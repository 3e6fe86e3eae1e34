//! The tenants and destinations of a run, made over the API.

use adapters::shell;
use anyhow::{Context, bail};
use clap::ValueEnum;
use engine::ports::DEFAULT_TIER;
use serde_json::{Value, json};
use server::config::Database;
use uuid::Uuid;

use super::settings::{Limit, Settings, Shape};
use super::system::System;
use crate::api::Client;
use crate::figures::pending::insert_at;

/// How many destinations are made at the same time.
const AT_ONCE: usize = 8;

/// The tier of the tenants of a run that has several.
const TIER: &str = "enterprise";

/// Destinations that a backlog of others is spread over.
const WAITING_AT: u64 = 50;

/// What was made.
pub(crate) struct Made {
    /// The destinations' ids, and the tenant of each.
    pub(crate) destinations: Vec<(Uuid, u16)>,
    /// The tenants' keys.
    pub(crate) keys: Vec<String>,
}

/// Makes them all; `url` is where a destination sends to. What was started here has room
/// for as many as there are, and for those of the runs before on it; one that runs already
/// is left as it is.
pub(crate) async fn make(
    system: &System,
    settings: &Settings,
    url: impl Fn(u32) -> String,
) -> anyhow::Result<Made> {
    let mut keys = vec![system.key.clone()];
    if settings.tenants() > 1 {
        keys = vec![
            tenant(system, "noisy").await?,
            tenant(system, "quiet").await?,
        ];
    }
    if system.is_started_here() {
        let tier = match settings.tenants() {
            1 => DEFAULT_TIER,
            _ => TIER,
        };
        let admin = Client::dial(system.address()).await?.with_key(&system.key);
        lift_bound(admin, tier).await?;
    }
    let mut bodies: Vec<(u32, u16, String)> = Vec::new();
    for number in 0..settings.destinations {
        let mut body = settings.limit.fields();
        body["url"] = Value::from(url(number));
        if let Some(most) = settings.max_in_flight {
            body["max_in_flight"] = Value::from(most);
        }
        if let Some(part) = settings.safety_margin {
            body["safety_margin"] = Value::from(part);
        }
        body["name"] = Value::from(format!("load {number}"));
        bodies.push((number, settings.tenant_of(number), body.to_string()));
    }
    let part = bodies.len().div_ceil(AT_ONCE);
    let parts = bodies
        .chunks(part)
        .map(|part| make_part(system, &keys, settings, part));
    let made = futures_util::future::try_join_all(parts).await?;
    let mut destinations = made.concat();
    destinations.sort_unstable_by_key(|(number, ..)| *number);
    let destinations = destinations.into_iter().map(|(_, id, tenant)| (id, tenant));
    Ok(Made {
        destinations: destinations.collect(),
        keys,
    })
}

async fn make_part(
    system: &System,
    keys: &[String],
    settings: &Settings,
    part: &[(u32, u16, String)],
) -> anyhow::Result<Vec<(u32, Uuid, u16)>> {
    let mut clients = Vec::new();
    for key in keys {
        clients.push(Client::dial(system.address()).await?.with_key(key));
    }
    let mut made = Vec::new();
    for (number, tenant, body) in part {
        let client = &mut clients[*tenant as usize];
        let created = client.ask("POST", "/v1/destinations", body).await?;
        let id: Uuid = serde_json::from_value(created["id"].clone()).context("read an id")?;
        if settings.shape == Shape::Failing {
            try_again_soon(client, id).await?;
        }
        made.push((*number, id, *tenant));
    }
    Ok(made)
}

/// What failed is tried again while the run lasts, and often enough.
async fn try_again_soon(client: &mut Client, id: Uuid) -> anyhow::Result<()> {
    let rules = json!({"max_tries": 30, "base_ms": 1_000, "factor": 2, "cap_ms": 5_000});
    let path = format!("/v1/destinations/{id}/retries");
    client.send("PUT", &path, &rules.to_string()).await
}

/// Lets a tenant of this tier have any number of destinations.
async fn lift_bound(mut admin: Client, tier: &str) -> anyhow::Result<()> {
    let any = json!({"tenant_max_destinations": null}).to_string();
    let path = format!("/v1/tiers/{tier}");
    admin.send("PATCH", &path, &any).await
}

/// A tenant's key.
async fn tenant(system: &System, name: &str) -> anyhow::Result<String> {
    let mut admin = Client::dial(system.address()).await?.with_key(&system.key);
    let (_, key) = admin.found(name, TIER).await?;
    Ok(key)
}

/// Lets so many deliveries wait at destinations of their own, which are paused.
pub(crate) async fn fill(system: &System, waiting: u64, url: &str) -> anyhow::Result<()> {
    let store = system.store.as_ref();
    let store = store.context("deliveries that wait take the database")?;
    let Database::Postgres(database) = store.place()? else {
        bail!("deliveries that wait are put into Postgres only");
    };
    let mut client = Client::dial(system.address()).await?.with_key(&system.key);
    let mut destinations = Vec::new();
    for number in 0..WAITING_AT.min(waiting) {
        let body = json!({"url": url, "name": format!("waiting {number}"), "unlimited": true});
        let body = body.to_string();
        let created = client.ask("POST", "/v1/destinations", &body).await?;
        let id: Uuid = serde_json::from_value(created["id"].clone()).context("read an id")?;
        let paused = json!({"state": "paused"}).to_string();
        let path = format!("/v1/destinations/{id}");
        client.send("PATCH", &path, &paused).await?;
        destinations.push(id);
    }
    insert_at(database.expose(), &destinations, waiting).await
}

/// How a limit is changed in mid-run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ChangeBy {
    /// A request for each destination.
    Api,
    /// Statements in the database.
    Sql,
}

/// Gives every destination another limit.
pub(crate) async fn change_limit(
    system: &System,
    made: &Made,
    limit: Limit,
    by: ChangeBy,
) -> anyhow::Result<()> {
    match by {
        ChangeBy::Api => patch(system, made, &limit_patch(limit)).await,
        ChangeBy::Sql => {
            let store = system.store.as_ref();
            let store = store.context("to change a limit by SQL takes the database")?;
            let updates = (made.destinations.iter()).map(|(id, _)| limit_update(limit, *id));
            let updates = updates.collect::<Vec<_>>().join("\n");
            match store.place()? {
                Database::Postgres(url) => shell::psql(url.expose(), &updates).await?,
                Database::Sqlite(path) => shell::sqlite3(&path, &updates)?,
                Database::SqliteInMemory => bail!("a database in memory is not shared"),
            }
            Ok(())
        }
    }
}

fn limit_patch(limit: Limit) -> Value {
    let mut body = limit.fields();
    if limit != Limit::Unlimited {
        let periods =
            json!({"per_second": null, "per_minute": null, "per_hour": null, "per_day": null});
        let set = std::mem::replace(&mut body["limits"], periods);
        for (name, max) in set.as_object().into_iter().flatten() {
            body["limits"][name] = max.clone();
        }
    }
    body
}

fn limit_update(limit: Limit, id: Uuid) -> String {
    let settings = limit.settings();
    let text = |max: Option<u32>| max.map_or("null".to_owned(), |max| max.to_string());
    format!(
        "update destinations set unlimited = {}, limit_per_second = {}, limit_per_minute = {}, \
         limit_per_hour = {}, limit_per_day = {} where id = '{id}';",
        settings.unlimited,
        text(settings.per_second),
        text(settings.per_minute),
        text(settings.per_hour),
        text(settings.per_day),
    )
}

/// Keeps every destination from starting anything.
pub(crate) async fn hold(system: &System, made: &Made) -> anyhow::Result<()> {
    patch(system, made, &json!({"state": "paused"})).await
}

/// Lets them all go.
pub(crate) async fn release(system: &System, made: &Made) -> anyhow::Result<()> {
    patch(system, made, &json!({"state": "active"})).await
}

async fn patch(system: &System, made: &Made, body: &Value) -> anyhow::Result<()> {
    let body = body.to_string();
    let mut clients = Vec::new();
    for key in &made.keys {
        clients.push(Client::dial(system.address()).await?.with_key(key));
    }
    for (id, tenant) in &made.destinations {
        let path = format!("/v1/destinations/{id}");
        let client = &mut clients[*tenant as usize];
        client.send("PATCH", &path, &body).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use domain::limit::Period;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Else the 10,001st destination is refused.
    #[tokio::test]
    async fn the_bound_of_a_tier_is_lifted() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asked = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = Vec::new();
            while !asked.ends_with(b"}") {
                assert!(stream.read_buf(&mut asked).await.unwrap() > 0, "it ended");
            }
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
            stream.write_all(answer).await.unwrap();
            String::from_utf8(asked).unwrap()
        });
        let admin = Client::dial(&address).await.unwrap();
        lift_bound(admin, DEFAULT_TIER).await.unwrap();
        let asked = asked.await.unwrap();
        assert!(asked.starts_with("PATCH /v1/tiers/standard "), "{asked}");
        assert!(
            asked.ends_with(r#"{"tenant_max_destinations":null}"#),
            "{asked}"
        );
    }

    #[test]
    fn a_limit_takes_the_place_of_all_that_were_there() {
        let limits = &limit_patch(Limit::Per(5, Period::Minute))["limits"];
        let expected =
            json!({"per_second": null, "per_minute": 5, "per_hour": null, "per_day": null});
        assert_eq!(limits, &expected);
        assert_eq!(limit_patch(Limit::Unlimited), json!({"unlimited": true}));
        assert_eq!(
            limit_update(Limit::Per(5, Period::Minute), Uuid::nil()),
            "update destinations set unlimited = false, limit_per_second = null, \
             limit_per_minute = 5, limit_per_hour = null, limit_per_day = null \
             where id = '00000000-0000-0000-0000-000000000000';"
        );
    }
}
