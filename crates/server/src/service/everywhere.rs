//! Replays at all of a tenant's destinations, one for each: each has limits, and a pace, of
//! its own. They begin in parts, so that no request does so for long: a part is of a bounded
//! number of destinations, takes a bounded time, and says where to go on.

use std::time::Duration;

use domain::ids::DestinationId;
use engine::ports::{DeadLetterFilter, DestinationPage, Replay, ResentEvents, Which};
use tokio::time::Instant;

use super::replays::{REPLAYS_AT_ONCE, checked_share};
use super::{BegunReplays, Service, ServiceError, resend, rules};

/// Destinations that one part sends events to again, at most: for each of them a store
/// counts the tenant's first 10,000 events of the time twice, before its replay begins.
pub const RESENT_TO_AT_ONCE: u32 = 10;

/// After so long no replay more begins: each takes up to four statements of five seconds, and
/// an answer is waited for no longer than 30 seconds.
const BEGINS_FOR: Duration = Duration::from_secs(5);

/// A form begins up to so many parts, and then asks whether to go on.
const PARTS_OF_A_FORM: u32 = 10;

/// All destinations, after one in id order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Everywhere {
    pub after: Option<DestinationId>,
}

/// What is replayed at all destinations.
#[derive(Debug, Clone, Copy)]
pub enum OfAll<'a> {
    /// Those that match, of whichever destination.
    DeadLetters(&'a DeadLetterFilter),
    /// Events that are sent again.
    Events(&'a ResentEvents),
}

impl OfAll<'_> {
    /// What can be told without the store.
    fn check(self) -> Result<(), ServiceError> {
        match self {
            Self::DeadLetters(filter) => rules::wanted_type(filter.event_type.as_deref()),
            Self::Events(which) => resend::check(which),
        }
    }
}

impl Service {
    /// Begins replays at the next of all destinations: few, or none, of those that it looks
    /// at. What has begun is said, also where it ended early: after some seconds, or with a
    /// failure, which is an error only where nothing has begun.
    pub async fn begin_part(
        &self,
        of: OfAll<'_>,
        Everywhere { after }: Everywhere,
        share: Option<f64>,
    ) -> Result<BegunReplays, ServiceError> {
        let share = checked_share(share)?;
        of.check()?;
        let until = Instant::now() + BEGINS_FOR;
        self.begin_until((until, true), after, (of, share)).await
    }

    /// The same at as many as one form begins them at.
    pub async fn begin_form(
        &self,
        of: OfAll<'_>,
        Everywhere { after }: Everywhere,
        share: Option<f64>,
    ) -> Result<BegunReplays, ServiceError> {
        let share = checked_share(share)?;
        of.check()?;
        let until = Instant::now() + BEGINS_FOR;
        let mut begun = BegunReplays {
            replays: Vec::new(),
            next: after,
        };
        for part in 0..PARTS_OF_A_FORM {
            let (until, wanted) = ((until, part == 0), (of, share));
            match self.begin_until(until, begun.next, wanted).await {
                Ok(part) => {
                    begun.replays.extend(part.replays);
                    begun.next = part.next;
                }
                Err(error) if begun.replays.is_empty() => return Err(error),
                Err(_) => break,
            }
            if begun.next.is_none() || Instant::now() >= until.0 {
                break;
            }
        }
        Ok(begun)
    }

    async fn begin_until(
        &self,
        until: (Instant, bool),
        after: Option<DestinationId>,
        (of, share): (OfAll<'_>, f64),
    ) -> Result<BegunReplays, ServiceError> {
        let page = self.looked_at(of, after).await?;
        let begin = |to| self.begin_at(to, of, share);
        begin_each(until, (after, page), begin).await
    }

    /// The next of all destinations that may have some.
    async fn looked_at(
        &self,
        of: OfAll<'_>,
        after: Option<DestinationId>,
    ) -> Result<DestinationPage, ServiceError> {
        match of {
            OfAll::DeadLetters(filter) => Ok((self.backlog())
                .destinations_with_dead_letters(self.tenant, filter, after, REPLAYS_AT_ONCE)
                .await?),
            OfAll::Events(_) => {
                let page = self
                    .enabled(&self.catalog, after, RESENT_TO_AT_ONCE)
                    .await?;
                Ok(DestinationPage {
                    destinations: page.destinations.iter().map(|one| one.id).collect(),
                    next: page.next,
                })
            }
        }
    }

    /// At one of all; `None` where nothing matches, or it was deleted meanwhile.
    async fn begin_at(
        &self,
        to: DestinationId,
        of: OfAll<'_>,
        share: f64,
    ) -> Result<Option<Replay>, ServiceError> {
        let which = match of {
            OfAll::DeadLetters(filter) => Which::Matching(to, filter.clone()),
            OfAll::Events(which) => {
                let backlog = self.backlog();
                let matching = backlog.resendable(self.tenant, &[to], which).await?;
                if matching.is_none() {
                    return Ok(None);
                }
                Which::Events(to, which.clone())
            }
        };
        match self.create_replay(which, share).await {
            Ok(replay) => Ok(Some(replay)),
            Err(ServiceError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Begins one at each destination of a page that begins after another; until then, and where
/// it `gets_on`, at the first however late it is: whoever goes on has to get on.
async fn begin_each<F>(
    (until, gets_on): (Instant, bool),
    (after, page): (Option<DestinationId>, DestinationPage),
    begin: impl Fn(DestinationId) -> F,
) -> Result<BegunReplays, ServiceError>
where
    F: Future<Output = Result<Option<Replay>, ServiceError>>,
{
    let mut begun = BegunReplays {
        replays: Vec::new(),
        next: after,
    };
    for (turn, to) in page.destinations.into_iter().enumerate() {
        let has_to = gets_on && turn == 0;
        if !has_to && Instant::now() >= until {
            return Ok(begun);
        }
        match begin(to).await {
            Ok(replay) => begun.replays.extend(replay),
            Err(error) if begun.replays.is_empty() => return Err(error),
            // Whoever goes on from here meets it again, if it lasts.
            Err(_) => return Ok(begun),
        }
        begun.next = Some(to);
    }
    begun.next = page.next;
    Ok(begun)
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;
    use uuid::Uuid;

    use super::*;

    fn id(number: u128) -> DestinationId {
        DestinationId(Uuid::from_u128(number))
    }

    /// Where it came to, of ten after the third, within five seconds of which so many have gone.
    async fn came_to((gone, gets_on): (Duration, bool), each: Duration) -> Option<DestinationId> {
        let until = (Instant::now() + BEGINS_FOR - gone, gets_on);
        let page = DestinationPage {
            destinations: (4..14).map(id).collect(),
            next: Some(id(20)),
        };
        let begin = |_to| async move {
            sleep(each).await;
            Ok(None)
        };
        let begun = begin_each(until, (Some(id(3)), page), begin).await;
        begun.unwrap().next
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_ends_with_its_time_and_says_where_to_go_on() {
        let (none, two) = (Duration::ZERO, Duration::from_secs(2));
        let all = came_to((none, true), none).await;
        assert_eq!(all, Some(id(20)), "all of them");
        let some = came_to((none, true), two).await;
        assert_eq!(some, Some(id(6)), "none begins at 6 s");
        let one = came_to((BEGINS_FOR, true), two).await;
        assert_eq!(one, Some(id(4)), "it gets on");
        let none_more = came_to((BEGINS_FOR, false), two).await;
        assert_eq!(
            none_more,
            Some(id(3)),
            "a form has got on with its first part"
        );
    }
}
