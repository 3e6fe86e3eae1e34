//! Where backlogs stand. A count takes no time here, and is one step with what
//! is written of it, as it is one transaction in the drivers.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use domain::backpressure::{
    BacklogBounds, Backlogged, Count, CountPace, LastCount, Standing, stand,
};
use domain::destination::DestinationState;
use domain::event::NewEvent;
use domain::ids::{DestinationId, TenantId};
use domain::time::Timestamp;
use engine::ports::{Acceptance, Backpressure, Counted, MAX_STANDINGS, StoreError};

use super::ModelStore;
use super::ingest::known_key;
use super::rows::Rows;

/// What the last count left.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Standings {
    last: LastCount,
    all: Vec<Standing>,
}

impl Default for Standings {
    /// As the migrations leave it.
    fn default() -> Self {
        Self {
            last: LastCount {
                at: Timestamp::from_micros(0),
                took: Duration::ZERO,
            },
            all: vec![Standing {
                whose: Backlogged::All,
                pending: 0,
                refused: None,
                retry_after: Duration::ZERO,
            }],
        }
    }
}

impl Rows {
    /// When the last count began.
    #[must_use]
    pub fn counted_at(&self) -> Timestamp {
        self.standings.last.at
    }

    /// How many attempts are pending, of each destination that has some; and
    /// whether it takes events.
    pub fn pending(&self) -> impl Iterator<Item = (TenantId, DestinationId, u64, bool)> {
        self.destinations.iter().filter_map(|(id, row)| {
            let indexes = self.ledger.indexes(*id)?;
            let takes = row.deleted_at.is_none() && row.state != DestinationState::Disabled;
            Some((row.tenant, *id, indexes.pending(), takes))
                .filter(|(_, _, pending, _)| *pending > 0)
        })
    }
}

fn standings(
    rows: &mut Rows,
    now: Timestamp,
    (bounds, passed): (&BacklogBounds, &[Backlogged]),
    pace: Option<&CountPace>,
) -> Counted {
    let last = rows.standings.last;
    let usual = CountPace::default();
    let Some(pace) = pace.filter(|pace| pace.is_due(&last, now)) else {
        return Counted {
            standings: rows.standings.all.clone(),
            age: now.since(last.at),
            wait: pace.unwrap_or(&usual).wait(last.took),
        };
    };
    let counts = counts(rows);
    let before = &rows.standings.all[..];
    let all = stand((before, passed), &counts, (now, bounds), MAX_STANDINGS + 1);
    let last = LastCount {
        at: now,
        took: Duration::ZERO,
    };
    rows.standings = Standings {
        last,
        all: all.clone(),
    };
    Counted {
        standings: all,
        age: last.took,
        wait: pace.wait(last.took),
    }
}

/// The whole, tenants, and destinations that do not refuse by themselves.
fn counts(rows: &Rows) -> Vec<Count> {
    let mut whole = 0;
    let mut tenants: BTreeMap<TenantId, u64> = BTreeMap::new();
    let mut counts = Vec::new();
    for (tenant, id, pending, takes) in rows.pending() {
        whole += pending;
        *tenants.entry(tenant).or_default() += pending;
        if takes {
            let row = rows.living(id);
            let policy = row.map(|row| rows.policy_of(id, row));
            counts.push(Count {
                whose: Backlogged::Destination(tenant, id),
                pending,
                limit_per_second: policy.and_then(|policy| policy.starts_per_second()),
            });
        }
    }
    let without_limit = |(whose, pending)| Count {
        whose,
        pending,
        limit_per_second: None,
    };
    let tenants = tenants.into_iter();
    let tenants = tenants.map(|(tenant, pending)| (Backlogged::Tenant(tenant), pending));
    counts.extend(tenants.chain([(Backlogged::All, whole)]).map(without_limit));
    counts
}

#[async_trait]
impl Backpressure for ModelStore {
    async fn standings(
        &self,
        bounds: &BacklogBounds,
        passed: &[Backlogged],
        pace: Option<&CountPace>,
    ) -> Result<Counted, StoreError> {
        Ok(self.step(|rows, now| standings(rows, now, (bounds, passed), pace)))
    }

    async fn repeated(&self, events: &[NewEvent]) -> Result<Vec<Option<Acceptance>>, StoreError> {
        let known = |rows: &Rows, now| {
            let known = |event| known_key(rows, now, event);
            events.iter().map(known).collect()
        };
        Ok(self.look(known))
    }
}
