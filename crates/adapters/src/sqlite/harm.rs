//! Which destinations need somebody, and which of them most.

/// Which destinations need somebody: of `d`, its health `h`, its watch `w` and its
/// tally's mark `m`; by now and by when it has failed for long.
pub(super) const IS_TROUBLED: &str = "(d.state <> 'active' or h.opened_at is not null
    or coalesce(h.failing_since < ?4, 0) or m.failing_since is not null
    or coalesce(h.held_until > ?2, 0) or coalesce(w.short_told, 0) = 1 or w.backlog_high_since is not null)";

/// Which of them fail.
pub(super) const IS_FAILING: &str =
    "(h.opened_at is not null or coalesce(h.failing_since < ?4, 0) or m.failing_since is not null)";

/// Those first that harm most, of those that need somebody.
pub(super) const BY_HARM: &str = "h.opened_at is null, d.state <> 'disabled',
    coalesce(h.failures, 0) desc, m.failing_since is null, coalesce(w.short_told, 0) = 0,
    d.state = 'paused', d.id";
