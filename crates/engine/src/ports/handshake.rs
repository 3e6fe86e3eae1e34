//! Handshakes: receivers that are asked before anything is sent to them.

use std::num::NonZeroU32;
use std::time::Duration;

use async_trait::async_trait;
use domain::handshake::{Answer, Handshake, Origin, Reply, Standing};
use domain::ids::{DestinationId, TenantId};

use super::error::{CatalogError, StoreError};
use super::operations::Told;
use super::sender::{ClientIdentity, SendError};

/// What the loop asks of a store. Every method is one transaction, and any number of
/// processes may ask at once.
#[async_trait]
pub trait Handshakes: Send + Sync {
    /// Takes up to `limit` destinations whose receivers are to be asked now. Tenants take
    /// turns, from the first one behind `after` on; of each those first that have waited
    /// longest, and no more than are asked of it with these
    /// [at once](domain::handshake::ASKED_AT_ONCE). Each is given to nobody else for
    /// [`ASKING`](domain::handshake::ASKING): who dies with it delays it by that. One that
    /// is disabled has its turn and is not asked; resuming it asks at once.
    async fn take_handshakes(
        &self,
        after: Option<TenantId>,
        limit: u32,
    ) -> Result<Questions, StoreError>;

    /// Writes down what a question came to ([`Standing::after`]), and what is allowed by
    /// it, which is in force at once: a lower limit revokes the permits that are out. An
    /// answer about another URL than the destination's own, or after the handshake was
    /// turned off, changes nothing. What operators must know is written in the same
    /// transaction.
    async fn record_handshake(
        &self,
        question: &Question,
        answer: &Answer,
    ) -> Result<HandshakeRecorded, StoreError>;
}

/// Receivers to be asked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Questions {
    /// In the order of their turns.
    pub taken: Vec<Question>,
    /// Whose turn was the last; `None` if nobody was to be asked.
    pub turn: Option<TenantId>,
}

/// One receiver to be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The destination that it is about.
    pub destination: DestinationId,
    /// Whose destination that is.
    pub tenant: TenantId,
    /// Where its requests go, and so does the question.
    pub url: String,
    /// The requests a minute that are asked for: what is configured. `None` where that is
    /// no number.
    pub per_minute: Option<NonZeroU32>,
    /// What the connection shows, once that is open; no store fills it.
    pub identity: Option<ClientIdentity>,
}

/// What an answer has changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HandshakeRecorded {
    /// Another rate is in force.
    pub changed: bool,
    /// What operators were told.
    pub told: Option<Told>,
}

/// Asks receivers. Never to a redirect, and never twice.
#[async_trait]
pub trait Asker: Send + Sync {
    /// Who it asks as; `None` where nobody has said, so that nobody can be asked.
    fn origin(&self) -> Option<&Origin>;

    /// Sends one `OPTIONS` to the question's URL, by the rules of
    /// [`Sender`](super::Sender): the same addresses, proxy and caps. Its connection
    /// shows the client certificate; beside that it carries nothing of its destination,
    /// neither headers nor signature nor token. All within `timeout`, the dial
    /// too.
    async fn ask(&self, question: &Question, timeout: Duration) -> Result<Reply, SendError>;
}

/// The part of [`super::Catalog`] that is about handshakes, as destinations' owners see
/// them.
#[async_trait]
pub trait HandshakeBook: Send + Sync {
    /// Where a destination's stands. Reads only.
    async fn handshake(
        &self,
        tenant: TenantId,
        destination: DestinationId,
    ) -> Result<HandshakeView, CatalogError>;

    /// Has it asked now, and not when its time comes. Nothing where it is off.
    async fn ask_now(
        &self,
        tenant: TenantId,
        destination: DestinationId,
    ) -> Result<(), CatalogError>;
}

/// Where one stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandshakeView {
    /// Whether its receiver is asked.
    pub handshake: Handshake,
    /// What came of it; `None` where it is not.
    pub standing: Option<Standing>,
}
