//! The destinations' URLs as they were understood, so that each is parsed once
//! and not for every request.

use std::sync::{Arc, Mutex, PoisonError};

use domain::ids::DestinationId;
use engine::ports::{SendError, Target};
use engine::recent::Recent;

use super::endpoint::Endpoint;
use super::policy::Policy;

/// Destinations that are remembered; beyond it the older half is forgotten. About 500
/// bytes each, 8 MiB together, and 5 KiB with the longest URL that there may be: 80 MiB.
const MOST: usize = 16_384;

/// By destination, with the URL that it was parsed from.
pub(super) struct Endpoints {
    known: Mutex<Recent<DestinationId, (String, Arc<Endpoint>)>>,
}

impl Default for Endpoints {
    fn default() -> Self {
        Self {
            known: Mutex::new(Recent::new(MOST)),
        }
    }
}

impl Endpoints {
    /// What this target's URL says.
    pub(super) fn of(&self, target: &Target, policy: &Policy) -> Result<Arc<Endpoint>, SendError> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((url, endpoint)) = known.get(&target.destination)
            && *url == target.url
        {
            return Ok(Arc::clone(endpoint));
        }
        let endpoint = Arc::new(Endpoint::parse(&target.url, policy)?);
        let entry = (target.url.clone(), Arc::clone(&endpoint));
        known.insert(target.destination, entry);
        Ok(endpoint)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use domain::ids::Epoch;
    use uuid::Uuid;

    use super::*;

    fn target(destination: u128, url: &str) -> Target {
        Target {
            destination: DestinationId(Uuid::from_u128(destination)),
            epoch: Epoch(1),
            url: url.to_owned(),
            timeout: Duration::from_secs(1),
            batches: false,
            secrets: Vec::new(),
            pass_traceparent: false,
            names_origin: false,
            identity: None,
        }
    }

    #[test]
    fn a_url_is_parsed_once_and_another_one_anew() {
        let (endpoints, policy) = (Endpoints::default(), Policy::default());
        let of = |target: &Target| endpoints.of(target, &policy);
        let one = target(1, "https://example.com/a");
        let first = of(&one).unwrap();
        assert!(Arc::ptr_eq(&first, &of(&one).unwrap()));
        let other = target(2, "https://example.com/a");
        assert!(!Arc::ptr_eq(&first, &of(&other).unwrap()));

        let moved = of(&target(1, "https://example.org/b")).unwrap();
        assert_eq!(moved.authority, "example.org");
        assert_eq!(moved.request_target, "/b");
        assert!(of(&target(1, "http://example.com/a")).is_err());
        assert!(of(&target(1, "http://example.com/a")).is_err(), "each time");
        let again = of(&target(1, "https://example.org/b")).unwrap();
        assert!(Arc::ptr_eq(&moved, &again), "a mistake is not remembered");
    }

    #[test]
    fn one_more_than_are_remembered_makes_the_older_half_be_parsed_anew() {
        let (endpoints, policy) = (Endpoints::default(), Policy::default());
        let most = MOST as u128;
        let of = |number| {
            let target = target(number, "https://192.0.2.1/");
            endpoints.of(&target, &policy).unwrap()
        };
        let first: Vec<_> = (0..most).map(of).collect();
        let is_known = |(number, first): (u128, &Arc<Endpoint>)| Arc::ptr_eq(&of(number), first);
        assert!((0..most).zip(&first).all(is_known));
        let _one_more = of(most);
        assert!((most / 2..most).zip(&first[MOST / 2..]).all(is_known));
        assert!(!is_known((0, &first[0])));
    }
}
