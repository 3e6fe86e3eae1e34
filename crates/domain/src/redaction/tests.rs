use super::*;

fn rules(pointers: &[&str]) -> Redaction {
    Redaction::parse(pointers).unwrap()
}

#[track_caller]
fn redacted(pointers: &[&str], payload: &str) -> String {
    match rules(pointers).shown(payload.as_bytes().to_vec()) {
        Shown::Redacted(text) => String::from_utf8(text).unwrap(),
        other => panic!("{pointers:?} of {payload}: {other:?}"),
    }
}

#[test]
fn what_is_named_is_hidden_and_all_else_stays_byte_for_byte() {
    let payload = r#" { "a" : 1.50, "b":{"c": [1, {"d": "x"}], "e/f~": null}, "n": 1e400 } "#;
    for (pointer, shown) in [
        ("/a", payload.replace("1.50", REDACTED)),
        ("/b/c/1/d", payload.replace("\"x\"", REDACTED)),
        ("/b/c/0", payload.replace("[1,", r#"["[redacted]","#)),
        ("/b/e~1f~0", payload.replace("null", REDACTED)),
        ("/b/c", payload.replace(r#"[1, {"d": "x"}]"#, REDACTED)),
        // Nothing is there.
        ("/c", payload.to_owned()),
        ("/a/b", payload.to_owned()),
        ("/b/c/01", payload.to_owned()),
        ("/b/c/2", payload.to_owned()),
        ("/b/c/-", payload.to_owned()),
    ] {
        assert_eq!(redacted(&[pointer], payload), shown, "{pointer}");
    }
    assert_eq!(redacted(&[""], payload), format!(" {REDACTED} "));
}

#[test]
fn each_element_of_an_array_is_named_by_a_star() {
    let payload = r#"{"items":[{"p":1,"q":2},3,[{"p":4}]],"*":{"p":5}}"#;
    assert_eq!(
        redacted(&["/items/*/p"], payload),
        r#"{"items":[{"p":"[redacted]","q":2},3,[{"p":4}]],"*":{"p":5}}"#
    );
    // In an object it is a name like any other; with an index it is both.
    assert_eq!(
        redacted(&["/*/p", "/items/0/q", "/items/*/*"], payload),
        r#"{"items":[{"p":1,"q":"[redacted]"},3,["[redacted]"]],"*":{"p":"[redacted]"}}"#
    );
}

#[test]
fn no_way_of_writing_a_name_gets_around_a_rule() {
    let twice = r#"{"card":1,"card":{"n":2},"\u0063ard":3}"#;
    assert_eq!(
        redacted(&["/card"], twice),
        r#"{"card":"[redacted]","card":"[redacted]","\u0063ard":"[redacted]"}"#
    );
    assert_eq!(
        redacted(&["/card/n"], twice),
        r#"{"card":1,"card":{"n":"[redacted]"},"\u0063ard":3}"#
    );
    assert_eq!(redacted(&["/"], r#"{"":1}"#), r#"{"":"[redacted]"}"#);
    // `~01` is `~1`, and no slash.
    assert_eq!(
        redacted(&["/a~01"], r#"{"a~1":1,"a/":2}"#),
        r#"{"a~1":"[redacted]","a/":2}"#
    );
    // The shorter pointer hides what the longer one names.
    assert_eq!(
        redacted(&["/a/b", "/a"], r#"{"a":{"b":1}}"#),
        r#"{"a":"[redacted]"}"#
    );
}

#[test]
fn what_is_no_json_is_not_shown_where_there_are_rules() {
    for payload in [
        &b"card=42"[..],
        b"",
        b"{\"card\":42",
        b"{\"card\":42} {}",
        b"{\"card\":\"\xff\"}",
        b"\xef\xbb\xbf{\"card\":42}",
        // A name that is no text might be any.
        br#"{"\ud800":42}"#,
    ] {
        let shown = rules(&["/card"]).shown(payload.to_vec());
        assert_eq!(
            shown,
            Shown::Withheld,
            "{}",
            String::from_utf8_lossy(payload)
        );
        let whole = Redaction::default().shown(payload.to_vec());
        assert_eq!(whole, Shown::Whole(payload.to_vec()));
    }
}

#[test]
fn a_payload_that_is_nested_for_no_reason_ends_where_the_rules_do() {
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let stars = "/*".repeat(MAX_POINTER_DEPTH);
    let text = redacted(&[&stars], &deep);
    let around = MAX_POINTER_DEPTH;
    assert_eq!(
        text,
        format!("{}{REDACTED}{}", "[".repeat(around), "]".repeat(around))
    );
}

#[test]
fn a_pointer_that_is_none_is_named_by_its_place() {
    let long = format!("/{}", "x".repeat(MAX_POINTER_BYTES));
    let deep = "/x".repeat(MAX_POINTER_DEPTH + 1);
    for (bad, problem) in [
        ("card", "JSON pointer"),
        ("$.card", "JSON pointer"),
        ("/a~b", "~0"),
        ("/a~", "~0"),
        ("/a~~01", "~0"),
        ("/a\nb", "control"),
        (long.as_str(), "200 bytes"),
        (deep.as_str(), "32 names"),
        ("/good", "twice"),
    ] {
        let refused = Redaction::parse(&["/good", bad]).unwrap_err();
        assert_eq!(refused.at, Some(1), "{bad}");
        assert!(refused.problem.contains(problem), "{bad}: {refused}");
        let kept = ["/good".to_owned(), bad.to_owned()];
        assert_eq!(Redaction::shown_by(&kept, b"{}".to_vec()), Shown::Withheld);
    }
    let many: Vec<String> = (0..=MAX_POINTERS).map(|at| format!("/{at}")).collect();
    assert_eq!(Redaction::parse(&many).unwrap_err().at, None);
    assert!(Redaction::parse(&many[1..]).is_ok());
    assert!(rules(&[]).is_empty() && !rules(&[""]).is_empty());
}
