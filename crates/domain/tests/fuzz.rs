//! Target `signals`: the headers of a response, one `name: value` per line
//! after a first line with the status.

use std::time::Duration;

use domain::signals::{MAX_HEADER_BYTES, MAX_WAIT, RawSignals};
use fuzzing::{Context, Verdict, ensure};

/// Sat, 21 Nov 2026 10:00:00 GMT.
const NOW: i64 = 1_795_255_200;

#[test]
fn signals() -> fuzzing::Outcome {
    let judge = |input: &[u8]| match std::str::from_utf8(input) {
        Ok(text) => judge(text),
        Err(_) => Ok("not UTF-8".to_owned()),
    };
    fuzzing::run(env!("CARGO_MANIFEST_DIR"), "signals", 20_000, judge)
}

/// Whatever the headers say, the wait is bounded; a receiver that has not
/// failed and has something left asks for nothing by `Retry-After`.
fn judge(text: &str) -> Verdict {
    let (status, headers) = text.split_once('\n').unwrap_or((text, ""));
    let Ok(status) = status.trim().parse::<u16>() else {
        return Ok("no status".to_owned());
    };
    let raw = RawSignals::read(|name| {
        let value = |line: &str| {
            let (found, value) = line.split_once(':')?;
            found
                .eq_ignore_ascii_case(name)
                .then(|| value.trim().to_owned())
        };
        headers.lines().filter_map(value).collect()
    });
    let all = [
        &raw.retry_after,
        &raw.date,
        &raw.rate_limit,
        &raw.rate_limit_policy,
        &raw.rate_limit_limit,
        &raw.rate_limit_remaining,
        &raw.rate_limit_reset,
        &raw.remaining,
        &raw.reset,
        &raw.delivery,
    ];
    let lengths = all.map(|header| header.as_ref().map_or(0, String::len));
    ensure!(lengths.iter().all(|bytes| *bytes <= MAX_HEADER_BYTES));
    let wait = raw.wait(status, NOW);
    ensure!(wait.is_none_or(|wait| wait > Duration::ZERO && wait <= MAX_WAIT));
    ensure!(wait == raw.wait(status, NOW), "not the same twice");
    let without = RawSignals {
        retry_after: None,
        ..raw.clone()
    };
    let others = without.wait(status, NOW);
    if status < 400 {
        ensure!(wait == others, "Retry-After counted in {status}");
    }
    if let (Some(_), None) = (wait, others) {
        raw.retry_after.as_ref().context("a wait from nowhere")?;
    }
    ensure!(
        !raw.disables() || raw.delivery.is_some(),
        "disabled unasked"
    );
    let has = all.map(|header| u8::from(header.is_some()));
    let kind = match wait {
        None => "none",
        Some(wait) if wait == MAX_WAIT => "cut",
        Some(wait) if wait < Duration::from_secs(1) => "short",
        Some(_) => "wait",
    };
    Ok(format!(
        "{}xx {has:?} {kind} {} {}",
        status / 100,
        others.is_some(),
        raw.disables()
    ))
}
