//! A trial: destinations with known limits, receivers that remember, a flood,
//! and a verdict.
//!
//! The demo and the load test are trials. Everything that judges is
//! `domain::compliance`, on what the receivers saw and on the store's ledger;
//! a trial only sets up, waits and counts.

mod children;
mod classic;
mod distributed;
mod embedded;
mod plan;
mod received;
mod shared;
mod signatures;
mod verdict;

pub use children::{Child, Children, Roles};
pub use classic::{Classic, classic};
pub use distributed::Distributed;
pub use embedded::{Embedded, Listeners};
pub use plan::{Plan, per_second, plans_for_demo};
pub use received::{Ahead, AtReceiver, Over, Receivers, WHOLE_WINDOWS, judge_received};
pub use shared::{Servers, SharedParts};
use signatures::Signatures;
pub use signatures::new_secret;
pub use verdict::{
    DestinationVerdict, LATENCY_ALLOWANCE, LEAST_SHARE_PERCENT, StoodStill, TrialVerdict,
    WindowVerdict,
};

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::Bytes;
use domain::compliance::{InForce, Stalls, USUAL_MARGIN};
use domain::event::{Audience, NewEvent, Timing};
use domain::handshake::Handshake;
use domain::ids::{DestinationId, EventId};
use domain::signature::Key;
use domain::time::Timestamp;
use engine::ingest::{Ingest, IngestError};
use engine::ports::{
    Acceptance, BreakerChange, Catalog, CatalogError, DEFAULT_TENANT, LedgerRow, NewDestination,
    Store, StoreError, Vault,
};
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::edge::Mint;
use crate::parts::Parts;
use crate::receiver::{self, Behaviour, Receiver};

/// Events handed in at once for one destination, so that all destinations
/// have their backlog from the beginning.
const FLOOD_CHUNK: u32 = 250;

/// How long the roles of a trial get to end: its receivers may never answer.
const GRACE: Duration = Duration::from_secs(3);

/// Rows of the ledger read at once.
const LEDGER_PAGE: u32 = 10_000;

/// Destinations under trial.
pub struct Trial {
    store: Arc<dyn Store>,
    catalog: Arc<dyn Catalog>,
    mint: Mint,
    /// What they send to.
    pub receiver: Receiver,
    signatures: Signatures,
    /// The destinations, by their number at the receiver.
    pub placed: Vec<Placed>,
    /// The store's time before the first event.
    pub began: Timestamp,
}

/// A planned destination that exists.
pub struct Placed {
    /// What was planned.
    pub plan: Plan,
    /// Its id.
    pub id: DestinationId,
}

/// One destination's ledger.
pub struct Ledger {
    /// What was in force when.
    pub history: Vec<InForce>,
    /// All attempts, those that started first, by start.
    pub rows: Vec<LedgerRow>,
}

impl Trial {
    /// Starts the receivers and creates the destinations, each with a secret of
    /// its own.
    pub async fn set_up(
        parts: &Parts,
        vault: &dyn Vault,
        plans: Vec<Plan>,
    ) -> anyhow::Result<Self> {
        let listener = receiver::listen().context("listen for the receivers")?;
        Self::receiving_at(listener, parts, vault, plans).await
    }

    /// The same, with the receivers at a port that was chosen.
    pub async fn receiving_at(
        listener: TcpListener,
        parts: &Parts,
        vault: &dyn Vault,
        plans: Vec<Plan>,
    ) -> anyhow::Result<Self> {
        let store = Arc::clone(&parts.store);
        let catalog: Arc<dyn Catalog> = Arc::clone(&parts.stored) as _;
        let mint = Mint::from_system()?;
        let arrivals: usize = plans.iter().map(|plan| plan.events as usize * 2).sum();
        let signatures = Signatures::default();
        let observer = Some(signatures.observer());
        let capacity = arrivals.max(1_000);
        let receiver = Receiver::serve(listener, Behaviour::ACCEPT, capacity, observer)
            .await
            .context("start the receivers")?;
        let (mut placed, mut keys) = (Vec::new(), Vec::new());
        for (number, plan) in (0_u32..).zip(plans) {
            receiver.set_behaviour(number, plan.behaviour);
            let new = NewDestination {
                external_id: None,
                id: DestinationId(mint.uuid()),
                name: plan.name.clone(),
                url: receiver.url(number),
                event_types: Vec::new(),
                filter: None,
                limits: plan.limits,
                pass_traceparent: false,
                handshake: Handshake::None,
                limit_group: None,
            };
            let (secret, sealed) = new_secret(vault, &mint, (DEFAULT_TENANT, new.id));
            keys.push(Key {
                secret,
                expires_at: None,
            });
            let created = (parts.stored)
                .create_destination_with(DEFAULT_TENANT, &new, &[sealed])
                .await?;
            // It fails on purpose: what is on trial is its limit.
            if plan.behaviour == Behaviour::NeverAnswer {
                let never = BreakerChange {
                    failures: Some(Some(0)),
                    ..BreakerChange::default()
                };
                (catalog.change_breaker(DEFAULT_TENANT, created.id, &never)).await?;
            }
            placed.push(Placed {
                plan,
                id: created.id,
            });
        }
        signatures.tell(keys);
        let began = store.fleet().await?.now;
        Ok(Self {
            store,
            catalog,
            mint,
            receiver,
            signatures,
            placed,
            began,
        })
    }

    /// Hands in every planned event, a chunk of each destination in turn.
    pub async fn flood(&mut self, ingest: &Ingest) -> anyhow::Result<()> {
        self.began = self.now().await?;
        let most = self.placed.iter().map(|one| one.plan.events).max();
        let mut from = 0;
        while from < most.unwrap_or(0) {
            for placed in &self.placed {
                let count = placed.plan.events.saturating_sub(from).min(FLOOD_CHUNK);
                let events = (0..count).map(|_| self.event(placed.id)).collect();
                accept(ingest, events).await?;
            }
            from += FLOOD_CHUNK;
        }
        Ok(())
    }

    /// Hands in more wherever fewer than so many seconds' worth wait, so that
    /// there is something to look at.
    pub async fn refill(&self, ingest: &Ingest, seconds: u32) -> anyhow::Result<()> {
        for (placed, waiting) in self.placed.iter().zip(self.backlogs().await?) {
            let rate = placed
                .plan
                .limits
                .policy()
                .starts_per_second()
                .unwrap_or(1.0);
            let wanted = (rate * f64::from(seconds)).ceil() as u32;
            let missing = wanted.saturating_sub(waiting).min(FLOOD_CHUNK);
            let events = (0..missing).map(|_| self.event(placed.id)).collect();
            accept(ingest, events).await?;
        }
        Ok(())
    }

    fn event(&self, destination: DestinationId) -> NewEvent {
        let id = self.mint.uuid();
        NewEvent {
            id: EventId(id),
            tenant: DEFAULT_TENANT,
            audience: Audience::Destination(destination),
            event_type: Some("trial.flood".to_owned()),
            content_type: "application/json".to_owned(),
            payload: Bytes::from(format!(r#"{{"order":"{id}","total_cents":4200}}"#)),
            idempotency: None,
            trace: None,
            timing: Timing::default(),
        }
    }

    /// The store's time.
    pub async fn now(&self) -> anyhow::Result<Timestamp> {
        Ok(self.store.fleet().await?.now)
    }

    /// How many attempts wait at each destination.
    pub async fn backlogs(&self) -> Result<Vec<u32>, CatalogError> {
        let ids: Vec<_> = self.placed.iter().map(|placed| placed.id).collect();
        self.catalog.backlogs(&ids, u32::MAX >> 1).await
    }

    /// Waits until every event has arrived, nothing waits and every outcome is
    /// recorded; returns how many attempts still wait to be sent when `patience`
    /// is over. A store that is away meanwhile is asked again.
    pub async fn drain(&self, patience: Duration) -> anyhow::Result<u64> {
        let events: u64 = self
            .placed
            .iter()
            .map(|one| u64::from(one.plan.events))
            .sum();
        let is_drained =
            |left, recorded: bool| left == 0 && recorded && self.receiver.total() >= events;
        self.wait_until(patience, is_drained).await
    }

    /// The same, but whatever waits may go on waiting.
    pub async fn settle(&self, patience: Duration) -> anyhow::Result<u64> {
        self.wait_until(patience, |_, recorded| recorded).await
    }

    async fn wait_until(
        &self,
        patience: Duration,
        is_so: impl Fn(u64, bool) -> bool,
    ) -> anyhow::Result<u64> {
        let began = Instant::now();
        loop {
            let is_over = began.elapsed() > patience;
            match self.left().await {
                Ok((left, recorded)) => {
                    if is_so(left, recorded) || is_over {
                        return Ok(left);
                    }
                }
                Err(CatalogError::Store(StoreError::Unavailable(_))) if !is_over => {}
                Err(error) => return Err(error.into()),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// How many attempts wait to be sent, and whether the outcomes of all others are
    /// recorded.
    async fn left(&self) -> Result<(u64, bool), CatalogError> {
        // What is recorded between the two looks may wait again.
        let before = self.store.fleet().await?;
        let waiting: u64 = self.backlogs().await?.into_iter().map(u64::from).sum();
        let fleet = self.store.fleet().await?;
        let recorded = before.loads.is_empty() && fleet.loads.is_empty();
        Ok((waiting + u64::from(fleet.outstanding), recorded))
    }

    /// What was in force at one destination, and when.
    pub async fn history(&self, id: DestinationId) -> anyhow::Result<Vec<InForce>> {
        history(self.catalog.as_ref(), id).await
    }

    /// One destination's ledger, up to `until`.
    pub async fn ledger(&self, id: DestinationId, until: Timestamp) -> anyhow::Result<Ledger> {
        Ledger::read(self.catalog.as_ref(), id, (self.began, until)).await
    }

    /// Judges what the receivers saw and every destination's ledger, up to `until`.
    pub async fn judge(&self, until: Timestamp) -> anyhow::Result<TrialVerdict> {
        self.judge_windows_of(WHOLE_WINDOWS, until).await
    }

    /// The same, at the receivers by windows of so much of each period, in per cent.
    pub async fn judge_windows_of(
        &self,
        window_percent: u32,
        until: Timestamp,
    ) -> anyhow::Result<TrialVerdict> {
        let ahead = Ahead::measure(self.store.as_ref(), || self.receiver.clock()).await?;
        let record = self.receiver.record();
        let kept = record.arrivals.len() as u64;
        ensure!(
            kept == record.total,
            "the receivers kept {kept} arrivals of {}",
            record.total
        );
        let stalls = Stalls::longer_than(USUAL_MARGIN, record.stalls);
        let receivers = Receivers {
            stalls: &stalls,
            ahead,
            window_percent,
        };
        let mut destinations = Vec::new();
        for (number, placed) in (0_u32..).zip(&self.placed) {
            let ledger = self.ledger(placed.id, until).await?;
            let arrivals: Vec<_> = (record.arrivals.iter())
                .filter(|arrival| arrival.destination == number)
                .collect();
            destinations.push(DestinationVerdict::new(
                (&placed.plan, placed.id),
                &ledger,
                (receivers, &arrivals),
                (self.began, until),
            ));
        }
        Ok(TrialVerdict {
            destinations,
            bad_signatures: self.signatures.bad(),
            stalls: StoodStill::from(&stalls),
        })
    }
}

impl Ledger {
    /// Reads one destination's, page by page, between two instants of the
    /// store's clock.
    pub async fn read(
        catalog: &dyn Catalog,
        id: DestinationId,
        (since, until): (Timestamp, Timestamp),
    ) -> anyhow::Result<Self> {
        let mut rows: Vec<LedgerRow> = Vec::new();
        loop {
            let after = rows.last().map(|row| engine::ports::LedgerPosition {
                started_at: row.started_at,
                attempt: row.attempt,
            });
            let page = catalog.ledger(id, since, until, after, LEDGER_PAGE).await?;
            let last = page.len() < LEDGER_PAGE as usize;
            rows.extend(page);
            if last {
                break;
            }
        }
        let history = history(catalog, id).await?;
        Ok(Self { history, rows })
    }
}

async fn history(catalog: &dyn Catalog, id: DestinationId) -> anyhow::Result<Vec<InForce>> {
    let history = catalog.limit_history(id).await?;
    Ok((history.iter())
        .map(|entry| InForce::new(entry.in_force_from, &entry.effective, entry.state))
        .collect())
}

async fn accept(ingest: &Ingest, events: Vec<NewEvent>) -> anyhow::Result<()> {
    if events.is_empty() {
        return Ok(());
    }
    loop {
        match ingest.accept(events.clone()).await {
            Ok(acceptances) => {
                let taken = (acceptances.iter())
                    .all(|acceptance| matches!(acceptance, Acceptance::Accepted(_)));
                ensure!(taken, "the store refused an event of the trial");
                return Ok(());
            }
            // The event ids are the keys: handing in again doubles nothing.
            Err(IngestError::Full | IngestError::Unavailable(_)) => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(error @ (IngestError::Stopped | IngestError::Lost(_))) => return Err(error.into()),
        }
    }
}
