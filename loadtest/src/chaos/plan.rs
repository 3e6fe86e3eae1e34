//! Which faults, when: a pure function of the seed.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use super::draw::{GROUPS, Group};
use super::fault::Fault;
use super::world::Cast;

/// What a plan is made from.
#[derive(Debug, Clone)]
pub(crate) struct Wishes {
    pub(crate) seed: u64,
    pub(crate) faults: usize,
    /// At least so many of them are kills.
    pub(crate) kills: usize,
    pub(crate) length: Duration,
    /// Kinds that are left out, or the beginnings of their names.
    pub(crate) without: Vec<String>,
    pub(crate) cast: Cast,
}

/// One fault and its time since the storm began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) at: Duration,
    pub(crate) fault: Fault,
}

/// One fault of so many is a commit that is late, and one of each plan.
const A_LATE_COMMIT_IN: usize = 50;

/// Faults of every group in turn, shuffled, at uneven distances, in order.
///
/// The store's clock steps forward last: admission is frozen for a minute
/// after that, so later faults would find nothing to disturb. A commit is late
/// first: it takes longer than any other fault, and few are enough.
pub(crate) fn plan(wishes: &Wishes) -> Vec<Planned> {
    let mut random = StdRng::seed_from_u64(wishes.seed);
    let is_wanted = |fault: Fault| {
        let kind = fault.kind();
        !(wishes.without.iter()).any(|without| kind.starts_with(without.as_str()))
    };
    let kills = wishes.kills.min(wishes.faults);
    let mut faults: Vec<Fault> = (0..kills)
        .map(|_| Group::Kill.draw(&mut random, &wishes.cast))
        .filter(|fault| is_wanted(*fault))
        .collect();
    let mut deck: Vec<Group> = Vec::new();
    let (mut step, mut heavy) = (None, 0);
    let late = Group::LateCommit.draw(&mut random, &wishes.cast);
    let late = Some(late).filter(|late| kills < wishes.faults && is_wanted(*late));
    let mut late_commits = usize::from(late.is_some());
    // Ends also when nothing that is wanted can be drawn.
    for _ in 0..wishes.faults * 50 {
        let first_and_last = usize::from(late.is_some()) + usize::from(step.is_some());
        if faults.len() + first_and_last >= wishes.faults {
            break;
        }
        if deck.is_empty() {
            deck = GROUPS.to_vec();
            deck.shuffle(&mut random);
        }
        let Some(group) = deck.pop() else { break };
        let fault = group.draw(&mut random, &wishes.cast);
        // What stops everything for a while may be a fifth of all.
        let too_heavy = group.is_heavy() && heavy > faults.len() / 5;
        let again = matches!(fault, Fault::Delete(_)) && faults.contains(&fault);
        let too_late = group == Group::LateCommit && late_commits > faults.len() / A_LATE_COMMIT_IN;
        if too_heavy || too_late || again || !is_wanted(fault) {
            continue;
        }
        late_commits += usize::from(group == Group::LateCommit);
        heavy += usize::from(group.is_heavy());
        match fault {
            Fault::ClockStep(by) if by > 0 => step = Some(fault),
            _ => faults.push(fault),
        }
    }
    faults.shuffle(&mut random);
    let faults: Vec<_> = late.into_iter().chain(faults).chain(step).collect();
    timed(&mut random, &faults, wishes.length)
}

/// One fault in each even share of the time, somewhere in it.
fn timed(random: &mut StdRng, faults: &[Fault], length: Duration) -> Vec<Planned> {
    let share = length / u32::try_from(faults.len().max(1)).unwrap_or(u32::MAX);
    (0_u32..)
        .zip(faults)
        .map(|(number, fault)| Planned {
            at: share * number + share.mul_f64(random.random::<f64>()),
            fault: *fault,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::fault::{KINDS, is_kill};
    use super::*;

    fn wishes(seed: u64) -> Wishes {
        Wishes {
            seed,
            faults: 60,
            kills: 10,
            length: Duration::from_secs(200),
            without: Vec::new(),
            cast: Cast::new(1),
        }
    }

    #[test]
    fn a_seed_is_one_plan() {
        assert_eq!(plan(&wishes(7)), plan(&wishes(7)));
        assert_ne!(plan(&wishes(7)), plan(&wishes(8)));
    }

    #[test]
    fn a_plan_is_as_long_as_was_asked_and_in_order() {
        for seed in 0..50 {
            let planned = plan(&wishes(seed));
            assert_eq!(planned.len(), 60, "{seed}");
            assert!(planned.is_sorted_by_key(|one| one.at));
            assert!(planned.iter().all(|one| one.at <= Duration::from_secs(200)));
            let kills = planned
                .iter()
                .filter(|one| is_kill(&one.fault.kind()))
                .count();
            assert!(kills >= 10, "{seed}: {kills}");
            assert!(matches!(planned[0].fault, Fault::LateCommit(..)), "{seed}");
            let late = |one: &&Planned| matches!(one.fault, Fault::LateCommit(..));
            assert!(planned.iter().filter(late).count() <= 2);
            let steps = |one: &&Planned| matches!(one.fault, Fault::ClockStep(by) if by > 0);
            assert!(planned.iter().filter(steps).count() <= 1);
        }
    }

    #[test]
    fn a_long_plan_has_its_kills() {
        let planned = plan(&Wishes {
            faults: 600,
            kills: 200,
            ..wishes(1)
        });
        assert_eq!(planned.len(), 600);
        assert!(
            planned
                .iter()
                .filter(|one| is_kill(&one.fault.kind()))
                .count()
                >= 200
        );
    }

    #[test]
    fn every_kind_comes_up_unless_it_is_left_out() {
        let kinds = |without: &[&str]| -> BTreeSet<String> {
            let without = without.iter().map(|kind| (*kind).to_owned()).collect();
            let wishes = Wishes {
                faults: 5_000,
                without,
                ..wishes(3)
            };
            plan(&wishes).iter().map(|one| one.fault.kind()).collect()
        };
        let all = kinds(&[]);
        for kind in KINDS {
            assert!(all.contains(kind), "{kind} never comes up");
        }
        assert_eq!(all.len(), KINDS.len(), "{all:?}");
        let some = kinds(&["clock", "disk-full", "crash"]);
        assert!(some.iter().all(|kind| !kind.starts_with("clock")));
        assert!(!some.contains("disk-full") && some.contains("kill-worker"));
    }
}
