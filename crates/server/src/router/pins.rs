//! Which shard a tenant is on.
//!
//! The tenant's row is what pins it: no table of pins could disagree with it, and none
//! has to be there for a tenant to be found. All shards are asked, and what was found is
//! remembered. While a shard is away, a tenant that nobody else has may be there: it is
//! then not known to be nowhere, and nothing is made of that name.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::shard::ShardName;
use futures_util::future::join_all;
use http::{Method, StatusCode};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::shards::{Away, Shard, Shards};
use crate::api::acting::TenantName;
use crate::api::problem::Problem;

/// How long a tenant is believed to be where it was found. It does not move; its
/// external id can become another one's.
const REMEMBERED: Duration = Duration::from_secs(60);

/// Tenants that are remembered; beyond it all are asked for again.
const MAX_REMEMBERED: usize = 100_000;

/// How many tenants that are not known all shards are asked for at one time.
const ASKED_AT_ONCE: usize = 16;

/// What is known.
pub(super) struct Pins {
    known: Mutex<HashMap<TenantName, Pin>>,
    turns: Semaphore,
}

impl Default for Pins {
    fn default() -> Self {
        Self {
            known: Mutex::default(),
            turns: Semaphore::new(ASKED_AT_ONCE),
        }
    }
}

#[derive(Clone)]
struct Pin {
    shard: ShardName,
    asked_at: Instant,
}

/// What one shard says of a tenant.
type Said<'a> = (&'a Shard, Result<bool, Away>);

impl Pins {
    /// Where it is; `None` if it is nowhere.
    pub(super) async fn find(
        &self,
        shards: &Shards,
        tenant: &TenantName,
    ) -> Result<Option<ShardName>, Problem> {
        if let Some(shard) = self.fresh(tenant) {
            return Ok(Some(shard));
        }
        let before = self.memory().get(tenant).map(|pin| pin.shard.clone());
        // Most likely where it was, and no other shard is in its way then.
        if let Some(shard) = before.as_ref().and_then(|name| shards.get(name)) {
            let _turn = shard.turn().await;
            if let Some(shard) = self.fresh(tenant) {
                return Ok(Some(shard));
            }
            let asked_at = Instant::now();
            if let (_, Ok(true)) = has(shards, shard, tenant).await {
                self.learn(tenant, shard.name(), asked_at);
                return Ok(Some(shard.name().clone()));
            }
        }
        let _turn = self.turns.acquire().await.ok();
        // Somebody may have asked for it while we waited.
        if let Some(shard) = self.fresh(tenant) {
            return Ok(Some(shard));
        }
        let asked_at = Instant::now();
        let said = join_all(shards.all().map(|shard| has(shards, shard, tenant))).await;
        let found = judge(tenant, said, before)?;
        if let Some(shard) = &found {
            self.learn(tenant, shard, asked_at);
        }
        Ok(found)
    }

    /// Forgets where it was.
    pub(super) fn forget(&self, tenant: &TenantName) {
        self.memory().remove(tenant);
    }

    fn fresh(&self, tenant: &TenantName) -> Option<ShardName> {
        let memory = self.memory();
        let pin = memory.get(tenant)?;
        (pin.asked_at.elapsed() < REMEMBERED).then(|| pin.shard.clone())
    }

    fn learn(&self, tenant: &TenantName, shard: &ShardName, asked_at: Instant) {
        let mut memory = self.memory();
        if memory.len() >= MAX_REMEMBERED {
            memory.clear();
        }
        let shard = shard.clone();
        memory.insert(tenant.clone(), Pin { shard, asked_at });
    }

    fn memory(&self) -> MutexGuard<'_, HashMap<TenantName, Pin>> {
        // What a panic left behind is still a memory.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn has<'a>(shards: &Shards, shard: &'a Shard, tenant: &TenantName) -> Said<'a> {
    let path = format!("/v1/tenants/{tenant}");
    let answer = shards.ask(shard, Method::GET, &path, String::new()).await;
    let has = answer.and_then(|answer| match answer.status {
        StatusCode::OK => Ok(true),
        StatusCode::NOT_FOUND => Ok(false),
        _ => Err(answer.unusable()),
    });
    (shard, has)
}

/// What follows from what all have said, and from where it was last.
fn judge(
    tenant: &TenantName,
    said: Vec<Said<'_>>,
    before: Option<ShardName>,
) -> Result<Option<ShardName>, Problem> {
    let mut having = said.iter().filter(|(_, has)| matches!(has, Ok(true)));
    let found = having.next().map(|(shard, _)| shard.name());
    if let (Some(one), Some((other, _))) = (found, having.next()) {
        let other = other.name();
        return Err(Problem::conflict(format!(
            "both {one} and {other} have a tenant {tenant}: give one of them another external id, \
             or delete it"
        )));
    }
    if let Some(found) = found {
        return Ok(Some(found.clone()));
    }
    let mut away = said
        .iter()
        .filter_map(|(shard, has)| Some((*shard, has.as_ref().err()?)));
    // Where it was last, if it can still be there; else wherever nobody can look.
    let first = away.next();
    let last = (first.into_iter().chain(away))
        .max_by_key(|(shard, _)| before.as_ref() == Some(shard.name()));
    match last {
        Some((shard, _)) if before.as_ref() == Some(shard.name()) => Ok(before),
        Some((shard, why)) => Err(shard.away(why)),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard(name: &str) -> Shard {
        Shard::at(&format!("{name}=http://{name}.example").parse().unwrap())
    }

    fn judged(said: &[(&str, Option<bool>)], before: Option<&str>) -> Result<Option<String>, u16> {
        let shards: Vec<_> = said.iter().map(|(name, has)| (shard(name), *has)).collect();
        let said = shards
            .iter()
            .map(|(shard, has)| (shard, has.ok_or_else(|| Away("gone".to_owned()))));
        let tenant = TenantName::parse("customer-1").unwrap();
        let before = before.map(|name| name.parse().unwrap());
        let found = judge(&tenant, said.collect(), before);
        found
            .map(|found| found.map(|name| name.to_string()))
            .map_err(|problem| problem.status)
    }

    #[test]
    fn a_tenant_is_where_it_is_found_whoever_is_away() {
        let found = Ok(Some("b".to_owned()));
        assert_eq!(
            judged(&[("a", Some(false)), ("b", Some(true))], None),
            found
        );
        assert_eq!(judged(&[("a", None), ("b", Some(true))], Some("a")), found);
    }

    #[test]
    fn what_nobody_has_is_nowhere_only_if_all_have_said_so() {
        assert_eq!(
            judged(&[("a", Some(false)), ("b", Some(false))], None),
            Ok(None)
        );
        assert_eq!(judged(&[("a", Some(false)), ("b", None)], None), Err(503));
        let gone = judged(&[("a", Some(false)), ("b", None)], Some("a"));
        assert_eq!(gone, Err(503), "it is not where it was");
    }

    /// So it is told which shard is away, and no other.
    #[test]
    fn what_was_on_a_shard_that_is_away_is_still_there() {
        let still = judged(&[("a", None), ("b", Some(false)), ("c", None)], Some("c"));
        assert_eq!(still, Ok(Some("c".to_owned())));
    }

    #[test]
    fn what_two_have_is_nobodys_to_choose() {
        assert_eq!(
            judged(&[("a", Some(true)), ("b", Some(true))], Some("a")),
            Err(409)
        );
    }
}
