//! Backpressure: refusals begin above the high mark and end below the low one.

use std::num::NonZeroU64;
use std::time::Duration;

use domain::backpressure::{
    BacklogBounds, Backlogged, Count, CountPace, FIRST_RETRY_AFTER, LastCount, MAX_RETRY_AFTER,
    MIN_RETRY_AFTER, Standing, high_mark, is_meant_by_all, low_mark, noted_mark, refuses, stand,
};
use domain::ids::{DestinationId, TenantId};
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

fn all_of(bound: u64) -> BacklogBounds {
    let bound = NonZeroU64::new(bound).unwrap();
    BacklogBounds {
        destination: bound,
        tenant: bound,
        all: bound,
    }
}

/// The whole, after a count.
fn after(before: Option<&Standing>, count: &Count, now: Timestamp, bound: u64) -> Standing {
    let before = before.map(std::slice::from_ref).unwrap_or_default();
    stand((before, &[]), &[*count], (now, &all_of(bound)), 1)[0]
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
            let was = before.and_then(|before| before.refused);
            let next = after(before.as_ref(), &count(pending, None), now, bound);
            if pending > high_mark(bound) && pending >= low_mark(bound) {
                prop_assert!(next.is_refusing());
            } else if pending < low_mark(bound) {
                prop_assert!(!next.is_refusing());
            } else {
                prop_assert_eq!(next.refused, was);
            }
            if was.is_some() && next.is_refusing() {
                prop_assert_eq!(next.refused, was, "it is measured from the begin on");
            }
            prop_assert_eq!(next.is_refusing(), !next.retry_after.is_zero());
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
        refused in 0_u64..,
        pending: u64,
        bound in 1_u64..,
        limit in prop::option::of(any::<f64>()),
        elapsed in 0_u64..1_000_000_000_000,
    ) {
        let now = T0 + Duration::from_micros(elapsed);
        let known = Standing {
            whose: Backlogged::All,
            pending: refused,
            refused: Some((T0, refused)),
            retry_after: SECOND,
        };
        let next = after(Some(&known), &count(pending, limit), now, bound);
        if next.is_refusing() {
            prop_assert!((MIN_RETRY_AFTER..=MAX_RETRY_AFTER).contains(&next.retry_after));
            let without = after(Some(&known), &count(pending, None), now, bound);
            let measured = elapsed > 10_000_000;
            if limit.is_some_and(|limit| limit > 1.0) && measured {
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
        let of_all = counts.iter().sum();
        let tenant = TenantId(Uuid::from_u128(1_000));
        let mut all: Vec<Count> = (counts.iter().zip(1..))
            .map(|(pending, id)| Count {
                whose: Backlogged::Destination(tenant, DestinationId(Uuid::from_u128(id))),
                ..count(*pending, None)
            })
            .collect();
        all.push(count(of_all, None));
        let told = stand((&[], &[]), &all, (T0, &all_of(100)), most);
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

    /// A count takes one part in twenty of the time, if it does not take a
    /// minute; and a clock that is set back stops none.
    #[test]
    fn counts_are_as_far_apart_as_they_are_long(took in 0_u64..60_000, later in 0_u64..2_000_000) {
        let pace = CountPace::default();
        let took = Duration::from_millis(took);
        let last = LastCount { at: T0, took };
        let due = pace.is_due(&last, T0 + Duration::from_millis(later));
        prop_assert_eq!(due, Duration::from_millis(later) >= pace.wait(took));
        prop_assert!(pace.wait(took) >= took * 20);
        prop_assert!(pace.is_due(&last, T0 - Duration::from_millis(later + 1)));
    }
}

/// Until enough time has passed, and then by what it really does.
#[test]
fn a_backlog_without_a_limit_is_measured() {
    let first = after(None, &count(1_000, None), T0, 100);
    assert_eq!(first.retry_after, FIRST_RETRY_AFTER);
    let soon = after(Some(&first), &count(1_000, None), T0 + SECOND, 100);
    assert_eq!(
        soon.retry_after, FIRST_RETRY_AFTER,
        "one second says nothing"
    );
    let later = after(Some(&soon), &count(500, None), T0 + SECOND * 10, 100);
    assert_eq!(later.retry_after, Duration::from_secs(9));
    let slow = after(
        Some(&first),
        &count(900, Some(100.0)),
        T0 + SECOND * 10,
        100,
    );
    assert_eq!(
        slow.retry_after,
        Duration::from_secs(85),
        "10 a second, whatever is allowed"
    );
}

/// One start in 36 seconds: ten without any do not mean that it is stuck.
#[test]
fn a_slow_limit_is_measured_for_longer() {
    let hourly = |pending| count(pending, Some(100.0 / 3_600.0));
    let first = after(None, &hourly(81), T0, 100);
    let soon = after(Some(&first), &hourly(81), T0 + SECOND * 20, 100);
    assert_eq!(soon.retry_after, Duration::from_secs(1_116));
}

#[test]
fn a_backlog_that_does_not_drain_is_looked_at_again() {
    let paused = after(None, &count(1_000, Some(0.0)), T0, 100);
    assert_eq!(paused.retry_after, MAX_RETRY_AFTER);
    let open = after(None, &count(1_000, None), T0, 100);
    let stuck = after(Some(&open), &count(1_000, None), T0 + SECOND * 10, 100);
    assert_eq!(stuck.retry_after, MAX_RETRY_AFTER);
}

/// Somebody saw it above its mark, and by now it is between the two.
#[test]
fn what_passed_its_mark_refuses_until_the_low_one() {
    let told = |pending| {
        let counts = [count(pending, None)];
        stand((&[], &[Backlogged::All]), &counts, (T0, &all_of(100)), 1)[0].is_refusing()
    };
    assert!(told(60));
    assert!(!told(49));
}

/// Each fills what it is let, although what it has is known only once that is told of.
#[test]
fn those_who_come_late_leave_room_for_who_has_little() {
    let bounds = all_of(2_000_000).nested();
    let mut all = high_mark(2_000_000);
    for _ in 0..2 {
        let mut own = 0;
        while !is_meant_by_all(
            &bounds,
            all,
            u64::saturating_sub(own, noted_mark(2_000_000)),
        ) {
            own += 1_000;
            all += 1_000;
        }
        assert!(own > 2 * noted_mark(2_000_000), "{own}");
    }
    assert!(!is_meant_by_all(&bounds, all, 100), "{all}");
    assert!(is_meant_by_all(&bounds, 1_900_001, 0));
}
