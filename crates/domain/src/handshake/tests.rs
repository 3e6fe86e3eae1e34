use super::*;

fn origin() -> Origin {
    "Hooks.example.com".parse().unwrap()
}

fn reply(status: u16, allowed_origin: &str, allowed_rate: &str) -> Answer {
    let said = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let reply = Reply {
        status,
        allowed_origin: said(allowed_origin),
        allowed_rate: said(allowed_rate),
    };
    reply.answer(&origin())
}

fn allowed(per_minute: u32) -> Answer {
    Answer::Allowed(NonZeroU32::new(per_minute))
}

#[test]
fn consent_is_the_header_with_our_name_or_a_star() {
    assert_eq!(reply(200, "hooks.example.com", "120"), allowed(120));
    assert_eq!(reply(204, " HOOKS.EXAMPLE.COM ", " 1 "), allowed(1));
    assert_eq!(reply(200, "*", "*"), allowed(0));
    assert_eq!(reply(200, "*", ""), allowed(0), "as configured");
    let long = "9".repeat(40);
    assert_eq!(reply(200, "*", &long), allowed(MAX_LIMIT));
    for other in [
        "",
        "example.com",
        "hooks.example.com.evil",
        "**",
        "*.example.com",
    ] {
        let answer = reply(200, other, "120");
        assert!(matches!(answer, Answer::Refused(_)), "{other}: {answer:?}");
    }
}

#[test]
fn a_rate_that_cannot_be_read_is_no_consent() {
    for nonsense in ["0", "-1", "1.5", "many", "1e3", "60;q=1", "60 a minute"] {
        let answer = reply(200, "*", nonsense);
        assert!(
            matches!(answer, Answer::Refused(_)),
            "{nonsense}: {answer:?}"
        );
    }
}

/// A line break would forge one in the log, and Postgres keeps no NUL: the receiver would be
/// asked again and again.
#[test]
fn what_went_wrong_is_a_line_that_can_be_kept() {
    let why = format!(
        "no such name: a\0b\nc\u{1b}[2J{}",
        "x".repeat(MAX_PROBLEM_BYTES)
    );
    let Answer::Unreachable(kept) = unreachable(&why) else {
        panic!("{why}")
    };
    assert!(
        kept.starts_with("no such name: a\u{fffd}b\u{fffd}c\u{fffd}[2Jx"),
        "{kept:?}"
    );
    assert!(kept.len() <= MAX_PROBLEM_BYTES, "{}", kept.len());
}

#[test]
fn no_status_but_2xx_is_consent() {
    for status in [301, 302, 400, 401, 403, 404, 405, 410, 501] {
        let answer = reply(status, "*", "*");
        assert!(matches!(answer, Answer::Refused(_)), "{status}: {answer:?}");
    }
    // It may say so later.
    for status in [429, 500, 502, 503, 504] {
        let answer = reply(status, "*", "*");
        assert!(
            matches!(answer, Answer::Unreachable(_)),
            "{status}: {answer:?}"
        );
    }
}

#[test]
fn what_a_stranger_wrote_is_cut() {
    let Answer::Refused(why) = reply(200, &"é".repeat(400), "") else {
        panic!("refused");
    };
    assert!(why.len() <= MAX_PROBLEM_BYTES && why.starts_with("it allows the origin"));
}

#[test]
fn the_rate_that_is_asked_for_is_what_is_configured() {
    let set = |per_second, per_minute| LimitSettings {
        per_second,
        per_minute,
        allowed_per_minute: Some(0),
        ..LimitSettings::default()
    };
    let rate = |settings: LimitSettings| asked_rate(&settings).map(NonZeroU32::get);
    assert_eq!(rate(set(Some(10), None)), Some(600));
    assert_eq!(rate(set(Some(10), Some(90))), Some(90));
    assert_eq!(rate(set(Some(0), None)), None);
    assert_eq!(rate(set(None, None)), None);
    let seldom = LimitSettings {
        per_day: Some(3),
        ..LimitSettings::default()
    };
    assert_eq!(rate(seldom), Some(1), "a number above zero");
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(1_000_000) + Duration::from_secs(seconds)
}

fn gone() -> Answer {
    unreachable("gone")
}

#[test]
fn nothing_is_allowed_until_the_receiver_has_said_so() {
    let new = Standing::new();
    assert_eq!(new.allowed_per_minute, Some(0));
    for answer in [Answer::Refused("no".into()), gone()] {
        let after = new.clone().after(&answer, at(0));
        assert_eq!(
            (after.allowed_per_minute, after.allowed_until),
            (Some(0), None)
        );
        assert_eq!(after.next_ask_at, at(60));
    }
    let allowed = new.after(&allowed(120), at(0));
    assert_eq!(allowed.allowed_per_minute, Some(120));
    assert_eq!(allowed.next_ask_at, at(86_400));
    let lifted = allowed.after(&Answer::Allowed(None), at(86_400));
    assert_eq!(lifted.allowed_per_minute, None);
}

#[test]
fn it_is_asked_again_at_growing_distances_up_to_an_hour() {
    let mut standing = Standing::new();
    let mut now = at(0);
    let mut pauses = Vec::new();
    for _ in 0..9 {
        standing = standing.after(&Answer::Refused("no".into()), now);
        pauses.push(standing.next_ask_at.since(now).as_secs());
        now = standing.next_ask_at;
    }
    assert_eq!(pauses, [60, 120, 240, 480, 960, 1_920, 3_600, 3_600, 3_600]);
    let well = standing.after(&allowed(5), now);
    assert_eq!((well.failures, well.problem), (0, None));
}

#[test]
fn what_was_allowed_stands_for_two_days_where_nobody_answers() {
    let mut standing = Standing::new().after(&allowed(120), at(0));
    let until = at(2 * 86_400);
    let mut asked = 0;
    while standing.next_ask_at < until {
        let now = standing.next_ask_at;
        standing = standing.after(&gone(), now);
        assert_eq!(standing.allowed_per_minute, Some(120), "{now:?}");
        asked += 1;
    }
    assert_eq!(standing.next_ask_at, until, "not a moment later");
    assert!((20..40).contains(&asked), "{asked}");
    let over = standing.after(&gone(), until);
    assert_eq!(
        (over.allowed_per_minute, over.allowed_until),
        (Some(0), None)
    );
    // A refusal ends it at once.
    let refused = Standing::new().after(&allowed(120), at(0));
    let refused = refused.after(&Answer::Refused("no".into()), at(5));
    assert_eq!(
        (refused.allowed_per_minute, refused.allowed_until),
        (Some(0), None)
    );
}

#[test]
fn operators_are_told_once_and_when_it_is_over() {
    let no = Answer::Refused("no".into());
    let mut standing = Standing::new();
    let mut told = Vec::new();
    for answer in [
        &no,
        &no,
        &allowed(7),
        &gone(),
        &allowed(7),
        &no,
        &allowed(7),
    ] {
        let after = standing.clone().after(answer, at(0));
        told.push(after.news(&standing).map(OperationalType::as_str));
        standing = after;
    }
    let (refused, well) = (Some("handshake_refused"), Some("handshake_allowed"));
    assert_eq!(told, [refused, None, well, None, None, refused, well]);
    let details = Standing::new().after(&no, at(0)).details();
    assert_eq!(details, r#"{"allowed_per_minute":0,"problem":"no"}"#);
}

#[test]
fn an_origin_is_a_dns_name() {
    assert_eq!(origin().as_str(), "hooks.example.com");
    assert!("localhost".parse::<Origin>().is_ok());
    for other in [
        "",
        "*",
        "a..b",
        ".a",
        "https://a.b",
        "a.b:80",
        "a b",
        "a\r\nb",
        "ä.b",
    ] {
        assert_eq!(other.parse::<Origin>(), Err(NotAnOrigin), "{other:?}");
    }
    assert!(
        "a.".repeat(126)
            .trim_end_matches('.')
            .parse::<Origin>()
            .is_ok()
    );
    assert!(
        "a.".repeat(128)
            .trim_end_matches('.')
            .parse::<Origin>()
            .is_err()
    );
}
