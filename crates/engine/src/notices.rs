//! Notices: people are told what operators must know, by mail and in chats.
//!
//! The relay leaves notices; this loop puts those of an address together and
//! sends them. Every process that sends requests runs one and none leads: the
//! store gives each digest to one at a time. Sent and not yet noted is sent
//! again: at least once.

use std::sync::Arc;
use std::time::Duration;

use domain::notices::{NoticeForm, again_in};
use domain::remark::Remark;
use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use crate::pause::ends_within;
use crate::ports::{ClaimedDigest, Notices, Post, PostTo, StoreError, Unsent, Vault, notice_place};

/// How the loop runs.
#[derive(Debug, Clone)]
pub struct NoticesOptions {
    /// Between two rounds in which nobody was due.
    pub every: Duration,
    /// Messages that are on their way at once.
    pub at_once: u32,
    /// So often in one round.
    pub batches: u32,
    /// How long a digest is nobody else's: longer than a message may take.
    pub lease: Duration,
    /// What addresses of the dashboard begin with, where that is known.
    pub pages: Option<String>,
}

impl Default for NoticesOptions {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(1),
            at_once: 8,
            batches: 4,
            lease: Duration::from_secs(120),
            pages: None,
        }
    }
}

/// The loop.
pub struct NoticesLoop {
    notices: Arc<dyn Notices>,
    post: Arc<dyn Post>,
    /// Without it, webhooks cannot be told.
    vault: Option<Arc<dyn Vault>>,
    options: NoticesOptions,
}

impl NoticesLoop {
    /// Over this store and this post.
    #[must_use]
    pub fn new(
        notices: Arc<dyn Notices>,
        post: Arc<dyn Post>,
        vault: Option<Arc<dyn Vault>>,
        options: NoticesOptions,
    ) -> Self {
        Self {
            notices,
            post,
            vault,
            options,
        }
    }

    /// Goes on until `shutdown`, and then ends what is on its way.
    pub async fn run(self, shutdown: CancellationToken) {
        loop {
            self.tick().await;
            if ends_within(self.options.every, &shutdown).await {
                return;
            }
        }
    }

    /// A few batches of messages go out.
    pub async fn tick(&self) {
        // Mostly nobody is due: one asks first.
        let mut at_once = 1;
        for _ in 0..self.options.batches {
            let batch = (0..at_once).map(|_| self.tell());
            let told = join_all(batch).await;
            if told.iter().any(|one| !matches!(one, Ok(true))) {
                if let Some(Err(error)) = told.iter().find(|one| one.is_err()) {
                    tracing::warn!(%error, "notices not told, will try again");
                }
                return;
            }
            at_once = self.options.at_once;
        }
    }

    /// What this process can send: of a webhook it has to open the URL.
    fn forms(&self) -> Vec<NoticeForm> {
        let mut forms = self.post.forms();
        forms.retain(|form| *form != NoticeForm::Slack || self.vault.is_some());
        forms
    }

    /// One message; whether anybody was due. A failure is noted, and is none of
    /// the store.
    pub async fn tell(&self) -> Result<bool, StoreError> {
        let Some(claimed) = self
            .notices
            .claim_digest(&self.forms(), self.options.lease)
            .await?
        else {
            return Ok(false);
        };
        let (lease, total) = (claimed.lease, claimed.digest.total());
        match self.send(&claimed).await {
            Ok(()) => {
                metrics::counter!("paceline_notices_told_total").increment(total);
                self.notices.digest_told(lease).await?;
            }
            Err(error) => {
                let again = again_in(claimed.failures);
                metrics::counter!("paceline_notices_failed_total").increment(1);
                let (address, form) = (lease.address, claimed.address.form);
                let again_in_seconds = again.as_secs();
                let error = Remark::new(&error.to_string());
                tracing::warn!(%address, %form, %error, again_in_seconds, "notices not sent, will try again");
                self.notices.digest_untold(lease, again).await?;
            }
        }
        Ok(true)
    }

    async fn send(&self, claimed: &ClaimedDigest) -> Result<(), Unsent> {
        if claimed.digest.newest.is_empty() {
            return Ok(()); // what they told of is deleted
        }
        let to = self.opened(claimed)?;
        let message = (claimed.digest).written(&claimed.address, self.options.pages.as_deref());
        self.post.send(&to, &message).await
    }

    fn opened(&self, claimed: &ClaimedDigest) -> Result<PostTo, Unsent> {
        let address = &claimed.address;
        match address.form {
            NoticeForm::Email => Ok(PostTo::Email(address.shown.clone())),
            NoticeForm::Slack => {
                let unsent = |problem: &str| Unsent(format!("the URL of the webhook: {problem}"));
                let sealed = (claimed.sealed.as_ref()).ok_or_else(|| unsent("it is missing"))?;
                let vault = (self.vault.as_ref())
                    .ok_or_else(|| unsent("this process has no keys to open it"))?;
                let place = notice_place(address.tenant, address.id);
                let opened = vault.open(&place, sealed);
                let opened = opened.map_err(|error| unsent(&error.to_string()))?;
                let url = std::str::from_utf8(&opened);
                let url = url.map_err(|_invalid| unsent("it opened, and is no text"))?;
                Ok(PostTo::Slack(address.id, Zeroizing::new(url.to_owned())))
            }
        }
    }
}
