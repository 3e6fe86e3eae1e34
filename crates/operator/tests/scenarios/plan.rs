//! What is decided, case by case.

use domain::destination::DestinationState;
use domain::filter::Filter;
use domain::ids::DestinationId;
use domain::policy::LimitSettings;
use operator::destinations::{Refusal, Row, Stored, Wanted};
use operator::plan::{BUSY, IDLE, SecretIs, Step, WAITING, farewell, plan};
use operator::resource::{DeletionPolicy, DestinationSpec};
use operator::verdict::Reason;
use uuid::Uuid;

const ID: DestinationId = DestinationId(Uuid::from_u128(7));

fn wanted() -> Wanted {
    Wanted {
        name: "shop".to_owned(),
        url: "https://shop.example".to_owned(),
        event_types: vec!["a".to_owned(), "b".to_owned()],
        filter: None,
        limit_group: None,
        limits: LimitSettings {
            per_second: Some(5),
            ..LimitSettings::default()
        },
        state: DestinationState::Active,
    }
}

fn row() -> Row {
    let wanted = wanted();
    Row {
        id: ID,
        name: wanted.name,
        url: wanted.url,
        event_types: vec!["b".to_owned(), "a".to_owned()],
        filter: None,
        limit_group: None,
        limits: wanted.limits,
        state: wanted.state,
        signs: true,
        shows: true,
    }
}

const MISSING: SecretIs<'_> = SecretIs::Missing("there is no Secret shop");

#[test]
fn each_case_has_its_steps() {
    use SecretIs::There;
    use Step::{Change, Create, Rotate, Show, TakeOver};
    let other = |change: fn(&mut Row)| {
        let mut row = row();
        change(&mut row);
        row
    };
    let held = Stored::Held {
        id: ID,
        uid: "other".to_owned(),
    };
    let moved = other(|row| row.url = "https://else.example".to_owned());
    let unsigned = other(|row| row.signs = false);
    let both = other(|row| {
        row.signs = false;
        row.limits.per_second = Some(50);
    });
    let shows_other = other(|row| row.shows = false);
    let all = other(|row| {
        (row.signs, row.shows) = (false, false);
        row.limits.per_second = Some(50);
    });
    let paused = other(|row| row.state = DestinationState::Paused);
    let disabled = other(|row| row.state = DestinationState::Disabled);
    let fewer = other(|row| row.event_types.truncate(1));
    let filtered = other(|row| row.filter = Some(Filter::stored(r#"{"/total": 1}"#)));
    let joined = other(|row| row.limit_group = Some("acme".parse().unwrap()));
    #[rustfmt::skip] // one to a line
    let cases = [
        ("in a group by SQL", Stored::Ours(joined), There, vec![Change(ID)], Reason::Synced),
        ("nothing", Stored::Absent, There, vec![Create], Reason::Synced),
        ("nothing to sign with", Stored::Absent, MISSING, vec![], Reason::SecretMissing),
        ("as wanted", Stored::Ours(row()), There, vec![], Reason::Synced),
        ("secret gone", Stored::Ours(row()), MISSING, vec![], Reason::SecretMissing),
        ("filtered by SQL", Stored::Ours(filtered), There, vec![Change(ID)], Reason::Synced),
        ("moved", Stored::Ours(moved.clone()), There, vec![Change(ID)], Reason::Synced),
        ("moved, secret gone", Stored::Ours(moved), MISSING, vec![Change(ID)], Reason::SecretMissing),
        ("unsigned", Stored::Ours(unsigned.clone()), There, vec![Rotate(ID)], Reason::Synced),
        ("unsigned, secret gone", Stored::Ours(unsigned), MISSING, vec![], Reason::SecretMissing),
        ("both", Stored::Ours(both.clone()), There, vec![Change(ID), Rotate(ID)], Reason::Synced),
        ("shows another", Stored::Ours(shows_other.clone()), There, vec![Show(ID)], Reason::Synced),
        ("shows another, secret gone", Stored::Ours(shows_other), MISSING, vec![], Reason::SecretMissing),
        ("all", Stored::Ours(all), There, vec![Change(ID), Rotate(ID), Show(ID)], Reason::Synced),
        ("paused by SQL", Stored::Ours(paused), There, vec![Change(ID)], Reason::Synced),
        ("given up", Stored::Ours(disabled), There, vec![], Reason::Synced),
        ("fewer types", Stored::Ours(fewer), There, vec![Change(ID)], Reason::Synced),
        ("released", Stored::Released(row()), There, vec![TakeOver(ID)], Reason::Synced),
        ("released and other", Stored::Released(both), There,
            vec![TakeOver(ID), Change(ID), Rotate(ID)], Reason::Synced),
        ("another's", held, There, vec![], Reason::Conflict),
        ("the API's", Stored::Unmanaged { id: ID }, There, vec![], Reason::Conflict),
    ];
    for (case, stored, secret, steps, reason) in cases {
        let plan = plan(&wanted(), &stored, secret);
        assert_eq!(plan.steps, steps, "{case}");
        assert_eq!(plan.synced.reason, reason, "{case}");
        assert_eq!(plan.synced.holds, reason == Reason::Synced, "{case}");
        assert_eq!(
            plan.conflict.is_some(),
            reason == Reason::Conflict,
            "{case}"
        );
    }
}

/// The API refuses a client certificate beside `http:`, whichever came first.
#[test]
fn a_certificate_goes_before_https_does() {
    let to_http = Wanted {
        url: "http://shop.example".to_owned(),
        ..wanted()
    };
    let row = Row {
        shows: false,
        ..row()
    };
    let plan = plan(&to_http, &Stored::Ours(row), SecretIs::There);
    assert_eq!(plan.steps, [Step::Show(ID), Step::Change(ID)]);
}

#[test]
fn only_ones_own_is_let_go_or_deleted() {
    use DeletionPolicy::{Discard, Retain};
    let held = || Stored::Held {
        id: ID,
        uid: "other".to_owned(),
    };
    for (stored, policy, expected) in [
        (Stored::Ours(row()), Retain, Some(Step::Release(ID))),
        (Stored::Ours(row()), Discard, Some(Step::Discard(ID))),
        (Stored::Absent, Discard, None),
        (Stored::Released(row()), Discard, None),
        (held(), Discard, None),
        (held(), Retain, None),
        (Stored::Unmanaged { id: ID }, Discard, None),
    ] {
        assert_eq!(farewell(policy, &stored), expected, "{stored:?} {policy:?}");
    }
}

#[test]
fn what_was_refused_is_looked_at_again_when_that_may_help() {
    let plan = || plan(&wanted(), &Stored::Ours(row()), SecretIs::There);
    assert_eq!(plan().requeue(Some(true)), BUSY);
    assert_eq!(plan().requeue(Some(false)), IDLE);
    let refused = |refusal| plan().refused(&refusal);
    let invalid = refused(Refusal::Invalid("url: is wrong".to_owned()));
    assert_eq!(
        (invalid.synced.reason, invalid.requeue(Some(true))),
        (Reason::Invalid, IDLE)
    );
    assert_eq!(invalid.conflict, None);
    let conflict = refused(Refusal::Conflict("somebody else has it".to_owned()));
    assert_eq!(conflict.requeue(None), WAITING);
    assert!(conflict.conflict.is_some_and(|verdict| verdict.holds));
}

/// The schema refuses it, but an API server need not have ours.
#[test]
fn nonsense_is_refused_by_its_field() {
    let spec = |limit: i32| -> DestinationSpec {
        serde_json::from_value(serde_json::json!({
            "url": "https://shop.example", "limits": { "perHour": limit },
            "signingSecretRef": { "name": "shop" },
        }))
        .unwrap()
    };
    assert_eq!(
        Wanted::of("shop", &spec(3)).unwrap().limits.per_hour,
        Some(3)
    );
    let refused = Wanted::of("shop", &spec(-1)).unwrap_err();
    assert_eq!(refused.to_string(), "limits.perHour: must not be negative");
}
