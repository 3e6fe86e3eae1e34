//! The rules of a schedule: what becomes of its jobs at a time that the caller says.
//!
//! Nothing is random and nothing is iterated in hash order, so a run repeats. Redis has
//! the same rules in Lua (`redis.rs`), and the bridge of the proofs compares the two.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use domain::ids::DestinationId;
use domain::time::Timestamp;
use engine::ports::{Finish, NextRun, Taken, TakenJob, Wake};

/// The jobs of one life of a schedule, in the order in which they are due.
#[derive(Debug, Clone)]
pub struct Jobs {
    /// Tokens begin with it, so that those of two lives differ.
    life: String,
    by_destination: BTreeMap<DestinationId, Job>,
    by_due: BTreeSet<(Timestamp, DestinationId)>,
    next_token: u64,
}

#[derive(Debug, Clone)]
struct Job {
    due: Timestamp,
    /// Until when a plain wake cannot bring it forward.
    floor: Option<Timestamp>,
    lease: Option<Lease>,
}

#[derive(Debug, Clone)]
struct Lease {
    token: String,
    /// What was asked for since the take.
    asked: Asked,
}

/// What wakes under a lease have asked for; more is greater, and stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Asked {
    Nothing,
    Look,
    Clear,
}

impl Jobs {
    /// None yet, in the life of this name.
    #[must_use]
    pub fn new(life: impl Into<String>) -> Self {
        Self {
            life: life.into(),
            by_destination: BTreeMap::new(),
            by_due: BTreeSet::new(),
            next_token: 0,
        }
    }

    /// The name of the life.
    #[must_use]
    pub fn life(&self) -> &str {
        &self.life
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_destination.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_destination.is_empty()
    }

    /// How many are due.
    #[must_use]
    pub fn due(&self, now: Timestamp) -> usize {
        self.due_by(now).count()
    }

    /// When the first is due.
    #[must_use]
    pub fn first_due(&self) -> Option<Timestamp> {
        self.by_due.first().map(|(due, _)| *due)
    }

    fn due_by(&self, now: Timestamp) -> impl Iterator<Item = &(Timestamp, DestinationId)> {
        self.by_due.iter().take_while(move |(due, _)| *due <= now)
    }

    /// Takes up to `max` that are due, the longest due first, until `lease` is over; see
    /// [`Schedule::take`](engine::ports::Schedule::take).
    pub fn take(&mut self, now: Timestamp, max: usize, lease: Duration) -> Taken {
        self.take_of(now, max, lease, |_| true)
    }

    /// The same of those that `wanted` names alone: to follow a schedule that chose
    /// otherwise among jobs due at one time.
    pub fn take_of(
        &mut self,
        now: Timestamp,
        max: usize,
        lease: Duration,
        wanted: impl Fn(DestinationId) -> bool,
    ) -> Taken {
        let due = self.due_by(now).filter(|(_, of)| wanted(*of));
        let due: Vec<_> = due.take(max).copied().collect();
        let taken = due.into_iter().filter_map(|(due, destination)| {
            let token = format!("{}-{}", self.life, self.next_token);
            self.next_token += 1;
            self.reschedule(destination, now + lease);
            let job = self.by_destination.get_mut(&destination)?;
            let previous = job.lease.replace(Lease {
                token: token.clone(),
                asked: Asked::Nothing,
            });
            Some(TakenJob {
                destination,
                token,
                lapsed: previous.is_some(),
                overdue: now.since(due),
            })
        });
        let jobs = taken.collect();
        Taken {
            jobs,
            next_due: self.first_due().map(|due| due.since(now)),
        }
    }

    /// Ends a lease; see [`Schedule::finish`](engine::ports::Schedule::finish). When the
    /// job runs next, if a wake under the lease decided that; all else the caller knows.
    pub fn finish(&mut self, now: Timestamp, finish: &Finish) -> Option<Timestamp> {
        let job = self.by_destination.get_mut(&finish.destination)?;
        let lease = (job.lease).take_if(|lease| lease.token == finish.token)?;
        let (next, floor) = match finish.next {
            NextRun::After { delay, floor } => (Some(now + delay), floor.map(|floor| now + floor)),
            NextRun::Remove => (None, None),
        };
        job.floor = floor.filter(|_| lease.asked != Asked::Clear);
        // Woken while we looked: we may not have seen why.
        let woken = (lease.asked > Asked::Nothing).then(|| job.floor.unwrap_or(now));
        match next.into_iter().chain(woken).min() {
            Some(due) => self.reschedule(finish.destination, due),
            None => self.remove(finish.destination),
        }
        woken.filter(|woken| next.is_none_or(|next| *woken < next))
    }

    /// Brings a job forward, or makes it; see
    /// [`Schedule::wake`](engine::ports::Schedule::wake).
    pub fn wake(&mut self, now: Timestamp, wake: &Wake) {
        let at = now + wake.after;
        let Some(job) = self.by_destination.get_mut(&wake.destination) else {
            let job = Job {
                due: at,
                floor: None,
                lease: None,
            };
            self.by_due.insert((at, wake.destination));
            self.by_destination.insert(wake.destination, job);
            return;
        };
        if wake.clear_floor {
            job.floor = None;
        }
        let is_leased = job.lease.is_some();
        if let Some(lease) = &mut job.lease {
            lease.asked = lease.asked.max(match wake.clear_floor {
                true => Asked::Clear,
                false => Asked::Look,
            });
        }
        let due = job.due.min(job.floor.map_or(at, |floor| floor.max(at)));
        if wake.clear_floor || !is_leased {
            self.reschedule(wake.destination, due);
        }
    }

    fn reschedule(&mut self, destination: DestinationId, due: Timestamp) {
        if let Some(job) = self.by_destination.get_mut(&destination) {
            self.by_due.remove(&(job.due, destination));
            job.due = due;
            self.by_due.insert((due, destination));
        }
    }

    fn remove(&mut self, destination: DestinationId) {
        if let Some(job) = self.by_destination.remove(&destination) {
            self.by_due.remove(&(job.due, destination));
        }
    }
}
