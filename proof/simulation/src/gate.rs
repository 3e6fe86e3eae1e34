//! The gate that every call of a process goes through, in and out.
//!
//! At the gate a call takes its time, fails, waits while its process stands
//! still, and does not come back if its process is dead. So a process can be
//! killed between any two of its steps: before a call, after its effect and
//! before its answer, or wherever it waits.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

use crate::dice::Dice;
use crate::faulty::LATEST_COMMIT;
use crate::sabotage::Sabotage;
use crate::scenario::{Fault, Point, Process};
use crate::site::{Part, SITES, Site};
use crate::weather::Surroundings;

/// What becomes of a call that got through the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is done and answered.
    Done,
    /// It fails, and nothing is done.
    FailsBefore,
    /// It is done, and fails.
    FailsAfter,
    /// It fails, and is done after so long.
    DoneLate(Duration),
}

/// Processes that reached the point at which they are killed.
#[derive(Default)]
pub(crate) struct Deaths {
    due: Mutex<Vec<Process>>,
    told: Notify,
}

impl Deaths {
    fn report(&self, process: Process) {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        due.push(process);
        self.told.notify_one();
    }

    /// Waits for the next one.
    pub(crate) async fn next(&self) -> Process {
        loop {
            let next = self
                .due
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop();
            match next {
                Some(process) => return process,
                None => self.told.notified().await,
            }
        }
    }
}

/// The gate of one life of one process.
pub(crate) struct Gate {
    pub(crate) process: Process,
    /// Of the process.
    pub(crate) life: u64,
    pub(crate) around: Surroundings,
    dice: Dice,
    calls: [AtomicU64; SITES],
    is_dead: AtomicBool,
    state: Mutex<State>,
    resumed: Notify,
}

#[derive(Default)]
struct State {
    is_paused: bool,
    kill_at: Option<Point>,
    /// How far the process's idea of the store's clock is off.
    clock_off_ms: i64,
}

impl Gate {
    /// `life` numbers the lives of the process.
    pub(crate) fn new(process: Process, life: u64, dice: Dice, around: Surroundings) -> Self {
        let number = match process {
            Process::Api => 0,
            Process::Scheduler(number) => 1_000 + u64::from(number),
            Process::Worker(number) => 2_000 + u64::from(number),
        };
        Self {
            process,
            life,
            around,
            dice: dice.of(number).of(life),
            calls: std::array::from_fn(|_| AtomicU64::new(0)),
            is_dead: AtomicBool::new(false),
            state: Mutex::default(),
            resumed: Notify::new(),
        }
    }

    /// Lets one call in. What is rolled within the call is rolled with the
    /// dice that it returns.
    pub(crate) async fn enter(&self, site: Site) -> (Fate, Dice) {
        let number = self.calls[site as usize].fetch_add(1, Ordering::Relaxed);
        let dice = self.dice.of(site as u64).of(number);
        tokio::task::yield_now().await;
        if self.state().kill_at == Some(Point::Before(site)) {
            self.around.counts.note("process killed before a call");
            self.die().await;
        }
        self.stand_still().await;
        let latency = self.latency(site, dice);
        if !latency.is_zero() {
            sleep(latency).await;
            self.stand_still().await;
        }
        (self.fate(site, dice), dice)
    }

    /// Lets the answer out.
    pub(crate) async fn leave(&self, site: Site) {
        if self.state().kill_at == Some(Point::After(site)) {
            self.around.counts.note("process killed after a call");
            self.die().await;
        }
        self.stand_still().await;
    }

    /// Whether this fault strikes here; counted as what it is called.
    pub(crate) fn strikes(&self, fault: Fault, dice: Dice, called: &'static str) -> bool {
        self.around.strikes(fault, dice, called)
    }

    /// Whether this bug is planted.
    pub(crate) fn has(&self, sabotage: Sabotage) -> bool {
        self.around.sabotage == Some(sabotage)
    }

    /// The next roll for something that is no call.
    pub(crate) fn roll(&self, site: Site) -> Dice {
        let number = self.calls[site as usize].fetch_add(1, Ordering::Relaxed);
        self.dice.of(site as u64).of(number)
    }

    /// From now on no call goes in or comes out.
    pub(crate) fn close(&self) {
        self.is_dead.store(true, Ordering::Relaxed);
    }

    /// The process dies at this point.
    pub(crate) fn kill_at(&self, point: Point) {
        self.state().kill_at = Some(point);
    }

    /// It is not to die any more, and knows what time it is.
    pub(crate) fn spare(&self) {
        let mut state = self.state();
        state.kill_at = None;
        state.clock_off_ms = 0;
    }

    /// The process stands still.
    pub(crate) fn pause(&self) {
        self.state().is_paused = true;
    }

    /// It goes on.
    pub(crate) fn resume(&self) {
        self.state().is_paused = false;
        self.resumed.notify_waiters();
    }

    /// Sets by how much its idea of the store's clock is off.
    pub(crate) fn set_clock_off(&self, millis: i64) {
        self.state().clock_off_ms = millis;
    }

    /// By how much its idea of the store's clock is off.
    pub(crate) fn clock_off_ms(&self) -> i64 {
        self.state().clock_off_ms
    }

    async fn die(&self) {
        self.close();
        self.around.deaths.report(self.process);
        std::future::pending().await
    }

    /// Waits while the process is paused, and for ever if it is dead.
    async fn stand_still(&self) {
        loop {
            if self.is_dead.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            let resumed = self.resumed.notified();
            if !self.state().is_paused {
                return;
            }
            resumed.await;
        }
    }

    fn latency(&self, site: Site, dice: Dice) -> Duration {
        let slow = match site.part() {
            Part::Store if self.strikes(Fault::StoreSlow, dice, "store slow") => 3_000,
            Part::Schedule if self.strikes(Fault::ScheduleSlow, dice, "schedule slow") => 2_000,
            _ => 0,
        };
        if slow > 0 {
            return dice.up_to(Duration::from_millis(slow));
        }
        let dice = dice.of(1);
        let (of, most) = match site.part() {
            Part::Receiver => (1, 0),
            _ if site.is_routine() => (8, 1),
            Part::Store => (4, 2),
            Part::Schedule | Part::Queue => (4, 1),
        };
        let millis = dice.below(of);
        Duration::from_millis(if millis <= most { millis } else { 0 })
    }

    fn fate(&self, site: Site, dice: Dice) -> Fate {
        let before = "store failed before the commit";
        let after = "store failed after the commit";
        let late = "store committed after it had failed";
        match site.part() {
            Part::Store if self.strikes(Fault::StoreFailsBefore, dice, before) => Fate::FailsBefore,
            Part::Store if self.strikes(Fault::StoreFailsAfter, dice, after) => Fate::FailsAfter,
            Part::Store if self.strikes(Fault::StoreCommitsLate, dice, late) => {
                Fate::DoneLate(dice.up_to(LATEST_COMMIT))
            }
            Part::Schedule
                if self.strikes(Fault::ScheduleFailsBefore, dice, "schedule failed before") =>
            {
                Fate::FailsBefore
            }
            Part::Schedule
                if self.strikes(Fault::ScheduleFailsAfter, dice, "schedule failed after") =>
            {
                Fate::FailsAfter
            }
            _ => Fate::Done,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
