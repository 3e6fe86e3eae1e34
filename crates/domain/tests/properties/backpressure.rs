//! Backpressure: refusals begin above the high mark and end below the low one.

use std::num::NonZeroU64;
use std::time::Duration;

use domain::backpressure::{
    BacklogBounds, Backlogged, Count, FIRST_RETRY_AFTER, MAX_RETRY_AFTER, MIN_RETRY_AFTER,
    Standing, high_mark, low_mark, noted_mark, refuses, stand,
};
use domain::time::Timestamp;
use proptest::prelude::*;
use uuid::Uuid;

const T0: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const SECOND: Duration = Duration::from_secs(1);

fn count(pending: u64, limit_per_second: Option<f64>) -> Count {
    Count {
        whose: Backlogged::All,
        pending,
        limit_per_second,
    }
}

/// The whole, after a count.
fn after(before: Option<&Standing>, count: &Count, now: Timestamp, bound: u64) -> Standing {
    let bound = NonZeroU64::new(bound).unwrap();
    let bounds = BacklogBounds {
        destination: bound,
        tenant: bound,
        all: bound,
    };
    stand(
        (before.map(std::slice::from_ref).unwrap_or_default(), &[]),
        &[*count],
        (now, &bounds),
        1,
    )[0]
}

fn refusing(pending: u64, drained_per_second: Option<f64>) -> Standing {
    Standing {
        whose: Backlogged::All,
        pending,
        counted_at: T0,
        refusing: true,
        drained_per_second,
        retry_after: SECOND,
    }
}

proptest! {
    /// Between the marks nothing changes; above and below there is no choice.
    #[test]
    fn the_state_changes_at_the_marks_and_nowhere_else(
        bound in 1_u64..2_000,
        counts in prop::collection::vec(0_u64..2_500, 0..60),
    ) {
        let mut before: Option<Standing> = None;
        let mut now = T0;
        for pending in counts {
            now = now + SECOND;
            let was = before.is_some_and(|before| before.refusing);
            let next = after(before.as_ref(), &count(pending, None), now, bound);
            if pending > high_mark(bound) && pending >= low_mark(bound) {
                prop_assert!(next.refusing);
            } else if pending < low_mark(bound) {
                prop_assert!(!next.refusing);
            } else {
                prop_assert_eq!(next.refusing, was);
            }
            prop_assert_eq!(next.refusing, !next.retry_after.is_zero());
            before = Some(next);
        }
    }

    /// However large, and however small.
    #[test]
    fn marks_are_in_order_and_an_empty_backlog_takes(bound: u64, refusing: bool) {
        prop_assert!(noted_mark(bound) <= low_mark(bound));
        prop_assert!(low_mark(bound) <= high_mark(bound).max(1));
        prop_assert!(high_mark(bound) <= bound);
        prop_assert!(!refuses(bound, refusing, 0));
    }

    /// Who waits as long as told finds the low mark reached, if the backlog
    /// drains at the limit and nothing comes in; and not much too late.
    #[test]
    fn retry_after_is_when_the_low_mark_is_reached(
        bound in 1_u64..1_000_000,
        more in 0_u64..1_000_000,
        limit in 1_u64..2_000,
    ) {
        let pending = high_mark(bound).max(low_mark(bound)) + 1 + more;
        let count = count(pending, Some(limit as f64));
        let wait = after(None, &count, T0, bound).retry_after;
        prop_assert!((MIN_RETRY_AFTER..=MAX_RETRY_AFTER).contains(&wait));
        if wait < MAX_RETRY_AFTER {
            prop_assert!(pending.saturating_sub(limit * wait.as_secs()) <= low_mark(bound));
        }
        if wait > MIN_RETRY_AFTER {
            prop_assert!(pending - limit * (wait.as_secs() - 1) > low_mark(bound));
        }
    }

    /// It is no shorter for a backlog that drains slower than its limit, and
    /// total on nonsense.
    #[test]
    fn the_slower_of_limit_and_reality_counts(
        before: u64,
        pending: u64,
        bound in 1_u64..,
        limit in prop::option::of(any::<f64>()),
        elapsed in 0_u64..1_000_000_000_000,
    ) {
        let now = T0 + Duration::from_micros(elapsed);
        let known = refusing(before, None);
        let next = after(Some(&known), &count(pending, limit), now, bound);
        if next.refusing {
            prop_assert!((MIN_RETRY_AFTER..=MAX_RETRY_AFTER).contains(&next.retry_after));
            let without = after(Some(&known), &count(pending, None), now, bound);
            if limit.is_some_and(|limit| limit >= 0.0) && elapsed > 0 {
                prop_assert!(next.retry_after >= without.retry_after);
            }
        }
    }

    /// What is left out is short, or one of too many; the whole never is.
    #[test]
    fn the_longest_are_told_of(
        counts in prop::collection::vec(0_u64..200, 0..40),
        most in 1_usize..20,
    ) {
        let bound = NonZeroU64::new(100).unwrap();
        let bounds = BacklogBounds { destination: bound, tenant: bound, all: bound };
        let of_all = counts.iter().sum();
        let mut all: Vec<Count> = (counts.iter().zip(1..))
            .map(|(pending, id)| Count {
                whose: Backlogged::Destination(Uuid::from_u128(id)),
                ..count(*pending, None)
            })
            .collect();
        all.push(count(of_all, None));
        let told = stand((&[], &[]), &all, (T0, &bounds), most);
        prop_assert!(told.len() <= most);
        prop_assert_eq!(told[0].whose, Backlogged::All);
        prop_assert_eq!(told[0].pending, of_all);
        let shortest = told[1..].iter().map(|one| one.pending).min();
        for left_out in all.iter().filter(|one| told.iter().all(|told| told.whose != one.whose)) {
            let short = left_out.pending < noted_mark(100);
            let one_of_too_many = told.len() == most;
            prop_assert!(short || one_of_too_many);
            prop_assert!(short || shortest.is_none_or(|told| left_out.pending <= told));
        }
    }
}

/// Until it has been counted twice, and then by what it really does.
#[test]
fn a_backlog_without_a_limit_is_measured() {
    let first = after(None, &count(1_000, None), T0, 100);
    assert_eq!(first.retry_after, FIRST_RETRY_AFTER);
    let second = after(Some(&first), &count(950, None), T0 + SECOND, 100);
    assert_eq!(second.drained_per_second, Some(50.0));
    assert_eq!(second.retry_after, Duration::from_secs(18));
}

/// Somebody saw it above its mark, and by now it is between the two.
#[test]
fn what_passed_its_mark_refuses_until_the_low_one() {
    let bound = NonZeroU64::new(100).unwrap();
    let bounds = BacklogBounds {
        destination: bound,
        tenant: bound,
        all: bound,
    };
    let told = |pending| {
        let counts = [count(pending, None)];
        stand((&[], &[Backlogged::All]), &counts, (T0, &bounds), 1)[0].refusing
    };
    assert!(told(60));
    assert!(!told(49));
}

#[test]
fn a_backlog_that_does_not_drain_is_looked_at_again() {
    let paused = after(None, &count(1_000, Some(0.0)), T0, 100);
    assert_eq!(paused.retry_after, MAX_RETRY_AFTER);
    let stuck = refusing(1_000, None);
    let stuck = after(Some(&stuck), &count(1_000, None), T0 + SECOND, 100);
    assert_eq!(stuck.retry_after, MAX_RETRY_AFTER);
}
