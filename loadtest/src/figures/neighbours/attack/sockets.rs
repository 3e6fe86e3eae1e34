//! Attacks by connections that are held.

use serde_json::json;
use server::api::body::MAX_BATCH_BODY_BYTES;
use server::open_files;

use super::attacker::{Attacker, NOBODY, TYPE};
use super::underway::{Held, Then, Underway};

/// Bytes of a head that does not end: nearly as many as the API reads of one, which is
/// 16 KiB. It answers a longer one at once.
const HEAD: usize = 15 * 1_024;

/// From so many addresses: the API takes 2,000 connections from one.
const HEADS: u32 = 3_000;
const HEAD_ADDRESSES: u32 = 2;

/// As many as an API takes from all, as it comes, and from one address fewer than it
/// takes from one: two thousand.
const IDLE: usize = 10_000;
const IDLE_ADDRESSES: u32 = 6;

/// Bodies of each of four kinds of batches.
const BODIES: u32 = 16;

/// Bulk bodies: as many as the API takes of one tenant.
const BULK_BODIES: u32 = 4;

/// Bytes of a body that are sent ten times a second. The API wants 1 KiB a second after
/// a grace: one of these goes on to the end, and the other is cut off after a while.
const PIECES: [usize; 2] = [128, 77];

/// Sessions, and pages that each watches: as many as one session may.
const SESSIONS: usize = 34;
const WATCHED_BY_ONE: usize = 6;

/// Destinations whose pages are watched beside the overview.
const SHOWN: usize = 50;

/// Events that a list has to show, and requests on one connection for it.
const LISTED: usize = 2_000;
const PIPELINED: usize = 16;

pub(super) fn heads(attacker: &Attacker, underway: &mut Underway) {
    let held = Held {
        heads: vec![unfinished_head()],
        then: Then::Reads,
        addresses: HEAD_ADDRESSES,
    };
    underway.hold(HEADS, &attacker.address, held);
}

fn unfinished_head() -> String {
    format!("GET / HTTP/1.1\r\nx: {}", "a".repeat(HEAD))
}

/// Batches as long as they may be, announced and not, and bulk bodies of which each line
/// is a commit.
pub(super) fn bodies(attacker: &Attacker, underway: &mut Underway) {
    let announced = format!("content-length: {MAX_BATCH_BODY_BYTES}");
    for bytes in PIECES {
        let spaces = " ".repeat(bytes);
        let batch = |length: &str| head_of(attacker, ("batch", "application/json"), length);
        let kinds = [
            (batch(&announced), spaces.clone()),
            (batch(CHUNKED), chunk(&spaces)),
        ];
        for kind in kinds {
            drip(attacker, underway, BODIES, kind);
        }
    }
    let bulk = head_of(attacker, ("bulk", "application/x-ndjson"), CHUNKED);
    let line = chunk(&line(PIECES[0]));
    drip(attacker, underway, BULK_BODIES, (bulk, line));
}

const CHUNKED: &str = "transfer-encoding: chunked";

fn head_of(attacker: &Attacker, (path, content_type): (&str, &str), length: &str) -> String {
    let Attacker { address, key, .. } = attacker;
    format!(
        "POST /v1/events/{path} HTTP/1.1\r\nhost: {address}\r\n\
         authorization: Bearer {key}\r\ncontent-type: {content_type}\r\n{length}\r\n\r\n"
    )
}

fn chunk(piece: &str) -> String {
    format!("{:x}\r\n{piece}\r\n", piece.len())
}

/// An event, and so many bytes long.
fn line(bytes: usize) -> String {
    let event = json!({"type": TYPE, "payload": {}}).to_string();
    let width = bytes.saturating_sub(1);
    format!("{event:<width$}\n")
}

fn drip(
    attacker: &Attacker,
    underway: &mut Underway,
    bodies: u32,
    (head, piece): (String, String),
) {
    let held = Held {
        heads: vec![head],
        then: Then::Sends(piece.into_bytes()),
        addresses: 1,
    };
    underway.hold(bodies, &attacker.address, held);
}

/// Fewer where fewer files may be open: the API's half is as small then.
pub(super) fn idle(attacker: &Attacker, underway: &mut Underway) {
    let sockets = u32::try_from(open_files::room_for(IDLE)).unwrap_or(u32::MAX);
    let held = Held {
        heads: vec![String::new()],
        then: Then::Reads,
        addresses: IDLE_ADDRESSES,
    };
    underway.hold(sockets, &attacker.address, held);
}

/// Lists of a thousand, the description of the API and streams, each asked for many
/// times on one connection.
pub(super) async fn unread(attacker: &Attacker, underway: &mut Underway) -> anyhow::Result<()> {
    attacker.history(LISTED).await?;
    let host = &attacker.address;
    let by_key = format!("authorization: Bearer {}", attacker.key);
    for path in ["/v1/events?limit=1000", "/openapi.json"] {
        let head = get(host, &by_key, path);
        unread_by(attacker, underway, (200, vec![head.repeat(PIPELINED)]));
    }
    // One session has fewer streams.
    let cookies = by_sessions(attacker, 100 / WATCHED_BY_ONE + 1).await?;
    let live = |by: &String| get(host, by, "/dashboard/live").repeat(PIPELINED);
    let heads = cookies.iter().map(live).collect();
    unread_by(attacker, underway, (100, heads));
    Ok(())
}

fn unread_by(
    attacker: &Attacker,
    underway: &mut Underway,
    (connections, heads): (u32, Vec<String>),
) {
    let held = Held {
        heads,
        then: Then::ReadsNothing,
        addresses: 1,
    };
    underway.hold(connections, &attacker.address, held);
}

/// What says who asks, by the header of each session.
async fn by_sessions(attacker: &Attacker, count: usize) -> anyhow::Result<Vec<String>> {
    let cookies = attacker.sessions(count).await?;
    let header = |cookie: String| format!("cookie: {cookie}");
    Ok(cookies.into_iter().map(header).collect())
}

fn get(host: &str, by: &str, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n{by}\r\n\r\n")
}

/// The overview, and pages of destinations, which are looked at each for itself.
pub(super) async fn streams(attacker: &Attacker, underway: &mut Underway) -> anyhow::Result<()> {
    let ids = attacker.destinations(SHOWN, NOBODY, json!({})).await?;
    let mut paths = vec!["/dashboard/live".to_owned()];
    paths.extend(
        ids.iter()
            .map(|id| format!("/dashboard/destinations/{id}/live")),
    );
    let cookies = by_sessions(attacker, SESSIONS).await?;
    let heads = all_watched(&attacker.address, &cookies, &paths);
    let connections = u32::try_from(heads.len())?;
    let held = Held {
        heads,
        then: Then::Reads,
        addresses: 1,
    };
    underway.hold(connections, &attacker.address, held);
    Ok(())
}

/// Each session's, one page after the other.
fn all_watched(host: &str, sessions: &[String], paths: &[String]) -> Vec<String> {
    let by_each = sessions.iter().flat_map(|by| [by; WATCHED_BY_ONE]);
    let watched = |(by, path): (&String, &String)| get(host, by, path);
    by_each.zip(paths.iter().cycle()).map(watched).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::underway::DRIP_EVERY;
    use super::*;

    #[test]
    fn a_head_is_as_long_as_one_that_is_read() {
        let head = unfinished_head();
        assert!((HEAD..16 * 1_024).contains(&head.len()), "{}", head.len());
        assert!(!head.contains("\r\n\r\n"), "it ends");
        const { assert!(HEADS / HEAD_ADDRESSES < 2_000, "one address has no more") };
    }

    #[test]
    fn one_body_is_faster_than_it_must_be_and_one_slower() {
        let per_second = |bytes: usize| bytes as u128 * 1_000 / DRIP_EVERY.as_millis();
        let [fast, slow] = PIECES.map(per_second);
        assert!((1_024..2_048).contains(&fast), "{fast}");
        assert!((512..1_024).contains(&slow), "{slow}");
    }

    #[test]
    fn a_line_is_an_event_in_a_chunk() {
        let line = line(PIECES[0]);
        assert_eq!(line.len(), PIECES[0]);
        let event: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(event["type"], TYPE);
        assert_eq!(chunk(&line), format!("80\r\n{line}\r\n"));
    }

    #[test]
    fn a_session_watches_as_many_pages_as_it_may() {
        let texts = |all: &[&str]| all.iter().map(|&one| one.to_owned()).collect::<Vec<_>>();
        let heads = all_watched("a", &texts(&["x", "y"]), &texts(&["/1", "/2", "/3", "/4"]));
        let of = |by| {
            let whose = format!("\r\n{by}\r\n");
            heads.iter().filter(|head| head.contains(&whose)).count()
        };
        assert_eq!((of("x"), of("y")), (WATCHED_BY_ONE, WATCHED_BY_ONE));
        let begun: BTreeSet<&str> = heads.iter().filter_map(|one| one.get(..6)).collect();
        assert_eq!(begun.len(), 4, "all pages are watched");
        const { assert!(SESSIONS * WATCHED_BY_ONE >= 200) };
    }
}
