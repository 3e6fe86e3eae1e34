//! Where the model stands beside Postgres, and what it does with a call.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use domain::destination::DestinationState;
use domain::ids::DestinationId;
use domain::time::Timestamp;
use engine::ports::{Catalog as _, DEFAULT_TENANT};
use simulation::model::{ClockStep, ModelStore};

use super::calls::{Answer, Call, ask};
use super::shown::{Shown, page_is_between};
use crate::bridge::linear::{Called, Candidate};

/// When a batch was made, and what there was after it.
pub(crate) struct Asked {
    pub(crate) between: (Timestamp, Timestamp),
    pub(crate) shown: Shown,
}

/// Where the store may stand.
pub(crate) struct State {
    pub(crate) model: ModelStore,
    pub(crate) asked: Rc<Asked>,
    /// What the model answered otherwise.
    pub(crate) differs: Rc<RefCell<String>>,
}

impl State {
    pub(crate) fn new(now: Timestamp) -> Self {
        let asked = Asked {
            between: (now, now),
            shown: Shown::default(),
        };
        Self {
            model: ModelStore::new(now),
            asked: Rc::new(asked),
            differs: Rc::default(),
        }
    }

    /// The model's next step is at this time.
    pub(crate) fn set(&self, at: Timestamp) {
        // It lets a microsecond pass with each.
        self.show(at - Duration::from_micros(1));
    }

    /// The model's clock shows this.
    fn show(&self, at: Timestamp) {
        let ahead = self.model.now().micros_since(at);
        let by = Duration::from_micros(ahead.unsigned_abs());
        self.model.step_clock(match ahead > 0 {
            true => ClockStep::Backward(by),
            false => ClockStep::Forward(by),
        });
    }

    /// When Postgres made a call, or a time that does as well.
    fn time_of(&self, called: &Called<Call, Answer>) -> Timestamp {
        let Asked { between, shown } = &*self.asked;
        let known = match (&called.call, &called.answer) {
            (_, Answer::Admitted(admitted)) => Some(admitted.now),
            (_, Answer::Claims(claims)) => Some(claims.now),
            (_, Answer::Fleet(fleet)) => Some(fleet.now),
            (Call::Accept(events), _) => shown.created_within(*between, |row| {
                events.iter().any(|event| event.id == row.event)
            }),
            (Call::Reap(_), _) => shown.created_within(*between, |row| row.try_number > 1),
            _ => None,
        };
        known.unwrap_or(between.0)
    }

    async fn sweeps(&self, called: &Called<Call, Answer>) -> bool {
        let (from, to) = self.asked.between;
        self.show(from);
        let earlier = ask(&self.model, &called.call).await;
        self.show(to);
        let later = ask(&self.model, &called.call).await;
        let (Answer::Swept(page), Answer::Swept(earlier), Answer::Swept(later)) =
            (&called.answer, &earlier, &later)
        else {
            return false;
        };
        let targets = self.active().await;
        let same = page_is_between(page, (earlier, later), |id| targets.contains(&id));
        if !same {
            *self.differs.borrow_mut() = format!("{earlier:?}\n{later:?}");
        }
        same
    }

    async fn active(&self) -> BTreeSet<DestinationId> {
        let all = self.model.destinations(DEFAULT_TENANT, None, 100).await;
        let all = all.unwrap().into_iter();
        let active = all.filter(|destination| destination.state == DestinationState::Active);
        active.map(|destination| destination.id).collect()
    }
}

impl Candidate for State {
    type Call = Call;
    type Answer = Answer;

    async fn after(&self, called: &Called<Call, Answer>) -> Option<Self> {
        let state = Self {
            model: self.model.fork(),
            asked: self.asked.clone(),
            differs: self.differs.clone(),
        };
        if let Call::Sweep(_) = called.call {
            return state.sweeps(called).await.then_some(state);
        }
        let ids = destinations_of(&self.asked.shown);
        let before = Shown::read(&self.model, &ids).await;
        let call = before.translated(&called.call, &self.asked.shown);
        state.set(self.time_of(called));
        let answer = ask(&state.model, &call).await;
        let after = Shown::read(&state.model, &ids).await;
        let answer = after.answer(&call, &answer);
        let of_driver = self.asked.shown.answer(&called.call, &called.answer);
        if answer == of_driver {
            return Some(state);
        }
        *self.differs.borrow_mut() = format!("{answer}\nbut\n{of_driver}");
        None
    }

    fn fingerprint(&self) -> String {
        self.show(self.asked.between.1);
        format!("{:?}", self.model)
    }
}

/// Where there is any attempt.
fn destinations_of(shown: &Shown) -> Vec<DestinationId> {
    shown.orders().into_keys().collect()
}
