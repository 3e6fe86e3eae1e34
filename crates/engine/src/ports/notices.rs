//! Notices: what the loop that tells people asks of a store, and of whoever
//! carries a message.

use std::time::Duration;

use async_trait::async_trait;
use domain::ids::{DestinationId, NoticeAddressId, SecretId};
use domain::notices::{Digest, NoticeAddress, NoticeForm, Written};
use domain::operations::{OperationalScope, OperationalType};
use zeroize::Zeroizing;

use super::error::StoreError;
use super::vault::{Place, Sealed, SealedKind};

/// What the loop asks of a store. Every method is one transaction, and any
/// number of processes may ask at once.
///
/// The relay of operational events ([`super::Operations`]) leaves a notice for
/// each address that is told, in the transaction that marks them: so none is
/// forgotten, whoever dies. A notice stays until [`Notices::digest_told`].
#[async_trait]
pub trait Notices: Send + Sync {
    /// The digest of one address of these forms that has notices and is due: at most
    /// [`MAX_DIGEST`] of the oldest. For `lease` it is nobody else's; who dies
    /// with it, or comes later than that, leaves it to the next claim, and what
    /// was sent is sent again. `None` where nobody is due.
    async fn claim_digest(
        &self,
        forms: &[NoticeForm],
        lease: Duration,
    ) -> Result<Option<ClaimedDigest>, StoreError>;

    /// It has been sent: its notices are over, and the address's next message
    /// is due after the time that it asks for. Does nothing where the lease is
    /// another's by now.
    async fn digest_told(&self, lease: DigestLease) -> Result<(), StoreError>;

    /// It could not be sent: the address is due again `again_in` from now, with
    /// what has come since. Does nothing where the lease is another's by now.
    async fn digest_untold(&self, lease: DigestLease, again_in: Duration)
    -> Result<(), StoreError>;
}

/// Carries a message.
#[async_trait]
pub trait Post: Send + Sync {
    /// What it can carry: nothing of another form may be given to it.
    fn forms(&self) -> Vec<NoticeForm>;

    /// Once, within a bounded time, and never again by itself. After an error
    /// it may have arrived all the same.
    async fn send(&self, to: &PostTo, message: &Written) -> Result<(), Unsent>;
}

/// Where a message goes.
#[derive(Clone, PartialEq, Eq)]
pub enum PostTo {
    /// A mail address.
    Email(String),
    /// An incoming webhook, and the address that it is of. Whoever has its URL
    /// can write there.
    Slack(NoticeAddressId, Zeroizing<String>),
}

/// Why a message did not go out. Holds no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unsent(pub String);

/// The addresses that one tenant has, at most.
pub const MAX_NOTICE_ADDRESSES: u32 = 20;

/// Notices in one message, at most: they are counted by type.
pub const MAX_DIGEST: u32 = 2_000;

/// Of these, so many are written out.
pub const MAX_LINES: u32 = 20;

/// An address to be registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewNoticeAddress {
    /// Its id.
    pub id: NoticeAddressId,
    /// Of whose destinations.
    pub scope: OperationalScope,
    /// How it is told.
    pub form: NoticeForm,
    /// What people see of it.
    pub shown: String,
    /// The URL of a webhook.
    pub sealed: Option<Sealed>,
    /// Of which types; none is all.
    pub event_types: Vec<OperationalType>,
    /// Between two messages.
    pub every: Duration,
}

/// Whose a digest is, for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DigestLease {
    /// Of which address.
    pub address: NoticeAddressId,
    /// Grows with each claim.
    pub number: i64,
}

/// A digest that is to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedDigest {
    /// Whose it is.
    pub lease: DigestLease,
    /// To whom.
    pub address: NoticeAddress,
    /// The URL of a webhook.
    pub sealed: Option<Sealed>,
    /// So many have failed in a row.
    pub failures: u32,
    /// What it tells.
    pub digest: Digest,
}

/// Where the URL of an address is sealed.
#[must_use]
pub fn notice_place(tenant: domain::ids::TenantId, address: NoticeAddressId) -> Place {
    Place {
        tenant,
        destination: DestinationId(address.0),
        secret: SecretId(address.0),
        kind: SealedKind::Notice,
    }
}
