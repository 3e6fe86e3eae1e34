use proptest::prelude::*;

use super::*;

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn incoming(parents: &[&str], states: &[&str]) -> Incoming {
    Incoming::of(
        parents.iter().map(|text| text.as_bytes()),
        states.iter().map(|text| text.as_bytes()),
    )
}

fn state(states: &[&str]) -> Option<String> {
    match incoming(&[PARENT], states) {
        Incoming::Given(context) => context.tracestate().map(str::to_owned),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_good_parent_is_what_it_says() {
    let context = TraceContext::parse(PARENT).unwrap();
    assert_eq!(context.traceparent(), PARENT);
    assert!(context.is_sampled());
    assert_eq!(
        context.trace().to_string(),
        "4bf92f3577b34da6a3ce929d0e0e4736"
    );
    assert_eq!(context.span().to_string(), "00f067aa0ba902b7");
    let later = format!("cc{}-what-comes-later", &PARENT[2..]);
    let read = TraceContext::parse(&later).unwrap();
    assert_eq!(read.traceparent(), PARENT, "a later version, as ours");
    let flags = TraceContext::parse(&PARENT.replace("-01", "-fe")).unwrap();
    assert!(flags.traceparent().ends_with("-02"), "flags we know");
}

#[test]
fn what_is_no_parent_is_another_trace_and_never_an_error() {
    let long = format!("{PARENT}-x");
    let upper = PARENT.to_uppercase();
    let newline = format!("{PARENT}\r\nx-evil: 1");
    for bad in [
        "",
        "00",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
        "00-4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e473+-00f067aa0ba902b7-01",
        "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01x",
        "00-4bf92f3577b34da6a3ce929d0e0e473é-00f067aa0ba902b7-01",
        &long,
        &upper,
        &newline,
    ] {
        assert_eq!(incoming(&[bad], &[]), Incoming::Malformed, "{bad:?}");
    }
    assert_eq!(incoming(&[PARENT, PARENT], &[]), Incoming::Malformed);
    assert_eq!(incoming(&[], &["a=1"]), Incoming::Absent);
    let event = EventId(uuid::Uuid::from_u128(0x4711));
    let context = incoming(&["nonsense"], &["a=1"]).context(event).unwrap();
    assert_eq!(context.trace().0.get(), 0x4711, "the event's id");
    assert_eq!(context.tracestate(), None, "it was of the other trace");
    assert!(!context.is_sampled());
}

#[test]
fn lists_of_state_are_taken_whole_or_not_at_all() {
    assert_eq!(
        state(&["a=1, b=2", "c@d=x y"]).as_deref(),
        Some("a=1,b=2,c@d=x y")
    );
    assert_eq!(state(&[" , a=1,,"]).as_deref(), Some("a=1"));
    let many: Vec<String> = (0..33).map(|n| format!("k{n}=v")).collect();
    let long = format!("a={}", "x".repeat(257));
    let wide: Vec<String> = (0..3)
        .map(|n| format!("k{n}={}", "x".repeat(200)))
        .collect();
    for bad in [
        "a",
        "=1",
        "A=1",
        "a=",
        "a=1,a=2",
        "a=1\r\nx: y",
        "a=\u{e9}",
        "a@b@c=1",
        "a=b=c",
    ] {
        assert_eq!(state(&[bad]), None, "{bad:?}");
    }
    for bad in [many.join(","), long, wide.join(",")] {
        assert_eq!(state(&[&bad]), None, "{bad:?}");
    }
}

#[test]
fn every_step_is_a_span_of_its_own() {
    let context = TraceContext::parse(PARENT).unwrap();
    let (attempt, number) = (AttemptId(7), PermitNumber(3));
    let event = EventId(uuid::Uuid::from_u128(7));
    let mut spans: Vec<SpanId> = [
        Step::Ingest(event),
        Step::Admission(attempt, number),
        Step::Permit(attempt, number),
        Step::Permit(attempt, PermitNumber(4)),
        Step::Permit(AttemptId(8), number),
        Step::Attempt(attempt, number),
        Step::Outcome(attempt, number),
    ]
    .map(|step| context.at(step).span())
    .to_vec();
    spans.sort_unstable();
    spans.dedup();
    assert_eq!(spans.len(), 7);
    let again = context.at(Step::Permit(attempt, number));
    assert_eq!(again, context.at(Step::Permit(attempt, number)));
    assert_eq!(again.trace(), context.trace());
}

proptest! {
    /// Whatever comes in, what goes out is a header's value and nothing else,
    /// and is read back as the same.
    #[test]
    fn nothing_is_smuggled(parent in "[ -~\r\n\t]{0,80}", state in "[ -~\r\n\t]{0,600}", good: bool) {
        let parent = if good { PARENT.to_owned() } else { parent };
        let event = EventId(uuid::Uuid::from_u128(1));
        let context = incoming(&[&parent], &[&state]).context(event);
        let context = context.expect("there is a header");
        let stored = context.stored();
        prop_assert!(stored.len() <= MAX_STORED_BYTES);
        prop_assert!(stored.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{stored:?}");
        prop_assert_eq!(context.traceparent().len(), PARENT_BYTES);
        prop_assert_eq!(TraceContext::from_stored(&stored), Some(context));
    }

    #[test]
    fn whatever_a_store_holds_is_read_or_left(text in "\\PC{0,200}") {
        if let Some(context) = TraceContext::from_stored(&text) {
            prop_assert_eq!(TraceContext::from_stored(&context.stored()), Some(context));
        }
    }
}
