//! Which destinations need somebody, and which of them most.

use domain::time::micros;
use engine::ports::FAILS_FOR;

/// Which destinations need somebody: of `d`, its health `h`, its watch `w` and its
/// tally's mark `m`.
pub(super) fn is_troubled() -> String {
    format!(
        "coalesce(d.state <> 'active' or h.held_until > clock_timestamp()
            or w.short_told or w.backlog_high_since is not null, false) or {}",
        is_failing()
    )
}

/// Which of them fail.
pub(super) fn is_failing() -> String {
    let fails_for = micros(FAILS_FOR);
    format!(
        "coalesce(h.opened_at is not null or h.failing_since
            < clock_timestamp() - {fails_for} * interval '1 microsecond'
            or m.failing_since is not null, false)"
    )
}

/// Those first that harm most, of those that need somebody.
pub(super) const BY_HARM: &str = "h.opened_at is null, d.state <> 'disabled',
    coalesce(h.failures, 0) desc, m.failing_since is null, not coalesce(w.short_told, false),
    d.state = 'paused', d.id";
