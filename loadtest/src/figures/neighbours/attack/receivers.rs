//! Attacks by receivers: the attacker's own destinations.

use std::net::{Ipv4Addr, SocketAddr};

use serde_json::json;
use tokio::net::TcpSocket;

use super::super::super::nuisance::Hostile;
use super::attacker::{Attacker, post};
use super::underway::Underway;

pub(super) async fn answers(attacker: &Attacker, underway: &mut Underway) -> anyhow::Result<()> {
    let hostile = Hostile::listen().await?;
    let mut ids = Vec::new();
    for kind in ["nul", "garbage", "never", "drip", "flood"] {
        let url = format!("http://{}/{kind}", hostile.address);
        let id = attacker
            .destination(&url, json!({"unlimited": true}))
            .await?;
        if kind == "nul" {
            let batches = json!({"max_events": 10, "max_wait_ms": 100}).to_string();
            let path = format!("/v1/destinations/{id}/batches");
            let mut client = attacker.client().await?;
            client.send("PUT", &path, &batches).await?;
        }
        ids.push(id);
    }
    underway.receivers.push(hostile);
    underway.crew(attacker, 100, move |turn| {
        let id = &ids[turn as usize % ids.len()];
        post(
            "/v1/events",
            &json!({"destination_id": id, "payload": {}}).to_string(),
        )
    });
    Ok(())
}

pub(super) async fn dials(attacker: &Attacker, underway: &mut Underway) -> anyhow::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let full = socket.listen(1)?;
    let url = format!("http://{}/", full.local_addr()?);
    // Accepted by nobody, for as long as it is there.
    underway.full.push(full);
    let id = attacker
        .destination(&url, json!({"unlimited": true}))
        .await?;
    underway.crew(attacker, 200, move |_| {
        post(
            "/v1/events",
            &json!({"destination_id": id, "payload": {}}).to_string(),
        )
    });
    Ok(())
}
