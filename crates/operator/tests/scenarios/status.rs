//! What a resource is told of its destination, and what is news.

use domain::destination::DestinationState;
use domain::health::Breaker;
use domain::ids::DestinationId;
use domain::policy::LimitSettings;
use domain::time::Timestamp;
use operator::destinations::{Observed, Row, Stored, Wanted};
use operator::plan::{SecretIs, plan};
use operator::resource::DestinationStatus;
use operator::status::{Report, status, transitions};
use uuid::Uuid;

const ID: DestinationId = DestinationId(Uuid::from_u128(7));

const WELL: Observed = Observed {
    state: DestinationState::Active,
    backlog: 0,
    starts_per_second: 0.0,
    allowed_per_second: Some(5.0),
    limit_group: None,
    breaker: Breaker::Closed,
    held: false,
};

fn seen(before: &DestinationStatus, observed: Observed, second: i64) -> DestinationStatus {
    let wanted = Wanted {
        name: "shop".to_owned(),
        url: String::new(),
        event_types: Vec::new(),
        filter: None,
        limit_group: None,
        limits: LimitSettings::default(),
        state: DestinationState::Active,
    };
    let row = Row {
        id: ID,
        name: "shop".to_owned(),
        url: String::new(),
        event_types: Vec::new(),
        filter: None,
        limit_group: None,
        limits: LimitSettings::default(),
        state: DestinationState::Active,
        signs: true,
        shows: true,
    };
    let plan = plan(&wanted, &Stored::Ours(row), SecretIs::There);
    let report = Report {
        plan: &plan,
        id: Some(ID),
        observed: Some(observed),
        generation: Some(1),
        now: Timestamp::from_micros(second * 1_000_000),
    };
    status(before, &report)
}

#[test]
fn each_condition_says_why() {
    use Breaker::{HalfOpen, Open};
    use DestinationState::{Disabled, Paused};
    let none = DestinationStatus::default();
    #[rustfmt::skip] // one to a line
    let cases = [
        (WELL, ("True", "Delivering"), ("False", "NotThrottled")),
        // Ten seconds of work are no backlog.
        (Observed { backlog: 50, ..WELL }, ("True", "Delivering"), ("False", "NotThrottled")),
        (Observed { backlog: 51, ..WELL }, ("True", "Delivering"), ("True", "Limited")),
        (Observed { backlog: 9_999, allowed_per_second: None, ..WELL },
            ("True", "Delivering"), ("False", "NotThrottled")),
        (Observed { held: true, ..WELL }, ("True", "Delivering"), ("True", "Held")),
        (Observed { breaker: Open, ..WELL }, ("False", "CircuitOpen"), ("True", "CircuitOpen")),
        (Observed { breaker: HalfOpen, ..WELL }, ("False", "CircuitOpen"), ("True", "CircuitOpen")),
        (Observed { state: Paused, ..WELL }, ("True", "Paused"), ("False", "NotThrottled")),
        (Observed { state: Paused, backlog: 1, ..WELL }, ("True", "Paused"), ("True", "Paused")),
        (Observed { state: Disabled, ..WELL }, ("False", "Disabled"), ("False", "NotThrottled")),
        (Observed { allowed_per_second: Some(0.0), ..WELL },
            ("True", "LimitIsZero"), ("False", "NotThrottled")),
        (Observed { allowed_per_second: Some(0.0), backlog: 1, ..WELL },
            ("True", "LimitIsZero"), ("True", "LimitIsZero")),
    ];
    for (observed, ready, throttled) in cases {
        let status = seen(&none, observed.clone(), 100);
        let said = |kind: &str| {
            let found = status
                .conditions
                .iter()
                .find(|one| one.type_ == kind)
                .unwrap();
            (found.status.clone(), found.reason.clone())
        };
        let owned = |(status, reason): (&str, &str)| (status.to_owned(), reason.to_owned());
        assert_eq!(said("Ready"), owned(ready), "{observed:?}");
        assert_eq!(said("Throttled"), owned(throttled), "{observed:?}");
        let stopped = match (observed.state, observed.allowed_per_second) {
            (Paused, _) => ("True", "Paused"),
            (Disabled, _) => ("True", "Disabled"),
            (_, Some(0.0)) => ("True", "LimitIsZero"),
            _ => ("False", "NotStopped"),
        };
        assert_eq!(said("Stopped"), owned(stopped), "{observed:?}");
    }
}

/// Otherwise every look would write one, and every one that is written is read.
#[test]
fn a_status_changes_only_when_it_says_something_else() {
    let busy = |backlog, starts_per_second| Observed {
        backlog,
        starts_per_second,
        ..WELL
    };
    let first = seen(&DestinationStatus::default(), busy(6_000, 4.97), 0);
    // Five of the six thousand are gone after a second.
    assert_eq!(seen(&first, busy(5_995, 5.01), 1), first);
    assert_eq!(
        (first.backlog, first.starts_per_second),
        (Some(6_000), Some(5.0))
    );
    assert_eq!(first.drain_eta.as_deref(), Some("1970-01-01T00:20:00Z"));
    let later = seen(&first, busy(3_000, 5.0), 600);
    assert_eq!(later.drain_eta, first.drain_eta, "it holds still");
    assert_eq!(later.backlog, Some(3_000));
    assert_eq!(
        later.conditions, first.conditions,
        "a transition has its time"
    );
    let member = Observed {
        limit_group: Some("acme".parse().unwrap()),
        ..WELL
    };
    let grouped = seen(&later, member, 900);
    assert_eq!(grouped.limit_group.as_deref(), Some("acme"));
    let drained = seen(&later, WELL, 1_200);
    assert_eq!((drained.backlog, drained.drain_eta), (Some(0), None));
    for (rate, shown) in [
        (0.0, 0.0),
        (0.1234, 0.12),
        (0.096, 0.096),
        (12_345.0, 12_000.0),
    ] {
        let status = seen(&first, busy(0, rate), 2);
        assert_eq!(status.starts_per_second, Some(shown), "{rate}");
    }
}

#[test]
fn a_transition_is_news_once() {
    let told = |before: &DestinationStatus, after: &DestinationStatus| -> Vec<(String, bool)> {
        let news = transitions(before, after).into_iter();
        news.map(|one| (one.reason, one.is_warning)).collect()
    };
    let none = DestinationStatus::default();
    let well = seen(&none, WELL, 0);
    assert_eq!(told(&none, &well), [("Delivering".to_owned(), false)]);
    assert_eq!(told(&well, &seen(&well, WELL, 9)), []);
    let limited = seen(
        &well,
        Observed {
            backlog: 500,
            ..WELL
        },
        10,
    );
    assert_eq!(told(&well, &limited), [("Limited".to_owned(), true)]);
    assert_eq!(
        told(
            &limited,
            &seen(
                &limited,
                Observed {
                    backlog: 400,
                    ..WELL
                },
                20
            )
        ),
        []
    );
    let back = seen(&limited, WELL, 30);
    assert_eq!(told(&limited, &back), [("NotThrottled".to_owned(), false)]);
    let transition = |status: &DestinationStatus| {
        let found = status
            .conditions
            .iter()
            .find(|one| one.type_ == "Throttled");
        found.unwrap().last_transition_time.0.as_second()
    };
    assert_eq!((transition(&limited), transition(&back)), (10, 30));
}
