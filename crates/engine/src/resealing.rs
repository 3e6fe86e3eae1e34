//! Resealing: all secrets under the first key of the ring, while all runs.
//!
//! Every instance that has the keys does it; there is no leader, because a
//! secret is replaced only where it still is what was opened. In pages, so
//! that no statement is long; a secret that does not open is left as it is and
//! complained of. It also forgets secrets that have ended. It changes no
//! secret and no epoch: nobody has to read anything again.

use std::sync::Arc;
use std::time::Duration;

use domain::ids::SecretId;
use rand::RngExt;
use rand::rngs::StdRng;
use tokio_util::sync::CancellationToken;

use crate::pause::ends_within;
use crate::ports::{NONCE_BYTES, Resealed, SealedSecret, SecretStore, StoreError, Vault};

/// Between two looks at a store where all is done.
const EVERY: Duration = Duration::from_secs(10);

/// Between two pages: this is in no hurry.
const BETWEEN_PAGES: Duration = Duration::from_millis(50);

/// Secrets in one page.
const PAGE: u32 = 100;

/// The loop.
pub struct Resealing {
    secrets: Arc<dyn SecretStore>,
    vault: Arc<dyn Vault>,
    rng: StdRng,
    after: Option<SecretId>,
}

/// What one page was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Page {
    /// Sealed anew.
    pub resealed: u32,
    /// Left, because they do not open.
    pub closed: u32,
    /// Ended, and forgotten.
    pub forgotten: u32,
    /// Whether another page may follow.
    pub more: bool,
}

impl Resealing {
    /// Over this store, under the first key of this vault. `rng` draws nonces:
    /// seed it with the system's randomness.
    #[must_use]
    pub fn new(secrets: Arc<dyn SecretStore>, vault: Arc<dyn Vault>, rng: StdRng) -> Self {
        Self {
            secrets,
            vault,
            rng,
            after: None,
        }
    }

    /// Goes on until `shutdown`.
    pub async fn run(mut self, shutdown: CancellationToken) {
        loop {
            let pause = match self.tick().await {
                Ok(page) if page.more => BETWEEN_PAGES,
                Ok(_) => EVERY,
                Err(error) => {
                    tracing::warn!(%error, "secrets not sealed anew, will try again");
                    EVERY
                }
            };
            if ends_within(pause, &shutdown).await {
                return;
            }
        }
    }

    /// One page. After the last it begins again.
    pub async fn tick(&mut self) -> Result<Page, StoreError> {
        let forgotten = self.secrets.forget_expired(PAGE).await?;
        let key = self.vault.sealing_key().to_owned();
        let found = (self.secrets)
            .sealed_under_others(&key, self.after, PAGE)
            .await?;
        let resealed: Vec<_> = (found.iter())
            .filter_map(|one| self.resealed(one))
            .collect();
        let closed = found.len() - resealed.len();
        let mut done = 0;
        if !resealed.is_empty() {
            done = self.secrets.reseal(&resealed).await?;
            metrics::counter!("paceline_secrets_resealed_total").increment(done.into());
        }
        let full = found.len() >= PAGE as usize;
        self.after = found.last().filter(|_| full).map(|last| last.place.secret);
        Ok(Page {
            resealed: done,
            closed: u32::try_from(closed).unwrap_or(u32::MAX),
            forgotten,
            more: full || forgotten >= PAGE,
        })
    }

    fn resealed(&mut self, one: &SealedSecret) -> Option<Resealed> {
        match self.vault.open(&one.place, &one.sealed) {
            Ok(secret) => {
                let nonce: [u8; NONCE_BYTES] = self.rng.random();
                Some(Resealed {
                    secret: one.place.secret,
                    from: one.sealed.clone(),
                    to: self.vault.seal(&one.place, &nonce, &secret),
                })
            }
            Err(error) => {
                tracing::warn!(secret = %one.place.secret, destination = %one.place.destination, %error, "a secret cannot be sealed anew");
                None
            }
        }
    }
}
