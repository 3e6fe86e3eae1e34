//! Which operator acts: the one that holds a Lease.
//!
//! As in Kubernetes' own client: every write names the version that it was
//! decided on, so of two that want the Lease at once one is refused; and whether
//! a holder is gone is judged by our own clock, from when we last saw it renew, so
//! clocks need not agree. (`kube-lease-manager` takes an expired Lease without a
//! version, so two may think that they lead.)
//!
//! A holder that cannot renew stops leading before others may begin. Even two
//! that act do no harm: what they do is decided by the store, and can be repeated.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use rand::RngExt;
use rand::rngs::StdRng;
use tokio::sync::watch;
use tokio::time::Instant;

use domain::time::Timestamp;

/// How long a Lease is good for without being renewed.
pub const GOOD_FOR: Duration = Duration::from_secs(15);

/// A holder that has not renewed for so long leads no more: well before others
/// may take over, however slow its clock.
pub const GIVES_UP_AFTER: Duration = Duration::from_secs(10);

/// Between two tries, about.
pub const EVERY: Duration = Duration::from_secs(2);

/// What to do about a Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    /// It is ours: say that we are there.
    Renew,
    /// It is nobody's any more.
    Take,
    /// Somebody else's.
    Wait,
}

/// Decides, from what the Lease says and how long it has not changed.
#[must_use]
pub fn decide(spec: &LeaseSpec, identity: &str, unchanged_for: Duration) -> Move {
    let good_for = spec.lease_duration_seconds.unwrap_or(0);
    let good_for = Duration::from_secs(u64::try_from(good_for).unwrap_or(0));
    match spec.holder_identity.as_deref() {
        Some(holder) if holder == identity => Move::Renew,
        None | Some("") => Move::Take,
        Some(_) if unchanged_for > good_for => Move::Take,
        Some(_) => Move::Wait,
    }
}

/// One that would lead.
pub struct Candidate {
    leases: Api<Lease>,
    name: String,
    identity: String,
    clock: fn() -> Timestamp,
    rng: StdRng,
    /// The version that was last seen, and since when.
    seen: Option<(String, Instant)>,
    /// When we last held it for sure.
    held_at: Option<Instant>,
}

impl Candidate {
    /// For the Lease of this name; `identity` is nobody else's.
    #[must_use]
    pub fn new(
        client: Client,
        (namespace, name): (&str, &str),
        identity: String,
        clock: fn() -> Timestamp,
        rng: StdRng,
    ) -> Self {
        Self {
            leases: Api::namespaced(client, namespace),
            name: name.to_owned(),
            identity,
            clock,
            rng,
            seen: None,
            held_at: None,
        }
    }

    /// Stands for ever, and says whether it leads. Dropped, it leaves the Lease to
    /// end by itself; see [`Candidate::resign`].
    pub async fn run(&mut self, leads: &watch::Sender<bool>) {
        loop {
            let asked = Instant::now();
            let held = tokio::time::timeout(GIVES_UP_AFTER / 2, self.tick()).await;
            match held {
                Ok(Ok(true)) => self.held_at = Some(asked),
                Ok(Ok(false)) => self.held_at = None,
                Ok(Err(error)) => tracing::warn!(%error, "the lease is out of reach"),
                Err(_elapsed) => tracing::warn!("the lease is out of reach: no answer"),
            }
            let is_leading = self.is_leading();
            if !is_leading {
                // Or the end of a time that is over would be waited for, without a
                // pause, for as long as nobody answers.
                self.held_at = None;
            }
            say(is_leading);
            if leads.send_replace(is_leading) != is_leading {
                let lease = &self.name;
                match is_leading {
                    true => tracing::info!(%lease, "leads"),
                    false => tracing::info!(%lease, "leads no more"),
                }
            }
            let pause = EVERY.mul_f64(self.rng.random_range(0.8..1.2));
            // With nothing to wait for but the end of our own time.
            let end = self.held_at.map(|at| at + GIVES_UP_AFTER);
            let next = Instant::now() + pause;
            tokio::time::sleep_until(end.map_or(next, |end| next.min(end))).await;
        }
    }

    fn is_leading(&self) -> bool {
        self.held_at.is_some_and(|at| at.elapsed() < GIVES_UP_AFTER)
    }

    /// One try. Whether the Lease is ours.
    pub async fn tick(&mut self) -> Result<bool, kube::Error> {
        let Some(lease) = self.leases.get_opt(&self.name).await? else {
            return self.written(self.create().await);
        };
        let version = lease.metadata.resource_version.clone().unwrap_or_default();
        let since = match &self.seen {
            Some((seen, since)) if *seen == version => *since,
            _ => Instant::now(),
        };
        self.seen = Some((version, since));
        let spec = lease.spec.clone().unwrap_or_default();
        let action = decide(&spec, &self.identity, since.elapsed());
        if action == Move::Wait {
            return Ok(false);
        }
        let now = self.now();
        let taken = action == Move::Take;
        let transitions = spec.lease_transitions.unwrap_or(0);
        let next = LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: seconds(GOOD_FOR),
            renew_time: Some(now.clone()),
            acquire_time: if taken {
                Some(now)
            } else {
                spec.acquire_time.clone()
            },
            lease_transitions: Some(transitions + i32::from(taken)),
            ..spec
        };
        let next = Lease {
            spec: Some(next),
            ..lease
        };
        // The version is in it: refused if anybody has written meanwhile.
        let options = PostParams::default();
        let written = self.leases.replace(&self.name, &options, &next).await;
        self.written(written)
    }

    async fn create(&self) -> Result<Lease, kube::Error> {
        let now = self.now();
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.identity.clone()),
                lease_duration_seconds: seconds(GOOD_FOR),
                acquire_time: Some(now.clone()),
                renew_time: Some(now),
                lease_transitions: Some(0),
                ..LeaseSpec::default()
            }),
        };
        self.leases.create(&PostParams::default(), &lease).await
    }

    /// A conflict is an answer: somebody else was first.
    fn written(&mut self, written: Result<Lease, kube::Error>) -> Result<bool, kube::Error> {
        match written {
            Ok(lease) => {
                let version = lease.metadata.resource_version.unwrap_or_default();
                self.seen = Some((version, Instant::now()));
                Ok(true)
            }
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Gives the Lease back, so that the next one need not wait for its end.
    pub async fn resign(&mut self) -> Result<(), kube::Error> {
        say(false);
        if self.held_at.take().is_none() {
            return Ok(());
        }
        let Some(mut lease) = self.leases.get_opt(&self.name).await? else {
            return Ok(());
        };
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_deref() != Some(&self.identity) {
            return Ok(());
        }
        spec.holder_identity = None;
        let options = PostParams::default();
        let written = self.leases.replace(&self.name, &options, &lease).await;
        self.written(written).map(drop)
    }

    fn now(&self) -> MicroTime {
        let now = jiff::Timestamp::from_microsecond((self.clock)().as_micros());
        MicroTime(now.unwrap_or_default())
    }
}

/// At every try: a gauge that nobody sets is forgotten.
fn say(is_leading: bool) {
    metrics::gauge!("paceline_operator_leads").set(u32::from(is_leading));
}

fn seconds(duration: Duration) -> Option<i32> {
    i32::try_from(duration.as_secs()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_nobodys_is_taken() {
        let held = |holder: Option<&str>| LeaseSpec {
            holder_identity: holder.map(str::to_owned),
            lease_duration_seconds: Some(15),
            ..LeaseSpec::default()
        };
        let second = Duration::from_secs(1);
        for (holder, unchanged_for, expected) in [
            (Some("me"), second, Move::Renew),
            (Some("me"), second * 100, Move::Renew),
            (None, second, Move::Take),
            (Some(""), second, Move::Take),
            (Some("other"), second * 15, Move::Wait),
            (Some("other"), second * 16, Move::Take),
        ] {
            let decided = decide(&held(holder), "me", unchanged_for);
            assert_eq!(decided, expected, "{holder:?} {unchanged_for:?}");
        }
    }

    #[test]
    fn a_holder_gives_up_before_others_may_begin() {
        assert!(GIVES_UP_AFTER + EVERY * 2 < GOOD_FOR);
    }
}
