//! Wakes, each once, in the order in which they came up.

use std::collections::BTreeSet;

use domain::ids::DestinationId;
use engine::ports::Wake;

#[derive(Default)]
pub(super) struct Wakes {
    woken: Vec<Wake>,
    now: BTreeSet<DestinationId>,
}

impl Wakes {
    pub(super) fn now(&mut self, destination: DestinationId) {
        if self.now.insert(destination) {
            self.woken.push(Wake::now(destination));
        }
    }

    pub(super) fn after(&mut self, wake: Wake) {
        if wake.after.is_zero() && !wake.clear_floor {
            self.now(wake.destination);
        } else {
            self.woken.push(wake);
        }
    }

    pub(super) fn into_vec(self) -> Vec<Wake> {
        self.woken
    }
}
