//! `tracestate`: a list that other systems keep their own word in. We add none.

/// The longest list that is kept, in bytes: what the recommendation asks for.
pub(super) const MAX_BYTES: usize = 512;

/// The most members of a list.
const MAX_MEMBERS: usize = 32;

/// The longest key, and the longest value, in bytes.
const MAX_PART_BYTES: usize = 256;

/// One list of several headers' values, in order; `None` if it is empty or
/// malformed in any place: a part of a list is another list.
pub(super) fn joined<'a>(values: impl Iterator<Item = &'a [u8]>) -> Option<String> {
    let mut members: Vec<&str> = Vec::new();
    for value in values {
        let text = std::str::from_utf8(value).ok()?;
        for member in text
            .split(',')
            .map(|member| member.trim_matches([' ', '\t']))
        {
            if member.is_empty() {
                continue;
            }
            let (key, value) = member.split_once('=')?;
            let is_known = |other: &&str| other.split_once('=').is_some_and(|(own, _)| own == key);
            if !is_key(key) || !is_value(value) || members.iter().any(is_known) {
                return None;
            }
            members.push(member);
            if members.len() > MAX_MEMBERS {
                return None;
            }
        }
    }
    let list = members.join(",");
    (1..=MAX_BYTES).contains(&list.len()).then_some(list)
}

/// Lower case letters, digits and `_ - * /`, and one `@` before a system's name.
fn is_key(key: &str) -> bool {
    let letter =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-*/@".contains(&byte);
    let begins = key
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphanumeric());
    begins
        && key.len() <= MAX_PART_BYTES
        && key.bytes().all(letter)
        && key.bytes().filter(|byte| *byte == b'@').count() <= 1
}

/// Printable ASCII without `,` and `=`, not ending in a space.
fn is_value(value: &str) -> bool {
    let letter = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b',' && byte != b'=';
    (1..=MAX_PART_BYTES).contains(&value.len())
        && value.bytes().all(letter)
        && !value.ends_with(' ')
}
