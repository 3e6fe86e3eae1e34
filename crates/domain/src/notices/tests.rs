use uuid::Uuid;

use super::*;
use crate::ids::DestinationId;
use crate::time::Timestamp;

fn address(number: u128, scope: OperationalScope, tenant: u128) -> NoticeAddress {
    NoticeAddress {
        id: NoticeAddressId(Uuid::from_u128(number)),
        tenant: TenantId(Uuid::from_u128(tenant)),
        scope,
        form: NoticeForm::Email,
        shown: "ops@example.com".to_owned(),
        event_types: Vec::new(),
        every: DEFAULT_EVERY,
    }
}

fn event(id: i64, tenant: u128) -> OperationalEvent {
    OperationalEvent {
        id,
        created_at: Timestamp::from_millis(1_700_000_000_000),
        event_type: "breaker_opened".to_owned(),
        destination: Some(DestinationId(Uuid::from_u128(9))),
        tenant: TenantId(Uuid::from_u128(tenant)),
        details: "{}".to_owned(),
    }
}

fn line(id: i64, name: &str) -> Line {
    Line {
        id,
        at: Timestamp::from_millis(1_700_000_000_000),
        event_type: "dead_letters".to_owned(),
        destination: Some(DestinationId(Uuid::from_u128(9))),
        name: name.to_owned(),
        tenant: "acme".to_owned(),
        details: r#"{"count":4,"since":null,"last_status":"gone"}"#.to_owned(),
    }
}

#[test]
fn an_address_is_told_of_its_tenant_or_of_all_and_of_its_types() {
    let mut typed = address(3, OperationalScope::Tenant, 1);
    typed.event_types = vec!["dead_letters".to_owned()];
    let all = [
        address(1, OperationalScope::Tenant, 1),
        address(2, OperationalScope::Installation, 1),
        typed,
    ];
    let told: Vec<_> = notices(&[event(5, 1), event(6, 2)], &all)
        .into_iter()
        .map(|(to, event)| (to.0.as_u128(), event))
        .collect();
    assert_eq!(told, [(1, 5), (2, 5), (2, 6)]);
}

#[test]
fn a_failing_address_is_tried_ever_more_seldom_and_never_given_up() {
    let pauses: Vec<_> = (0..8)
        .map(|failures| again_in(failures).as_secs())
        .collect();
    assert_eq!(pauses, [30, 60, 120, 240, 480, 960, 1_800, 1_800]);
    assert_eq!(again_in(u32::MAX), Duration::from_secs(1_800));
}

#[test]
fn one_event_says_what_and_who_and_where_to_look() {
    let digest = Digest {
        counts: vec![("dead_letters".to_owned(), 1)],
        newest: vec![line(7, "shop")],
        more: false,
    };
    let to = address(1, OperationalScope::Tenant, 1);
    let written = digest.written(&to, Some("https://hooks.example.com"));
    assert_eq!(written.subject, "[Paceline] shop: dead letters");
    assert_eq!(written.id, "00000000-0000-0000-0000-000000000001.7");
    let expected = "shop (tenant acme): dead letters
  at 2023-11-14T22:13:20.000000Z
  count: 4
  last status: gone
  https://hooks.example.com/dashboard/destinations/00000000-0000-0000-0000-000000000009

-- 
This address is told of one tenant's destinations, at most once in 10 minutes.
To end it: paceline operations remove-address 00000000-0000-0000-0000-000000000001
";
    assert_eq!(written.text, expected);
}

#[test]
fn what_concerns_a_tenant_names_it_and_leads_to_no_destination() {
    let of_tenant = Line {
        destination: None,
        ..line(7, "")
    };
    let digest = Digest {
        counts: vec![("dead_letters".to_owned(), 1)],
        newest: vec![of_tenant],
        more: false,
    };
    let to = address(1, OperationalScope::Tenant, 1);
    let written = digest.written(&to, Some("https://hooks.example.com"));
    assert_eq!(written.subject, "[Paceline] tenant acme: dead letters");
    assert!(written.text.starts_with("tenant acme: dead letters\n"));
    assert!(!written.text.contains("/dashboard/"), "{}", written.text);
}

#[test]
fn many_are_counted_and_the_newest_are_written_out() {
    let digest = Digest {
        counts: vec![
            ("dead_letters".to_owned(), 30),
            ("backlog_high".to_owned(), 2),
        ],
        newest: vec![line(9, ""), line(8, "shop")],
        more: true,
    };
    let to = address(1, OperationalScope::Installation, 1);
    let written = digest.written(&to, None);
    let who = "00000000-0000-0000-0000-000000000009";
    let subject = format!("[Paceline] 32 notices, the newest: {who}: dead letters");
    assert_eq!(written.subject, subject);
    for said in [
        "     30  dead_letters\n      2  backlog_high\n",
        "More wait",
        "of all",
    ] {
        assert!(written.text.contains(said), "{said}: {}", written.text);
    }
    assert!(!written.text.contains("/dashboard/"), "nobody knows where");
}

#[test]
fn a_name_cannot_begin_a_header_or_fill_a_message() {
    let name = format!("shop\r\nBcc: all@example.com\u{0}{}", "x".repeat(500));
    let digest = Digest {
        counts: vec![("dead_letters".to_owned(), 1)],
        newest: vec![line(7, &name)],
        more: false,
    };
    let written = digest.written(&address(1, OperationalScope::Tenant, 1), None);
    assert!(
        !written.subject.contains(char::is_control),
        "{:?}",
        written.subject
    );
    assert!(written.subject.chars().count() < 150);
    assert!(!written.text.contains("\r"));
    assert!(!written.text.contains("\nBcc"));
}

#[test]
fn mail_addresses_are_plain_ones() {
    for good in ["ops@example.com", "a.b+c@localhost", "x_y@sub.example.co"] {
        assert_eq!(email_problem(good), None, "{good}");
    }
    let long = format!("{}@example.com", "a".repeat(65));
    for bad in [
        "",
        "ops",
        "@example.com",
        "ops@",
        "a b@example.com",
        "a@b@example.com",
        "ops@example.com\r\nBcc: x@example.com",
        "ops@exa mple.com",
        "<ops@example.com>",
        "ops@-a.com",
        ".a@example.com",
        "a..b@example.com",
        "ops@example..com",
        "ops@example.com,b@example.com",
        "\"a\"@example.com",
        "ö@example.com",
        &long,
    ] {
        assert!(email_problem(bad).is_some(), "{bad}");
    }
}
