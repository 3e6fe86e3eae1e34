//! The ports of a role under trial: each call goes to the real part, past the
//! crash points, and a send is logged before its first byte.

mod notifier;

use std::sync::Arc;

use async_trait::async_trait;
use domain::event::NewEvent;
use domain::ids::WorkerId;
use domain::permit::{Permit, PermitGroup};
use engine::ports::{
    Acceptance, Admitted, ClaimAnswer, Claims, Delivery, DeliveryQueue, DeliveryTag, Finish,
    FirstByte, Outcome, Prepared, Published, QueueError, Recorded, Request, Response, Run,
    RunResult, Schedule, ScheduleError, ScheduleLife, SendError, Sender, Settlement, Store,
    StoreError, StoreLayer, Subscription, Taken, Target, Wake,
};

pub(crate) use notifier::TrappedOperations;

use super::batch;
use super::crash::{CrashPoint, Trap};
use super::log::{Appender, Send, boottime_us};

pub(crate) struct TrappedStore(pub(crate) Arc<dyn Store>, pub(crate) Trap);

#[async_trait]
impl StoreLayer for TrappedStore {
    fn under(&self) -> Option<&dyn Store> {
        Some(&*self.0)
    }

    async fn accept_events(&self, events: &[NewEvent]) -> Result<Vec<Acceptance>, StoreError> {
        self.1.at(CrashPoint::BeforeAccept);
        let accepted = self.0.accept_events(events).await?;
        self.1.at(CrashPoint::AfterAccept);
        Ok(accepted)
    }

    async fn admit(
        &self,
        runs: &[Run],
        room: &domain::share::Room,
    ) -> Result<Admitted, StoreError> {
        let admitted = self.0.admit(runs, room).await?;
        let some = (admitted.results.iter()).any(
            |result| matches!(result, RunResult::Decided { permits, .. } if !permits.is_empty()),
        );
        if some {
            self.1.at(CrashPoint::AfterAdmit);
        }
        Ok(admitted)
    }

    async fn claim_starts(
        &self,
        worker: WorkerId,
        permits: &[Permit],
    ) -> Result<Claims, StoreError> {
        let claims = self.0.claim_starts(worker, permits).await?;
        if (claims.answers.iter()).any(|answer| matches!(answer, ClaimAnswer::Started(_))) {
            self.1.at(CrashPoint::AfterClaim);
        }
        Ok(claims)
    }

    async fn claim_batches(
        &self,
        worker: WorkerId,
        permits: &[Permit],
    ) -> Result<Claims, StoreError> {
        let claims = self.0.claim_batches(worker, permits).await?;
        if (claims.answers.iter()).any(|answer| matches!(answer, ClaimAnswer::Started(_))) {
            self.1.at(CrashPoint::AfterClaim);
        }
        Ok(claims)
    }

    async fn record_outcomes(
        &self,
        worker: WorkerId,
        outcomes: &[Outcome],
    ) -> Result<Recorded, StoreError> {
        self.1.at(CrashPoint::BeforeRecord);
        let recorded = self.0.record_outcomes(worker, outcomes).await?;
        self.1.at(CrashPoint::AfterRecord);
        Ok(recorded)
    }
}

pub(crate) struct TrappedSchedule(pub(crate) Arc<dyn Schedule>, pub(crate) Trap);

#[async_trait]
impl Schedule for TrappedSchedule {
    async fn take(&self, max: usize, lease: std::time::Duration) -> Result<Taken, ScheduleError> {
        let taken = self.0.take(max, lease).await?;
        if !taken.jobs.is_empty() {
            self.1.at(CrashPoint::AfterTake);
        }
        Ok(taken)
    }

    async fn finish(&self, finishes: &[Finish]) -> Result<(), ScheduleError> {
        self.0.finish(finishes).await
    }

    async fn wake(&self, wakes: &[Wake]) -> Result<(), ScheduleError> {
        self.0.wake(wakes).await
    }

    async fn life(&self) -> Result<ScheduleLife, ScheduleError> {
        self.0.life().await
    }

    async fn rebuilt(&self, life: &str) -> Result<(), ScheduleError> {
        self.0.rebuilt(life).await
    }

    async fn woken(&self) {
        self.0.woken().await;
    }
}

pub(crate) struct TrappedQueue(pub(crate) Arc<dyn DeliveryQueue>, pub(crate) Trap);

#[async_trait]
impl DeliveryQueue for TrappedQueue {
    async fn publish(&self, groups: &[PermitGroup]) -> Result<Vec<Published>, QueueError> {
        if self.1.springs(CrashPoint::MidPublish) {
            // One message may carry them all.
            let permits = groups.iter().flat_map(PermitGroup::permits);
            let permits: Vec<Permit> = permits.copied().collect();
            let half = &permits[..permits.len().div_ceil(2)];
            let _ = self.0.publish(&PermitGroup::split(half)).await;
            std::process::abort();
        }
        let published = self.0.publish(groups).await?;
        self.1.at(CrashPoint::AfterPublish);
        Ok(published)
    }

    async fn subscribe(&self, prefetch: u16) -> Result<Box<dyn Subscription>, QueueError> {
        let subscription = self.0.subscribe(prefetch).await?;
        Ok(Box::new(TrappedSubscription(subscription, self.1.clone())))
    }

    fn health(&self) -> Result<(), QueueError> {
        self.0.health()
    }
}

struct TrappedSubscription(Box<dyn Subscription>, Trap);

#[async_trait]
impl Subscription for TrappedSubscription {
    async fn receive(&mut self, max: usize) -> Result<Vec<Delivery>, QueueError> {
        let deliveries = self.0.receive(max).await?;
        if !deliveries.is_empty() {
            self.1.at(CrashPoint::AfterReceive);
        }
        Ok(deliveries)
    }

    async fn settle(
        &mut self,
        settlements: &[(DeliveryTag, Settlement)],
    ) -> Result<(), QueueError> {
        self.0.settle(settlements).await?;
        if (settlements.iter()).any(|(_, settlement)| *settlement == Settlement::Done) {
            self.1.at(CrashPoint::AfterSettle);
        }
        Ok(())
    }

    async fn stop(&mut self) -> Result<(), QueueError> {
        self.0.stop().await
    }
}

/// Logs every request before its first byte.
pub(crate) struct LoggedSender {
    pub(crate) sender: Arc<dyn Sender>,
    pub(crate) log: Arc<Appender>,
    pub(crate) trap: Option<Trap>,
}

#[async_trait]
impl Sender for LoggedSender {
    async fn prepare(&self, target: &Target) -> Result<Box<dyn Prepared>, SendError> {
        Ok(Box::new(LoggedRequest {
            prepared: self.sender.prepare(target).await?,
            log: Arc::clone(&self.log),
            trap: self.trap.clone(),
        }))
    }
}

struct LoggedRequest {
    prepared: Box<dyn Prepared>,
    log: Arc<Appender>,
    trap: Option<Trap>,
}

#[async_trait]
impl Prepared for LoggedRequest {
    async fn send(
        self: Box<Self>,
        request: Request,
        first_byte: FirstByte,
    ) -> Result<Response, SendError> {
        // A send that cannot be logged could not be judged: it is not made.
        (self.log.append_all(&lines(&request)))
            .map_err(|error| SendError::Refused(format!("{error:#}")))?;
        let response = self.prepared.send(request, first_byte).await?;
        if let Some(trap) = &self.trap {
            trap.at(CrashPoint::AfterSend);
        }
        Ok(response)
    }
}

/// One for each event of the request.
fn lines(request: &Request) -> Vec<Send> {
    let at_us = boottime_us();
    let attempt = request.attempt.0;
    let batch = request.batch.as_deref();
    let Some(items) = batch.and_then(|id| batch::items(id, &request.payload)) else {
        return vec![Send {
            attempt,
            event: request.event.0,
            try_number: request.try_number,
            at_us,
            carried: false,
        }];
    };
    (items.iter().enumerate())
        .map(|(place, item)| Send {
            attempt,
            event: item.id,
            try_number: item.try_number,
            at_us,
            carried: place > 0,
        })
        .collect()
}
