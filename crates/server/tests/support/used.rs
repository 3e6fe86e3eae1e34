//! Whether a limit was used: in counts, by the receiver's clock.

use server::receiver::Record;
use server::trial::DestinationVerdict;

/// Seconds in a row without any arrival that a machine may have that does much else. A
/// breaker that opens holds a destination for longer, and so did a drain that stood still.
const EMPTY_SECONDS: usize = 5;

/// The fullest second has a tenth of what is allowed at least, before the last tenth of
/// the events, among which are those that come again after what became of them was not
/// known.
const PART: u64 = 10;

/// The only destination of a trial with one limit, in seconds.
pub(crate) fn limit_is_used(record: &Record, verdict: &DestinationVerdict) {
    let most = usize::try_from(verdict.events - verdict.events / PART).expect("some thousands");
    let empty = record.empty_in_a_row(most);
    assert!(empty <= EMPTY_SECONDS, "{empty} seconds: {verdict:?}");
    assert_eq!(verdict.windows.len(), 1, "one limit: {verdict:?}");
    let second = &verdict.windows[0];
    let bound = second.bound.expect("a window has a bound");
    assert!(second.largest_as_read >= bound / PART, "{verdict:?}");
    // Each try that is not sent is a permit that nobody used.
    assert!(verdict.starts <= verdict.events * 2, "{verdict:?}");
}
