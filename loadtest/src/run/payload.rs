//! What an event carries: its number, and when it was sent.

use std::io::Write;

/// What pads a payload to its size.
const PADDING: [u8; 1_024] = [b'x'; 1_024];

/// Appends the payload of an event: JSON of `size` bytes, or a few more where
/// that is not enough for what it has to say.
pub(crate) fn write(into: &mut Vec<u8>, event: u32, sent_us: i64, size: u32) {
    let begin = into.len();
    // Writing to a vector cannot fail.
    let _ = write!(into, r#"{{"event":{event},"sent_us":{sent_us},"padding":""#);
    let end = b"\"}";
    let written = into.len() - begin + end.len();
    let mut missing = (size as usize).saturating_sub(written);
    while missing > 0 {
        let piece = missing.min(PADDING.len());
        into.extend_from_slice(&PADDING[..piece]);
        missing -= piece;
    }
    into.extend_from_slice(end);
}

/// The event and the time that a payload of [`write()`] carries.
pub(crate) fn read(payload: &[u8]) -> Option<(u32, i64)> {
    let rest = payload.strip_prefix(b"{\"event\":")?;
    let (event, rest) = number(rest)?;
    let rest = rest.strip_prefix(b",\"sent_us\":")?;
    let (sent_us, _) = number(rest)?;
    Some((u32::try_from(event).ok()?, sent_us))
}

fn number(text: &[u8]) -> Option<(i64, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at(digits);
    let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some((number, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_is_json_of_its_size() {
        for (event, sent_us, size) in [(0, 0, 64), (7, 12_345, 1_024), (u32::MAX, 1 << 50, 5_000)] {
            let mut written = b"before".to_vec();
            write(&mut written, event, sent_us, size);
            let payload = &written[6..];
            assert_eq!(payload.len(), size as usize);
            assert_eq!(read(payload), Some((event, sent_us)));
            let json: serde_json::Value = serde_json::from_slice(payload).unwrap();
            assert_eq!(json["event"], event);
        }
    }

    #[test]
    fn a_size_that_is_too_small_is_exceeded() {
        let mut written = Vec::new();
        write(&mut written, 12, 34, 1);
        assert_eq!(written, br#"{"event":12,"sent_us":34,"padding":""}"#);
    }

    #[test]
    fn other_payloads_are_none() {
        for other in [
            "",
            "{}",
            r#"{"event":x"#,
            r#"{"event":1,"sent_us":}"#,
            r#"{"event":99999999999,"sent_us":1}"#,
        ] {
            assert_eq!(read(other.as_bytes()), None, "{other}");
        }
    }
}
