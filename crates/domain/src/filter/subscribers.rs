//! Which of the subscribers to its type an event is for.

use std::cell::OnceCell;
use std::collections::HashMap;

use super::{Content, Filter};
use crate::event::NewEvent;
use crate::ids::DestinationId;

/// The filters of the destinations that a batch of events may go to. Each is read once,
/// however many have it.
#[derive(Debug, Default)]
pub struct Filters {
    all: Vec<Filter>,
    places: HashMap<String, usize>,
}

/// A destination that subscribes to a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subscriber {
    /// Which one.
    pub id: DestinationId,
    /// The place of its filter among [`Filters`].
    filter: Option<usize>,
}

impl Filters {
    /// One that subscribes, and its filter as the store keeps it.
    pub fn subscriber(&mut self, id: DestinationId, stored: Option<String>) -> Subscriber {
        let filter = stored.map(|text| match self.places.get(&text) {
            Some(place) => *place,
            None => {
                self.all.push(Filter::stored(&text));
                self.places.insert(text, self.all.len() - 1);
                self.all.len() - 1
            }
        });
        Subscriber { id, filter }
    }

    /// Whether no destination so far has one.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Its filter.
    #[must_use]
    pub fn of(&self, subscriber: &Subscriber) -> Option<&Filter> {
        subscriber.filter.and_then(|place| self.all.get(place))
    }

    /// Those that take the event, in their order. Its payload is read if one has a
    /// filter, and then once; each filter is asked once.
    #[must_use]
    pub fn takers(&self, event: &NewEvent, subscribers: &[Subscriber]) -> Vec<DestinationId> {
        let content = OnceCell::new();
        let mut answers: HashMap<usize, bool> = HashMap::new();
        let mut takes = |subscriber: &&Subscriber| {
            let Some((place, filter)) = subscriber.filter.zip(self.of(subscriber)) else {
                return true;
            };
            *answers.entry(place).or_insert_with(|| {
                let read = || Content::of(&event.content_type, &event.payload);
                filter.takes(content.get_or_init(read))
            })
        };
        let takers = subscribers.iter().filter(|one| takes(one));
        takers.map(|subscriber| subscriber.id).collect()
    }
}
