//! Where requests go and what signs them, cached by destination and epoch.

use std::collections::HashMap;
use std::sync::Arc;

use domain::header::CustomHeaders;
use domain::ids::{DestinationId, Epoch};
use domain::permit::Permit;
use domain::signature::Signer;

use crate::ports::{Store, Target, Vault};
use crate::sealing::{Opened, TokenClient, open};

/// Addressees kept at once; beyond it the cache begins anew. About 500 bytes
/// each, their headers, and a certificate with its key where they have one.
const MOST: usize = 50_000;

/// Of those, how many with a client certificate: at most 24 KiB each.
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
    known: HashMap<DestinationId, Arc<Addressee>>,
    /// How many with a certificate it has learnt since it began.
    certificates: usize,
    /// Those whose secrets do not open, complained of once.
    closed: HashMap<DestinationId, Epoch>,
}

impl Targets {
    pub(super) fn new(store: Arc<dyn Store>, vault: Arc<dyn Vault>) -> Self {
        Self {
            store,
            vault,
            known: HashMap::new(),
            certificates: 0,
            closed: HashMap::new(),
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
        let mut missing: Vec<_> = (permits.iter())
            .filter(|permit| {
                (self.known.get(&permit.destination))
                    .is_none_or(|known| known.target.epoch < permit.epoch)
            })
            .map(|permit| permit.destination)
            .collect();
        missing.sort_unstable();
        missing.dedup();
        if !missing.is_empty() {
            self.read(&missing).await;
        }
        (permits.iter())
            .filter_map(|permit| {
                let known = self.known.get(&permit.destination)?;
                let fresh = known.target.epoch >= permit.epoch;
                fresh.then(|| (permit.destination, Arc::clone(known)))
            })
            .collect()
    }

    async fn read(&mut self, missing: &[DestinationId]) {
        let full = self.known.len() + missing.len() > MOST;
        if full || self.certificates > MOST_CERTIFICATES {
            self.known.clear();
            self.closed.clear();
            self.certificates = 0;
        }
        match self.store.targets(missing).await {
            Ok(targets) => {
                for target in targets {
                    self.learn(target);
                }
            }
            Err(error) => tracing::warn!(%error, "targets not read"),
        }
    }

    fn learn(&mut self, mut target: Target) {
        let (destination, epoch) = (target.destination, target.epoch);
        let sealed = std::mem::take(&mut target.secrets);
        match open(self.vault.as_ref(), &sealed) {
            Ok(Opened {
                signer,
                headers,
                identity,
                client,
            }) => {
                self.certificates += usize::from(identity.is_some());
                target.identity = identity;
                let headers = Arc::new(headers);
                let addressee = Addressee {
                    target,
                    signer,
                    headers,
                    client,
                };
                self.known.insert(destination, Arc::new(addressee));
            }
            Err((secret, error)) => {
                metrics::counter!("paceline_secrets_closed_total").increment(1);
                if self.closed.insert(destination, epoch) != Some(epoch) {
                    tracing::error!(%destination, %secret, %error, "a secret does not open: nothing is sent to this destination");
                }
            }
        }
    }
}
