//! Bugs planted on purpose, to see that the invariants have teeth.
//!
//! A simulation that finds nothing proves little unless it finds what is known
//! to be there. Each of these is a bug that a part could have; with it, the
//! promise named beside it has to be found broken.

/// A bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sabotage {
    /// Events are answered for and not written: `nothing_is_lost`.
    ForgetsEvents,
    /// Idempotency keys are not looked at: `a_repeated_request_is_one_event`.
    ForgetsKeys,
    /// A claim of what has started is answered like the first one:
    /// `a_permit_starts_once_and_in_time`.
    StartsTwice,
    /// Successes are recorded as failures: `a_duplicate_has_a_reason`.
    DoubtsSuccess,
    /// Nobody reaps: `all_is_drained`.
    NeverReaps,
    /// Nobody looks for what waits without having been woken: `all_is_drained`.
    SweepsMarksOnly,
    /// Leases end long before their holders think: `a_lease_is_exclusive`.
    ShortLeases,
    /// Every next run is set too late: `the_limit_is_used`.
    LooksLate,
    /// Requests go out long after their starts:
    /// `a_start_is_sent_once_and_at_once`.
    SendsLate,
    /// Starts are dated to their claims, and not to their requests:
    /// `a_start_is_dated_to_its_send`.
    DatesAtClaim,
    /// The limits are lifted, and limit history does not say so:
    /// `no_window_is_over`.
    LiftsLimits,
    /// What a limit group allows is lifted, and nobody is told:
    /// `no_window_of_arrivals_is_over`.
    LiftsGroups,
    /// Windows are planned without their margin: `no_window_of_arrivals_is_over`.
    DropsMargins,
    /// A hold is forgotten as soon as it began: `nothing_starts_during_a_hold`.
    ForgetsHolds,
    /// What was counted is not told: `a_backlog_is_bounded`.
    ForgetsCounts,
    /// What refuses once does so for ever: `what_is_short_again_is_taken`.
    RefusesForEver,
    /// What is refused is written all the same: `what_is_refused_is_not_stored`.
    TakesRefused,
    /// A relay that was done is done again: `news_are_told_once`.
    TellsTwice,
    /// The watch looks no more once an alert is raised: `every_alert_ends`.
    NeverEndsAlerts,
    /// Of a batch that is answered in parts all is recorded as a success:
    /// `what_is_recorded_is_what_was_answered`.
    ForgetsParts,
    /// What a receiver wrote of an event is recorded as it wrote it:
    /// `what_is_recorded_can_be_stored`.
    KeepsRawWords,
    /// Destinations are created without their secrets:
    /// `every_request_is_signed`.
    ForgetsSecrets,
}

impl Sabotage {
    /// Each with the promise that it breaks.
    pub const ALL: [(Self, &'static str); 22] = [
        (Self::ForgetsEvents, "nothing_is_lost"),
        (Self::ForgetsKeys, "a_repeated_request_is_one_event"),
        (Self::StartsTwice, "a_permit_starts_once_and_in_time"),
        (Self::DoubtsSuccess, "a_duplicate_has_a_reason"),
        (Self::NeverReaps, "all_is_drained"),
        (Self::SweepsMarksOnly, "all_is_drained"),
        (Self::ShortLeases, "a_lease_is_exclusive"),
        (Self::LooksLate, "the_limit_is_used"),
        (Self::SendsLate, "a_start_is_sent_once_and_at_once"),
        (Self::DatesAtClaim, "a_start_is_dated_to_its_send"),
        (Self::LiftsLimits, "no_window_is_over"),
        (Self::LiftsGroups, "no_window_of_arrivals_is_over"),
        (Self::DropsMargins, "no_window_of_arrivals_is_over"),
        (Self::ForgetsHolds, "nothing_starts_during_a_hold"),
        (Self::ForgetsCounts, "a_backlog_is_bounded"),
        (Self::RefusesForEver, "what_is_short_again_is_taken"),
        (Self::TakesRefused, "what_is_refused_is_not_stored"),
        (Self::TellsTwice, "news_are_told_once"),
        (Self::NeverEndsAlerts, "every_alert_ends"),
        (Self::ForgetsParts, "what_is_recorded_is_what_was_answered"),
        (Self::KeepsRawWords, "what_is_recorded_can_be_stored"),
        (Self::ForgetsSecrets, "every_request_is_signed"),
    ];
}
