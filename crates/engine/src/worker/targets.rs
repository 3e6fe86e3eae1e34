//! Where requests go and what signs them, cached by destination and epoch.

use std::collections::HashMap;
use std::sync::Arc;

use domain::header::CustomHeaders;
use domain::ids::{DestinationId, Epoch};
use domain::permit::Permit;
use domain::signature::Signer;

use crate::ports::{Store, Target, Vault};
use crate::recent::Recent;
use crate::sealing::{Opened, TokenClient, open};

/// Addressees kept at once without a client certificate; beyond it the older half is
/// forgotten. About 500 bytes each, and their headers.
const MOST: usize = 50_000;

/// How many with one, beside them: at most 24 KiB each.
const MOST_CERTIFICATES: usize = 4_096;

/// A target whose secrets are open.
#[derive(Debug)]
pub(super) struct Addressee {
    /// Without its sealed secrets, and with what its connections show.
    pub(super) target: Target,
    pub(super) signer: Signer,
    pub(super) headers: Arc<CustomHeaders>,
    /// What its tokens are asked for with.
    pub(super) client: Option<TokenClient>,
}

/// The cache. A change of URL, secrets or headers bumps the epoch, and every
/// permit carries the epoch that it was admitted at, so a stale entry is seen
/// as such.
pub(super) struct Targets {
    store: Arc<dyn Store>,
    vault: Arc<dyn Vault>,
    plain: Recent<DestinationId, Arc<Addressee>>,
    /// Those with a certificate, which is what needs most room.
    certified: Recent<DestinationId, Arc<Addressee>>,
    /// Those whose secrets do not open, complained of once.
    closed: Recent<DestinationId, Epoch>,
}

impl Targets {
    pub(super) fn new(store: Arc<dyn Store>, vault: Arc<dyn Vault>) -> Self {
        Self {
            store,
            vault,
            plain: Recent::new(MOST),
            certified: Recent::new(MOST_CERTIFICATES),
            closed: Recent::new(MOST),
        }
    }

    /// The addressees of these permits, read in one statement where the cache
    /// has none of their epoch. One that cannot be read, or whose secrets do not
    /// open, is left out: nothing is sent unsigned by mistake, and a worker that
    /// lacks a key leaves the work to those that have it.
    pub(super) async fn of(
        &mut self,
        permits: &[Permit],
    ) -> HashMap<DestinationId, Arc<Addressee>> {
        let mut found = HashMap::new();
        let mut missing = Vec::new();
        for permit in permits {
            match self.known(permit) {
                Some(known) => _ = found.insert(permit.destination, Arc::clone(known)),
                None => missing.push(permit),
            }
        }
        // What is learnt now may push out what was found just before.
        for addressee in self.read(&missing).await {
            found.insert(addressee.target.destination, addressee);
        }
        for permit in missing {
            let is_old = |found: &Arc<Addressee>| found.target.epoch < permit.epoch;
            if found.get(&permit.destination).is_some_and(is_old) {
                found.remove(&permit.destination);
            }
        }
        found
    }

    /// The addressee as of this permit's epoch or a later one. A certificate that came or
    /// went has left one of the two behind that is older.
    fn known(&self, permit: &Permit) -> Option<&Arc<Addressee>> {
        let of = &permit.destination;
        let known = [self.plain.get(of), self.certified.get(of)];
        (known.into_iter().flatten())
            .max_by_key(|known| known.target.epoch)
            .filter(|known| known.target.epoch >= permit.epoch)
    }

    async fn read(&mut self, missing: &[&Permit]) -> Vec<Arc<Addressee>> {
        let mut destinations: Vec<_> = missing.iter().map(|permit| permit.destination).collect();
        destinations.sort_unstable();
        destinations.dedup();
        if destinations.is_empty() {
            return Vec::new();
        }
        match self.store.targets(&destinations).await {
            Ok(targets) => (targets.into_iter())
                .filter_map(|target| self.learn(target))
                .collect(),
            Err(error) => {
                tracing::warn!(%error, "targets not read");
                Vec::new()
            }
        }
    }

    fn learn(&mut self, mut target: Target) -> Option<Arc<Addressee>> {
        let (destination, epoch) = (target.destination, target.epoch);
        let sealed = std::mem::take(&mut target.secrets);
        match open(self.vault.as_ref(), &sealed) {
            Ok(Opened {
                signer,
                headers,
                identity,
                client,
            }) => {
                let kept = match identity {
                    Some(_) => &mut self.certified,
                    None => &mut self.plain,
                };
                target.identity = identity;
                let headers = Arc::new(headers);
                let addressee = Arc::new(Addressee {
                    target,
                    signer,
                    headers,
                    client,
                });
                kept.insert(destination, Arc::clone(&addressee));
                Some(addressee)
            }
            Err((secret, error)) => {
                metrics::counter!("paceline_secrets_closed_total").increment(1);
                if self.closed.get(&destination) != Some(&epoch) {
                    tracing::error!(%destination, %secret, %error, "a secret does not open: nothing is sent to this destination");
                }
                self.closed.insert(destination, epoch);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};
    use std::time::Duration;

    use async_trait::async_trait;
    use domain::ids::{AttemptId, PermitNumber};
    use domain::time::Timestamp;
    use uuid::Uuid;

    use super::*;
    use crate::ports::{NoVault, StoreError, StoreLayer};

    /// A store whose targets have this epoch, and what it was asked for.
    #[derive(Default)]
    struct Reads {
        epoch: Mutex<i64>,
        asked: Mutex<Vec<Vec<u128>>>,
    }

    struct Read(Arc<Reads>);

    #[async_trait]
    impl StoreLayer for Read {
        async fn targets(&self, of: &[DestinationId]) -> Result<Vec<Target>, StoreError> {
            let epoch = *self.0.epoch.lock().unwrap_or_else(PoisonError::into_inner);
            let mut asked = self.0.asked.lock().unwrap_or_else(PoisonError::into_inner);
            asked.push(of.iter().map(|one| one.0.as_u128()).collect());
            let target = |destination: &DestinationId| Target {
                destination: *destination,
                epoch: Epoch(epoch),
                url: "https://receiver.example/".to_owned(),
                timeout: Duration::from_secs(5),
                batches: false,
                pass_traceparent: false,
                names_origin: false,
                secrets: Vec::new(),
                identity: None,
            };
            Ok(of.iter().map(target).collect())
        }
    }

    fn permit(destination: u128, epoch: i64) -> Permit {
        Permit {
            destination: DestinationId(Uuid::from_u128(destination)),
            attempt: AttemptId(1),
            number: PermitNumber(1),
            epoch: Epoch(epoch),
            not_before: Timestamp::from_micros(0),
            deadline: Timestamp::from_micros(1),
        }
    }

    /// How many of these have an addressee.
    async fn found(targets: &mut Targets, of: &[(u128, i64)]) -> usize {
        let permits: Vec<_> = (of.iter())
            .map(|(destination, epoch)| permit(*destination, *epoch))
            .collect();
        targets.of(&permits).await.len()
    }

    #[tokio::test]
    async fn what_is_known_is_found_beside_what_pushes_it_out() {
        let reads = Arc::new(Reads::default());
        let store = Arc::new(Read(Arc::clone(&reads)));
        let mut targets = Targets {
            plain: Recent::new(4),
            ..Targets::new(store, Arc::new(NoVault))
        };
        assert_eq!(found(&mut targets, &[(1, 0), (2, 0), (1, 0)]).await, 2);
        let all = [(1, 0), (2, 0), (3, 0), (4, 0), (5, 0)];
        assert_eq!(found(&mut targets, &all).await, 5);
        assert_eq!(found(&mut targets, &all[2..]).await, 3);
        assert_eq!(found(&mut targets, &all[..1]).await, 1);
        let asked = reads.asked.lock().unwrap();
        assert_eq!(*asked, [vec![1, 2], vec![3, 4, 5], vec![1]]);
    }

    /// Nothing goes to where a destination was before.
    #[tokio::test]
    async fn one_that_is_older_than_its_permit_is_read_again_and_never_used() {
        let reads = Arc::new(Reads::default());
        let store = Arc::new(Read(Arc::clone(&reads)));
        let mut targets = Targets::new(store, Arc::new(NoVault));
        assert_eq!(found(&mut targets, &[(1, 0)]).await, 1);
        assert_eq!(found(&mut targets, &[(1, 0), (1, 7)]).await, 0);
        *reads.epoch.lock().unwrap() = 7;
        assert_eq!(found(&mut targets, &[(1, 7)]).await, 1);
        assert_eq!(found(&mut targets, &[(1, 0), (1, 7)]).await, 1);
        assert_eq!(reads.asked.lock().unwrap().len(), 3);
    }
}
