//! What a resource is told: its status, from what was done and what was seen, and
//! the events that go with what has changed in it.

use chrono::{DateTime, SecondsFormat, Utc};
use domain::destination::DestinationState;
use domain::health::Breaker;
use domain::ids::DestinationId;
use domain::time::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff;

use crate::destinations::Observed;
use crate::plan::Plan;
use crate::resource::{Circuit, DestinationStatus};
use crate::verdict::{Reason, Verdict};

/// Work that its limits let start within this many seconds is no backlog worth
/// telling of.
const SOON_SECONDS: f64 = 10.0;

/// What a status is made of.
#[derive(Debug, Clone, PartialEq)]
pub struct Report<'a> {
    pub plan: &'a Plan,
    /// The destination, if there is one of the resource's.
    pub id: Option<DestinationId>,
    /// How it fares, if that is known.
    pub observed: Option<Observed>,
    pub generation: Option<i64>,
    pub now: Timestamp,
}

/// The status to be; equal to the one before unless there is something to tell.
#[must_use]
pub fn status(before: &DestinationStatus, report: &Report<'_>) -> DestinationStatus {
    let observed = report.observed.as_ref();
    let synced = report.plan.synced.clone();
    let no_conflict = || Verdict::no(Reason::NoConflict, "nobody else has the destination");
    let conflict = report.plan.conflict.clone();
    let mut verdicts = vec![
        ("Ready", ready(&synced, observed)),
        ("Synced", synced),
        ("Conflict", conflict.unwrap_or_else(no_conflict)),
    ];
    if let Some(observed) = observed {
        verdicts.push(("Throttled", throttled(observed)));
        verdicts.push(("Stopped", stopped(observed)));
    }
    let conditions = verdicts
        .into_iter()
        .map(|(kind, verdict)| condition(before, kind, verdict, report))
        .collect();
    // What was known of a destination that cannot be looked at just now stays.
    let id = report.id.map(|id| id.to_string());
    let is_known = id.is_some() && id == before.destination_id;
    let kept = match is_known && observed.is_none() {
        true => before.clone(),
        false => DestinationStatus::default(),
    };
    DestinationStatus {
        observed_generation: report.generation,
        destination_id: id,
        limit_group: observed.map_or(kept.limit_group, |observed| {
            observed.limit_group.as_ref().map(ToString::to_string)
        }),
        starts_per_second: observed.map_or(kept.starts_per_second, |observed| {
            Some(rounded(observed.starts_per_second))
        }),
        backlog: observed.map_or(kept.backlog, |observed| {
            #[expect(clippy::cast_possible_truncation, reason = "it is a rounded u32")]
            let backlog = rounded(f64::from(observed.backlog)) as i64;
            Some(backlog)
        }),
        drain_eta: observed.map_or(kept.drain_eta, |observed| drain_eta(observed, report.now)),
        circuit: observed.map_or(kept.circuit, |observed| Some(circuit(observed.breaker))),
        conditions,
    }
}

fn ready(synced: &Verdict, observed: Option<&Observed>) -> Verdict {
    let Some(observed) = observed.filter(|_| synced.holds) else {
        return Verdict {
            holds: false,
            ..synced.clone()
        };
    };
    match (observed.state, observed.breaker) {
        (DestinationState::Disabled, _) => Verdict::no(
            Reason::Disabled,
            "its receiver is given up: events are refused until it is resumed by the API",
        ),
        (_, Breaker::Open | Breaker::HalfOpen) => Verdict::no(
            Reason::CircuitOpen,
            "its receiver fails: the backlog is held, and tried from time to time",
        ),
        (DestinationState::Paused, _) => Verdict::yes(Reason::Paused, "paused, as specified"),
        (DestinationState::Active, _) if observed.is_limited_to_nothing() => Verdict::yes(
            Reason::LimitIsZero,
            "as specified: a limit of 0, so nothing is delivered",
        ),
        (DestinationState::Active, Breaker::Closed) => {
            Verdict::yes(Reason::Delivering, "as specified, and delivered to")
        }
    }
}

/// Nothing starts until somebody changes something.
fn stopped(observed: &Observed) -> Verdict {
    match observed.state {
        DestinationState::Paused => Verdict::yes(Reason::Paused, "paused: resume it to go on"),
        DestinationState::Disabled => Verdict::yes(
            Reason::Disabled,
            "its receiver is given up: resume it by the API to go on",
        ),
        DestinationState::Active if observed.is_limited_to_nothing() => Verdict::yes(
            Reason::LimitIsZero,
            "a limit is 0: raise it, or take it away, to go on",
        ),
        DestinationState::Active => {
            Verdict::no(Reason::NotStopped, "attempts start as its limits allow")
        }
    }
}

fn throttled(observed: &Observed) -> Verdict {
    let waits = match observed.allowed_per_second {
        Some(allowed) => f64::from(observed.backlog) > allowed * SOON_SECONDS,
        None => false,
    };
    let backlog = observed.backlog > 0;
    match (observed.state, observed.breaker) {
        (DestinationState::Paused | DestinationState::Disabled, _) if backlog => {
            Verdict::yes(Reason::Paused, "its backlog waits until it goes on")
        }
        (DestinationState::Active, Breaker::Open | Breaker::HalfOpen) => {
            Verdict::yes(Reason::CircuitOpen, "its backlog waits for its receiver")
        }
        (DestinationState::Active, _) if backlog && observed.is_limited_to_nothing() => {
            Verdict::yes(Reason::LimitIsZero, "its backlog waits for another limit")
        }
        (DestinationState::Active, _) if observed.held => {
            Verdict::yes(Reason::Held, "its receiver asked to be left alone for now")
        }
        (DestinationState::Active, _) if waits => {
            Verdict::yes(Reason::Limited, "its backlog waits for its limits")
        }
        _ => Verdict::no(Reason::NotThrottled, "nothing waits for long"),
    }
}

fn condition(
    before: &DestinationStatus,
    kind: &str,
    verdict: Verdict,
    report: &Report<'_>,
) -> Condition {
    let status = if verdict.holds { "True" } else { "False" };
    let last = before.conditions.iter().find(|one| one.type_ == kind);
    let same = last.filter(|last| last.status == status);
    Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: verdict.reason.as_str().to_owned(),
        message: verdict.message,
        observed_generation: report.generation,
        last_transition_time: same.map_or_else(
            || Time(instant(report.now)),
            |last| last.last_transition_time.clone(),
        ),
    }
}

/// Whole seconds, which is what Kubernetes keeps: what is read back is equal.
fn instant(at: Timestamp) -> jiff::Timestamp {
    let seconds = at.as_micros().div_euclid(1_000_000);
    jiff::Timestamp::from_second(seconds).unwrap_or_default()
}

/// When all that waits has started, to the minute, which holds still while it
/// goes as planned.
fn drain_eta(observed: &Observed, now: Timestamp) -> Option<String> {
    let active = observed.state == DestinationState::Active && observed.breaker == Breaker::Closed;
    let rate = observed.allowed_per_second?;
    if observed.backlog == 0 || !active || rate <= 0.0 {
        return None;
    }
    let seconds = f64::from(observed.backlog) / rate;
    let minutes = ((now.as_micros() as f64 / 1e6 + seconds) / 60.0).ceil();
    #[expect(
        clippy::cast_possible_truncation,
        reason = "refused below if it is no time"
    )]
    let at = DateTime::<Utc>::from_timestamp(minutes as i64 * 60, 0)?;
    Some(at.to_rfc3339_opts(SecondsFormat::Secs, true))
}

/// To two digits: a status is not written for every start.
fn rounded(value: f64) -> f64 {
    if value <= 0.0 {
        return 0.0;
    }
    let scale = 10_f64.powf(value.log10().floor() - 1.0);
    let digits = (value / scale).round();
    // By a division where that is exact: 0.12 and not 0.12000000000000001.
    if scale < 1.0 {
        digits / (1.0 / scale).round()
    } else {
        digits * scale
    }
}

const fn circuit(breaker: Breaker) -> Circuit {
    match breaker {
        Breaker::Closed => Circuit::Closed,
        Breaker::Open => Circuit::Open,
        Breaker::HalfOpen => Circuit::HalfOpen,
    }
}

/// What people are told once: a condition that has changed its status, or why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    pub kind: String,
    pub reason: String,
    pub message: String,
    /// It is worse than it was.
    pub is_warning: bool,
}

/// What is new in a status. What a first status says is new only where it is bad,
/// or that the destination is ready.
#[must_use]
pub fn transitions(before: &DestinationStatus, after: &DestinationStatus) -> Vec<Transition> {
    let is_new = |one: &&Condition| {
        let last = before
            .conditions
            .iter()
            .find(|last| last.type_ == one.type_);
        match last {
            Some(last) => (&last.status, &last.reason) != (&one.status, &one.reason),
            None => one.type_ == "Ready" || !is_good(one),
        }
    };
    let changed = after.conditions.iter().filter(is_new);
    // Not ready because not synced is one piece of news and not two.
    let synced = after.conditions.iter().find(|one| one.type_ == "Synced");
    let told = |one: &&Condition| {
        let of_synced = synced.is_some_and(|synced| synced.reason == one.reason);
        one.type_ == "Synced" || !of_synced
    };
    changed
        .filter(told)
        .map(|one| Transition {
            kind: one.type_.clone(),
            reason: one.reason.clone(),
            message: one.message.clone(),
            is_warning: !is_good(one),
        })
        .collect()
}

fn is_good(condition: &Condition) -> bool {
    let good = match condition.type_.as_str() {
        "Ready" | "Synced" => "True",
        _ => "False",
    };
    condition.status == good
}
