//! The destinations' URLs as they were understood, so that each is parsed once
//! and not for every request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use domain::ids::DestinationId;
use engine::ports::{SendError, Target};

use super::endpoint::Endpoint;
use super::policy::Policy;

/// Destinations that are remembered; beyond it all begin anew. About 500 bytes each, and
/// 5 KiB with the longest URL that there may be: 40 MiB together.
const MOST: usize = 8_192;

/// By destination, with the URL that it was parsed from.
#[derive(Default)]
pub(super) struct Endpoints {
    known: Mutex<HashMap<DestinationId, (String, Arc<Endpoint>)>>,
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
        if known.len() >= MOST {
            known.clear();
        }
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
    fn destinations_that_are_remembered_are_bounded() {
        let (endpoints, policy) = (Endpoints::default(), Policy::default());
        for number in 0..=MOST as u128 {
            let target = target(number, "https://192.0.2.1/");
            let _ = endpoints.of(&target, &policy).unwrap();
        }
        assert_eq!(endpoints.known.lock().unwrap().len(), 1);
    }
}
