//! The words of operational events, as in SQL and JSON.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::health::UnknownWord;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationalType {
    /// It takes nothing any more, until its owner says otherwise.
    DestinationDisabled,
    /// It fails on, and will be disabled.
    DestinationDisabledSoon,
    /// The breaker holds the backlog.
    BreakerOpened,
    /// A probe succeeded.
    BreakerClosed,
    /// The backlog has reached the threshold.
    BacklogHigh,
    /// The backlog is at half the threshold or below again.
    BacklogNormal,
    /// With a backlog, it gets less than its limit allows.
    UnderDelivery,
    /// It gets what its limit allows again, or has no backlog any more.
    UnderDeliveryEnded,
    /// Attempts became dead letters.
    DeadLetters,
    /// Too many of its requests have failed, for a while.
    DestinationFailing,
    /// They do so no more.
    DestinationRecovered,
    /// Its owner asks for limits above the ceiling.
    LimitsRequested,
    /// An operator has granted them, or not.
    LimitsDecided,
    /// Its receiver does not allow that anything is sent to it.
    HandshakeRefused,
    /// It does now.
    HandshakeAllowed,
    /// Too few of a tenant's requests succeed.
    SuccessLow,
    /// Enough do again.
    SuccessNormal,
    /// A tenant has nearly as many destinations as it may have.
    DestinationsHigh,
    /// It has fewer again.
    DestinationsNormal,
    /// A tenant's backlog is nearly so long that its events are refused.
    TenantBacklogHigh,
    /// It is shorter again.
    TenantBacklogNormal,
    /// A tenant's events are refused, because too many wait.
    IngestRefused,
    /// They are taken again.
    IngestAccepted,
    /// Rows of a tenant's outbox could not be events.
    OutboxRejected,
}

impl OperationalType {
    /// All of them.
    pub const ALL: [Self; 24] = [
        Self::DestinationDisabled,
        Self::DestinationDisabledSoon,
        Self::BreakerOpened,
        Self::BreakerClosed,
        Self::BacklogHigh,
        Self::BacklogNormal,
        Self::UnderDelivery,
        Self::UnderDeliveryEnded,
        Self::DeadLetters,
        Self::DestinationFailing,
        Self::DestinationRecovered,
        Self::LimitsRequested,
        Self::LimitsDecided,
        Self::HandshakeRefused,
        Self::HandshakeAllowed,
        Self::SuccessLow,
        Self::SuccessNormal,
        Self::DestinationsHigh,
        Self::DestinationsNormal,
        Self::TenantBacklogHigh,
        Self::TenantBacklogNormal,
        Self::IngestRefused,
        Self::IngestAccepted,
        Self::OutboxRejected,
    ];

    /// The word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DestinationDisabled => "destination_disabled",
            Self::DestinationDisabledSoon => "destination_disabled_soon",
            Self::BreakerOpened => "breaker_opened",
            Self::BreakerClosed => "breaker_closed",
            Self::BacklogHigh => "backlog_high",
            Self::BacklogNormal => "backlog_normal",
            Self::UnderDelivery => "under_delivery",
            Self::UnderDeliveryEnded => "under_delivery_ended",
            Self::DeadLetters => "dead_letters",
            Self::DestinationFailing => "destination_failing",
            Self::DestinationRecovered => "destination_recovered",
            Self::LimitsRequested => "limits_requested",
            Self::LimitsDecided => "limits_decided",
            Self::HandshakeRefused => "handshake_refused",
            Self::HandshakeAllowed => "handshake_allowed",
            Self::SuccessLow => "success_low",
            Self::SuccessNormal => "success_normal",
            Self::DestinationsHigh => "destinations_high",
            Self::DestinationsNormal => "destinations_normal",
            Self::TenantBacklogHigh => "tenant_backlog_high",
            Self::TenantBacklogNormal => "tenant_backlog_normal",
            Self::IngestRefused => "ingest_refused",
            Self::IngestAccepted => "ingest_accepted",
            Self::OutboxRejected => "outbox_rejected",
        }
    }

    /// It says that something is well again.
    #[must_use]
    pub const fn is_good(self) -> bool {
        matches!(
            self,
            Self::BreakerClosed
                | Self::BacklogNormal
                | Self::UnderDeliveryEnded
                | Self::DestinationRecovered
                | Self::HandshakeAllowed
                | Self::SuccessNormal
                | Self::DestinationsNormal
                | Self::TenantBacklogNormal
                | Self::IngestAccepted
        )
    }
}

impl FromStr for OperationalType {
    type Err = UnknownWord;
    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        (Self::ALL.into_iter())
            .find(|one| one.as_str() == text)
            .ok_or_else(|| UnknownWord(text.to_owned()))
    }
}

/// Of whose destinations an operational destination is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationalScope {
    /// Of its own tenant's.
    #[default]
    Tenant,
    /// Of all.
    Installation,
}

impl OperationalScope {
    /// The word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::Installation => "installation",
        }
    }
}

impl FromStr for OperationalScope {
    type Err = UnknownWord;
    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        [Self::Tenant, Self::Installation]
            .into_iter()
            .find(|scope| scope.as_str() == text)
            .ok_or_else(|| UnknownWord(text.to_owned()))
    }
}
