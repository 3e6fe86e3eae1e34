//! Who was asked for what, and when.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use domain::ids::{AttemptId, DestinationId, WorkerId};
use domain::margin::Spread;
use domain::permit::{Permit, PermitGroup};
use engine::ports::{
    Deferral, DeliveryTag, Finish, Heartbeat, Mark, Outcome, ReapRules, Request, Run, SendReport,
    Settlement, Sweep, Wake,
};
use tokio::time::Instant;

/// One call of a port, noted when it begins.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    /// This of the store, with nothing to do.
    Nothing(&'static str),
    Take,
    Fleet,
    Admit(Vec<Run>, u32),
    Publish(Vec<PermitGroup>),
    Defer(Vec<Deferral>),
    ReportSends(WorkerId, Vec<SendReport>),
    ReportSpreads(Vec<(DestinationId, Spread)>),
    Release(Vec<Permit>),
    Finish(Vec<Finish>),
    Wake(Vec<Wake>),
    Targets(Vec<DestinationId>),
    Prepare(DestinationId),
    Claim(WorkerId, Vec<Permit>),
    ClaimBatches(WorkerId, Vec<Permit>),
    Send(Request),
    Record(WorkerId, Vec<Outcome>),
    Heartbeat(Heartbeat),
    /// A heartbeat that the store has written.
    Beaten(Heartbeat),
    Subscribe(u16),
    Stop,
    Settle(DeliveryTag, Settlement),
    Sweep(Sweep),
    ClearMarks(Vec<Mark>),
    Rebuilt(String),
    Reap(ReapRules),
    Accept(usize),
}

/// All calls, in order.
pub(crate) struct Journal {
    began: Instant,
    entries: Mutex<Vec<(Duration, Event)>>,
}

impl Journal {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            entries: Mutex::new(Vec::new()),
        }
    }

    /// How long it has gone on.
    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub(crate) fn note(&self, event: Event) {
        let entry = (self.began.elapsed(), event);
        self.lock().push(entry);
    }

    /// Every call so far.
    pub(crate) fn events(&self) -> Vec<Event> {
        self.lock().iter().map(|(_, event)| event.clone()).collect()
    }

    /// When the calls that `wanted` accepts were made.
    pub(crate) fn times(&self, wanted: impl Fn(&Event) -> bool) -> Vec<Duration> {
        let entries = self.lock();
        let wanted = entries.iter().filter(|(_, event)| wanted(event));
        wanted.map(|(at, _)| *at).collect()
    }

    /// What `picked` makes of the calls so far.
    pub(crate) fn pick<T>(&self, picked: impl Fn(Event) -> Option<T>) -> Vec<T> {
        self.events().into_iter().filter_map(picked).collect()
    }

    /// Where the first call that `wanted` accepts stands.
    pub(crate) fn position(&self, wanted: impl Fn(&Event) -> bool) -> usize {
        let position = self.lock().iter().position(|(_, event)| wanted(event));
        position.expect("no such call was made")
    }

    /// The attempts that were sent.
    pub(crate) fn sent(&self) -> Vec<AttemptId> {
        self.pick(|event| match event {
            Event::Send(request) => Some(request.attempt),
            _ => None,
        })
    }

    /// The outcomes that were handed to the store, call by call.
    pub(crate) fn recorded(&self) -> Vec<(WorkerId, Vec<Outcome>)> {
        self.pick(|event| match event {
            Event::Record(worker, outcomes) => Some((worker, outcomes)),
            _ => None,
        })
    }

    /// The only outcome that was handed to the store, in one call.
    pub(crate) fn only_outcome(&self) -> Outcome {
        let mut recorded = self.recorded();
        assert_eq!(recorded.len(), 1, "{recorded:?}");
        let (_, mut outcomes) = recorded.remove(0);
        assert_eq!(outcomes.len(), 1, "{outcomes:?}");
        outcomes.remove(0)
    }

    /// The claims, call by call.
    pub(crate) fn claims(&self) -> Vec<(WorkerId, Vec<Permit>)> {
        self.pick(|event| match event {
            Event::Claim(worker, permits) => Some((worker, permits)),
            _ => None,
        })
    }

    /// The settlements, in order.
    pub(crate) fn settled(&self) -> Vec<(DeliveryTag, Settlement)> {
        self.pick(|event| match event {
            Event::Settle(tag, settlement) => Some((tag, settlement)),
            _ => None,
        })
    }

    /// Whom nothing is admitted of for a while.
    pub(crate) fn deferred(&self) -> Vec<Deferral> {
        let deferred = self.pick(|event| match event {
            Event::Defer(deferrals) => Some(deferrals),
            _ => None,
        });
        deferred.into_iter().flatten().collect()
    }

    /// The permits that were released.
    pub(crate) fn released(&self) -> Vec<Permit> {
        let released = self.pick(|event| match event {
            Event::Release(permits) => Some(permits),
            _ => None,
        });
        released.into_iter().flatten().collect()
    }

    /// The wakes of the schedule.
    pub(crate) fn woken(&self) -> Vec<Wake> {
        let woken = self.pick(|event| match event {
            Event::Wake(wakes) => Some(wakes),
            _ => None,
        });
        woken.into_iter().flatten().collect()
    }

    /// The ends of leases.
    pub(crate) fn finished(&self) -> Vec<Finish> {
        let finished = self.pick(|event| match event {
            Event::Finish(finishes) => Some(finishes),
            _ => None,
        });
        finished.into_iter().flatten().collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(Duration, Event)>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
