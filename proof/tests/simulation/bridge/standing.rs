//! Where a reference stands beside Postgres, and what it does with a call: the store
//! on SQLite, one caller at a time.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use domain::attempt::AttemptState;
use domain::ids::{AttemptId, DestinationId, WorkerId};
use domain::share::Load;
use domain::time::Timestamp;
use engine::ports::{
    ClaimAnswer, Fleet, Heartbeat, MAX_HEAD_START, NextTry, ReapRules, Reaped, RunResult,
    Store as _, Sweep, SweepPage, Wake,
};

use super::calls::{Answer, Call};
use super::held::{
    Held, contended, given_unseen, is_recorded_meanwhile, left_by_run, parts, permits_of,
    possibilities, retires_meanwhile, skips_are_met,
};
use super::reference::{ReapStep, Reference};
use super::shown::{Shown, are_same, wakes_of};
use crate::bridge::linear::{Called, Candidate, Step};

/// When a batch was made, and what there was after it.
pub(crate) struct Asked {
    pub(crate) between: (Timestamp, Timestamp),
    pub(crate) shown: Shown,
}

impl Asked {
    /// How long the batch took.
    fn took(&self) -> Duration {
        self.between.1.since(self.between.0)
    }
}

/// Where the store may stand.
pub(crate) struct State {
    pub(crate) reference: Reference,
    pub(crate) asked: Rc<Asked>,
    /// What the reference answered otherwise.
    pub(crate) differs: Rc<RefCell<String>>,
    /// Whom the first steps of reaps have to wake, by the place in the batch.
    pub(crate) woken: BTreeMap<usize, BTreeSet<DestinationId>>,
}

impl State {
    pub(crate) fn new(now: Timestamp) -> Self {
        let asked = Asked {
            between: (now, now),
            shown: Shown::default(),
        };
        Self {
            reference: Reference::new(now, MAX_HEAD_START),
            asked: Rc::new(asked),
            differs: Rc::default(),
            woken: BTreeMap::new(),
        }
    }

    fn fork(&self) -> Self {
        Self {
            reference: self.reference.fork(),
            asked: self.asked.clone(),
            differs: self.differs.clone(),
            woken: self.woken.clone(),
        }
    }

    /// The reference's next step is at this time.
    pub(crate) fn set(&self, at: Timestamp) {
        self.reference.store().show(at);
    }

    fn differs(&self, reference: String, driver: String) -> Vec<Self> {
        *self.differs.borrow_mut() = format!("{reference}\nbut\n{driver}");
        Vec::new()
    }

    /// The times at which Postgres may have made a call: what it answered, or
    /// what its rows say; of a call whose time decides nothing, any.
    fn times_of(&self, called: &Called<Call, Answer>) -> Vec<Timestamp> {
        let Asked { between, shown } = &*self.asked;
        let or_any = |times: BTreeSet<Timestamp>| match times.is_empty() {
            true => vec![between.0],
            false => times.into_iter().collect(),
        };
        match (&called.call, &called.answer) {
            (_, Answer::Admitted(admitted)) => vec![admitted.now],
            (_, Answer::Claims(claims)) => vec![claims.now],
            (Call::Accept(events), _) => or_any(shown.times(*between, |place| {
                place.2 == 0 && events.iter().any(|event| event.id == place.0)
            })),
            (Call::Record(_, outcomes), _)
                if outcomes.iter().any(|one| one.next == NextTry::Again) =>
            {
                or_any(shown.times(*between, |place| place.2 > 0))
            }
            (Call::Reap(_), _) => {
                let mut times = shown.times(*between, |place| place.2 > 0);
                times.extend([between.0, between.1]);
                times.into_iter().collect()
            }
            _ => vec![between.0],
        }
    }

    /// The reference's attempts at these places.
    async fn ids_of(&self, held: &Held) -> Vec<AttemptId> {
        if held.is_empty() {
            return Vec::new();
        }
        let shown = Shown::read(self.reference.store(), &destinations_of(&self.asked.shown)).await;
        let ids = held.iter().filter_map(|place| shown.id_of(place));
        ids.collect()
    }

    /// A call that is one step.
    async fn answers(&self, step: &Step<'_, Call, Answer>) -> Vec<Self> {
        let called = step.called();
        let mut found = Vec::new();
        for at in self.times_of(called) {
            let possibilities = match (&called.call, &called.answer) {
                (Call::Admit(..), Answer::Admitted(admitted)) => {
                    if !skips_are_met(step, admitted) {
                        let alone = "nobody else was there".to_owned();
                        return self.differs(alone, format!("{admitted:?}"));
                    }
                    let left = self.left_by_run(step, at).await;
                    vec![left.unwrap_or_default()]
                }
                _ => possibilities(step, &self.asked.shown),
            };
            for held in possibilities {
                found.extend(self.answers_with(step, at, &held, None).await);
                if let Some(worker) = retires_meanwhile(step) {
                    found.extend(self.answers_with(step, at, &held, Some(worker)).await);
                }
            }
        }
        found
    }

    /// What somebody must have held of a run's choice.
    async fn left_by_run(&self, step: &Step<'_, Call, Answer>, at: Timestamp) -> Option<Held> {
        let (_, alone, after) = self.ask_reference(step, at, &[], None).await;
        let Answer::Admitted(alone) = alone else {
            return None;
        };
        let chosen = permits_of(&alone).filter_map(|permit| after.place(permit.attempt));
        left_by_run(step, chosen, &self.asked.shown)
    }

    /// The reference after a call, its answer, and what it shows then. Others hold
    /// these rows, and the destinations that the driver says it skipped; this
    /// worker is seen alive though it has retired.
    async fn ask_reference(
        &self,
        step: &Step<'_, Call, Answer>,
        at: Timestamp,
        held: &[AttemptId],
        seen_alive: Option<WorkerId>,
    ) -> (Self, Answer, Shown) {
        let Called { call, answer, .. } = step.called();
        let state = self.fork();
        let ids = destinations_of(&self.asked.shown);
        let before = Shown::read(state.reference.store(), &ids).await;
        let call = before.translated(call, &self.asked.shown);
        let skipped: Vec<_> = match (&call, answer) {
            (Call::Admit(runs, _), Answer::Admitted(admitted)) => {
                let results = runs.iter().zip(&admitted.results);
                let skipped = results.filter(|(_, one)| matches!(one, RunResult::Skipped));
                skipped.map(|(run, _)| run.destination).collect()
            }
            _ => Vec::new(),
        };
        state.set(at);
        let reference = &state.reference;
        reference.store().hold_rows(held.iter().copied());
        let seen_alive = seen_alive.filter(|worker| reference.set_retired(*worker, false));
        for id in &skipped {
            reference.store().lock_destination(*id);
        }
        let ours = reference.ask(&call).await;
        for id in &skipped {
            reference.store().unlock_destination(*id);
        }
        reference.store().hold_rows([]);
        if let Some(worker) = seen_alive {
            reference.set_retired(worker, true);
        }
        let after = Shown::read(state.reference.store(), &ids).await;
        (state, ours, after)
    }

    async fn answers_with(
        &self,
        step: &Step<'_, Call, Answer>,
        at: Timestamp,
        held: &Held,
        seen_alive: Option<WorkerId>,
    ) -> Vec<Self> {
        let answer = &step.called().answer;
        let held = self.ids_of(held).await;
        let (state, mut ours, after) = self.ask_reference(step, at, &held, seen_alive).await;
        moved_meanwhile(&mut ours, answer, &held, |id| {
            let place = after.place(id)?;
            self.asked.shown.id_of(&place)
        });
        failed_meanwhile(&mut ours, step);
        let (said, theirs) = (after.answer(&ours), self.asked.shown.answer(answer));
        let (wakes, wanted) = (wakes_of(&ours), wakes_of(answer));
        match said == theirs && are_same(wakes, wanted, self.asked.took()) {
            true => vec![state],
            false => self.differs(format!("{said} {wakes:?}"), format!("{theirs} {wanted:?}")),
        }
    }

    /// A sign of life is noted.
    async fn beats(&self, beat: &Heartbeat, answer: &Answer) -> Vec<Self> {
        let Answer::Beaten(now) = answer else {
            return self.differs("a time".to_owned(), format!("{answer:?}"));
        };
        let state = self.fork();
        state.set(*now);
        state.reference.ask(&Call::Beat(*beat)).await;
        vec![state]
    }

    /// The fleet is read.
    async fn counts(&self, step: &Step<'_, Call, Answer>) -> Vec<Self> {
        let Answer::Fleet(fleet) = &step.called().answer else {
            return self.differs("a fleet".to_owned(), format!("{:?}", step.called().answer));
        };
        let state = self.fork();
        state.set(fleet.now);
        let ours = state.reference.store().fleet().await.unwrap();
        let (theirs, known) = (fleet.outstanding as usize, ours.outstanding as usize);
        let may = theirs <= known && known <= theirs + given_unseen(step);
        let of_loads = |fleet: &Fleet, part: fn(&Load) -> u32| -> usize {
            fleet.loads.iter().map(|load| part(load) as usize).sum()
        };
        let in_flight = |fleet| of_loads(fleet, |load| load.in_flight);
        let adds_up = of_loads(fleet, |load| load.outstanding) == theirs;
        let may = may && in_flight(fleet) == in_flight(&ours);
        let seen = Fleet {
            outstanding: ours.outstanding,
            loads: ours.loads.clone(),
            ..fleet.clone()
        };
        match seen == ours && adds_up && may {
            true => vec![state],
            false => self.differs(format!("{ours:?}"), format!("{fleet:?}")),
        }
    }

    /// One of the steps of a reap. Rows that others touched may have been
    /// held: as many as are missing.
    async fn reaps(&self, rules: &ReapRules, step: &Step<'_, Call, Answer>) -> Vec<Self> {
        let Answer::Reaped(reaped) = &step.called().answer else {
            return self.differs("reaped".to_owned(), format!("{:?}", step.called().answer));
        };
        let which = ReapStep::ALL[step.number];
        let wanted = which.moved(reaped);
        let in_state = match which {
            ReapStep::Expire => AttemptState::Admitted,
            ReapStep::GiveUp => AttemptState::Started,
            ReapStep::Cancel | ReapStep::TooOld => AttemptState::Waiting,
        };
        let times = match which {
            ReapStep::GiveUp => self.times_of(step.called()),
            // No permit ends during a batch, and nothing grows too old.
            ReapStep::Expire | ReapStep::Cancel | ReapStep::TooOld => vec![self.asked.between.0],
        };
        let shown = Shown::read(self.reference.store(), &destinations_of(&self.asked.shown)).await;
        let rows = contended(step, shown.in_state(in_state), &self.asked.shown);
        let mut found = Vec::new();
        for at in times {
            let alone = self.fork();
            alone.set(at);
            let (all, _) = alone.reference.reap(which, rules, []).await;
            let Some(missing) = all.checked_sub(wanted) else {
                continue;
            };
            for held in parts(&rows, usize::try_from(missing).ok()) {
                let mut state = self.fork();
                state.set(at);
                let held = held.iter().filter_map(|place| shown.id_of(place));
                let (moved, wakes) = state.reference.reap(which, rules, held).await;
                let woken = state.woken.entry(step.of).or_default();
                woken.extend(wakes.iter().map(|wake| wake.destination));
                if moved == wanted && wakes_are(woken, reaped, which) {
                    found.push(state);
                }
            }
        }
        match found.is_empty() {
            true => self.differs(format!("{which:?} otherwise"), format!("{reaped:?}")),
            false => found,
        }
    }

    /// The two steps of a sweep: the walk, and the marks, which are of what was
    /// there later.
    async fn sweeps(&self, sweep: &Sweep, answer: &Answer, number: usize) -> Vec<Self> {
        let Answer::Swept(page) = answer else {
            return self.differs("a page".to_owned(), format!("{answer:?}"));
        };
        let mut other = SweepPage::default();
        for at in self.instants() {
            let state = self.fork();
            state.set(at);
            other = state.reference.store().sweep(sweep).await.unwrap();
            let same = match number {
                0 => {
                    // What is marked by the second step is not woken twice.
                    let walked = [&other, page].map(|of| of_the_walk(of, page));
                    other.next == page.next && are_same(&walked[0], &walked[1], self.asked.took())
                }
                _ => {
                    let marked = |of: &SweepPage| -> Vec<_> {
                        of.marks.iter().map(|mark| mark.destination).collect()
                    };
                    let wakes = page
                        .marks
                        .iter()
                        .map(|mark| Wake::unblocked(mark.destination));
                    let woken = page.wakes.iter().filter(|wake| wake.clear_floor).copied();
                    marked(&other) == marked(page) && woken.eq(wakes)
                }
            };
            if same {
                return vec![state];
            }
        }
        self.differs(format!("{other:?}"), format!("{page:?}"))
    }

    /// The begin and the end of the batch, and each time between them from
    /// which on something is due or overdue.
    fn instants(&self) -> BTreeSet<Timestamp> {
        let (from, to) = self.asked.between;
        let mut instants = self.asked.shown.times((from, to), |_| true);
        let looks = self.reference.looks().into_iter();
        let after = looks.filter(|at| *at < Timestamp::MAX);
        instants.extend(after.map(|at| at + Duration::from_micros(1)));
        instants.retain(|at| (from..=to).contains(at));
        instants.extend([from, to]);
        instants
    }
}

/// What of a page is not of its marks, nor of those of another.
fn of_the_walk(page: &SweepPage, other: &SweepPage) -> Vec<Wake> {
    let is_marked = |wake: &Wake| {
        let mut marks = page.marks.iter().chain(&other.marks);
        wake.clear_floor || marks.any(|mark| mark.destination == wake.destination)
    };
    let wakes = page.wakes.iter();
    wakes.filter(|wake| !is_marked(wake)).copied().collect()
}

/// Whether a reap wakes those that its steps so far have to, each at once.
fn wakes_are(woken: &BTreeSet<DestinationId>, reaped: &Reaped, step: ReapStep) -> bool {
    let answered: BTreeSet<_> = reaped.wakes.iter().map(|wake| wake.destination).collect();
    match step {
        ReapStep::Expire => woken.is_subset(&answered),
        ReapStep::GiveUp | ReapStep::Cancel | ReapStep::TooOld => {
            let now = reaped
                .wakes
                .iter()
                .all(|wake| *wake == Wake::now(wake.destination));
            now && *woken == answered && answered.len() == reaped.wakes.len()
        }
    }
}

/// What was held and had moved when it was looked at again is answered as what
/// it had become.
fn moved_meanwhile(
    ours: &mut Answer,
    answer: &Answer,
    held: &[AttemptId],
    id_of_driver: impl Fn(AttemptId) -> Option<AttemptId>,
) {
    match (ours, answer) {
        (Answer::Claims(ours), Answer::Claims(theirs)) => {
            for (ours, theirs) in ours.answers.iter_mut().zip(&theirs.answers) {
                if *ours == ClaimAnswer::Skipped && *theirs == ClaimAnswer::Refused {
                    *ours = ClaimAnswer::Refused;
                }
            }
        }
        (Answer::Recorded(ours), Answer::Recorded(theirs)) => {
            ours.skipped.retain(|id| {
                let theirs_has_it =
                    id_of_driver(*id).is_some_and(|id| theirs.skipped.contains(&id));
                theirs_has_it || !held.contains(id)
            });
        }
        _ => {}
    }
}

/// Who is failing is a hint, and may be that of a moment before.
fn failed_meanwhile(ours: &mut Answer, step: &Step<'_, Call, Answer>) {
    let Called { call, answer, .. } = step.called();
    let (Call::Admit(runs, _), Answer::Admitted(ours), Answer::Admitted(theirs)) =
        (call, ours, answer)
    else {
        return;
    };
    for (run, (ours, theirs)) in (runs.iter()).zip(ours.results.iter_mut().zip(&theirs.results)) {
        if let RunResult::Decided { failing: ours, .. } = ours
            && let RunResult::Decided {
                failing: theirs, ..
            } = theirs
            && is_recorded_meanwhile(step, run.destination)
        {
            *ours = *theirs;
        }
    }
}

impl Candidate for State {
    type Call = Call;
    type Answer = Answer;

    /// As many as Postgres has snapshots of which an answer tells.
    fn steps(called: &Called<Call, Answer>) -> usize {
        match called.call {
            Call::Reap(_) => ReapStep::ALL.len(),
            Call::Sweep(_) => 2,
            _ => 1,
        }
    }

    async fn after(&self, step: Step<'_, Call, Answer>) -> Vec<Self> {
        let Called { call, answer, .. } = step.called();
        match call {
            Call::Sweep(sweep) => self.sweeps(sweep, answer, step.number).await,
            Call::Beat(beat) => self.beats(beat, answer).await,
            Call::Fleet => self.counts(&step).await,
            Call::Reap(rules) => self.reaps(rules, &step).await,
            _ => self.answers(&step).await,
        }
    }

    fn is_as(&self, other: &Self) -> bool {
        self.woken == other.woken && self.reference.is_as(&other.reference)
    }
}

/// Where there is any attempt.
fn destinations_of(shown: &Shown) -> Vec<DestinationId> {
    shown.orders().into_keys().collect()
}
