//! Target `keep-alive`: the receiver's word on how long it keeps a connection.

use std::time::Duration;

use fuzzing::{Verdict, ensure};
use http::header::{HeaderMap, HeaderValue};

use super::super::exchange::keep_alive;

#[test]
fn keep_alive_headers() -> fuzzing::Outcome {
    fuzzing::run(super::CRATE, "keep-alive", 20_000, judge)
}

/// Each line of the input is one header's value. A connection is never kept as
/// long as any announced timeout: its close may be on its way.
fn judge(input: &[u8]) -> Verdict {
    let mut headers = HeaderMap::new();
    for line in input.split(|byte| *byte == b'\n') {
        if let Ok(value) = HeaderValue::from_bytes(line) {
            headers.append("keep-alive", value);
        }
    }
    let kept = keep_alive(&headers);
    let announced = headers
        .get_all("keep-alive")
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .filter_map(shortest)
        .min();
    let Some(announced) = announced else {
        let named = input.to_ascii_lowercase();
        let named = named.windows(7).any(|word| word == b"timeout");
        ensure!(named || kept.is_none(), "kept {kept:?} by nobody's word");
        return Ok(format!(
            "{} headers without a timeout",
            headers.len().min(3)
        ));
    };
    let announced = Duration::from_secs(announced.into());
    ensure!(
        kept.is_some_and(|kept| kept < announced || kept.is_zero()),
        "announced {announced:?}, kept {kept:?}"
    );
    let bits = announced.as_secs().checked_ilog2();
    Ok(format!("{} headers, bits {bits:?}", headers.len().min(3)))
}

/// The shortest of the timeouts in one header, whatever else is there.
fn shortest(text: &str) -> Option<u32> {
    let timeout = |parameter: &str| {
        let (name, seconds) = parameter.split_once('=')?;
        let digits = !seconds.is_empty() && seconds.bytes().all(|byte| byte.is_ascii_digit());
        let named = name.trim().eq_ignore_ascii_case("timeout");
        (named && digits).then(|| seconds.parse().ok())?
    };
    text.split(',').map(str::trim).filter_map(timeout).min()
}
