//! Windows at a receiver, by its own clock, and what its own stalls explain.
//!
//! A receiver notes when it has read a request's head. Before that the request may
//! have lain in the receiver's socket while the receiver itself stood still, so it may
//! have come earlier than noted, by as much as the stall, and never later. What a
//! sender answers for is when requests come.
//!
//! **The rule.** A request that was read within a stall, or up to 2 ms ([`USUAL_MARGIN`])
//! after its end, came between the stall's beginning and its reading; every other one came
//! when it was read. Where the stall began within 2 ms after the end of another one, the
//! request may have come in that one: then it was seen between the two, and read in the
//! second, and may have waited for as long as both together. The receiver's windows are
//! kept if there are such times of coming under which no window is over. So a stall
//! explains an over-full window only where it held up the requests at that window's
//! beginning, and by no more than its own length and that of the one it follows: it never
//! explains one of which its own requests are not part. Stalls that are not longer than the
//! sender's margin, by themselves or with the one that they follow, explain nothing, since
//! the sender answers for jitter up to there. A longer margin does not make those that
//! count explain more.
//!
//! To look for such times, every request is moved back from when it was read, as little
//! as the later ones need, and never before its stall began, or the one that this follows;
//! one that was read in a pause, to the pause's beginning. What comes out is judged like
//! everything else, by [`Judge`]: so whatever the search finds, or fails to find, nothing is
//! called kept that is over. It fails to find what came before a pause and was read after it,
//! and what came before one beside a bucket, which does not look into pauses.

use std::sync::Arc;
use std::time::Duration;

use super::bucket::Backwards;
use super::window::Bounds;
use super::{InForce, Judge, Segment, Start, Verdict, limits, segments};
use crate::ids::AttemptId;
use crate::limit::Period;
use crate::policy::Rate;
use crate::time::Timestamp;

/// How exactly a ticker knows when a stall began and ended: hardly more than its own tick,
/// since no stall explains more than its length and that of the one it follows. It is the
/// margin that a stall has to exceed where the sender's own is not known.
pub const USUAL_MARGIN: Duration = Duration::from_millis(2);

/// A receiver stood still: nothing of it ran between these two instants of its clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stall {
    /// Its ticker's last tick before.
    pub from: Timestamp,
    /// Its first tick after.
    pub until: Timestamp,
}

impl Stall {
    fn length(&self) -> Duration {
        self.until.since(self.from)
    }
}

/// The stalls of a receiver that were longer than a margin, each by itself or with the one
/// that it follows, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stalls {
    stalls: Vec<Held>,
}

/// One of them, and since when what was read in it may have waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    stall: Stall,
    /// When it began, or the one that it follows.
    since: Timestamp,
    /// For how long the receiver stood still in it and in that one.
    still: Duration,
}

impl Held {
    /// `follows` may be any that was before it.
    fn new(stall: Stall, follows: Option<&Stall>) -> Self {
        let follows = follows.filter(|before| stall.from <= before.until + USUAL_MARGIN);
        Self {
            stall,
            since: follows.map_or(stall.from, |before| before.from),
            still: stall.length() + follows.map_or(Duration::ZERO, Stall::length),
        }
    }
}

impl Stalls {
    /// Those of `noted` that count. They do not overlap: one ticker notes them.
    #[must_use]
    pub fn longer_than(margin: Duration, noted: impl IntoIterator<Item = Stall>) -> Self {
        let mut noted: Vec<_> = noted.into_iter().collect();
        noted.sort_unstable();
        let before = std::iter::once(None).chain(noted.iter().map(Some));
        let stalls = (noted.iter().zip(before))
            .map(|(stall, before)| Held::new(*stall, before))
            .filter(|held| held.still > margin);
        Self {
            stalls: stalls.collect(),
        }
    }

    /// The longest of them.
    #[must_use]
    pub fn longest(&self) -> Option<Duration> {
        self.stalls.iter().map(|held| held.stall.length()).max()
    }

    /// How many there were, and how long they were together.
    #[must_use]
    pub fn sum(&self) -> (usize, Duration) {
        let lengths = self.stalls.iter().map(|held| held.stall.length());
        (self.stalls.len(), lengths.sum())
    }

    /// A request that was read at this time.
    #[must_use]
    pub fn arrival(&self, read_at: Timestamp) -> Arrival {
        // The first that ended so late is the one that began first.
        let over = |held: &Held| held.stall.until + USUAL_MARGIN < read_at;
        let first = self.stalls.get(self.stalls.partition_point(over));
        let held = first.filter(|held| held.stall.from < read_at);
        Arrival {
            earliest: held.map_or(read_at, |held| held.since),
            read_at,
        }
    }
}

/// A request, as its receiver knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// When it may have come at the earliest.
    pub earliest: Timestamp,
    /// When its head had been read.
    pub read_at: Timestamp,
}

impl Arrival {
    /// Of one that came when it was read.
    #[must_use]
    pub const fn at(read_at: Timestamp) -> Self {
        Self {
            earliest: read_at,
            read_at,
        }
    }
}

/// What a receiver shows. Its "starts" are arrivals, and its "attempts" the places of
/// these in what was judged, from zero on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrivalVerdict {
    /// By when requests were read.
    pub read: Verdict,
    /// By when they may have come: what no stall explains.
    pub unexplained: Verdict,
}

impl ArrivalVerdict {
    /// Whether no window was over but for what the receiver's own stalls explain.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.unexplained.is_kept()
    }

    /// Arrivals in the fullest window of this period: less what the receiver's own stalls
    /// moved into it, and as they were read.
    #[must_use]
    pub fn fullest(&self, period: Period) -> (u64, u64) {
        let of = |verdict: &Verdict| {
            let limit = verdict.limits.iter().find(|limit| limit.period == period);
            limit.map_or(0, |limit| limit.sliding.starts)
        };
        (of(&self.unexplained), of(&self.read))
    }

    /// How many arrivals were too early as they were read, and are explained.
    #[must_use]
    pub fn explained(&self) -> u64 {
        let (read, left) = (self.read.early_starts(), self.unexplained.early_starts());
        read.saturating_sub(left)
    }
}

/// What the arrivals at one destination are judged by.
#[derive(Debug, Clone, Copy)]
pub struct AtReceiver<'a> {
    /// What was in force when, by the receiver's clock.
    pub history: &'a [InForce],
    /// How much later a change may reach a receiver.
    pub later: Duration,
    /// Windows of which part of each period, in per cent: all of it, unless a machine
    /// does other work that moves arrivals together by more than a margin.
    pub window_percent: u32,
}

impl AtReceiver<'_> {
    /// Judges arrivals in the order of their reading.
    #[must_use]
    pub fn judge(self, arrivals: &[Arrival]) -> ArrivalVerdict {
        let segments = self.segments();
        // In a time of which P is as long as the part of P, that part is a window of P.
        let arrivals: Vec<_> = (arrivals.iter())
            .map(|arrival| Arrival {
                earliest: self.stretched(arrival.earliest),
                read_at: self.stretched(arrival.read_at),
            })
            .collect();
        let read = judged(&segments, arrivals.iter().map(|arrival| arrival.read_at));
        if read.is_kept() || arrivals.iter().all(|one| one.earliest == one.read_at) {
            let unexplained = read.clone();
            return ArrivalVerdict { read, unexplained };
        }
        let came = as_they_may_have_come(&segments, &arrivals);
        let unexplained = judged(&segments, came.into_iter());
        ArrivalVerdict { read, unexplained }
    }

    fn segments(self) -> Arc<[Segment]> {
        let history: Vec<_> = (self.history.iter())
            .map(|entry| InForce {
                from: self.stretched(entry.from),
                policy: entry.policy.clone(),
            })
            .collect();
        let mut segments = segments(&history);
        for segment in &mut segments {
            segment.later = self.later * 100 / self.percent();
        }
        segments.into()
    }

    fn stretched(self, at: Timestamp) -> Timestamp {
        let stretched = i128::from(at.as_micros()) * 100 / i128::from(self.percent());
        Timestamp::from_micros(i64::try_from(stretched).unwrap_or(i64::MAX))
    }

    fn percent(self) -> u32 {
        self.window_percent.clamp(1, 100)
    }
}

fn judged(segments: &Arc<[Segment]>, times: impl Iterator<Item = Timestamp>) -> Verdict {
    let mut judge = Judge::by(Arc::clone(segments));
    let starts = (0..).zip(times).map(|(place, at)| (at, AttemptId(place)));
    starts.for_each(|start: Start| judge.push(start));
    judge.finish()
}

/// Times of coming, in order, each as late as the later ones let it be.
///
/// A window that ends with the last of L + 1 arrivals is kept if the first of them came
/// a period before. So whenever an arrival's time is settled, from the last one on, the
/// one that is L before it may have come a period earlier at the latest. A bucket allows
/// the same numbers in the same times whichever way they run, so its meter is filled from
/// the last arrival on, and each comes when there is room for it. Those that are read in
/// order are held up in order, so nothing is gained by moving one further.
fn as_they_may_have_come(segments: &Arc<[Segment]>, arrivals: &[Arrival]) -> Vec<Timestamp> {
    let arrivals = before_pauses(segments, arrivals);
    let limited = |period: &Period| segments.iter().any(|one| limits(&one.policy, *period));
    let bounds: Vec<(Period, Vec<Option<u64>>)> = (Period::ALL.into_iter().filter(limited))
        .map(|period| {
            let mut bounds = Bounds::new(Arc::clone(segments), period);
            let each = arrivals.iter().map(|arrival| bounds.at(arrival.read_at));
            (period, each.collect())
        })
        .collect();
    let mut came: Vec<_> = arrivals.iter().map(|arrival| arrival.read_at).collect();
    let mut spacing = Backwards::new(segments);
    for last in (0..came.len()).rev() {
        let Arrival { earliest, read_at } = arrivals[last];
        came[last] = spacing.latest(came[last], read_at).max(earliest);
        spacing.push(came[last]);
        for (period, bounds) in &bounds {
            let bound = bounds[last].and_then(|bound| usize::try_from(bound).ok());
            let first = bound.and_then(|bound| last.checked_sub(bound));
            // What is still in a pause came in it: nothing that is moved would help.
            if let Some(first) = first.filter(|first| *first < last) {
                came[first] = came[first].min(came[last] - period.duration());
            }
        }
    }
    // Beside a change of limits they may have overtaken each other.
    came.sort_unstable();
    came
}

/// Those that were read in a pause, and may have come before it, came at its beginning at
/// the latest.
fn before_pauses(segments: &[Segment], arrivals: &[Arrival]) -> Vec<Arrival> {
    let mut latest: Vec<_> = (arrivals.iter())
        .map(|arrival| {
            let may_have_come = arrival.earliest..arrival.read_at;
            let begins = pause_around(segments, arrival.read_at);
            let began = begins.filter(|begins| may_have_come.contains(begins));
            Arrival {
                read_at: began.unwrap_or(arrival.read_at),
                ..*arrival
            }
        })
        .collect();
    latest.sort_unstable_by_key(|arrival| (arrival.read_at, arrival.earliest));
    latest
}

/// When the pause begins that this instant is in, also if it was changed meanwhile; `None`
/// in no pause, and in one after a bucket.
fn pause_around(segments: &[Segment], at: Timestamp) -> Option<Timestamp> {
    let last = segments.partition_point(|one| one.until <= at);
    let until_now = segments.get(..=last)?;
    let before = (until_now.iter()).rposition(|one| one.policy.rate != Rate::Paused);
    let pause = until_now.get(before.map_or(0, |before| before + 1)..)?;
    let is_after_a_bucket = before.is_some_and(|before| until_now[before].pacing().is_some());
    let begins = pause.first().map(Segment::alone_from);
    begins.filter(|_| !is_after_a_bucket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::destination::DestinationState;
    use crate::policy::LimitSettings;

    const MARGIN: Duration = USUAL_MARGIN;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn stalls(noted: &[(i64, i64)]) -> Stalls {
        longer_than(MARGIN, noted)
    }

    fn longer_than(margin: Duration, noted: &[(i64, i64)]) -> Stalls {
        let stall = |(from, until): &(i64, i64)| Stall {
            from: at(*from),
            until: at(*until),
        };
        Stalls::longer_than(margin, noted.iter().map(stall))
    }

    fn in_force(from: i64, settings: LimitSettings) -> InForce {
        InForce::new(at(from), &settings, DestinationState::Active)
    }

    fn per_second(limit: u32) -> LimitSettings {
        LimitSettings {
            per_second: Some(limit),
            ..LimitSettings::default()
        }
    }

    fn judge(settings: LimitSettings, noted: &[(i64, i64)], read: &[i64]) -> ArrivalVerdict {
        judge_windows_of(100, &[in_force(0, settings)], noted, read)
    }

    fn judge_windows_of(
        window_percent: u32,
        history: &[InForce],
        noted: &[(i64, i64)],
        read: &[i64],
    ) -> ArrivalVerdict {
        let stalls = stalls(noted);
        let arrivals: Vec<_> = read.iter().map(|read| stalls.arrival(at(*read))).collect();
        let of = AtReceiver {
            history,
            later: Duration::from_millis(500),
            window_percent,
        };
        of.judge(&arrivals)
    }

    #[test]
    fn a_request_may_have_come_since_the_stall_that_it_was_read_in_began() {
        let stalls = stalls(&[(100, 110), (112, 120), (200, 202), (300, 304)]);
        let earliest = |read| stalls.arrival(at(read)).earliest;
        assert_eq!(
            [99, 100, 101, 110, 112].map(earliest),
            [99, 100, 100, 100, 100].map(at),
            "until 2 ms after the end"
        );
        let seen_between_the_two = [113, 120, 122].map(earliest);
        assert_eq!(seen_between_the_two, [100; 3].map(at));
        assert_eq!(earliest(123), at(123));
        assert_eq!(earliest(201), at(201), "no longer than the margin");
        assert_eq!([302, 306, 307].map(earliest), [300, 300, 307].map(at));
        assert_eq!(stalls.longest(), Some(Duration::from_millis(10)));
        assert_eq!(stalls.sum(), (3, Duration::from_millis(22)));
    }

    #[test]
    fn a_longer_margin_makes_no_stall_explain_more() {
        let noted = [(100, 120), (125, 145)];
        let stalls = longer_than(Duration::from_millis(10), &noted);
        let earliest = |read| stalls.arrival(at(read)).earliest;
        assert_eq!([122, 123].map(earliest), [100, 123].map(at));
        assert_eq!([145, 147].map(earliest), [125; 2].map(at), "not joined");
        assert_eq!(earliest(148), at(148));
        let longer = longer_than(Duration::from_millis(20), &noted);
        assert_eq!(longer, Stalls::default(), "none is longer");
    }

    #[test]
    fn two_stalls_that_follow_each_other_may_hold_a_request_up_for_longer_than_a_margin() {
        let margin = Duration::from_millis(10);
        let two = longer_than(
            margin,
            &[(100, 106), (106, 112), (120, 126), (200, 204), (206, 211)],
        );
        let earliest = |read| two.arrival(at(read)).earliest;
        assert_eq!([106, 108, 112].map(earliest), [106, 100, 100].map(at));
        assert_eq!(earliest(124), at(124), "it follows none");
        assert_eq!(earliest(210), at(210), "9 ms, and a pause of two");
        assert_eq!(two.sum(), (1, Duration::from_millis(6)));
        // No request waits for three of them.
        assert_eq!(
            longer_than(margin, &[(100, 104), (104, 108), (108, 112)]),
            Stalls::default()
        );
    }

    #[test]
    fn a_stall_explains_what_it_held_up_and_by_its_own_length() {
        let two = || per_second(2);
        // Read at 20 ms, and come at 0 ms at the earliest.
        let held = [(0, 20)];
        let kept = |noted: &[(i64, i64)], read: &[i64]| judge(two(), noted, read).is_kept();
        assert!(kept(&held, &[20, 20, 1_000, 1_000]));
        assert!(
            !kept(&held, &[20, 20, 999, 1_000]),
            "by more than its length"
        );
        assert!(!kept(&held, &[20, 21, 23, 1_020]), "three at once");
        assert!(!kept(&[], &[20, 20, 1_000, 1_000]), "without one");
        assert!(!kept(&[(500, 520)], &[20, 20, 1_000, 1_000]), "elsewhere");
        assert!(
            !kept(&[(980, 1_000)], &[20, 20, 1_000, 1_000]),
            "at the end"
        );
        assert!(!kept(&[(0, 2)], &[2, 2, 1_000, 1_000]), "within the margin");
        let verdict = judge(two(), &held, &[20, 20, 1_000, 1_000]);
        assert_eq!((verdict.explained(), verdict.read.early_starts()), (2, 2));
        assert_eq!(verdict.fullest(Period::Second), (2, 4));
        assert_eq!(verdict.fullest(Period::Minute), (0, 0));
        let lie = judge(two(), &[(500, 520)], &[20, 20, 1_000, 1_000]);
        assert_eq!((lie.explained(), lie.unexplained.early_starts()), (0, 2));
        let violation = lie.unexplained.violations().next().unwrap();
        assert_eq!((violation.starts, violation.bound), (4, 2));
        assert_eq!(
            violation.attempts,
            [0, 1, 2, 3].map(AttemptId),
            "their places"
        );
    }

    #[test]
    fn stalls_explain_in_a_row_what_they_moved_in_a_row() {
        // Each burst was held up a little longer than the next.
        let held = [(0, 30), (1_010, 1_020), (2_009, 2_012)];
        let read = [30, 30, 1_020, 1_020, 2_011, 2_011];
        assert!(judge(per_second(2), &held, &read).is_kept());
        // The middle one came at 1,011 at the latest, so the first at 11: not within 5.
        let later = [(25, 30), (1_010, 1_020), (2_009, 2_012)];
        assert!(!judge(per_second(2), &later, &read).is_kept());
    }

    #[test]
    fn several_limits_buckets_and_changes_are_judged_as_in_the_ledger() {
        let both = LimitSettings {
            per_minute: Some(3),
            ..per_second(2)
        };
        assert!(judge(both, &[], &[0, 0, 1_000, 60_000]).is_kept());
        assert!(!judge(both, &[(0, 9)], &[0, 0, 1_000, 59_999]).is_kept());
        assert!(judge(both, &[(-9, 9)], &[0, 0, 1_000, 59_999]).is_kept());
        let bucket = LimitSettings {
            burst: Some(3),
            shape: Some(crate::limit::Shape::TokenBucket),
            ..per_second(2)
        };
        // Three, and one for half a second of slack.
        assert!(judge(bucket, &[], &[0; 4]).is_kept());
        assert!(!judge(bucket, &[(-9, 0)], &[0; 5]).is_kept());
        let cut = [in_force(0, per_second(3)), in_force(5_000, per_second(1))];
        let kept = |read: &[i64]| judge_windows_of(100, &cut, &[], read).is_kept();
        assert!(kept(&[5_400, 5_400, 5_400]), "had been claimed before");
        assert!(!kept(&[6_500, 6_500]));
    }

    #[test]
    fn what_comes_evenly_and_is_read_at_once_is_explained_for_a_bucket_too() {
        let bucket = || LimitSettings {
            burst: Some(1),
            shape: Some(crate::limit::Shape::LeakyBucket),
            ..per_second(10)
        };
        // One each 100 ms; up to six are allowed at once, with half a second of slack.
        let read = |until: i64| -> Vec<i64> { (1..=20).map(|n| until.max(n * 100)).collect() };
        for until in [700, 900, 1_500, 2_000] {
            let verdict = judge(bucket(), &[(0, until)], &read(until));
            assert!(verdict.is_kept(), "{until}");
            assert!(verdict.explained() > 0, "{until}");
            assert!(!judge(bucket(), &[], &read(until)).is_kept(), "{until}");
        }
        // Held up for as long as three of them come in, of ten that were read at once.
        let held = judge(bucket(), &[(600, 900)], &[900; 10]);
        assert!(!held.is_kept());
        assert!(judge(bucket(), &[(500, 900)], &[900; 10]).is_kept());
    }

    #[test]
    fn what_came_before_a_pause_and_was_read_in_it_is_explained() {
        let paused = InForce::new(at(5_000), &per_second(2), DestinationState::Paused);
        let again = in_force(9_000, per_second(2));
        let history = [in_force(0, per_second(2)), paused, again];
        let judge = |noted: &[(i64, i64)], read: &[i64]| {
            judge_windows_of(100, &history, noted, read).is_kept()
        };
        let read = [4_100, 4_200, 7_000, 7_000];
        // A change may reach the receiver half a second later.
        assert!(judge(&[(5_500, 7_000)], &read));
        assert!(!judge(&[(5_501, 7_000)], &read), "they came in it");
        assert!(!judge(&[], &read));
        // Both came up to 5.5 s, so the one before them up to 4.5 s.
        assert!(judge(&[(5_000, 7_000)], &[4_500, 7_000, 7_000]));
        assert!(!judge(&[(5_000, 7_000)], &[4_501, 7_000, 7_000]));
        assert!(judge(&[(3_000, 7_000)], &[7_000; 6]));
        assert!(!judge(&[(3_000, 7_000)], &[7_000; 7]));
        // A change in the pause begins no other one.
        let changed = InForce::new(at(6_000), &per_second(3), DestinationState::Paused);
        let history = [in_force(0, per_second(2)), history[1].clone(), changed];
        let kept =
            |noted: &[(i64, i64)]| judge_windows_of(100, &history, noted, &[7_000]).is_kept();
        assert!(kept(&[(5_500, 7_000)]));
        assert!(!kept(&[(5_501, 7_000)]));
    }

    /// A bucket does not look into a pause, so what is moved to its beginning is not judged.
    #[test]
    fn what_was_read_in_a_pause_after_a_bucket_is_not_explained() {
        let bucket = LimitSettings {
            burst: Some(1),
            shape: Some(crate::limit::Shape::LeakyBucket),
            ..per_second(10)
        };
        let paused = InForce::new(at(5_000), &bucket, DestinationState::Paused);
        let history = [in_force(0, bucket), paused];
        assert!(!judge_windows_of(100, &history, &[(5_400, 7_000)], &[7_000; 10]).is_kept());
    }

    #[test]
    fn a_part_of_the_period_is_a_shorter_window() {
        let history = [in_force(0, per_second(2))];
        let kept = |percent, read: &[i64]| judge_windows_of(percent, &history, &[], read).is_kept();
        assert!(kept(97, &[10, 10, 980]));
        assert!(!kept(100, &[10, 10, 980]));
        assert!(!kept(97, &[10, 10, 979]));
    }

    /// Of requests that come within the limit and are read late, however late, nothing
    /// is over; and of those that break it by more than all stalls, all is.
    #[test]
    fn whatever_a_stall_does_to_a_sender_that_keeps_the_limit_is_explained() {
        for length in [3, 7, 40, 300] {
            for from in (0..3_000).step_by(37) {
                let until = from + length;
                let read = |came: i64| match (from + 1..until).contains(&came) {
                    true => until,
                    false => came,
                };
                let came = (0..6).flat_map(|burst| [burst * 1_000, burst * 1_000 + 20]);
                let read: Vec<_> = came.map(read).collect();
                assert!(judge(per_second(2), &[(from, until)], &read).is_kept());
                let twice: Vec<_> = read.iter().flat_map(|read| [*read; 2]).collect();
                assert!(!judge(per_second(2), &[(from, until)], &twice).is_kept());
            }
        }
    }
}
