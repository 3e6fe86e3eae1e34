//! Which faults strike, and what all processes of a world share beside their
//! parts.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::counts::Counts;
use crate::dice::Dice;
use crate::gate::Deaths;
use crate::sabotage::Sabotage;
use crate::scenario::Fault;
use crate::trace::Trace;

/// Which faults strike now, and how often.
#[derive(Debug, Default)]
pub(crate) struct Weather {
    permille: Mutex<[u32; Fault::ALL.len()]>,
}

impl Weather {
    /// A fault strikes so many more calls of a thousand.
    pub(crate) fn worse(&self, fault: Fault, permille: u32) {
        self.permille()[fault as usize] += permille;
    }

    /// It strikes so many fewer.
    pub(crate) fn better(&self, fault: Fault, permille: u32) {
        let mut all = self.permille();
        all[fault as usize] = all[fault as usize].saturating_sub(permille);
    }

    /// Whether this fault strikes now. Its striker counts what comes of it.
    pub(crate) fn strikes(&self, fault: Fault, dice: Dice) -> bool {
        let permille = self.of(fault);
        permille > 0 && dice.of(fault as u64).permille(permille)
    }

    fn of(&self, fault: Fault) -> u32 {
        self.permille()[fault as usize]
    }

    fn permille(&self) -> MutexGuard<'_, [u32; Fault::ALL.len()]> {
        self.permille.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What all gates of a world share.
#[derive(Clone)]
pub(crate) struct Surroundings {
    pub(crate) weather: Arc<Weather>,
    pub(crate) trace: Trace,
    pub(crate) counts: Counts,
    pub(crate) deaths: Arc<Deaths>,
    /// A bug, planted on purpose.
    pub(crate) sabotage: Option<Sabotage>,
}

impl Surroundings {
    /// Whether this fault strikes now; counted as what it is called.
    pub(crate) fn strikes(&self, fault: Fault, dice: Dice, called: &'static str) -> bool {
        let strikes = self.weather.strikes(fault, dice);
        if strikes {
            self.counts.note(called);
        }
        strikes
    }
}
