//! Attacks by connections that are held.

use server::open_files;

use super::attacker::Attacker;
use super::underway::{Held, Then, Underway};

/// Kilobytes of a head that does not end.
const HEAD: usize = 60;

/// As many as an API takes from all, as it comes, and from one address fewer than it
/// takes from one: two thousand.
const IDLE: usize = 10_000;
const IDLE_ADDRESSES: u32 = 6;

/// Events that a list has to show, and requests on one connection for it.
const LISTED: usize = 2_000;
const PIPELINED: usize = 16;

pub(super) fn heads(attacker: &Attacker, underway: &mut Underway) {
    let held = Held {
        head: format!("GET / HTTP/1.1\r\nx: {}", "a".repeat(HEAD * 1_024)),
        then: Then::Reads,
        addresses: 1,
    };
    underway.hold(3_000, &attacker.address, held);
}

pub(super) fn bodies(attacker: &Attacker, underway: &mut Underway) {
    let held = Held {
        head: format!(
            "POST /v1/events HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\ncontent-length: 1000000\r\n\r\n",
            attacker.address, attacker.key
        ),
        then: Then::Sends(vec![b' '; 4_096]),
        addresses: 1,
    };
    underway.hold(64, &attacker.address, held);
}

/// Fewer where fewer files may be open: the API's half is as small then.
pub(super) fn idle(attacker: &Attacker, underway: &mut Underway) {
    let sockets = u32::try_from(open_files::room_for(IDLE)).unwrap_or(u32::MAX);
    let held = Held {
        head: String::new(),
        then: Then::Reads,
        addresses: IDLE_ADDRESSES,
    };
    underway.hold(sockets, &attacker.address, held);
}

/// Lists of a thousand, the description of the API and streams, each asked for many
/// times on one connection.
pub(super) async fn unread(attacker: &Attacker, underway: &mut Underway) -> anyhow::Result<()> {
    attacker.history(LISTED).await?;
    let cookie = attacker.signed_in().await?.cookie.unwrap_or_default();
    let (host, key) = (&attacker.address, &attacker.key);
    let by_key = format!("authorization: Bearer {key}");
    let by_cookie = format!("cookie: {cookie}");
    let kinds = [
        (200, "/v1/events?limit=1000", &by_key),
        (200, "/openapi.json", &by_key),
        (100, "/dashboard/live", &by_cookie),
    ];
    for (connections, path, by) in kinds {
        let head = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n{by}\r\n\r\n");
        let held = Held {
            head: head.repeat(PIPELINED),
            then: Then::ReadsNothing,
            addresses: 1,
        };
        underway.hold(connections, &attacker.address, held);
    }
    Ok(())
}

pub(super) async fn streams(attacker: &Attacker, underway: &mut Underway) -> anyhow::Result<()> {
    let cookie = attacker.signed_in().await?.cookie.unwrap_or_default();
    let held = Held {
        head: format!(
            "GET /dashboard/live HTTP/1.1\r\nhost: {}\r\ncookie: {cookie}\r\n\r\n",
            attacker.address
        ),
        then: Then::Reads,
        addresses: 1,
    };
    underway.hold(200, &attacker.address, held);
    Ok(())
}
