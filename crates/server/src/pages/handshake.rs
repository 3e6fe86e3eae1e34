//! A receiver that is asked first: what it said, and that it is asked again now.

use axum::extract::{Path, State};
use axum::response::Response;
use domain::access::Scope;
use domain::handshake::{AskOutcome, Handshake};
use domain::ids::DestinationId;
use domain::time::Timestamp;
use engine::ports::HandshakeView;

use super::Asked;
use super::destination::{done, parsed};
use super::refused::Refused;
use super::visitor::Posted;
use super::words::{self, NONE};
use crate::service::Service;

/// What is known of a receiver that is asked first, in words.
pub(super) struct Consent {
    /// What it answered last.
    pub(super) answer: &'static str,
    pub(super) tone: &'static str,
    /// When that was.
    pub(super) asked: String,
    pub(super) allows: String,
    /// Until when that stands, while it cannot be reached.
    pub(super) stands: String,
    /// When it is asked next.
    pub(super) next: String,
    /// Why it is not allowed; empty if it is.
    pub(super) problem: String,
}

impl Consent {
    /// `None` of one that is not asked.
    fn of(view: HandshakeView) -> Option<Self> {
        if view.handshake == Handshake::None {
            return None;
        }
        let standing = view.standing.unwrap_or_default();
        let time = |at: Option<Timestamp>| at.map_or(NONE.to_owned(), words::time);
        let (answer, tone) = match standing.outcome {
            Some(AskOutcome::Allowed) => ("allowed", "good"),
            Some(AskOutcome::Refused) => ("refused", "bad"),
            Some(AskOutcome::Unreachable) => ("unreachable", "bad"),
            None => ("not answered yet", "idle"),
        };
        let next = Some(standing.next_ask_at).filter(|at| at.as_micros() > 0);
        Some(Self {
            answer,
            tone,
            asked: time(standing.asked_at),
            allows: match standing.allowed_per_minute {
                None => "as many as are configured".to_owned(),
                Some(0) => "nothing".to_owned(),
                Some(most) => format!("{} a minute", words::large(most.into())),
            },
            stands: time(standing.allowed_until),
            next: next.map_or("at once".to_owned(), words::time),
            problem: standing.problem.unwrap_or_default(),
        })
    }
}

/// Of a destination whose receiver is asked first.
pub(super) async fn consent(
    service: &Service,
    id: DestinationId,
) -> Result<Option<Consent>, Refused> {
    Ok(Consent::of(service.handshake(id).await?))
}

/// Has it asked now. What it says is there when it has answered.
pub(super) async fn ask(
    State(pages): Asked,
    Path(id): Path<String>,
    Posted { visitor, .. }: Posted,
) -> Result<Response, Refused> {
    visitor.needs(Scope::Manage)?;
    let id = parsed(&id)?;
    pages.service(visitor.tenant()).ask_now(id).await?;
    Ok(done(id, "asked"))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use domain::handshake::{Answer, Standing};

    use super::*;

    fn after(answer: &Answer) -> Consent {
        let now = Timestamp::from_micros(1_000_000);
        let view = HandshakeView {
            handshake: Handshake::CloudEvents,
            standing: Some(Standing::new().after(answer, now)),
        };
        Consent::of(view).unwrap()
    }

    #[test]
    fn what_a_receiver_said_is_said_in_words() {
        let allowed = after(&Answer::Allowed(NonZeroU32::new(1_200)));
        assert_eq!((allowed.answer, allowed.tone), ("allowed", "good"));
        assert_eq!(allowed.allows, "1,200 a minute");
        assert_eq!(allowed.asked, "1970-01-01 00:00:01");
        assert_eq!(allowed.next, "1970-01-02 00:00:01");
        assert_eq!(allowed.stands, "1970-01-03 00:00:01");
        assert_eq!(allowed.problem, "");
        let any = after(&Answer::Allowed(None));
        assert_eq!(any.allows, "as many as are configured");
        let refused = after(&Answer::Refused("it answered 405".to_owned()));
        assert_eq!((refused.answer, refused.tone), ("refused", "bad"));
        assert_eq!((&*refused.allows, &*refused.stands), ("nothing", NONE));
        assert_eq!(refused.problem, "it answered 405");
        assert_eq!(refused.next, "1970-01-01 00:01:01");
        let away = after(&Answer::Unreachable("it timed out".to_owned()));
        assert_eq!((away.answer, away.tone), ("unreachable", "bad"));
    }

    #[test]
    fn one_that_has_yet_to_be_asked_is_asked_at_once() {
        let view = |handshake| HandshakeView {
            handshake,
            standing: None,
        };
        let new = Consent::of(view(Handshake::CloudEvents)).unwrap();
        assert_eq!((new.answer, &*new.allows), ("not answered yet", "nothing"));
        assert_eq!((&*new.asked, &*new.next), (NONE, "at once"));
        assert!(Consent::of(view(Handshake::None)).is_none());
    }
}
