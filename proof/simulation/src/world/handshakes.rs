//! Receivers that are asked first: what their owners and they themselves do.
//!
//! The loop that asks is left out, and so is the network under it. What it records is
//! recorded here, and what follows from that is all there: a rate that binds at once, in
//! limit history like any other.

use std::num::NonZeroU32;

use domain::handshake::{Answer, Handshake};
use domain::ids::DestinationId;
use engine::ports::{Catalog as _, DEFAULT_TENANT, DestinationChange, Handshakes as _, Question};

use super::{URL, World};
use crate::scenario::What;

impl World<'_> {
    pub(super) async fn begin_handshake(&self, of: DestinationId) {
        let change = DestinationChange {
            handshake: Some(Handshake::CloudEvents),
            ..DestinationChange::default()
        };
        // It may have been deleted.
        let store = self.parts.store.shipped();
        let changed = store.change_destination(DEFAULT_TENANT, of, &change).await;
        if changed.is_ok() {
            self.parts.around.counts.note("handshake begun");
        }
        self.read_history(of);
    }

    /// The receiver takes so many a minute; 0 is as many as are configured.
    pub(super) async fn allow(&self, of: DestinationId, per_minute: u32) {
        let question = Question {
            destination: of,
            tenant: DEFAULT_TENANT,
            url: URL.to_owned(),
            per_minute: None,
            identity: None,
        };
        let answer = Answer::Allowed(NonZeroU32::new(per_minute));
        let store = self.parts.store.shipped();
        let recorded = store.record_handshake(&question, &answer).await;
        if recorded.is_ok_and(|recorded| recorded.changed) {
            self.parts.around.counts.note("receiver allowed a rate");
        }
        self.read_history(of);
    }

    /// Whoever was asked answers.
    pub(super) async fn end_handshakes(&self) {
        let begun = self.scenario.operations.iter();
        let begun = begun.filter_map(|operation| match operation.what {
            What::Handshake { destination } => Some(super::destination(destination)),
            _ => None,
        });
        for of in begun {
            self.allow(of, 0).await;
        }
    }
}
