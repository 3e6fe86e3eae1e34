//! Events: what is accepted, once, and never changed.

use std::time::Duration;

use crate::ids::{DestinationId, EventId, TenantId};
use crate::time::Timestamp;
use crate::trace::TraceContext;

/// The largest payload, in bytes. Receivers recommend 20 KiB; beyond this the
/// store's pages and a worker's memory would have to be bounded by guesses.
pub const MAX_PAYLOAD_BYTES: usize = 256 * 1024;

/// The longest event type, in bytes.
pub const MAX_TYPE_BYTES: usize = 128;

/// The media type of a payload of which nothing else is said.
pub const DEFAULT_CONTENT_TYPE: &str = "application/json";

/// The longest media type, in bytes.
const MAX_CONTENT_TYPE_BYTES: usize = 200;

/// The most destinations that one event may go to. Its deliveries are written at
/// once, in one statement beside other tenants' events: so many take a tenth of a
/// second.
pub const MAX_DESTINATIONS: usize = 1_000;

/// What is wrong with an event's type. It is letters, digits and `. _ - : /`,
/// so that it can stand in a header, a label and a shell without quoting.
#[must_use]
pub fn event_type_problem(event_type: &str) -> Option<&'static str> {
    const _: () = assert!(MAX_TYPE_BYTES == 128, "the text says so");
    if event_type.is_empty() || event_type.len() > MAX_TYPE_BYTES {
        return Some("must have 1 to 128 bytes");
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:/".contains(&byte);
    let problem = "must be of letters, digits and . _ - : /";
    (!event_type.bytes().all(allowed)).then_some(problem)
}

/// The end of a subscription to all types below one.
const BELOW: &str = ".*";

/// The most dots of such a subscription. So a type has at most ten subscriptions that take
/// it, and those who subscribe are found by asking for each.
const MAX_DOTS: usize = 8;

/// What is wrong with a subscription: a type, `*` for all, or `order.*` for all types that
/// begin with `order.`. Stores refuse too many dots as well.
#[must_use]
pub fn subscription_problem(subscription: &str) -> Option<&'static str> {
    const _: () = assert!(MAX_DOTS == 8, "the text says so");
    if subscription == "*" {
        return None;
    }
    let below = subscription.strip_suffix(BELOW);
    let is_deep = below.is_some_and(|below| below.matches('.').count() >= MAX_DOTS);
    match event_type_problem(below.unwrap_or(subscription)) {
        None if subscription.len() > MAX_TYPE_BYTES => Some("must have 1 to 128 bytes"),
        None if is_deep => Some("must have at most 8 dots where it ends in `.*`"),
        None => None,
        Some(_) if subscription.contains('*') => {
            Some("must be a type, `*`, or the beginning of types and `.*`, such as `order.*`")
        }
        problem => problem,
    }
}

/// Whether one who subscribes to this, of which nothing is [wrong](subscription_problem),
/// takes an event of that type. Postgres's `subscribes` says the same.
///
/// ```
/// use domain::event::is_subscribed;
///
/// assert!(is_subscribed("order.*", "order.paid.late"));
/// assert!(!is_subscribed("order.*", "order"));
/// assert!(!is_subscribed("order.*", "orders.paid"));
/// ```
#[must_use]
pub fn is_subscribed(subscription: &str, event_type: &str) -> bool {
    subscription == "*"
        || subscription == event_type
        || (subscription.strip_suffix('*'))
            .is_some_and(|start| start.ends_with('.') && event_type.starts_with(start))
}

/// The subscriptions that take an event of that type, each once: at most ten, so that those
/// who subscribe are found by them, and not by asking each [`is_subscribed`].
///
/// ```
/// use domain::event::subscriptions_to;
///
/// let found = subscriptions_to("order.paid.late");
/// assert_eq!(found, ["*", "order.*", "order.paid.*", "order.paid.late"]);
/// ```
#[must_use]
pub fn subscriptions_to(event_type: &str) -> Vec<String> {
    let mut found = vec!["*".to_owned()];
    let dots = event_type.match_indices('.').take(MAX_DOTS);
    found.extend(dots.map(|(dot, _)| format!("{}{BELOW}", &event_type[..dot])));
    if !found.iter().any(|one| one == event_type) {
        found.push(event_type.to_owned());
    }
    found
}

/// What is wrong with a media type. It becomes a header of every request: what
/// could not, or could smuggle another one, is refused.
#[must_use]
pub fn content_type_problem(content_type: &str) -> Option<&'static str> {
    if content_type.len() > MAX_CONTENT_TYPE_BYTES {
        return Some("must be at most 200 bytes");
    }
    let printable = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
    if !content_type.bytes().all(printable) {
        return Some("must be of printable ASCII");
    }
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    match essence.split_once('/') {
        Some((kind, subtype)) if !kind.is_empty() && !subtype.is_empty() => None,
        _ => Some("must be a media type, such as application/json"),
    }
}

/// Whether a payload of this media type is JSON, as far as that says: `application/json`,
/// or a type that ends in `+json`.
#[must_use]
pub fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default();
    let essence = essence.trim().to_ascii_lowercase();
    essence == DEFAULT_CONTENT_TYPE || essence.ends_with("+json")
}

/// The longest idempotency key, in bytes.
pub const MAX_IDEMPOTENCY_KEY_BYTES: usize = 255;

/// How long a key stands for its event.
pub const IDEMPOTENCY_KEY_KEPT: Duration = Duration::from_secs(24 * 3_600);

/// What makes a repeated request the same event: the client's own name for it
/// within its tenant, and what it asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// The client's key.
    pub key: String,
    /// SHA-256 of what was asked for: the same key with another digest is
    /// another request, and refused.
    pub digest: [u8; 32],
    /// How long the key stands for this event, by the store's clock.
    pub kept_for: Duration,
}

/// Whom an event is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Audience {
    /// One destination.
    Destination(DestinationId),
    /// Every destination of the tenant that subscribes to the event's type, and whose
    /// filter takes its payload.
    Subscribers,
    /// The same, if there is one at least.
    SomeSubscriber,
}

impl Audience {
    /// The destination that it names; `None` of those that subscribe.
    #[must_use]
    pub const fn named(&self) -> Option<DestinationId> {
        match self {
            Self::Destination(id) => Some(*id),
            Self::Subscribers | Self::SomeSubscriber => None,
        }
    }
}

/// An event that a client hands in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// Its id, given by us.
    pub id: EventId,
    /// Whose it is.
    pub tenant: TenantId,
    /// Whom it is for.
    pub audience: Audience,
    /// Its type, such as `order.paid`; required for [`Audience::Subscribers`].
    pub event_type: Option<String>,
    /// The media type of the payload.
    pub content_type: String,
    /// The bytes, kept and sent as they are.
    pub payload: bytes::Bytes,
    /// `None`: a repeated request is another event.
    pub idempotency: Option<Idempotency>,
    /// The trace that it belongs to, if there is one.
    pub trace: Option<TraceContext>,
    /// When it may be sent.
    pub timing: Timing,
}

/// How far ahead an event may be meant for. Until then it is kept, and counts as part
/// of a backlog.
pub const MAX_DELIVER_AHEAD: Duration = Duration::from_secs(30 * 24 * 3_600);

/// When an event may be sent: unless it says otherwise, from its acceptance on, and in the
/// order in which events came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timing {
    /// Not before this.
    pub deliver_at: Option<Timestamp>,
    /// Not admitted from this time on, nor from the destination's `max_age` after it is due.
    pub expires_at: Option<Timestamp>,
    /// Its first attempts go before those of other events; see [`crate::turns`].
    pub urgent: bool,
}

impl Timing {
    /// What is wrong with it for an event that comes in now, after the field's name.
    ///
    /// ```
    /// use domain::event::Timing;
    /// use domain::time::Timestamp;
    ///
    /// let now = Timestamp::from_millis(1_000);
    /// let at = |ms| Some(Timestamp::from_millis(ms));
    /// let problem = |deliver_at, expires_at| {
    ///     let timing = Timing { deliver_at, expires_at, urgent: false };
    ///     timing.problem(now).map(|(field, _)| field)
    /// };
    /// assert_eq!(problem(None, None), None);
    /// assert_eq!(problem(at(500), at(1_001)), None, "what is past is due at once");
    /// assert_eq!(problem(None, at(1_000)), Some("expires_at"));
    /// assert_eq!(problem(at(2_000), at(2_000)), Some("expires_at"));
    /// assert_eq!(problem(at(40 * 24 * 3_600_000), None), Some("deliver_at"));
    /// ```
    #[must_use]
    pub fn problem(&self, now: Timestamp) -> Option<(&'static str, &'static str)> {
        const _: () = assert!(
            MAX_DELIVER_AHEAD.as_secs() == 30 * 24 * 3_600,
            "the text says so"
        );
        let due_at = self.due_at(now);
        if due_at.is_some_and(|at| at > now + MAX_DELIVER_AHEAD) {
            return Some(("deliver_at", "must be at most 30 days ahead"));
        }
        let expires_at = self.expires_at?;
        match due_at {
            Some(due_at) if expires_at <= due_at => {
                Some(("expires_at", "must be after deliver_at"))
            }
            None if expires_at <= now => Some(("expires_at", "must be in the future")),
            _ => None,
        }
    }

    /// From when on it is not admitted at a destination that takes nothing older, if it
    /// comes in now.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use domain::event::Timing;
    /// use domain::time::Timestamp;
    ///
    /// let at = |ms| Some(Timestamp::from_millis(ms));
    /// let timing = Timing { deliver_at: at(2_000), expires_at: at(9_000), urgent: false };
    /// let until = |max_age| timing.ends_at(max_age, Timestamp::from_millis(1_000));
    /// assert_eq!(until(None), at(9_000));
    /// assert_eq!(until(Some(Duration::from_secs(5))), at(7_000), "as old as that when it is due");
    /// assert_eq!(until(Some(Duration::from_secs(60))), at(9_000));
    /// ```
    #[must_use]
    pub fn ends_at(&self, max_age: Option<Duration>, now: Timestamp) -> Option<Timestamp> {
        let by_age = max_age.map(|age| self.due_at(now).unwrap_or(now) + age);
        [by_age, self.expires_at].into_iter().flatten().min()
    }

    /// When it is due, if that is not at once.
    #[must_use]
    pub fn due_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.deliver_at.filter(|at| *at > now)
    }

    /// When its first attempts are due, where they are not in the line that needs no time:
    /// if they are not due at once, or urgent.
    #[must_use]
    pub fn waits_from(&self, now: Timestamp) -> Option<Timestamp> {
        self.due_at(now).or_else(|| self.urgent.then_some(now))
    }

    /// Whether its first attempts are in the urgent lane. What is meant for later is not: it
    /// is due when it has waited, as retries are, and in line with these.
    #[must_use]
    pub fn is_urgent(&self, now: Timestamp) -> bool {
        self.urgent && self.due_at(now).is_none()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn who_is_subscribed_is_found_by_its_subscription(
            subscription in "[ab*.]{0,6}|(a[.]){6,10}[*]?", event_type in "[ab*.]{0,8}|(a[.]){6,12}b",
        ) {
            let found = subscriptions_to(&event_type);
            prop_assert!(found.len() <= 10);
            let may_be = subscription_problem(&subscription).is_none();
            prop_assert_eq!(
                may_be && found.contains(&subscription),
                may_be && is_subscribed(&subscription, &event_type),
            );
            let mut once = found.clone();
            once.sort();
            once.dedup();
            prop_assert_eq!(once.len(), found.len());
        }
    }
}
