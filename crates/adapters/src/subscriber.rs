//! A destination that subscribes, as the stores read it.

use domain::filter::{Filter, Filters, Subscriber};
use domain::ids::DestinationId;

/// With its filter among those of the batch. One that makes no sense, which only a hand
/// in the database can have written, takes nothing: whoever wrote it has to hear of it.
pub(crate) fn read(filters: &mut Filters, id: DestinationId, stored: Option<String>) -> Subscriber {
    let subscriber = filters.subscriber(id, stored);
    if let Some(problem) = filters.of(&subscriber).and_then(Filter::problem) {
        tracing::error!(destination = %id, %problem, "destinations.filter makes no sense, so it takes nothing");
    }
    subscriber
}
