use super::*;

/// Sat, 21 Nov 2026 10:00:00 GMT.
const NOW: i64 = 1_795_255_200;

fn retry_after(text: &str) -> Option<Duration> {
    let signals = RawSignals {
        retry_after: Some(text.to_owned()),
        ..RawSignals::default()
    };
    signals.wait(503, NOW)
}

fn legacy(status: u16, remaining: Option<&str>, reset: &str) -> Option<Duration> {
    let signals = RawSignals {
        remaining: remaining.map(str::to_owned),
        reset: Some(reset.to_owned()),
        ..RawSignals::default()
    };
    signals.wait(status, NOW)
}

fn draft(limit: &str, policy: &str) -> Option<Duration> {
    let signals = RawSignals {
        rate_limit: Some(limit.to_owned()),
        rate_limit_policy: Some(policy.to_owned()),
        ..RawSignals::default()
    };
    signals.wait(200, NOW)
}

const fn seconds(seconds: u64) -> Option<Duration> {
    Some(Duration::from_secs(seconds))
}

#[test]
fn retry_after_is_seconds_or_a_date() {
    assert_eq!(retry_after("120"), seconds(120));
    assert_eq!(retry_after(" 7 "), seconds(7));
    assert_eq!(retry_after("1.5"), Some(Duration::from_millis(1_500)));
    assert_eq!(retry_after("Sat, 21 Nov 2026 10:00:30 GMT"), seconds(30));
    assert_eq!(retry_after("Saturday, 21-Nov-26 10:00:30 GMT"), seconds(30));
    assert_eq!(retry_after("Sat Nov 21 10:00:30 2026"), seconds(30));
}

#[test]
fn the_past_zero_and_nonsense_ask_for_nothing() {
    for text in [
        "0",
        "-5",
        "",
        " ",
        "soon",
        "NaN",
        "inf",
        "1e3",
        "0x10",
        "1.",
        ".5",
        "5 s",
        "Sat, 21 Nov 2026 09:59:59 GMT",
        "Thu, 01 Jan 1970 00:00:00 GMT",
        "Sat, 31 Feb 2026 10:00:00 GMT",
        "\u{0661}",
    ] {
        assert_eq!(retry_after(text), None, "{text:?}");
    }
}

#[test]
fn absurd_waits_are_cut() {
    let many = "9".repeat(200);
    for text in ["3601", "86400", &many, "Fri, 31 Dec 9999 23:59:59 GMT"] {
        assert_eq!(retry_after(text), Some(MAX_WAIT), "{text:?}");
    }
    assert_eq!(legacy(429, None, &many), Some(MAX_WAIT));
    assert_eq!(draft("\"a\";r=0;t=999999999999999", ""), Some(MAX_WAIT));
}

#[test]
fn dates_are_by_the_receivers_own_clock() {
    let signals = RawSignals {
        retry_after: Some("Sat, 21 Nov 2026 12:00:10 GMT".to_owned()),
        date: Some("Sat, 21 Nov 2026 12:00:00 GMT".to_owned()),
        ..RawSignals::default()
    };
    assert_eq!(signals.wait(429, NOW), seconds(10));
}

#[test]
fn retry_after_counts_in_errors_and_before_the_others() {
    let signals = RawSignals {
        retry_after: Some("10".to_owned()),
        rate_limit: Some("\"a\";r=0;t=20".to_owned()),
        ..RawSignals::default()
    };
    assert_eq!(signals.wait(429, NOW), seconds(10));
    assert_eq!(signals.wait(200, NOW), seconds(20));
    let nonsense = RawSignals {
        retry_after: Some("soon".to_owned()),
        ..signals
    };
    assert_eq!(nonsense.wait(429, NOW), seconds(20));
}

#[test]
fn the_draft_asks_once_nothing_is_left() {
    assert_eq!(draft("\"default\";r=0;t=30", ""), seconds(30));
    assert_eq!(draft("\"default\";r=1;t=30", ""), None);
    assert_eq!(draft("\"default\";t=30", ""), None);
    assert_eq!(
        draft("\"a\";r=0;t=5, \"b\";r=0;t=9, \"c\";r=3;t=60", ""),
        seconds(9)
    );
    // Without a time the whole window of the policy of that name.
    assert_eq!(
        draft("\"a\";r=0", "\"b\";q=5;w=3, \"a\";q=100;w=60"),
        seconds(60)
    );
    assert_eq!(draft("\"a\";r=0", ""), None);
    for nonsense in [
        "",
        "r=0;t=5;",
        "\"a\";r=0;t=\"5\"",
        "(\"a\");r=0;t=5",
        "\"a;r=0",
        "0;r",
    ] {
        assert_eq!(draft(nonsense, "\u{1f980}"), None, "{nonsense:?}");
    }
}

#[test]
fn the_older_headers_have_seconds_or_a_time() {
    assert_eq!(legacy(200, Some("0"), "15"), seconds(15));
    assert_eq!(legacy(200, Some("1"), "15"), None);
    assert_eq!(legacy(200, None, "15"), None);
    assert_eq!(legacy(429, None, "15"), seconds(15));
    assert_eq!(legacy(429, Some("many"), "15"), None);
    assert_eq!(legacy(403, Some("0"), &(NOW + 40).to_string()), seconds(40));
    assert_eq!(
        legacy(403, Some("0"), &format!("{}000", NOW + 40)),
        seconds(40)
    );
    assert_eq!(legacy(403, Some("0"), &(NOW - 40).to_string()), None);
}

/// As headers of a response: `name: value`, one a line.
fn read(headers: &str) -> RawSignals {
    RawSignals::read(|name| {
        let value = |line: &str| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then(|| value.to_owned())
        };
        headers.lines().filter_map(value).collect()
    })
}

fn said(status: u16, headers: &str) -> Option<Duration> {
    read(headers).wait(status, NOW)
}

#[test]
fn separate_headers_are_of_drafts_3_to_6() {
    // express-rate-limit, `draft-6`.
    let express = "RateLimit-Policy: 100;w=60\nRateLimit-Limit: 100\n\
                   RateLimit-Remaining: 0\nRateLimit-Reset: 42";
    assert_eq!(said(200, express), seconds(42));
    assert_eq!(
        said(200, &express.replace("Remaining: 0", "Remaining: 1")),
        None
    );
    let without = |header: &str| {
        let kept = express.lines().filter(|line| !line.starts_with(header));
        kept.collect::<Vec<_>>().join("\n")
    };
    // A 429 needs no `Remaining`, and the window stands for a `Reset`.
    assert_eq!(said(429, &without("RateLimit-Remaining")), seconds(42));
    assert_eq!(said(200, &without("RateLimit-Remaining")), None);
    assert_eq!(said(200, &without("RateLimit-Reset")), seconds(60));
    let draft_3 = "RateLimit-Limit: 10, 10;w=1, 50;w=60, 10;w=7;burst=5\nRateLimit-Remaining: 0";
    assert_eq!(said(200, draft_3), seconds(7));
    assert_eq!(
        said(200, "RateLimit-Limit: 9;w=3\nRateLimit-Remaining: 0"),
        seconds(3)
    );
    for nonsense in [
        "RateLimit-Remaining: 0",
        "RateLimit-Remaining: 0\nRateLimit-Reset: soon\nRateLimit-Limit: 5;w=9",
        "RateLimit-Remaining: 0\nRateLimit-Reset: 0",
        "RateLimit-Remaining: none\nRateLimit-Reset: 9",
        "RateLimit-Remaining: 0\nRateLimit-Limit: \"5\";w=9",
        "RateLimit-Remaining: 0\nRateLimit-Limit: 5\nRateLimit-Policy: 6;w=9, (5);w=9, 5;w=x",
    ] {
        assert_eq!(said(200, nonsense), None, "{nonsense}");
    }
    // Some count from 1970.
    let epoch = format!("RateLimit-Remaining: 0\nRateLimit-Reset: {}", NOW + 40);
    assert_eq!(said(403, &epoch), seconds(40));
}

#[test]
fn a_dictionary_is_of_draft_7() {
    assert_eq!(
        said(200, "RateLimit: limit=100, remaining=0, reset=42"),
        seconds(42)
    );
    assert_eq!(
        said(200, "RateLimit: limit=100,remaining=0,reset=42"),
        seconds(42)
    );
    assert_eq!(
        said(200, "RateLimit: limit=100, remaining=3, reset=42"),
        None
    );
    assert_eq!(said(429, "RateLimit: limit=100, reset=42"), seconds(42));
    let window = "RateLimit: limit=100, remaining=0\nRateLimit-Policy: 10;w=1, 100;w=60";
    assert_eq!(said(200, window), seconds(60));
    for nonsense in [
        "limit=100, remaining=0, reset=-42",
        "limit=100, remaining=0, reset=\"42\"",
        "limit=100, remaining=0, reset=(42)",
        "limit=100, remaining=0, reset=42,",
        "limit=100, remaining=0; reset=42",
        "Limit=100, Remaining=0, Reset=42",
    ] {
        let header = format!("RateLimit: {nonsense}");
        assert_eq!(said(200, &header), None, "{nonsense}");
    }
}

#[test]
fn the_longest_of_all_dialects_counts() {
    let headers = "RateLimit: \"a\";r=0;t=5\nRateLimit-Remaining: 0\nRateLimit-Reset: 7\n\
                   X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 6";
    assert_eq!(said(200, headers), seconds(7));
    assert_eq!(said(429, &format!("{headers}\nRetry-After: 3")), seconds(3));
}

#[test]
fn the_older_headers_are_spelled_in_two_ways() {
    let headers = "X-Rate-Limit-Limit: 5\nX-Rate-Limit-Remaining: 0\nX-Rate-Limit-Reset: 9";
    assert_eq!(said(200, headers), seconds(9));
}

#[test]
fn each_limiter_may_add_a_line_of_its_own() {
    // express-rate-limit, `draft-8`, twice.
    let headers = "RateLimit: \"5-in-1s\"; r=3; t=1\nRateLimit: \"100-in-1m\"; r=0; t=42\n\
                   RateLimit-Policy: \"5-in-1s\"; q=5; w=1; pk=:YQ==:";
    assert_eq!(said(200, headers), seconds(42));
    // One that is no list says one thing.
    assert_eq!(said(429, "Retry-After: 3\nRetry-After: 9"), seconds(3));
}

/// The forms of express-rate-limit: what it says by default, and by each of its
/// `standardHeaders`, once nothing is left, beside the `Retry-After` of its 429.
#[test]
fn every_form_of_a_common_limiter_is_understood() {
    let reset = NOW + 42;
    let forms = [
        format!(
            "X-RateLimit-Limit: 100\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: {reset}\n\
             Date: Sat, 21 Nov 2026 10:00:00 GMT"
        ),
        "RateLimit-Policy: 100;w=60\nRateLimit-Limit: 100\nRateLimit-Remaining: 0\n\
         RateLimit-Reset: 42"
            .to_owned(),
        "RateLimit-Policy: 100;w=60\nRateLimit: limit=100, remaining=0, reset=42".to_owned(),
        "RateLimit-Policy: \"100-in-1min\"; q=100; w=60; pk=:NzRhZTg4:\n\
         RateLimit: \"100-in-1min\"; r=0; t=42"
            .to_owned(),
    ];
    for form in forms {
        assert_eq!(said(200, &form), seconds(42), "{form}");
        assert_eq!(said(429, &form), seconds(42), "{form}");
        let both = format!("{form}\nRetry-After: 43");
        assert_eq!(said(429, &both), seconds(43), "{form}");
        let left = form.replace("Remaining: 0", "Remaining: 7");
        let left = left
            .replace("remaining=0", "remaining=7")
            .replace("r=0", "r=7");
        assert_eq!(said(200, &left), None, "{left}");
    }
}

#[test]
fn a_receiver_may_want_no_further_request() {
    for text in ["disable", " Disable "] {
        assert!(
            read(&format!("Webhook-Delivery: {text}")).disables(),
            "{text:?}"
        );
    }
    for text in [
        "",
        "disabled",
        "disable-not",
        "abort-message",
        "disable, disable",
    ] {
        assert!(
            !read(&format!("webhook-delivery: {text}")).disables(),
            "{text:?}"
        );
    }
    assert!(!read("").disables());
}

#[test]
fn long_headers_are_not_read() {
    let long = "0".repeat(MAX_HEADER_BYTES) + "9";
    let read = RawSignals::read(|name| {
        vec![if name == "date" {
            "x".into()
        } else {
            long.clone()
        }]
    });
    let kept = RawSignals {
        date: Some("x".to_owned()),
        ..RawSignals::default()
    };
    assert_eq!(read, kept);
}
