//! What became of the events, and whether limits held, as the API tells.

use std::collections::HashMap;

use anyhow::Context;
use domain::attempt::AttemptState;
use promises::{Accepted, nothing_is_lost};
use serde::{Deserialize, Serialize};
use server::api::attempts::{Attempt, Attempts};
use server::client::Client;
use uuid::Uuid;

use super::traffic::Traffic;

/// Attempts on a page: as many as the API gives.
const PAGE: u32 = 1_000;

/// Points of each destination's curve.
const POINTS: u32 = 120;

/// All that was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counts {
    pub(super) offered: u64,
    pub(super) accepted: u64,
    pub(super) refused: u64,
    /// Events whose request was never answered.
    pub(super) unanswered: u64,
    /// Requests that were made again, because nobody answered.
    pub(super) repeated: u64,
    pub(super) delivered: u64,
    /// Accepted, and still waiting or under way.
    pub(super) pending: u64,
    /// Accepted, and given up after all tries: visible, and can be replayed.
    pub(super) dead_letters: u64,
    /// Accepted, not delivered, and nothing waits for it.
    pub(super) lost: u64,
    /// Attempts of which nobody knows what became: each may have been a delivery
    /// more.
    pub(super) unknown: u64,
    /// Events with more than one delivery on record.
    pub(super) duplicates: u64,
}

/// What `/v1/compliance` says of one destination.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Judged {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) limit_in_force: String,
    pub(super) compliant: bool,
    pub(super) starts: u64,
    pub(super) share: Share,
    pub(super) rules: Vec<Rule>,
    pub(super) under_delivery: UnderDelivery,
    pub(super) curve: Option<Curve>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Share {
    pub(super) percent: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Rule {
    pub(super) rule: String,
    pub(super) largest_sliding: Option<Window>,
    pub(super) bound: Option<u64>,
    pub(super) early_starts: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Window {
    pub(super) starts: u64,
    pub(super) ends_at: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct UnderDelivery {
    pub(super) seconds: f64,
    pub(super) stretches: Vec<Stretch>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Stretch {
    pub(super) from: String,
    pub(super) until: String,
    pub(super) reason: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Curve {
    pub(super) step_seconds: u64,
    pub(super) points: Vec<Point>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Point {
    pub(super) starts_per_second: f64,
    pub(super) limit_per_second: Option<f64>,
    pub(super) backlog: u64,
}

#[derive(Deserialize)]
struct Compliance {
    destinations: Vec<Judged>,
}

/// Asks for all of it; `since` is by the store's clock.
pub(super) async fn judge(
    client: &Client,
    traffic: &Traffic,
    since: &str,
) -> anyhow::Result<(Counts, Vec<Judged>)> {
    let mut attempts = Vec::new();
    for destination in &traffic.destinations {
        attempts.extend(all_attempts(client, *destination).await?);
    }
    let accepted = traffic.accepted.len() as u64;
    let sent = Counts {
        offered: traffic.offered,
        accepted,
        refused: traffic.refused,
        unanswered: traffic.offered - accepted - traffic.refused,
        repeated: traffic.repeated,
        ..Counts::default()
    };
    let counts = account(sent, &traffic.accepted, &attempts);
    let mut judged = Vec::new();
    for destination in &traffic.destinations {
        let path =
            format!("/v1/compliance?destination_id={destination}&since={since}&points={POINTS}");
        let found: Compliance = client.get(&path).await.context("judge the limits")?;
        judged.extend(found.destinations);
    }
    Ok((counts, judged))
}

async fn all_attempts(client: &Client, destination: Uuid) -> anyhow::Result<Vec<Attempt>> {
    let mut all = Vec::new();
    let mut before = String::new();
    loop {
        let path = format!("/v1/destinations/{destination}/attempts?limit={PAGE}{before}");
        let page: Attempts = client.get(&path).await.context("list attempts")?;
        all.extend(page.attempts);
        match page.next {
            Some(next) => before = format!("&before={next}"),
            None => return Ok(all),
        }
    }
}

/// What became of each event that was accepted.
fn account(mut counts: Counts, accepted: &[(Uuid, Uuid)], attempts: &[Attempt]) -> Counts {
    let mut of_event: HashMap<(Uuid, Uuid), Vec<&Attempt>> = HashMap::new();
    for attempt in attempts {
        let key = (attempt.event_id, attempt.destination_id);
        of_event.entry(key).or_default().push(attempt);
    }
    let unknown = attempts
        .iter()
        .filter(|one| one.state == AttemptState::Unknown);
    counts.unknown = unknown.count() as u64;
    for event in accepted {
        let attempts = of_event.get(event).map_or(&[][..], Vec::as_slice);
        let succeeded = attempts
            .iter()
            .filter(|one| one.state == AttemptState::Succeeded);
        let succeeded = succeeded.count();
        if succeeded > 0 {
            counts.delivered += 1;
            counts.duplicates += u64::from(succeeded > 1);
        } else if attempts.iter().any(|one| !one.state.is_final()) {
            counts.pending += 1;
        } else {
            let accepted = Accepted {
                was_taken: false,
                is_dead_letter: attempts.iter().any(|one| one.dead_letter),
                is_cancelled: false,
            };
            counts.dead_letters += u64::from(accepted.is_dead_letter);
            counts.lost += u64::from(nothing_is_lost(event.0, accepted).is_err());
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(event: u128, state: AttemptState) -> Attempt {
        Attempt {
            replay_id: None,
            id: 1,
            event_id: Uuid::from_u128(event),
            destination_id: Uuid::nil(),
            try_number: 1,
            state,
            dead_letter: false,
            created_at: String::new(),
            due_at: None,
            expires_at: None,
            admitted_at: None,
            started_at: None,
            finished_at: None,
            delivery_latency_ms: None,
            status: None,
            error: None,
            response_body: None,
            response_headers: None,
        }
    }

    #[test]
    fn each_accepted_event_is_accounted_for_once() {
        let dead = Attempt {
            dead_letter: true,
            ..attempt(4, AttemptState::Failed)
        };
        let attempts = [
            attempt(1, AttemptState::Unknown),
            attempt(1, AttemptState::Succeeded),
            attempt(2, AttemptState::Succeeded),
            attempt(2, AttemptState::Succeeded),
            attempt(3, AttemptState::Failed),
            attempt(3, AttemptState::Waiting),
            dead,
            // Nothing came after it.
            attempt(5, AttemptState::Failed),
            // Of somebody else's.
            attempt(9, AttemptState::Succeeded),
        ];
        // The sixth has no attempt at all.
        let accepted: Vec<_> = (1..=6)
            .map(|event| (Uuid::from_u128(event), Uuid::nil()))
            .collect();
        let counts = account(Counts::default(), &accepted, &attempts);
        let expected = Counts {
            delivered: 2,
            duplicates: 1,
            pending: 1,
            dead_letters: 1,
            lost: 2,
            unknown: 1,
            ..Counts::default()
        };
        assert_eq!(counts, expected);
    }
}
