//! A destination's handshake, on a terminal.

use http::Method;
use serde_json::json;

use super::{Connection, Named, PATH};
use crate::api::handshake::HandshakeStatus;
use crate::client::Client;
use crate::output::{self, Format};

/// Has its receiver asked, if that is asked for, and prints where it stands.
pub(super) async fn run(id: &Named, ask: bool, connection: &Connection) -> anyhow::Result<()> {
    let client = Client::new(&connection.client)?;
    let id = id.destination(&client).await?;
    let path = format!("{PATH}/{id}/handshake");
    let status = match ask {
        true => client.send(Method::POST, &path, &json!({})).await?,
        false => client.get(&path).await?,
    };
    print(&status, connection.output)
}

fn print(status: &HandshakeStatus, format: Format) -> anyhow::Result<()> {
    if format == Format::Json {
        return output::json(status);
    }
    let outcome = status.outcome.map_or("not asked yet", |one| one.as_str());
    let allowed = match status.allowed_per_minute {
        Some(most) => format!("{most} a minute"),
        None => "as configured".to_owned(),
    };
    let never = || "never".to_owned();
    let row = vec![
        status.handshake.as_str().to_owned(),
        outcome.to_owned(),
        allowed,
        status.asked_at.clone().unwrap_or_else(never),
        status.next_ask_at.clone().unwrap_or_else(never),
        status.problem.clone().unwrap_or_default(),
    ];
    let header = [
        "HANDSHAKE",
        "OUTCOME",
        "ALLOWED",
        "ASKED",
        "NEXT",
        "PROBLEM",
    ];
    output::line(&output::table(&header, std::iter::once(row)).to_string())
}
